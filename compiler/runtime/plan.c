/* What is worked out about a loop nest when its bounds and strides are known:
 * what each loop touches, where to pipeline, how far ahead, what to release. */
#define _GNU_SOURCE
#include "internal.h"

#include <string.h>

static const uint64_t BLOCK_BYTES_MAX = 512 << 10;
enum { PASSED_MAX = 16 }; /* plans in use that are passed over for a new one */

static uint64_t extent(const struct ra_plan *p, const struct ra_stream *s, uint32_t level) {
    int64_t below, above;
    spans(p, s, level, &below, &above);
    return (uint64_t)(above - below);
}

/* Bytes of the pages that a stream touches in the levels from `level` on, each
 * once: so many runs of pages, each so long. */
static uint64_t touched(const struct ra_plan *p, const struct ra_stream *s, uint32_t level) {
    double run = s->high - s->low < 64 ? (double)(s->high - s->low) : 64.0, runs = 1;
    for (uint32_t l = p->levels; l-- > level;) {
        const double stride = (double)magnitude(s->stride[l]);
        if (stride < run + (double)PAGE)
            run += stride * (double)(p->count[l] - 1);
        else
            runs *= (double)p->count[l];
    }
    if (runs > 1 && run < (double)PAGE)
        run = (double)PAGE;
    const double span = (double)extent(p, s, level);
    return whole(run * runs < span ? run * runs : span);
}

bool meet(const struct ra_plan *p, const struct ra_stream *s, const struct ra_plan *other,
          const struct ra_stream *q) {
    int64_t below, above, q_below, q_above;
    spans(p, s, 0, &below, &above);
    spans(other, q, 0, &q_below, &q_above);
    return (int64_t)q->base + q_above > (int64_t)s->base + below &&
           (int64_t)q->base + q_below < (int64_t)s->base + above;
}

static bool overlap(const struct ra_plan *p, const struct ra_stream *s, const struct ra_stream *q) {
    return meet(p, s, p, q);
}

/* Does a stream before this one go over the same? The planes of a grid whose
 * size is known only now are streams of their own, but one array. */
static bool is_repeated(const struct ra_plan *p, uint32_t i) {
    for (uint32_t k = 0; k < i; ++k)
        if (!((p->stream[i].flags | p->stream[k].flags) & RA_FLAG_INDIRECT) &&
            p->stream[k].stride[0] == p->stream[i].stride[0] &&
            overlap(p, &p->stream[i], &p->stream[k]))
            return true;
    return false;
}

/* Does a stream go over its addresses once, in order, from one iteration of the
 * tick level to the next? Returns its direction. */
static int direction(const struct ra_plan *p, const struct ra_stream *s) {
    int sign = 0;
    bool still = false; /* a loop outside in which it does not move */
    for (uint32_t l = 0; l <= p->tick_level && l < p->levels; ++l) {
        if (p->count[l] <= 1)
            continue;
        if (s->stride[l] == 0) {
            still = true;
            continue;
        }
        int this_sign = s->stride[l] < 0 ? -1 : 1;
        uint64_t inner = extent(p, s, l + 1) - (uint64_t)(s->high - s->low);
        if (still || (sign && sign != this_sign) || magnitude(s->stride[l]) < inner)
            return 0;
        sign = this_sign;
    }
    return sign;
}

/* Which streams may be given back behind the loop: those that go over their
 * pages once, where nothing else in the nest comes to the same pages. Groups
 * that the compiler could not see (planes of a size known only now) are joined
 * here: the last of them releases. */
static void plan_releases(struct ra_plan *p) {
    if (!ra.release_allowed || !fills_memory((double)p->bytes))
        return; /* it may all still be there the next time */
    for (uint32_t i = 0; i < p->streams; ++i) {
        const struct ra_stream *s = &p->stream[i];
        const int sign = p->way[i];
        if (sign == 0)
            continue;
        int64_t below, above;
        spans(p, s, p->tick_level + 1, &below, &above);
        int64_t trail = sign > 0 ? below : above;
        bool good = true, last = true;
        for (uint32_t k = 0; good && k < p->streams; ++k) {
            const struct ra_stream *q = &p->stream[k];
            if (k == i)
                continue;
            if (q->flags & RA_FLAG_INDIRECT)
                continue; /* what it goes to is not known; its pages come back */
            if (!overlap(p, s, q))
                continue;
            for (uint32_t l = 0; l <= p->tick_level; ++l) /* together, tick by tick */
                good &= q->stride[l] == s->stride[l];
            if (!good)
                break;
            int64_t q_below, q_above;
            spans(p, q, p->tick_level + 1, &q_below, &q_above);
            int64_t q_trail = (int64_t)(q->base - s->base) + (sign > 0 ? q_below : q_above);
            if (sign > 0 ? q_trail < trail : q_trail > trail)
                trail = q_trail, last = false;
            else if (q_trail == trail && k < i)
                last = false;
        }
        if (good && last) {
            p->releases |= 1u << i;
            p->trail[i] = trail;
        }
    }
}

