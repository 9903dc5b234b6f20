//! The live manager of hints: TIP (Patterson 1997) on Linux's page cache.
//!
//! [`Engine`] decides. It is told by its clients, the hinting processes, of files, hints and
//! reads, runs [`runahead_policy::tip`] and says what to do: prefetch a range, give a range
//! back. It makes no system call, so that it is tested without a disk, and the same engine
//! serves one process from a thread of its own or all of a machine behind a socket
//! ([`server`]).
//!
//! [`actor`] does it, always in the client: so prefetched pages are charged to the client's
//! memory cgroup, files are opened with the client's rights, and the manager of a machine
//! needs none. [`memory`] says how many buffers there are, [`geometry`] how many disks and
//! how slow.

pub mod actor;
pub mod engine;
pub mod geometry;
pub mod layout;
pub mod memory;
pub mod server;
pub mod wire;

pub use engine::{Action, ClientId, Engine, Mode, Options, ReadNote, Segment, Stats};
pub use layout::{Extent, FileInfo};

/// Bytes per block, the unit of caching: the thesis's.
pub const BLOCK_BYTES: u64 = 8192;

/// Most blocks in one I/O: a stripe unit of 64 KiB (section 5.2.2). `readahead(2)` takes so
/// much in one call whatever `read_ahead_kb` is.
pub const CLUSTER_BLOCKS: u32 = 8;
