/* What the kernels share: arrays in one mapped file, as in the paper (section
 * 3.2: "a mapped file I/O interface: the data accesses have not been modified
 * but the data now comes from disk").
 *
 *   KERNEL init FILE SIZE    makes the data
 *   KERNEL run FILE SIZE     computes on it; results stay in the file */
#ifndef KERNEL_H
#define KERNEL_H

#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char *kernel_memory;
static size_t kernel_used, kernel_size;

static void kernel_fail(const char *what) {
    perror(what);
    exit(2);
}

/* Maps the file, made as long as it must be. */
static void kernel_map(const char *path, size_t bytes) {
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    if (fd < 0 || (lseek(fd, 0, SEEK_END) < (off_t)bytes && ftruncate(fd, (off_t)bytes) != 0))
        kernel_fail(path);
    kernel_memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (kernel_memory == MAP_FAILED)
        kernel_fail("mmap");
    kernel_size = bytes;
    close(fd);
}

/* The next array of the file, at a page. */
static void *kernel_array(size_t bytes) {
    void *at = kernel_memory + kernel_used;
    kernel_used += (bytes + 4095) & ~(size_t)4095;
    if (kernel_used > kernel_size) {
        fprintf(stderr, "the file is too short\n");
        exit(2);
    }
    return at;
}

/* The generator of the NAS benchmarks: x = a x mod 2^46. Returns x / 2^46. */
static inline double kernel_random(uint64_t *x, uint64_t a) {
    *x = (uint64_t)((unsigned __int128)a * *x) & (((uint64_t)1 << 46) - 1);
    return (double)*x * 0x1p-46;
}
#define KERNEL_A 1220703125u  /* 5^13 */
#define KERNEL_SEED 314159265u

/* What each kernel defines. */
static size_t kernel_bytes(long size);
static void kernel_init(long size);
static void kernel_run(long size);

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s init|run FILE SIZE\n", argv[0]);
        return 2;
    }
    long size = atol(argv[3]);
    kernel_map(argv[2], kernel_bytes(size));
    if (strcmp(argv[1], "init") == 0)
        kernel_init(size);
    else
        kernel_run(size);
    return 0;
}

#endif
