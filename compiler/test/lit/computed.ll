; a[f(i)]: an address that is computed from the number of the iteration gets a
; function, for the run-time layer to compute that of a later one. It divides by
; nothing that could trap. What goes on from the iteration before, or is read from
; memory, is not computed ahead.
; RUN: %opt %s | %FileCheck %s
; RUN: %remarks %s 2>&1 | %FileCheck --check-prefix=REMARK %s

; REMARK: prefetch and release of 1 streams (0 indirect, 1 computed) over 1 loops, strip-mined: s
; CHECK-LABEL: @remainders(
; CHECK: store i64 ptrtoint (ptr @ra.address to i64),
; CHECK: call i64 @ra_begin_2
define double @remainders(ptr %a, i64 %n, i64 %size) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %sum = phi double [ 0.0, %entry ], [ %more, %loop ]
  %five = mul i64 %i, 5
  %at = srem i64 %five, %size
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

; REMARK: reference not prefetched: its address is neither affine, nor indirect through one, nor computed
; CHECK-LABEL: @recurrence(
; CHECK-NOT: @ra_begin_2
define double @recurrence(ptr %a, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = phi i64 [ 1, %entry ], [ %then, %loop ]
  %sum = phi double [ 0.0, %entry ], [ %more, %loop ]
  %then = lshr i64 %at, 1
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

; CHECK-LABEL: define internal i64 @ra.address(
; CHECK: mul i64 %{{.*}}, %1
; CHECK: mul i64 %{{.*}}, 5
; CHECK: %[[TRAPS:.*]] = icmp ule i64 %{{.*}}, 1
; CHECK: %[[BY:.*]] = select i1 %[[TRAPS]], i64 1, i64 %
; CHECK: srem i64 %{{.*}}, %[[BY]]
; CHECK: getelementptr double,
; CHECK: ret i64
