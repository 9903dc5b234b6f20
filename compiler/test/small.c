/* Walks of small nests are extrapolated, and asked for ahead at once where they begin
 * anew. */
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

int main(void) {
    start(20 << 20);
    small_walks();
    anew();
    puts("walks of small nests are asked for ahead");
    return 0;
}
