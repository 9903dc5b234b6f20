/* The program's side: hints of the running loops, of which the unnecessary ones
 * are dropped (Mowry, Demke and Krieger 1996, section 2.4) and the others put
 * into a ring for the helper.
 *
 * The program's own threads enter the kernel here to wake the helper, or to wait for it
 * a little (nanosleep), and to learn what is in memory (mincore of what a nest begins
 * with, and of indices) or was read from storage (getrusage): never to ask for pages. What
 * begins the layer and its threads does more. Where the ring is full the hint is lost.
 * Every failure ends as if this layer were absent. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    /* Of a stream at a time. A bound may not be to be believed: the guard of a loop
     * that runs no times is no part of its count, which is 2^32 or 2^64 less
     * something then. */
    RANGES_PER_ADVANCE_MAX = 4096,
    PLACES_PER_ADVANCE_MAX = 65536, /* looked at, whatever is asked for there */
    LONG_RANGES_MAX = 8,            /* as long as a range is at most */
    CHAIN_MAX = 8,
    HELPER_WAITS_MAX = 120, /* of some 80 microseconds, */
    SHORT_WAITS_MAX = 25,   /* where it passes on nothing meanwhile, or only others' hints */
};
/* Read though nothing wants it, where it parts two rows (the border of a grid):
 * a disk does so in less time than it takes to position its heads. */
static const uint64_t BRIDGED_BYTES = 16 << 10;
/* Between two looks at whether small nests want a helper. */
static const uint64_t WANTS_HELPER_NS = 1 * 1000000ull;

/* As the pass has them. */
_Static_assert(offsetof(struct ra_frame, count) == 72 * sizeof(uint64_t), "where parameters are");
_Static_assert(sizeof(struct ra_site) == 104, "the type of a site");

static __thread struct ra_plan *previous; /* this thread's last large nest */
static __thread uint64_t queued_pages;    /* that this thread has asked for so far */
/* How far that one had prefetched the nests behind it, the first of them `first`:
 * the next nest goes on from there. */
static __thread struct {
    struct ra_plan *first, *next;
    uint64_t next_cursor, next_bytes;
} frontier;

uint64_t first_missing(uint64_t first, uint64_t end) {
    while (first < end) {
        if ((first & 63) == 0 && end - first >= 64 &&
            __atomic_load_n((const uint64_t *)(const void *)&ra.bits[first >> 3],
                            __ATOMIC_RELAXED) == ~(uint64_t)0)
            first += 64;
        else if ((first & 7) == 0 && __atomic_load_n(&ra.bits[first >> 3], __ATOMIC_RELAXED) == 0xff)
            first += 8;
        else if (bit(ra.bits, first))
            ++first;
        else
            return first;
    }
    return end;
}

/* ---- The ring ----------------------------------------------------------- */

