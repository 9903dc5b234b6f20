//! Decisions, and nothing else: every function here is given what happened
//! and what time it is, and answers what to do. No I/O, no clock, no threads
//! (design: "whoever puts a syscall or a clock into the policy has broken the
//! house"), so that the live agent and the simulator run the same rules.
#![no_std]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod asking;
pub mod comparison;
pub mod competitive;
pub mod device_limit;
pub mod first;
pub mod horizon;
pub mod learning;
pub mod memory_control;
pub mod ration;
pub mod readahead;
pub mod refork;
pub mod release;
#[cfg(feature = "alloc")]
pub mod tip;
