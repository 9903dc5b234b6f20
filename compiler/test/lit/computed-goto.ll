; A loop that goes on by a computed goto comes to the block that the address names: no
; strip ends there.
; RUN: %opt %s | %FileCheck %s
; CHECK-LABEL: @rows(
; CHECK: call void @ra_tick(
; CHECK: indirectbr ptr %where, [label %outer]
define void @rows(ptr %a, i64 %n, ptr %where) {
entry:
  br label %outer
outer:
  %i = phi i64 [ 0, %entry ], [ %i.next, %latch ]
  %goes = icmp ult i64 %i, %n
  br i1 %goes, label %begin, label %exit
begin:
  %row = mul nuw nsw i64 %i, 65536
  br label %inner
inner:
  %k = phi i64 [ 0, %begin ], [ %k.next, %inner ]
  %of = add nuw nsw i64 %row, %k
  %at = getelementptr inbounds double, ptr %a, i64 %of
  store double 0.0, ptr %at
  %k.next = add nuw nsw i64 %k, 1
  %again = icmp ult i64 %k.next, 65536
  br i1 %again, label %inner, label %latch
latch:
  %i.next = add nuw nsw i64 %i, 1
  indirectbr ptr %where, [label %outer]
exit:
  ret void
}
