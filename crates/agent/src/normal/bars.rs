//! Calls beside which no copy may live: until one returns, no thread makes one.
//!
//! A call may never return: a signal's handler leaves a wait by `siglongjmp`, or
//! its thread is cancelled there. That it has been left shows in three ways:
//!
//! * A read stalls right above it on its stack ([`left_below`]).
//! * Its thread has ended.
//! * It leaves a mark on its stack, and whoever is about to make a copy looks
//!   whether that is still there. What is called later from as deep, or a signal,
//!   overwrites it. While the call lasts nobody does, whatever else its thread runs
//!   meanwhile, on whichever stack.

use crate::arch::Frame;
use crate::state::State;
use crate::sys::{self, IoVec, call};
use core::ptr::from_ref;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use runahead_emulate::arch::nr as all_nr;

/// Calls at once of which it is known when they have been left.
pub const BARS_MAX: usize = 8;

/// A read that stalls has used more stack than this below it, in bytes, when it was asked
/// about (`reads::asked`): what lies so near is on the same stack.
const NEAR_BYTES: usize = 1024;

/// Words of a mark without the last: few frames have a gap as large that is never written.
const MARK_LEN: usize = 8;

/// Low bits of a bar, which tell apart calls that have their marks at one address.
const NUMBER_BITS: u32 = 16;

/// What a call leaves on its stack: its bar, again and again, and its thread.
#[derive(Default)]
#[repr(C)]
struct Mark {
    bars: [AtomicU64; MARK_LEN],
    tid: AtomicU64,
}

/// Runs `action`, a call and the end of what lives before it, while no thread
/// makes a copy.
#[inline]
pub fn within<R>(state: &State, action: impl FnOnce() -> R) -> R {
    let mark = Mark::default();
    let bar = raise(state, &mark);
    let result = action();
    lower(state, bar);
    // Until here the mark is nobody else's.
    core::hint::black_box(&mark);
    result
}

/// No thread makes a copy any more; what lives is to be ended next.
pub fn for_good(state: &State) {
    state.barred.fetch_add(1, SeqCst);
}

/// The bar; 0: there are too many, and this one is only counted.
#[inline]
fn raise(state: &State, mark: &Mark) -> u64 {
    let number = u64::from(state.bars_raised.fetch_add(1, Relaxed)) % (1 << NUMBER_BITS);
    let bar = (from_ref(mark) as u64) << NUMBER_BITS | number;
    mark.bars.iter().for_each(|word| word.store(bar, Relaxed));
    mark.tid.store(sys::gettid().into(), Relaxed);
    let free = |cell: &AtomicU64| cell.compare_exchange(0, bar, SeqCst, Relaxed).is_ok();
    if address(bar) == from_ref(mark) as usize && state.bars.iter().any(free) {
        return bar;
    }
    for_good(state);
    0
}

#[inline]
fn lower(state: &State, bar: u64) {
    if bar == 0 {
        state.barred.fetch_sub(1, SeqCst);
    } else {
        take_back(state, bar);
    }
}

fn take_back(state: &State, bar: u64) {
    let its = |cell: &AtomicU64| cell.compare_exchange(bar, 0, SeqCst, Relaxed).is_ok();
    state.bars.iter().any(its);
}

/// Where a bar's mark is.
fn address(bar: u64) -> usize {
    (bar >> NUMBER_BITS) as usize
}

/// Whether a call is being made beside which no copy may live.
pub fn are_up(state: &State) -> bool {
    let is_up = |cell: &AtomicU64| {
        let bar = cell.load(SeqCst);
        if bar != 0 && was_left(bar) {
            take_back(state, bar);
            return false;
        }
        bar != 0
    };
    // All are looked at: each that was left makes room.
    state.bars.iter().filter(|cell| is_up(cell)).count() != 0 || state.barred.load(SeqCst) != 0
}

/// A read with this frame stalls: calls that lie right below it have been left.
/// Where a handler reads inside of one, on a stack of its own or the same, it lies
/// elsewhere.
pub fn left_below(state: &State, frame: &Frame) {
    let at = from_ref(frame) as usize;
    for cell in &state.bars {
        let bar = cell.load(Relaxed);
        if at.wrapping_sub(address(bar)) < NEAR_BYTES {
            take_back(state, bar);
        }
    }
}

