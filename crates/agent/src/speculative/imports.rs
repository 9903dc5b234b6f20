//! Memory that the copy did not get (see [`crate::import`]): empty at first,
//! each touch of a missing page reported by a signal (userfaultfd(2),
//! `UFFD_FEATURE_SIGBUS`). What is in memory in the normal process is
//! imported; what is swapped out is prefetched there and reads as zeros here
//! (Fraser and Chang, section 4.1.2: a fault allocates a frame, initiates the
//! read and returns at once); what was never touched is zeros anyway.

use super::Own;
use crate::arch::{import_nr, nr};
use crate::config::CONFIG;
use crate::import::regions::{Region, regions};
use crate::import::{ADDRESSES_MAX, Desk, PAGES_MAX, desk, page, question};
use crate::sys::{self, PAGE_SIZE, call};
use core::cell::UnsafeCell;
use core::ptr::from_mut;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use runahead_emulate::gate::Check;
use runahead_policy::horizon::pause_ns;
use runahead_protocol::learnt::SHARERS_MAX;
use runahead_protocol::stats::Park;

/// `UFFDIO_API`, `_REGISTER`, `_COPY`, `_ZEROPAGE`.
const UFFDIO_API: usize = 0xc018_aa3f;
const UFFDIO_REGISTER: usize = 0xc020_aa00;
const UFFDIO_COPY: usize = 0xc028_aa03;
const UFFDIO_ZEROPAGE: usize = 0xc020_aa04;
/// Version of the interface.
const UFFD_API: u64 = 0xaa;
/// A missing page raises SIGBUS (Linux 4.14).
const UFFD_FEATURE_SIGBUS: u64 = 1 << 7;
/// `O_CLOEXEC | UFFD_USER_MODE_ONLY` (Linux 5.11): without privilege.
const UFFD_FLAGS: usize = 0o2_000_000 | 1;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;
const MAP_NORESERVE: usize = 0x4000;
const MAP_FIXED_NOREPLACE: usize = 0x10_0000;
const MADV_DONTNEED: usize = 4;
const MADV_NOHUGEPAGE: usize = 15;

/// Streams that are followed at once.
const STREAMS: usize = 8;

/// Pages looked at around a touch that continues no stream.
const WINDOW_MIN: usize = 4;

/// Pages that a copy may have prefetched and the program not come to, unless
/// the user has said otherwise (2 MiB).
const HORIZON_PAGES: usize = 512;

/// Room for them.
const AHEAD_MAX: usize = 4096;

/// Pages that a copy holds before it lets go of the oldest (8 MiB): they are
/// charged to the program's memory cgroup, where swapping shows that memory is
/// short.
const HELD_PAGES_MAX: usize = 2048;

/// Runs of them.
const HELD_MAX: usize = 2048;

/// Shortest pause between two looks at what the program has come to, in ns.
const PAUSE_NS: u64 = 150_000;

/// How long an answer is waited for without sleeping, in rounds.
const SPIN: u32 = 2000;

/// Answers that may stay out, each for half a second, before the copy ends.
const SILENCE_MAX: u32 = 20;

/// What the filter lets through of `ioctl`: two operations on the copy's own
/// userfaultfd. (`madvise` is the program's anyway; the wake of the aide is a
/// rule of its own.)
pub const COPY: Check = Check { argument: 1, mask: 0xffff_ffff, value: UFFDIO_COPY as u64 };
/// See [`COPY`].
pub const ZEROPAGE: Check = Check { argument: 1, mask: 0xffff_ffff, value: UFFDIO_ZEROPAGE as u64 };

#[derive(Clone, Copy)]
struct Stream {
    /// The touch that would continue it.
    next: usize,
    /// Pages of its last window.
    window: usize,
}

struct Imports {
    fd: usize,
    streams: [Stream; STREAMS],
    /// The stream to be forgotten next.
    oldest: usize,
    /// Prefetched pages in order: a ring.
    ahead: [usize; AHEAD_MAX],
    ahead_from: usize,
    ahead_len: usize,
    /// Runs of pages that were filled in, in order: a ring of (address,
    /// pages).
    held: [(usize, usize); HELD_MAX],
    held_from: usize,
    held_len: usize,
    held_pages: usize,
    /// Predictions so far, and the pages that had been imported at the last.
    predicted: u64,
    imported_before: u64,
}

