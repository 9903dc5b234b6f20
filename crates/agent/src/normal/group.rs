//! The kernel's own eviction list: how many pages have been read in again
//! soon after they were evicted, in the program's memory cgroup (version 1 or
//! 2) or, where none limits it, on the whole machine.

use runahead_protocol::session::ROOM_MIN_BYTES;
use runahead_protocol::stats::Loss;

use super::cgroup::{Path, TASKS};
use crate::import::regions::{mapped_bytes, swap_exists};
use crate::opening;
use crate::procfs::Line;
use crate::sys::PAGE_SIZE;

/// Bytes read at once: the program's stack may be small.
const CHUNK_LEN: usize = 512;
/// Longest line that is looked at, in bytes.
const LINE_LEN: usize = 64;

/// The memory cgroup that limits this process, version 1 or 2. Looked for
/// once in a process, when it waits for storage for the first time: a limit
/// that is set later goes unnoticed. All-zero: not looked for yet.
#[derive(Debug)]
pub struct Group {
    looked: bool,
    /// The lowest limit on it, in bytes; 0: none is set or seen.
    limit_bytes: u64,
    /// Whether a copy that runs out of memory may not be ended alone.
    is_fatal: bool,
    /// Its `memory.stat` and NUL, where there is a limit.
    statistics: Path,
    /// Whether [`Group::tasks_max`] has been looked for; what it is, 0: none.
    looked_for_tasks: bool,
    tasks_max: u64,
    /// Where to look; not on the stack, of which there may be little.
    tasks_path: Path,
    /// What the machine's counters said first, once they have been read. (An
    /// `Option` of it would not be `None` where all bytes are zero.)
    first: Reading,
    has_first: bool,
}

impl Default for Group {
    fn default() -> Group {
        Group::EMPTY
    }
}

impl Group {
    /// Not looked for yet.
    pub const EMPTY: Group = Group {
        looked: false,
        limit_bytes: 0,
        is_fatal: false,
        statistics: Path::EMPTY,
        looked_for_tasks: false,
        tasks_max: 0,
        tasks_path: Path::EMPTY,
        first: Reading::NONE,
        has_first: false,
    };

    /// Reads the counters; `None` where nobody tells. Takes some 30 µs, so once
    /// in an interval.
    pub fn read(&mut self) -> Option<Reading> {
        self.look();
        match self.limit_bytes {
            0 => {
                let reading = read_file(b"/proc/vmstat\0", SYSTEM)?;
                Some(self.bounded(reading))
            }
            _ => read_file(self.statistics.with_nul(), GROUP),
        }
    }

    fn bounded(&mut self, reading: Reading) -> Reading {
        if !self.has_first {
            (self.first, self.has_first) = (reading, true);
        }
        reading.bounded(&self.first)
    }

    /// Why no copy may be made as far as the cgroup goes; `None`: it may. Takes some
    /// 35 µs where memory is limited. Anonymous memory takes the room away only where
    /// there is no swap for it: a program that pages is at its limit all the time.
    ///
    /// None is made where the OOM killer would not take the copy alone: a group may
    /// be ended as a whole (`memory.oom.group`), or wait (version 1's
    /// `oom_kill_disable`), or the program may weigh more.
    pub fn refuses(&mut self) -> Option<Loss> {
        self.look();
        if self.is_fatal {
            return Some(Loss::EndedTogether);
        }
        let limit = self.limit_bytes;
        if limit == 0 {
            return None;
        }
        // Nobody tells what is in use: then the limit alone decides.
        let nobody_tells = Reading { anonymous_bytes: limit / 2, ..Reading::NONE };
        let reading = self.read().unwrap_or(nobody_tells);
        let used = if swap_exists() { 0 } else { reading.anonymous_bytes };
        if limit.saturating_sub(used) < ROOM_MIN_BYTES {
            return Some(Loss::NoRoom);
        }
        let elsewhere = mapped_bytes().saturating_sub(reading.mapped_bytes);
        (!is_outweighed(limit, elsewhere)).then_some(Loss::Outweighs)
    }

    #[inline]
    fn look(&mut self) {
        if !self.looked {
            self.looked = true;
            let found = self.statistics.find_memory();
            let (limit, is_fatal) = found.unwrap_or_default();
            (self.limit_bytes, self.is_fatal) = (limit.unwrap_or(0), is_fatal);
        }
    }

    /// The lowest limit on the tasks of this process's cgroup (`pids.max`);
    /// `None` where none is set or seen. Looked for once, as the others.
    pub fn tasks_max(&mut self) -> Option<u64> {
        if !self.looked_for_tasks {
            self.looked_for_tasks = true;
            self.tasks_max = self.tasks_path.find_limit(&TASKS).flatten().unwrap_or(0);
        }
        Some(self.tasks_max).filter(|most| *most != 0)
    }
}

