//! `bench memory --release`: what it is worth to give back what lies behind a
//! program (Fraser and Chang 2003, section 8). A program reads a large file once
//! and a small one again and again, which would stay in its memory cgroup if the
//! large one did not push it out; by itself, and beside a plain program in the
//! same cgroup. Without speculation, with it and nothing given back, and with it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use runahead_protocol::session::TEST_WITHOUT_RELEASE;
use serde::{Deserialize, Serialize};

use crate::c_program::CProgram;
use crate::cgroup::Cgroup;
use crate::digest;
use crate::explicit::cache_directory;
use crate::launch::{self, Side};
use crate::neighbour::{self, Beside, Neighbour, noise, numbers};
use crate::place::{Place, PlaceOptions};
use crate::process::{self, CommandSpec, Output};
use crate::progress::Progress;
use crate::results::Machine;
use crate::statistics::Statistics;
use crate::summary::{Ratio, Summary};
use crate::swap::{number, time, wait_for};
use crate::table::{plain_table, spread};
use crate::tools::{GCC, ensure_installed};

/// No run takes a tenth of it.
const LIMIT: Duration = Duration::from_secs(600);
const MB: f64 = 1e6;

/// Sizes at scale 1, in MB.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    name: &'static str,
    memory: f64,
    /// Read once.
    stream: f64,
    /// Read again after each `every` of the stream.
    hot: f64,
    every: f64,
    /// What the plain program reads; 0: there is none.
    neighbour: f64,
}

const CASES: [Sizes; 2] = [
    Sizes { name: "scan", memory: 64.0, stream: 768.0, hot: 32.0, every: 48.0, neighbour: 0.0 },
    Sizes {
        name: "scan beside a plain program",
        memory: 64.0,
        stream: 768.0,
        hot: 16.0,
        every: 48.0,
        neighbour: 24.0,
    },
];

const SCAN: CProgram =
    CProgram { name: "scan", source: include_str!("../../../bench/release/scan.c"), headers: &[] };

/// How to measure.
#[derive(Clone, Debug)]
pub struct ReleaseOptions {
    /// Profile of the device.
    pub profile: String,
    /// Rounds of each way, at least 1.
    pub runs: usize,
    /// Data and memory relative to the usual, above 0.
    pub scale: f64,
    /// The `runahead` executable.
    pub runahead: PathBuf,
    /// Further options of `runahead run`.
    pub run_options: Vec<String>,
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReleaseRun {
    /// Time of the program, seconds.
    pub elapsed_s: f64,
    /// Of that, in reads of the small file, seconds.
    pub hot_s: f64,
    /// Bytes that the device read.
    pub device_bytes: f64,
    /// What the plain program saw meanwhile.
    pub beside: Option<Beside>,
    /// What Runahead counted.
    pub statistics: Option<Statistics>,
}

/// One case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReleaseCase {
    /// Its name.
    pub name: String,
    /// Megabytes of memory.
    pub memory_mb: f64,
    /// Did all runs print the same and end alike?
    pub equal: bool,
    /// No speculation.
    pub plain: Vec<ReleaseRun>,
    /// Speculation, and nothing given back.
    pub kept: Vec<ReleaseRun>,
    /// As it is.
    pub released: Vec<ReleaseRun>,
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReleaseResults {
    /// Version of this format.
    pub version: u32,
    /// `release`.
    pub benchmark: String,
    /// Profile of the device.
    pub profile: String,
    /// Where it was measured.
    pub machine: Machine,
    /// In the order in which it was measured.
    pub cases: Vec<ReleaseCase>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Kept,
    Released,
}

/// Measures. `so_far` is given the results after each case.
///
/// # Errors
/// If something is missing, or a run cannot be made.
pub fn run(
    options: &ReleaseOptions,
    mut so_far: impl FnMut(&ReleaseResults) -> Result<()>,
) -> Result<ReleaseResults> {
    ensure!(
        options.scale.is_finite() && options.scale > 0.0,
        "--scale {}: give a factor above 0",
        options.scale
    );
    ensure!(options.runs > 0, "--runs 0: give at least 1");
    ensure_installed(&[GCC], false)?;
    let place =
        Place::open(&PlaceOptions { profile: options.profile.clone(), ..PlaceOptions::default() })?;
    let mut results = ReleaseResults {
        version: 1,
        benchmark: "release".into(),
        profile: place.name().into(),
        machine: Machine::here(),
        cases: Vec::new(),
    };
    for sizes in CASES {
        let case = measure(&sizes, &place, options).with_context(|| sizes.name.to_owned())?;
        results.cases.push(case);
        so_far(&results)?;
    }
    Ok(results)
}

fn measure(sizes: &Sizes, place: &Place, options: &ReleaseOptions) -> Result<ReleaseCase> {
    let subject = Subject::new(sizes, place, options)?;
    let mut case = ReleaseCase {
        name: sizes.name.into(),
        memory_mb: sizes.memory * options.scale,
        equal: true,
        ..ReleaseCase::default()
    };
    let progress = Progress::new(3 * options.runs as u64);
    let ways = [Way::Plain, Way::Kept, Way::Released];
    let mut first = None;
    for round in 0..options.runs {
        // Which comes first goes round.
        for index in 0..ways.len() {
            let way = ways[(round + index) % ways.len()];
            progress.step(&format!("{} {way:?}", case.name));
            let (run, said) = subject.run(way)?;
            case.equal &= first.get_or_insert_with(|| said.clone()) == &said;
            match way {
                Way::Plain => case.plain.push(run),
                Way::Kept => case.kept.push(run),
                Way::Released => case.released.push(run),
            }
        }
    }
    Ok(case)
}

/// The programs, their files and their cgroup.
struct Subject<'a> {
    place: &'a Place,
    options: &'a ReleaseOptions,
    cgroup: Cgroup,
    scan: CommandSpec,
    neighbour: Option<CommandSpec>,
    scratch: process::Scratch,
}