static IMPORTS: Own<Imports> = Own(UnsafeCell::new(Imports {
    fd: usize::MAX,
    streams: [Stream { next: 0, window: 0 }; STREAMS],
    oldest: 0,
    ahead: [0; AHEAD_MAX],
    ahead_from: 0,
    ahead_len: 0,
    held: [(0, 0); HELD_MAX],
    held_from: 0,
    held_len: 0,
    held_pages: 0,
    predicted: 0,
    imported_before: 0,
}));

/// `struct uffdio_range`, and what the operations put behind it.
#[repr(C)]
struct Operation {
    words: [u64; 5],
}

impl Operation {
    fn call(&mut self, fd: usize, number: usize) -> isize {
        let at = from_mut(self) as usize;
        // SAFETY: reads and writes at most five words, and fills pages of
        // regions of this process that were missing.
        unsafe { call(import_nr::IOCTL, &[fd, number, at]) }
    }
}

/// Makes empty memory where the copy got none; false where that fails. Does
/// nothing in a full copy.
pub fn set_up() -> bool {
    // SAFETY: in the copy.
    let regions = unsafe { regions() };
    if regions.all().is_empty() {
        return true;
    }
    // SAFETY: a new descriptor of this process.
    let fd = unsafe { call(nr::USERFAULTFD, &[UFFD_FLAGS]) };
    let Ok(fd) = usize::try_from(fd) else { return false };
    let mut api = Operation { words: [UFFD_API, UFFD_FEATURE_SIGBUS, 0, 0, 0] };
    if api.call(fd, UFFDIO_API) != 0 {
        return false;
    }
    // SAFETY: one thread, and no fault can come yet.
    unsafe { (*IMPORTS.0.get()).fd = fd };
    regions.all().iter().all(|region| empty(fd, region))
}

fn empty(fd: usize, region: &Region) -> bool {
    let len = region.end - region.start;
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    let args = [region.start, len, region.protection, flags, usize::MAX, 0];
    // SAFETY: nothing is mapped there (else the call fails).
    if unsafe { call(nr::MMAP, &args) } != region.start as isize {
        return false;
    }
    // SAFETY: advice on memory of ours.
    unsafe { call(nr::MADVISE, &[region.start, len, MADV_NOHUGEPAGE]) };
    let words = [region.start as u64, len as u64, UFFDIO_REGISTER_MODE_MISSING, 0, 0];
    Operation { words }.call(fd, UFFDIO_REGISTER) == 0
}

/// At a fault: fills in the page at `address` if it is one that the copy did
/// not get. False where the fault is another one.
pub fn resolve(address: usize) -> bool {
    // SAFETY: one thread; nothing below faults on a region.
    let (regions, imports) = unsafe { (regions(), &mut *IMPORTS.0.get()) };
    let at = address & !(PAGE_SIZE - 1);
    let holding = regions.all().iter().find(|region| region.start <= at && at < region.end);
    let (Some(region), Some(desk)) = (holding, desk()) else { return false };
    imports.touched(desk, region, at)
}

/// Brings in what the kernel is about to look at or fill: a system call that
/// meets a missing page fails.
pub fn bring(address: usize, len: usize) {
    // SAFETY: in the copy; shared for reading.
    let regions = unsafe { regions() };
    let end = address.saturating_add(len);
    for region in regions.all() {
        let (from, to) = (address.max(region.start), end.min(region.end));
        let mut at = from;
        while at < to {
            // SAFETY: inside a region; a missing page is filled in by the
            // handler, and one that the program has unmapped parks.
            unsafe { core::ptr::read_volatile(at as *const u8) };
            at = (at & !(PAGE_SIZE - 1)) + PAGE_SIZE;
        }
    }
}

/// Whether a range reaches into memory that the copy did not get.
pub fn touches(address: usize, len: usize) -> bool {
    // SAFETY: as above.
    let regions = unsafe { regions() };
    let end = address.saturating_add(len);
    regions.all().iter().any(|region| region.start < end && address < region.end)
}

impl Imports {
    /// Whether so many pages have been imported since the last prediction that
    /// none is to be hoped for.
    fn has_imported_in_vain(&mut self, desk: &Desk) -> bool {
        let Some(log) = super::log() else { return false };
        let imported = desk.imported.load(Relaxed);
        let predicted = log.tail.load(Relaxed).wrapping_add(log.pages.tail.load(Relaxed));
        if predicted != self.predicted {
            (self.predicted, self.imported_before) = (predicted, imported);
        }
        imported.saturating_sub(self.imported_before) > u64::from(log.imports_max.load(Relaxed))
    }

