/* The run-time layer's helper, on a kernel that has room for so many pages and
 * refuses the others: those are asked for again, until they are there. And what
 * goes on where the last piece ended is read as the kernel's readahead does. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int pretend_madvise(void *address, size_t bytes, int advice);
static int pretend_mincore(void *address, size_t bytes, unsigned char *present);
static int pretend_getrusage(int who, struct rusage *usage);
static long pretend_syscall(long number, ...);
#define madvise pretend_madvise
#define mincore pretend_mincore
#define getrusage pretend_getrusage
#define syscall pretend_syscall
#define queue_release pretend_queue
#include "../runtime/internal.h"
#define leave_disclosed pretend_leave
static void pretend_leave(const char *path, uint64_t inode);
#include "../runtime/mappings.c"
#include "../runtime/helper.c"
#include "../runtime/windows.c"

#include "check.h"

enum { PAGES = 4096, WINDOW = 32, AROUND = 16 };
static const uint64_t BASE = 1 << 30;

/* The file, mapped from its beginning on. */
static bool is_there[PAGES], is_mapped[PAGES];
static uint64_t room, read_pages, willneeds, starts, looks, touches;
/* Room made after a window was read; and whether what is read is still on its way. */
static uint64_t room_after_window;
static bool is_slow;
/* A kernel that does not tell what is cached. */
static bool is_old;
/* What is touched sets off the kernel's readahead. */
static bool is_marked;
/* Nothing is mapped there any more. */
static bool is_gone;
static uint64_t swap; /* of the machine */
/* The kernel's readahead: where its last window began, its first page marked. */
static uint64_t window_at, window_end;

/* What was queued to be written and split, for walks. */
static uint64_t kept, kept_pages;

void pretend_queue(const struct release *one) {
    if (!one->is_kept)
        return;
    CHECK(one->fd >= 0 && one->offset == one->address - BASE && one->owed == 0);
    ++kept;
    kept_pages += one->bytes / PAGE;
}

static void read_page(uint64_t page) {
    if (page >= PAGES || is_there[page] || room == 0)
        return;
    is_there[page] = true;
    --room;
    ++read_pages;
}

static int pretend_madvise(void *address, size_t bytes, int advice) {
    const uint64_t first = ((uint64_t)(uintptr_t)address - BASE) >> PAGE_SHIFT;
    if (advice == MADV_POPULATE_READ) { /* which waits for what is not there */
        for (uint64_t n = 0; n < bytes >> PAGE_SHIFT; ++n) {
            CHECK(is_there[first + n] && !is_slow);
            if (is_mapped[first + n])
                continue;
            ++touches;
            read_pages += is_marked;
            const uint64_t window = (first + n) / AROUND * AROUND;
            for (uint64_t page = window; page < window + AROUND; ++page)
                is_mapped[page] = is_there[page];
        }
        return 0;
    }
    CHECK(advice == MADV_WILLNEED);
    ++willneeds;
    for (uint64_t n = 0; n < bytes >> PAGE_SHIFT; ++n)
        read_page(first + n);
    return 0;
}

static int pretend_mincore(void *address, size_t bytes, unsigned char *present) {
    const uint64_t first = ((uint64_t)(uintptr_t)address - BASE) >> PAGE_SHIFT;
    if (is_gone)
        return -1;
    looks += bytes >> PAGE_SHIFT;
    for (uint64_t n = 0; n < bytes >> PAGE_SHIFT; ++n)
        present[n] = is_there[first + n] && !is_slow;
    return 0;
}

static int pretend_getrusage(int who, struct rusage *usage) {
    (void)who;
    memset(usage, 0, sizeof(*usage));
    usage->ru_inblock = (long)(read_pages * PAGE / 512);
    return 0;
}

