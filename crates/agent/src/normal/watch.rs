//! Notice of page faults where perf events are forbidden: the aide watches the
//! program wait ([`crate::import::look`]), and the thread comes back from its
//! fault by way of [`ra_waited`], which is no signal ([`crate::arch::Redirect`]).
//!
//! Not by a signal from outside, nor by a timer on the thread's processor time,
//! whose signal is sent when the thread returns to user mode anyway: a system
//! call that a stop (SIGSTOP, a frozen cgroup) has ended for the moment is not
//! made again by the kernel where a handler runs, but fails with `EINTR`.
//!
//! Only of a process's first thread: the memory that the aide writes to is
//! never freed then.

use super::{faults, own, synchronise};
use crate::arch::{self, Registers, nr, thread_pointer};
use crate::config::CONFIG;
use crate::import::desk;
use crate::procfs;
use crate::state::{State, role, state, watched};
use crate::sys::{self, call};
use crate::usage;
use core::sync::atomic::Ordering::Relaxed;
use runahead_protocol::session::Mode;
use runahead_protocol::stats::Counter;

/// `prctl(PR_SET_PTRACER)` (Yama): who may look at this process.
pub const PR_SET_PTRACER: usize = 0x5961_6d61;

/// Times that the aide is made again after calls beside which it may not live: a
/// program that makes many (a debugger's `wait4(__WALL)`) is watched no more.
const RESTARTS_MAX: u32 = 16;

/// Looks that led to nothing before they become fewer, by the factor 8 each
/// time, and at most twice.
const IDLE_WAITS: u32 = 64;
const SLOWER_STEP: u32 = 3;
const SLOWER_MAX: u32 = 6;

/// Where the registered area is looked for, in bytes from the thread pointer:
/// in glibc's thread descriptor, or the block below it (since 2.41).
const AREA_FIRST: isize = -8192;
const AREA_END: isize = 8192;
const AREA_ALIGNMENT: usize = 32;

/// This thread's faults are to be noticed; false where that cannot be.
#[cold]
pub fn begin(state: &'static State) -> bool {
    if state.watch.load(Relaxed) == watched::REFUSED
        || CONFIG.mode.load(Relaxed) != Mode::Speculate as u32
    {
        return false;
    }
    if thread_pointer() != CONFIG.first_thread.load(Relaxed) {
        // The first thread may come here yet.
        return true;
    }
    let Some(area) = registered_area() else {
        state.watch.store(watched::REFUSED, Relaxed);
        return false;
    };
    state.watch_area.store(area, Relaxed);
    state.watch_majors.store(usage::of_thread().major_faults, Relaxed);
    state.watch_idle.store(0, Relaxed);
    state.watch_slower.store(0, Relaxed);
    state.noticed_ns.store(sys::now_ns(), Relaxed);
    state.noticed_cpu_ns.store(sys::thread_cpu_ns(), Relaxed);
    arch::allow(true);
    state.watch.store(watched::YES, Relaxed);
    again(state);
    true
}

/// Sees to it that the aide is there: it may have been ended for a while.
#[cold]
pub fn again(state: &'static State) {
    if state.watch.load(Relaxed) != watched::YES || state.disabled.load(Relaxed) != 0 {
        return;
    }
    if state.aide.load(Relaxed) == 0 && state.watch_starts.fetch_add(1, Relaxed) > RESTARTS_MAX {
        end(state);
        return;
    }
    let aide = synchronise::start_aide(state);
    if aide > 0 && CONFIG.says_tracer.load(Relaxed) == 0 && yama_restricts() {
        // SAFETY: concerns who may look at this process only.
        unsafe { call(nr::PRCTL, &[PR_SET_PTRACER, aide as usize, 0, 0, 0]) };
    }
    if let Some(desk) = desk().filter(|_| aide > 0) {
        sys::futex_wake(&desk.asked);
    }
}

/// Whether only a process's ancestors, and whom it allows, may look at it.
fn yama_restricts() -> bool {
    let mut text = [0u8; 4];
    procfs::read(b"/proc/sys/kernel/yama/ptrace_scope\0", &mut text)
        .is_some_and(|text| text.first() == Some(&b'1'))
}

/// No more: from here on nothing is done where a thread still comes back.
pub fn end(state: &State) {
    if state.watch.swap(watched::REFUSED, Relaxed) == watched::YES {
        arch::allow(false);
    }
}

