//! Where the files of this process's control group are, of version 1 or 2, and which limits
//! they set (cgroups(7)): the lowest on the group and on those above it.

use crate::{opening, procfs, sys};

/// Bytes read at once at the first stall.
const SMALL_CHUNK_LEN: usize = 128;
/// Longest path of a group's file, with its NUL, in bytes.
const PATH_LEN_MAX: usize = 512;

/// Where cgroups are mounted, by every distribution since systemd.
const MOUNTPOINT: &[u8] = b"/sys/fs/cgroup";

/// A path that is put together.
#[derive(Debug)]
pub(super) struct Path {
    bytes: [u8; PATH_LEN_MAX],
    len: usize,
}

impl Path {
    pub(super) const EMPTY: Path = Path { bytes: [0; PATH_LEN_MAX], len: 0 };

    /// Appends; `None` where that would be too long.
    fn add(&mut self, text: &[u8]) -> Option<()> {
        let end = self.len.checked_add(text.len()).filter(|end| *end < PATH_LEN_MAX)?;
        self.bytes.get_mut(self.len..end)?.copy_from_slice(text);
        self.cut(end);
        Some(())
    }

    /// Leaves the first `len` bytes.
    fn cut(&mut self, len: usize) {
        self.len = len;
        if let Some(nul) = self.bytes.get_mut(len) {
            *nul = 0;
        }
    }

    pub(super) fn with_nul(&self) -> &[u8] {
        self.bytes.get(..=self.len).unwrap_or(b"\0")
    }

    /// Becomes the `memory.stat` of the group that this process is in, and
    /// returns the lowest limit on it, and whether the OOM killer takes more, or
    /// less, than one process; `None` where nothing is known of it.
    pub(super) fn find_memory(&mut self) -> Option<(Option<u64>, bool)> {
        let (root_len, version1) = self.find_group(&MEMORY)?;
        let limit = self.lowest(root_len, MEMORY.limit(version1), read_limit);
        let flag = self.lowest(root_len, OOM.limit(version1), read_flag);
        self.add(b"/memory.stat")?;
        Some((limit, flag.is_some()))
    }

    /// Becomes the directory of the group that this process is in as for this
    /// controller, and returns the lowest limit on it, if there is one; `None`
    /// where nothing is known of the group.
    pub(super) fn find_limit(&mut self, controller: &Controller) -> Option<Option<u64>> {
        let (root_len, version1) = self.find_group(controller)?;
        Some(self.lowest(root_len, controller.limit(version1), read_limit))
    }

    /// Becomes the file that tells how much processor time was taken of the lowest
    /// quota on the group that this process is in, or on one above it, and returns that,
    /// in ns a second; `None` where there is none.
    pub(super) fn find_quota(&mut self) -> Option<u64> {
        let (root_len, version1) = self.find_group(&CPU)?;
        let (quota, level_len) = self.lowest_quota(root_len, version1)?;
        self.cut(level_len);
        if !version1 {
            self.add(b"/cpu.stat")?;
            return Some(quota);
        }
        // Version 1's counter has a hierarchy of its own, mostly mounted with this one.
        self.add(CPU_USAGE)?;
        let mut stat = sys::Stat::default();
        if !sys::stat(self.with_nul(), &mut stat) {
            self.move_to_accounting(root_len)?;
        }
        Some(quota)
    }

    /// Becomes the same below the hierarchy of [`CPU_ACCOUNTING`], where it is below
    /// that of [`CPU`], whose root has a path of `root_len` bytes; `None` where that would
    /// be too long.
    fn move_to_accounting(&mut self, root_len: usize) -> Option<()> {
        let below = self.len.checked_sub(root_len)?;
        let moved = root_len + CPU_ACCOUNTING.len() - CPU.version1.len();
        if moved + below >= PATH_LEN_MAX {
            return None;
        }
        for at in (0..below).rev() {
            let byte = *self.bytes.get(root_len + at)?;
            *self.bytes.get_mut(moved + at)? = byte;
        }
        for (slot, byte) in self.bytes.iter_mut().skip(MOUNTPOINT.len()).zip(CPU_ACCOUNTING) {
            *slot = *byte;
        }
        self.cut(moved + below);
        Some(())
    }

    /// The lowest quota in this directory and those above it, and the length of that
    /// one's path.
    fn lowest_quota(&mut self, root_len: usize, version1: bool) -> Option<(u64, usize)> {
        let mut level_len = self.len;
        let mut lowest = None;
        while level_len >= root_len {
            let quota = match version1 {
                false => self.limit_at(level_len, CPU.limit(false), read_quota),
                true => self.limit_at(level_len, CPU.limit(true), read_limit).and_then(|quota| {
                    per_second(quota, self.limit_at(level_len, CPU_PERIOD, read_limit)?)
                }),
            };
            lowest = quota.map(|quota| (quota, level_len)).into_iter().chain(lowest).min();
            let level = self.bytes.get(..level_len)?;
            level_len = level.iter().rposition(|&byte| byte == b'/')?;
        }
        lowest
    }

