//! Where every hooked system call arrives, from patched sites, from hooked
//! symbols and, in a speculative process, from the filter's trap.
//!
//! A forked child finds none of the agent's code in its page tables: each 64
//! KiB of it that it comes to are a fault (fault-around, Linux 3.15).
//! Most children execute a program and nothing else. So what that takes is in
//! `.text.hot.child`, which the linker puts behind what is `#[cold]`: one
//! fault for both.

use crate::arch::{Frame, nr, syscall6};
use crate::state::{State, role, state};
use crate::{normal, speculative};
use core::sync::atomic::Ordering::Relaxed;

/// Called by the hook's entry in place of a `syscall` instruction; the result
/// is what the program finds in its result register.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
pub extern "C" fn ra_hook(frame: &mut Frame) -> isize {
    match state() {
        Some(state) => match state.role.load(Relaxed) {
            role::NORMAL if !normal::is_silent() => normal::call(state, frame),
            role::SPECULATIVE => speculative::call(frame),
            role::UNKNOWN => first_call(state, frame),
            _ => plain(frame),
        },
        None => plain(frame),
    }
}

/// Called before a `syscall` instruction that the stub executes itself
/// (`clone`, `clone3`, `fork`, `vfork`).
pub extern "C" fn ra_before(frame: &mut Frame) {
    let Some(state) = state() else { return };
    if state.role.load(Relaxed) == role::UNKNOWN {
        // Before it makes a child by vfork(2), which would take this memory for its own.
        crate::start::in_child(state);
    }
    match state.role.load(Relaxed) {
        // The table parks all of these: it does not return. Were it to, the
        // filter would trap the call.
        role::SPECULATIVE => _ = speculative::call(frame),
        role::NORMAL if !normal::is_silent() => normal::before_process(state, frame),
        _ => {}
    }
}

/// Called after a close that the stub has made where a copy is, or was being made.
pub extern "C" fn ra_closed(_: &mut Frame) {
    if let Some(state) = normal_state() {
        normal::closed(state);
    }
}

/// The state of a normal process that is not switched off.
pub fn normal_state() -> Option<&'static State> {
    let is_on = |state: &State| state.role.load(Relaxed) == role::NORMAL && !normal::is_silent();
    state().filter(|state| is_on(state))
}

/// The call as the program meant it.
#[inline]
pub fn plain(frame: &Frame) -> isize {
    // SAFETY: the program's own call with its own arguments.
    unsafe { syscall6(frame.number, frame.args) }
}

/// A forked child's first call. One that executes a program may be its only one: it
/// needs nothing of what is known of descriptors, nor the table of all calls, and each
/// takes another page.
#[cold]
fn first_call(state: &'static State, frame: &mut Frame) -> isize {
    let environment_arg = match frame.number {
        nr::EXECVE => 2,
        nr::EXECVEAT => 3,
        _ => 0,
    };
    if environment_arg != 0 {
        let begun = crate::start::in_executing_child(state);
        let execute = |frame| normal::execute(state, frame, environment_arg);
        return if begun { execute(frame) } else { plain(frame) };
    }
    crate::start::in_child(state);
    if state.role.load(Relaxed) == role::NORMAL { normal::call(state, frame) } else { plain(frame) }
}