/// Whether a call's mark is gone, or its stack or thread is.
fn was_left(bar: u64) -> bool {
    const EFAULT: isize = -14;
    const ESRCH: isize = -3;
    let found = Mark::default();
    let pid = sys::getpid() as usize;
    let local = IoVec { base: from_ref(&found) as usize, len: size_of::<Mark>() };
    let remote = IoVec { base: address(bar), len: size_of::<Mark>() };
    let [into, from] = [from_ref(&local) as usize, from_ref(&remote) as usize];
    // SAFETY: fills `found`, or fails where that memory is not there any more.
    match unsafe { call(all_nr::PROCESS_VM_READV, &[pid, into, 1, from, 1, 0]) } {
        EFAULT => return true,
        // Nobody tells.
        ..=0 => return false,
        _ => {}
    }
    let tid = found.tid.load(Relaxed) as usize;
    // SAFETY: sends no signal.
    found.bars.iter().any(|word| word.load(Relaxed) != bar)
        || unsafe { call(all_nr::TGKILL, &[pid, tid, 0]) } == ESRCH
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::nr;

    #[test]
    fn a_call_bars_copies_until_it_returns_or_is_left() {
        let state = crate::state::zeroed();
        let inner = || within(&state, || are_up(&state));
        assert!(within(&state, || are_up(&state) && inner() && are_up(&state)));
        assert!(!are_up(&state));
        // Left: what was there is overwritten.
        let mark = Mark::default();
        let first = raise(&state, &mark);
        assert!(are_up(&state) && are_up(&state));
        mark.bars[MARK_LEN - 1].store(0, Relaxed);
        assert!(inner() && !are_up(&state));
        // Another call has its own at the same place.
        let second = raise(&state, &mark);
        let third = raise(&state, &mark);
        assert!(first != second && second != third && are_up(&state));
        assert_eq!(state.bars.iter().filter(|bar| bar.load(Relaxed) != 0).count(), 1);
        lower(&state, third);
        assert!(!are_up(&state));
    }

    #[test]
    fn a_stall_right_above_a_call_shows_that_it_was_left() {
        #[repr(C)]
        struct Stack {
            handler: Frame,
            mark: Mark,
            near: Frame,
            between: [u8; NEAR_BYTES],
            far: Frame,
        }
        let state = crate::state::zeroed();
        // SAFETY: all-zero is a valid one of each.
        let stack: Stack = unsafe { core::mem::zeroed() };
        assert!(raise(&state, &stack.mark) != 0);
        left_below(&state, &stack.handler);
        left_below(&state, &stack.far);
        assert!(are_up(&state));
        left_below(&state, &stack.near);
        assert!(!are_up(&state));
    }

    #[test]
    fn a_stack_that_is_gone_bars_nothing() {
        let state = crate::state::zeroed();
        let stack = sys::map_anonymous(sys::PAGE_SIZE, sys::MAP_PRIVATE);
        // SAFETY: fresh memory that nobody else uses, of which any bytes are a Mark.
        let bar = raise(&state, unsafe { &*(stack as *const Mark) });
        assert!(bar != 0 && are_up(&state));
        // SAFETY: the memory from above.
        unsafe { call(nr::MUNMAP, &[stack, sys::PAGE_SIZE]) };
        assert!(!are_up(&state));
    }

    #[test]
    fn a_thread_that_has_ended_bars_nothing() {
        let state = crate::state::zeroed();
        let mark = Mark::default();
        let places = [from_ref(&*state) as usize, from_ref(&mark) as usize];
        let thread = std::thread::spawn(move || {
            let [state, mark] = places;
            // SAFETY: both outlive the thread, which is waited for.
            let (state, mark) = unsafe { (&*(state as *const State), &*(mark as *const Mark)) };
            assert!(raise(state, mark) != 0 && are_up(state));
        });
        thread.join().unwrap();
        // The kernel tells who waits for a thread just before it is gone.
        let task = std::format!("/proc/self/task/{}", mark.tid.load(Relaxed));
        while std::path::Path::new(&task).exists() {
            std::thread::yield_now();
        }
        assert!(!are_up(&state));
    }

    #[test]
    fn those_for_which_there_is_no_room_count() {
        let state = crate::state::zeroed();
        let marks: [Mark; BARS_MAX + 1] = Default::default();
        let bars = marks.each_ref().map(|mark| raise(&state, mark));
        assert_eq!(bars[BARS_MAX], 0);
        for bar in bars {
            assert!(are_up(&state));
            lower(&state, bar);
        }
        assert!(!are_up(&state));
    }
}
