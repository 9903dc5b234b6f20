/* What the run-time layer asks for ahead of the program. Nests that begin while everything
 * is in memory wait for nothing, the others do not overtake the helper, and those that go
 * on keep their plans. Indices are asked for well before they are looked at, and what they
 * go to behind them. Walks of small nests are extrapolated, what nests inside bring in
 * counts for the one outside, and walks across rows pass over no page. */
#include "layer.h"

/* As the helper does; returns how many prefetches there were. */
static uint64_t pass_on(void) {
    uint64_t prefetches = 0;
    for (struct entry e; take_out(&e);)
        prefetches += e.operation <= PREFETCH_FOLIOS;
    atomic_store(&ra.served, ra.ring_tail);
    return prefetches;
}

/* A nest over these bytes, which begins now: how often does it wait for the helper? */
static int waits_over(const char *base, uint64_t bytes) {
    const uint64_t pages = bytes >> PAGE_SHIFT;
    const struct ra_stream stream = {.base = (uint64_t)(uintptr_t)base, .high = 8, .stride = {PAGE}};
    struct ra_site site = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "resident"};
    struct ra_frame *f = frame_of(1, &pages, &stream);
    atomic_store(&ra.served, 0);
    naps = 0, naps_needed = 3;
    ra_begin_2(&site, f);
    CHECK(f->strip[0] < pages);
    naps_needed = 0;
    return naps;
}

/* While nothing has been missing, no nest waits for the helper; from the first one on
 * whose first page is not there, they do. */
static void resident(void) {
    const uint64_t bytes = ra.memory / 2;
    char *array = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    uint8_t *bits = ra.bits, *all = mmap(NULL, ADDRESSES >> PAGE_SHIFT >> 3, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(array != MAP_FAILED && all != MAP_FAILED);
    ra.bits = all;
    CHECK(waits_over(array, bytes) == 0);
    atomic_store(&ra.active, 0);
    CHECK(waits_over(array, bytes) == 0);
    atomic_store(&ra.active, 1);
    CHECK(madvise(array, PAGE, MADV_DONTNEED) == 0);
    clear_bits((uint64_t)(uintptr_t)array >> PAGE_SHIFT, (uint64_t)(uintptr_t)(array + bytes) >> PAGE_SHIFT);
    CHECK(waits_over(array, bytes) == 3);
    CHECK(waits_over(array + PAGE, bytes - PAGE) == 3);
    released_within(0, ADDRESSES);
    ra.bits = bits;
}

/* What the first iterations touch is passed on before they run, what is asked for
 * ahead is not waited for, and a helper that does not get on only for a while. */
static void helper_first(void) {
    const uint64_t pages = 4096;
    const struct ra_stream stream = {.base = 3 * ARRAY, .high = 8, .stride = {PAGE}};
    struct ra_site site = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "first"};
    struct ra_frame *f = frame_of(1, &pages, &stream);
    atomic_store(&ra.served, 0);
    naps = 0, naps_needed = 3;
    ra_begin_2(&site, f);
    CHECK(naps == 3 && atomic_load(&ra.served) == atomic_load(&ra.ring_head));
    released_within(0, 0);
    naps_needed = 1 << 30;
    const struct ra_plan *p = f->plan;
    f->index[0] = p->burst;
    ra_tick(&site, f, 0);
    CHECK(atomic_load(&ra.served) < atomic_load(&ra.ring_head) && naps == 3);
    /* It has come to what was asked for last: that is waited for, as long as a helper that
     * stands still is, and nothing else asked for meanwhile. */
    const uint64_t asked = atomic_load(&ra.ring_head);
    f->index[0] = f->asked_from;
    ra_tick(&site, f, 0);
    CHECK(naps == 3 + STILL_WAITS_MAX && atomic_load(&ra.ring_head) == asked);
    /* Not again before it gets on. */
    f->index[0] += p->strip;
    ra_tick(&site, f, 0);
    CHECK(naps == 3 + STILL_WAITS_MAX);
    atomic_fetch_add(&ra.pieces_served, 1);
    f->index[0] += p->strip;
    ra_tick(&site, f, 0);
    CHECK(naps > 3 + STILL_WAITS_MAX && naps <= 3 + STILL_WAITS_MAX + HELPER_WAITS_MAX);
    CHECK(atomic_load(&ra.ring_head) == asked);
    released_within(0, 0);
    free(f);
    naps_needed = 0;
}

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

/* Highest address that was asked for since the ring was taken out; none may be
 * below `low`. */
