//! `runahead bench harm`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use runahead_bench::harm::{self, Condition, HarmOptions};
use runahead_bench::results;

use super::common::{Common, RESULTS, executable, place};
use crate::commands::print;

#[derive(Debug, Args)]
pub struct Harm {
    /// A short selection: some fifteen commands, four conditions, smaller data,
    /// three pairs
    #[arg(long)]
    quick: bool,
    /// Only these commands
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these conditions: cold, warm, busy, memory50, memory75, memory100,
    /// shared
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = condition)]
    condition: Vec<Condition>,
    /// Pairs of runs: three where those make sure that a command is not harmed,
    /// three times as many as these where it seems to be [default: 5; quick: 3]
    #[arg(long, value_parser = clap::value_parser!(u16).range(2..))]
    runs: Option<u16>,
    /// Repeat a command within a run until it takes so long, in seconds
    /// [default: 1; quick: 0.1]
    #[arg(long, value_name = "S")]
    run_seconds: Option<f64>,
    /// Give each command a launch of its own, which its time then holds, instead
    /// of one launch for all of a run
    #[arg(long)]
    launches: bool,
    /// Size of the data relative to the full one [default: 1; quick: 0.3]
    #[arg(long, value_name = "F")]
    scale: Option<f64>,
    #[command(flatten)]
    common: Common,
}

fn condition(name: &str) -> Result<Condition> {
    Condition::from_name(name).with_context(|| {
        let known: Vec<_> = Condition::ALL.iter().map(|condition| condition.name()).collect();
        format!("no condition {name:?}: give some of {}", known.join(", "))
    })
}

/// Runs it.
pub fn run(arguments: Harm) -> Result<ExitCode> {
    let common = &arguments.common;
    let or = |given: Option<f64>, quick, full| {
        given.unwrap_or(if arguments.quick { quick } else { full })
    };
    let options = HarmOptions {
        commands: arguments.only.clone(),
        conditions: arguments.condition.clone(),
        quick: arguments.quick,
        place: place(common),
        runs: usize::from(arguments.runs.unwrap_or(if arguments.quick { 3 } else { 5 })),
        run_s: or(arguments.run_seconds, 0.1, 1.0),
        launches: arguments.launches,
        scale: or(arguments.scale, 0.3, 1.0),
        seed: common.seed(),
        install: common.install,
        runahead: executable(common.runahead.as_deref())?,
        run_options: common.run_option.clone(),
    };
    let mut written = PathBuf::new();
    let results = harm::run(&options, |results| {
        written = common.json.clone().unwrap_or_else(|| {
            let name = format!("harm-{}.json", results.profile.replace(' ', "-"));
            Path::new(RESULTS).join(name)
        });
        results::write_json(&written, results)
    })?;
    print(format_args!("{}\nWritten: {}", harm::table(&results), written.display()))?;
    Ok(if results.pass() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
