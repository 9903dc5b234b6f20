/* What loops leave behind them, handed to the helper for release (Mowry, Demke and
 * Krieger 1996): a stream's pages behind its trailing reference; pieces of walks
 * across rows, within a nest, between its executions, and what they left when
 * another nest fills the memory. Every failure ends as if this layer were absent. */
#define _GNU_SOURCE
#include "internal.h"

#include <string.h>

enum {
    CATCH_UP_WAITS_MAX = 500, /* of a millisecond, a tick */
    PLACES_MAX = 1 << 20,     /* of a walk: many times what the ring holds */
    THREADS_MAX = 64,
};
static const uint64_t RELEASE_BYTES = 256 << 10;
/* The largest that the kernel's readahead makes by default. */
static const uint64_t FOLIO_BYTES = 128 << 10;

/* This thread's last nest with walks that went to its end. */
static __thread struct ra_plan *walked_over;

void walks_ended(struct ra_plan *p) {
    walked_over = p;
}

/* What each thread's nest is still to come to. Of threads that share a place, beyond so many,
 * the one that ticked last counts. */
static struct still {
    _Atomic uint64_t ns; /* when it was */
    _Atomic uint64_t low[RA_STREAMS_MAX], high[RA_STREAMS_MAX]; /* by stream; both 0: nothing */
} still[THREADS_MAX];
static _Atomic uint32_t threads; /* that have begun a nest so far */
static __thread struct still *own;
/* A nest that has not ticked for so long is over. */
static const uint64_t STILL_NS = 2000 * 1000000ull;

void note_still(const struct ra_plan *p, const struct ra_frame *f) {
    if (own && atomic_load_explicit(&threads, memory_order_relaxed) == 1)
        return; /* nobody wants to know */
    if (!own)
        own = &still[atomic_fetch_add(&threads, 1) % THREADS_MAX];
    for (uint32_t i = 0; i < RA_STREAMS_MAX; ++i) {
        uint64_t low = 0, high = 0;
        if (i < p->streams && !(p->stream[i].flags & RA_FLAG_INDIRECT)) {
            const struct ra_stream *s = &p->stream[i];
            int64_t below, above, inner_below, inner_above;
            uint64_t moved = 0;
            for (uint32_t l = 0; l <= p->tick_level; ++l)
                moved += f->index[l] * (uint64_t)s->stride[l];
            spans(p, s, 0, &below, &above);
            spans(p, s, p->tick_level + 1, &inner_below, &inner_above);
            low = s->base + (p->way[i] > 0 ? moved + (uint64_t)inner_below : (uint64_t)below);
            high = s->base + (p->way[i] < 0 ? moved + (uint64_t)inner_above : (uint64_t)above);
        }
        atomic_store_explicit(&own->low[i], low, memory_order_relaxed);
        atomic_store_explicit(&own->high[i], high, memory_order_relaxed);
    }
    atomic_store_explicit(&own->ns, now_ns(), memory_order_relaxed);
}

/* Is another thread still to come to any of it? */
static bool is_wanted_elsewhere(uint64_t low, uint64_t high) {
    const uint32_t all = atomic_load_explicit(&threads, memory_order_relaxed);
    const uint64_t now = all > 1 ? now_ns() : 0;
    for (uint32_t n = 0; all > 1 && n < all && n < THREADS_MAX; ++n)
        for (uint32_t i = 0; &still[n] != own && still[n].ns + STILL_NS > now && i < RA_STREAMS_MAX; ++i)
            if (still[n].low[i] < high && still[n].high[i] > low)
                return true;
    return false;
}

