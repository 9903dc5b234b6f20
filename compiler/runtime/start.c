/* The beginning and the end of the run-time layer: its memory, its parameters,
 * its counters. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Plans take a small part of the memory that they are to save. */
static const uint64_t PLAN_BYTES_MIN = 512 << 10, PLAN_BYTES_MAX = 16 << 20;

struct ra_state ra;

uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t storage_reads(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
    return (uint64_t)usage.ru_majflt + (uint64_t)usage.ru_inblock;
}

static uint64_t read_number(const char *path) {
    char text[64];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = 0;
    return strtoull(text, NULL, 10); /* "max" is 0: no limit */
}

/* Memory that the program may use: the least of its cgroup's limits (version 1
 * and 2) and three quarters of the machine's. */
static uint64_t memory_limit(void) {
    uint64_t limit = (uint64_t)sysconf(_SC_PHYS_PAGES) * PAGE / 4 * 3;
    FILE *groups = fopen("/proc/self/cgroup", "re");
    if (!groups)
        return limit;
    char line[512], path[1024];
    while (fgets(line, sizeof(line), groups)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        ++controllers;
        bool is_v2 = *controllers == 0;
        if (!is_v2 && strcmp(controllers, "memory") != 0)
            continue;
        for (;;) {
            snprintf(path, sizeof(path), is_v2 ? "/sys/fs/cgroup%s/memory.max"
                                               : "/sys/fs/cgroup/memory%s/memory.limit_in_bytes",
                     group);
            uint64_t own = read_number(path);
            if (own && own < limit)
                limit = own;
            char *parent = strrchr(group, '/');
            if (!parent || group[0] == 0)
                break;
            *parent = 0;
        }
    }
    fclose(groups);
    return limit;
}

static void *reserve(uint64_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    madvise(at, bytes, MADV_DONTDUMP);
    return at;
}

/* Without a helper, as in a child of fork, the program gets along without hints:
 * in nests that have begun, too. */
void do_without(void) {
    atomic_store(&ra.state, 2);
    atomic_store(&ra.active, 0);
}

static void write_statistics(void) {
    FILE *out = fopen(ra.stats, "we");
    if (!out)
        return;
    struct counters *c = &ra.count;
    fprintf(out,
            "{\"version\": 1, \"memory_bytes\": %lu, \"window_bytes\": %lu, \"begins\": %lu, "
            "\"ticks\": %lu, \"pages\": {\"hinted\": %lu, \"filtered\": %lu, \"queued\": %lu, "
            "\"lost\": %lu, \"issued\": %lu, \"refused\": %lu, \"resident\": %lu, \"released\": %lu}, "
            "\"disclosed\": %lu, \"consumed\": %lu, \"calls\": %lu, \"activations\": %lu, \"active_at_end\": %d}\n",
            ra.memory, ra.window, c->begins, c->ticks, c->hinted, c->filtered, c->queued, c->lost,
            c->issued, c->refused, c->resident, c->released, c->disclosed, c->consumed, c->calls, c->activations,
            atomic_load(&ra.active));
    fclose(out);
}

void start_up(void) {
    static _Atomic int begun;
    if (atomic_exchange(&begun, 1))
        return; /* another thread is at it */
    int saved = errno;
    const char *off = getenv("RUNAHEAD");
    if ((off && strcmp(off, "off") == 0) || sysconf(_SC_PAGESIZE) != (long)PAGE) {
        atomic_store(&ra.state, 2);
        return;
    }
    ra.bits = reserve(ADDRESSES >> PAGE_SHIFT >> 3);
    ra.recent = reserve(ADDRESSES >> PAGE_SHIFT >> 3);
    ra.ring = reserve(RING_ENTRIES * sizeof(struct entry));
    ra.plan_memory = reserve(PLAN_BYTES_MAX);
    if (!ra.bits || !ra.recent || !ra.plan_memory || !ra.ring) {
        atomic_store(&ra.state, 2);
        errno = saved;
        return;
    }
    for (uint64_t i = 0; i < RING_ENTRIES; ++i)
        atomic_store(&ra.ring[i].turn, i);
    ra.memory = memory_limit();
    const char *given = getenv("RUNAHEAD_CC_MEMORY");
    if (given && strtoull(given, NULL, 10) > 0)
        ra.memory = strtoull(given, NULL, 10);
    ra.window = ra.memory / 6;
    if (ra.window < (1 << 20))
        ra.window = 1 << 20;
    if (ra.window > (64 << 20))
        ra.window = 64 << 20;
    ra.plan_bytes = ra.memory / 32;
    if (ra.plan_bytes < PLAN_BYTES_MIN)
        ra.plan_bytes = PLAN_BYTES_MIN;
    if (ra.plan_bytes > PLAN_BYTES_MAX)
        ra.plan_bytes = PLAN_BYTES_MAX;
    ra.tick_bytes = ra.window / 64;
    if (ra.tick_bytes < (64 << 10))
        ra.tick_bytes = 64 << 10;
    const char *release = getenv("RUNAHEAD_CC_RELEASE");
    ra.release_allowed = !release || strcmp(release, "off") != 0;
    ra.manager = is_manager_there();
    pthread_atfork(NULL, NULL, do_without);
    ra.stats = getenv("RUNAHEAD_CC_STATS");
    if (ra.stats)
        atexit(write_statistics);
    atomic_store(&ra.active, 1);
    atomic_store_explicit(&ra.state, 1, memory_order_release);
    errno = saved;
}
