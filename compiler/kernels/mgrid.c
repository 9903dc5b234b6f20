/* MGRID (NAS MG): V-cycles of a multigrid solver for the Poisson problem on a
 * cube of size^3 points, size a power of two, with the 27-point operators of the
 * specification; borders periodic. */
#include "kernel.h"

enum { LEVELS_MAX = 12, CYCLES = 2 };

static double *u[LEVELS_MAX], *r[LEVELS_MAX], *v;
static long n[LEVELS_MAX];
static int top;

static size_t cube(long m) { return (size_t)(m + 2) * (m + 2) * (m + 2) * 8; }

static size_t kernel_bytes(long size) {
    size_t bytes = cube(size) + 4096;
    for (long m = size; m >= 2; m /= 2)
        bytes += 2 * (cube(m) + 4096);
    return bytes;
}

static void arrays(long size) {
    top = -1;
    for (long m = size; m >= 2; m /= 2)
        ++top;
    long m = size;
    for (int k = top; k >= 0; --k, m /= 2) {
        n[k] = m + 2;
        u[k] = kernel_array(cube(m));
        r[k] = kernel_array(cube(m));
    }
    v = kernel_array(cube(size));
}

#define AT(a, i3, i2, i1) a[((i3) * m + (i2)) * m + (i1)]

#ifdef KERNEL_FORTRAN /* in mgrid.f90 */
void borders(double *a, long m);
void resid_of(const double *uu, const double *vv, double *rr, long m);
void resid_in_place(const double *uu, double *rr, long m);
void psinv(const double *rr, double *uu, long m);
void rprj3(const double *fine, long mf, double *coarse, long m);
void interp(const double *z, long mc, double *uu, long m);
double squares(const double *rr, long m);

/* Arguments of a Fortran subroutine are different arrays where it writes. */
static void resid(const double *uu, const double *vv, double *rr, long m) {
    if (vv == rr)
        resid_in_place(uu, rr, m);
    else
        resid_of(uu, vv, rr, m);
}
#else
/* Periodic borders. */
static void borders(double *a, long m) {
    for (long i3 = 1; i3 < m - 1; ++i3) {
        for (long i2 = 1; i2 < m - 1; ++i2) {
            AT(a, i3, i2, 0) = AT(a, i3, i2, m - 2);
            AT(a, i3, i2, m - 1) = AT(a, i3, i2, 1);
        }
        for (long i1 = 0; i1 < m; ++i1) {
            AT(a, i3, 0, i1) = AT(a, i3, m - 2, i1);
            AT(a, i3, m - 1, i1) = AT(a, i3, 1, i1);
        }
    }
    for (long i = 0; i < m * m; ++i) {
        a[i] = a[(m - 2) * m * m + i];
        a[(m - 1) * m * m + i] = a[m * m + i];
    }
}

/* r = v - A u */
static void resid(const double *uu, const double *vv, double *rr, long m) {
    double u1[4098], u2[4098];
    for (long i3 = 1; i3 < m - 1; ++i3)
        for (long i2 = 1; i2 < m - 1; ++i2) {
            for (long i1 = 0; i1 < m; ++i1) {
                u1[i1] = AT(uu, i3, i2 - 1, i1) + AT(uu, i3, i2 + 1, i1) + AT(uu, i3 - 1, i2, i1) +
                         AT(uu, i3 + 1, i2, i1);
                u2[i1] = AT(uu, i3 - 1, i2 - 1, i1) + AT(uu, i3 - 1, i2 + 1, i1) +
                         AT(uu, i3 + 1, i2 - 1, i1) + AT(uu, i3 + 1, i2 + 1, i1);
            }
            for (long i1 = 1; i1 < m - 1; ++i1)
                AT(rr, i3, i2, i1) = AT(vv, i3, i2, i1) - (-8.0 / 3.0) * AT(uu, i3, i2, i1) -
                                     (1.0 / 6.0) * (u2[i1] + u1[i1 - 1] + u1[i1 + 1]) -
                                     (1.0 / 12.0) * (u2[i1 - 1] + u2[i1 + 1]);
        }
    borders(rr, m);
}