void release_behind(const struct ra_plan *p, struct ra_frame *f) {
    for (uint32_t i = 0; i < p->streams; ++i) {
        if (!(p->releases >> i & 1))
            continue;
        const struct ra_stream *s = &p->stream[i];
        uint64_t trail = s->base + (uint64_t)p->trail[i];
        const int sign = p->way[i];
        for (uint32_t l = 0; l <= p->tick_level; ++l)
            trail += f->index[l] * (uint64_t)s->stride[l];
        uint64_t low = sign > 0 ? f->released[i] : trail, high = sign > 0 ? trail : f->released[i];
        if (high <= low || high - low < RELEASE_BYTES || high > ADDRESSES)
            continue;
        /* Whole folios, behind which there is no going back: part of one would
         * have to be split off. */
        low = (low + PAGE - 1) & ~(PAGE - 1);
        high &= ~(PAGE - 1);
        if (sign > 0)
            high &= ~(FOLIO_BYTES - 1);
        else
            low = (low + FOLIO_BYTES - 1) & ~(FOLIO_BYTES - 1);
        if (high <= low)
            continue;
        if (is_wanted_elsewhere(low, high)) { /* the last to come to it gives it back */
            f->released[i] = sign > 0 ? high : low;
            continue;
        }
        count(&ra.behind, high - low); /* before the helper can take it off again */
        if (enqueue(RELEASE, low, high - low, (uint32_t)s->flags | (p->is_lazy ? RELEASE_LAZY : 0)))
            f->released[i] = sign > 0 ? high : low;
        else
            take_off_behind(high - low);
    }
}

/* A walk across rows goes on from address `from` to `to` in the first of its
 * places: where it leaves a piece that was asked for at a time, gives it back. */
static void release_walk(const struct ra_plan *p, uint32_t i, uint64_t from, uint64_t to,
                         uint32_t flags) {
    const struct ra_stream *s = &p->stream[i];
    const int places = places_level(p, i);
    const uint64_t around = __atomic_load_n(&p->around[i], __ATOMIC_RELAXED), mask = around - 1;
    const int drift = to > from ? 1 : -1;
    if (from == to || places < 0 || magnitude((int64_t)(to - from)) > around ||
        s->stride[places] == 0)
        return; /* it has begun anew */
    for (uint64_t n = 0; n < once(&p->count[places]) && n < PLACES_MAX; ++n) {
        const uint64_t place = n * (uint64_t)s->stride[places];
        uint64_t left = from + place, now = to + place;
        if (((left ^ now) & ~mask) == 0)
            continue;
        const uint64_t low = drift > 0 ? left & ~mask : (now + mask) & ~mask;
        const uint64_t high = drift > 0 ? now & ~mask : (left + mask) & ~mask;
        /* What reads may not be what writes: all may be dirty. */
        if (low >= high || high > ADDRESSES)
            continue;
        const uint64_t owed = flags & RELEASE_UNAWAITED ? 0 : high - low;
        count(&ra.behind, owed); /* before the helper can take it off again */
        if (!enqueue(RELEASE, low, high - low, RA_FLAG_WRITE | RELEASE_LAZY | flags))
            take_off_behind(owed);
    }
}

/* Walks of which a loop of the nest goes to the neighbours. */
void release_walks(const struct ra_plan *p, struct ra_frame *f) {
    for (uint32_t i = 0; i < p->streams; ++i) {
        const struct ra_stream *s = &p->stream[i];
        if (!(p->walks >> i & 1) || p->walk_level[i] > p->tick_level)
            continue;
        uint64_t now = s->base;
        for (uint32_t l = 0; l <= p->walk_level[i]; ++l)
            now += f->index[l] * (uint64_t)s->stride[l];
        now += (uint64_t)(s->stride[p->walk_level[i]] > 0 ? s->low : s->high);
        if (now == f->released[i])
            continue;
        release_walk(p, i, f->released[i], now, 0);
        f->released[i] = now;
    }
}

/* Walks that go on from one execution of the nest to the next. How far they will
 * go is not known then: one that began anew before it had gone over as much as
 * the memory holds is left alone from then on. */
