//! The first touch of a page of a mapped file in the speculative process
//! (Fraser and Chang, section 4.1.2: "non-blocking prefetch requests are
//! issued for page faults ... and the page is filled with zeros"): a page
//! that is in memory is opened, one that is not is prefetched and reads as
//! zeros until it has come. Nothing waits for storage.
//!
//! Whether it is there is asked of the file, opened again for reading, with
//! `preadv2(RWF_NOWAIT)`, which needs no rights but that (mincore(2) lies to
//! those who may not write the file) and starts the read where it is not.
//!
//! The prefetch horizon (section 4.1.3): pages that the normal process has
//! not mapped. To look there one has to lock its address space, which nothing
//! at idle priority may do: so the aide looks ([`crate::import::aide`]).

use super::imports::ask;
use super::regions::{File, Region, give_up, regions};
use super::{Own, reopen};
use crate::Gate;
use crate::arch::nr;
use crate::import::{Desk, desk, life, question};
use crate::sys::{self, IoVec, PAGE_SIZE, call};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::{from_mut, from_ref};
use core::sync::atomic::Ordering::Relaxed;
use runahead_emulate::Calls;
use runahead_emulate::residency::{self, Method, Methods, Resident};
use runahead_policy::device_limit::{DEPTH_MAX, DeviceLimit};
use runahead_policy::horizon::{HORIZON_MAX, horizon, pause_ns};
use runahead_protocol::log::{Log, PAGES_MAX};
use runahead_protocol::stats::Park;

/// What a touch came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// The access can be made again.
    Done,
    /// The address is none of ours, or the program may not access it so.
    NotOurs,
    /// Beyond the end of the file, where the program would get a SIGBUS.
    Beyond,
    /// The kernel's limit of mappings is near.
    Full,
}

/// Pages opened at once in a sequence, at most: what the kernel itself maps
/// around a fault.
const RUN_MAX: usize = 16;

/// Missing pages touched in order before more than the one that is touched is
/// prefetched: a page or two beyond a value are no stream.
const STREAM_MIN: usize = 4;

/// Most pages of a stream that are prefetched at once: the kernel's own
/// readahead window, which readahead(2) never cuts short.
pub const STREAM_MAX: usize = 32;

/// Separate pieces into which the mappings may be cut before they are put
/// together again; the kernel allows 65,530 mappings in all.
const PIECES_MAX: u32 = 20_000;

/// Pages that may lie ahead before the program has used any; the horizon
/// grows with those that it used.
const AHEAD_START: u64 = 64;
/// See [`AHEAD_START`]: allowed ahead for each page used.
const AHEAD_PER_USED: u64 = 4;

/// A look at the horizon asks about so many pages, in case some are never
/// used.
const HORIZON_LOOKS: u64 = 8;

/// Shortest pause, in ns.
const PAUSE_NS: u64 = 60_000;

/// Pauses for one prefetch, after which it goes on whatever the device says.
const PAUSES_MAX: u32 = 4096;

/// A prefetch that is older than this counts as complete, in ns.
const LOST_NS: u64 = 5_000_000_000;

/// The oldest prefetches that are asked about in one look.
const LOOKS_MAX: usize = 8;

/// A prefetch in flight; `page` 0: none.
#[derive(Clone, Copy)]
struct Flight {
    page: usize,
    /// In bytes.
    len: usize,
    issued_ns: u64,
    /// The program has written to a page of zeros in it.
    written: bool,
}

impl Flight {
    fn holds(&self, page: usize) -> bool {
        self.page != 0 && page.wrapping_sub(self.page) < self.len
    }

    /// Its bytes that lie in a region, which holds its first page: the program
    /// may have unmapped others since.
    fn within(&self, region: &Region) -> usize {
        self.len.min(region.end - self.page)
    }
}

const FLIGHTS_MAX: usize = DEPTH_MAX as usize;