    /// The same, without the limit: how long the path of the hierarchy's root is,
    /// and whether that is version 1's.
    fn find_group(&mut self, controller: &Controller) -> Option<(usize, bool)> {
        // Where the controller is version 1's, the line of version 2 says
        // nothing about it.
        let version1 = self.own(controller, true);
        if !version1 && !self.own(controller, false) {
            return None;
        }
        let root_len = MOUNTPOINT.len() + if version1 { controller.version1.len() } else { 0 };
        // In a container the path may be the host's and the mount begin below
        // it.
        if self.bytes.get(root_len..self.len) == Some(b"/") || !self.is_directory() {
            self.cut(root_len);
        }
        Some((root_len, version1))
    }

    /// Becomes the directory of this controller's cgroup of this version, as far
    /// as `/proc/self/cgroup` says; false where it says nothing (cgroups(7)).
    #[inline(never)]
    fn own(&mut self, controller: &Controller, version1: bool) -> bool {
        let mut lines = Lines { controller, version1, fits: true, found: false };
        self.cut(0);
        let mut chunk = [0u8; SMALL_CHUNK_LEN];
        opening::with(b"/proc/self/cgroup\0", |fd| {
            opening::read_all(fd, &mut chunk, |text| {
                lines.add(self, text);
                !lines.found
            });
        });
        lines.found
    }

    #[inline(never)]
    fn is_directory(&self) -> bool {
        let mut stat = sys::Stat::default();
        sys::stat(self.with_nul(), &mut stat) && stat.mode & sys::S_IFMT == sys::S_IFDIR
    }

    /// The lowest number that `read` finds in this directory and those above it,
    /// whose first has a path of `root_len` bytes.
    fn lowest(&mut self, root_len: usize, name: &LimitName, read: Reader) -> Option<u64> {
        let mut level_len = self.len;
        let mut lowest = None;
        while level_len >= root_len {
            let limit = self.limit_at(level_len, name, read);
            lowest = limit.into_iter().chain(lowest).min();
            let level = self.bytes.get(..level_len)?;
            level_len = level.iter().rposition(|&byte| byte == b'/')?;
        }
        lowest
    }

    /// The limit on the directory whose path are the first `level_len` bytes.
    /// No copy is made of them: there may be little stack.
    #[inline(never)]
    fn limit_at(&mut self, level_len: usize, name: &LimitName, read: Reader) -> Option<u64> {
        let mut name = *name;
        let end = level_len + name.len();
        swap(self.bytes.get_mut(level_len..end)?, &mut name);
        let limit = self.bytes.get(..end).and_then(read);
        swap(self.bytes.get_mut(level_len..end)?, &mut name);
        limit
    }
}

/// Name of a file with a limit, ended by NUL.
type LimitName = [u8; 23];

/// Reads such a file.
type Reader = fn(&[u8]) -> Option<u64>;

/// A controller of cgroups (cgroups(7)).
pub(super) struct Controller {
    /// Below the mount point, version 1's hierarchy: a slash and its name.
    version1: &'static [u8],
    /// Its limits, of version 1 and 2.
    limits: [LimitName; 2],
}

impl Controller {
    fn limit(&self, version1: bool) -> &LimitName {
        let [first, second] = &self.limits;
        if version1 { first } else { second }
    }
}

const MEMORY: Controller = Controller {
    version1: b"/memory",
    limits: [*b"/memory.limit_in_bytes\0", *b"/memory.max\0          \0"],
};

/// What happens where memory runs out.
const OOM: Controller = Controller {
    version1: b"/memory",
    limits: [*b"/memory.oom_control\0   ", *b"/memory.oom.group\0     "],
};

/// How many tasks there may be.
pub(super) const TASKS: Controller =
    Controller { version1: b"/pids", limits: [*b"/pids.max\0            \0"; 2] };

const CPU: Controller = Controller {
    version1: b"/cpu",
    limits: [*b"/cpu.cfs_quota_us\0    \0", *b"/cpu.max\0             \0"],
};
const CPU_PERIOD: &LimitName = b"/cpu.cfs_period_us\0   \0";
const CPU_ACCOUNTING: &[u8] = b"/cpuacct";
const CPU_USAGE: &[u8] = b"/cpuacct.usage";

