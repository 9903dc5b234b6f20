//! The log of predicted reads, shared by a normal process and its
//! speculative process (Fraser and Chang, section 4.1.2: "a parent process
//! can easily detect when its speculative child failed to generate a
//! prefetch"; they look at page frames, Runahead looks here).
//!
//! Both sides number the reads of regular files that they make since the
//! synchronisation: the normal process's read *n* is predicted where entry
//! *n* exists and names the same descriptor, length and, where the call gave
//! one, offset. So a speculative process that is behind is told from one
//! that is off track.
//!
//! Trust: the speculative process computes on garbage and may write anything
//! anywhere, here included. Whatever the normal process reads from this
//! memory is a hint and is bounded before use.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// Entries in the ring; a power of two. The speculative process never runs
/// further ahead than this.
pub const ENTRIES_MAX: usize = 16 * 1024;

/// Entries in the ring of predicted pages; a power of two.
pub const PAGES_MAX: usize = 8 * 1024;

/// One predicted read.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Entry {
    /// File offset of the first byte.
    pub offset: AtomicU64,
    /// Bytes asked for.
    pub len: AtomicU64,
    /// Descriptor as the program knows it.
    pub fd: AtomicI32,
    /// Set of the `FLAG_*` bits.
    pub flags: AtomicU32,
    /// Bytes that were missing and whose prefetch was started.
    pub prefetched_len: AtomicU64,
    /// Inode number of the file; 0 where it is not known.
    pub file: AtomicU64,
}

/// Part of the range was missing, and its prefetch has been started.
pub const FLAG_PREFETCHED: u32 = 1 << 0;
/// The range was not looked at: the normal process had already passed it.
pub const FLAG_BEHIND: u32 = 1 << 1;
/// The read by which the program finds the end of a file: how much it asks for
/// there is not known.
pub const FLAG_END: u32 = 1 << 2;

/// Life of a speculative process, in `Log::life`.
pub mod life {
    /// No speculative process uses this log.
    pub const NONE: u32 = 0;
    /// Cloned, still sharing the normal process's descriptor table.
    pub const STARTING: u32 = 1;
    /// Has its own empty descriptor table; holds nothing of the program's.
    pub const DETACHED: u32 = 2;
    /// Executing the program's code.
    pub const RUNNING: u32 = 3;
    /// Gone by itself; `Log::park_reason` says why.
    pub const PARKED: u32 = 4;
}

/// The shared region. Zero bytes are a valid, empty log.
#[derive(Debug)]
#[repr(C)]
pub struct Log {
    // Written by the normal process.
    /// Reads that the normal process has made since the synchronisation.
    pub consumed: AtomicU64,
    /// Position up to which a waiting speculative process wants to be woken;
    /// `u64::MAX` while it does not wait. Written by both.
    pub wake_at: AtomicU64,
    /// Futex word of that wait: bumped by the normal process.
    pub wake_word: AtomicU32,
    /// Number of this synchronisation, counted from 1 (for traces).
    pub epoch: AtomicU32,
    /// Deepest number of unconsumed prefetches allowed (prefetch horizon).
    pub horizon: AtomicU64,
    /// Mean time the normal process spends between two reads, without its
    /// stalls, in ns (T_cpu of TIP Eq. 4.11); 0: not known yet.
    pub think_ns: AtomicU64,
    /// Programs that prefetch from the same device, this one counted
    /// ([`crate::learnt::Table::sharers`]); 0: not known.
    pub sharers: AtomicU32,
    /// Number of the processor on which the normal process was after its last
    /// wait, plus 1; 0: not known.
    pub processor_plus1: AtomicU32,
    /// Pages that the speculative process may import after its last prediction.
    pub imports_max: AtomicU32,
    /// Changes of the program's large mappings so far, when it was copied.
    pub large_changes: AtomicU32,
    /// That number plus 1 where an earlier copy has found no large mapping of
    /// a file since then; else 0. Written by both.
    pub without_files: AtomicU64,
    /// A device, doubled, and whether a copy must not open its files (1, 0: what is in
    /// memory of one would go, say); 0: of none it is known. Written by both.
    pub opening: AtomicU64,
    /// Reads since the synchronisation that were not as predicted, told before
    /// `consumed` is.
    pub unpredicted: AtomicU64,

