//! What the program waits for around a synchronisation: that nobody else is
//! in its descriptor table, and in some programs for a copy's first
//! prediction. Each wait is bounded, whatever a rogue copy does.

use super::ending::runs;
use super::processors::processors;
use crate::config::CONFIG;
use crate::import::{self, Desk, desk};
use crate::speculative::shared;
use crate::state::{State, lock};
use crate::sys;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use runahead_protocol::log::{Log, life};
use runahead_protocol::stats::Counter;

/// Far longer than a copy takes to leave the table, in ns.
const DETACH_NS: u64 = 2_000_000_000;
/// Looks at the copy before the processor is left to others, in rounds of a
/// pause instruction: about 50 µs. Falling asleep and being woken takes as
/// long, and giving way to whoever else is runnable may take milliseconds.
const DETACH_SPIN: u32 = 1000;
/// Longest sleep before it is looked at again, in ns; it wakes us itself.
const DETACH_LOOK_NS: u64 = 500_000;
/// Between two looks at what wakes nobody, in ns.
const DETACH_PAUSE_NS: u64 = 20_000;

/// Somebody will be in the descriptor table: to be told before that, with the lock held.
/// Each time has a number of its own, or who has waited for the last would take the next
/// for over ([`await_detached`]).
pub fn entering(state: &State) {
    let number = state.entered.load(Relaxed).wrapping_add(1).max(1);
    state.entered.store(number, Relaxed);
    state.detaching.store(number, SeqCst);
}

/// Far longer than a look at a descriptor takes that keeps its processor, in ns.
const LOOK_NS: u64 = 2_000_000;

/// Waits until the copy has left the descriptor table, after a close, before
/// an exec and at the end. Before that, its looks at descriptors hold them for
/// moments, so that a lock, a pipe or a socket would outlive its close; and an
/// exec would unshare the table and lose the program's POSIX locks.
///
/// A close that took its descriptor out before the first look finds nothing
/// held; one that did so later finds [`State::detaching`] set, or everybody
/// gone again. A synchronisation begins only when the last one's copy has left
/// ([`settled`]), so it is enough to wait for the one that is found.
///
/// What a rogue copy does to the log makes this at most [`DETACH_NS`] long.
pub fn await_detached(state: &State) {
    let found = state.detaching.load(SeqCst);
    // A vfork child's table is its own, and the copy not its child.
    if found == 0 || !super::own(state) {
        return;
    }
    let mut turns = Turns::default();
    while state.detaching.load(SeqCst) == found {
        // Another thread makes a copy and has not noted it yet: asked first, or
        // it would be missed by both questions.
        let noted = state.lock.load(SeqCst) == lock::FREE;
        let copy = state.log().filter(|log| log.life.load(Acquire) == life::STARTING);
        if noted && copy.is_none() && !aide_starts(state) {
            break;
        }
        let Some(passed_ns) = turns.passed_ns(state) else { continue };
        if noted && settled(state) || passed_ns > DETACH_NS {
            break;
        }
        match copy {
            Some(log) if noted => {
                sys::without_slack(|| sys::futex_wait(&log.life, life::STARTING, DETACH_LOOK_NS));
            }
            _ => sys::sleep_exactly(DETACH_PAUSE_NS),
        }
    }
    // Not what has been entered since.
    _ = state.detaching.compare_exchange(found, 0, SeqCst, Relaxed);
}

/// Looks of a wait at what a copy does.
#[derive(Default)]
struct Turns {
    taken: u32,
    since_ns: u64,
}

impl Turns {
    /// For how long it has been looked in vain, in ns, not counting the first looks;
    /// `None` after one of those: the next may come at once ([`DETACH_SPIN`]).
    fn passed_ns(&mut self, state: &State) -> Option<u64> {
        self.taken = self.taken.saturating_add(1);
        if self.taken < DETACH_SPIN && processors(&state.cpus) > 1 {
            core::hint::spin_loop();
            return None;
        }
        let now_ns = sys::now_ns();
        if self.since_ns == 0 {
            self.since_ns = now_ns;
        }
        Some(now_ns.saturating_sub(self.since_ns))
    }
}

