//! `bench faults --over swap`: the programs of the paper's Table 1 that swap,
//! in a memory cgroup over an emulated swap device; the paper's Tables 2, 3
//! and 4 (Fraser and Chang 2003).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use runahead_protocol::session::{TEST_FULL_COPIES, TEST_WITHOUT_MEMORY_CONTROL};
use runahead_slowdisk::{FileSystem, SlowDisk, UpOptions};
use serde::{Deserialize, Serialize};

use crate::c_program::CProgram;
use crate::cgroup::Cgroup;
use crate::digest;
use crate::explicit::cache_directory;
use crate::interrupt;
use crate::launch::{self, Side};
use crate::process::{self, CommandSpec, Output};
use crate::progress::Progress;
use crate::results::Machine;
use crate::statistics::Statistics;
use crate::stranger::{Stranger, give};
use crate::summary::{Summary, quantile, sorted};
use crate::table::{plain_table, seconds, spread, times};
use crate::tools::{GCC, ensure_installed};

/// No run takes a third of it at scale 1 on the slowest profile.
pub(crate) const LIMIT: Duration = Duration::from_secs(3600);
/// Memory of the paper's machine (section 3.1), in MB.
pub(crate) const MEMORY_MB: f64 = 64.0;
/// Files that Sphinx reads, together, in MB (section 3.1).
const SPHINX_FILES_MB: f64 = 15.0;
const SPHINX_FILES: usize = 4;

const HEADERS: &[(&str, &str)] = &[("common.h", include_str!("../../../bench/swap/common.h"))];

/// A program and the size of its data in the paper, in MB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    pub(crate) name: &'static str,
    source: &'static str,
    mb: f64,
}

macro_rules! kernel {
    ($name:literal, $mb:literal) => {
        Kernel {
            name: $name,
            source: include_str!(concat!("../../../bench/swap/", $name, ".c")),
            mb: $mb,
        }
    };
}

/// The order of the paper's tables, and random touches.
pub(crate) const KERNELS: [Kernel; 5] = [
    kernel!("fftpde", 224.0),
    kernel!("mgrid", 431.0),
    kernel!("matvec", 385.0),
    kernel!("sphinx", 181.0),
    kernel!("random", 384.0),
];

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct SwapOptions {
    /// Names of programs; empty: all.
    pub kernels: Vec<String>,
    /// Profile of the swap device.
    pub profile: String,
    /// Spindles or channels, if not the profile's number.
    pub spindles: Option<u32>,
    /// Runs of each side, at least 1.
    pub runs: usize,
    /// Plain and as it is only: what the runs of the tables' other rows would
    /// come to stays unknown.
    pub brief: bool,
    /// Data and memory relative to the paper's, above 0.
    pub scale: f64,
    /// Directory on a disk below which the device keeps its contents.
    pub backing: PathBuf,
    /// The `runahead` executable.
    pub runahead: PathBuf,
    /// Further options of `runahead run`.
    pub run_options: Vec<String>,
    /// As a user without privileges.
    pub unprivileged: bool,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// Nothing.
    Plain,
    /// Its stalls are counted.
    Observe,
    /// With full copies only: the paper's basic design.
    Basic,
    /// Without memory control.
    Uncontrolled,
    /// As it is.
    Runahead,
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SwapRun {
    /// Time of the computation, without filling the memory, seconds.
    pub compute_s: f64,
    /// What the whole program used.
    pub minor_faults: u64,
    /// See `minor_faults`.
    pub major_faults: u64,
    /// See `minor_faults`; user and system time, seconds.
    pub cpu_s: f64,
    /// What Runahead counted.
    pub statistics: Option<Statistics>,
}

/// One program.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SwapResult {
    /// Its name.
    pub name: String,
    /// Megabytes of data.
    pub data_mb: f64,
    /// Megabytes of memory.
    pub memory_mb: f64,
    /// Did all runs print the same and end alike?
    pub equal: bool,
    /// By itself.
    pub plain: Vec<SwapRun>,
    /// Its stalls counted.
    pub observed: Vec<SwapRun>,
    /// With full copies only.
    pub basic: Vec<SwapRun>,
    /// Under runahead.
    pub runahead: Vec<SwapRun>,
}

