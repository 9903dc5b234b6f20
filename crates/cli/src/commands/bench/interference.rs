//! `runahead bench interference`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use runahead_bench::interference::{self, InterferenceOptions};
use runahead_bench::results;

use super::common::{Common, RESULTS, executable, place, refuse};
use crate::commands::print;

#[derive(Debug, Args)]
pub struct Interference {
    /// Only these programs: mmap, fork, read, shared_read, exec_locks, faults
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    app: Vec<String>,
    /// Leave the processors idle
    #[arg(long)]
    idle: bool,
    /// Runs of each side: plain, plain again, and under Runahead
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Most runs of each side, where fewer do not decide
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..))]
    runs_max: u16,
    /// Test the benchmark: one call of each run under Runahead sleeps so long
    /// more, and it must fail
    #[arg(long, value_name = "MS", default_value_t = 0)]
    late: u64,
    /// Number of reads relative to the full one
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    #[command(flatten)]
    common: Common,
}

/// Runs it.
pub fn run(arguments: Interference) -> Result<ExitCode> {
    let common = &arguments.common;
    refuse("interference", &[("--seed", common.seed.is_some())])?;
    let results = interference::run(&InterferenceOptions {
        programs: arguments.app,
        place: place(common),
        runs: usize::from(arguments.runs),
        runs_max: usize::from(arguments.runs_max.max(arguments.runs)),
        scale: arguments.scale,
        install: common.install,
        runahead: executable(common.runahead.as_deref())?,
        run_options: common.run_option.clone(),
        idle: arguments.idle,
        late_ms: arguments.late,
    })?;
    let json = common.json.clone().unwrap_or_else(|| {
        let name = format!("interference-{}.json", results.profile.replace(' ', "-"));
        Path::new(RESULTS).join(name)
    });
    results::write_json(&json, &results)?;
    print(format_args!("{}\nWritten: {}", interference::table(&results), json.display()))?;
    Ok(if results.pass() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
