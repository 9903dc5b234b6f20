/* What the releaser does with pieces that may be dirty: each byte is taken from the program
 * and then written before it is given back, many at a time but never all, and what the
 * program waits for comes to nothing in the end. On a kernel that is pretended. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct cached;
static bool pretend_look(int fd, uint64_t offset, uint64_t bytes, struct cached *pages);
static void pretend_nap(long ns);
static int pretend_madvise(void *address, size_t bytes, int advice);
static int pretend_mincore(void *address, size_t bytes, unsigned char *present);
static int pretend_sync(int fd, off_t offset, off_t bytes, unsigned flags);
static int pretend_fadvise(int fd, uint64_t offset, uint64_t bytes, int advice);
static int pretend_close(int fd);
#define look_at_cache pretend_look
#define nap pretend_nap
#define madvise pretend_madvise
#define mincore pretend_mincore
#define sync_file_range pretend_sync
#define close pretend_close
#include "../runtime/internal.h"
#undef posix_fadvise
#define posix_fadvise pretend_fadvise
#include "../runtime/release.c"
#define open_same pretend_open
int pretend_open(const char *path, uint64_t inode, int flags);
#include "../runtime/disclose.c"

#include "check.h"

enum { BLOCKS = 4096, BLOCK = 64 << 10, FILE_BEGIN = 7 * BLOCK, FILE_FD = 5 };
static const uint64_t ARRAY = 1 << 30;

/* Of each block of the mapped file. */
static enum state { DIRTY, STARTED, CLEAN, GONE } block[BLOCKS];
static bool is_mapped[BLOCKS], is_written_to[BLOCKS]; /* while it was being written */
static uint64_t under_way, most_under_way;
static uint64_t naps, dirtied; /* blocks that the program writes to while they are written */
static bool is_old, is_stuck;
static bool is_kept; /* what is written is not given back */

static uint64_t block_of(uint64_t address) { return (address - ARRAY) / BLOCK; }

static uint64_t splits[BLOCKS], touches;

/* Takes blocks from the program, whatever they are, and drops the clean ones. Advice on a page
 * splits its folio where that is mapped and clean; to touch it waits for what is not there. */
static int pretend_madvise(void *address, size_t bytes, int advice) {
    if (advice == MADV_POPULATE_READ || advice == MADV_COLD) {
        const uint64_t b = block_of((uint64_t)(uintptr_t)address);
        CHECK(bytes == PAGE && block[b] != GONE);
        if (advice == MADV_POPULATE_READ)
            ++touches;
        is_mapped[b] |= advice == MADV_POPULATE_READ;
        splits[b] += advice == MADV_COLD && is_mapped[b] && block[b] == CLEAN;
        return 0;
    }
    CHECK(advice == MADV_PAGEOUT && bytes > 0 && bytes <= PART_BYTES && bytes % BLOCK == 0);
    for (uint64_t b = block_of((uint64_t)(uintptr_t)address), n = bytes / BLOCK; n-- > 0; ++b) {
        is_mapped[b] = false;
        if (block[b] == CLEAN)
            block[b] = GONE;
    }
    return 0;
}

static int pretend_mincore(void *address, size_t bytes, unsigned char *present) {
    CHECK(bytes > 0 && bytes <= PART_BYTES);
    for (uint64_t n = 0; n < bytes / PAGE; ++n)
        present[n] = block[block_of((uint64_t)(uintptr_t)address + n * PAGE)] != GONE;
    return 0;
}

/* Drops what is clean and not the program's. */
static int pretend_fadvise(int fd, uint64_t offset, uint64_t bytes, int advice) {
    CHECK(fd == FILE_FD && advice == POSIX_FADV_DONTNEED && bytes > 0 && bytes % BLOCK == 0);
    for (uint64_t b = (offset - FILE_BEGIN) / BLOCK, n = bytes / BLOCK; n-- > 0; ++b) {
        CHECK(block[b] == CLEAN || is_old || is_stuck);
        if (block[b] == CLEAN && !is_mapped[b])
            block[b] = GONE;
    }
    return 0;
}

