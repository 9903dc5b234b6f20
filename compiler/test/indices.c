/* Indices are asked for well before the run-time layer looks at them, and what they go to
 * behind them; so are addresses that are computed. */
#include "layer.h"

/* to[b[i]]: of b as much is asked for as of any array, and what it holds is looked
 * at as far as it is there, up to half as far. */
static void indices(void) {
    enum { COUNT = 1 << 20, AT = 200000 };
    int *b = mmap((void *)(uintptr_t)(2 * ARRAY), COUNT * sizeof(int), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(b == (void *)(uintptr_t)(2 * ARRAY) && madvise(b, COUNT * sizeof(int), MADV_NOHUGEPAGE) == 0);
    const uint64_t base = 2 * ARRAY, count = COUNT, far = ARRAY + 128 * PAGE;
    struct ra_site site = {.levels = 1, .streams = 2, .strip_mined = 1, .name = "indices"};
    struct ra_frame *f = calloc(1, sizeof(*f) + 2 * sizeof(struct ra_stream));
    CHECK(f);
    f->count[0] = count;
    f->streams[0] = (struct ra_stream){.base = base, .high = 4, .stride = {4}};
    f->streams[1] = (struct ra_stream){.base = base, .high = 4, .stride = {4}, .target = ARRAY, .scale = 8,
                                       .flags = RA_FLAG_INDIRECT | RA_FLAG_INDEX_SIGNED |
                                           (uint64_t)sizeof(int) << RA_FLAG_INDEX_BYTES_SHIFT};
    clear_bits(ARRAY >> PAGE_SHIFT, 3 * ARRAY >> PAGE_SHIFT);
    /* All indices are the same but one, and b is in memory as far as half way there. */
    for (uint64_t i = 0; i < AT / 2; ++i)
        b[i] = 0;
    ra_begin_2(&site, f);
    const struct ra_plan *p = f->plan;
    CHECK(p->is_indirect && p->look_ahead * 4 <= ra.window / 2 && p->look_ahead * 8 >= ra.window / 2);
    CHECK(p->indices_ahead > AT && f->cursor == p->look_ahead);
    const uint64_t there = (uint64_t)AT / 2 * 4 / PAGE * (PAGE / 4);
    CHECK(f->looked >= there && f->looked <= there + PAGE / 4);
    CHECK(asked_within(base, base + COUNT * 4) >= f->cursor * 4);
    CHECK(bit(ra.bits, ARRAY >> PAGE_SHIFT) && !bit(ra.bits, far >> PAGE_SHIFT));

    /* Comes in: what it goes to is asked for long before its turn. Few of the indices
     * go to anything that is missing: so many are looked at in a tick. */
    for (uint64_t i = AT / 2; i < COUNT; ++i)
        b[i] = 0;
    b[AT] = 128 * PAGE / 8;
    f->index[0] = p->strip;
    uint64_t before = f->looked;
    ra_tick(&site, f, 0);
    CHECK(f->looked > before && f->looked <= before + INDICES_MAX + INDICES);
    for (uint64_t n = 0; n < p->indices_ahead / INDICES_MAX; ++n)
        ra_tick(&site, f, 0);
    CHECK(f->looked == p->strip + p->indices_ahead && bit(ra.bits, far >> PAGE_SHIFT));
    CHECK(asked_within(far & ~(AROUND_BYTES_MAX - 1), far + PAGE) > 0);

    /* Each goes to a page of its own, in an array larger than the memory: so many
     * are asked for at a time, and those of the next strips in any case. */
    for (uint64_t i = 0; i < COUNT; ++i)
        b[i] = (int)(i % 100000 * (PAGE / 8));
    site.target_low = ARRAY, site.target_high = ARRAY + ra.memory;
    clear_bits(ARRAY >> PAGE_SHIFT, 2 * ARRAY >> PAGE_SHIFT);
    uint64_t done = f->looked + p->strip, most = 0;
    for (int ticks = 0; ticks < 20; ++ticks, done += p->strip) {
        f->index[0] = done;
        ra_tick(&site, f, 0);
        const uint64_t asked = asked_within(ARRAY, 2 * ARRAY);
        most = asked > most ? asked : most;
        CHECK(f->looked >= done + 2 * p->strip);
    }
    CHECK(most <= ra.window / 4 + (INDICES + 2 * p->strip) * PAGE);

    /* The same indices of another array, in a large nest and in a small one. */
    for (int is_small = 0; is_small < 2; ++is_small) {
        f->count[0] = is_small ? 1000 : count;
        for (uint64_t target = ARRAY; target <= 3 * ARRAY; target += 2 * ARRAY) {
            clear_bits(target >> PAGE_SHIFT, (target + ARRAY) >> PAGE_SHIFT);
            f->streams[1].target = target;
            site.target_low = site.target_high = 0;
            ra_begin_2(&site, f);
            CHECK(asked_within(target, target + ARRAY) > 0);
            clear_bits(target >> PAGE_SHIFT, (target + ARRAY) >> PAGE_SHIFT);
        }
    }
    munmap(b, COUNT * sizeof(int));
    free(f);
}

static uint64_t every_fifth(const uint64_t *values, uint64_t iteration) {
    return values[0] + 5 * iteration % values[1] * PAGE;
}

/* Computed addresses: those of the nest's iterations are asked for, no others; in a
 * long nest so many at a time. */
static void computed(void) {
    const uint64_t values[] = {ARRAY, 4099}, counts[] = {30, 1 << 20};
    struct ra_site site = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "computed",
                           .target_low = ARRAY, .target_high = ARRAY + ra.memory};
    for (int is_long = 0; is_long < 2; ++is_long) {
        const struct ra_stream stream = {.base = ARRAY, .high = 8, .stride = {8},
                                         .flags = RA_FLAG_INDIRECT | RA_FLAG_COMPUTED,
                                         .target = (uint64_t)(uintptr_t)every_fifth,
                                         .scale = (int64_t)(uintptr_t)values};
        struct ra_frame *f = frame_of(1, &counts[is_long], &stream);
        clear_bits(ARRAY >> PAGE_SHIFT, 2 * ARRAY >> PAGE_SHIFT);
        CHECK(ra_begin_2(&site, f) == (uint64_t)is_long);
        const uint64_t asked = asked_within(ARRAY, 2 * ARRAY) >> PAGE_SHIFT;
        for (uint64_t n = 0; n < counts[0]; ++n)
            CHECK(bit(ra.bits, every_fifth(values, n) >> PAGE_SHIFT));
        CHECK(is_long ? asked <= (ra.window / 4 >> PAGE_SHIFT) + 3 * INDICES : asked == counts[0]);
        free(f);
    }
    clear_bits(ARRAY >> PAGE_SHIFT, 2 * ARRAY >> PAGE_SHIFT);
}

