//! How many buffers there are: the page cache that the memory cgroup, or the machine, has
//! room for.

use std::fs;
use std::path::{Path, PathBuf};

use crate::BLOCK_BYTES;

/// Share of a limit that is left alone: what is under way, page tables, the kernel's own
/// batches of pages.
const SLACK_SHARE: u64 = 64;
/// And at least so much, in bytes.
const SLACK_BYTES_MIN: u64 = 1 << 20;

/// What a memory cgroup, or the machine, says at one time. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The limit; `u64::MAX`: none.
    pub limit: u64,
    /// What cannot be given back by dropping file pages.
    pub pinned: u64,
    /// Pages reclaimed by the kernel and wanted again, since the beginning: what the LRU
    /// memory that was taken from others was worth.
    pub refaults: u64,
}

/// Where to look.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// A cgroup's directory, version 1 or 2.
    V1(PathBuf),
    V2(PathBuf),
    /// No cgroup: the machine.
    Machine,
}

/// Watches the memory that this process may use.
#[derive(Debug)]
pub struct Memory {
    place: Place,
    refaults_before: Option<u64>,
    /// What was given up because others' pages came back, in bytes; recovers slowly.
    given_up: u64,
    /// Bytes read from files so far, for who counts a process's reads.
    pub bytes_read: u64,
}

impl Memory {
    /// The memory of this process.
    pub fn of_self() -> Self {
        let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let place = find(&cgroups, &mounts).unwrap_or(Place::Machine);
        Self { place, refaults_before: None, given_up: 0, bytes_read: 0 }
    }

    /// A name of the memory: processes with the same share it.
    pub fn domain(&self) -> String {
        match &self.place {
            Place::V1(directory) | Place::V2(directory) => {
                let inode = fs::metadata(directory)
                    .map(|metadata| std::os::unix::fs::MetadataExt::ino(&metadata))
                    .unwrap_or(0);
                format!("cgroup-{inode}")
            }
            Place::Machine => "machine".into(),
        }
    }

    fn read(&mut self, path: &Path) -> Option<String> {
        let text = fs::read_to_string(path).ok()?;
        self.bytes_read += text.len() as u64;
        Some(text)
    }

    fn number(&mut self, path: &Path) -> Option<u64> {
        self.read(path)?.trim().parse().ok()
    }

    /// What is said now.
    pub fn reading(&mut self) -> Reading {
        let cgroup = match self.place.clone() {
            Place::V1(directory) => self.v1(&directory),
            Place::V2(directory) => self.v2(&directory),
            Place::Machine => None,
        };
        match cgroup {
            Some(reading) if reading.limit < self.machine_total() => reading,
            _ => self.machine(),
        }
    }

    fn v1(&mut self, directory: &Path) -> Option<Reading> {
        let usage = self.number(&directory.join("memory.usage_in_bytes"))?;
        let stat = self.read(&directory.join("memory.stat"))?;
        let get = |name| field(&stat, name);
        let limit = get("hierarchical_memory_limit")?;
        let file = get("total_cache").or_else(|| get("cache"))?;
        let shared = get("total_shmem").or_else(|| get("shmem")).unwrap_or(0);
        let mapped = get("total_mapped_file").or_else(|| get("mapped_file")).unwrap_or(0);
        let refaults =
            get("total_workingset_refault_file").or_else(|| get("workingset_refault_file"));
        let evictable = file.saturating_sub(shared).saturating_sub(mapped);
        let pinned = usage.saturating_sub(evictable);
        Some(Reading { limit, pinned, refaults: refaults.unwrap_or(0) * 4096 })
    }

    fn v2(&mut self, directory: &Path) -> Option<Reading> {
        let usage = self.number(&directory.join("memory.current"))?;
        let stat = self.read(&directory.join("memory.stat"))?;
        let get = |name| field(&stat, name).unwrap_or(0);
        let mut limit = u64::MAX;
        let mut at = Some(directory);
        while let Some(directory) = at.filter(|directory| directory.join("memory.max").exists()) {
            for name in ["memory.max", "memory.high"] {
                limit = limit.min(self.number(&directory.join(name)).unwrap_or(u64::MAX));
            }
            at = directory.parent();
        }
        let evictable = get("file").saturating_sub(get("shmem")).saturating_sub(get("file_mapped"));
        let pinned = usage.saturating_sub(evictable);
        Some(Reading { limit, pinned, refaults: get("workingset_refault_file") * 4096 })
    }

    fn machine_total(&mut self) -> u64 {
        let text = self.read(Path::new("/proc/meminfo")).unwrap_or_default();
        field(&text, "MemTotal:").unwrap_or(0) * 1024
    }

    /// Without a limit: half of what the machine could give.
    fn machine(&mut self) -> Reading {
        let text = self.read(Path::new("/proc/meminfo")).unwrap_or_default();
        let get = |name| field(&text, name).unwrap_or(0) * 1024;
        let vmstat = self.read(Path::new("/proc/vmstat")).unwrap_or_default();
        let refaults = field(&vmstat, "workingset_refault_file").unwrap_or(0) * 4096;
        Reading { limit: get("MemAvailable:") / 2, pinned: 0, refaults }
    }