    fn touched(&mut self, desk: &Desk, region: &Region, at: usize) -> bool {
        let (first, count, prefetch) = self.window(region, at);
        if self.has_imported_in_vain(desk) {
            super::park(Park::Behind, -1);
        }
        self.make_room(count);
        desk.address.store(first as u64, Relaxed);
        desk.count.store(count as u32, Relaxed);
        desk.prefetch_from.store(((prefetch.0 - first) / PAGE_SIZE) as u32, Relaxed);
        desk.prefetch_to.store(((prefetch.1 - first) / PAGE_SIZE) as u32, Relaxed);
        if !ask(desk, question::PAGES) {
            return false;
        }
        let mut asked_for = 0;
        let mut index = 0;
        while index < count {
            let state = desk.pages.get(index).map_or(page::UNKNOWN, |page| page.load(Relaxed));
            let page_at = first + index * PAGE_SIZE;
            let wanted = prefetch.0 <= page_at && page_at < prefetch.1;
            match state {
                page::IMPORTED => {
                    self.fill(page_at, Some(desk.data(index)));
                    desk.imported.store(desk.imported.load(Relaxed).wrapping_add(1), Relaxed);
                }
                page::SWAPPED if wanted => {
                    self.fill(page_at, None);
                    self.went_ahead(page_at);
                    asked_for += 1;
                }
                // Around the touch: left for their own touch to decide.
                _ if !wanted => {}
                _ => self.fill(page_at, None),
            }
            index += 1;
        }
        self.hold(first, count);
        if asked_for > 0 {
            desk.prefetched.store(desk.prefetched.load(Relaxed).wrapping_add(asked_for), Relaxed);
            if let Some(log) = super::log() {
                log.prefetches.fetch_add(asked_for, Relaxed);
                log.prefetched_bytes.fetch_add(asked_for * PAGE_SIZE as u64, Relaxed);
            }
            self.wait_for_horizon(desk);
        }
        true
    }

    /// Which pages to look at for a touch of the one at `at`, as (first,
    /// count), and which of them to prefetch: those of a stream that runs
    /// forwards, twice as many each time, else the one.
    fn window(&mut self, region: &Region, at: usize) -> (usize, usize, (usize, usize)) {
        let stream = self.streams.iter_mut().find(|stream| stream.next == at && at != 0);
        if let Some(stream) = stream {
            stream.window = (stream.window * 2).clamp(2, PAGES_MAX);
            let end = (at + stream.window * PAGE_SIZE).min(region.end);
            stream.next = end;
            return (at, (end - at) / PAGE_SIZE, (at, end));
        }
        if let Some(slot) = self.streams.get_mut(self.oldest) {
            *slot = Stream { next: at + PAGE_SIZE, window: 1 };
        }
        self.oldest = (self.oldest + 1) % STREAMS;
        let block = WINDOW_MIN * PAGE_SIZE;
        let first = (at / block * block).max(region.start);
        let end = (at / block * block + block).min(region.end);
        (first, (end - first) / PAGE_SIZE, (at, at + PAGE_SIZE))
    }

    /// Fills in one page, with the bytes at `from` or zeros; one that is there
    /// already stays as it is.
    fn fill(&mut self, at: usize, from: Option<usize>) {
        let len = PAGE_SIZE as u64;
        match from {
            Some(from) => {
                let words = [at as u64, from as u64, len, 0, 0];
                Operation { words }.call(self.fd, UFFDIO_COPY);
            }
            None => {
                let words = [at as u64, len, 0, 0, 0];
                Operation { words }.call(self.fd, UFFDIO_ZEROPAGE);
            }
        }
    }

    /// Remembers pages that were filled in.
    fn hold(&mut self, first: usize, count: usize) {
        let slot = (self.held_from + self.held_len) % HELD_MAX;
        if self.held_len < HELD_MAX
            && let Some(slot) = self.held.get_mut(slot)
        {
            *slot = (first, count);
            self.held_len += 1;
            self.held_pages += count;
        }
    }

    /// Lets go of the oldest pages where there are many: touched again, they
    /// are imported again.
    fn make_room(&mut self, count: usize) {
        while self.held_len > 0
            && (self.held_pages + count > HELD_PAGES_MAX || self.held_len == HELD_MAX)
        {
            let Some(&(first, pages)) = self.held.get(self.held_from) else { return };
            self.held_from = (self.held_from + 1) % HELD_MAX;
            self.held_len -= 1;
            self.held_pages = self.held_pages.saturating_sub(pages);
            // SAFETY: memory of this process only, whose contents may be lost.
            unsafe { call(nr::MADVISE, &[first, pages * PAGE_SIZE, MADV_DONTNEED]) };
        }
    }

