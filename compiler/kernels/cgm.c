/* CGM (NAS CG): conjugate gradients on a random sparse matrix of size rows,
 * symmetric in structure of values by its diagonal; compressed rows. */
#include "kernel.h"

enum { PER_ROW = 135, OUTER = 1, INNER = 4 };

static long *row;
static int *column;
static double *value, *x, *z, *p, *q, *r;

static size_t kernel_bytes(long n) {
    return ((size_t)n + 1) * 8 + (size_t)n * PER_ROW * 12 + 5 * (size_t)n * 8 + 10 * 4096;
}

static void arrays(long n) {
    row = kernel_array(((size_t)n + 1) * 8);
    column = kernel_array((size_t)n * PER_ROW * 4);
    value = kernel_array((size_t)n * PER_ROW * 8);
    x = kernel_array((size_t)n * 8);
    z = kernel_array((size_t)n * 8);
    p = kernel_array((size_t)n * 8);
    q = kernel_array((size_t)n * 8);
    r = kernel_array((size_t)n * 8);
}

static void kernel_init(long n) {
    uint64_t seed = KERNEL_SEED;
    arrays(n);
    long at = 0;
    for (long i = 0; i < n; ++i) {
        row[i] = at;
        x[i] = 1;
        /* Between 3/4 and all of PER_ROW, the diagonal among them. */
        long count = PER_ROW * 3 / 4 + (long)(kernel_random(&seed, KERNEL_A) * (PER_ROW / 4));
        for (long k = 0; k < count; ++k) {
            column[at] = (int)(kernel_random(&seed, KERNEL_A) * (double)n);
            value[at++] = (kernel_random(&seed, KERNEL_A) - 0.5) * 0.01;
        }
        column[at] = (int)i;
        value[at++] = 10 + (double)(i % 7);
    }
    row[n] = at;
}

static void multiply(long n, const double *restrict v, double *restrict out) {
    for (long i = 0; i < n; ++i) {
        double sum = 0;
        for (long k = row[i]; k < row[i + 1]; ++k)
            sum += value[k] * v[column[k]];
        out[i] = sum;
    }
}

static double dot(long n, const double *a, const double *b) {
    double sum = 0;
    for (long i = 0; i < n; ++i)
        sum += a[i] * b[i];
    return sum;
}

static void kernel_run(long n) {
    arrays(n);
    double residual = 0;
    for (int outer = 0; outer < OUTER; ++outer) {
        for (long i = 0; i < n; ++i) {
            z[i] = q[i] = 0;
            p[i] = r[i] = x[i];
        }
        double rho = dot(n, r, r);
        for (int inner = 0; inner < INNER; ++inner) {
            multiply(n, p, q);
            double alpha = rho / dot(n, p, q);
            for (long i = 0; i < n; ++i) {
                z[i] += alpha * p[i];
                r[i] -= alpha * q[i];
            }
            double before = rho;
            rho = dot(n, r, r);
            for (long i = 0; i < n; ++i)
                p[i] = r[i] + rho / before * p[i];
        }
        multiply(n, z, q);
        residual = 0;
        for (long i = 0; i < n; ++i)
            residual += (x[i] - q[i]) * (x[i] - q[i]);
        residual = sqrt(residual);
        double norm = 1 / sqrt(dot(n, z, z));
        for (long i = 0; i < n; ++i)
            x[i] = norm * z[i];
        printf("residual %.15e, norm %.15e\n", residual, norm);
    }
    printf("%s\n", residual < 0.1 * sqrt((double)n) ? "VERIFIED" : "WRONG");
}
