//! What the processes of one user tell each other: what they leave behind for
//! the next of the same executable, and which of them prefetch from a device
//! now. A table in memory, a file of fixed size that the launcher
//! makes and every agent maps. Who finds a record in it, and what it says, is
//! `runahead_policy::learning`.
//!
//! Trust: only normal processes have it mapped; a speculative process unmaps
//! it before it runs any code of the program. A program can write it all the
//! same, by accident; every value is a hint and bounded before use, but for one of 64 bits,
//! which says that a file has been looked at. Two processes
//! that change a record at once may lose one of the changes.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Name of the file, with the version of its layout.
pub const FILE_NAME: &str = "learnt-7";

/// Executables that are remembered; a power of two. With more, some forget
/// each other.
pub const ENTRIES_MAX: usize = 1024;

/// Entries looked at for one executable.
const PROBES_MAX: usize = 8;

/// Longest path of the file, in bytes.
pub const PATH_LEN_MAX: usize = 256;

/// Programs that are known to prefetch at once; more are not counted.
pub const SHARERS_MAX: usize = 64;

/// Processes that are remembered for a child that has waited; a power of two.
pub const PARENTS_MAX: usize = 256;

/// Of a process's number in [`Table::parents`]: it is traced. No number has that bit.
const TRACED: u32 = 1 << 31;

/// A program that has not said for so long that it still prefetches does so
/// no more, in ns: it waits for nothing, or was killed.
pub const SHARING_NS: u64 = 200_000_000;

/// The table. Zero bytes are a valid, empty one.
#[derive(Debug)]
#[repr(C)]
pub struct Table {
    entries: [Entry; ENTRIES_MAX],
    sharers: [Sharer; SHARERS_MAX],
    /// By process id: those that made one that has waited, or are traced. With more at
    /// once, some are forgotten.
    parents: [AtomicU32; PARENTS_MAX],
}

/// A program that prefetches.
#[derive(Debug)]
#[repr(C)]
struct Sharer {
    /// Device number in the upper, process id in the lower half.
    who: AtomicU64,
    /// When it last said so, in ns of the monotonic clock.
    seen_ns: AtomicU64,
}

/// What is known of an executable.
#[derive(Debug)]
#[repr(C)]
pub struct Entry {
    /// [`key`]; 0: free.
    key: AtomicU64,
    /// The record, in the bits that the policy gives it.
    pub record: AtomicU64,
    /// What comparing processes with copies and without has shown, in the policy's bits.
    pub comparison: AtomicU64,
    /// [`key`] once more, where the file itself, no interpreter of it, has been looked at
    /// and the agent can be loaded into it; so nobody who was about to say so of another,
    /// which had this place before, says it of this one.
    loads: AtomicU64,
}

/// Length of the file, in bytes.
pub const FILE_LEN: usize = size_of::<Table>();

/// What tells an executable's file from others: its device, inode, mode and size, and the
/// times of the last changes of its data and of its inode, in seconds and ns, as stat(2)
/// gives them. What is built in the place of another, given its inode number, or given
/// other rights, is another program.
pub fn file(words: [u64; 4], times: [[u64; 2]; 2]) -> u64 {
    words.into_iter().chain(times.into_iter().flatten()).fold(1, mix)
}

/// The key of an executable (its [`file`]) that is given so many arguments, its name
/// counted: what is true of a program with one file to read need not be with a thousand.
/// Never 0; two executables that share one, one pair in 2^64, learn from each other.
pub fn key(file: u64, arguments: usize) -> u64 {
    /// More arguments than this are all many.
    const MANY: usize = 255;
    let many = u64::from(usize::BITS - arguments.min(MANY).leading_zeros());
    mix(file, many).max(1)
}

fn mix(hash: u64, word: u64) -> u64 {
    const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;
    let hash = (hash ^ word).wrapping_mul(PRIME);
    hash ^ hash >> 29
}

