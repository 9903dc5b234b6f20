// Loops that became memset and memcpy are done block by block.
// RUN: %clang -O2 -S -emit-llvm -o - %s | %FileCheck %s
// CHECK: call void @ra_memset
// CHECK: call void @ra_memcpy
void clear_and_copy(double *restrict a, double *restrict b, const double *restrict c, long n) {
    for (long i = 0; i < n; ++i)
        a[i] = 0;
    for (long i = 0; i < n; ++i)
        b[i] = c[i];
}
