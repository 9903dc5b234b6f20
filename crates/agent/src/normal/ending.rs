//! Ending the speculative process and the aide: killed, reaped and accounted
//! for, so that nothing of them is left when the program has ended.

use super::accounting::{book, look_at_pages};
use super::control::{self, Control};
use super::learnt;
use super::waiting::await_detached;
use crate::arch::nr;
use crate::import::{self, desk};
use crate::state::{State, lock};
use crate::sys::{self, call};
use crate::usage::Usage;
use crate::{procfs, tasks};
use core::sync::atomic::AtomicI32;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use runahead_protocol::log::life;
use runahead_protocol::stats::{Counter, Park};

/// `WNOHANG`.
const WNOHANG: usize = 1;
/// `__WCLONE`: children with no exit signal.
const WCLONE: usize = 0x8000_0000;
/// `SIGKILL`.
const SIGKILL: usize = 9;

/// [`end_accounted`] of one that has not been.
pub(super) fn end(state: &State, control: &mut Control, reason: Park) {
    look_at_pages(state);
    end_accounted(state, control, reason);
}

/// [`kill`], and tells memory control what is left of it.
pub(super) fn end_accounted(state: &State, control: &mut Control, reason: Park) {
    // A child by vfork has the same state, and its parent's copy is not its own.
    if let Some(log) = state.log().filter(|_| super::own(state)) {
        control.ending(state, log);
    }
    kill(state, reason);
}

/// Ends the speculative process, if there is one, without waiting for its
/// death, and books what it did. It must have left the descriptor table
/// ([`super::waiting::settled`]): one that dies in there would let go of it later, unseen.
fn kill(state: &State, reason: Park) {
    // A child by vfork has the same state, and its parent's copy is not its own.
    if !super::own(state) {
        return;
    }
    let child = state.speculative.swap(0, Relaxed);
    if child == 0 {
        return;
    }
    state.copy_took_ns.store(sys::process_cpu_ns(child as u32), Relaxed);
    let log = state.log();
    // The pages that the program has used are counted in the log.
    state.removed_halves.fetch_add(control::hit_halves(state), Relaxed);
    state.log.store(core::ptr::null_mut(), Relaxed);
    state.scouts.store(0, Relaxed);
    if state.shared_ns.swap(0, Relaxed) != 0
        && let Some(table) = learnt::table(state)
    {
        table.share_no_more(state.pid.load(Relaxed));
    }
    let mut reason = reason;
    if let Some(log) = log {
        if log.life.load(Relaxed) == life::PARKED {
            reason = Park::from_index(log.park_reason.load(Relaxed));
        }
        state.without_files.store(log.without_files.load(Relaxed), Relaxed);
        state.opening.store(log.opening.load(Relaxed), Relaxed);
        book(state, log, reason);
    }
    // The identity is certain only while the child is ours to reap: were the
    // number another process's by now, it must not be hit.
    if wait(state, child, WNOHANG) == 0 {
        // SAFETY: kills a child of ours, which the wait above has just seen.
        let killed = unsafe { call(nr::KILL, &[child as usize, SIGKILL]) };
        // Refused where the program has given up its rights unseen: it is
        // not waited for, its processor time is limited.
        if killed == 0 && wait(state, child, WNOHANG) == 0 {
            // What it holds in a look at a descriptor it holds until it is dead, and
            // nobody who closes that asks it any more.
            let looks = log.is_some_and(|log| log.looks.load(SeqCst) % 2 != 0);
            match state.zombies.iter().find(|cell| cell.load(Relaxed) == 0) {
                Some(cell) if !looks => cell.store(child, Relaxed),
                _ => {
                    // On busy processors it would not come to its end.
                    hasten(child);
                    await_death(state, child);
                }
            }
        }
    }
}

const EINTR: isize = -4;

/// Ended speculative processes that nobody has looked at since.
pub(super) fn unreaped(state: &State) -> usize {
    state.zombies.iter().filter(|cell| cell.load(Relaxed) != 0).count()
}

/// Reaps what has died; returns how many are still dying.
pub(super) fn reap(state: &State) -> usize {
    let mut dying = 0;
    for cell in &state.zombies {
        let child = cell.load(Relaxed);
        if child != 0 {
            if wait(state, child, WNOHANG) == 0 {
                dying += 1;
            } else {
                cell.store(0, Relaxed);
            }
        }
    }
    dying
}

