/* MATVEC: y = A x, three times, with the n x n matrix in the file. */
#include "kernel.h"

static size_t kernel_bytes(long n) { return ((size_t)n * n + 2 * (size_t)n) * 8 + 3 * 4096; }

static double *matrix, *x, *y;

static void arrays(long n) {
    matrix = kernel_array((size_t)n * n * 8);
    x = kernel_array((size_t)n * 8);
    y = kernel_array((size_t)n * 8);
}

static void kernel_init(long n) {
    uint64_t seed = KERNEL_SEED;
    arrays(n);
    for (long i = 0; i < n * n; ++i)
        matrix[i] = kernel_random(&seed, KERNEL_A) - 0.5;
    for (long i = 0; i < n; ++i)
        x[i] = kernel_random(&seed, KERNEL_A);
}

static void multiply(long n, const double *restrict a, const double *restrict v, double *restrict r) {
    for (long i = 0; i < n; ++i) {
        double sum = 0;
        for (long j = 0; j < n; ++j)
            sum += a[i * n + j] * v[j];
        r[i] = sum;
    }
}

static void kernel_run(long n) {
    arrays(n);
    for (int times = 0; times < 3; ++times) {
        multiply(n, matrix, x, y);
        double norm = 0;
        for (long i = 0; i < n; ++i)
            norm += y[i] * y[i];
        norm = sqrt(norm);
        for (long i = 0; i < n; ++i)
            x[i] = y[i] / norm;
        printf("norm %.15e\n", norm);
    }
}
