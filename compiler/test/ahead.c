/* What the run-time layer asks for ahead of nests. Those that go on keep their plans, what
 * nests inside bring in counts for the one outside, and walks across rows pass over no
 * page. */
#include "layer.h"

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
    const uint64_t counts[] = {512, places}, base = 2 * ARRAY; /* a plan of its own */
    const struct ra_stream stream = {.base = base, .high = 4, .stride = {4, FAR_PLACE}};
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
        CHECK(bit(ra.bits, (base + n * FAR_PLACE) >> PAGE_SHIFT));
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
    atomic_store(&ra.was_missing, true); /* the helper is waited for */
    plan_in_use();
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
