/* Nests too small to be worth looking at by themselves: many of them in a row are one
 * walk, which is extrapolated. */
#include "internal.h"

enum {
    AHEAD_STEPS_MAX = 8, /* that a walk is asked for ahead */
    VAIN_MAX = 256,      /* calls, together as long as a read from storage or two */
};
/* A walk goes no further from one call to the next, or than a window. */
static const uint64_t SMALL_STEP_BYTES = 4 << 20;
/* Instead of what a walk has gone over: most of that it passes over, such as a block of
 * the columns of a matrix, row by row. It comes back to the neighbours. */
static const uint64_t GAPS = ~(uint64_t)0;

/* The pages of a walk from its last call to this one, each counted once, are behind it. */
static void go_over(struct ra_site *site, const struct ra_plan *p, const struct ra_plan *last) {
    const uint32_t streams = p->streams < last->streams ? p->streams : last->streams;
    int64_t below, above;
    spans(p, &p->stream[0], 0, &below, &above);
    /* The first time it is called as soon as it has left the first block. */
    if (site->steps <= 1 && magnitude((int64_t)(p->stream[0].base - last->stream[0].base)) >
                                SMALL_BYTES / 2 + 2 * (uint64_t)(above - below) + 2 * PAGE)
        site->walked = GAPS;
    for (uint32_t i = 0; i < streams && site->walked != GAPS; ++i) {
        const struct ra_stream *s = &p->stream[i];
        const uint64_t by = magnitude((int64_t)(s->base - last->stream[i].base));
        if (!(s->flags & RA_FLAG_INDIRECT) && !is_followed(p, last, i, streams))
            site->walked += by < ADDRESSES ? by : 0;
    }
}

/* What was long once may have been another array's. */
static void end_walk(struct ra_site *site) {
    if (site->walked == 0)
        return; /* it has hardly begun */
    const uint64_t walked = site->walked == GAPS ? 0 : site->walked;
    site->walked_most = walked > site->walked_most / 2 ? walked : site->walked_most / 2;
    site->walked = 0;
}

/* How many times what a walk of small nests went since its last call it is asked for
 * ahead now; 0: it is none, or nobody knows yet. Below 0 where a long one begins anew:
 * each stream has jumped back by what it had gone, and will go there again. */
static double steps_ahead(struct ra_site *site, const struct ra_plan *p,
                          const struct ra_plan *last, int8_t *way) {
    const uint64_t step_most = ra.window > SMALL_STEP_BYTES ? ra.window : SMALL_STEP_BYTES;
    const uint64_t first = p->stream[0].base, began = site->began;
    *way = 0;
    if (!last || last->site != site) {
        site->steps = 0;
        site->began = first;
        site->walked = 0;
        return 0;
    }
    const int64_t went = (int64_t)(first - last->stream[0].base);
    *way = went < 0 ? -1 : went > 0;
    /* A walk that turns, such as over the lines of a buffer again and again,
     * begins anew. */
    bool steady = atomic_load_explicit(&last->walked_way, memory_order_relaxed) * *way >= 0;
    double travelled = 0;
    for (uint32_t i = 0; i < p->streams; ++i) {
        const uint64_t by = magnitude((int64_t)(p->stream[i].base - last->stream[i].base));
        if (!(p->stream[i].flags & RA_FLAG_INDIRECT)) /* its indices are a stream, too */
            travelled += (double)by;
        steady &= by <= step_most;
    }
    const uint64_t walked = magnitude((int64_t)(last->stream[0].base - began));
    const bool begins_anew = !steady && site->steps >= 2 && walked >= ra.window / 4 &&
                             magnitude((int64_t)(first - began)) < walked / 4;
    site->steps = (steady || begins_anew) && travelled > 0 ? site->steps + 1 : 0;
    if (!steady) {
        const bool has_gaps = site->walked == GAPS;
        site->began = first;
        end_walk(site);
        if (has_gaps && begins_anew)
            site->walked = GAPS; /* the next block of columns */
    } else {
        go_over(site, p, last);
    }
    if (site->steps < 2)
        return 0;
    const double wanted = (double)ra.window;
    if (begins_anew) {
        *way = (int8_t)-*way;
        return wanted < travelled ? -wanted / travelled : -1;
    }
    /* It is called again half way, so that each step is a few times as long as the
     * last. */
    return wanted < travelled * AHEAD_STEPS_MAX ? wanted / travelled : AHEAD_STEPS_MAX;
}

