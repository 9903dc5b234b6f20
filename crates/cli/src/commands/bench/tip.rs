//! `runahead bench tip`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use runahead_bench::results;
use runahead_bench::tip::live::{self, LiveOptions, Subject};
use runahead_bench::tip::{programs, report};

use super::common::{executable, file_names, named};
use crate::commands::{print, sim};

#[derive(Debug, Args)]
pub struct Tip {
    /// Which tables
    #[arg(long, value_name = "WHICH", default_value = "all", conflicts_with = "live")]
    table: sim::Which,
    /// Seeds of programs and placement; times are means over them
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,2,3",
        conflicts_with = "live"
    )]
    seed: Vec<u64>,
    /// Print JSON
    #[arg(long, conflicts_with = "live")]
    json: bool,
    /// Measure hinting programs instead of simulating
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    measured: TipLive,
}

#[derive(Debug, Args)]
pub struct TipLive {
    /// Only these: passes, slices, join, slices+join, passes+slices,
    /// passes+join, neighbour
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "live")]
    app: Vec<String>,
    /// Numbers of spindles
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4,10", requires = "live",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    disks: Vec<u32>,
    /// Modes beside plain
    #[arg(
        long,
        value_name = "MODE",
        value_delimiter = ',',
        default_value = "full",
        requires = "live"
    )]
    mode: Vec<TipMode>,
    /// Only what has a target
    #[arg(long, requires = "live")]
    targets: bool,
    /// Profile of the emulated device
    #[arg(long, value_name = "NAME", default_value = "array-2003", requires = "live")]
    profile: String,
    /// Runs of each side
    #[arg(long, default_value_t = 5, requires = "live", value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Size of the data and of the memory relative to the full one
    #[arg(long, value_name = "F", default_value_t = 1.0, requires = "live")]
    scale: f64,
    /// Write the results here, and the plot beside it
    #[arg(
        long,
        value_name = "FILE",
        default_value = "bench-results/tip-live.json",
        requires = "live"
    )]
    out: PathBuf,
    /// The runahead executable whose programs are measured [default: this one]
    #[arg(long, value_name = "FILE", requires = "live")]
    runahead: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TipMode {
    Nohints,
    Prefetch,
    Full,
}

/// Prints the simulated tables, or runs hinting programs.
pub fn run(tip: &Tip) -> Result<ExitCode> {
    if tip.live {
        return tip_live(&tip.measured);
    }
    sim::print_tables(tip.table, &runahead_sim::thesis::DISKS, &tip.seed, tip.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs one of the programs that are measured.
pub fn program(arguments: &[String]) -> Result<ExitCode> {
    programs::run(arguments)?;
    Ok(ExitCode::SUCCESS)
}

fn tip_live(arguments: &TipLive) -> Result<ExitCode> {
    let subjects = named(&Subject::ALL, Subject::name, &arguments.app)?;
    let mode = |mode: &TipMode| match mode {
        TipMode::Nohints => live::Mode::NoHints,
        TipMode::Prefetch => live::Mode::Prefetch,
        TipMode::Full => live::Mode::Full,
    };
    let options = LiveOptions {
        profile: arguments.profile.clone(),
        disks: arguments.disks.clone(),
        subjects,
        modes: arguments.mode.iter().map(mode).collect(),
        targets_only: arguments.targets,
        runs: usize::from(arguments.runs),
        scale: arguments.scale,
        runahead: executable(arguments.runahead.as_deref())?,
    };
    let out = &arguments.out;
    let results = live::run(&options, |results| results::write_json(out, results))?;
    let plots = report::draw(&results, &out.with_extension(""));
    print(report::table(&results))?;
    print(format_args!("Written: {}", file_names(out, &plots?)))?;
    Ok(if results.pass() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