static void wake_helper(void) {
    if (atomic_load_explicit(&ra.asleep, memory_order_relaxed) &&
        atomic_exchange_explicit(&ra.asleep, 0, memory_order_relaxed)) {
        int saved = errno;
        syscall(SYS_futex, &ra.asleep, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        errno = saved;
    }
}

bool enqueue(enum operation operation, uint64_t address, uint64_t bytes, uint32_t flags) {
    for (;;) {
        uint64_t at = atomic_load_explicit(&ra.ring_head, memory_order_relaxed);
        struct entry *e = &ra.ring[at & (RING_ENTRIES - 1)];
        uint64_t turn = atomic_load_explicit(&e->turn, memory_order_acquire);
        if (turn < at)
            return false; /* full */
        if (turn == at && atomic_compare_exchange_weak_explicit(&ra.ring_head, &at, at + 1,
                                                                memory_order_relaxed,
                                                                memory_order_relaxed)) {
            e->address = address;
            e->bytes = bytes;
            e->operation = operation;
            e->flags = flags;
            /* Unless the helper has waited too long for it, and passed it over. */
            if (!atomic_compare_exchange_strong_explicit(&e->turn, &turn, at + 1,
                                                         memory_order_release,
                                                         memory_order_relaxed))
                return false;
            wake_helper();
            return true;
        }
    }
}

/* No more is asked for as one range: more would be thrown out before its turn. */
static uint64_t range_most(void) {
    return 2 * ra.window;
}

/* A block prefetch (section 2.4): "we check each page until one is found that
 * is not in memory, then pass all remaining pages to the OS". */
void prefetch_as(enum operation operation, uint64_t low, uint64_t high) {
    /* What is asked for of nobody would be served much later, and believed in memory. */
    if (high <= low || high > ADDRESSES || !has_helper())
        return;
    if (high - low > range_most())
        high = low + range_most();
    uint64_t first = low >> PAGE_SHIFT, end = (high + PAGE - 1) >> PAGE_SHIFT;
    uint64_t missing = first_missing(first, end);
    count(&ra.count.hinted, end - first);
    count(&ra.count.filtered, missing - first);
    if (missing == end)
        return;
    uint32_t front = (uint32_t)atomic_load_explicit(&ra.count.hinted, memory_order_relaxed);
    if (enqueue(operation, missing << PAGE_SHIFT, (end - missing) << PAGE_SHIFT, front)) {
        set_bits(missing, end);
        count(&ra.count.queued, end - missing);
        queued_pages += end - missing;
    } else {
        count(&ra.count.lost, end - missing);
    }
}

void prefetch_range(uint64_t low, uint64_t high) {
    prefetch_as(PREFETCH, low, high);
}

/* ---- Prefetching along a plan --------------------------------------------- */

struct budget {
    int ranges, places;
    bool is_later; /* not at the beginning of the nest */
};

/* A place that the walk comes back to: with its neighbours in the direction in
 * which they will be wanted, the next ones before these are used up. And with what
 * the walk has gone over since it was last here: that was when the first of the
 * places came to a new page, the others do so at other times, and one may have
 * come to a new piece and gone over the first page of it. */
static void prefetch_around(const struct ra_plan *p, uint32_t i, uint64_t low, uint64_t high,
                            bool is_later) {
    const uint64_t around = p->around[i];
    int drift = atomic_load_explicit(&p->drift[i], memory_order_relaxed);
    /* Within a nest the window is ahead already. */
    const bool is_within = p->walk_level[i] < RA_LEVELS_MAX;
    const uint64_t ahead = is_within ? 0 : around / 2;
    const uint64_t back = is_within && is_later && low > 2 * around
        ? PAGE + magnitude(p->stream[i].stride[p->walk_level[i]]) : 0;
    if (drift > 0 && high - low < around) {
        high = (high + ahead + around - 1) & ~(around - 1);
        low -= back;
    } else if (drift < 0 && high - low < around && low > 2 * around) {
        low = (low - ahead) & ~(around - 1);
        high += back;
    }
    prefetch_range(low, high);
}

/* How many iterations further on is the next page? */
static uint64_t to_next_page(uint64_t at, int64_t stride) {
    const uint64_t room = stride < 0 ? at & (PAGE - 1) : (PAGE - 1) - (at & (PAGE - 1));
    return stride == 0 || magnitude(stride) > room ? 1 : room / magnitude(stride) + 1;
}

static void prefetch_inner(const struct ra_plan *p, uint32_t i, uint32_t level, uint64_t address,
                           struct budget *budget) {
    const struct ra_stream *s = &p->stream[i];
    if (budget->ranges <= 0)
        return;
    if (p->dense_from[i] <= level) {
        int64_t below, above;
        spans(p, s, level, &below, &above);
        budget->ranges--;
        prefetch_around(p, i, address + (uint64_t)below, address + (uint64_t)above,
                        budget->is_later);
        return;
    }
    const int64_t stride = s->stride[level];
    const uint64_t most = stride || p->count[level] == 0 ? p->count[level] : 1;
    uint64_t at;
    for (uint64_t n = 0; n < most && budget->ranges > 0 && budget->places-- > 0;
         n += to_next_page(at, stride)) {
        at = address + n * (uint64_t)stride;
        prefetch_inner(p, i, level + 1, at, budget);
    }
}

/* ---- Nests beside the plan's ------------------------------------------------ */

/* Bytes that nests inside of this one ask for in an iteration of the tick level. */
static double inner_bytes(const struct ra_plan *p) {
    return (double)atomic_load_explicit(&p->inner, memory_order_relaxed);
}

/* All that comes into memory in an iteration of the tick level. */
static double bytes_of_iteration(const struct ra_plan *p) {
    return p->bytes_per_iteration + inner_bytes(p);
}

/* At most a quarter of what 64 bits hold. */
static uint64_t bytes_in_all(const struct ra_plan *p) {
    const double inner = inner_bytes(p) * (double)p->total, most = (double)(UINT64_MAX / 8);
    const uint64_t own = p->bytes < UINT64_MAX / 8 ? p->bytes : UINT64_MAX / 8;
    return own + (inner < most ? (uint64_t)inner : UINT64_MAX / 8);
}

/* Iterations from tick to tick. With nests inside, no more than bring in a quarter of
 * the window: what is next of this one must not wait for longer. */
static uint64_t strip_of(const struct ra_plan *p) {
    const double inner = inner_bytes(p), most = (double)ra.window / 4;
    if (inner * (double)p->strip <= most)
        return p->strip;
    return inner < most ? (uint64_t)(most / inner) : 1;
}

/* How many iterations of the tick level are asked for ahead: a window's worth, but
 * two strips at least. */
static uint64_t look_ahead(const struct ra_plan *p, uint64_t strip) {
    const double inner = inner_bytes(p), all = p->bytes_per_iteration + inner;
    if (inner <= 0 || (double)p->look_ahead * all <= (double)ra.window)
        return p->look_ahead;
    const uint64_t window = (uint64_t)((double)ra.window / all), least = 2 * strip;
    return window > least ? window : least < p->look_ahead ? least : p->look_ahead;
}

static uint64_t burst_of(const struct ra_plan *p, uint64_t ahead) {
    return ahead < p->look_ahead ? ahead / 2 : p->burst;
}

/* Nests whose bounds are known only inside of this one (rows of a sparse matrix), and
 * others that share its loops, are no part of it, but what they bring in comes between
 * what it asks for and its turn. Since this nest began they have asked for so much, of
 * which a window and a block of a quarter of it may still be ahead of them. */
static void measure_inner(struct ra_plan *p, const struct ra_frame *f, uint64_t done) {
    if (done <= f->begun_at)
        return;
    const double iterations = (double)(done - f->begun_at);
    const double asked = (double)((queued_pages - f->others_from) << PAGE_SHIFT);
    const double ahead = 1.25 * (double)ra.window;
    const double now = asked > ahead ? (asked - ahead) / iterations : 0;
    /* Less than the last time is to be believed only after a while. */
    if (now > inner_bytes(p) || iterations * bytes_of_iteration(p) > 2 * (double)ra.window)
        atomic_store_explicit(&p->inner, now < UINT32_MAX ? (uint32_t)now : UINT32_MAX,
                              memory_order_relaxed);
}

/* Section 2.3 "prefetches several pages at a time for references with spatial
 * locality": whole blocks, as far as the stream goes. Where nests inside bring in more
 * than this one, long ones would be thrown out before their turn. */
static void prefetch_blocks(const struct ra_plan *p, uint32_t i, uint64_t low, uint64_t high) {
    int64_t below, above;
    const bool is_short = p->block > SMALL_BYTES && inner_bytes(p) > p->bytes_per_iteration;
    const uint64_t mask = (is_short ? SMALL_BYTES : p->block) - 1;
    if (p->way[i] < 0 && high - low > range_most())
        low = high - range_most(); /* where it begins */
    if (p->way[i]) {
        spans(p, &p->stream[i], 0, &below, &above);
        uint64_t first = p->stream[i].base + (uint64_t)below;
        uint64_t end = p->stream[i].base + (uint64_t)above;
        if (p->way[i] > 0) {
            high = (high + mask) & ~mask;
            high = high < end ? high : end;
        } else {
            low &= ~mask;
            low = low > first ? low : first;
        }
    }
    prefetch_as(p->passed >> i & 1 ? PREFETCH_PASSED : PREFETCH, low, high);
}

/* A piece of the tick level's iterations, inside one row of them. */
struct piece {
    uint64_t from, first, n; /* counted through all rows; in the row; how many */
    uint64_t index[RA_LEVELS_MAX];
};

static struct piece piece_at(const struct ra_plan *p, uint64_t from, uint64_t to) {
    const uint32_t t = p->tick_level;
    const uint64_t count = once(&p->count[t]), length = count ? count : 1;
    struct piece piece = {.from = from, .first = from % length};
    uint64_t row = from / length;
    piece.n = length - piece.first < to - from ? length - piece.first : to - from;
    for (uint32_t l = t; l-- > 0;) {
        const uint64_t of_loop = once(&p->count[l]), outer = of_loop ? of_loop : 1;
        piece.index[l] = row % outer;
        row /= outer;
    }
    return piece;
}

/* Rows of a walk in places apart: looks only when it comes to new pages. */
static void advance_walk(const struct ra_plan *p, uint32_t i, const struct piece *piece,
                         uint64_t address, struct budget *budget) {
    const uint32_t t = p->tick_level;
    const int64_t stride = p->stream[i].stride[t];
    if (stride == 0) {
        prefetch_inner(p, i, t + 1, address, budget);
        return;
    }
    uint64_t at;
    for (uint64_t m = 0; m < piece->n && budget->ranges > 0 && budget->places-- > 0;
         m += to_next_page(at, stride)) {
        at = address + m * (uint64_t)stride;
        prefetch_inner(p, i, t + 1, at, budget);
        budget->is_later = true;
    }
}

static void advance_stream(const struct ra_plan *p, uint32_t i, uint64_t from, uint64_t to) {
    struct budget budget = {.ranges = RANGES_PER_ADVANCE_MAX, .places = PLACES_PER_ADVANCE_MAX,
                            .is_later = from > 0};
    const struct ra_stream *s = &p->stream[i];
    const uint32_t t = p->tick_level;
    uint64_t low = 0, high = 0, seen_at = ~(uint64_t)0;
    while (from < to && budget.ranges > 0 && budget.places-- > 0) {
        const struct piece piece = piece_at(p, from, to);
        uint64_t address = s->base + piece.first * (uint64_t)s->stride[t];
        for (uint32_t l = 0; l < t; ++l)
            address += piece.index[l] * (uint64_t)s->stride[l];
        from += piece.n;
        if (p->dense_from[i] > t) {
            /* Whole rows that begin where the last one did touch what it did. */
            if (piece.n < p->count[t] || address >> PAGE_SHIFT != seen_at)
                advance_walk(p, i, &piece, address, &budget);
            seen_at = piece.n < p->count[t] ? ~(uint64_t)0 : address >> PAGE_SHIFT;
            budget.is_later = true;
            continue;
        }
        int64_t below, above, moved = moved_in(s->stride[t], piece.n);
        spans(p, s, t + 1, &below, &above);
        if (moved < 0)
            below += moved;
        else
            above += moved;
        const uint64_t row_low = address + (uint64_t)below, row_high = address + (uint64_t)above;
        const uint64_t both_low = row_low < low ? row_low : low;
        const uint64_t both_high = row_high > high ? row_high : high;
        if (row_low <= high + BRIDGED_BYTES && row_high + BRIDGED_BYTES >= low && high != 0 &&
            both_high - both_low <= range_most()) {
            low = both_low;
            high = both_high;
            continue;
        }
        if (high != 0)
            prefetch_blocks(p, i, low, high);
        budget.ranges -= high - low > range_most() / 2 ? RANGES_PER_ADVANCE_MAX / LONG_RANGES_MAX : 1;
        low = row_low;
        high = row_high;
    }
    if (high != 0)
        prefetch_blocks(p, i, low, high);
}

/* Prefetches iterations [from, to) of the tick level, counted through the loops
 * outside of it: the pipeline does not drain at the end of a row. One stream
 * after the other, for disks to read long pieces of each. */
static void advance(const struct ra_plan *p, uint64_t from, uint64_t to) {
    if (p->count[p->tick_level] == 0)
        return; /* a bound that was not to be believed, or a plan in the making */
    for (uint32_t i = 0; i < p->streams; ++i)
        if (!(p->stream[i].flags & RA_FLAG_INDIRECT))
            advance_stream(p, i, from, to);
}

/* Iterations of the tick level done so far. */
static uint64_t position(const struct ra_plan *p, const struct ra_frame *f) {
    uint64_t n = 0;
    for (uint32_t l = 0; l <= p->tick_level; ++l)
        n = n * p->count[l] + f->index[l];
    return n;
}

/* What is left of the window behind the end of this nest goes to the nests that
 * followed it the last time. */
static void prefetch_next(const struct ra_plan *p, struct ra_frame *f, uint64_t done) {
    double left = (double)(p->total - done) * bytes_of_iteration(p);
    if (!f->next && f->next_bytes == 0)
        f->next = atomic_load_explicit(&p->next, memory_order_acquire);
    for (int links = 0; f->next && links < CHAIN_MAX; ++links) {
        struct ra_plan *n = f->next;
        double room = (double)ra.window - left - (double)f->next_bytes;
        if (room <= 0)
            return;
        const double each = bytes_of_iteration(n);
        uint64_t to = n->total;
        if (each > 0 && room / each < (double)to)
            to = (uint64_t)(room / each);
        if (to <= f->next_cursor ||
            (to < n->total && to - f->next_cursor < burst_of(n, look_ahead(n, strip_of(n)))))
            return;
        advance(n, f->next_cursor, to); /* its indices may be gone by then */
        f->next_cursor = to;
        if (to < n->total)
            return;
        f->next_bytes += bytes_in_all(n) + 1;
        f->next_cursor = 0;
        f->next = atomic_load_explicit(&n->next, memory_order_acquire);
        if (n == p)
            f->next = NULL;
    }
}

/* Has anything been missing so far? Until then nothing is waited for: all may be in
 * memory. */
static bool was_missing(void) {
    return atomic_load_explicit(&ra.was_missing, memory_order_relaxed) ||
           atomic_load_explicit(&ra.count.issued, memory_order_relaxed) != 0;
}

/* Is the first page of any stream missing? */
static bool begins_missing(const struct ra_plan *p) {
    unsigned char there;
    bool is_missing = false;
    const int saved = errno;
    for (uint32_t i = 0; i < p->streams && !is_missing; ++i) {
        const uint64_t page = p->stream[i].base & ~(PAGE - 1);
        is_missing = !(p->stream[i].flags & RA_FLAG_INDIRECT) &&
                     mincore((void *)(uintptr_t)page, PAGE, &there) == 0 && !(there & 1);
    }
    errno = saved;
    return is_missing;
}

void let_helper_go_first(uint64_t turn, bool has_asked) {
    if (atomic_load_explicit(&ra.served, memory_order_acquire) >= turn || !was_missing())
        return;
    int saved = errno;
    const uint64_t before = atomic_load_explicit(&ra.served, memory_order_relaxed);
    uint64_t served = before;
    for (int waits = 0; waits < (has_asked ? HELPER_WAITS_MAX : SHORT_WAITS_MAX) &&
                        atomic_load(&ra.active) && served < turn &&
                        (waits < SHORT_WAITS_MAX || served != before);
         ++waits) {
        nap(20000);
        served = atomic_load_explicit(&ra.served, memory_order_acquire);
    }
    errno = saved;
}

static void go_on(struct ra_site *site, const struct ra_plan *p, struct ra_frame *f,
                  uint64_t done) {
    const uint64_t given = f->strip[p->tick_level], before = queued_pages;
    const uint64_t strip = given < p->count[p->tick_level] ? given : p->strip;
    const uint64_t ahead = look_ahead(p, strip);
    const uint64_t next_tick = strip < p->total - done ? done + strip : p->total;
    uint64_t to = done + ahead;
    if (to > p->total)
        to = p->total;
    if (f->asked_from < next_tick)
        let_helper_go_first(f->asked_turn, true);
    /* In bursts: disks that also write, or serve several streams, position
     * their heads once for each. */
    if (to > f->cursor && (to == p->total || to - f->cursor >= burst_of(p, ahead))) {
        advance(p, f->cursor, to);
        f->asked_from = f->cursor;
        f->asked_turn = atomic_load_explicit(&ra.ring_head, memory_order_relaxed);
        f->cursor = to;
    }
    if (f->asked_from < next_tick)
        let_helper_go_first(f->asked_turn, queued_pages != before);
    if (p->is_indirect) {
        const bool is_late = f->looked < next_tick;
        const uint64_t asked = queued_pages;
        look_at_indices(site, p, f, done);
        if (is_late)
            let_helper_go_first(atomic_load_explicit(&ra.ring_head, memory_order_relaxed),
                                queued_pages != asked);
    }
    if (f->cursor == p->total) {
        prefetch_next(p, f, done);
        frontier.first = atomic_load_explicit(&p->next, memory_order_acquire);
        frontier.next = f->next;
        frontier.next_cursor = f->next_cursor;
        frontier.next_bytes = f->next_bytes;
    }
    f->others_from += queued_pages - before;
}

/* ---- What the program calls ------------------------------------------------ */

void list_site(struct ra_site *site) {
    if (site->is_listed)
        return;
    site->is_listed = 1;
    uint32_t at = atomic_fetch_add(&ra.site_count, 1);
    if (at < PLANS_MAX)
        atomic_store(&ra.sites[at], site);
}

/* Strips of a quarter of the window: of the loop to tick in or, where that is
 * shorter, of one outside of it. Its ticks would else never come, however long
 * the nest is. */
static void begin_with_long_strips(const struct ra_site *site, const struct ra_plan *p,
                                   struct ra_frame *f) {
    const uint64_t times = ra.window / 4 / ra.tick_bytes;
    uint32_t l = p->tick_level;
    uint64_t strip = p->strip >= ~(uint64_t)0 / times ? ~(uint64_t)0 : p->strip * times;
    for (uint64_t n; l > 0 && strip >= (n = once(&p->count[l])); --l)
        strip = n ? strip / n : strip;
    for (;; --l) {
        if (site->strip_mined >> l & 1) {
            f->strip[l] = strip ? strip : 1;
            return;
        }
        if (l == 0)
            return;
        strip = 1;
    }
}

/* Small nests by themselves, those of a program that computes in memory, need no threads.
 * As soon as something was read from storage they do: other nests may never come. */
static void start_helper_if_reading(void) {
    static _Atomic uint64_t looked_ns;
    const uint64_t now = now_ns();
    if (now - atomic_load_explicit(&looked_ns, memory_order_relaxed) < WANTS_HELPER_NS)
        return;
    atomic_store_explicit(&looked_ns, now, memory_order_relaxed);
    if (storage_reads() != ra.reads_at_start)
        start_helper();
}

/* A nest that is hinted begins. */
static __attribute__((noinline)) void begin_active(struct ra_site *site, struct ra_frame *f) {
    count(&ra.count.begins, 1);
    bool is_new;
    struct ra_plan *p = f->plan = plan_of(site, f->count, f->streams, &is_new);
    if (p->bytes < SMALL_BYTES) {
        f->plan = RA_NOT_BEGUN;
        if (!has_helper())
            start_helper_if_reading();
        small_nest(site, f, p);
        site->last = p;
        return;
    }
    if (!has_helper()) {
        start_helper();
        if (!atomic_load(&ra.active))
            return; /* it may not be */
    }
    if (previous && previous != p)
        atomic_store_explicit(&previous->next, p, memory_order_release);
    previous = p;
    release_left(p);
    if (is_new || !atomic_load_explicit(&p->next, memory_order_relaxed))
        expect_shifted(site, p, site->last);
    if (p->walks && site->last)
        release_walks_between(p, site->last);
    site->last = p;
    if (!was_missing() && begins_missing(p))
        atomic_store_explicit(&ra.was_missing, true, memory_order_relaxed);
    const uint64_t strip = strip_of(p);
    const uint32_t t = __atomic_load_n(&p->tick_level, __ATOMIC_RELAXED);
    /* Its memory may have become another plan's: no strip is empty, or the loop, which
     * counts to the end of its strip, would go on past it. */
    if (strip < once(&p->count[t]))
        f->strip[t] = strip ? strip : 1;
    f->cursor = 0;
    f->next = NULL;
    f->next_cursor = 0;
    f->next_bytes = 0;
    f->looked = f->looked_from = f->asked_from = f->asked_turn = 0;
    f->others_from = queued_pages;
    f->begun_at = 0;
    if (frontier.first == p) { /* indices were left to now */
        if (frontier.next_bytes > 0) { /* it is the first of them */
            const uint64_t own = bytes_in_all(p) + 1;
            f->cursor = p->total;
            f->next = frontier.next;
            f->next_cursor = frontier.next_cursor;
            f->next_bytes = frontier.next_bytes > own ? frontier.next_bytes - own : 0;
        } else if (frontier.next == p) {
            f->cursor = frontier.next_cursor;
        }
    }
    frontier.first = NULL;
    memset(f->index, 0, sizeof(f->index));
    begin_releases(p, f);
    go_on(site, p, f, 0);
}

/* A small nest needs no call wherever it is. */
static void open_window(struct ra_site *site) {
    __atomic_store_n(&site->span, ~(uint64_t)0, __ATOMIC_SEQ_CST);
}

/* While hints are off: everything that was hinted is in memory. Strips so long that they
 * cost nothing, for the case that something else is not. */
static void begin_inactive(struct ra_site *site, struct ra_frame *f) {
    list_site(site);
    open_window(site);
    /* Switched on meanwhile, by who resets the windows of sites then: perhaps not this one. */
    if (atomic_load(&ra.active))
        __atomic_store_n(&site->span, 0, __ATOMIC_RELAXED);
    bool is_new;
    if (!site->last)
        site->last = plan_of(site, f->count, f->streams, &is_new);
    if (site->last->bytes < ra.window)
        return;
    site->last = plan_of(site, f->count, f->streams, &is_new);
    begin_with_long_strips(site, site->last, f);
}

static void begin(struct ra_site *site, struct ra_frame *f) {
    int state = atomic_load_explicit(&ra.state, memory_order_acquire);
    if (state == 0) {
        start_up();
        state = atomic_load_explicit(&ra.state, memory_order_acquire);
    }
    if (state == 1 && is_child()) {
        do_without();
        state = 2;
    }
    if (state != 1) {
        /* Not where another thread is still starting the layer: there will be hints. */
        if (state == 2)
            open_window(site);
        return;
    }
    if (!atomic_load_explicit(&ra.active, memory_order_relaxed)) {
        begin_inactive(site, f);
        return;
    }
    const uint32_t arithmetic = own_arithmetic();
    begin_active(site, f);
    programs_arithmetic(arithmetic);
}

uint64_t ra_begin_2(struct ra_site *site, struct ra_frame *f) {
    for (uint32_t l = 0; l < site->levels; ++l)
        f->strip[l] = ~(uint64_t)0;
    if (ra_inside) {
        f->plan = RA_NOT_BEGUN;
        return 0;
    }
    f->plan = NULL;
    ra_inside = true;
    begin(site, f);
    ra_inside = false;
    for (uint32_t l = 0; l < site->levels; ++l)
        if (site->strip_mined >> l & 1 && f->strip[l] < f->count[l])
            return 1;
    return 0;
}

static __attribute__((noinline)) void tick(struct ra_site *site, struct ra_frame *f, uint64_t level) {
    struct ra_plan *p = f->plan;
    if (!p) {
        /* It began while everything was in memory. */
        bool is_new;
        p = plan_of(site, f->count, f->streams, &is_new);
        if (level > p->tick_level)
            return;
        for (uint32_t l = (uint32_t)level + 1; l <= p->tick_level; ++l)
            f->index[l] = 0;
        f->plan = p;
        f->next = NULL;
        f->next_cursor = f->next_bytes = 0;
        f->looked = f->looked_from = f->asked_from = f->asked_turn = 0;
        f->cursor = f->begun_at = position(p, f);
        f->others_from = queued_pages;
        begin_releases(p, f);
    }
    if (level > p->tick_level)
        return;
    for (uint32_t l = (uint32_t)level + 1; l <= p->tick_level; ++l)
        f->index[l] = 0; /* between two iterations of the level */
    count(&ra.count.ticks, 1);
    use(p);
    uint64_t done = position(p, f);
    measure_inner(p, f, done);
    go_on(site, p, f, done);
    if (f->cursor == p->total && p->walks)
        walks_ended(p);
    if (p->walks)
        release_walks(p, f);
    if (p->releases)
        release_behind(p, f);
    if (p->releases | p->walks)
        let_releases_catch_up();
}

void ra_tick(struct ra_site *site, struct ra_frame *f, uint64_t level) {
    if (!atomic_load_explicit(&ra.active, memory_order_relaxed) || f->plan == RA_NOT_BEGUN ||
        ra_inside)
        return;
    if (is_child()) {
        do_without();
        return;
    }
    ra_inside = true;
    const uint32_t arithmetic = own_arithmetic();
    tick(site, f, level);
    programs_arithmetic(arithmetic);
    ra_inside = false;
}