static long pretend_syscall(long number, ...) {
    va_list arguments;
    va_start(arguments, number);
    if (number == SYS_sysinfo) {
        va_arg(arguments, struct sysinfo *)->totalswap = swap;
        va_end(arguments);
        return 0;
    }
    va_arg(arguments, int);
    if (number == SYS_cachestat && is_old) {
        va_end(arguments);
        return -1;
    }
    if (number == SYS_cachestat) {
        const uint64_t *range = va_arg(arguments, uint64_t *);
        uint64_t *pages = va_arg(arguments, uint64_t *);
        for (uint64_t n = 0; n < range[1] >> PAGE_SHIFT; ++n)
            pages[0] += is_there[(range[0] >> PAGE_SHIFT) + n];
    } else {
        CHECK(number == SYS_preadv2);
        va_arg(arguments, struct iovec *);
        CHECK(va_arg(arguments, int) == 1);
        const uint64_t page = (uint64_t)va_arg(arguments, long) >> PAGE_SHIFT;
        CHECK(va_arg(arguments, long) == 0 && va_arg(arguments, int) == RWF_NOWAIT);
        ++starts;
        if (!is_there[page]) { /* none yet: its mark is on its last page */
            window_end = page + WINDOW;
            for (uint64_t n = page; n < window_end; ++n)
                read_page(n);
            window_at = window_end - 1;
        } else if (page == window_at) {
            window_at = window_end;
            window_end += WINDOW;
            for (uint64_t n = window_at; n < window_end; ++n)
                read_page(n);
        }
        room += room_after_window;
    }
    va_end(arguments);
    return 0;
}

static uint64_t left; /* inode of the file that is mapped no longer */

static void pretend_leave(const char *path, uint64_t inode) {
    CHECK(path[0] && inode);
    left = inode;
}

static uint64_t waiting(void) { return h.refused_head - h.refused_tail; }

static void prefetch(uint64_t page, uint64_t pages) {
    set_bits((BASE >> PAGE_SHIFT) + page, (BASE >> PAGE_SHIFT) + page + pages);
    do_prefetch(BASE + (page << PAGE_SHIFT), pages << PAGE_SHIFT, 0, true);
}

static uint64_t believed(uint64_t first, uint64_t pages) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < pages; ++i)
        n += bit(ra.bits, (BASE >> PAGE_SHIFT) + first + i);
    return n;
}

static void refused_and_asked_again(void) {
    /* Two pieces, of which there is room for a part of the first. */
    room = 10;
    prefetch(0, 64);
    CHECK(willneeds == 2 && ra.count.issued == 10 && waiting() == 2);

    /* No room: one question tells, however many wait. */
    ask_again();
    CHECK(willneeds == 3 && waiting() == 2 && ra.count.issued == 10);

    /* Room for some: the oldest first. */
    room = 30;
    ask_again();
    CHECK(waiting() == 1 && is_there[31] && is_there[39] && !is_there[40]);
    CHECK(ra.count.issued == 40);

    /* The program has read the rest itself: nothing to ask for. */
    const uint64_t asked = willneeds;
    memset(is_there + 40, true, 24);
    ask_again();
    CHECK(waiting() == 0 && willneeds == asked);

    /* Never any room: in the end it is missing as if it had never been asked for,
     * so that the next hint is not dropped. */
    room = 0;
    prefetch(100, 32);
    CHECK(waiting() == 1 && believed(100, 32) == 32);
    for (int tries = 0; tries < TRIES_MAX; ++tries) {
        CHECK(waiting() == 1);
        ask_again();
    }
    CHECK(waiting() == 0 && believed(100, 32) == 0);

    /* More than are kept: likewise. */
    for (uint64_t n = 0; n <= REFUSED_MAX; ++n)
        prefetch(200 + 2 * n, 1);
    CHECK(waiting() == REFUSED_MAX && believed(200, 2 * REFUSED_MAX) == REFUSED_MAX);
    CHECK(believed(200 + 2 * REFUSED_MAX, 1) == 0);
    room = PAGES;
    ask_again();
    CHECK(waiting() == 0 && is_there[200] && is_there[202] && !is_there[201]);

    /* Given back meanwhile: not asked for again. */
    room = 0;
    prefetch(2400, 32);
    CHECK(waiting() == 1);
    do_release(BASE + 2300 * PAGE, 200 * PAGE, RELEASE_UNAWAITED);
    room = PAGES;
    ask_again();
    CHECK(waiting() == 0 && !is_there[2400]);
}