/// Waits, after a close, until the copy's look at the program's descriptors is over that
/// it may be in: by way of `/proc/PID/fd` and `fdinfo`, inside which calls the kernel
/// holds the open file (proc_fd_link(), Linux 6.18), and the number may be another file's
/// by now than the one that the copy looks for.
///
/// A look that begins later finds the number gone. The copy is at idle priority: one that
/// has lost its processor in those microseconds is waited for no longer than [`LOOK_NS`],
/// and once: it may be without for as long as the processors are busy, and a program that
/// closes thousands of files would wait at each.
pub fn await_looked(state: &State) {
    let Some(log) = state.log() else { return };
    let Some(look) = unfinished(state, log) else { return };
    if super::own(state) && await_look(state, log, look) != Looked::Over {
        state.look_left.store(look, Relaxed);
    }
}

/// The look that a copy is in, unless it has been waited for in vain.
fn unfinished(state: &State, log: &Log) -> Option<u64> {
    let look = look(log);
    (!look.is_multiple_of(2) && state.look_left.load(Relaxed) != look).then_some(look)
}

/// Which look a copy is in, where that is odd: its number, and the copy's.
fn look(log: &Log) -> u64 {
    u64::from(log.epoch.load(Relaxed)) << u32::BITS | u64::from(log.looks.load(SeqCst) as u32)
}

/// What came of a wait for a look.
#[derive(Debug, PartialEq, Eq)]
enum Looked {
    Over,
    /// The copy has died in it, and holds nothing any more.
    Dead,
    Late,
}

fn await_look(state: &State, log: &Log, found: u64) -> Looked {
    let mut turns = Turns::default();
    while look(log) == found {
        let Some(passed_ns) = turns.passed_ns(state) else { continue };
        if passed_ns > LOOK_NS {
            return Looked::Late;
        }
        let copy = state.speculative.load(Relaxed);
        // 0: not noted yet, or another thread ends it.
        if copy != 0 && !runs(copy) {
            return Looked::Dead;
        }
        sys::sleep_exactly(DETACH_PAUSE_NS);
    }
    Looked::Over
}

/// [`await_detached`] at the end of the stall, where something may happen
/// unseen before the copy has left: a close or an exec (tier T0, musl), or a look
/// at what the kernel counts. Where all is seen, that waits by itself: a program
/// woken by a page fault has no wait left that would hide this one, of some
/// 70 µs.
pub fn await_before_unseen(state: &State) {
    if sees_too_little() {
        await_detached(state);
    }
}

/// Whether something may happen unseen that a copy's first steps are to be over
/// before.
pub fn sees_too_little() -> bool {
    let unseen = [&CONFIG.unseen, &CONFIG.is_musl].iter().any(|it| it.load(Relaxed) != 0);
    unseen || shared::counts()
}

/// Whether there are threads whose calls no hook sees: they would close descriptors
/// beside a copy that is leaving the table, and wait for children of every kind.
pub fn threads_are_unseen() -> bool {
    CONFIG.unseen.load(Relaxed) != 0 && !crate::import::regions::is_single_threaded()
}

/// Whether nobody is in the program's descriptor table: all copies have left
/// it, or died in it. To be asked with the lock held, or found free before.
pub fn settled(state: &State) -> bool {
    let starts = |log: &Log| log.life.load(Acquire) == life::STARTING;
    state.detaching.load(SeqCst) == 0
        || !(state.log().is_some_and(starts) && runs(state.speculative.load(Relaxed))
            || aide_starts(state) && runs(state.aide.load(Relaxed)))
}

/// Whether the aide is still in the descriptor table.
fn aide_starts(state: &State) -> bool {
    let starting = |desk: &Desk| desk.life.load(Acquire) == import::life::STARTING;
    state.aide.load(Relaxed) > 0 && desk().is_some_and(starting)
}

/// Pause between two looks for the first prediction, in ns.
const FIRST_LOOK_NS: u64 = 30_000;

/// Longest wait for it, in ns; besides, it is at most twice as long as a stall.
const FIRST_MAX_NS: u64 = 5_000_000;