/// All that was measured, each a `T`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SwapResults<T = SwapResult> {
    /// Profile of the device.
    pub profile: String,
    /// Data and memory relative to the paper's.
    pub scale: f64,
    /// Where it was measured.
    pub machine: Machine,
    /// In the order in which it was measured.
    pub kernels: Vec<T>,
}

impl<T> SwapResults<T> {
    /// Nothing measured so far.
    pub(crate) fn begin(options: &SwapOptions) -> Self {
        SwapResults {
            profile: options.profile.clone(),
            scale: options.scale,
            machine: Machine::here(),
            kernels: Vec::new(),
        }
    }
}

impl SwapResults {
    /// Whether every run of every program came to the same.
    pub fn equal(&self) -> bool {
        self.kernels.iter().all(|kernel| kernel.equal)
    }
}

/// Times of the computations, seconds.
pub(crate) fn compute_times(runs: &[SwapRun]) -> Vec<f64> {
    runs.iter().map(|run| run.compute_s).collect()
}

fn compute(runs: &[SwapRun]) -> Option<Summary> {
    Summary::of(&compute_times(runs))
}

fn median(runs: &[SwapRun], quantity: impl Fn(&SwapRun) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = runs.iter().filter_map(quantity).collect();
    quantile(&sorted(&values), 0.5)
}

/// Median of what Runahead counted.
pub(crate) fn counted(
    runs: &[SwapRun],
    quantity: impl Fn(&Statistics) -> Option<f64>,
) -> Option<f64> {
    median(runs, |run| run.statistics.as_ref().and_then(&quantity))
}

/// Pages prefetched from swap, and of these the ones used.
fn swapped(statistics: &Statistics, what: &str) -> Option<f64> {
    statistics.speculation.rest.get("swap")?.get(what)?.as_f64()
}

impl SwapResult {
    /// How many times faster the computation is under runahead.
    pub fn speedup(&self) -> Option<f64> {
        Some(compute(&self.plain)?.median / compute(&self.runahead)?.median)
    }
}

/// Measures programs. `so_far` is given the results after each.
///
/// # Errors
/// If something is missing, a name is unknown, or a run cannot be made.
pub fn run(
    options: &SwapOptions,
    mut so_far: impl FnMut(&SwapResults) -> Result<()>,
) -> Result<SwapResults> {
    ensure!(
        options.scale.is_finite() && options.scale > 0.0,
        "--scale {}: give a factor above 0",
        options.scale
    );
    let kernels = named(&KERNELS, &options.kernels)?;
    let mut results = SwapResults::begin(options);
    for kernel in &kernels {
        let result =
            measure(kernel, options).with_context(|| format!("{} over swap", kernel.name))?;
        results.kernels.push(result);
        so_far(&results)?;
    }
    Ok(results)
}

/// Names of the programs.
pub fn names() -> impl Iterator<Item = &'static str> {
    KERNELS.iter().map(|kernel| kernel.name)
}

/// Those of `all` that are named; all where none is.
///
/// # Errors
/// If a name is unknown.
pub(crate) fn named(all: &[Kernel], names: &[String]) -> Result<Vec<Kernel>> {
    for name in names {
        if all.iter().all(|kernel| kernel.name != name) {
            let known: Vec<&str> = all.iter().map(|kernel| kernel.name).collect();
            bail!("there is no program {name}; there are {}", known.join(", "));
        }
    }
    let wanted =
        |kernel: &&Kernel| names.is_empty() || names.iter().any(|name| name == kernel.name);
    Ok(all.iter().filter(wanted).copied().collect())
}

