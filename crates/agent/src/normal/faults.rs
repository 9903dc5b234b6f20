//! Page faults of the program that waited for storage: was it predicted, and
//! if not, is it worth a synchronisation. The wait is over when the notice
//! comes, so a synchronisation here is not hidden by it: it pays through what
//! it prefetches next.

use super::synchronise::{self, Stall};
use super::{accounting, logs, waiting};
use crate::arch::{nr, thread_pointer};
use crate::opening;
use crate::speculative::{self, Parent};
use crate::state::State;
use crate::sys::{self, PAGE_SIZE, call};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use runahead_policy::ration::Standing;
use runahead_protocol::log::{Log, life};
use runahead_protocol::stats::Counter;

/// Longest wait that is believed, in ns.
const STALL_MAX_NS: u64 = 1_000_000_000;

/// What is known of a fault that has waited.
#[derive(Clone, Copy, Debug)]
pub struct Waited {
    /// Its address; `None` where nobody knows.
    pub address: Option<usize>,
    /// It is the last of so many since the notice before.
    pub faults: u32,
    /// So many of them are the copy's to answer for, if it predicted this one.
    pub blamed: u32,
    /// The thread's signal mask.
    pub mask: u64,
    /// A place on the thread's stack, or where its registers lie there.
    pub live: usize,
    /// The argument of the handler that runs now; `None` where none does.
    pub ucontext: Option<usize>,
    /// No longer than this can the last of them have taken, in ns.
    pub longest_ns: u64,
}

/// After a fault. In the speculative process that it makes, it returns there
/// too, and what returns from here goes on with the program. Returns how many of
/// the next ones are passed over, whatever they are.
pub fn at_fault(state: &'static State, waited: &Waited) -> u64 {
    let &Waited { address, faults, blamed, mask, live, ucontext, longest_ns } = waited;
    let now_ns = sys::now_ns();
    let each_ns = stalled(state, now_ns).checked_div(u64::from(faults)).unwrap_or(0);
    let stalled_ns = each_ns.min(longest_ns);
    let all_stalled_ns = stalled_ns.saturating_mul(u64::from(faults));
    let ours =
        state.speculative.load(Relaxed) != 0 && state.owner.load(Relaxed) == thread_pointer();
    let log = state.log().filter(|_| ours);
    // Of a page that nobody knows, a copy is not to blame.
    let predicted = log.is_some_and(|log| {
        address.is_none_or(|address| log.pages.contains((address / PAGE_SIZE) as u64))
    });
    state.stalled(faults, all_stalled_ns);
    state.count(Counter::Stalls, u64::from(faults));
    state.count(Counter::StallNs, all_stalled_ns);
    if let Some(log) = log {
        state.stalled_ns.fetch_add(all_stalled_ns, Relaxed);
        logs::share(state, log, now_ns);
    }
    if predicted {
        // A partial stall: prefetched, or about to be, just not early enough.
        // As a hit it is counted with the other pages that have been used.
        let late = |counter: &AtomicU64| {
            counter.store(counter.load(Relaxed).wrapping_add(u64::from(blamed)), Relaxed);
        };
        late(&state.partial);
        state.try_locked(|rations, _| {
            let usual_ns = rations.synchronisations.stall_ns();
            if usual_ns != 0 && stalled_ns >= usual_ns / 4 * 3 {
                late(&state.late);
            }
            if !rations.synchronisations.is_open() {
                // Not what a copy that has parked is judged again for.
                late(&state.late_since_judged);
            }
        });
        return 0;
    }
    state.count(Counter::StallsUnpredicted, u64::from(faults));
    let standing = match log {
        None => Standing::None,
        Some(log) if matches!(log.life.load(Relaxed), life::PARKED | life::NONE) => Standing::None,
        Some(_) if state.scouts.load(Relaxed) != 0 => Standing::None,
        // It has run past this place, and elsewhere. One that is merely slow
        // has predicted last what the program has by now.
        Some(log) if runs_elsewhere(log) => Standing::OffTrack,
        Some(_) => Standing::Behind,
    };
    let passes_over = state.try_locked(|rations, _| {
        let ration = &mut rations.synchronisations;
        ration.stalled(stalled_ns);
        ration.unnoticed(faults - 1, stalled_ns);
        ration.passes_over()
    });
    state.fault_context.store(live, Relaxed);
    let copy = synchronise::attempt(
        state,
        &Stall::Fault(address.unwrap_or(0)),
        standing,
        now_ns,
        &mut |log, parent| {
            let parent = Parent { signal_mask: mask, ..parent };
            speculative::begin_at_fault(state, log, parent, ucontext);
            0
        },
    );
    if copy.is_none() {
        state.fault_context.store(0, Relaxed);
        waiting::await_before_unseen(state);
    }
    // The copy before has paid after all: what the ration said is void.
    let void = accounting::is_known_to_have_paid(state);
    passes_over.filter(|_| !void).unwrap_or(0)
}

/// Whether the page predicted last is one that the program has not mapped.
fn runs_elsewhere(log: &Log) -> bool {
    let tail = log.pages.tail.load(Relaxed);
    let Some(page) = log.pages.get(tail.wrapping_sub(1)).filter(|_| tail != 0) else {
        return false;
    };
    with_pagemap(|pagemap| is_present(pagemap, page)) != Some(true)
}

/// What `look` makes of this process's page map; `None` where that cannot be had.
pub fn with_pagemap<R>(look: impl FnOnce(i32) -> R) -> Option<R> {
    opening::with(b"/proc/self/pagemap\0", look)
}

/// Whether a page map says that a page is in memory and mapped: one that is
/// swapped out, or only in the swap cache, has not been used since.
pub fn is_present(pagemap: i32, page: u64) -> bool {
    const PRESENT: u64 = 1 << 63;
    let mut entry = 0u64;
    let at = core::ptr::from_mut(&mut entry) as usize;
    let args = [pagemap as usize, at, 8, (page as usize).wrapping_mul(8)];
    // SAFETY: into a word of ours. The page is a hint, perhaps noise: beyond
    // the address space the kernel has nothing to say.
    let got = unsafe { call(nr::PREAD64, &args) };
    got == 8 && entry & PRESENT != 0
}

/// How long the fault waited: what passed since the last notice without this
/// thread running, at most. Between two notices a program that faults does
/// little else that waits, and of a read's wait the hook knows.
fn stalled(state: &State, now_ns: u64) -> u64 {
    let cpu_ns = sys::thread_cpu_ns();
    let passed_ns = now_ns.saturating_sub(state.noticed_ns.swap(now_ns, Relaxed));
    let ran_ns = cpu_ns.saturating_sub(state.noticed_cpu_ns.swap(cpu_ns, Relaxed));
    passed_ns.saturating_sub(ran_ns).min(STALL_MAX_NS)
}
