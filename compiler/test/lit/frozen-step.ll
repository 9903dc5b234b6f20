; The step of a loop inside, which may not be come to: before the nest it may be
; undefined, and the iterations are guessed by a division. Read backwards.
; RUN: %opt %s | tac | %FileCheck %s

; Divides by numbers only.
; UNSUPPORTED: llvm14

; CHECK: udiv i64 %{{.*}}, %[[STEP:[a-z0-9.]+]]
; CHECK-NEXT: %[[STEP]] = select i1 %[[ZERO:[a-z0-9.]+]], i64 1, i64 %[[FROZEN:[a-z0-9.]+]]
; CHECK-NEXT: %[[ZERO]] = icmp eq i64 %[[FROZEN]], 0
; CHECK-NEXT: %[[FROZEN]] = call noundef i64 asm "", "=r,0"(i64
define void @steps(ptr %a, i64 noundef %n, i64 noundef %m, i64 %step, i1 %any) {
entry:
  br label %outer
outer:
  %j = phi i64 [ 0, %entry ], [ %j.next, %latch ]
  %row = mul i64 %j, 100000
  br i1 %any, label %loop, label %latch
loop:
  %i = phi i64 [ %next, %loop ], [ 0, %outer ]
  %at = add i64 %row, %i
  %p = getelementptr double, ptr %a, i64 %at
  store double 1.0, ptr %p
  %next = add i64 %i, %step
  %more = icmp slt i64 %next, %m
  br i1 %more, label %loop, label %latch
latch:
  %j.next = add nuw nsw i64 %j, 1
  %j.more = icmp ult i64 %j.next, %n
  br i1 %j.more, label %outer, label %exit
exit:
  ret void
}
