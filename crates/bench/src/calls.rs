//! Counts the system calls of a process by tracing it (ptrace(2)): a figure
//! that other load on the machine does not disturb.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// `SIGTRAP` of a stop at a system call (`PTRACE_O_TRACESYSGOOD`).
const CALL: libc::c_int = libc::SIGTRAP | 0x80;

/// The system calls of the one process of `command`, from its first program's
/// first on; programs that it executes in its place are counted, children are
/// not. What it prints is lost.
///
/// # Errors
/// If it cannot be started or traced, or does not end with status 0.
pub fn count(command: &mut Command) -> Result<u64> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: one system call, which concerns the child only.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let child = command.spawn().context("start what is to be traced")?;
    let pid = child.id() as libc::pid_t;
    let (mut calls, mut inside, mut begun) = (0, false, false);
    loop {
        let mut status = 0;
        // SAFETY: the child started above, and a word for its status.
        if unsafe { libc::waitpid(pid, &mut status, 0) } != pid {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error).context("wait for what is traced");
        }
        if !libc::WIFSTOPPED(status) {
            if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
                return Ok(calls);
            }
            bail!("what was traced ended with wait status {status:#x}");
        }
        let mut signal = 0;
        match libc::WSTOPSIG(status) {
            CALL => {
                inside = !inside;
                calls += u64::from(inside);
            }
            // Of an execution.
            libc::SIGTRAP if !begun => {
                let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
                // SAFETY: the stopped child; no pointers.
                unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options as libc::c_long) };
                begun = true;
            }
            libc::SIGTRAP => {}
            other => signal = other,
        }
        // SAFETY: as above; the signal is the child's own.
        if unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, libc::c_long::from(signal)) } == -1 {
            return Err(io::Error::last_os_error()).context("let the traced program go on");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_program_makes_the_same_calls() {
        let plain = count(&mut Command::new("/bin/true")).unwrap();
        assert!((5..500).contains(&plain), "{plain}");
        assert_eq!(count(&mut Command::new("/bin/true")).unwrap(), plain);
        let execute = count(Command::new("/bin/sh").args(["-c", "exec /bin/true"])).unwrap();
        assert!(execute > plain, "{execute} and {plain}");
        assert!(count(&mut Command::new("/bin/false")).is_err());
    }
}
