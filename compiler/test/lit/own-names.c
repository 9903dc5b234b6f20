// Names of POSIX are a plain C program's own: functions that nobody else is to call, and
// data.
// RUN: %clang -std=c11 -O2 %s %runtime -o %t
// RUN: env RUNAHEAD_CC_MEMORY=6000000 RUNAHEAD_CC_STATS=%t.stats %t | %FileCheck %s
// RUN: %FileCheck %s --check-prefix=HINTS < %t.stats
// CHECK: 3 0
// HINTS: "ticks": {{[1-9]}}
// HINTS-NOT: "off"
#include <stdio.h>
#include <stdlib.h>

static int calls;
#define OWN(name)        \
    long name(long x) {  \
        calls += 1;      \
        return x;         \
    }
OWN(close)
OWN(fstat)
OWN(getdents64)
OWN(getpid)
OWN(getrlimit)
OWN(getrusage)
OWN(madvise)
OWN(mincore)
OWN(mmap)
OWN(munlock)
OWN(munmap)
OWN(openat)
OWN(opendir)
OWN(posix_fadvise)
OWN(prctl)
OWN(pread)
OWN(read)
OWN(readdir)
OWN(stat)
OWN(sync_file_range)
OWN(syscall)
OWN(sysconf)
int access[4], mprotect[4], open[4];

__attribute__((noinline)) static void scale(double *a, long n) {
    for (long i = 0; i < n; ++i)
        a[i] *= 3;
}

int main(void) {
    enum { CELLS = 1 << 20 };
    double *a = malloc(CELLS * sizeof(double));
    for (long i = 0; i < CELLS; ++i)
        a[i] = 1;
    scale(a, CELLS);
    printf("%g %d\n", a[CELLS - 1], calls + access[1] + mprotect[1] + open[1]);
    return 0;
}
