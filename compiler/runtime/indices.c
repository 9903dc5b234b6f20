/* References whose addresses are not affine: a[b[i]], whose indices are looked at
 * ahead, and a[f(i)], which is computed ahead. */
#include "internal.h"

#include <string.h>

enum {
    INDICES = 512,       /* looked at together, */
    INDICES_MAX = 16384, /* and at a tick where little of what they go to is missing */
    LOOKED_PAGES = 16,   /* of them, whether they are in memory */
    FAULTS_MIN = 16,     /* of the nest's thread, until what it goes to is asked for again, */
    PAGES_A_FAULT = 512, /* of which so many are looked at in less than a tenth of a fault */
};
/* Between two looks at the faults. */
static const uint64_t FAULTS_NS = 1000 * 1000;

/* Pages that were looked at: in memory until `end`, mapped until `mapped`; at most so
 * many together. */
struct seen {
    uint64_t first, end, mapped, most;
};

/* Is the page in memory, not only on its way? Or, if it may be waited for, is there any?
 * Looks at the next few too. */
static bool is_there(struct seen *seen, uint64_t page, bool may_wait) {
    unsigned char there[LOOKED_PAGES];
    if (page >= seen->first && page < (may_wait ? seen->mapped : seen->end))
        return true;
    uint64_t pages = seen->most < LOOKED_PAGES ? seen->most : LOOKED_PAGES;
    const int saved = errno;
    /* What follows may not be mapped. */
    while (pages && mincore((void *)(uintptr_t)(page << PAGE_SHIFT), pages << PAGE_SHIFT, there) != 0)
        pages /= 2;
    errno = saved;
    seen->first = seen->end = page;
    seen->mapped = page + pages;
    while (seen->end < seen->mapped && there[seen->end - page] & 1)
        ++seen->end;
    return page < (may_wait ? seen->mapped : seen->end);
}

/* Indices that lie on one page: where the first is, and how many. */
struct indices {
    const char *at;
    int64_t stride;
    uint64_t n;
};

static inline __attribute__((always_inline)) int64_t index_of(const struct indices *in, uint64_t n,
                                                              bool is_wide, bool is_signed) {
    const char *at = in->at + (int64_t)n * in->stride;
    if (is_wide) {
        int64_t index;
        memcpy(&index, at, sizeof(index));
        return index;
    }
    uint32_t index;
    memcpy(&index, at, sizeof(index));
    return is_signed ? (int64_t)(int32_t)index : (int64_t)index;
}

static inline __attribute__((always_inline)) void range_as(const struct indices *in, bool is_wide,
                                                           bool is_signed, int64_t *least,
                                                           int64_t *most) {
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (uint64_t n = 0; n < in->n; ++n) {
        const int64_t index = index_of(in, n, is_wide, is_signed);
        low = index < low ? index : low;
        high = index > high ? index : high;
    }
    *least = low;
    *most = high;
}

/* Is there memory for all that was gone to so far? */
static bool fits_in_memory(const struct ra_site *site) {
    return site->target_high - site->target_low <= ra.memory / 4 * 3;
}

/* Goes to an address: a page by itself, or, where all of them fit in memory, with its
 * neighbours, whichever comes first. */
static void prefetch_target(const struct ra_site *site, uint64_t target) {
    if (target >= ADDRESSES || bit(ra.bits, target >> PAGE_SHIFT))
        return;
    const uint64_t bytes = fits_in_memory(site) ? AROUND_BYTES_MAX : PAGE, low = target & ~(bytes - 1);
    prefetch_range(low, low + bytes);
}

static void widen_targets(struct ra_site *site, uint64_t low, uint64_t high) {
    if (low < site->target_low || site->target_high == 0)
        site->target_low = low;
    if (high >= site->target_high)
        site->target_high = high + 1;
}

/* What so many indices go to. Mostly all between the least and the most of them is
 * in memory: that takes a look at all of the indices, but none at their pages. */