    fn went_ahead(&mut self, at: usize) {
        if let Some(log) = super::log() {
            log.pages.push((at / PAGE_SIZE) as u64);
        }
        if self.ahead_len == AHEAD_MAX {
            self.ahead_from = (self.ahead_from + 1) % AHEAD_MAX;
            self.ahead_len -= 1;
        }
        let slot = (self.ahead_from + self.ahead_len) % AHEAD_MAX;
        if let Some(slot) = self.ahead.get_mut(slot) {
            *slot = at;
            self.ahead_len += 1;
        }
    }

    /// Waits while too much has been prefetched that the program has not come
    /// to (the prefetch horizon; Fraser and Chang, section 4.1.3).
    fn wait_for_horizon(&mut self, desk: &Desk) {
        let asked_for = CONFIG.horizon.load(Relaxed) as usize;
        let mut paused_ns = 0;
        while self.ahead_len > horizon(asked_for) {
            let before = self.ahead_len;
            if !self.forget_consumed(desk) {
                break;
            }
            if self.ahead_len == before {
                desk.at_horizon.store(1, Relaxed);
                let ns = pause_ns(PAUSE_NS, paused_ns);
                sys::sleep(ns);
                paused_ns += ns;
            }
        }
        desk.at_horizon.store(0, Relaxed);
    }

    /// Forgets the prefetched pages up to the last that the program has come
    /// to: those before it that it left out, it will not come to. False where
    /// nobody answers.
    fn forget_consumed(&mut self, desk: &Desk) -> bool {
        let count = ADDRESSES_MAX.min(self.ahead_len).max(1);
        let index = |sample: usize| (sample + 1) * self.ahead_len / count - 1;
        for (sample, address) in desk.addresses.iter().take(count).enumerate() {
            let at = self.ahead.get((self.ahead_from + index(sample)) % AHEAD_MAX);
            address.store(at.copied().unwrap_or(0) as u64, Relaxed);
        }
        desk.count.store(count as u32, Relaxed);
        if !ask(desk, question::PRESENT) {
            return false;
        }
        let last = desk.present.iter().take(count).rposition(|byte| byte.load(Relaxed) != 0);
        if let Some(last) = last {
            let consumed = index(last) + 1;
            self.ahead_from = (self.ahead_from + consumed) % AHEAD_MAX;
            self.ahead_len -= consumed;
            let total = desk.consumed.load(Relaxed).wrapping_add(consumed as u64);
            desk.consumed.store(total, Relaxed);
            if let Some(log) = super::log() {
                let tail = log.pages.tail.load(Relaxed);
                let used = log.pages.consumed.load(Relaxed);
                // The normal process looks, too, and knows of the same pages: where
                // all are swapped ones, what is left says how far it has come.
                let used = match desk.prefetched.load(Relaxed) >= tail {
                    true => used.max(tail.saturating_sub(self.ahead_len as u64)),
                    false => used.wrapping_add(consumed as u64),
                };
                log.pages.consumed.store(used.min(tail), Relaxed);
            }
        }
        true
    }
}

/// Pages that may lie ahead, where the user has said `asked_for` (0: nothing).
/// They are what limits the requests at the swap device: with others who
/// prefetch from it there is a part for each.
fn horizon(asked_for: usize) -> usize {
    if asked_for != 0 {
        return asked_for.min(AHEAD_MAX / 2);
    }
    let sharers = super::log().map_or(0, |log| log.sharers.load(Relaxed));
    HORIZON_PAGES / (sharers as usize).clamp(1, SHARERS_MAX)
}

/// Asks the aide and waits for its answer; false where none comes.
pub fn ask(desk: &Desk, question: u32) -> bool {
    desk.question.store(question, Relaxed);
    let number = desk.asked.load(Relaxed).wrapping_add(1);
    desk.asked.store(number, Release);
    sys::futex_wake(&desk.asked);
    let mut silent = 0;
    let mut turns = 0;
    loop {
        let answered = desk.answered.load(Acquire);
        // Or past it: a copy is being made beside this one, and that asked, too.
        if answered.wrapping_sub(number) < u32::MAX / 2 {
            return true;
        }
        if turns < SPIN {
            turns += 1;
            core::hint::spin_loop();
            continue;
        }
        const HALF_A_SECOND_NS: u64 = 500_000_000;
        let before_ns = sys::now_ns();
        sys::futex_wait(&desk.answered, answered, HALF_A_SECOND_NS);
        if sys::now_ns().saturating_sub(before_ns) >= HALF_A_SECOND_NS {
            silent += 1;
            if silent == SILENCE_MAX {
                return false;
            }
        }
    }
}
