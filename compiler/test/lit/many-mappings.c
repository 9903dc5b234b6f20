// Many small mappings below a file, more than the helper keeps, take nothing from what is
// asked for of the file.
// RUN: %clang -O2 %s %runtime -o %t
// RUN: dd if=/dev/zero of=%t.data bs=1M count=16 conv=fsync status=none
// RUN: dd of=%t.data oflag=nocache conv=notrunc,fdatasync count=0 status=none
// RUN: env RUNAHEAD_CC_MEMORY=6000000 RUNAHEAD_CC_STATS=%t.stats %t %t.data
// RUN: %FileCheck %s <%t.stats
// Where the file lies in memory nothing need be asked for.
// CHECK: {{"issued": [1-9]|"resident": [1-9]}}
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CELLS = 2 << 20, PAGE = 4096, MAPPINGS = 6000 };

__attribute__((noinline)) static double sum(const double *a, long n) {
    double s = 0;
    for (long i = 0; i < n; ++i)
        s += a[i];
    return s;
}

int main(int argc, char **argv) {
    char *small = mmap((char *)(1ul << 32), MAPPINGS * PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    const int file = open(argv[argc - 1], O_RDONLY);
    const double *a = mmap(NULL, CELLS * sizeof(double), PROT_READ, MAP_SHARED, file, 0);
    if (small == MAP_FAILED || a == MAP_FAILED || (const char *)a < small)
        return 1;
    for (long i = 0; i < MAPPINGS; i += 2)
        if (mprotect(small + i * PAGE, PAGE, PROT_NONE) != 0)
            return 2;
    for (int k = 0; k < 20; ++k) {
        if (sum(a, CELLS) != 0)
            return 3;
        usleep(50000); // the helper goes on
    }
    return 0;
}
