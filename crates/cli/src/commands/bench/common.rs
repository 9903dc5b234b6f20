//! What the benchmarks' arguments have in common.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use runahead_bench::place::PlaceOptions;

/// Where results go unless told otherwise.
pub const RESULTS: &str = "bench-results";

#[derive(Debug, Args)]
pub struct Common {
    /// Profile of the emulated device; `nvme`: the machine's own disk
    #[arg(long, value_name = "NAME", default_value = "cloud")]
    pub profile: String,
    /// Work in this directory: a mounted `runahead slowdisk`, which keeps the
    /// data from run to run, or any directory of the machine's own disk
    #[arg(long, value_name = "DIR", conflicts_with_all = ["profile", "overlay", "fuse_limit"])]
    pub data: Option<PathBuf>,
    /// Measure through an overlayfs mount of the device, as in a container
    #[arg(long)]
    pub overlay: bool,
    /// FUSE's limit of requests in flight, instead of the profile's
    #[arg(long, value_name = "N")]
    pub fuse_limit: Option<u16>,
    /// Seed of the data [default: 1]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Install packages that are missing (apt-get)
    #[arg(long)]
    pub install: bool,
    /// Write the results here [default: bench-results/BENCHMARK-PROFILE.json]
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The runahead executable to measure [default: this one]
    #[arg(long, value_name = "FILE")]
    pub runahead: Option<PathBuf>,
    /// Pass an option on to `runahead run`, for example --run-option=--depth=8
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub run_option: Vec<String>,
}

impl Common {
    /// Seed of the data.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or(1)
    }
}

/// Refuses options that are given and would do nothing in `what`.
///
/// # Errors
/// Names the first.
pub fn refuse(what: &str, options: &[(&str, bool)]) -> Result<()> {
    for (option, is_given) in options {
        ensure!(!is_given, "{option} does nothing in {what}: leave it out");
    }
    Ok(())
}

/// The device that they ask for.
pub fn place(common: &Common) -> PlaceOptions {
    PlaceOptions {
        profile: common.profile.clone(),
        data: common.data.clone(),
        overlay: common.overlay,
        fuse_limit: common.fuse_limit,
        ..PlaceOptions::default()
    }
}

/// The executable to measure: the one given, or this one.
pub fn executable(given: Option<&Path>) -> Result<PathBuf> {
    match given {
        Some(path) => std::fs::canonicalize(path)
            .with_context(|| format!("find the executable {}", path.display())),
        None => std::env::current_exe().context("find this executable"),
    }
}

/// What was written: the results, and what was drawn of them.
pub fn file_names(json: &Path, plots: &[PathBuf]) -> String {
    let plots = plots.iter().map(PathBuf::as_path);
    let names = std::iter::once(json).chain(plots).map(|path| path.display().to_string());
    names.collect::<Vec<String>>().join(", ")
}

/// Those of `all` that are named; all where none is.
pub fn named<T: Copy>(all: &[T], name: fn(T) -> &'static str, names: &[String]) -> Result<Vec<T>> {
    if names.is_empty() {
        return Ok(all.to_vec());
    }
    let find = |wanted: &String| {
        all.iter().copied().find(|one| name(*one) == wanted).with_context(|| {
            let known: Vec<&str> = all.iter().map(|one| name(*one)).collect();
            format!("{wanted:?} is not known: give some of {}", known.join(", "))
        })
    };
    names.iter().map(find).collect()
}
