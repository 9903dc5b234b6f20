// A program whose data are in memory stays one of a single thread, with what the C library
// saves there; one that reads storage does not.
// RUN: %clang -O2 %s %runtime -o %t
// RUN: %t
// RUN: dd if=/dev/zero of=%t.data bs=1M count=16 conv=fsync status=none
// RUN: dd of=%t.data oflag=nocache conv=notrunc,fdatasync count=0 status=none
// RUN: %t %t.data
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CELLS = 2 << 20 };

__attribute__((noinline)) static double sum(const double *a, long n) {
    double s = 0;
    for (long i = 0; i < n; ++i)
        s += a[i];
    return s;
}

__attribute__((noinline)) static void fill(double *a, double with, long n) {
    for (long i = 0; i < n; ++i)
        a[i] = with;
}

__attribute__((noinline)) static void copy(double *restrict a, const double *restrict b, long n) {
    for (long i = 0; i < n; ++i)
        a[i] = b[i];
}

static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int n = -2; // . and ..
    while (readdir(tasks))
        ++n;
    closedir(tasks);
    return n;
}

int main(int argc, char **argv) {
    double *a = malloc(CELLS * sizeof(double)), *b = malloc(CELLS * sizeof(double));
    fill(a, 1, CELLS); // which nobody has touched
    for (int k = 0; k < 20; ++k) {
        copy(b, a, CELLS);
        if (sum(b, CELLS) != CELLS)
            return 1;
    }
    if (threads() != 1)
        return 2;
    if (argc == 1)
        return 0;
    int file = open(argv[1], O_RDONLY);
    const double *c = mmap(NULL, CELLS * sizeof(double), PROT_READ, MAP_SHARED, file, 0);
    unsigned char there;
    if (mincore((void *)c, sizeof(double), &there) != 0)
        return 3;
    if (there & 1)
        puts("not tested: the file lies in memory");
    if (sum(c, CELLS) != 0)
        return 4;
    return threads() > 1 || there & 1 ? 0 : 5;
}
