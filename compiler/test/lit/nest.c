// A nest of three loops with symbolic bounds and strides is one nest: which of
// its loops is pipelined is found out at run time.
// RUN: %clang -O2 -S -o /dev/null -Rpass=runahead %s 2>&1 | %FileCheck %s
// CHECK: prefetch and release of 2 streams (0 indirect) over 3 loops, strip-mined: sss
void copy(double *restrict to, const double *restrict from, long n, long m, long k) {
    for (long a = 0; a < n; ++a)
        for (long b = 0; b < m; ++b)
            for (long c = 0; c < k - 2; ++c)
                to[(a * m + b) * k + c] = from[(a * m + b) * k + c] * 2;
}
