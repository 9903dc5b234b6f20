; Before a nest, what it is computed from may be undefined, which is the program's own
; business only where it comes to it: the pass branches on nothing that is undefined,
; and divides by nothing that could be. What is surely defined stays as it is.
; RUN: %opt %s | %FileCheck %s

; What the nest begins with and how far it goes.
; CHECK-LABEL: @undefined(
; CHECK-DAG: %[[FIRST:.*]] = call noundef i64 asm "", "=r,0"(i64 %{{.*}})
; CHECK-DAG: %[[EXTENT:.*]] = call noundef i64 asm "", "=r,0"(i64 %{{.*}})
; CHECK: sub i64 %[[FIRST]], %ra.low
; CHECK: icmp uge i64 %[[EXTENT]], 65536
; CHECK: br i1 %ra.call
define void @undefined(ptr %a, i64 %n) {
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

; CHECK-LABEL: @defined(
; CHECK-NOT: freeze
; CHECK-NOT: asm
; CHECK: br i1 %ra.call
; CHECK: ret void
define void @defined(ptr noundef %a) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %p = getelementptr double, ptr %a, i64 %i
  store double 1.0, ptr %p
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, 100000
  br i1 %more, label %loop, label %exit
exit:
  ret void
}

; The divisor of a reference that is computed ahead: shifted by too much it is poison.
; CHECK-LABEL: define internal i64 @ra.address(
; CHECK: %[[SHIFTED:.*]] = shl i64 1, %
; CHECK: %[[BY:.*]] = freeze i64 %[[SHIFTED]]
; CHECK: %[[TRAPS:.*]] = icmp eq i64 %[[BY]], 0
; CHECK: select i1 %[[TRAPS]], i64 1, i64 %[[BY]]
define double @remainders(ptr %a, i64 %n, i64 %size) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %sum = phi double [ 0.0, %entry ], [ %more, %loop ]
  %shift = and i64 %i, %size
  %by = shl i64 1, %shift
  %five = mul i64 %i, 5
  %at = urem i64 %five, %by
  %p = getelementptr inbounds double, ptr %a, i64 %at
  %x = load double, ptr %p
  %more = fadd double %sum, %x
  %next = add nuw nsw i64 %i, 1
  %again = icmp ult i64 %next, %n
  br i1 %again, label %loop, label %exit
exit:
  %result = phi double [ %more, %loop ]
  ret double %result
}
