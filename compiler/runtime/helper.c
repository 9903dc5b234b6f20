/* The helper: a thread that passes hints on to the kernel, keeps the bit vector
 * true, and switches the hints off where everything is in memory. */
#define _GNU_SOURCE
#include "internal.h"

#include <linux/close_range.h>
#include <linux/futex.h>
#include <sys/sysinfo.h>
#include <time.h>

enum {
    REFUSED_MAX = 1024,
    TRIES_MAX = 64,
    WALKED_MAX = 16,
};
/* Kernels cap what one WILLNEED reads by the readahead window. */
static const uint64_t WILLNEED_BYTES = 128 << 10;
/* A shorter piece is no beginning of a sequence. */
static const uint64_t SEQUENCE_BYTES_MIN = 64 << 10;
/* So long nothing is read before hints stop, the first time; each time that they
 * stopped too early it is twice as long, up to the second figure. */
static const uint64_t QUIET_NS_MIN = 1 * 1000000ull, QUIET_NS_MAX = 200 * 1000000ull;
/* Where what was hinted is more than the memory: a program that waits for its
 * writes reads nothing meanwhile. */
static const uint64_t QUIET_NS_LARGE = 2000 * 1000000ull;
/* Hints until then at least, pages. */
static const uint64_t QUIET_PAGES = 256;
/* Between two tries of what was refused. */
static const uint64_t REFUSED_NS = 2 * 1000000ull;
/* Between two sweeps at least; they take a 16th of a processor at most. */
static const uint64_t SWEEP_NS = 4 * 1000000ull;
static const uint64_t SWEEP_SHARE = 16;
/* A program that neither hints nor reads from storage for so long has no loops to run now. */
static const uint64_t REST_NS = 1000 * 1000000ull;
/* From then on it is looked at so seldom: what is hinted wakes the helper at once. Sweeps go
 * on, because reclaim does, whoever wants the memory: with a vector that is not true the
 * next loops would drop hints that they need. But they take no more than a 1024th then. */
static const uint64_t RESTING_WAIT_NS = 50 * 1000000ull;
static const uint64_t RESTING_SWEEP_SHARE = 1024;
/* Between two looks at a program that hints, or at whether it reads, at most. */
static const uint64_t WAIT_NS_MAX = 4 * 1000000ull;
/* A slot of the ring that a thread took and has not filled for so long is passed over:
 * a signal handler may have jumped out of it, or the thread been cancelled. */
static const uint64_t UNFILLED_NS = 10 * 1000000ull;
/* Pieces of walks in a row that are not kept: fewest, where one has been read for, and most. */
enum { UNKEPT_MIN = 16, UNKEPT_MAX = 1024 };
/* Between two looks at whether there is swap: it is seldom added or taken away. */
static const uint64_t SWAP_NS = 1000 * 1000000ull;

static struct {
    /* What the kernel read less of than it was asked for: where the memory is
     * full of pages that are dirty or being written, it refuses. Oldest first. */
    struct refused {
        uint64_t address, bytes, left;
        uint32_t tries;
    } refused[REFUSED_MAX];
    uint32_t refused_head, refused_tail;
    /* What walks across rows write, as far as they were seen. */
    struct walked {
        uint64_t low, high;
    } walked[WALKED_MAX];
    uint32_t walks;
    /* Pieces that are not kept after one whose pages set off the kernel's readahead, and how
     * many of these are still to come. */
    uint32_t unkept, unkept_left;
    bool has_swap;
    uint64_t swap_looked_ns; /* 0: never */
} h;

uint64_t own_reads(void) {
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? (uint64_t)usage.ru_inblock * 512 : 0;
}

/* Processor time that this thread has taken so far. */
static uint64_t own_time_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Asks the kernel; returns bytes that it did not read. */
static uint64_t ask(struct region *r, uint64_t at, uint64_t length) {
    const uint64_t before = own_reads();
    madvise((void *)(uintptr_t)at, length, MADV_WILLNEED);
    count(&ra.count.calls, 1);
    const uint64_t got = own_reads() - before;
    r->is_counted |= got > 0;
    const uint64_t left = r->is_file && r->is_counted && got < length ? length - got : 0;
    count(&ra.count.issued, (length - left) >> PAGE_SHIFT);
    count(&ra.count.refused, left >> PAGE_SHIFT);
    return left;
}

