//! `runahead bench faults`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use runahead_bench::place::Place;
use runahead_bench::swap::{self, SwapOptions};
use runahead_bench::synchronisation::{self, SyncOptions};
use runahead_bench::{apps, results};

use super::common::{RESULTS, executable, place, refuse};
use super::explicit::{Explicit, list, waiting};
use crate::commands::print;

#[derive(Debug, Args)]
pub struct Faults {
    #[command(flatten)]
    programs: Explicit,
    /// What the programs' memory is
    #[arg(long, value_name = "WHAT", default_value = "files")]
    over: Over,
    /// Directory on a disk for the contents of the swap device [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    backing: Option<PathBuf>,
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
    refuse("faults over files", &[("--backing", faults.backing.is_some())])?;
    if faults.programs.list {
        return list(&apps::faults());
    }
    waiting("faults", faults.programs, &apps::faults())
}

/// Options of `explicit` that do nothing in the other two.
fn unused(programs: &Explicit) -> [(&'static str, bool); 6] {
    [
        ("--case", !programs.case.is_empty()),
        ("--metadata", programs.metadata.is_some()),
        ("--busy", programs.busy),
        ("--seed", programs.common.seed.is_some()),
        ("--install", programs.common.install),
        ("--plot", programs.drawn.plot.is_some()),
    ]
}

/// Resident memory of the program that synchronises, in MiB, and how often.
const SYNC_MIB: u64 = 1024;
const SYNC_READS: u64 = 132;

fn synchronisations(arguments: &Faults) -> Result<ExitCode> {
    let programs = &arguments.programs;
    let common = &programs.common;
    let unused_here = [
        ("--over", arguments.over != Over::Files),
        ("--backing", arguments.backing.is_some()),
        ("--app", !programs.app.is_empty()),
        ("--list", programs.list),
        ("--scale", programs.scale != 1.0),
        ("--unprivileged", programs.unprivileged),
        ("--run-option", !common.run_option.is_empty()),
    ];
    refuse("faults --sync", &unused(programs))?;
    refuse("faults --sync", &unused_here)?;
    let runahead = executable(common.runahead.as_deref())?;
    let place = Place::open(&place(common))?;
    let costs = synchronisation::measure(&SyncOptions {
        runahead: &runahead,
        place: &place,
        megabytes: SYNC_MIB,
        reads: SYNC_READS,
        runs: usize::from(programs.runs),
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
    let unused_here = [
        ("--data", programs.common.data.is_some()),
        ("--overlay", programs.common.overlay),
        ("--fuse-limit", programs.common.fuse_limit.is_some()),
    ];
    refuse("faults --over swap", &unused(&programs))?;
    refuse("faults --over swap", &unused_here)?;
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
        backing: arguments.backing.unwrap_or_else(|| "/var/tmp".into()),
        runahead: executable(common.runahead.as_deref())?,
        run_options: common.run_option,
        unprivileged: programs.unprivileged,
    };
    let results = swap::run(&options, |results| results::write_json(&json, results))?;
    print(format_args!("{}\nWritten: {}", swap::tables(&results), json.display()))?;
    Ok(if results.equal() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
