/* What the parts of the run-time layer share. Nothing here is for programs: the
 * objects are linked into one, and only the calls of runahead_rt.h stay visible to
 * what that is linked with. */
#ifndef RUNAHEAD_INTERNAL_H
#define RUNAHEAD_INTERNAL_H

#include "calls.h"
#include "runahead_rt.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(hidden)

/* By their names the helpers of the program and of its libraries, each of which has a
 * layer of its own, know each other, and the other threads of a layer. */
#define HELPER_NAME "runahead-cc"
#define OTHER_NAME "runahead-cc+"

enum {
    PAGE_SHIFT = 12,
    RING_ENTRIES = 8192,       /* a power of two, */
    RING_SPARE = 1024,         /* of which so many are left to releases */
    PLANS_MAX = 8192,          /* a power of two: slots of the table */
    PLAN_CLASSES = 6,          /* plans of up to 1, 2, 4, ... streams */
    PATH_BYTES = 256,          /* of a mapped file; with a longer one it has none */
};
#define PAGE ((uint64_t)1 << PAGE_SHIFT)
static const uint64_t SMALL_BYTES = 64 << 10; /* as in the pass */
/* Asked for around a page by itself: a head that is positioned reads this much
 * in less time than it took to position it. */
static const uint64_t AROUND_BYTES_MAX = 64 << 10;
/* All of user space at one bit a page; only what is used costs memory (but after
 * mlockall(MCL_CURRENT), which fills it). */
static const uint64_t ADDRESSES = (uint64_t)1 << 47;

/* PREFETCH_FOLIOS: it may be in large folios. WALKED: a walk across
 * rows, which comes back to its neighbours, writes within these bytes. */
enum operation { PREFETCH, PREFETCH_FOLIOS, RELEASE, WALKED };
/* Beside the flags of the stream. The program never waits for such a release; what was
 * dirty of it stays, once written, until its memory is wanted. */
enum { RELEASE_UNAWAITED = 1 << 16, RELEASE_LAZY = 1 << 17 };

struct entry {
    /* That of the hint which it is free for (lap_of), one more when that is in it. */
    _Atomic uint64_t turn;
    uint64_t address;
    uint64_t bytes;
    uint32_t operation;
    uint32_t flags; /* of a prefetch: pages hinted until then */
};

/* Hints are counted; this many of them had gone through the ring when the one that is `at` had
 * its first entry. An empty ring is all 0, and takes no memory before it is used. */
static inline uint64_t lap_of(uint64_t at) {
    return at & ~(uint64_t)(RING_ENTRIES - 1);
}

/* What is worked out about a nest with certain parameters. The memory of an old
 * plan that was of no use lately is used again for a new one with about as many
 * streams: whoever still holds the old one finds another nest there, and gives
 * hints that are of no use, but within the bounds of that memory. */
struct ra_plan {
    _Atomic bool is_used; /* since it was last looked at for its memory */
    struct ra_site *site;
    uint64_t hash;
    uint32_t levels, streams;
    uint32_t tick_level;
    uint32_t releases;                /* bit per stream */
    uint32_t folios;                  /* bit per stream: it may be in large folios */
    uint64_t strip;                   /* iterations of the tick level */
    uint64_t total;                   /* iterations of the tick level in all */
    uint64_t look_ahead;              /* iterations of the tick level */
    uint64_t indices_ahead;           /* of them indices are looked at, where they are in memory */
    uint64_t burst;                   /* of them asked for at a time */
    uint64_t bytes;                   /* that the nest touches */
    double bytes_per_iteration;
    _Atomic uint32_t inner;           /* bytes that nests inside ask for in one */
    _Atomic(struct ra_plan *) next;   /* nest that followed the last time */
    uint8_t dense_from[RA_STREAMS_MAX];
    int8_t way[RA_STREAMS_MAX];       /* goes over its addresses in order, tick by tick: up 1, down -1 */
    _Atomic int8_t drift[RA_STREAMS_MAX]; /* comes back to the neighbours of its pages: as way */
    uint32_t around[RA_STREAMS_MAX];  /* bytes to ask for there around a page by itself */
    uint32_t walks;                   /* bit per stream: those are given back behind it */
    uint8_t walk_level[RA_STREAMS_MAX]; /* loop that takes it to the neighbours, if of this nest */
    _Atomic uint64_t walked;          /* bytes that its site went on in each place until here, */
    _Atomic int8_t walked_way;        /* up 1 or down -1, */
    _Atomic bool walks_back;          /* and whether it began anew after fewer than fill the memory */
    bool is_indirect;                 /* has indirect references */
    bool is_lazy;                     /* what it releases is RELEASE_LAZY */
    uint64_t block;                   /* bytes to ask for at a time, where there is a way */
    int64_t trail[RA_STREAMS_MAX];    /* trailing address minus base */
    uint64_t count[8];
    struct ra_stream stream[];
};

