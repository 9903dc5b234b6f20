; All of a nest is there twice: it goes through the copy, which is as it was, where
; the run-time layer is not called, and where none of its loops has strips. What only
; the call needs is computed for the call.
; RUN: %opt %s | %FileCheck %s

; CHECK-LABEL: @scale
; CHECK: entry:
; CHECK-NOT: store
; CHECK: br i1 %ra.call, label %ra.begin, label %outer.unsplit
; CHECK: ra.begin:
; CHECK: %[[SPLITS:.*]] = call i64 @ra_begin_2(
; CHECK: %[[ANY:.*]] = icmp ne i64 %[[SPLITS]], 0
; CHECK: br i1 %[[ANY]], label %{{.*}}, label %outer.unsplit
; CHECK: call void @ra_tick(
; CHECK: outer.unsplit:
; CHECK-NEXT: phi i64 [ 0, %entry ], [ %i.next{{.*}}, %outer.latch.unsplit ], [ 0, %ra.begin ]
; CHECK-NOT: ra.iteration
; CHECK-NOT: @ra_tick
; CHECK: outer.latch.unsplit:
; CHECK: br i1 %{{.*}}, label %outer.unsplit, label %exit
define void @scale(ptr %a, i64 %n, i64 %m) {
entry:
  br label %outer
outer:
  %i = phi i64 [ 0, %entry ], [ %i.next, %outer.latch ]
  %row = mul nuw nsw i64 %i, %m
  br label %inner
inner:
  %j = phi i64 [ 0, %outer ], [ %j.next, %inner ]
  %at = add nuw nsw i64 %row, %j
  %p = getelementptr double, ptr %a, i64 %at
  %x = load double, ptr %p
  %y = fmul double %x, 5.0e-1
  store double %y, ptr %p
  %j.next = add nuw nsw i64 %j, 1
  %j.more = icmp ult i64 %j.next, %m
  br i1 %j.more, label %inner, label %outer.latch
outer.latch:
  %i.next = add nuw nsw i64 %i, 1
  %i.more = icmp ult i64 %i.next, %n
  br i1 %i.more, label %outer, label %exit
exit:
  ret void
}
