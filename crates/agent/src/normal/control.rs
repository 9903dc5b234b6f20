//! Live memory control (Fraser and Chang, section 6.1): the rule is
//! `policy::memory_control`, what it is told comes from here.
//!
//! * *Removed stalls*: ranges that were prefetched and in memory when the
//!   program asked (one still in flight counts as half).
//! * *Added stalls*: the kernel's refault counters ([`super::group`]), in proportion
//!   to the pages that are in memory because of this process's speculation.
//!
//! Looked at in the slow path only, when the program waits for storage
//! anyway, and at most once an interval. In a cgroup with hardly any room, looked for
//! before each copy, none is made at all.

use super::accounting::{look_at_pages, pages_used};
use super::group::Group;
use super::outstanding::Outstanding;
use crate::config::CONFIG;
use crate::import::desk;
use crate::procfs;
use crate::state::State;
use crate::sys::PAGE_SIZE;
use core::sync::atomic::Ordering::Relaxed;
use runahead_policy::memory_control::{
    Action, Estimate, Parameters, STALL, refaults_added, speculative_pages,
};
use runahead_protocol::log::Log;
use runahead_protocol::session::TEST_WITHOUT_MEMORY_CONTROL;
use runahead_protocol::stats::Counter;

/// Length of an interval, in ns.
pub const INTERVAL_NS: u64 = 250_000_000;

/// Intervals that are made up for at a time, after the program has not
/// waited for long: 17 minutes.
const INTERVALS_MAX: u64 = 4096;

/// Time that speculation may cost, in thousandths.
const LOST_PER_MILLE: u64 = 10;

/// Pages that a stall for evicted pages brings back: between one, where pages
/// are missed here and there, and the kernel's read-around of 16.
const PAGES_PER_STALL: u64 = 4;

/// Fewer tasks than this are few for a cgroup in which a copy may have 33: limits
/// of containers that mean to stop something are in the hundreds.
const TASKS_FEW: u64 = 1024;

/// Shortest time that a stall is reckoned with, in ns: local flash. Below it
/// the threshold would be so many stalls that nothing ever reached it.
const STALL_MIN_NS: u64 = 60_000;

/// What is known at the start of an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Refaults until then, plus 1; 0: not read yet.
    refaults: u64,
    /// SpecPages_p then.
    speculative_pages: u64,
    /// Refaults until then that are not counted yet.
    deferred: u64,
}

impl Counts {
    /// Pages that have been missed since `before`. The kernel counts a page when it
    /// is brought back, whoever asks: one of `swapped_ahead` pages that a copy has
    /// asked for and the program has not come to has stalled nobody. It is counted
    /// when the program comes to it, and then it is a removed stall as well, or when
    /// it is evicted. What is put off is what the kernel has counted, and no more.
    fn refaults_since(&mut self, before: &Counts, swapped_ahead: u64) -> u64 {
        let counted = self.refaults.saturating_sub(before.refaults);
        let due = counted.saturating_add(before.deferred);
        self.deferred = due.min(swapped_ahead);
        due - self.deferred
    }
}

/// The control of one normal process. All-zero is a valid start.
#[derive(Debug, Default)]
pub struct Control {
    estimate: Estimate,
    /// Start of this interval, in ns; 0: none has begun.
    start_ns: u64,
    counts: Counts,
    /// Half removed stalls until then.
    removed_halves: u64,
    /// Bytes that ended copies had prefetched and nobody has used, as far as they
    /// may still be in memory.
    unused_bytes: u64,
    /// Swapped pages that the copy that ended last had prefetched.
    outstanding: Outstanding,
    /// Since when speculation is disabled, in ns.
    disabled_since_ns: u64,
    /// There is not enough memory for a copy.
    no_room: bool,
    group: Group,
}

impl Control {
    /// Whether the program's cgroup is allowed few tasks only.
    pub fn has_few_tasks(&mut self) -> bool {
        self.group.tasks_max().is_some_and(|most| most < TASKS_FEW)
    }