struct State {
    limit: DeviceLimit,
    methods: Methods,
    flights: [Flight; FLIGHTS_MAX],
    head: usize,
    span: usize,
    count: u32,
    pieces: u32,
    /// Where the last opened run ended, and its length in pages.
    run_end: usize,
    run: usize,
    /// Where the last prefetch ended, its length in pages, and how many pages
    /// before its end were prefetched in order.
    stream_end: usize,
    stream: usize,
    in_order: usize,
    waited_ns: u64,
    /// The user for file system checks.
    user: u32,
    /// `/proc/self/pagemap`; -1: none.
    own_pagemap: i32,
    scratch: [u8; RUN_MAX * PAGE_SIZE],
}

// Zero bytes are a valid state to start.
static STATE: Own<MaybeUninit<State>> = Own(UnsafeCell::new(MaybeUninit::zeroed()));

fn pages() -> &'static mut State {
    // SAFETY: one thread; `touch` is not nested, because nothing that it does
    // touches memory of the program. Zeroed memory is a valid State.
    unsafe { (*STATE.0.get()).assume_init_mut() }
}

/// Before this process is not dumpable any more: opens what tells about its
/// pages.
pub fn prepare(log: &Log) {
    let state = pages();
    state.limit = DeviceLimit::new(log.depth.load(Relaxed));
    state.user = sys::file_system_user();
    state.own_pagemap = sys::open_read(b"/proc/self/pagemap\0") as i32;
}

/// An access of the program, or of the kernel for it, to an inaccessible
/// page.
pub fn touch(log: &Log, address: usize, write: bool) -> Touch {
    let all = regions();
    let Some(mut region) = all.find(address).copied() else { return Touch::NotOurs };
    if write && region.protection & sys::PROT_WRITE == 0 {
        return Touch::NotOurs;
    }
    if region.file == File::Closed {
        let before = region;
        let State { methods, user, .. } = pages();
        let opened = reopen::open(log, methods, &mut region, all.name(&before), *user);
        let Some(slot) = all.find(address) else { return Touch::NotOurs };
        match opened {
            Some(fd) if adopt(&region, fd) => {
                region.file = File::Open(fd);
                *slot = region;
            }
            Some(fd) => {
                sys::close(fd);
                give_up(slot);
                return Touch::Done;
            }
            None => {
                give_up(slot);
                return Touch::Done;
            }
        }
    }
    let touched = pages().touch(log, &mut region, address & !(PAGE_SIZE - 1), write);
    if let Some(slot) = all.find(address) {
        slot.oracle = region.oracle;
        slot.size = region.size;
    }
    touched
}

/// Puts a private mapping of the file opened again in the place of the
/// program's, so that pages of zeros can later be given back to it in a way
/// that leaves one mapping; private, so that writes stay here. Not where
/// pages may be the program's own.
fn adopt(region: &Region, fd: i32) -> bool {
    region.has_own_pages() || map_file(region, fd, region.start, region.end - region.start, 0)
}

/// Maps the file's pages at `at`, with `protection`.
fn map_file(region: &Region, fd: i32, at: usize, len: usize, protection: usize) -> bool {
    let offset = region.offset as usize + (at - region.start);
    let flags = sys::MAP_PRIVATE | sys::MAP_FIXED;
    // SAFETY: inside a mapping of the program, of the same file and place.
    (unsafe { call(nr::MMAP, &[at, len, protection, flags, fd as usize, offset]) }) == at as isize
}

impl State {
    fn touch(&mut self, log: &Log, region: &mut Region, page: usize, write: bool) -> Touch {
        let File::Open(fd) = region.file else { return Touch::NotOurs };
        if self.pieces >= PIECES_MAX && !self.put_together() {
            return Touch::Full;
        }
        if region.has_own_pages() && is_own(self.own_pagemap, page) {
            return self.open(region, fd, page, 1);
        }
        let offset = region.offset + (page - region.start) as u64;
        if offset >= region.size && !self.has_grown(region, fd, offset) {
            return Touch::Beyond;
        }
        match self.ask(region, fd, offset) {
            Resident::All => {
                let run = self.run_at(region, fd, page);
                self.open(region, fd, page, run)
            }
            // Where nobody says, it is taken for missing the first time.
            Resident::NotAll | Resident::Unknown => {
                let pages = self.streams(region, page);
                if region.oracle.method != Method::NoWait || pages > 1 {
                    start_read(fd, offset, pages);
                }
                let beside = |at: &usize| self.is_missing(region, fd, page + at * PAGE_SIZE);
                let pages = 1 + (1..pages).take_while(beside).count();
                self.missing(log, region, page, pages, write)
            }
        }
    }

