/* What the program calls: its loops begin, and go on from strip to strip.
 *
 * The program's own threads enter the kernel here and in what is called from here to wake
 * the helper, or to wait for it a little (nanosleep), and to learn what is in memory
 * (mincore of a few pages of a nest, and of indices) or was read from storage
 * (getrusage): never to ask for pages. What begins the layer and its threads does more.
 * Every failure ends as if this layer were absent. */
#include "internal.h"

#include <string.h>

/* Between two looks at whether a helper is wanted. */
static const uint64_t WANTS_HELPER_NS = 1 * 1000000ull;
/* Of nests over so much, in so many iterations, each is looked at: they take many times as
 * long as the look. Few places that are far apart do not. */
static const uint64_t LONG_BYTES = 4 << 20, LONG_ITERATIONS = 64 << 10;
enum {
    UNTIMED_MAX = 16,  /* calls of small ones, without a helper, until the time is asked for */
    EXTENT_STREAMS = 3, /* the first of them tell a small nest from a large one, as in the pass */
};

/* As the pass has them. */
_Static_assert(offsetof(struct ra_frame, count) == 72 * sizeof(uint64_t), "where parameters are");
_Static_assert(sizeof(struct ra_site) == 104, "the type of a site");

static __thread struct ra_plan *previous; /* this thread's last large nest */

bool list_site(struct ra_site *site) {
    if (!site->listed) {
        const uint32_t at = atomic_fetch_add(&ra.site_count, 1);
        site->listed = (uint64_t)at + 1;
        if (at < PLANS_MAX)
            atomic_store(&ra.sites[at], site);
    }
    return site->listed <= PLANS_MAX;
}

uint64_t wider_window(struct ra_site *site) {
    const uint64_t span = once(&site->span);
    if (span < SMALL_BYTES)
        return SMALL_BYTES;
    return span < ra.memory && list_site(site) ? 2 * span : span;
}

