; Values that the loop hands on leave it from the end of the last strip.
; RUN: %opt %s | %FileCheck %s

; CHECK-LABEL: @last
; CHECK: ra.strip.begin:
; CHECK: phi double
; CHECK: exit:
; CHECK: %result = phi double [ %v, %ra.strip.end ]
define double @last(ptr %a, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %before = phi double [ 0.0, %entry ], [ %v, %loop ]
  %p = getelementptr double, ptr %a, i64 %i
  %x = load double, ptr %p
  %v = fsub double %x, %before
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  %result = phi double [ %v, %loop ]
  ret double %result
}
