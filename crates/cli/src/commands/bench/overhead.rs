//! `runahead bench overhead`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use runahead_bench::overhead::{self, OverheadOptions};
use runahead_bench::results;

use super::common::executable;
use crate::commands::print;

#[derive(Debug, Args)]
pub struct Overhead {
    /// Only these whole programs: grep, sha256sum, tar, `git grep`
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    app: Vec<String>,
    /// Keep the data in this directory [default: in the user's cache]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Runs of each side
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Runs of each side at most: as long as the interval of what is measured
    /// contains what was promised, twice as many are made
    #[arg(long, value_name = "RUNS", default_value_t = 44)]
    runs_max: u16,
    /// Size relative to the full one: data, calls, processes
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    /// Install packages that are missing (apt-get)
    #[arg(long)]
    install: bool,
    /// Write the results here
    #[arg(long, value_name = "FILE", default_value = "bench-results/overhead.json")]
    json: PathBuf,
    /// The runahead executable to measure [default: this one]
    #[arg(long, value_name = "FILE")]
    runahead: Option<PathBuf>,
}

/// Runs it.
pub fn run(arguments: Overhead) -> Result<ExitCode> {
    let results = overhead::run(&OverheadOptions {
        data: arguments.data,
        programs: arguments.app,
        runs: usize::from(arguments.runs),
        runs_max: usize::from(arguments.runs_max),
        scale: arguments.scale,
        install: arguments.install,
        runahead: executable(arguments.runahead.as_deref())?,
    })?;
    results::write_json(&arguments.json, &results)?;
    print(format_args!("{}\nWritten: {}", overhead::table(&results), arguments.json.display()))?;
    let kept = results.comparisons.iter().all(|comparison| comparison.keeps_promise())
        && results.start.iter().all(|count| count.keeps_promise());
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
