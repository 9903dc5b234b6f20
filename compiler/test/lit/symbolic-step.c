// LLVM 14 divides by constants only where it is told to compute something early.
// UNSUPPORTED: llvm14
// RUN: %clang -O2 -S -o /dev/null -Rpass=runahead %s 2>&1 | %FileCheck %s
// The butterflies of a Fourier transform: the step of the outer loop is known at
// run time only, and is no divisor of anything before it is made at least one.

// CHECK: symbolic-step.c:[[@LINE+3]]:9: remark: prefetch and release of 2 streams (0 indirect) over 2 loops, strip-mined: ss
void butterflies(double *a, long n) {
    for (long half = 1; half < n; half *= 2)
        for (long i = 0; i < n; i += 2 * half)
            for (long k = 0; k < half; ++k) {
                double t = a[i + k + half];
                a[i + k + half] = a[i + k] - t;
                a[i + k] += t;
            }
}
