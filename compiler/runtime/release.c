/* Releases have a thread of their own: writing what is dirty takes as long as
 * the disks take, and prefetches must not wait for it. */
#define _GNU_SOURCE
#include "internal.h"

#include <pthread.h>
#include <time.h>

enum { RELEASES_MAX = 1024, PIECES_MAX = 64 };
/* After this long dirty pages are written, however few they are. */
static const uint64_t WRITE_WAIT_NS = 300 * 1000000ull;
/* So much is given back at a time, and what is written of it waited for, as soon as so much
 * more is on its way. */
static const uint64_t PART_BYTES = 1 << 20, UNDER_WAY_BYTES = 4 << 20;
/* The least that the kernel's readahead makes folios of many pages of (page_cache_ra_order,
 * mm/readahead.c, Linux 6.18). */
static const uint64_t FOLIO_BYTES = 16 << 10;
/* Between two looks at whether it is written, and how many at most: six seconds at least. */
static const long WRITTEN_NAP_NS = 300 * 1000;
enum { WRITTEN_NAPS_MAX = 20000 };

/* From the helper to its releaser. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct release queue[RELEASES_MAX];
    uint32_t head, tail;
    /* What was taken out of it last, neighbours as one piece. */
    struct release piece[PIECES_MAX];
    uint32_t pieces;
    /* Files of pieces, to be closed when these are done. */
    int retired[PIECES_MAX];
    uint32_t retireds;
} w = {.lock = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER};

/* With each file that is to be closed there is a piece of its own at least. */
static void close_with_pieces(int fd) {
    w.retired[w.retireds++] = fd;
}

void retire_file(int fd) {
    pthread_mutex_lock(&w.lock);
    struct release *last = NULL;
    for (uint32_t at = w.tail; at != w.head; ++at)
        if (w.queue[at % RELEASES_MAX].fd == fd)
            last = &w.queue[at % RELEASES_MAX];
    bool is_piece = false;
    for (uint32_t i = 0; i < w.pieces; ++i)
        is_piece |= w.piece[i].fd == fd;
    if (last)
        last->is_last = true;
    else if (is_piece)
        close_with_pieces(fd);
    else
        close(fd);
    pthread_mutex_unlock(&w.lock);
}

void queue_release(const struct release *one) {
    pthread_mutex_lock(&w.lock);
    if (w.head - w.tail < RELEASES_MAX)
        w.queue[w.head++ % RELEASES_MAX] = *one;
    else
        take_off_behind(one->owed);
    pthread_cond_signal(&w.filled);
    pthread_mutex_unlock(&w.lock);
}

/* Takes pages from the program, and out of memory those that are clean: what is dirty is
 * the first that reclaim comes to once it is written. Where the kernel does not know
 * PAGEOUT nothing happens. Never DONTNEED: on private memory it would destroy the data. In
 * parts: during each the program can neither map nor unmap anything. */
static bool page_out(const struct release *one) {
    bool is_out = true;
    for (uint64_t done = 0, n; done < one->bytes; done += n) {
        n = one->bytes - done < PART_BYTES ? one->bytes - done : PART_BYTES;
        count(&ra.count.calls, 1);
        is_out &= madvise((void *)(uintptr_t)(one->address + done), n, MADV_PAGEOUT) == 0;
    }
    return is_out;
}

/* What was dirty is paged out and written by now. Where it may stay until its memory is
 * wanted it is "on the free list" (section 4.1), from which a prefetch takes it back
 * without reading it: the last to be given back goes first, so that a nest which goes over
 * more than the memory finds what it began with when it begins again. Else it is dropped,
 * and with it what the kernel read around a fault; of files this drops clean pages only,
 * which the program has not come back to. */