static uint64_t asked_until(uint64_t low) {
    uint64_t until = 0;
    for (struct entry e; take_out(&e);)
        if (e.operation <= PREFETCH_FOLIOS) {
            CHECK(e.address >= low);
            until = e.address + e.bytes > until ? e.address + e.bytes : until;
        }
    return until;
}

/* Small nests line by line: how far beyond the last line is asked for? */
static uint64_t beyond(struct ra_site *site, uint64_t base, uint64_t lines, uint64_t line) {
    const uint64_t count = line / 8;
    uint64_t until = 0;
    for (uint64_t n = 0; n < lines; ++n) {
        const struct ra_stream at = {.base = base + n * line, .high = 8, .stride = {8}};
        if (at.base - site->low < site->span)
            continue; /* as the pass does */
        struct ra_frame *f = frame_of(1, &count, &at);
        ra_begin_2(site, f);
        free(f);
        const uint64_t asked = asked_until(base - 2 * SMALL_BYTES);
        until = asked > until ? asked : until;
    }
    return until > base + lines * line ? until - base - lines * line : 0;
}

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

/* A nest that goes on while small ones inside it are planned, in other places all
 * the time, more of them than there is memory for: its plan stays. */
static void plan_in_use(void) {
    const uint64_t counts[] = {4096}, few[] = {8};
    const struct ra_stream stream = {.base = ARRAY, .high = 8, .stride = {PAGE}};
    struct ra_site outer = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "outer"};
    struct ra_site inner = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "inner"};
    struct ra_frame *f = frame_of(1, counts, &stream);
    ra_begin_2(&outer, f);
    const uint64_t made = atomic_load(&ra.plans_made[0]);
    for (uint64_t n = 0; atomic_load(&ra.plans_made[0]) - made < ra.plan_bytes / 512; ++n) {
        const struct ra_stream at = {.base = 2 * ARRAY + n * SMALL_BYTES, .high = 8, .stride = {8}};
        struct ra_frame *g = frame_of(1, few, &at);
        ra_begin_2(&inner, g);
        free(g);
        if (n % 16 == 0) {
            f->index[0] = 1;
            ra_tick(&outer, f, 0);
        }
        CHECK(f->plan->site == &outer && f->plan->stream[0].base == ARRAY);
        released_within(0, ADDRESSES);
    }
    nothing_behind();
}

/* memset asks for all that it fills once, in pieces, and waits for each burst of them once at
 * most; a short one waits for nothing. */
static void filled(void) {
    const uint64_t window = ra.window & ~(16 * PAGE - 1), bytes = 4 * window;
    const int protection = PROT_READ | PROT_WRITE;
    char *array = mmap((char *)(uintptr_t)ARRAY, bytes, protection,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(array == (char *)(uintptr_t)ARRAY);
    clear_bits(ARRAY >> PAGE_SHIFT, (ARRAY + bytes) >> PAGE_SHIFT);
    atomic_store(&ra.served, 0);
    naps = 0, naps_needed = 3;
    ra_memset(array, 7, window / 16);
    CHECK(naps == 0 && asked_within(ARRAY, ARRAY + bytes) == window / 16);
    ra_memset(array, 7, bytes);
    CHECK(naps >= 3 && array[0] == 7 && array[bytes - 1] == 7);
    uint64_t end = ARRAY + window / 16;
    for (struct entry e; take_out(&e); end = e.address + e.bytes)
        CHECK(e.operation == PREFETCH && e.address == end && e.bytes <= BLOCK_BYTES + PAGE);
    /* Of a window there are four, so many times a window, and the first waits for long. */
    CHECK(end == ARRAY + bytes && naps <= 3 + 4 * 4);
    naps_needed = 0;
    munmap(array, bytes);
    clear_bits(ARRAY >> PAGE_SHIFT, (ARRAY + bytes) >> PAGE_SHIFT);
}

/* A walk of small nests comes to what its last call asked for: that is passed on first.
 * Nests that are no walk wait for nothing. */
static void small_first(void) {
    enum { LINE = 16 << 10, FAR = 8 << 20 };
    const uint64_t count = LINE / 8;
    struct ra_site walk = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "walk"};
    struct ra_site apart = walk;
    clear_bits(ARRAY >> PAGE_SHIFT, 4 * ARRAY >> PAGE_SHIFT);
    atomic_store(&ra.served, 0);
    naps = 0, naps_needed = 3;
    for (uint64_t n = 0; n < 16; ++n) {
        const struct ra_stream at = {.base = ARRAY + n * FAR, .high = 8, .stride = {8}};
        struct ra_frame *f = frame_of(1, &count, &at);
        ra_begin_2(&apart, f);
        free(f);
    }
    CHECK(naps == 0 && atomic_load(&ra.served) == 0);
    released_within(0, 0);
    beyond(&walk, 3 * ARRAY, 256, LINE);
    CHECK(naps >= 3 && atomic_load(&ra.served) > 0);
    CHECK(atomic_load(&ra.served) < atomic_load(&ra.ring_head)); /* not for what is ahead */
    naps_needed = 0;
    clear_bits(ARRAY >> PAGE_SHIFT, 4 * ARRAY >> PAGE_SHIFT);
}

