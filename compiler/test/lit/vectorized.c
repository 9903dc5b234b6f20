// The strips are vectorized as the loop would have been.
// RUN: %clang -O2 -S -emit-llvm -o - %s | %FileCheck %s
// CHECK-DAG: fmul <2 x double>
// CHECK-DAG: call void @ra_tick
void scale(double *a, long n) {
    for (long i = 0; i < n; ++i)
        a[i] *= 3;
}