/// Whether the OOM killer takes a copy before its program, of whose mapped file pages
/// `elsewhere_bytes` are charged to others than this group of `limit_bytes`: it goes by
/// the pages that are mapped, whoever they are charged to, and 1000 points of
/// `oom_score_adj` are as much as the limit, in whole thousands of pages (`oom_badness`,
/// Linux 6.18; `mm/oom_kill.c`). A copy has few of them mapped. Anonymous memory weighs as
/// much in both, but for what the program has taken since: there is room for that.
fn is_outweighed(limit_bytes: u64, elsewhere_bytes: u64) -> bool {
    const THOUSAND_PAGES: u64 = 1000 * PAGE_SIZE as u64;
    let points = limit_bytes / THOUSAND_PAGES * THOUSAND_PAGES;
    elsewhere_bytes.saturating_add(ROOM_MIN_BYTES) <= points
}

/// What the counters said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Pages read in again after they had been evicted, of files and of
    /// anonymous memory.
    pub refaults: u64,
    /// Pages in memory, of both kinds.
    pub resident_pages: u64,
    /// Anonymous memory, in bytes; 0 on the whole machine, where it does not
    /// matter.
    pub anonymous_bytes: u64,
    /// Pages of files that are mapped, in bytes; 0 on the whole machine, too.
    mapped_bytes: u64,
    /// Pages evicted for want of memory; `None` where nobody tells.
    evicted: Option<u64>,
}

impl Reading {
    const NONE: Reading = Reading {
        refaults: 0,
        resident_pages: 0,
        anonymous_bytes: 0,
        mapped_bytes: 0,
        evicted: None,
    };

    /// Since `first` no more pages can have come back for which speculation had
    /// pushed them out than have been evicted for want of memory. A machine
    /// may evict without any want (DAMON's schemes do): the refaults of these
    /// pages are nobody's.
    fn bounded(self, first: &Reading) -> Reading {
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let most = match (self.evicted, first.evicted) {
            (Some(now), Some(then)) => since(now, then),
            _ => u64::MAX,
        };
        let refaults = since(self.refaults, first.refaults).min(most);
        Reading { refaults: first.refaults.wrapping_add(refaults), ..self }
    }
}