/* Waits for nothing: that would mark errors as seen. */
static int pretend_sync(int fd, off_t offset, off_t bytes, unsigned flags) {
    CHECK(fd == FILE_FD && bytes > 0 && bytes % BLOCK == 0 && flags == SYNC_FILE_RANGE_WRITE);
    for (uint64_t b = ((uint64_t)offset - FILE_BEGIN) / BLOCK, n = (uint64_t)bytes / BLOCK; n-- > 0; ++b)
        if (block[b] == DIRTY) {
            CHECK(!is_mapped[b] || is_written_to[b] || is_kept);
            block[b] = STARTED;
            under_way += BLOCK;
        }
    most_under_way = under_way > most_under_way ? under_way : most_under_way;
    return 0;
}

static bool pretend_look(int fd, uint64_t offset, uint64_t bytes, struct cached *pages) {
    CHECK(fd == FILE_FD && bytes > 0 && bytes % BLOCK == 0);
    *pages = (struct cached){.all = bytes / PAGE};
    for (uint64_t b = (offset - FILE_BEGIN) / BLOCK, n = bytes / BLOCK; n-- > 0; ++b) {
        pages->dirty += block[b] == DIRTY;
        pages->being_written += block[b] == STARTED;
    }
    return !is_old;
}

/* A block has been written. */
static void pretend_nap(long ns) {
    CHECK(ns == WRITTEN_NAP_NS);
    ++naps;
    for (uint64_t b = 0; b < BLOCKS && !is_stuck; ++b)
        if (block[b] == STARTED) {
            block[b] = CLEAN;
            if (dirtied > 0) {
                --dirtied;
                block[b] = DIRTY;
                is_mapped[b] = is_written_to[b] = true;
            }
            under_way -= BLOCK;
            return;
        }
}

static int closed; /* times that the file was */

static int pretend_close(int fd) {
    CHECK(fd == FILE_FD);
    ++closed;
    return 0;
}

static void piece(uint64_t first, uint64_t blocks, bool is_dirty) {
    const struct release one = {.address = ARRAY + first * BLOCK, .bytes = blocks * BLOCK,
                                .owed = blocks * BLOCK, .offset = FILE_BEGIN + first * BLOCK,
                                .fd = is_dirty ? FILE_FD : -1, .ns = now_ns()};
    ra.behind += one.owed;
    for (uint64_t b = first; b < first + blocks; ++b) {
        block[b] = is_dirty ? DIRTY : CLEAN;
        is_mapped[b] = true;
        is_written_to[b] = false;
    }
    queue_release(&one);
}

/* Pieces of several streams by turns, some of which are neighbours. */
static void in_parts(void) {
    for (uint64_t n = 0; n < 40; ++n) {
        piece(n * 5, 5, true);
        piece(1000 + n * 20, 3, true);
    }
    piece(2000, 1, true);
    take();
    CHECK(w.head == w.tail && w.pieces == 42);
    write_and_give_back();
    for (uint64_t b = 0; b < 200; ++b)
        CHECK(block[b] == GONE);
    for (uint64_t n = 0; n < 40; ++n)
        CHECK(block[1000 + n * 20 + 2] == GONE && block[1000 + n * 20 + 3] == DIRTY);
    CHECK(block[2000] == GONE && ra.behind == 0 && under_way == 0);
    CHECK(most_under_way > UNDER_WAY_BYTES && most_under_way <= UNDER_WAY_BYTES + PART_BYTES);
    CHECK(ra.count.released == (200 + 120 + 1) * BLOCK / PAGE);
    w.pieces = 0;
}

/* What the program has written to meanwhile is written again, once, and stays the program's.
 * What is not written in a long time, and what nobody can tell of, is given back as far as
 * the kernel does. */
static void waits(void) {
    memset(block, 0, sizeof(block));
    dirtied = 3;
    piece(0, 10, true);
    take();
    write_and_give_back();
    CHECK(dirtied == 0 && block[2] == CLEAN && block[3] == GONE && block[9] == GONE);
    CHECK(ra.behind == 0);
    is_stuck = true;
    naps = 0;
    piece(100, 10, true);
    w.pieces = 0;
    take();
    write_and_give_back();
    CHECK(naps == WRITTEN_NAPS_MAX && ra.behind == 0);
    is_stuck = false;
    is_old = true;
    naps = 0;
    piece(200, 100, true);
    w.pieces = 0;
    take();
    write_and_give_back();
    CHECK(naps == 0 && block[299] == STARTED && !is_mapped[299] && ra.behind == 0);
    is_old = false;
    w.pieces = 0;
    under_way = 0;
}

/* The program owes less than it gave back where it was told not to wait for a part, and
 * more where the mapping ended before the piece. */
