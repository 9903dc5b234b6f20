/* FFTPDE (NAS FT): the heat equation in Fourier space on a cube of size^3
 * complex numbers: forward transform in three dimensions, evolution, inverse. */
#include "kernel.h"

#include <complex.h>

typedef double complex cell;
enum { LINE_MAX = 1024 };

static cell *u, *w;

static size_t kernel_bytes(long n) { return 2 * ((size_t)n * n * n * sizeof(cell) + 4096); }

static void arrays(long n) {
    u = kernel_array((size_t)n * n * n * sizeof(cell));
    w = kernel_array((size_t)n * n * n * sizeof(cell));
}

static void kernel_init(long n) {
    uint64_t seed = KERNEL_SEED;
    arrays(n);
    for (long i = 0; i < n * n * n; ++i) {
        double re = kernel_random(&seed, KERNEL_A), im = kernel_random(&seed, KERNEL_A);
        u[i] = re + im * I;
        w[i] = 0;
    }
}

/* One line, in place: decimation in time. */
static void fft(cell *restrict line, const cell *restrict root, long n, int inverse) {
    for (long i = 1, j = 0; i < n; ++i) {
        long bit = n >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j ^= bit;
        if (i < j) {
            cell t = line[i];
            line[i] = line[j];
            line[j] = t;
        }
    }
    for (long half = 1; half < n; half *= 2)
        for (long i = 0; i < n; i += 2 * half)
            for (long k = 0; k < half; ++k) {
                cell f = root[k * (n / 2 / half)];
                if (inverse)
                    f = conj(f);
                double re = creal(f) * creal(line[i + k + half]) - cimag(f) * cimag(line[i + k + half]);
                double im = creal(f) * cimag(line[i + k + half]) + cimag(f) * creal(line[i + k + half]);
                cell t = re + im * I;
                line[i + k + half] = line[i + k] - t;
                line[i + k] += t;
            }
}

/* Transforms along the fastest, the middle and the slowest dimension; the last
 * two through a buffer of a few lines, as in the specification's sample code. */
static void transform(cell *restrict a, long n, int inverse) {
    enum { BLOCK = 16 };
    static cell buffer[BLOCK][LINE_MAX], root[LINE_MAX / 2];
    for (long k = 0; k < n / 2; ++k)
        root[k] = cos(2 * M_PI * (double)k / (double)n) - sin(2 * M_PI * (double)k / (double)n) * I;
    for (long z = 0; z < n; ++z) {
        cell *plane = a + z * n * n;
        for (long y = 0; y < n; ++y)
            fft(plane + y * n, root, n, inverse);
        for (long x0 = 0; x0 < n; x0 += BLOCK) {
            for (long y = 0; y < n; ++y)
                for (long x = 0; x < BLOCK; ++x)
                    buffer[x][y] = plane[y * n + x0 + x];
            for (long x = 0; x < BLOCK; ++x)
                fft(buffer[x], root, n, inverse);
            for (long y = 0; y < n; ++y)
                for (long x = 0; x < BLOCK; ++x)
                    plane[y * n + x0 + x] = buffer[x][y];
        }
    }
    for (long y = 0; y < n; ++y)
        for (long x0 = 0; x0 < n; x0 += BLOCK) {
            for (long z = 0; z < n; ++z)
                for (long x = 0; x < BLOCK; ++x)
                    buffer[x][z] = a[(z * n + y) * n + x0 + x];
            for (long x = 0; x < BLOCK; ++x)
                fft(buffer[x], root, n, inverse);
            for (long z = 0; z < n; ++z)
                for (long x = 0; x < BLOCK; ++x)
                    a[(z * n + y) * n + x0 + x] = buffer[x][z];
        }
}

static void kernel_run(long n) {
    if (n > LINE_MAX || n < 16 || (n & (n - 1)) != 0) {
        fprintf(stderr, "size: a power of two from 16 to %d\n", LINE_MAX);
        exit(2);
    }
    arrays(n);
    cell first = u[0], middle = u[(n / 2 * n + 1) * n + 3];
    transform(u, n, 0);
    /* One step of evolution by exp(-4 alpha pi^2 k^2). */
    for (long z = 0; z < n; ++z)
        for (long y = 0; y < n; ++y)
            for (long x = 0; x < n; ++x) {
                long kz = z < n / 2 ? z : z - n, ky = y < n / 2 ? y : y - n, kx = x < n / 2 ? x : x - n;
                double e = exp(-4e-6 * M_PI * M_PI * (double)(kz * kz + ky * ky + kx * kx));
                w[(z * n + y) * n + x] = e * u[(z * n + y) * n + x];
            }
    transform(w, n, 1);
    double scale = 1 / ((double)n * (double)n * (double)n);
    cell sum = 0;
    for (long j = 1; j <= 1024; ++j) {
        long q = j % n, r = 3 * j % n, s = 5 * j % n;
        sum += w[(s * n + r) * n + q] * scale;
    }
    printf("checksum %.12e %.12e\n", creal(sum), cimag(sum));
    /* Back without the evolution: the beginning. */
    transform(u, n, 1);
    double wrong = cabs(u[0] * scale - first) + cabs(u[(n / 2 * n + 1) * n + 3] * scale - middle);
    printf("%s\n", wrong < 1e-10 ? "VERIFIED" : "WRONG");
}
