//! The speculative process: what it is made with, kept out of the way with,
//! and confined with. Each is done as the agent does it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use super::trial::{Outcome, attempt, check, map, wrong};
use super::{Check, Standing};
use crate::launch::{self, Confinement};

const AREA: &str = "copy";
const PAGE: usize = 4096;

pub fn checks() -> Vec<Check> {
    vec![
        confinement(),
        fatal(
            "clone without exit signal",
            attempt(clone_unseen),
            "no copy can be made; allow clone in the container's seccomp profile",
        ),
        fatal(
            "close_range(CLOSE_RANGE_UNSHARE)",
            attempt(leave_descriptors),
            "a copy would hold the program's descriptors; needs Linux 5.9, or a container whose \
             seccomp profile allows close_range",
        ),
        filter(),
        reopening(),
        idle(),
        helpful(
            "setpgid",
            attempt(|| call(libc::SYS_setpgid, [0, 0, 0])),
            "signals to the program's group reach the copy; allow setpgid in the container's \
             seccomp profile",
        ),
        helpful(
            "PR_SET_PDEATHSIG",
            attempt(death_signal),
            "a copy could outlive a killed program; allow prctl in the container's seccomp profile",
        ),
        helpful(
            "oom_score_adj",
            attempt(first_for_oom),
            "the copy is not the first to go when memory runs out; mount /proc so that it may be \
             written",
        ),
        helpful(
            "ioprio_set",
            attempt(io_priority),
            "prefetches compete with other I/O at normal priority; allow ioprio_set in the \
             container's seccomp profile",
        ),
        helpful(
            "MADV_WIPEONFORK",
            attempt(wipe_on_fork),
            "the agent's state is told apart by process id instead; needs Linux 4.14, or a \
             container whose seccomp profile allows madvise",
        ),
    ]
}

/// What running ahead of page faults and of swap takes. Nothing that reads
/// files by system calls needs it.
pub fn memory_checks() -> Vec<Check> {
    let check = |name: &str, outcome: Outcome, lost: &str| {
        let standing = if outcome == Outcome::Works { Standing::Works } else { Standing::Missing };
        Check::new("memory", name, standing, outcome.text()).or_lost(lost)
    };
    vec![
        check(
            "pagemap",
            attempt(pagemap),
            "which mapped or swapped pages are there cannot be told; needs /proc and \
             CONFIG_PROC_PAGE_MONITOR",
        ),
        check(
            "process_vm_readv from a copy",
            attempt(import),
            "a copy cannot import memory as it touches it; as root: sysctl \
             kernel.yama.ptrace_scope=0; in a container, allow process_vm_readv in its seccomp \
             profile",
        ),
        check(
            "userfaultfd, user mode only",
            attempt(user_faults),
            "touches of swapped memory are not reported; needs Linux 5.11 with \
             CONFIG_USERFAULTFD, in a container a seccomp profile that allows userfaultfd",
        ),
        check(
            "process_madvise(MADV_WILLNEED)",
            attempt(advise_process),
            "swapped pages cannot be prefetched for another process; needs CAP_SYS_NICE",
        ),
    ]
}

fn fatal(name: &str, outcome: Outcome, lost: &str) -> Check {
    let standing = if outcome == Outcome::Works { Standing::Works } else { Standing::Fatal };
    Check::new(AREA, name, standing, outcome.text()).or_lost(lost)
}

fn helpful(name: &str, outcome: Outcome, lost: &str) -> Check {
    let standing = if outcome == Outcome::Works { Standing::Works } else { Standing::Missing };
    Check::new(AREA, name, standing, outcome.text()).or_lost(lost)
}

/// What the launcher finds about filters that are already there.
fn confinement() -> Check {
    let name = "seccomp filters around us";
    match launch::look_at_confinement() {
        Confinement::Free => Check::new(AREA, name, Standing::Works, "none"),
        Confinement::Filtered(filters) => {
            let found = format!("{filters}; every call of the agent was tried and works");
            Check::new(AREA, name, Standing::Works, found)
        }
        Confinement::NoSpeculation(filters, why) => {
            Check::new(AREA, name, Standing::Fatal, format!("{filters}: {why}"))
                .or_lost("stalls are measured, not hidden: run the container with a wider profile")
        }
        Confinement::StayOut(why) => Check::new(AREA, name, Standing::Fatal, why)
            .or_lost("every program runs plainly: run the container with a wider profile"),
    }
}