/// wait4(2) for a speculative process; books its processor time.
pub(super) fn wait(state: &State, child: i32, options: usize) -> isize {
    let mut usage = Usage::default();
    let usage_at = core::ptr::from_mut(&mut usage) as usize;
    // SAFETY: the kernel writes one struct rusage.
    let result = unsafe { call(nr::WAIT4, &[child as usize, 0, options | WCLONE, usage_at]) };
    if result > 0 {
        book_cpu(state, child, usage.cpu_us());
    }
    if result > 0
        && let Some(slot) = state.slot()
    {
        slot.add(Counter::SpeculativeCpuUs, usage.cpu_us());
        slot.raise(Counter::SpeculativePeakKib, usage.peak_kib);
    }
    result
}

/// A speculative process has been reaped that took so much processor time.
fn book_cpu(state: &State, child: i32, us: u64) {
    state.copies_cpu_us.fetch_add(us, Relaxed);
    match scout_beside(state, child) {
        Some(cell) => cell.store(0, Relaxed),
        None => _ = state.idle_cpu_us.fetch_add(us, Relaxed),
    }
}

/// Where a process is noted as a scout that keeps the program's priority, if it
/// is; for 0, where there is room.
pub(super) fn scout_beside(state: &State, child: i32) -> Option<&AtomicI32> {
    state.scouts_beside.iter().find(|cell| cell.load(Relaxed) == child)
}

/// Before the program ends or executes another one, or restricts itself: the
/// speculative process is gone when this returns, nothing of it is left. No
/// other thread makes one afterwards where the caller has barred it before
/// ([`super::bars`], [`State::disable`]).
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
pub fn end_speculation(state: &'static State) {
    // The aide may be there before the first copy.
    let none = state.epoch.load(SeqCst) == 0 && state.aide.load(SeqCst) <= 0;
    if none && state.lock.load(SeqCst) == lock::FREE {
        return;
    }
    await_detached(state);
    let ended = state.locked(|rations| {
        end_all(state);
        rations.control.finish(state, sys::now_ns());
    });
    if ended.is_none() {
        end_all(state);
    }
}

/// Ends and reaps copies and aide.
fn end_all(state: &State) {
    look_at_pages(state);
    kill(state, Park::ProgramEnded);
    end_aide(state);
    for cell in &state.zombies {
        let child = cell.swap(0, Relaxed);
        if child != 0 {
            hasten(child);
            await_death(state, child);
        }
    }
}

/// Lets a killed process at SCHED_IDLE die at normal priority, with all of its
/// threads. Allowed with CAP_SYS_NICE or a sufficient RLIMIT_NICE only;
/// without, it dies when a processor is idle.
fn hasten(child: i32) {
    let priority = 0u32;
    let at_normal = |thread: usize| {
        let priority = core::ptr::from_ref(&priority) as usize;
        // SAFETY: reads one struct sched_param.
        unsafe { call(nr::SCHED_SETSCHEDULER, &[thread, 0, priority]) == 0 }
    };
    if at_normal(child as usize) {
        let _ = tasks::for_each(child as usize, |thread| _ = at_normal(thread));
    }
}

/// Kills and reaps a child that nobody else has reaped.
pub fn end_child(state: &State, child: i32) {
    // SAFETY: kills a child of ours that has not been reaped.
    unsafe { call(nr::KILL, &[child as usize, SIGKILL]) };
    await_death(state, child);
}

/// How long a killed child is waited for that waits where no signal ends a wait, in ns.
const HELD_NS: u64 = 1_000_000_000;

/// Shortest and longest pause between two looks at a killed child, in ns.
const LOOK_NS: [u64; 2] = [20_000, 10_000_000];

/// Waits for the death of a killed child, and reaps it. Not where the kernel cannot
/// end it: a request that a file system's server has taken is waited for by whoever made it,
/// killed or not (request_wait_answer(), Linux 6.18), and that server may be slow, or hang.
/// Such a child runs no code any more. Its parent goes on, without reaping it.
fn await_death(state: &State, child: i32) {
    let began_ns = sys::now_ns();
    let [shortest, longest] = LOOK_NS;
    loop {
        match wait(state, child, WNOHANG) {
            0 => {}
            EINTR => continue,
            _ => return,
        }
        let waited_ns = sys::now_ns().saturating_sub(began_ns);
        if waited_ns > HELD_NS && is_held(child) {
            return;
        }
        sys::sleep_exactly((waited_ns / 4).clamp(shortest, longest));
    }
}

