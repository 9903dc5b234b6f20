// An array whose size another file knows may be of any, and gets hints. A small one gets none,
// and that is said.
// RUN: %clang -O2 -S -o /dev/null -Rpass=runahead -Rpass-missed=runahead %s 2>&1 | %FileCheck %s
extern double grid[];
extern struct unknown there;
extern double few[16];

// CHECK: prefetch and release of 1 streams (0 indirect) over 1 loops, strip-mined: s
double sum_grid(long n) {
    double s = 0;
    for (long i = 0; i < n; ++i)
        s += grid[i];
    return s;
}

// CHECK: prefetch and release of 1 streams (0 indirect) over 1 loops, strip-mined: s
double sum_there(long n) {
    const double *from = (const double *)&there;
    double s = 0;
    for (long i = 0; i < n; ++i)
        s += from[i];
    return s;
}

// CHECK: reference not prefetched: its array is so small that it stays in memory
// CHECK-NOT: prefetch and release
double sum_few(long n) {
    double s = 0;
    for (long i = 0; i < n; ++i)
        s += few[i];
    return s;
}
