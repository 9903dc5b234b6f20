//! The Linux calls that set a device up.

pub mod aio;
pub mod loop_device;
pub mod mkfs;
pub mod mounts;
pub mod process;
pub mod signals;
pub mod swap;
