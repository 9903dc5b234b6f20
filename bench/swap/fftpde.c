/* FFTPDE (the NAS Parallel Benchmarks' 3-D FFT solver of a partial
 * differential equation, RNR-91-002; Fraser and Chang 2003, Table 1): a
 * forward transform of random data along three dimensions, evolution in time
 * in the frequency domain, and back. Strides change with each dimension. */
#include "common.h"
#include <complex.h>
#include <math.h>

typedef double complex number;

static size_t size[3];
static number line[4096], work[4096], root[4096];

/* In-place transform of `line` of n points (Stockham); sign -1 forward. */
static void transform(size_t n, int sign) {
    number *from = line, *to = work;
    static size_t roots_of;
    static int roots_sign;
    for (size_t i = 0; i < n / 2 && (roots_of != n || roots_sign != sign); i++)
        root[i] = cexp(sign * 2.0 * M_PI * I * (double)i / (double)n);
    roots_of = n;
    roots_sign = sign;
    for (size_t half = n / 2, blocks = 1; half >= 1; half /= 2, blocks *= 2) {
        for (size_t block = 0; block < blocks; block++) {
            number turn = root[block * half];
            for (size_t k = 0; k < half; k++) {
                number a = from[block * 2 * half + k], b = from[block * 2 * half + half + k];
                to[block * half + k] = a + turn * b;
                to[n / 2 + block * half + k] = a - turn * b;
            }
        }
        number *other = from;
        from = to;
        to = other;
    }
    if (from != line) memcpy(line, from, n * sizeof *line);
}

/* All lines along one dimension, from one array into another. */
static void along(int dimension, int sign, const number *in, number *out) {
    size_t n = size[dimension], stride = 1;
    for (int d = 0; d < dimension; d++) stride *= size[d];
    size_t total = size[0] * size[1] * size[2];
    for (size_t first = 0; first < total; first += stride * n) {
        for (size_t inner = 0; inner < stride; inner++) {
            const number *column = in + first + inner;
            for (size_t i = 0; i < n; i++) line[i] = column[i * stride];
            transform(n, sign);
            for (size_t i = 0; i < n; i++) out[first + inner + i * stride] = line[i];
        }
    }
}

int main(int argc, char **argv) {
    size_t bytes = begin(argc, argv);
    /* Three complex arrays and one real: 56 bytes a point; 224 MB are 2^22. */
    int log = 10;
    while ((size_t)56 << (log + 1) <= bytes + bytes / 10) log++;
    for (int d = 0; d < 3; d++) size[d] = (size_t)1 << (log / 3 + (log % 3 > d));
    size_t total = (size_t)1 << log;
    number *u0 = memory(total * sizeof *u0), *u1 = memory(total * sizeof *u1);
    number *u2 = memory(total * sizeof *u2);
    double *decay = memory(total * sizeof *decay);
    for (size_t i = 0; i < total; i++) {
        u0[i] = (double)(random_number() >> 11) * 0x1p-53 +
                I * ((double)(random_number() >> 11) * 0x1p-53);
        u1[i] = u2[i] = 0;
    }
    for (size_t z = 0, i = 0; z < size[2]; z++)
        for (size_t y = 0; y < size[1]; y++)
            for (size_t x = 0; x < size[0]; x++, i++) {
                double kx = (double)((x + size[0] / 2) % size[0]) - (double)size[0] / 2;
                double ky = (double)((y + size[1] / 2) % size[1]) - (double)size[1] / 2;
                double kz = (double)((z + size[2] / 2) % size[2]) - (double)size[2] / 2;
                decay[i] = exp(-4e-6 * M_PI * M_PI * (kx * kx + ky * ky + kz * kz));
            }
    start();
    along(0, -1, u0, u1);
    along(1, -1, u1, u2);
    along(2, -1, u2, u1);
    for (size_t i = 0; i < total; i++) u0[i] = u1[i] * decay[i];
    along(2, 1, u0, u2);
    along(1, 1, u2, u1);
    along(0, 1, u1, u2);
    number checksum = 0;
    for (size_t j = 1; j <= 1024; j++) checksum += u2[j * 5 * (total / 8192 + 1) % total];
    return finish(creal(checksum) + cimag(checksum));
}
