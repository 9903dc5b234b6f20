//! A stall: a read of the program that waits and that nobody predicted
//! (design: "A stall"). Where asking starts it, it is on its way already, and its
//! wait hides what is done meanwhile: a copy where one can gain, prefetches of
//! what else of the file will be wanted.

use super::credit::{book_question, earn, rests};
use super::processors::holds_busy;
use super::reads::{waited, waited_plain, waits_for_storage};
use super::{Request, bars, notice, streams, synchronise, waiting, whole_files};
use crate::apart;
use crate::arch::{Frame, nr, processor};
use crate::config::{CONFIG, READ_MIN, stalls_always};
use crate::hook::plain;
use crate::import::handover;
use crate::state::{State, role};
use crate::sys;
use core::sync::atomic::Ordering::Relaxed;
use runahead_policy::ration::{LONG_STALL_NS, SHORT_STALL_NS, Standing};
use runahead_policy::readahead::Stalled;
use runahead_protocol::stats::Counter;

/// Waits of a stream of flash that the kernel's readahead serves which are only
/// timed, after the first that was asked about: asking about each window and about
/// the reads between two takes 9 µs of a wait of 80 µs.
const SERVED_WAITS: u32 = 4;

/// How often that is doubled, each time that it still is served.
const SERVED_DOUBLINGS_MAX: u32 = 3;

/// What is known of a stall when its read begins.
struct Begun {
    start_ns: u64,
    synchronised_ns: u64,
    served: bool,
    stalled: Option<streams::Stalled>,
    for_storage: bool,
}

/// Where a thread is before the read.
enum Side {
    /// In the normal process.
    Normal(Begun),
    /// In the speculative process: what the read comes to there.
    Speculative(isize),
}

/// The read would wait, and nobody predicted it. Asking began at `began`.
///
/// Of the program's stack, which may be nearly used up, it takes little: all but the
/// read itself is done on one of the agent's.
pub(super) fn stall(
    state: &'static State,
    frame: &mut Frame,
    request: Request,
    standing: Standing,
    began: u64,
) -> isize {
    let its = &mut *frame;
    let begun = match apart::run(state, move || begin(state, its, request, standing, began)) {
        Some(Side::Normal(begun)) => begun,
        Some(Side::Speculative(result)) => return result,
        None => return unattended(state, frame),
    };
    let result = plain(frame);
    if result >= READ_MIN as isize && matches!(frame.number, nr::READ | nr::PREAD64) {
        let [_, buffer, ..] = frame.args;
        CONFIG.read_to.store(buffer, Relaxed);
    }
    // Another thread has restricted meanwhile what this one may call: not even the
    // clock is asked.
    if state.role.load(Relaxed) != role::NORMAL {
        return result;
    }
    waiting::await_before_unseen(state);
    let end_ns = sys::now_ns();
    handover::settle(state);
    apart::run(state, || end(state, &request, &begun, result, end_ns));
    waiting::await_prediction(state);
    result
}

/// Too many threads are at a stall for this one to be, too.
#[cold]
fn unattended(state: &State, frame: &Frame) -> isize {
    let (result, waited_ns) = waited_plain(state, frame);
    if waited_ns != 0 {
        count_stall(state, waited_ns, true);
    }
    result
}

/// Before the read: a copy where one can gain, prefetches of what else of the file will
/// be wanted. Returns in the speculative process, too.
fn begin(
    state: &'static State,
    frame: &mut Frame,
    request: Request,
    standing: Standing,
    began: u64,
) -> Side {
    earn(state, 0);
    notice::want_by_now(state);
    // What a handler has left by longjmp before this read.
    handover::settle(state);
    bars::left_below(state, frame);
    let start_ns = sys::now_ns();
    let mut stat = sys::Stat::default();
    sys::known_fstat(request.fd, &mut stat);
    let mut served = false;
    if streams::is_crowded(state, &stat, start_ns) {
        synchronise::give_way(state);
    } else if is_hopeless(state, standing, start_ns) {
        state.count(Counter::SyncsDeclined, 1);
    } else if is_served(state, &request, &stat, start_ns) {
        served = true;
        state.count(Counter::SyncsDeclined, 1);
    } else if let Some(result) = synchronise::at_stall(state, frame, request, standing, start_ns) {
        return Side::Speculative(result);
    }
    let stalled = streams::at_stall(state, frame, &request, &stat);
    if stalled.is_some_and(|stalled| stalled.prefetched()) {
        served = false;
    } else {
        whole_files::prefetch(state, frame, &request, &stat);
    }
    book_question(state, began);
    let synchronised_ns = sys::now_ns();
    handover::ask(state);
    let for_storage = waits_for_storage(frame);
    Side::Normal(Begun { start_ns, synchronised_ns, served, stalled, for_storage })
}

