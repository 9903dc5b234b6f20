/* What the run-time layer gives back behind the program. Long nests that begin while
 * everything is in memory still tick. Walks of small nests, planes and walks across rows
 * are given back behind themselves, what is left of the last by the next nest, and the
 * program waits where too much of that is to be written. */
#include "layer.h"

#include <pthread.h>

/* Columns of one plane after the other, a few bytes wide: a tick a plane, each
 * plane asked for once, and given back behind the tick. */
static void planes(void) {
    enum { COLUMNS = 8, LINE = 2048, LINES = 128, PLANES = 128 };
    const uint64_t counts[] = {PLANES, COLUMNS, LINES};
    const struct ra_stream stream = {.base = ARRAY, .high = 256, .stride = {LINE * LINES, 256, LINE}};
    struct ra_site columns = {.levels = 3, .streams = 1, .strip_mined = 7, .name = "columns"};
    struct ra_frame *f = frame_of(3, counts, &stream);
    ra_begin_2(&columns, f);
    const struct ra_plan *p = f->plan;
    CHECK(p->tick_level == 0 && p->way[0] == 1 && p->releases == 1);
    CHECK(p->bytes > (uint64_t)LINE * (LINES * PLANES - 1) && p->bytes <= (uint64_t)LINE * LINES * PLANES);
    CHECK(p->look_ahead * LINE * LINES <= ra.window);
    CHECK(released_within(0, 0) == 0);
    f->index[0] = 40;
    ra_tick(&columns, f, 0);
    CHECK(released_within(ARRAY, ARRAY + 40 * LINE * LINES) == 40 * LINE * LINES);
    CHECK(released_lazily == 0);
    nothing_behind();

    /* Two planes of the same array are one array: as far ahead as for one. */
    struct ra_site two = columns;
    two.streams = 2, two.last = NULL, two.name = "two planes";
    struct ra_frame *g = calloc(1, sizeof(*g) + 2 * sizeof(stream));
    CHECK(g);
    memcpy(g->count, counts, sizeof(counts));
    g->streams[0] = g->streams[1] = stream;
    g->streams[1].base += LINE * LINES;
    ra_begin_2(&two, g);
    CHECK(g->plan->look_ahead >= p->look_ahead - 1 && g->plan->look_ahead <= p->look_ahead);
    /* One of them counts bytes that the other does not, and still they go together. */
    CHECK(__builtin_popcount(g->plan->releases) == 1);
    released_within(0, 0);
}

/* Two nests share the loop over planes: one goes over those before and behind the other's,
 * which fills the memory with another array beside. In whichever order they begin, none is
 * given back before both have passed it; one that goes elsewhere makes no difference. */
static void shared_loops(void) {
    enum { BYTES = 256 << 10, PLANES = 96, AT = 40 };
    const uint64_t counts[] = {PLANES - 2, BYTES / PAGE};
    const struct ra_stream plane = {.base = 2 * ARRAY, .high = 8, .stride = {BYTES, PAGE}};
    for (int order = 0; order < 3; ++order) {
        struct ra_site around = {.levels = 2, .streams = 1, .strip_mined = 3, .name = "around"};
        struct ra_site within = around;
        within.streams = 2;
        struct ra_frame *a = frame_of(2, counts, &plane);
        struct ra_frame *w = calloc(1, sizeof(*w) + 2 * sizeof(plane));
        CHECK(w);
        memcpy(w->count, counts, sizeof(counts));
        w->streams[0] = w->streams[1] = plane;
        w->streams[0].base += (uint64_t)(1 + order * PLANES) * BYTES;
        w->streams[1].base += ARRAY;
        a->streams[0].base += (uint64_t)(order * PLANES) * BYTES;
        if (order == 2)
            a->streams[0].base = ARRAY;
        clear_bits(ARRAY >> PAGE_SHIFT, 4 * ARRAY >> PAGE_SHIFT);
        ra_begin_2(order == 1 ? &within : &around, order == 1 ? w : a);
        ra_begin_2(order == 1 ? &around : &within, order == 1 ? a : w);
        CHECK(w->plan->releases == 3);
        released_within(0, 0);
        const uint64_t begin = w->streams[0].base - BYTES;
        w->index[0] = AT;
        ra_tick(&within, w, 0);
        uint64_t end = 0;
        for (struct entry e; take_out(&e);)
            if (e.operation == RELEASE && e.address < 3 * ARRAY)
                end = e.address + e.bytes;
        CHECK(end == begin + (order == 2 ? AT + 1 : AT) * BYTES);
        nothing_behind();
        free(a);
        free(w);
    }
}