/* Missing as if it had never been asked for. */
static void forget_refused(const struct refused *one) {
    clear_bits(one->address >> PAGE_SHIFT, (one->address + one->bytes) >> PAGE_SHIFT);
}

/* To be asked for again, as far as there is room to keep it. */
static void keep_refused(const struct refused *one) {
    if (h.refused_head - h.refused_tail < REFUSED_MAX)
        h.refused[h.refused_head++ % REFUSED_MAX] = *one;
    else
        forget_refused(one);
}

/* The oldest of what was refused: is there memory for it now? */
static void ask_again(void) {
    for (uint32_t n = h.refused_head - h.refused_tail; n > 0; --n) {
        struct refused one = h.refused[h.refused_tail++ % REFUSED_MAX];
        struct region *r = region_of(one.address);
        uint8_t missing[CHUNK_PAGES];
        const uint64_t pages = one.bytes >> PAGE_SHIFT;
        if (!r || r->high - one.address < one.bytes || !find_missing(r, one.address, pages, missing))
            continue;
        uint64_t absent = 0;
        for (uint64_t i = 0; i < pages; ++i)
            absent += missing[i];
        if (absent == 0)
            continue;
        const uint64_t left = ask(r, one.address, one.bytes), got = one.bytes - left;
        if (got >= one.left)
            continue;
        one.left -= got;
        if (++one.tries >= TRIES_MAX)
            forget_refused(&one);
        else if (got > 0)
            keep_refused(&one);
        else
            h.refused[--h.refused_tail % REFUSED_MAX] = one; /* the oldest still */
        if (got == 0)
            return; /* no: the others neither */
    }
}

/* Bytes between a walk and others; 0: they meet. */
static uint64_t apart(const struct walked *one, uint64_t low, uint64_t high) {
    return low > one->high ? low - one->high : one->low > high ? one->low - high : 0;
}

static bool is_walked(uint64_t low, uint64_t high) {
    for (uint32_t i = 0; i < h.walks; ++i)
        if (low < h.walked[i].high && high > h.walked[i].low)
            return true;
    return false;
}

/* What earlier nests left there is to be in single pages before a walk writes it. */
static void split_walked(uint64_t low, uint64_t high) {
    struct region *r = region_of(low);
    if (!r || !r->is_file || !r->is_shared)
        return;
    struct release one = {.address = low, .ns = now_ns(), .is_kept = true};
    one.bytes = (r->high < high ? r->high : high) - low;
    one.offset = r->offset + (low - r->low);
    one.fd = file_of_region(r);
    if (one.fd >= 0)
        queue_release(&one);
}

/* Where there is no room for another it becomes part of the nearest, with what lies between. */
static void note_walk(uint64_t low, uint64_t high) {
    if (!is_walked(low, high))
        split_walked(low, high);
    struct walked *nearest = h.walked;
    for (uint32_t i = 1; i < h.walks; ++i)
        if (apart(&h.walked[i], low, high) < apart(nearest, low, high))
            nearest = &h.walked[i];
    if (h.walks < WALKED_MAX && (h.walks == 0 || apart(nearest, low, high) > 0)) {
        h.walked[h.walks++] = (struct walked){low, high};
        return;
    }
    nearest->low = low < nearest->low ? low : nearest->low;
    nearest->high = high > nearest->high ? high : nearest->high;
}

void forget_walks(uint64_t low, uint64_t high) {
    for (uint32_t i = 0; i < h.walks;)
        if (h.walked[i].low >= low && h.walked[i].high <= high)
            h.walked[i] = h.walked[--h.walks];
        else
            ++i;
}

/* What a walk finds that was given back and is there still is first in the order of reclaim:
 * what is read for the next rows of the same places would throw it out. Once it is mapped,
 * which tells of use, reclaim passes it over for a round. Not what is on its way, for which
 * this would wait.
 *
 * Only one page in each window of fault-around is touched (do_fault_around, mm/memory.c,
 * Linux 6.18): that maps what else is there, but for pages that are locked, which would be
 * waited for, and those at which the kernel's readahead goes on, into what nobody has asked
 * for. Where it goes on all the same (its flag is also that of dirty pages that reclaim has
 * begun with), pieces are left as they are, ever more of them. */
