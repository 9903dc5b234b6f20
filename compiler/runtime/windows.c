/* Long pieces of files, as the kernel's own readahead reads them.
 *
 * WILLNEED fills the page cache a page at a time; the kernel's readahead, once it
 * sees a sequence, in folios of many pages: allocating, mapping, writing and
 * reclaiming them costs a fraction. It sees one where a read comes to the mark
 * that its last window left: a read of a byte there, told not to wait
 * (RWF_NOWAIT), starts the next window. So a stream that goes on where the last
 * prefetch ended is followed mark by mark, on a descriptor of its own, on which
 * the kernel keeps its place. Whatever is not as expected ends the sequence, and
 * the rest is asked for as ever.
 *
 * All of it runs in the helper. */
#define _GNU_SOURCE
#include "internal.h"

#include <string.h>
#include <sys/uio.h>

#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8
#endif
#ifndef SYS_cachestat
#define SYS_cachestat 451 /* Linux 6.5 */
#endif

enum {
    SEQUENCES_MAX = 16,
    FAILURES_MAX = 64, /* one after the other: not on this kernel or file system */
};
/* Fewer bytes are not followed: a window may be longer than what was wanted. */
static const uint64_t FOLLOWED_BYTES_MIN = 128 << 10;
/* A window shorter than this is no sequence to the kernel. */
static const uint64_t WINDOW_BYTES_MIN = 16 << 10;

static struct sequence {
    uint64_t inode;  /* of the file, 0: none */
    uint64_t next;   /* bytes of the file until here were asked for */
    uint64_t mark;   /* where a read starts the next window */
    uint64_t beyond; /* from here to `next` nothing was wanted yet */
    uint64_t used;   /* the last one to be used is the largest */
    int fd;          /* of the file; below 0: none yet */
    bool has_mark;   /* else the kernel has not seen it as a sequence yet */
    char path[PATH_BYTES];
} sequence[SEQUENCES_MAX];
static int sequences, failures;
static uint64_t uses;

bool look_at_cache(int fd, uint64_t offset, uint64_t bytes, struct cached *pages) {
    struct {
        uint64_t offset, bytes;
    } range = {offset, bytes};
    *pages = (struct cached){0};
    return syscall(SYS_cachestat, fd, &range, pages, 0) == 0;
}

uint64_t cached(int fd, uint64_t offset, uint64_t bytes) {
    struct cached pages;
    return look_at_cache(fd, offset, bytes, &pages) ? pages.all << PAGE_SHIFT : 0;
}

static bool is_open(struct sequence *s) {
    if (s->fd >= 0)
        return true;
    /* Reading must leave no trace, such as the time of the last access. */
    s->fd = open_same(s->path, s->inode, O_NOATIME);
    return s->fd >= 0;
}

/* Starts the next window; returns its bytes, 0 where there is none. */
static uint64_t next_window(struct sequence *s) {
    char byte;
    struct iovec one = {&byte, 1};
    const uint64_t before = own_reads();
    syscall(SYS_preadv2, s->fd, &one, 1, (long)s->mark, 0l, RWF_NOWAIT);
    count(&ra.count.calls, 1);
    const uint64_t got = own_reads() - before;
    count(&ra.count.issued, got >> PAGE_SHIFT);
    /* Where the memory is full, or something was there already, the kernel's
     * place is another one by now. */
    if (got < WINDOW_BYTES_MIN || cached(s->fd, s->next, got) != got)
        return 0;
    /* The first window has its mark on the last page, the others on the first. */
    s->mark = s->has_mark ? s->next : s->next + got - PAGE;
    s->has_mark = true;
    s->next += got;
    return got;
}

static bool is_of(const struct sequence *s, const char *path, uint64_t inode) {
    return s->inode == inode && strcmp(s->path, path) == 0;
}

static void leave(struct sequence *s) {
    if (s->fd >= 0)
        close(s->fd);
    *s = (struct sequence){.fd = -1};
}

void leave_file(const char *path, uint64_t inode) {
    for (int i = 0; i < sequences; ++i)
        if (is_of(&sequence[i], path, inode))
            leave(&sequence[i]);
}

/* The sequence that has ended there, in whose place another of its file may begin: pieces that
 * are asked for one by one leave the others theirs. NULL: none. */
static struct sequence *ended_at(const char *path, uint64_t inode, uint64_t offset) {
    for (int i = 0; i < sequences; ++i)
        if (sequence[i].next == offset && is_of(&sequence[i], path, inode))
            return &sequence[i];
    return NULL;
}

static struct sequence *oldest(void) {
    struct sequence *s = sequence;
    if (sequences < SEQUENCES_MAX) {
        s = &sequence[sequences++];
        s->fd = -1;
        return s;
    }
    for (int i = 1; i < sequences; ++i)
        if (sequence[i].used < s->used)
            s = &sequence[i];
    return s;
}

void may_go_on(const char *path, uint64_t inode, uint64_t from, uint64_t to) {
    if (failures >= FAILURES_MAX || strlen(path) >= PATH_BYTES)
        return;
    struct sequence *s = ended_at(path, inode, from);
    if (!s)
        s = oldest();
    if (!is_of(s, path, inode)) {
        leave(s);
        strcpy(s->path, path);
        s->inode = inode;
    }
    s->next = s->mark = s->beyond = to;
    s->has_mark = false;
    s->used = ++uses;
}

/* Nothing begins where it was. */
static void end_sequence(struct sequence *s) {
    s->beyond = ~(uint64_t)0;
    s->used = 0;
}

uint64_t follow(const char *path, uint64_t inode, uint64_t offset, uint64_t bytes) {
    struct sequence *s = sequence;
    const struct sequence *end = sequence + sequences;
    while (s < end && (offset < s->beyond || offset > s->next || !is_of(s, path, inode)))
        ++s;
    if (s == end || failures >= FAILURES_MAX)
        return 0;
    uint64_t asked = s->next - offset;
    if (asked == 0 && bytes < FOLLOWED_BYTES_MIN)
        return 0;
    s->used = ++uses;
    /* What was read beyond what was wanted, for another array perhaps, some time ago, may
     * have been thrown out since. */
    if (asked > 0 && (!is_open(s) || cached(s->fd, offset, asked) != asked)) {
        end_sequence(s);
        return 0;
    }
    bool goes_on = true;
    while (asked < bytes && goes_on) {
        const uint64_t got = is_open(s) ? next_window(s) : 0;
        goes_on = got > 0;
        failures = goes_on ? 0 : failures + 1;
        asked += got;
    }
    if (goes_on)
        s->beyond = offset + bytes;
    else
        end_sequence(s);
    return asked < bytes ? asked : bytes;
}
