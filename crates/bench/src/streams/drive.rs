//! The programs, and one run of them on a device that is up.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use runahead_device::DeviceProfile;
use runahead_device::extents::extents;
use runahead_device::profile::Positions;
use runahead_slowdisk::profile::Discipline;

use super::report::{Point, Run, StreamsResults, line};
use super::{Order, Policy, StreamsOptions, Workload, data, model, server};
use crate::c_program::CProgram;
use crate::cgroup::Cgroup;
use crate::device_counts::Counts;
use crate::explicit::cache_directory;
use crate::launch::{Side, wrap};
use crate::place::{Place, PlaceOptions};
use crate::process::{self, CommandSpec, Output};
use crate::progress::Progress;
use crate::tools::{INDEXER, WRK};

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
const CORPUS: CProgram = program!("corpus");
const QUERIES: CProgram = program!("queries");
/// The clips that wrk asks for.
const CLIPS: &str = include_str!("../../../../bench/streams/clips.lua");

/// Uncounted time at the start of each run, and counted time, seconds; both last
/// until each handler has answered a request on the mean.
const WARM_S: f64 = 1.5;
const RUN_S: f64 = 6.0;
/// A run that takes so much longer than it should hangs.
const HANG_EXTRA: Duration = Duration::from_secs(120);
/// What all queries may take.
const QUERIES_LIMIT: Duration = Duration::from_secs(300);
/// Documents of the search server's index, words of each on the mean at full
/// scale, and bytes of the index for each of these words, about: lists are as
/// long at any scale, and fewer at a smaller one.
const DOCUMENTS: u64 = 4_000_000;
const DOCUMENT_DRAWS: f64 = 45.0;
const DRAW_BYTES: f64 = 5.7;
/// Queries at full scale, and at least.
const QUERY_COUNT: f64 = 256.0;
const QUERY_COUNT_MIN: f64 = 128.0;
/// Bytes of all clips together, at full scale.
const CLIPS_BYTES: u64 = 2 << 30;
/// Bytes of everything on the device, of 8 GiB, that fit beside what the file
/// system needs.
const DATA_BYTES_MAX: u64 = 8_000_000_000;
/// Bytes of the file that the device is measured by where it is no block
/// device.
const PROFILE_FILE_BYTES: u64 = 256 << 20;
/// The servers' memory is a quarter of their data, as the paper's servers had
/// more data than memory; and at least so many bytes, which they need to run.
const SERVER_MEMORY_SHARE: u64 = 4;
const SERVER_MEMORY_MIN_BYTES: u64 = 64 << 20;
/// And so much for each request at once: its connection, thread and buffers.
const REQUEST_MEMORY_BYTES: u64 = 2 << 20;
/// Time for which clips are asked for from a disk that costs nothing, so that
/// those that are popular are in memory, seconds.
const FILL_S: u32 = 3;
/// What making the index may take.
const INDEX_LIMIT: Duration = Duration::from_secs(1800);

/// A device that is up, with the data on it.
pub(super) struct Bed<'a> {
    options: &'a StreamsOptions,
    speed: f64,
    pub(super) place: Place,
    programs: [PathBuf; 3],
    files: u64,
    /// Bytes that searchd reads to answer all queries.
    list_bytes: u64,
    sizes: PathBuf,
    /// Where the profile is kept that the agent and `tune` go by.
    home: process::Scratch,
    run_s: f64,
}

