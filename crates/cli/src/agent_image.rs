//! The agent library, carried inside the command so that an installation is
//! one file.

use crate::fingerprint;

/// A shared object to load into programs.
#[derive(Clone, Copy, Debug)]
pub struct Agent<'a> {
    /// Its bytes; none where this command was built without one.
    pub bytes: &'a [u8],
    /// What names them ([`fingerprint::of`]).
    pub fingerprint: u64,
}

impl<'a> Agent<'a> {
    /// One from elsewhere.
    pub fn other(bytes: &'a [u8]) -> Agent<'a> {
        Agent { bytes, fingerprint: fingerprint::of(bytes) }
    }
}

/// The one that build.rs has linked.
pub const AGENT: Agent<'static> = Agent {
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/agent.so")),
    fingerprint: include!(concat!(env!("OUT_DIR"), "/agent.fingerprint")),
};