const REPORT: &str = "scan";
const BESIDE: &str = "neighbour";

impl<'a> Subject<'a> {
    fn new(sizes: &Sizes, place: &'a Place, options: &'a ReleaseOptions) -> Result<Self> {
        let cache = cache_directory()?;
        let scratch = process::scratch_directory()?;
        let bytes = |mb: f64| (mb * MB * options.scale) as u64;
        let file = |name: &str, mb: f64| -> Result<PathBuf> {
            let path = place.store().join(name);
            place.untimed(|| noise(&path, bytes(mb)))?;
            Ok(path)
        };
        let cgroup = Cgroup::new("runahead-bench-release")?;
        cgroup.limit(Some(bytes(sizes.memory)))?;
        let scan = CommandSpec::new(SCAN.build(&cache)?, "/")
            .arg(file("stream", sizes.stream)?)
            .arg(file("hot", sizes.hot)?)
            .arg(bytes(sizes.every).to_string())
            .arg(scratch.path().join(REPORT));
        let neighbour = if sizes.neighbour > 0.0 {
            let program = CommandSpec::new(neighbour::PROGRAM.build(&cache)?, "/");
            Some(program.arg(file("neighbour", sizes.neighbour)?).arg(scratch.path().join(BESIDE)))
        } else {
            None
        };
        Ok(Subject { place, options, cgroup, scan, neighbour, scratch })
    }

    /// One run, and how it ended and what it printed.
    fn run(&self, way: Way) -> Result<(ReleaseRun, (String, String))> {
        self.place.cold()?;
        let output = Output::new()?;
        let file = output.path("statistics.json");
        let mut run_options = self.options.run_options.clone();
        if way == Way::Kept {
            run_options.push(format!("--test={TEST_WITHOUT_RELEASE}"));
        }
        let side = if way == Way::Plain { Side::Plain } else { Side::Runahead };
        let spec =
            launch::wrap(&self.scan, side, &self.options.runahead, &run_options, Some(&file));
        let neighbour =
            self.neighbour.as_ref().map(|spec| Neighbour::start(&self.cgroup.wrap(spec)));
        let neighbour = neighbour.transpose()?;
        let before = self.place.counts()?;
        let finished =
            process::run_stopped(&mut self.cgroup.wrap_stopped(&spec).command(), &output, LIMIT)?;
        let after = self.place.counts()?;
        let beside =
            neighbour.map(|one| one.stop(&self.scratch.path().join(BESIDE))).transpose()?;
        let ended = process::describe(finished.status);
        let [elapsed_s, hot_s] = numbers(&self.scratch.path().join(REPORT))
            .with_context(|| format!("it left no time: {ended}"))?;
        let run = ReleaseRun {
            elapsed_s,
            hot_s,
            device_bytes: after.bytes_read.saturating_sub(before.bytes_read) as f64,
            beside,
            statistics: if side == Side::Plain { None } else { Some(wait_for(&file)?) },
        };
        Ok((run, (ended, digest::of_file(&output.path("stdout"))?)))
    }
}

