//! Which reads are asked about. One that waited gives credit for those behind
//! it, so that asking takes a small share of the time that was waited; where no
//! copy can come of the answers, a smaller one ([`runahead_policy::asking`]):
//! beyond that reads are only timed.

use super::processors::are_busy;
use super::synchronise;
use crate::arch::ticks;
use crate::config::{CONFIG, stalls_always};
use crate::state::State;
use core::sync::atomic::Ordering::Relaxed;
use runahead_policy::asking::{FREE_BUSY_NS, FREE_NS};
use runahead_policy::learning::Start;

/// Reads that are asked about after one that waited, at least.
pub const CREDIT: u32 = 24;

/// Most of them.
const CREDIT_MAX: u32 = 512;

/// A wait of so many ns pays for one more: a credit is worth about 2 µs, and so
/// asking takes 1/64 of the time that was waited. The reads of a run between
/// two stalls of a stream would otherwise use the credit up, and its next stall
/// would pass unseen.
const CREDIT_WAIT_NS: u64 = 128_000;

/// What asking is taken to cost where no counter tells the time, in ns.
const QUESTION_NS: u64 = 10_000;

/// As processes of this executable have shown to be right: where that is to wait
/// unaided first, they have asked for what is free.
pub(super) fn begin(state: &State, start: Start) {
    if start.is_later() {
        let free_ns = if are_busy(state) { FREE_BUSY_NS } else { FREE_NS };
        state.asked_ns.fetch_max(free_ns, Relaxed);
    }
}

/// A wait gives credit.
pub(super) fn earn(state: &State, waited_ns: u64) {
    let more = (waited_ns / CREDIT_WAIT_NS).min(u64::from(CREDIT_MAX - CREDIT)) as u32;
    let credit = state.credit.load(Relaxed).max(CREDIT + more);
    state.credit.store(credit, Relaxed);
}

/// Whether reads are only timed for now: no copy is made, because the
/// processors are busy or the ration passes stalls over, and what else asking
/// serves has not been needed for a while. Asked again when the processors are
/// to be looked at, or the ration has passed over what it would.
pub(super) fn rests(state: &State) -> bool {
    let is_busy = are_busy(state);
    let none_follows = is_busy || state.passes_over_ns.load(Relaxed) != 0;
    none_follows && state.asking().rests(is_busy) && !stalls_always()
}

/// Notes a wait that was only timed, for the ration; whether the next read is
/// to be asked about, because the ration passes over no more stalls.
#[cold]
pub(super) fn is_again_wanted(state: &State, waited_ns: u64) -> bool {
    let untold_ns = state.untold_ns.fetch_add(waited_ns, Relaxed).saturating_add(waited_ns);
    // Before so long the ration would say no; asking it takes two calls.
    if are_busy(state) || untold_ns < state.passes_over_ns.load(Relaxed) {
        return false;
    }
    let left_ns = state.try_locked(|rations, _| {
        synchronise::tell(state, rations);
        rations.synchronisations.unaided_ns()
    });
    let Some(left_ns) = left_ns else { return false };
    state.passes_over_ns.store(left_ns, Relaxed);
    left_ns == 0
}

/// A question that began at `began` is answered.
pub(super) fn book_question(state: &State, began: u64) {
    let passed = ticks().wrapping_sub(began).saturating_mul(1000);
    let ns = passed.checked_div(CONFIG.ticks_per_us.load(Relaxed)).unwrap_or(QUESTION_NS);
    state.asked_ns.store(state.asking().asked(ns).asked_ns, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_waits_unaided_first_asks_for_nothing_for_free() {
        let rests_after_a_question = |start| {
            let state = crate::state::zeroed();
            begin(&state, start);
            state.passes_over_ns.store(1_000_000, Relaxed);
            book_question(&state, crate::arch::ticks());
            rests(&state)
        };
        assert!(rests_after_a_question(Start::Later(1_000_000)));
        assert!(![Start::Unknown, Start::AtOnce].into_iter().any(rests_after_a_question));
    }

    /// As other stalls than reads do, of mapped files or directories.
    #[test]
    fn waits_that_others_tell_the_ration_of_count_as_passed_over() {
        let state = crate::state::zeroed();
        state.try_locked(|rations, _| rations.synchronisations.begin(Start::Later(100_000_000)));
        state.passes_over_ns.store(100_000_000, Relaxed);
        for _ in 0..9 {
            assert!(!is_again_wanted(&state, 10_000_000));
            state.try_locked(|rations, _| synchronise::tell(&state, rations));
        }
        assert!(is_again_wanted(&state, 10_000_000));
    }
}
