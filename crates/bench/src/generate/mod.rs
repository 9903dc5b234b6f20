//! Data for the applications, deterministic from a seed.

pub mod objects;
pub mod records;
pub mod repository;
pub mod tree;
pub mod volume;

/// `full` items at scale 1, at least `least`.
pub fn scaled(full: u64, scale: f64, least: u64) -> u64 {
    ((full as f64 * scale).round() as u64).max(least)
}
