//! Competitive prefetching (Li, Papathanasiou and Shen 2004): a prefetch of
//! the depth that takes as long to transfer as the switch to it took to begin
//! costs at most twice what an optimal offline policy would, whatever the
//! program does next.
//!
//! | module | serves |
//! |---|---|
//! | [`depth`] | the depth of a device: seek curve, zones, latency |
//! | [`streams`] | sequential streams of programs, many at once |
//! | [`crowd`] | whether several threads wait for one device |
//! | [`adapt`] | whether the depth pays on the device as it is now |
//! | [`whole_files`] | small files, whose reads depend on their own bytes |

pub mod adapt;
pub mod crowd;
pub mod depth;
pub mod streams;
pub mod whole_files;

pub use crowd::Crowd;
pub use depth::{DEPTH_BYTES_MAX, Device, depth_bytes};
pub use streams::{Miss, Streams};
pub use whole_files::WholeFiles;
