//! `runahead bench streams`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use runahead_bench::results;
use runahead_bench::streams::{self, Order, Policy, StreamsOptions, Workload};

use super::common::{RESULTS, executable, file_names, named};
use crate::commands::print;

#[derive(Debug, Args)]
pub struct Streams {
    /// Profile of the emulated device
    #[arg(long, value_name = "NAME", default_value = "hdd")]
    profile: String,
    /// Only these: one-whole, one-rand, two-rand, four-64kb, search, media
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    workload: Vec<String>,
    /// Who orders the requests that wait: fifo, cscan (the disk), mq-deadline,
    /// bfq (the kernel)
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "fifo,cscan,bfq")]
    order: Vec<String>,
    /// Only these beside the default: aggressive, tuned, runahead
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    policy: Vec<String>,
    /// Handlers at once
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,4,8,16,32,64",
          value_parser = clap::value_parser!(u32).range(1..=256))]
    at_once: Vec<u32>,
    /// Runs of each
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Time and data relative to the full ones (6 s, 2 GiB)
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    /// How much faster the device's clock runs than the wall's [default: 4 on
    /// disks, else 1]
    #[arg(long, value_name = "F")]
    speed: Option<f64>,
    /// Seed of data and requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Install packages that are missing (apt-get)
    #[arg(long)]
    install: bool,
    /// Write the results here [default: bench-results/streams-PROFILE.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The runahead executable to measure [default: this one]
    #[arg(long, value_name = "FILE")]
    runahead: Option<PathBuf>,
}

/// Runs it.
pub fn run(arguments: Streams) -> Result<ExitCode> {
    let orders = [Order::Fifo, Order::Cscan, Order::MqDeadline, Order::Bfq];
    let json = arguments
        .json
        .clone()
        .unwrap_or_else(|| Path::new(RESULTS).join(format!("streams-{}.json", arguments.profile)));
    let options = StreamsOptions {
        profile: arguments.profile,
        workloads: named(&Workload::ALL, Workload::name, &arguments.workload)?,
        orders: named(&orders, Order::name, &arguments.order)?,
        policies: named(&Policy::ALL, Policy::name, &arguments.policy)?,
        handlers: arguments.at_once,
        runs: usize::from(arguments.runs),
        scale: arguments.scale,
        speed: arguments.speed,
        seed: arguments.seed,
        install: arguments.install,
        runahead: executable(arguments.runahead.as_deref())?,
    };
    let results = streams::run(&options, |results| results::write_json(&json, results))?;
    let plots = streams::draw(&results, &json.with_extension(""));
    print(streams::table(&results))?;
    print(format_args!("Written: {}", file_names(&json, &plots?)))?;
    Ok(if results.pass() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
