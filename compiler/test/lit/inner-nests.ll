; Rows of a sparse matrix: where they end is known only inside. The rows are a nest,
; and what is in each of them is another one, begun anew for each row; the nest over
; the rows is not there twice, and ticks for itself.
; RUN: %opt %s | %FileCheck %s
; RUN: %remarks %s 2>&1 | %FileCheck --check-prefix=REMARK %s

; What the run-time layer remembers of each: 88 bytes.
; CHECK-DAG: @[[ROWS:ra.site[.0-9]*]] = internal global { i64, i64, i32, i32, i32, i32, ptr, ptr, i64, i64, i64, i64, i64, i64, i64 } { i64 0, i64 0, i32 1, i32 2,
; CHECK-DAG: @[[ROW:ra.site[.0-9]*]] = internal global { i64, i64, i32, i32, i32, i32, ptr, ptr, i64, i64, i64, i64, i64, i64, i64 } { i64 0, i64 0, i32 1, i32 1,

; CHECK-LABEL: @sums
; CHECK-NOT: unsplit
; CHECK: call i64 @ra_begin_2(ptr @[[ROWS]], ptr %[[FRAME:ra.frame[0-9]*]])
; CHECK: row:
; CHECK: call i64 @ra_begin_2(ptr @[[ROW]], ptr %[[INNER:ra.frame[0-9]*]])
; CHECK: call void @ra_tick(ptr @[[ROW]], ptr %[[INNER]], i64 0)
; CHECK: call void @ra_tick(ptr @[[ROWS]], ptr %[[FRAME]], i64 0)

; REMARK-DAG: prefetch and release of 2 streams (0 indirect) over 1 loops, strip-mined: s
; REMARK-DAG: prefetch and release of 1 streams (0 indirect) over 1 loops, strip-mined: s
define void @sums(ptr noalias %ends, ptr noalias %value, ptr noalias %out, i64 %n) {
entry:
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %i.next, %row.end ]
  %i.next = add nuw nsw i64 %i, 1
  %from.at = getelementptr inbounds i64, ptr %ends, i64 %i
  %from = load i64, ptr %from.at
  %to.at = getelementptr inbounds i64, ptr %ends, i64 %i.next
  %to = load i64, ptr %to.at
  %any = icmp slt i64 %from, %to
  br i1 %any, label %cell, label %row.end
cell:
  %k = phi i64 [ %from, %row ], [ %k.next, %cell ]
  %sum = phi double [ 0.0, %row ], [ %sum.next, %cell ]
  %at = getelementptr inbounds double, ptr %value, i64 %k
  %x = load double, ptr %at
  %sum.next = fadd double %sum, %x
  %k.next = add nsw i64 %k, 1
  %more = icmp slt i64 %k.next, %to
  br i1 %more, label %cell, label %row.end
row.end:
  %result = phi double [ 0.0, %row ], [ %sum.next, %cell ]
  %out.at = getelementptr inbounds double, ptr %out, i64 %i
  store double %result, ptr %out.at
  %rows.more = icmp slt i64 %i.next, %n
  br i1 %rows.more, label %row, label %exit
exit:
  ret void
}
