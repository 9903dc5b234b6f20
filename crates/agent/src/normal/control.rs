//! Live memory control (Fraser and Chang, section 6.1): the rule is
//! `policy::memory_control`, what it is told comes from here.
//!
//! * *Removed stalls*: ranges that were prefetched and in memory when the
//!   program asked (one still in flight counts as half).
//! * *Added stalls*: the kernel's refault counters ([`super::group`]), in proportion
//!   to the pages that are in memory because of this process's speculation.
//!
//! Looked at in the slow path only, when the program waits for storage
//! anyway, and at most once an interval. In a cgroup with hardly any room no
//! copy is made at all.

use super::accounting::{come_true_since, look_at_pages, pages_used};
use super::group::Group;
use super::logs;
use crate::import::desk;
use crate::procfs;
use crate::state::{CONFIG, State};
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
/// waited for long.
const INTERVALS_MAX: u64 = 64;

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

/// Intervals after a copy's end in which what it predicted may come true: later
/// most has been evicted where memory is short, and nothing is to be decided where
/// it is not.
const ENDED_INTERVALS: u64 = 16;

/// A copy that has ended, and what it predicted for later.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    epoch: u32,
    /// Number of the first page that the program had not come to.
    first: u64,
    /// Pages from there on that have been credited.
    credited: u64,
    /// Swapped pages that it had brought back and nobody has used.
    swapped_ahead: u64,
    /// Intervals that this is remembered for; 0: it is not.
    intervals_left: u64,
}

/// What is counted at the start of an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Refaults until then, plus 1; 0: not read yet.
    refaults: u64,
    /// SpecPages_p then.
    speculative_pages: u64,
    /// Swapped pages that copies have brought back and nobody has used.
    swapped_ahead: u64,
}

