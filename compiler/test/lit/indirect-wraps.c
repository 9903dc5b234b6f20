// The run-time layer reads b of a[b[i]] ahead: only where its address surely goes on
// as it began. An index of 16 bits wraps around, and one of 32 bits may begin anywhere.
// RUN: %clang -O2 -fno-vectorize -S -o /dev/null -Rpass=runahead %s 2>&1 | %FileCheck %s
#include <stdint.h>

// CHECK-NOT: 1 indirect
// CHECK: indirect-wraps.c:[[@LINE+3]]:{{.*}}(0 indirect)
double around(const double *a, const int *b, uint16_t h, long n) {
    double s = 0;
    for (long k = 0; k < n; ++k)
        s += a[b[h++]];
    return s;
}

// CHECK-NOT: 1 indirect
// CHECK: indirect-wraps.c:[[@LINE+3]]:{{.*}}(0 indirect)
double beyond(const double *a, const int *b, unsigned from, long n) {
    double s = 0;
    for (long k = 0; k < n; ++k)
        s += a[b[from + (unsigned)k]];
    return s;
}

// Signed ones do not wrap, and those that are compared with their end do not.
// CHECK: indirect-wraps.c:[[@LINE+3]]:{{.*}}(1 indirect)
double from_to(const double *a, const int *b, int from, int to) {
    double s = 0;
    for (int k = from; k < to; ++k)
        s += a[b[k]];
    return s;
}

// CHECK: indirect-wraps.c:[[@LINE+3]]:{{.*}}(1 indirect)
double counted(const double *a, const int *b, unsigned n) {
    double s = 0;
    for (unsigned k = 0; k < n; ++k)
        s += a[b[k]];
    return s;
}