/* u = u + C r */
static void psinv(const double *rr, double *uu, long m) {
    double r1[4098], r2[4098];
    for (long i3 = 1; i3 < m - 1; ++i3)
        for (long i2 = 1; i2 < m - 1; ++i2) {
            for (long i1 = 0; i1 < m; ++i1) {
                r1[i1] = AT(rr, i3, i2 - 1, i1) + AT(rr, i3, i2 + 1, i1) + AT(rr, i3 - 1, i2, i1) +
                         AT(rr, i3 + 1, i2, i1);
                r2[i1] = AT(rr, i3 - 1, i2 - 1, i1) + AT(rr, i3 - 1, i2 + 1, i1) +
                         AT(rr, i3 + 1, i2 - 1, i1) + AT(rr, i3 + 1, i2 + 1, i1);
            }
            for (long i1 = 1; i1 < m - 1; ++i1)
                AT(uu, i3, i2, i1) += (-3.0 / 8.0) * AT(rr, i3, i2, i1) +
                                      (1.0 / 32.0) * (AT(rr, i3, i2, i1 - 1) +
                                                      AT(rr, i3, i2, i1 + 1) + r1[i1]) +
                                      (-1.0 / 64.0) * (r2[i1] + r1[i1 - 1] + r1[i1 + 1]);
        }
    borders(uu, m);
}

/* Restriction to the next coarser grid: full weighting. */
static void rprj3(const double *fine, long mf, double *coarse, long m) {
#define FINE(i3, i2, i1) fine[((i3) * mf + (i2)) * mf + (i1)]
    for (long j3 = 1; j3 < m - 1; ++j3)
        for (long j2 = 1; j2 < m - 1; ++j2)
            for (long j1 = 1; j1 < m - 1; ++j1) {
                long i3 = 2 * j3 - 1, i2 = 2 * j2 - 1, i1 = 2 * j1 - 1;
                double faces = FINE(i3, i2, i1 - 1) + FINE(i3, i2, i1 + 1) + FINE(i3, i2 - 1, i1) +
                               FINE(i3, i2 + 1, i1) + FINE(i3 - 1, i2, i1) + FINE(i3 + 1, i2, i1);
                double edges = FINE(i3 - 1, i2 - 1, i1) + FINE(i3 - 1, i2 + 1, i1) +
                               FINE(i3 + 1, i2 - 1, i1) + FINE(i3 + 1, i2 + 1, i1) +
                               FINE(i3, i2 - 1, i1 - 1) + FINE(i3, i2 - 1, i1 + 1) +
                               FINE(i3, i2 + 1, i1 - 1) + FINE(i3, i2 + 1, i1 + 1) +
                               FINE(i3 - 1, i2, i1 - 1) + FINE(i3 - 1, i2, i1 + 1) +
                               FINE(i3 + 1, i2, i1 - 1) + FINE(i3 + 1, i2, i1 + 1);
                coarse[(j3 * m + j2) * m + j1] =
                    0.5 * FINE(i3, i2, i1) + 0.25 * faces / 2 + 0.125 * edges / 2;
            }
    borders(coarse, m);
}