/// After the read, which came to `result` at `end_ns`.
fn end(state: &State, request: &Request, begun: &Begun, result: isize, end_ns: u64) {
    let &Begun { start_ns, synchronised_ns, served, stalled, for_storage } = begun;
    let waited_ns = if for_storage { waited(end_ns.saturating_sub(start_ns), result) } else { 0 };
    if waited_ns != 0 {
        count_stall(state, waited_ns, true);
        earn(state, waited_ns);
    }
    if let Some(stalled) = stalled {
        streams::ended(state, &stalled, end_ns.saturating_sub(synchronised_ns), end_ns);
    }
    let passes_over_ns = state.try_locked(|rations, _| {
        let ration = &mut rations.synchronisations;
        if state.abandoned.swap(0, Relaxed) != 0 {
            ration.given_up();
        }
        if for_storage {
            ration.stalled(end_ns.saturating_sub(synchronised_ns));
        }
        if state.speculative.load(Relaxed) == 0 { ration.unaided_ns() } else { 0 }
    });
    state.passes_over_ns.store(passes_over_ns.unwrap_or(0), Relaxed);
    let served = served && state.mean_stall_ns() < SHORT_STALL_NS;
    leave_untold(state, request.fd, served);
    if served || rests(state) {
        state.credit.store(0, Relaxed);
    }
}

/// Whether no copy can come of a stall: there is none, and the processors were
/// busy at a look that holds. The slow path would find the same, by some ten
/// system calls that on busy processors nothing hides.
pub(super) fn is_hopeless(state: &State, standing: Standing, now_ns: u64) -> bool {
    standing == Standing::None
        && state.speculative.load(Relaxed) == 0
        && holds_busy(state, now_ns)
        && !stalls_always()
}

/// Whether the kernel's readahead does what a copy would, and there is none.
fn is_served(state: &State, request: &Request, stat: &sys::Stat, now_ns: u64) -> bool {
    let stalled = Stalled {
        fd: request.fd,
        offset: request.offset,
        size: stat.size.max(0) as u64,
        stall_ns: state.mean_stall_ns(),
        waited_ns: state.stalls_ns.load(Relaxed),
        stalls: state.stalls.load(Relaxed),
        now_ns,
        unseen: unseen(state),
    };
    let may_gain = state.try_locked(|rations, _| rations.readahead.may_gain(&stalled));
    may_gain == Some(false) && state.speculative.load(Relaxed) == 0 && !stalls_always()
}

/// After a stall that was asked about: how many waits are only timed.
fn leave_untold(state: &State, fd: i32, served: bool) {
    let before = state.served_row.load(Relaxed);
    let files = if served { state.served_files.load(Relaxed) | bit(fd) } else { 0 };
    state.served_files.store(files, Relaxed);
    let row = if served { before.saturating_add(1) } else { 0 };
    state.served_row.store(row, Relaxed);
    state.served_waits.store(untold(row), Relaxed);
}

/// How many waits are only timed after so many of those stalls in a row.
fn untold(row: u32) -> u32 {
    row.checked_sub(1).map_or(0, |before| SERVED_WAITS << before.min(SERVED_DOUBLINGS_MAX))
}

/// How many of these there have been since the last of those stalls.
fn unseen(state: &State) -> u32 {
    untold(state.served_row.load(Relaxed)).saturating_sub(state.served_waits.load(Relaxed))
}

/// A descriptor's bit in [`State::served_files`], which others share.
fn bit(fd: i32) -> u64 {
    1 << (fd as u32 % u64::BITS)
}

/// Whether a wait that was timed, of so many ns, is of those that say nothing new of
/// the streams that the kernel's readahead serves.
pub(super) fn goes_on_served(state: &State, fd: i32, waited_ns: u64) -> bool {
    let left = state.served_waits.load(Relaxed);
    let is_among = || state.served_files.load(Relaxed) & bit(fd) != 0;
    if left == 0 || waited_ns >= LONG_STALL_NS || !is_among() {
        return false;
    }
    state.served_waits.store(left - 1, Relaxed);
    true
}

/// Counts a wait, for what decides about stalls and for the statistics.
pub(super) fn count_stall(state: &State, waited_ns: u64, unpredicted: bool) {
    count_stalls(state, 1, waited_ns, unpredicted);
}

/// The same of several, and what they took together.
pub(super) fn count_stalls(state: &State, stalls: u32, waited_ns: u64, unpredicted: bool) {
    state.stalled_ns.store(state.stalled_ns.load(Relaxed).wrapping_add(waited_ns), Relaxed);
    state.stalled(stalls, waited_ns);
    if let Some(log) = state.log() {
        log.processor_plus1.store(processor() + 1, Relaxed);
    }
    if let Some(slot) = state.slot() {
        slot.add(Counter::Stalls, u64::from(stalls));
        slot.add(Counter::StallNs, waited_ns);
        slot.add(Counter::StallsUnpredicted, u64::from(unpredicted) * u64::from(stalls));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_is_served_is_asked_about_ever_more_seldom() {
        let state = crate::state::zeroed();
        let timed = |served| {
            leave_untold(&state, 3, served);
            assert!(!goes_on_served(&state, 4, 80_000), "another file");
            assert_eq!(unseen(&state), 0);
            let waits = (0..1000).take_while(|_| goes_on_served(&state, 3, 80_000)).count();
            assert_eq!(unseen(&state) as usize, waits);
            waits
        };
        assert_eq!([false, true, true, true, true, true].map(timed), [0, 4, 8, 16, 32, 32]);
        assert_eq!([false, true].map(timed), [0, 4]);
        leave_untold(&state, 3, true);
        assert!(!goes_on_served(&state, 3, LONG_STALL_NS), "this is no flash");
        leave_untold(&state, 4, true);
        assert!(goes_on_served(&state, 3, 80_000) && goes_on_served(&state, 4, 80_000));
    }
}
