// What is mapped is seen after main has left by pthread_exit: /proc/self tells of the main thread.
// RUN: %clang -O2 %s %runtime -o %t
// RUN: env RUNAHEAD_CC_MEMORY=6000000 RUNAHEAD_CC_STATS=%t.stats timeout -s KILL 60 %t
// RUN: %FileCheck %s <%t.stats
// CHECK: "resident": {{[1-9]}}
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { CELLS = 2 << 20 };

__attribute__((noinline)) static double sum(const double *a, long n) {
    double s = 0;
    for (long i = 0; i < n; ++i)
        s += a[i];
    return s;
}

static double *a;

static void *after_main(void *nothing) {
    char byte;
    for (int maps; (maps = open("/proc/self/maps", O_RDONLY)) >= 0; close(maps)) {
        if (read(maps, &byte, 1) <= 0)
            break;
        usleep(1000);
    }
    for (int k = 0; k < 20; ++k) {
        if (sum(a, CELLS) != 0)
            exit(1);
        usleep(50000); // the helper goes on
    }
    exit(0);
    return nothing;
}

int main(void) {
    pthread_t thread;
    a = calloc(CELLS, sizeof(double)); // no loop yet
    if (pthread_create(&thread, NULL, after_main, NULL) != 0)
        return 2;
    pthread_exit(NULL);
}
