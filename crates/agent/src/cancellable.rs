//! Calls that may wait, by threads, of glibc 2.41 and later. They are made by
//! `__syscall_cancel_arch`, which must not be patched: the handler that cancels a thread
//! asks whether that is among its instructions. So what calls it is redirected
//! ([`redirect`]) to a thunk of [`crate::interpose`]: reads of regular files go to the hook,
//! as those of a program of one thread do. Everything else goes on to the function, which
//! stays the cancellation point that it is.

use crate::arch::{Branch, Frame, Interposed, lead, leading_to, target_of, thunk_address};
use crate::hook::{normal_state, ra_hook};
use crate::interpose::{self, CANCELLABLE, Next};
use crate::normal::{self, cancellable};
use crate::state::{State, role};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;
use runahead_protocol::sites::{CANCELLABLE_MAX, JUMP_LEN};

/// Where the redirected branches are; 0: none.
static BRANCHES: [AtomicUsize; CANCELLABLE_MAX] = [const { AtomicUsize::new(0) }; CANCELLABLE_MAX];

/// Has the branch at `at`, whose bytes are `branch`, lead to the thunk. False, with nothing
/// changed, where that is too far, there are too many, or another one led elsewhere.
///
/// # Safety
/// The branch must be in writable code that no other thread executes.
pub unsafe fn redirect(at: usize, branch: Branch) -> bool {
    let Some(redirected) = leading_to(at, branch, thunk_address(CANCELLABLE)) else { return false };
    let Some(free) = BRANCHES.iter().find(|cell| cell.load(Relaxed) == 0) else { return false };
    if !interpose::cancellable(target_of(at, branch)) {
        return false;
    }
    free.store(at, Relaxed);
    // SAFETY: as the caller promises.
    unsafe { lead(at, redirected, true) }
}

/// Has the branches lead where they did. One that somebody else has changed since stays as
/// it is, and so does one that cannot be written whole, unless this thread is `alone`. `open`
/// makes so many bytes at an address writable, or says that it cannot.
#[cold]
pub fn undo(alone: bool, mut open: impl FnMut(usize, usize) -> bool) {
    let places = BRANCHES.iter().map(|cell| cell.load(Relaxed)).filter(|&at| at != 0);
    for at in places {
        // SAFETY: in a library that is loaded; it is text, and readable.
        let found = unsafe { *(at as *const Branch) };
        let is_ours = target_of(at, found) == thunk_address(CANCELLABLE);
        if let Some(original) = leading_to(at, found, interpose::original(CANCELLABLE))
            && is_ours
            && open(at, JUMP_LEN)
        {
            // SAFETY: opened; its opcode stays, and both ways lead to the function.
            unsafe { lead(at, original, alone) };
        }
    }
}

/// A call of `__syscall_cancel_arch (cancelhandling, number, a1, ..., a6)`.
fn system_call(call: &Interposed) -> (usize, [usize; 6]) {
    let [_, number, a1, a2, a3, a4] = call.args;
    // SAFETY: of a call of this function, which has eight arguments.
    let [a5, a6] = unsafe { call.more() };
    (number, [a1, a2, a3, a4, a5, a6])
}

/// What is done about a call.
pub fn route(state: &'static State, call: &Interposed) -> Next {
    let (number, args) = system_call(call);
    match state.role.load(Relaxed) {
        role::SPECULATIVE => Next::Through,
        role::NORMAL if !normal::is_silent() => cancellable::before(state, number, args),
        _ => Next::Original,
    }
}

/// The call, as the hook makes it; the result is the kernel's.
pub fn through(call: &Interposed) -> isize {
    let (number, args) = system_call(call);
    ra_hook(&mut Frame { number, args, resume: 0 })
}

/// After a call that the function has made.
pub fn after(call: &Interposed, result: isize) {
    let (number, _) = system_call(call);
    if let Some(state) = normal_state() {
        cancellable::after(state, number, result);
    }
}
