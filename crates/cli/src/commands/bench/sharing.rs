//! `runahead bench sharing`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use runahead_bench::results;
use runahead_bench::sharing::{self, SharingOptions};

use super::common::{Common, RESULTS, executable, place, refuse};
use crate::commands::print;

#[derive(Debug, Args)]
pub struct Sharing {
    /// Pairs of runs
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(2..))]
    runs: u16,
    /// Size of the data relative to the full one
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    /// The programs on one processor and the reader on the others: they share the device alone
    #[arg(long)]
    apart: bool,
    #[command(flatten)]
    common: Common,
}

/// Runs it.
pub fn run(arguments: Sharing) -> Result<ExitCode> {
    let common = &arguments.common;
    refuse("sharing", &[("--install", common.install)])?;
    let results = sharing::run(&SharingOptions {
        place: place(common),
        runs: usize::from(arguments.runs),
        scale: arguments.scale,
        seed: common.seed(),
        runahead: executable(common.runahead.as_deref())?,
        run_options: common.run_option.clone(),
        apart: arguments.apart,
    })?;
    let json = common.json.clone().unwrap_or_else(|| {
        let apart = if results.apart { "-apart" } else { "" };
        let profile = results.profile.replace(' ', "-");
        Path::new(RESULTS).join(format!("sharing-{profile}{apart}.json"))
    });
    results::write_json(&json, &results)?;
    print(format_args!("{}\nWritten: {}", sharing::table(&results), json.display()))?;
    Ok(if results.pass() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
