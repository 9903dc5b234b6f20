// A sum that may be reassociated is left in one piece: strips would add in
// another order. The same sum without the permission is strip-mined.
// RUN: %clang -O2 -fopenmp-simd -S -o /dev/null -Rpass=runahead %s 2>&1 | %FileCheck %s --check-prefix=STRICT
// RUN: %clang -O2 -ffast-math -fopenmp-simd -S -o /dev/null -Rpass=runahead -Rpass-missed=runahead %s 2>&1 | %FileCheck %s --check-prefix=FAST
// RUN: %clang -O2 -fno-signed-zeros -ffinite-math-only -fopenmp-simd -S -o /dev/null -Rpass=runahead %s 2>&1 | %FileCheck %s --check-prefix=ZEROS
// STRICT: strip-mined: s
// FAST: strip-mined: -
// FAST: no loop of this nest can be strip-mined
// ZEROS: strip-mined: s
double sum(const double *a, long n) {
    double s = 0;
    for (long i = 0; i < n; ++i)
        s += a[i];
    return s;
}

// Under a condition the sum goes round by way of other values.
// STRICT: strip-mined: s
// FAST: strip-mined: -
// FAST: no loop of this nest can be strip-mined
// ZEROS: strip-mined: s
double conditional(const double *a, const int *m, long n) {
    double s = 0;
    for (long i = 0; i < n; ++i)
        if (m[i])
            s += a[i];
    return s;
}

// Where the sign of a zero does not matter, the greatest of several is any of them.
// STRICT: strip-mined: s
// FAST: strip-mined: -
// FAST: no loop of this nest can be strip-mined
// ZEROS: strip-mined: -
double greatest(const double *a, long n) {
    double most = -1;
    for (long i = 0; i < n; ++i)
        most = a[i] > most ? a[i] : most;
    return most;
}

// A value that is kept for the next iteration is no sum.
// STRICT: strip-mined: s
// FAST: strip-mined: s
// ZEROS: strip-mined: s
void differences(double *restrict to, const double *restrict a, long n) {
    double before = a[0];
    for (long i = 1; i < n; ++i) {
        to[i] = a[i] - before;
        before = a[i];
    }
}

// What is no sum is strip-mined in any case.
// STRICT: strip-mined: s
// FAST: strip-mined: s
// ZEROS: strip-mined: s
void scale(double *a, long n) {
    for (long i = 0; i < n; ++i)
        a[i] *= 0.5;
}

// The vectorizer takes it for a permission, too, when it is told to vectorize.
// STRICT: strip-mined: -
// FAST: strip-mined: -
// ZEROS: strip-mined: -
double enabled(const double *a, long n) {
    double s = 0;
#pragma clang loop vectorize(enable)
    for (long i = 0; i < n; ++i)
        s += a[i];
    return s;
}

// STRICT: strip-mined: -
// FAST: strip-mined: -
// ZEROS: strip-mined: -
double wide(const double *a, const int *m, long n) {
    double s = 0;
#pragma clang loop vectorize_width(4)
    for (long i = 0; i < n; ++i)
        if (m[i])
            s += a[i];
    return s;
}

// So does OpenMP.
// STRICT: strip-mined: -
// FAST: strip-mined: -
// ZEROS: strip-mined: -
double simd(const double *a, long n) {
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (long i = 0; i < n; ++i)
        s += a[i];
    return s;
}

// What is no sum is strip-mined there, too, as is a sum that is not to be vectorized.
// STRICT: strip-mined: s
// FAST: strip-mined: s
void scale_enabled(double *a, long n) {
#pragma clang loop vectorize(enable)
    for (long i = 0; i < n; ++i)
        a[i] *= 0.5;
}

// STRICT: strip-mined: s
double narrow(const double *a, long n) {
    double s = 0;
#pragma clang loop vectorize_width(1)
    for (long i = 0; i < n; ++i)
        s += a[i];
    return s;
}
