//! `runahead bench compiler`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use runahead_bench::compiler::{self, CompilerOptions};
use runahead_bench::place::PlaceOptions;
use runahead_bench::results;

use super::common::{RESULTS, executable};
use crate::commands::print;

#[derive(Debug, Args)]
pub struct Kernels {
    /// Only these kernels: matvec, buk, cgm, embar, fftpde, mgrid, applu, appsp, appbt,
    /// cgm-fortran, mgrid-fortran
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    kernel: Vec<String>,
    /// Data relative to memory
    #[arg(long, value_name = "F", default_value_t = 2.2)]
    ratio: f64,
    /// Run on small data, for a try
    #[arg(long)]
    small: bool,
    /// Problem size of the kernels chosen, instead of their own
    #[arg(long, value_name = "N", conflicts_with = "small")]
    size: Option<u32>,
    /// Memory, MB, instead of the ratio: for one memory and several sizes
    #[arg(long, value_name = "MB", conflicts_with = "ratio", value_parser = clap::value_parser!(u64).range(4..))]
    memory: Option<u64>,
    /// Beside each run in little memory, run a plain program that reads pages here and
    /// there of a file of such a share of the memory, and print what a read takes on the
    /// mean beside the plain and beside the hinted program
    #[arg(long, value_name = "SHARE")]
    neighbour: Option<f64>,
    /// Measure both programs under speculation as well
    #[arg(long)]
    speculate: bool,
    /// Only with the data in memory and warm: a ratio that is near 1 takes many runs
    #[arg(long, conflicts_with_all = ["ratio", "memory", "neighbour", "speculate"])]
    warm: bool,
    /// Factor on every time of the device: at 0.02 to 0.03 today's processors have
    /// about the share of the elapsed time that the paper's had
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    /// Cycles that every operation of the kernels takes longer, compiled either way: a
    /// processor as slow beside the device as the paper's, and a device that takes no
    /// more of it for being emulated than at full speed
    #[arg(long, value_name = "CYCLES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1000))]
    slower: u32,
    /// Runs of each side
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Profile of the emulated device
    #[arg(long, value_name = "NAME", default_value = "array-2003")]
    profile: String,
    /// Spindles or channels [default: 7 on array-2003, else the profile's]
    #[arg(long, value_name = "N")]
    spindles: Option<u32>,
    /// Major version of LLVM [default: the newest that is there]
    #[arg(long, value_name = "VERSION")]
    llvm: Option<u32>,
    /// Write the results here [default: bench-results/compiler-PROFILE.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs it.
pub fn run(arguments: Kernels) -> Result<ExitCode> {
    let is_array = arguments.profile == "array-2003";
    let json = arguments
        .json
        .unwrap_or_else(|| Path::new(RESULTS).join(format!("compiler-{}.json", arguments.profile)));
    let options = CompilerOptions {
        kernels: arguments.kernel,
        ratio: arguments.ratio,
        small: arguments.small,
        size: arguments.size,
        memory_bytes: arguments.memory.map(|megabytes| megabytes * 1_000_000),
        neighbour: arguments.neighbour,
        speculate: if arguments.speculate { Some(executable(None)?) } else { None },
        warm: arguments.warm,
        runs: usize::from(arguments.runs),
        place: PlaceOptions {
            profile: arguments.profile,
            spindles: arguments.spindles.or(is_array.then_some(7)),
            time_factor: Some(arguments.scale),
            ..PlaceOptions::default()
        },
        llvm: arguments.llvm,
        slower_cycles: arguments.slower,
    };
    let results = compiler::run(&options, |results| results::write_json(&json, results))?;
    print(format_args!("{}\nWritten: {}", compiler::table(&results), json.display()))?;
    let equal = results.kernels.iter().all(|kernel| kernel.equal);
    Ok(if equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