fn measure(kernel: &Kernel, options: &SwapOptions) -> Result<SwapResult> {
    let mut subject = Subject::up(kernel, options)?;
    subject.limit(MEMORY_MB)?;
    let progress = Progress::new(match options.brief {
        true => 2 * options.runs as u64,
        false => 3 * options.runs as u64 + 1,
    });
    let mut once = |way: Way, runs: &mut Vec<SwapRun>| -> Result<()> {
        if options.brief && matches!(way, Way::Observe | Way::Basic) {
            return Ok(());
        }
        progress.step(&format!("{} {way:?}", kernel.name));
        runs.push(subject.run(way)?);
        Ok(())
    };
    let (mut plain, mut observed) = (Vec::new(), Vec::new());
    let (mut basic, mut runahead) = (Vec::new(), Vec::new());
    once(Way::Observe, &mut observed)?;
    for number in 0..options.runs {
        // Which side goes first alternates.
        if number % 2 == 0 {
            once(Way::Plain, &mut plain)?;
            once(Way::Runahead, &mut runahead)?;
        } else {
            once(Way::Runahead, &mut runahead)?;
            once(Way::Plain, &mut plain)?;
        }
        once(Way::Basic, &mut basic)?;
    }
    let result = SwapResult {
        name: kernel.name.into(),
        data_mb: subject.data_mb,
        memory_mb: MEMORY_MB * options.scale,
        equal: subject.equal,
        plain,
        observed,
        basic,
        runahead,
    };
    subject.down()?;
    progress.print(&line(&result));
    Ok(result)
}

fn sphinx_files(directory: &Path, scale: f64) -> Result<Vec<PathBuf>> {
    let len = (SPHINX_FILES_MB * 1e6 * scale) as usize / SPHINX_FILES;
    (0..SPHINX_FILES)
        .map(|number| {
            let path = directory.join(format!("model{number}"));
            let bytes: Vec<u8> = (0..len).map(|at| (at * 31 + number) as u8).collect();
            fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))?;
            Ok(path)
        })
        .collect()
}

/// A program over a swap device of its own, in a memory cgroup of its own.
pub(crate) struct Subject<'a> {
    options: &'a SwapOptions,
    /// Megabytes of data.
    pub(crate) data_mb: f64,
    /// Did all runs so far print the same and end alike?
    pub(crate) equal: bool,
    /// How the first run ended, and a fingerprint of what it printed.
    first: Option<(String, String)>,
    spec: CommandSpec,
    report: PathBuf,
    stranger: Option<Stranger>,
    // In the order in which they have to go.
    cgroup: Cgroup,
    disk: SlowDisk,
    _backing: process::Scratch,
    _scratch: process::Scratch,
}

impl<'a> Subject<'a> {
    /// Compiles the program and brings its swap device up.
    ///
    /// # Errors
    /// If something is missing, or without root.
    pub(crate) fn up(kernel: &Kernel, options: &'a SwapOptions) -> Result<Self> {
        ensure_installed(&[GCC], false)?;
        let program = CProgram { name: kernel.name, source: kernel.source, headers: HEADERS }
            .build(&cache_directory()?)?;
        let data_mb = kernel.mb * options.scale;
        let scratch = process::scratch_directory()?;
        fs::create_dir_all(&options.backing)
            .with_context(|| format!("create {}", options.backing.display()))?;
        let backing = process::scratch_directory_in(&options.backing)?;
        // Room for what is swapped out, and for the copies' own pages.
        let swap_mb = data_mb * 1.25 + 64.0;
        let mountpoint = scratch.path().join("swap");
        interrupt::watch();
        interrupt::guard(&mountpoint, scratch.path());
        let disk = SlowDisk::up(&UpOptions {
            fs: FileSystem::Swap,
            size_bytes: ((swap_mb * 1e6) as u64).next_multiple_of(1 << 20),
            backing: Some(backing.path().to_owned()),
            spindles: options.spindles,
            daemon: Some(options.runahead.clone()),
            ..UpOptions::new(&options.profile, mountpoint)
        })?;
        let cgroup = Cgroup::new("runahead-bench-swap")?;
        let report = scratch.path().join("report");
        let stranger =
            options.unprivileged.then(|| Stranger::new(&options.runahead)).transpose()?;
        let mut spec =
            CommandSpec::new(program, "/").arg(format!("{data_mb:.3}")).arg(report.clone());
        if kernel.name == "sphinx" {
            for file in sphinx_files(scratch.path(), options.scale)? {
                spec = spec.arg(file);
            }
        }
        if let Some(stranger) = &stranger {
            give(scratch.path())?;
            spec = stranger.adopt(&spec)?;
        }
        Ok(Subject {
            options,
            data_mb,
            equal: true,
            first: None,
            spec,
            report,
            stranger,
            cgroup,
            disk,
            _backing: backing,
            _scratch: scratch,
        })
    }

