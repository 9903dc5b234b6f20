/* Through the manager of the machine.
 *
 * Where there is one (docs/hints.md), what is missing of mapped files is not
 * asked of the kernel but disclosed, so that it decides between this program and
 * the others. The library that does so is loaded then and not otherwise; where
 * it is absent, or the manager ends, the kernel is asked as ever.
 *
 * It prefetches a bounded number of accesses ahead and so must be told how far
 * the program is. Its loops hint the window ahead of where they are, pages
 * believed in memory as well: what was disclosed a window of hints ago has been
 * used, and everything where no hint came for a while.
 *
 * All of it runs in the helper, but for is_manager_there. */
#define _GNU_SOURCE
#include "internal.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Absent where the C library is linked statically, or has them in a library of
 * its own that the program does not use. */
#pragma weak dlopen
#pragma weak dlsym

enum {
    DISCLOSED_MAX = 4096, /* ranges */
    FILES_MAX = 64,       /* of them */
};
/* Without a hint for so long, the program has used everything. */
static const uint64_t IDLE_NS = 200 * 1000000ull;

struct segment { /* struct runahead_segment of runahead.h */
    uint64_t offset, length;
};

struct disclosed {
    int fd; /* below 0: used, its file is closed */
    uint32_t front; /* pages hinted until then */
    uint64_t offset, bytes;
};

static struct {
    int (*hint_path)(const char *, const struct segment *, size_t);
    int (*available)(void);
    void (*consumed)(int, uint64_t, uint64_t);
    /* Ranges that the program has not used yet. */
    struct disclosed ahead[DISCLOSED_MAX];
    uint64_t first, end;
    uint32_t front; /* when last looked at, and since when */
    uint64_t front_ns;
    struct {
        uint64_t inode;
        int fd; /* below 0: it cannot be opened by its path */
        char path[PATH_BYTES];
    } file[FILES_MAX];
    int files;
} m;

bool is_manager_there(void) {
    const char *given = secure_getenv("RUNAHEAD_MANAGER");
    const char *of_user = secure_getenv("XDG_RUNTIME_DIR");
    char path[512];
    if (given)
        return *given && strcmp(given, "embedded") != 0 && access(given, F_OK) == 0;
    if (of_user &&
        (size_t)snprintf(path, sizeof(path), "%s/runahead/manager.sock", of_user) < sizeof(path) &&
        access(path, F_OK) == 0)
        return true;
    return access("/run/runahead/manager.sock", F_OK) == 0;
}

void load_library(void) {
    if (!ra.manager || !dlopen || !dlsym)
        return;
    const char *path = secure_getenv("RUNAHEAD_HINT_LIBRARY");
    void *library = dlopen(path && *path ? path : "librunahead_hint.so", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
    *(void **)&m.hint_path = dlsym(library, "runahead_hint_path");
    *(void **)&m.available = dlsym(library, "runahead_hint_available");
    *(void **)&m.consumed = dlsym(library, "runahead_hint_consumed");
}

/* A descriptor of a mapped file, opened by the path that the library will open
 * it by; below 0 where that is another file by now, or none. */
static int file_of(const char *path, uint64_t inode) {
    for (int i = 0; i < m.files; ++i)
        if (m.file[i].inode == inode && strcmp(m.file[i].path, path) == 0)
            return m.file[i].fd;
    if (m.files == FILES_MAX || path[0] != '/' || strlen(path) >= PATH_BYTES)
        return -1;
    const int fd = open_same(path, inode, 0);
    m.file[m.files].inode = inode;
    m.file[m.files].fd = fd;
    strcpy(m.file[m.files].path, path);
    ++m.files;
    return fd;
}

/* Says that the program has used what was disclosed longest ago, all but `kept`
 * ranges. */
static void consume(uint64_t kept) {
    for (; m.end - m.first > kept; ++m.first) {
        struct disclosed *d = &m.ahead[m.first % DISCLOSED_MAX];
        if (d->fd < 0)
            continue;
        m.consumed(d->fd, d->offset, d->bytes);
        count(&ra.count.consumed, d->bytes >> PAGE_SHIFT);
    }
}

void leave_disclosed(const char *path, uint64_t inode) {
    int i = 0;
    while (i < m.files && (m.file[i].inode != inode || strcmp(m.file[i].path, path) != 0))
        ++i;
    if (i == m.files)
        return;
    const int fd = m.file[i].fd;
    m.file[i] = m.file[--m.files];
    if (fd < 0)
        return;
    for (uint64_t at = m.first; at < m.end; ++at) {
        struct disclosed *d = &m.ahead[at % DISCLOSED_MAX];
        if (d->fd != fd)
            continue;
        m.consumed(fd, d->offset, d->bytes);
        count(&ra.count.consumed, d->bytes >> PAGE_SHIFT);
        d->fd = -1;
    }
    close(fd);
}

bool holds_disclosed(void) {
    return m.files > 0;
}

void consume_behind(void) {
    uint64_t kept = m.end - m.first;
    if (!kept)
        return;
    uint32_t front = (uint32_t)atomic_load_explicit(&ra.count.hinted, memory_order_relaxed);
    uint64_t now = now_ns();
    if (front != m.front) {
        m.front = front;
        m.front_ns = now;
    } else if (now - m.front_ns > IDLE_NS) {
        kept = 0;
    }
    while (kept && front - m.ahead[(m.end - kept) % DISCLOSED_MAX].front > ra.window >> PAGE_SHIFT)
        --kept;
    consume(kept);
}

bool disclose(const char *path, uint64_t inode, uint64_t offset, uint64_t bytes, uint32_t front) {
    if (!m.hint_path || !m.available || !m.consumed || !m.available())
        return false;
    int fd = file_of(path, inode);
    struct segment segment = {.offset = offset, .length = bytes};
    if (fd < 0 || m.hint_path(path, &segment, 1) != 0)
        return false;
    consume(DISCLOSED_MAX - 1);
    m.ahead[m.end++ % DISCLOSED_MAX] = (struct disclosed){fd, front, offset, bytes};
    count(&ra.count.disclosed, bytes >> PAGE_SHIFT);
    return true;
}

bool is_library_thread(const char *name) {
    return m.hint_path && strcmp(name, "runahead") == 0;
}
