//! The normal side: what the agent does in the program itself. Its first
//! duty is to do nothing measurable; its second, that every failure of ours
//! ends as if we were absent.

mod capture;
mod exec;
mod reads;
mod synchronise;

use crate::arch::{Frame, nr};
use crate::hook::plain;
use crate::state::{CONFIG, State, role};
use crate::sys;
use core::sync::atomic::Ordering::Relaxed;
use runahead_protocol::stats::{Counter, Loss};

pub use capture::hand_over;
use reads::OFFSET_NONE;
pub use reads::{CREDIT, Request, is_file};
pub use synchronise::end_speculation;

/// One system call of the program.
#[inline]
pub fn call(state: &'static State, frame: &mut Frame) -> isize {
    match frame.number {
        nr::READ | nr::PREAD64 | nr::READV | nr::PREADV | nr::PREADV2 => reads::read(state, frame),
        nr::SENDFILE | nr::COPY_FILE_RANGE => reads::transfer(state, frame),
        _ => other(state, frame),
    }
}

/// Calls that are watched because they change what we assume, and all that
/// are hooked for the speculative process's sake only.
fn other(state: &'static State, frame: &mut Frame) -> isize {
    let [first, second, third, fourth, ..] = frame.args;
    match frame.number {
        nr::OPEN | nr::OPENAT | nr::OPENAT2 | nr::CREAT | nr::DUP => {
            let fd = plain(frame);
            state.opened(fd);
            fd
        }
        nr::CLOSE => {
            state.forget(first as u32 as usize);
            plain(frame)
        }
        nr::DUP2 | nr::DUP3 => {
            state.opened(second as i32 as isize);
            plain(frame)
        }
        nr::CLOSE_RANGE => {
            state.forget_range(first as u32 as usize, second as u32 as usize);
            plain(frame)
        }
        nr::FCNTL => fcntl(state, frame, first, second),
        nr::INOTIFY_INIT
        | nr::INOTIFY_INIT1
        | nr::FANOTIFY_INIT
        | nr::IO_URING_SETUP
        | nr::USERFAULTFD => {
            delicate(state);
            plain(frame)
        }
        nr::PRCTL | nr::SECCOMP if restricts(frame.number, first) => filtered(state, frame),
        nr::PRCTL if first == PR_SET_TSC => {
            // From here on rdtsc may fault: use the clock.
            CONFIG.ticks_per_us.store(0, Relaxed);
            plain(frame)
        }
        nr::WAIT4 if waits_for_all(third) => alone(state, frame),
        nr::WAITID if waits_for_all(fourth) => alone(state, frame),
        nr::UMOUNT2 | nr::PIVOT_ROOT | nr::CHROOT | nr::SETSID => alone(state, frame),
        nr::UNSHARE | nr::SETNS => {
            before_namespaces(state);
            plain(frame)
        }
        nr::EXECVE => exec::execute(state, frame, 2),
        nr::EXECVEAT => exec::execute(state, frame, 3),
        nr::EXIT_GROUP => {
            ending(state, first as i32);
            plain(frame)
        }
        _ => plain(frame),
    }
}

/// Whether the options of a wait are `__WCLONE` or `__WALL`, which find
/// children without an exit signal, too.
pub fn waits_for_all(options: usize) -> bool {
    const WCLONE_WALL: usize = 0xc000_0000;
    options & WCLONE_WALL != 0
}

/// Before a call whose result a living copy would change: it waits for
/// children of every kind, unmounts what the copy has open, or counts the
/// members of the process group.
#[cold]
pub fn before_alone(state: &'static State) {
    if own(state) {
        end_speculation(state);
    }
}

/// Before `unshare` and `setns`: the next child may be the first process of a
/// new namespace, which no copy of ours must become.
#[cold]
pub fn before_namespaces(state: &'static State) {
    if own(state) {
        end_speculation(state);
        state.disable(Loss::Namespace);
    }
}

#[cold]
fn alone(state: &'static State, frame: &Frame) -> isize {
    before_alone(state);
    plain(frame)
}

