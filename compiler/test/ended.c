/* When the layer takes the program for ended: only where each other thread is one of a
 * layer. One that cannot be looked at may still run, and one that has just ended may have
 * left another. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int pretend_openat(int directory, const char *path, int flags);
static ssize_t pretend_read(int fd, void *text, size_t bytes);
static long pretend_getdents(int directory, void *listed, size_t bytes);
#define openat pretend_openat
#define read pretend_read
#define getdents64 pretend_getdents
#include "../runtime/threads.c"
#undef openat
#undef read
#undef getdents64

#include "check.h"

struct ra_state ra;
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

static bool is_ours(void) {
    is_read = false;
    return is_the_rest_ours();
}

int main(void) {
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
    puts("a thread that cannot be looked at may still run");
    return 0;
}