static void owed(void) {
    memset(block, 0, sizeof(block));
    for (uint64_t owed = 0; owed <= 100 * BLOCK; owed += 25 * BLOCK) {
        struct release one = {.address = ARRAY, .bytes = 50 * BLOCK, .owed = owed,
                              .offset = FILE_BEGIN, .fd = FILE_FD};
        memset(block, 0, sizeof(block));
        ra.behind = owed + 1;
        w.piece[0] = one;
        w.pieces = 1;
        write_and_give_back();
        CHECK(ra.behind == 1 && block[49] == GONE && block[50] == DIRTY);
    }
    w.pieces = 0;
    ra.behind = 0;
}

/* What is dirty waits for more of it, until the program waits, or something is clean. */
static void together(void) {
    memset(block, 0, sizeof(block));
    atomic_store(&ra.catching_up, false);
    piece(0, 1, true);
    w.queue[w.tail % RELEASES_MAX].ns = now_ns() + 1000 * 1000000000ull;
    CHECK(is_early());
    atomic_store(&ra.catching_up, true);
    CHECK(!is_early());
    atomic_store(&ra.catching_up, false);
    piece(3000, 40, false);
    CHECK(!is_early());
    take();
    CHECK(w.pieces == 2);
    give_back(&w.piece[w.piece[0].fd < 0 ? 0 : 1]);
    CHECK(block[3000] == GONE && block[3039] == GONE && block[3040] == DIRTY);
    write_and_give_back();
    w.pieces = 0;
    const uint64_t enough = written_together() / BLOCK + 1;
    piece(1, enough - 2, true);
    w.queue[w.tail % RELEASES_MAX].ns = now_ns() + 1000 * 1000000000ull;
    CHECK(is_early());
    piece(enough - 1, 2, true);
    CHECK(!is_early()); /* long before the program has to wait */
    CHECK(2 * enough * BLOCK < behind_most());

    /* It goes on when little is left. */
    atomic_store(&ra.catching_up, true);
    take();
    CHECK(w.head == w.tail && w.pieces == 1);
    ra.behind += behind_least() + 1; /* which does not come back */
    write_and_give_back();
    CHECK(atomic_load(&ra.catching_up));
    w.pieces = 0;
    ra.behind -= 1;
    piece(4000, 1, false);
    take();
    give_back(&w.piece[0]);
    CHECK(!atomic_load(&ra.catching_up));
    w.pieces = 0;
    ra.behind = 0;
}

/* What nobody waits for comes behind what the program does, and is no part of its pieces.
 * What there is no room for stays, in its order. */
static void in_turn(void) {
    memset(block, 0, sizeof(block));
    for (uint64_t n = 0; n < 2; ++n) {
        const struct release one = {.address = ARRAY + n * BLOCK, .bytes = BLOCK, .owed = n * BLOCK,
                                    .offset = FILE_BEGIN + n * BLOCK, .fd = FILE_FD};
        queue_release(&one);
    }
    take();
    CHECK(w.pieces == 2 && w.piece[0].owed && !w.piece[1].owed);
    write_and_give_back();
    CHECK(block[0] == GONE && block[1] == GONE);
    w.pieces = 0;
    for (uint64_t n = 0; n < PIECES_MAX + 3; ++n)
        piece(100 + 2 * n, 1, true);
    take();
    CHECK(w.pieces == PIECES_MAX && w.head - w.tail == 3);
    CHECK(w.queue[w.tail % RELEASES_MAX].address == ARRAY + (100 + 2 * PIECES_MAX) * BLOCK);
    write_and_give_back();
    w.pieces = 0;
    take();
    CHECK(w.pieces == 3 && w.head == w.tail);
    write_and_give_back();
    w.pieces = 0;
    CHECK(ra.behind == 0);
}

/* The file of a mapping that is gone is closed, when nothing that is to be given back names
 * it any more: at once, with the pieces that are under way, or with those of the queue. */
static void retired(void) {
    memset(block, 0, sizeof(block));
    closed = 0;
    retire_file(FILE_FD);
    CHECK(closed == 1);
    piece(0, 1, true);
    take();
    retire_file(FILE_FD);
    CHECK(closed == 1);
    write_and_give_back();
    finish();
    CHECK(closed == 2 && w.pieces == 0);
    for (uint64_t n = 0; n < PIECES_MAX + 3; ++n)
        piece(100 + 2 * n, 1, true);
    take();
    retire_file(FILE_FD); /* there are both */
    write_and_give_back();
    finish();
    CHECK(closed == 2 && w.head - w.tail == 3);
    take();
    write_and_give_back();
    finish();
    CHECK(closed == 3 && w.head == w.tail);
    piece(1, 1, true); /* another file by that number */
    take();
    write_and_give_back();
    finish();
    CHECK(closed == 3);
}

