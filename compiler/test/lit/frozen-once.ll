; What the program has frozen, or got from a piece of assembly, is one value: the parameters of
; the nest use that, although twice gets its promises back, and not one of their own, which
; may be another.
; RUN: %opt %s | %FileCheck %s

; Takes no promises.
; UNSUPPORTED: llvm14

; CHECK-LABEL: @frozen(
; CHECK: %twice = shl nsw i64 %half, 1
; CHECK: %once = freeze i64 %twice
; CHECK-NOT: freeze i64 %twice
; CHECK: call i64 @ra_begin_2(
; CHECK-NOT: freeze i64 %twice
; CHECK: ret void
define void @frozen(ptr noundef %a, ptr noundef %b, i64 noundef %n) {
entry:
  br label %stage
stage:
  %half = phi i64 [ 1, %entry ], [ %twice, %after ]
  %twice = shl nsw i64 %half, 1
  %once = freeze i64 %twice
  br label %outer
outer:
  %i = phi i64 [ 0, %stage ], [ %i.next, %latch ]
  br label %loop
loop:
  %k = phi i64 [ 0, %outer ], [ %k.next, %loop ]
  %at = add nsw i64 %i, %k
  %p = getelementptr inbounds double, ptr %a, i64 %at
  store double 1.0, ptr %p
  %there = add nsw i64 %once, %k
  %q = getelementptr inbounds double, ptr %b, i64 %there
  store double 2.0, ptr %q
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

; What assembly is made of keeps no promise that its result may have lost.
; CHECK-LABEL: @assembled(
; CHECK: %once = call i64 asm "", "=r,0"(i64 %twice)
; CHECK-NOT: asm "", "=r,0"(i64 %twice
; CHECK: call i64 @ra_begin_2(
; CHECK-NOT: asm "", "=r,0"(i64 %twice
; CHECK: ret void
define void @assembled(ptr noundef %a, ptr noundef %b, i64 noundef %n) {
entry:
  br label %stage
stage:
  %half = phi i64 [ 1, %entry ], [ %twice, %after ]
  %twice = shl nsw i64 %half, 1
  %once = call i64 asm "", "=r,0"(i64 %twice) #0
  br label %outer
outer:
  %i = phi i64 [ 0, %stage ], [ %i.next, %latch ]
  br label %loop
loop:
  %k = phi i64 [ 0, %outer ], [ %k.next, %loop ]
  %at = add nsw i64 %i, %k
  %p = getelementptr inbounds double, ptr %a, i64 %at
  store double 1.0, ptr %p
  %there = add nsw i64 %once, %k
  %q = getelementptr inbounds double, ptr %b, i64 %there
  store double 2.0, ptr %q
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

attributes #0 = { nounwind willreturn memory(none) }
