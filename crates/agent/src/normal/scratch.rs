//! Memory in which a child by vfork(2) puts together what it executes a program
//! with. Its stack may be small and lie inside its parent's, and what it maps its
//! parent keeps when it has gone. So it is memory of the agent's room
//! ([`crate::arena`]), which one child after another has. A thread of the process's own
//! that has more of it to do than its stack is used for has such memory, too.

use crate::arena::{self, SCRATCH_LEN};
use crate::lease::Lease;
use crate::state::{SCRATCHES_MAX, State};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The most that there are for one.
pub const WORDS_MAX: usize = SCRATCH_LEN / size_of::<usize>();

/// Memory that one child at a time has.
#[derive(Debug)]
pub struct Scratch(Lease);

/// What `action` comes to with so many words, of any content; `None` where they are
/// not to be had.
#[cold]
pub fn with<R>(state: &State, words: usize, action: impl FnOnce(&mut [usize]) -> R) -> Option<R> {
    if words > WORDS_MAX {
        return None;
    }
    let mut scratches = state.scratches.iter().enumerate();
    let (number, Scratch(lease)) = scratches.find(|(_, free)| free.0.take())?;
    // SAFETY: nobody else's now.
    let result = unsafe { slice(number, words) }.map(action);
    // Only what goes on in this memory comes here.
    lease.give_back();
    result
}

/// The same for a thread of the process's own. One that leaves by `longjmp` keeps it, and
/// the others do without.
#[cold]
pub fn with_own<R>(
    state: &State,
    words: usize,
    action: impl FnOnce(&mut [usize]) -> R,
) -> Option<R> {
    if words > WORDS_MAX {
        return None;
    }
    state.executes.compare_exchange(0, 1, Acquire, Relaxed).ok()?;
    // SAFETY: as above.
    let result = unsafe { slice(SCRATCHES_MAX, words) }.map(action);
    // Only a failed exec comes here.
    state.executes.store(0, Release);
    result
}

/// So many words of memory number `number`, [`WORDS_MAX`] at most.
///
/// # Safety
/// Nobody else may use it.
unsafe fn slice<'a>(number: usize, words: usize) -> Option<&'a mut [usize]> {
    let at = arena::scratch(number)? as *mut usize;
    // SAFETY: page-aligned memory of this length, of any content; the caller's alone.
    Some(unsafe { core::slice::from_raw_parts_mut(at, words.min(WORDS_MAX)) })
}
