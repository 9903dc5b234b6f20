/* The helper: a thread that passes hints on to the kernel, keeps the bit vector
 * true, and switches the hints off where everything is in memory. */
#define _GNU_SOURCE
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    REGIONS_MAX = 1024,
    CHUNK_PAGES = 512,
    REFUSED_MAX = 1024,
    TRIES_MAX = 64,
    WALKED_MAX = 16,
    FILES_MAX = 32,      /* of mappings, held open to look at what is cached */
    LOOKS_MAX = 64,      /* at what of CHUNK_PAGES is on its way */
    SWEEP_PAGES = 64,    /* looked at together; passing over these takes no longer: */
    SKIPPED_PAGES = 16384,
    THREAD_STACK_BYTES = 256 << 10,
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
/* A slot of the ring that a thread took and has not filled for so long is passed over:
 * a signal handler may have jumped out of it, or the thread been cancelled. */
static const uint64_t UNFILLED_NS = 10 * 1000000ull;
/* Between two looks at the mappings; they take a 32nd of a processor at most. */
static const uint64_t MAPS_NS = 20 * 1000000ull;
static const uint64_t MAPS_SHARE = 32;

struct region {
    uint64_t low, high;
    uint64_t hinted_low, hinted_high; /* what hints have touched of it */
    bool is_file, is_shared;
    bool is_counted; /* what is read of the file shows in rusage */
    bool is_copied; /* private and writable: what is in it may be in no file */
    int fd; /* of the file, to look at what is cached and to start writing with; -1 unknown, -2 none */
    uint64_t offset;
    uint64_t inode;
    char path[PATH_BYTES];
};

