// a[b[i]]: b is prefetched, and a through what b holds further on; b is read
// ahead only where the loop surely gets there.
// RUN: %clang -O2 -fno-vectorize -S -o /dev/null -Rpass=runahead -Rpass-missed=runahead %s 2>&1 | %FileCheck %s
// CHECK: indirect.c:{{.*}} remark: prefetch and release of {{[23]}} streams (1 indirect) over 1 loops, strip-mined: s
void gather(double *restrict to, const double *restrict a, const int *restrict b, long n) {
    for (long i = 0; i < n; ++i)
        to[0] += a[b[i]];
}
// CHECK: indirect.c:{{.*}} reference not prefetched: {{.*}}trip count
long search(const double *restrict a, const int *restrict b, double x) {
    long i = 0;
    for (;; ++i)
        if (a[b[i]] == x)
            return i;
}
// Indices that are in a memory of their own (here, of a thread) the layer cannot read.
// CHECK-NOT: 1 indirect
// CHECK: indirect.c:{{.*}} reference not prefetched: its address is neither affine, nor indirect
void others(double *restrict to, const double *restrict a,
            const __attribute__((address_space(256))) int *restrict b, long n) {
    for (long i = 0; i < n; ++i)
        to[0] += a[b[i]];
}