/* What nothing can be told of is not asked for, and not believed in memory. */
static void given_up(void) {
    memset(is_there, 0, sizeof(is_there));
    room = PAGES;
    is_gone = true;
    prefetch(600, 64);
    is_gone = false;
    CHECK(believed(600, 64) == 0);
}

static void long_pieces(void) {
    memset(is_there, 0, sizeof(is_there));
    room = PAGES, read_pages = willneeds = starts = 0;
    ra.count.issued = ra.count.refused = 0;

    /* The first piece as ever, what follows it a window at a time, each page once. */
    prefetch(0, 128);
    CHECK(willneeds == 1 && starts == 3 && read_pages == 128);
    prefetch(128, 100); /* the last window is longer than what was wanted */
    CHECK(willneeds == 1 && starts == 7 && read_pages == 256 && ra.count.issued == 256);
    is_slow = true;
    prefetch(228, 28);
    CHECK(willneeds == 1 && starts == 7);
    is_slow = false;
    prefetch(256, 64);
    CHECK(willneeds == 1 && starts == 9 && read_pages == 320);

    /* Elsewhere, and a few pages that do go on: as ever. */
    prefetch(1000, 16);
    prefetch(1016, 16);
    CHECK(willneeds == 3 && starts == 9 && read_pages == 352);

    /* Where the memory is full the sequence ends, and the rest is asked for again. */
    room = 8;
    prefetch(320, 64);
    CHECK(waiting() > 0 && believed(320, 64) == 64);
    room = PAGES;
    ask_again();
    for (uint64_t page = 320; page < 384; ++page)
        CHECK(is_there[page]);
    CHECK(waiting() == 0);

    /* And where there is room again behind the pages that it refused. */
    prefetch(1200, 64);
    room = 8, room_after_window = PAGES;
    prefetch(1264, 40);
    room_after_window = 0;
    for (uint64_t page = 1200; page < 1304; ++page)
        CHECK(is_there[page]);

    /* Something is there already: nothing that is missing is passed over. */
    memset(is_there + 2000, 0, 256);
    prefetch(2000, 64);
    is_there[2100] = true;
    prefetch(2064, 128);
    for (uint64_t page = 2000; page < 2192; ++page)
        CHECK(is_there[page]);

    /* Unmapped: no longer followed. */
    const uint64_t asked = willneeds;
    prefetch(2192, 64);
    prefetch(2256, 32);
    CHECK(willneeds == asked + 1);
    leave_file(m.region[0].path, m.region[0].inode);
    prefetch(2288, 32);
    CHECK(willneeds == asked + 2);
}

/* What was once read beyond what was wanted may have been thrown out since. */
static void thrown_out(void) {
    memset(is_there, 0, sizeof(is_there));
    room = PAGES;
    prefetch(0, 128);
    prefetch(128, 100);
    CHECK(is_there[255]);
    memset(is_there + 228, 0, 28);
    prefetch(228, 28);
    for (uint64_t page = 128; page < 256; ++page)
        CHECK(is_there[page]);
}

/* Pieces that nothing follows, or that are too short for it, do not take its place from a
 * sequence, however many they are. */
static void sequences_kept(void) {
    enum { SHORT = SEQUENCES_MAX + 4 };
    memset(is_there, 0, sizeof(is_there));
    room = PAGES;
    prefetch(0, 64);
    const uint64_t before = starts;
    for (uint64_t n = 0; n < SHORT; ++n)
        do_prefetch(BASE + (1000 + 32 * n) * PAGE, 16 * PAGE, 0, false);
    for (uint64_t n = 0; n < SHORT; ++n)
        prefetch(2000 + 16 * n, 16);
    CHECK(starts == before);
    const uint64_t asked = willneeds;
    prefetch(64, 64);
    CHECK(starts == before + 2 && willneeds == asked);
}

