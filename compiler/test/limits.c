/* How much memory the layer reckons with: what it is told, or the least of what the
 * program's cgroups may have. How it reserves its own, and asks about filters of system
 * calls, on little stack. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int pretend_open(const char *path, int flags);
#define open pretend_open
#define prctl pretend_prctl
#include "../runtime/start.c"
#undef open
#undef prctl

#include "check.h"

bool is_manager_there(void) { return false; }

/* What the kernel's files hold. */
static const char *const *files;

static int pretend_open(const char *path, int flags) {
    (void)flags;
    for (const char *const *file = files; *file; file += 2)
        if (strcmp(path, file[0]) == 0) {
            int ends[2];
            CHECK(pipe(ends) == 0);
            CHECK(write(ends[1], file[1], strlen(file[1])) == (ssize_t)strlen(file[1]));
            close(ends[1]);
            return ends[0];
        }
    return -1;
}

static uint64_t limit_by(const char *const *kernels) {
    files = kernels;
    return memory_limit();
}

static bool is_unknown; /* the kernel knows nothing of filters */

int pretend_prctl(int option, ...) {
    CHECK(option == PR_GET_SECCOMP);
    if (!is_unknown)
        return 0;
    errno = EINVAL;
    return -1;
}

/* The program's loop does not change its errno. */
static void filters(void) {
    errno = EDOM;
    CHECK(!why_not_call() && errno == EDOM);
    is_unknown = true;
    CHECK(why_not_call() && errno == EDOM);
}

/* What is said of the memory is a number of bytes, or there are no hints. */
static void told(void) {
    static const struct {
        const char *text;
        uint64_t bytes;
    } texts[] = {{"6000000", 6000000}, {"1024K", 1 << 20}, {"64M", 64 << 20}, {"3G", (uint64_t)3 << 30},
                 {"M", 0}, {"64m", 0}, {"64MB", 0}, {"64 M", 0}, {"-1", 0}, {"1e9", 0}, {"1023K", 0},
                 {"0", 0}, {"200000G", 0}, {"18446744073709551617", 0}};
    files = (const char *const[]){NULL};
    for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); ++k) {
        ra.memory = 0;
        setenv("RUNAHEAD_CC_MEMORY", texts[k].text, 1);
        const bool is_ready = prepare();
        CHECK(is_ready == (texts[k].bytes > 0) && ra.memory == texts[k].bytes);
        CHECK(is_ready || strstr(ra.off, "RUNAHEAD_CC_MEMORY"));
    }
    setenv("RUNAHEAD_CC_MEMORY", "", 1);
    CHECK(prepare() && !ra.is_told && ra.memory == memory_limit());
}

/* Is what is reserved kept in small pages? */
static void small_pages(void) {
    char line[256], begin[32], flags[256] = "";
    bool is_here = false;
    void *at = reserve(1 << 30);
    CHECK(at);
    snprintf(begin, sizeof(begin), "%lx-", (unsigned long)(uintptr_t)at);
    FILE *maps = fopen("/proc/self/smaps", "re");
    CHECK(maps);
    while (fgets(line, sizeof(line), maps)) {
        is_here |= strncmp(line, begin, strlen(begin)) == 0;
        if (is_here && sscanf(line, "VmFlags: %255[^\n]", flags) == 1)
            break;
    }
    fclose(maps);
    CHECK(strstr(flags, " dd") && (strstr(flags, " nh") ||
                                   access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0));
    munmap(at, 1 << 30);
}

