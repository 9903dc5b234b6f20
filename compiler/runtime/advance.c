/* What is asked for ahead of a running loop: along its plan, and when that ends along
 * those of the nests that followed it the last time. */
#define _GNU_SOURCE
#include "internal.h"

enum {
    /* At a time, half of what the ring holds, of all streams together. A bound may not be
     * to be believed: the guard of a loop that runs no times is no part of its count, which
     * is 2^32 or 2^64 less something then. */
    RANGES_PER_ADVANCE_MAX = RING_ENTRIES / 2,
    PLACES_PER_ADVANCE_MAX = 16384, /* of a stream, looked at: in 0.4 ms where all are in memory */
    LONG_RANGES_MAX = 8,            /* as long as a range is at most */
    CHAIN_MAX = 8,
    SAMPLES_MAX = 16, /* pages of a stream that are looked at before there is a helper */
    HELPER_WAITS_MAX = 360, /* of some 80 microseconds, */
    STILL_WAITS_MAX = 120,  /* while it does not get on, as long as disks take to position */
    SHORT_WAITS_MAX = 25,   /* where it passes on others' hints only */
};
/* Read though nothing wants it, where it parts two rows (the border of a grid):
 * a disk does so in less time than it takes to position its heads. */
static const uint64_t BRIDGED_BYTES = 16 << 10;
/* Of so much one page is looked at, less than a three-hundredth of what it takes to read it all
 * from memory. */
static const uint64_t SAMPLED_BYTES = 4 << 20;

/* How far this thread's last nest had prefetched those behind it, the first of them `first`:
 * the next nest goes on from there. */
static __thread struct {
    struct ra_plan *first, *next;
    uint64_t next_cursor, next_bytes;
} frontier;

/* What a stream may still ask for, and look at, before the program goes on. */
struct budget {
    int ranges, places;
    bool is_later; /* not at the beginning of the nest */
    bool has_asked;
    bool is_cut; /* it does not last */
};

/* May one more range be looked at? */
static bool is_left(struct budget *budget) {
    budget->is_cut |= budget->ranges <= 0 || budget->places <= 0;
    --budget->places;
    return !budget->is_cut;
}

/* What the program finds in memory is no part of what is asked for: a walk comes back to its
 * places, row by row, and what is missing of them is behind those that are not. */
static void charge(struct budget *budget, enum asked asked, bool is_long) {
    budget->places -= is_long ? PLACES_PER_ADVANCE_MAX / LONG_RANGES_MAX : 0;
    if (asked == NOTHING_MISSING)
        return;
    budget->has_asked |= asked == ASKED;
    budget->is_cut |= asked == LOST;
    budget->ranges -= is_long ? RANGES_PER_ADVANCE_MAX / LONG_RANGES_MAX : 1;
    if (!has_room())
        budget->ranges = 0;
}

/* A place that the walk comes back to: with its neighbours in the direction in
 * which they will be wanted, the next ones before these are used up. And with what
 * the walk has gone over since it was last here: that was when the first of the
 * places came to a new page, the others do so at other times, and one may have
 * come to a new piece and gone over the first page of it. */
static enum asked prefetch_around(const struct ra_plan *p, uint32_t i, uint64_t low, uint64_t high,
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
    return prefetch_range(low, high);
}

/* How many iterations further on is the next page? */
static uint64_t to_next_page(uint64_t at, int64_t stride) {
    const uint64_t room = stride < 0 ? at & (PAGE - 1) : (PAGE - 1) - (at & (PAGE - 1));
    return stride == 0 || magnitude(stride) > room ? 1 : room / magnitude(stride) + 1;
}