    fn has_grown(&mut self, region: &mut Region, fd: i32, offset: u64) -> bool {
        let mut stat = sys::Stat::default();
        if sys::fstat(fd, &mut stat) == 0 {
            region.size = stat.size.max(0) as u64;
        }
        offset < region.size
    }

    fn ask(&mut self, region: &mut Region, fd: i32, offset: u64) -> Resident {
        let at = (fd as usize, region.dev);
        let len = (region.size.saturating_sub(offset)).clamp(1, PAGE_SIZE as u64);
        residency::question(&mut Gate, &mut self.methods, &mut region.oracle, at, offset, len)
    }

    /// How many resident pages to open from `page` on: one, or more where the
    /// program goes through the file in order.
    fn run_at(&mut self, region: &Region, fd: i32, page: usize) -> usize {
        let wanted = if page == self.run_end { (self.run * 2).min(RUN_MAX) } else { 1 };
        let wanted = wanted.min((region.end - page) / PAGE_SIZE).max(1);
        if wanted == 1 || region.has_own_pages() {
            return 1;
        }
        let vector = IoVec { base: self.scratch.as_mut_ptr() as usize, len: wanted * PAGE_SIZE };
        let offset = region.offset as usize + (page - region.start);
        let args = [fd as usize, from_ref(&vector) as usize, 1, offset, 0, sys::RWF_NOWAIT];
        let got = Gate.call(nr::PREADV2, args);
        (got.max(0) as usize).div_ceil(PAGE_SIZE).clamp(1, wanted)
    }

    /// Opens `run` pages.
    fn open(&mut self, region: &Region, fd: i32, page: usize, run: usize) -> Touch {
        let len = run * PAGE_SIZE;
        let opened = if region.has_own_pages() {
            // SAFETY: this process's view of a mapping of the program.
            (unsafe { call(nr::MPROTECT, &[page, len, region.protection]) }) == 0
        } else {
            map_file(region, fd, page, len, region.protection)
        };
        if page != self.run_end {
            self.pieces += 2;
        }
        if page == self.stream_end {
            // A page that is there does not end what is gone through in order.
            self.stream_end = page + len;
        }
        self.run_end = page + len;
        self.run = run;
        if opened { Touch::Done } else { Touch::Full }
    }

    /// How many pages to prefetch from a missing one on: one, or more where the
    /// program goes through missing pages in order (fault read-around, which a
    /// speculative process takes the place of, section 4.1.2).
    fn streams(&mut self, region: &Region, page: usize) -> usize {
        if page != self.stream_end {
            self.in_order = 0;
        }
        // What has been written to stays here when the window has come, page by
        // page.
        let writable = region.protection & sys::PROT_WRITE != 0 || region.has_own_pages();
        if self.in_order < STREAM_MIN || writable || self.is_in_flight(page) {
            return 1;
        }
        let offset = region.offset + (page - region.start) as u64;
        let left = region.size.saturating_sub(offset).div_ceil(PAGE_SIZE as u64);
        let left = ((region.end - page) / PAGE_SIZE).min(usize::try_from(left).unwrap_or(1));
        (self.stream * 2).min(STREAM_MAX).min(left).max(1)
    }

    /// Whether a page is neither in memory nor on its way.
    fn is_missing(&mut self, region: &mut Region, fd: i32, page: usize) -> bool {
        let offset = region.offset + (page - region.start) as u64;
        !self.is_in_flight(page) && self.ask(region, fd, offset) == Resident::NotAll
    }

    fn is_in_flight(&self, page: usize) -> bool {
        let mut places = (self.head..self.head + self.span).map(|at| at % FLIGHTS_MAX);
        places.any(|at| self.flights.get(at).is_some_and(|flight| flight.holds(page)))
    }