/* What a walk writes is not followed, nor what the loop leaves dirty behind it. */
static void walked(void) {
    const uint64_t before = starts;
    note_walk(BASE + 2600 * PAGE, BASE + 2700 * PAGE);
    note_walk(BASE + 2700 * PAGE, BASE + 2800 * PAGE);
    CHECK(h.walks == 1);

    /* What lies there already is looked at once, as far as the mapping goes. */
    CHECK(kept == 2 && kept_pages == 200);
    note_walk(BASE + 2650 * PAGE, BASE + 2750 * PAGE);
    CHECK(kept == 2 && h.walks == 1);
    note_walk(BASE + 4000 * PAGE, BASE + 5000 * PAGE);
    CHECK(kept == 3 && kept_pages == 200 + PAGES - 4000);
    m.region[0].is_shared = false;
    note_walk(BASE + 3900 * PAGE, BASE + 3950 * PAGE);
    m.region[0].is_shared = true;
    CHECK(kept == 3 && h.walks == 3);
    forget_walks(BASE + 3900 * PAGE, BASE + 5000 * PAGE);

    prefetch(2600, 32);
    prefetch(2632, 64);
    CHECK(starts == before);
    do_prefetch(BASE + 2800 * PAGE, 64 * PAGE, 0, false);
    do_prefetch(BASE + 2864 * PAGE, 64 * PAGE, 0, false);
    CHECK(starts == before);
    prefetch(2928, 64);
    CHECK(starts == before + 1);
    for (uint64_t page = 2600; page < 2696; ++page)
        CHECK(is_there[page]);

    /* What it finds in memory is kept there, what is on its way or no walk's is not. */
    CHECK(touches == 0);
    do_prefetch(BASE + 2600 * PAGE, 32 * PAGE, 0, false);
    for (uint64_t page = 2600; page < 2632; ++page)
        CHECK(is_mapped[page]);
    CHECK(touches == 3); /* windows that it lies in: of each no more than one page */
    is_slow = true;
    do_prefetch(BASE + 2640 * PAGE, 32 * PAGE, 0, false);
    is_slow = false;
    do_prefetch(BASE + 2800 * PAGE, 32 * PAGE, 0, false);
    CHECK(touches == 3 && !is_mapped[2640] && !is_mapped[2800]);

    /* Where that goes on with the kernel's readahead, pieces are left alone, ever more. */
    const uint64_t piece = 2704;
    do_prefetch(BASE + piece * PAGE, AROUND * PAGE, 0, false);
    is_marked = true;
    for (uint64_t left = 0, round = 0; round < 2; ++round) {
        do_prefetch(BASE + piece * PAGE, AROUND * PAGE, 0, false);
        CHECK(touches == 4 + round && h.unkept_left >= UNKEPT_MIN && h.unkept_left > left);
        memset(is_mapped + piece, 0, AROUND);
        for (left = h.unkept_left; h.unkept_left > 0;)
            do_prefetch(BASE + piece * PAGE, AROUND * PAGE, 0, false);
        CHECK(touches == 4 + round);
    }
    is_marked = false;
    for (uint64_t n = 0; n < (1 << 14); ++n) {
        do_prefetch(BASE + piece * PAGE, AROUND * PAGE, 0, false);
        memset(is_mapped + piece, 0, AROUND);
    }
    CHECK(h.unkept == 0);

    /* One for which there is no room is put to the nearest, none is kept for long of what is
     * mapped no more. */
    const uint64_t far = BASE + ((uint64_t)1 << 40), step = 1 << 20;
    for (uint64_t n = 0; h.walks < WALKED_MAX; ++n)
        note_walk(far + n * step, far + n * step + PAGE);
    note_walk(far + 2 * PAGE, far + 3 * PAGE);
    CHECK(h.walks == WALKED_MAX && is_walked(far + PAGE, far + 3 * PAGE));
    CHECK(!is_walked(far - PAGE, far) && !is_walked(far + 3 * PAGE, far + step));
    forget_walks(BASE, BASE + PAGES * PAGE);
    CHECK(h.walks == WALKED_MAX - 1 && !is_walked(BASE, far));
    forget_walks(far, far + WALKED_MAX * step);
    CHECK(h.walks == 0);
}

