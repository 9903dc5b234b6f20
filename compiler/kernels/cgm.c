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

#ifdef KERNEL_FORTRAN /* in cgm.f90 */
void conj_grad(long n, int inner, const long *row, const int *column, const double *value,
               double *x, double *z, double *p, double *q, double *r, double *residual,
               double *norm);
#else
static void multiply(long n, const long *restrict row, const int *restrict column,
                     const double *restrict value, const double *restrict v,
                     double *restrict out) {
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

/* Solves for x, `inner` steps, into z; x becomes z by its length. Norm of the
 * residual, and one over the length. */
static void conj_grad(long n, int inner, const long *restrict row, const int *restrict column,
                      const double *restrict value, double *x, double *z, double *p, double *q,
                      double *r, double *residual, double *norm) {
    for (long i = 0; i < n; ++i) {
        z[i] = q[i] = 0;
        p[i] = r[i] = x[i];
    }
    double rho = dot(n, r, r);
    for (int step = 0; step < inner; ++step) {
        multiply(n, row, column, value, p, q);
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
    multiply(n, row, column, value, z, q);
    double sum = 0;
    for (long i = 0; i < n; ++i)
        sum += (x[i] - q[i]) * (x[i] - q[i]);
    *residual = sqrt(sum);
    *norm = 1 / sqrt(dot(n, z, z));
    for (long i = 0; i < n; ++i)
        x[i] = *norm * z[i];
}
#endif

static void kernel_run(long n) {
    arrays(n);
    double residual = 0, norm = 0;
    for (int outer = 0; outer < OUTER; ++outer) {
        conj_grad(n, INNER, row, column, value, x, z, p, q, r, &residual, &norm);
        printf("residual %.15e, norm %.15e\n", residual, norm);
    }
    printf("%s\n", residual < 0.1 * sqrt((double)n) ? "VERIFIED" : "WRONG");
}
