//! `bench streams`: many sequential streams at once, as in Li, Papathanasiou
//! and Shen (2004, section 3): their microbenchmarks, a media server (nginx)
//! and an index search server, under the kernel's default readahead, an
//! aggressive one (twice the competitive depth), the competitive depth set in
//! the kernel (`runahead tune`), and under `runahead run`.
//!
//! The emulated disk's clock may run faster than the wall's: all of its times
//! are divided by the speed, so that rates are multiplied and the competitive
//! depth stays what it is. Rates are given in the disk's own time.

pub mod data;
pub mod model;
mod plot;
mod server;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use runahead_slowdisk::profile::Discipline;
use serde::{Deserialize, Serialize};

use crate::c_program::CProgram;
use crate::explicit::cache_directory;
use crate::launch::{Side, wrap};
use crate::place::{Place, PlaceOptions};
use crate::process::{self, CommandSpec, Output};
use crate::progress::Progress;
use crate::results::Machine;
use crate::summary::Summary;
use crate::table::plain_table;
use crate::tools::{GCC, NGINX, ensure_installed};
use model::Lengths;
pub use plot::draw;

const HEADERS: &[(&str, &str)] =
    &[("streams.h", include_str!("../../../../bench/streams/streams.h"))];

macro_rules! program {
    ($name:literal) => {
        CProgram {
            name: $name,
            source: include_str!(concat!("../../../../bench/streams/", $name, ".c")),
            headers: HEADERS,
        }
    };
}

const HANDLERS: CProgram = program!("handlers");
const SEARCH: CProgram = program!("search");
const CLIENTS: CProgram = program!("clients");

/// Uncounted time at the start of each run, and counted time, seconds.
const WARM_S: f64 = 1.5;
const RUN_S: f64 = 6.0;
/// A run that takes so much longer than it should hangs.
const HANG_EXTRA: Duration = Duration::from_secs(120);
/// Bytes of the index and of all clips together, at full scale.
const INDEX_BYTES: u64 = 2 << 30;
const CLIPS_BYTES: u64 = 2 << 30;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Whole files.
    OneWhole,
    /// A random part from the beginning, with four thinks of 10 ms.
    OneRand,
    /// Random parts of two files in turns.
    TwoRand,
    /// 64 KB from anywhere in each of four files.
    #[serde(rename = "four-64kb")]
    Four64Kb,
    /// nginx with clips.
    Media,
    /// Keyword queries over posting lists.
    Search,
}

impl Workload {
    /// All, in the paper's order.
    pub const ALL: [Workload; 6] = [
        Workload::OneWhole,
        Workload::OneRand,
        Workload::TwoRand,
        Workload::Four64Kb,
        Workload::Search,
        Workload::Media,
    ];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Workload::OneWhole => "one-whole",
            Workload::OneRand => "one-rand",
            Workload::TwoRand => "two-rand",
            Workload::Four64Kb => "four-64kb",
            Workload::Media => "media",
            Workload::Search => "search",
        }
    }

    /// Lengths of its streams, where the benchmark decides them.
    pub fn lengths(self) -> Option<Lengths> {
        match self {
            Workload::OneWhole => Some(Lengths::all(data::FILE_BYTES)),
            Workload::OneRand | Workload::TwoRand => Some(Lengths::even(data::FILE_BYTES)),
            Workload::Four64Kb => Some(Lengths::all(65_536)),
            Workload::Media | Workload::Search => None,
        }
    }

    fn handles_files(self) -> bool {
        self.lengths().is_some()
    }
}

/// Who orders the requests that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Nobody: in order of arrival.
    Fifo,
    /// The disk: C-SCAN.
    Cscan,
    /// The kernel's deadline scheduler, the disk in order of arrival.
    MqDeadline,
    /// The kernel's BFQ, which anticipates; the disk in order of arrival.
    Bfq,
}

impl Order {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Order::Fifo => "fifo",
            Order::Cscan => "cscan",
            Order::MqDeadline => "mq-deadline",
            Order::Bfq => "bfq",
        }
    }

    fn discipline(self) -> Discipline {
        if self == Order::Cscan { Discipline::Cscan } else { Discipline::Fifo }
    }

    fn scheduler(self) -> &'static str {
        match self {
            Order::Fifo | Order::Cscan => "none",
            other => other.name(),
        }
    }
}

