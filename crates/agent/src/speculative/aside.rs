//! Away from the program's processor.
//!
//! Linux takes a processor that runs nothing but SCHED_IDLE work for an idle one
//! when it places whoever it wakes (kernel/sched/fair.c, `select_idle_sibling`,
//! `sched_idle_cpu`; Linux 5.4). Once program and copy have been woken on one
//! processor, as by the directory that both waited for, the copy has only the
//! moments in which the program waits, until a tick of an idle one fetches it:
//! 4 ms later, or never. On flash that is 40 of the program's waits, and the
//! copy stays behind.

use super::Own;
use crate::arch::{nr, processor};
use crate::sys::{self, call};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Relaxed;
use runahead_protocol::log::Log;

/// Processors that are told apart; beyond them nothing is done.
const PROCESSORS_MAX: usize = 2048;
const WORD_BITS: usize = u64::BITS as usize;

/// Least time between two steps, in ns: one takes some 10 µs.
const STEP_NS: u64 = 200_000;

/// Zero bytes: it may not leave its processor.
struct Aside {
    /// Processors that it may run on, a bit each.
    allowed: [u64; PROCESSORS_MAX / WORD_BITS],
    /// Bytes of them that the kernel knows.
    len: usize,
    stepped_ns: u64,
}

static ASIDE: Own<Aside> =
    Own(UnsafeCell::new(Aside { allowed: [0; PROCESSORS_MAX / WORD_BITS], len: 0, stepped_ns: 0 }));

/// Finds out where the copy may run.
pub fn prepare() {
    // SAFETY: one thread, not re-entered.
    let aside = unsafe { &mut *ASIDE.0.get() };
    let at = aside.allowed.as_mut_ptr() as usize;
    // SAFETY: the kernel writes at most the mask's size.
    let len = unsafe { call(nr::SCHED_GETAFFINITY, &[0, size_of_val(&aside.allowed), at]) };
    let others = aside.allowed.iter().map(|word| word.count_ones()).sum::<u32>() > 1;
    aside.len = if others { usize::try_from(len).unwrap_or(0) } else { 0 };
}

/// Steps aside where the copy is on the processor on which the program was when
/// it waited last. What it may run on stays as it was: should the others be
/// busy, the kernel may bring it back.
#[inline]
pub fn step(log: &Log) {
    if log.processor_plus1.load(Relaxed) == processor() + 1 {
        leave(processor() as usize);
    }
}

#[cold]
fn leave(here: usize) {
    // SAFETY: one thread, not re-entered.
    let aside = unsafe { &mut *ASIDE.0.get() };
    let now_ns = sys::now_ns();
    if aside.len == 0 || now_ns.saturating_sub(aside.stepped_ns) < STEP_NS {
        return;
    }
    aside.stepped_ns = now_ns;
    let mut others = aside.allowed;
    if let Some(word) = others.get_mut(here / WORD_BITS) {
        *word &= !(1 << (here % WORD_BITS));
    }
    for mask in [&others, &aside.allowed] {
        // SAFETY: reads a mask of so many bytes; concerns this process only.
        unsafe { call(nr::SCHED_SETAFFINITY, &[0, aside.len, mask.as_ptr() as usize]) };
    }
}