/* Stream `i` of `p` is given back no further than until where stream `k` of the other is in
 * the same iteration, but where that is far behind. */
static void keep_behind(struct ra_plan *p, uint32_t i, const struct ra_plan *other, uint32_t k) {
    const struct ra_stream *s = &p->stream[i], *q = &other->stream[k];
    const uint32_t inner = p->tick_level + 1;
    if (q->flags & RA_FLAG_INDIRECT || !meet(p, s, other, q) ||
        memcmp(s->stride, q->stride, inner * sizeof(s->stride[0])) != 0)
        return;
    int64_t below, above;
    spans(other, q, inner, &below, &above);
    const bool is_up = p->way[i] > 0;
    const int64_t trail = (int64_t)(q->base - s->base) + (is_up ? below : above);
    const int64_t further = is_up ? p->trail[i] - trail : trail - p->trail[i];
    if (further > 0 && (uint64_t)further <= ra.memory / 4)
        p->trail[i] = trail;
}

void keep_for(struct ra_plan *p, const struct ra_plan *other) {
    if (!p->releases || p->tick_level >= other->levels ||
        memcmp(p->count, other->count, (p->tick_level + 1) * sizeof(p->count[0])) != 0)
        return; /* they share no loops */
    for (uint32_t i = 0; i < p->streams; ++i)
        for (uint32_t k = 0; p->releases >> i & 1 && k < other->streams; ++k)
            keep_behind(p, i, other, k);
}

/* May a stream be in large folios, of which writing a piece makes the whole dirty? Where the
 * nest leaves nothing of it behind itself, or goes over it in order and does not write it. */
static bool suits_folios(const struct ra_plan *p, uint32_t i) {
    bool is_released = false, is_written = false;
    for (uint32_t k = 0; k < p->streams; ++k)
        if (i == k || overlap(p, &p->stream[i], &p->stream[k])) {
            is_released |= p->releases >> k & 1;
            is_written |= (p->stream[k].flags & RA_FLAG_WRITE) != 0;
        }
    return is_released || (!is_written && p->way[i] != 0);
}

/* Which walks across rows are given back behind themselves: all that they will
 * go over is more than the memory. Where they write, reclaim would pass over what
 * they left, because it is dirty, and throw out what was asked for ahead. */
static void plan_walks(struct ra_plan *p) {
    double bytes = 0;
    uint32_t walks = 0;
    for (uint32_t i = 0; i < p->streams; ++i) {
        const struct ra_stream *s = &p->stream[i];
        if (!p->around[i])
            continue;
        int64_t below, above;
        spans(p, s, 0, &below, &above);
        bool is_counted = false; /* another stream goes over the same */
        for (uint32_t k = 0; k < i && !is_counted; ++k)
            is_counted = p->around[k] && overlap(p, s, &p->stream[k]);
        if (!is_counted) /* between executions of the nest: as far as its places are apart */
            bytes += p->walk_level[i] < RA_LEVELS_MAX ? (double)touched(p, s, 0)
                                                      : (double)(above - below);
        walks |= 1u << i;
    }
    if (ra.release_allowed && fills_memory(bytes))
        p->walks = walks;
}

/* A walk across rows touches a few bytes in many places, and comes back to their
 * neighbours with the next row: how much to ask for in each place, so that all
 * of them together are three tenths of the memory. With the next ones, asked for
 * before these are used up, it is less than half: so much does the kernel keep for
 * what was not used yet. */