static void keep(uint64_t address, uint64_t pages) {
    uint8_t there[CHUNK_PAGES];
    const uint64_t end = address + (pages << PAGE_SHIFT);
    if (mincore((void *)(uintptr_t)address, end - address, there) != 0)
        return;
    for (uint64_t i = 0; i < pages; ++i)
        if (!(there[i] & 1))
            return;
    if (h.unkept_left > 0) {
        --h.unkept_left;
        return;
    }
    const uint64_t before = own_reads();
    for (uint64_t at = address; at < end; at = (at / FAULT_AROUND_BYTES + 1) * FAULT_AROUND_BYTES)
        madvise((void *)(uintptr_t)at, PAGE, MADV_POPULATE_READ);
    if (own_reads() == before)
        h.unkept -= (h.unkept + 7) / 8;
    else
        h.unkept = h.unkept < UNKEPT_MAX / 4 ? 4 * h.unkept + UNKEPT_MIN : UNKEPT_MAX;
    h.unkept_left = h.unkept;
}

static void do_prefetch(uint64_t address, uint64_t bytes, uint32_t front, bool in_folios) {
    look_at_maps();
    while (bytes) {
        atomic_fetch_add_explicit(&ra.pieces_served, 1, memory_order_relaxed);
        struct region *r = region_of(address);
        if (!r) {
            /* Neighbours of a page may be where nothing is mapped. */
            r = region_at(address);
            uint64_t skip = r && r->low - address < bytes ? r->low - address : bytes;
            clear_bits(address >> PAGE_SHIFT, (address + skip) >> PAGE_SHIFT);
            address += skip;
            bytes -= skip;
            continue;
        }
        uint64_t n = r->high - address < bytes ? r->high - address : bytes;
        /* A walk that writes a piece of a large folio makes all of it dirty, each
         * time that it comes back: none is left for it. */
        const bool is_followed = r->is_file && !ra.manager && in_folios &&
                                 !is_walked(address, address + n);
        const uint64_t followed =
            is_followed ? follow(r->path, r->inode, r->offset + (address - r->low), n) : 0;
        if (followed)
            n = followed;
        else if (n > WILLNEED_BYTES)
            n = WILLNEED_BYTES;
        if (r->hinted_low > address)
            r->hinted_low = address;
        if (r->hinted_high < address + n)
            r->hinted_high = address + n;
        if (followed) {
            for (uint64_t page = address >> PAGE_SHIFT; page < (address + n) >> PAGE_SHIFT; ++page)
                set_bit(ra.recent, page);
            address += n;
            bytes -= n;
            continue;
        }
        uint8_t missing[CHUNK_PAGES];
        uint64_t pages = n >> PAGE_SHIFT;
        if (!find_missing(r, address, pages, missing)) {
            /* Nobody asks for the rest: it is not to be believed in memory. */
            clear_bits(address >> PAGE_SHIFT, (address + bytes) >> PAGE_SHIFT);
            return;
        }
        for (uint64_t i = 0; i < pages;) {
            uint64_t from = i;
            while (i < pages && missing[i] == missing[from])
                ++i;
            if (!missing[from]) {
                count(&ra.count.resident, i - from);
                if (r->is_file && is_walked(address, address + n))
                    keep(address + (from << PAGE_SHIFT), i - from);
                continue;
            }
            uint64_t page = (address >> PAGE_SHIFT) + from;
            for (uint64_t k = 0; k < i - from; ++k)
                set_bit(ra.recent, page + k);
            uint64_t at = page << PAGE_SHIFT, length = (i - from) << PAGE_SHIFT;
            if (r->is_file && disclose(r->path, r->inode, r->offset + (at - r->low), length, front)) {
                count(&ra.count.issued, i - from);
                continue;
            }
            struct refused one = {.address = at, .bytes = length};
            one.left = ask(r, at, length);
            if (one.left)
                keep_refused(&one);
            else if (is_followed && r->is_counted && length >= SEQUENCE_BYTES_MIN)
                may_go_on(r->path, r->inode, r->offset + (at - r->low),
                          r->offset + (at + length - r->low));
        }
        address += n;
        bytes -= n;
    }
}

/* What was refused there is not wanted any more, nor the rest of a piece that the
 * program has come to. */
static void drop_refused(uint64_t low, uint64_t high) {
    for (uint32_t at = h.refused_tail; at != h.refused_head; ++at) {
        struct refused *one = &h.refused[at % REFUSED_MAX];
        if (one->address < high && one->address + one->bytes > low) {
            forget_refused(one);
            one->bytes = 0;
        }
    }
}