    /// Whether speculation is allowed now. Ends the interval if its time has
    /// come. `stall_ns` is what a stall takes, 0 if unknown.
    pub fn permits(&mut self, state: &State, stall_ns: u64, now_ns: u64) -> bool {
        if self.start_ns == 0 {
            // The counters are read when the interval ends: most programs
            // have ended before.
            self.begin(state, now_ns, Counts::default());
        }
        let passed_ns = now_ns.saturating_sub(self.start_ns);
        if passed_ns >= INTERVAL_NS {
            self.end_interval(state, stall_ns, passed_ns, now_ns);
        }
        let is_ignored = CONFIG.test.load(Relaxed) & TEST_WITHOUT_MEMORY_CONTROL != 0;
        (self.estimate.is_enabled() || is_ignored) && !self.no_room
    }

    /// Whether memory has room for a copy now: a program may have taken much since an
    /// interval began. Where nobody has asked for one, nobody looks. Where there is none,
    /// none is permitted for the rest of the interval.
    pub fn has_room(&mut self, state: &State) -> bool {
        if self.start_ns != 0 {
            self.look_for_room(state);
        }
        !self.no_room
    }

    fn look_for_room(&mut self, state: &State) {
        let refused = self.group.refuses();
        self.no_room = refused.is_some();
        if let (Some(loss), Some(slot)) = (refused, state.slot()) {
            slot.lose(loss);
        }
    }

    fn begin(&mut self, state: &State, now_ns: u64, counts: Counts) {
        self.start_ns = now_ns;
        self.counts = counts;
        self.removed_halves = removed_halves(state);
    }

    fn end_interval(&mut self, state: &State, stall_ns: u64, passed_ns: u64, now_ns: u64) {
        // What came true until now belongs to this interval.
        look_at_pages(state);
        let removed_halves = removed_halves(state)
            .saturating_sub(self.removed_halves)
            .saturating_add(2 * self.outstanding.look());
        let before = self.counts;
        let speculative_pages = self.speculative_pages(state);
        self.look_for_room(state);
        let Some(reading) = self.group.read() else {
            self.begin(state, now_ns, Counts { speculative_pages, ..before });
            return;
        };
        // One for "read, and none so far".
        let refaults = reading.refaults.wrapping_add(1);
        let mut now = Counts { refaults, speculative_pages, deferred: 0 };
        let known = before.refaults != 0;
        let swapped_ahead = state.log().map_or(0, swapped_ahead);
        let swapped_ahead = swapped_ahead.saturating_add(self.outstanding.pages());
        let refaulted = if known { now.refaults_since(&before, swapped_ahead) } else { 0 };
        self.begin(state, now_ns, now);
        if !known {
            return;
        }
        // The eviction list is as long as there are speculative pages, and what is
        // read in again before there are any is not on it.
        let pages = speculative_pages.midpoint(before.speculative_pages);
        let added = refaults_added(refaulted, pages, reading.resident_pages, PAGES_PER_STALL);
        let removed = removed_halves.saturating_mul(STALL) / 2;
        let parameters =
            Parameters::bounding(LOST_PER_MILLE, INTERVAL_NS, stall_ns.max(STALL_MIN_NS));
        self.end_intervals(state, passed_ns, (added, removed), &parameters, now_ns);
    }

    /// Several intervals without a look share what was counted, those that are not made
    /// up for, too.
    fn end_intervals(
        &mut self,
        state: &State,
        passed_ns: u64,
        (added, removed): (u64, u64),
        parameters: &Parameters,
        now_ns: u64,
    ) {
        let intervals = (passed_ns / INTERVAL_NS).max(1);
        let (added, removed) = (added / intervals, removed / intervals);
        for _ in 0..intervals.min(INTERVALS_MAX) {
            let action = self.estimate.end_interval(added, removed, parameters);
            if let Some(slot) = state.slot() {
                slot.log_interval(added, removed, parameters.threshold, action as u64);
            }
            match action {
                Action::Disable => {
                    self.disabled_since_ns = now_ns;
                    state.count(Counter::DisabledCount, 1);
                }
                Action::Enable => self.book_disabled(state, now_ns),
                Action::Run | Action::Wait => {}
            }
            // What nobody has asked for leaves memory in time.
            self.unused_bytes -= self.unused_bytes / 8;
        }
    }

