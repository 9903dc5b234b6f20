//! The aide: a process that shares the program's memory and does for the
//! copy what locks the program's address space.
//!
//! It has the program's priority, no descriptor of the program's, blocks all
//! signals, never runs the program's code and never touches the program's
//! memory by itself: it asks the kernel to read it (process_vm_readv(2) of its
//! own process), so that memory that has gone is an error and not a fault.
//!
//! Beside it some calls of the program would find that its memory is shared
//! (`unshare`, `setns`), and its memory would outlive it: the aide is ended
//! wherever the copy is, before such calls, `execve` and the end, and the
//! kernel ends it when the program is killed (PR_SET_PDEATHSIG).

use super::look::Look;
use super::{Desk, PAGES_MAX, handover, life, make_desk, page, question, regions};
use crate::arch::{clone_shared, import_nr, nr, thread_pointer};
use crate::normal::logs;
use crate::state::State;
use crate::sys::{self, IoVec, PAGE_SIZE, call};
use core::cell::UnsafeCell;
use core::ptr::from_ref;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// `CLONE_VM`, `CLONE_FILES`, `CLONE_UNTRACED`; no exit signal.
const CLONE_FLAGS: usize = 0x100 | 0x400 | 0x0080_0000;
/// `CLOSE_RANGE_UNSHARE`.
const CLOSE_RANGE_UNSHARE: usize = 2;
const PR_SET_PDEATHSIG: usize = 1;
const SIGKILL: usize = 9;
const RLIMIT_CORE: usize = 4;
/// Of normal weight, but what it is woken for does not take the processor from
/// whoever wakes it (sched(7)): the program, which is about to wait.
const SCHED_BATCH: usize = 3;
const MADV_WILLNEED: usize = 3;

/// Longest sleep before the aide looks whether its program is still there, in
/// ns.
const LOOK_NS: u64 = 500_000_000;

/// How long it waits for the next question without sleeping, in rounds of a
/// pause instruction: about 10 µs. Falling asleep and being woken takes both
/// sides longer.
const SPIN: u32 = 200;

/// Bits of a pagemap entry (Documentation/admin-guide/mm/pagemap.rst).
pub(super) const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;

const STACK_LEN: usize = 32 * 1024;

#[repr(C, align(4096))]
struct Stack(UnsafeCell<[u8; STACK_LEN]>);

// SAFETY: used by the one aide of this process.
unsafe impl Sync for Stack {}

static STACK: Stack = Stack(UnsafeCell::new([0; STACK_LEN]));

/// Starts the aide of this process; false where that is refused. All signals
/// of the thread must be blocked.
pub fn start(state: &State) -> bool {
    let Some(desk) = make_desk() else { return false };
    desk.life.store(life::STARTING, Relaxed);
    let top = STACK.0.get() as usize + STACK_LEN;
    // SAFETY: the stack is used by no other aide: the caller has seen to it
    // that none is alive.
    let child = unsafe { clone_shared(CLONE_FLAGS, top, main, state.pid.load(Relaxed) as usize) };
    if child < 0 {
        desk.life.store(life::NONE, Relaxed);
        return false;
    }
    state.aide_owner.store(thread_pointer(), Relaxed);
    state.aide.store(child as i32, Relaxed);
    true
}

extern "C" fn main(parent: usize) -> ! {
    if let Some(desk) = super::desk()
        && let Some(pagemap) = prepare(parent, desk)
    {
        serve(parent, desk, pagemap);
    }
    loop {
        // SAFETY: ends this process, which nobody waits for.
        unsafe { call(nr::EXIT_GROUP, &[0]) };
    }
}

