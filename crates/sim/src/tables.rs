//! Simulated tables beside the thesis's.

use serde::Serialize;

use crate::disk::Micros;
use crate::scenario::{Policy, Scenario};
use crate::thesis::{self, PairRow, SingleRow};
use crate::workload::App;

/// Elapsed time of one configuration as a fraction of the one without hints.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The application, or both of a pair.
    pub apps: Vec<App>,
    /// What is compared: a policy, or which of a pair hint.
    pub what: String,
    /// Disks in the array.
    pub disks: u16,
    /// Simulated elapsed time, seconds, mean over the seeds.
    pub elapsed_s: f64,
    /// As a fraction of the simulated time without hints.
    pub fraction: f64,
    /// The thesis's fraction; absent where it has none.
    pub thesis: Option<f64>,
}

impl Cell {
    /// Simulated minus the thesis's fraction.
    pub fn difference(&self) -> Option<f64> {
        Some(self.fraction - self.thesis?)
    }
}

/// Cells and how far they are from the thesis.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The cells.
    pub cells: Vec<Cell>,
    /// Mean absolute difference; 0 without any to compare.
    pub mean_difference: f64,
    /// The largest absolute difference.
    pub worst_difference: f64,
}

impl Comparison {
    fn of(cells: Vec<Cell>) -> Self {
        let differences: Vec<f64> =
            cells.iter().filter_map(Cell::difference).map(f64::abs).collect();
        let mean = differences.iter().sum::<f64>() / differences.len().max(1) as f64;
        let worst = differences.iter().copied().fold(0.0, f64::max);
        Self { cells, mean_difference: mean, worst_difference: worst }
    }
}

/// Mean elapsed time over the seeds, µs.
pub fn elapsed_us(apps: &[(App, bool)], policy: Policy, disks: u16, seeds: &[u64]) -> f64 {
    let run = |&seed| Scenario::of(apps.to_vec(), policy, disks, seed).run().elapsed_us;
    seeds.iter().map(run).sum::<Micros>() as f64 / seeds.len().max(1) as f64
}

/// Table 6.25: each application alone, under each policy, as a fraction of NH. `progress` is
/// called before each array size.
pub fn singles(
    apps: &[App],
    policies: &[Policy],
    disks: &[u16],
    seeds: &[u64],
    mut progress: impl FnMut(App, u16),
) -> Comparison {
    let mut cells = Vec::new();
    for &app in apps {
        for &disks in disks {
            progress(app, disks);
            let no_hints_us = elapsed_us(&[(app, false)], Policy::Nh, disks, seeds);
            for &policy in policies {
                let us = elapsed_us(&[(app, policy.hints())], policy, disks, seeds);
                cells.push(Cell {
                    apps: vec![app],
                    what: policy.to_string(),
                    disks,
                    elapsed_s: us / 1e6,
                    fraction: us / no_hints_us,
                    thesis: thesis_single(app, policy, disks),
                });
            }
        }
    }
    Comparison::of(cells)
}

fn thesis_single(app: App, policy: Policy, disks: u16) -> Option<f64> {
    let column = thesis::DISKS.iter().position(|&known| known == disks)?;
    let row: &SingleRow = thesis::SINGLE.iter().find(|row| row.app == app)?;
    match policy {
        Policy::Nc { depth: 73 } => Some(row.nc[column]),
        Policy::Tip => Some(row.tip[column]),
        Policy::Nh => Some(1.0),
        _ => None,
    }
}

/// Table 6.26: each pair until both have ended, as a fraction of neither hinting. The thesis's
/// figures are given beside those of TIP itself.
pub fn pairs(
    policy: Policy,
    disks: &[u16],
    seeds: &[u64],
    mut progress: impl FnMut((App, App), u16),
) -> Comparison {
    let mut cells = Vec::new();
    for row in &thesis::PAIRS {
        for &disks in disks {
            progress(row.apps, disks);
            let us = |first, second| {
                elapsed_us(&[(row.apps.0, first), (row.apps.1, second)], policy, disks, seeds)
            };
            let no_hints_us = us(false, false);
            for (what, first, second) in [
                ("first hints", true, false),
                ("second hints", false, true),
                ("both hint", true, true),
            ] {
                let us = us(first, second);
                cells.push(Cell {
                    apps: vec![row.apps.0, row.apps.1],
                    what: what.to_string(),
                    disks,
                    elapsed_s: us / 1e6,
                    fraction: us / no_hints_us,
                    thesis: thesis_pair(row, first, second, disks)
                        .filter(|_| policy == Policy::Tip),
                });
            }
        }
    }
    Comparison::of(cells)
}

fn thesis_pair(row: &PairRow, first: bool, second: bool, disks: u16) -> Option<f64> {
    let column = thesis::DISKS.iter().position(|&known| known == disks)?;
    match (first, second) {
        (true, true) => Some(row.both[column]),
        (true, false) => Some(row.first[column]),
        (false, true) => Some(row.second[column]),
        (false, false) => Some(1.0),
    }
}

/// Stall of an application under NC at one depth.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DepthPoint {
    /// Accesses ahead.
    pub depth: u64,
    /// Elapsed time, seconds.
    pub elapsed_s: f64,
    /// Of that, the CPU idle, seconds.
    pub stall_s: f64,
}

/// The sweep of the thesis's figures 6.2b to 6.17b.
pub const SWEEP_DEPTHS: [u64; 11] = [0, 1, 2, 4, 8, 16, 32, 48, 73, 128, 256];

/// Simulates NC at each depth.
pub fn sweep(app: App, disks: u16, depths: &[u64], seed: u64) -> Vec<DepthPoint> {
    depths
        .iter()
        .map(|&depth| {
            let report = Scenario::single(app, Policy::Nc { depth }, disks, seed).run();
            DepthPoint {
                depth,
                elapsed_s: report.elapsed_us as f64 / 1e6,
                stall_s: report.stall_us() as f64 / 1e6,
            }
        })
        .collect()
}