void release_walks_between(struct ra_plan *p, struct ra_plan *last) {
    if (last == p || last->site != p->site || last->walks != p->walks ||
        memcmp(last->count, p->count, sizeof(p->count)) != 0)
        return;
    bool walks_back = atomic_load_explicit(&last->walks_back, memory_order_relaxed);
    uint64_t walked = atomic_load_explicit(&last->walked, memory_order_relaxed);
    int8_t way = atomic_load_explicit(&last->walked_way, memory_order_relaxed), now = 0;
    uint64_t went = 0;
    double filled = 0;
    bool goes_on = true;
    for (uint32_t i = 0; i < p->streams; ++i) {
        if (!(p->walks >> i & 1) || p->walk_level[i] != RA_LEVELS_MAX)
            continue;
        int64_t by = (int64_t)(p->stream[i].base - last->stream[i].base);
        goes_on &= magnitude(by) <= p->around[i];
        if (magnitude(by) > went) {
            went = magnitude(by);
            now = by > 0 ? 1 : -1;
        }
        const int places = places_level(p, i);
        filled += places < 0 ? 0 : (double)walked * (double)p->count[places];
    }
    if (went == 0)
        return; /* no such walk, or another one of the nest moves */
    goes_on &= way == 0 || way == now;
    walks_back |= !goes_on && !fills_memory(filled);
    atomic_store_explicit(&p->walked_way, goes_on ? now : 0, memory_order_relaxed);
    atomic_store_explicit(&p->walks_back, walks_back, memory_order_relaxed);
    atomic_store_explicit(&p->walked, goes_on ? walked + went : 0, memory_order_relaxed);
    for (uint32_t i = 0; goes_on && !walks_back && i < p->streams; ++i)
        if (p->walks >> i & 1 && p->walk_level[i] == RA_LEVELS_MAX)
            release_walk(p, i, last->stream[i].base, p->stream[i].base, RELEASE_UNAWAITED);
}

/* A nest that goes over more than the memory begins: what walks across rows left
 * of arrays that this one leaves alone are pieces here and there that will not be
 * in memory any more when the program comes to them. Reclaim would keep them,
 * because they were used, and throw out what was asked for ahead, because it was
 * not yet. */
void release_left(const struct ra_plan *p) {
    const struct ra_plan *left = walked_over;
    if (!left || left == p || p->is_indirect || !fills_memory((double)p->bytes) ||
        !ra.release_allowed)
        return;
    walked_over = NULL;
    for (uint32_t i = 0; i < left->streams; ++i) {
        const struct ra_stream *s = &left->stream[i];
        bool is_wanted = (s->flags & RA_FLAG_INDIRECT) != 0;
        for (uint32_t k = 0; k < p->streams && !is_wanted; ++k)
            is_wanted = meet(left, s, p, &p->stream[k]);
        if (is_wanted)
            continue;
        int64_t below, above;
        spans(left, s, 0, &below, &above);
        const uint64_t low = (s->base + (uint64_t)below + PAGE - 1) & ~(PAGE - 1);
        const uint64_t high = (s->base + (uint64_t)above) & ~(PAGE - 1);
        if (low < high && high <= ADDRESSES)
            enqueue(RELEASE, low, high - low, RA_FLAG_WRITE | RELEASE_UNAWAITED);
    }
}

/* Is stream `k` of a walk of small nests as fast as stream `i`, and near it? Then it is so
 * far behind it, below 0: ahead. */
static bool is_beside(const struct ra_plan *p, const struct ra_plan *last, uint32_t i, uint32_t k,
                      int64_t *behind) {
    const struct ra_stream *s = &p->stream[i], *q = &p->stream[k];
    const int64_t by = (int64_t)(s->base - last->stream[i].base);
    const int64_t apart = (int64_t)(s->base + (uint64_t)s->low - q->base - (uint64_t)q->low);
    *behind = by < 0 ? -apart : apart;
    return !(q->flags & RA_FLAG_INDIRECT) && magnitude(apart) <= ra.memory / 4 &&
           (int64_t)(q->base - last->stream[k].base) == by;
}

bool is_followed(const struct ra_plan *p, const struct ra_plan *last, uint32_t i, uint32_t streams) {
    int64_t behind;
    for (uint32_t k = 0; k < streams; ++k)
        if (k != i && is_beside(p, last, i, k, &behind) && (behind == 0 ? k < i : behind > 0))
            return true;
    return false;
}

