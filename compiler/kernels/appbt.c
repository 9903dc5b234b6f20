/* APPBT (NAS BT): approximate factorization. Each step solves block tridiagonal
 * systems with blocks of 5 x 5 along every line of the three dimensions. */
#include "grid.h"

enum { STEPS = 1, LINE_MAX = 512 };

static size_t kernel_bytes(long n) { return grid_bytes(n); }
static void kernel_init(long n) { grid_init(n); }

/* Block Thomas algorithm on all lines of one direction. The off-diagonal blocks
 * are -DT times the identity; the diagonal ones depend on the state. */
static void solve(double *restrict r, const double *restrict v, long n, long stride, long s1, long s2) {
    static double upper[LINE_MAX][5][5];
    for (long a = 1; a < n - 1; ++a)
        for (long b = 1; b < n - 1; ++b) {
            double *restrict line = r + (a * s1 + b * s2) * 5;
            const double *restrict state = v + (a * s1 + b * s2) * 5;
            for (long i = 1; i < n - 1; ++i) {
                double block[5][5], columns[5][5];
                for (int m = 0; m < 5; ++m)
                    for (int l = 0; l < 5; ++l) {
                        block[m][l] = (m == l ? 1 + 2 * DT : 0) -
                                      DT / 3 * coupling(m, l) * (1 + 1e-3 * state[i * stride * 5 + l]) +
                                      (i > 1 ? DT * upper[i - 1][m][l] : 0);
                        columns[m][l] = m == l ? -DT : 0;
                    }
                double right[5];
                for (int m = 0; m < 5; ++m)
                    right[m] = line[i * stride * 5 + m] + (i > 1 ? DT * line[(i - 1) * stride * 5 + m] : 0);
                /* Six right sides, one elimination. */
                for (int p = 0; p < 5; ++p) {
                    double inverse = 1 / block[p][p];
                    for (int c = p; c < 5; ++c)
                        block[p][c] *= inverse;
                    for (int c = 0; c < 5; ++c)
                        columns[p][c] *= inverse;
                    right[p] *= inverse;
                    for (int q = 0; q < 5; ++q) {
                        if (q == p)
                            continue;
                        double f = block[q][p];
                        for (int c = p; c < 5; ++c)
                            block[q][c] -= f * block[p][c];
                        for (int c = 0; c < 5; ++c)
                            columns[q][c] -= f * columns[p][c];
                        right[q] -= f * right[p];
                    }
                }
                for (int m = 0; m < 5; ++m) {
                    line[i * stride * 5 + m] = right[m];
                    for (int l = 0; l < 5; ++l)
                        upper[i][m][l] = columns[m][l];
                }
            }
            for (long i = n - 3; i >= 1; --i)
                for (int m = 0; m < 5; ++m) {
                    double s = 0;
                    for (int l = 0; l < 5; ++l)
                        s += upper[i][m][l] * line[(i + 1) * stride * 5 + l];
                    line[i * stride * 5 + m] -= s;
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
        solve(rhs, u, n, 1, n * n, n);
        solve(rhs, u, n, n, n * n, 1);
        solve(rhs, u, n, n * n, n, 1);
        grid_add(u, rhs, n, 1);
        residual(u, forcing, rhs, n, 1);
        after = grid_norm(rhs, n);
        printf("residual %.15e\n", after);
    }
    printf("%s\n", after < before ? "VERIFIED" : "WRONG");
}
