//! The agent library, carried inside the command so that an installation is
//! one file.

/// The bytes of the shared object; empty in a build without the agent, which
/// runs programs plainly.
pub const AGENT: &[u8] = &[];