/// How the streams are prefetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The kernel's default: 128 KiB.
    Default,
    /// The kernel's readahead at twice the competitive depth.
    Aggressive,
    /// The kernel's readahead at the competitive depth (`runahead tune`).
    Tuned,
    /// Under `runahead run`, readahead at its default.
    Live,
}

impl Policy {
    /// All.
    pub const ALL: [Policy; 4] = [Policy::Default, Policy::Aggressive, Policy::Tuned, Policy::Live];

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Default => "default",
            Policy::Aggressive => "aggressive",
            Policy::Tuned => "tuned",
            Policy::Live => "runahead",
        }
    }
}

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct StreamsOptions {
    /// Profile of the emulated device.
    pub profile: String,
    /// Workloads.
    pub workloads: Vec<Workload>,
    /// Who orders the requests; on network storage nobody does.
    pub orders: Vec<Order>,
    /// Policies; the default is always measured.
    pub policies: Vec<Policy>,
    /// Handlers, clients or searchers at once.
    pub handlers: Vec<u32>,
    /// Runs of each policy.
    pub runs: usize,
    /// Time and data relative to the full ones, above 0.
    pub scale: f64,
    /// How much faster the disk's clock runs than the wall's.
    pub speed: f64,
    /// Seed of data and requests.
    pub seed: u64,
    /// Install what is missing.
    pub install: bool,
    /// The `runahead` executable.
    pub runahead: PathBuf,
}

/// What one run did. Rates and times are the disk's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Bytes that the program read (or its clients received) per second, in MB/s.
    pub mb_s: f64,
    /// Requests answered per second.
    pub requests_per_s: f64,
    /// Mean time of a request, seconds.
    pub response_s: f64,
    /// Bytes that the device read for each byte used: above 1, readahead that
    /// was not used; below, what the cache answered.
    pub read_per_used: f64,
}

/// One workload, order and number of handlers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Workload.
    pub workload: Workload,
    /// Who orders requests.
    pub order: Order,
    /// Handlers at once.
    pub handlers: u32,
    /// Runs of each policy.
    pub runs: BTreeMap<Policy, Vec<Run>>,
    /// C_switch that the default's throughput shows, ms.
    pub switch_ms: Option<f64>,
    /// What the paper's model gives for it, MB/s.
    pub model_mb_s: Option<f64>,
    /// The estimated optimum, MB/s.
    pub optimum_mb_s: Option<f64>,
}

impl Point {
    /// Median throughput of a policy, MB/s.
    pub fn mb_s(&self, policy: Policy) -> Option<f64> {
        let runs = self.runs.get(&policy)?;
        let rates: Vec<f64> = runs.iter().map(|run| run.mb_s).collect();
        Summary::of(&rates).map(|summary| summary.median)
    }

    /// A policy's median throughput relative to the default's.
    pub fn gain(&self, policy: Policy) -> Option<f64> {
        Some(self.mb_s(policy)? / self.mb_s(Policy::Default)?)
    }
}

/// The whole benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamsResults {
    /// Version of this format.
    pub version: u32,
    /// `streams`.
    pub benchmark: String,
    /// The machine.
    pub machine: Machine,
    /// The device's profile.
    pub profile: String,
    /// How much faster its clock ran than the wall's.
    pub speed: f64,
    /// Time and data relative to the full ones.
    pub scale: f64,
    /// Mean time of a random request as `runahead profile` measured it, ms.
    pub latency_ms: f64,
    /// Sequential rate as it was measured, MB/s.
    pub rate_mb_s: f64,
    /// Competitive depth from these, KiB.
    pub depth_kib: u64,
    /// What was measured.
    pub points: Vec<Point>,
}