    /// Buffers for hinted files, of which `in_use_bytes` are in use now, when `sharers`
    /// processes that do not know of each other share the memory.
    pub fn buffers(&mut self, in_use_bytes: u64, sharers: u64) -> u32 {
        let reading = self.reading();
        let before = self.refaults_before.replace(reading.refaults).unwrap_or(reading.refaults);
        buffers(
            &reading,
            reading.refaults.saturating_sub(before),
            in_use_bytes,
            sharers,
            &mut self.given_up,
        )
    }
}

/// [`Memory::buffers`], given what was read.
fn buffers(
    reading: &Reading,
    refaulted: u64,
    in_use_bytes: u64,
    sharers: u64,
    given_up: &mut u64,
) -> u32 {
    let slack = (reading.limit / SLACK_SHARE).max(SLACK_BYTES_MIN);
    let room = reading.limit.saturating_sub(reading.pinned).saturating_sub(slack);
    // What came back to others was worth more to them than our least valuable block to us.
    // An eighth of it is forgotten each time, so that it is tried again.
    *given_up -= *given_up / 8;
    if in_use_bytes > 0 {
        *given_up = given_up.saturating_add(refaulted).min(room / 2);
    }
    let bytes = (room - *given_up) / sharers.max(1);
    u32::try_from(bytes / BLOCK_BYTES).unwrap_or(u32::MAX)
}

/// The number behind a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok())?
    })
}

/// This process's memory cgroup, from /proc/self/cgroup and /proc/self/mountinfo. In a
/// container the path may lie outside what is mounted: then the mount itself is it.
fn find(cgroups: &str, mounts: &str) -> Option<Place> {
    for line in cgroups.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let v1 = controllers.split(',').any(|name| name == "memory");
        if !v1 && !controllers.is_empty() {
            continue;
        }
        let Some((root, mount)) = mount_of(mounts, v1) else { continue };
        let inside = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path);
        let inside = inside.trim_start_matches('/');
        let directory = Path::new(mount).join(inside);
        let file = if v1 { "memory.stat" } else { "memory.current" };
        for directory in [directory, PathBuf::from(mount)] {
            if directory.join(file).exists() {
                return Some(if v1 { Place::V1(directory) } else { Place::V2(directory) });
            }
        }
    }
    None
}

fn mount_of(mounts: &str, v1: bool) -> Option<(&str, &str)> {
    mounts.lines().find_map(|line| {
        let (mount, rest) = line.split_once(" - ")?;
        let mut words = mount.split(' ');
        let (root, point) = (words.nth(3)?, words.next()?);
        let mut rest = rest.split(' ');
        let (kind, options) = (rest.next()?, rest.nth(1)?);
        let fits = if v1 {
            kind == "cgroup" && options.split(',').any(|option| option == "memory")
        } else {
            kind == "cgroup2"
        };
        fits.then_some((root, point))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_limit_without_what_is_pinned_is_divided() {
        let reading = Reading { limit: 96 * MIB, pinned: 12 * MIB, refaults: 0 };
        let mut given_up = 0;
        assert_eq!(buffers(&reading, 0, MIB, 1, &mut given_up), 165 * 64);
        assert_eq!(buffers(&reading, 0, MIB, 2, &mut given_up), 165 * 32);
        let full = Reading { pinned: 200 * MIB, ..reading };
        assert_eq!(buffers(&full, 0, MIB, 1, &mut given_up), 0);
    }

    #[test]
    fn refaults_of_others_take_buffers_and_the_effect_wears_off() {
        let reading = Reading { limit: 96 * MIB, pinned: 12 * MIB, refaults: 0 };
        let mut given_up = 0;
        assert_eq!(buffers(&reading, 16 * MIB, MIB, 1, &mut given_up), 133 * 64);
        assert_eq!(buffers(&reading, 1000 * MIB, MIB, 1, &mut given_up), 165 * 32, "at most half");
        for _ in 0..200 {
            buffers(&reading, 0, MIB, 1, &mut given_up);
        }
        assert!(buffers(&reading, 0, MIB, 1, &mut given_up) > 164 * 64);
    }

    #[test]
    fn this_process_has_memory() {
        let mut memory = Memory::of_self();
        let reading = memory.reading();
        assert!(reading.limit > 0, "{reading:?}");
        assert!(memory.bytes_read > 0 && !memory.domain().is_empty());
    }

    #[test]
    fn cgroups_are_found_in_both_versions() {
        let v1 = "30 20 0:25 / /no/such/memory rw - cgroup cgroup rw,memory\n";
        assert_eq!(mount_of(v1, true), Some(("/", "/no/such/memory")));
        assert_eq!(mount_of(v1, false), None);
        let v2 = "31 20 0:26 /x /no/such rw,nosuid - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_of(v2, false), Some(("/x", "/no/such")));
        assert_eq!(find("4:memory:/a\n0::/\n", &format!("{v1}{v2}")), None, "nothing is there");
        assert_eq!(field("a 1\nbc 22\n", "bc"), Some(22));
    }
}
