// A sum that may be reassociated is left in one piece: strips would add in
// another order. The same sum without the permission is strip-mined.
// RUN: %clang -O2 -S -o /dev/null -Rpass=runahead %s 2>&1 | %FileCheck %s --check-prefix=STRICT
// RUN: %clang -O2 -ffast-math -S -o /dev/null -Rpass=runahead -Rpass-missed=runahead %s 2>&1 | %FileCheck %s --check-prefix=FAST
// STRICT: strip-mined: s
// FAST: strip-mined: -
// FAST: no loop of this nest can be strip-mined
double sum(const double *a, long n) {
    double s = 0;
    for (long i = 0; i < n; ++i)
        s += a[i];
    return s;
}
