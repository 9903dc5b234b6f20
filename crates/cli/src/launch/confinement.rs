//! Under which seccomp filters this launcher runs, and whether a speculative
//! process can live under them.
//!
//! In a container every process has the runtime's filter. A program there may
//! be given the agent, because the launcher can try every call beforehand; a
//! program with one filter more has restricted itself and is left alone.

use std::fs;
use std::io;

use runahead_emulate::gate::GATE;

use super::detached::fork_unseen;

/// What the launcher may tell an agent about the filters here.
#[derive(Debug, PartialEq, Eq)]
pub enum Confinement {
    /// There are none.
    Free,
    /// So many, and all our calls work.
    Filtered(u64),
    /// So many, and a speculative process would not work: why.
    NoSpeculation(u64, &'static str),
    /// An agent must make no call of its own: why.
    StayOut(&'static str),
}

/// `SECCOMP_SET_MODE_FILTER`, and the flag that leaves speculative store
/// bypass alone (seccomp(2)).
const SET_MODE_FILTER: i64 = 1;
const FLAG_SPEC_ALLOW: i64 = 4;

/// Calls that agents make besides those of [`GATE`].
const OTHERS: &[i64] = &[
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_clock_gettime,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getrusage,
    libc::SYS_ioprio_set,
    libc::SYS_prlimit64,
    libc::SYS_fcntl,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_wait4,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getscheduler,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_set_tid_address,
    libc::SYS_process_vm_readv,
    runahead_emulate::arch::nr::CACHESTAT as i64,
    libc::SYS_ioctl,
    libc::SYS_openat2,
];

/// Looks at this process, and where it has filters, tries them.
pub fn look() -> Confinement {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    match (number("Seccomp:"), number("Seccomp_filters:")) {
        (None | Some(0), _) => Confinement::Free,
        (Some(_), None | Some(0)) => {
            Confinement::StayOut("this kernel does not count seccomp filters (Linux 5.9 does)")
        }
        (Some(_), Some(filters)) => tried(filters, try_in_child()),
    }
}

fn tried(filters: u64, outcome: io::Result<i32>) -> Confinement {
    match outcome {
        Ok(status) if libc::WIFEXITED(status) => match Refusal::text(libc::WEXITSTATUS(status)) {
            None => Confinement::Filtered(filters),
            Some(why) => Confinement::NoSpeculation(filters, why),
        },
        Ok(_) => {
            Confinement::StayOut("the seccomp filter here kills for calls that the agent makes")
        }
        Err(_) => Confinement::NoSpeculation(filters, "a process could not be made"),
    }
}

/// What a speculative process cannot do without; the exit status of the trial.
#[derive(Clone, Copy)]
#[repr(i32)]
enum Refusal {
    Clone = 1,
    CloseRange,
    Idle,
    Filter,
    Read,
}

impl Refusal {
    fn text(status: i32) -> Option<&'static str> {
        const ALL: [Refusal; 5] =
            [Refusal::Clone, Refusal::CloseRange, Refusal::Idle, Refusal::Filter, Refusal::Read];
        ALL.into_iter().find(|refused| *refused as i32 == status).map(|refused| match refused {
            Refusal::Clone => "the seccomp filter here refuses clone",
            Refusal::CloseRange => "the seccomp filter here refuses close_range",
            Refusal::Idle => "the seccomp filter here refuses sched_setscheduler and setpriority",
            Refusal::Filter => "the seccomp filter here refuses seccomp",
            Refusal::Read => "the seccomp filter here refuses preadv2",
        })
    }
}

/// Makes the calls in a process of their own; its wait status.
fn try_in_child() -> io::Result<i32> {
    let Some(child) = fork_unseen()? else {
        let refused = calls().map_or(0, |refused| refused as i32);
        // SAFETY: ends without the clean-up that belongs to the parent.
        unsafe { libc::_exit(refused) }
    };
    let mut status = 0;
    loop {
        // SAFETY: the child made above, and a word for its status.
        if unsafe { libc::waitpid(child, &mut status, libc::__WCLONE) } == child {
            return Ok(status);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// In the child: the first that is refused.
fn calls() -> Option<Refusal> {
    // Should a call kill, then without a core file.
    // SAFETY: concerns this process only.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
    let numbers = GATE.iter().map(|rule| rule.number as i64);
    for number in numbers.chain(OTHERS.iter().copied()) {
        // SAFETY: no descriptor, address or length is valid, so that each of
        // them fails before it does anything; what does not look at its
        // arguments only asks.
        unsafe { libc::syscall(number, -1i64, -1i64, -1i64, -1i64, -1i64, -1i64) };
    }
    // SAFETY: no descriptor: fails with EBADF where it is let through.
    unsafe { libc::syscall(libc::SYS_preadv2, -1i64, 0i64, 0i64, 0i64, 0i64, 0i64) };
    if io::Error::last_os_error().raw_os_error() != Some(libc::EBADF) {
        return Some(Refusal::Read);
    }
    if !can_clone() {
        return Some(Refusal::Clone);
    }
    // SAFETY: these concern this process only, which is about to end.
    unsafe {
        libc::syscall(libc::SYS_setpgid, 0, 0);
        let all = i64::from(u32::MAX);
        let unshare = i64::from(libc::CLOSE_RANGE_UNSHARE);
        if libc::syscall(libc::SYS_close_range, 0i64, all, unshare) != 0 {
            return Some(Refusal::CloseRange);
        }
        let priority: libc::c_int = 0;
        let idle = libc::SCHED_IDLE;
        if libc::syscall(libc::SYS_sched_setscheduler, 0, idle, &priority) != 0
            && libc::setpriority(libc::PRIO_PROCESS, 0, 19) != 0
        {
            return Some(Refusal::Idle);
        }
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    }
    if !can_filter() { Some(Refusal::Filter) } else { None }
}

/// Whether the copy's own clone is let through.
fn can_clone() -> bool {
    let flags = i64::from(libc::CLONE_FILES | libc::CLONE_UNTRACED);
    // SAFETY: a plain copy of this process, which has one thread.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
        -1 => false,
        // SAFETY: the copy ends at once.
        0 => unsafe { libc::_exit(0) },
        child => {
            let mut status = 0;
            // SAFETY: the child made above.
            unsafe { libc::waitpid(child as i32, &mut status, libc::__WCLONE) };
            true
        }
    }
}

/// Whether a filter of one's own is let through; this one allows everything.
fn can_filter() -> bool {
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    let mut instruction = libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: ALLOW };
    let program = libc::sock_fprog { len: 1, filter: &raw mut instruction };
    [FLAG_SPEC_ALLOW, 0].into_iter().any(|flags| {
        // SAFETY: a program of one instruction, alive during the call.
        unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, flags, &raw const program) == 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_works_where_nothing_is_filtered() {
        let status = try_in_child().unwrap();
        assert_eq!(tried(3, Ok(status)), Confinement::Filtered(3));
    }

    #[test]
    fn what_is_refused_is_named() {
        let exited = |code: i32| Ok(code << 8);
        for (code, word) in
            [(1, "clone"), (2, "close_range"), (3, "setpriority"), (4, "seccomp"), (5, "preadv2")]
        {
            match tried(1, exited(code)) {
                Confinement::NoSpeculation(1, why) => assert!(why.contains(word), "{why}"),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(tried(1, Ok(libc::SIGSYS)), Confinement::StayOut(_)));
    }
}