impl<'a> Bed<'a> {
    pub fn open(
        options: &'a StreamsOptions,
        speed: f64,
        discipline: Discipline,
        results: &mut StreamsResults,
    ) -> Result<Self> {
        let cache = cache_directory()?;
        let programs = [HANDLERS.build(&cache)?, CORPUS.build(&cache)?, QUERIES.build(&cache)?];
        let disks = super::has_disks(&options.profile)?;
        let place = Place::open(&PlaceOptions {
            profile: options.profile.clone(),
            queue: disks.then_some(discipline),
            time_factor: Some(1.0 / speed),
            ..PlaceOptions::default()
        })?;
        let preparing = Progress::new(0);
        preparing.note("preparing files, index and clips");
        let run_s = RUN_S * options.scale;
        let device = place.device();
        let share = |bytes| scaled(bytes, options.scale);
        let mut room = DATA_BYTES_MAX;
        if options.workloads.contains(&Workload::Search) {
            room = room.saturating_sub(index_bytes(options.scale));
        }
        if options.workloads.contains(&Workload::Media) {
            room = room.saturating_sub(share(CLIPS_BYTES));
        }
        let at_once = options.handlers.iter().copied().max().unwrap_or(1);
        let files = file_count(device.bandwidth_bytes_per_s, run_s, at_once, room);
        ensure!(files > 0, "the data does not fit on the device: give a smaller --scale");
        let mut sizes = PathBuf::new();
        let home = process::scratch_directory()?;
        let root = place.store().to_owned();
        place.untimed(|| {
            if options.workloads.iter().any(|workload| workload.handles_files()) {
                data::files(&root.join("files"), files)?;
            }
            if options.workloads.contains(&Workload::Search) {
                make_index(&programs[1], &root, home.path(), options)?;
            }
            if options.workloads.contains(&Workload::Media) {
                sizes = data::clips(&root.join("clips"), share(CLIPS_BYTES), options.seed)?;
            }
            if !place.has_block_device() {
                data::zeros(&root.join("measured"), PROFILE_FILE_BYTES)?;
            }
            Ok(())
        })?;
        let mut bed =
            Self { options, speed, place, programs, files, list_bytes: 0, sizes, home, run_s };
        if options.workloads.contains(&Workload::Search) {
            bed.list_bytes = bed.answers()?;
        }
        bed.place.cold()?;
        preparing.note("measuring the device");
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
        let profile: DeviceProfile =
            serde_json::from_str(&text).context("read what `runahead profile` printed")?;
        results.latency_ms = profile.latency_us.value / 1e3 * self.speed;
        results.rate_mb_s = profile.sequential.mean_mb_s.value / self.speed;
        results.depth_kib = (profile.competitive.depth_bytes.value / 4096.0).round() as u64 * 4;
        results.files_mb_s = self.files_mb_s(&profile)? / self.speed;
        Ok(())
    }

    /// Rate of the zones in which the microbenchmarks' files lie, MB/s of the wall:
    /// that of as many bytes as they have together.
    fn files_mb_s(&self, profile: &DeviceProfile) -> Result<f64> {
        let size = profile.device.size_bytes as f64;
        let zones = profile.measured.positions == Positions::Device && size > 0.0;
        if !zones
            || self.files == 0
            || !self.options.workloads.iter().any(|one| one.handles_files())
        {
            return Ok(profile.sequential.mean_mb_s.value);
        }
        let (mut bytes, mut seconds) = (0.0, 0.0);
        for file in 0..self.files {
            let path = data::file(&self.place.root().join("files"), file);
            let opened = File::open(&path).with_context(|| path.display().to_string())?;
            for extent in extents(&opened, 0..data::FILE_BYTES, usize::MAX, true)? {
                let length = extent.length as f64;
                let middle = (extent.physical as f64 + length / 2.0) / size;
                bytes += length;
                seconds += length / profile.sequential.mb_s_at(middle);
            }
        }
        ensure!(bytes > 0.0, "the files are nowhere on the device");
        Ok(bytes / seconds)
    }

