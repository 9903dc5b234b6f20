// What is always inlined, and there by itself, too: its strips are in a function that is
// never inlined.
// RUN: %clang -O2 -S -emit-llvm -o - %s | %verify | %FileCheck %s

// CHECK: define internal {{.*}}@scale.strips({{.*}}[[STRIPS:#[0-9]+]]
// CHECK: attributes [[STRIPS]] = {
// CHECK-NOT: alwaysinline
// CHECK-SAME: noinline
__attribute__((always_inline)) void scale(double *restrict a, const double *restrict b, long n) {
    for (long i = 0; i < n; ++i)
        a[i] = b[i] * 0.5;
}