static void plan_around(struct ra_plan *p) {
    uint64_t walks = 0;
    for (uint32_t i = 0; i < p->streams; ++i)
        walks += p->dense_from[i] > 0 && !(p->stream[i].flags & RA_FLAG_INDIRECT);
    for (uint32_t i = 0; i < p->streams; ++i) {
        const struct ra_stream *s = &p->stream[i];
        uint32_t d = p->dense_from[i];
        if (d == 0 || s->flags & RA_FLAG_INDIRECT)
            continue;
        uint64_t around = AROUND_BYTES_MAX;
        while (around > PAGE && (double)around * (double)p->count[d - 1] * (double)walks >
                                    0.3 * (double)ra.memory)
            around /= 2;
        if (around == PAGE || extent(p, s, d) >= around)
            continue;
        p->around[i] = (uint32_t)around;
        p->walk_level[i] = RA_LEVELS_MAX;
        for (uint32_t l = d - 1; l-- > 0;)
            if (p->count[l] > 1 && s->stride[l] != 0 && magnitude(s->stride[l]) < around) {
                p->drift[i] = s->stride[l] > 0 ? 1 : -1;
                p->walk_level[i] = (uint8_t)l; /* the outermost in the end */
            }
    }
    plan_walks(p);
}

/* Does the nest go over a single large array, in order? Disks position nothing between
 * two bursts then, unless it also writes, and half as much ahead is enough: the rest of the
 * memory stays free. */
static bool is_single(const struct ra_plan *p) {
    uint32_t large = 0;
    for (uint32_t i = 0; i < p->streams; ++i) {
        if (touched(p, &p->stream[i], 0) < ra.window || is_repeated(p, i))
            continue;
        if (p->way[i] == 0)
            return false;
        ++large;
    }
    return large == 1;
}

/* Does the nest write a large array? What of it is given back is written meanwhile. */
static bool writes_large(const struct ra_plan *p) {
    for (uint32_t i = 0; i < p->streams; ++i)
        if (p->stream[i].flags & RA_FLAG_WRITE && touched(p, &p->stream[i], 0) >= ra.window)
            return true;
    return false;
}

/* May what the nest releases stay until its memory is wanted? Not where that is to be for
 * what indices go to, nor of a single array that is much larger than the memory: the
 * window is all that such a nest needs, and it keeps the rest free. */
static bool stays_given_back(const struct ra_plan *p, bool is_alone) {
    return !p->is_indirect && !(is_alone && (double)p->bytes > 1.5 * (double)ra.memory);
}

/* A walk across rows comes back to the neighbours of what it writes: nothing may be in large
 * folios there. One that does not, such as a border of a grid, dirties each place once. */
static void tell_of_walk(const struct ra_plan *p, uint32_t i) {
    const struct ra_stream *s = &p->stream[i];
    int64_t below, above;
    if (!(s->flags & RA_FLAG_WRITE))
        return;
    spans(p, s, 0, &below, &above);
    enqueue(WALKED, s->base + (uint64_t)below, (uint64_t)(above - below), 0);
}

/* Where to pipeline: "the first surrounding loop which touches more than a page
 * of the given array" (section 2.3), here more than a strip's worth. */