/* What may stay until its memory is wanted is written and taken from the program, and no
 * more; it is no part of a piece with what may not. */
static void lazily(void) {
    memset(block, 0, sizeof(block));
    piece(0, 20, true);
    piece(20, 20, true);
    w.queue[w.tail % RELEASES_MAX].is_lazy = true;
    take();
    CHECK(w.pieces == 2);
    write_and_give_back();
    CHECK(block[0] == CLEAN && !is_mapped[0] && block[19] == CLEAN && block[20] == GONE);
    CHECK(ra.behind == 0);
    w.pieces = 0;
}

/* What a walk is going to write is written and split, and stays the program's. */
static void kept(void) {
    const uint64_t released = ra.count.released;
    memset(block, 0, sizeof(block));
    piece(0, 40, true);
    piece(40, 5, true);
    w.queue[w.tail % RELEASES_MAX].is_kept = true;
    ra.behind = 0;
    for (uint32_t at = w.tail; at != w.head; ++at)
        w.queue[at % RELEASES_MAX].owed = 0;
    for (uint64_t b = 10; b < 30; ++b)
        block[b] = b < 20 ? GONE : CLEAN;
    CHECK(!is_early());
    take();
    CHECK(w.pieces == 2 && w.piece[0].is_kept && !w.piece[1].is_kept);
    is_kept = true;
    dirtied = 1; /* it is written to meanwhile, and written again */
    write_and_give_back();
    is_kept = false;
    CHECK(ra.behind == 0 && ra.count.released == released + 5 * BLOCK / PAGE);
    for (uint64_t b = 0; b < 40; ++b)
        CHECK(b >= 10 && b < 20 ? block[b] == GONE && splits[b] == 0
                                : block[b] == CLEAN && is_mapped[b] && splits[b] == BLOCK / FOLIO_BYTES);
    CHECK(touches == 30 && dirtied == 0);
    w.pieces = 0;
}

static uint64_t opened, consumed_bytes;

int pretend_open(const char *path, uint64_t inode, int flags) {
    CHECK(path[0] == '/' && inode && flags == 0);
    ++opened;
    return FILE_FD;
}

static int pretend_hint(const char *path, const struct segment *segment, size_t segments) {
    CHECK(path[0] == '/' && segment->length > 0 && segments == 1);
    return 0;
}

static int pretend_available(void) { return 1; }

static void pretend_consumed(int fd, uint64_t offset, uint64_t bytes) {
    CHECK(fd == FILE_FD && closed == 0 && offset % PAGE == 0);
    consumed_bytes += bytes;
}

/* A file that is disclosed through a manager is open as long as it is mapped, and nothing of
 * it is wanted after that; others take its place, however many come. */
static void disclosed(void) {
    m.hint_path = pretend_hint;
    m.available = pretend_available;
    m.consumed = pretend_consumed;
    ra.window = 1 << 20;
    closed = 0;
    CHECK(!holds_disclosed());
    CHECK(disclose("/one", 7, 0, 4 * PAGE, 0) && disclose("/one", 7, 4 * PAGE, PAGE, 0));
    CHECK(opened == 1 && holds_disclosed());
    leave_disclosed("/one", 8);
    leave_disclosed("/other", 7);
    CHECK(closed == 0 && consumed_bytes == 0 && holds_disclosed());
    leave_disclosed("/one", 7);
    CHECK(closed == 1 && consumed_bytes == 5 * PAGE && !holds_disclosed());
    ra.count.hinted = 2 * ra.window >> PAGE_SHIFT;
    consume_behind();
    CHECK(consumed_bytes == 5 * PAGE && m.first == m.end);
    for (uint64_t n = 1; n <= 2 * FILES_MAX; ++n) {
        closed = 0;
        CHECK(disclose("/one", n, 0, PAGE, 0));
        leave_disclosed("/one", n);
        CHECK(closed == 1 && opened == 1 + n);
    }
}

int main(void) {
    ra.memory = 64 << 20;
    in_parts();
    waits();
    owed();
    together();
    in_turn();
    lazily();
    kept();
    retired();
    disclosed();
    puts("what is given back is written before, and in parts");
    return 0;
}