/* Small nests by themselves have no helper until something was read from storage. Nothing
 * is asked for before, nor believed in memory, nor left in the ring for later. */
static void without_helper(void) {
    enum { LINE = 16 << 10 };
    struct ra_site walk = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "without"};
    const uint64_t head = atomic_load(&ra.ring_head);
    clear_bits(ARRAY >> PAGE_SHIFT, 4 * ARRAY >> PAGE_SHIFT);
    atomic_store(&ra.helper, 0);
    CHECK(beyond(&walk, 3 * ARRAY, 64, LINE) == 0);
    CHECK(!has_helper() && atomic_load(&ra.ring_head) == head);
    CHECK(first_missing(3 * ARRAY >> PAGE_SHIFT, 4 * ARRAY >> PAGE_SHIFT) == 3 * ARRAY >> PAGE_SHIFT);
    ++reads;
    usleep(2 * WANTS_HELPER_NS / 1000);
    CHECK(beyond(&walk, 3 * ARRAY + 64 * LINE, 256, LINE) > 0);
    CHECK(has_helper() && atomic_load(&ra.ring_head) > head);
    clear_bits(ARRAY >> PAGE_SHIFT, 4 * ARRAY >> PAGE_SHIFT);
}

/* A nest over a large array at a site whose last one was small is seen, where there is no
 * helper yet, and ticks while hints are off. */
static void large_after_small(void) {
    struct ra_site site = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "large after small"};
    const uint64_t few[] = {100}, many[] = {2 * ra.memory / 8}, place = 1 << 20;
    const struct ra_stream stream = {.base = 2 * ARRAY, .high = 8, .stride = {8}};
    ra.reads_at_start = reads;
    for (int is_active = 0; is_active < 2; ++is_active) {
        struct ra_frame *f = frame_of(1, few, &stream);
        struct ra_frame *g = frame_of(1, many, &stream);
        site.last = NULL;
        atomic_store(&ra.helper, 0);
        atomic_store(&ra.active, is_active);
        for (int times = 0; times < 2; ++times)
            CHECK(ra_begin_2(&site, f) == 0 && !has_helper());
        CHECK(ra_begin_2(&site, g) == 1 && has_helper() == (bool)is_active);
        free(f);
        free(g);
    }
    /* Few places, however far apart, and bounds that are not to be believed are none such. */
    struct ra_site two = {.levels = 2, .streams = 1, .strip_mined = 1, .name = "places"};
    const uint64_t counts[][2] = {{8, 1}, {~(uint64_t)0, 100}, {(uint64_t)1 << 50, 1},
                                  {0, (uint64_t)1 << 40}, {8, 8}, {100, 1}};
    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); ++k) {
        const struct ra_stream far = {.base = 2 * ARRAY, .high = 8, .stride = {(int64_t)place, 8}};
        struct ra_frame *f = frame_of(2, counts[k], &far);
        CHECK(goes_over(&two, f, SMALL_BYTES) == (k == 5));
        free(f);
    }
    pass_on();
    clear_bits(2 * ARRAY >> PAGE_SHIFT, 3 * ARRAY >> PAGE_SHIFT);
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

enum { MATRIX_ROWS = 1 << 16, ROW_BYTES = 1600, MATRIX_BYTES = MATRIX_ROWS * ROW_BYTES };

/* One pass over a sparse matrix at ARRAY: a nest over the rows, and for each a small
 * one inside. Checks how far ahead of its turn the former is asked for (at 3 * ARRAY),
 * which is to be `ahead_most` rows from the first tick on, and that the latter is in
 * memory by its turn, after three windows or, with `is_again`, at once. */