/// The area that the C library has registered for this thread. The kernel is
/// asked: with another signature than the registered one, the request to take
/// an area back is refused with `EPERM` where it is this area, with `EINVAL`
/// where it is not, and does nothing in either case.
#[cold]
fn registered_area() -> Option<usize> {
    const TAKE_BACK: usize = 1;
    const EBUSY: isize = -16;
    const LENGTHS: [usize; 2] = [32, 64];
    let ask = |area: usize, len: usize, flags: usize, signature: u32| {
        // SAFETY: a request that is refused.
        unsafe { call(nr::RSEQ, &[area, len, flags, signature as usize]) }
    };
    let first = thread_pointer().wrapping_add_signed(AREA_FIRST) & !(AREA_ALIGNMENT - 1);
    let end = thread_pointer().wrapping_add_signed(AREA_END);
    for len in LENGTHS {
        for area in (first..end).step_by(AREA_ALIGNMENT) {
            if ask(area, len, TAKE_BACK, !arch::SIGNATURE) == sys::EPERM {
                let ours = ask(area, len, 0, arch::SIGNATURE) == EBUSY;
                return ours.then_some(area);
            }
        }
    }
    None
}

/// The first thread comes back from a fault in which it has waited, at
/// redirect number `index`, on a stack of the agent's, all signals blocked.
/// Returns 1 in the copy that may be made here, else 0.
///
/// # Safety
/// For the stubs of [`crate::arch::Redirect`] only.
pub unsafe extern "C" fn ra_waited(registers: *const Registers, index: usize) -> usize {
    let Some(state) = state().filter(|state| state.role.load(Relaxed) == role::NORMAL) else {
        return 0;
    };
    if state.watch.load(Relaxed) != watched::YES || !own(state) {
        return 0;
    }
    let Some(redirect) = arch::numbered(index) else { return 0 };
    let majors = usage::of_thread().major_faults;
    let waits = majors.wrapping_sub(state.watch_majors.swap(majors, Relaxed));
    if waits == 0 {
        return 0;
    }
    // SAFETY: the stub passes its registers, which lie on the agent's stack.
    let registers = unsafe { &*registers };
    let accessed = arch::accessed(redirect.instruction(), &redirect.bytes(), registers);
    let address = accessed.into_iter().find(|&address| super::areas::is_watched(state, address));
    state.count(Counter::FaultNotices, 1);
    state.count(Counter::FaultNoticesWatched, 1);
    let [_, _, _, _, stack, ..] = *registers;
    let waited = faults::Waited {
        address,
        faults: u32::try_from(waits).unwrap_or(u32::MAX),
        blamed: u32::try_from(waits).unwrap_or(u32::MAX),
        mask: redirect.mask(),
        live: stack,
        ucontext: None,
        longest_ns: longest_ns(state),
    };
    if address.is_some() || is_unknown(accessed) {
        _ = faults::at_fault(state, &waited);
    }
    if state.role.load(Relaxed) == role::SPECULATIVE {
        return 1;
    }
    pace(state);
    0
}

/// How long the wait may have been of which a look has seen the end: once more
/// what has passed since, but for waits that the look before would have seen.
fn longest_ns(state: &State) -> u64 {
    let seen_ns = sys::now_ns().saturating_sub(state.watch_seen_ns.load(Relaxed));
    seen_ns.saturating_add(seen_ns.min(state.watch_gap_ns.load(Relaxed)))
}

/// Whether nobody can say what the instruction accesses.
fn is_unknown(accessed: [usize; 2]) -> bool {
    accessed == [0; 2]
}

/// Fewer looks where they lead to nothing, as with notices
/// (`notice::pace`).
fn pace(state: &State) {
    if state.copy_lives() {
        state.watch_idle.store(0, Relaxed);
        state.watch_slower.store(0, Relaxed);
        return;
    }
    let idle = state.watch_idle.load(Relaxed) + 1;
    let is_enough = idle >= IDLE_WAITS;
    state.watch_idle.store(if is_enough { 0 } else { idle }, Relaxed);
    if is_enough {
        let slower = state.watch_slower.load(Relaxed) + SLOWER_STEP;
        state.watch_slower.store(slower.min(SLOWER_MAX), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C library of these tests registers one (glibc 2.35), and asking has
    /// not taken it back.
    #[test]
    fn the_registered_area_is_found_and_stays() {
        let area = registered_area();
        assert_eq!(area, registered_area());
        let Some(area) = area else { return };
        let offset = area.wrapping_sub(thread_pointer());
        // cpu_id, which the kernel keeps up to date in a registered area.
        // SAFETY: the area's second word.
        let cpu = unsafe { ((area + 4) as *const u32).read_volatile() };
        assert!(cpu < 1 << 16, "{cpu}");
        let elsewhere = std::thread::spawn(move || {
            registered_area().map(|area| area.wrapping_sub(thread_pointer()))
        });
        assert_eq!(elsewhere.join().unwrap(), Some(offset), "the same in each thread");
    }
}
