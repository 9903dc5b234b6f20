// Loops known to touch little, and small local arrays, get no hints.
// RUN: %clang -O2 -S -emit-llvm -o - %s | %FileCheck %s
// CHECK-NOT: ra_begin_2
double small(double *a) {
    double local[64], s = 0;
    for (int k = 0; k < 64; ++k)
        local[k] = a[k] * 2;
    for (int i = 0; i < 1000; ++i)
        for (int k = 0; k < 64; ++k)
            s += local[k] / (i + 1);
    return s;
}