    // Written by the speculative process.
    /// Reads predicted since the synchronisation; entries below are valid.
    pub tail: AtomicU64,
    /// One of [`life`]; also a futex word.
    pub life: AtomicU32,
    /// Why it parked, a [`crate::stats::Park`].
    pub park_reason: AtomicU32,
    /// Number of the system call at which it parked, or -1.
    pub park_call: AtomicI32,
    /// Useful requests in flight as found so far; carried to the next one.
    pub depth: AtomicU32,
    /// Prefetch requests issued.
    pub prefetches: AtomicU64,
    /// Bytes of them.
    pub prefetched_bytes: AtomicU64,
    /// Bytes of files in memory that it has copied. The kernel counts them as those of
    /// whoever reaps it, too (`rchar` of proc_pid_io(5)).
    pub read_bytes: AtomicU64,
    /// Smoothed latency of a prefetch, in ns; 0: not known.
    pub latency_ns: AtomicU64,
    /// Smoothed throughput of prefetches, in bytes per second; 0: not known.
    pub bytes_per_s: AtomicU64,
    /// 1: the program shares memory with others in which it may write.
    pub shares: AtomicU64,
    /// Looks at the normal process's descriptors, counted when they begin and when they
    /// end: inside one (odd) an open file may be held for a moment.
    pub looks: AtomicU64,

    /// Ring of predictions; entry of read `n` is at `n % ENTRIES_MAX`.
    pub entries: [Entry; ENTRIES_MAX],
    /// Pages of memory whose data has been asked for.
    pub pages: Pages,
    /// Directories that the normal process reads.
    pub directories: Directories,
    /// What was given back behind the normal process.
    pub behind: Behind,
}

/// Directories of [`Directories`]; a power of two.
pub const DIRECTORIES_MAX: usize = 64;

/// The directories that the normal process reads, for a scout, which has others
/// read ahead of it.
#[derive(Debug)]
#[repr(C)]
pub struct Directories {
    // Written by the normal process.
    /// Directories read since the synchronisation.
    pub tail: AtomicU64,
    /// Futex word: bumped where one of them waited.
    pub word: AtomicU32,
    /// Threads that may read directories ahead; 0: none.
    pub readers_max: AtomicU32,
    /// Smoothed time of a wait before there was a scout, in ns.
    pub usual_ns: AtomicU64,
    // Written by the scout.
    /// Of those, directories that had been read ahead.
    pub used: AtomicU64,
    // Written by the normal process.
    ring: [[AtomicU64; 3]; DIRECTORIES_MAX],
    /// Number plus 1 of the directory that `path` is of; 0 while it is written.
    path_of: AtomicU64,
    path: [AtomicU64; PATH_WORDS],
}

const PATH_WORDS: usize = 64;

/// Longest path of a directory that a scout is told, in bytes with its NUL.
pub const PATH_MAX: usize = 8 * PATH_WORDS;

/// A directory that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Device, as stat(2) gives it.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// How long that waited, in ns; 0: not at all.
    pub waited_ns: u64,
}

impl Directories {
    /// Empties it for another scout. Called by the normal process, while there
    /// is none.
    pub fn clear(&self) {
        for cell in [&self.tail, &self.used, &self.path_of] {
            cell.store(0, Ordering::Relaxed);
        }
    }

    /// Numbers of the directories from `seen` to `tail`, which may be noise,
    /// that the ring still has: a bounded number.
    pub fn kept(seen: u64, tail: u64) -> core::ops::Range<u64> {
        seen.max(tail.saturating_sub(DIRECTORIES_MAX as u64))..tail
    }