/* Pages that the kernel reclaims lose their bits, and only what is believed in
 * memory is looked at. */
static void swept(void) {
    const uint64_t page = BASE >> PAGE_SHIFT;
    clear_bits(page, page + PAGES);
    for (uint64_t i = 0; i < PAGES; ++i)
        clear_bit(ra.recent, page + i);
    memset(is_there, 0, sizeof(is_there));
    is_there[70] = true;
    set_bits(page + 70, page + 74);
    set_bits(page + 2200, page + 2201);
    set_bit(ra.recent, page + 72);
    sweep(8192);
    CHECK(believed(0, PAGES) == 2 && believed(70, 1) == 1 && believed(72, 1) == 1);
    for (int times = 0; times < 4; ++times)
        sweep(8192);
    CHECK(believed(0, PAGES) == 1 && believed(70, 1) == 1);
    clear_bits(page, page + PAGES);
    looks = 0;
    sweep(8192);
    CHECK(looks == 0);
}

/* What was asked for and is on its way is neither missing nor refused: the kernel reads
 * nothing of it, and a sweep leaves it its bits. */
static void on_its_way(void) {
    const uint64_t page = BASE >> PAGE_SHIFT;
    memset(is_there, 0, sizeof(is_there));
    clear_bits(page, page + PAGES);
    room = PAGES;
    prefetch(3000, 200);
    prefetch(3300, 10);
    prefetch(3400, 1);
    is_there[3310] = true, is_there[3312] = true; /* another process asked for these */
    set_bits(page + 3310, page + 3320);           /* and the kernel has thrown out the others */
    is_slow = true;
    m.sweep_at = 0;
    for (int times = 0; times < 4; ++times)
        sweep(8192);
    CHECK(believed(3000, 200) == 200 && believed(3300, 10) == 10);
    CHECK(believed(3310, 1) == 1 && believed(3311, 1) == 0 && believed(3312, 1) == 1);
    CHECK(believed(3313, 7) == 0);
    const uint64_t asked = willneeds, issued = ra.count.issued;
    prefetch(3000, 200);
    CHECK(willneeds == asked && ra.count.issued == issued && waiting() == 0);
    prefetch(3300, 32); /* what is missing between */
    CHECK(waiting() == 0 && ra.count.issued == issued + 20);

    /* Without being told it looks missing, and refused, as long as it is on its way. */
    is_old = true;
    prefetch(3000, 32);
    CHECK(waiting() == 1);
    is_slow = false;
    ask_again();
    CHECK(waiting() == 0);
    is_old = false;
}

/* A piece of which the program has given back a part is not asked for any more. */
static void given_back_in_part(void) {
    memset(is_there, 0, sizeof(is_there));
    room = 0;
    prefetch(3400, 32);
    prefetch(3500, 32);
    CHECK(waiting() == 2);
    do_release(BASE + 3390 * PAGE, 20 * PAGE, RELEASE_UNAWAITED);
    room = PAGES;
    ask_again();
    CHECK(waiting() == 0 && !is_there[3420] && is_there[3500] && is_there[3531]);
}

/* Where there is no swap private memory is not given back, and nobody waits for it; where
 * there is it goes to the releaser, of which there is none here. */
