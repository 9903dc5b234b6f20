// In vectors a fast division is an estimate, and the sine that of another library: a loop
// with such is left in one piece, or the ends of strips, which no vector fits, would come
// out otherwise. Loops outside of it are split.
// RUN: %clang -O2 -fno-math-errno -S -o /dev/null -Rpass=runahead %s 2>&1 | %FileCheck %s --check-prefix=STRICT
// RUN: %clang -O2 -ffast-math -S -o /dev/null -Rpass=runahead %s 2>&1 | %FileCheck %s --check-prefix=FAST
// RUN: %clang -O2 -fno-math-errno -fveclib=libmvec -S -o /dev/null -Rpass=runahead %s 2>&1 | %FileCheck %s --check-prefix=LIBRARY
// RUN: %plain -O2 -ffast-math %s -lm -o %t-plain
// RUN: %clang -O2 -ffast-math %s %runtime -o %t-hinted
// RUN: %t-plain >%t-plain.out
// RUN: env RUNAHEAD_CC_MEMORY=6000000 %t-hinted >%t-hinted.out
// RUN: cmp %t-plain.out %t-hinted.out
// RUN: %plain -O2 -fno-math-errno -fveclib=libmvec %s -lmvec -lm -o %t-plain
// RUN: %clang -O2 -fno-math-errno -fveclib=libmvec %s %runtime -lmvec -o %t-hinted
// RUN: %t-plain >%t-plain.out
// RUN: env RUNAHEAD_CC_MEMORY=6000000 %t-hinted >%t-hinted.out
// RUN: cmp %t-plain.out %t-hinted.out
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// STRICT: strip-mined: s
// FAST: strip-mined: -
// LIBRARY: strip-mined: s
__attribute__((noinline)) static void divide(float *restrict to, const float *a, const float *b,
                                             long n) {
    for (long i = 0; i < n; ++i)
        to[i] = a[i] / b[i];
}

// STRICT: strip-mined: s
// FAST: strip-mined: -
// LIBRARY: strip-mined: s
__attribute__((noinline)) static void root(float *restrict to, const float *a, const float *b,
                                           long n) {
    for (long i = 0; i < n; ++i)
        to[i] = sqrtf(a[i]) + b[i];
}

// STRICT: strip-mined: s
// FAST: strip-mined: -
// LIBRARY: strip-mined: -
__attribute__((noinline)) static void sine(float *restrict to, const float *a, const float *b,
                                           long n) {
    for (long i = 0; i < n; ++i)
        to[i] = sinf(a[i] + b[i]);
}

// STRICT: strip-mined: s
// FAST: strip-mined: s
// LIBRARY: strip-mined: s
__attribute__((noinline)) static void several(float *restrict to, const float *a, const float *b,
                                              long n) {
    for (long i = 0; i < n; ++i)
        to[i] = a[i] * 3 + b[i] * 5 + fabsf(a[i]) * b[i];
}

// STRICT: strip-mined: s
// FAST: strip-mined: s-
// LIBRARY: strip-mined: s
__attribute__((noinline)) static void rows(float *restrict to, const float *a, long n, long m) {
    for (long i = 0; i < n; ++i)
        for (long k = 0; k < m; ++k)
            to[2 * i * m + k] = a[2 * i * m + k] / a[2 * i * m];
}

enum { CELLS = 1000003 };

static void print(const float *a) {
    uint64_t h = 14695981039346656037u;
    for (long i = 0; i < CELLS; ++i)
        h = (h ^ ((const uint32_t *)a)[i]) * 0x100000001b3u;
    printf("%016lx\n", h);
}

int main(void) {
    float *a = malloc(CELLS * sizeof(float)), *b = malloc(CELLS * sizeof(float));
    float *to = calloc(CELLS, sizeof(float));
    for (long i = 0; i < CELLS; ++i) {
        a[i] = (float)(i * 7919 % 100003 + 1);
        b[i] = (float)(i * 31 % 10007 + 3);
    }
    divide(to, a, b, CELLS), print(to);
    root(to, a, b, CELLS), print(to);
    sine(to, a, b, CELLS), print(to);
    several(to, a, b, CELLS), print(to);
    rows(to, a, 700, 711), print(to);
}
