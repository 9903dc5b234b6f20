/* The run-time layer of compiled programs (Mowry, Demke and Krieger 1996,
 * section 2.4): takes hints from the loops, drops the unnecessary ones, and has
 * a helper thread pass the others on to the kernel.
 *
 * The program's own threads never enter the kernel here but to wake the helper.
 * They put ranges of addresses into a ring; where it is full the hint is lost.
 * Every failure ends as if this layer were absent. */
#define _GNU_SOURCE
#include "runahead_rt.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_COLD
#define MADV_COLD 20
#endif
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

enum {
    PAGE_SHIFT = 12,
    RING_ENTRIES = 8192,       /* a power of two */
    PLANS_MAX = 8192,          /* a power of two: slots of the table */
    RANGES_PER_ADVANCE_MAX = 4096,
    REGIONS_MAX = 1024,
    RELEASES_MAX = 1024,
    CHAIN_MAX = 8,
};
#define PAGE ((uint64_t)1 << PAGE_SHIFT)
/* Kernels cap what one WILLNEED reads by the readahead window. */
static const uint64_t WILLNEED_BYTES = 128 << 10;
static const uint64_t SMALL_BYTES = 64 << 10; /* as in the pass */
static const uint64_t BLOCK_BYTES_MAX = 512 << 10;
static const uint64_t RELEASE_BYTES = 256 << 10;
/* All of user space at one bit a page; only what is used costs memory. */
static const uint64_t ADDRESSES = (uint64_t)1 << 47;
static const uint64_t ARENA_BYTES = 16 << 20;
/* Dirty pages are written this much at a time (half a window, where that is
 * less), or after this long. */
static const uint64_t WRITE_BYTES_MAX = 4 << 20;
static const uint64_t WRITE_WAIT_NS = 300 * 1000000ull;
static const uint64_t QUIET_NS = 200 * 1000000ull;

enum operation { PREFETCH, RELEASE };

struct entry {
    _Atomic uint64_t turn;
    uint64_t address;
    uint64_t bytes;
    uint32_t operation;
    uint32_t flags;
};

/* What is worked out about a nest with certain parameters; never changes but
 * for what is expected to follow. */
struct ra_plan {
    struct ra_site *site;
    uint64_t hash;
    uint32_t levels, streams;
    uint32_t tick_level;
    uint32_t releases;                /* bit per stream */
    uint64_t strip;                   /* iterations of the tick level */
    uint64_t total;                   /* iterations of the tick level in all */
    uint64_t look_ahead;              /* iterations of the tick level */
    uint64_t bytes;                   /* that the nest touches */
    double bytes_per_iteration;
    _Atomic(struct ra_plan *) next;   /* nest that followed the last time */
    uint8_t dense_from[RA_STREAMS_MAX];
    int8_t way[RA_STREAMS_MAX];       /* goes over its addresses in order: up 1, down -1 */
    uint64_t block;                   /* bytes to ask for at a time, where there is a way */
    int64_t trail[RA_STREAMS_MAX];    /* trailing address minus base */
    uint64_t count[8];
    struct ra_stream stream[];
};

/* Counters for RUNAHEAD_CC_STATS; pages unless it says otherwise. */
struct counters {
    _Atomic uint64_t begins, ticks, hinted, filtered, queued, lost;
    _Atomic uint64_t issued, resident, released, calls, activations, bad_releases;
};

static struct {
    _Atomic int state; /* 0 not yet, 1 on, 2 off for good */
    _Atomic int active;
    _Atomic int helper; /* 0 none, 1 started */
    _Atomic uint32_t asleep;
    uint8_t *bits;     /* believed in memory */
    uint8_t *recent;   /* requested since the last sweep */
    char *arena;
    _Atomic uint64_t arena_used;
    uint64_t memory;   /* bytes that the program may have in memory */
    uint64_t window;   /* bytes prefetched ahead */
    uint64_t tick_bytes;
    _Atomic uint64_t ring_head;
    uint64_t ring_tail;
    struct entry *ring;
    _Atomic(struct ra_plan *) plans[PLANS_MAX];
    _Atomic(struct ra_site *) sites[PLANS_MAX]; /* small nests: windows to reset */
    _Atomic uint32_t site_count;
    struct counters count;
    bool release_allowed;
    const char *stats;
} ra;

static __thread struct ra_plan *previous; /* this thread's last large nest */

