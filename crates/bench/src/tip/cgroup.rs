//! A memory cgroup for a measured program, version 1 or 2.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// A cgroup that is removed when dropped; by then its programs must have ended.
#[derive(Debug)]
pub struct MemoryCgroup(PathBuf);

impl MemoryCgroup {
    /// A new one that lets `limit_bytes` be used.
    ///
    /// # Errors
    /// Without root, or where the machine has no memory cgroups.
    pub fn new(name: &str, limit_bytes: u64) -> Result<Self> {
        let (root, file) = root()?;
        let path = root.join(format!("runahead-bench-{}-{name}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("make the cgroup {}", path.display()))?;
        let this = Self(path);
        let limit = this.0.join(file);
        fs::write(&limit, limit_bytes.to_string())
            .with_context(|| format!("set {}", limit.display()))?;
        Ok(this)
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Where cgroups can be made, and what their limit is called.
fn root() -> Result<(PathBuf, &'static str)> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let at = |wanted: &dyn Fn(&str, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, point, kind, options, ..] = words.as_slice() else { return None };
            wanted(kind, options).then(|| PathBuf::from(point))
        })
    };
    let v1 = |kind: &str, options: &str| {
        kind == "cgroup" && options.split(',').any(|option| option == "memory")
    };
    if let Some(root) = at(&v1) {
        return Ok((root, "memory.limit_in_bytes"));
    }
    if let Some(root) = at(&|kind, _| kind == "cgroup2") {
        let control = root.join("cgroup.subtree_control");
        // Fails where it is on already, or not ours to switch on.
        let _ = fs::write(&control, "+memory");
        if fs::read_to_string(&control)?.split_whitespace().any(|name| name == "memory") {
            return Ok((root, "memory.max"));
        }
    }
    bail!("this machine has no memory cgroups for `bench tip --live`")
}