void close_windows(bool all) {
    const uint32_t sites = atomic_load(&ra.site_count);
    for (uint32_t i = 0; i < sites && i < PLANS_MAX; ++i) {
        struct ra_site *site = atomic_load(&ra.sites[i]);
        if (!site)
            continue;
        const bool is_walk = __atomic_load_n(&site->steps, __ATOMIC_RELAXED) > 0;
        if (all || (!is_walk && once(&site->span) > SMALL_BYTES))
            __atomic_store_n(&site->span, 0, __ATOMIC_SEQ_CST);
    }
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

static _Atomic uint64_t looked_ns; /* whether a helper is wanted */

static bool has_looked(uint64_t now) {
    return now - atomic_load_explicit(&looked_ns, memory_order_relaxed) < WANTS_HELPER_NS;
}

/* Its memory may have become another plan's. */
static bool takes_long(const struct ra_plan *p) {
    uint64_t iterations = 1;
    const uint32_t levels = __atomic_load_n(&p->levels, __ATOMIC_RELAXED);
    if (once(&p->bytes) < LONG_BYTES)
        return false;
    for (uint32_t l = 0; l < levels && l < RA_LEVELS_MAX; ++l)
        if (__builtin_mul_overflow(iterations, once(&p->count[l]), &iterations))
            return true;
    return iterations >= LONG_ITERATIONS;
}

bool start_helper_if_wanted(const struct ra_plan *p, const void *from) {
    const uint64_t now = now_ns();
    const bool fills = p && (ra.is_told || fills_memory((double)once(&p->bytes)));
    if (!fills && !(p && takes_long(p)) && has_looked(now))
        return false;
    atomic_store_explicit(&looked_ns, now, memory_order_relaxed);
    const char *filtered = why_not_call(); /* before it is asked what it may kill for */
    if (filtered) {
        do_without_since(filtered);
        return false;
    }
    if (fills || storage_reads() != ra.reads_at_start || (p && is_missing_of(p, false)) ||
        (from && !is_in_memory((uint64_t)(uintptr_t)from))) {
        start_helper();
        close_windows(true); /* who finds no helper yet looks again, and closes its own */
        return false;
    }
    return p && is_missing_of(p, true);
}

/* Bytes of the pages that a stream goes to, as the plan has them (touched), in integers: the
 * program's arithmetic is left alone. 0: a bound is not to be believed. */
static uint64_t extent_of(const struct ra_site *site, const struct ra_frame *f,
                          const struct ra_stream *s) {
    uint64_t run = 0, runs = 1, span = 0, moved;
    for (uint32_t l = site->levels; l-- > 0;) {
        const uint64_t stride = magnitude(s->stride[l]), n = f->count[l];
        if (n == 0 || __builtin_mul_overflow(stride, n - 1, &moved) || moved >= ADDRESSES)
            return 0;
        span += moved;
        if (span >= ADDRESSES)
            return 0;
        if (stride < run + PAGE)
            run += moved;
        else if (__builtin_mul_overflow(runs, n, &runs))
            return 0;
    }
    if (runs > 1 && run < PAGE)
        run = PAGE;
    return __builtin_mul_overflow(run, runs, &run) || run > span ? span : run;
}

/* Does it go over so much? Its site's last nest says nothing of that: it may have been over
 * another array. */
static bool goes_over(const struct ra_site *site, const struct ra_frame *f, uint64_t bytes) {
    for (uint32_t i = 0; i < site->streams && i < EXTENT_STREAMS; ++i)
        if (extent_of(site, f, &f->streams[i]) >= bytes)
            return true;
    return false;
}

/* Without a helper, a small nest. It need not call again before its first stream is somewhere
 * else; and not before it is further away than that where calls come so often that another
 * look is not due yet: data that jump, or that several threads go over, would leave any small
 * window each time. */
static bool is_small_in_memory(struct ra_site *site, struct ra_frame *f) {
    static __thread uint32_t since_time; /* was asked for, which takes as long as all the rest */
    uint64_t span = once(&site->span);
    if (++since_time % UNTIMED_MAX == 0) {
        if (has_looked(now_ns()))
            span = wider_window(site);
        else
            start_helper_if_wanted(NULL, NULL);
    }
    list_site(site);
    f->plan = RA_NOT_BEGUN;
    span = span > SMALL_BYTES ? span : SMALL_BYTES;
    set_window(site, f->streams[0].base - span / 2, span);
    if (!atomic_load(&ra.helper))
        return true;
    __atomic_store_n(&site->span, 0, __ATOMIC_SEQ_CST); /* there is one now */
    return false;
}

/* Of all streams together, those of the same array as if they were of several: no less than
 * the plan has. */
static uint64_t extent_of_all(const struct ra_site *site, const struct ra_frame *f) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < site->streams; ++i)
        sum += extent_of(site, f, &f->streams[i]);
    return sum;
}

/* Without a helper, and none is wanted as far as is known. To plan a nest that is somewhere
 * else each time may take longer than the nest: only what is so long that it is looked at
 * each time, others when a look is due, and where nobody knows yet whether it is small. */
static bool needs_no_look(struct ra_site *site, struct ra_frame *f) {
    if (ra.is_told)
        return false;
    const struct ra_plan *last = site->last;
    const bool is_over = goes_over(site, f, SMALL_BYTES);
    const uint64_t most = extent_of_all(site, f);
    if (!is_over && (most < SMALL_BYTES || (last && once(&last->bytes) < SMALL_BYTES)))
        return is_small_in_memory(site, f);
    return (is_over || last) && most < LONG_BYTES && has_looked(now_ns());
}

/* Its memory may have become another plan's: no strip is empty, or the loop, which counts
 * to the end of its strip, would go on past it. */
static void set_strip(const struct ra_plan *p, struct ra_frame *f) {
    const uint64_t strip = strip_of(p);
    const uint32_t t = __atomic_load_n(&p->tick_level, __ATOMIC_RELAXED);
    if (strip < once(&p->count[t]))
        f->strip[t] = strip ? strip : 1;
}