static __attribute__((noinline)) void work_out(struct ra_plan *p, const struct ra_site *site) {
    double bytes[RA_LEVELS_MAX + 1] = {0}, direct = 0;
    uint32_t arrays = 0; /* streams, those of the same array as one */
    for (uint32_t i = 0; i < p->streams; ++i) {
        if (is_repeated(p, i))
            continue;
        ++arrays;
        for (uint32_t l = 0; l <= p->levels; ++l)
            bytes[l] += (double)touched(p, &p->stream[i], l);
        if (!(p->stream[i].flags & RA_FLAG_INDIRECT))
            direct += (double)touched(p, &p->stream[i], 0);
    }
    bool is_indirect = false;
    for (uint32_t i = 0; i < p->streams; ++i) {
        struct ra_stream *s = &p->stream[i];
        is_indirect |= (s->flags & RA_FLAG_INDIRECT) != 0;
        /* Levels from here on touch every page of their span. */
        uint32_t d = p->levels;
        while (d > 0 && magnitude(s->stride[d - 1]) < extent(p, s, d) + PAGE)
            --d;
        p->dense_from[i] = (uint8_t)d;
    }
    p->bytes = whole(bytes[0]);
    p->is_indirect = is_indirect;
    plan_around(p);
    /* Disks like large requests: a quarter of the window in whole blocks. */
    p->block = 16 << 10;
    while (p->block < BLOCK_BYTES_MAX && p->block * 2 * arrays * 4 <= ra.window)
        p->block *= 2;
    uint32_t level = p->levels;
    for (uint32_t l = p->levels; l-- > 0;) {
        if (!(site->strip_mined >> l & 1))
            continue;
        level = l;
        if (bytes[l] >= 1.5 * (double)ra.tick_bytes)
            break;
    }
    /* A loop outside of it that comes back to the same pages is no progress
     * either: columns of a plane that are a few bytes wide. */
    for (uint32_t l = level < p->levels ? level : 0; l-- > 1;)
        if (site->strip_mined >> (l - 1) & 1 && p->count[l] > 1 && bytes[l] < 1.5 * bytes[l + 1] &&
            bytes[l] <= (double)ra.window / 4)
            level = l - 1;
    if (level == p->levels) { /* none can be strip-mined: the beginning only */
        level = 0;
        p->strip = ~(uint64_t)0;
    } else {
        double each = bytes[level] / (double)p->count[level];
        double strip = each > 0 ? (double)ra.tick_bytes / each : 1;
        if (is_indirect && strip > 512)
            strip = 512; /* each index may want a page of its own */
        p->strip = strip < 1 ? 1 : whole(strip);
    }
    p->tick_level = level;
    for (uint32_t i = 0; i < p->streams; ++i)
        p->way[i] = p->stream[i].flags & RA_FLAG_INDIRECT ? 0 : (int8_t)direction(p, &p->stream[i]);
    p->total = 1;
    for (uint32_t l = 0; l <= level && l < p->levels; ++l)
        p->total *= p->count[l];
    p->bytes_per_iteration = bytes[0] / (double)(p->total ? p->total : 1);
    /* What one execution of the loop leaves in memory is not there for the next where all
     * of it takes more than half: columns of an array that lies in rows. */
    const double anew = p->count[level] ? bytes[level] / (double)p->count[level] : 0;
    if (bytes[level] > (double)ra.memory / 2 && anew > p->bytes_per_iteration)
        p->bytes_per_iteration = anew;
    const bool is_alone = !is_indirect && is_single(p);
    p->is_lazy = stays_given_back(p, is_alone);
    double look = p->bytes_per_iteration > 0 ? (double)ra.window / p->bytes_per_iteration : 1e18;
    /* Half of the window is for what indices go to. They are looked at half as far
     * ahead as they are asked for, by when they are in memory (the paper pipelines
     * the indices and what they go to, one behind the other). */
    if (is_indirect && direct > 0)
        look = (double)ra.window / 2 * (double)p->total / direct;
    else if (is_alone && !p->is_lazy && !writes_large(p)) /* the rest is to stay free */
        look /= 2;
    p->look_ahead = whole(look < 1e18 ? look : 1e18);
    if (p->strip != ~(uint64_t)0 && p->look_ahead < 2 * p->strip)
        p->look_ahead = 2 * p->strip;
    p->burst = p->look_ahead / 2;
    p->indices_ahead = p->look_ahead / 2;
    plan_releases(p);
    for (uint32_t i = 0; i < p->streams; ++i)
        if (suits_folios(p, i))
            p->folios |= 1u << i;
    p->walks &= ~p->releases;
    for (uint32_t i = 0; i < p->streams; ++i)
        if (p->around[i] && p->walk_level[i] < RA_LEVELS_MAX)
            tell_of_walk(p, i);
}

static uint64_t hash_of(const struct ra_site *site, const uint64_t *counts,
                        const struct ra_stream *streams) {
    uint64_t h = (uint64_t)(uintptr_t)site * 0x9e3779b97f4a7c15u;
    for (uint32_t l = 0; l < site->levels; ++l)
        h = (h ^ counts[l]) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
    for (uint32_t i = 0; i < site->streams; ++i) {
        h = (h ^ streams[i].base) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
        h = (h ^ (uint64_t)streams[i].stride[0]) * 0xbf58476d1ce4e5b9u, h ^= h >> 31;
    }
    return h | 1;
}

static bool same_plan(const struct ra_plan *p, const struct ra_site *site, const uint64_t *counts,
                      const struct ra_stream *streams) {
    if (p->site != site || memcmp(p->count, counts, site->levels * sizeof(*counts)) != 0)
        return false;
    for (uint32_t i = 0; i < site->streams; ++i)
        if (p->stream[i].base != streams[i].base ||
            memcmp(p->stream[i].stride, streams[i].stride, site->levels * sizeof(int64_t)) != 0)
            return false;
    return true;
}

/* Memory for a plan, that of the oldest one with about as many streams that was
 * not used since the last time round: a nest that goes on for long still ticks
 * after many small ones inside it were planned. */
