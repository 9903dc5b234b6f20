/* EMBAR (NAS EP): pairs of uniform numbers by acceptance-rejection into Gaussian
 * ones, tallied by annuli. The numbers are made anew for each of two rounds, as
 * in the paper, and read back from the file: size numbers of 8 bytes. */
#include "kernel.h"

static size_t kernel_bytes(long n) { return (size_t)n * 8 + 2 * 4096; }

static void kernel_init(long n) {
    double *number = kernel_array((size_t)n * 8);
    for (long i = 0; i < n; i += 512)
        number[i] = 1; /* every page is there */
}

static void generate(double *restrict number, long n, uint64_t *seed) {
    uint64_t x = *seed;
    for (long i = 0; i < n; ++i)
        number[i] = kernel_random(&x, KERNEL_A);
    *seed = x;
}

static void tally(const double *restrict number, long n, long *restrict annulus, double *sums) {
    double sx = 0, sy = 0;
    for (long i = 0; i + 1 < n; i += 2) {
        double a = 2 * number[i] - 1, b = 2 * number[i + 1] - 1, t = a * a + b * b;
        if (t <= 1 && t > 0) {
            double f = sqrt(-2 * log(t) / t), gx = a * f, gy = b * f;
            int l = (int)fmax(fabs(gx), fabs(gy));
            annulus[l] += 1;
            sx += gx;
            sy += gy;
        }
    }
    sums[0] += sx;
    sums[1] += sy;
}

static void kernel_run(long n) {
    double *number = kernel_array((size_t)n * 8), sums[2] = {0, 0};
    long annulus[10] = {0}, total = 0;
    uint64_t seed = KERNEL_SEED;
    for (int round = 0; round < 2; ++round) {
        generate(number, n, &seed);
        tally(number, n, annulus, sums);
    }
    for (int i = 0; i < 10; ++i)
        total += annulus[i];
    /* The share accepted is pi/4. */
    double share = (double)total / (double)(n / 2 * 2), wrong = fabs(share - 0.78539816339745);
    printf("sums %.15e %.15e, accepted %ld: %s\n", sums[0], sums[1], total,
           wrong < 6 / sqrt((double)n) ? "VERIFIED" : "WRONG");
    for (int i = 0; i < 10; ++i)
        printf("%d %ld\n", i, annulus[i]);
}