/// Which line counts for what.
type Names = [(&'static [u8], Kind)];

#[derive(Clone, Copy)]
enum Kind {
    Refaults,
    ResidentPages,
    ResidentBytes,
    AnonymousBytes,
    MappedBytes,
    Evicted,
}

/// memory.stat of both versions: `cache`, `rss` and `mapped_file` are version 1's, `file`,
/// `anon` and `file_mapped` version 2's, each in bytes.
const GROUP: &Names = &[
    (b"workingset_refault_file ", Kind::Refaults),
    (b"workingset_refault_anon ", Kind::Refaults),
    (b"cache ", Kind::ResidentBytes),
    (b"rss ", Kind::AnonymousBytes),
    (b"mapped_file ", Kind::MappedBytes),
    (b"file ", Kind::ResidentBytes),
    (b"anon ", Kind::AnonymousBytes),
    (b"file_mapped ", Kind::MappedBytes),
];

/// /proc/vmstat, in pages.
const SYSTEM: &Names = &[
    (b"workingset_refault_file ", Kind::Refaults),
    (b"workingset_refault_anon ", Kind::Refaults),
    (b"nr_active_file ", Kind::ResidentPages),
    (b"nr_inactive_file ", Kind::ResidentPages),
    (b"nr_active_anon ", Kind::ResidentPages),
    (b"nr_inactive_anon ", Kind::ResidentPages),
    (b"pgsteal_kswapd ", Kind::Evicted),
    (b"pgsteal_direct ", Kind::Evicted),
    (b"pgsteal_khugepaged ", Kind::Evicted),
];

/// `path` ends in NUL.
fn read_file(path: &[u8], names: &Names) -> Option<Reading> {
    let mut counters = Counters { names, reading: Reading::default() };
    let mut line = Line::<LINE_LEN>::EMPTY;
    let mut chunk = [0u8; CHUNK_LEN];
    opening::with(path, |fd| {
        opening::read_all(fd, &mut chunk, |text| {
            line.add(text, |line| counters.take(line));
            true
        });
    })?;
    Some(counters.reading)
}

struct Counters<'n> {
    names: &'n Names,
    reading: Reading,
}

impl Counters<'_> {
    fn take(&mut self, line: &[u8]) {
        for (name, kind) in self.names {
            let Some(digits) = line.strip_prefix(*name) else { continue };
            let value = digits.iter().fold(0u64, |value, digit| {
                value.wrapping_mul(10).wrapping_add(u64::from(digit.wrapping_sub(b'0')))
            });
            let pages = value / PAGE_SIZE as u64;
            let reading = &mut self.reading;
            match kind {
                Kind::Refaults => reading.refaults = reading.refaults.wrapping_add(value),
                Kind::ResidentPages => {
                    reading.resident_pages = reading.resident_pages.wrapping_add(value);
                }
                Kind::ResidentBytes => {
                    reading.resident_pages = reading.resident_pages.wrapping_add(pages);
                }
                Kind::Evicted => {
                    reading.evicted = Some(reading.evicted.unwrap_or(0).wrapping_add(value));
                }
                Kind::AnonymousBytes => {
                    reading.resident_pages = reading.resident_pages.wrapping_add(pages);
                    reading.anonymous_bytes = value;
                }
                Kind::MappedBytes => reading.mapped_bytes = value,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Group {
        /// One whose limit is known to be so many bytes; 0: there is none.
        pub fn limited(bytes: u64) -> Group {
            Group { looked: true, limit_bytes: bytes, ..Group::default() }
        }
    }

    fn parse(text: &str, names: &Names) -> Reading {
        let mut found = None;
        for cut in 0..text.len() {
            let mut counters = Counters { names, reading: Reading::default() };
            let mut line = Line::<LINE_LEN>::EMPTY;
            line.add(&text.as_bytes()[..cut], |line| counters.take(line));
            line.add(&text.as_bytes()[cut..], |line| counters.take(line));
            assert_eq!(*found.get_or_insert(counters.reading), counters.reading, "cut at {cut}");
        }
        found.unwrap()
    }

    #[test]
    fn both_versions_are_understood() {
        let version1 = "cache 8192\nrss 4096\nrss_huge 0\nmapped_file 4096\nworkingset_refault_anon 3\n\
            workingset_refault_file 4\nhierarchical_memory_limit 9223372036854771712\n\
            total_cache 999424\ntotal_mapped_file 999424\ntotal_workingset_refault_file 99\n";
        let version2 = "anon 4096\nfile 8192\nanon_thp 0\nfile_mapped 4096\n\
            workingset_refault_anon 3\nworkingset_refault_file 4\n";
        let expected = Reading {
            refaults: 7,
            resident_pages: 3,
            anonymous_bytes: 4096,
            mapped_bytes: 4096,
            evicted: None,
        };
        assert_eq!(parse(version1, GROUP), expected);
        assert_eq!(parse(version2, GROUP), expected);
    }

    /// `gdb`, of whose 40 MB of mapped files others had been charged with nearly all, was
    /// ended in 20 MB for a copy's sake.
    #[test]
    fn a_copy_must_weigh_more_than_its_program() {
        let (limit, mib) = (20_295_680, 1 << 20);
        assert!(is_outweighed(limit, 0) && is_outweighed(limit, 7 * mib));
        assert!(!is_outweighed(limit, 8 * mib) && !is_outweighed(limit, 23 * mib));
        assert!(!is_outweighed(4095 << 10, 0), "less than a thousand pages count as none");
        assert!(is_outweighed(1 << 63, 1 << 40));
    }

    #[test]
    fn the_machine_is_understood() {
        let text = "nr_free_pages 5\nnr_inactive_anon 1\nnr_active_anon 2\nnr_inactive_file 3\n\
            nr_active_file 4\nworkingset_refault_anon 10\nworkingset_refault_file 20\n";
        let first = Reading { refaults: 30, resident_pages: 10, ..Reading::default() };
        assert_eq!(parse(text, SYSTEM), first);
        let real = read_file(b"/proc/vmstat\0", SYSTEM).unwrap();
        assert!(real.resident_pages > 0 && real.evicted.is_some());
    }

    /// DAMON paged out what a program of 512 MB had read, on a machine with
    /// 20 GB free: what it read again was taken for speculation's doing, which
    /// was disabled for it.
    #[test]
    fn what_was_not_evicted_for_want_of_memory_is_not_missed() {
        let reading = |refaults, evicted| Reading { refaults, evicted, ..Reading::default() };
        // As a process begins with it.
        // SAFETY: all-zero is a valid value.
        let mut group: Group = unsafe { core::mem::zeroed() };
        let mut refaults = |now: Reading| group.bounded(now).refaults;
        assert_eq!(refaults(reading(1000, Some(70))), 1000);
        assert_eq!(refaults(reading(5000, Some(70))), 1000);
        assert_eq!(refaults(reading(5000, Some(170))), 1100);
        assert_eq!(refaults(reading(1050, Some(170))), 1050);
        assert_eq!(refaults(reading(5000, None)), 5000, "nobody tells");
    }
}