static void give_back(const struct release *one) {
    bool is_given = true;
    if (one->fd < 0)
        is_given = page_out(one);
    else if (!one->is_lazy)
        is_given = posix_fadvise(one->fd, (off_t)one->offset, (off_t)one->bytes,
                                 POSIX_FADV_DONTNEED) == 0;
    if (is_given)
        count(&ra.count.released, one->bytes >> PAGE_SHIFT);
    settle_behind(one->owed);
}

/* Makes single pages of large folios, for a walk across rows is going to write pieces of them
 * and come back to their neighbours: each time all of a folio would be dirty, and written
 * again and again once reclaim has woken the kernel's flusher, for whose locks on it the
 * program would wait. Advice on one page of a folio that is mapped splits it, if it is clean
 * (madvise_cold_or_pageout_pte_range, mm/madvise.c, Linux 6.18); one page of each window of
 * fault-around is touched to map them. What is not in memory is left alone. */
static void split(const struct release *part) {
    uint8_t there[PART_BYTES >> PAGE_SHIFT];
    if (mincore((void *)(uintptr_t)part->address, part->bytes, there) != 0)
        return;
    uint64_t mapped = ~(uint64_t)0;
    for (uint64_t done = 0; done < part->bytes; done += PAGE) {
        const uint64_t at = part->address + done;
        if (!(there[done >> PAGE_SHIFT] & 1))
            continue;
        if (at / FAULT_AROUND_BYTES != mapped)
            madvise((void *)(uintptr_t)at, PAGE, MADV_POPULATE_READ);
        mapped = at / FAULT_AROUND_BYTES;
        if (at % FOLIO_BYTES == 0)
            madvise((void *)(uintptr_t)at, PAGE, MADV_COLD);
    }
}

/* Should what is in the queue wait for more of it? Larger pieces suit the disks. What is
 * clean waits for nothing, nor does what is dirty beside it: a nest that also reads other
 * arrays needs the memory. */
static bool is_early(void) {
    uint64_t dirty = 0;
    for (uint32_t at = w.tail; at != w.head; ++at) {
        const struct release *one = &w.queue[at % RELEASES_MAX];
        if (one->fd < 0 || one->is_kept)
            return false;
        dirty += one->bytes;
    }
    return dirty < written_together() && !atomic_load(&ra.catching_up) &&
           now_ns() < w.queue[w.tail % RELEASES_MAX].ns + WRITE_WAIT_NS;
}

/* Makes it part of a piece, its neighbour, or one of its own; false: there is no room. The
 * streams of a nest alternate in the queue: neighbours are found across them. */
static bool add_to_pieces(const struct release *one) {
    for (uint32_t i = 0; i < w.pieces; ++i) {
        struct release *piece = &w.piece[i];
        /* What the program waits for is not kept up by what it does not. */
        if (piece->fd != one->fd || piece->is_lazy != one->is_lazy ||
            piece->is_kept != one->is_kept || !piece->owed != !one->owed)
            continue;
        if (one->address + one->bytes == piece->address) {
            piece->address = one->address;
            piece->offset = one->offset;
        } else if (piece->address + piece->bytes != one->address) {
            continue;
        }
        piece->bytes += one->bytes;
        piece->owed += one->owed;
        return true;
    }
    if (w.pieces == PIECES_MAX)
        return false;
    w.piece[w.pieces++] = *one;
    return true;
}

/* Takes the queue, as far as there is room. What the program waits for comes first. */
static void take(void) {
    for (; w.tail != w.head && add_to_pieces(&w.queue[w.tail % RELEASES_MAX]); ++w.tail)
        if (w.queue[w.tail % RELEASES_MAX].is_last)
            close_with_pieces(w.queue[w.tail % RELEASES_MAX].fd);
    uint32_t awaited = 0;
    for (uint32_t i = 0; i < w.pieces; ++i)
        if (w.piece[i].owed) {
            const struct release one = w.piece[i];
            w.piece[i] = w.piece[awaited];
            w.piece[awaited++] = one;
        }
}