enum { SHARED_BYTES = 256 << 10, SHARED_PLANES = 128 };
static struct ra_site shared = {.levels = 2, .streams = 1, .strip_mined = 3, .name = "shared"};

/* Bytes that a thread's nest gives back when it has gone over so many planes. */
static uint64_t after(struct ra_frame *f, uint64_t planes) {
    f->index[0] = planes;
    ra_tick(&shared, f, 0);
    nothing_behind();
    return released_within(2 * ARRAY, 2 * ARRAY + planes * SHARED_BYTES);
}

static void *only_begins(void *frame) {
    ra_begin_2(&shared, frame);
    return NULL;
}

static void *comes_to_the_middle(void *frame) {
    ra_begin_2(&shared, frame);
    CHECK(after(frame, 30) == 30 * SHARED_BYTES);
    return NULL;
}

static void in_a_thread(void *(*body)(void *), struct ra_frame *frame) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, frame) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Where several threads go over the same array what one leaves is given back only if no other
 * is still to come to it: by the last of them. One that does not go on counts for a while. */
static void several_threads(void) {
    const uint64_t counts[] = {SHARED_PLANES, SHARED_BYTES / PAGE};
    const struct ra_stream plane = {.base = 2 * ARRAY, .high = 8, .stride = {SHARED_BYTES, PAGE}};
    struct ra_frame *f = frame_of(2, counts, &plane);
    in_a_thread(only_begins, frame_of(2, counts, &plane));
    ra_begin_2(&shared, f);
    CHECK(after(f, 40) == 0);
    clock_ns += STILL_NS;
    CHECK(after(f, 60) == 20 * SHARED_BYTES);
    in_a_thread(comes_to_the_middle, frame_of(2, counts, &plane));
    CHECK(after(f, 80) == 0);
    clock_ns += STILL_NS;
    free(f);
    clear_bits(2 * ARRAY >> PAGE_SHIFT, 3 * ARRAY >> PAGE_SHIFT);
}

/* What a nest over `arrays` of so many bytes each has gone over half of is given back:
 * does it stay until its memory is wanted? */
static bool stays(uint32_t arrays, uint64_t bytes) {
    const uint64_t pages = bytes >> PAGE_SHIFT;
    struct ra_site over = {.levels = 1, .streams = arrays, .strip_mined = 1, .name = "over"};
    struct ra_frame *f = calloc(1, sizeof(*f) + arrays * sizeof(f->streams[0]));
    CHECK(f);
    f->count[0] = pages;
    for (uint32_t i = 0; i < arrays; ++i)
        f->streams[i] = (struct ra_stream){.base = (2 + i) * ARRAY, .high = 8, .stride = {PAGE},
                                           .flags = RA_FLAG_WRITE};
    ra_begin_2(&over, f);
    const bool is_lazy = f->plan->is_lazy;
    CHECK(released_within(0, 0) == 0);
    f->index[0] = pages / 2;
    ra_tick(&over, f, 0);
    const uint64_t released = released_within(2 * ARRAY, (2 + arrays) * ARRAY);
    CHECK(released >= arrays * (bytes / 2 - (1 << 20)) && released_lazily == (is_lazy ? released : 0));
    nothing_behind();
    free(f);
    return is_lazy;
}

