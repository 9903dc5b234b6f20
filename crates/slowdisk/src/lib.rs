//! An emulated disk array: a FUSE file with a timing model, made into a block
//! device by a direct-I/O loop device, with a real file system, a real page
//! cache and real swap on it.
//!
//! [`model`] is pure: given requests and times it returns completion times.
//! [`serve`] runs it behind FUSE in a background process of its own, and
//! [`SlowDisk`] brings such a device up, empties its caches and takes it down:
//!
//! ```no_run
//! # fn main() -> Result<(), runahead_slowdisk::Error> {
//! use runahead_slowdisk::{SlowDisk, UpOptions};
//!
//! let disk = SlowDisk::up(&UpOptions::new("cloud", "/mnt/slow"))?;
//! disk.pause()?; // prepare the data at full speed
//! std::fs::write("/mnt/slow/data", vec![7; 1 << 20]).unwrap();
//! disk.resume()?;
//! disk.cold()?;
//! std::fs::read("/mnt/slow/data").unwrap(); // waits as on the real device
//! println!("{} requests", disk.stats()?.device.reads);
//! # Ok(()) } // goes down when dropped
//! ```

mod bad_blocks;
mod check;
mod cold;
mod control;
mod daemon;
mod disk_fs;
mod down;
mod engine;
mod error;
mod handle;
pub mod model;
mod object;
mod options;
pub mod profile;
mod serve;
mod state;
mod store;
mod sys;
mod timer;
mod up;
mod warm;
mod wire;

pub use bad_blocks::lose;
pub use check::{CheckOptions, DepthReport, ProfileReport, check};
pub use cold::cold;
pub use control::Snapshot;
pub use down::{down, down_all};
pub use error::{Error, Result};
pub use handle::SlowDisk;
pub use options::{FileSystem, UpOptions, parse_size};
pub use serve::serve;
pub use state::{State, list};
pub use warm::{Warmed, warm_metadata};
