//! Measures a storage device and keeps its profile: latency and bandwidth of a
//! request, sequential rate by position, seek time by distance, rotational
//! delay, useful parallelism, and what switching between streams costs.
//!
//! It is the offline measurement of Li, Papathanasiou and Shen (2004, section
//! 2.2 and Figure 2), extended to devices that serve requests in parallel.
//! It only ever reads.
//!
//! Three layers: [`reader`] is the only part that does I/O or looks at a
//! clock; [`measure`] decides what to read; [`estimate`] works out parameters
//! from samples and is pure. The first is a trait, so that the other two are
//! tested against a modelled device in virtual time.
//!
//! ```no_run
//! let profile = runahead_device::DeviceProfile::load_for("/data".as_ref());
//! let depth = profile.map_or(8, |profile| profile.parallelism.knee_depth);
//! ```

pub mod error;
pub mod estimate;
pub mod extents;
pub mod identity;
pub mod measure;
pub mod plot;
pub mod profile;
mod random;
pub mod reader;
pub mod store;
pub mod target;
pub mod tune;

pub use error::{Error, Result};
pub use measure::{Options, measure};
pub use profile::DeviceProfile;
pub use target::Target;
