//! What a measurement needs of a device: reads, and the time.

use std::path::Path;

use crate::error::Result;

/// When a read began and ended, in ns of one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed {
    /// Begin.
    pub start_ns: u64,
    /// End; not before the begin.
    pub end_ns: u64,
}

impl Timed {
    /// How long it took, ns.
    pub fn latency_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }
}

/// A device or file that is read, with a clock. The live one is
/// [`crate::Target`]; tests have a modelled one in virtual time.
pub trait Reader {
    /// What is read, for messages.
    fn path(&self) -> &Path;

    /// Bytes that may be read.
    fn size_bytes(&self) -> u64;

    /// Largest request that is worth making, bytes.
    fn request_bytes_max(&self) -> u64;

    /// Now, ns of the same clock as [`Timed`].
    fn now_ns(&self) -> u64;

    /// Does nothing for so long.
    fn pause(&mut self, duration_ns: u64);

    /// Reads `len` bytes at `offset` from the device, not from memory. `None`
    /// where memory answered all the same.
    ///
    /// # Errors
    /// The read failed.
    fn read(&mut self, offset: u64, len: u64) -> Result<Option<Timed>>;

    /// Reads `len` bytes at each offset, `depth` at a time: as soon as one is
    /// complete the next one is begun. Times of completion of those that
    /// memory did not answer.
    ///
    /// # Errors
    /// A read failed; [`Error::Threads`](crate::Error::Threads) where so many cannot be
    /// made at a time.
    fn parallel(&mut self, offsets: &[u64], len: u64, depth: usize) -> Result<Vec<u64>>;
}