static void prefetch_targets(struct ra_site *site, const struct ra_stream *s,
                             const struct indices *in) {
    const bool is_wide = (s->flags >> RA_FLAG_INDEX_BYTES_SHIFT & 0xff) == 8;
    const bool is_signed = s->flags & RA_FLAG_INDEX_SIGNED;
    int64_t least, most;
    if (is_wide)
        range_as(in, true, true, &least, &most);
    else if (is_signed)
        range_as(in, false, true, &least, &most);
    else
        range_as(in, false, false, &least, &most);
    uint64_t low = s->target + (uint64_t)least * (uint64_t)s->scale;
    uint64_t high = s->target + (uint64_t)most * (uint64_t)s->scale;
    if (s->scale < 0) {
        const uint64_t other = low;
        low = high;
        high = other;
    }
    if (low > high || high >= ADDRESSES)
        return;
    widen_targets(site, low, high);
    const uint64_t first = low >> PAGE_SHIFT, end = (high >> PAGE_SHIFT) + 1;
    if ((end - first) / 64 <= in->n && first_missing(first, end) == end)
        return;
    for (uint64_t n = 0; n < in->n; ++n)
        prefetch_target(site, s->target + (uint64_t)index_of(in, n, is_wide, is_signed) *
                                              (uint64_t)s->scale);
}

/* The addresses are computed from the number of the iteration alone. */
static void prefetch_computed(struct ra_site *site, const struct ra_stream *s, uint64_t from,
                              uint64_t to) {
    ra_address *address = (ra_address *)(uintptr_t)s->target;
    uint64_t last = ~(uint64_t)0;
    for (uint64_t n = from; n < to; ++n) {
        const uint64_t target = address((const uint64_t *)(uintptr_t)s->scale, n);
        if (target >> PAGE_SHIFT == last || target >= ADDRESSES)
            continue;
        last = target >> PAGE_SHIFT;
        widen_targets(site, target, target);
        prefetch_target(site, target);
    }
}

/* a[b[i]]: looks ahead in b, from iteration `far` on only as far as b itself is in
 * memory: reading it would wait for what is wanted much later. What is wanted soon is
 * waited for, so that what it goes to is asked for together; but a page is believed in
 * memory as soon as it was asked for, and the last iterations may be ones that the loop
 * does not get to: is it mapped? An array that fits
 * in memory is brought in by whole blocks, whichever index comes first. Returns
 * where it ended. */
static uint64_t prefetch_indirect(struct ra_site *site, const struct ra_stream *s, uint64_t from,
                                  uint64_t to, uint64_t far, struct seen *seen) {
    if (s->flags & RA_FLAG_COMPUTED) {
        prefetch_computed(site, s, from, to);
        return to;
    }
    const int64_t stride = s->stride[0];
    while (from < to) {
        const uint64_t at = s->base + from * (uint64_t)stride;
        const uint64_t page = at >> PAGE_SHIFT;
        if (at >= ADDRESSES || !bit(ra.bits, page))
            return from; /* reading it might wait */
        if (!is_there(seen, page, from < far))
            return from;
        uint64_t n = to - from;
        const uint64_t room = stride < 0 ? at & (PAGE - 1) : (PAGE - 1) - (at & (PAGE - 1));
        if (stride != 0 && room / magnitude(stride) + 1 < n)
            n = room / magnitude(stride) + 1;
        const struct indices in = {(const char *)(uintptr_t)at, stride, n};
        prefetch_targets(site, s, &in);
        from += n;
    }
    return to;
}

/* All that a nest goes to by one of its references, from its first iteration on. */
void prefetch_targets_of_all(struct ra_site *site, const struct ra_stream *s, uint64_t iterations) {
    /* At all of its pages together, and no others. */
    const uint64_t bytes = (s->base & (PAGE - 1)) + iterations * magnitude(s->stride[0]);
    struct seen seen = {.most = (bytes + PAGE - 1) >> PAGE_SHIFT};
    prefetch_indirect(site, s, 0, iterations, iterations, &seen);
}