impl Entry {
    /// Whether the agent is known to load into the executable of `key`.
    pub fn loads(&self, key: u64) -> bool {
        self.loads.load(Relaxed) == key
    }

    /// It is.
    pub fn has_loaded(&self, key: u64) {
        self.loads.store(key, Relaxed);
    }
}

impl Table {
    /// What is known of `key`, if anything is.
    pub fn find(&self, key: u64) -> Option<&Entry> {
        self.probes(key).find(|entry| entry.key.load(Relaxed) == key)
    }

    /// The same, made where there is none, in the place of another where there is no
    /// room.
    pub fn find_or_make(&self, key: u64) -> Option<&Entry> {
        if let Some(entry) = self.find(key) {
            return Some(entry);
        }
        let free = self.probes(key).find(|entry| entry.key.load(Relaxed) == 0);
        let entry = free.or_else(|| self.probes(key).next())?;
        entry.record.store(0, Relaxed);
        entry.comparison.store(0, Relaxed);
        entry.loads.store(0, Relaxed);
        entry.key.store(key, Relaxed);
        Some(entry)
    }

    /// Process `pid` prefetches from device `dev` at `now_ns`; how many do,
    /// this one counted.
    pub fn share(&self, dev: u64, pid: u32, now_ns: u64) -> u32 {
        let who = dev << 32 | u64::from(pid);
        let fresh =
            |sharer: &Sharer| now_ns.saturating_sub(sharer.seen_ns.load(Relaxed)) < SHARING_NS;
        let slots = || self.sharers.iter();
        let own = slots()
            .find(|sharer| sharer.who.load(Relaxed) as u32 == pid)
            .or_else(|| slots().find(|sharer| !fresh(sharer)));
        if let Some(own) = own {
            own.who.store(who, Relaxed);
            own.seen_ns.store(now_ns, Relaxed);
        }
        let others = slots().filter(|sharer| {
            let other = sharer.who.load(Relaxed);
            other >> 32 == who >> 32 && other != who && fresh(sharer)
        });
        1 + others.count() as u32
    }

    /// Process `pid` prefetches no more.
    pub fn share_no_more(&self, pid: u32) {
        if let Some(own) = self.sharers.iter().find(|sharer| sharer.who.load(Relaxed) as u32 == pid)
        {
            own.seen_ns.store(0, Relaxed);
            own.who.store(0, Relaxed);
        }
    }

    /// A child of process `pid` has waited.
    pub fn child_waited(&self, pid: u32) {
        if let Some(cell) = self.parent(pid) {
            cell.store(pid, Relaxed);
        }
    }

    /// Whether a child of process `pid` has waited; asked once.
    pub fn has_waiting_child(&self, pid: u32) -> bool {
        let found = self.parent(pid).filter(|cell| cell.load(Relaxed) == pid);
        found.map(|cell| cell.store(0, Relaxed)).is_some()
    }

    /// Process `pid` is about to be traced.
    pub fn traced(&self, pid: u32) {
        if let Some(cell) = self.parent(pid) {
            cell.store(pid | TRACED, Relaxed);
        }
    }

    /// Whether somebody was about to trace process `pid`, or another that had its number.
    pub fn is_traced(&self, pid: u32) -> bool {
        self.parent(pid).is_some_and(|cell| cell.load(Relaxed) == pid | TRACED)
    }

    fn parent(&self, pid: u32) -> Option<&AtomicU32> {
        self.parents.get(pid as usize % PARENTS_MAX)
    }