    /// The program ends, or what is to be known of it now.
    pub fn finish(&mut self, state: &State, now_ns: u64) {
        if !self.estimate.is_enabled() {
            self.book_disabled(state, now_ns);
        }
    }

    fn book_disabled(&mut self, state: &State, now_ns: u64) {
        state.count(Counter::DisabledNs, now_ns.saturating_sub(self.disabled_since_ns));
        self.disabled_since_ns = now_ns;
    }

    /// The present copy is about to end.
    pub fn ending(&mut self, state: &State, log: &Log) {
        let swapped = desk().map_or(0, |desk| desk.prefetched.load(Relaxed));
        let bytes = if swapped != 0 && swapped >= log.prefetches.load(Relaxed) {
            let before = core::mem::replace(&mut self.outstanding, Outstanding::of(log));
            before.pages() * PAGE_SIZE as u64
        } else {
            unused_bytes(state, log)
        };
        self.unused_bytes = self.unused_bytes.saturating_add(bytes);
    }

    /// SpecPages_p: what prefetching brought in and nobody used yet, and the
    /// copy's own pages.
    fn speculative_pages(&self, state: &State) -> u64 {
        let child = state.speculative.load(Relaxed);
        let own = if child == 0 { 0 } else { own_pages(child) };
        let waiting = state.log().map_or(0, |log| unused_bytes(state, log));
        let ended = self.outstanding.pages().saturating_mul(PAGE_SIZE as u64);
        let unused = self.unused_bytes.saturating_add(waiting).saturating_add(ended);
        speculative_pages(own, unused, 0, PAGE_SIZE as u64)
    }
}

/// Bytes that the present copy has prefetched and the program has not asked
/// for: those of the requests beyond the hits, at their mean length.
pub fn unused_bytes(state: &State, log: &Log) -> u64 {
    // Values from the log may be noise: bound them.
    let issued = log.prefetches.load(Relaxed).min(1 << 32);
    let bytes = log.prefetched_bytes.load(Relaxed).min(1 << 42);
    let unused = issued.saturating_sub(used(state));
    if issued == 0 {
        0
    } else {
        (u128::from(bytes) * u128::from(unused) / u128::from(issued)) as u64
    }
}

/// Swapped pages that the present copy has brought back and the program has not
/// come to.
fn swapped_ahead(log: &Log) -> u64 {
    // Values from the log and the desk may be noise: they are bounded by what the
    // kernel has counted.
    let Some(desk) = desk() else { return 0 };
    let prefetched = desk.prefetched.load(Relaxed);
    let is_all = prefetched >= log.pages.tail.load(Relaxed);
    let consumed = if is_all { &log.pages.consumed } else { &desk.consumed };
    prefetched.saturating_sub(consumed.load(Relaxed))
}

/// Ranges and pages of the present copy that the program has used.
fn used(state: &State) -> u64 {
    state.hits.load(Relaxed).saturating_add(pages_used(state))
}

/// Half removed stalls so far: of ended copies and of the present one. What
/// the program counts of a copy is reset by the next one only: of an ended
/// copy, whose log is gone, it has been added already.
pub fn removed_halves(state: &State) -> u64 {
    let present = if state.log().is_some() { hit_halves(state) } else { 0 };
    state.removed_halves.load(Relaxed).saturating_add(present)
}

/// Half removed stalls of the present copy: two for a hit, one less where it
/// was still in flight.
pub fn hit_halves(state: &State) -> u64 {
    used(state).saturating_mul(2).saturating_sub(state.partial.load(Relaxed))
}