/// Measures. `so_far` is given the results after each point.
///
/// # Errors
/// If something is missing or a run cannot be made, or a program read wrong
/// data.
pub fn run(
    options: &StreamsOptions,
    mut so_far: impl FnMut(&StreamsResults) -> Result<()>,
) -> Result<StreamsResults> {
    ensure!(options.runs > 0, "--runs 0: give at least 1");
    ensure!(options.scale > 0.0 && options.scale <= 4.0, "--scale: give a factor up to 4");
    ensure!((0.1..=20.0).contains(&options.speed), "--speed: give a factor from 0.1 to 20");
    let mut tools = vec![GCC];
    if options.workloads.contains(&Workload::Media) {
        tools.push(NGINX);
    }
    ensure_installed(&tools, options.install)?;
    let mut results = StreamsResults {
        version: 1,
        benchmark: "streams".into(),
        machine: Machine::here(),
        profile: options.profile.clone(),
        speed: options.speed,
        scale: options.scale,
        latency_ms: 0.0,
        rate_mb_s: 0.0,
        depth_kib: 0,
        points: Vec::new(),
    };
    let mut disciplines: Vec<Discipline> = Vec::new();
    for order in &options.orders {
        if !disciplines.contains(&order.discipline()) {
            disciplines.push(order.discipline());
        }
    }
    // A bed for each discipline of the disk: its data is made once.
    for discipline in disciplines {
        let bed = Bed::open(options, discipline, &mut results)?;
        for order in options.orders.iter().filter(|order| order.discipline() == discipline) {
            for workload in &options.workloads {
                for handlers in &options.handlers {
                    let point = bed.point(*workload, *order, *handlers, &results)?;
                    results.points.push(point);
                    so_far(&results)?;
                }
            }
        }
    }
    Ok(results)
}

/// A device that is up, with the data on it.
struct Bed<'a> {
    options: &'a StreamsOptions,
    place: Place,
    programs: [PathBuf; 3],
    files: u64,
    words: u64,
    sizes: PathBuf,
    /// Where the profile is kept that the agent and `tune` go by.
    home: process::Scratch,
    run_s: f64,
}

impl<'a> Bed<'a> {
    fn open(
        options: &'a StreamsOptions,
        discipline: Discipline,
        results: &mut StreamsResults,
    ) -> Result<Self> {
        let cache = cache_directory()?;
        let programs = [HANDLERS.build(&cache)?, SEARCH.build(&cache)?, CLIENTS.build(&cache)?];
        let disks = ["hdd", "array-2003"].contains(&options.profile.as_str());
        let place = Place::open(&PlaceOptions {
            profile: options.profile.clone(),
            queue: disks.then_some(discipline),
            time_factor: Some(1.0 / options.speed),
            ..PlaceOptions::default()
        })?;
        let preparing = Progress::new(0);
        preparing.note("preparing files, index and clips");
        let run_s = RUN_S * options.scale;
        let device = place.device();
        // No file is read twice: as many as the fastest run can read, of which
        // half of each is read by the random workloads.
        let most = device.bandwidth_bytes_per_s.min(400e6) * (WARM_S + run_s) * 1.2;
        let files = (most / (data::FILE_BYTES as f64 / 2.0)).ceil() as u64 + 256;
        let (mut words, mut sizes) = (0, PathBuf::new());
        let root = place.store().to_owned();
        let share = |bytes: u64| ((bytes as f64 * options.scale) as u64).max(64 << 20);
        place.untimed(|| {
            if options.workloads.iter().any(|workload| workload.handles_files()) {
                data::files(&root.join("files"), files)?;
            }
            if options.workloads.contains(&Workload::Search) {
                words = make_index(&programs[1], &root, share(INDEX_BYTES), options.seed)?;
            }
            if options.workloads.contains(&Workload::Media) {
                sizes = data::clips(&root.join("clips"), share(CLIPS_BYTES), options.seed)?;
            }
            Ok(())
        })?;
        place.cold()?;
        preparing.note("measuring the device");
        let home = process::scratch_directory()?;
        let bed = Self { options, place, programs, files, words, sizes, home, run_s };
        bed.profile(results)?;
        drop(preparing);
        Ok(bed)
    }

    /// Measures the device as a user would, into a profile of this benchmark's
    /// own.
    fn profile(&self, results: &mut StreamsResults) -> Result<()> {
        let output = Output::new()?;
        let spec = CommandSpec::new(&self.options.runahead, "/")
            .args(["profile", "--json", "--load", "100", "--time", "15"])
            .arg(self.place.store())
            .env("XDG_CACHE_HOME", self.home.path());
        let limit = Duration::from_secs(100) + HANG_EXTRA;
        let finished = process::run(&mut spec.command(), &output, limit)?;
        let errors = std::fs::read_to_string(output.path("stderr")).unwrap_or_default();
        ensure!(finished.status.success(), "the device could not be measured: {errors}");
        let text = std::fs::read_to_string(output.path("stdout"))?;
        let json: serde_json::Value = serde_json::from_str(&text).context("read the profile")?;
        let number = |at: &str| json.pointer(at).and_then(serde_json::Value::as_f64);
        let (Some(latency_us), Some(rate), Some(depth)) = (
            number("/latency_us/value"),
            number("/sequential/mean_mb_s/value"),
            number("/competitive/depth_bytes/value"),
        ) else {
            bail!("the profile has other keys")
        };
        results.latency_ms = latency_us / 1e3 * self.options.speed;
        results.rate_mb_s = rate / self.options.speed;
        results.depth_kib = (depth / 4096.0).round() as u64 * 4;
        Ok(())
    }