/* That the program may use. Where the kernel does not tell, there may be some. */
static bool has_swap(uint64_t now) {
    if (h.swap_looked_ns == 0 || now - h.swap_looked_ns >= SWAP_NS) {
        struct sysinfo machine = {.totalswap = 1};
        syscall(SYS_sysinfo, &machine);
        h.has_swap = machine.totalswap != 0;
        h.swap_looked_ns = now;
    }
    return h.has_swap && !ra.is_swap_forbidden;
}

static void do_release(uint64_t address, uint64_t bytes, uint32_t flags) {
    struct release one = {.address = address, .owed = flags & RELEASE_UNAWAITED ? 0 : bytes,
                          .ns = now_ns(), .fd = -1, .is_lazy = flags & RELEASE_LAZY};
    struct region *r = region_of(address);
    if (!r) {
        take_off_behind(one.owed);
        return;
    }
    /* What is in no file stays in memory then, whatever the kernel is told, which would
     * only split its large pages for it. */
    if (!r->is_file && !has_swap(one.ns)) {
        settle_behind(one.owed);
        return;
    }
    if (r->high - address < bytes)
        bytes = r->high - address;
    clear_bits(address >> PAGE_SHIFT, (address + bytes) >> PAGE_SHIFT);
    drop_refused(address, address + bytes);
    one.bytes = bytes;
    if ((flags & RA_FLAG_WRITE) && r->is_file && r->is_shared) {
        one.fd = file_of_region(r);
        one.offset = r->offset + (address - r->low);
    }
    queue_release(&one);
}

/* A slot at the tail that its thread does not fill. That thread, should it be slow only,
 * finds its turn gone, and its hint is lost; what it wrote meanwhile, an entry with
 * another's address, is advice like any. */
static void pass_over_unfilled(uint64_t now) {
    static uint64_t unfilled = ~(uint64_t)0, since;
    uint64_t turn = lap_of(ra.ring_tail);
    struct entry *e = &ra.ring[ra.ring_tail & (RING_ENTRIES - 1)];
    if (atomic_load_explicit(&ra.ring_head, memory_order_relaxed) == ra.ring_tail ||
        atomic_load_explicit(&e->turn, memory_order_relaxed) != turn) {
        unfilled = ~(uint64_t)0;
    } else if (unfilled != ra.ring_tail) {
        unfilled = ra.ring_tail;
        since = now;
    } else if (now - since > UNFILLED_NS &&
               atomic_compare_exchange_strong(&e->turn, &turn, turn + RING_ENTRIES)) {
        ++ra.ring_tail;
        atomic_store_explicit(&ra.served, ra.ring_tail, memory_order_release);
    }
}

/* Have there been no signs of loops for a while, nor is there anything to be asked again? */
static bool rests(uint64_t now, uint64_t signs) {
    static uint64_t last, since;
    if (signs != last || h.refused_head != h.refused_tail) {
        last = signs;
        since = now;
    }
    return now - since >= REST_NS;
}