/* Counters for RUNAHEAD_CC_STATS; pages unless it says otherwise. */
struct counters {
    _Atomic uint64_t begins, ticks, hinted, filtered, queued, lost;
    _Atomic uint64_t issued, refused, resident, released, calls, activations;
    _Atomic uint64_t disclosed, consumed;
};

struct ra_state {
    _Atomic int state; /* 0 not yet, 1 on, 2 off for good */
    _Atomic int active;
    _Atomic int helper; /* 0 none, 1 started */
    _Atomic bool is_larger; /* the mappings that hints touch are more than the memory */
    _Atomic bool was_missing; /* the beginning of a nest was not in memory */
    /* Not 0 in the process that has the helper: a child finds a page of zeroes, by
     * whatever call it was made (pthread_atfork knows fork alone). */
    const volatile uint8_t *is_original;
    _Atomic uint32_t asleep;
    uint8_t *bits;     /* believed in memory */
    uint8_t *recent;   /* requested since the last sweep */
    char *plan_memory; /* a ring of plans for each class of sizes */
    uint64_t plan_bytes;
    _Atomic uint64_t plans_made[PLAN_CLASSES]; /* and passed over, by class */
    uint64_t memory;   /* bytes that the program may have in memory */
    uint64_t reads_at_start; /* storage_reads when the layer began */
    uint64_t window;   /* bytes prefetched ahead */
    uint64_t tick_bytes;
    _Atomic uint64_t behind; /* bytes to be released that are not yet */
    _Atomic uint64_t given_back; /* pieces so far */
    _Atomic bool catching_up; /* they are more than is good for the memory, or were just now */
    _Atomic uint64_t ring_head;
    uint64_t ring_tail;
    _Atomic uint64_t served; /* entries that the helper has passed on */
    _Atomic uint64_t pieces_served; /* of them and of the next, each as long as one request */
    struct entry *ring;
    _Atomic(struct ra_plan *) plans[PLANS_MAX];
    _Atomic(struct ra_site *) sites[PLANS_MAX]; /* small nests: windows to close */
    _Atomic uint32_t site_count;
    struct counters count;
    bool is_told; /* how much memory there is */
    bool is_swap_forbidden; /* by a cgroup */
    bool release_allowed;
    bool manager; /* one for the machine is there */
    const char *stats;
    const char *_Atomic off; /* why there are no hints, for the statistics */
};
extern struct ra_state ra;

/* This thread is in the layer. What the layer calls may be the program's own and
 * compiled with the pass, such as its memcpy or its malloc, and a signal may come in
 * between: loops there go without hints. Of the default model, although the first use
 * in a library that was loaded at run time allocates: initial-exec would put all
 * thread-local data of that library into the little room for it that is left then,
 * and loading it would fail where there is more. */
extern __thread bool ra_inside;

