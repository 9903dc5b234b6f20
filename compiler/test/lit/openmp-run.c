// Threads that are bound to their processors go over their parts of an array, all with hints.
// RUN: %clang -O2 %openmp %s %runtime -o %t
// RUN: env OMP_NUM_THREADS=4 OMP_PROC_BIND=true RUNAHEAD_CC_MEMORY=6000000 RUNAHEAD_CC_STATS=%t.stats %t
// RUN: %FileCheck %s <%t.stats
// CHECK: "ticks": {{[1-9]}}
#include <stdlib.h>

__attribute__((noinline)) static void scale(double *a, long n) {
#pragma omp parallel for
    for (long i = 0; i < n; ++i)
        a[i] *= 3;
}

__attribute__((noinline)) static double sum(const double *a, long n) {
    double s = 0;
#pragma omp parallel for reduction(+ : s)
    for (long i = 0; i < n; ++i)
        s += a[i];
    return s;
}

int main(void) {
    enum { CELLS = 4 << 20 };
    double *a = malloc(CELLS * sizeof(double));
    for (long i = 0; i < CELLS; ++i)
        a[i] = i % 8; // whatever their order, sums are exact
    for (int k = 0; k < 3; ++k)
        scale(a, CELLS);
    return sum(a, CELLS) != 27 * 3.5 * CELLS;
}