    fn point(
        &self,
        workload: Workload,
        order: Order,
        handlers: u32,
        device: &StreamsResults,
    ) -> Result<Point> {
        let mut policies = vec![Policy::Default];
        policies.extend(self.options.policies.iter().filter(|one| **one != Policy::Default));
        let title = format!("{} {} {handlers} at once", workload.name(), order.name());
        let progress = Progress::new((policies.len() * self.options.runs) as u64);
        let mut runs: BTreeMap<Policy, Vec<Run>> = BTreeMap::new();
        for index in 0..self.options.runs {
            // Each follows another one in turn.
            for turn in 0..policies.len() {
                let policy = policies[(turn + index) % policies.len()];
                progress.step(&format!("{title}, {} {}", policy.name(), index + 1));
                let done = self
                    .run(workload, order, handlers, policy, device, index as u64)
                    .with_context(|| format!("{title}, {}", policy.name()))?;
                runs.entry(policy).or_default().push(done);
            }
        }
        let mut point = Point {
            workload,
            order,
            handlers,
            runs,
            switch_ms: None,
            model_mb_s: None,
            optimum_mb_s: None,
        };
        if let (Some(lengths), Some(default)) = (workload.lengths(), point.mb_s(Policy::Default)) {
            let rate = device.rate_mb_s * 1e6;
            let switch_s = lengths.switch_s(default * 1e6, rate);
            let depth = device.depth_kib as f64 * 1024.0;
            point.switch_ms = Some(switch_s * 1e3);
            point.model_mb_s = Some(lengths.competitive(depth, switch_s, rate) / 1e6);
            point.optimum_mb_s = Some(lengths.optimum(rate, device.latency_ms / 1e3) / 1e6);
        }
        progress.print(&line(&point));
        Ok(point)
    }

    fn run(
        &self,
        workload: Workload,
        order: Order,
        handlers: u32,
        policy: Policy,
        device: &StreamsResults,
        index: u64,
    ) -> Result<Run> {
        self.place.cold()?;
        self.place.set_scheduler(order.scheduler())?;
        self.place.warm_metadata(self.place.root())?;
        match policy {
            Policy::Aggressive => self.place.set_read_ahead_kb(device.depth_kib.max(128) * 2)?,
            Policy::Tuned => self.place.set_read_ahead_kb(device.depth_kib.max(128))?,
            Policy::Default | Policy::Live => {}
        }
        let seed = (self.options.seed + index).to_string();
        let root = self.place.root();
        let times = [WARM_S.to_string(), self.run_s.to_string(), seed];
        let output = Output::new()?;
        let before = self.place.counts()?;
        let (said, server) = match workload {
            Workload::Media => {
                let server = server::Media::start(self, policy, handlers)?;
                let clients = CommandSpec::new(&self.programs[2], "/")
                    .arg(server.port().to_string())
                    .arg(&self.sizes)
                    .arg(handlers.to_string())
                    .args(times);
                (self.finish(&clients, &output)?, Some(server))
            }
            Workload::Search => {
                let spec = CommandSpec::new(&self.programs[1], "/")
                    .arg(root.join("index"))
                    .args([self.words.to_string(), handlers.to_string()])
                    .args(times);
                (self.finish(&self.under(&spec, policy), &output)?, None)
            }
            _ => {
                let thinks = (10_000.0 / self.options.speed).round();
                let think_us = if workload == Workload::OneRand { thinks } else { 0.0 };
                let spec = CommandSpec::new(&self.programs[0], "/")
                    .arg(root.join("files"))
                    .args([self.files.to_string(), data::FILE_BYTES.to_string()])
                    .args([workload.name().to_owned(), handlers.to_string()])
                    .args(times)
                    .arg(think_us.to_string());
                (self.finish(&self.under(&spec, policy), &output)?, None)
            }
        };
        if let Some(server) = server {
            server.stop()?;
        }
        let read = self.place.counts()?.since(&before).bytes_read;
        Figures::parse(&said)
            .map(|figures| figures.run(self.options.speed, read))
            .with_context(|| format!("the program printed {said:?}"))
    }

