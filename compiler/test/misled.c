/* What a nest says need not be true, nor is its thread the layer's: bounds that are
 * not to be believed, indices that end early and plans that have become others do no
 * harm, and the program's arithmetic and errno stay its own. */
#include "layer.h"

#include <xmmintrin.h>

/* Loops that run no times: their counts are what is left of a guard. Neither is all of
 * that looked at, nor is it asked for. */
static void unbelievable(void) {
    static const uint64_t counts[][3] = {
        {1000, ~(uint64_t)0, 1000}, {1000, (uint64_t)1 << 32, 1000}, {~(uint64_t)0, 1000, 0},
        {1000, 0, ~(uint64_t)0},    {1000, 1000, ~(uint64_t)0 - 6},  {(uint64_t)1 << 32, 3, 1000},
        {~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0}, {0, (uint64_t)1 << 63, (uint64_t)1 << 32},
        {1000, 1000, 0},
    };
    static const int64_t strides[][3] = {{8, 0, 8000}, {0, 0, 8}, {8, 0, 0}, {0, 8000, 0},
                                         {8000, 0, 8}, {0, -8, -8000}, {1, 100000, 0}, {-8, 0, -5000}};
    const uint64_t all_bits = ADDRESSES >> PAGE_SHIFT >> 3;
    uint8_t *bits = ra.bits;
    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]) * 5; ++k)
        for (size_t s = 0; s < sizeof(strides) / sizeof(strides[0]); ++s) {
            ra.bits = mmap(NULL, all_bits, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            CHECK(ra.bits != MAP_FAILED);
            static const uint32_t masks[] = {7, 1, 6, 4, 2};
            struct ra_site *site = calloc(1, sizeof(*site)); /* with plans of its own */
            CHECK(site);
            site->levels = 3, site->streams = 1, site->strip_mined = masks[k % 5];
            struct ra_stream stream = {.base = ADDRESSES / 2, .high = 8};
            memcpy(stream.stride, strides[s], sizeof(strides[s]));
            struct ra_frame *f = frame_of(3, counts[k / 5], &stream);
            for (uint64_t tick = 0; tick < 3; ++tick) {
                if (tick == 0) {
                    ra_begin_2(site, f);
                } else {
                    f->index[0] = f->index[1] = f->index[2] = tick;
                    ra_tick(site, f, 0);
                }
                uint64_t bytes = 0;
                for (struct entry e; take_out(&e);)
                    if (e.operation <= PREFETCH_FOLIOS) {
                        CHECK(e.bytes <= 2 * ra.window + 2 * PAGE);
                        bytes += e.bytes;
                    }
                CHECK(bytes <= (2 * LONG_RANGES_MAX + 4) * ra.window);
                nothing_behind();
            }
            walks_ended(NULL);
            free(f);
            munmap(ra.bits, all_bits);
        }
    ra.bits = bits;
}

/* The memory of a plan is another plan's, or one's in the making, while its nest is
 * about to use it: no strip is empty, and nothing is used that is not there. */
static void reused(void) {
    const uint64_t counts[] = {ROWS, 86, PLACES};
    const struct ra_stream stream = {.base = ARRAY, .high = 40, .stride = {88 * 40, 40, PLANE}};
    struct ra_site rows = {.levels = 3, .streams = 1, .strip_mined = 7, .name = "reused"};
    struct ra_frame *f = frame_of(3, counts, &stream);
    ra_begin_2(&rows, f);
    struct ra_plan *p = f->plan;
    CHECK(p->walks == 1 && atomic_load(&p->is_used));
    const uint64_t strip = p->strip;
    p->strip = 0;
    CHECK(ra_begin_2(&rows, f) == 1 && f->plan == p);
    for (uint32_t l = 0; l < 3; ++l)
        CHECK(f->strip[l] > 0);
    p->strip = strip;
    const uint8_t dense_from = p->dense_from[0];
    p->dense_from[0] = 0;
    f->index[0] = 1;
    ra_tick(&rows, f, 0);
    p->dense_from[0] = dense_from;
    memset(p, 0, sizeof(*p));
    f->index[0] = 2;
    ra_tick(&rows, f, 0);
    ra_begin_2(&rows, f); /* planned anew */
    CHECK(f->plan->site == &rows && f->plan->strip > 0);
    walks_ended(NULL);
    nothing_behind();
    released_within(0, ADDRESSES);
    clear_bits(ARRAY >> PAGE_SHIFT, 2 * ARRAY >> PAGE_SHIFT);
    free(f);
}

/* The program's errno, its rounding and its floating-point exceptions, of which it may
 * want to be told by a signal, are as they were; and what the layer calls of it while
 * it works goes without hints. */
