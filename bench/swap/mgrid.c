/* MGRID (the NAS Parallel Benchmarks' multigrid solver of a 3-D Poisson
 * problem, RNR-91-002; Fraser and Chang 2003, Table 1): V-cycles over grids
 * of halving size; residual, restriction, interpolation, smoothing.
 *
 * The paper's kernel wrote pages of zeros to swap and read them back. Linux
 * keeps a note of them since 6.12 and does neither, and the benchmark's problem
 * begins with grids of zeros: so here the solver begins with a guess that is
 * random and small, in every grid. */
#include "common.h"

enum { LEVELS = 4 };

static size_t points[LEVELS];
static double *u[LEVELS], *r[LEVELS], *v;

#define AT(grid, n, z, y, x) ((grid)[((z) * (n) + (y)) * (n) + (x)])

static double star(const double *g, size_t n, size_t z, size_t y, size_t x) {
    return AT(g, n, z - 1, y, x) + AT(g, n, z + 1, y, x) + AT(g, n, z, y - 1, x) +
           AT(g, n, z, y + 1, x) + AT(g, n, z, y, x - 1) + AT(g, n, z, y, x + 1);
}

static void fill(double *grid, size_t total) {
    for (size_t i = 0; i < total; i++) grid[i] = (double)(random_number() >> 11) * 0x1p-63;
}

#define INNER(n)                                    \
    for (size_t z = 1; z + 1 < (n); z++)            \
        for (size_t y = 1; y + 1 < (n); y++)        \
            for (size_t x = 1; x + 1 < (n); x++)

static void residual(double *out, const double *right, const double *g, size_t n) {
    INNER(n) AT(out, n, z, y, x) =
        AT(right, n, z, y, x) - (6 * AT(g, n, z, y, x) - star(g, n, z, y, x));
}

static void smooth(double *g, const double *res, size_t n) {
    INNER(n) AT(g, n, z, y, x) += 0.125 * AT(res, n, z, y, x) + 0.01 * star(res, n, z, y, x);
}

static void restrict_to(double *coarse, size_t m, const double *fine, size_t n) {
    INNER(m) AT(coarse, m, z, y, x) =
        0.5 * AT(fine, n, 2 * z, 2 * y, 2 * x) + star(fine, n, 2 * z, 2 * y, 2 * x) / 12;
}

static void interpolate(double *fine, size_t n, const double *coarse, size_t m) {
    for (size_t z = 1; z + 1 < n; z++)
        for (size_t y = 1; y + 1 < n; y++)
            for (size_t x = 1; x + 1 < n; x++) {
                size_t cz = z / 2, cy = y / 2, cx = x / 2;
                if (cz + 1 < m && cy + 1 < m && cx + 1 < m)
                    AT(fine, n, z, y, x) +=
                        0.5 * (AT(coarse, m, cz, cy, cx) +
                               AT(coarse, m, cz + z % 2, cy + y % 2, cx + x % 2));
            }
}

int main(int argc, char **argv) {
    size_t bytes = begin(argc, argv), n = 16;
    /* Three fine grids, and coarser ones of an eighth each. */
    while (3 * (n + 8) * (n + 8) * (n + 8) * sizeof(double) * 12 / 11 <= bytes) n += 8;
    for (int level = 0; level < LEVELS; level++) {
        points[level] = n >> level;
        size_t total = points[level] * points[level] * points[level];
        u[level] = memory(total * sizeof(double));
        r[level] = memory(total * sizeof(double));
        fill(u[level], total);
        fill(r[level], total);
    }
    v = memory(n * n * n * sizeof *v);
    fill(v, n * n * n);
    for (int i = 0; i < 20; i++) v[random_number() % (n * n * n)] = i % 2 ? 1 : -1;
    start();
    for (int cycle = 0; cycle < 1; cycle++) {
        residual(r[0], v, u[0], n);
        for (int level = 1; level < LEVELS; level++)
            restrict_to(r[level], points[level], r[level - 1], points[level - 1]);
        for (int level = LEVELS - 1; level >= 0; level--) {
            if (level + 1 < LEVELS)
                interpolate(u[level], points[level], u[level + 1], points[level + 1]);
            smooth(u[level], r[level], points[level]);
        }
    }
    residual(r[0], v, u[0], n);
    double checksum = 0;
    for (size_t i = 0; i < n * n * n; i += 7) checksum += r[0][i] * r[0][i];
    return finish(checksum);
}