fn call(number: libc::c_long, [a, b, c]: [libc::c_long; 3]) -> io::Result<()> {
    // SAFETY: used for calls on this (child) process with scalar arguments.
    check(unsafe { libc::syscall(number, a, b, c) }).map(|_| ())
}

/// Runs `work` in a copy made as the agent makes it, and waits for it.
fn in_copy(flags: i32, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // SAFETY: a plain copy of this process, which has one thread.
    let child = check(unsafe { libc::syscall(libc::SYS_clone, i64::from(flags), 0, 0, 0, 0) })?;
    if child == 0 {
        let status = work().map_or_else(|error| error.raw_os_error().unwrap_or(255).max(1), |()| 0);
        // SAFETY: ends at once.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: the child made above.
    check(unsafe { libc::waitpid(child as i32, &mut status, libc::__WCLONE) }.into())?;
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Ok(()),
        (true, errno) => Err(io::Error::from_raw_os_error(errno)),
        _ => Err(wrong()),
    }
}

/// The program's own wait must not see it.
fn clone_unseen() -> io::Result<()> {
    let flags = i64::from(libc::CLONE_FILES | libc::CLONE_UNTRACED);
    // SAFETY: a plain copy; the child ends at once.
    let child = check(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) })?;
    if child == 0 {
        // SAFETY: see above.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits; a word for the status.
    let seen = unsafe { libc::waitpid(-1, &mut status, 0) };
    let unseen = seen == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD);
    // SAFETY: as above.
    check(unsafe { libc::waitpid(child as i32, &mut status, libc::__WCLONE) }.into())?;
    if unseen { Ok(()) } else { Err(wrong()) }
}

fn leave_descriptors() -> io::Result<()> {
    in_copy(libc::CLONE_FILES | libc::CLONE_UNTRACED, || {
        let unshare = i64::from(libc::CLOSE_RANGE_UNSHARE);
        call(libc::SYS_close_range, [0, i64::from(u32::MAX), unshare])?;
        // SAFETY: asks about a descriptor.
        let open = unsafe { libc::fcntl(0, libc::F_GETFD) } >= 0;
        if open { Err(wrong()) } else { Ok(()) }
    })?;
    // Ours must still be there: standard error, or whichever is open.
    // SAFETY: asks about descriptors.
    let any = (0..3).any(|fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0);
    if any { Ok(()) } else { Err(wrong()) }
}

static TRAPS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_trap(_: i32) {
    TRAPS.fetch_add(1, Ordering::Relaxed);
}

