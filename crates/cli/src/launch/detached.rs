//! A process that stays beside the program without being seen by it.

use std::io;
use std::os::fd::RawFd;

use runahead_manager::actor::ask_for_short_turns;

/// Runs `work` in a process that is not a child of this one, and ends that
/// process when `work` returns.
///
/// It is a grandchild whose parent has ended. Where this is the first process of
/// its PID namespace, to which orphans come back, it is a child without exit
/// signal instead, which `wait(2)` passes over unless asked with `__WALL` or
/// `__WCLONE`. A subreaper (prctl(2)) is none while this one is orphaned.
///
/// It takes short turns at the processor, and so comes to them sooner: the
/// program waits for it, once at its start and once at its end.
///
/// # Errors
/// A process could not be made.
pub fn spawn(work: impl FnOnce()) -> io::Result<()> {
    if std::process::id() == 1 {
        return match fork_unseen()? {
            Some(_) => Ok(()),
            None => {
                ask_for_short_turns();
                live(work)
            }
        };
    }
    let is_subreaper = is_subreaper();
    if is_subreaper {
        set_subreaper(false);
    }
    let orphaned = spawn_orphan(work);
    if is_subreaper {
        set_subreaper(true);
    }
    orphaned
}

fn spawn_orphan(work: impl FnOnce()) -> io::Result<()> {
    let Some(between) = fork_unseen()? else {
        // Its child begins with what it has asked for.
        ask_for_short_turns();
        // SAFETY: one thread, so the child may use everything.
        match unsafe { libc::fork() } {
            0 => live(work),
            // SAFETY: ends without the clean-up that belongs to the parent.
            -1 => unsafe { libc::_exit(1) },
            // SAFETY: as above.
            _ => unsafe { libc::_exit(0) },
        }
    };
    let mut status = 0;
    loop {
        // SAFETY: the child made above, and a word for its status. __WCLONE,
        // because it has no exit signal.
        let waited = unsafe { libc::waitpid(between, &mut status, libc::__WCLONE) };
        if waited == between {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    if status == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EAGAIN)) }
}

fn live(work: impl FnOnce()) -> ! {
    work();
    // SAFETY: ends without running the exit handlers of the launcher.
    unsafe { libc::_exit(0) }
}

/// `fork` without an exit signal, so that the program never finds a SIGCHLD
/// pending that it did not cause. `None` in the child.
pub fn fork_unseen() -> io::Result<Option<libc::pid_t>> {
    // SAFETY: no flags and no stack: a plain copy of this process, which has
    // one thread.
    let pid = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid as libc::pid_t)),
    }
}

fn is_subreaper() -> bool {
    let mut subreaper: libc::c_int = 0;
    // SAFETY: the kernel writes one int.
    unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut subreaper) };
    subreaper != 0
}

fn set_subreaper(is_one: bool) {
    // SAFETY: a call on this process alone, without pointers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, libc::c_ulong::from(is_one)) };
}

/// Lets go of everything of the program's but `kept`: its session, its
/// directory, its descriptors. A standard descriptor that is not kept stands
/// open on /dev/null.
pub fn settle(kept: &[RawFd]) {
    // SAFETY: calls on this process alone, without pointers but to constant
    // strings.
    unsafe {
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        libc::prctl(libc::PR_SET_NAME, c"runahead-stats".as_ptr());
        // Who ends the program may mean all of its group or of its unit (systemd.kill(5),
        // KillMode): it has to tell of its end first, and this process ends with it.
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
            libc::signal(signal, libc::SIG_IGN);
        }
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        for fd in (0..3).filter(|fd| !kept.contains(fd)) {
            libc::dup2(null, fd);
        }
    }
    // Where memory runs out it goes before the program.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let mut kept: Vec<RawFd> = kept.iter().copied().filter(|fd| *fd > 2).collect();
    kept.sort_unstable();
    let mut first = 3;
    for fd in kept {
        close_between(first, fd - 1);
        first = fd + 1;
    }
    close_between(first, RawFd::MAX);
}

/// Closes descriptors `first` to `last`.
fn close_between(first: RawFd, last: RawFd) {
    if first > last {
        return;
    }
    // SAFETY: the caller keeps nothing in this range.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if closed == 0 {
        return;
    }
    // Before Linux 5.9. A limit that was lowered hides nothing that we made.
    // SAFETY: a query of a number.
    let limit = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) }.clamp(256, 1 << 16) as RawFd;
    for fd in first..=last.min(limit) {
        // SAFETY: as above.
        unsafe { libc::close(fd) };
    }
}
