/* The beginning and the end of the run-time layer: its memory, its parameters,
 * its counters. */
#define _GNU_SOURCE
#include "internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <time.h>

/* Plans take a small part of the memory that they are to save. */
static const uint64_t PLAN_BYTES_MIN = 512 << 10, PLAN_BYTES_MAX = 16 << 20;
/* That may be said to be there: windows are no smaller. */
static const uint64_t MEMORY_BYTES_MIN = 1 << 20;

static const uint8_t yes = 1;
struct ra_state ra = {.is_original = &yes};
__thread bool ra_inside;

uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void nap(long ns) {
    const struct timespec wait = {.tv_nsec = ns};
    syscall(SYS_nanosleep, &wait, NULL);
}

uint64_t storage_reads(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
    return (uint64_t)usage.ru_majflt + (uint64_t)usage.ru_inblock;
}

uint64_t own_faults(void) {
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? (uint64_t)usage.ru_majflt : 0;
}

/* A file of the kernel's, as text; returns its length. Not with stdio, which allocates:
 * the program may be in a malloc of its own that was compiled with the pass. */
static size_t read_text(const char *path, char *text, size_t bytes) {
    size_t length = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        for (ssize_t got; length < bytes - 1 && (got = read(fd, text + length, bytes - 1 - length)) > 0;)
            length += (size_t)got;
        close(fd);
    }
    text[length] = 0;
    return length;
}

static uint64_t read_number(const char *path) {
    char text[64];
    const char *at = text;
    return read_text(path, text, sizeof(text)) ? number_at(&at, 10) : 0; /* "max" is 0: no limit */
}

enum { CGROUP_PATH_BYTES = 1024 };

/* The path of a file of a cgroup; false: it is too long. */
static bool path_in(const char *group, bool is_v2, const char *file, char *path) {
    return (size_t)snprintf(path, CGROUP_PATH_BYTES, "/sys/fs/cgroup%s%s/%s", is_v2 ? "" : "/memory",
                            group, file) < CGROUP_PATH_BYTES;
}

/* Would a page that is swapped out count as much as before, or may none be? Version 1 limits
 * memory and swap together: `limit` is that of memory alone. */
static bool forbids_swap(const char *group, bool is_v2, uint64_t limit) {
    static char path[CGROUP_PATH_BYTES]; /* the program's stack may be small */
    char text[64];
    const char *at = text;
    if (!path_in(group, is_v2, is_v2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes", path) ||
        !read_text(path, text, sizeof(text)))
        return false;
    return is_v2 ? text[0] == '0' : number_at(&at, 10) <= limit;
}

/* The least of `limit` and those of a cgroup, not of those above it. Beyond memory.high a
 * program is not stopped, but slowed down by reclaim as it is at memory.max. */
static uint64_t limit_of(const char *group, bool is_v2, uint64_t limit) {
    static const char *const v1[] = {"memory.limit_in_bytes", NULL};
    static const char *const v2[] = {"memory.max", "memory.high", NULL};
    static char path[CGROUP_PATH_BYTES];
    for (const char *const *file = is_v2 ? v2 : v1; *file; ++file) {
        const uint64_t own = path_in(group, is_v2, *file, path) ? read_number(path) : 0;
        if (own && own < limit)
            limit = own;
    }
    ra.is_swap_forbidden |= forbids_swap(group, is_v2, limit);
    return limit;
}

/* Memory that the program may use: the least of its cgroup's limits (version 1
 * and 2) and three quarters of the machine's. Notes whether one of them forbids swap. */
static uint64_t memory_limit(void) {
    struct sysinfo machine = {0};
    syscall(SYS_sysinfo, &machine);
    uint64_t limit = (uint64_t)machine.totalram * machine.mem_unit / 4 * 3;
    static char text[8192];
    read_text("/proc/self/cgroup", text, sizeof(text));
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
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
            limit = limit_of(group, is_v2, limit);
            char *parent = strrchr(group, '/');
            if (!parent || group[0] == 0)
                break;
            *parent = 0;
        }
    }
    return limit;
}

/* The bit vectors are much address space and little memory. Where the program may
 * have only so much of the former, it would lack it itself. */
