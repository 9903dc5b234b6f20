//! The kernel's own eviction list: how many pages have been read in again
//! soon after they were evicted, in the program's memory cgroup (version 1 or
//! 2) or, where none limits it, on the whole machine.

use crate::import::regions::swap_exists;
use crate::state::CONFIG;
use crate::sys::{self, PAGE_SIZE};
use core::sync::atomic::Ordering::Relaxed;

/// Bytes read at once: the program's stack may be small.
const CHUNK_LEN: usize = 512;
/// Longest line that is looked at, in bytes.
const LINE_LEN: usize = 64;

/// Memory that must be left below a limit, beside what cannot be reclaimed,
/// for a copy to be made, in bytes: its tables, the log, its own pages. With
/// less, the copy could be what the OOM killer is called for.
const ROOM_MIN_BYTES: u64 = 8 << 20;

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
}

/// Reads the counters; `None` where nobody tells. Takes some 30 µs, so once
/// in an interval.
pub fn read() -> Option<Reading> {
    let group = CONFIG.group.get();
    if !group.is_empty() {
        return read_file(group, &GROUP);
    }
    read_file(b"/proc/vmstat\0", &SYSTEM)
}

/// Whether a copy may be made as far as the cgroup's limit goes. Anonymous
/// memory takes the room away only where there is no swap for it: a program
/// that pages is at its limit all the time.
pub fn has_room() -> bool {
    let limit = CONFIG.memory_limit.load(Relaxed);
    if limit == 0 {
        return true;
    }
    if swap_exists() {
        return limit >= ROOM_MIN_BYTES;
    }
    // Nobody tells what is in use: then the limit alone decides.
    let used = read().map_or(limit / 2, |reading| reading.anonymous_bytes);
    limit.saturating_sub(used) >= ROOM_MIN_BYTES
}

/// Which line counts for what.
type Names = [(&'static [u8], Kind); 6];

#[derive(Clone, Copy)]
enum Kind {
    Refaults,
    ResidentPages,
    ResidentBytes,
    AnonymousBytes,
}

/// memory.stat of both versions: `cache` and `rss` are version 1's, `file`
/// and `anon` version 2's, each in bytes.
const GROUP: Names = [
    (b"workingset_refault_file ", Kind::Refaults),
    (b"workingset_refault_anon ", Kind::Refaults),
    (b"cache ", Kind::ResidentBytes),
    (b"rss ", Kind::AnonymousBytes),
    (b"file ", Kind::ResidentBytes),
    (b"anon ", Kind::AnonymousBytes),
];

/// /proc/vmstat, in pages.
const SYSTEM: Names = [
    (b"workingset_refault_file ", Kind::Refaults),
    (b"workingset_refault_anon ", Kind::Refaults),
    (b"nr_active_file ", Kind::ResidentPages),
    (b"nr_inactive_file ", Kind::ResidentPages),
    (b"nr_active_anon ", Kind::ResidentPages),
    (b"nr_inactive_anon ", Kind::ResidentPages),
];

/// `path` ends in NUL.
fn read_file(path: &[u8], names: &Names) -> Option<Reading> {
    let fd = sys::open_read(path);
    if fd < 0 {
        return None;
    }
    let mut counters = Counters { names, reading: Reading::default(), line: [0; LINE_LEN], len: 0 };
    let mut chunk = [0u8; CHUNK_LEN];
    loop {
        let len = sys::read(fd as i32, &mut chunk);
        let Some(text) = chunk.get(..len.max(0) as usize).filter(|text| !text.is_empty()) else {
            break;
        };
        counters.add(text);
    }
    sys::close(fd as i32);
    Some(counters.reading)
}

struct Counters<'n> {
    names: &'n Names,
    reading: Reading,
    /// A line on its way; what does not fit is dropped.
    line: [u8; LINE_LEN],
    len: usize,
}

impl Counters<'_> {
    fn add(&mut self, text: &[u8]) {
        for &byte in text {
            if byte == b'\n' {
                self.take();
                self.len = 0;
            } else if let Some(slot) = self.line.get_mut(self.len) {
                *slot = byte;
                self.len += 1;
            }
        }
    }

    fn take(&mut self) {
        let line = self.line.get(..self.len).unwrap_or(&[]);
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
                Kind::AnonymousBytes => {
                    reading.resident_pages = reading.resident_pages.wrapping_add(pages);
                    reading.anonymous_bytes = value;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, names: &Names) -> Reading {
        let mut found = None;
        for cut in 0..text.len() {
            let line = [0; LINE_LEN];
            let mut counters = Counters { names, reading: Reading::default(), line, len: 0 };
            counters.add(&text.as_bytes()[..cut]);
            counters.add(&text.as_bytes()[cut..]);
            assert_eq!(*found.get_or_insert(counters.reading), counters.reading, "cut at {cut}");
        }
        found.unwrap()
    }

    #[test]
    fn both_versions_are_understood() {
        let version1 = "cache 8192\nrss 4096\nrss_huge 0\nworkingset_refault_anon 3\n\
            workingset_refault_file 4\nhierarchical_memory_limit 9223372036854771712\n\
            total_cache 999424\ntotal_workingset_refault_file 99\n";
        let version2 = "anon 4096\nfile 8192\nanon_thp 0\nfile_mapped 4096\n\
            workingset_refault_anon 3\nworkingset_refault_file 4\n";
        let expected = Reading { refaults: 7, resident_pages: 3, anonymous_bytes: 4096 };
        assert_eq!(parse(version1, &GROUP), expected);
        assert_eq!(parse(version2, &GROUP), expected);
    }

    #[test]
    fn the_machine_is_understood() {
        let text = "nr_free_pages 5\nnr_inactive_anon 1\nnr_active_anon 2\nnr_inactive_file 3\n\
            nr_active_file 4\nworkingset_refault_anon 10\nworkingset_refault_file 20\n";
        let expected = Reading { refaults: 30, resident_pages: 10, anonymous_bytes: 0 };
        assert_eq!(parse(text, &SYSTEM), expected);
        let real = read_file(b"/proc/vmstat\0", &SYSTEM).unwrap();
        assert!(real.resident_pages > 0);
    }
}
