//! Deterministic discrete-event simulation of TIP (Patterson 1997): a disk array, a buffer
//! cache managed by `runahead-policy`, and the thesis's applications. A seed gives the same
//! run for ever.

mod array;
mod bounds;
mod cost;
mod disk;
mod engine;
mod filesystem;
pub mod memory;
mod program;
mod random;
pub mod recording;
pub mod scenario;
pub mod tables;
pub mod thesis;
pub mod trace;
pub mod workload;

pub use array::{Array, DiskStats, STRIPE_UNIT, Started};
pub use bounds::{Bounds, bounds};
pub use cost::CpuCosts;
pub use disk::{Drive, DriveParameters, Micros};
pub use engine::{Machine, Report, Task, TaskReport, simulate};
pub use filesystem::{BLOCK_BYTES, FileSpec, FileSystem, PlacementParameters, blocks_of};
pub use program::{Op, Program, Range, Totals};
pub use random::Random;