static void prefetch_inner(const struct ra_plan *p, uint32_t i, uint32_t level, uint64_t address,
                           struct budget *budget) {
    const struct ra_stream *s = &p->stream[i];
    if (p->dense_from[i] <= level) {
        int64_t below, above;
        spans(p, s, level, &below, &above);
        charge(budget,
               prefetch_around(p, i, address + (uint64_t)below, address + (uint64_t)above,
                               budget->is_later),
               false);
        return;
    }
    const int64_t stride = s->stride[level];
    const uint64_t most = stride || p->count[level] == 0 ? p->count[level] : 1;
    uint64_t at;
    for (uint64_t n = 0; n < most && is_left(budget); n += to_next_page(at, stride)) {
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
uint64_t strip_of(const struct ra_plan *p) {
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
void measure_inner(struct ra_plan *p, const struct ra_frame *f, uint64_t done) {
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
static enum asked prefetch_blocks(const struct ra_plan *p, uint32_t i, uint64_t low, uint64_t high) {
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
    return prefetch_as(p->folios >> i & 1 ? PREFETCH_FOLIOS : PREFETCH, low, high);
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

/* Rows of a walk in places apart: looks only when it comes to new pages. Returns how many
 * of the piece's iterations are done with. */
static uint64_t advance_walk(const struct ra_plan *p, uint32_t i, const struct piece *piece,
                             uint64_t address, struct budget *budget) {
    const uint32_t t = p->tick_level;
    const int64_t stride = p->stream[i].stride[t];
    if (stride == 0) {
        prefetch_inner(p, i, t + 1, address, budget);
        return budget->is_cut ? 0 : piece->n;
    }
    uint64_t at;
    for (uint64_t m = 0; m < piece->n; m += to_next_page(at, stride)) {
        if (!is_left(budget))
            return m;
        at = address + m * (uint64_t)stride;
        prefetch_inner(p, i, t + 1, at, budget);
        if (budget->is_cut)
            return m;
        budget->is_later = true;
    }
    return piece->n;
}

/* False: they were not asked for. */
static bool ask_for_blocks(const struct ra_plan *p, uint32_t i, uint64_t low, uint64_t high,
                           struct budget *budget) {
    const enum asked asked = prefetch_blocks(p, i, low, high);
    charge(budget, asked, high - low > range_most() / 2);
    return asked != LOST;
}

/* Every other page, as far as a place is one: to ask for each by itself takes longer than to
 * read what lies between, which the kernel's readahead would do. */
static bool is_nearly_dense(const struct ra_plan *p, uint32_t i) {
    const int64_t stride = p->stream[i].stride[p->tick_level], most = 2 << PAGE_SHIFT;
    return p->dense_from[i] == p->tick_level + 1 && 0 < stride && stride <= most;
}

/* Returns the iteration that it came to. */
static uint64_t advance_stream(const struct ra_plan *p, uint32_t i, uint64_t from, uint64_t to,
                               struct budget *budget) {
    const struct ra_stream *s = &p->stream[i];
    const uint32_t t = p->tick_level;
    uint64_t low = 0, high = 0, range_from = from, seen_at = ~(uint64_t)0;
    while (from < to && is_left(budget)) {
        const struct piece piece = piece_at(p, from, to);
        uint64_t address = s->base + piece.first * (uint64_t)s->stride[t];
        for (uint32_t l = 0; l < t; ++l)
            address += piece.index[l] * (uint64_t)s->stride[l];
        if (p->dense_from[i] > t && !is_nearly_dense(p, i)) {
            /* Whole rows that begin where the last one did touch what it did. */
            const bool is_whole = piece.n == p->count[t];
            const uint64_t done = is_whole && address >> PAGE_SHIFT == seen_at
                                      ? piece.n : advance_walk(p, i, &piece, address, budget);
            from += done;
            if (done < piece.n)
                return from;
            seen_at = is_whole ? address >> PAGE_SHIFT : ~(uint64_t)0;
            budget->is_later = true;
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
        } else {
            if (high != 0 && !ask_for_blocks(p, i, low, high, budget))
                return range_from;
            range_from = from;
            low = row_low;
            high = row_high;
        }
        from += piece.n;
    }
    return high == 0 || ask_for_blocks(p, i, low, high, budget) ? from : range_from;
}

/* Prefetches iterations [from, to) of the tick level, counted through the loops
 * outside of it: the pipeline does not drain at the end of a row. One stream
 * after the other, for disks to read long pieces of each. Returns the iteration that
 * all of them came to: what is more than the ring holds, or than the program is to be
 * held up for, is left to the next tick. */
static uint64_t advance(const struct ra_plan *p, uint64_t from, uint64_t to) {
    if (p->count[p->tick_level] == 0)
        return to; /* a bound that was not to be believed, or a plan in the making */
    struct budget budget[RA_STREAMS_MAX];
    uint64_t at[RA_STREAMS_MAX], reached = to;
    int direct = 0, left = has_room() ? RANGES_PER_ADVANCE_MAX : 0;
    const uint32_t streams = p->streams;
    for (uint32_t i = 0; i < streams; ++i) {
        const bool is_direct = !(p->stream[i].flags & RA_FLAG_INDIRECT);
        direct += is_direct;
        at[i] = is_direct ? from : to;
        budget[i] = (struct budget){.places = PLACES_PER_ADVANCE_MAX};
    }
    /* Each a share of what may be asked for, then what others have left of theirs. */
    for (int round = 0; round < 2; ++round)
        for (uint32_t i = 0; i < streams; ++i) {
            if (at[i] >= to)
                continue;
            const int share = round == 0 ? RANGES_PER_ADVANCE_MAX / direct : left;
            const int ranges = share < left ? share : left;
            budget[i].ranges = ranges;
            budget[i].is_later = at[i] > 0;
            budget[i].is_cut = false;
            at[i] = advance_stream(p, i, at[i], to, &budget[i]);
            left -= ranges - budget[i].ranges;
        }
    for (uint32_t i = 0; i < streams; ++i) {
        /* An iteration that touches more places than are looked at: as far as these. */
        if (at[i] == from && budget[i].places <= 0 && !budget[i].has_asked)
            ++at[i];
        reached = at[i] < reached ? at[i] : reached;
    }
    return reached;
}

uint64_t position(const struct ra_plan *p, const struct ra_frame *f) {
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
        f->next_cursor = advance(n, f->next_cursor, to); /* its indices may be gone by then */
        if (f->next_cursor < n->total)
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
    bool is_missing = false;
    for (uint32_t i = 0; i < p->streams && !is_missing; ++i)
        is_missing = !(p->stream[i].flags & RA_FLAG_INDIRECT) && !is_in_memory(p->stream[i].base);
    return is_missing;
}

bool is_in_memory(uint64_t address) {
    unsigned char there;
    const int saved = errno;
    const bool is_missing =
        mincore((void *)(uintptr_t)(address & ~(PAGE - 1)), PAGE, &there) == 0 && !(there & 1);
    errno = saved;
    return !is_missing;
}

/* Is any of a few pages of the stream, in equal steps, missing? */
static bool is_sample_missing(const struct ra_plan *p, const struct ra_stream *s) {
    int64_t below, above;
    spans(p, s, 0, &below, &above);
    const uint64_t low = s->base + (uint64_t)below, bytes = (uint64_t)(above - below);
    if (low >= ADDRESSES || bytes > ADDRESSES - low)
        return false; /* a bound that is not to be believed */
    const uint64_t few = bytes / SAMPLED_BYTES, samples = few < SAMPLES_MAX ? few + 1 : SAMPLES_MAX;
    bool is_missing = false;
    for (uint64_t k = 0; k < samples && !is_missing; ++k)
        is_missing = !is_in_memory(low + bytes / samples * k);
    return is_missing;
}

/* Does the stream go over what another one does, but for less than is between two samples?
 * The planes of a grid are streams of their own. */
static bool is_alike(const struct ra_plan *p, const struct ra_stream *s, const struct ra_stream *q) {
    int64_t below, above, q_below, q_above;
    spans(p, s, 0, &below, &above);
    spans(p, q, 0, &q_below, &q_above);
    const uint64_t from = s->base + (uint64_t)below, end = s->base + (uint64_t)above;
    const uint64_t q_from = q->base + (uint64_t)q_below, q_end = q->base + (uint64_t)q_above;
    const uint64_t most = (end - from) / SAMPLES_MAX;
    return magnitude((int64_t)(q_from - from)) < most && magnitude((int64_t)(q_end - end)) < most;
}

bool is_missing_of(const struct ra_plan *p, bool written) {
    bool is_missing = false;
    for (uint32_t i = 0; i < p->streams && !is_missing; ++i) {
        const struct ra_stream *s = &p->stream[i];
        bool is_looked_at = !(s->flags & RA_FLAG_INDIRECT) && !(s->flags & RA_FLAG_WRITE) == !written;
        for (uint32_t k = 0; k < i && is_looked_at; ++k)
            is_looked_at = p->stream[k].flags != s->flags || !is_alike(p, s, &p->stream[k]);
        is_missing = is_looked_at && is_sample_missing(p, s);
    }
    return is_missing;
}

void look_whether_missing(const struct ra_plan *p) {
    if (!was_missing() && begins_missing(p))
        atomic_store_explicit(&ra.was_missing, true, memory_order_relaxed);
}

void let_helper_go_first(uint64_t turn, bool has_asked) {
    /* It stood still during a whole wait: what holds it up may do so for long. */
    static _Atomic uint64_t stuck_at = ~(uint64_t)0;
    uint64_t before = atomic_load_explicit(&ra.pieces_served, memory_order_relaxed);
    if (atomic_load_explicit(&ra.served, memory_order_acquire) >= turn || !was_missing() ||
        atomic_load_explicit(&stuck_at, memory_order_relaxed) == before)
        return;
    int saved = errno, still = 0; /* waits since it has got on */
    const int most = has_asked ? HELPER_WAITS_MAX : SHORT_WAITS_MAX;
    for (int waits = 0; waits < most && still < STILL_WAITS_MAX && atomic_load(&ra.active) &&
                        atomic_load_explicit(&ra.served, memory_order_acquire) < turn;
         ++waits) {
        nap(20000);
        const uint64_t now = atomic_load_explicit(&ra.pieces_served, memory_order_relaxed);
        still = now == before ? still + 1 : 0;
        before = now;
    }
    if (still == STILL_WAITS_MAX)
        atomic_store_explicit(&stuck_at, before, memory_order_relaxed);
    errno = saved;
}

/* In bursts: disks that also write, or serve several streams, position their heads once for
 * each. What is more than is asked for at a time goes on when that has been passed on. */
static bool is_due(const struct ra_plan *p, const struct ra_frame *f, uint64_t next_tick,
                   uint64_t to, uint64_t burst) {
    /* Nor is what the program comes to now forgotten for what is ahead. */
    if (f->cursor < f->asked_to || f->asked_from < next_tick)
        if (atomic_load_explicit(&ra.served, memory_order_acquire) < f->asked_turn)
            return false;
    return f->cursor < f->asked_to || to == p->total || to - f->cursor >= burst;
}

void go_on(struct ra_site *site, const struct ra_plan *p, struct ra_frame *f,
                  uint64_t done, bool is_last) {
    const uint64_t given = f->strip[p->tick_level], before = queued_pages;
    const uint64_t strip = given < p->count[p->tick_level] ? given : p->strip;
    const uint64_t ahead = look_ahead(p, strip);
    const uint64_t next_tick = strip < p->total - done ? done + strip : p->total;
    uint64_t to = done + ahead;
    if (to > p->total)
        to = p->total;
    if (f->asked_from < next_tick)
        let_helper_go_first(f->asked_turn, true);
    if (f->cursor < done)
        f->cursor = done; /* what the program has passed is not wanted any more */
    if (to > f->cursor && is_due(p, f, next_tick, to, burst_of(p, ahead))) {
        const uint64_t asked = queued_pages;
        f->asked_from = f->cursor;
        f->asked_to = to;
        f->cursor = advance(p, f->cursor, to);
        /* At the beginning with what the nest before has asked for of it. */
        if (queued_pages != asked || f->cursor < to || f->asked_from == 0)
            f->asked_turn = atomic_load_explicit(&ra.ring_head, memory_order_relaxed);
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
    if (is_last && f->cursor == p->total) {
        prefetch_next(p, f, done);
        frontier.first = atomic_load_explicit(&p->next, memory_order_acquire);
        frontier.next = f->next;
        frontier.next_cursor = f->next_cursor;
        frontier.next_bytes = f->next_bytes;
    }
    f->others_from += queued_pages - before;
}

/* What was asked for then is passed over again, since it may have been thrown out or given
 * back meanwhile: that is a look at 64 pages at a time, but for walks, place by place. */
void begin_at_frontier(struct ra_plan *p, struct ra_frame *f) {
    bool is_walk = false;
    for (uint32_t i = 0; i < p->streams; ++i)
        is_walk |= p->around[i] != 0;
    if (frontier.first == p) { /* indices were left to now */
        if (frontier.next_bytes > 0) { /* it is the first of them */
            const uint64_t own = bytes_in_all(p) + 1;
            f->cursor = is_walk ? p->total : 0;
            f->next = frontier.next;
            f->next_cursor = frontier.next_cursor;
            f->next_bytes = frontier.next_bytes > own ? frontier.next_bytes - own : 0;
        } else if (frontier.next == p && is_walk) {
            f->cursor = frontier.next_cursor;
        }
    }
    frontier.first = NULL;
}
