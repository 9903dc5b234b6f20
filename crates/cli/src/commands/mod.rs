//! The subcommands, one file each.

mod bench;
mod slowdisk;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Hides I/O latency from unmodified programs by speculative execution.
#[derive(Debug, Parser)]
#[command(name = "runahead", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure programs with and without runahead (root)
    Bench(bench::Bench),
    /// Mount an emulated disk array, for tests, benchmarks and demos (root)
    Slowdisk(slowdisk::Slowdisk),
}

/// Runs the subcommand that the arguments name.
pub fn run() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Bench(command) => bench::run(command),
        Command::Slowdisk(command) => slowdisk::run(command),
    }
}
