// Nothing is strip-mined in a loop that may be left early, but its beginning is
// prefetched as a block (section 2.3: prologues become block prefetches).
// RUN: %clang -O2 -S -o /dev/null -Rpass=runahead -Rpass-missed=runahead %s 2>&1 | %FileCheck %s
// CHECK: prefetch and release of 1 streams (0 indirect) over 1 loops, strip-mined: -
// CHECK: only its beginning is prefetched
long find(const double *a, long n, double x) {
    for (long i = 0; i < n; ++i)
        if (a[i] == x)
            return i;
    return -1;
}
