/* What comes first: nests that begin while everything is in memory wait for nothing, the
 * others do not overtake the helper, and none is asked for before there is one. */
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>

static int counted_mincore(void *at, size_t bytes, unsigned char *there);
#define mincore counted_mincore
#include "layer.h"
#undef mincore

static int looks;

static int counted_mincore(void *at, size_t bytes, unsigned char *there) {
    ++looks;
    return mincore(at, bytes, there);
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
    clock_ns += WANTS_HELPER_NS;
    CHECK(beyond(&walk, 3 * ARRAY + 64 * LINE, 256, LINE) > 0);
    CHECK(has_helper() && atomic_load(&ra.ring_head) > head);
    clear_bits(ARRAY >> PAGE_SHIFT, 4 * ARRAY >> PAGE_SHIFT);
}

enum { JUMPS = 100000, JUMP_ROOM = 16 << 20, JUMP_ROW = 256, FEW_CALLS = 1000 };

static void *jumps(void *site) {
    calls_over(site, 2 * ARRAY, JUMP_ROOM, JUMPS, JUMP_ROW);
    return NULL;
}

/* Small nests in memory, of one thread or several, that jump need no call before long. They
 * do again as soon as there is a helper, whoever has started it. */
static void jumping(void) {
    struct ra_site site = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "jumping"};
    struct ra_site walk = site, large = site;
    ra.reads_at_start = reads;
    atomic_store(&ra.helper, 0);
    CHECK(calls_over(&site, 2 * ARRAY, JUMP_ROOM, JUMPS, JUMP_ROW) <= FEW_CALLS);
    CHECK(calls_over(&site, 2 * ARRAY, JUMP_ROOM, JUMPS, JUMP_ROW) == 0);
    /* What they go over is more than the memory: it need not be in it. */
    CHECK(calls_over(&large, 2 * ARRAY, 16 * ra.memory, JUMPS, JUMP_ROW) >= JUMPS / 2);
    pthread_t thread[4];
    for (int k = 0; k < 4; ++k)
        CHECK(pthread_create(&thread[k], NULL, jumps, &site) == 0);
    for (int k = 0; k < 4; ++k)
        CHECK(pthread_join(thread[k], NULL) == 0);
    CHECK(calls_over(&site, 2 * ARRAY, JUMP_ROOM, JUMPS, JUMP_ROW) <= FEW_CALLS);
    CHECK(site.span > JUMP_ROOM && !has_helper());
    /* Where calls are seldom they go on. */
    uint64_t calls = 0;
    site.span = 0;
    for (uint64_t n = 0; n < 100; ++n) {
        clock_ns += WANTS_HELPER_NS / (UNTIMED_MAX - 2);
        calls += calls_over(&site, 2 * ARRAY + n * SMALL_BYTES, PAGE, 1, PAGE);
    }
    CHECK(calls == 100);
    site.span = 4 * JUMP_ROOM;
    ++reads;
    clock_ns += WANTS_HELPER_NS;
    beyond(&walk, 3 * ARRAY, 256, JUMP_ROW * 64);
    CHECK(has_helper() && site.span == 0);
    clear_bits(2 * ARRAY >> PAGE_SHIFT, 4 * ARRAY >> PAGE_SHIFT);
    pass_on();
}

/* Nests over a little more that move are not planned each time, but when a look is due: of
 * one array, or of several small ones, which are planned once. */
static void moving(void) {
    const uint64_t count = 3 * SMALL_BYTES / 8 / 4;
    ra.reads_at_start = reads;
    atomic_store(&ra.helper, 0);
    for (uint32_t streams = 1; streams <= 4; streams += 3) {
        struct ra_site site = {.levels = 1, .streams = streams, .strip_mined = 1, .name = "moving"};
        struct ra_frame *f = calloc(1, sizeof(*f) + streams * sizeof(struct ra_stream));
        CHECK(f);
        uint64_t made = 0, now = 0;
        for (uint64_t n = 0; n < 100; ++n) {
            f->count[0] = count;
            for (uint64_t i = 0; i < streams; ++i)
                f->streams[i] = (struct ra_stream){.base = 2 * ARRAY + (i * 1000 + n) * PAGE, .high = 8,
                                                   .stride = {streams == 1 ? 32 : 8}};
            if (n == 99)
                clock_ns += WANTS_HELPER_NS;
            CHECK(ra_begin_2(&site, f) == 0 && !has_helper());
            now = 0;
            for (uint32_t class = 0; class < PLAN_CLASSES; ++class)
                now += atomic_load(&ra.plans_made[class]);
            made = n == 0 ? now : made;
            CHECK(now == made + (n == 99));
        }
        free(f);
    }
    atomic_store(&ra.helper, 1);
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

/* Without a helper, whether anything is missing is looked at in the milliseconds in which a
 * nest begins, and of nests that take long each time. A nest over few places is none of
 * these, however far they are apart. */
static void looked_at(void) {
    enum { PLACES_APART = 1500, CELLS = 1 << 20, BYTES = CELLS * 8 };
    char *array = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                       -1, 0);
    CHECK(array != MAP_FAILED);
    ra.reads_at_start = reads;
    atomic_store(&ra.helper, 0);
    for (int is_dense = 0; is_dense < 2; ++is_dense) {
        struct ra_site site = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "looked at"};
        const uint64_t count = is_dense ? CELLS : PLACES_APART;
        const struct ra_stream stream = {.base = (uint64_t)(uintptr_t)array, .high = 8,
                                         .stride = {is_dense ? 8 : (int64_t)PAGE}};
        struct ra_frame *f = frame_of(1, &count, &stream);
        CHECK(extent_of(&site, f, &f->streams[0]) >= LONG_BYTES);
        clock_ns += WANTS_HELPER_NS;
        looks = 0;
        CHECK(ra_begin_2(&site, f) == 0 && looks > 0);
        const int each = looks;
        for (int times = 1; times < 10; ++times)
            CHECK(ra_begin_2(&site, f) == 0 && looks == (is_dense ? each * (times + 1) : each));
        clock_ns += WANTS_HELPER_NS;
        looks = 0;
        CHECK(ra_begin_2(&site, f) == 0 && looks == each && !has_helper());
        free(f);
    }
    atomic_store(&ra.helper, 1);
    munmap(array, BYTES);
}

