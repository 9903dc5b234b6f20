//! A copy before a large mapping of a file is touched. What a program waits for that
//! goes through one in order, the kernel's readahead counts as no major fault, and
//! nobody gets notice of it; nor does a wait hide what the copy costs.

use super::accounting::look_at_pages;
use super::processors::idle_processors;
use super::synchronise::{self, Stall, aide_runs, has_ended, kind, permitted};
use super::{areas, own, waiting};
use crate::config::{CONFIG, stalls_always};
use crate::speculative;
use crate::state::{Rations, State};
use crate::sys;
use core::sync::atomic::Ordering::Relaxed;
use runahead_policy::ration::{Processors, Standing};
use runahead_policy::refork::Kind;
use runahead_protocol::log::Log;
use runahead_protocol::session::Mode;

/// What part of the time that reading takes (a byte in a nanosecond) a copy may
/// take that no wait hides.
const READING_PER_COPY: u64 = 64;

/// The longest that one may take, in ns: no call is to take noticeably longer.
const UNHIDDEN_NS_MAX: u64 = 2_000_000;

/// After an mmap(2) with this result, of so many bytes of a file: nothing of them
/// has been read yet, and if the program goes through them in order nobody gets
/// notice of its waits. Returns in the copy, too, if it makes one.
#[cold]
pub fn before_sequence(state: &'static State, result: isize, bytes: usize) -> isize {
    let now_ns = sys::now_ns();
    let stall = Stall::Mapping(result as usize, bytes as u64);
    let copy = synchronise::attempt(state, &stall, Standing::None, now_ns, &mut |log, parent| {
        speculative::begin_after(state, log, parent, result)
    });
    if copy.is_none() {
        waiting::await_before_unseen(state);
    }
    result
}

/// Whether a copy may be made for `bytes` of a file that is mapped now, before
/// anything of it is touched.
pub fn may_expect(state: &State, bytes: u64) -> bool {
    CONFIG.mode.load(Relaxed) == Mode::Speculate as u32
        && state.disabled.load(Relaxed) == 0
        && own(state)
        && !state.copy_lives()
        && state.try_locked(|rations, _| {
            let now_ns = sys::now_ns();
            let pays = stalls_always() || rations.synchronisations.may_expect(bytes);
            pays && is_used_up(state)
                && (stalls_always() || idle_processors(state, now_ns) == Processors::Idle)
        }) == Some(true)
}

/// Whether nothing more comes of a copy that has parked, if there is one: it was
/// this thread's, its reads are made, and of its last page the program has either
/// come to it or unmapped it.
fn is_used_up(state: &State) -> bool {
    if state.speculative.load(Relaxed) == 0 {
        return true;
    }
    look_at_pages(state);
    let unmapped = |log: &Log| {
        let last = log.pages.get(log.pages.tail.load(Relaxed).wrapping_sub(1));
        last.is_some_and(|page| {
            !areas::is_watched(state, (page as usize).wrapping_mul(sys::PAGE_SIZE))
        })
    };
    state.owner.load(Relaxed) == crate::arch::thread_pointer()
        && state.log().is_some_and(|log| log.lead() <= 0 && (has_ended(state) || unmapped(log)))
}

/// Whether a copy costs little enough: no wait hides it, so it is to be a small part
/// of what reading so many bytes takes.
pub(super) fn pays_unhidden(state: &State, rations: &Rations, bytes: u64) -> bool {
    let (kind, resident_bytes) = kind(state, &rations.refork, 0);
    let bearable_ns = (bytes / READING_PER_COPY).min(UNHIDDEN_NS_MAX);
    let cheap = rations.refork.cost_ns(kind, resident_bytes) <= bearable_ns;
    if !cheap || !stalls_always() && !rations.synchronisations.may_expect(bytes) {
        return false;
    }
    if kind == Kind::Importing {
        if state.epoch.load(Relaxed) == 0 && !permitted(state) {
            return false;
        }
        // Without an aide it would be a full one.
        waiting::entering(state);
        return aide_runs(state);
    }
    true
}
