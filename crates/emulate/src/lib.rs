//! What a speculative process does with each system call (Fraser and Chang
//! 2003, section 4.1.1): one [`table`], and a state machine behind it that
//! stands on a trait of primitive calls ([`Kernel`]), so that it is tested
//! without the process around it.
//!
//! Reads copy what is in memory, leave the rest of the buffer exactly as it
//! was, and prefetch it. Writes report success and do nothing. What cannot
//! be answered *parks*, with a reason. Whatever the program asks, only the
//! calls of [`gate::GATE`] are ever made for real.
//!
//! The crate is linked into the agent that is injected into programs: no
//! allocation, no panics, no floating point, fixed tables with named limits,
//! and all state in one [`Emulator`], for which zero bytes are a valid
//! beginning.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod abi;
pub mod arch;
mod blank;
mod channels;
mod context;
mod control;
mod copy;
pub mod descriptors;
mod emulator;
pub mod frontier;
pub mod gate;
mod kernel;
mod memory;
mod names;
mod open;
mod outcome;
mod pipes;
mod prefetch;
mod process;
mod read;
mod release;
mod rename;
pub mod residency;
mod runs;
pub mod scout;
mod status;
pub mod table;
pub mod trial;
mod walk;
mod write;

pub use blank::is_text;
pub use descriptors::Kind;
pub use emulator::{
    Counters, Emulator, Identity, Inherited, POSITION_UNKNOWN, PROTECTED_MAX, SIGNALS_MAX, Start,
};
pub use kernel::{Calls, Kernel, Mapped, Protecting};
pub use outcome::Outcome;
pub use pipes::PIPE_BYTES;
pub use walk::{READERS_MAX, is_made_up};
