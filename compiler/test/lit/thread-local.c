// The threads of the layer have their stacks beside the program's thread-local data, however
// much that is: more than such a stack, or nearly all of it.
// RUN: %clang -O2 -DBYTES=300000 %s %runtime -o %t
// RUN: env RUNAHEAD_CC_MEMORY=6000000 RUNAHEAD_CC_STATS=%t.stats %t
// RUN: %FileCheck %s < %t.stats
// RUN: %clang -O2 -DBYTES=250000 %s %runtime -o %t
// RUN: env RUNAHEAD_CC_MEMORY=6000000 RUNAHEAD_CC_STATS=%t.stats %t
// RUN: %FileCheck %s < %t.stats
// RUN: %clang -O2 -DBYTES=20000000 %s %runtime -o %t
// RUN: env RUNAHEAD_CC_MEMORY=6000000 RUNAHEAD_CC_STATS=%t.stats %t
// RUN: %FileCheck %s < %t.stats
// CHECK: "ticks": {{[1-9]}}
// CHECK-NOT: "off"
#include <stdlib.h>

static volatile __thread char big[BYTES];

__attribute__((noinline)) static void scale(double *a, long n) {
    for (long i = 0; i < n; ++i)
        a[i] *= 3;
}

int main(int argc, char **argv) {
    (void)argv;
    enum { CELLS = 1 << 20 };
    double *a = calloc(CELLS, sizeof(double));
    for (long i = 0; i < CELLS; ++i)
        a[i] = 1;
    big[argc] = 1;
    scale(a, CELLS);
    return a[CELLS - 1] == 3 && big[argc] == 1 ? 0 : 1;
}