void *helper(void *nothing) {
    (void)nothing;
    begin_thread(HELPER_NAME);
    /* A table of descriptors of its own, empty: what is opened here must never
     * take a number that the program's next open would have got. */
    const char *why = NULL;
    if (syscall(SYS_close_range, 0, ~0u, CLOSE_RANGE_UNSHARE) != 0)
        why = "the helper got no descriptors of its own (close_range, Linux 5.9)";
    else if (!can_see_end())
        why = "/proc cannot be read";
    else if (!start_thread(releaser, THREAD_STACK_BYTES))
        why = "a thread of the layer could not be started";
    if (why) {
        do_without_since(why);
        tell_ender(ENDS_ALONE);
        return NULL;
    }
    uint64_t reads_before = storage_reads(), quiet_since = now_ns(), quiet_ns = QUIET_NS_MIN;
    uint64_t quiet_hinted = 0, quiet_issued = 0;
    uint64_t sweep_ns = 0, alone_ns = now_ns(), asked_again_ns = 0;
    bool is_resting = false;
    open_pagemap();
    load_library();
    for (;;) {
        int worked = 0;
        for (; worked < 64; ++worked) {
            struct entry *e = &ra.ring[ra.ring_tail & (RING_ENTRIES - 1)];
            if (atomic_load_explicit(&e->turn, memory_order_acquire) != lap_of(ra.ring_tail) + 1)
                break;
            struct entry copy = {.address = e->address, .bytes = e->bytes,
                                 .operation = e->operation, .flags = e->flags};
            atomic_store_explicit(&e->turn, lap_of(ra.ring_tail) + RING_ENTRIES, memory_order_release);
            ++ra.ring_tail;
            if (copy.operation == PREFETCH || copy.operation == PREFETCH_FOLIOS)
                do_prefetch(copy.address, copy.bytes, copy.flags, copy.operation == PREFETCH_FOLIOS);
            else if (copy.operation == WALKED)
                note_walk(copy.address & ~(PAGE - 1), copy.address + copy.bytes);
            else
                do_release(copy.address, copy.bytes, copy.flags);
            atomic_store_explicit(&ra.served, ra.ring_tail, memory_order_release);
        }
        consume_behind();
        uint64_t now = now_ns();
        if (worked == 0)
            pass_over_unfilled(now);
        if (h.refused_head != h.refused_tail && now - asked_again_ns > REFUSED_NS) {
            ask_again();
            asked_again_ns = now;
        }
        bool active = atomic_load(&ra.active);
        if (active && now >= sweep_ns) {
            const uint64_t began = own_time_ns();
            look_at_maps();
            sweep(8192);
            close_windows(false); /* what they called for in vain may be missing by now */
            atomic_store_explicit(&ra.is_larger, !may_fit(), memory_order_relaxed);
            const uint64_t share = is_resting ? RESTING_SWEEP_SHARE : SWEEP_SHARE;
            const uint64_t pause = (own_time_ns() - began) * (share - 1);
            sweep_ns = now + (pause > SWEEP_NS ? pause : SWEEP_NS);
        }
        uint64_t reads = storage_reads();
        uint64_t hinted = atomic_load_explicit(&ra.count.hinted, memory_order_relaxed);
        uint64_t issued = atomic_load_explicit(&ra.count.issued, memory_order_relaxed);
        if (reads != reads_before) {
            if (!active) {
                quiet_ns = 2 * quiet_ns < QUIET_NS_MAX ? 2 * quiet_ns : QUIET_NS_MAX;
                /* First: a thread that still found hints off opens its site's window, looks
                 * again, and closes it if that below may have come before. */
                atomic_store(&ra.active, active = true);
                close_windows(true);
                count(&ra.count.activations, 1);
            }
            quiet_since = now;
            quiet_hinted = hinted;
            quiet_issued = issued;
        } else if (issued != quiet_issued || h.refused_head != h.refused_tail) {
            quiet_since = now; /* a manager reads it, or it is on its way */
            quiet_hinted = hinted;
            quiet_issued = issued;
        } else if (active && worked == 0 && now - quiet_since >= quiet_ns &&
                   hinted - quiet_hinted >= QUIET_PAGES &&
                   (now - quiet_since >= QUIET_NS_LARGE || may_fit())) {
            /* The paper's open problem (section 4.3.1): "suppressing prefetches
             * (after the cold faults have been prefetched in) if the data fits
             * within memory". A program that gives no hints is not in memory: it
             * waits for something, such as its own writes. */
            atomic_store(&ra.active, 0);
            active = false;
        }
        reads_before = reads;
        const bool was_resting = is_resting;
        is_resting = rests(now, reads + hinted + atomic_load_explicit(&ra.ring_head, memory_order_relaxed));
        if (was_resting && !is_resting)
            sweep_ns = now;
        if (now - alone_ns > 500 * 1000000ull) {
            alone_ns = now;
            if (is_alone())
                tell_ender(ENDS_PROGRAM);
            if (holds_files() || holds_disclosed())
                look_at_maps(); /* no file is held for long that is mapped no more */
        }
        if (worked == 64)
            continue;
        atomic_store(&ra.asleep, 1);
        struct entry *e = &ra.ring[ra.ring_tail & (RING_ENTRIES - 1)];
        if (atomic_load_explicit(&e->turn, memory_order_acquire) == lap_of(ra.ring_tail) + 1) {
            atomic_store(&ra.asleep, 0);
            continue;
        }
        const uint64_t wait_ns = active && quiet_ns < WAIT_NS_MAX ? quiet_ns : WAIT_NS_MAX;
        struct timespec wait = {.tv_nsec = (long)(is_resting ? RESTING_WAIT_NS : wait_ns)};
        syscall(SYS_futex, &ra.asleep, FUTEX_WAIT_PRIVATE, 1, &wait, NULL, 0);
        atomic_store(&ra.asleep, 0);
    }
}
