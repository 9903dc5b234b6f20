//! `runahead bench faults`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use runahead_bench::place::Place;
use runahead_bench::swap::{self, SwapOptions};
use runahead_bench::synchronisation::{self, SyncOptions};
use runahead_bench::{apps, results};

use super::common::{RESULTS, executable, place};
use super::explicit::{Explicit, list, waiting};
use crate::commands::print;

#[derive(Debug, Args)]
pub struct Faults {
    #[command(flatten)]
    programs: Explicit,
    /// What the programs' memory is
    #[arg(long, value_name = "WHAT", default_value = "files")]
    over: Over,
    /// Directory on a disk for the contents of the swap device
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    backing: PathBuf,
    /// Over swap: measure the plain program and Runahead only, not the observed
    /// run and the full copies that further rows of the tables need
    #[arg(long)]
    brief: bool,
    /// Measure synchronisations only
    #[arg(long)]
    sync: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Over {
    /// Mapped files.
    Files,
    /// Memory that is swapped out.
    Swap,
}

/// Runs it: synchronisations, swapped memory or mapped files.
pub fn run(faults: Faults) -> Result<ExitCode> {
    ensure!(
        !faults.brief || faults.over == Over::Swap && !faults.sync,
        "--brief is for --over swap: give both, or leave it out"
    );
    if faults.sync {
        return synchronisations(&faults);
    }
    if faults.over == Over::Swap {
        return over_swap(faults);
    }
    let mut arguments = faults.programs;
    if arguments.list {
        return list(&apps::faults());
    }
    if arguments.app.is_empty() {
        arguments.app = apps::faults().iter().map(|app| app.name().to_owned()).collect();
    }
    waiting("faults", arguments)
}

/// Resident memory of the program that synchronises, in MiB, and how often.
const SYNC_MIB: u64 = 1024;
const SYNC_READS: u64 = 132;

fn synchronisations(arguments: &Faults) -> Result<ExitCode> {
    let common = &arguments.programs.common;
    let runahead = executable(common.runahead.as_deref())?;
    let place = Place::open(&place(common))?;
    let costs = synchronisation::measure(&SyncOptions {
        runahead: &runahead,
        place: &place,
        megabytes: SYNC_MIB,
        reads: SYNC_READS,
        runs: usize::from(arguments.programs.runs),
    })?;
    let json = common.json.clone().unwrap_or_else(|| Path::new(RESULTS).join("faults-sync.json"));
    results::write_json(&json, &costs)?;
    let table = synchronisation::table(&costs, SYNC_MIB);
    print(format_args!("{table}\nWritten: {}", json.display()))?;
    let met = synchronisation::is_met(&costs);
    Ok(if met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn over_swap(arguments: Faults) -> Result<ExitCode> {
    let programs = arguments.programs;
    if programs.list {
        swap::names().try_for_each(print)?;
        return Ok(ExitCode::SUCCESS);
    }
    let common = programs.common;
    let is_array = common.profile == "array-2003";
    let name = format!("faults-swap-{}.json", common.profile);
    let json = common.json.unwrap_or_else(|| Path::new(RESULTS).join(name));
    let options = SwapOptions {
        kernels: programs.app,
        spindles: is_array.then_some(7),
        profile: common.profile,
        runs: usize::from(programs.runs),
        brief: arguments.brief,
        scale: programs.scale,
        backing: arguments.backing,
        runahead: executable(common.runahead.as_deref())?,
        run_options: common.run_option,
        unprivileged: programs.unprivileged,
    };
    let results = swap::run(&options, |results| results::write_json(&json, results))?;
    print(format_args!("{}\nWritten: {}", swap::tables(&results), json.display()))?;
    Ok(if results.equal() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