    /// Pages that are on their way: zeros until they come.
    fn missing(
        &mut self,
        log: &Log,
        region: &Region,
        page: usize,
        pages: usize,
        write: bool,
    ) -> Touch {
        let len = pages * PAGE_SIZE;
        let own = region.has_own_pages();
        let protection =
            if write || own { region.protection } else { region.protection & !sys::PROT_WRITE };
        let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED;
        let args = [page, len, protection, flags, usize::MAX, 0];
        // SAFETY: pages of the program's mapping, in this process only.
        if unsafe { call(nr::MMAP, &args) } != page as isize {
            return Touch::Full;
        }
        self.pieces += 2;
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.holds(page)) {
            // A write to a page of zeros.
            flight.written |= write;
            return Touch::Done;
        }
        self.in_order = if page == self.stream_end { self.in_order + pages } else { pages };
        (self.stream_end, self.stream) = (page + len, pages);
        (0..pages).for_each(|at| log.pages.push((page / PAGE_SIZE + at) as u64));
        log.prefetches.fetch_add(pages as u64, Relaxed);
        log.prefetched_bytes.fetch_add(len as u64, Relaxed);
        self.look_at_oldest(log, 1);
        self.take_off(Flight { page, len, issued_ns: sys::now_ns(), written: write || own });
        self.wait_for_device(log);
        self.wait_for_horizon(log);
        Touch::Done
    }

    fn take_off(&mut self, flight: Flight) {
        if self.span < FLIGHTS_MAX
            && let Some(slot) = self.flights.get_mut((self.head + self.span) % FLIGHTS_MAX)
        {
            *slot = flight;
            self.span += 1;
            self.count += 1;
        }
    }

    /// Waits until the device may be given one more request.
    fn wait_for_device(&mut self, log: &Log) {
        for _ in 0..PAUSES_MAX {
            if self.limit.admit(self.count.min(DEPTH_MAX), log.sharers.load(Relaxed)) {
                return;
            }
            if self.look_at_oldest(log, LOOKS_MAX) == 0 {
                sys::sleep(PAUSE_NS);
            }
        }
    }

    /// Looks whether the oldest prefetches are complete; how many were.
    fn look_at_oldest(&mut self, log: &Log, looks: usize) -> usize {
        let (mut looked, mut completed) = (0, 0);
        let now_ns = sys::now_ns();
        for at in self.head..self.head + self.span {
            let at = at % FLIGHTS_MAX;
            let Some(flight) = self.flights.get(at).copied() else { continue };
            if flight.page == 0 {
                continue;
            }
            if looked == looks {
                break;
            }
            looked += 1;
            let age_ns = now_ns.saturating_sub(flight.issued_ns);
            if age_ns > LOST_NS || self.has_come(&flight) {
                completed += 1;
                self.land(at, &flight);
                self.limit.completed(
                    age_ns,
                    flight.len as u64,
                    now_ns.saturating_sub(self.waited_ns),
                );
                log.latency_ns.store(self.limit.latency_ns(), Relaxed);
                log.bytes_per_s.store(self.limit.bytes_per_s(), Relaxed);
                log.depth.store(self.limit.depth(), Relaxed);
            }
        }
        completed
    }

    fn has_come(&mut self, flight: &Flight) -> bool {
        let Some(region) = regions().find(flight.page).map(|region| *region) else { return true };
        let mut region = region;
        let File::Open(fd) = region.file else { return true };
        // In order: the last page comes last.
        let last = flight.page + flight.within(&region) - PAGE_SIZE;
        let offset = region.offset + (last - region.start) as u64;
        self.ask(&mut region, fd, offset) != Resident::NotAll
    }

    /// A prefetch is complete: the next touch of its page is to find it.
    fn land(&mut self, at: usize, flight: &Flight) {
        if let Some(slot) = self.flights.get_mut(at) {
            slot.page = 0;
            self.count -= 1;
        }
        while self.span > 0 && self.flights.get(self.head).is_some_and(|slot| slot.page == 0) {
            self.head = (self.head + 1) % FLIGHTS_MAX;
            self.span -= 1;
        }
        if !flight.written
            && let Some(region) = regions().find(flight.page)
            && !region.has_own_pages()
            && let File::Open(fd) = region.file
            && map_file(region, fd, flight.page, flight.within(region), 0)
        {
            self.pieces = self.pieces.saturating_sub(2);
        }
    }

    /// Waits while enough lies ahead of the normal process, until half of it
    /// has been used.
    fn wait_for_horizon(&mut self, log: &Log) {
        let tail = log.pages.tail.load(Relaxed);
        let used = log.pages.consumed.load(Relaxed);
        let by_time = horizon(self.limit.latency_ns(), 0, self.limit.depth());
        let allowed =
            by_time.min(AHEAD_START + AHEAD_PER_USED * used).min(HORIZON_MAX.min(PAGES_MAX as u64));
        if tail - used.min(tail) < allowed {
            return;
        }
        // Where nobody answers, this is as far as it goes.
        let Some(desk) = desk() else { super::park(Park::NoAide, -1) };
        let start_ns = sys::now_ns();
        let until = tail - allowed / 2;
        loop {
            sys::sleep(pause_ns(PAUSE_NS, sys::now_ns().saturating_sub(start_ns)));
            match used_up_to(desk, log, until) {
                Some(true) => break,
                Some(false) => {}
                None => super::park(Park::NoAide, -1),
            }
        }
        let now_ns = sys::now_ns();
        self.limit.interrupted();
        self.waited_ns += now_ns.saturating_sub(start_ns);
        self.drop_landed();
    }

    /// After a wait that had nothing to do with the device: what has come
    /// says nothing about its latency.
    fn drop_landed(&mut self) {
        for at in self.head..self.head + self.span {
            let at = at % FLIGHTS_MAX;
            if let Some(flight) = self.flights.get(at).copied()
                && flight.page != 0
                && self.has_come(&flight)
            {
                self.land(at, &flight);
            }
        }
    }

    /// Makes one inaccessible mapping of each region again; false where that
    /// brings nothing, since pages may be the program's own.
    fn put_together(&mut self) -> bool {
        let mut done = false;
        for region in regions().all() {
            if let File::Open(fd) = region.file
                && !region.has_own_pages()
            {
                done |= map_file(region, fd, region.start, region.end - region.start, 0);
            }
        }
        self.flights.iter_mut().for_each(|flight| flight.page = 0);
        (self.head, self.span, self.count, self.pieces) = (0, 0, 0, 0);
        done
    }
}

