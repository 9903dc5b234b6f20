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
//! the hook before the aide is done. Where its data comes before the aide has
//! begun, the copy is given up ([`settle`]); else it waits for what is left.
//!
//! From the post to the end the lock ([`State::lock`]) is the aide's, so that
//! whoever waits for copies waits for this one, too. Above all a fork: the
//! regions are kept from children meanwhile. An aide that does not answer is
//! ended, and what it had made and marked taken back ([`take_back`]).

use super::regions::{Ranges, Regions, regions};
use super::{aide, desk};
use crate::apart;
use crate::arch::{self, Context, import_nr, nr, thread_pointer};
use crate::config::CONFIG;
use crate::normal::ending::{end_aide, end_child, runs};
use crate::state::{State, lock};
use crate::sys::{self, PAGE_SIZE, call};
use crate::{normal, procfs};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use runahead_protocol::log::{Log, life};
use runahead_protocol::session::TEST_HANDS_OVER;
use runahead_protocol::stats::{Counter, Loss};

/// `CLONE_PARENT`, `CLONE_PARENT_SETTID`, `CLONE_UNTRACED`; the program's child,
/// without an exit signal, as the aide is.
const CLONE_FLAGS: usize = 0x8000 | 0x0010_0000 | 0x0080_0000;

/// Far longer than the aide takes, in ns.
const MADE_NS: u64 = 500_000_000;
/// Between two looks whether it has answered, in ns.
const LOOK_NS: u64 = 20_000;

/// Pages that are copied for the program at most, after a clone: 4 MiB.
const COPIED_PAGES_MAX: usize = 1024;
/// Entries of the page map that are read at once, and pages copied.
const ENTRIES: usize = 64;
/// Bit of a pagemap entry: a page of a file, or shared.
const OF_FILE: u64 = 1 << 61;

/// How far a copy has come that is handed over; [`State::handing`].
mod handing {
    /// There is none.
    pub const NONE: u32 = 0;
    /// The aide has not begun.
    pub const POSTED: u32 = 1;
    /// The aide makes it.
    pub const MAKING: u32 = 2;
    /// The program waits for that.
    pub const HURRIED: u32 = 3;
}

/// What the normal process leaves for the aide, and for the copy.
struct Handover {
    context: Context,
    log: *const Log,
    posted_ns: u64,
}

struct Shared(UnsafeCell<Handover>);

// SAFETY: used by the thread that holds the ration's lock, then, as long as the
// lock is handed over, by the aide, and by the process that it makes.
unsafe impl Sync for Shared {}

