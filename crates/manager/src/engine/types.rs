//! What an engine is told and what it says.

/// A hinting process, as its manager numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// A disclosed range of a file, which the client numbered when it registered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The client's number for the file.
    pub file: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0: to the end of the file.
    pub length: u64,
}

/// A read that a client has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadNote {
    /// The client's number for the file.
    pub file: u32,
    /// Where it began.
    pub offset: u64,
    /// Bytes that it returned.
    pub length: u64,
    /// Time since the read before it ended, in microseconds; 0: unknown.
    pub t_app_us: u32,
}

/// What a client is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read a range into the page cache, then report with [`Engine::done`].
    Prefetch {
        /// Names it in the report.
        tag: u64,
        /// The client's number for the file.
        file: u32,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Give a range of the page cache back.
    Release {
        /// The client's number for the file.
        file: u32,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// So many segments were consumed: as many more may be sent.
    Credit(u32),
}

/// Segments that a client may have sent and not consumed: enough for every horizon, and a
/// bound of the manager's memory. The client keeps the rest.
pub const CREDIT: u32 = 65_536;

/// The four systems that the thesis measures (section 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Prefetching and caching.
    #[default]
    Full,
    /// "TIP, no caching": hints only prefetch.
    PrefetchOnly,
    /// Hints are not looked at.
    NoHints,
}

/// What an engine is set up with.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Use made of hints.
    pub mode: Mode,
    /// Buffers of [`BLOCK_BYTES`] to begin with.
    pub buffers: u32,
    /// T_hit, measured, in microseconds, at least 1.
    pub t_hit_us: u32,
    /// Prefetches outstanding at each disk (2 in section 5.3.5).
    pub outstanding_per_disk: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { mode: Mode::Full, buffers: 4096, t_hit_us: 2, outstanding_per_disk: 2 }
    }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks that clients read, hinted or not.
    pub reads: u64,
    /// Of those, the ones that a hint had announced.
    pub hinted: u64,
    /// Blocks for which prefetches were sent.
    pub prefetched_blocks: u64,
    /// The prefetches.
    pub prefetches: u64,
    /// Blocks given back.
    pub released_blocks: u64,
    /// Prefetches that failed: the file went away or cannot be read.
    pub failed: u64,
    /// T_disk as measured, microseconds.
    pub t_disk_us: u32,
    /// T_driver as measured, microseconds per block.
    pub t_driver_us: u32,
    /// P̂, accesses.
    pub horizon: u64,
    /// Buffers.
    pub buffers: u32,
}

/// How a prefetch went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The data is in the page cache.
    pub ok: bool,
    /// When it was started, on a clock that all clients share (CLOCK_MONOTONIC).
    pub started_ns: u64,
    /// When it was complete.
    pub ended_ns: u64,
    /// CPU time that starting it took.
    pub cpu_ns: u64,
}

impl Report {
    /// Whether nobody reports at all: the client is gone.
    pub(super) fn is_empty(&self) -> bool {
        self.ended_ns == 0
    }
}

/// Most files that a client may register, and that an engine knows.
pub const FILES_MAX: u32 = 1 << 22;

/// Fewest buffers that a manager works with, and most (2 GiB): headers take memory too.
pub const BUFFERS_MIN: u32 = 64;
/// See [`BUFFERS_MIN`].
pub const BUFFERS_MAX: u32 = 262_144;
