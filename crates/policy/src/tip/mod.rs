//! TIP: informed prefetching and caching by cost-benefit analysis.
//!
//! R. H. Patterson III, *Informed Prefetching and Caching*, CMU-CS-97-204 (1997), called
//! "the thesis" here; names, section numbers and equations are its own. Processes disclose
//! the reads that they will do. Independent *estimators*, one per hinting process, one for
//! the LRU queue of unhinted reads and one for orphans, value buffers in a *common
//! currency*: the change in I/O service time per buffer-access (section 4.1.2). An
//! allocator takes the *min-max buffer*, the one whose highest valuation is the lowest of
//! all, and gives it to whoever bids more (sections 4.2.6 and 4.3.5).
//!
//! [`Tip`] is the manager. It is told of hints, reads, writes and completed I/O, and
//! appends the [`Io`]s to start to a vector. It does no I/O and reads no clock. What it
//! must know of the storage it asks of a [`Layout`].
//!
//! What came after the thesis's implementation can be switched on by itself, to be
//! compared: see [`Extensions`] and [`Valuation`].

mod allocate;
mod buffers;
mod check;
mod config;
mod constrained;
mod demand;
mod estimates;
mod hints;
mod lru;
mod manager;
mod orphan;
mod prefetch;
mod rates;
mod readahead;
mod stats;
mod writes;

pub use config::{Config, Extensions, Mode, Valuation};
pub use estimates::{FIXED_POINT_SHIFT, Parameters};
pub use hints::{HintError, Segment};
pub use manager::{Layout, Read, ReadOutcome, Tip};
pub use readahead::ReadaheadConfig;
pub use stats::Stats;
pub use writes::WriteOutcome;

/// A file, as the environment numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// A process, as the environment numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

/// A logical block of a file: the unit of caching (8 KiB in the thesis).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// The file.
    pub file: FileId,
    /// The block's number in the file, from 0.
    pub number: u32,
}

/// Which of the two queues of a disk an I/O belongs to (section 5.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Somebody waits for it: forwarded at once.
    Demand,
    /// Informed prefetch, readahead or write-behind: low priority, sorted by CSCAN, at most
    /// two of them at each disk.
    Prefetch,
}

/// An I/O that the environment must start: contiguous blocks within one stripe unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// The first block.
    pub first: Block,
    /// How many blocks, at least 1.
    pub blocks: u32,
    /// Its queue.
    pub priority: Priority,
    /// A write of dirty blocks; otherwise a read.
    pub write: bool,
}
