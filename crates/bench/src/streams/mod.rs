//! `bench streams`: many sequential streams at once, as in Li, Papathanasiou
//! and Shen (2004, section 3): their microbenchmarks, an index search server
//! (Sphinx's searchd) and a media server (nginx, asked by wrk), under the kernel's default readahead, an
//! aggressive one (twice the competitive depth), the competitive depth set in
//! the kernel (`runahead tune`), and under `runahead run`.
//!
//! The emulated disk's clock may run faster than the wall's: all of its times
//! are divided by the speed, so that rates are multiplied and the competitive
//! depth stays what it is. Rates are given in the disk's own time.

pub mod data;
mod drive;
pub mod model;
mod plot;
mod report;
mod server;
mod workload;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use runahead_slowdisk::profile::Discipline;

use crate::results::Machine;
use crate::tools::{GCC, INDEXER, NGINX, SEARCHD, WRK, ensure_installed};
use drive::Bed;
pub use plot::draw;
pub use report::{Point, Run, StreamsResults, table};
pub use workload::{Order, Policy, Workload};

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct StreamsOptions {
    /// Profile of the emulated device.
    pub profile: String,
    /// Workloads.
    pub workloads: Vec<Workload>,
    /// Who orders the requests; on network storage nobody does.
    pub orders: Vec<Order>,
    /// Policies; the default is always measured.
    pub policies: Vec<Policy>,
    /// Handlers, clients or searchers at once.
    pub handlers: Vec<u32>,
    /// Runs of each policy.
    pub runs: usize,
    /// Time and data relative to the full ones, above 0.
    pub scale: f64,
    /// How much faster the disk's clock runs than the wall's.
    pub speed: f64,
    /// Seed of data and requests.
    pub seed: u64,
    /// Install what is missing.
    pub install: bool,
    /// The `runahead` executable.
    pub runahead: PathBuf,
}

/// Measures. `so_far` is given the results after each point.
///
/// # Errors
/// If something is missing or a run cannot be made, or a program read wrong
/// data.
pub fn run(
    options: &StreamsOptions,
    mut so_far: impl FnMut(&StreamsResults) -> Result<()>,
) -> Result<StreamsResults> {
    ensure!(options.runs > 0, "--runs 0: give at least 1");
    ensure!(options.scale > 0.0 && options.scale <= 4.0, "--scale: give a factor up to 4");
    ensure!((0.1..=20.0).contains(&options.speed), "--speed: give a factor from 0.1 to 20");
    let mut tools = vec![GCC];
    if options.workloads.contains(&Workload::Media) {
        tools.extend([NGINX, WRK]);
    }
    if options.workloads.contains(&Workload::Search) {
        tools.extend([SEARCHD, INDEXER]);
    }
    ensure_installed(&tools, options.install)?;
    let mut results = StreamsResults {
        version: 1,
        benchmark: "streams".into(),
        machine: Machine::here(),
        profile: options.profile.clone(),
        speed: options.speed,
        scale: options.scale,
        latency_ms: 0.0,
        rate_mb_s: 0.0,
        depth_kib: 0,
        points: Vec::new(),
    };
    let mut disciplines: Vec<Discipline> = Vec::new();
    for order in &options.orders {
        if !disciplines.contains(&order.discipline()) {
            disciplines.push(order.discipline());
        }
    }
    // A bed for each discipline of the disk: its data is made once.
    for discipline in disciplines {
        let bed = Bed::open(options, discipline, &mut results)?;
        for order in options.orders.iter().filter(|order| order.discipline() == discipline) {
            for workload in &options.workloads {
                for handlers in &options.handlers {
                    let point = bed.point(*workload, *order, *handlers, &results)?;
                    results.points.push(point);
                    so_far(&results)?;
                }
            }
        }
    }
    Ok(results)
}
