//! The memory cgroup that limits the program, version 1 or 2: the agent looks
//! at its counters, and makes no copy where there is no room for one. Looked
//! for once; a limit that is set later goes unnoticed.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use runahead_protocol::session::GROUP_LEN_MAX;

/// Where cgroups are mounted, by every distribution since systemd.
const MOUNTPOINT: &str = "/sys/fs/cgroup";

/// A memory cgroup with a limit. The default: none limits this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Its `memory.stat`.
    pub statistics: PathBuf,
    /// The lowest limit on it, bytes.
    pub limit_bytes: u64,
}

/// The one that this process is in; none where no limit is set or seen.
pub fn find() -> Option<Group> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let (version1, path) = memory_line(&text)?;
    let root = Path::new(MOUNTPOINT).join(if version1 { "memory" } else { "" });
    let file = if version1 { "memory.limit_in_bytes" } else { "memory.max" };
    // In a container the path may be the host's and the mount begin below it.
    let relative = path.trim_start_matches('/');
    let mut directory = root.join(relative);
    if relative.is_empty() || !directory.is_dir() {
        directory.clone_from(&root);
    }
    let limit = |directory: &Path| read_limit(&fs::read_to_string(directory.join(file)).ok()?);
    let levels = directory.ancestors().take_while(|level| level.starts_with(&root));
    let limit_bytes = levels.filter_map(limit).min()?;
    let statistics = directory.join("memory.stat");
    let bytes = statistics.as_os_str().as_bytes();
    let is_speakable = !bytes.contains(&b';') && bytes.len() <= GROUP_LEN_MAX;
    is_speakable.then_some(Group { statistics, limit_bytes })
}

/// The path in the memory hierarchy, and whether that is version 1
/// (cgroups(7)). Where the memory controller is version 1's, the line of
/// version 2 says nothing about memory.
fn memory_line(text: &str) -> Option<(bool, &str)> {
    let lines = || text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let version1 = lines().find(|(names, _)| names.split(',').any(|name| name == "memory"));
    let version2 = || lines().find(|(names, _)| names.is_empty());
    version1.map(|(_, path)| (true, path)).or_else(|| version2().map(|(_, path)| (false, path)))
}

/// A limit; none for `max` and for version 1's "more than there can be".
fn read_limit(text: &str) -> Option<u64> {
    const NONE_BYTES: u64 = 1 << 60;
    text.trim().parse().ok().filter(|limit| *limit < NONE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_hierarchy_is_found() {
        let version1 = "12:pids:/a\n5:cpu,memory:/b c\n1:name=systemd:/d\n0::/e\n";
        assert_eq!(memory_line(version1), Some((true, "/b c")));
        assert_eq!(
            memory_line("0::/user.slice/x:y.scope\n"),
            Some((false, "/user.slice/x:y.scope"))
        );
        assert_eq!(memory_line("3:pids:/a\n"), None);
    }

    #[test]
    fn no_limit_is_none() {
        assert_eq!(read_limit("33554432\n"), Some(32 << 20));
        assert_eq!(read_limit("max\n"), None);
        assert_eq!(read_limit("9223372036854771712\n"), None);
    }
}
