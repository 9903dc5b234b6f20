/* The interface between compiled programs and the run-time layer (Mowry, Demke
 * and Krieger 1996, section 2.4). Keep in step with pass/Nest.h. */
#ifndef RUNAHEAD_RT_H
#define RUNAHEAD_RT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RA_LEVELS_MAX = 6,
    RA_STREAMS_MAX = 24,
    RA_FLAG_WRITE = 1,
    RA_FLAG_INDIRECT = 2,
    RA_FLAG_INDEX_SIGNED = 4,
    RA_FLAG_COMPUTED = 8, /* with RA_FLAG_INDIRECT; target: an ra_address, scale: its values */
    RA_FLAG_INDEX_BYTES_SHIFT = 8
};

/* The address of a reference in an iteration, from values that the loop leaves
 * alone. Reads no other memory, and may be called for any iteration. */
typedef uint64_t ra_address(const uint64_t *values, uint64_t iteration);

/* One reference, or a group of references that share their data. */
struct ra_stream {
    uint64_t base;    /* address in the first iteration of all loops */
    int64_t low;      /* bytes of the group around it: [low, high) */
    int64_t high;
    uint64_t flags;
    uint64_t target;  /* indirect: address that index 0 stands for */
    int64_t scale;    /* indirect: bytes per index */
    int64_t stride[RA_LEVELS_MAX]; /* bytes per iteration, outermost loop first */
};

/* One execution of a loop nest; on the program's stack. */
struct ra_frame {
    uint64_t strip[8]; /* out: iterations until the next tick, by level */
    uint64_t index[8]; /* in, at a tick: iterations done, by level */
    /* The run-time layer's own. */
    struct ra_plan *plan; /* at word 16; RA_NOT_BEGUN: stored by the pass */
    uint64_t cursor;     /* iterations of the tick level prefetched so far */
    struct ra_plan *next; /* nest that is expected after this one */
    uint64_t next_cursor;
    uint64_t next_bytes; /* of nests already prefetched behind this one */
    uint64_t looked;     /* indirect: iterations whose indices were looked at, */
    uint64_t looked_from; /* the last ones of them from here on */
    uint64_t asked_from; /* the last burst: iterations of the tick level from here on, */
    uint64_t released[RA_STREAMS_MAX]; /* address up to which it was given back */
    uint64_t asked_turn; /* and the end of its entries in the ring */
    uint64_t others_from; /* pages asked for until it began, and by itself since, */
    uint64_t begun_at;    /* and iterations of the tick level done by then */
    uint64_t asked_to;    /* the last burst was to come to; the cursor is where it did */
    uint64_t faults;      /* indirect: of its thread, when all of what it goes to was asked for, */
    uint64_t faults_ns;   /* when they were looked at, 0: not yet, */
    uint64_t back_turn;   /* and the end of its entries in the ring */
    uint64_t reserved_streams[RA_STREAMS_MAX - 7];
    /* Parameters, at word 72. */
    uint64_t count[8];
    struct ra_stream streams[];
};

/* The plan of a frame whose ra_begin_2 was skipped or had nothing to plan: a tick
 * of a loop that it shares with another nest is none of its business. */
#define RA_NOT_BEGUN ((struct ra_plan *)~(uintptr_t)0)

/* One loop nest of the program. */
struct ra_site {
    uint64_t low;  /* a small nest whose first stream begins in */
    uint64_t span; /* [low, low + span) needs no call */
    uint32_t levels;
    uint32_t streams;
    uint32_t strip_mined; /* bit per level */
    uint32_t steps; /* small nests: calls that went the same way in a row */
    const char *name;
    struct ra_plan *last; /* what it was the last time */
    uint64_t target_low;  /* what indirect references went to so far, */
    uint64_t target_high; /* [target_low, target_high) */
    uint64_t listed;      /* its place among those whose windows are closed again, from 1 on */
    uint64_t began;       /* small nests: where the walk of the first stream began, */
    uint64_t asked_turn;  /* and the end of the last call's entries in the ring; */
    uint64_t walked;      /* bytes that the walk has gone over, each once, */
    uint64_t walked_most; /* and that those before it had, less what is long ago */
};

/* Inserted by the pass. A nest begins: is any strip shorter than its loop? If none is, the
 * nest runs as it was and never ticks. The number goes up with every change of the
 * structures above: what was compiled for others does not link. Hidden: a program and
 * each of its libraries have a layer of their own, perhaps of different versions, and
 * none must answer another's calls. */
#pragma GCC visibility push(hidden)
uint64_t ra_begin_2(struct ra_site *site, struct ra_frame *frame);
void ra_tick(struct ra_site *site, struct ra_frame *frame, uint64_t level);
void ra_memcpy(void *to, const void *from, uint64_t bytes);
void ra_memset(void *to, uint8_t value, uint64_t bytes);
#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
