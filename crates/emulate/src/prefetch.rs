//! Prefetches in flight, and the two throttles on them: the prefetch horizon
//! (Fraser and Chang, section 4.1.3) and the device limit.

use crate::context::Context;
use crate::descriptors::FileId;
use crate::kernel::Kernel;
use crate::outcome::{Stop, park};
use crate::residency::{self, Method, PAGES_MAX};
use core::sync::atomic::Ordering;
use runahead_policy::device_limit::{DEPTH_MAX, DeviceLimit};
use runahead_policy::horizon::{HORIZON_MAX, HORIZON_MIN, fills_device};
use runahead_protocol::log::ENTRIES_MAX;
use runahead_protocol::stats::Park;

/// Prefetches that are watched at a time.
const IN_FLIGHT_MAX: usize = DEPTH_MAX as usize;

/// The oldest prefetches that are asked about in one look.
const LOOKS_MAX: usize = 8;

/// A prefetch is asked about for all before it: this part of what is in
/// flight, and at most so many. Requests end about in the order of their issue
/// where many are in flight; where few are, as on one disk, each is asked
/// about.
const LEAP_PART: usize = 4;
const LEAP_MAX: usize = 8;

/// Looks in the time that a prefetch takes, where nothing waits for one.
const LOOKS_PER_LATENCY: u64 = 8;

/// Unconsumed prefetched reads that are remembered.
const AHEAD_MAX: usize = HORIZON_MAX as usize;

/// Log entries that stay free, so that the normal process never finds one
/// overwritten that it still needs.
const ENTRIES_SPARE: u64 = 64;

/// The newest prefetches that a read is compared with.
const REPEATS_MAX: usize = 16;

/// Bounds of one pause while the device is full, in ns.
const PAUSE_MIN_NS: u64 = 50_000;
const PAUSE_MAX_NS: u64 = 200_000;

/// Pauses for one read, after which it goes on whatever the device says:
/// completions that cannot be seen must not stop speculation.
const PAUSES_MAX: u32 = 4096;

/// Where completions cannot be asked about, this many smoothed latencies
/// after its issue a prefetch counts as complete.
const BLIND_LATENCIES: u64 = 2;

/// Latency assumed where none has been seen and none can be, in ns.
const BLIND_LATENCY_NS: u64 = 1_000_000;

/// A prefetch that is older than this counts as complete, in ns: it failed,
/// or its page was evicted again.
const LOST_NS: u64 = 5_000_000_000;

/// One prefetch in flight.
#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    /// [`FileId`] plus 1; 0: complete.
    file_plus1: u16,
    /// A byte that is there once it is complete.
    last_byte: u64,
    bytes: u64,
    issued_ns: u64,
    /// When it was last seen incomplete.
    looked_ns: u64,
}

/// All-zero is a valid start.
#[derive(Debug)]
pub(crate) struct Prefetcher {
    ring: [InFlight; IN_FLIGHT_MAX],
    head: u16,
    /// Ring entries from `head` on, complete ones among them.
    span: u16,
    /// Entries of them that are not complete.
    count: u16,
    pub(crate) limit: DeviceLimit,
    /// When one was last looked at, in ns.
    looked_ns: u64,
    /// Time spent waiting for the normal process, which is not the device's.
    waited_ns: u64,
    pause_ns: u64,
    /// The prefetched reads that are not consumed yet.
    ahead: [Ahead; AHEAD_MAX],
    ahead_head: u16,
    ahead_count: u16,
    /// Requests that were made for them.
    ahead_requests: u16,
}

/// A prefetched read: twice its number, and one more where a request was made
/// for it. Others come with a run that was prefetched for a read before.
#[derive(Clone, Copy, Debug, Default)]
struct Ahead(u64);

impl Ahead {
    fn new(number: u64, requested: bool) -> Ahead {
        Ahead(number << 1 | u64::from(requested))
    }