static void without_swap(void) {
    enum { FEW = 32 };
    m.region[0].is_file = false;
    for (int kind = 0; kind < 3; ++kind) { /* none, some, and some that a cgroup forbids */
        const bool stays = kind != 1;
        swap = kind > 0;
        ra.is_swap_forbidden = kind == 2;
        h.swap_looked_ns = 0;
        set_bits(BASE >> PAGE_SHIFT, (BASE >> PAGE_SHIFT) + FEW);
        atomic_store(&ra.behind, FEW * PAGE);
        atomic_store(&ra.catching_up, true);
        const uint64_t before = ra.given_back;
        do_release(BASE, FEW * PAGE, RA_FLAG_WRITE);
        CHECK(atomic_load(&ra.behind) == (stays ? 0 : FEW * PAGE));
        CHECK(atomic_load(&ra.catching_up) == !stays && ra.given_back == before + stays);
        CHECK(believed(0, FEW) == (stays ? FEW : 0));
    }
    ra.is_swap_forbidden = false;
    m.region[0].is_file = true;
    atomic_store(&ra.behind, 0);
    atomic_store(&ra.catching_up, false);
    clear_bits(BASE >> PAGE_SHIFT, (BASE >> PAGE_SHIFT) + FEW);
}

/* Hints that have gone over little of what is mapped may go over all of it. */
static void fits(void) {
    m.region[0].hinted_low = BASE;
    m.region[0].hinted_high = BASE + PAGE;
    const uint64_t memory = ra.memory;
    ra.memory = PAGES * PAGE;
    CHECK(may_fit());
    ra.memory = PAGES * PAGE - 1;
    CHECK(!may_fit());
    m.region[0].hinted_low = m.region[0].hinted_high;
    CHECK(may_fit());
    ra.memory = memory;
}

/* Mappings that were read anew: what hints have touched of one whose bounds have changed
 * is known, what is believed of one that is gone is forgotten. */
static void mapped_anew(void) {
    const struct region old = {.low = BASE, .high = BASE + 64 * PAGE, .hinted_low = BASE + 8 * PAGE,
                               .hinted_high = BASE + 32 * PAGE, .is_file = true, .inode = 7};
    struct region fresh = old;
    fresh.high = BASE + 16 * PAGE;
    fresh.hinted_low = ~(uint64_t)0, fresh.hinted_high = 0;
    struct region other = fresh;
    CHECK(goes_on(&old, &fresh, 1));
    CHECK(fresh.hinted_low == BASE + 8 * PAGE && fresh.hinted_high == BASE + 16 * PAGE);
    other.offset = PAGE;
    CHECK(!goes_on(&old, &other, 1) && other.hinted_high == 0);
    other.offset = 0, other.inode = 8;
    CHECK(!goes_on(&old, &other, 1));
    struct region heap = old, grown = old;
    heap.is_file = grown.is_file = false, heap.inode = grown.inode = 0;
    grown.high += 64 * PAGE, grown.hinted_low = ~(uint64_t)0, grown.hinted_high = 0;
    CHECK(goes_on(&heap, &grown, 1) && grown.hinted_high == old.hinted_high);

    /* This process has nothing there. */
    struct region *r = &m.region[0], before = *r;
    const uint64_t read_ns = m.read_ns;
    const int regions = m.regions;
    r->hinted_low = BASE, r->hinted_high = BASE + PAGES * PAGE;
    set_bits(BASE >> PAGE_SHIFT, (BASE >> PAGE_SHIFT) + PAGES);
    r->fd = -1;
    read_regions();
    CHECK(believed(0, PAGES) == 0 && left == before.inode);
    m.regions = regions, m.read_ns = read_ns, m.region[0] = before;
}

/* Reading the mappings takes a small share of the time, however often what is in none of
 * them is asked for. */
static void read_seldom(void) {
    const uint64_t read_ns = m.read_ns, took_ns = m.read_took_ns, before = now_ns() - 2 * MAPS_NS;
    m.read_ns = before;
    m.read_took_ns = (uint64_t)1000000000 * 3600;
    CHECK(!region_of(BASE - PAGE) && !region_of(BASE + PAGES * PAGE));
    CHECK(m.read_ns == before && m.regions == 1);
    m.read_ns = read_ns, m.read_took_ns = took_ns;
}

