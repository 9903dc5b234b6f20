// A child that ends by exit writes no statistics: what it has of them would take the
// place of the program's.
// RUN: %clang -O2 %s %runtime -o %t
// RUN: rm -f %t.stats
// RUN: env RUNAHEAD_CC_MEMORY=6000000 RUNAHEAD_CC_STATS=%t.stats %t %t.stats
// RUN: %FileCheck %s <%t.stats
// CHECK: "ticks": {{[1-9]}}
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) static void scale(double *a, long n) {
    for (long i = 0; i < n; ++i)
        a[i] *= 3;
}

int main(int argc, char **argv) {
    enum { CELLS = 1 << 20 };
    double *a = calloc(CELLS, sizeof(double));
    scale(a, CELLS);
    const pid_t child = fork();
    if (child == 0) {
        scale(a, CELLS);
        exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        return 1;
    return access(argv[argc - 1], F_OK) == 0 ? 2 : 0;
}