static const char *why_not_reserve(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        return "the address space is limited (RLIMIT_AS)";
    if (getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        return "the data is limited (RLIMIT_DATA)";
    if (read_number("/proc/sys/vm/overcommit_memory") == 2)
        return "the machine overcommits no memory (vm.overcommit_memory is 2)";
    return NULL;
}

/* Neither writable nor locked at first: after mlockall(MCL_FUTURE) the kernel would
 * fill all of it here and now. */
static void *reserve(uint64_t bytes) {
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    if (munlock(at, bytes) != 0 || mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0) {
        munmap(at, bytes);
        return NULL;
    }
    madvise(at, bytes, MADV_DONTDUMP);
    /* Of the bits a page here and there is used: one of 2 MiB is for 64 GiB of addresses. */
    madvise(at, bytes, MADV_NOHUGEPAGE);
    return at;
}

/* All that is reserved, or nothing. */
static bool reserve_all(void) {
    enum { PIECES = 4 };
    const uint64_t bits = ADDRESSES >> PAGE_SHIFT >> 3;
    const uint64_t bytes[PIECES] = {bits, bits, RING_ENTRIES * sizeof(struct entry), PLAN_BYTES_MAX};
    void *at[PIECES];
    for (int i = 0; i < PIECES; ++i) {
        at[i] = reserve(bytes[i]);
        if (at[i])
            continue;
        while (i-- > 0)
            munmap(at[i], bytes[i]);
        return false;
    }
    ra.bits = at[0];
    ra.recent = at[1];
    ra.ring = at[2];
    ra.plan_memory = at[3];
    return true;
}

/* What tells a child from the program, Linux 4.14. */
static void mark_original(void) {
    uint8_t *page = reserve(PAGE);
    if (!page)
        return;
    if (madvise(page, PAGE, MADV_WIPEONFORK) != 0) {
        munmap(page, PAGE);
        return;
    }
    *page = 1;
    ra.is_original = page;
}

/* Without a helper, as in a child of fork, the program gets along without hints:
 * in nests that have begun, too. */
void do_without(void) {
    atomic_store(&ra.state, 2);
    atomic_store(&ra.active, 0);
}

const char *why_not_call(void) {
    const int saved = errno; /* a kernel that has no filters does not know the question */
    const bool is_none = prctl(PR_GET_SECCOMP) == 0;
    errno = saved;
    return is_none ? NULL : "system calls are filtered (seccomp)";
}

void do_without_since(const char *why) {
    ra.off = why;
    do_without();
}

static void write_statistics(void) {
    if (is_child())
        return; /* they are the program's, which may still run */
    FILE *out = fopen(ra.stats, "we");
    if (!out)
        return;
    struct counters *c = &ra.count;
    fprintf(out,
            "{\"version\": 1, \"memory_bytes\": %lu, \"window_bytes\": %lu, \"begins\": %lu, "
            "\"ticks\": %lu, \"pages\": {\"hinted\": %lu, \"filtered\": %lu, \"queued\": %lu, "
            "\"lost\": %lu, \"issued\": %lu, \"refused\": %lu, \"resident\": %lu, \"released\": %lu}, "
            "\"disclosed\": %lu, \"consumed\": %lu, \"calls\": %lu, \"activations\": %lu, \"active_at_end\": %d",
            ra.memory, ra.window, c->begins, c->ticks, c->hinted, c->filtered, c->queued, c->lost,
            c->issued, c->refused, c->resident, c->released, c->disclosed, c->consumed, c->calls, c->activations,
            atomic_load(&ra.active));
    if (ra.off)
        fprintf(out, ", \"off\": \"%s\"", ra.off);
    fprintf(out, "}\n");
    fclose(out);
}

/* So many bytes, perhaps with K, M or G behind the number; 0: they are none, or too many. */
static uint64_t bytes_of(const char *text) {
    static const char units[] = "KMG";
    const uint64_t number = number_at(&text, 10);
    const char *unit = *text ? strchr(units, *text) : NULL;
    const int shift = unit ? 10 * (int)(unit + 1 - units) : 0;
    return text[unit != NULL] == 0 && number <= ADDRESSES >> shift ? number << shift : 0;
}

/* The environment is obeyed where it is the user's own: a program with more rights
 * than whoever starts it must not load their library or write to their file. */
static bool prepare(void) {
    const char *off = secure_getenv("RUNAHEAD");
    if (off && strcmp(off, "off") == 0)
        return false;
    ra.stats = secure_getenv("RUNAHEAD_CC_STATS");
    if (ra.stats)
        atexit(write_statistics);
    const char *given = secure_getenv("RUNAHEAD_CC_MEMORY");
    ra.is_told = given && *given;
    const uint64_t told = ra.is_told ? bytes_of(given) : 0;
    ra.off = why_not_call();
    if (!ra.off && ra.is_told && told < MEMORY_BYTES_MIN)
        ra.off = "RUNAHEAD_CC_MEMORY is no number of bytes, K, M or G, from 1M on";
    if (!ra.off)
        ra.off = why_not_reserve();
    if (!ra.off && !reserve_all())
        ra.off = "no address space was to be had";
    if (ra.off)
        return false;
    ra.memory = memory_limit();
    if (ra.is_told)
        ra.memory = told;
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
    const char *release = secure_getenv("RUNAHEAD_CC_RELEASE");
    ra.release_allowed = !release || strcmp(release, "off") != 0;
    ra.manager = is_manager_there();
    ra.reads_at_start = storage_reads();
    mark_original();
    pthread_atfork(NULL, NULL, do_without);
    return true;
}

void start_up(void) {
    static _Atomic int begun;
    if (atomic_exchange(&begun, 1))
        return; /* another thread is at it */
    /* The program's loop is no place where its thread may be cancelled. */
    int saved = errno, cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    const bool is_ready = prepare();
    pthread_setcancelstate(cancel, NULL);
    if (is_ready)
        atomic_store(&ra.active, 1);
    atomic_store_explicit(&ra.state, is_ready ? 1 : 2, memory_order_release);
    errno = saved;
}
