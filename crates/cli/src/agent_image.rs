//! The agent library, carried inside the command so that an installation is
//! one file.

/// The bytes of the shared object that build.rs has linked.
pub const AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent.so"));
