//! What the launcher, the normal process, the speculative process and the
//! collector say to each other: one module per conversation, every layout
//! versioned, no code that acts.
//!
//! | module | written by | read by | where it lives |
//! |---|---|---|---|
//! | [`learnt`] | agent | agents of later processes | a file in memory |
//! | [`session`] | launcher | agent | an environment variable |
//! | [`sites`] | launcher | agent | a file in the cache directory, and its copy in memory |
//! | [`log`] | speculative process, normal process | both | anonymous shared memory |
//! | [`reads`] | agent | collector | a memory file held by the collector |
//! | [`stats`] | agent | collector | a memory file held by the collector |
#![no_std]

pub mod learnt;
pub mod log;
pub mod notice;
pub mod reads;
pub mod session;
pub mod sites;
pub mod stats;
