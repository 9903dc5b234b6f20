// Loops inside that are short, where a loop outside has strips. What surely touches less than the shortest strip
// is left in one piece; of one whose length is not known there are two versions,
// and short executions go through the one that is as it was.
// RUN: %clang -O2 -S -o /dev/null -Rpass=runahead %s 2>&1 | %FileCheck %s
// RUN: %clang -O2 -S -emit-llvm -fno-discard-value-names -fno-vectorize -fno-unroll-loops -o - %s | %FileCheck --check-prefix=CODE %s

// CHECK: short-loops.c:[[@LINE+4]]:5: remark: prefetch and release of 1 streams (0 indirect) over 2 loops, strip-mined: s-
// CODE-LABEL: @blocks(
// CODE-NOT: %ra.splits = icmp
void blocks(double *a, long n) {
    for (long i = 0; i < n; ++i)
        for (long m = 0; m < 100; ++m)
            a[i * 100 + m] *= 0.5;
}

// CHECK: short-loops.c:[[@LINE+5]]:5: remark: prefetch and release of 1 streams (0 indirect) over 2 loops, strip-mined: ss
// CODE-LABEL: @rows(
// CODE: %ra.splits = icmp ult i64 %ra.strip{{[^,]*}}, %
// CODE: br i1 %ra.splits{{.*}}, label %{{.*}}, label %{{.*}}unsplit
void rows(double *a, long n, long m) {
    for (long i = 0; i < n; ++i)
        for (long j = 0; j < m; ++j)
            a[i * m + j] *= 0.5;
}
