// A filter that kills for what the layer asks of the kernel: on before the first loop, or
// before the first loop that is large enough for threads. The program goes without hints.
// RUN: %clang -O2 %s %runtime -o %t
// RUN: %t
// RUN: env RUNAHEAD_CC_STATS=%t.json %t early
// RUN: %t late
// RUN: env RUNAHEAD_CC_MEMORY=6000000 RUNAHEAD_CC_STATS=%t2.json %t late
// RUN: %FileCheck %s --check-prefix=NOT <%t.json
// RUN: %FileCheck %s --check-prefix=NOT <%t2.json
// NOT: "off": "system calls are filtered (seccomp)"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define KILLS(call) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static void put_filter_on(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        KILLS(clone), KILLS(clone3), KILLS(mincore), KILLS(madvise), KILLS(getrusage),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        exit(1);
}

__attribute__((noinline)) static void scale(double *a, long n) {
    for (long i = 0; i < n; ++i)
        a[i] *= 3;
}

__attribute__((noinline)) static void fill(char *b, unsigned long n) {
    memset(b, 7, n);
}

int main(int argc, char **argv) {
    enum { CELLS = 1 << 20 };
    double *a = calloc(CELLS, sizeof(double));
    char *b = malloc(CELLS * sizeof(double));
    a[1] = 1;
    if (argc > 1 && strcmp(argv[1], "early") == 0)
        put_filter_on();
    scale(a, 8);
    if (argc > 1 && strcmp(argv[1], "late") == 0)
        put_filter_on();
    fill(b, CELLS * sizeof(double) - 1);
    scale(a, CELLS);
    return a[1] != 9 || b[5] != 7;
}
