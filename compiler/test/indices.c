/* Indices are asked for well before the run-time layer looks at them, and what they go to
 * behind them; so are addresses that are computed. */
#include "layer.h"

/* Room for so many indices at 2 * ARRAY, nothing of it touched yet. */
static int *index_array(uint64_t count) {
    int *b = mmap((void *)(uintptr_t)(2 * ARRAY), count * sizeof(int), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(b == (void *)(uintptr_t)(2 * ARRAY) && madvise(b, count * sizeof(int), MADV_NOHUGEPAGE) == 0);
    return b;
}

/* The frame of to[b[i]] for so many of them, `to` of 8 bytes each at ARRAY. */
static struct ra_frame *gather(uint64_t count) {
    struct ra_frame *f = calloc(1, sizeof(*f) + 2 * sizeof(struct ra_stream));
    CHECK(f);
    f->count[0] = count;
    f->streams[0] = (struct ra_stream){.base = 2 * ARRAY, .high = 4, .stride = {4}};
    f->streams[1] = (struct ra_stream){.base = 2 * ARRAY, .high = 4, .stride = {4}, .target = ARRAY,
                                       .scale = 8,
                                       .flags = RA_FLAG_INDIRECT | RA_FLAG_INDEX_SIGNED |
                                           (uint64_t)sizeof(int) << RA_FLAG_INDEX_BYTES_SHIFT};
    return f;
}

/* to[b[i]]: of b as much is asked for as of any array, and what it holds is looked
 * at as far as it is there, up to half as far. */
static void indices(void) {
    enum { COUNT = 1 << 20, AT = 200000 };
    int *b = index_array(COUNT);
    const uint64_t base = 2 * ARRAY, count = COUNT, far = ARRAY + 128 * PAGE;
    struct ra_site site = {.levels = 1, .streams = 2, .strip_mined = 1, .name = "indices"};
    struct ra_frame *f = gather(count);
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

/* While the nest's thread faults, all that the nest goes to is asked for again, whatever is
 * believed in memory: where it fits, enough of the nest is still to come, and the helper has
 * passed on what was asked for before. */
static void brought_back(void) {
    enum { COUNT = 1 << 20, PAGES = 3000, ENOUGH = FAULTS_MIN };
    int *b = index_array(COUNT);
    for (uint64_t i = 0; i < COUNT; ++i)
        b[i] = (int)(i * 7 % PAGES * (PAGE / 8));
    const uint64_t end = ARRAY + PAGES * PAGE;
    struct ra_site site = {.levels = 1, .streams = 2, .strip_mined = 1, .name = "brought back"};
    struct ra_frame *f = gather(COUNT);
    clear_bits(ARRAY >> PAGE_SHIFT, 3 * ARRAY >> PAGE_SHIFT);
    faults += 10 * ENOUGH; /* before it */
    ra_begin_2(&site, f);
    uint64_t asked = asked_within(ARRAY, end);
    for (uint64_t done = 0; done < COUNT / 2; done += f->strip[0]) {
        f->index[0] = done;
        clock_ns += FAULTS_NS;
        ra_tick(&site, f, 0);
        asked += asked_within(ARRAY, end);
        pass_on();
    }
    CHECK(asked < PAGES * PAGE + AROUND_BYTES_MAX); /* once */
    CHECK(site.target_low == ARRAY && site.target_high > end - PAGE && site.target_high <= end);
    const struct {
        uint64_t faults, ns, done, high;
        bool is_passed_on, is_back;
    } cases[] = {
        {ENOUGH - 1, FAULTS_NS, COUNT / 2, end, true, false}, /* few of them: */
        {1, FAULTS_NS - 1, COUNT / 2, end, true, false},
        {0, 1, COUNT / 2, end, true, true},
        {ENOUGH, FAULTS_NS, COUNT - PAGES + 1, end, true, false},
        {0, FAULTS_NS, COUNT / 2, ARRAY + ra.memory, true, false},
        {0, FAULTS_NS, INDICES, end, false, true},
        {ENOUGH, FAULTS_NS, COUNT / 2, end, false, false}, /* those are not passed on yet */
        {0, FAULTS_NS, COUNT - PAGES, end, true, true},
        {ENOUGH * 3, FAULTS_NS, COUNT / 2, end, true, true},
        {0, FAULTS_NS, COUNT / 2, end, true, false},
    };
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); ++k) {
        faults += cases[k].faults;
        clock_ns += cases[k].ns;
        site.target_high = cases[k].high;
        set_bits(ARRAY >> PAGE_SHIFT, end >> PAGE_SHIFT);
        if (cases[k].is_passed_on)
            pass_on();
        const uint64_t before = ra.ring_head;
        bring_back(&site, f, cases[k].done);
        uint64_t next = ARRAY;
        for (uint64_t at = before; at < ra.ring_head; ++at) {
            const struct entry *e = &ra.ring[at & (RING_ENTRIES - 1)];
            CHECK(e->operation == PREFETCH && e->address == next);
            next += e->bytes;
        }
        CHECK(next == (cases[k].is_back ? end : ARRAY));
        if (!cases[k].is_passed_on)
            atomic_store(&ra.served, 0);
    }
    pass_on();
    /* Begun while hints were off or on, in a frame that holds what the stack held before. */
    struct ra_frame *stale = malloc(sizeof(*f) + 2 * sizeof(struct ra_stream));
    CHECK(stale);
    site.target_high = end;
    for (int k = 0; k < 4; ++k) {
        memset(stale, k & 1 ? 0x01 : 0xff, sizeof(*f));
        memcpy(stale->count, f->count, sizeof(f->count));
        memcpy(stale->streams, f->streams, 2 * sizeof(struct ra_stream));
        set_bits(ARRAY >> PAGE_SHIFT, end >> PAGE_SHIFT);
        atomic_store(&ra.active, k & 2);
        ra_begin_2(&site, stale);
        atomic_store(&ra.active, 1);
        stale->index[0] = INDICES;
        ra_tick(&site, stale, 0);
        CHECK(asked_within(ARRAY, end) == 0); /* none of its faults is known */
        pass_on();
        faults += ENOUGH;
        clock_ns += FAULTS_NS;
        bring_back(&site, stale, COUNT / 2);
        CHECK(asked_within(ARRAY, end) == PAGES * PAGE);
        pass_on();
    }
    free(stale);
    f->faults = faults;
    /* Many pages, and so many faults. */
    ra.memory *= 1000;
    site.target_low = 3 * ARRAY, site.target_high = 3 * ARRAY + 3 * ENOUGH * PAGES_A_FAULT * PAGE;
    for (int more = 0; more < 2; ++more) {
        const uint64_t before = ra.ring_head;
        faults += more ? 1 : 3 * ENOUGH - 1;
        clock_ns += FAULTS_NS;
        bring_back(&site, f, COUNT / 2);
        CHECK((ra.ring_head > before) == more);
        pass_on();
    }
    ra.memory /= 1000;
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
    brought_back();
    computed();
    computed_later();
    puts("what indices go to is asked for");
    return 0;
}