/// Pages given back, or of these those that were read again.
fn released(statistics: &Statistics, what: &str) -> Option<f64> {
    statistics.speculation.rest.get("released")?.get(what)?.as_f64()
}

fn quantity(runs: &[ReleaseRun], get: impl Fn(&ReleaseRun) -> Option<f64>) -> Vec<f64> {
    runs.iter().filter_map(get).collect()
}

/// The results for the reader.
pub fn table(results: &ReleaseResults) -> String {
    let mut table = plain_table(&[
        "release",
        "speculation",
        "given back",
        "time (spread)",
        "beside nothing given back (95%)",
        "again and again",
        "device MB",
        "given back MB",
        "read again MB",
        "plain program: mean",
        "p99",
        "waited",
    ]);
    for case in &results.cases {
        let rows =
            [("off", "–", &case.plain), ("on", "no", &case.kept), ("on", "yes", &case.released)];
        for (speculation, gives_back, runs) in rows {
            let elapsed = quantity(runs, |run| Some(run.elapsed_s));
            let median = |get: &dyn Fn(&ReleaseRun) -> Option<f64>| {
                Summary::of(&quantity(runs, get)).map(|summary| summary.median)
            };
            let megabytes = |what: &'static str| {
                let pages = median(&|run| released(run.statistics.as_ref()?, what));
                number(pages.map(|pages| pages * 4096.0 / MB))
            };
            let kept = quantity(&case.kept, |run| Some(run.elapsed_s));
            let ratio = Ratio::of(&elapsed, &kept).map_or("–".into(), |ratio| {
                format!("{:.3} ({:.3}–{:.3})", ratio.value, ratio.low, ratio.high)
            });
            let name = if speculation == "off" {
                format!(
                    "{} ({:.0} MB){}",
                    case.name,
                    case.memory_mb,
                    if case.equal { "" } else { " OUTPUT DIFFERS" }
                )
            } else {
                String::new()
            };
            let waited = median(&|run| run.beside.map(|beside| beside.waited / beside.reads));
            table.add_row([
                name,
                speculation.into(),
                gives_back.into(),
                Summary::of(&elapsed).map_or("–".into(), |summary| spread(&summary)),
                if gives_back == "no" { "–".into() } else { ratio },
                time(median(&|run| Some(run.hot_s))),
                number(median(&|run| Some(run.device_bytes / MB))),
                megabytes("pages"),
                megabytes("returned"),
                time(median(&|run| run.beside.map(|beside| beside.mean_s))),
                time(median(&|run| run.beside.map(|beside| beside.p99_s))),
                waited.map_or("–".into(), |share| format!("{:.2}%", 100.0 * share)),
            ]);
        }
    }
    table.to_string()
}

impl ReleaseResults {
    /// Whether every run of every case came to the same.
    pub fn equal(&self) -> bool {
        self.cases.iter().all(|case| case.equal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_both_programs() {
        let statistics = r#"{"version": 1, "speculation":
            {"released": {"pages": 25000, "returned": 2500}}}"#;
        let run = |elapsed_s, is_counted: bool| ReleaseRun {
            elapsed_s,
            hot_s: 0.5,
            device_bytes: 77e6,
            beside: Some(Beside { reads: 1000.0, waited: 25.0, mean_s: 1e-4, p99_s: 1e-3 }),
            statistics: is_counted.then(|| Statistics::parse(statistics).unwrap()),
        };
        let results = ReleaseResults {
            version: 1,
            benchmark: "release".into(),
            profile: "cloud".into(),
            machine: Machine::default(),
            cases: vec![ReleaseCase {
                name: "scan".into(),
                memory_mb: 48.0,
                equal: true,
                plain: vec![run(4.0, false); 3],
                kept: vec![run(2.0, true); 3],
                released: vec![run(1.0, true); 3],
            }],
        };
        let text = table(&results);
        for expected in ["scan (48 MB)", "0.500", "2.000", "102", "10", "77", "2.50%", "100 µs"] {
            assert!(text.contains(expected), "{expected} in\n{text}");
        }
        assert!(results.equal());
    }
}
