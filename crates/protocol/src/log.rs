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
    /// Changes of the program's large mappings so far, when it was copied.
    pub large_changes: AtomicU32,
    /// That number plus 1 where an earlier copy has found no large mapping of
    /// a file since then; else 0. Written by both.
    pub without_files: AtomicU64,
    _normal_pad: [u64; 1],

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
    /// Smoothed latency of a prefetch, in ns; 0: not known.
    pub latency_ns: AtomicU64,
    /// Smoothed throughput of prefetches, in bytes per second; 0: not known.
    pub bytes_per_s: AtomicU64,
    /// 1: the program shares memory with others in which it may write.
    pub shares: AtomicU64,

    /// Ring of predictions; entry of read `n` is at `n % ENTRIES_MAX`.
    pub entries: [Entry; ENTRIES_MAX],
    /// Pages of memory whose data has been asked for.
    pub pages: Pages,
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
const _: () = assert!(size_of::<Entry>() == 32);
const _: () = assert!(PAGES_MAX.is_power_of_two());
const _: () = assert!(size_of::<Log>() == 128 + 32 * ENTRIES_MAX + 16 + 8 * PAGES_MAX);

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
        Prediction { offset: n * 4096, len: 4096, fd: 3, flags: FLAG_PREFETCHED, prefetched_len: 1 }
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
    fn noise_in_the_shared_fields_never_panics() {
        let log = zeroed();
        for noise in [0, 1, u64::MAX, u64::MAX / 2, 1 << 63] {
            log.tail.store(noise, Ordering::Relaxed);
            log.consumed.store(!noise, Ordering::Relaxed);
            let _ = (log.get(noise), log.get(0), log.get(u64::MAX), log.lead());
            log.push(prediction(1));
        }
    }
}
