//! A memory cgroup of one's own, version 1 or 2.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::process::CommandSpec;

/// Removed when it is dropped; it must be empty by then.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    version1: bool,
}

impl Cgroup {
    /// Makes one. `name` must be unique on the machine.
    ///
    /// # Errors
    /// Without a memory cgroup hierarchy that may be written.
    pub fn new(name: &str) -> Result<Self> {
        let version1 = Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists();
        let root = Path::new(if version1 { "/sys/fs/cgroup/memory" } else { "/sys/fs/cgroup" });
        if !version1 {
            ensure!(
                root.join("cgroup.controllers").exists(),
                "no cgroups are mounted at /sys/fs/cgroup"
            );
            // May be on already.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
        }
        let path = root.join(name);
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
        let enter = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
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
        for _ in 0..100 {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                _ => return,
            }
        }
    }
}