static void programs_own(void) {
    const uint64_t counts[] = {1000, (uint64_t)1 << 63};
    const struct ra_stream stream = {.base = 3 * ARRAY, .high = 8, .stride = {808, 8}};
    struct ra_site site = {.levels = 2, .streams = 1, .strip_mined = 3, .name = "own"};
    struct ra_frame *f = frame_of(2, counts, &stream);
    const uint32_t before = _mm_getcsr(), all_unmasked = 0x6000; /* towards zero */
    atomic_store(&ra.was_missing, false);
    atomic_store(&ra.count.issued, 0);
    for (int is_sane = 0; is_sane < 2; ++is_sane) {
        if (is_sane)
            f->count[1] = 100000;
        errno = 77;
        _mm_setcsr(all_unmasked);
        ra_begin_2(&site, f);
        f->index[0] = 1, f->index[1] = 0;
        ra_tick(&site, f, 0);
        const uint32_t after = _mm_getcsr();
        _mm_setcsr(before);
        CHECK(after == all_unmasked && errno == 77);
    }
    CHECK(f->plan != RA_NOT_BEGUN);
    atomic_store(&ra.was_missing, true);
    ra_inside = true;
    CHECK(ra_begin_2(&site, f) == 0 && f->plan == RA_NOT_BEGUN);
    ra_inside = false;
    released_within(0, ADDRESSES);
    nothing_behind();
    clear_bits(3 * ARRAY >> PAGE_SHIFT, 4 * ARRAY >> PAGE_SHIFT);
    free(f);
}

/* Indices whose last page is not mapped, although it is believed in memory: not read. */
static void beyond_the_end(void) {
    enum { INTS = (int)(PAGE / sizeof(int)) };
    for (uint64_t pages = 4; pages <= 256; pages *= 64) { /* a small nest, a large one */
        int *b = mmap((void *)(uintptr_t)(2 * ARRAY), (pages + 1) * PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(b == (void *)(uintptr_t)(2 * ARRAY));
        for (uint64_t i = 0; i < pages * INTS; ++i)
            b[i] = 0;
        CHECK(munmap(b + pages * INTS, PAGE) == 0);
        const uint64_t count = (pages + 1) * INTS;
        struct ra_site site = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "beyond"};
        const struct ra_stream stream = {.base = 2 * ARRAY, .high = 4, .stride = {4}, .target = ARRAY, .scale = 8,
                                         .flags = RA_FLAG_INDIRECT | RA_FLAG_INDEX_SIGNED |
                                             (uint64_t)sizeof(int) << RA_FLAG_INDEX_BYTES_SHIFT};
        struct ra_frame *f = frame_of(1, &count, &stream);
        clear_bits(ARRAY >> PAGE_SHIFT, 2 * ARRAY >> PAGE_SHIFT);
        set_bits(2 * ARRAY >> PAGE_SHIFT, (2 * ARRAY >> PAGE_SHIFT) + pages + 2);
        ra_begin_2(&site, f);
        if (f->plan != RA_NOT_BEGUN) {
            f->index[0] = count - 100;
            ra_tick(&site, f, 0);
        }
        CHECK(asked_within(ARRAY, 2 * ARRAY) > 0);
        clear_bits(ARRAY >> PAGE_SHIFT, 3 * ARRAY >> PAGE_SHIFT);
        munmap(b, pages * PAGE);
        free(f);
    }
}

/* A small nest needs no call any more where there will be no hints, or are none now; it does
 * where another thread is only starting the layer, and beyond the next bytes where there are
 * more sites than windows that are closed again. */
static void not_yet(void) {
    const uint64_t count = 100;
    const struct ra_stream stream = {.base = 2 * ARRAY, .high = 8, .stride = {8}};
    struct ra_site site = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "not yet"};
    struct ra_frame *f = frame_of(1, &count, &stream);
    atomic_store(&ra.state, 0);
    CHECK(ra_begin_2(&site, f) == 0 && site.span == 0);
    atomic_store(&ra.state, 2);
    CHECK(ra_begin_2(&site, f) == 0 && site.span == ~(uint64_t)0);
    site.span = 0;
    atomic_store(&ra.state, 1);
    atomic_store(&ra.active, 0);
    CHECK(ra_begin_2(&site, f) == 0 && site.span == ~(uint64_t)0 && site.listed);
    struct ra_site late = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "late"};
    const uint32_t sites = atomic_exchange(&ra.site_count, PLANS_MAX);
    CHECK(ra_begin_2(&late, f) == 0 && late.span == SMALL_BYTES && !list_site(&late));
    CHECK(stream.base - late.low < late.span);
    atomic_store(&ra.site_count, sites);
    atomic_store(&ra.active, 1);
    free(f);
}

int main(void) {
    start(20 << 20);
    not_yet();
    unbelievable();
    programs_own();
    reused();
    beyond_the_end();
    puts("nothing that a nest says does harm");
    return 0;
}
