//! Tries something in a child process, so that it neither harms nor lasts.

use std::io;

use crate::launch::fork_unseen;

/// What became of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It works.
    Works,
    /// It was refused with this error number (0: for another reason).
    Refused(i32),
    /// The child was killed by this signal.
    Killed(i32),
}

impl Outcome {
    /// In words.
    pub fn text(self) -> String {
        match self {
            Outcome::Works => "tried: works".into(),
            Outcome::Refused(0) => "tried: refused".into(),
            Outcome::Refused(errno) => {
                let words = io::Error::from_raw_os_error(errno).to_string();
                format!("tried: {}", words.split(" (os error").next().unwrap_or_default())
            }
            Outcome::Killed(signal) => format!("tried: killed by signal {signal}"),
        }
    }
}

/// Runs `work` in a child and tells how it went. `work` makes system calls and
/// does nothing else: no allocation, no locks.
pub fn attempt(work: impl FnOnce() -> io::Result<()>) -> Outcome {
    let child = match fork_unseen() {
        Err(error) => return Outcome::Refused(error.raw_os_error().unwrap_or(0)),
        Ok(Some(child)) => child,
        Ok(None) => {
            // A trial that kills leaves no core file, and a hanging one ends.
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: these concern the child only.
            unsafe {
                libc::setrlimit(libc::RLIMIT_CORE, &none);
                libc::alarm(10);
            }
            let status = match work() {
                Ok(()) => 0,
                // Error numbers end at 133; 255 stands for none.
                Err(error) => error.raw_os_error().filter(|e| (1..=133).contains(e)).unwrap_or(255),
            };
            // SAFETY: ends without the clean-up that belongs to the parent.
            unsafe { libc::_exit(status) }
        }
    };
    let mut status = 0;
    // SAFETY: the child made above, and a word for its status.
    while unsafe { libc::waitpid(child, &mut status, libc::__WCLONE) } != child {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Outcome::Refused(error.raw_os_error().unwrap_or(0));
        }
    }
    if libc::WIFSIGNALED(status) {
        return Outcome::Killed(libc::WTERMSIG(status));
    }
    match libc::WEXITSTATUS(status) {
        0 => Outcome::Works,
        255 => Outcome::Refused(0),
        errno => Outcome::Refused(errno),
    }
}

/// The result of a raw system call as an error.
pub fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A page-aligned anonymous mapping.
pub fn map(bytes: usize, protection: i32) -> io::Result<*mut libc::c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, wherever there is room.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address) }
}

/// An error without a number, for what worked but not as it should. Needs no
/// memory: a child of a process with threads must not ask for any.
pub fn wrong() -> io::Error {
    io::Error::from_raw_os_error(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_told_apart_from_its_end() {
        assert_eq!(attempt(|| Ok(())), Outcome::Works);
        let refused = || Err(io::Error::from_raw_os_error(libc::EPERM));
        assert_eq!(attempt(refused), Outcome::Refused(libc::EPERM));
        assert_eq!(attempt(|| Err(wrong())), Outcome::Refused(0));
        let killed = attempt(|| {
            // SAFETY: ends the child.
            unsafe { libc::raise(libc::SIGKILL) };
            Ok(())
        });
        assert_eq!(killed, Outcome::Killed(libc::SIGKILL));
        assert!(Outcome::Refused(libc::EPERM).text().contains("not permitted"));
    }
}