    /// Appends one, with its path where a scout may need it: at most
    /// [`PATH_MAX`] bytes and ended by NUL, else it is left out. Called by the
    /// normal process only.
    pub fn push(&self, directory: &Directory, path: Option<&[u8]>) {
        let tail = self.tail.load(Ordering::Relaxed);
        let Directory { dev, ino, waited_ns } = *directory;
        for (cell, word) in self.cells(tail).iter().zip([dev, ino, waited_ns]) {
            cell.store(word, Ordering::Relaxed);
        }
        if let Some(path) = path.filter(|path| path.len() <= PATH_MAX) {
            self.path_of.store(0, Ordering::Release);
            for (cell, bytes) in self.path.iter().zip(path.chunks(8)) {
                let mut word = [0; 8];
                for (to, from) in word.iter_mut().zip(bytes) {
                    *to = *from;
                }
                cell.store(u64::from_ne_bytes(word), Ordering::Release);
            }
            self.path_of.store(tail.wrapping_add(1), Ordering::Release);
        }
        // Publishes the entry: pairs with the load in `get`.
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
    }

    /// Directory number `n`, if the ring still has it; one that is being
    /// overwritten meanwhile is noise.
    pub fn get(&self, n: u64) -> Option<Directory> {
        let ahead = self.tail.load(Ordering::Acquire).wrapping_sub(n);
        if ahead == 0 || ahead > DIRECTORIES_MAX as u64 {
            return None;
        }
        let [dev, ino, waited_ns] = self.cells(n).each_ref().map(|w| w.load(Ordering::Relaxed));
        Some(Directory { dev, ino, waited_ns })
    }

    /// Path of directory number `n`, ended by NUL, where it is still the last
    /// that was told.
    pub fn path(&self, n: u64) -> Option<[u8; PATH_MAX]> {
        let mut path = [0; PATH_MAX];
        let is_of = || self.path_of.load(Ordering::Acquire) == n.wrapping_add(1);
        if !is_of() {
            return None;
        }
        for (bytes, cell) in path.chunks_mut(8).zip(&self.path) {
            let word = cell.load(Ordering::Acquire).to_ne_bytes();
            for (to, from) in bytes.iter_mut().zip(word) {
                *to = from;
            }
        }
        // Its end may be of a longer one before.
        (is_of() && path.contains(&0)).then_some(path)
    }

    fn cells(&self, n: u64) -> &[AtomicU64; 3] {
        // The mask keeps the index inside the array for every `n`.
        &self.ring[n as usize & (DIRECTORIES_MAX - 1)]
    }
}

/// Ranges of [`Behind`]; a power of two.
pub const BEHIND_MAX: usize = 64;

/// Words that [`Behind`] keeps for whoever decides.
pub const BEHIND_WORDS: usize = 26;

/// Ranges of files that were given back behind the normal process
/// (`policy::release`), so that it is seen whether they are read again.
/// Written by the speculative process; the next one's begins with what this one
/// knew.
#[derive(Debug)]
#[repr(C)]
pub struct Behind {
    /// Pages that this speculative process gave back.
    pub released: AtomicU64,
    /// Pages that it came to although they had been given back.
    pub returned: AtomicU64,
    /// What decides, kept for the next one.
    pub words: [AtomicU64; BEHIND_WORDS],
    /// Ranges so far; the last [`BEHIND_MAX`] of them are in `ring`.
    tail: AtomicU64,
    /// File, first byte and the byte behind the last one.
    ring: [[AtomicU64; 3]; BEHIND_MAX],
}