    pub fn point(
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
        // The model is of one head, which serves one request at a time.
        if let (Some(lengths), Some(default), true) =
            (workload.lengths(), point.mb_s(Policy::Default), self.options.profile == "hdd")
        {
            let rate = device.files_mb_s * 1e6;
            let of_default = |of: fn(&Run) -> f64| point.median(Policy::Default, of).unwrap_or(0.0);
            let switch_s = model::switch_s(
                default * 1e6,
                of_default(|run| run.read_per_used),
                of_default(|run| run.switches_per_mb) / 1e6,
                rate,
            );
            // What is transferred there in the time of one switch.
            let depth = device.depth_kib as f64 * 1024.0 * device.files_mb_s / device.rate_mb_s;
            point.switch_ms = Some(switch_s * 1e3);
            point.model_mb_s = Some(lengths.competitive(depth, switch_s, rate) / 1e6);
            let shortest_s = switch_s.min(device.latency_ms / 1e3);
            point.optimum_mb_s = Some(lengths.optimum(rate, shortest_s) / 1e6);
        }
        progress.print(&line(&point, &self.options.profile));
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
        if self.place.has_block_device() {
            self.place.set_scheduler(order.scheduler(), self.speed)?;
        }
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
        let figures = match workload {
            Workload::Media => {
                return self.media(policy, handlers, index);
            }
            Workload::Search => {
                let memory = self.memory(index_bytes(self.options.scale), handlers)?;
                let server = server::Server::search(self, policy, Some(&memory))?;
                let spec = self.queries(&server, handlers);
                let said = self.finish(&spec, &output, QUERIES_LIMIT)?;
                server.stop()?;
                // Those that were taken last were half done on the mean.
                let count = self.query_count();
                let done = (count - f64::from(handlers) / 2.0).max(1.0) / count;
                let bytes = (self.list_bytes as f64 * done) as u64;
                Figures::parse(&format!("{said}total {}\nbytes {bytes}\n", self.list_bytes))
                    .with_context(|| format!("the clients printed {said:?}"))?
            }
            _ => {
                let thinks = (10_000.0 / self.speed).round();
                let think_us = if workload == Workload::OneRand { thinks } else { 0.0 };
                let spec = CommandSpec::new(&self.programs[0], "/")
                    .arg(root.join("files"))
                    .args([self.files.to_string(), data::FILE_BYTES.to_string()])
                    .args([workload.name().to_owned(), handlers.to_string()])
                    .args(times)
                    .arg(think_us.to_string());
                let limit = Duration::from_secs_f64(WARM_S + self.run_s);
                let said = self.finish(&self.under(&spec, policy), &output, limit)?;
                Figures::parse(&said).with_context(|| format!("the program printed {said:?}"))?
            }
        };
        let read = self.place.counts()?.since(&before);
        Ok(figures.run(self.speed, &read))
    }

    /// nginx: its memory is filled with what is popular, then it is measured.
    fn media(&self, policy: Policy, clients: u32, index: u64) -> Result<Run> {
        let memory = self.memory(scaled(CLIPS_BYTES, self.options.scale), clients)?;
        let server = server::Server::media(self, policy, clients, &memory)?;
        let script = self.home.path().join("clips.lua");
        std::fs::write(&script, CLIPS).context("write wrk's script")?;
        let wrk = WRK.find().context("wrk is not installed")?;
        let ask = |seconds: u32, turn: u64| {
            let output = Output::new()?;
            let spec = CommandSpec::new(&wrk, "/")
                .args([format!("-t{clients}"), format!("-c{clients}"), format!("-d{seconds}s")])
                .args(["--timeout", "100s", "-s"])
                .arg(&script)
                .arg(format!("http://127.0.0.1:{}/", server.port()))
                .arg("--")
                .arg(&self.sizes)
                .arg((self.options.seed + index * 3 + turn).to_string());
            let said = self.finish(&spec, &output, Duration::from_secs(seconds.into()))?;
            let parsed = Figures::parse(&said).with_context(|| format!("wrk printed {said:?}"))?;
            ensure!(said.contains("\nwrong 0\n"), "clips were not what they should be: {said}");
            Ok(parsed)
        };
        self.place.untimed(|| ask(FILL_S, 0))?;
        ask(WARM_S.ceil() as u32, 1)?;
        let before = self.place.counts()?;
        let figures = ask(self.run_s.ceil() as u32, 2)?;
        let read = self.place.counts()?.since(&before);
        server.stop()?;
        Ok(figures.run(self.speed, &read))
    }

    /// Clients that ask all queries; what they check the answers by.
    fn queries(&self, server: &server::Server, clients: u32) -> CommandSpec {
        CommandSpec::new(&self.programs[2], "/")
            .args([server.port().to_string(), server::INDEX.to_owned()])
            .arg(self.home.path().join("queries"))
            .arg(clients.to_string())
            .arg(self.home.path().join("answers"))
    }

    fn query_count(&self) -> f64 {
        query_count(self.options)
    }

    /// Asks all queries of a server with all of the memory, off the clock, and
    /// keeps the answers; returns the bytes that it read for them.
    fn answers(&self) -> Result<u64> {
        let server = server::Server::search(self, Policy::Default, None)?;
        let output = Output::new()?;
        let before = server.bytes_read()?;
        self.place.untimed(|| self.finish(&self.queries(&server, 2), &output, QUERIES_LIMIT))?;
        let read = server.bytes_read()? - before;
        server.stop()?;
        Ok(read)
    }

