//! The notice of a page fault that waited for storage: what the agent takes
//! for it and what `runahead doctor` tries.

/// The signal: glibc's own, which programs cannot block, wait for or handle
/// through it.
pub const SIGNAL: i32 = 32;

/// Notices that one event gives before it is made anew.
pub const NOTICES_MAX: u32 = 1024;

/// Least limit of queued signals (RLIMIT_SIGPENDING) with which there is
/// notice: one that finds the queue full becomes a `SIGIO`, which kills.
pub const QUEUED_SIGNALS_MIN: u64 = 4 * NOTICES_MAX as u64;