    /// Limits memory to so much of the paper's machine, at the scale that was
    /// asked for. The agent's own memory counts, too, and does not scale.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn limit(&self, memory_mb: f64) -> Result<()> {
        self.cgroup.limit(Some((memory_mb * self.options.scale * 1e6) as u64))
    }

    /// Takes the device down.
    ///
    /// # Errors
    /// If it is in use.
    pub(crate) fn down(self) -> Result<()> {
        drop(self.cgroup);
        self.disk.down(false)?;
        interrupt::release();
        Ok(())
    }

    /// One run.
    ///
    /// # Errors
    /// If it cannot be made, or left no report.
    pub(crate) fn run(&mut self, way: Way) -> Result<SwapRun> {
        let output = Output::new()?;
        let file = output.path("statistics.json");
        let mut run_options = self.options.run_options.clone();
        match way {
            Way::Basic => run_options.push(format!("--test={TEST_FULL_COPIES}")),
            Way::Uncontrolled => run_options.push(format!("--test={TEST_WITHOUT_MEMORY_CONTROL}")),
            Way::Plain | Way::Observe | Way::Runahead => {}
        }
        let side = match way {
            Way::Plain => Side::Plain,
            Way::Observe => Side::Observe,
            Way::Basic | Way::Uncontrolled | Way::Runahead => Side::Runahead,
        };
        let runahead = self.stranger.as_ref().map_or(&*self.options.runahead, Stranger::runahead);
        let mut spec = launch::wrap(&self.spec, side, runahead, &run_options, Some(&file));
        if let Some(stranger) = &self.stranger {
            give(output.directory())?;
            spec = stranger.wrap(&spec);
        }
        let _ = fs::remove_file(&self.report);
        let finished =
            process::run_stopped(&mut self.cgroup.wrap_stopped(&spec).command(), &output, LIMIT)?;
        let ended = process::describe(finished.status);
        let text = fs::read_to_string(&self.report)
            .with_context(|| format!("it left no time: {ended}"))?;
        let statistics = if side == Side::Plain { None } else { Some(wait_for(&file)?) };
        let ended = (ended, digest::of_file(&output.path("stdout"))?);
        self.equal &= self.first.get_or_insert_with(|| ended.clone()) == &ended;
        Ok(SwapRun {
            compute_s: text.trim().parse().context("parse the time of the computation")?,
            minor_faults: finished.usage.minor_faults,
            major_faults: finished.usage.major_faults,
            cpu_s: finished.usage.cpu_s,
            statistics,
        })
    }
}

