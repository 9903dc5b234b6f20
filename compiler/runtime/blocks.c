/* memset and memcpy, which loops have become. */
#include "internal.h"

#include <string.h>

static const uint64_t BLOCK_BYTES = 256 << 10;

/* In pieces, of which the helper tells when each is passed on. */
static void ask_for(const char *array, uint64_t from, uint64_t to) {
    const uint64_t base = (uint64_t)(uintptr_t)array;
    for (uint64_t end; from < to; from = end) {
        end = to - from < BLOCK_BYTES ? to : from + BLOCK_BYTES;
        prefetch_range(base + from, base + end);
    }
}

/* Copies and fills block by block, each block's pages asked for half a window ahead: in
 * bursts, for which disks position their heads once, and which it does not overtake. A short
 * one would rather wait for a fault than for the helper. */
static void blocks(char *to, const char *from, uint8_t value, uint64_t bytes) {
    const uint64_t burst = ra.window / 4;
    const bool is_long = bytes > burst / 4;
    uint64_t asked_from = 0, asked_to = 0, turn = 0;
    for (uint64_t done = 0; done < bytes;) {
        uint64_t n = bytes - done < BLOCK_BYTES ? bytes - done : BLOCK_BYTES;
        if (atomic_load_explicit(&ra.active, memory_order_relaxed)) {
            ra_inside = true;
            uint64_t want = done + ra.window / 2;
            if (want > bytes)
                want = bytes;
            if (want > asked_to && (want == bytes || want - asked_to >= burst)) {
                const uint64_t before = queued_pages;
                ask_for(to, asked_to, want);
                if (from)
                    ask_for(from, asked_to, want);
                asked_from = asked_to;
                asked_to = want;
                if (queued_pages != before)
                    turn = atomic_load_explicit(&ra.ring_head, memory_order_relaxed);
            }
            if (is_long && asked_from < done + n)
                let_helper_go_first(turn, true);
            ra_inside = false;
        }
        if (from)
            memcpy(to + done, from + done, n);
        else
            memset(to + done, value, n);
        done += n;
    }
}

static bool is_worth_it(const void *from, uint64_t bytes) {
    if (bytes < 2 * SMALL_BYTES || ra_inside)
        return false;
    ra_inside = true;
    if (atomic_load_explicit(&ra.state, memory_order_acquire) == 0)
        start_up();
    bool is_active = atomic_load_explicit(&ra.state, memory_order_acquire) == 1 &&
                     atomic_load_explicit(&ra.active, memory_order_relaxed);
    if (is_active && is_child()) {
        do_without();
        is_active = false;
    }
    if (is_active && !has_helper()) {
        if (ra.is_told)
            start_helper();
        else
            start_helper_if_wanted(NULL, from);
        is_active = has_helper() && atomic_load(&ra.active);
    }
    ra_inside = false;
    return is_active;
}

void ra_memcpy(void *to, const void *from, uint64_t bytes) {
    if (is_worth_it(from, bytes))
        blocks(to, from, 0, bytes);
    else
        memcpy(to, from, bytes);
}

void ra_memset(void *to, uint8_t value, uint64_t bytes) {
    if (is_worth_it(NULL, bytes))
        blocks(to, NULL, value, bytes);
    else
        memset(to, value, bytes);
}