    /// The memory cgroup of a server with so much data and so many requests
    /// at once.
    fn memory(&self, data_bytes: u64, requests: u32) -> Result<Cgroup> {
        let cgroup = Cgroup::new("runahead-bench-streams")?;
        let share = (data_bytes / SERVER_MEMORY_SHARE).max(SERVER_MEMORY_MIN_BYTES);
        cgroup.limit(Some(share + u64::from(requests) * REQUEST_MEMORY_BYTES))?;
        Ok(cgroup)
    }

    /// The command under a policy.
    pub(super) fn under(&self, spec: &CommandSpec, policy: Policy) -> CommandSpec {
        if policy != Policy::Live {
            return spec.clone();
        }
        let statistics = self.home.path().join("statistics.json");
        wrap(spec, Side::Runahead, &self.options.runahead, &[], Some(&statistics))
            .env("XDG_CACHE_HOME", self.home.path())
    }

    fn finish(&self, spec: &CommandSpec, output: &Output, takes: Duration) -> Result<String> {
        let finished = process::run(&mut spec.command(), output, takes + HANG_EXTRA)?;
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

/// Bytes of data at a scale, enough to be read for a while.
fn scaled(bytes: u64, scale: f64) -> u64 {
    ((bytes as f64 * scale) as u64).max(64 << 20)
}

fn index_bytes(scale: f64) -> u64 {
    (DOCUMENTS as f64 * DOCUMENT_DRAWS * scale * DRAW_BYTES) as u64
}

/// Files of the microbenchmarks: none is read twice, so as many as the fastest
/// run can read, of which half of each is read by the random workloads, and at
/// least three requests of two for each handler; or as there is `room` for. A run
/// that reads them faster ends with them.
fn file_count(bytes_per_s: f64, run_s: f64, handlers: u32, room: u64) -> u64 {
    let most = bytes_per_s * (WARM_S + run_s) * 1.2;
    let files = (most / (data::FILE_BYTES as f64 / 2.0)).ceil() as u64;
    let files = files.max(u64::from(handlers) * 6) + 256;
    files.min(room / data::FILE_BYTES)
}

fn query_count(options: &StreamsOptions) -> f64 {
    (QUERY_COUNT * options.scale).max(QUERY_COUNT_MIN).floor()
}

/// Makes the index, and the queries.
fn make_index(corpus: &Path, root: &Path, home: &Path, options: &StreamsOptions) -> Result<()> {
    let draws = (DOCUMENT_DRAWS * options.scale).max(2.0);
    let lines = |what: &str, count: u64| {
        let numbers = [count.to_string(), draws.to_string(), options.seed.to_string()];
        CommandSpec::new(corpus, "/").arg(what).args(numbers)
    };
    let output = Output::new()?;
    let spec = server::index(&INDEXER, root, home, &lines("documents", DOCUMENTS))?;
    let finished = process::run(&mut spec.command(), &output, INDEX_LIMIT)?;
    let said = std::fs::read_to_string(output.path("stderr")).unwrap_or_default();
    ensure!(finished.status.success(), "the index could not be made: {said}");
    let output = Output::new()?;
    let spec = lines("queries", query_count(options) as u64);
    let finished = process::run(&mut spec.command(), &output, HANG_EXTRA)?;
    ensure!(finished.status.success(), "the queries could not be made");
    std::fs::copy(output.path("stdout"), home.join("queries")).context("keep the queries")?;
    Ok(())
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

    fn run(&self, speed: f64, device: &Counts) -> Run {
        let disk_s = self.ns as f64 / 1e9 * speed;
        Run {
            mb_s: self.bytes as f64 / 1e6 / disk_s,
            requests_per_s: self.requests as f64 / disk_s,
            response_s: self.latency_ns as f64 / 1e9 * speed,
            read_per_used: device.bytes_read as f64 / self.total.max(1) as f64,
            device_requests_per_mb: device.reads as f64 * 1e6 / self.total.max(1) as f64,
            switches_per_mb: device.reads.saturating_sub(device.continued) as f64 * 1e6
                / self.total.max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_fit_on_the_device() {
        assert_eq!(file_count(50e6, 6.0, 16, DATA_BYTES_MAX), 471);
        assert_eq!(file_count(50e6, 6.0, 64, DATA_BYTES_MAX), 640);
        let scale = 4.0;
        let room = DATA_BYTES_MAX - index_bytes(1.0) - scaled(CLIPS_BYTES, 1.0);
        let files = file_count(6.4e9, RUN_S * scale, 64, room);
        assert!(files > 1000 && files * data::FILE_BYTES <= room, "{files}");
    }

    #[test]
    fn figures_are_those_of_the_disk() {
        let said = "total 3000000\nbytes 2000000\nns 1000000000\nrequests 4\nlatency_ns 250000000\nwrong 0\n";
        let device =
            Counts { reads: 30, bytes_read: 3_300_000, continued: 12, ..Counts::default() };
        let run = Figures::parse(said).unwrap().run(4.0, &device);
        assert_eq!((run.mb_s, run.requests_per_s, run.response_s), (0.5, 1.0, 1.0));
        assert!((run.read_per_used - 1.1).abs() < 1e-9);
        assert!((run.device_requests_per_mb - 10.0).abs() < 1e-9);
        assert!((run.switches_per_mb - 6.0).abs() < 1e-9);
        assert_eq!(Figures::parse("bytes 1"), None);
    }

    /// The programs on resident data: they find what was written.
    #[test]
    fn programs_read_what_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        data::files(&root.join("files"), 40).unwrap();
        let handlers = HANDLERS.build(root).unwrap();
        // Two handlers; seconds uncounted and counted, µs of a think.
        let said = |workload: &str, warm_s: &str, run_s: &str, think_us: &str| {
            let output = Output::new().unwrap();
            let bytes = data::FILE_BYTES.to_string();
            let spec = CommandSpec::new(&handlers, "/")
                .arg(root.join("files"))
                .args(["40", &bytes, workload, "2", warm_s, run_s, "1", think_us]);
            let limit = Duration::from_secs(120);
            let ended = process::run(&mut spec.command(), &output, limit).unwrap();
            let printed = std::fs::read_to_string(output.path("stdout")).unwrap();
            (ended.status.code(), printed)
        };
        let (code, printed) = said("four-64kb", "0", "0.1", "0");
        assert_eq!(code, Some(0));
        assert!(Figures::parse(&printed).unwrap().bytes > 0 && printed.contains("wrong 0"));
        // There are no more files: what was read until then counts, but for as many
        // requests as there are handlers. Who finds the last file gone ends the run, and
        // with it what the other is at.
        let (code, printed) = said("one-rand", "0", "1000", "10000");
        assert_eq!(code, Some(0));
        let figures = Figures::parse(&printed).unwrap();
        let served = printed.lines().find_map(|line| line.strip_prefix("served ")).unwrap();
        let served: u64 = served.parse().unwrap();
        assert!((39..=40).contains(&served), "{printed}");
        assert!((1..=served - 2).contains(&figures.requests), "{printed}");
        assert!((65_536..=figures.total).contains(&figures.bytes), "{printed}");
        assert_eq!(said("one-whole", "1000", "1", "0").0, Some(3), "nothing was counted");
    }

    #[test]
    fn documents_are_words_of_the_ranks_that_queries_ask_for() {
        let directory = tempfile::tempdir().unwrap();
        let corpus = CORPUS.build(directory.path()).unwrap();
        let lines = |what: &str| {
            let output = Output::new().unwrap();
            let spec = CommandSpec::new(&corpus, "/").args([what, "200", "10", "1"]);
            let ended =
                process::run(&mut spec.command(), &output, Duration::from_secs(60)).unwrap();
            assert!(ended.status.success());
            std::fs::read_to_string(output.path("stdout")).unwrap()
        };
        let (documents, queries) = (lines("documents"), lines("queries"));
        assert_eq!((documents.lines().count(), queries.lines().count()), (200, 200));
        assert!(documents.starts_with("1\tk"), "{documents:.40}");
        for word in documents.split_whitespace().chain(queries.split_whitespace()) {
            if let Some(rank) = word.strip_prefix('k') {
                assert!((7..=115).contains(&rank.parse::<u32>().unwrap()), "{word}");
            }
        }
        let words = queries.split_whitespace().count();
        assert!((400..560).contains(&words), "2.4 words a query: {words} in 200");
    }
}