/// A filter that traps `getppid`; whether the trap arrives.
fn install_filter(flags: i64) -> io::Result<()> {
    const LOAD: u16 = 0x20;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const TRAP: u32 = 0x0003_0000;
    let step = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    let mut steps = [
        step(LOAD, 0, 0),
        libc::sock_filter { code: JUMP_EQUAL, jt: 0, jf: 1, k: libc::SYS_getppid as u32 },
        step(RETURN, 0, TRAP),
        step(RETURN, 0, ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: steps.as_mut_ptr() };
    // SAFETY: concerns this (child) process; program and handler outlive it.
    unsafe {
        let handler: extern "C" fn(i32) = on_trap;
        if libc::signal(libc::SIGSYS, handler as libc::sighandler_t) == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
        check(libc::syscall(libc::SYS_seccomp, 1i64, flags, &raw const program))?;
        libc::syscall(libc::SYS_getppid);
    }
    if TRAPS.load(Ordering::Relaxed) == 1 { Ok(()) } else { Err(wrong()) }
}

fn filter() -> Check {
    const SPEC_ALLOW: i64 = 4;
    let name = "seccomp filter with traps";
    let outcome = attempt(|| install_filter(SPEC_ALLOW));
    if outcome == Outcome::Works {
        return Check::new(AREA, name, Standing::Works, outcome.text());
    }
    let without = attempt(|| install_filter(0));
    if without == Outcome::Works {
        let found = "tried: works, without SECCOMP_FILTER_FLAG_SPEC_ALLOW";
        return Check::new(AREA, name, Standing::Reduced, found).or_lost(
            "the copy computes up to a third slower where the processor needs SSBD; needs \
                 Linux 4.17",
        );
    }
    fatal(name, without, "a copy could not be confined: needs CONFIG_SECCOMP_FILTER")
}

/// Opens a descriptor of the parent through /proc, after leaving the table.
fn reopening() -> Check {
    let name = "reopening through /proc/PID/fd";
    let lost = "a copy cannot read the program's files: mount /proc, and let programs be dumpable \
                (a program without that runs without speculation)";
    let Ok(file) = File::open("/proc/self/exe") else {
        return fatal(name, Outcome::Refused(libc::ENOENT), lost);
    };
    let path = format!("/proc/{{}}/fd/{}\0", file.as_raw_fd());
    let outcome = attempt(|| {
        // The parent of the copy is this child: its own number, no allocation.
        let mut text = [0u8; 64];
        let pid = std::process::id();
        let (before, after) = path.split_once("{}").unwrap_or_default();
        let mut end = 0;
        let mut digits = [0u8; 10];
        let mut count = 0;
        let mut rest = pid;
        while rest > 0 {
            digits[count] = b'0' + (rest % 10) as u8;
            rest /= 10;
            count += 1;
        }
        let number = digits[..count].iter().rev().copied();
        for byte in before.bytes().chain(number).chain(after.bytes()) {
            text[end] = byte;
            end += 1;
        }
        in_copy(libc::CLONE_FILES | libc::CLONE_UNTRACED, || {
            let unshare = i64::from(libc::CLOSE_RANGE_UNSHARE);
            call(libc::SYS_close_range, [0, i64::from(u32::MAX), unshare])?;
            // SAFETY: a NUL-terminated path; no core of this process is kept.
            unsafe {
                check(libc::prctl(libc::PR_SET_DUMPABLE, 0).into())?;
                let flags = libc::O_RDONLY | libc::O_CLOEXEC;
                check(libc::open(text.as_ptr().cast(), flags).into()).map(|_| ())
            }
        })
    });
    fatal(name, outcome, lost)
}

fn idle() -> Check {
    let outcome = attempt(|| {
        // The kernel's sched_param: one integer. Not every libc makes these calls.
        let priority: libc::c_int = 0;
        let idle = libc::SCHED_IDLE;
        // SAFETY: concerns this (child) process.
        unsafe {
            check(libc::syscall(libc::SYS_sched_setscheduler, 0, idle, &raw const priority))?;
            let policy = libc::syscall(libc::SYS_sched_getscheduler, 0);
            if policy == i64::from(idle) { Ok(()) } else { Err(wrong()) }
        }
    });
    let name = "SCHED_IDLE";
    if outcome == Outcome::Works {
        return Check::new(AREA, name, Standing::Works, outcome.text());
    }
    let nice = attempt(|| {
        // SAFETY: concerns the child only.
        check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) }.into()).map(|_| ())
    });
    if nice == Outcome::Works {
        let found = format!("{}; nice 19 works", outcome.text());
        return Check::new(AREA, name, Standing::Reduced, found).or_lost(
            "a copy takes some 1.5% of a busy processor; allow sched_setscheduler in the \
                 container's seccomp profile",
        );
    }
    let lost = "a copy would be in everybody's way; allow sched_setscheduler or setpriority in \
                the container's seccomp profile";
    fatal(name, outcome, lost)
}

fn death_signal() -> io::Result<()> {
    let mut signal = 0i32;
    // SAFETY: concerns this (child) process; the second call writes one int.
    unsafe {
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL).into())?;
        check(libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut signal).into())?;
    }
    if signal == libc::SIGKILL { Ok(()) } else { Err(wrong()) }
}