static void matrix_pass(struct ra_site *rows, struct ra_site *row, struct ra_frame *f,
                        uint64_t ahead_most, bool is_again) {
    const uint64_t count = ROW_BYTES / 8, known = 3 * ra.window / ROW_BYTES;
    ra_begin_2(rows, f);
    const uint64_t strip = f->strip[0];
    CHECK(strip < MATRIX_ROWS);
    for (uint64_t i = 0; i < MATRIX_ROWS; ++i) {
        if (i > 0 && i % strip == 0) {
            f->index[0] = i;
            ra_tick(rows, f, 0);
        }
        const struct ra_stream at = {.base = ARRAY + i * ROW_BYTES, .high = 8, .stride = {8}};
        if (at.base - row->low >= row->span) { /* as the pass does */
            struct ra_frame *g = frame_of(1, &count, &at);
            ra_begin_2(row, g);
            CHECK(g->plan == RA_NOT_BEGUN);
            free(g);
        }
        if (is_again || i > known) { /* asked for at its turn at the latest */
            CHECK(bit(ra.bits, at.base >> PAGE_SHIFT) && bit(ra.bits, (3 * ARRAY + i * 8) >> PAGE_SHIFT));
            const uint64_t until = (i + 1) * 8 + ahead_most * 8;
            CHECK(until >= MATRIX_ROWS * 8 || !bit(ra.bits, (3 * ARRAY + until) >> PAGE_SHIFT));
        }
        for (struct entry e; take_out(&e);) {
            CHECK(e.address >= ARRAY);
            if (e.operation == RELEASE) /* of the matrix, behind the row */
                CHECK(e.address + e.bytes <= at.base && e.flags & RELEASE_LAZY);
            else
                CHECK(e.address >= 3 * ARRAY || e.address + e.bytes <= ARRAY + MATRIX_BYTES + ra.window);
        }
    }
}

/* Nests inside whose bounds are known only there: what they bring in counts. As long
 * as nobody knows, the one outside is asked for a window of itself ahead; then, and
 * when it begins again, about a window of both. */
static void inner_nests(void) {
    const uint64_t counts[] = {MATRIX_ROWS};
    const struct ra_stream stream = {.base = 3 * ARRAY, .high = 8, .stride = {8}};
    struct ra_site rows = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "rows"};
    struct ra_site row = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "row"};
    struct ra_frame *f = frame_of(1, counts, &stream);
    ra_begin_2(&rows, f);
    struct ra_plan *p = f->plan;
    CHECK(atomic_load(&p->inner) == 0 && f->cursor >= MATRIX_ROWS / 2);
    const uint64_t alone = f->strip[0], most = 2 * ra.window / ROW_BYTES + SMALL_BYTES / 8;
    CHECK(alone * ROW_BYTES > ra.window);
    for (int pass = 0; pass < 3; ++pass) {
        clear_bits(ARRAY >> PAGE_SHIFT, 4 * ARRAY >> PAGE_SHIFT);
        matrix_pass(&rows, &row, f, pass ? most : MATRIX_ROWS, pass > 0);
        const uint32_t inner = atomic_load(&p->inner);
        CHECK(inner > ROW_BYTES * 3 / 4 && inner < ROW_BYTES * 5 / 4);
        CHECK(pass == 0 || f->strip[0] * inner <= ra.window / 2);
    }
    /* In memory by now: nothing comes in between. */
    ra_begin_2(&rows, f);
    for (uint64_t i = f->strip[0]; i < MATRIX_ROWS; i += f->strip[0]) {
        f->index[0] = i;
        ra_tick(&rows, f, 0);
    }
    CHECK(atomic_load(&p->inner) == 0 && f->cursor == MATRIX_ROWS);
    ra_begin_2(&rows, f);
    CHECK(f->strip[0] == alone);
    clear_bits(ARRAY >> PAGE_SHIFT, 4 * ARRAY >> PAGE_SHIFT);
    released_within(0, ADDRESSES);
    free(f);
}

/* Two nests that share their loop: each counts what the other one brings in, not its
 * own, and not what is only asked for ahead. */
