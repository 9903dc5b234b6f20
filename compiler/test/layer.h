/* The run-time layer without its helper, for tests that begin nests, tick and look
 * at what comes into the ring. Its functions are seen here, and waits pretended. */
#pragma once

#include "check.h"

#define nap pretend_nap
#define now_ns pretend_now
#define storage_reads pretend_reads
#define own_faults pretend_faults
#define start_helper pretend_start
#define start_up pretend_start_up
#include "../runtime/advance.c"
#include "../runtime/behind.c"
#include "../runtime/blocks.c"
#include "../runtime/hint.c"
#include "../runtime/indices.c"
#undef nap
#undef now_ns
#undef storage_reads
#undef own_faults
#undef start_helper
#undef start_up

#include <sys/mman.h>
#include <unistd.h>

enum { PLACES = 86, ROWS = 86, PLANE = 88 * 88 * 40 };
static const uint64_t ARRAY = 1 << 30;

/* The helper takes so many waits of the program to pass on what is in the ring. */
static int naps, naps_needed;

void pretend_nap(long ns) {
    (void)ns;
    if (++naps < naps_needed)
        return;
    atomic_store(&ra.served, atomic_load(&ra.ring_head));
    atomic_fetch_add(&ra.pieces_served, 1);
}

static uint64_t clock_ns = (uint64_t)3600 * 1000000000; /* goes on where a test says so */

uint64_t pretend_now(void) { return clock_ns; }

static uint64_t reads; /* from storage, of the program */

uint64_t pretend_reads(void) { return reads; }

static uint64_t faults; /* of the program's thread */

uint64_t pretend_faults(void) { return faults; }

void pretend_start(void) { atomic_store(&ra.helper, 1); }

/* Another thread is at it. */
void pretend_start_up(void) {}

static inline void start(uint64_t memory) {
    ra.memory = memory;
    ra.window = memory / 6;
    ra.tick_bytes = ra.window / 64;
    ra.plan_bytes = 1 << 20;
    ra.plan_memory = calloc(1, ra.plan_bytes);
    ra.bits = calloc(1, (ARRAY * 4 >> PAGE_SHIFT >> 3) + 1);
    ra.ring = calloc(RING_ENTRIES, sizeof(struct entry));
    CHECK(ra.plan_memory && ra.bits && ra.ring);
    ra.release_allowed = true;
    atomic_store(&ra.helper, 1); /* none: the ring is read here */
    atomic_store(&ra.active, 1);
    atomic_store(&ra.state, 1);
}

/* A program's sites last as long as it does, those of a test end with it. */
static inline void forget_sites(void) {
    atomic_store(&ra.site_count, 0);
    for (uint32_t i = 0; i < PLANS_MAX; ++i)
        atomic_store(&ra.sites[i], NULL);
}

/* As the releaser would come to in the end. */
static inline void nothing_behind(void) {
    atomic_store(&ra.behind, 0);
    atomic_store(&ra.catching_up, false);
}

/* Takes the next entry out of the ring; false where there is none. */
static inline bool take_out(struct entry *taken) {
    struct entry *e = &ra.ring[ra.ring_tail & (RING_ENTRIES - 1)];
    if (atomic_load(&e->turn) != lap_of(ra.ring_tail) + 1)
        return false;
    *taken = *e;
    atomic_fetch_add(&ra.pieces_served, 1);
    atomic_store(&e->turn, lap_of(ra.ring_tail++) + RING_ENTRIES);
    return true;
}

/* Takes out what the ring holds: bytes to be released, all within [low, high), in whole
 * pieces, and how many of them may stay until their memory is wanted. */
static uint64_t released_lazily;

static inline uint64_t released_within(uint64_t low, uint64_t high) {
    uint64_t bytes = released_lazily = 0;
    for (struct entry e; take_out(&e);)
        if (e.operation == RELEASE) {
            CHECK(e.address >= low && e.address + e.bytes <= high);
            CHECK(e.bytes > 0 && e.address % PAGE == 0 && e.bytes % PAGE == 0);
            bytes += e.bytes;
            released_lazily += e.flags & RELEASE_LAZY ? e.bytes : 0;
        }
    return bytes;
}

/* Behind the counts of its loops lies what the stack held before, another thing each time. */
static inline struct ra_frame *frame_of(uint32_t levels, const uint64_t *counts,
                                        const struct ra_stream *stream) {
    static uint64_t stale;
    struct ra_frame *f = calloc(1, sizeof(*f) + sizeof(*stream));
    CHECK(f);
    for (size_t l = levels; l < sizeof(f->count) / sizeof(f->count[0]); ++l)
        f->count[l] = ++stale;
    memcpy(f->count, counts, levels * sizeof(*counts));
    f->streams[0] = *stream;
    return f;
}

/* Bytes that were asked for of [low, high) since the ring was taken out. */
static inline uint64_t asked_within(uint64_t low, uint64_t high) {
    uint64_t bytes = 0;
    for (struct entry e; take_out(&e);)
        if (e.operation <= PREFETCH_FOLIOS && e.address >= low && e.address < high)
            bytes += e.bytes;
    return bytes;
}

/* As the helper does; returns how many prefetches there were. */
static inline uint64_t pass_on(void) {
    uint64_t prefetches = 0;
    for (struct entry e; take_out(&e);)
        prefetches += e.operation <= PREFETCH_FOLIOS;
    atomic_store(&ra.served, ra.ring_tail);
    return prefetches;
}

/* Highest address that was asked for since the ring was taken out; none may be
 * below `low`. */
static inline uint64_t asked_until(uint64_t low) {
    uint64_t until = 0;
    for (struct entry e; take_out(&e);)
        if (e.operation <= PREFETCH_FOLIOS) {
            CHECK(e.address >= low);
            until = e.address + e.bytes > until ? e.address + e.bytes : until;
        }
    return until;
}

/* Rows of so many bytes, small nests at places of [base, base + room) that jump: how many of
 * them call? */
static inline uint64_t calls_over(struct ra_site *site, uint64_t base, uint64_t room, uint64_t rows,
                                  uint64_t row) {
    static uint64_t random = 1;
    const uint64_t count = row / 8;
    uint64_t calls = 0;
    for (uint64_t n = 0; n < rows; ++n) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const struct ra_stream at = {.base = base + (random >> 32) % (room / row) * row, .high = 8,
                                     .stride = {8}};
        if (at.base - once(&site->low) < once(&site->span))
            continue; /* as the pass does */
        struct ra_frame *f = frame_of(1, &count, &at);
        CHECK(ra_begin_2(site, f) == 0);
        free(f);
        ++calls;
    }
    return calls;
}

/* Small nests line by line: how far beyond the last line is asked for? */
static inline uint64_t beyond(struct ra_site *site, uint64_t base, uint64_t lines, uint64_t line) {
    const uint64_t count = line / 8;
    uint64_t until = 0;
    for (uint64_t n = 0; n < lines; ++n) {
        const struct ra_stream at = {.base = base + n * line, .high = 8, .stride = {8}};
        if (at.base - site->low < site->span)
            continue; /* as the pass does */
        struct ra_frame *f = frame_of(1, &count, &at);
        ra_begin_2(site, f);
        free(f);
        const uint64_t asked = asked_until(base - 2 * SMALL_BYTES);
        until = asked > until ? asked : until;
    }
    return until > base + lines * line ? until - base - lines * line : 0;
}