/// The statistics of a run: the collector may be about to write them.
pub(crate) fn wait_for(file: &Path) -> Result<Statistics> {
    for _ in 0..1000 {
        if let Ok(statistics) = Statistics::read(file) {
            return Ok(statistics);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Statistics::read(file).context("the run left no statistics")
}

fn line(result: &SwapResult) -> String {
    let time = |runs: &[SwapRun]| compute(runs).map_or("–".into(), |summary| spread(&summary));
    format!(
        "{}: plain {}, runahead {}, {}{}",
        result.name,
        time(&result.plain),
        time(&result.runahead),
        result.speedup().map_or("–".into(), times),
        if result.equal { "" } else { ", OUTPUT DIFFERS" }
    )
}

pub(crate) fn number(value: Option<f64>) -> String {
    value.map_or("–".into(), |value| format!("{value:.0}"))
}

pub(crate) fn time(value: Option<f64>) -> String {
    value.map_or("–".into(), seconds)
}

fn share(part: Option<f64>, all: Option<f64>) -> String {
    match (part, all) {
        (Some(part), Some(all)) if all > 0.0 => format!("{:.0}%", 100.0 * part / all),
        _ => "–".into(),
    }
}

/// The paper's Tables 2, 3 and 4 for the programs over swap.
pub fn tables(results: &SwapResults) -> String {
    let mut second = plain_table(&[
        "Table 2",
        "runahead",
        "computation (spread)",
        "ratio",
        "stalls",
        "stall time",
        "prefetches",
        "used",
        "unused spec",
        "sync delay",
        "minor faults",
    ]);
    let mut third =
        plain_table(&["Table 3", "refork", "total", "mean", "attempts", "completed", "pages each"]);
    let mut fourth = plain_table(&["Table 4: minor faults", "no runahead", "basic", "one-way"]);
    let minor = |runs: &[SwapRun]| number(median(runs, |run| Some(run.minor_faults as f64)));
    for kernel in &results.kernels {
        let elapsed = |runs: &[SwapRun]| compute(runs).map_or("–".into(), |s| spread(&s));
        let title = format!("{} ({:.0}/{:.0} MB)", kernel.name, kernel.data_mb, kernel.memory_mb);
        second.add_row([
            title,
            "no".into(),
            elapsed(&kernel.plain),
            String::new(),
            number(median(&kernel.plain, |run| Some(run.major_faults as f64))),
            time(counted(&kernel.observed, |s| s.io_stalls.time_s)),
            "–".into(),
            "–".into(),
            "–".into(),
            "–".into(),
            minor(&kernel.plain),
        ]);
        let runs = &kernel.runahead;
        let prefetched = counted(runs, |s| swapped(s, "prefetched"));
        let used = counted(runs, |s| swapped(s, "used"));
        second.add_row([
            String::new(),
            "yes".into(),
            elapsed(runs),
            kernel.speedup().map_or("–".into(), times),
            number(median(runs, |run| Some(run.major_faults as f64))),
            time(counted(runs, |s| s.io_stalls.time_s)),
            number(prefetched),
            share(used, prefetched),
            number(prefetched.zip(used).map(|(all, used)| all - used)),
            time(counted(runs, |s| s.speculation.synchronizations.time_s)),
            minor(runs),
        ]);
        for (name, runs) in [("normal", &kernel.basic), ("fast", &kernel.runahead)] {
            let total = counted(runs, |s| s.speculation.synchronizations.time_s);
            let attempted = counted(runs, |s| s.speculation.synchronizations.attempted);
            let completed = counted(runs, |s| s.speculation.synchronizations.completed);
            let imported = counted(runs, |s| s.speculation.synchronizations.imported());
            let each = |part: Option<f64>| match (part, completed) {
                (Some(part), Some(completed)) if completed > 0.0 => Some(part / completed),
                _ => None,
            };
            third.add_row([
                kernel.name.to_owned(),
                name.into(),
                time(total),
                time(each(total)),
                number(attempted),
                share(completed, attempted),
                number(each(imported)),
            ]);
        }
        fourth.add_row([
            kernel.name.to_owned(),
            minor(&kernel.plain),
            minor(&kernel.basic),
            minor(&kernel.runahead),
        ]);
    }
    format!("{second}\n\n{third}\n\n{fourth}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(compute_s: f64, statistics: Option<&str>) -> SwapRun {
        SwapRun {
            compute_s,
            minor_faults: 10,
            major_faults: 5,
            cpu_s: 0.1,
            statistics: statistics.map(|text| Statistics::parse(text).unwrap()),
        }
    }

    #[test]
    fn the_tables_have_the_papers_columns() {
        let counted = r#"{"version": 1, "speculation": {"swap": {"prefetched": 200, "used": 150},
            "synchronizations": {"attempted": 4, "completed": 2, "time_s": 0.004,
            "importing": 2, "pages_imported": 30}}}"#;
        let results = SwapResults {
            profile: "cloud".into(),
            scale: 1.0,
            machine: Machine::here(),
            kernels: vec![SwapResult {
                name: "matvec".into(),
                equal: true,
                plain: vec![run(3.0, None)],
                basic: vec![run(2.0, Some(counted))],
                runahead: vec![run(1.0, Some(counted))],
                ..SwapResult::default()
            }],
        };
        let text = tables(&results);
        for expected in ["3.00×", "75%", "2.00 ms", "50%", "Table 4", "15"] {
            assert!(text.contains(expected), "{expected} in\n{text}");
        }
        assert!(results.equal());
    }

    #[test]
    fn every_program_compiles() {
        let cache = tempfile::tempdir().unwrap();
        for kernel in KERNELS {
            let program = CProgram { name: kernel.name, source: kernel.source, headers: HEADERS };
            program.build(cache.path()).unwrap();
        }
    }
}