/* Large folios are for what is read in order, and for what is given back behind the nest. */
static void folios(void) {
    const uint64_t few = ra.memory / 4 >> PAGE_SHIFT, many = 2 * ra.memory >> PAGE_SHIFT;
    static struct ra_site each[9];
    struct ra_frame *f = calloc(1, sizeof(*f) + 2 * sizeof(f->streams[0]));
    CHECK(f);
    for (int n = 0; n < 9; ++n)
        each[n] = (struct ra_site){.levels = 1, .streams = 2, .strip_mined = 1, .name = "folios"};
    struct ra_site *over = each;
    for (uint64_t pages = few; pages <= many; pages += many - few)
        for (uint32_t writes = 0; writes < 4; ++writes) {
            f->count[0] = pages;
            for (uint32_t i = 0; i < 2; ++i)
                f->streams[i] = (struct ra_stream){.base = (2 + i) * ARRAY, .high = 8,
                                                   .stride = {PAGE}, .flags = writes >> i & 1};
            ra_begin_2(over++, f);
            CHECK(f->plan->folios == (pages == few ? ~writes & 3 : 3));
        }
    /* Read here, written there, of the same array. */
    f->count[0] = few;
    f->streams[1].base = f->streams[0].base + few / 2 * PAGE;
    f->streams[0].flags = 0;
    ra_begin_2(over, f);
    CHECK(f->plan->folios == 0);
    released_within(0, ADDRESSES);
    nothing_behind();
    free(f);
}

/* More is behind the program than is good for the memory: it waits, no longer than
 * some time, and whoever releases says when it is to go on. */
static void catching_up(void) {
    nothing_behind();
    atomic_store(&ra.behind, behind_most());
    let_releases_catch_up();
    CHECK(!atomic_load(&ra.catching_up));
    naps = 0, naps_needed = 1 << 30;
    atomic_fetch_add(&ra.given_back, 1);
    atomic_store(&ra.behind, behind_most() + 1);
    let_releases_catch_up();
    CHECK(naps == CATCH_UP_WAITS_MAX && !atomic_load(&ra.catching_up));
    /* As long as nothing gets on, it is not waited for again. */
    let_releases_catch_up();
    CHECK(naps == CATCH_UP_WAITS_MAX);
    atomic_fetch_add(&ra.given_back, 1);
    atomic_store(&ra.catching_up, true);
    atomic_store(&ra.behind, behind_least()); /* nobody has told it to go on */
    let_releases_catch_up();
    CHECK(naps == CATCH_UP_WAITS_MAX);
    atomic_store(&ra.behind, behind_least() + 1);
    let_releases_catch_up();
    CHECK(naps == 2 * CATCH_UP_WAITS_MAX);
    atomic_fetch_add(&ra.given_back, 1);
    naps_needed = 0;
    nothing_behind();
}

/* A walk comes to its end, and a nest begins that goes over `bytes` at `base`:
 * what is given back then of the walk's array. */
static uint64_t left_for(uint64_t base, uint64_t bytes) {
    const uint64_t counts[] = {ROWS, 86, PLACES};
    const struct ra_stream stream = {.base = ARRAY, .high = 40, .stride = {88 * 40, 40, PLANE}};
    struct ra_site rows = {.levels = 3, .streams = 1, .strip_mined = 7, .name = "rows"};
    struct ra_frame *f = frame_of(3, counts, &stream);
    ra_begin_2(&rows, f);
    CHECK(f->plan->walks == 1);
    f->index[0] = ROWS - 1;
    ra_tick(&rows, f, 0);
    released_within(0, ADDRESSES);
    const uint64_t pages = bytes >> PAGE_SHIFT;
    const struct ra_stream next = {.base = base, .high = 8, .stride = {PAGE}};
    struct ra_site over = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "over"};
    ra_begin_2(&over, frame_of(1, &pages, &next));
    walks_ended(NULL);
    const uint64_t released = released_within(ARRAY, ARRAY + (uint64_t)PLACES * PLANE);
    CHECK(released_lazily == 0);
    return released;
}

static void left(void) {
    const uint64_t all = (uint64_t)(PLACES - 1) * PLANE;
    CHECK(left_for(2 * ARRAY, ra.memory) >= all);
    CHECK(left_for(2 * ARRAY, ra.memory / 2) == 0); /* there is room for both */
    CHECK(left_for(ARRAY, ra.memory) == 0);         /* wanted again */
    ra.release_allowed = false;
    CHECK(left_for(2 * ARRAY + PAGE, ra.memory) == 0);
    ra.release_allowed = true;
    nothing_behind();
}

/* What is given back behind the first and the second stream of a walk, and at which of
 * its lines that begins. */
struct given {
    uint64_t bytes, other, first;
    bool is_dirty;
};

