/* When the layer takes the program for ended: only where each other thread is one of a
 * layer. One that cannot be looked at may still run, and one that has just ended may have
 * left another. And how the layer's own threads begin. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int pretend_openat(int directory, const char *path, int flags);
static ssize_t pretend_read(int fd, void *text, size_t bytes);
static long pretend_getdents(int directory, void *listed, size_t bytes);
static long pretend_syscall(long number, ...);
#define syscall pretend_syscall
#define openat pretend_openat
#define read pretend_read
#define getdents64 pretend_getdents
#include "../runtime/threads.c"
#undef syscall
#undef openat
#undef read
#undef getdents64

#include "check.h"

struct ra_state ra;
__thread bool ra_inside;
bool is_library_thread(const char *name) { return strcmp(name, "library") == 0; }
const char *why_not_call(void) { return NULL; }
void do_without_since(const char *why) { (void)why; }
void *helper(void *nothing) { return nothing; }

/* The one other thread: its name, or why it cannot be looked at. */
static const char *other;
static int open_fails, read_fails, listing_fails;
static bool is_read;

static int pretend_openat(int directory, const char *path, int flags) {
    if (strcmp(path, "task/1000000000/comm") != 0)
        return openat(directory, path, flags);
    errno = open_fails;
    return open_fails ? -1 : 1000;
}

static ssize_t pretend_read(int fd, void *text, size_t bytes) {
    CHECK(fd == 1000);
    errno = read_fails;
    return read_fails ? -1 : snprintf(text, bytes, "%s\n", other);
}

static long pretend_getdents(int directory, void *listed, size_t bytes) {
    struct dirent *task = listed;
    CHECK(directory > 0 && bytes >= sizeof(*task));
    if (!is_read) {
        is_read = true;
        *task = (struct dirent){.d_reclen = sizeof(*task), .d_name = "1000000000"};
        return task->d_reclen;
    }
    errno = listing_fails;
    return listing_fails ? -1 : 0;
}

/* How the thread runs that begins, and how often it has been told to run otherwise. */
static long policy;
static int bound, lowered;

static long pretend_syscall(long number, ...) {
    enum { BYTES = 16, GIVEN = 5 }; /* the program has processors 0 and 2 */
    va_list arguments;
    if (number == SYS_gettid)
        return gettid();
    if (number == SYS_sched_getscheduler)
        return policy;
    va_start(arguments, number);
    CHECK(va_arg(arguments, int) == 0);
    if (number == SYS_sched_setscheduler) {
        CHECK(va_arg(arguments, int) == SCHED_OTHER);
        CHECK(va_arg(arguments, struct sched_param *)->sched_priority == 0);
        ++lowered;
        va_end(arguments);
        return 0;
    }
    const size_t bytes = va_arg(arguments, size_t);
    unsigned long *mask = va_arg(arguments, unsigned long *);
    va_end(arguments);
    if (number == SYS_sched_getaffinity) {
        CHECK(bytes >= BYTES);
        mask[0] = GIVEN;
        return BYTES;
    }
    CHECK(number == SYS_sched_setaffinity && bytes == BYTES && mask[0] == GIVEN && mask[1] == 0);
    ++bound;
    return 0;
}

/* On the processors that the program had at its beginning, and as an ordinary thread. */
static void begins(void) {
    static const int policies[] = {SCHED_OTHER, SCHED_BATCH, SCHED_FIFO, SCHED_RR};
    for (int k = 0; k < 4; ++k) {
        policy = policies[k];
        ra_inside = false;
        begin_thread("begins");
        CHECK(ra_inside);
        CHECK(bound == k + 1 && lowered == (k < 2 ? 0 : k - 1));
    }
}

static bool is_ours(void) {
    is_read = false;
    return is_the_rest_ours();
}

/* What the program does at its end is not the layer's, whatever thread it ends in. */
static void at_end(void) {
    CHECK(!ra_inside);
    puts("a thread that cannot be looked at may still run");
    fflush(stdout);
}

int main(void) {
    begins();
    CHECK(!is_ours()); /* nothing can be seen */
    CHECK(can_see_end());
    static const struct {
        const char *name;
        bool is_ours;
    } names[] = {{HELPER_NAME, true}, {OTHER_NAME, true}, {"library", true}, {"worker", false}};
    for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); ++k) {
        other = names[k].name;
        CHECK(is_ours() == names[k].is_ours);
    }
    other = OTHER_NAME;
    static const int failures[] = {ENOENT, ESRCH, EMFILE, ENFILE, ENOMEM, EACCES, EIO};
    for (size_t k = 0; k < sizeof(failures) / sizeof(failures[0]); ++k) {
        open_fails = failures[k];
        CHECK(!is_ours());
        open_fails = 0, read_fails = failures[k];
        CHECK(!is_ours());
        read_fails = 0;
    }
    CHECK(is_ours());
    listing_fails = ENOMEM;
    CHECK(!is_ours());
    CHECK(atexit(at_end) == 0);
    atomic_store(&ending, ENDS_PROGRAM);
    ender(NULL);
    return 1; /* it has not ended */
}