/* Where in the pieces, one after the other. */
struct place {
    uint32_t piece;
    uint64_t done; /* bytes of it */
};

/* The next bytes of what is to be written; false at the end. */
static bool next_to_write(struct place *at, struct release *part) {
    while (at->piece < w.pieces && (w.piece[at->piece].fd < 0 || at->done == w.piece[at->piece].bytes)) {
        ++at->piece;
        at->done = 0;
    }
    if (at->piece == w.pieces)
        return false;
    *part = w.piece[at->piece];
    const uint64_t left = part->bytes - at->done;
    part->address += at->done;
    part->offset += at->done;
    part->bytes = left < PART_BYTES ? left : PART_BYTES;
    /* The last part settles what is owed for the piece beyond its bytes, or short of them. */
    const uint64_t owed = part->owed > at->done ? part->owed - at->done : 0;
    part->owed = left > part->bytes && owed > part->bytes ? part->bytes : owed;
    at->done += part->bytes;
    return true;
}

/* Waits until a part is written; what was dirtied again meanwhile is written once more.
 * Not by SYNC_FILE_RANGE_WAIT_AFTER, which marks an error of writing as seen: a file that
 * the program opens later would not be told of it by fsync. */
static void await_written(const struct release *part) {
    struct cached now;
    bool is_again = false;
    for (int naps = 0; naps < WRITTEN_NAPS_MAX && look_at_cache(part->fd, part->offset, part->bytes, &now);
         ++naps) {
        if (now.being_written == 0) {
            if (now.dirty == 0 || is_again)
                return;
            sync_file_range(part->fd, (off_t)part->offset, (off_t)part->bytes,
                            SYNC_FILE_RANGE_WRITE);
            is_again = true;
        }
        nap(WRITTEN_NAP_NS);
    }
}

/* Reclaim leaves dirty file pages alone, so they are written first: many at a time, for
 * an array of disks, of which the first are given back while the others are on their way.
 * They are taken from the program before that, many with one flush of the other processors'
 * TLBs: writing a page that is mapped makes it clean there first, with a flush for each. */
static void write_and_give_back(void) {
    struct place started = {0}, given = {0};
    uint64_t under_way = 0;
    for (bool more = true; more || under_way > 0;) {
        struct release part;
        more = more && next_to_write(&started, &part);
        if (more) {
            if (!part.is_kept)
                page_out(&part);
            sync_file_range(part.fd, (off_t)part.offset, (off_t)part.bytes, SYNC_FILE_RANGE_WRITE);
            under_way += part.bytes;
        }
        if ((more && under_way <= UNDER_WAY_BYTES) || !next_to_write(&given, &part))
            continue;
        await_written(&part);
        if (part.is_kept)
            split(&part);
        else
            give_back(&part);
        under_way -= part.bytes;
    }
}

/* With what was taken out of the queue. */
static void finish(void) {
    w.pieces = 0;
    while (w.retireds > 0)
        close(w.retired[--w.retireds]);
}

void *releaser(void *nothing) {
    (void)nothing;
    begin_thread(OTHER_NAME);
    pthread_mutex_lock(&w.lock);
    for (;;) {
        while (w.head == w.tail) {
            atomic_store(&ra.catching_up, false); /* nothing to wait for */
            pthread_cond_wait(&w.filled, &w.lock);
        }
        if (is_early()) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += 50000000;
            if (until.tv_nsec >= 1000000000)
                until.tv_sec++, until.tv_nsec -= 1000000000;
            pthread_cond_timedwait(&w.filled, &w.lock, &until);
            continue;
        }
        take();
        pthread_mutex_unlock(&w.lock);
        for (uint32_t i = 0; i < w.pieces; ++i) {
            const struct release *one = &w.piece[i];
            if (one->fd < 0)
                give_back(one);
        }
        write_and_give_back();
        pthread_mutex_lock(&w.lock);
        finish();
    }
    return NULL;
}
