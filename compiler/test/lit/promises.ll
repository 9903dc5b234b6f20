; What the program's own instructions promise stays as it is, although the parameters of the
; nest are computed from them: twice does not overflow, so that each half is a power of two.
; Divided is only where the nest is told of.
; RUN: %opt %s | %FileCheck %s

; Takes no promises, and divides by numbers only.
; UNSUPPORTED: llvm14

; CHECK-LABEL: @line(
; CHECK: %twice = shl nsw i64 %half, 1
; CHECK-NOT: udiv
; CHECK: br i1
; CHECK-LABEL: ra.begin:
; CHECK: udiv
; CHECK: call i64 @ra_begin_2(
; CHECK: ret void
define void @line(ptr noundef %a, i64 noundef %n) {
entry:
  br label %stage
stage:
  %half = phi i64 [ 1, %entry ], [ %twice, %after ]
  %twice = shl nsw i64 %half, 1
  br label %outer
outer:
  %i = phi i64 [ 0, %stage ], [ %i.next, %latch ]
  br label %loop
loop:
  %k = phi i64 [ 0, %outer ], [ %k.next, %loop ]
  %at = add nsw i64 %i, %k
  %p = getelementptr inbounds double, ptr %a, i64 %at
  store double 1.0, ptr %p
  %k.next = add nuw nsw i64 %k, 1
  %more = icmp slt i64 %k.next, %half
  br i1 %more, label %loop, label %latch
latch:
  %i.next = add nsw i64 %i, %twice
  %further = icmp slt i64 %i.next, %n
  br i1 %further, label %outer, label %after
after:
  %again = icmp slt i64 %twice, %n
  br i1 %again, label %stage, label %exit
exit:
  ret void
}
