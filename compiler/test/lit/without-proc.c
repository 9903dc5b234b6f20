// Without /proc nobody sees that main has left by pthread_exit and nothing else is left:
// the program goes without hints, and ends. Where it is hidden later, it is seen still.
// REQUIRES: namespaces
// RUN: %clang -O2 %s %runtime -o %t
// RUN: env RUNAHEAD_CC_MEMORY=6000000 timeout -s KILL 20 %t
// RUN: env RUNAHEAD_CC_MEMORY=6000000 RUNAHEAD_CC_STATS=%t.json timeout -s KILL 20 unshare -rm sh -c "mount -t tmpfs none /proc && exec %t"
// RUN: %FileCheck %s <%t.json
// CHECK: "off": "/proc cannot be read"
// RUN: env RUNAHEAD_CC_MEMORY=6000000 timeout -s KILL 20 unshare -rm %t hidden
#include <pthread.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

__attribute__((noinline)) static void scale(double *a, long n) {
    for (long i = 0; i < n; ++i)
        a[i] *= 3;
}

int main(int argc, char **argv) {
    enum { CELLS = 1 << 20 };
    double *a = calloc(CELLS, sizeof(double));
    scale(a, CELLS);
    if (argc > 1) {
        usleep(200000); // the helper has begun
        if (mount("none", "/proc", "tmpfs", 0, NULL) != 0)
            return 1;
    }
    pthread_exit(argv[argc]);
}
