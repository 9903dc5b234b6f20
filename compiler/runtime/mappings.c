/* What the helper knows of the program's mappings: which there are, by /proc/PID/maps,
 * what files they are of, and which of their pages are in memory. It looks at them again
 * now and then, and keeps the bit vector true. */
#define _GNU_SOURCE
#include "internal.h"

#include <string.h>

enum {
    REGIONS_MAX = 4096,  /* of SMALL_BYTES at least */
    FILES_MAX = 32,      /* of mappings, held open to look at what is cached */
    LOOKS_MAX = 64,      /* at what of CHUNK_PAGES is on its way */
    SWEEP_PAGES = 64,    /* looked at together; passing over these takes no longer: */
    SKIPPED_PAGES = 16384,
};
/* Between two looks at the mappings; they take a 32nd of a processor at most. */
static const uint64_t MAPS_NS = 20 * 1000000ull;
static const uint64_t MAPS_SHARE = 32;

static struct {
    struct region region[REGIONS_MAX];
    int regions, files_held;
    uint64_t read_ns, read_took_ns; /* when, and for how long, the mappings were read */
    int pagemap;
    int sweep_region;
    uint64_t sweep_at;
} m;

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

/* A line of /proc/PID/maps. False where it is none, or of a mapping that is too small to be
 * hinted by itself: of those there may be any number, and no room for the others behind them. */
static bool is_kept(const char *line, struct region *r) {
    static const char sample[] = " rwxp ";
    const uint64_t low = number_at(&line, 16);
    line += *line == '-';
    const uint64_t high = number_at(&line, 16);
    const char *perms = line + 1;
    if (strlen(line) < strlen(sample) || high - low < SMALL_BYTES)
        return false;
    line += strlen(sample);
    const uint64_t offset = number_at(&line, 16);
    line += strspn(line, " ");
    line += strcspn(line, " "); /* the device */
    line += strspn(line, " ");
    const uint64_t inode = number_at(&line, 10);
    line += strspn(line, " ");
    *r = (struct region){.low = low, .high = high, .hinted_low = ~(uint64_t)0,
                         .is_file = inode != 0, .is_shared = perms[3] == 's', .fd = -1,
                         .is_copied = perms[3] != 's' && perms[1] == 'w',
                         .offset = offset, .inode = inode};
    const size_t bytes = strlen(line);
    if (bytes < sizeof(r->path))
        memcpy(r->path, line, bytes + 1);
    return true;
}

static void read_regions(void) {
    /* Not with stdio: the program may be in exit(), which takes its streams. */
    static char text[64 << 10];
    static struct region fresh[REGIONS_MAX];
    size_t length = 0;
    int n = 0;
    m.read_ns = now_ns();
    /* Not what /proc/self says: once its main thread has ended, that has no memory. */
    int maps = open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC);
    if (maps < 0)
        return;
    for (ssize_t got; n < REGIONS_MAX &&
                      (got = read(maps, text + length, sizeof(text) - 1 - length)) > 0;) {
        char *line = text;
        length += (size_t)got;
        text[length] = 0;
        for (char *end; n < REGIONS_MAX && (end = strchr(line, '\n')); line = end + 1) {
            *end = 0;
            n += is_kept(line, &fresh[n]);
        }
        length -= (size_t)(line - text);
        memmove(text, line, length); /* the beginning of a line */
    }
    close(maps);
    for (int i = 0; i < n; ++i) {
        struct region *old = region_at(fresh[i].low);
        if (!old || old->low != fresh[i].low || old->high != fresh[i].high ||
            old->inode != fresh[i].inode || old->offset != fresh[i].offset ||
            strcmp(old->path, fresh[i].path) != 0)
            continue;
        fresh[i].hinted_low = old->hinted_low;
        fresh[i].hinted_high = old->hinted_high;
        fresh[i].fd = old->fd;
        fresh[i].is_counted = old->is_counted;
        old->fd = -2;
        old->inode = 0;
        old->hinted_high = 0;
    }
    for (int k = 0; k < m.regions; ++k)
        if (m.region[k].hinted_low < m.region[k].hinted_high && !goes_on(&m.region[k], fresh, n)) {
            clear_bits(m.region[k].hinted_low >> PAGE_SHIFT,
                       (m.region[k].hinted_high + PAGE - 1) >> PAGE_SHIFT);
            forget_walks(m.region[k].low, m.region[k].high);
        }
    /* Files of mappings that are gone. */
    for (int k = 0; k < m.regions; ++k) {
        if (m.region[k].fd >= 0)
            retire_file(m.region[k].fd);
        if (m.region[k].inode != 0) {
            leave_file(m.region[k].path, m.region[k].inode);
            leave_disclosed(m.region[k].path, m.region[k].inode);
        }
    }
    memcpy(m.region, fresh, sizeof(fresh[0]) * (size_t)n);
    m.regions = n;
    m.files_held = 0;
    for (int i = 0; i < n; ++i)
        m.files_held += fresh[i].fd >= 0;
    m.read_took_ns = now_ns() - m.read_ns;
}

