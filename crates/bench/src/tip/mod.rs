//! `runahead bench tip --live`: hinting programs on the emulated array, in the thesis's modes.

pub mod cost;
pub mod live;
pub mod programs;
pub mod report;
