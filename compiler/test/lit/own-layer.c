// A library and a program have a layer each, perhaps of different versions: neither's calls
// are seen from outside, where they would be taken for the other's.
// RUN: %clang -O2 -shared -fPIC -Dfunction=library %s %runtime -Wl,-z,nodelete -o %t.so
// RUN: nm -D --defined-only %t.so | %FileCheck %s --check-prefix=LIBRARY
// RUN: %clang -O2 -rdynamic -Dfunction=own -DPROGRAM %s %t.so %runtime -o %t
// RUN: nm -D --defined-only %t | %FileCheck %s --check-prefix=PROGRAM
// RUN: env RUNAHEAD_CC_MEMORY=6000000 %t
// LIBRARY-NOT: {{ ra_}}
// LIBRARY: library
// LIBRARY-NOT: {{ ra_}}
// PROGRAM-NOT: {{ ra_}}
// PROGRAM: own
// PROGRAM-NOT: {{ ra_}}
void function(double *a, long n) {
    for (long i = 0; i < n; ++i)
        a[i] *= 3;
}

#ifdef PROGRAM
#include <dirent.h>
#include <stdlib.h>

void library(double *a, long n);

// Each layer has three threads, from its first large nest on where the memory was told.
static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int n = 0;
    while (readdir(tasks))
        ++n;
    closedir(tasks);
    return n - 2;
}

int main(void) {
    enum { CELLS = 1 << 18 };
    double *a = calloc(CELLS, sizeof(double));
    own(a, CELLS);
    const int before = threads();
    library(a, CELLS);
    return !(threads() > before);
}
#endif