static struct {
    struct region region[REGIONS_MAX];
    int regions, files_held;
    uint64_t read_ns, read_took_ns; /* when, and for how long, the mappings were read */
    int pagemap;
    int sweep_region;
    uint64_t sweep_at;
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

/* Does a mapping go on in one with other bounds, such as a heap that has grown? What
 * hints have touched of it is known there, too. Of any other what is believed in memory
 * is forgotten: it would be believed of whatever is mapped there now. */
static bool goes_on(const struct region *old, struct region *fresh, int n) {
    bool is_found = false;
    for (int i = 0; i < n; ++i) {
        struct region *r = &fresh[i];
        const uint64_t low = old->hinted_low > r->low ? old->hinted_low : r->low;
        const uint64_t high = old->hinted_high < r->high ? old->hinted_high : r->high;
        if (low >= high || r->is_file != old->is_file || r->is_shared != old->is_shared ||
            (r->is_file && (r->inode != old->inode || r->low - r->offset != old->low - old->offset)))
            continue;
        r->hinted_low = low < r->hinted_low ? low : r->hinted_low;
        r->hinted_high = high > r->hinted_high ? high : r->hinted_high;
        is_found = true;
    }
    return is_found;
}

static void read_regions(void) {
    /* Not with stdio: the program may be in exit(), which takes its streams. */
    static char text[512 << 10];
    size_t length = 0;
    h.read_ns = now_ns();
    int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (maps < 0)
        return;
    for (ssize_t got; length < sizeof(text) - 1 &&
                      (got = read(maps, text + length, sizeof(text) - 1 - length)) > 0;)
        length += (size_t)got;
    close(maps);
    text[length] = 0;
    static struct region fresh[REGIONS_MAX];
    int n = 0;
    for (char *line = text, *end; n < REGIONS_MAX && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        struct region *r = &fresh[n];
        unsigned long low, high, offset, inode;
        char perms[8], device[16];
        int at = 0;
        if (sscanf(line, "%lx-%lx %7s %lx %15s %lu %n", &low, &high, perms, &offset, device, &inode,
                   &at) < 6)
            continue;
        *r = (struct region){.low = low, .high = high, .hinted_low = ~(uint64_t)0,
                             .is_file = inode != 0, .is_shared = perms[3] == 's', .fd = -1,
                             .is_copied = perms[3] != 's' && perms[1] == 'w',
                             .offset = offset, .inode = inode};
        size_t bytes = strlen(line + at);
        if (bytes < sizeof(r->path))
            memcpy(r->path, line + at, bytes + 1);
        ++n;
    }
    for (int i = 0; i < n; ++i)
        for (int k = 0; k < h.regions; ++k)
            if (h.region[k].low == fresh[i].low && h.region[k].high == fresh[i].high &&
                h.region[k].inode == fresh[i].inode && h.region[k].offset == fresh[i].offset &&
                strcmp(h.region[k].path, fresh[i].path) == 0) {
                fresh[i].hinted_low = h.region[k].hinted_low;
                fresh[i].hinted_high = h.region[k].hinted_high;
                fresh[i].fd = h.region[k].fd;
                fresh[i].is_counted = h.region[k].is_counted;
                h.region[k].fd = -2;
                h.region[k].inode = 0;
                h.region[k].hinted_high = 0;
            }
    for (int k = 0; k < h.regions; ++k)
        if (h.region[k].hinted_low < h.region[k].hinted_high && !goes_on(&h.region[k], fresh, n))
            clear_bits(h.region[k].hinted_low >> PAGE_SHIFT,
                       (h.region[k].hinted_high + PAGE - 1) >> PAGE_SHIFT);
    /* Files of mappings that are gone: held until no release can name them. */
    for (int k = 0; k < h.regions; ++k) {
        if (h.region[k].fd >= 0)
            retire_file(h.region[k].fd);
        if (h.region[k].inode != 0)
            leave_file(h.region[k].path, h.region[k].inode);
    }
    memcpy(h.region, fresh, sizeof(fresh[0]) * (size_t)n);
    h.regions = n;
    h.files_held = 0;
    for (int i = 0; i < n; ++i)
        h.files_held += fresh[i].fd >= 0;
    h.read_took_ns = now_ns() - h.read_ns;
}

/* The mapping that holds the address, or the first above it. */
static struct region *region_at(uint64_t address) {
    int low = 0, high = h.regions;
    while (low < high) {
        int middle = (low + high) / 2;
        if (h.region[middle].high <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < h.regions ? &h.region[low] : NULL;
}

static struct region *region_of(uint64_t address) {
    struct region *r = region_at(address);
    if ((!r || r->low > address) && (!h.regions || now_ns() - h.read_ns >= MAPS_NS)) {
        read_regions();
        r = region_at(address);
    }
    return r && r->low <= address ? r : NULL;
}

/* The file of a region; below 0: none that can be opened. */
static int file_of(struct region *r) {
    if (r->fd == -1) {
        r->fd = open_same(r->path, r->inode, O_NOATIME);
        if (r->fd < 0)
            r->fd = open_same(r->path, r->inode, 0);
        if (r->fd < 0)
            r->fd = -2;
        else
            ++h.files_held;
    }
    return r->fd;
}

/* Of pages that are not in memory, all those that are on their way there are missing no
 * more. To mincore they are like those that nobody asked for: to be asked for again,
 * and, because nothing is read then, kept as refused until they are used and thrown
 * out, and read once more. */
static void leave_out_coming(int fd, uint64_t offset, uint64_t pages, uint8_t *missing, int *looks) {
    if (--*looks < 0)
        return;
    const uint64_t coming = cached(fd, offset, pages << PAGE_SHIFT) >> PAGE_SHIFT;
    if (coming == 0)
        return;
    if (coming >= pages) {
        memset(missing, 0, pages);
        return;
    }
    const uint64_t half = pages / 2;
    leave_out_coming(fd, offset, half, missing, looks);
    leave_out_coming(fd, offset + (half << PAGE_SHIFT), pages - half, missing + half, looks);
}

/* For up to CHUNK_PAGES pages: which are neither in memory nor on their way? */
static bool find_missing(struct region *r, uint64_t address, uint64_t pages, uint8_t *missing) {
    if (r->is_file) {
        if (mincore((void *)(uintptr_t)address, pages << PAGE_SHIFT, missing) != 0)
            return false;
        for (uint64_t i = 0; i < pages; ++i)
            missing[i] = !(missing[i] & 1);
        int looks = LOOKS_MAX;
        for (uint64_t i = 0, from; i < pages;) {
            for (from = i; i < pages && missing[i] == missing[from];)
                ++i;
            if (missing[from] && !r->is_copied && (r->fd >= 0 || h.files_held < FILES_MAX) &&
                file_of(r) >= 0)
                leave_out_coming(r->fd, r->offset + (address - r->low) + (from << PAGE_SHIFT),
                                 i - from, missing + from, &looks);
        }
        return true;
    }
    uint64_t entry[CHUNK_PAGES];
    ssize_t got = pread(h.pagemap, entry, pages * 8, (off_t)((address >> PAGE_SHIFT) * 8));
    if (got != (ssize_t)(pages * 8))
        return false;
    for (uint64_t i = 0; i < pages; ++i)
        missing[i] = (uint8_t)(entry[i] >> 62 & 1); /* swapped */
    return true;
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

static void note_walk(uint64_t low, uint64_t high) {
    for (uint32_t i = 0; i < h.walks; ++i) {
        struct walked *one = &h.walked[i];
        if ((low > one->high || high < one->low) && i + 1 < WALKED_MAX)
            continue;
        one->low = low < one->low ? low : one->low;
        one->high = high > one->high ? high : one->high;
        return;
    }
    h.walked[h.walks++] = (struct walked){low, high};
}

static bool is_walked(uint64_t low, uint64_t high) {
    for (uint32_t i = 0; i < h.walks; ++i)
        if (low < h.walked[i].high && high > h.walked[i].low)
            return true;
    return false;
}

/* Another file may be mapped where one was, or the same one from elsewhere on: what is
 * on its way of the former says nothing of the latter. */
static void look_at_maps(void) {
    const uint64_t now = now_ns();
    const uint64_t pause = h.read_took_ns * MAPS_SHARE;
    if (now >= h.read_ns + (pause > MAPS_NS ? pause : MAPS_NS))
        read_regions();
}

static void do_prefetch(uint64_t address, uint64_t bytes, uint32_t front, bool is_passed) {
    look_at_maps();
    while (bytes) {
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
        const uint64_t followed = r->is_file && !ra.manager && is_passed &&
                !is_walked(address, address + n)
            ? follow(r->path, r->inode, r->offset + (address - r->low), n) : 0;
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
        if (!find_missing(r, address, pages, missing))
            return;
        for (uint64_t i = 0; i < pages;) {
            uint64_t from = i;
            while (i < pages && missing[i] == missing[from])
                ++i;
            if (!missing[from]) {
                count(&ra.count.resident, i - from);
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
            else if (r->is_counted && length >= SEQUENCE_BYTES_MIN)
                may_go_on(r->path, r->inode, r->offset + (at + length - r->low));
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
        if (one->address < high && one->address + one->bytes > low)
            one->bytes = 0;
    }
}

int open_same(const char *path, uint64_t inode, int flags) {
    struct stat status;
    /* A device is not even opened: it may wind its tape. */
    if (stat(path, &status) != 0 || status.st_ino != inode || !S_ISREG(status.st_mode))
        return -1;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
    if (fd >= 0 && (fstat(fd, &status) != 0 || status.st_ino != inode || !S_ISREG(status.st_mode))) {
        close(fd);
        return -1;
    }
    return fd;
}

static void do_release(uint64_t address, uint64_t bytes, uint32_t flags) {
    struct release one = {.address = address, .owed = flags & RELEASE_UNAWAITED ? 0 : bytes,
                          .ns = now_ns(), .fd = -1, .is_left = flags & RELEASE_LEFT};
    struct region *r = region_of(address);
    if (!r) {
        take_off_behind(one.owed);
        return;
    }
    if (r->high - address < bytes)
        bytes = r->high - address;
    clear_bits(address >> PAGE_SHIFT, (address + bytes) >> PAGE_SHIFT);
    drop_refused(address, address + bytes);
    one.bytes = bytes;
    if ((flags & RA_FLAG_WRITE) && r->is_file && r->is_shared) {
        one.fd = file_of(r);
        one.offset = r->offset + (address - r->low);
    }
    queue_release(&one);
}

/* Of `pages` pages, as far as the first that is looked at: those that may have
 * been reclaimed unnoticed. What was asked for since the last sweep may still be
 * on its way, what is not believed in memory costs no look. */
static uint64_t skip_unbelieved(uint64_t page, uint64_t pages) {
    uint64_t n = 0;
    while (n < pages) {
        const uint64_t at = (page + n) >> 3;
        if (((page + n) & 7) == 0 && pages - n >= 8 &&
            __atomic_load_n(&ra.bits[at], __ATOMIC_RELAXED) == 0) {
            if (ra.recent[at])
                __atomic_store_n(&ra.recent[at], 0, __ATOMIC_RELAXED);
            n += 8;
            continue;
        }
        if (bit(ra.bits, page + n) && !bit(ra.recent, page + n))
            break;
        if (bit(ra.recent, page + n))
            clear_bit(ra.recent, page + n);
        ++n;
    }
    return n;
}

/* Keeps the bit vector true: what the kernel has reclaimed loses its bit. */
static void sweep(uint64_t pages_max) {
    for (int tried = 0; tried < h.regions && pages_max; ++tried) {
        if (h.sweep_region >= h.regions)
            h.sweep_region = 0;
        struct region *r = &h.region[h.sweep_region];
        if (r->hinted_low >= r->hinted_high) {
            ++h.sweep_region;
            continue;
        }
        if (h.sweep_at < r->hinted_low || h.sweep_at >= r->hinted_high)
            h.sweep_at = r->hinted_low & ~(PAGE - 1);
        while (pages_max && h.sweep_at < r->hinted_high) {
            uint64_t pages = (r->hinted_high - h.sweep_at + PAGE - 1) >> PAGE_SHIFT;
            if (pages > SKIPPED_PAGES)
                pages = SKIPPED_PAGES;
            const uint64_t skipped = skip_unbelieved(h.sweep_at >> PAGE_SHIFT, pages);
            h.sweep_at += skipped << PAGE_SHIFT;
            pages_max -= skipped * SWEEP_PAGES / SKIPPED_PAGES < pages_max
                ? skipped * SWEEP_PAGES / SKIPPED_PAGES : pages_max;
            if (skipped == pages)
                continue;
            pages = (r->hinted_high - h.sweep_at + PAGE - 1) >> PAGE_SHIFT;
            if (pages > SWEEP_PAGES)
                pages = SWEEP_PAGES;
            uint8_t missing[CHUNK_PAGES];
            if (!find_missing(r, h.sweep_at, pages, missing)) {
                r->hinted_low = ~(uint64_t)0; /* gone */
                r->hinted_high = 0;
                break;
            }
            uint64_t page = h.sweep_at >> PAGE_SHIFT;
            for (uint64_t i = 0; i < pages; ++i) {
                if (bit(ra.recent, page + i))
                    clear_bit(ra.recent, page + i);
                else if (missing[i] && bit(ra.bits, page + i))
                    clear_bit(ra.bits, page + i);
            }
            h.sweep_at += pages << PAGE_SHIFT;
            pages_max = pages_max > pages ? pages_max - pages : 0;
        }
        if (h.sweep_at >= r->hinted_high)
            ++h.sweep_region;
    }
}

/* Could all of the mappings that hints have touched be in memory? How far hints will
 * have gone over them in the end is not known before. */
static bool may_fit(void) {
    uint64_t bytes = 0;
    for (int i = 0; i < h.regions; ++i)
        if (h.region[i].hinted_low < h.region[i].hinted_high)
            bytes += h.region[i].high - h.region[i].low;
    return bytes <= ra.memory;
}

/* ---- The end of the program -------------------------------------------------- */

/* Are the threads of this layer all that is left beside the main thread, and those of
 * the layers of libraries? Of several helpers that see this one ends the program. */
static bool is_the_rest_ours(void) {
    const long own = syscall(SYS_gettid), process = getpid();
    DIR *tasks = opendir("/proc/self/task");
    bool is_ours = tasks != NULL;
    for (struct dirent *task; is_ours && (task = readdir(tasks));) {
        char path[64], name[32];
        const long id = strtol(task->d_name, NULL, 10);
        if (id <= 0 || id == process)
            continue;
        snprintf(path, sizeof(path), "/proc/self/task/%ld/comm", id);
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        const ssize_t n = fd < 0 ? -1 : read(fd, name, sizeof(name) - 1);
        if (fd >= 0)
            close(fd);
        if (n <= 0)
            continue; /* it has ended */
        name[n - 1] = 0;
        if (strcmp(name, HELPER_NAME) == 0)
            is_ours = id >= own;
        else
            is_ours = strcmp(name, OTHER_NAME) == 0 || is_library_thread(name);
    }
    if (tasks)
        closedir(tasks);
    return is_ours;
}

/* The last thread left but a main thread that has ended? */
static bool is_alone(void) {
    char text[512], state = 0;
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = 0;
    const char *at = strrchr(text, ')');
    /* Field 3 of proc(5). */
    return at && sscanf(at + 1, " %c", &state) == 1 && state == 'Z' && is_the_rest_ours();
}

/* The thread that ends the program, as the C library does with the last one. The
 * helper cannot: what exit handlers write would go to descriptors that it has not. */
enum { ENDS_NOT_YET, ENDS_ALONE, ENDS_PROGRAM };
static _Atomic uint32_t ending;
static sigset_t signals_of_program; /* blocked where the helper was started */

static void tell_ender(uint32_t what) {
    atomic_store(&ending, what);
    syscall(SYS_futex, &ending, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *ender(void *nothing) {
    (void)nothing;
    prctl(PR_SET_NAME, OTHER_NAME);
    uint32_t what;
    while ((what = atomic_load(&ending)) == ENDS_NOT_YET)
        syscall(SYS_futex, &ending, FUTEX_WAIT_PRIVATE, ENDS_NOT_YET, NULL, NULL, 0);
    if (what == ENDS_PROGRAM) {
        pthread_sigmask(SIG_SETMASK, &signals_of_program, NULL);
        exit(0);
    }
    return NULL;
}

/* ---- Threads ------------------------------------------------------------------ */

/* With the signals that the caller has blocked; of as much stack as the program's
 * threads have where that is 0. */
bool start_thread(void *(*body)(void *), size_t stack_bytes) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (stack_bytes)
        pthread_attr_setstacksize(&attributes, stack_bytes);
    bool is_started = pthread_create(&thread, &attributes, body, NULL) == 0;
    pthread_attr_destroy(&attributes);
    return is_started;
}

/* A slot at the tail that its thread does not fill. That thread, should it be slow only,
 * finds its turn gone, and its hint is lost; what it wrote meanwhile, an entry with
 * another's address, is advice like any. */
static void pass_over_unfilled(uint64_t now) {
    static uint64_t unfilled = ~(uint64_t)0, since;
    uint64_t turn = ra.ring_tail;
    struct entry *e = &ra.ring[turn & (RING_ENTRIES - 1)];
    if (atomic_load_explicit(&ra.ring_head, memory_order_relaxed) == turn ||
        atomic_load_explicit(&e->turn, memory_order_relaxed) != turn) {
        unfilled = ~(uint64_t)0;
    } else if (unfilled != turn) {
        unfilled = turn;
        since = now;
    } else if (now - since > UNFILLED_NS &&
               atomic_compare_exchange_strong(&e->turn, &turn, turn + RING_ENTRIES)) {
        ++ra.ring_tail;
        atomic_store_explicit(&ra.served, ra.ring_tail, memory_order_release);
    }
}

static void *helper(void *nothing) {
    (void)nothing;
    prctl(PR_SET_NAME, HELPER_NAME);
    /* A table of descriptors of its own, empty: what is opened here must never
     * take a number that the program's next open would have got. */
    if (syscall(SYS_close_range, 0, ~0u, CLOSE_RANGE_UNSHARE) != 0 ||
        !start_thread(releaser, THREAD_STACK_BYTES)) {
        do_without();
        tell_ender(ENDS_ALONE);
        return NULL;
    }
    uint64_t reads_before = storage_reads(), quiet_since = now_ns(), quiet_ns = QUIET_NS_MIN;
    uint64_t quiet_hinted = 0, quiet_issued = 0;
    uint64_t sweep_ns = 0, alone_ns = now_ns(), asked_again_ns = 0;
    h.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    load_library();
    for (;;) {
        int worked = 0;
        for (; worked < 64; ++worked) {
            struct entry *e = &ra.ring[ra.ring_tail & (RING_ENTRIES - 1)];
            if (atomic_load_explicit(&e->turn, memory_order_acquire) != ra.ring_tail + 1)
                break;
            struct entry copy = {.address = e->address, .bytes = e->bytes,
                                 .operation = e->operation, .flags = e->flags};
            atomic_store_explicit(&e->turn, ra.ring_tail + RING_ENTRIES, memory_order_release);
            ++ra.ring_tail;
            if (copy.operation == PREFETCH || copy.operation == PREFETCH_PASSED)
                do_prefetch(copy.address, copy.bytes, copy.flags, copy.operation == PREFETCH_PASSED);
            else if (copy.operation == WALKED)
                note_walk(copy.address, copy.address + copy.bytes);
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
            atomic_store_explicit(&ra.is_larger, !may_fit(), memory_order_relaxed);
            const uint64_t rest = (own_time_ns() - began) * (SWEEP_SHARE - 1);
            sweep_ns = now + (rest > SWEEP_NS ? rest : SWEEP_NS);
        }
        uint64_t reads = storage_reads();
        uint64_t hinted = atomic_load_explicit(&ra.count.hinted, memory_order_relaxed);
        uint64_t issued = atomic_load_explicit(&ra.count.issued, memory_order_relaxed);
        if (reads != reads_before) {
            if (!active) {
                quiet_ns = 2 * quiet_ns < QUIET_NS_MAX ? 2 * quiet_ns : QUIET_NS_MAX;
                uint32_t sites = atomic_load(&ra.site_count);
                for (uint32_t i = 0; i < sites && i < PLANS_MAX; ++i) {
                    struct ra_site *site = atomic_load(&ra.sites[i]);
                    if (site)
                        site->span = 0;
                }
                atomic_store(&ra.active, active = true);
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
        if (now - alone_ns > 500 * 1000000ull) {
            alone_ns = now;
            if (is_alone())
                tell_ender(ENDS_PROGRAM);
            if (h.files_held > 0)
                look_at_maps(); /* no file is held for long that is mapped no more */
        }
        if (worked == 64)
            continue;
        atomic_store(&ra.asleep, 1);
        struct entry *e = &ra.ring[ra.ring_tail & (RING_ENTRIES - 1)];
        if (atomic_load_explicit(&e->turn, memory_order_acquire) == ra.ring_tail + 1) {
            atomic_store(&ra.asleep, 0);
            continue;
        }
        struct timespec wait = {.tv_nsec = active && quiet_ns < 4000000 ? (long)quiet_ns : 4000000};
        syscall(SYS_futex, &ra.asleep, FUTEX_WAIT_PRIVATE, 1, &wait, NULL, 0);
        atomic_store(&ra.asleep, 0);
    }
}

void start_helper(void) {
    int none = 0, cancel;
    if (!atomic_compare_exchange_strong(&ra.helper, &none, 1))
        return;
    int saved = errno;
    sigset_t all;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &signals_of_program);
    if (!start_thread(ender, 0)) {
        do_without();
    } else if (!start_thread(helper, THREAD_STACK_BYTES)) {
        do_without();
        tell_ender(ENDS_ALONE);
    }
    pthread_sigmask(SIG_SETMASK, &signals_of_program, NULL);
    pthread_setcancelstate(cancel, NULL);
    errno = saved;
}
