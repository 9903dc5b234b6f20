; A loop whose number of iterations is only guessed (a counter in steps of two
; may overflow) keeps its own condition; a test beside it ends the strips.
; RUN: %opt %s | %FileCheck %s
; CHECK: ra.strip.begin:
; CHECK: %ra.left = sub i64 %{{.*}}, %ra.iteration.strip
; CHECK: loop:
; CHECK: %again = icmp slt i64 %next, %n
; CHECK: br i1 %again, label %ra.strip.end, label %exit
; CHECK: ra.strip.end:
; CHECK: %ra.strip.done = icmp eq i64 %ra.iteration.next, %ra.limit
; CHECK: br i1 %ra.strip.done, label %ra.strip.tick, label %loop
; CHECK: ra.strip.tick:
; CHECK: call void @ra_tick(
; CHECK: br label %ra.strip.begin
define void @pairs(ptr %a, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr double, ptr %a, i64 %i
  store double 0.0, ptr %at
  %next = add i64 %i, 2
  %again = icmp slt i64 %next, %n
  br i1 %again, label %loop, label %exit
exit:
  ret void
}