/// Whether a thread of a process waits uninterruptibly (proc_pid_stat(5)), or nobody says:
/// where others' processes are hidden (`hidepid` of proc(5)), or no descriptor is free.
fn is_held(child: i32) -> bool {
    let mut held = false;
    let looked = tasks::for_each(child as usize, |thread| held |= state_of(thread) == Some(b'D'));
    held || !looked
}

/// The letter of a thread's state.
fn state_of(thread: usize) -> Option<u8> {
    let (mut digits, mut path, mut room) = ([0; 20], [0; 40], [0; 128]);
    let number = procfs::digits(thread, &mut digits);
    let path = procfs::path(&[b"/proc/", number, b"/stat\0"], &mut path)?;
    let text = procfs::read(path, &mut room)?;
    // Behind its name, which is in brackets and may have some.
    let behind = text.iter().rposition(|byte| *byte == b')')? + 2;
    text.get(behind).copied()
}

/// Ends the aide.
pub fn end_aide(state: &State) {
    let aide = state.aide.swap(0, Relaxed);
    if aide <= 0 {
        return;
    }
    if let Some(desk) = desk() {
        desk.life.store(import::life::ENDING, Relaxed);
        sys::futex_wake(&desk.asked);
    }
    end_child(state, aide);
    if let Some(desk) = desk() {
        desk.life.store(import::life::NONE, Relaxed);
    }
}

/// Whether a child of ours has not ended, asked without reaping it (waitid(2)).
pub fn runs(child: i32) -> bool {
    const P_PID: usize = 1;
    const WEXITED: usize = 4;
    const WNOWAIT: usize = 0x0100_0000;
    let mut info = [0u64; 16];
    let at = info.as_mut_ptr() as usize;
    let options = WEXITED | WNOHANG | WNOWAIT | WCLONE;
    // SAFETY: the kernel writes one siginfo_t, 128 bytes.
    let result = unsafe { call(nr::WAITID, &[P_PID, child as usize, at, options, 0]) };
    // si_signo, the first half of the first word, is 0 while it runs.
    result == 0 && info.first().is_some_and(|word| *word as u32 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use runahead_protocol::log::Log;
    use std::boxed::Box;

    /// One that is killed is reaped after the next has been made.
    #[test]
    fn what_scouts_beside_the_program_take_is_no_idle_time() {
        let state = crate::state::zeroed();
        for scout in [5, 6] {
            scout_beside(&state, 0).unwrap().store(scout, Relaxed);
        }
        book_cpu(&state, 5, 30);
        book_cpu(&state, 6, 40);
        assert_eq!(state.idle_cpu_us.load(Relaxed), 0);
        book_cpu(&state, 7, 10);
        book_cpu(&state, 5, 1); // A copy that has the number now.
        assert_eq!(state.idle_cpu_us.load(Relaxed), 11);
        assert_eq!(state.copies_cpu_us.load(Relaxed), 81);
    }

    /// Memory control counts what copies saved, whether they are there or
    /// not: neither is what an ended one saved forgotten, above all the pages,
    /// which only its log knows of, nor is it counted twice.
    #[test]
    fn what_a_copy_has_saved_is_still_known_when_it_has_ended() {
        let state = crate::state::zeroed();
        // SAFETY: zeroed memory is a valid log.
        let log: &Log = Box::leak(unsafe { Box::new_zeroed().assume_init() });
        state.pid.store(crate::sys::getpid(), Relaxed);
        let begin = || {
            state.log.store(core::ptr::from_ref(log).cast_mut(), Relaxed);
            // Nobody's child: `kill` finds nothing to end.
            state.speculative.store(i32::MAX, Relaxed);
        };
        begin();
        state.hits.store(5, Relaxed);
        state.partial.store(3, Relaxed);
        (0..40).for_each(|page| log.pages.push(page));
        log.pages.consumed.store(30, Relaxed);
        let saved = 2 * (5 + 30) - 3;
        assert_eq!(control::removed_halves(&state), saved);
        kill(&state, Park::OffTrack);
        assert_eq!(control::removed_halves(&state), saved, "as before");
        // The next copy starts from nothing.
        for counter in [&state.hits, &state.partial, &log.pages.consumed, &log.pages.tail] {
            counter.store(0, Relaxed);
        }
        begin();
        assert_eq!(control::removed_halves(&state), saved);
        state.hits.store(1, Relaxed);
        kill(&state, Park::OffTrack);
        assert_eq!(control::removed_halves(&state), saved + 2);
    }
}
