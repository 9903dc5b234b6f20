/* APPLU (NAS LU): symmetric successive over-relaxation. Each step sweeps
 * forwards solving the block lower triangular system and backwards solving the
 * upper one, with a 5 x 5 block of the jacobian at each point. */
#include "grid.h"

enum { STEPS = 2 };
static const double OMEGA = 1.2;

static double *diagonal; /* the jacobian's 25 numbers a point, one plane */

static size_t kernel_bytes(long n) { return grid_bytes(n) + (size_t)n * n * 25 * 8 + 4096; }

static void arrays(long n) {
    grid_arrays(n);
    diagonal = kernel_array((size_t)n * n * 25 * 8);
}

static void kernel_init(long n) {
    grid_init(n);
    diagonal = kernel_array((size_t)n * n * 25 * 8);
    memset(diagonal, 0, (size_t)n * n * 25 * 8);
}

/* The blocks of plane k. */
static void jacobian(const double *restrict v, double *restrict d, long n, long k) {
    for (long j = 1; j < n - 1; ++j)
        for (long i = 1; i < n - 1; ++i)
            for (long m = 0; m < 5; ++m)
                for (long l = 0; l < 5; ++l)
                    d[((j * n + i) * 5 + m) * 5 + l] =
                        (m == l ? 1 + DT * 6 : 0) - DT * coupling(m, l) * (1 + 1e-3 * AT5(v, k, j, i, l));
}

/* Plane k of the lower (step 1) or upper (step -1) system. */
static void sweep(double *restrict r, const double *restrict d, long n, long k, long step) {
    long first = step > 0 ? 1 : n - 2;
    for (long jj = 0; jj < n - 2; ++jj) {
        long j = first + step * jj;
        for (long ii = 0; ii < n - 2; ++ii) {
            long i = first + step * ii;
            double block[5][5], b[5];
            for (long m = 0; m < 5; ++m) {
                b[m] = OMEGA * DT * (AT5(r, k - step, j, i, m) + AT5(r, k, j - step, i, m) +
                                     AT5(r, k, j, i - step, m));
                for (long l = 0; l < 5; ++l)
                    block[m][l] = d[((j * n + i) * 5 + m) * 5 + l];
            }
            if (step > 0) {
                for (long m = 0; m < 5; ++m)
                    b[m] += AT5(r, k, j, i, m);
                solve5(block, b);
                for (long m = 0; m < 5; ++m)
                    AT5(r, k, j, i, m) = b[m];
            } else {
                solve5(block, b);
                for (long m = 0; m < 5; ++m)
                    AT5(r, k, j, i, m) += b[m];
            }
        }
    }
}

static void kernel_run(long n) {
    arrays(n);
    residual(u, forcing, rhs, n, 1);
    double before = grid_norm(rhs, n), after = before;
    for (int step = 0; step < STEPS; ++step) {
        for (long k = 1; k < n - 1; ++k)
            for (long j = 1; j < n - 1; ++j)
                for (long i = 1; i < n - 1; ++i)
                    for (long m = 0; m < 5; ++m)
                        AT5(rhs, k, j, i, m) *= DT;
        for (long k = 1; k < n - 1; ++k) {
            jacobian(u, diagonal, n, k);
            sweep(rhs, diagonal, n, k, 1);
        }
        for (long k = n - 2; k >= 1; --k) {
            jacobian(u, diagonal, n, k);
            sweep(rhs, diagonal, n, k, -1);
        }
        grid_add(u, rhs, n, 1 / (OMEGA * (2 - OMEGA)) * 0.5);
        residual(u, forcing, rhs, n, 1);
        after = grid_norm(rhs, n);
        printf("residual %.15e\n", after);
    }
    printf("%s\n", after < before ? "VERIFIED" : "WRONG");
}
