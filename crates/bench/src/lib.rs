//! Benchmarks: the explicit-I/O applications of Fraser and Chang (2003), as
//! close as today's packages allow, and today's programs, each with and
//! without Runahead.
//!
//! A result is a ratio measured in one run that alternates the two sides, with
//! the caches emptied before each and `read_ahead_kb` at 128; median and spread
//! of at least five, and beside them the ideal. Every run's output is compared
//! with the plain run's.

pub mod apps;
pub mod busy;
pub mod c_program;
pub mod calls;
pub mod cgroup;
pub mod compiler;
pub mod damon;
pub mod device_counts;
pub mod digest;
pub mod explicit;
pub mod generate;
pub mod harm;
pub mod harness;
pub mod ideal;
pub mod in_memory;
pub mod interference;
mod interrupt;
pub mod launch;
pub mod memory;
pub mod neighbour;
pub mod overhead;
mod pipe;
pub mod place;
pub mod plot;
mod probe;
pub mod process;
pub mod progress;
pub mod promised;
pub mod reader;
pub mod release;
pub mod results;
pub mod rng;
pub mod rounds;
pub mod series;
pub mod sharing;
pub mod statistics;
pub mod stranger;
pub mod streams;
pub mod summary;
pub mod swap;
pub mod synchronisation;
pub mod table;
pub mod tip;
pub mod tools;