/* Private memory is not paged out where that would give back nothing. */
static void swap(void) {
    static const char *const v1 = "4:memory:/a/b\n", *const v2 = "0::/a/b\n";
    const struct {
        const char *groups, *file, *text;
        bool is_forbidden;
    } kernels[] = {
        {v2, "/sys/fs/cgroup/a/b/memory.swap.max", "max\n", false},
        {v2, "/sys/fs/cgroup/a/b/memory.swap.max", "4096\n", false},
        {v2, "/sys/fs/cgroup/a/b/memory.swap.max", "0\n", true},
        {v2, "/sys/fs/cgroup/a/memory.swap.max", "0\n", true},
        {v1, "/sys/fs/cgroup/memory/a/b/memory.memsw.limit_in_bytes", "9223372036854771712\n", false},
        {v1, "/sys/fs/cgroup/memory/a/b/memory.memsw.limit_in_bytes", "8000001\n", false},
        {v1, "/sys/fs/cgroup/memory/a/b/memory.memsw.limit_in_bytes", "8000000\n", true},
        {v1, "/sys/fs/cgroup/memory/a/memory.memsw.limit_in_bytes", "8000000\n", true},
    };
    for (size_t k = 0; k < sizeof(kernels) / sizeof(kernels[0]); ++k) {
        ra.is_swap_forbidden = false;
        CHECK(limit_by((const char *const[]){"/proc/self/cgroup", kernels[k].groups,
                                             "/sys/fs/cgroup/a/b/memory.max", "8000000\n",
                                             "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "8000000\n",
                                             kernels[k].file, kernels[k].text, NULL}) == 8000000);
        CHECK(ra.is_swap_forbidden == kernels[k].is_forbidden);
    }
}

static void *only_begins(void *nothing) { return nothing; }

static void *looks_for_limits(void *nothing) {
    limit_by((const char *const[]){"/proc/self/cgroup", "0::/a/b\n",
                                   "/sys/fs/cgroup/a/b/memory.max", "8000000\n",
                                   "/sys/fs/cgroup/a/b/memory.swap.max", "0\n", NULL});
    return nothing;
}

/* Bytes of its stack that a thread has written to. */
static size_t stack_of(void *(*body)(void *)) {
    enum { BYTES = 256 << 10, UNTOUCHED = 0xa5 };
    pthread_attr_t attributes;
    pthread_t thread;
    uint8_t *stack = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED && pthread_attr_init(&attributes) == 0);
    memset(stack, UNTOUCHED, BYTES);
    CHECK(pthread_attr_setstack(&attributes, stack, BYTES) == 0);
    CHECK(pthread_create(&thread, &attributes, body, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    size_t untouched = 0;
    while (untouched < BYTES && stack[untouched] == UNTOUCHED)
        ++untouched;
    munmap(stack, BYTES);
    return BYTES - untouched;
}

/* The program's first loop may be in a thread that has little stack. */
static void little_stack(void) {
    looks_for_limits(NULL); /* names of the C library are bound, on as much stack as that takes */
    CHECK(stack_of(looks_for_limits) <= stack_of(only_begins) + 3072);
}

int main(void) {
    small_pages();
    told();
    filters();
    const uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * PAGE / 4 * 3;
    CHECK(limit_by((const char *const[]){NULL}) == machine);
    CHECK(limit_by((const char *const[]){"/proc/self/cgroup", "0::/a/b\n",
                                         "/sys/fs/cgroup/a/b/memory.max", "max\n",
                                         "/sys/fs/cgroup/a/b/memory.high", "max\n", NULL}) == machine);
    CHECK(limit_by((const char *const[]){"/proc/self/cgroup", "0::/a/b\n",
                                         "/sys/fs/cgroup/a/b/memory.max", "8000000\n", NULL}) == 8000000);
    CHECK(limit_by((const char *const[]){"/proc/self/cgroup", "0::/a/b\n",
                                         "/sys/fs/cgroup/a/b/memory.max", "8000000\n",
                                         "/sys/fs/cgroup/a/b/memory.high", "7000000\n", NULL}) == 7000000);
    /* Those of the groups above it, too. */
    CHECK(limit_by((const char *const[]){"/proc/self/cgroup", "1:cpu:/c\n0::/a/b\n",
                                         "/sys/fs/cgroup/a/b/memory.max", "8000000\n",
                                         "/sys/fs/cgroup/a/b/memory.high", "max\n",
                                         "/sys/fs/cgroup/a/memory.max", "max\n",
                                         "/sys/fs/cgroup/a/memory.high", "6000000\n", NULL}) == 6000000);
    CHECK(limit_by((const char *const[]){"/proc/self/cgroup", "4:memory:/a/b\n0::/\n",
                                         "/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000000\n",
                                         "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
                                         "9223372036854771712\n", NULL}) == 5000000);
    swap();
    little_stack();
    puts("the least limit of the cgroups holds, or what the memory is said to be");
    return 0;
}
