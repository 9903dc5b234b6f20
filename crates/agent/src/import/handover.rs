//! Handing a synchronisation over (Fraser and Chang, section 5.1: the normal
//! process pays for its registers, and the rest is preemptible).
//!
//! The clone is most of what an importing copy costs the program. Whoever
//! shares its memory can make it just as well: so the normal process takes down
//! its registers and the live end of its stack ([`Context`]), asks the aide,
//! and waits for its read. The aide clones; the new process takes the stack and
//! the registers up and goes on where the normal process was, as if it had
//! cloned by itself. Then the aide copies the pages that both have, so that the
//! program's next stores fault for none of them.
//!
//! What makes the copy one of a single moment: the normal process does not leave
//! the hook before the memory has been copied, or else the copy is given up
//! ([`give_up`], and [`Desk::handing`]).
//!
//! From the question to the answer the lock ([`State::lock`]) is the aide's, so
//! that whoever waits for copies waits for this one, too. Above all a fork: the
//! regions are kept from children meanwhile. An aide that does not answer is
//! ended, and what it had marked unmarked ([`take_back`]).

use super::regions::{Ranges, regions};
use super::{Desk, desk, handing};
use crate::arch::{self, Context, nr, thread_pointer};
use crate::normal::ending::{end_aide, forget_killed, runs};
use crate::state::{CONFIG, State, lock};
use crate::sys::{self, PAGE_SIZE, call};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use runahead_protocol::log::{Log, life};
use runahead_protocol::session::TEST_HANDS_OVER;
use runahead_protocol::stats::{Counter, Loss};

/// `CLONE_PARENT`, `CLONE_UNTRACED`; the program's child, without an exit
/// signal, as the aide is.
const CLONE_FLAGS: usize = 0x8000 | 0x0080_0000;
/// Populates page tables writable (Linux 5.14).
const MADV_POPULATE_WRITE: usize = 23;

/// Far longer than the aide takes, in ns.
const MADE_NS: u64 = 500_000_000;
/// Between two looks whether it has answered, in ns.
const LOOK_NS: u64 = 20_000;

/// Pages that are copied for the program at most, after a clone: 4 MiB.
const COPIED_PAGES_MAX: usize = 1024;
/// Entries of the page map that are read at once.
const ENTRIES: usize = 256;
/// Bits of a pagemap entry: present, and a page of a file or shared.
const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;

/// What the normal process leaves for the aide, and for the copy.
struct Handover {
    context: Context,
    log: *const Log,
    owner: usize,
    posted_ns: u64,
}

struct Shared(UnsafeCell<Handover>);

// SAFETY: used by the thread that holds the ration's lock, then, as long as the
// lock is handed over, by the aide, and by the process that it makes.
unsafe impl Sync for Shared {}

static HANDOVER: Shared = Shared(UnsafeCell::new(Handover {
    context: Context::NONE,
    log: core::ptr::null(),
    owner: 0,
    posted_ns: 0,
}));

/// Where a thread is after [`post`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The normal process: the aide has the lock.
    Normal,
    /// The copy.
    Copy,
    /// The normal process: it cannot be handed over.
    Refused,
}

/// Leaves what the aide makes a copy of this process of, as it is now, at a read
/// whose frame ends at `end`. The lock is the aide's afterwards, which is to be
/// woken ([`ask`]). The regions have been found, and not marked.
///
/// # Safety
/// The caller must hold the ration's lock, all signals blocked, be this
/// process's only thread, and not leave the hook before [`give_up`] or
/// [`await_made`].
pub unsafe fn post(state: &State, log: &'static Log, end: usize) -> Side {
    // SAFETY: the lock is held.
    let handover = unsafe { &mut *HANDOVER.0.get() };
    let Some(desk) = desk().filter(|desk| desk.life.load(Relaxed) == super::life::READY) else {
        return Side::Refused;
    };
    // The aide has the thread control block of the thread that started it.
    let refused = desk.handing.load(Relaxed) == handing::REFUSED
        || state.aide_owner.load(Relaxed) != thread_pointer();
    if refused || !handover.context.holds(end) {
        return Side::Refused;
    }
    (handover.log, handover.owner, handover.posted_ns) = (log, thread_pointer(), sys::now_ns());
    desk.handing.store(handing::POSTED, Relaxed);
    // SAFETY: it holds this stack.
    if unsafe { arch::hand_over(&mut handover.context, end) } {
        return Side::Copy;
    }
    state.lock.store(lock::HANDED, Release);
    Side::Normal
}

/// Wakes the aide for what has been posted. Just before the program's read: what
/// it stored after the clone and before the aide has copied its pages would be
/// faults.
pub fn ask(state: &State) {
    if state.lock.load(Relaxed) == lock::HANDED
        && let Some(desk) = desk()
    {
        desk.asked.fetch_add(1, Release);
        sys::futex_wake(&desk.asked);
    }
}

/// The program is about to go on: what has not been copied by now is not.
pub fn give_up(state: &'static State) {
    if state.lock.load(Relaxed) != lock::HANDED || !crate::normal::own(state) {
        return;
    }
    if CONFIG.test.load(Relaxed) & TEST_HANDS_OVER != 0 {
        await_made(state);
    } else if let Some(desk) = desk() {
        _ = desk.handing.compare_exchange(handing::POSTED, handing::GIVEN_UP, AcqRel, Relaxed);
    }
}