/// Pages that a copy has made for itself: each cost it a minor fault
/// (proc_pid_stat(5)).
fn own_pages(pid: i32) -> u64 {
    const MINFLT: usize = 10;
    let (mut room, mut path, mut text) = ([0u8; 20], [0u8; 40], [0u8; 256]);
    let number = procfs::digits(pid.max(0) as usize, &mut room);
    procfs::path(&[b"/proc/", number, b"/stat\0"], &mut path)
        .and_then(|path| procfs::read(path, &mut text))
        .and_then(|text| procfs::stat_field(text, MINFLT))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Control {
        /// One in a cgroup of so many bytes (0: of no limit), `asked` whether a copy
        /// may be made, or not yet.
        pub fn limited(bytes: u64, asked: bool) -> Control {
            let start_ns = u64::from(asked);
            Control { start_ns, group: Group::limited(bytes), ..Control::default() }
        }
    }

    /// A state whose memory control has just disabled speculation.
    fn disabled(now_ns: u64) -> Control {
        let mut control = Control { start_ns: now_ns, ..Control::default() };
        let parameters = Parameters::bounding(LOST_PER_MILLE, INTERVAL_NS, STALL_MIN_NS);
        let added = 8 * parameters.threshold;
        assert_eq!(control.estimate.end_interval(added, 0, &parameters), Action::Disable);
        control
    }

    #[test]
    fn the_testing_switch_lets_speculation_go_on_and_nothing_else_does() {
        let (state, now_ns) = (crate::state::zeroed(), 1_000_000_000);
        let mut control = disabled(now_ns);
        assert!(!control.permits(&state, STALL_MIN_NS, now_ns + 1));
        CONFIG.test.fetch_or(TEST_WITHOUT_MEMORY_CONTROL, Relaxed);
        let without = control.permits(&state, STALL_MIN_NS, now_ns + 1);
        // It ignores what was estimated, not that there is no room.
        control.no_room = true;
        let without_room = control.permits(&state, STALL_MIN_NS, now_ns + 1);
        CONFIG.test.fetch_and(!TEST_WITHOUT_MEMORY_CONTROL, Relaxed);
        assert!(without && !without_room);
        assert!(!control.estimate.is_enabled(), "it is still estimated");
    }

    #[test]
    fn what_many_intervals_without_a_look_have_seen_is_not_that_of_a_few() {
        let (state, now_ns) = (crate::state::zeroed(), 1_000_000_000);
        let parameters = Parameters::bounding(LOST_PER_MILLE, INTERVAL_NS, STALL_MIN_NS);
        let hour_ns = 3600 * 1_000_000_000;
        // In each interval of an hour a hundredth of what would stop speculation.
        let added = 14_400 * (parameters.threshold / 100);
        let mut control = Control { start_ns: now_ns, ..Control::default() };
        control.end_intervals(&state, hour_ns, (added, 0), &parameters, now_ns + hour_ns);
        assert!(control.estimate.is_enabled());
        control.end_intervals(&state, INTERVAL_NS * 20, (added, 0), &parameters, now_ns + hour_ns);
        assert!(!control.estimate.is_enabled(), "the same in five seconds");
        // What it has cost wears off while the program waits for nothing, too.
        control.end_intervals(&state, hour_ns, (0, 0), &parameters, now_ns + 2 * hour_ns);
        assert!(control.estimate.is_enabled());
    }

    #[test]
    fn a_page_that_a_copy_brought_back_has_stalled_nobody_until_it_is_used() {
        let mut before = Counts { refaults: 1, ..Counts::default() };
        let mut next = |refaults, swapped_ahead| {
            let mut now = Counts { refaults, ..Counts::default() };
            let missed = now.refaults_since(&before, swapped_ahead);
            before = now;
            missed
        };
        assert_eq!(next(541, 500), 40, "the program's own");
        assert_eq!(next(541, 100), 400, "used");
        assert_eq!(next(541, 100), 0);
        assert_eq!(next(541, 0), 100, "the copy has ended");
        // No more comes back than the kernel has counted, whatever a copy says.
        assert_eq!(next(561, u64::MAX), 0);
        assert_eq!(next(561, 0), 20);
        assert_eq!(next(400, 0), 0, "nobody counts backwards");
    }

    #[test]
    fn pages_of_a_process_are_its_minor_faults() {
        assert!(own_pages(std::process::id() as i32) > 0);
        assert_eq!(own_pages(-1), 0);
    }
}