/* Does the walk go over more than the memory, so that nothing is left for when it begins
 * anew? The first time nobody knows before it has, and by then the memory is full: where
 * more is mapped than the memory holds, half of it is enough. */
static bool is_long(const struct ra_site *site) {
    if (site->walked == GAPS)
        return false;
    if (fills_memory((double)site->walked) || fills_memory((double)site->walked_most))
        return true;
    return site->walked_most == 0 && site->walked >= ra.memory / 2 &&
           atomic_load_explicit(&ra.is_larger, memory_order_relaxed);
}

/* Has this thread asked for nothing again, since `queued` pages, as in many calls before?
 * Then nearly all that its small nests go over is in memory, and the calls take longer than
 * what is missing would. Not where it need not stay there, because more is gone over than the
 * memory holds: what was reclaimed is to be asked for at once, not after the next sweep. */
static bool calls_in_vain(uint64_t queued) {
    static __thread uint32_t in_vain;
    const bool is_larger = atomic_load_explicit(&ra.is_larger, memory_order_relaxed);
    const bool asks = queued_pages != queued || !has_room();
    in_vain = has_helper() && !is_larger && !asks ? in_vain + 1 : 0;
    return in_vain > VAIN_MAX;
}

static int64_t times_as_far(int64_t by, double times) {
    const double far = (double)by * times;
    return far > -(double)ADDRESSES && far < (double)ADDRESSES ? (int64_t)far : 0;
}

void small_nest(struct ra_site *site, struct ra_frame *f, struct ra_plan *p) {
    /* Of a frame with so many, if the plan is another nest's by now. */
    const uint32_t streams = p->streams < site->streams ? p->streams : site->streams;
    const uint64_t first = p->stream[0].base;
    list_site(site);
    int8_t way;
    const uint64_t before = atomic_load_explicit(&ra.ring_head, memory_order_relaxed);
    const uint64_t queued = queued_pages;
    const struct ra_plan *last = site->last;
    const double times = steps_ahead(site, p, last, &way);
    atomic_store_explicit(&p->walked_way, way, memory_order_relaxed);
    const bool is_passed = ra.release_allowed && has_helper() && is_long(site);
    /* It comes to what the last call asked for, or, anew, to what this one does. */
    if (times > 0)
        let_helper_go_first(site->asked_turn, true);
    int64_t ahead = 0; /* of the first stream */
    for (uint32_t i = 0; i < streams; ++i) {
        const struct ra_stream *s = &p->stream[i];
        int64_t below, above;
        spans(p, s, 0, &below, &above);
        const int64_t by =
            times != 0 ? times_as_far((int64_t)(s->base - last->stream[i].base), times) : 0;
        if (i == 0)
            ahead = by;
        if (s->flags & RA_FLAG_INDIRECT) {
            prefetch_targets_of_all(site, &f->streams[i],
                                    f->count[0] < SMALL_BYTES ? f->count[0] : SMALL_BYTES);
            continue;
        }
        if (by < 0)
            below += by;
        else
            above += by;
        prefetch_as(is_passed ? PREFETCH_FOLIOS : PREFETCH, s->base + (uint64_t)below,
                    s->base + (uint64_t)above);
    }
    release_small(p, is_passed && times > 0 ? last : NULL);
    const uint64_t after = atomic_load_explicit(&ra.ring_head, memory_order_relaxed);
    site->asked_turn = after != before ? after : 0; /* it asked for nothing */
    if (times < 0)
        let_helper_go_first(site->asked_turn, true);
    /* Data that jump leave any small block, however long all of them have been in memory. The
     * next sweep closes the window again, as that of no walk. */
    if (calls_in_vain(queued)) {
        const uint64_t wide = wider_window(site);
        site->steps = 0;
        set_window(site, first - wide / 2, wide);
        return;
    }
    /* Called again when the first stream has left this block, or half of what
     * was asked for of it: bursts, as in the large nests. */
    const uint64_t half = magnitude(ahead) / 2;
    const uint64_t span = half > SMALL_BYTES ? half : SMALL_BYTES;
    set_window(site, ahead < 0 ? first + SMALL_BYTES / 2 - span : first - SMALL_BYTES / 2, span);
}
