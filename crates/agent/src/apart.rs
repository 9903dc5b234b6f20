//! Stacks of the agent's, for what is done at a stall: each for one thread at a time.
//!
//! What the program waits on may be any memory: a coroutine's few KiB, with somebody
//! else's data right below; memory that other processes share, where a copy would
//! write on the stack that the program goes on with; memory that a child does not get
//! (`MADV_DONTFORK`). So nothing that is deep runs there, and a copy touches nothing of
//! it before it knows that it has one of its own ([`crate::speculative::stand_alone`]).
//!
//! No signal comes meanwhile: a handler would run here, and may leave by `longjmp`.

use crate::arch::{left_at, on_stack, stack_pointer};
use crate::state::{State, role};
use crate::sys;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Threads that are at a stall at once, some 50 us each; more read as if they were not.
pub const STACKS_MAX: usize = 4;

/// In bytes; what is used of it is some 6 KiB.
const STACK_LEN: usize = 16 * 1024;

#[repr(C, align(4096))]
struct Stacks(UnsafeCell<[[u8; STACK_LEN]; STACKS_MAX]>);

// SAFETY: each is used by the thread that has taken it in the process's state, and by
// the copy that it makes.
unsafe impl Sync for Stacks {}

static STACKS: Stacks = Stacks(UnsafeCell::new([[0; STACK_LEN]; STACKS_MAX]));

/// The signal mask of the thread that has left its own.
static MASKS: [AtomicU64; STACKS_MAX] = [const { AtomicU64::new(0) }; STACKS_MAX];

fn top_of(number: usize) -> usize {
    STACKS.0.get() as usize + (number + 1) * STACK_LEN
}

/// The number of the one that the thread is on.
#[inline]
fn current() -> Option<usize> {
    let number = stack_pointer().wrapping_sub(STACKS.0.get() as usize) / STACK_LEN;
    (number < STACKS_MAX).then_some(number)
}

/// Runs `action` on one, or where it is if it is on one; what it comes to. `None` where
/// none is free. It returns in a copy that is made meanwhile, too, on a stack that is the
/// copy's own.
#[inline]
pub fn run<A: FnOnce() -> R, R>(state: &State, action: A) -> Option<R> {
    if current().is_some() {
        return Some(action());
    }
    let mask = sys::set_signal_mask(u64::MAX);
    let free = |taken: &core::sync::atomic::AtomicU32| {
        taken.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    };
    let taken = state.apart.iter().position(free);
    let result = taken.and_then(|number| {
        if let Some(kept) = MASKS.get(number) {
            kept.store(mask, Relaxed);
        }
        // SAFETY: this thread's alone now, without a signal.
        let result = unsafe { run_on(top_of(number), action) };
        if let Some(taken) = state.apart.get(number) {
            taken.store(0, Release);
        }
        result
    });
    // A speculative process made meanwhile keeps its own mask.
    if state.role.load(Relaxed) != role::SPECULATIVE {
        sys::set_signal_mask(mask);
    }
    result
}

/// # Safety
/// That of [`on_stack`].
unsafe fn run_on<A: FnOnce() -> R, R>(top: usize, action: A) -> Option<R> {
    struct Task<A, R> {
        action: Option<A>,
        result: Option<R>,
    }

    extern "C" fn go<A: FnOnce() -> R, R>(task: usize) -> isize {
        // SAFETY: `run_on` passes a Task that lives through the call.
        let task = unsafe { &mut *(task as *mut Task<A, R>) };
        // First of all onto this stack.
        if let Some(action) = task.action.take() {
            task.result = Some(action());
        }
        0
    }

    let mut task = Task { action: Some(action), result: None };
    // SAFETY: the caller's.
    unsafe { on_stack(top, go::<A, R>, core::ptr::from_mut(&mut task) as usize) };
    task.result
}

/// Where the stack of the thread that calls ends, and that on which it goes on when
/// it is done here: the one that it has left.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// Where the one that it is on ends; 0: it has left none.
    pub top: usize,
    /// Where the one that it has left ends.
    pub at: usize,
}

impl Left {
    /// Where it goes on there: a return address, of which nothing changes meanwhile.
    pub fn returns_at(self) -> usize {
        self.at + size_of::<usize>()
    }
}

/// What the thread that calls has left.
pub fn left() -> Left {
    match current().map(top_of) {
        // SAFETY: it is on that one.
        Some(top) => Left { top, at: unsafe { left_at(top) } },
        None => Left { top: 0, at: stack_pointer() },
    }
}

/// The signal mask with which it has left that; `None`: it has not.
#[inline]
pub fn mask() -> Option<u64> {
    current().and_then(|number| Some(MASKS.get(number)?.load(Relaxed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_apart_knows_where_it_came_from() {
        let state = crate::state::zeroed();
        let words = core::hint::black_box([1u64, 2]);
        let here = core::ptr::from_ref(&words) as usize;
        assert_eq!((left().top, mask()), (0, None));
        let apart = run(&state, || {
            let (inside, left) = (stack_pointer(), left());
            let nested = run(&state, || left.top == super::left().top);
            assert!(nested == Some(true) && mask().is_some());
            assert!(inside < left.top && left.top - inside < STACK_LEN);
            assert!(left.at < here && here - left.at < 4096, "{here:#x} lies above {left:?}");
            words.iter().sum::<u64>()
        });
        assert_eq!((apart, left().top), (Some(3), 0));
    }

    #[test]
    fn with_none_free_it_is_left_out() {
        let state = crate::state::zeroed();
        state.apart.iter().for_each(|taken| taken.store(1, Relaxed));
        assert_eq!(run(&state, || ()), None);
        state.apart[2].store(0, Relaxed);
        assert_eq!(run(&state, || left().top), Some(top_of(2)));
        assert_eq!(state.apart[2].load(Relaxed), 0);
    }
}
