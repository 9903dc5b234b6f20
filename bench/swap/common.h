/* What the out-of-core programs share: memory, a clock, and the report. */
#ifndef COMMON_H
#define COMMON_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Arguments: megabytes of data, the file that the time of the computation goes
 * to (filling the memory is not part of it), and what the program wants. */
static double begun_s;
static const char *report;

static double clock_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static size_t begin(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s MEGABYTES REPORT\n", argv[0]);
        exit(2);
    }
    report = argv[2];
    return (size_t)(atof(argv[1]) * 1e6);
}

static void *memory(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    /* The paper's machine had 4 KiB pages only. */
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    return memory;
}

static void start(void) { begun_s = clock_s(); }

/* Says how long the computation took and prints its result, the same in every
 * run. */
static int finish(double checksum) {
    double took_s = clock_s() - begun_s;
    FILE *file = fopen(report, "w");
    if (!file || fprintf(file, "%.6f\n", took_s) < 0 || fclose(file) != 0) {
        perror(report);
        return 2;
    }
    printf("%.17g\n", checksum);
    return 0;
}

static uint64_t random_state = 88172645463325252u;

/* xorshift64 (Marsaglia 2003). */
static inline uint64_t random_number(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

#endif