static void count(_Atomic uint64_t *counter, uint64_t n) {
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t magnitude(int64_t v) { return v < 0 ? 0 - (uint64_t)v : (uint64_t)v; }

/* Memory for plans; never given back, so that nobody waits for anybody. */
static void *allocate(uint64_t bytes) {
    bytes = (bytes + 63) & ~(uint64_t)63;
    if (atomic_load_explicit(&ra.arena_used, memory_order_relaxed) + bytes > ARENA_BYTES)
        return NULL;
    uint64_t at = atomic_fetch_add_explicit(&ra.arena_used, bytes, memory_order_relaxed);
    return at + bytes <= ARENA_BYTES ? ra.arena + at : NULL;
}

/* ---- The bit vector ---------------------------------------------------- */

static bool bit(const uint8_t *bits, uint64_t page) {
    return __atomic_load_n(&bits[page >> 3], __ATOMIC_RELAXED) >> (page & 7) & 1;
}

static void set_bit(uint8_t *bits, uint64_t page) {
    __atomic_fetch_or(&bits[page >> 3], (uint8_t)(1u << (page & 7)), __ATOMIC_RELAXED);
}

static void clear_bit(uint8_t *bits, uint64_t page) {
    __atomic_fetch_and(&bits[page >> 3], (uint8_t)~(1u << (page & 7)), __ATOMIC_RELAXED);
}

static void set_bits(uint64_t first, uint64_t end) {
    while (first < end) {
        if ((first & 7) == 0 && end - first >= 8) {
            __atomic_store_n(&ra.bits[first >> 3], 0xff, __ATOMIC_RELAXED);
            first += 8;
        } else {
            set_bit(ra.bits, first++);
        }
    }
}

static void clear_bits(uint64_t first, uint64_t end) {
    for (; first < end; ++first)
        if (bit(ra.bits, first))
            clear_bit(ra.bits, first);
}

/* First page from `first` on that is not believed in memory, or `end`. */
static uint64_t first_missing(uint64_t first, uint64_t end) {
    while (first < end) {
        if ((first & 7) == 0 && __atomic_load_n(&ra.bits[first >> 3], __ATOMIC_RELAXED) == 0xff)
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

static bool enqueue(enum operation operation, uint64_t address, uint64_t bytes, uint32_t flags) {
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
            atomic_store_explicit(&e->turn, at + 1, memory_order_release);
            wake_helper();
            return true;
        }
    }
}

/* A block prefetch (section 2.4): "we check each page until one is found that
 * is not in memory, then pass all remaining pages to the OS". */
static void prefetch(uint64_t low, uint64_t high) {
    if (high <= low || high > ADDRESSES)
        return;
    uint64_t first = low >> PAGE_SHIFT, end = (high + PAGE - 1) >> PAGE_SHIFT;
    uint64_t missing = first_missing(first, end);
    count(&ra.count.hinted, end - first);
    count(&ra.count.filtered, missing - first);
    if (missing == end)
        return;
    if (enqueue(PREFETCH, missing << PAGE_SHIFT, (end - missing) << PAGE_SHIFT, 0)) {
        set_bits(missing, end);
        count(&ra.count.queued, end - missing);
    } else {
        count(&ra.count.lost, end - missing);
    }
}

/* ---- Plans --------------------------------------------------------------- */

/* Bytes between the first and the last address of the levels from `level` on,
 * below and above the start. */
static void spans(const struct ra_plan *p, const struct ra_stream *s, uint32_t level,
                  int64_t *below, int64_t *above) {
    *below = s->low;
    *above = s->high;
    for (uint32_t l = level; l < p->levels; ++l) {
        int64_t moved = s->stride[l] * (int64_t)(p->count[l] - 1);
        if (moved < 0)
            *below += moved;
        else
            *above += moved;
    }
}

static uint64_t extent(const struct ra_plan *p, const struct ra_stream *s, uint32_t level) {
    int64_t below, above;
    spans(p, s, level, &below, &above);
    return (uint64_t)(above - below);
}

/* Bytes that a stream touches in the levels from `level` on, each byte once. */
static uint64_t touched(const struct ra_plan *p, const struct ra_stream *s, uint32_t level) {
    double bytes = s->high - s->low < 64 ? (double)(s->high - s->low) : 64.0;
    for (uint32_t l = p->levels; l-- > level;) {
        if (s->stride[l] == 0)
            continue;
        double each = magnitude(s->stride[l]) >= PAGE && bytes < (double)PAGE ? (double)PAGE : bytes;
        double span = (double)extent(p, s, l);
        bytes = each * (double)p->count[l];
        if (bytes > span)
            bytes = span;
    }
    return (uint64_t)bytes;
}

/* Does a stream go over its addresses once, in order? Returns its direction. */
static int direction(const struct ra_plan *p, const struct ra_stream *s) {
    int sign = 0;
    bool still = false; /* a loop outside in which it does not move */
    for (uint32_t l = 0; l < p->levels; ++l) {
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
    if (!ra.release_allowed || (double)p->bytes < 0.9 * (double)ra.memory)
        return; /* it may all still be there the next time */
    for (uint32_t i = 0; i < p->streams; ++i) {
        const struct ra_stream *s = &p->stream[i];
        int sign = s->flags & RA_FLAG_INDIRECT ? 0 : direction(p, s);
        if (sign == 0)
            continue;
        int64_t below, above;
        spans(p, s, 0, &below, &above);
        int64_t trail = sign > 0 ? s->low : s->high;
        bool good = true, last = true;
        for (uint32_t k = 0; good && k < p->streams; ++k) {
            const struct ra_stream *q = &p->stream[k];
            if (k == i)
                continue;
            int64_t q_below, q_above;
            spans(p, q, 0, &q_below, &q_above);
            if (q->flags & RA_FLAG_INDIRECT)
                continue; /* what it goes to is not known; its pages come back */
            if ((int64_t)q->base + q_above <= (int64_t)s->base + below ||
                (int64_t)q->base + q_below >= (int64_t)s->base + above)
                continue;
            if (memcmp(q->stride, s->stride, sizeof(q->stride)) != 0) {
                good = false;
                break;
            }
            int64_t q_trail = (int64_t)(q->base - s->base) + (sign > 0 ? q->low : q->high);
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

/* Where to pipeline: "the first surrounding loop which touches more than a page
 * of the given array" (section 2.3), here more than a strip's worth. */
static void work_out(struct ra_plan *p) {
    double bytes[RA_LEVELS_MAX + 1] = {0};
    for (uint32_t l = 0; l <= p->levels; ++l)
        for (uint32_t i = 0; i < p->streams; ++i)
            bytes[l] += (double)touched(p, &p->stream[i], l);
    bool is_indirect = false;
    for (uint32_t i = 0; i < p->streams; ++i) {
        struct ra_stream *s = &p->stream[i];
        is_indirect |= (s->flags & RA_FLAG_INDIRECT) != 0;
        p->way[i] = s->flags & RA_FLAG_INDIRECT ? 0 : (int8_t)direction(p, s);
        /* Levels from here on touch every page of their span. */
        uint32_t d = p->levels;
        while (d > 0 && magnitude(s->stride[d - 1]) < extent(p, s, d) + PAGE)
            --d;
        p->dense_from[i] = (uint8_t)d;
    }
    p->bytes = (uint64_t)bytes[0];
    /* Disks like large requests: a quarter of the window in whole blocks. */
    p->block = 16 << 10;
    while (p->block < BLOCK_BYTES_MAX && p->block * 2 * p->streams * 4 <= ra.window)
        p->block *= 2;
    uint32_t level = p->levels;
    for (uint32_t l = p->levels; l-- > 0;) {
        if (!(p->site->strip_mined >> l & 1))
            continue;
        level = l;
        if (bytes[l] >= 1.5 * (double)ra.tick_bytes)
            break;
    }
    if (level == p->levels) { /* none can be strip-mined: the beginning only */
        level = 0;
        p->strip = ~(uint64_t)0;
    } else {
        double each = bytes[level] / (double)p->count[level];
        double strip = each > 0 ? (double)ra.tick_bytes / each : 1;
        if (is_indirect && strip > 512)
            strip = 512; /* each index may want a page of its own */
        p->strip = strip < 1 ? 1 : (uint64_t)strip;
    }
    p->tick_level = level;
    p->total = 1;
    for (uint32_t l = 0; l <= level && l < p->levels; ++l)
        p->total *= p->count[l];
    p->bytes_per_iteration = bytes[0] / (double)(p->total ? p->total : 1);
    double look = p->bytes_per_iteration > 0 ? (double)ra.window / p->bytes_per_iteration : 1e18;
    if (is_indirect && look > (double)(ra.window >> PAGE_SHIFT) / 2)
        look = (double)(ra.window >> PAGE_SHIFT) / 2;
    p->look_ahead = look > 1e18 ? (uint64_t)1e18 : (uint64_t)look;
    if (p->strip != ~(uint64_t)0 && p->look_ahead < 2 * p->strip)
        p->look_ahead = 2 * p->strip;
    plan_releases(p);
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

/* The plan of a nest, made when it is new; null when there is no more room. */
static struct ra_plan *plan_of(struct ra_site *site, const uint64_t *counts,
                               const struct ra_stream *streams, bool *is_new) {
    uint64_t hash = hash_of(site, counts, streams);
    enum { PROBES_MAX = 16 };
    *is_new = false;
    for (uint64_t probe = 0; probe < PROBES_MAX; ++probe) {
        _Atomic(struct ra_plan *) *slot = &ra.plans[(hash + probe) & (PLANS_MAX - 1)];
        struct ra_plan *p = atomic_load_explicit(slot, memory_order_acquire);
        if (p) {
            if (p->hash == hash && same_plan(p, site, counts, streams))
                return p;
            continue;
        }
        p = allocate(sizeof(*p) + site->streams * sizeof(struct ra_stream));
        if (!p)
            return NULL;
        p->site = site;
        p->hash = hash;
        p->levels = site->levels;
        p->streams = site->streams;
        memcpy(p->count, counts, sizeof(p->count));
        memcpy(p->stream, streams, site->streams * sizeof(struct ra_stream));
        for (uint32_t i = 0; i < p->streams; ++i)
            for (uint32_t l = p->levels; l < RA_LEVELS_MAX; ++l)
                p->stream[i].stride[l] = 0; /* the program stores no more than it has */
        work_out(p);
        *is_new = true;
        struct ra_plan *none = NULL;
        if (atomic_compare_exchange_strong_explicit(slot, &none, p, memory_order_release,
                                                    memory_order_acquire))
            return p;
        return p; /* another thread was first; this one serves as well */
    }
    return NULL;
}

/* ---- Prefetching along a plan --------------------------------------------- */

struct budget {
    int ranges;
};

static void prefetch_inner(const struct ra_plan *p, uint32_t i, uint32_t level, uint64_t address,
                           struct budget *budget) {
    const struct ra_stream *s = &p->stream[i];
    if (budget->ranges <= 0)
        return;
    if (p->dense_from[i] <= level) {
        int64_t below, above;
        spans(p, s, level, &below, &above);
        budget->ranges--;
        prefetch(address + (uint64_t)below, address + (uint64_t)above);
        return;
    }
    for (uint64_t n = 0; n < p->count[level] && budget->ranges > 0; ++n)
        prefetch_inner(p, i, level + 1, address + n * (uint64_t)s->stride[level], budget);
}

/* Section 2.3 "prefetches several pages at a time for references with spatial
 * locality": whole blocks, as far as the stream goes. */
static void prefetch_blocks(const struct ra_plan *p, uint32_t i, uint64_t low, uint64_t high) {
    int64_t below, above;
    const uint64_t mask = p->block - 1;
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
    prefetch(low, high);
}

/* a[b[i]]: looks ahead in b, as far as b itself is in memory. */
static void prefetch_indirect(const struct ra_stream *s, uint64_t from, uint64_t to) {
    uint32_t bytes = (uint32_t)(s->flags >> RA_FLAG_INDEX_BYTES_SHIFT) & 0xff;
    uint64_t checked = ~(uint64_t)0, last = ~(uint64_t)0;
    for (uint64_t n = from; n < to; ++n) {
        uint64_t at = s->base + n * (uint64_t)s->stride[0];
        uint64_t page = at >> PAGE_SHIFT;
        if (page != checked) {
            if (at >= ADDRESSES || !bit(ra.bits, page))
                return; /* reading it might wait */
            checked = page;
        }
        uint64_t index;
        if (bytes == 8) {
            memcpy(&index, (const void *)(uintptr_t)at, 8);
        } else {
            uint32_t narrow;
            memcpy(&narrow, (const void *)(uintptr_t)at, 4);
            index = s->flags & RA_FLAG_INDEX_SIGNED ? (uint64_t)(int64_t)(int32_t)narrow : narrow;
        }
        uint64_t target = s->target + index * (uint64_t)s->scale;
        if (target >> PAGE_SHIFT == last || target >= ADDRESSES)
            continue;
        last = target >> PAGE_SHIFT;
        if (bit(ra.bits, last))
            continue;
        prefetch(last << PAGE_SHIFT, (last + 1) << PAGE_SHIFT);
    }
}

/* Prefetches iterations [from, to) of the tick level, counted through the
 * loops outside of it: the pipeline does not drain at the end of a row. */
static void advance(const struct ra_plan *p, uint64_t from, uint64_t to, bool is_running) {
    struct budget budget = {RANGES_PER_ADVANCE_MAX};
    const uint32_t t = p->tick_level;
    while (from < to && budget.ranges > 0) {
        uint64_t row = from / p->count[t], first = from % p->count[t];
        uint64_t n = p->count[t] - first;
        if (n > to - from)
            n = to - from;
        uint64_t index[RA_LEVELS_MAX] = {0};
        for (uint32_t l = t; l-- > 0;) {
            index[l] = row % p->count[l];
            row /= p->count[l];
        }
        for (uint32_t i = 0; i < p->streams; ++i) {
            const struct ra_stream *s = &p->stream[i];
            if (s->flags & RA_FLAG_INDIRECT) {
                /* Of a nest that is only expected the indices may be gone. */
                if (is_running)
                    prefetch_indirect(s, from, from + n);
                continue;
            }
            uint64_t address = s->base + first * (uint64_t)s->stride[t];
            for (uint32_t l = 0; l < t; ++l)
                address += index[l] * (uint64_t)s->stride[l];
            if (p->dense_from[i] <= t) {
                int64_t below, above, moved = s->stride[t] * (int64_t)(n - 1);
                spans(p, s, t + 1, &below, &above);
                if (moved < 0)
                    below += moved;
                else
                    above += moved;
                budget.ranges--;
                prefetch_blocks(p, i, address + (uint64_t)below, address + (uint64_t)above);
            } else if (s->stride[t] == 0) {
                prefetch_inner(p, i, t + 1, address, &budget);
            } else {
                uint64_t page = ~(uint64_t)0;
                for (uint64_t m = 0; m < n && budget.ranges > 0; ++m) {
                    /* A walk across rows touches the same pages again and
                     * again: look when it comes to new ones. */
                    uint64_t at = address + m * (uint64_t)s->stride[t];
                    if (at >> PAGE_SHIFT == page)
                        continue;
                    page = at >> PAGE_SHIFT;
                    prefetch_inner(p, i, t + 1, at, &budget);
                }
            }
        }
        from += n;
    }
}

static void release_behind(const struct ra_plan *p, struct ra_frame *f) {
    for (uint32_t i = 0; i < p->streams; ++i) {
        if (!(p->releases >> i & 1))
            continue;
        const struct ra_stream *s = &p->stream[i];
        uint64_t trail = s->base + (uint64_t)p->trail[i];
        int sign = 0;
        for (uint32_t l = 0; l <= p->tick_level; ++l)
            trail += f->index[l] * (uint64_t)s->stride[l];
        for (uint32_t l = 0; l < p->levels && !sign; ++l)
            sign = s->stride[l] > 0 ? 1 : s->stride[l] < 0 ? -1 : 0;
        uint64_t low = sign > 0 ? f->released[i] : trail, high = sign > 0 ? trail : f->released[i];
        if (high <= low || high - low < RELEASE_BYTES || high > ADDRESSES)
            continue;
        low = (low + PAGE - 1) & ~(PAGE - 1);
        high &= ~(PAGE - 1);
        if (high > low && enqueue(RELEASE, low, high - low, (uint32_t)s->flags))
            f->released[i] = sign > 0 ? high : low;
    }
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
    double left = (double)(p->total - done) * p->bytes_per_iteration;
    if (!f->next && f->next_bytes == 0)
        f->next = atomic_load_explicit(&p->next, memory_order_acquire);
    for (int links = 0; f->next && links < CHAIN_MAX; ++links) {
        struct ra_plan *n = f->next;
        double room = (double)ra.window - left - (double)f->next_bytes;
        if (room <= 0)
            return;
        uint64_t to = n->total;
        if (n->bytes_per_iteration > 0 && room / n->bytes_per_iteration < (double)to)
            to = (uint64_t)(room / n->bytes_per_iteration);
        if (to <= f->next_cursor)
            return;
        advance(n, f->next_cursor, to, false);
        f->next_cursor = to;
        if (to < n->total)
            return;
        f->next_bytes += n->bytes + 1;
        f->next_cursor = 0;
        f->next = atomic_load_explicit(&n->next, memory_order_acquire);
        if (n == p)
            f->next = NULL;
    }
}

static void go_on(const struct ra_plan *p, struct ra_frame *f, uint64_t done) {
    uint64_t to = done + p->look_ahead;
    if (to > p->total)
        to = p->total;
    if (to > f->cursor) {
        advance(p, f->cursor, to, true);
        f->cursor = to;
    }
    if (f->cursor == p->total)
        prefetch_next(p, f, done);
}

/* The nest expected next from the way its site moved: same shape, all bases on
 * by what they moved last. */
static void expect_shifted(struct ra_plan *p, struct ra_plan *last) {
    if (!last || last == p || last->streams != p->streams ||
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
    bool is_new;
    struct ra_plan *next = moved ? plan_of(p->site, p->count, shifted, &is_new) : NULL;
    struct ra_plan *none = NULL;
    if (next)
        atomic_compare_exchange_strong(&p->next, &none, next);
}

/* ---- What the program calls ------------------------------------------------ */

static void start_up(void);
static void start_helper(void);

/* A nest too small to be worth looking at by itself: many of them in a row are
 * one walk. Extrapolates it, and asks to be called again a window later. */
static void small_nest(struct ra_site *site, struct ra_frame *f, struct ra_plan *p) {
    struct ra_plan *last = site->last;
    uint64_t first = p->stream[0].base;
    if (!last) {
        uint32_t at = atomic_fetch_add(&ra.site_count, 1);
        if (at < PLANS_MAX)
            atomic_store(&ra.sites[at], site);
    }
    (void)f;
    uint64_t travelled = 0;
    bool steady = last != NULL;
    for (uint32_t i = 0; steady && i < p->streams; ++i) {
        uint64_t by = magnitude((int64_t)(p->stream[i].base - last->stream[i].base));
        travelled += by;
        steady = by <= (4 << 20);
    }
    site->steps = steady && travelled ? site->steps + 1 : 0;
    uint64_t times = 1;
    if (site->steps >= 2 && travelled)
        times = ra.window / 2 / travelled + 1;
    for (uint32_t i = 0; i < p->streams; ++i) {
        const struct ra_stream *s = &p->stream[i];
        int64_t below, above;
        spans(p, s, 0, &below, &above);
        if (s->flags & RA_FLAG_INDIRECT) {
            prefetch_indirect(s, 0, p->count[0]);
            continue;
        }
        if (site->steps >= 2) {
            int64_t by = (int64_t)(s->base - last->stream[i].base) * (int64_t)times;
            if (by < 0)
                below += by;
            else
                above += by;
        }
        prefetch(s->base + (uint64_t)below, s->base + (uint64_t)above);
    }
    /* Called again when the first stream has left this block. */
    site->span = 0;
    site->low = first - SMALL_BYTES / 2;
    site->span = SMALL_BYTES;
}

void ra_begin(struct ra_site *site, struct ra_frame *f) {
    for (uint32_t l = 0; l < site->levels; ++l)
        f->strip[l] = ~(uint64_t)0;
    f->plan = NULL;
    int state = atomic_load_explicit(&ra.state, memory_order_acquire);
    if (state != 1) {
        if (state == 0)
            start_up();
        if (atomic_load_explicit(&ra.state, memory_order_acquire) != 1) {
            site->span = ~(uint64_t)0;
            return;
        }
    }
    if (!atomic_load_explicit(&ra.active, memory_order_relaxed)) {
        /* Everything is in memory. A strip so long that it costs nothing, for
         * the case that this changes before the nest is over. */
        site->span = ~(uint64_t)0;
        if (site->last && site->last->bytes >= ra.window) {
            uint64_t strip = site->last->strip;
            uint32_t l = site->last->tick_level;
            uint64_t times = ra.window / 4 / ra.tick_bytes;
            f->strip[l] = strip >= ~(uint64_t)0 / times ? ~(uint64_t)0 : strip * times;
        }
        return;
    }
    count(&ra.count.begins, 1);
    bool is_new;
    if (site->last && same_plan(site->last, site, f->count, f->streams)) {
        f->plan = site->last;
        is_new = false;
    } else {
        f->plan = plan_of(site, f->count, f->streams, &is_new);
    }
    struct ra_plan *p = f->plan;
    if (!p)
        return;
    if (p->bytes < SMALL_BYTES) {
        f->plan = RA_NOT_BEGUN;
        small_nest(site, f, p);
        site->last = p;
        return;
    }
    if (atomic_load_explicit(&ra.helper, memory_order_relaxed) == 0)
        start_helper();
    if (previous && previous != p)
        atomic_store_explicit(&previous->next, p, memory_order_release);
    previous = p;
    if (is_new || !atomic_load_explicit(&p->next, memory_order_relaxed))
        expect_shifted(p, site->last);
    site->last = p;
    if (p->strip < p->count[p->tick_level])
        f->strip[p->tick_level] = p->strip;
    f->cursor = 0;
    f->next = NULL;
    f->next_cursor = 0;
    f->next_bytes = 0;
    memset(f->index, 0, sizeof(f->index));
    for (uint32_t i = 0; i < p->streams; ++i)
        f->released[i] = p->stream[i].base + (uint64_t)p->trail[i];
    go_on(p, f, 0);
}

void ra_tick(struct ra_site *site, struct ra_frame *f, uint64_t level) {
    (void)site;
    (void)level;
    if (!atomic_load_explicit(&ra.active, memory_order_relaxed))
        return;
    struct ra_plan *p = f->plan;
    if (p == RA_NOT_BEGUN)
        return;
    if (!p) {
        /* It began while everything was in memory. */
        bool is_new;
        p = plan_of(site, f->count, f->streams, &is_new);
        if (!p || level != p->tick_level)
            return;
        f->plan = p;
        f->next = NULL;
        f->next_cursor = f->next_bytes = 0;
        f->cursor = position(p, f);
        for (uint32_t i = 0; i < p->streams; ++i) {
            f->released[i] = p->stream[i].base + (uint64_t)p->trail[i];
            for (uint32_t l = 0; l <= p->tick_level; ++l)
                f->released[i] += f->index[l] * (uint64_t)p->stream[i].stride[l];
        }
    }
    if (level != p->tick_level)
        return;
    count(&ra.count.ticks, 1);
    uint64_t done = position(p, f);
    go_on(p, f, done);
    if (p->releases)
        release_behind(p, f);
}

/* Copies and fills block by block, each block's pages asked for a window ahead. */
static void blocks(char *to, const char *from, uint8_t value, uint64_t bytes) {
    const uint64_t block = 256 << 10;
    uint64_t asked = 0;
    for (uint64_t done = 0; done < bytes;) {
        uint64_t n = bytes - done < block ? bytes - done : block;
        if (atomic_load_explicit(&ra.active, memory_order_relaxed)) {
            uint64_t want = done + ra.window / 2;
            if (want > bytes)
                want = bytes;
            if (want > asked) {
                prefetch((uint64_t)(uintptr_t)to + asked, (uint64_t)(uintptr_t)to + want);
                if (from)
                    prefetch((uint64_t)(uintptr_t)from + asked, (uint64_t)(uintptr_t)from + want);
                asked = want;
            }
        }
        if (from)
            memcpy(to + done, from + done, n);
        else
            memset(to + done, value, n);
        done += n;
    }
}

static bool is_worth_it(uint64_t bytes) {
    if (bytes < 2 * SMALL_BYTES)
        return false;
    if (atomic_load_explicit(&ra.state, memory_order_acquire) == 0)
        start_up();
    if (atomic_load_explicit(&ra.state, memory_order_acquire) != 1 ||
        !atomic_load_explicit(&ra.active, memory_order_relaxed))
        return false;
    if (atomic_load_explicit(&ra.helper, memory_order_relaxed) == 0)
        start_helper();
    return true;
}

void ra_memcpy(void *to, const void *from, uint64_t bytes) {
    if (is_worth_it(bytes))
        blocks(to, from, 0, bytes);
    else
        memcpy(to, from, bytes);
}

void ra_memset(void *to, uint8_t value, uint64_t bytes) {
    if (is_worth_it(bytes))
        blocks(to, NULL, value, bytes);
    else
        memset(to, value, bytes);
}

/* ---- The helper ------------------------------------------------------------ */

struct region {
    uint64_t low, high;
    uint64_t hinted_low, hinted_high; /* what hints have touched of it */
    bool is_file, is_shared;
    int fd; /* of the file, to start writing with; -1 unknown, -2 none */
    uint64_t offset;
    char path[256];
};

static struct {
    struct region region[REGIONS_MAX];
    int regions;
    uint64_t read_ns;
    int pagemap;
    int sweep_region;
    uint64_t sweep_at;
} h;

struct release {
    uint64_t address, bytes, ns, offset;
    int fd; /* of the file, where pages may be dirty; below 0: none */
};

/* From the helper to its releaser. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct release queue[RELEASES_MAX];
    uint32_t head, tail;
    int busy; /* file being written */
} w = {.busy = -1, .lock = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER};

/* Closes a file as soon as nothing in the queue is about it. */
static void retire_file(int fd) {
    pthread_mutex_lock(&w.lock);
    bool is_used = w.busy == fd;
    for (uint32_t at = w.tail; at != w.head; ++at)
        is_used |= w.queue[at % RELEASES_MAX].fd == fd;
    pthread_mutex_unlock(&w.lock);
    if (!is_used)
        close(fd); /* else it stays open until the program ends */
}

static void read_regions(void) {
    /* Not with stdio: the program may be in exit(), which takes its streams. */
    static char text[512 << 10];
    size_t length = 0;
    h.read_ns = now_ns();
    int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (maps < 0)
        return;
    for (ssize_t got; length < sizeof(text) - 1 &&
                      (got = read(maps, text + length, sizeof(text) - 1 - length)) > 0;)
        length += (size_t)got;
    close(maps);
    text[length] = 0;
    static struct region fresh[REGIONS_MAX];
    int n = 0;
    for (char *line = text, *end; n < REGIONS_MAX && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        struct region *r = &fresh[n];
        unsigned long low, high, offset, inode;
        char perms[8], device[16];
        int at = 0;
        if (sscanf(line, "%lx-%lx %7s %lx %15s %lu %n", &low, &high, perms, &offset, device, &inode,
                   &at) < 6)
            continue;
        *r = (struct region){.low = low, .high = high, .hinted_low = ~(uint64_t)0,
                             .is_file = inode != 0, .is_shared = perms[3] == 's', .fd = -1,
                             .offset = offset};
        size_t bytes = strlen(line + at);
        if (bytes < sizeof(r->path))
            memcpy(r->path, line + at, bytes + 1);
        ++n;
    }
    for (int i = 0; i < n; ++i)
        for (int k = 0; k < h.regions; ++k)
            if (h.region[k].low == fresh[i].low && h.region[k].high == fresh[i].high &&
                strcmp(h.region[k].path, fresh[i].path) == 0) {
                fresh[i].hinted_low = h.region[k].hinted_low;
                fresh[i].hinted_high = h.region[k].hinted_high;
                fresh[i].fd = h.region[k].fd;
                h.region[k].fd = -2;
            }
    /* Files of mappings that are gone: held until no release can name them. */
    for (int k = 0; k < h.regions; ++k)
        if (h.region[k].fd >= 0)
            retire_file(h.region[k].fd);
    memcpy(h.region, fresh, sizeof(fresh[0]) * (size_t)n);
    h.regions = n;
}

static struct region *region_of(uint64_t address) {
    for (int again = 0; again < 2; ++again) {
        int low = 0, high = h.regions;
        while (low < high) {
            int middle = (low + high) / 2;
            if (h.region[middle].high <= address)
                low = middle + 1;
            else
                high = middle;
        }
        if (low < h.regions && h.region[low].low <= address)
            return &h.region[low];
        if (h.regions && now_ns() - h.read_ns < 20 * 1000000ull)
            return NULL;
        read_regions();
    }
    return NULL;
}

enum { CHUNK_PAGES = 512 };

/* For up to CHUNK_PAGES pages: which would a touch have to wait for? */
static bool find_missing(const struct region *r, uint64_t address, uint64_t pages, uint8_t *missing) {
    if (r->is_file) {
        if (mincore((void *)(uintptr_t)address, pages << PAGE_SHIFT, missing) != 0)
            return false;
        for (uint64_t i = 0; i < pages; ++i)
            missing[i] = !(missing[i] & 1);
        return true;
    }
    uint64_t entry[CHUNK_PAGES];
    ssize_t got = pread(h.pagemap, entry, pages * 8, (off_t)((address >> PAGE_SHIFT) * 8));
    if (got != (ssize_t)(pages * 8))
        return false;
    for (uint64_t i = 0; i < pages; ++i)
        missing[i] = (uint8_t)(entry[i] >> 62 & 1); /* swapped */
    return true;
}

static void do_prefetch(uint64_t address, uint64_t bytes) {
    while (bytes) {
        struct region *r = region_of(address);
        if (!r)
            return;
        uint64_t n = r->high - address < bytes ? r->high - address : bytes;
        if (n > WILLNEED_BYTES)
            n = WILLNEED_BYTES;
        if (r->hinted_low > address)
            r->hinted_low = address;
        if (r->hinted_high < address + n)
            r->hinted_high = address + n;
        uint8_t missing[CHUNK_PAGES];
        uint64_t pages = n >> PAGE_SHIFT;
        if (!find_missing(r, address, pages, missing))
            return;
        for (uint64_t i = 0; i < pages;) {
            uint64_t from = i;
            while (i < pages && missing[i] == missing[from])
                ++i;
            if (!missing[from]) {
                count(&ra.count.resident, i - from);
                continue;
            }
            uint64_t page = (address >> PAGE_SHIFT) + from;
            for (uint64_t k = 0; k < i - from; ++k)
                set_bit(ra.recent, page + k);
            madvise((void *)(uintptr_t)(page << PAGE_SHIFT), (i - from) << PAGE_SHIFT, MADV_WILLNEED);
            count(&ra.count.issued, i - from);
            count(&ra.count.calls, 1);
        }
        address += n;
        bytes -= n;
    }
}

static void give_back(uint64_t address, uint64_t bytes) {
    /* Where the kernel does not know PAGEOUT nothing happens. Never DONTNEED:
     * on private memory it would destroy the data. */
    if (madvise((void *)(uintptr_t)address, bytes, MADV_PAGEOUT) == 0)
        count(&ra.count.released, bytes >> PAGE_SHIFT);
    count(&ra.count.calls, 1);
}

/* Releases have a thread of their own: writing what is dirty takes as long as
 * the disks take, and prefetches must not wait for it. Reclaim leaves dirty file
 * pages alone, so they are written first, in pieces large enough for an array
 * of disks. */
static void *releaser(void *nothing) {
    (void)nothing;
    pthread_mutex_lock(&w.lock);
    for (;;) {
        while (w.head == w.tail)
            pthread_cond_wait(&w.filled, &w.lock);
        /* Neighbours are one piece. */
        struct release one = w.queue[w.tail % RELEASES_MAX];
        uint32_t next = w.tail + 1;
        while (next != w.head && w.queue[next % RELEASES_MAX].fd == one.fd) {
            const struct release *more = &w.queue[next % RELEASES_MAX];
            if (more->address == one.address + one.bytes) {
                one.bytes += more->bytes;
            } else if (more->address + more->bytes == one.address) {
                one.address = more->address;
                one.offset = more->offset;
                one.bytes += more->bytes;
            } else {
                break;
            }
            ++next;
        }
        uint64_t enough = ra.window / 2 < WRITE_BYTES_MAX ? ra.window / 2 : WRITE_BYTES_MAX;
        if (one.fd >= 0 && one.bytes < enough && next == w.head && now_ns() - one.ns < WRITE_WAIT_NS) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += 50000000;
            if (until.tv_nsec >= 1000000000)
                until.tv_sec++, until.tv_nsec -= 1000000000;
            pthread_cond_timedwait(&w.filled, &w.lock, &until);
            continue;
        }
        w.tail = next;
        w.busy = one.fd;
        pthread_mutex_unlock(&w.lock);
        if (one.fd >= 0)
            sync_file_range(one.fd, (off_t)one.offset, (off_t)one.bytes,
                            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                SYNC_FILE_RANGE_WAIT_AFTER);
        give_back(one.address, one.bytes);
        pthread_mutex_lock(&w.lock);
        w.busy = -1;
    }
    return NULL;
}

static void do_release(uint64_t address, uint64_t bytes, uint32_t flags) {
    clear_bits(address >> PAGE_SHIFT, (address + bytes) >> PAGE_SHIFT);
    struct region *r = region_of(address);
    if (!r)
        return;
    if (r->high - address < bytes)
        bytes = r->high - address;
    struct release one = {.address = address, .bytes = bytes, .ns = now_ns(), .fd = -1};
    if ((flags & RA_FLAG_WRITE) && r->is_file && r->is_shared) {
        if (r->fd == -1) {
            r->fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NOATIME);
            if (r->fd < 0)
                r->fd = open(r->path, O_RDONLY | O_CLOEXEC);
            if (r->fd < 0)
                r->fd = -2;
        }
        one.fd = r->fd;
        one.offset = r->offset + (address - r->low);
    }
    pthread_mutex_lock(&w.lock);
    if (w.head - w.tail < RELEASES_MAX)
        w.queue[w.head++ % RELEASES_MAX] = one;
    pthread_cond_signal(&w.filled);
    pthread_mutex_unlock(&w.lock);
}

/* Keeps the bit vector true: what the kernel has reclaimed loses its bit. What
 * was asked for since the last sweep may still be on its way. */
static void sweep(uint64_t pages_max) {
    for (int tried = 0; tried < h.regions && pages_max; ++tried) {
        if (h.sweep_region >= h.regions)
            h.sweep_region = 0;
        struct region *r = &h.region[h.sweep_region];
        if (r->hinted_low >= r->hinted_high) {
            ++h.sweep_region;
            continue;
        }
        if (h.sweep_at < r->hinted_low || h.sweep_at >= r->hinted_high)
            h.sweep_at = r->hinted_low & ~(PAGE - 1);
        while (pages_max && h.sweep_at < r->hinted_high) {
            uint64_t pages = (r->hinted_high - h.sweep_at + PAGE - 1) >> PAGE_SHIFT;
            if (pages > CHUNK_PAGES)
                pages = CHUNK_PAGES;
            uint8_t missing[CHUNK_PAGES];
            if (!find_missing(r, h.sweep_at, pages, missing)) {
                r->hinted_low = ~(uint64_t)0; /* gone */
                r->hinted_high = 0;
                break;
            }
            uint64_t page = h.sweep_at >> PAGE_SHIFT;
            for (uint64_t i = 0; i < pages; ++i) {
                if (bit(ra.recent, page + i))
                    clear_bit(ra.recent, page + i);
                else if (missing[i] && bit(ra.bits, page + i))
                    clear_bit(ra.bits, page + i);
            }
            h.sweep_at += pages << PAGE_SHIFT;
            pages_max = pages_max > pages ? pages_max - pages : 0;
        }
        if (h.sweep_at >= r->hinted_high)
            ++h.sweep_region;
    }
}

static uint64_t major_faults(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_majflt : 0;
}

/* The last thread left but a main thread that has ended: end too. */
static bool is_alone(void) {
    char text[512], *at;
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = 0;
    at = strrchr(text, ')');
    char state = 0;
    long threads = 0;
    /* Fields 3 and 20 of proc(5). */
    if (!at || sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld",
                      &state, &threads) != 2)
        return false;
    return state == 'Z' && threads <= 3; /* the main thread, the helper, its releaser */
}

/* With the signals that the caller has blocked. */
static bool start_thread(void *(*body)(void *)) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    bool is_started = pthread_create(&thread, &attributes, body, NULL) == 0;
    pthread_attr_destroy(&attributes);
    return is_started;
}

static void *helper(void *nothing) {
    (void)nothing;
    /* A table of descriptors of its own, empty: what is opened here must never
     * take a number that the program's next open would have got. */
    if (syscall(SYS_close_range, 0, ~0u, CLOSE_RANGE_UNSHARE) != 0 || !start_thread(releaser)) {
        atomic_store(&ra.state, 2);
        return NULL;
    }
    uint64_t issued_before = 0, faults_before = major_faults(), quiet_since = now_ns();
    uint64_t swept_ns = 0, alone_ns = now_ns();
    h.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    for (;;) {
        int worked = 0;
        for (; worked < 64; ++worked) {
            struct entry *e = &ra.ring[ra.ring_tail & (RING_ENTRIES - 1)];
            if (atomic_load_explicit(&e->turn, memory_order_acquire) != ra.ring_tail + 1)
                break;
            struct entry copy = {.address = e->address, .bytes = e->bytes,
                                 .operation = e->operation, .flags = e->flags};
            atomic_store_explicit(&e->turn, ra.ring_tail + RING_ENTRIES, memory_order_release);
            ++ra.ring_tail;
            if (copy.operation == PREFETCH)
                do_prefetch(copy.address, copy.bytes);
            else
                do_release(copy.address, copy.bytes, copy.flags);
        }
        uint64_t now = now_ns();
        bool active = atomic_load(&ra.active);
        if (active && now - swept_ns > 4 * 1000000ull) {
            sweep(8192);
            swept_ns = now;
        }
        uint64_t issued = atomic_load_explicit(&ra.count.issued, memory_order_relaxed);
        uint64_t faults = major_faults();
        if (issued != issued_before || faults != faults_before) {
            if (!active && faults != faults_before) {
                uint32_t sites = atomic_load(&ra.site_count);
                for (uint32_t i = 0; i < sites && i < PLANS_MAX; ++i) {
                    struct ra_site *site = atomic_load(&ra.sites[i]);
                    if (site)
                        site->span = 0;
                }
                atomic_store(&ra.active, 1);
                count(&ra.count.activations, 1);
            }
            quiet_since = now;
        } else if (active && now - quiet_since > QUIET_NS) {
            /* The paper's open problem (section 4.3.1): "suppressing prefetches
             * (after the cold faults have been prefetched in) if the data fits
             * within memory". */
            atomic_store(&ra.active, 0);
            active = false;
        }
        issued_before = issued;
        faults_before = faults;
        if (now - alone_ns > 500 * 1000000ull) {
            alone_ns = now;
            if (is_alone())
                exit(0); /* what the C library does with the last thread */
        }
        if (worked == 64)
            continue;
        atomic_store(&ra.asleep, 1);
        struct entry *e = &ra.ring[ra.ring_tail & (RING_ENTRIES - 1)];
        if (atomic_load_explicit(&e->turn, memory_order_acquire) == ra.ring_tail + 1) {
            atomic_store(&ra.asleep, 0);
            continue;
        }
        struct timespec wait = {.tv_nsec = active ? 4000000 : 8000000};
        syscall(SYS_futex, &ra.asleep, FUTEX_WAIT_PRIVATE, 1, &wait, NULL, 0);
        atomic_store(&ra.asleep, 0);
    }
}

static void start_helper(void) {
    int none = 0;
    if (!atomic_compare_exchange_strong(&ra.helper, &none, 1))
        return;
    int saved = errno;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (!start_thread(helper))
        atomic_store(&ra.state, 2);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = saved;
}

/* ---- Beginning and end ------------------------------------------------------ */

static uint64_t read_number(const char *path) {
    char text[64];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = 0;
    return strtoull(text, NULL, 10); /* "max" is 0: no limit */
}

/* Memory that the program may use: the least of its cgroup's limits (version 1
 * and 2) and three quarters of the machine's. */
static uint64_t memory_limit(void) {
    uint64_t limit = (uint64_t)sysconf(_SC_PHYS_PAGES) * PAGE / 4 * 3;
    FILE *groups = fopen("/proc/self/cgroup", "re");
    if (!groups)
        return limit;
    char line[512], path[1024];
    while (fgets(line, sizeof(line), groups)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        ++controllers;
        bool is_v2 = *controllers == 0;
        if (!is_v2 && strcmp(controllers, "memory") != 0)
            continue;
        for (;;) {
            snprintf(path, sizeof(path), is_v2 ? "/sys/fs/cgroup%s/memory.max"
                                               : "/sys/fs/cgroup/memory%s/memory.limit_in_bytes",
                     group);
            uint64_t own = read_number(path);
            if (own && own < limit)
                limit = own;
            char *parent = strrchr(group, '/');
            if (!parent || group[0] == 0)
                break;
            *parent = 0;
        }
    }
    fclose(groups);
    return limit;
}

static void *reserve(uint64_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    madvise(at, bytes, MADV_DONTDUMP);
    return at;
}

/* A child of fork has no helper: it gets along without hints. */
static void in_child(void) { atomic_store(&ra.state, 2); }

static void write_statistics(void) {
    FILE *out = fopen(ra.stats, "we");
    if (!out)
        return;
    struct counters *c = &ra.count;
    fprintf(out,
            "{\"version\": 1, \"memory_bytes\": %lu, \"window_bytes\": %lu, \"begins\": %lu, "
            "\"ticks\": %lu, \"pages\": {\"hinted\": %lu, \"filtered\": %lu, \"queued\": %lu, "
            "\"lost\": %lu, \"issued\": %lu, \"resident\": %lu, \"released\": %lu}, "
            "\"calls\": %lu, \"activations\": %lu, \"active_at_end\": %d, \"major_faults\": %lu}\n",
            ra.memory, ra.window, c->begins, c->ticks, c->hinted, c->filtered, c->queued, c->lost,
            c->issued, c->resident, c->released, c->calls, c->activations, atomic_load(&ra.active),
            major_faults());
    fclose(out);
}

static void start_up(void) {
    static _Atomic int begun;
    if (atomic_exchange(&begun, 1))
        return; /* another thread is at it */
    int saved = errno;
    const char *off = getenv("RUNAHEAD");
    if ((off && strcmp(off, "off") == 0) || sysconf(_SC_PAGESIZE) != (long)PAGE) {
        atomic_store(&ra.state, 2);
        return;
    }
    ra.bits = reserve(ADDRESSES >> PAGE_SHIFT >> 3);
    ra.recent = reserve(ADDRESSES >> PAGE_SHIFT >> 3);
    ra.arena = reserve(ARENA_BYTES);
    ra.ring = reserve(RING_ENTRIES * sizeof(struct entry));
    if (!ra.bits || !ra.recent || !ra.arena || !ra.ring) {
        atomic_store(&ra.state, 2);
        errno = saved;
        return;
    }
    for (uint64_t i = 0; i < RING_ENTRIES; ++i)
        atomic_store(&ra.ring[i].turn, i);
    ra.memory = memory_limit();
    const char *given = getenv("RUNAHEAD_CC_MEMORY");
    if (given && strtoull(given, NULL, 10) > 0)
        ra.memory = strtoull(given, NULL, 10);
    ra.window = ra.memory / 6;
    if (ra.window < (1 << 20))
        ra.window = 1 << 20;
    if (ra.window > (64 << 20))
        ra.window = 64 << 20;
    ra.tick_bytes = ra.window / 64;
    if (ra.tick_bytes < (64 << 10))
        ra.tick_bytes = 64 << 10;
    const char *release = getenv("RUNAHEAD_CC_RELEASE");
    ra.release_allowed = !release || strcmp(release, "off") != 0;
    pthread_atfork(NULL, NULL, in_child);
    ra.stats = getenv("RUNAHEAD_CC_STATS");
    if (ra.stats)
        atexit(write_statistics);
    atomic_store(&ra.active, 1);
    atomic_store_explicit(&ra.state, 1, memory_order_release);
    errno = saved;
}
