/* What APPLU, APPSP and APPBT share: five variables on a cube of size^3 points,
 * one step of an implicit scheme for  u_t = div grad u + coupling u + forcing,
 * towards a known steady solution, as in the NAS pseudo-applications. Array
 * order as in the specification, the five variables fastest. */
#ifndef GRID_H
#define GRID_H

#include "kernel.h"

#define AT5(a, k, j, i, m) a[((((k) * n + (j)) * n + (i)) * 5) + (m)]

static double *u, *rhs, *forcing;
static const double DT = 0.3;

/* Couples variable m with variable l; diagonally dominant. */
static inline double coupling(long m, long l) {
    return m == l ? -1.0 : 0.1 / (double)(1 + (m > l ? m - l : l - m));
}

static void grid_arrays(long n) {
    size_t bytes = (size_t)n * n * n * 5 * 8;
    u = kernel_array(bytes);
    rhs = kernel_array(bytes);
    forcing = kernel_array(bytes);
}

static size_t grid_bytes(long n) { return 3 * ((size_t)n * n * n * 5 * 8 + 4096); }

static inline double exact(double z, double y, double x, long m) {
    return 1 + 0.1 * (double)(m + 1) * (x * (1 - x) + y * y * (1 - y) + z * z * (1 - z) * z);
}

/* rhs = dt (forcing + differences of u); `to` may be the forcing itself. */
static inline void residual(const double *restrict v, const double *restrict f, double *restrict to,
                            long n, double sign) {
    for (long k = 1; k < n - 1; ++k)
        for (long j = 1; j < n - 1; ++j)
            for (long i = 1; i < n - 1; ++i)
                for (long m = 0; m < 5; ++m) {
                    double s = AT5(v, k, j, i - 1, m) + AT5(v, k, j, i + 1, m) +
                               AT5(v, k, j - 1, i, m) + AT5(v, k, j + 1, i, m) +
                               AT5(v, k - 1, j, i, m) + AT5(v, k + 1, j, i, m) -
                               6 * AT5(v, k, j, i, m);
                    for (long l = 0; l < 5; ++l)
                        s += coupling(m, l) * AT5(v, k, j, i, l);
                    AT5(to, k, j, i, m) = sign * s + (f ? AT5(f, k, j, i, m) : 0);
                }
}

static void grid_init(long n) {
    grid_arrays(n);
    double h = 1 / (double)(n - 1);
    memset(rhs, 0, (size_t)n * n * n * 40);
    memset(forcing, 0, (size_t)n * n * n * 40);
    for (long k = 0; k < n; ++k)
        for (long j = 0; j < n; ++j)
            for (long i = 0; i < n; ++i)
                for (long m = 0; m < 5; ++m)
                    AT5(u, k, j, i, m) = exact((double)k * h, (double)j * h, (double)i * h, m);
    residual(u, NULL, forcing, n, -1);
    /* Away from the solution inside. */
    for (long k = 1; k < n - 1; ++k)
        for (long j = 1; j < n - 1; ++j)
            for (long i = 1; i < n - 1; ++i)
                for (long m = 0; m < 5; ++m)
                    AT5(u, k, j, i, m) += 0.01 * (double)((i * 7 + j * 5 + k * 3 + m) % 11);
}

static double grid_norm(const double *restrict r, long n) {
    double sum = 0;
    for (long k = 1; k < n - 1; ++k)
        for (long j = 1; j < n - 1; ++j)
            for (long i = 1; i < n - 1; ++i)
                for (long m = 0; m < 5; ++m)
                    sum += AT5(r, k, j, i, m) * AT5(r, k, j, i, m);
    return sqrt(sum / ((double)n * (double)n * (double)n));
}

static void grid_add(double *restrict v, const double *restrict r, long n, double factor) {
    for (long k = 1; k < n - 1; ++k)
        for (long j = 1; j < n - 1; ++j)
            for (long i = 1; i < n - 1; ++i)
                for (long m = 0; m < 5; ++m)
                    AT5(v, k, j, i, m) += factor * AT5(r, k, j, i, m);
}

/* Solves the 5 x 5 system d x = b in place, x in b; d is destroyed. */
static inline void solve5(double d[5][5], double b[5]) {
    for (int p = 0; p < 5; ++p) {
        double inverse = 1 / d[p][p];
        for (int c = p + 1; c < 5; ++c)
            d[p][c] *= inverse;
        b[p] *= inverse;
        for (int r = p + 1; r < 5; ++r) {
            for (int c = p + 1; c < 5; ++c)
                d[r][c] -= d[r][p] * d[p][c];
            b[r] -= d[r][p] * b[p];
        }
    }
    for (int p = 4; p >= 0; --p)
        for (int r = 0; r < p; ++r)
            b[r] -= d[r][p] * b[p];
}

#endif