static inline void count(_Atomic uint64_t *counter, uint64_t n) {
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* Is there anybody to take hints out of the ring? */
static inline bool has_helper(void) {
    return atomic_load_explicit(&ra.helper, memory_order_relaxed) != 0;
}

/* Whoever goes over so much leaves nothing of what it began with for the next. */
static inline bool fills_memory(double bytes) {
    return bytes >= 0.9 * (double)ra.memory;
}

/* So much is left behind the program at most, which waits then until nearly all of it is
 * written: disks position their heads for each change from reading to writing. */
static inline uint64_t behind_most(void) {
    const uint64_t most = 64 << 20;
    const uint64_t share = ra.memory / 10 * 3;
    return share < most ? share : most;
}

/* So much of what is dirty is written together, while the program goes on: where the disks
 * keep up with it, it need not wait for them. */
static inline uint64_t written_together(void) {
    return behind_most() / 3;
}

/* A program that waits goes on when no more than this is behind it. */
static inline uint64_t behind_least(void) {
    return behind_most() / 12;
}

/* Of what is behind, so much is not any more. Never below 0: an entry that its thread
 * left half written may say less or more than was added. */
static inline void take_off_behind(uint64_t bytes) {
    uint64_t behind = atomic_load_explicit(&ra.behind, memory_order_relaxed);
    while (bytes && !atomic_compare_exchange_weak_explicit(
                        &ra.behind, &behind, behind > bytes ? behind - bytes : 0,
                        memory_order_relaxed, memory_order_relaxed))
        ;
}

/* A release is done, or there is nothing to be done for it. */
static inline void settle_behind(uint64_t bytes) {
    take_off_behind(bytes);
    count(&ra.given_back, 1);
    if (atomic_load_explicit(&ra.behind, memory_order_relaxed) <= behind_least())
        atomic_store(&ra.catching_up, false);
}

/* Is this a child, without a helper? */
static inline bool is_child(void) {
    return !*ra.is_original;
}

/* A field of a plan, whose memory may become another plan's at any time: what is
 * checked must be what is used then. */
static inline uint64_t once(const uint64_t *field) {
    return __atomic_load_n(field, __ATOMIC_RELAXED);
}

/* The loop in whose iterations a walk across rows is in places apart; below 0: it is
 * none, in a plan whose memory is another's by now. */
static inline int places_level(const struct ra_plan *p, uint32_t i) {
    return __atomic_load_n(&p->dense_from[i], __ATOMIC_RELAXED) - 1;
}

/* Of a count that is not to be believed there may be more than 64 bits hold. */
static inline uint64_t whole(double bytes) {
    return bytes < 9e18 ? (uint64_t)bytes : (uint64_t)9e18;
}

/* The program's floating-point environment: what it has masked, how it rounds, and
 * which exceptions it has seen. The layer reckons in one of its own, in functions
 * that are not inlined beside these: compilers move arithmetic across them. */
static inline uint32_t own_arithmetic(void) {
    const uint32_t masked = 0x1f80, flags = 0x3f, before = __builtin_ia32_stmxcsr();
    if ((before & ~flags) != masked)
        __builtin_ia32_ldmxcsr(masked);
    return before;
}

static inline void programs_arithmetic(uint32_t before) {
    __builtin_ia32_ldmxcsr(before);
}

/* A plan that is in use keeps its memory. */
static inline void use(struct ra_plan *p) {
    if (!atomic_load_explicit(&p->is_used, memory_order_relaxed))
        atomic_store_explicit(&p->is_used, true, memory_order_relaxed);
}

static inline uint64_t magnitude(int64_t v) {
    return v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
}

/* The number at `*text`, which is left behind its digits (of base 10 or 16); the largest one
 * where it is larger. Not by strtoull or sscanf: under these names the headers of a C library
 * call functions that an older one, or another's, does not have. */
static inline uint64_t number_at(const char **text, uint64_t base) {
    uint64_t number = 0;
    for (;; ++*text) {
        const char c = **text;
        const uint64_t digit = c >= '0' && c <= '9' ? (uint64_t)(c - '0')
            : c >= 'a' && c <= 'f' ? (uint64_t)(c - 'a') + 10 : base;
        if (digit >= base)
            return number;
        number = number > (UINT64_MAX - digit) / base ? UINT64_MAX : number * base + digit;
    }
}

/* ---- The bit vector ---------------------------------------------------- */

static inline bool bit(const uint8_t *bits, uint64_t page) {
    return __atomic_load_n(&bits[page >> 3], __ATOMIC_RELAXED) >> (page & 7) & 1;
}

static inline void set_bit(uint8_t *bits, uint64_t page) {
    __atomic_fetch_or(&bits[page >> 3], (uint8_t)(1u << (page & 7)), __ATOMIC_RELAXED);
}

static inline void clear_bit(uint8_t *bits, uint64_t page) {
    __atomic_fetch_and(&bits[page >> 3], (uint8_t)~(1u << (page & 7)), __ATOMIC_RELAXED);
}

static inline void set_bits(uint64_t first, uint64_t end) {
    while (first < end) {
        if ((first & 7) == 0 && end - first >= 8) {
            __atomic_store_n(&ra.bits[first >> 3], 0xff, __ATOMIC_RELAXED);
            first += 8;
        } else {
            set_bit(ra.bits, first++);
        }
    }
}

static inline void clear_bits(uint64_t first, uint64_t end) {
    for (; first < end; ++first)
        if (bit(ra.bits, first))
            clear_bit(ra.bits, first);
}

/* ---- Plans (plan.c) ------------------------------------------------------ */

/* From the first to the last iteration. Of a count that is not to be believed it may be
 * more than 64 bits hold. */
static inline int64_t moved_in(int64_t stride, uint64_t iterations) {
    return (int64_t)((uint64_t)stride * (iterations - 1));
}

/* Bytes between the first and the last address of the levels from `level` on,
 * below and above the start. */
static inline void spans(const struct ra_plan *p, const struct ra_stream *s, uint32_t level,
                         int64_t *below, int64_t *above) {
    *below = s->low;
    *above = s->high;
    for (uint32_t l = level; l < p->levels; ++l) {
        int64_t moved = moved_in(s->stride[l], p->count[l]);
        if (moved < 0)
            *below += moved;
        else
            *above += moved;
    }
}

/* The plan of a nest, made when it is new. */
struct ra_plan *plan_of(struct ra_site *site, const uint64_t *counts,
                        const struct ra_stream *streams, bool *is_new);
void expect_shifted(struct ra_site *site, struct ra_plan *p, struct ra_plan *last);
/* Nests that share their loops, such as the inner loops of a stencil, begin one after the
 * other, and go over the same arrays together: what is behind one may be what the other comes
 * to in the next iteration. Has `p` give back nothing before `other` has passed it, too.
 * Where they only follow one another it does so a little later. */
void keep_for(struct ra_plan *p, const struct ra_plan *other);
/* Do two streams come to the same addresses? */
bool meet(const struct ra_plan *p, const struct ra_stream *s, const struct ra_plan *other,
          const struct ra_stream *q);

/* ---- Hints on their way (ring.c) --------------------------------------------- */

/* That this thread has asked for so far. */
extern __thread uint64_t queued_pages;
/* No more is asked for as one range: more would be thrown out before its turn. */
static inline uint64_t range_most(void) {
    return 2 * ra.window;
}
/* First page from `first` on that is not believed in memory, or `end`. */
uint64_t first_missing(uint64_t first, uint64_t end);
bool enqueue(enum operation operation, uint64_t address, uint64_t bytes, uint32_t flags);
/* Asks for what is missing of these bytes. LOST: the ring is full. */
enum asked { NOTHING_MISSING, ASKED, LOST };
enum asked prefetch_range(uint64_t low, uint64_t high);
enum asked prefetch_as(enum operation operation, uint64_t low, uint64_t high);
/* Has the ring room for more than is left to releases? */
bool has_room(void);

/* ---- What is asked for ahead (advance.c), if not affine too (indices.c, small.c) */

/* Iterations from tick to tick. */
uint64_t strip_of(const struct ra_plan *p);
/* Iterations of the tick level done so far. */
uint64_t position(const struct ra_plan *p, const struct ra_frame *f);
/* Looks at what nests inside of this one have asked for since it began. */
void measure_inner(struct ra_plan *p, const struct ra_frame *f, uint64_t done);
/* Is this page in memory, as far as the kernel tells? Of anonymous memory it does not
 * know which was never touched. */
bool is_in_memory(uint64_t address);
/* Is any of what a nest writes, or else of what it reads only, missing, as far as a few
 * pages tell? */
bool is_missing_of(const struct ra_plan *p, bool written);
/* A program that computes in memory needs no threads: with them it would lose what the C
 * library saves in programs of one (locks of getc and malloc). They begin with a nest that
 * fills the memory, or where the memory was told, where something is missing of what a nest
 * or a copy reads (it may be of a mapped file), and as soon as anything was read from
 * storage. Looks at most once in a millisecond, but at each nest that takes long. Whether
 * to look again while this nest runs: something is missing of what it writes, which may be
 * of a file, or memory that nobody has touched. */
bool start_helper_if_wanted(const struct ra_plan *p, const void *from);
/* Looks, until something was, whether what a nest begins with is missing. */
void look_whether_missing(const struct ra_plan *p);
/* What was asked for ahead of this nest by the one before it need not be again. */
void begin_at_frontier(struct ra_plan *p, struct ra_frame *f);
/* Asks for what is ahead where so many iterations are done. What follows the nest is asked
 * for, too, unless another large nest has begun since this one: that is what followed it, and
 * is nearly over itself where the two share their loops, or lies inside this one. */
void go_on(struct ra_site *site, const struct ra_plan *p, struct ra_frame *f, uint64_t done,
           bool is_last);
/* What the next iterations touch was asked for only now: lets the helper pass it on
 * first. A program that overtakes it faults, and the kernel reads what lies around
 * the fault, and, from there on, ahead of it: instead of what was asked for. Not for
 * long unless it `has_asked` for any of that. */
void let_helper_go_first(uint64_t turn, bool has_asked);
/* A nest too small to be worth looking at by itself: many of them in a row are
 * one walk. Extrapolates it, and asks to be called again half a window later. */
void small_nest(struct ra_site *site, struct ra_frame *f, struct ra_plan *p);
void look_at_indices(struct ra_site *site, const struct ra_plan *p, struct ra_frame *f,
                     uint64_t done);
void prefetch_targets_of_all(struct ra_site *site, const struct ra_stream *s, uint64_t iterations);

/* ---- Windows of small nests, in which they need not call (hint.c) ----------- */

/* In this order another thread finds a part of the old window or of the new one meanwhile,
 * nothing beyond. */
static inline void set_window(struct ra_site *site, uint64_t low, uint64_t span) {
    if (span < once(&site->span))
        __atomic_store_n(&site->span, span, __ATOMIC_RELEASE);
    __atomic_store_n(&site->low, low, __ATOMIC_RELEASE);
    __atomic_store_n(&site->span, span, __ATOMIC_SEQ_CST);
}

/* Is the site among those whose windows are closed again? There is room for so many only. */
bool list_site(struct ra_site *site);
/* The window of a small nest that calls in vain: twice as large as it is, until it is as large
 * as the memory. What goes over more than that need not be in memory, and calls again. */
uint64_t wider_window(struct ra_site *site);
/* Small nests call again, wherever they are: all of them, or those whose windows are wide
 * although they are no walks. */
void close_windows(bool all);

/* ---- The helper (helper.c) and what it hands to the releaser (release.c) -- */

void *helper(void *nothing);
void do_without(void);
/* The same, and says why in the statistics. */
void do_without_since(const char *why);
/* A filter may kill for the layer's calls; NULL: there is none. One may also have been
 * put on after the layer began, before its threads do. */
const char *why_not_call(void);
uint64_t now_ns(void);
/* Sleeps, as nanosleep does, but is no place where the thread may be cancelled. */
void nap(long ns);

struct release {
    uint64_t address, bytes, ns, offset;
    uint64_t owed; /* bytes of ra.behind that it stands for */
    int fd; /* of the file, where pages may be dirty; below 0: none */
    bool is_lazy; /* RELEASE_LAZY */
    bool is_last; /* of its file, which is closed then */
    bool is_kept; /* to be written and split into pages, not given back: a walk comes to it */
};

/* What a read fault maps around its page (fault_around_bytes, mm/memory.c, Linux 6.18). */
#define FAULT_AROUND_BYTES (UINT64_C(64) << 10)

void *releaser(void *nothing);
void queue_release(const struct release *one);
/* No release will name the file any more: it is closed after those that do. */
void retire_file(int fd);

/* Bytes that this thread has asked the devices for so far. */
uint64_t own_reads(void);
/* What walks across rows write there is mapped no longer. */
void forget_walks(uint64_t low, uint64_t high);

/* ---- The program's mappings, known to the helper (mappings.c) ------------ */

enum { CHUNK_PAGES = 512 }; /* looked at together at most */

struct region {
    uint64_t low, high;
    uint64_t hinted_low, hinted_high; /* what hints have touched of it */
    bool is_file, is_shared;
    bool is_counted; /* what is read of the file shows in rusage */
    bool is_copied; /* private and writable: what is in it may be in no file */
    int fd; /* of the file, to look at what is cached and to start writing with; -1 unknown, -2 none */
    uint64_t offset;
    uint64_t inode;
    char path[PATH_BYTES];
};

/* Reads the mappings anew, but not too often. Another file may be mapped where one was,
 * or the same one from elsewhere on: what is on its way of the former says nothing of
 * the latter. */
void look_at_maps(void);
/* The mapping that holds the address, or the first above it. */
struct region *region_at(uint64_t address);
/* The mapping that holds the address; NULL: none. */
struct region *region_of(uint64_t address);
/* Opens a mapped file by its path; below 0 where that is another file by now. A FIFO
 * that has taken its place must not be waited for. */
int open_same(const char *path, uint64_t inode, int flags);
/* The file of a region; below 0: none that can be opened. */
int file_of_region(struct region *r);
/* Is any such file held open? */
bool holds_files(void);
/* Tells what is swapped; opened in the descriptor table of the thread that looks. */
void open_pagemap(void);
/* For up to CHUNK_PAGES pages: which are neither in memory nor on their way? */
bool find_missing(struct region *r, uint64_t address, uint64_t pages, uint8_t *missing);
/* Keeps the bit vector true: what the kernel has reclaimed loses its bit. */
void sweep(uint64_t pages_max);
/* Could all of the mappings that hints have touched be in memory? How far hints will
 * have gone over them in the end is not known before. */
bool may_fit(void);

/* ---- The layer's threads, and the end of the program (threads.c) --------- */

enum { THREAD_STACK_BYTES = 256 << 10 };

void start_helper(void);
/* With the signals that the caller has blocked; of as much stack as the program's
 * threads have where that is 0, else beside the thread-local data. */
bool start_thread(void *(*body)(void *), size_t stack_bytes);
/* What a thread of the layer does first. It runs where the program may, and as an ordinary
 * one, whatever thread has started it. */
void begin_thread(const char *name);
/* Whether it can be told when the program has ended; opens what tells in the table of
 * descriptors of the thread that will look. */
bool can_see_end(void);
/* The last thread left but a main thread that has ended? */
bool is_alone(void);
/* Tells the thread that ends the program to do so, or to end by itself. */
enum { ENDS_NOT_YET, ENDS_ALONE, ENDS_PROGRAM };
void tell_ender(uint32_t what);

/* ---- What loops leave behind (behind.c) ------------------------------------- */

/* From where on each stream is to be given back. */
void begin_releases(const struct ra_plan *p, struct ra_frame *f);
/* What this thread's nest is still to come to is not given back by others'. */
void note_still(const struct ra_plan *p, const struct ra_frame *f);
/* What lies behind the streams' trailing references. */
void release_behind(const struct ra_plan *p, struct ra_frame *f);
/* What walks across rows leave: while a nest runs, from one of its executions to
 * the next, and when another nest fills the memory. */
void release_walks(const struct ra_plan *p, struct ra_frame *f);
void release_walks_between(struct ra_plan *p, struct ra_plan *last);
void release_left(const struct ra_plan *p);
/* Does another stream of a walk of small nests, as fast as this one, come to where this
 * one was, before a quarter of the memory has gone by? The rows of a stencil do; those of a sparse matrix, indices and values, go
 * different ways. */
bool is_followed(const struct ra_plan *p, const struct ra_plan *last, uint32_t i, uint32_t streams);
/* A walk of small nests has come to its plan `p`. With its `last` one: it goes over more
 * than the memory, so that behind it nothing is left for when it begins anew. */
void release_small(struct ra_plan *p, const struct ra_plan *last);
/* A nest with walks has gone to its end. */
void walks_ended(struct ra_plan *p);
/* Where more than is good for the memory waits to be released, waits until little does. */
void let_releases_catch_up(void);

/* ---- Long pieces of files (windows.c) --------------------------------------- */

/* Pages of a piece of a file in the page cache, those on their way there among them; as
 * cachestat has them. */
struct cached {
    uint64_t all, dirty, being_written, evicted, recently_evicted;
};
/* False where the kernel does not tell (before Linux 6.5, or of a file that the user may
 * not write). */
bool look_at_cache(int fd, uint64_t offset, uint64_t bytes, struct cached *pages);
/* Bytes of it; 0 where the kernel does not tell. */
uint64_t cached(int fd, uint64_t offset, uint64_t bytes);
/* A piece of a file was asked for; it may go on where that ends. */
void may_go_on(const char *path, uint64_t inode, uint64_t from, uint64_t to);
/* The file is mapped no longer. */
void leave_file(const char *path, uint64_t inode);
/* Asks for bytes of a file that go on where others ended; returns how many, from
 * the first on, have been asked for, 0 where they do not go on. */
uint64_t follow(const char *path, uint64_t inode, uint64_t offset, uint64_t bytes);

/* ---- Through the manager of the machine (disclose.c) ----------------------- */

/* Whether a manager serves all programs, where the hint library looks for one. */
bool is_manager_there(void);
/* Loads the hint library if so. */
void load_library(void);
/* Discloses a range of a file at `path`, missing when `front` pages were hinted;
 * false: the kernel is to be asked. */
bool disclose(const char *path, uint64_t inode, uint64_t offset, uint64_t bytes, uint32_t front);
/* Says what of it the program has used by now. */
void consume_behind(void);
/* The file is mapped no longer: it is closed, and what was disclosed of it not wanted. */
void leave_disclosed(const char *path, uint64_t inode);
/* Is any file held open for what is disclosed of it? */
bool holds_disclosed(void);
/* Is a thread of that name the library's? */
bool is_library_thread(const char *name);

/* ---- Beginning and end (start.c) ------------------------------------------ */

void start_up(void);
/* Grows whenever this process reads from storage, or waits for what the kernel
 * is reading for it: by its own faults, the kernel's readahead, or prefetches. */
uint64_t storage_reads(void);
/* Major page faults of this thread so far. */
uint64_t own_faults(void);

#pragma GCC visibility pop
#endif
