/* APPSP (NAS SP): approximate factorization. Each step solves scalar
 * pentadiagonal systems, one for each variable, along every line of the three
 * dimensions. */
#include "grid.h"

enum { STEPS = 1, LINE_MAX = 1024 };

static size_t kernel_bytes(long n) { return grid_bytes(n); }
static void kernel_init(long n) { grid_init(n); }

/* The pentadiagonal matrix: second differences and a little of the fourth. */
static const double E4 = 0.02;

/* Solves along one direction: points `stride` cells apart, all lines of the
 * plane that the two other strides span. */
static void solve(double *restrict r, long n, long stride, long s1, long s2) {
    double c1[LINE_MAX], c2[LINE_MAX];
    for (long a = 1; a < n - 1; ++a)
        for (long b = 1; b < n - 1; ++b) {
            double *restrict line = r + (a * s1 + b * s2) * 5;
            double outer = DT * E4, inner = -DT * (1 + 4 * E4), middle = 1 + DT * (2 + 6 * E4);
            /* Elimination; the same matrix for the five variables. */
            c1[0] = c2[0] = 0;
            for (long i = 1; i < n - 1; ++i) {
                double low2 = i >= 3 ? outer : 0, low1 = i >= 2 ? inner : 0;
                double l1 = low1 - (i >= 2 ? low2 * (i >= 3 ? c1[i - 2] : 0) : 0);
                double d = middle - low2 * (i >= 3 ? c2[i - 2] : 0) - l1 * (i >= 2 ? c1[i - 1] : 0);
                double up1 = (i < n - 2 ? inner : 0) - l1 * (i >= 2 ? c2[i - 1] : 0);
                double up2 = i < n - 3 ? outer : 0;
                c1[i] = up1 / d;
                c2[i] = up2 / d;
                for (long m = 0; m < 5; ++m) {
                    double v = line[i * stride * 5 + m];
                    if (i >= 3)
                        v -= low2 * line[(i - 2) * stride * 5 + m];
                    if (i >= 2)
                        v -= l1 * line[(i - 1) * stride * 5 + m];
                    line[i * stride * 5 + m] = v / d;
                }
            }
            for (long i = n - 3; i >= 1; --i)
                for (long m = 0; m < 5; ++m) {
                    double v = line[i * stride * 5 + m] - c1[i] * line[(i + 1) * stride * 5 + m];
                    if (i < n - 3)
                        v -= c2[i] * line[(i + 2) * stride * 5 + m];
                    line[i * stride * 5 + m] = v;
                }
        }
}

static void kernel_run(long n) {
    if (n > LINE_MAX)
        kernel_fail("size");
    grid_arrays(n);
    residual(u, forcing, rhs, n, 1);
    double before = grid_norm(rhs, n), after = before;
    for (int step = 0; step < STEPS; ++step) {
        for (long i = 0; i < n * n * n * 5; ++i)
            rhs[i] *= DT;
        solve(rhs, n, 1, n * n, n);
        solve(rhs, n, n, n * n, 1);
        solve(rhs, n, n * n, n, 1);
        grid_add(u, rhs, n, 1);
        residual(u, forcing, rhs, n, 1);
        after = grid_norm(rhs, n);
        printf("residual %.15e\n", after);
    }
    printf("%s\n", after < before ? "VERIFIED" : "WRONG");
}