/* Does it, or one that goes with it, write? */
static bool is_written(const struct ra_plan *p, const struct ra_plan *last, uint32_t i,
                       uint32_t streams) {
    int64_t behind;
    for (uint32_t k = 0; k < streams; ++k)
        if (p->stream[k].flags & RA_FLAG_WRITE && is_beside(p, last, i, k, &behind))
            return true;
    return false;
}

void release_small(struct ra_plan *p, const struct ra_plan *last) {
    const uint64_t mask = FOLIO_BYTES - 1;
    for (uint32_t i = 0; i < p->streams; ++i) {
        const struct ra_stream *s = &p->stream[i];
        p->trail[i] = (int64_t)s->base; /* nothing of what is behind is given back */
        if (!last || i >= last->streams || s->flags & RA_FLAG_INDIRECT)
            continue;
        /* Until where it was at the last call: other nests may still come to what is
         * between. Of what was not given back until then it is the rest; where it began,
         * before the first whole folio, another array may end. */
        const uint64_t then = last->stream[i].base, until = (uint64_t)last->trail[i];
        const bool is_up = s->base > then;
        const uint64_t low = is_up ? (until + mask) & ~mask : (then + mask) & ~mask;
        const uint64_t high = is_up ? then & ~mask : until & ~mask;
        if (is_up ? until > then || then - until > ra.memory : until < then || until - then > ra.memory)
            continue; /* it has been a large nest's, or another's altogether */
        p->trail[i] = last->trail[i];
        if (low >= high)
            continue;
        p->trail[i] = (int64_t)(is_up ? high : low);
        const uint32_t streams = p->streams < last->streams ? p->streams : last->streams;
        if (high <= ADDRESSES && !is_followed(p, last, i, streams))
            enqueue(RELEASE, low, high - low,
                    RELEASE_UNAWAITED | RELEASE_LAZY | (is_written(p, last, i, streams) ? RA_FLAG_WRITE : 0));
    }
}

/* A program that writes faster than the disks do fills the memory with dirty
 * pages and then waits in the kernel's reclaim, one page at a time, with all that
 * was prefetched for it thrown out. It waits here instead, for whole pieces, until
 * little is left of them: the disks write meanwhile, and read nothing, because what
 * does not go on asks for nothing, and then the other way round. */
void let_releases_catch_up(void) {
    int saved = errno;
    const uint64_t before = atomic_load_explicit(&ra.given_back, memory_order_relaxed);
    /* Nothing was given back during a whole wait: what holds it up may do so for long. */
    static _Atomic uint64_t stuck_at = ~(uint64_t)0;
    if (atomic_load_explicit(&ra.behind, memory_order_relaxed) > behind_most() &&
        atomic_load_explicit(&stuck_at, memory_order_relaxed) != before)
        atomic_store(&ra.catching_up, true);
    int waits = 0;
    for (; waits < CATCH_UP_WAITS_MAX && atomic_load(&ra.active) &&
           atomic_load_explicit(&ra.catching_up, memory_order_relaxed) &&
           atomic_load_explicit(&ra.behind, memory_order_relaxed) > behind_least();
         ++waits)
        nap(1000000);
    if (waits == CATCH_UP_WAITS_MAX &&
        atomic_load_explicit(&ra.given_back, memory_order_relaxed) == before) {
        atomic_store_explicit(&stuck_at, before, memory_order_relaxed);
        atomic_store(&ra.catching_up, false);
    }
    errno = saved;
}

/* From where on each stream is to be given back. */
void begin_releases(const struct ra_plan *p, struct ra_frame *f) {
    for (uint32_t i = 0; i < p->streams; ++i) {
        const struct ra_stream *s = &p->stream[i];
        const bool is_walk = p->walks >> i & 1;
        f->released[i] = s->base + (uint64_t)p->trail[i];
        if (is_walk && p->walk_level[i] < RA_LEVELS_MAX)
            f->released[i] = s->base + (uint64_t)(s->stride[p->walk_level[i]] > 0 ? s->low : s->high);
        for (uint32_t l = 0; l <= p->tick_level && (!is_walk || l <= p->walk_level[i]); ++l)
            f->released[i] += f->index[l] * (uint64_t)s->stride[l];
    }
    note_still(p, f);
}
