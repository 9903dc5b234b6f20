// Where products and sums may be fused across expressions, they are within a block: vectors
// are one block where conditions made several, and so are unrolled iterations. A loop in
// which a product is added in another block is left in one piece, or the ends of strips,
// which no vector fits, would come out otherwise.
// REQUIRES: fma
// RUN: %clang -O2 -mfma -ffp-contract=fast -S -o /dev/null -Rpass=runahead %s 2>&1 | %FileCheck %s --check-prefix=FUSED
// RUN: %clang -O2 -march=haswell -ffp-contract=fast -S -o /dev/null -Rpass=runahead %s 2>&1 | %FileCheck %s --check-prefix=FUSED
// RUN: %clang -O2 -mfma -ffp-contract=on -S -o /dev/null -Rpass=runahead %s 2>&1 | %FileCheck %s --check-prefix=SPLIT
// RUN: %clang -O2 -ffp-contract=fast -S -o /dev/null -Rpass=runahead %s 2>&1 | %FileCheck %s --check-prefix=SPLIT
// RUN: %plain -O2 -mfma -ffp-contract=fast %s -o %t-plain
// RUN: %clang -O2 -mfma -ffp-contract=fast %s %runtime -o %t-hinted
// RUN: %t-plain >%t-plain.out
// RUN: env RUNAHEAD_CC_MEMORY=6000000 %t-hinted >%t-hinted.out
// RUN: cmp %t-plain.out %t-hinted.out
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// FUSED: strip-mined: -
// SPLIT: strip-mined: s
__attribute__((noinline)) static void chosen(double *restrict out, const double *x,
                                             const double *y, const double *u, const char *c,
                                             long n) {
    for (long i = 0; i < n; ++i) {
        double t = x[i] * y[i], w = 1;
        if (c[i])
            w = u[i];
        out[i] = t + w;
    }
}

// What the iteration before has left.
// FUSED: strip-mined: -
// SPLIT: strip-mined: s
__attribute__((noinline)) static void before(double *restrict out, const double *x,
                                             const double *y, const double *u, long n) {
    double last = 0;
    for (long i = 0; i < n; ++i) {
        out[i] = last + u[i];
        last = x[i] * y[i];
    }
}

// FUSED: strip-mined: s
// SPLIT: strip-mined: s
__attribute__((noinline)) static void together(double *restrict out, const double *x,
                                               const double *y, const double *u, long n) {
    for (long i = 0; i < n; ++i)
        out[i] = x[i] * y[i] + u[i];
}

// FUSED: strip-mined: s
// SPLIT: strip-mined: s
__attribute__((noinline)) static double sum(const double *x, const double *y, long n) {
    double all = 0;
    for (long i = 0; i < n; ++i)
        all += x[i] * y[i];
    return all;
}

enum { CELLS = 1000003 };

static void print(const double *a) {
    uint64_t h = 14695981039346656037u;
    for (long i = 0; i < CELLS; ++i)
        h = (h ^ ((const uint64_t *)a)[i]) * 0x100000001b3u;
    printf("%016lx\n", h);
}

int main(void) {
    double *x = malloc(CELLS * sizeof(double)), *y = malloc(CELLS * sizeof(double));
    double *u = malloc(CELLS * sizeof(double)), *out = calloc(CELLS, sizeof(double));
    char *c = malloc(CELLS); // so that no strip is a multiple of a vector
    for (long i = 0; i < CELLS; ++i) {
        x[i] = (double)(i * 7919 % 100003 - 50000) / 3;
        y[i] = (double)(i * 31 % 10007 + 3) / 7;
        u[i] = (double)(i * 17 % 1009) / 11;
        c[i] = i % 3 != 0;
    }
    chosen(out, x, y, u, c, CELLS), print(out);
    before(out, x, y, u, CELLS), print(out);
    together(out, x, y, u, CELLS), print(out);
    printf("%a\n", sum(x, y, CELLS));
}
