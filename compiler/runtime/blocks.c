/* memset and memcpy, which loops have become. */
#include "internal.h"

#include <string.h>

/* Copies and fills block by block, each block's pages asked for a window ahead. */
static void blocks(char *to, const char *from, uint8_t value, uint64_t bytes) {
    const uint64_t block = 256 << 10;
    uint64_t asked = 0;
    for (uint64_t done = 0; done < bytes;) {
        uint64_t n = bytes - done < block ? bytes - done : block;
        if (atomic_load_explicit(&ra.active, memory_order_relaxed)) {
            ra_inside = true;
            uint64_t want = done + ra.window / 2;
            if (want > bytes)
                want = bytes;
            if (want > asked) {
                prefetch_range((uint64_t)(uintptr_t)to + asked, (uint64_t)(uintptr_t)to + want);
                if (from)
                    prefetch_range((uint64_t)(uintptr_t)from + asked,
                                   (uint64_t)(uintptr_t)from + want);
                asked = want;
            }
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