/// Lines of `/proc/self/cgroup` on their way into a [`Path`].
struct Lines<'c> {
    controller: &'c Controller,
    version1: bool,
    fits: bool,
    found: bool,
}

impl Lines<'_> {
    fn add(&mut self, line: &mut Path, text: &[u8]) {
        for &byte in text {
            if byte != b'\n' {
                self.fits &= line.add(&[byte]).is_some();
                continue;
            }
            if self.fits && self.take(line).is_some() {
                self.found = true;
                return;
            }
            self.fits = true;
            line.cut(0);
        }
    }

    /// Makes the directory of a line such as "4:memory:/a/b" or "0::/a/b", if
    /// it is the one that is looked for.
    fn take(&self, line: &mut Path) -> Option<()> {
        let text = line.bytes.get(..line.len)?;
        let mut fields = text.splitn(3, |&byte| byte == b':');
        let (_, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_it = match self.version1 {
            true => {
                let wanted = self.controller.version1.get(1..);
                names.split(|&byte| byte == b',').any(|name| Some(name) == wanted)
            }
            false => names.is_empty(),
        };
        if !is_it || path.first() != Some(&b'/') {
            return None;
        }
        let (from, len) = (line.len - path.len(), path.len());
        let below: &[u8] = if self.version1 { self.controller.version1 } else { b"" };
        let root_len = MOUNTPOINT.len() + below.len();
        if root_len + len >= PATH_LEN_MAX {
            return None;
        }
        let bytes = line.bytes.as_mut_ptr();
        // SAFETY: both ranges lie inside the array, as has just been checked
        // of the second one.
        unsafe { core::ptr::copy(bytes.add(from), bytes.add(root_len), len) };
        for (slot, byte) in line.bytes.iter_mut().zip(MOUNTPOINT.iter().chain(below)) {
            *slot = *byte;
        }
        line.cut(root_len + len);
        Some(())
    }
}

/// Exchanges the bytes of both.
fn swap(bytes: &mut [u8], others: &mut [u8]) {
    for (byte, other) in bytes.iter_mut().zip(others) {
        core::mem::swap(byte, other);
    }
}

/// The limit in a file; `None` for `max` and for version 1's "more than there
/// can be". `path` ends in NUL.
fn read_limit(path: &[u8]) -> Option<u64> {
    let mut text = [0u8; 32];
    limit(procfs::read(path, &mut text)?)
}

/// Processor time in a second, in ns, as `cpu.max` says: the quota and its period, in µs;
/// `None` for `max`. `path` ends in NUL.
fn read_quota(path: &[u8]) -> Option<u64> {
    let mut text = [0u8; 64];
    let mut numbers = procfs::read(path, &mut text)?.trim_ascii_end().split(|&byte| byte == b' ');
    per_second(procfs::decimal(numbers.next()?)?, procfs::decimal(numbers.next()?)?)
}

/// What a quota for a period, both in µs, is in a second, in ns.
fn per_second(quota_us: u64, period_us: u64) -> Option<u64> {
    quota_us.checked_mul(1_000_000_000)?.checked_div(period_us).map(|ns| ns.max(1))
}

/// The number that is all of a file; `path` ends in NUL.
pub(super) fn read_number(path: &[u8]) -> Option<u64> {
    let mut text = [0u8; 32];
    procfs::decimal(procfs::read(path, &mut text)?.trim_ascii_end())
}

/// 1 where more or less than one process is ended; `path` ends in NUL.
fn read_flag(path: &[u8]) -> Option<u64> {
    let mut text = [0u8; 64];
    is_fatal(procfs::read(path, &mut text)?).then_some(1)
}

/// As `memory.oom.group` and version 1's `memory.oom_control` say.
fn is_fatal(text: &[u8]) -> bool {
    text.starts_with(b"1") || text.starts_with(b"oom_kill_disable 1")
}