/* Adds the trilinear interpolation of the coarser grid. */
static void interp(const double *z, long mc, double *uu, long m) {
#define Z(i3, i2, i1) z[((i3) * mc + (i2)) * mc + (i1)]
    for (long i3 = 0; i3 < mc - 1; ++i3)
        for (long i2 = 0; i2 < mc - 1; ++i2) {
            double z1[2050], z2[2050], z3[2050];
            for (long i1 = 0; i1 < mc; ++i1) {
                z1[i1] = Z(i3, i2 + 1, i1) + Z(i3, i2, i1);
                z2[i1] = Z(i3 + 1, i2, i1) + Z(i3, i2, i1);
                z3[i1] = Z(i3 + 1, i2 + 1, i1) + Z(i3 + 1, i2, i1) + z1[i1];
            }
            for (long i1 = 0; i1 < mc - 1; ++i1) {
                AT(uu, 2 * i3, 2 * i2, 2 * i1) += Z(i3, i2, i1);
                AT(uu, 2 * i3, 2 * i2, 2 * i1 + 1) += 0.5 * (Z(i3, i2, i1 + 1) + Z(i3, i2, i1));
                AT(uu, 2 * i3, 2 * i2 + 1, 2 * i1) += 0.5 * z1[i1];
                AT(uu, 2 * i3, 2 * i2 + 1, 2 * i1 + 1) += 0.25 * (z1[i1] + z1[i1 + 1]);
                AT(uu, 2 * i3 + 1, 2 * i2, 2 * i1) += 0.5 * z2[i1];
                AT(uu, 2 * i3 + 1, 2 * i2, 2 * i1 + 1) += 0.25 * (z2[i1] + z2[i1 + 1]);
                AT(uu, 2 * i3 + 1, 2 * i2 + 1, 2 * i1) += 0.25 * z3[i1];
                AT(uu, 2 * i3 + 1, 2 * i2 + 1, 2 * i1 + 1) += 0.125 * (z3[i1] + z3[i1 + 1]);
            }
        }
}

/* Sum of squares over the points inside. */
static double squares(const double *rr, long m) {
    double sum = 0;
    for (long i3 = 1; i3 < m - 1; ++i3)
        for (long i2 = 1; i2 < m - 1; ++i2)
            for (long i1 = 1; i1 < m - 1; ++i1)
                sum += AT(rr, i3, i2, i1) * AT(rr, i3, i2, i1);
    return sum;
}
#endif

static double norm(const double *rr, long m) {
    return sqrt(squares(rr, m) / ((double)(m - 2) * (double)(m - 2) * (double)(m - 2)));
}

static void kernel_init(long size) {
    arrays(size);
    long m = size + 2;
    uint64_t seed = KERNEL_SEED;
    memset(kernel_memory, 0, kernel_bytes(size));
    /* Ten points of -1 and ten of +1. */
    for (int k = 0; k < 20; ++k) {
        long i1 = 1 + (long)(kernel_random(&seed, KERNEL_A) * (double)size);
        long i2 = 1 + (long)(kernel_random(&seed, KERNEL_A) * (double)size);
        long i3 = 1 + (long)(kernel_random(&seed, KERNEL_A) * (double)size);
        AT(v, i3, i2, i1) = k < 10 ? -1 : 1;
    }
    borders(v, m);
}

static void kernel_run(long size) {
    arrays(size);
    resid(u[top], v, r[top], n[top]);
    double before = norm(r[top], n[top]), after = before;
    for (int cycle = 0; cycle < CYCLES; ++cycle) {
        for (int k = top; k > 0; --k)
            rprj3(r[k], n[k], r[k - 1], n[k - 1]);
        memset(u[0], 0, cube(n[0] - 2));
        psinv(r[0], u[0], n[0]);
        for (int k = 1; k < top; ++k) {
            memset(u[k], 0, cube(n[k] - 2));
            interp(u[k - 1], n[k - 1], u[k], n[k]);
            resid(u[k], r[k], r[k], n[k]);
            psinv(r[k], u[k], n[k]);
        }
        interp(u[top - 1], n[top - 1], u[top], n[top]);
        resid(u[top], v, r[top], n[top]);
        psinv(r[top], u[top], n[top]);
        resid(u[top], v, r[top], n[top]);
        after = norm(r[top], n[top]);
        printf("residual %.15e\n", after);
    }
    printf("%s\n", after < 0.5 * before ? "VERIFIED" : "WRONG");
}