impl Behind {
    /// Begins with what an earlier one knew. Called by the normal process.
    pub fn carry(&self, before: &Behind) {
        self.released.store(0, Ordering::Relaxed);
        self.returned.store(0, Ordering::Relaxed);
        copy(&self.words, &before.words);
        if !self.is_empty() || !before.is_empty() {
            copy(self.ring.as_flattened(), before.ring.as_flattened());
            self.tail.store(before.tail.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Whether nothing has been given back.
    pub fn is_empty(&self) -> bool {
        self.tail.load(Ordering::Relaxed) == 0
    }

    /// Remembers that a range of `file` was given back.
    pub fn push(&self, file: u64, start: u64, end: u64) {
        let tail = self.tail.load(Ordering::Relaxed);
        let last = self.cells(tail.wrapping_sub(1));
        let [last_file, _, last_end] = last.each_ref().map(|cell| cell.load(Ordering::Relaxed));
        if tail != 0 && (last_file, last_end) == (file, start) {
            // A stream is one range.
            let [_, _, end_cell] = last;
            end_cell.store(end, Ordering::Relaxed);
            return;
        }
        for (cell, value) in self.cells(tail).iter().zip([file, start, end]) {
            cell.store(value, Ordering::Relaxed);
        }
        self.tail.store(tail.wrapping_add(1).max(1), Ordering::Relaxed);
    }

    /// Forgets what of a range was given back, and what of that range lies
    /// before it: how many bytes of it.
    pub fn take(&self, file: u64, start: u64, end: u64) -> u64 {
        let mut taken = 0u64;
        for cells in &self.ring {
            let [of, from, to] = cells.each_ref().map(|cell| cell.load(Ordering::Relaxed));
            let (first, last) = (from.max(start), to.min(end));
            if of == file && first < last {
                taken = taken.saturating_add(last - first);
                let [_, start_cell, _] = cells;
                start_cell.store(last, Ordering::Relaxed);
            }
        }
        taken
    }

    fn cells(&self, n: u64) -> &[AtomicU64; 3] {
        // The mask keeps the index inside the array for every `n`.
        &self.ring[n as usize & (BEHIND_MAX - 1)]
    }
}

fn copy(to: &[AtomicU64], from: &[AtomicU64]) {
    for (cell, value) in to.iter().zip(from) {
        cell.store(value.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The pages of memory (of mapped files, of swapped memory) that the
/// speculative process found missing and prefetched. Unlike reads they are
/// not numbered on both sides: the program's touches of pages that are there
/// are not seen. Written by the speculative process only.
#[derive(Debug)]
#[repr(C)]
pub struct Pages {
    /// Pages predicted since the synchronisation; the last [`PAGES_MAX`] of
    /// them are in `ring`.
    pub tail: AtomicU64,
    /// Of those, pages that the normal process has been seen to have mapped.
    pub consumed: AtomicU64,
    /// Ring of page numbers (address divided by the page size).
    pub ring: [AtomicU64; PAGES_MAX],
}

impl Pages {
    /// Appends a page. Called by the speculative process only.
    pub fn push(&self, page: u64) {
        let tail = self.tail.load(Ordering::Relaxed);
        self.cell(tail).store(page, Ordering::Relaxed);
        // Publishes the entry: pairs with the load in `contains`.
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
    }

    /// The page predicted as number `n`, if the ring still has it.
    pub fn get(&self, n: u64) -> Option<u64> {
        let ahead = self.tail.load(Ordering::Acquire).wrapping_sub(n);
        (ahead != 0 && ahead <= PAGES_MAX as u64).then(|| self.cell(n).load(Ordering::Relaxed))
    }

    /// Whether a page was predicted, as far as the ring reaches.
    pub fn contains(&self, page: u64) -> bool {
        let filled = self.tail.load(Ordering::Acquire).min(PAGES_MAX as u64) as usize;
        self.ring.iter().take(filled).any(|cell| cell.load(Ordering::Relaxed) == page)
    }

    fn cell(&self, n: u64) -> &AtomicU64 {
        // The mask keeps the index inside the array for every `n`.
        &self.ring[n as usize & (PAGES_MAX - 1)]
    }
}

/// A prediction as read by the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// File offset of the first byte.
    pub offset: u64,
    /// Bytes asked for.
    pub len: u64,
    /// Descriptor.
    pub fd: i32,
    /// Set of the `FLAG_*` bits.
    pub flags: u32,
    /// Bytes whose prefetch was started.
    pub prefetched_len: u64,
    /// Inode number of the file; 0 where it is not known.
    pub file: u64,
}

impl Log {
    /// Appends a prediction. Called by the speculative process only.
    pub fn push(&self, prediction: Prediction) {
        let tail = self.tail.load(Ordering::Relaxed);
        let entry = self.entry(tail);
        entry.offset.store(prediction.offset, Ordering::Relaxed);
        entry.len.store(prediction.len, Ordering::Relaxed);
        entry.fd.store(prediction.fd, Ordering::Relaxed);
        entry.flags.store(prediction.flags, Ordering::Relaxed);
        entry.prefetched_len.store(prediction.prefetched_len, Ordering::Relaxed);
        entry.file.store(prediction.file, Ordering::Relaxed);
        // Publishes the entry: pairs with the load in `get`.
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
    }

    /// The prediction of read `n`, or `None` where it has not been made yet
    /// or has been overwritten.
    pub fn get(&self, n: u64) -> Option<Prediction> {
        let tail = self.tail.load(Ordering::Acquire);
        let ahead = tail.wrapping_sub(n);
        if ahead == 0 || ahead > ENTRIES_MAX as u64 {
            return None;
        }
        let entry = self.entry(n);
        Some(Prediction {
            offset: entry.offset.load(Ordering::Relaxed),
            len: entry.len.load(Ordering::Relaxed),
            fd: entry.fd.load(Ordering::Relaxed),
            flags: entry.flags.load(Ordering::Relaxed),
            prefetched_len: entry.prefetched_len.load(Ordering::Relaxed),
            file: entry.file.load(Ordering::Relaxed),
        })
    }

    /// How many predictions lie ahead of the normal process; negative where
    /// the speculative process is behind.
    pub fn lead(&self) -> i64 {
        let tail = self.tail.load(Ordering::Acquire);
        tail.wrapping_sub(self.consumed.load(Ordering::Acquire)) as i64
    }

    fn entry(&self, n: u64) -> &Entry {
        // The mask keeps the index inside the array for every `n`.
        &self.entries[n as usize & (ENTRIES_MAX - 1)]
    }
}

const _: () = assert!(ENTRIES_MAX.is_power_of_two());
const _: () = assert!(size_of::<Entry>() == 40);
const _: () = assert!(PAGES_MAX.is_power_of_two());
const _: () = assert!(DIRECTORIES_MAX.is_power_of_two());
const _: () = assert!(BEHIND_MAX.is_power_of_two());
const _: () = assert!(
    size_of::<Log>()
        == 160
            + 40 * ENTRIES_MAX
            + (16 + 8 * PAGES_MAX)
            + (32 + 24 * DIRECTORIES_MAX + 8 + PATH_MAX)
            + (24 + 8 * BEHIND_WORDS + 24 * BEHIND_MAX)
);

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::alloc::{Layout, alloc_zeroed};
    use std::boxed::Box;

    fn zeroed() -> Box<Log> {
        // SAFETY: zero bytes are a valid Log (atomics of 0), and the layout
        // is that of the type the box frees.
        unsafe { Box::from_raw(alloc_zeroed(Layout::new::<Log>()).cast()) }
    }

    fn prediction(n: u64) -> Prediction {
        Prediction {
            offset: n * 4096,
            len: 4096,
            fd: 3,
            flags: FLAG_PREFETCHED,
            prefetched_len: 1,
            file: n + 12,
        }
    }

    #[test]
    fn predictions_come_back_in_order_and_old_ones_are_gone() {
        let log = zeroed();
        assert_eq!(log.get(0), None);
        let total = ENTRIES_MAX as u64 + 5;
        for n in 0..total {
            log.push(prediction(n));
        }
        assert_eq!(log.get(4), None, "overwritten");
        assert_eq!(log.get(5), Some(prediction(5)));
        assert_eq!(log.get(total - 1), Some(prediction(total - 1)));
        assert_eq!(log.get(total), None, "not yet made");
        assert_eq!(log.lead(), total as i64);
    }

    #[test]
    fn pages_are_known_until_the_ring_has_gone_round() {
        let log = zeroed();
        assert!(!log.pages.contains(0), "an empty ring predicts nothing");
        for page in 10..10 + PAGES_MAX as u64 + 3 {
            log.pages.push(page);
        }
        assert!(!log.pages.contains(12), "overwritten");
        assert!(log.pages.contains(13) && log.pages.contains(PAGES_MAX as u64 + 12));
        assert_eq!(log.pages.get(2), None);
        assert_eq!(log.pages.get(3), Some(13));
    }

    #[test]
    fn directories_are_kept_until_the_ring_has_gone_round() {
        let log = zeroed();
        let directories = &log.directories;
        let directory = |ino| Directory { dev: 1, ino, waited_ns: 0 };
        let total = DIRECTORIES_MAX as u64 + 3;
        for ino in 0..total {
            directories.push(&directory(ino), (ino == 1).then_some(b"/a\0"));
        }
        assert_eq!(directories.get(2), None, "overwritten");
        assert_eq!(directories.get(3), Some(directory(3)));
        assert_eq!(Directories::kept(0, total), 3..total);
        assert_eq!(Directories::kept(total - 1, total), total - 1..total);
        assert_eq!(directories.path(1).unwrap()[..3], *b"/a\0");
        directories.clear();
        directories.push(&directory(10), None);
        directories.push(&directory(11), None);
        assert_eq!(directories.get(1), Some(directory(11)));
        assert_eq!(directories.path(1), None, "another scout's");
    }

    #[test]
    fn noise_never_makes_a_scout_count_for_long() {
        for (seen, tail) in [(0, u64::MAX), (5, 3), (u64::MAX, 0), (u64::MAX, u64::MAX)] {
            assert!(Directories::kept(seen, tail).count() <= DIRECTORIES_MAX);
        }
    }

    #[test]
    fn what_was_given_back_is_known_until_it_is_read_again() {
        let (log, next) = (zeroed(), zeroed());
        assert!(log.behind.is_empty());
        assert_eq!(log.behind.take(1, 0, 1 << 40), 0);
        // A stream is one range, however long.
        for n in 0..2 * BEHIND_MAX as u64 {
            log.behind.push(1, n * 4096, (n + 1) * 4096);
        }
        log.behind.push(2, 0, 100);
        next.behind.carry(&log.behind);
        for behind in [&log.behind, &next.behind] {
            assert!(!behind.is_empty());
            assert_eq!(behind.take(3, 0, 1 << 40), 0, "another file");
            assert_eq!(behind.take(1, 4000, 5000), 1000);
            assert_eq!(behind.take(1, 4000, 5000), 0, "once");
            assert_eq!(behind.take(1, 0, 8192), 3192);
            assert_eq!(behind.take(2, 50, 100), 50);
        }
        for file in 10..10 + BEHIND_MAX as u64 {
            log.behind.push(file, 0, 100);
        }
        assert_eq!(log.behind.take(1, 0, 1 << 40), 0, "overwritten");
        assert_eq!(log.behind.take(10, 0, 1 << 40), 100);
        next.behind.carry(&zeroed().behind);
        assert_eq!(next.behind.take(1, 0, 1 << 40), 0);
    }

    #[test]
    fn noise_in_the_shared_fields_never_panics() {
        let log = zeroed();
        for noise in [0, 1, u64::MAX, u64::MAX / 2, 1 << 63] {
            log.tail.store(noise, Ordering::Relaxed);
            log.consumed.store(!noise, Ordering::Relaxed);
            let _ = (log.get(noise), log.get(0), log.get(u64::MAX), log.lead());
            log.push(prediction(1));
            log.behind.tail.store(noise, Ordering::Relaxed);
            log.behind.push(noise, !noise, noise);
            let _ = log.behind.take(noise, 0, u64::MAX);
        }
    }
}
