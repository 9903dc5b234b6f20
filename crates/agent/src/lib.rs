//! The agent: the library injected into programs. It hooks the system calls
//! that can wait for storage, and at a stall makes the speculative process.
//!
//! Freestanding: no libc, no heap, no thread-local storage, no vector
//! registers, no formatting. It is compiled for `x86_64-unknown-none`, which
//! is soft-float, so that not even the core library brings a vector register
//! in, and linked into a shared library without needs or undefined symbols.
//!
//! Data flows one way: [`start`] hooks, [`hook`] receives, [`normal`] decides
//! in the program, [`speculative`] runs ahead in the copy.
#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod apart;
pub mod arch;
pub mod arena;
pub mod cancellable;
pub mod config;
pub mod elf;
pub mod hook;
pub mod import;
pub mod interpose;
pub mod lease;
pub mod maps;
pub mod normal;
pub mod opening;
pub mod patch;
pub mod procfs;
pub mod speculative;
pub mod start;
pub mod stat;
pub mod state;
pub mod status;
pub mod symbols;
pub mod sys;
pub mod tasks;
pub mod usage;

/// The gate as the emulator and the residency oracles know it.
#[derive(Debug)]
pub struct Gate;

/// Reached only through a defect of ours. In a speculative process it ends
/// that; in the program there is nothing right left to do, so the build
/// refuses an image from which this is reachable (crates/cli/build.rs).
#[cfg(target_os = "none")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        // SAFETY: ends this process.
        unsafe { arch::syscall6(arch::nr::EXIT_GROUP, [99, 0, 0, 0, 0, 0]) };
    }
}