static HANDOVER: Shared = Shared(UnsafeCell::new(Handover {
    context: Context::NONE,
    log: core::ptr::null(),
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
/// whose frame ends at `end`. On the stack on which copies are made ([`apart`]). The
/// lock is the aide's afterwards, which is to be woken ([`ask`]). The regions have been
/// found, and not marked.
///
/// # Safety
/// The caller must hold the ration's lock, all signals blocked, be this
/// process's only thread, and [`settle`] before it leaves the hook.
pub unsafe fn post(state: &State, log: &'static Log, end: usize) -> Side {
    // SAFETY: the lock is held.
    let handover = unsafe { &mut *HANDOVER.0.get() };
    let ready = desk().is_some_and(|desk| desk.life.load(Relaxed) == super::life::READY);
    // The aide has the thread control block of the thread that started it.
    let refused = !ready || state.aide_owner.load(Relaxed) != thread_pointer();
    let apart::Left { top, at } = apart::left();
    if refused || !handover.context.holds(top, (at, end)) {
        return Side::Refused;
    }
    (handover.log, handover.posted_ns) = (log, sys::now_ns());
    // SAFETY: it holds these stacks.
    if unsafe { arch::hand_over(&mut handover.context, top, (at, end)) } {
        return Side::Copy;
    }
    state.handed_child.store(0, Relaxed);
    state.handing.store(handing::POSTED, Relaxed);
    state.lock.store(lock::HANDED, Release);
    Side::Normal
}

/// In the copy that has arrived: the stack that it goes on with is as it was when it was
/// posted; false where it is not there.
pub fn take_up_stack() -> bool {
    // SAFETY: in the copy, which is alone.
    let context = unsafe { &(*HANDOVER.0.get()).context };
    let (at, len) = context.left();
    // What may be missing is whole pages.
    let mut last = 0u8;
    let into = core::ptr::from_mut(&mut last);
    // SAFETY: into a byte of ours.
    let there = |at: usize| unsafe { sys::copy_own(at, into, 1) };
    let is_there = len != 0 && there(at) && there(at + len - 1);
    if is_there {
        // SAFETY: private memory (`speculative::stand_alone`), of two pages at most.
        unsafe { context.restore_left() };
    }
    is_there
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

/// The program is about to go on: what the aide has not begun by now is given
/// up, and what it has is waited for.
pub fn settle(state: &State) {
    if state.lock.load(Acquire) != lock::HANDED || !normal::own(state) {
        return;
    }
    let odd = !state.epoch.load(Relaxed).is_multiple_of(2);
    let waits = CONFIG.test.load(Relaxed) & TEST_HANDS_OVER != 0 && odd;
    if !waits && advances(state, handing::POSTED, handing::NONE) {
        // SAFETY: the aide has not begun and will not: the lock is this
        // thread's again.
        let log = unsafe { (*HANDOVER.0.get()).log };
        abandon(state, log);
        state.lock.store(lock::FREE, Release);
        return;
    }
    advances(state, handing::MAKING, handing::HURRIED);
    await_made(state);
}

fn advances(state: &State, from: u32, to: u32) -> bool {
    state.handing.compare_exchange(from, to, AcqRel, Relaxed).is_ok()
}

/// There is no copy, whatever has been noted of it.
fn abandon(state: &State, log: *const Log) {
    // SAFETY: null, or of `fresh_log`, never unmapped.
    if let Some(log) = unsafe { log.as_ref() } {
        log.life.store(life::NONE, Relaxed);
    }
    state.faults_at_copy.store(0, Relaxed);
    state.cpu_at_copy_ns.store(0, Relaxed);
    state.abandoned.store(1, Relaxed);
}

/// Waits until no copy is being handed over.
pub fn await_made(state: &State) {
    if state.lock.load(Acquire) != lock::HANDED || !normal::own(state) {
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
        sys::sleep_exactly(LOOK_NS);
    }
}

/// The aide has died, or somebody has stopped it. No signal interrupts this: a
/// handler would do it again in the middle.
#[cold]
fn take_back(state: &State) {
    let mask = sys::set_signal_mask(u64::MAX);
    let lives = runs(state.aide.load(Relaxed));
    end_aide(state);
    if state.lock.load(Acquire) == lock::HANDED {
        let child = state.handed_child.swap(0, Relaxed);
        if child > 0 && child != state.speculative.load(Relaxed) {
            end_child(state, child);
        }
        // SAFETY: the aide has gone, and nobody else has the lock.
        let regions = unsafe { regions() };
        regions.unmark();
        regions.forget();
        // SAFETY: as above.
        abandon(state, unsafe { (*HANDOVER.0.get()).log });
        state.handing.store(handing::NONE, Relaxed);
        state.lock.store(lock::FREE, Release);
    }
    if lives {
        // Whoever stops one stops the next.
        state.aide.store(-1, Relaxed);
    }
    sys::set_signal_mask(mask);
}

/// In the aide of `program`: makes the copy that has been asked for, if one has.
pub fn make(state: &State, program: usize, pagemap: usize) {
    let posted = state.lock.load(Acquire) == lock::HANDED;
    if !posted || !advances(state, handing::POSTED, handing::MAKING) {
        return;
    }
    // SAFETY: the lock is the aide's.
    let (handover, regions) = unsafe { (&*HANDOVER.0.get(), regions()) };
    let log = handover.log;
    let child = if stand_beside(program) {
        clone(state, handover, regions)
    } else {
        // No more is handed over.
        state.aide_owner.store(0, Relaxed);
        -1
    };
    go_back();
    if child > 0 {
        state.count(Counter::SyncsCompleted, 1);
        state.count(Counter::SyncsImporting, 1);
        state.owner.store(state.aide_owner.load(Relaxed), Relaxed);
        state.log.store(log.cast_mut(), Relaxed);
        state.speculative.store(child as i32, Release);
        state.unasked.store(0, Relaxed);
        let took_ns = sys::now_ns().saturating_sub(handover.posted_ns);
        state.handed_ns.store(took_ns.max(1), Relaxed);
        copy_shared(state, pagemap, regions.copied());
    } else {
        abandon(state, log);
    }
    state.handing.store(handing::NONE, Relaxed);
    state.lock.store(lock::FREE, Release);
}

fn clone(state: &State, handover: &Handover, regions: &mut Regions) -> isize {
    if !regions.mark() {
        regions.forget();
        return -1;
    }
    let noted_at = state.handed_child.as_ptr() as usize;
    // SAFETY: fork-like: the child goes on where the normal process was, and is
    // all that the normal process's own child would be. Its number is noted
    // before it runs.
    let child = unsafe { call(nr::CLONE, &[CLONE_FLAGS, 0, noted_at, 0, 0]) };
    if child == 0 {
        // SAFETY: filled in by `post`, in memory that is this process's own
        // now; it stands on the copy of the aide's stack.
        unsafe { arch::arrive(&handover.context) }
    }
    regions.unmark();
    if child < 0 {
        state.disable(Loss::ProcessLimit);
    }
    child
}

/// Takes the program's working directory, for the child; false where that is
/// refused.
fn stand_beside(program: usize) -> bool {
    let (mut room, mut path) = ([0u8; 20], [0u8; 40]);
    let number = procfs::digits(program, &mut room);
    let path = procfs::path(&[b"/proc/", number, b"/cwd\0"], &mut path);
    path.is_some_and(change_directory)
}

/// A working directory keeps a file system busy.
fn go_back() {
    change_directory(b"/\0");
}

fn change_directory(path: &[u8]) -> bool {
    // SAFETY: a NUL-terminated path; concerns the aide only.
    unsafe { call(import_nr::CHDIR, &[path.as_ptr() as usize]) == 0 }
}

/// Makes the program's pages its own again, which the clone has made it share:
/// each store would be a fault. Private pages of files that it has not written
/// are left as they are. Ends when the program is waiting for it.
fn copy_shared(state: &State, pagemap: usize, ranges: &Ranges) {
    let mut left = COPIED_PAGES_MAX;
    let mut entries = [0u64; ENTRIES];
    for &(start, end) in ranges.all() {
        let mut at = start;
        while at < end && left > 0 {
            if state.handing.load(Relaxed) != handing::MAKING {
                return;
            }
            let count = ((end - at) / PAGE_SIZE).min(ENTRIES);
            let wanted = entries.get_mut(..count).unwrap_or(&mut []);
            let got = aide::entries(pagemap, at, wanted);
            if got == 0 {
                break;
            }
            left -= copy_runs(at, entries.get(..got).unwrap_or(&[])).min(left);
            at += got * PAGE_SIZE;
        }
    }
}

/// The same of the pages from `at` on, of which these are the entries; how many.
fn copy_runs(at: usize, entries: &[u64]) -> usize {
    let (mut copied, mut run) = (0, 0);
    for (index, entry) in entries.iter().chain(&[0]).enumerate() {
        if entry & aide::PRESENT != 0 && entry & OF_FILE == 0 {
            run += 1;
        } else if run > 0 {
            let first = at + (index - run) * PAGE_SIZE;
            sys::make_writable(first, first + run * PAGE_SIZE);
            (copied, run) = (copied + run, 0);
        }
    }
    copied
}