struct region *region_at(uint64_t address) {
    int low = 0, high = m.regions;
    while (low < high) {
        int middle = (low + high) / 2;
        if (m.region[middle].high <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < m.regions ? &m.region[low] : NULL;
}

void look_at_maps(void) {
    const uint64_t now = now_ns();
    const uint64_t pause = m.read_took_ns * MAPS_SHARE;
    if (now >= m.read_ns + (pause > MAPS_NS ? pause : MAPS_NS))
        read_regions();
}

struct region *region_of(uint64_t address) {
    struct region *r = region_at(address);
    if (!r || r->low > address) {
        look_at_maps();
        r = region_at(address);
    }
    return r && r->low <= address ? r : NULL;
}

bool holds_files(void) {
    return m.files_held > 0;
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

int file_of_region(struct region *r) {
    if (r->fd == -1) {
        r->fd = open_same(r->path, r->inode, O_NOATIME);
        if (r->fd < 0)
            r->fd = open_same(r->path, r->inode, 0);
        if (r->fd < 0)
            r->fd = -2;
        else
            ++m.files_held;
    }
    return r->fd;
}

void open_pagemap(void) {
    m.pagemap = open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC);
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

bool find_missing(struct region *r, uint64_t address, uint64_t pages, uint8_t *missing) {
    if (r->is_file) {
        if (mincore((void *)(uintptr_t)address, pages << PAGE_SHIFT, missing) != 0)
            return false;
        for (uint64_t i = 0; i < pages; ++i)
            missing[i] = !(missing[i] & 1);
        int looks = LOOKS_MAX;
        for (uint64_t i = 0, from; i < pages;) {
            for (from = i; i < pages && missing[i] == missing[from];)
                ++i;
            if (missing[from] && !r->is_copied && (r->fd >= 0 || m.files_held < FILES_MAX) &&
                file_of_region(r) >= 0)
                leave_out_coming(r->fd, r->offset + (address - r->low) + (from << PAGE_SHIFT),
                                 i - from, missing + from, &looks);
        }
        return true;
    }
    uint64_t entry[CHUNK_PAGES];
    ssize_t got = pread(m.pagemap, entry, pages * 8, (off_t)((address >> PAGE_SHIFT) * 8));
    if (got != (ssize_t)(pages * 8))
        return false;
    for (uint64_t i = 0; i < pages; ++i)
        missing[i] = (uint8_t)(entry[i] >> 62 & 1); /* swapped */
    return true;
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

void sweep(uint64_t pages_max) {
    for (int tried = 0; tried < m.regions && pages_max; ++tried) {
        if (m.sweep_region >= m.regions)
            m.sweep_region = 0;
        struct region *r = &m.region[m.sweep_region];
        if (r->hinted_low >= r->hinted_high) {
            ++m.sweep_region;
            continue;
        }
        if (m.sweep_at < r->hinted_low || m.sweep_at >= r->hinted_high)
            m.sweep_at = r->hinted_low & ~(PAGE - 1);
        while (pages_max && m.sweep_at < r->hinted_high) {
            uint64_t pages = (r->hinted_high - m.sweep_at + PAGE - 1) >> PAGE_SHIFT;
            if (pages > SKIPPED_PAGES)
                pages = SKIPPED_PAGES;
            const uint64_t skipped = skip_unbelieved(m.sweep_at >> PAGE_SHIFT, pages);
            m.sweep_at += skipped << PAGE_SHIFT;
            pages_max -= skipped * SWEEP_PAGES / SKIPPED_PAGES < pages_max
                ? skipped * SWEEP_PAGES / SKIPPED_PAGES : pages_max;
            if (skipped == pages)
                continue;
            pages = (r->hinted_high - m.sweep_at + PAGE - 1) >> PAGE_SHIFT;
            if (pages > SWEEP_PAGES)
                pages = SWEEP_PAGES;
            uint8_t missing[CHUNK_PAGES];
            if (!find_missing(r, m.sweep_at, pages, missing)) {
                r->hinted_low = ~(uint64_t)0; /* gone */
                r->hinted_high = 0;
                break;
            }
            uint64_t page = m.sweep_at >> PAGE_SHIFT;
            for (uint64_t i = 0; i < pages; ++i) {
                if (bit(ra.recent, page + i))
                    clear_bit(ra.recent, page + i);
                else if (missing[i] && bit(ra.bits, page + i))
                    clear_bit(ra.bits, page + i);
            }
            m.sweep_at += pages << PAGE_SHIFT;
            pages_max = pages_max > pages ? pages_max - pages : 0;
        }
        if (m.sweep_at >= r->hinted_high)
            ++m.sweep_region;
    }
}

bool may_fit(void) {
    uint64_t bytes = 0;
    for (int i = 0; i < m.regions; ++i)
        if (m.region[i].hinted_low < m.region[i].hinted_high)
            bytes += m.region[i].high - m.region[i].low;
    return bytes <= ra.memory;
}