    fn number(self) -> u64 {
        self.0 >> 1
    }

    fn requests(self) -> u16 {
        (self.0 & 1) as u16
    }
}

impl Prefetcher {
    pub(crate) fn empty() -> Prefetcher {
        Prefetcher {
            ring: [InFlight::default(); IN_FLIGHT_MAX],
            head: 0,
            span: 0,
            count: 0,
            limit: DeviceLimit::default(),
            looked_ns: 0,
            waited_ns: 0,
            pause_ns: 0,
            ahead: [Ahead(0); AHEAD_MAX],
            ahead_head: 0,
            ahead_count: 0,
            ahead_requests: 0,
        }
    }

    /// Drops the numbers that the normal process has passed.
    fn forget_consumed(&mut self, consumed: u64) {
        while self.ahead_count > 0 {
            let oldest = self.ahead.get(self.ahead_head as usize).copied().unwrap_or_default();
            if oldest.number() >= consumed {
                break;
            }
            self.ahead_head = (self.ahead_head + 1) % AHEAD_MAX as u16;
            self.ahead_count -= 1;
            self.ahead_requests = self.ahead_requests.saturating_sub(oldest.requests());
        }
    }

    /// Remembers that read `number` was prefetched, and whether a request was
    /// made for it.
    pub(crate) fn went_ahead(&mut self, number: u64, requested: bool) {
        if self.ahead_count as usize >= AHEAD_MAX {
            return;
        }
        let at = (self.ahead_head as usize + self.ahead_count as usize) % AHEAD_MAX;
        if let Some(slot) = self.ahead.get_mut(at) {
            *slot = Ahead::new(number, requested);
            self.ahead_count += 1;
            self.ahead_requests += u16::from(requested);
        }
    }

    /// Whether it is as far ahead as the horizon allows: so many prefetched
    /// reads, and so many requests that the device is filled. Of small
    /// sequential reads many come with one request: a horizon of 32 reads of
    /// 4 KiB is half of such a run, and the copy would wait for the program at
    /// each.
    fn is_far_ahead(&self, horizon: u64) -> bool {
        let requests = horizon.min(fills_device(self.limit.depth()));
        let count = u64::from(self.ahead_count);
        count >= horizon && u64::from(self.ahead_requests) >= requests || count >= AHEAD_MAX as u64
    }

    /// What must be consumed for half of the reads ahead to be left: the number
    /// of one of them, plus one.
    fn until_half(&self) -> u64 {
        let steps = (self.ahead_count - self.ahead_count / 2).max(1) - 1;
        let at = (self.ahead_head as usize + steps as usize) % AHEAD_MAX;
        self.ahead.get(at).copied().unwrap_or_default().number().saturating_add(1)
    }

    /// Ring position of the `nth` oldest that is not complete, from 1 on.
    fn incomplete(&self, nth: usize) -> Option<usize> {
        let (head, span) = (self.head as usize, self.span as usize);
        (head..head + span)
            .map(|at| at % IN_FLIGHT_MAX)
            .filter(|at| self.ring.get(*at).is_some_and(|entry| entry.file_plus1 != 0))
            .nth(nth.checked_sub(1)?)
    }

    /// For how many one is asked about.
    fn leap(&self) -> usize {
        (self.count as usize / LEAP_PART).min(LEAP_MAX)
    }

    /// Time between two looks where nothing waits for one, in ns.
    fn look_every_ns(&self) -> u64 {
        PAUSE_MIN_NS.max(self.limit.latency_ns() / LOOKS_PER_LATENCY)
    }

    /// Takes the entry at ring position `at` for complete.
    fn finish(&mut self, at: usize) {
        if let Some(entry) = self.ring.get_mut(at) {
            entry.file_plus1 = 0;
            self.count = self.count.saturating_sub(1);
        }
        while self.span > 0
            && self.ring.get(self.head as usize).is_some_and(|entry| entry.file_plus1 == 0)
        {
            self.head = (self.head + 1) % IN_FLIGHT_MAX as u16;
            self.span -= 1;
        }
    }
}

