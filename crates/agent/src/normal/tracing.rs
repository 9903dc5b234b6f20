//! What a traced process executes is executed without the agent: its tracer would see our
//! calls (strace(1)), and may end it for one (a sandbox by ptrace(2)).
//!
//! The kernel tells that a process is traced in a text of /proc that takes 6 µs, a hundredth
//! of what an execution takes. So it is asked only where something says that it may be so:
//! a call by which this process or a parent has traced or was traced, or a note by who
//! traces it, in the table that processes of one user share.

use super::{learnt, own};
use crate::config::CONFIG;
use crate::state::State;
use crate::status;
use crate::sys;
use core::sync::atomic::Ordering::Relaxed;
use runahead_protocol::session::TEST_ALLOW_TRACER;

const PTRACE_ATTACH: usize = 16;
const PTRACE_SEIZE: usize = 0x4206;

/// Before a ptrace(2) with these first arguments.
#[cold]
pub fn before_ptrace(state: &State, request: usize, pid: usize) {
    // Who is about to trace its child may have made it before.
    if matches!(request, PTRACE_ATTACH | PTRACE_SEIZE)
        && let Some(table) = learnt::table(state)
    {
        table.traced(pid as u32);
    }
    CONFIG.traces.store(1, Relaxed);
}

/// Whether this process, which is about to execute a program, is traced.
#[inline]
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
pub fn is_traced(state: &State) -> bool {
    // One that no parent has mapped is not mapped for this.
    let table = || (!CONFIG.table.load(Relaxed).is_null()).then(|| learnt::table(state)).flatten();
    let is_noted = || table().is_some_and(|table| table.is_traced(sys::getpid()));
    (CONFIG.traces.load(Relaxed) != 0 || is_noted()) && asks(state)
}

#[cold]
#[inline(never)]
fn asks(state: &State) -> bool {
    if CONFIG.test.load(Relaxed) & TEST_ALLOW_TRACER != 0 {
        return false;
    }
    // On the smallest stacks there is no room to ask.
    let is_small = CONFIG.is_musl.load(Relaxed) != 0 && !own(state);
    is_small || status::read::<{ status::AT_STALL }>().is_none_or(|status| status.tracer != 0)
}