/* A thread that takes a slot of the ring and never fills it holds nobody up for long. */
static void unfilled(void) {
    ra.ring = calloc(RING_ENTRIES, sizeof(struct entry));
    CHECK(ra.ring);
    atomic_fetch_add(&ra.ring_head, 1);
    CHECK(enqueue(WALKED, BASE, PAGE, 0));
    pass_over_unfilled(1000);
    pass_over_unfilled(1000 + UNFILLED_NS);
    CHECK(ra.ring_tail == 0);
    pass_over_unfilled(1001 + UNFILLED_NS);
    CHECK(ra.ring_tail == 1 && ra.served == 1 && ra.ring[0].turn == RING_ENTRIES);
    /* The next one is filled, and nobody has taken the one after it. */
    for (uint64_t n = 1; n < 4; ++n)
        pass_over_unfilled(n * 3 * UNFILLED_NS);
    CHECK(ra.ring_tail == 1 && ra.ring[1].turn == 1);
    ra.ring_tail = 2;
    for (uint64_t n = 1; n < 4; ++n)
        pass_over_unfilled(n * 3 * UNFILLED_NS);
    CHECK(ra.ring_tail == 2);
}

/* What was a file is a FIFO by now, which nobody writes, or another file. */
static void replaced(void) {
    const char *temporary = getenv("TMPDIR");
    char directory[256], fifo[320];
    m.region[0].fd = -1;
    struct region *r = &m.region[0], before = *r;
    struct stat status;
    snprintf(directory, sizeof(directory), "%s/refused-XXXXXX", temporary ? temporary : P_tmpdir);
    CHECK(mkdtemp(directory));
    snprintf(fifo, sizeof(fifo), "%s/fifo", directory);
    CHECK(mkfifo(fifo, 0600) == 0 && stat(fifo, &status) == 0);
    strcpy(r->path, fifo);
    r->inode = status.st_ino;
    do_release(BASE, 64 * PAGE, RA_FLAG_WRITE);
    CHECK(r->fd == -2);
    *r = before;
    ++r->inode;
    do_release(BASE, 64 * PAGE, RA_FLAG_WRITE);
    CHECK(r->fd == -2);
    *r = before;
    do_release(BASE, 64 * PAGE, RA_FLAG_WRITE);
    CHECK(r->fd >= 0);
    unlink(fifo);
    rmdir(directory);
}

int main(int argc, char **argv) {
    (void)argc;
    struct stat status;
    ra.memory = 64 << 20;
    ra.bits = calloc(1, ((BASE >> PAGE_SHIFT) + PAGES) / 8 + 8);
    ra.recent = calloc(1, ((BASE >> PAGE_SHIFT) + PAGES) / 8 + 8);
    CHECK(ra.bits && ra.recent && stat(argv[0], &status) == 0);
    /* Never read again: nothing is asked of what is not in it. */
    m.read_ns = now_ns() + (uint64_t)1000000000 * 3600;
    m.regions = 1;
    m.region[0] = (struct region){.low = BASE, .high = BASE + PAGES * PAGE, .hinted_low = ~(uint64_t)0,
                                  .is_file = true, .is_shared = true, .fd = -1,
                                  .inode = status.st_ino};
    CHECK(strlen(argv[0]) < sizeof(m.region[0].path));
    strcpy(m.region[0].path, argv[0]); /* any file that can be opened */
    refused_and_asked_again();
    given_up();
    long_pieces();
    thrown_out();
    sequences_kept();
    walked();
    swept();
    on_its_way();
    given_back_in_part();
    without_swap();
    fits();
    mapped_anew();
    read_seldom();
    unfilled();
    replaced();
    puts("what was refused is asked for again, long pieces are followed");
    return 0;
}