/* While the ring has no room only what the next strips go to is asked for; the rest at the
 * first tick when it has. */
static void computed_later(void) {
    const uint64_t values[] = {ARRAY, 4099}, count = 1 << 20;
    struct ra_site site = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "later",
                           .target_low = ARRAY, .target_high = ARRAY + ra.memory};
    const struct ra_stream stream = {.base = ARRAY, .high = 8, .stride = {8},
                                     .flags = RA_FLAG_INDIRECT | RA_FLAG_COMPUTED,
                                     .target = (uint64_t)(uintptr_t)every_fifth,
                                     .scale = (int64_t)(uintptr_t)values};
    struct ra_frame *f = frame_of(1, &count, &stream);
    clear_bits(ARRAY >> PAGE_SHIFT, 2 * ARRAY >> PAGE_SHIFT);
    while (has_room())
        CHECK(enqueue(WALKED, ARRAY, PAGE, 0));
    const uint64_t lost = ra.count.lost, soon = 2 * INDICES;
    ra_begin_2(&site, f);
    const uint64_t strip = f->strip[0];
    CHECK(strip == INDICES && f->looked <= soon && ra.count.lost == lost);
    for (uint64_t n = 0; n < 2; ++n) {
        f->index[0] = strip;
        ra_tick(&site, f, 0);
        CHECK(n == 0 ? f->looked <= strip + soon : f->looked > strip + soon);
        pass_on();
    }
    clear_bits(ARRAY >> PAGE_SHIFT, 2 * ARRAY >> PAGE_SHIFT);
    free(f);
}

int main(void) {
    start(20 << 20);
    indices();
    computed();
    computed_later();
    puts("what indices go to is asked for");
    return 0;
}