impl<K: Kernel> Context<'_, K> {
    /// Number of the read being predicted.
    pub(crate) fn read_number(&self) -> u64 {
        self.log.tail.load(Ordering::Relaxed)
    }

    /// Whether the normal process has made this read already.
    pub(crate) fn is_behind(&self) -> bool {
        self.log.consumed.load(Ordering::Acquire) > self.read_number()
    }

    /// Waits until one more read may be prefetched: the prefetch horizon,
    /// with hysteresis (half of it must be consumed before going on).
    pub(crate) fn wait_for_horizon(&mut self) -> Result<(), Stop> {
        const _: () = assert!(HORIZON_MAX < ENTRIES_MAX as u64 - ENTRIES_SPARE);
        let horizon = match self.log.horizon.load(Ordering::Relaxed) {
            0 => HORIZON_MIN,
            known => known.min(HORIZON_MAX),
        };
        let number = self.read_number();
        let consumed = self.log.consumed.load(Ordering::Acquire);
        let room = ENTRIES_MAX as u64 - ENTRIES_SPARE;
        self.e.prefetcher.forget_consumed(consumed);
        let until = if number.saturating_sub(consumed) >= room {
            number - room / 2
        } else if self.e.prefetcher.is_far_ahead(horizon) {
            self.e.prefetcher.until_half()
        } else {
            return Ok(());
        };
        self.e.counters.horizon_waits += 1;
        let before_ns = self.k.now_ns();
        let goes_on = self.k.wait_consumed(until);
        let after_ns = self.k.now_ns();
        self.drop_completed_unseen(after_ns);
        let p = &mut self.e.prefetcher;
        p.limit.interrupted();
        p.waited_ns = p.waited_ns.saturating_add(after_ns.saturating_sub(before_ns));
        p.forget_consumed(self.log.consumed.load(Ordering::Acquire));
        if goes_on { Ok(()) } else { park(Park::OffTrack) }
    }

    /// Waits until the device may be given one more request, or the normal
    /// process has overtaken this read.
    pub(crate) fn wait_for_device(&mut self) {
        for _ in 0..PAUSES_MAX {
            let in_flight = u32::from(self.e.prefetcher.count);
            let sharers = self.log.sharers.load(Ordering::Relaxed);
            if self.e.prefetcher.limit.admit(in_flight.min(DEPTH_MAX), sharers) {
                return;
            }
            if self.look(LOOKS_MAX) > 0 {
                self.e.prefetcher.pause_ns = PAUSE_MIN_NS;
                continue;
            }
            if self.is_behind() {
                return;
            }
            let pause_ns = self.e.prefetcher.pause_ns.clamp(PAUSE_MIN_NS, PAUSE_MAX_NS);
            self.k.pause(pause_ns);
            self.e.counters.device_waits += 1;
            self.e.prefetcher.pause_ns = (pause_ns * 5 / 4).min(PAUSE_MAX_NS);
        }
    }

    /// Watches a prefetch of `bytes` bytes up to `last_byte` that has just
    /// been started.
    pub(crate) fn started(&mut self, id: FileId, last_byte: u64, bytes: u64) {
        self.e.counters.prefetches += 1;
        self.e.counters.prefetched_bytes = self.e.counters.prefetched_bytes.wrapping_add(bytes);
        self.log.prefetches.store(self.e.counters.prefetches, Ordering::Relaxed);
        self.log.prefetched_bytes.store(self.e.counters.prefetched_bytes, Ordering::Relaxed);
        // Looks now and then keep latency known where the limit is never
        // reached; where it is, the wait has just looked.
        let now_ns = self.k.now_ns();
        let p = &self.e.prefetcher;
        if now_ns.saturating_sub(p.looked_ns) >= p.look_every_ns() {
            self.look(usize::from(p.leap() <= 1));
        }
        if self.e.prefetcher.span as usize >= IN_FLIGHT_MAX {
            return;
        }
        let p = &mut self.e.prefetcher;
        let at = (p.head as usize + p.span as usize) % IN_FLIGHT_MAX;
        if let Some(entry) = p.ring.get_mut(at) {
            let file_plus1 = id.0 + 1;
            *entry =
                InFlight { file_plus1, last_byte, bytes, issued_ns: now_ns, looked_ns: now_ns };
            p.span += 1;
            p.count += 1;
            let file = self.e.table.file_mut(id);
            file.in_flight = file.in_flight.saturating_add(1);
        }
    }

    /// Whether one of the newest prefetches in flight brings all of a range: one
    /// that is read again saves no second stall.
    pub(crate) fn is_coming(&self, id: FileId, (start, end): (u64, u64)) -> bool {
        let p = &self.e.prefetcher;
        let (head, span) = (p.head as usize, p.span as usize);
        let newest = (head..head + span).rev().take(REPEATS_MAX);
        newest.filter_map(|at| p.ring.get(at % IN_FLIGHT_MAX)).any(|entry| {
            entry.file_plus1 == id.0 + 1
                && end <= entry.last_byte.saturating_add(1)
                && start.saturating_add(entry.bytes) > entry.last_byte
        })
    }

    /// Looks whether prefetches are complete: at one for those before it, too,
    /// and where it is not, at the `looks` oldest. How many were.
    fn look(&mut self, looks: usize) -> usize {
        let now_ns = self.k.now_ns();
        self.e.prefetcher.looked_ns = now_ns;
        let leap = self.e.prefetcher.leap();
        let done = if leap > 1 { self.look_at(leap, now_ns, true) } else { 0 };
        if done > 0 { done } else { self.look_at_oldest(looks, now_ns) }
    }

    /// Looks at the `nth` oldest, whose completion is that of those before it.
    fn look_at(&mut self, nth: usize, now_ns: u64, timed: bool) -> usize {
        let Some(last) = self.e.prefetcher.incomplete(nth) else { return 0 };
        let Some(entry) = self.e.prefetcher.ring.get(last).copied() else { return 0 };
        if !self.is_complete(&entry, now_ns) {
            self.looked(last, now_ns);
            return 0;
        }
        for _ in 0..nth {
            let Some(at) = self.e.prefetcher.incomplete(1) else { break };
            let InFlight { file_plus1, bytes, .. } =
                self.e.prefetcher.ring.get(at).copied().unwrap_or_default();
            // The time of the one that was looked at is theirs: when they were
            // complete nobody has seen.
            self.complete(at, &InFlight { file_plus1, bytes, ..entry }, now_ns, timed);
        }
        nth
    }

    fn looked(&mut self, at: usize, now_ns: u64) {
        if let Some(entry) = self.e.prefetcher.ring.get_mut(at) {
            entry.looked_ns = now_ns;
        }
    }

    /// Looks whether the oldest prefetches are complete, `looks` of them at
    /// most; how many were.
    fn look_at_oldest(&mut self, looks: usize, now_ns: u64) -> usize {
        let (mut nth, mut completed) = (1, 0);
        for _ in 0..looks {
            let Some(at) = self.e.prefetcher.incomplete(nth) else { break };
            let entry = self.e.prefetcher.ring.get(at).copied().unwrap_or_default();
            if self.is_complete(&entry, now_ns) {
                completed += 1;
                self.complete(at, &entry, now_ns, true);
            } else {
                nth += 1;
                self.looked(at, now_ns);
            }
        }
        completed
    }

    /// After a wait that had nothing to do with the device: drops what is
    /// complete by now, without a word about its latency.
    fn drop_completed_unseen(&mut self, now_ns: u64) {
        let count = self.e.prefetcher.count as usize;
        // Most of the time all are, and the newest says so.
        if self.e.prefetcher.leap() > 1 && self.look_at(count, now_ns, false) > 0 {
            return;
        }
        let (head, span) = (self.e.prefetcher.head as usize, self.e.prefetcher.span as usize);
        for at in (head..head + span).map(|at| at % IN_FLIGHT_MAX) {
            let entry = self.e.prefetcher.ring.get(at).copied().unwrap_or_default();
            if entry.file_plus1 != 0 && self.is_complete(&entry, now_ns) {
                self.complete(at, &entry, now_ns, false);
            }
        }
    }

    /// What lies in a range of a file is complete, whoever has seen it.
    pub(crate) fn drop_in_flight(&mut self, id: FileId, (start, end): (u64, u64), now_ns: u64) {
        let (head, span) = (self.e.prefetcher.head as usize, self.e.prefetcher.span as usize);
        for at in (head..head + span).map(|at| at % IN_FLIGHT_MAX) {
            let entry = self.e.prefetcher.ring.get(at).copied().unwrap_or_default();
            if entry.file_plus1 == id.0 + 1 && (start..end).contains(&entry.last_byte) {
                self.complete(at, &entry, now_ns, false);
            }
        }
    }

    fn complete(&mut self, at: usize, entry: &InFlight, now_ns: u64, timed: bool) {
        self.e.prefetcher.finish(at);
        let id = FileId(entry.file_plus1 - 1);
        let file = self.e.table.file_mut(id);
        file.in_flight = file.in_flight.saturating_sub(1);
        self.close_if_unused(id);
        let latency_ns = now_ns.saturating_sub(entry.issued_ns);
        // The true latency lies between the last look and this one: one that
        // was looked at rarely says little about the device.
        let unsure_ns = now_ns.saturating_sub(entry.looked_ns);
        if !timed || (unsure_ns > latency_ns / 2 && unsure_ns > 4 * PAUSE_MAX_NS) {
            return;
        }
        let p = &mut self.e.prefetcher;
        p.limit.completed(latency_ns, entry.bytes, now_ns.saturating_sub(p.waited_ns));
        self.log.latency_ns.store(p.limit.latency_ns(), Ordering::Relaxed);
        self.log.bytes_per_s.store(p.limit.bytes_per_s(), Ordering::Relaxed);
        self.log.depth.store(p.limit.depth(), Ordering::Relaxed);
    }

    fn is_complete(&mut self, entry: &InFlight, now_ns: u64) -> bool {
        let age_ns = now_ns.saturating_sub(entry.issued_ns);
        if age_ns > LOST_NS {
            return true;
        }
        let id = FileId(entry.file_plus1 - 1);
        let file = *self.e.table.file(id);
        let Some(real) = file.real() else { return true };
        let mut oracle = file.oracle;
        match oracle.method {
            Method::Cachestat | Method::Mincore => {
                let mut pages = [0u8; PAGES_MAX];
                let answer = residency::resident_pages(
                    self.k,
                    &mut oracle,
                    real,
                    entry.last_byte,
                    1,
                    &mut pages,
                );
                self.e.table.file_mut(id).oracle = oracle;
                match answer {
                    Some(_) => pages.first().is_some_and(|page| page & 1 == 1),
                    None => self.is_old_enough(age_ns),
                }
            }
            Method::Blind => self.is_old_enough(age_ns),
            // An error and the end of the file are ends, too.
            _ => residency::nowait_byte(self.k, real, entry.last_byte) != EAGAIN_RESULT,
        }
    }

    fn is_old_enough(&self, age_ns: u64) -> bool {
        let latency_ns = match self.e.prefetcher.limit.latency_ns() {
            0 => BLIND_LATENCY_NS,
            known => known,
        };
        age_ns > latency_ns.saturating_mul(BLIND_LATENCIES)
    }
}

const EAGAIN_RESULT: isize = -(crate::abi::EAGAIN as isize);