impl Counts {
    /// Pages that somebody has missed since `before`. The kernel counts a page when
    /// it is brought back: one that a copy asked for has stalled nobody, and is
    /// counted when it is used (and credited as removed: Figure 4) or forgotten.
    fn refaults_since(&self, before: &Counts) -> u64 {
        self.refaults
            .wrapping_sub(before.refaults)
            .saturating_add(before.swapped_ahead)
            .saturating_sub(self.swapped_ahead)
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
    /// The copy that ended last.
    ended: Ended,
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
            self.no_room = !self.group.has_room();
        }
        let passed_ns = now_ns.saturating_sub(self.start_ns);
        if passed_ns >= INTERVAL_NS {
            self.end_interval(state, stall_ns, passed_ns, now_ns);
        }
        let is_ignored = CONFIG.test.load(Relaxed) & TEST_WITHOUT_MEMORY_CONTROL != 0;
        (self.estimate.is_enabled() || is_ignored) && !self.no_room
    }

    fn begin(&mut self, state: &State, now_ns: u64, counts: Counts) {
        self.start_ns = now_ns;
        self.counts = counts;
        self.removed_halves = removed_halves(state);
    }

    fn end_interval(&mut self, state: &State, stall_ns: u64, passed_ns: u64, now_ns: u64) {
        // Several intervals without a look share what is counted.
        let intervals = (passed_ns / INTERVAL_NS).clamp(1, INTERVALS_MAX);
        // What came true until now belongs to them.
        look_at_pages(state);
        let removed_halves = removed_halves(state)
            .saturating_sub(self.removed_halves)
            .saturating_add(2 * self.come_true_since_end(state, intervals));
        let reading = self.group.read().unwrap_or_default();
        self.no_room = !self.group.has_room();
        let now = Counts {
            // One for "read, and none so far".
            refaults: reading.refaults.wrapping_add(1),
            speculative_pages: self.speculative_pages(state),
            swapped_ahead: self.swapped_ahead(state),
        };
        let before = self.counts;
        self.begin(state, now_ns, now);
        if before.refaults == 0 {
            return;
        }
        let added = refaults_added(
            now.refaults_since(&before),
            // The eviction list is as long as there are speculative pages, and what is
            // read in again before there are any is not on it.
            now.speculative_pages.midpoint(before.speculative_pages),
            reading.resident_pages,
            PAGES_PER_STALL,
        );
        let removed = removed_halves.saturating_mul(STALL) / 2;
        let parameters =
            Parameters::bounding(LOST_PER_MILLE, INTERVAL_NS, stall_ns.max(STALL_MIN_NS));
        for _ in 0..intervals {
            let (added, removed) = (added / intervals, removed / intervals);
            let action = self.estimate.end_interval(added, removed, &parameters);
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

    /// The present copy is about to end: what it had prefetched and the program has
    /// not used counts as speculative for a while.
    pub fn ending(&mut self, state: &State, log: &Log) {
        self.unused_bytes = self.unused_bytes.saturating_add(unused_bytes(state, log));
        self.ended = Ended {
            epoch: log.epoch.load(Relaxed),
            first: log.pages.consumed.load(Relaxed),
            credited: 0,
            swapped_ahead: swapped_ahead(log),
            intervals_left: ENDED_INTERVALS,
        };
    }

    /// Whether predictions of a copy that has ended may still come true.
    pub fn awaits_predictions(&self) -> bool {
        self.ended.intervals_left != 0
    }

    /// Pages that the last copy, which has ended, predicted, and that the program
    /// has used without a wait since the last interval. Benefit goes on while
    /// speculation is stopped (section 6.1); these pages are no longer speculative.
    fn come_true_since_end(&mut self, state: &State, intervals: u64) -> u64 {
        if self.ended.intervals_left == 0 {
            return 0;
        }
        let is_last =
            |log: &&Log| state.log().is_none() && log.epoch.load(Relaxed) == self.ended.epoch;
        let pages = logs::latest(state).filter(is_last).map_or(0, |log| {
            let late = state.late_since_judged.load(Relaxed);
            come_true_since(log, self.ended.first).saturating_sub(late)
        });
        let ended = &mut self.ended;
        let more = pages.saturating_sub(ended.credited);
        ended.credited += more;
        ended.swapped_ahead = ended.swapped_ahead.saturating_sub(more);
        ended.intervals_left = ended.intervals_left.saturating_sub(intervals);
        if ended.intervals_left == 0 {
            ended.swapped_ahead = 0;
        }
        self.unused_bytes = self.unused_bytes.saturating_sub(more * PAGE_SIZE as u64);
        more
    }

    /// Swapped pages that copies have brought back and nobody has used.
    fn swapped_ahead(&self, state: &State) -> u64 {
        let present = state.log().map_or(0, swapped_ahead);
        self.ended.swapped_ahead.saturating_add(present)
    }

    /// SpecPages_p: what prefetching brought in and nobody used yet, and the
    /// copy's own pages.
    fn speculative_pages(&self, state: &State) -> u64 {
        let child = state.speculative.load(Relaxed);
        let own = if child == 0 { 0 } else { own_pages(child) };
        let waiting = state.log().map_or(0, |log| unused_bytes(state, log));
        speculative_pages(own, self.unused_bytes.saturating_add(waiting), 0, PAGE_SIZE as u64)
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
    // Values from the log and the desk may be noise: bound them.
    let prefetched = desk().map_or(0, |desk| desk.prefetched.load(Relaxed).min(1 << 32));
    prefetched.saturating_sub(log.pages.consumed.load(Relaxed))
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
    fn a_page_that_a_copy_brought_back_has_stalled_nobody_until_it_is_used() {
        let counts = |refaults, swapped_ahead| Counts { refaults, swapped_ahead, ..before() };
        fn before() -> Counts {
            Counts { refaults: 1, ..Counts::default() }
        }
        assert_eq!(counts(501, 500).refaults_since(&before()), 0);
        assert_eq!(counts(541, 500).refaults_since(&before()), 40, "the program's own");
        assert_eq!(counts(501, 100).refaults_since(&counts(501, 500)), 400, "used, or forgotten");
        assert_eq!(counts(501, 900).refaults_since(&before()), 0, "noise");
    }

    #[test]
    fn what_comes_true_after_a_copys_end_is_credited_once_and_for_a_while() {
        const PAGES: usize = 32;
        let mut control = Control::default();
        let state = crate::state::zeroed();
        let log = logs::fresh_log(&state, 0).unwrap();
        let memory = crate::sys::map_anonymous(PAGES * PAGE_SIZE, crate::sys::MAP_PRIVATE);
        assert_ne!(memory, 0);
        let page = |at: usize| memory + at * PAGE_SIZE;
        let touch = |at: usize| {
            // SAFETY: a page of the mapping above.
            unsafe { (page(at) as *mut u8).write_volatile(1) };
        };
        // It has come to half of them when the copy ends.
        (0..PAGES).for_each(|at| log.pages.push((page(at) / PAGE_SIZE) as u64));
        (0..PAGES / 2).for_each(touch);
        log.pages.consumed.store(PAGES as u64 / 2, Relaxed);
        log.prefetches.store(PAGES as u64, Relaxed);
        log.prefetched_bytes.store((PAGES * PAGE_SIZE) as u64, Relaxed);
        state.log.store(core::ptr::from_ref(log).cast_mut(), Relaxed);
        control.ending(&state, log);
        control.ended.swapped_ahead = 16;
        assert_eq!(control.come_true_since_end(&state, 1), 0, "it is still there");
        state.log.store(core::ptr::null_mut(), Relaxed);
        assert_eq!(control.come_true_since_end(&state, 1), 0);
        assert_eq!(control.unused_bytes, (16 * PAGE_SIZE) as u64);
        (16..28).for_each(touch);
        // Two of these had been evicted before.
        state.late_since_judged.store(2, Relaxed);
        assert_eq!(control.come_true_since_end(&state, 1), 10);
        assert_eq!(control.come_true_since_end(&state, 1), 0, "once");
        assert_eq!(control.unused_bytes, (6 * PAGE_SIZE) as u64);
        assert_eq!((control.ended.swapped_ahead, control.awaits_predictions()), (6, true));
        (28..PAGES).for_each(touch);
        assert_eq!(control.come_true_since_end(&state, ENDED_INTERVALS), 4);
        assert_eq!((control.ended.swapped_ahead, control.awaits_predictions()), (0, false));
        state.late_since_judged.store(0, Relaxed);
        assert_eq!(control.come_true_since_end(&state, 1), 0, "it is forgotten");
    }

    #[test]
    fn pages_of_a_process_are_its_minor_faults() {
        assert!(own_pages(std::process::id() as i32) > 0);
        assert_eq!(own_pages(-1), 0);
    }
}
