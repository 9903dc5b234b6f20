//! Other work at normal priority: one spinning process per processor.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Keeps the processors busy until it is dropped.
#[derive(Debug)]
pub struct Busy(Vec<Child>);

impl Busy {
    /// Starts as many spinning processes as there are processors. They end
    /// with this process, however it ends.
    ///
    /// # Errors
    /// If they cannot be started.
    pub fn start() -> Result<Self> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let mut busy = Self(Vec::new());
        for _ in 0..cpus {
            busy.0.push(spin().spawn().context("start a spinning shell")?);
        }
        Ok(busy)
    }
}

fn spin() -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "while :; do :; done"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: prctl is async-signal-safe and touches no memory of the parent.
    unsafe {
        command.pre_exec(|| {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    command
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinners_run_and_end() {
        let busy = Busy::start().unwrap();
        let pids: Vec<u32> = busy.0.iter().map(Child::id).collect();
        assert!(!pids.is_empty());
        assert!(pids.iter().all(|pid| std::path::Path::new(&format!("/proc/{pid}")).exists()));
        drop(busy);
        assert!(pids.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()));
    }
}