static struct ra_plan *new_plan(uint32_t streams) {
    uint32_t class = 0;
    while (1u << class < streams)
        ++class;
    const uint64_t bytes = ra.plan_bytes / PLAN_CLASSES & ~(uint64_t)63;
    const uint64_t one =
        (sizeof(struct ra_plan) + (sizeof(struct ra_stream) << class) + 63) & ~(uint64_t)63;
    struct ra_plan *p;
    uint32_t passed = 0;
    do {
        uint64_t at = atomic_fetch_add_explicit(&ra.plans_made[class], 1, memory_order_relaxed);
        p = (struct ra_plan *)(void *)(ra.plan_memory + class * bytes + at % (bytes / one) * one);
    } while (atomic_exchange_explicit(&p->is_used, false, memory_order_relaxed) &&
             ++passed < PASSED_MAX);
    memset(p, 0, sizeof(*p));
    use(p); /* from now on: its nest is about to begin */
    return p;
}

/* The plan of a nest, made when it is new. */
struct ra_plan *plan_of(struct ra_site *site, const uint64_t *counts,
                        const struct ra_stream *streams, bool *is_new) {
    *is_new = false;
    struct ra_plan *last = __atomic_load_n(&site->last, __ATOMIC_RELAXED);
    if (last && same_plan(last, site, counts, streams)) {
        use(last);
        return last;
    }
    uint64_t hash = hash_of(site, counts, streams);
    enum { PROBES_MAX = 16 };
    _Atomic(struct ra_plan *) *slot = &ra.plans[hash & (PLANS_MAX - 1)];
    for (uint64_t probe = 0; probe < PROBES_MAX; ++probe) {
        _Atomic(struct ra_plan *) *tried = &ra.plans[(hash + probe) & (PLANS_MAX - 1)];
        struct ra_plan *p = atomic_load_explicit(tried, memory_order_acquire);
        if (p && p->hash == hash && same_plan(p, site, counts, streams)) {
            use(p);
            return p;
        }
        if (!p || (p->hash & (PLANS_MAX - 1)) > ((hash + probe) & (PLANS_MAX - 1))) {
            slot = tried; /* free, or its plan has made room for another one */
            break;
        }
    }
    struct ra_plan *p = new_plan(site->streams);
    p->site = site;
    p->hash = hash;
    p->levels = site->levels;
    p->streams = site->streams;
    /* The program stores no more than it has: the others stay 0, and two plans of a site
     * whose loops have as many iterations have equal counts. */
    memcpy(p->count, counts, site->levels * sizeof(*counts));
    memcpy(p->stream, streams, site->streams * sizeof(struct ra_stream));
    for (uint32_t i = 0; i < p->streams; ++i)
        for (uint32_t l = p->levels; l < RA_LEVELS_MAX; ++l)
            p->stream[i].stride[l] = 0; /* the program stores no more than it has */
    const uint32_t arithmetic = own_arithmetic();
    work_out(p, site);
    programs_arithmetic(arithmetic);
    *is_new = true;
    atomic_store_explicit(slot, p, memory_order_release);
    return p;
}

/* The nest expected next from the way its site moved: same shape, all bases on
 * by what they moved last. */
void expect_shifted(struct ra_site *site, struct ra_plan *p, struct ra_plan *last) {
    if (!last || last == p || last->site != site || p->site != site ||
        memcmp(last->count, p->count, sizeof(p->count)) != 0)
        return;
    struct ra_stream shifted[RA_STREAMS_MAX];
    bool moved = false;
    for (uint32_t i = 0; i < p->streams; ++i) {
        shifted[i] = p->stream[i];
        int64_t by = (int64_t)(p->stream[i].base - last->stream[i].base);
        /* Not into another array: a step is no longer than a few extents. */
        if (magnitude(by) > 4 * extent(p, &p->stream[i], 0) + (1 << 20))
            return;
        moved |= by != 0;
        shifted[i].base += (uint64_t)by;
        shifted[i].target += p->stream[i].target - last->stream[i].target;
    }
    for (uint32_t i = 0; i < p->streams; ++i) {
        int64_t by = (int64_t)(shifted[i].base - p->stream[i].base);
        if (by == 0 || magnitude(by) >= p->around[i])
            continue;
        atomic_store_explicit(&p->drift[i], by > 0 ? 1 : -1, memory_order_relaxed);
        tell_of_walk(p, i);
    }
    bool is_new;
    struct ra_plan *next = moved ? plan_of(site, p->count, shifted, &is_new) : NULL;
    struct ra_plan *none = NULL;
    if (!next)
        return;
    for (uint32_t i = 0; i < p->streams; ++i)
        atomic_store_explicit(&next->drift[i],
                              atomic_load_explicit(&p->drift[i], memory_order_relaxed),
                              memory_order_relaxed);
    atomic_compare_exchange_strong(&p->next, &none, next);
}