/* Lines of small nests with two streams, the second `ahead` bytes further on and so many
 * times as fast. Each byte is given back once at most, and only behind them. */
static struct given given_back(struct ra_site *site, uint64_t lines, int64_t line, uint64_t base,
                               int64_t ahead, int64_t speed, uint32_t writes) {
    static uint8_t given[3 << (30 - PAGE_SHIFT)]; /* of three times ARRAY */
    struct given all = {.first = ~(uint64_t)0};
    memset(given, 0, sizeof(given));
    clear_bits(0, 4 * ARRAY >> PAGE_SHIFT);
    const uint64_t count = magnitude(line) / 8;
    for (uint64_t n = 0; n < lines; ++n) {
        const uint64_t at = base + n * (uint64_t)line;
        if (at - site->low < site->span)
            continue; /* as the pass does */
        struct ra_frame *f = calloc(1, sizeof(*f) + 2 * sizeof(struct ra_stream));
        CHECK(f);
        f->count[0] = count;
        f->streams[0] = (struct ra_stream){.base = at, .high = 8, .stride = {8}, .flags = writes & 1};
        f->streams[1] = (struct ra_stream){.base = base + (uint64_t)ahead + n * (uint64_t)(line * speed),
                                           .high = 8, .stride = {8 * speed}, .flags = writes >> 1};
        ra_begin_2(site, f);
        const uint64_t second = f->streams[1].base;
        free(f);
        for (struct entry e; take_out(&e);) {
            if (e.operation != RELEASE)
                continue;
            CHECK(e.flags & RELEASE_LAZY);
            const bool is_first = line > 0 ? e.address + e.bytes <= at && e.address + PAGE > base
                                           : e.address >= at && e.address + e.bytes <= base + count * 8;
            CHECK(is_first || (line > 0 ? e.address + e.bytes <= second : e.address >= second));
            for (uint64_t a = e.address; a < e.address + e.bytes; a += PAGE) {
                CHECK(!given[(a - ARRAY) >> PAGE_SHIFT]);
                given[(a - ARRAY) >> PAGE_SHIFT] = 1;
            }
            all.first = all.first < n ? all.first : n;
            all.is_dirty |= e.flags & RA_FLAG_WRITE;
            *(is_first ? &all.bytes : &all.other) += e.bytes;
        }
    }
    return all;
}

/* A walk of small nests over more than the memory is given back behind itself, as soon
 * as it has gone over so much, the next time from the beginning; one over less is not.
 * Where one stream comes to what the other one has used, only behind the last of them. */