/// Before a process is made. A copy counts as one of the user's processes:
/// where few are allowed, the program gets its place.
#[cold]
pub fn before_process(state: &'static State) {
    const RLIMIT_NPROC: usize = 6;
    if state.speculative.load(Relaxed) == 0 || !own(state) {
        return;
    }
    let mut limit = [u64::MAX; 2];
    let at = limit.as_mut_ptr() as usize;
    // SAFETY: the kernel writes one struct rlimit64.
    unsafe { sys::call(nr::PRLIMIT64, &[0, RLIMIT_NPROC, 0, at]) };
    if limit.first().is_some_and(|&soft| soft < PROCESSES_FEW) {
        end_speculation(state);
    }
}

/// Fewer processes than this are few: by default a limit is in the ten
/// thousands.
const PROCESSES_FEW: u64 = 4096;

const PR_SET_SECCOMP: usize = 22;
const PR_SET_TSC: usize = 26;
const SECCOMP_SET_MODE_STRICT: usize = 0;
const SECCOMP_SET_MODE_FILTER: usize = 1;
const F_DUPFD: usize = 0;
const F_SETFL: usize = 4;
const F_SETLEASE: usize = 1024;
const F_NOTIFY: usize = 1026;
const F_DUPFD_CLOEXEC: usize = 1030;

fn fcntl(state: &'static State, frame: &Frame, fd: usize, command: usize) -> isize {
    before_fcntl(state, fd, command);
    let result = plain(frame);
    if makes_descriptor(command) {
        state.opened(result);
    }
    result
}

/// What an fcntl(2) is about to change.
pub fn before_fcntl(state: &'static State, fd: usize, command: usize) {
    match command & 0xffff_ffff {
        // O_DIRECT may change.
        F_SETFL => state.forget(fd as u32 as usize),
        // Opening the file once more would break the lease or be notified.
        F_SETLEASE | F_NOTIFY => delicate(state),
        _ => {}
    }
}

/// Whether an fcntl(2) returns a new descriptor.
pub fn makes_descriptor(command: usize) -> bool {
    matches!(command & 0xffff_ffff, F_DUPFD | F_DUPFD_CLOEXEC)
}

/// The program uses something that a second process would disturb.
#[cold]
pub fn delicate(state: &'static State) {
    if own(state) {
        end_speculation(state);
        state.disable(Loss::Delicate);
    }
}

/// Whether a call (`number` with first argument `first`) installs a seccomp
/// filter.
pub fn restricts(number: usize, first: usize) -> bool {
    match number {
        nr::PRCTL => first == PR_SET_SECCOMP,
        nr::SECCOMP => first == SECCOMP_SET_MODE_STRICT || first == SECCOMP_SET_MODE_FILTER,
        _ => false,
    }
}

/// The program is about to restrict its own system calls: from here on the
/// agent makes none of its own, here and in every child.
#[cold]
pub fn restricted(state: &'static State) {
    if own(state) {
        end_speculation(state);
        state.disable(Loss::Seccomp);
        CONFIG.forbidden.store(1, Relaxed);
        state.role.store(role::OFF, Relaxed);
    }
}

/// The same around the call itself.
#[cold]
fn filtered(state: &'static State, frame: &Frame) -> isize {
    if own(state) {
        restricted(state);
        let result = plain(frame);
        if result < 0 {
            // It was refused: nothing has changed.
            CONFIG.forbidden.store(0, Relaxed);
            state.disabled.store(0, Relaxed);
            state.role.store(role::NORMAL, Relaxed);
        }
        return result;
    }
    plain(frame)
}

/// Whether the state is this process's, not that of the parent whose memory
/// a `vfork` child shares.
pub fn own(state: &State) -> bool {
    sys::getpid() == state.pid.load(Relaxed)
}

/// The program ends: the speculative process must be gone before anybody can
/// be told, so that a file system can be unmounted at once.
#[cold]
pub fn ending(state: &'static State, status: i32) {
    if !own(state) {
        return;
    }
    end_speculation(state);
    if let Some(slot) = state.slot() {
        let usage = crate::usage::of_self();
        slot.add(Counter::MajorFaults, usage.major_faults);
        slot.add(Counter::MinorFaults, usage.minor_faults);
        crate::start::tell_collector(state, status);
    }
}
