//! The memory that a program may have (cgroups(7)).

use std::ffi::CStr;

use rustix::fs::OFlags;

use crate::{File, PathText};

/// Where cgroups are mounted, by every distribution since systemd.
const MOUNTPOINT: &[u8] = b"/sys/fs/cgroup";
/// Bytes of `/proc/self/cgroup` that are looked at.
const GROUPS_LEN_MAX: usize = 4096;
/// Longest number, or as much of a file as tells a flag, in bytes.
const NUMBER_LEN_MAX: usize = 32;

/// The cgroups that this process is in, as `/proc/self/cgroup` tells them.
#[derive(Debug)]
pub struct Groups {
    text: [u8; GROUPS_LEN_MAX],
    len: usize,
}

impl Groups {
    /// Asks; `None` where nobody tells.
    pub fn look() -> Option<Groups> {
        let mut groups = Groups { text: [0; GROUPS_LEN_MAX], len: 0 };
        groups.len = read(c"/proc/self/cgroup", &mut groups.text)?.len();
        Some(groups)
    }

    fn text(&self) -> &[u8] {
        self.text.get(..self.len).unwrap_or_default()
    }

    /// The lowest limit on their memory, version 1 or 2, in bytes; `None` where
    /// none is set or seen. Three calls for each level, 10 to 20 µs.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.lowest(b"/memory.limit_in_bytes", b"/memory.max", parse)
    }

    /// Whether the OOM killer takes more than one process of them, or none and
    /// they wait.
    pub fn are_ended_together(&self) -> bool {
        fn flag(text: &[u8]) -> Option<u64> {
            ends_together(text).then_some(1)
        }
        self.lowest(b"/memory.oom_control", b"/memory.oom.group", flag).is_some()
    }

    /// The lowest number that `parse` finds in a file of this name, of version 1 or
    /// 2, in their directories and those above. One of these for all: there is little room.
    #[inline(never)]
    fn lowest(&self, first: &[u8], second: &[u8], parse: fn(&[u8]) -> Option<u64>) -> Option<u64> {
        // Where the controller is version 1's, the line of version 2 says nothing
        // about it.
        let lines = || self.text().split(|&byte| byte == b'\n').filter_map(group);
        let version1 = lines().find(|(names, _)| is_memory(names));
        let (root, name, group): (&[u8], &[u8], _) = match version1 {
            Some((_, group)) => (b"/memory", first, group),
            None => (b"", second, lines().find(|(names, _)| names.is_empty())?.1),
        };
        let mut path = PathText::new();
        path.add(&[MOUNTPOINT, root, group])?;
        let root_len = MOUNTPOINT.len() + root.len();
        // The root's path ends with a slash. In a container the path may be the
        // host's and the mount begin below it: then only the root is there.
        let mut len = path.as_bytes().len() - usize::from(path.as_bytes().ends_with(b"/"));
        let mut lowest = None;
        while len >= root_len {
            path.truncate(len);
            path.add(&[name])?;
            let mut number = [0; NUMBER_LEN_MAX];
            let limit = read(path.as_c_str(), &mut number).and_then(parse);
            lowest = limit.into_iter().chain(lowest).min();
            let level = path.as_bytes().get(..len)?;
            len = level.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        }
        lowest
    }
}

/// The controllers and the path of a line such as "4:memory:/a/b" or "0::/a/b".
fn group(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut fields = line.splitn(3, |&byte| byte == b':').skip(1);
    Some((fields.next()?, fields.next()?))
}

fn is_memory(controllers: &[u8]) -> bool {
    controllers.split(|&byte| byte == b',').any(|name| name == b"memory")
}

/// Whether `memory.oom.group` or version 1's `memory.oom_control` is set.
fn ends_together(text: &[u8]) -> bool {
    text.strip_prefix(b"oom_kill_disable ").unwrap_or(text).starts_with(b"1")
}

/// The number at the beginning of a file; `None`: "max", or none that fits.
fn parse(text: &[u8]) -> Option<u64> {
    let digits = text.split(|byte| !byte.is_ascii_digit()).next()?;
    let add = |number: u64, digit: &u8| {
        number.checked_mul(10)?.checked_add(u64::from(digit.wrapping_sub(b'0')))
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

/// The first bytes of a file.
fn read<'b>(path: &CStr, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    let file = File::open(path, OFlags::empty()).ok()?;
    let len = rustix::io::read(&file, &mut *buffer).ok()?;
    buffer.get(..len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_limits_are_understood() {
        assert_eq!(group(b"4:memory:/a/b"), Some((&b"memory"[..], &b"/a/b"[..])));
        assert_eq!(group(b"0::/a:b"), Some((&b""[..], &b"/a:b"[..])));
        assert_eq!(group(b"nonsense"), None);
        assert!(is_memory(b"cpu,memory") && !is_memory(b"cpu") && !is_memory(b""));
        assert_eq!(parse(b"8388608\n"), Some(8 << 20));
        assert_eq!(parse(b"max\n"), None);
        assert_eq!(parse(b"99999999999999999999999"), None, "more than fits");
        assert_eq!(parse(b""), None);
        assert!(ends_together(b"1\n") && ends_together(b"oom_kill_disable 1\nunder_oom 0\n"));
        assert!(!ends_together(b"0\n") && !ends_together(b"oom_kill_disable 0\nunder_oom 1\n"));
        assert!(!ends_together(b""));
    }
}