    /// The command under a policy.
    fn under(&self, spec: &CommandSpec, policy: Policy) -> CommandSpec {
        if policy != Policy::Live {
            return spec.clone();
        }
        let statistics = self.home.path().join("statistics.json");
        wrap(spec, Side::Runahead, &self.options.runahead, &[], &statistics)
            .env("XDG_CACHE_HOME", self.home.path())
    }

    fn finish(&self, spec: &CommandSpec, output: &Output) -> Result<String> {
        let limit = Duration::from_secs_f64(WARM_S + self.run_s) + HANG_EXTRA;
        let finished = process::run(&mut spec.command(), output, limit)?;
        let errors = std::fs::read_to_string(output.path("stderr")).unwrap_or_default();
        ensure!(
            finished.status.success(),
            "{}: {}: {errors}",
            spec.display(),
            process::describe(finished.status)
        );
        Ok(std::fs::read_to_string(output.path("stdout"))?)
    }
}

/// Writes the index; returns the number of its words.
fn make_index(program: &Path, root: &Path, bytes: u64, seed: u64) -> Result<u64> {
    let output = Output::new()?;
    let spec = CommandSpec::new(program, "/")
        .arg("make")
        .arg(root.join("index"))
        .args([bytes.to_string(), seed.to_string()]);
    let finished = process::run(&mut spec.command(), &output, Duration::from_secs(600))?;
    ensure!(finished.status.success(), "the index could not be made");
    let text = std::fs::read_to_string(output.path("stdout"))?;
    text.trim().parse().context("the number of words")
}

/// What a program printed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Figures {
    total: u64,
    bytes: u64,
    ns: u64,
    requests: u64,
    latency_ns: u64,
}

impl Figures {
    fn parse(text: &str) -> Option<Self> {
        let number = |name: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(name));
            found.and_then(|rest| rest.trim().parse::<u64>().ok())
        };
        Some(Self {
            total: number("total ")?,
            bytes: number("bytes ")?,
            ns: number("ns ").filter(|ns| *ns > 0)?,
            requests: number("requests ")?,
            latency_ns: number("latency_ns ")?,
        })
    }

    fn run(&self, speed: f64, read: u64) -> Run {
        let disk_s = self.ns as f64 / 1e9 * speed;
        Run {
            mb_s: self.bytes as f64 / 1e6 / disk_s,
            requests_per_s: self.requests as f64 / disk_s,
            response_s: self.latency_ns as f64 / 1e9 * speed,
            read_per_used: read as f64 / self.total.max(1) as f64,
        }
    }
}

/// One point in a line.
fn line(point: &Point) -> String {
    let mut text =
        format!("{} {} {:>2} at once:", point.workload.name(), point.order.name(), point.handlers);
    for policy in Policy::ALL {
        if let (Some(mb_s), Some(gain)) = (point.mb_s(policy), point.gain(policy)) {
            text += &format!(" {} {mb_s:.1} MB/s ({gain:.2}×)", policy.name());
        }
    }
    text
}