    fn probes(&self, key: u64) -> impl Iterator<Item = &Entry> {
        let first = key as usize;
        // The mask keeps the index inside the array.
        (0..PROBES_MAX).map(move |step| &self.entries[first.wrapping_add(step) & (ENTRIES_MAX - 1)])
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;

    fn table() -> Box<Table> {
        let word = || AtomicU64::new(0);
        Box::new(Table {
            entries: core::array::from_fn(|_| Entry {
                key: word(),
                record: word(),
                comparison: word(),
                loads: word(),
            }),
            sharers: core::array::from_fn(|_| Sharer { who: word(), seen_ns: word() }),
            parents: core::array::from_fn(|_| AtomicU32::new(0)),
        })
    }

    #[test]
    fn executables_are_told_apart() {
        let at = [[5, 6], [7, 8]];
        let key = |dev, ino, times, arguments| key(file([dev, ino, 0, 0], times), arguments);
        let other_places = [key(1, 3, at, 2), key(2, 2, at, 2)];
        let other_times = [[[5, 7], [7, 8]], [[6, 6], [7, 8]], [[5, 6], [7, 9]], [[5, 6], [6, 8]]]
            .map(|times| key(1, 2, times, 2));
        let first = [key(1, 2, at, 2), key(1, 2, at, 200)];
        let keys = [&first[..], &other_places, &other_times].concat();
        let table = table();
        for (value, &key) in keys.iter().enumerate() {
            assert!(table.find(key).is_none());
            table.find_or_make(key).unwrap().record.store(value as u64 + 1, Relaxed);
        }
        for (value, key) in keys.into_iter().enumerate() {
            assert_eq!(table.find(key).unwrap().record.load(Relaxed), value as u64 + 1);
        }
        assert_eq!(key(1, 2, at, 2), key(1, 2, at, 3), "one argument or two: much the same");
        assert_eq!(key(1, 2, at, 300), key(1, 2, at, 3000));
    }

    #[test]
    fn those_who_share_a_device_are_counted_while_they_say_so() {
        let (table, second) = (table(), 1_000_000_000);
        assert_eq!(table.share(8, 100, second), 1);
        assert_eq!(table.share(8, 101, second), 2);
        assert_eq!(table.share(9, 102, second), 1, "another device");
        assert_eq!(table.share(8, 100, second + SHARING_NS / 2), 2);
        assert_eq!(table.share(8, 100, second + SHARING_NS), 1, "101 is silent");
        table.share(8, 101, second + SHARING_NS);
        table.share_no_more(101);
        assert_eq!(table.share(8, 100, second + SHARING_NS), 1);
        for pid in 1000..1000 + 2 * SHARERS_MAX as u32 {
            assert!(table.share(8, pid, 2 * second) <= SHARERS_MAX as u32 + 1);
        }
    }

    #[test]
    fn parents_hear_of_their_children_once() {
        let table = table();
        assert!(!table.has_waiting_child(100));
        table.child_waited(100);
        assert!(!table.has_waiting_child(100 + PARENTS_MAX as u32));
        assert!(table.has_waiting_child(100));
        assert!(!table.has_waiting_child(100), "the next process of that number is another");
    }

    #[test]
    fn who_is_traced_is_told_from_parents() {
        let table = table();
        table.traced(100);
        assert!(table.is_traced(100) && !table.is_traced(100 + PARENTS_MAX as u32));
        assert!(!table.has_waiting_child(100) && table.is_traced(100));
        table.child_waited(100);
        assert!(!table.is_traced(100) && table.has_waiting_child(100));
    }

    #[test]
    fn what_loads_is_said_of_one_executable_only() {
        let table = table();
        let (one, other) = (key(1, 1), key(2, 1));
        let entry = table.find_or_make(one).unwrap();
        assert!(!entry.loads(one));
        entry.has_loaded(one);
        assert!(entry.loads(one) && !entry.loads(other));
        // Its place is another's by now.
        entry.key.store(other, Relaxed);
        entry.has_loaded(one);
        assert!(!entry.loads(other));
    }

    #[test]
    fn a_full_table_forgets_and_goes_on() {
        let table = table();
        for ino in 0..10 * ENTRIES_MAX as u64 {
            let key = key(ino, 1);
            table.find_or_make(key).unwrap().record.store(ino, Relaxed);
            assert_eq!(table.find(key).unwrap().record.load(Relaxed), ino);
        }
    }
}
