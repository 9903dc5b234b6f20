// Debug information and optimization at link time change neither results nor that there
// are hints. With -flto=thin nothing is inserted.
// RUN: %plain -O2 %s -o %t && %t >%t.plain
// RUN: %clang -O2 -g %s %runtime -o %t
// RUN: env RUNAHEAD_CC_MEMORY=6000000 RUNAHEAD_CC_STATS=%t.stats %t | cmp - %t.plain
// RUN: %FileCheck %s <%t.stats
// RUN: %clang -O2 -flto %s %runtime -o %t
// RUN: env RUNAHEAD_CC_MEMORY=6000000 RUNAHEAD_CC_STATS=%t.stats-lto %t | cmp - %t.plain
// RUN: %FileCheck %s <%t.stats-lto
// RUN: %clang -O3 -g -flto %s %runtime -o %t
// RUN: env RUNAHEAD_CC_MEMORY=6000000 RUNAHEAD_CC_STATS=%t.stats-both %t | cmp - %t.plain
// RUN: %FileCheck %s <%t.stats-both
// RUN: %clang -O2 -flto=thin %s %runtime -o %t
// RUN: rm -f %t.stats-thin
// RUN: env RUNAHEAD_CC_MEMORY=6000000 RUNAHEAD_CC_STATS=%t.stats-thin %t | cmp - %t.plain
// RUN: test ! -e %t.stats-thin
// CHECK: "ticks": {{[1-9]}}
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 1000, COLUMNS = 1000, CELLS = ROWS * COLUMNS };

static void smooth(double *restrict to, const double *restrict from, int rows, int columns) {
    for (int i = 1; i < rows - 1; ++i)
        for (int k = 1; k < columns - 1; ++k)
            to[i * columns + k] = 0.25 * (from[(i - 1) * columns + k] + from[(i + 1) * columns + k] +
                                          from[i * columns + k - 1] + from[i * columns + k + 1]);
}

static double gathered(const double *a, const int *where, long n) {
    double sum = 0;
    for (long i = 0; i < n; ++i)
        sum += a[where[i]];
    return sum;
}

int main(void) {
    double *a = malloc(CELLS * sizeof(double)), *b = calloc(CELLS, sizeof(double));
    int *where = malloc(CELLS * sizeof(int));
    for (int i = 0; i < CELLS; ++i) {
        a[i] = i % 97;
        where[i] = (int)(i * 7919l % CELLS);
    }
    for (int times = 0; times < 3; ++times) {
        smooth(b, a, ROWS, COLUMNS);
        smooth(a, b, ROWS, COLUMNS);
    }
    printf("%a %a\n", gathered(a, where, CELLS), gathered(b, where, CELLS));
    return 0;
}
