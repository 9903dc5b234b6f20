//! Counts the system calls of a process by tracing it (ptrace(2)): a figure
//! that other load on the machine does not disturb.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// `SIGTRAP` of a stop at a system call (`PTRACE_O_TRACESYSGOOD`).
const CALL: libc::c_int = libc::SIGTRAP | 0x80;

/// The system calls of the one process of `command`, from its first program's
/// first on; programs that it executes in its place are counted, children are
/// not. What it prints is lost.
///
/// # Errors
/// If it cannot be started or traced, or does not end with status 0.
pub fn count(command: &mut Command) -> Result<u64> {
    let mut calls = 0;
    let status = trace(command, |_| calls += 1)?;
    ensure!(status == 0, "what was traced ended with status {status}");
    Ok(calls)
}

/// The same, of those calls alone that have one of these numbers.
///
/// # Errors
/// If it cannot be started or traced, or is ended by a signal.
pub fn count_of(command: &mut Command, numbers: &[libc::c_long]) -> Result<u64> {
    let mut calls = 0;
    trace(command, |number| calls += u64::from(numbers.contains(&number)))?;
    Ok(calls)
}

/// The same, from each call of the number `mark` to before the next; what
/// comes before the first and after the last is left out.
///
/// # Errors
/// As [`count`].
pub fn between(command: &mut Command, mark: libc::c_long) -> Result<Vec<u64>> {
    let mut calls = Vec::new();
    let status = trace(command, |number| {
        if number == mark {
            calls.push(0);
        }
        if let Some(last) = calls.last_mut() {
            *last += 1;
        }
    })?;
    ensure!(status == 0, "what was traced ended with status {status}");
    calls.pop();
    Ok(calls)
}

/// Runs `command` and tells `call` the number of each system call; its exit
/// status.
fn trace(command: &mut Command, mut call: impl FnMut(libc::c_long)) -> Result<i32> {
    /// Where the registers at a stop have the number of the system call.
    const NUMBER_AT: libc::c_long = 8 * libc::ORIG_RAX as libc::c_long;
    // Some programs do not do all of their work where the output is /dev/null.
    let sink = File::options().write(true).open("/dev/zero").context("open /dev/zero")?;
    command.stdin(Stdio::null()).stdout(sink).stderr(Stdio::null());
    // SAFETY: one system call, which concerns the child only.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let child = command.spawn().context("start what is to be traced")?;
    let pid = child.id() as libc::pid_t;
    let (mut inside, mut begun) = (false, false);
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
            if libc::WIFEXITED(status) {
                return Ok(libc::WEXITSTATUS(status));
            }
            bail!("what was traced ended with wait status {status:#x}");
        }
        let mut signal = 0;
        match libc::WSTOPSIG(status) {
            CALL => {
                inside = !inside;
                if inside {
                    // SAFETY: a word of the stopped child's registers.
                    call(unsafe { libc::ptrace(libc::PTRACE_PEEKUSER, pid, NUMBER_AT, 0) });
                }
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
        let writes = |text| {
            count_of(Command::new("/bin/sh").args(["-c", text]), &[libc::SYS_write]).unwrap()
        };
        assert_eq!((writes(":"), writes("echo one; echo two")), (0, 2));
    }

    #[test]
    fn calls_are_counted_from_mark_to_mark() {
        let between = |mark| between(Command::new("/bin/sh").args(["-c", "umask; umask; :"]), mark);
        let writes = between(libc::SYS_write).unwrap();
        assert_eq!(writes.len(), 1, "{writes:?}: of two");
        assert!((1..10).contains(&writes[0]), "{writes:?}");
        assert!(between(libc::SYS_reboot).unwrap().is_empty());
    }
}