/* Indices are looked at once, and what they go to may be thrown out before its turn, or
 * between two: another program wants memory of the same limit, for instance that which
 * releases have left free. Page after page it comes back so slowly that each is used less often
 * than what the other reads, which reclaim keeps therefore (BUK took 250 s instead of 8). While
 * its thread waits for faults, all that the nest goes to is asked for again, in long
 * pieces: where that fits, and it goes to each page of it once more on the mean. */
static void bring_back(const struct ra_site *site, struct ra_frame *f, uint64_t done) {
    const uint64_t pages = (site->target_high - site->target_low) >> PAGE_SHIFT, now = now_ns();
    const bool is_first = f->faults_ns == 0;
    if (!is_first && now - f->faults_ns < FAULTS_NS)
        return;
    f->faults_ns = now;
    const uint64_t faults = own_faults();
    if (is_first)
        f->faults = faults;
    const uint64_t enough = pages / PAGES_A_FAULT > FAULTS_MIN ? pages / PAGES_A_FAULT : FAULTS_MIN;
    if (faults - f->faults < enough || !fits_in_memory(site) || f->count[0] - done < pages ||
        atomic_load_explicit(&ra.served, memory_order_acquire) < f->back_turn)
        return;
    f->faults = faults;
    uint64_t end;
    for (uint64_t low = site->target_low & ~(PAGE - 1); low < site->target_high; low = end) {
        end = site->target_high - low > range_most() ? low + (range_most() & ~(PAGE - 1))
                                                     : (site->target_high + PAGE - 1) & ~(PAGE - 1);
        clear_bits(low >> PAGE_SHIFT, end >> PAGE_SHIFT); /* nobody knows which are gone */
        prefetch_range(low, end);
    }
    f->back_turn = atomic_load_explicit(&ra.ring_head, memory_order_relaxed);
}

/* The indices of the iterations ahead: of those until the next ticks in any case,
 * of the others in batches that ask for a quarter of the window, a new one when
 * the last one comes into use. Where nearly all that they go to is in memory, a
 * batch is long, and what is missing is asked for well before its turn. The frame
 * says where they are and what they go to: the plan is the same for another array,
 * and its memory may be another nest's by now. */
void look_at_indices(struct ra_site *site, const struct ra_plan *p, struct ra_frame *f,
                            uint64_t done) {
    bring_back(site, f, done);
    const uint64_t soon = done + 2 * (p->strip < INDICES ? p->strip : INDICES);
    const uint64_t near = soon < f->count[0] ? soon : f->count[0];
    uint64_t to = done + p->indices_ahead < f->cursor ? done + p->indices_ahead : f->cursor;
    to = to > near ? to : near;
    to = to < f->count[0] ? to : f->count[0];
    if (f->looked < done)
        f->looked = f->looked_from = done;
    if (f->looked >= near && done < f->looked_from)
        return;
    const uint64_t from = f->looked;
    struct seen seen = {.most = LOOKED_PAGES};
    const uint64_t before = atomic_load_explicit(&ra.count.queued, memory_order_relaxed);
    bool goes_on = false;
    while (f->looked < to) {
        const uint64_t asked =
            atomic_load_explicit(&ra.count.queued, memory_order_relaxed) - before;
        /* What the ring has no room for would be lost. */
        goes_on = !has_room() ||
                  (f->looked - from >= INDICES_MAX && asked < ra.window >> PAGE_SHIFT >> 6);
        if (f->looked >= near && (goes_on || asked >= ra.window >> PAGE_SHIFT >> 2))
            break;
        uint64_t reached = to - f->looked > INDICES ? f->looked + INDICES : to;
        for (uint32_t i = 0; i < site->streams; ++i)
            if (f->streams[i].flags & RA_FLAG_INDIRECT) {
                const uint64_t end =
                    prefetch_indirect(site, &f->streams[i], f->looked, reached, near, &seen);
                reached = end < reached ? end : reached;
            }
        if (reached == f->looked)
            break;
        f->looked = reached;
    }
    if (f->looked > from || goes_on)
        f->looked_from = goes_on ? done : from;
}
