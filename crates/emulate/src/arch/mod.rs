//! One module per architecture; the rest of the crate uses what this one
//! re-exports.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::{nr, stat};