/// Lets go of everything of the program's but its memory; the descriptor of
/// the page map.
fn prepare(parent: usize, desk: &Desk) -> Option<usize> {
    // SAFETY: concerns this process only.
    unsafe { call(nr::PRCTL, &[PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0]) };
    // The child of a thread that has died meanwhile gets no death signal.
    // SAFETY: a query.
    if unsafe { call(nr::GETPPID, &[]) } != parent as isize {
        return None;
    }
    // SAFETY: from here on this process has an empty table of its own.
    if unsafe { call(nr::CLOSE_RANGE, &[0, u32::MAX as usize, CLOSE_RANGE_UNSHARE]) } != 0 {
        return None;
    }
    let core = [1u64; 2];
    let priority = 0u32;
    // SAFETY: each concerns this process only. A working directory keeps a
    // file system busy; a core file would have the program's memory in it, and
    // 1 byte is less than any kernel writes, to a pipe neither; a real-time
    // program's aide is not a second one.
    unsafe {
        call(import_nr::CHDIR, &[c"/".as_ptr() as usize]);
        call(nr::SETPGID, &[0, 0]);
        call(nr::PRLIMIT64, &[0, RLIMIT_CORE, core.as_ptr() as usize, 0]);
        call(nr::SCHED_SETSCHEDULER, &[0, SCHED_BATCH, from_ref(&priority) as usize]);
    }
    let pagemap = sys::open_read(b"/proc/self/pagemap\0");
    let pagemap = usize::try_from(pagemap).ok()?;
    // It may be told to end already.
    let started = (life::STARTING, life::READY);
    desk.life.compare_exchange(started.0, started.1, Release, Relaxed).ok()?;
    Some(pagemap)
}

fn serve(parent: usize, desk: &Desk, pagemap: usize) {
    let mut seen = desk.answered.load(Relaxed);
    let mut look = Look::default();
    let mut turns = 0;
    loop {
        let mut asked = desk.asked.load(Acquire);
        while asked == seen && turns < SPIN {
            core::hint::spin_loop();
            turns += 1;
            asked = desk.asked.load(Acquire);
        }
        if asked == seen {
            let state = crate::state::state();
            let due_ns = state.and_then(|state| look.due_ns(state)).unwrap_or(LOOK_NS);
            sys::futex_wait(&desk.asked, seen, due_ns.min(LOOK_NS));
            if let Some(state) = state {
                handover::make(state, parent, pagemap);
                look.where_due(state, parent);
            }
            // SAFETY: a query.
            let orphaned = unsafe { call(nr::GETPPID, &[]) } != parent as isize;
            if orphaned || desk.life.load(Relaxed) == life::ENDING {
                return;
            }
            continue;
        }
        seen = asked;
        if let Some(state) = crate::state::state() {
            handover::make(state, parent, pagemap);
        }
        let wanted = match desk.question.load(Relaxed) {
            question::PAGES => pages(desk, pagemap),
            question::PRESENT => {
                present(desk, pagemap);
                // A program that finds all of its pages comes nowhere else
                // where it could say that it still prefetches.
                if let Some(state) = crate::state::state()
                    && let Some(log) = state.log()
                {
                    logs::share(state, log, sys::now_ns());
                }
                None
            }
            _ => None,
        };
        desk.question.store(question::NONE, Relaxed);
        desk.answered.store(asked, Release);
        sys::futex_wake(&desk.answered);
        // The copy goes on while the reads are started.
        if let Some(wanted) = wanted {
            prefetch(&wanted);
        }
        if let Some(state) = crate::state::state() {
            look.where_due(state, parent);
        }
        turns = 0;
    }
}

/// Swapped pages that are to be read, as (address, length).
struct Wanted {
    runs: [(usize, usize); PAGES_MAX],
    len: usize,
}

fn prefetch(wanted: &Wanted) {
    for &(address, len) in wanted.runs.iter().take(wanted.len) {
        // SAFETY: advice: starts reading what is swapped out, changes nothing.
        unsafe { call(nr::MADVISE, &[address, len, MADV_WILLNEED]) };
    }
}

/// Reads entries of the page map, from that of `address` on; how many.
pub(super) fn entries(pagemap: usize, address: usize, entries: &mut [u64]) -> usize {
    let (at, len) = (entries.as_mut_ptr() as usize, size_of_val(entries));
    // SAFETY: the kernel writes at most the slice.
    let got = unsafe { call(nr::PREAD64, &[pagemap, at, len, address / PAGE_SIZE * 8]) };
    sys::count_own_read(got).max(0) as usize / 8
}

