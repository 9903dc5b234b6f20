// Where the loop's condition comes before the index is loaded, as in loops that are not
// rotated, there is one index less than the loop has iterations: none beyond the array
// is read ahead, which may lie where nothing can be read.
// RUN: %clang -Oz -S -o /dev/null -Rpass=runahead %s 2>&1 | %FileCheck %s --check-prefix=HEADER
// RUN: %clang -O2 -S -o /dev/null -Rpass=runahead %s 2>&1 | %FileCheck %s --check-prefix=LATCH
// RUN: %clang -Oz %s %runtime -o %t && env RUNAHEAD_CC_MEMORY=6000000 %t
// RUN: %clang -O2 %s %runtime -o %t && env RUNAHEAD_CC_MEMORY=6000000 %t
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

// HEADER: indirect-last.c:[[@LINE+4]]:{{.*}}(0 indirect)
// LATCH: indirect-last.c:[[@LINE+3]]:{{.*}}(1 indirect)
__attribute__((noinline)) static double gather(const double *a, const int *b, long n) {
    double s = 0;
    for (long i = 0; i < n; ++i)
        s += a[b[i]];
    return s;
}

enum { INDICES = PAGE / sizeof(int) };

// As many pages of indices, and one in memory behind them that cannot be read.
static int *indices(long pages) {
    int *b = mmap(NULL, (size_t)(pages + 1) * PAGE, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED)
        exit(1);
    for (long i = 0; i < (pages + 1) * INDICES; ++i)
        b[i] = (int)(i * 7919 % INDICES);
    if (mprotect(b + pages * INDICES, PAGE, PROT_NONE) != 0)
        exit(1);
    return b;
}

// Large nests, and small ones that are none beside another, whose indices are looked at
// together.
int main(void) {
    static const long pages[] = {20, 200, 8, 10, 8, 10};
    enum { NESTS = sizeof(pages) / sizeof(pages[0]) };
    const int *b[NESTS];
    double *a = calloc(INDICES, sizeof(double));
    for (long i = 0; i < INDICES; ++i)
        a[i] = 1;
    for (int k = 0; k < NESTS; ++k)
        b[k] = indices(pages[k]);
    for (int times = 0; times < 20; ++times)
        for (int k = 0; k < NESTS; ++k)
            if (gather(a, b[k], pages[k] * INDICES) != (double)(pages[k] * INDICES))
                return 1;
}
