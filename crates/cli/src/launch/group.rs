//! The memory cgroup that limits the program, version 1 or 2: the agent looks
//! at its counters, and makes no copy where there is no room for one. Looked
//! for once; a limit that is set later goes unnoticed.
//!
//! Without a heap: it is part of every start ([`super::usual`]).

use std::ffi::CStr;

use runahead_protocol::session::GROUP_LEN_MAX;
use rustix::fs::{FileType, Mode, OFlags};

use super::text::Text;

/// Where cgroups are mounted, by every distribution since systemd.
const MOUNTPOINT: &[u8] = b"/sys/fs/cgroup";
/// Bytes of `/proc/self/cgroup` that are looked at: a line for each of version
/// 1's dozen controllers.
const LINES_LEN_MAX: usize = 4096;

/// A memory cgroup with a limit.
#[derive(Debug)]
pub struct Group {
    /// Its `memory.stat`.
    pub statistics: Text<{ GROUP_LEN_MAX + 1 }>,
    /// The lowest limit on it, bytes.
    pub limit_bytes: u64,
}

/// The one that this process is in; none where no limit is set or seen.
pub fn find() -> Option<Group> {
    let mut lines = [0; LINES_LEN_MAX];
    let (version1, path) = memory_line(read(c"/proc/self/cgroup", &mut lines)?)?;
    let mut directory = Text::new();
    directory.add(&[MOUNTPOINT, if version1 { b"/memory" } else { b"" }])?;
    let root_len = directory.as_bytes().len();
    // In a container the path may be the host's and the mount begin below it.
    let first = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    let path = &path[first..];
    if !path.is_empty() {
        directory.add(&[b"/", path])?;
        if !is_directory(&directory) {
            directory.truncate(root_len);
        }
    }
    let mut limit_bytes = None;
    let mut level = Text::<{ GROUP_LEN_MAX + 1 }>::new();
    level.add(&[directory.as_bytes()])?;
    // Up to the root of the hierarchy: the lowest limit counts.
    while level.as_bytes().len() >= root_len {
        let len = level.as_bytes().len();
        level.add(&[if version1 { b"/memory.limit_in_bytes" } else { b"/memory.max" }])?;
        let mut text = [0; 32];
        let limit = read(level.as_c_str(), &mut text).and_then(read_limit);
        limit_bytes = limit.into_iter().chain(limit_bytes).min();
        level.truncate(len);
        let parent = level.as_bytes().iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        level.truncate(parent);
    }
    let limit_bytes = limit_bytes?;
    directory.add(&[b"/memory.stat"])?;
    let is_speakable = !directory.as_bytes().contains(&b';');
    is_speakable.then_some(Group { statistics: directory, limit_bytes })
}

fn is_directory<const MAX: usize>(path: &Text<MAX>) -> bool {
    rustix::fs::stat(path.as_c_str())
        .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Directory)
}

/// The beginning of a file of the kernel's.
fn read<'b>(path: &CStr, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let len = rustix::io::read(&file, &mut *buffer).ok()?;
    buffer.get(..len)
}

/// The path in the memory hierarchy, and whether that is version 1
/// (cgroups(7)). Where the memory controller is version 1's, the line of
/// version 2 says nothing about memory.
fn memory_line(text: &[u8]) -> Option<(bool, &[u8])> {
    let mut version2 = None;
    for line in text.split(|&byte| byte == b'\n') {
        let mut fields = line.splitn(3, |&byte| byte == b':');
        let (Some(_), Some(names), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if names.split(|&byte| byte == b',').any(|name| name == b"memory") {
            return Some((true, path));
        }
        if names.is_empty() {
            version2 = Some((false, path));
        }
    }
    version2
}

/// A limit; none for `max` and for version 1's "more than there can be".
fn read_limit(text: &[u8]) -> Option<u64> {
    const NONE_BYTES: u64 = 1 << 60;
    let digits = text.trim_ascii();
    let limit = digits.iter().try_fold(0u64, |limit, &digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        limit.checked_mul(10)?.checked_add(u64::from(digit))
    })?;
    (!digits.is_empty() && limit < NONE_BYTES).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_hierarchy_is_found() {
        let version1 = b"12:pids:/a\n5:cpu,memory:/b c:d\n1:name=systemd:/d\n0::/e\n";
        assert_eq!(memory_line(version1), Some((true, &b"/b c:d"[..])));
        let version2 = b"0::/user.slice/x:y.scope\n";
        assert_eq!(memory_line(version2), Some((false, &b"/user.slice/x:y.scope"[..])));
        assert_eq!(memory_line(b"3:pids:/a\n"), None);
        assert_eq!(memory_line(b""), None);
    }

    #[test]
    fn no_limit_is_none() {
        assert_eq!(read_limit(b"33554432\n"), Some(32 << 20));
        assert_eq!(read_limit(b"max\n"), None);
        assert_eq!(read_limit(b""), None);
        assert_eq!(read_limit(b"9223372036854771712\n"), None);
        assert_eq!(read_limit(b"99999999999999999999999\n"), None);
    }
}
