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
use runahead_slowdisk::profile::{Discipline, Medium, Profile};

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
    /// How much faster the device's clock runs than the wall's; none: 4 on
    /// disks, 1 on network storage, which is nearly as fast as the emulation.
    pub speed: Option<f64>,
    /// Seed of data and requests.
    pub seed: u64,
    /// Install what is missing.
    pub install: bool,
    /// The `runahead` executable.
    pub runahead: PathBuf,
}

/// How much faster a disk's clock runs than the wall's.
const DISK_SPEED: f64 = 4.0;

fn has_disks(profile: &str) -> Result<bool> {
    Ok(Profile::by_name(profile)?.medium == Medium::Disks)
}

/// On network storage there is no head for a disk's order to serve, and an
/// object store has no block device whose requests the kernel could order.
fn orders(options: &StreamsOptions, disks: bool) -> Vec<Order> {
    let object = options.profile == "object";
    let can = |order: &Order| match order {
        Order::Fifo => true,
        Order::Cscan => disks,
        Order::MqDeadline | Order::Bfq => !object,
    };
    let orders: Vec<Order> = options.orders.iter().copied().filter(can).collect();
    if orders.is_empty() { vec![Order::Fifo] } else { orders }
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
    let disks = has_disks(&options.profile)?;
    let speed = options.speed.unwrap_or(if disks { DISK_SPEED } else { 1.0 });
    ensure!((0.1..=20.0).contains(&speed), "--speed: give a factor from 0.1 to 20");
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
        speed,
        scale: options.scale,
        latency_ms: 0.0,
        rate_mb_s: 0.0,
        files_mb_s: 0.0,
        depth_kib: 0,
        points: Vec::new(),
    };
    let orders = orders(options, disks);
    let mut disciplines: Vec<Discipline> = Vec::new();
    for order in &orders {
        if !disciplines.contains(&order.discipline()) {
            disciplines.push(order.discipline());
        }
    }
    // A bed for each discipline of the disk: its data is made once.
    for discipline in disciplines {
        let bed = Bed::open(options, speed, discipline, &mut results)?;
        for order in orders.iter().filter(|order| order.discipline() == discipline) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_those_that_a_device_can_have() {
        let with = |profile: &str, orders: &[Order]| StreamsOptions {
            profile: profile.into(),
            workloads: Vec::new(),
            orders: orders.to_vec(),
            policies: Vec::new(),
            handlers: Vec::new(),
            runs: 1,
            scale: 1.0,
            speed: None,
            seed: 1,
            install: false,
            runahead: PathBuf::new(),
        };
        let of = |profile: &str, given: &[Order]| {
            orders(&with(profile, given), has_disks(profile).unwrap())
        };
        let all = [Order::Fifo, Order::Cscan, Order::Bfq];
        assert_eq!(of("hdd", &all), all);
        assert_eq!(of("cloud", &all), [Order::Fifo, Order::Bfq]);
        assert_eq!(of("object", &all), [Order::Fifo]);
        assert_eq!(of("object", &[Order::Bfq]), [Order::Fifo]);
        assert!(has_disks("floppy").is_err());
    }
}