fn open(path: &std::ffi::CStr, flags: i32) -> io::Result<i32> {
    // SAFETY: a NUL-terminated path.
    check(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) }.into()).map(|fd| fd as i32)
}

fn first_for_oom() -> io::Result<()> {
    let fd = open(c"/proc/self/oom_score_adj", libc::O_WRONLY)?;
    // SAFETY: four bytes of ours.
    check(unsafe { libc::write(fd, c"1000".as_ptr().cast(), 4) } as libc::c_long).map(|_| ())
}

fn io_priority() -> io::Result<()> {
    call(libc::SYS_ioprio_set, [1, 0, 2 << 13 | 7])
}

fn wipe_on_fork() -> io::Result<()> {
    let page = map(PAGE, libc::PROT_READ | libc::PROT_WRITE)?.cast::<u8>();
    // SAFETY: the page mapped above.
    unsafe {
        check(libc::madvise(page.cast(), PAGE, libc::MADV_WIPEONFORK).into())?;
        page.write_volatile(7);
    }
    // SAFETY: as above; the copy's own page.
    in_copy(0, || if unsafe { page.read_volatile() } == 0 { Ok(()) } else { Err(wrong()) })
}

fn pagemap() -> io::Result<()> {
    const PRESENT: u64 = 1 << 63;
    let fd = open(c"/proc/self/pagemap", libc::O_RDONLY)?;
    let page = map(PAGE, libc::PROT_READ | libc::PROT_WRITE)?.cast::<u8>();
    let mut entry = 0u64;
    // SAFETY: the page mapped above, and eight bytes for its entry.
    unsafe {
        page.write_volatile(1);
        let place = (page.addr() / PAGE * 8) as i64;
        check(libc::pread(fd, (&raw mut entry).cast(), 8, place) as libc::c_long)?;
    }
    if entry & PRESENT != 0 { Ok(()) } else { Err(wrong()) }
}

fn import() -> io::Result<()> {
    let page = map(PAGE, libc::PROT_READ | libc::PROT_WRITE)?.cast::<u8>();
    // SAFETY: the page mapped above.
    unsafe { page.write_volatile(7) };
    let parent = std::process::id() as i32;
    in_copy(0, || {
        let mut byte = 0u8;
        let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let remote = libc::iovec { iov_base: page.cast(), iov_len: 1 };
        // SAFETY: writes one byte of ours.
        let read =
            unsafe { libc::process_vm_readv(parent, &raw const local, 1, &raw const remote, 1, 0) };
        check(read as libc::c_long)?;
        if byte == 7 { Ok(()) } else { Err(wrong()) }
    })
}

fn user_faults() -> io::Result<()> {
    const USER_MODE_ONLY: i64 = 1;
    /// `UFFDIO_API`: _IOWR(0xaa, 0x3f, struct uffdio_api of 24 bytes).
    const UFFDIO_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
    const API: u64 = 0xaa;
    const FEATURE_SIGBUS: u64 = 1 << 7;
    let flags = i64::from(libc::O_CLOEXEC | libc::O_NONBLOCK) | USER_MODE_ONLY;
    // SAFETY: makes a descriptor; the second call reads and writes 24 bytes.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_userfaultfd, flags))?;
        let mut api = [API, FEATURE_SIGBUS, 0];
        check(libc::ioctl(fd as i32, UFFDIO_API, api.as_mut_ptr()).into()).map(|_| ())
    }
}

fn advise_process() -> io::Result<()> {
    let page = map(PAGE, libc::PROT_READ | libc::PROT_WRITE)?;
    let range = libc::iovec { iov_base: page, iov_len: PAGE };
    let parent = i64::from(std::process::id());
    // Of another process, as a copy would: of itself everybody may.
    in_copy(0, || {
        // SAFETY: a descriptor for the parent; reads one range.
        unsafe {
            let pidfd = check(libc::syscall(libc::SYS_pidfd_open, parent, 0i64))?;
            let willneed = i64::from(libc::MADV_WILLNEED);
            let number = libc::SYS_process_madvise;
            check(libc::syscall(number, pidfd, &raw const range, 1i64, willneed, 0i64)).map(|_| ())
        }
    })
}