/* The ring takes as many hints as it has entries, wherever it begins, and gives them back in
 * their order; not one more, but another for each that is taken out. */
static void ring_full(void) {
    pass_on();
    atomic_fetch_add(&ra.ring_head, 3 * RING_ENTRIES / 2); /* laps later */
    for (uint64_t at = ra.ring_tail, i = 0; i < RING_ENTRIES; ++i, ++at)
        atomic_store(&ra.ring[(at + RING_ENTRIES / 2) & (RING_ENTRIES - 1)].turn,
                     lap_of(at + 3 * RING_ENTRIES / 2));
    ra.ring_tail += 3 * RING_ENTRIES / 2;
    uint64_t in = 0, out = 0;
    struct entry e;
    for (; enqueue(RELEASE, in * PAGE, PAGE, 0); ++in)
        CHECK(in < RING_ENTRIES && has_room() == (in + 1 + RING_SPARE < RING_ENTRIES));
    CHECK(in == RING_ENTRIES && !has_room());
    for (int times = 0; times < 3; ++times) {
        CHECK(take_out(&e) && e.address == out++ * PAGE);
        CHECK(enqueue(RELEASE, in++ * PAGE, PAGE, 0) && !enqueue(RELEASE, 0, PAGE, 0));
    }
    while (take_out(&e))
        CHECK(e.address == out++ * PAGE);
    CHECK(in == out && has_room());
}

/* The planes of a grid are streams of one array, of which one is looked at; so is what lies
 * beyond it, and what is written where that was asked for. */
static void looked_at_once(void) {
    enum { PLANE = 16 * 4096, BYTES = 8 << 20, BEYOND = BYTES / 2, FEW = 3 };
    char *array = mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    CHECK(array != MAP_FAILED);
    const uint64_t count = BYTES / 8, base = (uint64_t)(uintptr_t)array;
    const struct ra_stream streams[] = {
        {.base = base, .high = 8, .stride = {8}},
        {.base = base + PLANE, .high = 8, .stride = {8}},
        {.base = base + 2 * PLANE, .high = 8, .stride = {8}},
        {.base = base + PLANE, .high = 8, .stride = {8}, .flags = RA_FLAG_WRITE},
        {.base = base + BEYOND, .high = 8, .stride = {8}},
    };
    const int expected[] = {FEW, FEW, FEW, FEW, 2 * FEW};
    bool is_new;
    for (uint32_t n = 1; n <= 5; ++n) {
        struct ra_site site = {.levels = 1, .streams = n, .strip_mined = 1, .name = "once"};
        const struct ra_plan *p = plan_of(&site, &count, streams, &is_new);
        looks = 0;
        CHECK(!is_missing_of(p, false) && looks == expected[n - 1]);
        CHECK(!is_missing_of(p, true) && looks == expected[n - 1] + (n >= 4 ? FEW : 0));
    }
    CHECK(madvise(array + BYTES + PLANE, BYTES - PLANE, MADV_DONTNEED) == 0);
    struct ra_site site = {.levels = 1, .streams = 5, .strip_mined = 1, .name = "beyond"};
    CHECK(is_missing_of(plan_of(&site, &count, streams, &is_new), false));
    munmap(array, 2 * BYTES);
}

int main(void) {
    start(20 << 20);
    static void (*const tests[])(void) = {
        resident, helper_first,      small_first, filled,         without_helper, jumping,
        moving,   large_after_small, looked_at,   looked_at_once, ring_full,
    };
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); ++i) {
        tests[i]();
        forget_sites();
    }
    puts("what comes first is passed on first");
    return 0;
}
