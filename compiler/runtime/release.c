/* Releases have a thread of their own: writing what is dirty takes as long as
 * the disks take, and prefetches must not wait for it. */
#define _GNU_SOURCE
#include "internal.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

enum { RELEASES_MAX = 1024 };
/* Dirty pages are written this much at a time (half a window, where that is
 * less), or after this long. */
static const uint64_t WRITE_BYTES_MAX = 4 << 20;
static const uint64_t WRITE_WAIT_NS = 300 * 1000000ull;

/* From the helper to its releaser. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct release queue[RELEASES_MAX];
    uint32_t head, tail;
    int busy; /* file being written */
} w = {.busy = -1, .lock = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER};

/* Closes a file as soon as nothing in the queue is about it. */
void retire_file(int fd) {
    pthread_mutex_lock(&w.lock);
    bool is_used = w.busy == fd;
    for (uint32_t at = w.tail; at != w.head; ++at)
        is_used |= w.queue[at % RELEASES_MAX].fd == fd;
    pthread_mutex_unlock(&w.lock);
    if (!is_used)
        close(fd); /* else it stays open until the program ends */
}

void queue_release(const struct release *one) {
    pthread_mutex_lock(&w.lock);
    if (w.head - w.tail < RELEASES_MAX)
        w.queue[w.head++ % RELEASES_MAX] = *one;
    pthread_cond_signal(&w.filled);
    pthread_mutex_unlock(&w.lock);
}

static void give_back(uint64_t address, uint64_t bytes) {
    /* Where the kernel does not know PAGEOUT nothing happens. Never DONTNEED:
     * on private memory it would destroy the data. */
    if (madvise((void *)(uintptr_t)address, bytes, MADV_PAGEOUT) == 0)
        count(&ra.count.released, bytes >> PAGE_SHIFT);
    count(&ra.count.calls, 1);
}

/* Reclaim leaves dirty file pages alone, so they are written first, in pieces
 * large enough for an array of disks. */
void *releaser(void *nothing) {
    (void)nothing;
    pthread_mutex_lock(&w.lock);
    for (;;) {
        while (w.head == w.tail)
            pthread_cond_wait(&w.filled, &w.lock);
        /* Neighbours are one piece. */
        struct release one = w.queue[w.tail % RELEASES_MAX];
        uint32_t next = w.tail + 1;
        while (next != w.head && w.queue[next % RELEASES_MAX].fd == one.fd) {
            const struct release *more = &w.queue[next % RELEASES_MAX];
            if (more->address == one.address + one.bytes) {
                one.bytes += more->bytes;
            } else if (more->address + more->bytes == one.address) {
                one.address = more->address;
                one.offset = more->offset;
                one.bytes += more->bytes;
            } else {
                break;
            }
            ++next;
        }
        uint64_t enough = ra.window / 2 < WRITE_BYTES_MAX ? ra.window / 2 : WRITE_BYTES_MAX;
        if (one.fd >= 0 && one.bytes < enough && next == w.head && now_ns() - one.ns < WRITE_WAIT_NS) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += 50000000;
            if (until.tv_nsec >= 1000000000)
                until.tv_sec++, until.tv_nsec -= 1000000000;
            pthread_cond_timedwait(&w.filled, &w.lock, &until);
            continue;
        }
        w.tail = next;
        w.busy = one.fd;
        pthread_mutex_unlock(&w.lock);
        if (one.fd >= 0)
            sync_file_range(one.fd, (off_t)one.offset, (off_t)one.bytes,
                            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                SYNC_FILE_RANGE_WAIT_AFTER);
        give_back(one.address, one.bytes);
        pthread_mutex_lock(&w.lock);
        w.busy = -1;
    }
    return NULL;
}