/// Waits until no copy is being handed over.
pub fn await_made(state: &State) {
    if state.lock.load(Acquire) != lock::HANDED || !crate::normal::own(state) {
        return;
    }
    let begun_ns = sys::now_ns();
    while state.lock.load(Acquire) == lock::HANDED {
        if let Some(desk) = desk() {
            sys::futex_wake(&desk.asked);
        }
        let passed_ns = sys::now_ns().saturating_sub(begun_ns);
        if passed_ns > MADE_NS || !runs(state.aide.load(Relaxed)) {
            return take_back(state);
        }
        sys::sleep(LOOK_NS);
    }
}

/// The aide has died, or somebody has stopped it.
#[cold]
fn take_back(state: &State) {
    if let Some(desk) = desk() {
        desk.handing.store(handing::GIVEN_UP, Relaxed);
    }
    end_aide(state);
    // SAFETY: the aide has gone, and nobody else has the lock.
    let regions = unsafe { regions() };
    regions.unmark();
    regions.forget();
    // No other: this one may have left a process that nobody knows.
    state.aide.store(-1, Relaxed);
    _ = state.lock.compare_exchange(lock::HANDED, lock::FREE, AcqRel, Relaxed);
}

/// In the aide: makes the copy that has been asked for, if one has.
pub fn make(state: &State, desk: &Desk, pagemap: usize) {
    if state.lock.load(Acquire) != lock::HANDED {
        return;
    }
    // SAFETY: the lock is the aide's.
    let (handover, regions) = unsafe { (&*HANDOVER.0.get(), regions()) };
    let child = if desk.handing.load(Relaxed) == handing::POSTED && regions.mark() {
        // SAFETY: fork-like: the child goes on where the normal process was,
        // and is all that the normal process's own child would be.
        let child = unsafe { call(nr::CLONE, &[CLONE_FLAGS, 0, 0, 0, 0]) };
        if child == 0 {
            arrive(desk, handover);
        }
        if child < 0 {
            state.disable(Loss::ProcessLimit);
        }
        child
    } else {
        -1
    };
    regions.unmark();
    let shared = *regions.copied();
    let log = handover.log;
    // SAFETY: of `fresh_log`, never unmapped.
    let log_life = unsafe { &(*log).life };
    if child > 0 && is_made(desk) {
        state.count(Counter::SyncsCompleted, 1);
        state.count(Counter::SyncsImporting, 1);
        state.owner.store(handover.owner, Relaxed);
        state.log.store(log.cast_mut(), Relaxed);
        state.speculative.store(child as i32, Release);
    } else {
        log_life.store(life::NONE, Relaxed);
        forget_killed(state, child as i32);
    }
    let took_ns = sys::now_ns().saturating_sub(handover.posted_ns);
    state.handed_ns.store(took_ns.max(1), Relaxed);
    state.lock.store(lock::FREE, Release);
    if child > 0 {
        copy_shared(pagemap, &shared);
    }
}

/// Whether the normal process has waited for the copy: whoever asks first, aide
/// or copy, notes that.
fn is_made(desk: &Desk) -> bool {
    match desk.handing.compare_exchange(handing::POSTED, handing::MADE, AcqRel, Acquire) {
        Ok(_) => true,
        Err(found) => found == handing::MADE,
    }
}

/// In the new process.
fn arrive(desk: &Desk, handover: &Handover) -> ! {
    if !is_made(desk) {
        loop {
            // SAFETY: ends this process.
            unsafe { call(nr::EXIT_GROUP, &[0]) };
        }
    }
    // SAFETY: filled in by `post`, in memory that is this process's own now; it
    // stands on the copy of the aide's stack.
    unsafe { arch::arrive(&handover.context) }
}

/// In the new process, which cannot be what the normal process's own child would
/// be.
pub fn refuse() {
    if let Some(desk) = desk() {
        desk.handing.store(handing::REFUSED, Relaxed);
    }
}

/// Makes the program's pages its own again, which the clone has made it share:
/// each store would be a fault. What it has not written is left as it is.
fn copy_shared(pagemap: usize, ranges: &Ranges) {
    let mut left = COPIED_PAGES_MAX;
    let mut entries = [0u64; ENTRIES];
    for &(start, end) in ranges.all() {
        let mut at = start;
        while at < end && left > 0 {
            let count = ((end - at) / PAGE_SIZE).min(ENTRIES);
            let Some(wanted) = entries.get_mut(..count).filter(|wanted| !wanted.is_empty()) else {
                break;
            };
            let args =
                [pagemap, wanted.as_mut_ptr() as usize, size_of_val(wanted), at / PAGE_SIZE * 8];
            // SAFETY: the kernel writes at most the slice.
            let got = unsafe { call(nr::PREAD64, &args) }.max(0) as usize / 8;
            if got == 0 {
                break;
            }
            let known = entries.get(..got).unwrap_or(&[]);
            left -= copy_runs(at, known).min(left);
            at += got * PAGE_SIZE;
        }
    }
}

/// The same of the pages from `at` on, of which these are the entries; how many.
fn copy_runs(at: usize, entries: &[u64]) -> usize {
    let mut copied = 0;
    let is_shared = |entry: &u64| entry & PRESENT != 0 && entry & OF_FILE == 0;
    let mut index = 0;
    for run in entries.chunk_by(|one, other| is_shared(one) == is_shared(other)) {
        if run.first().is_some_and(is_shared) {
            let (first, len) = (at + index * PAGE_SIZE, run.len() * PAGE_SIZE);
            // SAFETY: changes no byte, and fails where the memory is not to be
            // written.
            unsafe { call(nr::MADVISE, &[first, len, MADV_POPULATE_WRITE]) };
            copied += run.len();
        }
        index += run.len();
    }
    copied
}