/* A nest that is hinted begins. */
static __attribute__((noinline)) void begin_active(struct ra_site *site, struct ra_frame *f) {
    if (!has_helper() && needs_no_look(site, f))
        return;
    count(&ra.count.begins, 1);
    bool is_new;
    struct ra_plan *p = f->plan = plan_of(site, f->count, f->streams, &is_new);
    if (p->bytes < SMALL_BYTES) {
        f->plan = RA_NOT_BEGUN;
        if (!has_helper())
            start_helper_if_wanted(NULL, NULL);
        small_nest(site, f, p);
        site->last = p;
        return;
    }
    if (!has_helper()) {
        const bool looks_again = start_helper_if_wanted(p, NULL);
        if (!has_helper() || !atomic_load(&ra.active)) { /* not yet, or it may not be */
            f->plan = NULL;
            site->last = p;
            if (looks_again)
                set_strip(p, f);
            return;
        }
    }
    if (previous && previous != p) {
        atomic_store_explicit(&previous->next, p, memory_order_release);
        keep_for(p, previous);
        keep_for(previous, p);
    }
    previous = p;
    release_left(p);
    if (is_new || !atomic_load_explicit(&p->next, memory_order_relaxed))
        expect_shifted(site, p, site->last);
    if (p->walks && site->last)
        release_walks_between(p, site->last);
    site->last = p;
    look_whether_missing(p);
    set_strip(p, f);
    f->cursor = 0;
    f->next = NULL;
    f->next_cursor = 0;
    f->next_bytes = 0;
    f->looked = f->looked_from = f->asked_from = f->asked_to = f->asked_turn = 0;
    f->faults_ns = f->back_turn = 0;
    f->others_from = queued_pages;
    f->begun_at = 0;
    begin_at_frontier(p, f);
    memset(f->index, 0, sizeof(f->index));
    begin_releases(p, f);
    go_on(site, p, f, 0, true);
}

/* A small nest needs no call wherever it is. */
static void open_window(struct ra_site *site) {
    __atomic_store_n(&site->span, ~(uint64_t)0, __ATOMIC_SEQ_CST);
}

/* While hints are off: everything that was hinted is in memory. Strips so long that they
 * cost nothing, for the case that something else is not. */
static void begin_inactive(struct ra_site *site, struct ra_frame *f) {
    if (list_site(site))
        open_window(site);
    else
        set_window(site, f->streams[0].base - SMALL_BYTES / 2, SMALL_BYTES);
    /* Switched on meanwhile, by who closes the windows of sites then: perhaps not this one. */
    if (atomic_load(&ra.active))
        __atomic_store_n(&site->span, 0, __ATOMIC_RELAXED);
    bool is_new;
    if (!site->last)
        site->last = plan_of(site, f->count, f->streams, &is_new);
    if (site->last->bytes < ra.window && !goes_over(site, f, ra.window))
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
    if (!has_helper()) {
        start_helper_if_wanted(NULL, NULL);
        if (!has_helper() || !atomic_load(&ra.active))
            return;
    }
    if (!p) {
        /* It began while everything was in memory. */
        bool is_new;
        p = plan_of(site, f->count, f->streams, &is_new);
        if (level > p->tick_level)
            return;
        for (uint32_t l = (uint32_t)level + 1; l <= p->tick_level; ++l)
            f->index[l] = 0;
        f->plan = previous = p;
        f->next = NULL;
        f->next_cursor = f->next_bytes = 0;
        f->looked = f->looked_from = f->asked_from = f->asked_to = f->asked_turn = 0;
        f->faults_ns = f->back_turn = 0;
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
    go_on(site, p, f, done, previous == p);
    if (f->cursor == p->total && p->walks)
        walks_ended(p);
    note_still(p, f);
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