/// After the stall of a synchronisation, where the program shares memory with
/// others (PostgreSQL's buffers) and a copy has come to nothing
/// (`policy::ration`): waits until the copy has predicted a read.
///
/// Shared memory is private on touch, so that a copy that begins late does not
/// see it as it was at the stall, but as the program has left it since: the
/// next block is being read already, by a process that it takes for another,
/// and it parks. Once ahead it touches what the program has not come to. The
/// wait is a cost of the synchronisation, and rationed as such.
pub fn await_prediction(state: &State) {
    if state.awaits.load(Relaxed) == 0
        || state.consumed.load(Relaxed) != 1
        || state.owner.load(Relaxed) != crate::arch::thread_pointer()
    {
        return;
    }
    let Some(log) = state.log() else { return };
    let stall_ns = state.try_locked(|rations, _| rations.synchronisations.stall_ns());
    let longest_ns = stall_ns.unwrap_or(0).saturating_mul(2).min(FIRST_MAX_NS);
    let (start_ns, mut passed_ns) = (sys::now_ns(), 0);
    // The stalled read is number 0 of both.
    while log.tail.load(Acquire) < 2
        && matches!(log.life.load(Acquire), life::DETACHED | life::RUNNING)
        && passed_ns < longest_ns
    {
        sys::sleep_exactly(FIRST_LOOK_NS);
        passed_ns = sys::now_ns().saturating_sub(start_ns);
    }
    state.count(Counter::SyncNs, passed_ns);
    // A cost already, and no wait for something else.
    state.stalled_ns.fetch_add(passed_ns, Relaxed);
    state.try_locked(|rations, _| rations.synchronisations.cost_more(passed_ns));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::nr;
    use crate::normal::ending::end_child;

    /// A process like a copy, a child without an exit signal, that does nothing.
    fn idle_child() -> i32 {
        const LONGEST_MS: usize = 60_000;
        // SAFETY: a forked child that waits and ends, and does nothing else.
        let child = unsafe { sys::call(nr::CLONE, &[0; 5]) };
        if child == 0 {
            // SAFETY: as above.
            unsafe {
                sys::call(nr::POLL, &[0, 0, LONGEST_MS]);
                sys::call(nr::EXIT_GROUP, &[0]);
            }
        }
        child as i32
    }

    #[test]
    fn a_look_that_does_not_end_is_waited_for_once() {
        let state = crate::state::zeroed();
        // SAFETY: zeroed memory is a valid log.
        let log: &Log =
            std::boxed::Box::leak(unsafe { std::boxed::Box::new_zeroed().assume_init() });
        state.pid.store(sys::getpid(), Relaxed);
        state.log.store(core::ptr::from_ref(log).cast_mut(), Relaxed);
        let child = idle_child();
        assert!(child > 0);
        state.speculative.store(child, Relaxed);
        let unfinished = || unfinished(&state, log);
        assert_eq!(unfinished(), None, "it is in none");
        log.looks.store(7, SeqCst);
        let first = unfinished().unwrap();
        await_looked(&state);
        assert_eq!(unfinished(), None);
        assert_eq!(await_look(&state, log, first), Looked::Late);
        log.looks.store(9, SeqCst);
        assert!(unfinished().is_some(), "another one");
        log.looks.store(7, SeqCst);
        assert_eq!(unfinished(), None);
        log.epoch.store(1, Relaxed);
        assert!(unfinished().is_some(), "another copy's");
        assert_eq!(await_look(&state, log, first), Looked::Over);
        // SAFETY: kills the child from above, which is reaped below.
        unsafe { sys::call(nr::KILL, &[child as usize, 9]) };
        while runs(child) {
            std::thread::yield_now();
        }
        assert_eq!(await_look(&state, log, look(log)), Looked::Dead);
        end_child(&state, child);
    }

    /// An aide that was started for itself, and then a copy: who has found the first, and
    /// sees that it has gone, must not say so of the second.
    #[test]
    fn no_two_stays_in_the_table_are_told_by_one_number() {
        let state = crate::state::zeroed();
        let found: std::vec::Vec<u32> = (0..3)
            .map(|_| {
                entering(&state);
                state.detaching.swap(0, SeqCst)
            })
            .collect();
        assert!(matches!(found[..], [a, b, c] if a != b && b != c && a != c), "{found:?}");
        state.entered.store(u32::MAX, Relaxed);
        entering(&state);
        assert_ne!(state.detaching.load(SeqCst), 0);
    }
}