static void small_released(void) {
    enum { LINE = 16 << 10 };
    const uint64_t window = ra.window, memory = ra.memory, lines = 2 * memory / LINE;
    struct ra_site walk = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "walk"};
    struct given now = given_back(&walk, lines / 4, LINE, ARRAY, 0, 1, 0);
    CHECK(now.bytes == 0);
    walk.last = NULL;
    now = given_back(&walk, lines, LINE, ARRAY, 0, 1, 0);
    CHECK(now.first * LINE >= memory / 10 * 9 && !now.is_dirty);
    CHECK(now.bytes >= memory - window && now.bytes <= memory / 10 * 11 + window);
    now = given_back(&walk, lines, LINE, ARRAY + PAGE, 0, 1, 0);
    CHECK(now.first * LINE <= window && now.bytes >= 2 * memory - 2 * window);
    now = given_back(&walk, lines, -LINE, ARRAY + 3 * memory + PAGE, 0, 1, 1);
    CHECK(now.is_dirty && now.bytes >= memory - window);

    /* The second stream, of the same array, comes first: behind the first one. */
    struct ra_site two = walk;
    two.streams = 2, two.last = NULL, two.walked = two.walked_most = 0;
    now = given_back(&two, lines, LINE, ARRAY, 8 * LINE, 1, 2);
    CHECK(now.bytes >= memory && now.other == 0 && now.is_dirty);
    /* The other way round. */
    two.last = NULL, two.walked = 0;
    now = given_back(&two, lines, LINE, ARRAY + (1 << 20), -8 * LINE, 1, 0);
    CHECK(now.other + now.bytes >= memory && !now.is_dirty);
    /* An array of its own, with values twice as large: both. */
    two.last = NULL, two.walked = 0;
    now = given_back(&two, lines, LINE, ARRAY, (int64_t)ARRAY / 2, 2, 0);
    CHECK(now.bytes >= memory && now.other >= 2 * memory);

    /* Short lines of which the second stream goes over more than the first. */
    enum { SHORT = 800 };
    struct ra_site uneven = {.levels = 1, .streams = 2, .strip_mined = 1, .name = "uneven"};
    now = given_back(&uneven, 2 * memory / SHORT, SHORT, ARRAY, (int64_t)ARRAY / 2, 2, 0);
    CHECK(now.bytes >= memory / 2 && now.other >= memory);
    /* Arrays one after the other, each by itself: what fills the memory is all of them. */
    uneven.last = NULL, uneven.walked = uneven.walked_most = 0;
    now = given_back(&uneven, memory / 10 * 8 / SHORT, SHORT, ARRAY, (int64_t)memory / 10 * 8, 1, 0);
    CHECK(uneven.walked >= memory && now.bytes + now.other > 0);

    /* A block of columns, row by row: all its pages are wanted again for the next one. */
    struct ra_site block = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "block"};
    for (uint64_t n = 0; n < 4 * 256; ++n) {
        const uint64_t few = 64, at = n % 256 * (1 << 20) + n / 256 * few * 8;
        const struct ra_stream line = {.base = ARRAY + at, .high = 8, .stride = {8}};
        struct ra_frame *f = frame_of(1, &few, &line);
        ra_begin_2(&block, f);
        free(f);
        CHECK(n % 256 < 2 || block.walked + 1 == 0);
        CHECK(released_within(0, 0) == 0);
    }

    /* Rows of a stencil are counted once: what fits in memory is not given back. */
    two.last = NULL, two.walked = two.walked_most = 0;
    now = given_back(&two, lines / 10 * 4, LINE, ARRAY, 8 * LINE, 1, 0);
    CHECK(two.walked <= memory / 10 * 9 && now.bytes + now.other == 0);

    ra.release_allowed = false;
    two.last = NULL, two.walked = 0;
    now = given_back(&two, lines, LINE, ARRAY, (int64_t)ARRAY / 2, 2, 0);
    CHECK(now.bytes == 0 && now.other == 0);
    ra.release_allowed = true;
    clear_bits(0, 4 * ARRAY >> PAGE_SHIFT);
}