/// The results for the reader.
pub fn table(results: &StreamsResults) -> String {
    let mut table = plain_table(&[
        "workload",
        "order",
        "at once",
        "default",
        "aggressive",
        "tuned",
        "runahead",
        "model",
        "optimum",
        "of model",
        "of optimum",
        "response",
        "read/used",
    ]);
    for point in &results.points {
        let rate = |mb_s: Option<f64>| mb_s.map_or("–".into(), |mb_s| format!("{mb_s:.1}"));
        let gained = |policy| match (point.mb_s(policy), point.gain(policy)) {
            (Some(mb_s), Some(gain)) => format!("{mb_s:.1} ({gain:.2}×)"),
            _ => "–".into(),
        };
        let live = point.mb_s(Policy::Live);
        let share = |of: Option<f64>| match (live, of) {
            (Some(live), Some(of)) if of > 0.0 => format!("{:.0}%", 100.0 * live / of),
            _ => "–".into(),
        };
        let runs = |policy| point.runs.get(&policy).map_or(&[][..], Vec::as_slice);
        let median = |policy, of: fn(&Run) -> f64| {
            Summary::of(&runs(policy).iter().map(of).collect::<Vec<_>>()).map(|all| all.median)
        };
        let response = median(Policy::Live, |run| run.response_s)
            .zip(median(Policy::Default, |run| run.response_s))
            .map_or("–".into(), |(live, default)| format!("{:.0}%", 100.0 * live / default));
        let unused = median(Policy::Live, |run| run.read_per_used);
        table.add_row([
            point.workload.name().to_owned(),
            point.order.name().to_owned(),
            point.handlers.to_string(),
            rate(point.mb_s(Policy::Default)),
            gained(Policy::Aggressive),
            gained(Policy::Tuned),
            gained(Policy::Live),
            rate(point.model_mb_s),
            rate(point.optimum_mb_s),
            share(point.model_mb_s),
            share(point.optimum_mb_s),
            response,
            unused.map_or("–".into(), |unused| format!("{unused:.2}")),
        ]);
    }
    format!(
        "{table}\nMB/s in the disk's time, which ran {}× as fast as the wall's; medians of the runs.\n\
         Measured: random request {:.1} ms, {:.1} MB/s, competitive depth {} KiB.\n\
         of model, of optimum, response (of the default's), read/used: runahead's.\n",
        results.speed, results.latency_ms, results.rate_mb_s, results.depth_kib
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_disk() {
        let said = "total 3000000\nbytes 2000000\nns 1000000000\nrequests 4\nlatency_ns 250000000\nwrong 0\n";
        let run = Figures::parse(said).unwrap().run(4.0, 3_300_000);
        assert_eq!((run.mb_s, run.requests_per_s, run.response_s), (0.5, 1.0, 1.0));
        assert!((run.read_per_used - 1.1).abs() < 1e-9);
        assert_eq!(Figures::parse("bytes 1"), None);
    }

    #[test]
    fn the_table_shows_gain_and_shares() {
        let run = |mb_s| vec![Run { mb_s, response_s: 1.0 / mb_s, ..Run::default() }];
        let point = Point {
            workload: Workload::OneWhole,
            order: Order::Fifo,
            handlers: 16,
            runs: [(Policy::Default, run(10.0)), (Policy::Live, run(22.0))].into(),
            switch_ms: Some(10.5),
            model_mb_s: Some(21.0),
            optimum_mb_s: Some(44.0),
        };
        let results = StreamsResults {
            version: 1,
            benchmark: "streams".into(),
            machine: Machine::default(),
            profile: "hdd".into(),
            speed: 4.0,
            scale: 1.0,
            latency_ms: 10.5,
            rate_mb_s: 51.0,
            depth_kib: 524,
            points: vec![point],
        };
        let text = table(&results);
        for part in ["22.0 (2.20×)", "105%", "50%", "45%"] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        let directory = tempfile::tempdir().unwrap();
        let drawn = draw(&results, &directory.path().join("streams")).unwrap();
        assert_eq!(drawn.len(), 2);
    }

    /// The programs on resident data: they find what was written.
    #[test]
    fn programs_read_what_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        data::files(&root.join("files"), 40).unwrap();
        let handlers = HANDLERS.build(root).unwrap();
        let files = root.join("files");
        let output = Output::new().unwrap();
        let spec = CommandSpec::new(handlers, "/").arg(&files).args([
            "40",
            &data::FILE_BYTES.to_string(),
            "four-64kb",
            "2",
            "0",
            "0.1",
            "1",
        ]);
        let limit = Duration::from_secs(120);
        let ended = process::run(&mut spec.command(), &output, limit).unwrap();
        assert!(ended.status.success());
        let said = std::fs::read_to_string(output.path("stdout")).unwrap();
        assert!(Figures::parse(&said).unwrap().bytes > 0 && said.contains("wrong 0"), "{said}");
        let search = SEARCH.build(root).unwrap();
        let words = make_index(&search, root, 8 << 20, 1).unwrap();
        let spec = CommandSpec::new(search, "/").arg(root.join("index")).args([
            &words.to_string(),
            "2",
            "0",
            "0.1",
            "1",
        ]);
        let ended = process::run(&mut spec.command(), &output, limit).unwrap();
        let said = std::fs::read_to_string(output.path("stdout")).unwrap();
        assert!(ended.status.success() && said.contains("wrong 0"), "{said}");
    }
}
