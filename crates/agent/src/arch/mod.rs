//! Registers, trampolines and system call numbers: one module per
//! architecture, and nothing of an architecture anywhere else.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
#[cfg(target_arch = "x86_64")]
mod x86_64_share;
#[cfg(target_arch = "x86_64")]
pub use x86_64_share::*;