int main(void) {
    start(20 << 20);
    atomic_store(&ra.was_missing, true); /* and so nests wait for the helper */
    several_threads();
    small_released();
    /* Rows, and across them planes: each row is in another place of every plane. */
    struct ra_site rows = {.levels = 3, .streams = 1, .strip_mined = 6, .name = "rows"};
    const uint64_t counts[] = {ROWS, 86, PLACES};
    struct ra_stream stream = {.base = ARRAY, .high = 40, .stride = {88 * 40, 40, PLANE}};
    struct ra_frame *f = frame_of(3, counts, &stream);

    /* While nothing is missing, some loop still gets strips that it outlasts. */
    atomic_store(&ra.active, 0);
    ra_begin_2(&rows, f);
    bool ticks = false;
    for (uint32_t l = 0; l < 3; ++l)
        ticks |= f->strip[l] < counts[l];
    CHECK(ticks);
    CHECK(f->strip[2] >= counts[2]); /* not the one that a strip is longer than */

    /* A tick between two iterations of a loop outside goes on from there. */
    atomic_store(&ra.active, 1);
    f->index[0] = 40, f->index[1] = 86, f->index[2] = 86;
    ra_tick(&rows, f, 1);
    CHECK(f->plan && f->plan != RA_NOT_BEGUN);
    CHECK(f->cursor > ((uint64_t)40 * 86 + 86) * PLACES);
    CHECK(f->plan->walks == 1 && f->plan->around[0] >= 2 * PAGE);
    released_within(0, 0);

    /* From row 40 to 80, in all planes: the pieces in between, none beyond. */
    for (uint64_t row = 41; row <= 80; ++row) {
        f->index[0] = row, f->index[1] = 85, f->index[2] = 86; /* of the ticks inside */
        ra_tick(&rows, f, 0);
        CHECK(f->index[1] == 0 && f->index[2] == 0);
    }
    const uint64_t gone = 40 * 88 * 40, piece = f->plan->around[0];
    const uint64_t all =
        released_within((ARRAY + 40 * 88 * 40) & ~(piece - 1), ARRAY + 80 * 88 * 40 + (PLACES - 1) * PLANE);
    CHECK(all >= (gone - piece) * PLACES && all <= (gone + piece) * PLACES);
    CHECK(released_lazily == all);
    /* What the program is to wait for while it is too much. */
    CHECK(atomic_load(&ra.behind) == all);
    nothing_behind();

    /* Where it can, it ticks once a row: the cells of a row are on the same pages. */
    struct ra_site by_row = rows;
    by_row.strip_mined = 7, by_row.last = NULL, by_row.name = "by row";
    stream.base = 2 * ARRAY;
    struct ra_frame *r = frame_of(3, counts, &stream);
    ra_begin_2(&by_row, r);
    CHECK(r->plan->tick_level == 0 && r->plan->walks == 1 && r->strip[0] < ROWS);
    stream.base = ARRAY;
    released_within(ARRAY, ARRAY + (uint64_t)PLACES * PLANE); /* left by the walk before */

    planes();
    shared_loops();
    /* A single array that is much larger than the memory leaves it free. */
    CHECK(stays(1, ra.memory / 4 * 5) && !stays(1, ra.memory * 2) && stays(2, ra.memory));
    folios();
    catching_up();
    left();

    /* The same walk one row at a time, the nest anew for each; and downwards. */
    for (int way = 1; way >= -1; way -= 2) {
        struct ra_site row = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "row"};
        const uint64_t places = PLACES;
        struct ra_stream at = {.high = 40, .stride = {PLANE}};
        struct ra_frame *g = NULL;
        for (uint64_t n = 0; n < 60; ++n) {
            at.base = 2 * ARRAY + (way > 0 ? n : 60 - n) * 88 * 40;
            g = frame_of(1, &places, &at);
            ra_begin_2(&row, g);
        }
        const uint64_t bytes =
            released_within(2 * ARRAY & ~(piece - 1), 2 * ARRAY + (uint64_t)PLACES * PLANE);
        CHECK(bytes > (59 * 88 * 40 - 2 * piece) * PLACES && bytes < (59 * 88 * 40 + piece) * PLACES);

        /* Anew after so few rows that all of them fit: left in memory after that. */
        at.base = 2 * ARRAY + (way > 0 ? 0 : 60) * 88 * 40;
        struct ra_site few = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "few"};
        const uint64_t first = at.base;
        for (int pass = 0; pass < 3; ++pass)
            for (uint64_t n = 0; n < 20; ++n) {
                at.base = first + (uint64_t)(way * (int64_t)(n * 88 * 40));
                g = frame_of(1, &places, &at);
                ra_begin_2(&few, g);
                if (pass > 0)
                    CHECK(released_within(0, 0) == 0);
                else
                    released_within(0, ADDRESSES);
            }
    }

    /* Up and down over the same few rows: after the first turn, left there. */
    struct ra_site turns = {.levels = 1, .streams = 1, .strip_mined = 1, .name = "turns"};
    for (uint64_t n = 0; n < 80; ++n) {
        const uint64_t places = PLACES, row = n / 20 % 2 ? 20 - n % 20 : n % 20;
        struct ra_stream at = {.base = 3 * ARRAY + row * 88 * 40, .high = 40, .stride = {PLANE}};
        ra_begin_2(&turns, frame_of(1, &places, &at));
        if (n > 20)
            CHECK(released_within(0, 0) == 0);
        else
            released_within(0, ADDRESSES);
    }

    /* In a memory that holds it all, nothing is given back. */
    ra.memory = 64 << 20;
    stream.base = 3 * ARRAY;
    rows.last = NULL;
    f = frame_of(3, counts, &stream);
    ra_begin_2(&rows, f);
    for (uint64_t row = 1; row <= 80; ++row) {
        f->index[0] = row, f->index[1] = 0, f->index[2] = 0;
        ra_tick(&rows, f, 0);
    }
    CHECK(released_within(0, 0) == 0);
    puts("ticks and releases are as they should be");
    return 0;
}