/// Says what the pages asked about are, and brings the bytes of those in
/// memory onto the desk. Returns which to prefetch.
fn pages(desk: &Desk, pagemap: usize) -> Option<Wanted> {
    let address = desk.address.load(Relaxed) as usize & !(PAGE_SIZE - 1);
    let count = (desk.count.load(Relaxed) as usize).min(PAGES_MAX);
    let from = desk.prefetch_from.load(Relaxed) as usize;
    let to = desk.prefetch_to.load(Relaxed) as usize;
    let unknown = |desk: &Desk| {
        desk.pages.iter().take(count).for_each(|state| state.store(page::UNKNOWN, Relaxed));
    };
    // The copy's words are noise at times.
    if !regions::holds(address, address.saturating_add(count * PAGE_SIZE)) {
        unknown(desk);
        return None;
    }
    let mut map = [0u64; PAGES_MAX];
    let map = map.get_mut(..count)?;
    if entries(pagemap, address, map) < count {
        unknown(desk);
        return None;
    }
    // What has been read into the swap cache can be had without a wait.
    let mut cached = [0u8; PAGES_MAX];
    if map.iter().any(|entry| entry & SWAPPED != 0) {
        let args = [address, count * PAGE_SIZE, cached.as_mut_ptr() as usize];
        // SAFETY: the kernel writes one byte for each page.
        unsafe { call(import_nr::MINCORE, &args) };
    }
    let mut wanted = Wanted { runs: [(0, 0); PAGES_MAX], len: 0 };
    let mut vectors = [IoVec { base: 0, len: 0 }; PAGES_MAX];
    let mut own = [IoVec { base: 0, len: 0 }; PAGES_MAX];
    let mut brought = 0usize;
    for (index, entry) in map.iter().enumerate() {
        let at = address + index * PAGE_SIZE;
        let there = entry & PRESENT != 0 || cached.get(index).is_some_and(|byte| byte & 1 != 0);
        let state = if there {
            if let (Some(remote), Some(local)) = (vectors.get_mut(brought), own.get_mut(brought)) {
                *remote = IoVec { base: at, len: PAGE_SIZE };
                *local = IoVec { base: desk.data(index), len: PAGE_SIZE };
                brought += 1;
            }
            page::IMPORTED
        } else if entry & SWAPPED != 0 {
            if (from..to).contains(&index) {
                let continues = wanted.len.checked_sub(1).and_then(|last| {
                    wanted.runs.get_mut(last).filter(|(start, len)| start + len == at)
                });
                if let Some((_, len)) = continues {
                    *len += PAGE_SIZE;
                } else if let Some(slot) = wanted.runs.get_mut(wanted.len) {
                    *slot = (at, PAGE_SIZE);
                    wanted.len += 1;
                }
            }
            page::SWAPPED
        } else {
            page::UNTOUCHED
        };
        if let Some(cell) = desk.pages.get(index) {
            cell.store(state, Relaxed);
        }
    }
    if brought > 0 {
        import(desk, count, brought, &own, &vectors);
    }
    Some(wanted)
}

/// Copies pages of the program's memory onto the desk; those that are gone by
/// now are unknown.
fn import(
    desk: &Desk,
    count: usize,
    brought: usize,
    own: &[IoVec; PAGES_MAX],
    vectors: &[IoVec; PAGES_MAX],
) {
    let (own, vectors) = (own.as_ptr() as usize, vectors.as_ptr() as usize);
    let pid = sys::getpid() as usize;
    // SAFETY: reads memory that this process shares, writes the desk's data.
    let got =
        unsafe { call(import_nr::PROCESS_VM_READV, &[pid, own, brought, vectors, brought, 0]) };
    let mut whole = got.max(0) as usize / PAGE_SIZE;
    for state in desk.pages.iter().take(count) {
        if state.load(Relaxed) == page::IMPORTED {
            if whole == 0 {
                state.store(page::UNKNOWN, Relaxed);
            } else {
                whole -= 1;
            }
        }
    }
}

/// Says which of the addresses are in memory.
fn present(desk: &Desk, pagemap: usize) {
    let count = (desk.count.load(Relaxed) as usize).min(super::ADDRESSES_MAX);
    for (address, present) in desk.addresses.iter().zip(&desk.present).take(count) {
        let mut entry = [0u64];
        let known = entries(pagemap, address.load(Relaxed) as usize, &mut entry) == 1;
        let [entry] = entry;
        present.store(u8::from(known && entry & PRESENT != 0), Relaxed);
    }
}