fn limit(text: &[u8]) -> Option<u64> {
    const NONE_BYTES: u64 = 1 << 60;
    procfs::decimal(text.trim_ascii_end()).filter(|&limit| limit < NONE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The directory that these lines lead to, whatever the buffer cuts.
    fn directory(text: &str, version1: bool) -> Option<String> {
        let mut found = None;
        for cut in 0..text.len() {
            let (mut path, mut lines) =
                (Path::EMPTY, Lines { controller: &MEMORY, version1, fits: true, found: false });
            for part in [&text.as_bytes()[..cut], &text.as_bytes()[cut..]] {
                if !lines.found {
                    lines.add(&mut path, part);
                }
            }
            let here = lines.found.then(|| {
                assert_eq!(path.bytes[path.len], 0);
                String::from_utf8(path.bytes[..path.len].to_vec()).unwrap()
            });
            assert_eq!(found.get_or_insert(here.clone()), &here, "cut at {cut}");
        }
        found.flatten()
    }

    #[test]
    fn the_memory_hierarchy_is_found() {
        let version1 = "12:pids:/a\n5:cpu,memory:/b c:d\n1:name=systemd:/d\n0::/e\n";
        assert_eq!(directory(version1, true).unwrap(), "/sys/fs/cgroup/memory/b c:d");
        let version2 = "0::/user.slice/x:y.scope\n";
        assert_eq!(directory(version2, true), None);
        assert_eq!(directory(version2, false).unwrap(), "/sys/fs/cgroup/user.slice/x:y.scope");
        assert_eq!(directory("3:pids:/a\n", false), None);
        let (mut path, mut lines) =
            (Path::EMPTY, Lines { controller: &TASKS, version1: true, fits: true, found: false });
        lines.add(&mut path, version1.as_bytes());
        assert_eq!(path.with_nul(), b"/sys/fs/cgroup/pids/a\0");
        let long = format!("4:memory:/{}\n0::/e\n", "x".repeat(PATH_LEN_MAX));
        assert_eq!(directory(&long, true), None);
        assert_eq!(directory(&long, false).unwrap(), "/sys/fs/cgroup/e");
    }

    #[test]
    fn the_lowest_limit_counts() {
        let root = std::env::temp_dir().join(std::format!("group-test-{}", std::process::id()));
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        for (directory, limit) in [("a", "33554432\n"), ("a/b", "max\n"), ("", "99999999\n")] {
            std::fs::write(root.join(directory).join("memory.max"), limit).unwrap();
        }
        let mut path = Path::EMPTY;
        path.add(root.join("a/b").to_str().unwrap().as_bytes()).unwrap();
        assert!(path.is_directory());
        let root_len = root.to_str().unwrap().len();
        assert_eq!(path.lowest(root_len, MEMORY.limit(false), read_limit), Some(33_554_432));
        assert_eq!(path.lowest(root_len, MEMORY.limit(true), read_limit), None);
        std::fs::write(root.join("a/b/pids.max"), "64\n").unwrap();
        std::fs::write(root.join("a/pids.max"), "max\n").unwrap();
        assert_eq!(path.lowest(root_len, TASKS.limit(false), read_limit), Some(64));
        std::fs::remove_dir_all(&root).unwrap();
        assert!(!path.is_directory());
    }

    /// Here the container's quota, two levels up, of 1.5 processors, and one inside it of 2.
    #[test]
    fn the_lowest_quota_counts() {
        let root = std::env::temp_dir().join(std::format!("cpu-test-{}", std::process::id()));
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(root.join(name), text).unwrap();
        write("cpu.max", "max 100000\n");
        write("a/cpu.max", "150000 100000\n");
        write("a/b/cpu.max", "100000 50000\n");
        write("cpu.cfs_quota_us", "-1\n");
        write("cpu.cfs_period_us", "100000\n");
        write("a/cpu.cfs_quota_us", "30000\n");
        write("a/cpu.cfs_period_us", "10000\n");
        let mut path = Path::EMPTY;
        path.add(root.join("a/b").to_str().unwrap().as_bytes()).unwrap();
        let root_len = root.to_str().unwrap().len();
        assert_eq!(path.lowest_quota(root_len, false), Some((1_500_000_000, root_len + 2)));
        assert_eq!(path.lowest_quota(root_len, true), Some((3_000_000_000, root_len + 2)));
        path.cut(root_len);
        assert_eq!(path.lowest_quota(root_len, false), None);
        assert_eq!(path.lowest_quota(root_len, true), None);
        assert_eq!(per_second(1, 0), None);
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_counter_of_version_1_may_have_a_hierarchy_of_its_own() {
        let mut path = Path::EMPTY;
        path.add(b"/sys/fs/cgroup/cpu/no/such/group").unwrap();
        path.add(CPU_USAGE).unwrap();
        path.move_to_accounting(MOUNTPOINT.len() + CPU.version1.len()).unwrap();
        let expected: &[u8] = b"/sys/fs/cgroup/cpuacct/no/such/group/cpuacct.usage\0";
        assert_eq!(path.with_nul(), expected);
        let mut long = Path::EMPTY;
        long.add(&[b'x'; PATH_LEN_MAX - 2]).unwrap();
        assert!(long.move_to_accounting(18).is_none());
    }

    #[test]
    fn no_limit_is_none() {
        assert_eq!(limit(b"33554432\n"), Some(32 << 20));
        for none in [&b"max\n"[..], b"", b"9223372036854771712\n", b"99999999999999999999999\n"] {
            assert_eq!(limit(none), None);
        }
    }
}
