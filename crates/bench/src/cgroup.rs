//! A memory cgroup of one's own, version 1 or 2.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::interrupt;
use crate::process::CommandSpec;

/// Looks at a cgroup that is not empty yet, and the pause between two.
const LOOKS_MAX: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// Removed when it is dropped; it must be empty by then.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    version1: bool,
}

impl Cgroup {
    /// Makes one, `NAME-PID` with this process's id, after it has removed
    /// those of this name whose process is gone: killed before it could.
    ///
    /// # Errors
    /// Without a memory cgroup hierarchy that may be written.
    pub fn new(name: &str) -> Result<Self> {
        let version1 = Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists();
        let root = Path::new(if version1 { "/sys/fs/cgroup/memory" } else { "/sys/fs/cgroup" });
        if !version1 {
            ensure!(
                root.join("cgroup.controllers").exists(),
                "no cgroups are mounted at /sys/fs/cgroup: mount -t cgroup2 none /sys/fs/cgroup"
            );
            // May be on already.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
        }
        for left in left_behind(root, name) {
            clear(&left);
        }
        let path = root.join(format!("{name}-{}", std::process::id()));
        interrupt::remember_cgroup(&path);
        fs::create_dir(&path).with_context(|| format!("make the cgroup {}", path.display()))?;
        Ok(Self { path, version1 })
    }

    /// Limits memory, page cache included, to so many bytes; none: no limit.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn limit(&self, bytes: Option<u64>) -> Result<()> {
        let (file, none) =
            if self.version1 { ("memory.limit_in_bytes", "-1") } else { ("memory.max", "max") };
        let text = bytes.map_or(none.to_owned(), |bytes| bytes.to_string());
        self.write(file, &text)
    }

    /// Most memory that was in use at a time since it was made, bytes.
    ///
    /// # Errors
    /// If the kernel does not tell (version 2 before Linux 5.19).
    pub fn peak(&self) -> Result<u64> {
        let file = if self.version1 { "memory.max_usage_in_bytes" } else { "memory.peak" };
        let path = self.path.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        text.trim().parse().with_context(|| format!("parse {}", path.display()))
    }

    /// What `run` returns, and the most memory that was in use until then since the
    /// cgroup was made, bytes: where the kernel does not tell, what a look now and
    /// then has seen.
    ///
    /// # Errors
    /// What `run` returns, or if the kernel does not tell what is in use.
    pub fn peak_of<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let mut most = 0;
                while !is_over.load(Relaxed) {
                    most = most.max(self.usage().unwrap_or(0));
                    std::thread::sleep(PAUSE);
                }
                most
            });
            let ran = run();
            is_over.store(true, Relaxed);
            let seen = looks.join().unwrap_or(0).max(self.usage()?);
            Ok((ran?, self.peak().unwrap_or(seen)))
        })
    }

    /// Memory in use now, page cache included, bytes.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn usage(&self) -> Result<u64> {
        let file = if self.version1 { "memory.usage_in_bytes" } else { "memory.current" };
        let path = self.path.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        text.trim().parse().with_context(|| format!("parse {}", path.display()))
    }

    /// A command that moves itself in before it becomes `spec`.
    pub fn wrap(&self, spec: &CommandSpec) -> CommandSpec {
        self.wrap_as(spec, "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"")
    }

    /// The same, but stopped when it is in: moving takes some 15 ms (`synchronize_rcu`,
    /// Linux 6.18). For [`process::run_stopped`](crate::process::run_stopped).
    pub fn wrap_stopped(&self, spec: &CommandSpec) -> CommandSpec {
        self.wrap_as(spec, "echo $$ > \"$0/cgroup.procs\" && kill -STOP $$ && exec \"$@\"")
    }

    fn wrap_as(&self, spec: &CommandSpec, enter: &str) -> CommandSpec {
        CommandSpec {
            program: "/bin/sh".into(),
            arguments: ["-c".into(), enter.into(), self.path.clone().into()]
                .into_iter()
                .chain([spec.program.clone()])
                .chain(spec.arguments.iter().cloned())
                .collect(),
            ..spec.clone()
        }
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.path.join(file);
        fs::write(&path, text).with_context(|| format!("write {text} to {}", path.display()))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that is just ending may hold it for a moment.
        remove(&self.path);
        interrupt::forget_cgroup(&self.path);
    }
}

/// Removes an empty cgroup; false where somebody stays in it.
fn remove(path: &Path) -> bool {
    for _ in 0..LOOKS_MAX {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                std::thread::sleep(PAUSE);
            }
            _ => return true,
        }
    }
    false
}

/// Ends whoever is in a cgroup of ours and removes it.
pub fn clear(path: &Path) {
    for _ in 0..LOOKS_MAX {
        let members = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        if members.is_empty() {
            break;
        }
        for member in members.lines().filter_map(|line| line.parse::<i32>().ok()) {
            // SAFETY: plain call; a process that only a benchmark of ours has
            // put into this cgroup.
            unsafe { libc::kill(member, libc::SIGKILL) };
        }
        std::thread::sleep(PAUSE);
    }
    remove(path);
}

/// Cgroups `NAME-PID` whose process does not exist.
fn left_behind(root: &Path, name: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let id = path
                .file_name()
                .and_then(|file| file.to_str()?.strip_prefix(name)?.strip_prefix('-'))
                .and_then(|id| id.parse::<u32>().ok());
            id.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As before Linux 5.19.
    #[test]
    fn the_peak_is_seen_where_the_kernel_does_not_tell() {
        let directory = tempfile::tempdir().unwrap();
        let current = directory.path().join("memory.current");
        fs::write(&current, "4096\n").unwrap();
        let cgroup = Cgroup { path: directory.path().to_owned(), version1: false };
        assert!(cgroup.peak().is_err());
        let grow = || Ok(fs::write(&current, "40960\n")?);
        assert_eq!(cgroup.peak_of(grow).unwrap().1, 40_960);
        fs::write(directory.path().join("memory.peak"), "81920\n").unwrap();
        assert_eq!(cgroup.peak_of(|| Ok(())).unwrap().1, 81_920);
        assert!(cgroup.peak_of(|| -> Result<()> { anyhow::bail!("no") }).is_err());
    }

    #[test]
    fn what_a_killed_benchmark_left_is_told_from_what_runs() {
        let root = tempfile::tempdir().unwrap();
        let gone = root.path().join("test-4194304");
        fs::create_dir(&gone).unwrap();
        fs::create_dir(root.path().join(format!("test-{}", std::process::id()))).unwrap();
        fs::create_dir(root.path().join("other-4194304")).unwrap();
        fs::create_dir(root.path().join("test-harm-4194304")).unwrap();
        assert_eq!(left_behind(root.path(), "test"), std::slice::from_ref(&gone));
        clear(&gone);
        assert!(left_behind(root.path(), "test").is_empty());
    }
}
