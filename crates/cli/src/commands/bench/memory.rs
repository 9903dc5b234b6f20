//! `runahead bench memory`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use runahead_bench::release::{self, ReleaseOptions};
use runahead_bench::swap::SwapOptions;
use runahead_bench::{memory, results};

use super::common::{RESULTS, executable, file_names};
use crate::commands::print;

#[derive(Debug, Args)]
pub struct Memory {
    /// Only these programs: fftpde, mgrid, matvec, sphinx
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    app: Vec<String>,
    /// What it is worth to give back what lies behind a program, instead: a
    /// program that reads a file once and another one again and again, by itself
    /// and beside a plain one
    #[arg(long, conflicts_with_all = ["app", "backing", "plot"])]
    release: bool,
    /// Rounds: a run without speculation, one with it, one with memory control
    /// (or where pages are given back)
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Data and memory relative to the paper's
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    /// Profile of the emulated swap device, or of that of the files
    #[arg(long, value_name = "NAME", default_value = "cloud")]
    profile: String,
    /// Directory on a disk for the contents of the swap device
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    backing: PathBuf,
    /// Write the results here [default: bench-results/memory-PROFILE.json, or
    /// release-PROFILE.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw figures 5 and 6 here: .svg or .png, both without an ending
    /// [default: beside the JSON file]
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// The runahead executable to measure [default: this one]
    #[arg(long, value_name = "FILE")]
    runahead: Option<PathBuf>,
    /// Pass an option on to `runahead run`
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    run_option: Vec<String>,
}

/// Runs it.
pub fn run(arguments: Memory) -> Result<ExitCode> {
    if arguments.release {
        return measure_release(arguments);
    }
    let name = format!("memory-{}.json", arguments.profile);
    let json = arguments.json.unwrap_or_else(|| Path::new(RESULTS).join(name));
    let plot = arguments.plot.unwrap_or_else(|| json.with_extension(""));
    let options = SwapOptions {
        brief: false,
        kernels: arguments.app,
        spindles: (arguments.profile == "array-2003").then_some(7),
        profile: arguments.profile,
        runs: usize::from(arguments.runs),
        scale: arguments.scale,
        backing: arguments.backing,
        runahead: executable(arguments.runahead.as_deref())?,
        run_options: arguments.run_option,
        unprivileged: false,
    };
    let measured = memory::run(&options, |so_far| results::write_json(&json, so_far))?;
    let plots = memory::draw(&measured, &plot);
    print(memory::table(&measured))?;
    print(format_args!("Written: {}", file_names(&json, &plots?)))?;
    Ok(if measured.pass() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure_release(arguments: Memory) -> Result<ExitCode> {
    let name = format!("release-{}.json", arguments.profile);
    let json = arguments.json.unwrap_or_else(|| Path::new(RESULTS).join(name));
    let options = ReleaseOptions {
        profile: arguments.profile,
        runs: usize::from(arguments.runs),
        scale: arguments.scale,
        runahead: executable(arguments.runahead.as_deref())?,
        run_options: arguments.run_option,
    };
    let measured = release::run(&options, |so_far| results::write_json(&json, so_far))?;
    print(format_args!("{}\nWritten: {}", release::table(&measured), json.display()))?;
    Ok(if measured.equal() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
