/* Hints on their way to the helper: the unnecessary ones are dropped (Mowry, Demke and
 * Krieger 1996, section 2.4), the others put into a ring. Where that is full the hint
 * is lost, which whoever gives it is told. */
#define _GNU_SOURCE
#include "internal.h"

#include <linux/futex.h>

__thread uint64_t queued_pages;

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
        if (turn < lap_of(at))
            return false; /* full */
        if (turn == lap_of(at) &&
            atomic_compare_exchange_weak_explicit(&ra.ring_head, &at, at + 1, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            e->address = address;
            e->bytes = bytes;
            e->operation = operation;
            e->flags = flags;
            /* Unless the helper has waited too long for it, and passed it over. */
            if (!atomic_compare_exchange_strong_explicit(&e->turn, &turn, turn + 1,
                                                         memory_order_release,
                                                         memory_order_relaxed))
                return false;
            wake_helper();
            return true;
        }
    }
}

/* A block prefetch (section 2.4): "we check each page until one is found that
 * is not in memory, then pass all remaining pages to the OS". */
enum asked prefetch_as(enum operation operation, uint64_t low, uint64_t high) {
    /* What is asked for of nobody would be served much later, and believed in memory. */
    if (high <= low || high > ADDRESSES || !has_helper())
        return NOTHING_MISSING;
    if (high - low > range_most())
        high = low + range_most();
    uint64_t first = low >> PAGE_SHIFT, end = (high + PAGE - 1) >> PAGE_SHIFT;
    uint64_t missing = first_missing(first, end);
    count(&ra.count.hinted, end - first);
    count(&ra.count.filtered, missing - first);
    if (missing == end)
        return NOTHING_MISSING;
    uint32_t front = (uint32_t)atomic_load_explicit(&ra.count.hinted, memory_order_relaxed);
    /* Before the helper can find that it cannot be asked for. */
    set_bits(missing, end);
    if (enqueue(operation, missing << PAGE_SHIFT, (end - missing) << PAGE_SHIFT, front)) {
        count(&ra.count.queued, end - missing);
        queued_pages += end - missing;
        return ASKED;
    }
    clear_bits(missing, end);
    count(&ra.count.lost, end - missing);
    return LOST;
}

enum asked prefetch_range(uint64_t low, uint64_t high) {
    return prefetch_as(PREFETCH, low, high);
}

bool has_room(void) {
    const uint64_t at = atomic_load_explicit(&ra.ring_head, memory_order_relaxed) + RING_SPARE;
    return atomic_load_explicit(&ra.ring[at & (RING_ENTRIES - 1)].turn, memory_order_relaxed) >= lap_of(at);
}
