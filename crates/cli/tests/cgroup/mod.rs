//! Memory cgroups for the tests of programs with little memory.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::bed::eventually;

/// A memory cgroup, of either version, removed with the value; by then it must
/// be empty. Children of a process in it are in it.
pub struct Cgroup(PathBuf);

impl Cgroup {
    pub fn new(limit_bytes: u64) -> Cgroup {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let nth = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("runahead-test-{}-{nth}", std::process::id());
        let (first, second) = (Path::new("/sys/fs/cgroup/memory"), Path::new("/sys/fs/cgroup"));
        let (directory, limit) = if first.is_dir() {
            (first.join(name), "memory.limit_in_bytes")
        } else {
            // Where it is delegated already, this is refused and not needed.
            let _ = fs::write(second.join("cgroup.subtree_control"), "+memory");
            (second.join(name), "memory.max")
        };
        fs::create_dir(&directory).unwrap();
        let cgroup = Cgroup(directory);
        fs::write(cgroup.0.join(limit), limit_bytes.to_string()).unwrap();
        cgroup
    }

    /// Where the kernel tells how much is in use, in bytes.
    #[allow(dead_code, reason = "not all tests ask")]
    pub fn usage(&self) -> PathBuf {
        let first = self.0.join("memory.usage_in_bytes");
        if first.exists() { first } else { self.0.join("memory.current") }
    }

    /// Processes that were ended because memory ran out.
    #[allow(dead_code, reason = "not all tests ask")]
    pub fn kills(&self) -> u64 {
        let files = ["memory.oom_control", "memory.events"];
        let text = files.iter().find_map(|file| fs::read_to_string(self.0.join(file)).ok());
        let text = text.expect("a memory cgroup tells of its kills");
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// Where memory runs out, not one process is ended, but all or none.
    #[allow(dead_code, reason = "not all tests ask")]
    pub fn end_all_or_none(&self) {
        let files = ["memory.oom_control", "memory.oom.group"].map(|file| self.0.join(file));
        let file = files.iter().find(|file| file.exists()).expect("the kernel has one of them");
        fs::write(file, "1").unwrap();
    }

    /// The command will run in it.
    pub fn enter(&self, command: &mut Command) {
        let procs = self.0.join("cgroup.procs");
        let procs = std::ffi::CString::new(procs.to_str().unwrap()).unwrap();
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || {
                let fd = libc::open(procs.as_ptr(), libc::O_WRONLY);
                let done = libc::write(fd, c"0".as_ptr().cast(), 1);
                libc::close(fd);
                if done == 1 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            });
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let gone = eventually(|| fs::remove_dir(&self.0).is_ok());
        assert!(gone || std::thread::panicking(), "{}: could not be removed", self.0.display());
    }
}