static void sharing(void) {
    const uint64_t counts[] = {8192};
    struct ra_site site[2];
    struct ra_frame *f[2];
    for (int k = 0; k < 2; ++k) {
        const struct ra_stream stream = {.base = (1 + (uint64_t)k) * ARRAY, .high = 8,
                                         .stride = {PAGE}};
        site[k] = (struct ra_site){.levels = 1, .streams = 1, .strip_mined = 1, .name = "sharing"};
        f[k] = frame_of(1, counts, &stream);
        ra_begin_2(&site[k], f[k]);
    }
    for (uint64_t i = 1; i < counts[0]; ++i)
        for (int k = 0; k < 2; ++k)
            if (i % f[k]->strip[0] == 0) {
                f[k]->index[0] = i;
                ra_tick(&site[k], f[k], 0);
                released_within(0, ADDRESSES);
                nothing_behind();
                const uint32_t inner = atomic_load(&f[k]->plan->inner);
                CHECK(inner <= PAGE && (i < 4096 || inner >= PAGE / 2));
            }
    clear_bits(ARRAY >> PAGE_SHIFT, 4 * ARRAY >> PAGE_SHIFT);
    free(f[0]);
    free(f[1]);
}

/* Bytes that a tick of a nest asks for of [low, high), where none of it is there. */
static uint64_t tick_asks(struct ra_site *site, struct ra_frame *f, uint64_t done, uint64_t low,
                          uint64_t high) {
    clear_bits(low >> PAGE_SHIFT, high >> PAGE_SHIFT);
    f->index[0] = done;
    ra_tick(site, f, 0);
    nothing_behind();
    const uint64_t bytes = asked_within(low, high);
    atomic_store(&ra.served, ra.ring_tail);
    return bytes;
}

/* Of two nests that share their loop neither asks for the beginning of the other at its end;
 * the one that began last asks for that of the nest behind both. */
static void beside(void) {
    enum { COUNT = 2048, BEGIN = 64 << 10 };
    const uint64_t counts[] = {COUNT};
    struct ra_site site[3];
    struct ra_frame *f[3];
    for (int k = 0; k < 3; ++k) {
        const struct ra_stream stream = {.base = (1 + (uint64_t)k) * ARRAY, .high = 8,
                                         .stride = {PAGE}};
        site[k] = (struct ra_site){.levels = 1, .streams = 1, .strip_mined = 1, .name = "beside"};
        f[k] = frame_of(1, counts, &stream);
    }
    for (int pass = 0; pass < 2; ++pass) {
        ra_begin_2(&site[0], f[0]);
        ra_begin_2(&site[1], f[1]);
        released_within(0, ADDRESSES);
        uint64_t behind = 0;
        for (uint64_t i = f[0]->strip[0]; i < COUNT; i += f[0]->strip[0]) {
            CHECK(tick_asks(&site[0], f[0], i, 2 * ARRAY, 2 * ARRAY + BEGIN) == 0);
            behind += tick_asks(&site[1], f[1], i, 3 * ARRAY, 3 * ARRAY + BEGIN);
        }
        CHECK(pass == 0 ? behind == 0 : behind > 0);
        ra_begin_2(&site[2], f[2]);
        released_within(0, ADDRESSES);
    }
    clear_bits(ARRAY >> PAGE_SHIFT, 4 * ARRAY >> PAGE_SHIFT);
    for (int k = 0; k < 3; ++k)
        free(f[k]);
}

/* One array alone that is much larger than the memory is asked for half as far ahead as one
 * that mostly fits, or several together. */
static void alone(void) {
    const uint64_t counts[] = {1 << 20};
    const struct ra_stream stream = {.base = ARRAY, .high = 64, .stride = {64}};
    struct ra_site one = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "one"};
    struct ra_site two = {.levels = 1, .streams = 2, .strip_mined = 1, .name = "two"};
    struct ra_frame *f = frame_of(1, counts, &stream);
    ra_begin_2(&one, f);
    CHECK(f->plan->look_ahead == ra.window / 2 / 64);
    struct ra_stream stored = stream;
    stored.flags |= RA_FLAG_WRITE;
    struct ra_site writes = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "writes"};
    f = frame_of(1, counts, &stored);
    ra_begin_2(&writes, f);
    CHECK(f->plan->look_ahead == ra.window / 64);
    const uint64_t fewer[] = {ra.memory / 4 * 5 / 64};
    struct ra_site fits = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "fits"};
    f = frame_of(1, fewer, &stream);
    ra_begin_2(&fits, f);
    CHECK(f->plan->look_ahead == ra.window / 64);
    for (uint64_t apart = 0; apart < 3; ++apart) {
        struct ra_frame *g = calloc(1, sizeof(*g) + 2 * sizeof(stream));
        CHECK(g);
        memcpy(g->count, counts, sizeof(counts));
        g->streams[0] = g->streams[1] = stream;
        g->streams[1].base += apart * ARRAY / 2;
        if (apart == 2)
            g->streams[1].stride[0] = 0; /* a small one beside it is none */
        two.last = NULL;
        ra_begin_2(&two, g);
        const uint64_t each = apart == 1 ? 128 : 64;
        CHECK(g->plan->look_ahead * each <= ra.window / (apart == 1 ? 1 : 2));
        CHECK(g->plan->look_ahead * each > ra.window / (apart == 1 ? 2 : 3));
    }
    released_within(0, 0);
    nothing_behind();
}

