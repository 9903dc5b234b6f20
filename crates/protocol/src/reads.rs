//! Recorded reads: under `--record` every process adds its reads of files to a
//! memory file that the collector holds. Appending takes no lock: one count
//! that everybody raises gives each read a record of its own.
//!
//! A [`Header`] page, then [`RECORDS_MAX`] [`Record`]s; pages that nothing has
//! been written to take no memory. The reader trusts nothing in here: whatever
//! runs under the recorder can write to it.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// First eight bytes of the file: "RAREADS" and the version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RAREADS\x01");

/// Reads that are recorded; later ones are only counted. They take 128 MiB.
pub const RECORDS_MAX: usize = 2 << 20;

/// Size of the file in bytes.
pub const FILE_LEN: usize = size_of::<Header>() + RECORDS_MAX * size_of::<Record>();

/// First part of the file.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// Reads so far; may exceed [`RECORDS_MAX`].
    pub count: AtomicU64,
}

/// A read that a program made, as one place in the file. It lies within one
/// page.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Record {
    /// The first two words are those that clock_gettime(2) writes, so that the
    /// kernel, which may fail, is the first to touch a page. Then: processor
    /// time of the thread before the read, in ns.
    pub cpu_ns: AtomicU64,
    /// Thread, and the process in the upper half.
    ids: AtomicU64,
    /// Device as stat(2) gives it, and in the upper half processor time within
    /// the read, in µs.
    device: AtomicU64,
    inode: AtomicU64,
    offset: AtomicU64,
    file_bytes: AtomicU64,
    /// Bytes read, and in the upper half how long that took, in µs.
    length: AtomicU64,
    /// When the read began (`CLOCK_MONOTONIC`), in ns; written last: 0 means
    /// that the record is not complete.
    start_ns: AtomicU64,
}

/// A read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Processor time of the thread before the read, in ns.
    pub cpu_ns: u64,
    /// Thread.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// Device of the file, as stat(2) gives it; Linux's numbers have 32 bits.
    pub device: u32,
    /// Processor time within the read, in µs.
    pub cpu_in_us: u32,
    /// Inode of the file.
    pub inode: u64,
    /// Where in the file the read began, in bytes.
    pub offset: u64,
    /// Size of the file then, in bytes.
    pub file_bytes: u64,
    /// Bytes that were read; 0 at the end of the file.
    pub length: u32,
    /// How long it took, in µs.
    pub took_us: u32,
    /// When it began (`CLOCK_MONOTONIC`), in ns.
    pub start_ns: u64,
}

impl Record {
    /// Writes a read.
    pub fn put(&self, read: &Read) {
        let halves = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        self.cpu_ns.store(read.cpu_ns, Relaxed);
        self.ids.store(halves(read.thread, read.process), Relaxed);
        self.device.store(halves(read.device, read.cpu_in_us), Relaxed);
        self.inode.store(read.inode, Relaxed);
        self.offset.store(read.offset, Relaxed);
        self.file_bytes.store(read.file_bytes, Relaxed);
        self.length.store(halves(read.length, read.took_us), Relaxed);
        self.start_ns.store(read.start_ns.max(1), Release);
    }

    /// The read; `None` where none was written to its end.
    pub fn get(&self) -> Option<Read> {
        let halves = |both: u64| (both as u32, (both >> 32) as u32);
        let start_ns = self.start_ns.load(Acquire);
        let (thread, process) = halves(self.ids.load(Relaxed));
        let (device, cpu_in_us) = halves(self.device.load(Relaxed));
        let (length, took_us) = halves(self.length.load(Relaxed));
        (start_ns != 0).then(|| Read {
            cpu_ns: self.cpu_ns.load(Relaxed),
            thread,
            process,
            device,
            cpu_in_us,
            inode: self.inode.load(Relaxed),
            offset: self.offset.load(Relaxed),
            file_bytes: self.file_bytes.load(Relaxed),
            length,
            took_us,
            start_ns,
        })
    }
}

const _: () = assert!(size_of::<Record>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_holds_a_read_once_it_is_complete() {
        // SAFETY: zero bytes are a valid Record (all atomics).
        let record: Record = unsafe { core::mem::zeroed() };
        assert_eq!(record.get(), None);
        let read = Read {
            cpu_ns: 1,
            thread: u32::MAX,
            process: 3,
            device: 4,
            cpu_in_us: u32::MAX - 1,
            inode: 6,
            offset: u64::MAX,
            file_bytes: 8,
            length: 0x7fff_f000,
            took_us: 10,
            start_ns: 11,
        };
        record.put(&read);
        assert_eq!(record.get(), Some(read));
    }
}
