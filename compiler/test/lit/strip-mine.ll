; Section 2.3: strip mining isolates the iterations that come to a new block.
; The order of the iterations stays, and the loop ends where it ended.
; RUN: %opt %s | %FileCheck %s

; CHECK: @ra.site = internal global {{.*}} i32 1, i32 1, i32 1
; CHECK-LABEL: @fill
; CHECK: call i64 @ra_begin_2
; CHECK: ra.strip.begin:
; CHECK: %[[LEFT:.*]] = sub i64 %[[COUNT:.*]], %[[BEGUN:.*]]
; CHECK: %ra.limit = add i64
; CHECK: loop:
; CHECK: store double
; CHECK: icmp eq i64 %ra.iteration.next, %ra.limit
; CHECK: ra.strip.end:
; CHECK: %ra.done = icmp eq i64 %ra.iteration.next,
; CHECK: br i1 %ra.done, label %{{.*}}, label %ra.strip.tick
; CHECK: ra.strip.tick:
; CHECK: call void @ra_tick
; CHECK: br label %ra.strip.begin
define void @fill(ptr %a, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %p = getelementptr double, ptr %a, i64 %i
  store double 1.0, ptr %p
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
}
