// A parallel loop is outlined: each thread hints its own chunk.
// RUN: %clang -O2 -fopenmp -S -o /dev/null -Rpass=runahead %s 2>&1 | %FileCheck %s
// CHECK: prefetch and release of {{[12]}} streams
void scale(double *a, long n) {
#pragma omp parallel for
    for (long i = 0; i < n; ++i)
        a[i] *= 3;
}
