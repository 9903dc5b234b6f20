/* Walks of small nests are extrapolated, and asked for ahead at once where they begin
 * anew. Those that jump, in memory, need no call before long. */
#include "layer.h"

/* A walk of small nests is asked for further and further ahead, a window in
 * the end; one over a buffer again and again hardly beyond the buffer. */
static void small_walks(void) {
    enum { LINE = 16 << 10, LINES = 16 };
    struct ra_site buffer = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "buffer"};
    struct ra_site array = buffer;
    for (int pass = 0; pass < 8; ++pass)
        CHECK(beyond(&buffer, 3 * ARRAY, LINES, LINE) <= 3 * LINES * LINE);
    const uint64_t ahead = beyond(&array, 3 * ARRAY, 1024, LINE);
    CHECK(ahead >= ra.window / 4 && ahead <= ra.window);
}

/* What is asked for when a walk of small nests over `bytes` has begun again at `base`:
 * up to where? */
static uint64_t until_anew(uint64_t walked_from, uint64_t bytes, uint64_t base) {
    enum { LINE = 16 << 10 };
    struct ra_site walk = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "walk"};
    beyond(&walk, walked_from, bytes / LINE, LINE);
    clear_bits(base >> PAGE_SHIFT, (base + ARRAY) >> PAGE_SHIFT);
    const uint64_t count = LINE / 8;
    const struct ra_stream at = {.base = base, .high = 8, .stride = {8}};
    struct ra_frame *f = frame_of(1, &count, &at);
    ra_begin_2(&walk, f);
    free(f);
    const uint64_t until = asked_until(base); /* nothing before it */
    clear_bits(walked_from >> PAGE_SHIFT, (walked_from + ARRAY) >> PAGE_SHIFT);
    return until - base;
}

/* A walk that was long is asked for ahead at once where it begins anew, no further than
 * it went. One that goes on elsewhere is another walk, of which nothing is known. */
static void anew(void) {
    enum { LINE = 16 << 10 };
    const uint64_t window = ra.window;
    CHECK(until_anew(ARRAY, 16 * window, ARRAY) >= window);
    CHECK(until_anew(ARRAY, 16 * window, ARRAY) <= window + LINE + PAGE);
    CHECK(until_anew(ARRAY, window / 3 * 2, ARRAY) <= window / 3 * 2 + LINE + PAGE);
    CHECK(until_anew(ARRAY, window / 3 * 2, ARRAY) >= window / 4);
    CHECK(until_anew(ARRAY, window / 5, ARRAY) <= LINE + PAGE);
    CHECK(until_anew(ARRAY, 16 * window, 2 * ARRAY) <= LINE + PAGE);
    CHECK(until_anew(2 * ARRAY, 16 * window, ARRAY) <= LINE + PAGE);
}

/* Small nests that jump need no call once long nothing was missing, until the next sweep; as
 * long as something is, each calls. */
static void in_vain(void) {
    enum { ROOM = 16 << 20, ROW = 4096, ROWS_EACH = 10000, FEW = 1000 };
    struct ra_site jumps = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "jumps"};
    struct ra_site walk = jumps, missing = jumps, there = jumps;
    const uint64_t base = 2 * ARRAY + ARRAY / 2;
    clear_bits(3 * ARRAY >> PAGE_SHIFT, 4 * ARRAY >> PAGE_SHIFT);
    set_bits(2 * ARRAY >> PAGE_SHIFT, 3 * ARRAY >> PAGE_SHIFT);
    CHECK(calls_over(&jumps, base, ROOM, ROWS_EACH, ROW) <= FEW);
    CHECK(calls_over(&jumps, base, ROOM, ROWS_EACH, ROW) == 0);
    CHECK(jumps.span > ROOM);
    beyond(&walk, 3 * ARRAY, 1024, 16 << 10);
    const uint64_t span = walk.span;
    CHECK(walk.steps >= 2 && span > 0);
    close_windows(false);
    CHECK(jumps.span == 0 && walk.span == span);
    /* Where more is gone over than the memory holds they call. */
    atomic_store(&ra.is_larger, true);
    CHECK(calls_over(&jumps, base, ROOM, ROWS_EACH, ROW) >= ROWS_EACH / 2);
    atomic_store(&ra.is_larger, false);
    CHECK(calls_over(&jumps, base, ROOM, ROWS_EACH, ROW) <= FEW);
    /* A walk over what is there is none either. */
    CHECK(calls_over(&jumps, base, ROOM, ROWS_EACH, ROW) <= FEW);
    beyond(&there, 2 * ARRAY, 64, 16 << 10);
    CHECK(there.span > SMALL_BYTES);
    close_windows(false);
    CHECK(there.span == 0);
    /* A tenth is missing each time. */
    uint64_t calls = 0;
    for (uint64_t n = 0; n < ROWS_EACH; ++n) {
        for (uint64_t page = 0; page < ROOM / PAGE; page += 10)
            clear_bit(ra.bits, (base >> PAGE_SHIFT) + page);
        calls += calls_over(&missing, base, ROOM, 1, ROW);
        pass_on();
    }
    CHECK(calls > ROWS_EACH / 2 && missing.span < ROOM / 8);
    clear_bits(2 * ARRAY >> PAGE_SHIFT, 4 * ARRAY >> PAGE_SHIFT);
    close_windows(true);
    CHECK(walk.span == 0);
}

int main(void) {
    start(20 << 20);
    small_walks();
    anew();
    in_vain();
    puts("walks of small nests are asked for ahead");
    return 0;
}