/* The layer in a large memory, with bits for all addresses. */
static struct large {
    uint64_t memory, window, tick_bytes;
    uint8_t *bits;
} begin_large(uint64_t memory) {
    const struct large before = {ra.memory, ra.window, ra.tick_bytes, ra.bits};
    ra.memory = memory;
    ra.window = 64 << 20;
    ra.tick_bytes = ra.window / 64;
    ra.bits = mmap(NULL, ADDRESSES >> PAGE_SHIFT >> 3, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(ra.bits != MAP_FAILED);
    return before;
}

static void end_large(const struct large *before) {
    munmap(ra.bits, ADDRESSES >> PAGE_SHIFT >> 3);
    ra.memory = before->memory;
    ra.window = before->window;
    ra.tick_bytes = before->tick_bytes;
    ra.bits = before->bits;
}

/* Columns of an array that lies in rows: each touches a page of every row, more than the
 * memory, and so a window is that of one column. Where they fit it is one of all of them. */
static void columns(void) {
    enum { ROW = 8192, LINES = 20000, COLUMNS = 1024 };
    const uint64_t counts[] = {COLUMNS, LINES};
    const struct ra_stream stream = {.base = ARRAY, .high = 8, .stride = {8, ROW}};
    const struct large before = begin_large((uint64_t)38 << 20);
    ra.window = ra.memory / 6;
    ra.tick_bytes = ra.window / 64;
    for (int fits = 0; fits < 2; ++fits) {
        struct ra_site site = {.levels = 2, .streams = 1, .strip_mined = 3, .name = "columns"};
        struct ra_frame *f = frame_of(2, counts, &stream);
        ra.memory = (uint64_t)(fits ? 170 : 38) << 20;
        f->streams[0].base += (uint64_t)fits * ROW; /* a plan of its own */
        ra_begin_2(&site, f);
        const struct ra_plan *p = f->plan;
        CHECK(p->tick_level == 1);
        CHECK(fits ? p->look_ahead > LINES : p->look_ahead == ra.window >> PAGE_SHIFT);
        pass_on();
        free(f);
    }
    end_large(&before);
}

/* The places of a walk are on their pages differently: in one, a row is the last of
 * a piece where it is the first of a page in another. None is passed over. */
static void every_page(uint32_t strip_mined) {
    const uint64_t counts[] = {ROWS, 86, PLACES}, base = 3 * ARRAY;
    const struct ra_stream stream = {.base = base, .high = 40, .stride = {88 * 40, 40, PLANE}};
    struct ra_site site = {.levels = 3, .streams = 1, .strip_mined = strip_mined, .name = "every page"};
    struct ra_frame *f = frame_of(3, counts, &stream);
    clear_bits(base >> PAGE_SHIFT, 4 * ARRAY >> PAGE_SHIFT);
    ra_begin_2(&site, f);
    CHECK(f->plan->around[0] > 0);
    for (uint64_t row = 1; row < ROWS; ++row) {
        f->index[0] = row, f->index[1] = f->index[2] = 0;
        ra_tick(&site, f, 0);
        released_within(0, ADDRESSES);
        nothing_behind(); /* or the next tick waits for it */
    }
    for (uint64_t n = 0; n < PLACES; ++n)
        for (uint64_t cell = 0; cell < (uint64_t)ROWS * 88 - 2; ++cell)
            CHECK(bit(ra.bits, (base + n * PLANE + cell * 40) >> PAGE_SHIFT));
    clear_bits(base >> PAGE_SHIFT, 4 * ARRAY >> PAGE_SHIFT);
    walks_ended(NULL);
    free(f);
}

/* Iterations with a page each, more of them in a burst than are asked for at a time, of one
 * array or several: each is asked for before its turn, by a helper that gets on, and none is
 * said to be that was not, by one that does not for a while. */
static void pages_apart(uint32_t arrays) {
    enum { COUNT = 1 << 16, STEP = 3 << PAGE_SHIFT };
    const struct large before = begin_large((uint64_t)384 << 20);
    struct ra_site site = {.levels = 2, .streams = arrays, .strip_mined = 3, .name = "apart"};
    struct ra_frame *f = calloc(1, sizeof(*f) + arrays * sizeof(struct ra_stream));
    CHECK(f);
    f->count[0] = COUNT, f->count[1] = 100;
    for (uint32_t i = 0; i < arrays; ++i)
        f->streams[i] = (struct ra_stream){.base = (1 + i) * ARRAY, .high = 8, .stride = {STEP, 8}};
    const uint64_t lost = ra.count.lost;
    ra_begin_2(&site, f);
    const struct ra_plan *p = f->plan;
    CHECK(p->tick_level == 0 && p->burst * arrays > RANGES_PER_ADVANCE_MAX);
    uint64_t checked = 0;
    for (uint64_t done = 0; done < COUNT; done += p->strip) {
        const bool gets_on = done / p->look_ahead % 4 != 1;
        f->index[0] = done;
        if (done > 0)
            ra_tick(&site, f, 0);
        CHECK(!gets_on || f->cursor >= done + p->strip || done % p->look_ahead == 0);
        for (; checked < f->cursor; ++checked)
            for (uint32_t i = 0; i < arrays && checked >= done; ++i)
                CHECK(bit(ra.bits, ((1 + i) * ARRAY + checked * STEP) >> PAGE_SHIFT));
        if (gets_on)
            CHECK(pass_on() <= RING_ENTRIES - RING_SPARE);
        nothing_behind();
    }
    CHECK(f->cursor == COUNT && ra.count.lost == lost);
    pass_on();
    free(f);
    end_large(&before);
}

/* What one stream leaves of its share is the other's: here a nest that never ticks. */
static void shares(void) {
    enum { STEP = 8192, ALMOST = RANGES_PER_ADVANCE_MAX / 16 * 15 };
    const struct large before = begin_large((uint64_t)384 << 20);
    struct ra_site site = {.levels = 1, .streams = 2, .name = "shares"};
    struct ra_frame *f = calloc(1, sizeof(*f) + 2 * sizeof(struct ra_stream));
    CHECK(f);
    f->count[0] = 1 << 17;
    for (uint32_t i = 0; i < 2; ++i)
        f->streams[i] = (struct ra_stream){.base = (1 + i) * ARRAY, .high = 8, .stride = {i ? 8 : STEP}};
    ra_begin_2(&site, f);
    for (uint64_t n = 0; n < ALMOST; ++n)
        CHECK(bit(ra.bits, (ARRAY + n * STEP) >> PAGE_SHIFT));
    CHECK(bit(ra.bits, 2 * ARRAY >> PAGE_SHIFT));
    CHECK(pass_on() <= RANGES_PER_ADVANCE_MAX);
    free(f);
    end_large(&before);
}

enum { FAR_PLACES = 50000, FAR_PLACE = 1 << 20 };

/* A walk across more places than are asked for at a time: in each row it goes on where it has
 * come to. */
static void many_places(void) {
    const struct large before = begin_large((uint64_t)16 << 30);
    const uint64_t counts[] = {512, FAR_PLACES};
    const struct ra_stream stream = {.base = ARRAY, .high = 4, .stride = {4, FAR_PLACE}};
    struct ra_site site = {.levels = 2, .streams = 1, .strip_mined = 3, .name = "many places"};
    struct ra_frame *f = frame_of(2, counts, &stream);
    ra_begin_2(&site, f);
    const struct ra_plan *p = f->plan;
    CHECK(p->tick_level == 1 && p->around[0] == AROUND_BYTES_MAX && p->walks == 0);
    for (uint64_t done = 0; done < FAR_PLACES; done += p->strip) {
        f->index[1] = done;
        if (done > 0)
            ra_tick(&site, f, 1);
        for (uint64_t n = done; n < done + p->strip && n < FAR_PLACES; ++n)
            CHECK(bit(ra.bits, (ARRAY + n * FAR_PLACE) >> PAGE_SHIFT));
        CHECK(pass_on() <= RANGES_PER_ADVANCE_MAX);
    }
    CHECK(f->cursor > FAR_PLACES);
    free(f);
    end_large(&before);
}

/* The same, where no strip is shorter than a row: all of its places are asked for in the end,
 * and the rows behind them, too, however many they are. */
static void long_columns(uint64_t places) {
    const struct large before = begin_large((uint64_t)16 << 30);
    const uint64_t counts[] = {512, places};
    const struct ra_stream stream = {.base = ARRAY, .high = 4, .stride = {4, FAR_PLACE}};
    struct ra_site site = {.levels = 2, .streams = 1, .strip_mined = 1, .name = "long columns"};
    struct ra_frame *f = frame_of(2, counts, &stream);
    ra_begin_2(&site, f);
    CHECK(f->plan->tick_level == 0);
    CHECK(pass_on() <= RANGES_PER_ADVANCE_MAX);
    for (uint64_t row = 1; row < 100; ++row) {
        f->index[0] = row;
        ra_tick(&site, f, 0);
        CHECK(pass_on() <= RANGES_PER_ADVANCE_MAX);
    }
    CHECK(f->cursor > 99);
    for (uint64_t n = 0; n < places && n < PLACES_PER_ADVANCE_MAX / 2; ++n)
        CHECK(bit(ra.bits, (ARRAY + n * FAR_PLACE) >> PAGE_SHIFT));
    free(f);
    end_large(&before);
}

/* Of what a nest over `rows` of each of the places writes: bytes that it says a walk comes
 * back to. */
static uint64_t walked_of(struct ra_site *site, uint64_t rows, uint64_t base) {
    const uint64_t counts[] = {rows, PLACES};
    const struct ra_stream stream = {.base = base, .high = 40, .stride = {40, PLANE},
                                     .flags = RA_FLAG_WRITE};
    struct ra_frame *f = frame_of(2, counts, &stream);
    uint64_t bytes = 0;
    ra_begin_2(site, f);
    CHECK(f->plan->around[0] > 0);
    for (struct entry e; take_out(&e);) {
        CHECK(e.operation != WALKED || e.address == base);
        bytes += e.operation == WALKED ? e.bytes : 0;
    }
    free(f);
    return bytes;
}

/* A walk across rows is one that comes back to the neighbours, in its nest or from one
 * execution to the next: not the border of a grid, however often it is written. */
static void walks_told(void) {
    struct ra_site border = {.levels = 2, .streams = 1, .strip_mined = 3, .name = "border"};
    struct ra_site within = border, between = border;
    const uint64_t base = 3 * ARRAY, all = (uint64_t)(PLACES - 1) * PLANE + 40;
    CHECK(walked_of(&border, 1, base) == 0);
    CHECK(walked_of(&border, 1, base) == 0);
    CHECK(walked_of(&border, 1, base + ARRAY / 2) == 0);
    CHECK(walked_of(&within, ROWS, base) == all + (ROWS - 1) * 40);
    CHECK(walked_of(&between, 1, base) == 0);
    CHECK(walked_of(&between, 1, base + 40) == all);
    CHECK(walked_of(&between, 1, base + 80) == all);
    clear_bits(base >> PAGE_SHIFT, 4 * ARRAY >> PAGE_SHIFT);
}

/* Every other page: what lies between is asked for with it. */
static void every_other_page(void) {
    enum { COUNT = 4096, STEP = 2 << PAGE_SHIFT };
    const uint64_t counts[] = {COUNT, 100};
    const struct ra_stream stream = {.base = ARRAY, .high = 8, .stride = {STEP, 8}};
    struct ra_site site = {.levels = 2, .streams = 1, .strip_mined = 3, .name = "every other"};
    struct ra_frame *f = frame_of(2, counts, &stream);
    clear_bits(ARRAY >> PAGE_SHIFT, (ARRAY + (uint64_t)COUNT * STEP) >> PAGE_SHIFT);
    ra_begin_2(&site, f);
    CHECK(f->plan->tick_level == 0 && f->plan->dense_from[0] == 1 && f->cursor > 64);
    for (uint64_t page = 0; page < 2 * (f->cursor - 1); ++page)
        CHECK(bit(ra.bits, (ARRAY >> PAGE_SHIFT) + page));
    pass_on();
    nothing_behind();
    clear_bits(ARRAY >> PAGE_SHIFT, (ARRAY + (uint64_t)COUNT * STEP) >> PAGE_SHIFT);
    free(f);
}

int main(void) {
    start(20 << 20);
    resident();
    helper_first();
    indices();
    computed();
    computed_later();
    small_walks();
    plan_in_use();
    small_first();
    filled();
    without_helper();
    large_after_small();
    anew();
    inner_nests();
    sharing();
    beside();
    alone();
    every_page(6);
    every_page(7);
    walks_told();
    columns();
    every_other_page();
    pages_apart(1);
    pages_apart(2);
    shares();
    many_places();
    long_columns(FAR_PLACES);
    long_columns(2 * PLACES_PER_ADVANCE_MAX);
    puts("what is ahead is asked for as it should be");
    return 0;
}
