// Group locality: references at a constant distance share one stream; the
// leading one is prefetched and the trailing one released.
// RUN: %clang -O2 -S -o /dev/null -Rpass=runahead %s 2>&1 | %FileCheck %s
// CHECK: prefetch and release of 2 streams (0 indirect) over 1 loops, strip-mined: s
void smooth(double *restrict to, const double *restrict from, long n) {
    for (long i = 1; i < n - 1; ++i)
        to[i] = from[i - 1] + from[i] + from[i + 1];
}