/// readahead(2) of so many pages.
fn start_read(fd: i32, offset: u64, pages: usize) {
    // SAFETY: advice.
    unsafe { call(nr::READAHEAD, &[fd as usize, offset as usize, pages * PAGE_SIZE]) };
}

/// One entry of a pagemap; `None` where it cannot be read.
fn pagemap_entry(fd: i32, page: u64) -> Option<u64> {
    let mut entry = 0u64;
    let vector = IoVec { base: from_mut(&mut entry) as usize, len: 8 };
    let args = [fd as usize, from_ref(&vector) as usize, 1, page as usize * 8, 0, 0];
    (fd >= 0 && Gate.call(nr::PREADV2, args) == 8).then_some(entry)
}

/// Whether the normal process has come to prediction number `until` or one of
/// those behind it, in case some are never used; `None` where nobody answers.
fn used_up_to(desk: &Desk, log: &Log, until: u64) -> Option<bool> {
    let numbers = (until..until + HORIZON_LOOKS).filter(|&number| log.pages.get(number).is_some());
    let mut count = 0;
    for (address, number) in desk.addresses.iter().zip(numbers.clone()) {
        let page = log.pages.get(number).unwrap_or(0);
        address.store(page.wrapping_mul(PAGE_SIZE as u64), Relaxed);
        count += 1;
    }
    desk.count.store(count, Relaxed);
    if desk.life.load(Relaxed) == life::NONE || !ask(desk, question::PRESENT) {
        return None;
    }
    let present = desk.present.iter().take(count as usize);
    let used = numbers.zip(present).filter(|(_, byte)| byte.load(Relaxed) != 0).last();
    if let Some((number, _)) = used {
        log.pages.consumed.store(number + 1, Relaxed);
    }
    Some(used.is_some())
}

/// Whether a page of a private mapping is this process's own, not the file's.
fn is_own(pagemap: i32, page: usize) -> bool {
    const FILE_PAGE: u64 = 1 << 61;
    pagemap_entry(pagemap, (page / PAGE_SIZE) as u64)
        .is_some_and(|entry| entry >> 62 != 0 && entry & FILE_PAGE == 0)
}
