//! Reactive memory control: whether a speculative process is worth its memory
//! (Fraser and Chang 2003, section 6.1).
//!
//! It is not asked whether a page *will* be useful. Counted is what
//! speculation did: stalls that it *removed*, by bringing in pages that the
//! program then used, and stalls that it *added*, by pushing out pages that
//! the program then missed. Time is divided into intervals; at the end of
//! each, cost and benefit of every speculative process are brought up to
//! date, and one whose overhead is above the threshold is stopped and its
//! memory taken back, until the overhead has worn off.
//!
//! [`Estimate`] is one process's account and [`added_stalls`] its share of
//! the stalls that all of them added. Who counts differs: the simulator keeps
//! the paper's own eviction list ([`EvictionList`], Figure 4), a live process
//! takes the kernel's refault counters ([`refaults_added`]).

mod estimate;
#[cfg(feature = "alloc")]
mod eviction_list;
mod shares;

pub use estimate::{Action, Estimate, Parameters};
#[cfg(feature = "alloc")]
pub use eviction_list::{EvictionList, Origin, Process, Reference};
pub use shares::{added_stalls, refaults_added, speculative_pages};

/// One stall in the fixed-point unit in which stalls are reckoned here, so
/// that shares and decayed counts keep their fractions without floating
/// point, which the injected agent must not use.
pub const STALL: u64 = 1024;
