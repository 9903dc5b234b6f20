//! `bench compiler`: the kernels of Mowry, Demke and Krieger (1996), compiled
//! with and without inserted prefetches and releases.

mod report;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use runahead_compile::{Compiler, Language};
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::device_counts::Counts;
use crate::digest;
use crate::explicit::cache_directory;
use crate::ideal::{Demand, Ideal};
use crate::launch::{self, Side};
use crate::neighbour::{self, Beside, Neighbour};
use crate::place::{Place, PlaceOptions};
use crate::process::{self, CommandSpec, Output};
use crate::progress::Progress;
use crate::results::Machine;
use crate::summary::{quantile, sorted};
use crate::table::{seconds, times};

pub use report::table;

const LIMIT: Duration = Duration::from_secs(900);
/// What the program beside the runs reads.
const SECOND: &str = "neighbour";
/// Between two looks at the memory in use.
const SAMPLE: Duration = Duration::from_millis(20);

macro_rules! kernel {
    ($name:literal, $size:literal, $small:literal) => {
        Kernel {
            name: $name,
            source: include_str!(concat!("../../../compiler/kernels/", $name, ".c")),
            fortran: None,
            size: $size,
            small: $small,
        }
    };
    ($name:literal in Fortran as $full_name:literal, $size:literal, $small:literal) => {
        Kernel {
            name: $full_name,
            fortran: Some(include_str!(concat!("../../../compiler/kernels/", $name, ".f90"))),
            ..kernel!($name, $size, $small)
        }
    };
}

/// A kernel, and the size to run it in.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    name: &'static str,
    source: &'static str,
    /// What of it is written in Fortran.
    fortran: Option<&'static str>,
    size: u32,
    small: u32,
}

const HEADERS: [(&str, &str); 2] = [
    ("kernel.h", include_str!("../../../compiler/kernels/kernel.h")),
    ("grid.h", include_str!("../../../compiler/kernels/grid.h")),
];

/// The order of the paper's Table 2 behind MATVEC, and two of them in Fortran.
const KERNELS: [Kernel; 11] = [
    kernel!("matvec", 3600, 900),
    kernel!("buk", 8_000_000, 500_000),
    kernel!("cgm", 60_000, 3000),
    kernel!("embar", 13_000_000, 1_000_000),
    kernel!("fftpde", 128, 64),
    kernel!("mgrid", 128, 64),
    kernel!("applu", 88, 40),
    kernel!("appsp", 88, 40),
    kernel!("appbt", 88, 40),
    kernel!("cgm" in Fortran as "cgm-fortran", 60_000, 3000),
    kernel!("mgrid" in Fortran as "mgrid-fortran", 128, 64),
];

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct CompilerOptions {
    /// Names of kernels; empty: all.
    pub kernels: Vec<String>,
    /// Data relative to the memory, above 0.
    pub ratio: f64,
    /// Small data.
    pub small: bool,
    /// Problem size of every kernel; none: its own.
    pub size: Option<u32>,
    /// Memory, bytes; none: by `ratio`.
    pub memory_bytes: Option<u64>,
    /// Share of the memory, above 0, that a plain program beside each run reads again
    /// and again; none: there is no such program.
    pub neighbour: Option<f64>,
    /// The runahead executable, to measure both programs under speculation too.
    pub speculate: Option<PathBuf>,
    /// Runs of each side.
    pub runs: usize,
    /// Where the data lies.
    pub place: PlaceOptions,
    /// Major version of LLVM; none: the newest that is there.
    pub llvm: Option<u32>,
}

/// One run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KernelRun {
    /// Wall-clock time, seconds.
    pub elapsed_s: f64,
    /// User and system time, seconds.
    pub cpu_s: f64,
    /// System time alone, seconds.
    #[serde(default)]
    pub system_s: f64,
    /// Major faults.
    pub major_faults: u64,
    /// What the device did.
    pub device: Counts,
    /// Share of the memory that was free, mean over the run, 0 to 1.
    pub free: f64,
    /// What the plain program beside it saw, where there was one.
    #[serde(default)]
    pub beside: Option<Beside>,
    /// What the run-time layer counted; null where there is none.
    pub runtime: serde_json::Value,
}

/// One kernel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KernelResult {
    /// Its name.
    pub name: String,
    /// Bytes of data.
    pub data_bytes: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Were outputs and files of all runs the same?
    pub equal: bool,
    /// Compiled as usual.
    pub plain: Vec<KernelRun>,
    /// With prefetches and releases.
    pub hinted: Vec<KernelRun>,
    /// Compiled as usual, under speculation; empty where not asked for.
    #[serde(default)]
    pub speculated: Vec<KernelRun>,
    /// With prefetches and releases, under speculation.
    #[serde(default)]
    pub both: Vec<KernelRun>,
    /// With memory for all, none of it read yet, compiled as usual.
    #[serde(default)]
    pub plain_cold: Vec<KernelRun>,
    /// The same with prefetches and releases.
    #[serde(default)]
    pub hinted_cold: Vec<KernelRun>,
    /// In memory and warm, compiled as usual.
    pub plain_warm: Vec<KernelRun>,
    /// In memory and warm, with prefetches and releases.
    pub hinted_warm: Vec<KernelRun>,
    /// The ideal of the plain run: what it read and wrote, positioned as it
    /// was, on all channels at a time.
    pub ideal: Option<Ideal>,
}

/// All kernels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KernelResults {
    /// Profile of the device.
    pub profile: String,
    /// Channels of the device, for its utilisation.
    pub channels: f64,
    /// Factor on the device's times.
    pub time_factor: f64,
    /// Major version of LLVM.
    pub llvm: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// The kernels.
    pub kernels: Vec<KernelResult>,
}

fn median(runs: &[KernelRun], quantity: impl Fn(&KernelRun) -> f64) -> f64 {
    let values: Vec<f64> = runs.iter().map(quantity).collect();
    quantile(&sorted(&values), 0.5).unwrap_or(f64::NAN)
}

impl KernelResult {
    /// How many times faster with prefetches.
    pub fn speedup(&self) -> f64 {
        median(&self.plain, |run| run.elapsed_s) / median(&self.hinted, |run| run.elapsed_s)
    }

    /// (plain − hinted) / (plain − ideal): the share of the time that an ideal
    /// prefetcher could remove, which asks for the same in time. Above 1 where
    /// larger requests, or fewer, need less positioning than plain's.
    pub fn removed(&self) -> f64 {
        self.removed_of(self.ideal.map_or(f64::NAN, |ideal| ideal.seconds))
    }

    /// The same where nothing had to be positioned: of what the bandwidth and
    /// the CPU leave.
    pub fn removed_at_full_rate(&self) -> f64 {
        self.removed_of(self.ideal.map_or(f64::NAN, |ideal| ideal.cpu_s.max(ideal.bandwidth_s)))
    }

    fn removed_of(&self, ideal_s: f64) -> f64 {
        let plain = median(&self.plain, |run| run.elapsed_s);
        (plain - median(&self.hinted, |run| run.elapsed_s)) / (plain - ideal_s)
    }

    /// Share of the bytes read that were prefetched (Figure 4(a)'s coverage).
    pub fn coverage(&self) -> f64 {
        const PAGE: f64 = 4096.0;
        let share =
            |run: &KernelRun| pages(run, "issued") * PAGE / run.device.bytes_read.max(1) as f64;
        median(&self.hinted, share).min(1.0)
    }

    /// Share of the prefetches inserted that the run-time layer dropped as
    /// unnecessary (Figure 4(b)).
    pub fn dropped(&self) -> f64 {
        median(&self.hinted, |run| pages(run, "filtered") / pages(run, "hinted").max(1.0))
    }

    /// Share of the time that would be left of the plain run's waiting that is
    /// gone: (stall of plain − stall of hinted) / stall of plain, where the
    /// stall is elapsed minus user and system time (Figure 3(b)).
    pub fn stall_removed(&self) -> f64 {
        let stall = |run: &KernelRun| (run.elapsed_s - run.cpu_s).max(0.0);
        let plain = median(&self.plain, stall);
        (plain - median(&self.hinted, stall)) / plain
    }

    /// User time relative to plain.
    pub fn user(&self) -> f64 {
        let user = |run: &KernelRun| run.cpu_s - run.system_s;
        median(&self.hinted, user) / median(&self.plain, user)
    }

    /// How many times faster with memory for all, none of it read yet.
    pub fn cold(&self) -> f64 {
        median(&self.plain_cold, |run| run.elapsed_s)
            / median(&self.hinted_cold, |run| run.elapsed_s)
    }

    /// Elapsed time in memory, warm, relative to plain.
    pub fn warm(&self) -> f64 {
        median(&self.hinted_warm, |run| run.elapsed_s)
            / median(&self.plain_warm, |run| run.elapsed_s)
    }
}

/// Mean time of a read of the plain program beside these runs, seconds.
fn beside(runs: &[KernelRun]) -> f64 {
    median(runs, |run| run.beside.map_or(f64::NAN, |beside| beside.mean_s))
}

fn pages(run: &KernelRun, name: &str) -> f64 {
    run.runtime["pages"][name].as_f64().unwrap_or(0.0)
}

/// Measures kernels. `so_far` is given the results after each.
///
/// # Errors
/// If something is missing or a run cannot be made.
pub fn run(
    options: &CompilerOptions,
    mut so_far: impl FnMut(&KernelResults) -> Result<()>,
) -> Result<KernelResults> {
    ensure!(
        options.ratio.is_finite() && options.ratio > 0.0,
        "--ratio {}: give a factor above 0",
        options.ratio
    );
    if let Some(share) = options.neighbour {
        ensure!(
            share.is_finite() && share > 0.0 && share < 1.0,
            "--neighbour {share}: give a share of the memory between 0 and 1"
        );
    }
    for name in &options.kernels {
        if KERNELS.iter().all(|kernel| kernel.name != name) {
            let known: Vec<&str> = KERNELS.iter().map(|kernel| kernel.name).collect();
            bail!("there is no kernel {name}; there are {}", known.join(", "));
        }
    }
    let cache = cache_directory()?;
    let cache = cache.with_file_name("compiler");
    let compiler = Compiler::find(Language::C, options.llvm, &cache)?;
    let fortran = Compiler::find(Language::Fortran, Some(compiler.version), &cache);
    let place = Place::open(&options.place)?;
    let mut results = KernelResults {
        profile: place.name().to_owned(),
        channels: place.device().parallelism,
        time_factor: options.place.time_factor.unwrap_or(1.0),
        llvm: compiler.version,
        machine: Machine::here(),
        kernels: Vec::new(),
    };
    let wanted = |kernel: &&Kernel| {
        options.kernels.is_empty() || options.kernels.iter().any(|name| name == kernel.name)
    };
    for kernel in KERNELS.iter().filter(wanted) {
        let compilers = match (&fortran, kernel.fortran) {
            (_, None) => Compilers { c: &compiler, fortran: None },
            (Ok(fortran), Some(_)) => Compilers { c: &compiler, fortran: Some(fortran) },
            (Err(error), Some(_)) if options.kernels.is_empty() => {
                eprintln!("left out {}: {error:#}", kernel.name);
                continue;
            }
            (Err(error), Some(_)) => bail!("the kernel {}: {error:#}", kernel.name),
        };
        let result = measure(kernel, options, compilers, &place)
            .with_context(|| format!("the kernel {}", kernel.name))?;
        results.kernels.push(result);
        so_far(&results)?;
    }
    Ok(results)
}

/// What a kernel is compiled with.
#[derive(Clone, Copy)]
struct Compilers<'a> {
    c: &'a Compiler,
    fortran: Option<&'a Compiler>,
}

/// Compiles a kernel both ways: as usual, and with the pass.
fn build(kernel: &Kernel, compilers: Compilers, directory: &Path) -> Result<[PathBuf; 2]> {
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok::<_, anyhow::Error>(path)
    };
    let source = write(&format!("{}.c", kernel.name), kernel.source)?;
    for (name, text) in HEADERS {
        write(name, text)?;
    }
    let compile = |compiler: &Compiler, hinted: bool, arguments: &[OsString]| {
        let mut command = if hinted {
            compiler.command(arguments, false)
        } else {
            let mut command = std::process::Command::new(&compiler.program);
            command.args(arguments);
            command
        };
        let output = command
            .env("LC_ALL", "C")
            .current_dir(directory)
            .output()
            .context("start the compiler")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} does not compile:\n{errors}", kernel.name);
        Ok(())
    };
    let programs =
        ["plain", "hinted"].map(|side| directory.join(format!("{}.{side}", kernel.name)));
    for (program, hinted) in programs.iter().zip([false, true]) {
        let mut arguments: Vec<OsString> =
            vec!["-O2".into(), "-std=gnu11".into(), source.clone().into()];
        if let (Some(text), Some(fortran)) = (kernel.fortran, compilers.fortran) {
            let object = program.with_added_extension("o");
            let source = write(&format!("{}.f90", kernel.name), text)?;
            compile(
                fortran,
                hinted,
                &["-O2".into(), "-c".into(), source.into(), "-o".into(), object.clone().into()],
            )?;
            arguments.extend(["-DKERNEL_FORTRAN".into(), object.into()]);
        }
        arguments.extend(["-o".into(), program.into(), "-lm".into()]);
        compile(compilers.c, hinted, &arguments)?;
    }
    Ok(programs)
}

fn measure(
    kernel: &Kernel,
    options: &CompilerOptions,
    compilers: Compilers,
    place: &Place,
) -> Result<KernelResult> {
    let scratch = process::scratch_directory()?;
    let programs = build(kernel, compilers, scratch.path())?;
    let size = options.size.unwrap_or(if options.small { kernel.small } else { kernel.size });
    let original = place.root().join(format!("{}.original", kernel.name));
    let work = place.root().join(format!("{}.data", kernel.name));
    let spec = |program: &Path, mode: &str, file: &Path| {
        CommandSpec::new(program, "/").arg(mode).arg(file).arg(size.to_string())
    };
    place.untimed(|| {
        let output = Output::new()?;
        let made =
            process::run(&mut spec(&programs[0], "init", &original).command(), &output, LIMIT)?;
        ensure!(
            made.status.success(),
            "the data cannot be made: {}",
            process::describe(made.status)
        );
        Ok(())
    })?;
    let data_bytes = fs::metadata(&original).context("look at the data")?.len();
    let memory_bytes = options.memory_bytes.unwrap_or((data_bytes as f64 / options.ratio) as u64);
    let mut result = KernelResult {
        name: kernel.name.into(),
        data_bytes,
        memory_bytes,
        equal: true,
        ..KernelResult::default()
    };
    let cgroup = Cgroup::new("runahead-bench-compiler")?;
    let mut first: Option<(String, String)> = None;
    let mut conditions = vec![(Memory::Limited, None)];
    if let Some(runahead) = options.speculate.as_deref() {
        conditions.push((Memory::Limited, Some(runahead)));
    }
    conditions.extend([(Memory::Cold, None), (Memory::Warm, None)]);
    let neighbour = options
        .neighbour
        .map(|share| second(place, (share * memory_bytes as f64) as u64, scratch.path()))
        .transpose()?;
    let progress = Progress::new((conditions.len() * 2 * options.runs) as u64);
    for number in 0..options.runs {
        for &(memory, under) in &conditions {
            // Which side goes first alternates.
            for side in [number % 2, 1 - number % 2] {
                progress.note(&format!(
                    "{} {}{}{}",
                    kernel.name,
                    ["plain", "hinted"][side],
                    match memory {
                        Memory::Limited => "",
                        Memory::Cold => ", with memory for all",
                        Memory::Warm => ", in memory",
                    },
                    if under.is_some() { ", under speculation" } else { "" }
                ));
                let subject = Subject {
                    place,
                    cgroup: &cgroup,
                    memory,
                    memory_bytes,
                    neighbour: neighbour.as_ref().filter(|_| memory == Memory::Limited),
                    original: &original,
                    work: &work,
                    under,
                };
                let (run, ended) = subject.run(&spec(&programs[side], "run", &work), side == 1)?;
                let is_equal = first.get_or_insert_with(|| ended.clone()) == &ended;
                result.equal &= is_equal;
                let runs = match (memory, under.is_some(), side) {
                    (Memory::Limited, false, 0) => &mut result.plain,
                    (Memory::Limited, false, _) => &mut result.hinted,
                    (Memory::Limited, true, 0) => &mut result.speculated,
                    (Memory::Limited, true, _) => &mut result.both,
                    (Memory::Cold, _, 0) => &mut result.plain_cold,
                    (Memory::Cold, ..) => &mut result.hinted_cold,
                    (Memory::Warm, _, 0) => &mut result.plain_warm,
                    (Memory::Warm, ..) => &mut result.hinted_warm,
                };
                runs.push(run);
            }
        }
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    result.ideal = Some(Ideal::of(&demand(&result.plain), &place.device(), cpus));
    let second = neighbour.is_some().then(|| place.root().join(SECOND));
    for file in [Some(original), Some(work), second].into_iter().flatten() {
        fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))?;
    }
    progress.print(&line(&result));
    Ok(result)
}

/// Makes the file of the program beside the runs.
fn second(place: &Place, bytes: u64, scratch: &Path) -> Result<Second> {
    let program = neighbour::PROGRAM.build(&cache_directory()?)?;
    let file = place.root().join(SECOND);
    place.untimed(|| neighbour::noise(&file, bytes))?;
    let report = scratch.join("neighbour");
    Ok(Second { spec: CommandSpec::new(program, "/").arg(file).arg(&report), report })
}

/// What plain runs asked of the device: what they wrote too, since the disks
/// position themselves for that as well.
fn demand(plain: &[KernelRun]) -> Demand {
    let busy_s = |run: &KernelRun| run.device.busy_ns.map_or(f64::NAN, |ns| ns as f64 / 1e9);
    let busy_s = median(plain, busy_s);
    Demand {
        cpu_s: median(plain, |run| run.cpu_s),
        device_cpu_s: median(plain, |run| run.device.device_cpu_ns as f64 / 1e9),
        reads: median(plain, |run| (run.device.reads + run.device.writes) as f64),
        bytes: median(plain, |run| (run.device.bytes_read + run.device.bytes_written) as f64),
        busy_s: (!busy_s.is_nan()).then_some(busy_s),
    }
}

/// The memory that a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// Less than its data.
    Limited,
    /// As much as it wants, with nothing in it yet.
    Cold,
    /// As much as it wants, with all of its data.
    Warm,
}

/// The program beside the runs, its file made, and where its report goes.
struct Second {
    spec: CommandSpec,
    report: PathBuf,
}

/// What the runs of a kernel have in common.
struct Subject<'a> {
    place: &'a Place,
    cgroup: &'a Cgroup,
    memory: Memory,
    /// What there is of it where it is limited.
    memory_bytes: u64,
    neighbour: Option<&'a Second>,
    original: &'a Path,
    work: &'a Path,
    /// The runahead executable, to run under speculation.
    under: Option<&'a Path>,
}

impl Subject<'_> {
    /// One run on fresh data: what it took, and fingerprints of what it
    /// printed and left.
    fn run(&self, spec: &CommandSpec, hinted: bool) -> Result<(KernelRun, (String, String))> {
        let output = Output::new()?;
        let statistics = output.path("statistics");
        let spec =
            if hinted { spec.clone().env("RUNAHEAD_CC_STATS", &statistics) } else { spec.clone() };
        let spec = match self.under {
            Some(runahead) => launch::wrap(
                &spec,
                Side::Runahead,
                runahead,
                &[],
                Some(&output.path("speculation")),
            ),
            None => spec,
        };
        self.place.untimed(|| {
            fs::copy(self.original, self.work).context("copy the data")?;
            Ok(())
        })?;
        self.place.cold()?;
        let mut before = self.place.counts()?;
        let mut beside = None;
        let mut free = f64::NAN;
        let finished = match self.memory {
            Memory::Limited => {
                self.cgroup.limit(Some(self.memory_bytes))?;
                let start = |second: &Second| Neighbour::start(&self.cgroup.wrap(&second.spec));
                let neighbour = self.neighbour.map(start).transpose()?;
                before = self.place.counts()?;
                let finished;
                (finished, free) = self.sampled(&spec, self.memory_bytes, &output)?;
                if let (Some(neighbour), Some(second)) = (neighbour, self.neighbour) {
                    beside = Some(neighbour.stop(&second.report)?);
                }
                self.cgroup.limit(None)?;
                finished
            }
            Memory::Cold => process::run(&mut spec.command(), &output, LIMIT)?,
            Memory::Warm => self.place.untimed(|| {
                fs::read(self.work).context("bring the data into memory")?;
                process::run(&mut spec.command(), &output, LIMIT)
            })?,
        };
        ensure!(finished.status.success(), "it failed: {}", process::describe(finished.status));
        let device = self.place.counts()?.since(&before);
        let ended = self.place.untimed(|| {
            Ok((digest::of_file(&output.path("stdout"))?, digest::of_file(self.work)?))
        })?;
        let runtime = fs::read_to_string(&statistics)
            .ok()
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        let run = KernelRun {
            elapsed_s: finished.elapsed_s,
            cpu_s: finished.usage.cpu_s,
            system_s: finished.usage.system_s,
            major_faults: finished.usage.major_faults,
            device,
            free: if free.is_nan() { 0.0 } else { free },
            beside,
            runtime,
        };
        Ok((run, ended))
    }

    /// A run in the cgroup, and the mean share of its memory that was free.
    fn sampled(
        &self,
        spec: &CommandSpec,
        bytes: u64,
        output: &Output,
    ) -> Result<(process::Finished, f64)> {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sampler = scope.spawn(|| {
                let (mut sum, mut samples) = (0.0, 0.0);
                while !over.load(Ordering::Relaxed) {
                    if let Ok(used) = self.cgroup.usage() {
                        sum += 1.0 - used as f64 / bytes as f64;
                        samples += 1.0;
                    }
                    std::thread::sleep(SAMPLE);
                }
                if samples > 0.0 { sum / samples } else { f64::NAN }
            });
            let finished = process::run(&mut self.cgroup.wrap(spec).command(), output, LIMIT);
            over.store(true, Ordering::Relaxed);
            let free = sampler.join().unwrap_or(f64::NAN);
            Ok((finished?, free))
        })
    }
}

fn line(kernel: &KernelResult) -> String {
    format!(
        "{:8} {} → {}, {}{}",
        kernel.name,
        seconds(median(&kernel.plain, |run| run.elapsed_s)),
        seconds(median(&kernel.hinted, |run| run.elapsed_s)),
        times(kernel.speedup()),
        if kernel.equal { "" } else { " RESULTS DIFFER" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ideal::Bound;

    fn run(elapsed_s: f64, issued: u64, bytes_read: u64) -> KernelRun {
        KernelRun {
            elapsed_s,
            cpu_s: 1.0,
            device: Counts { bytes_read, ..Counts::default() },
            runtime: serde_json::json!({"pages": {"issued": issued, "hinted": 100, "filtered": 90}}),
            ..KernelRun::default()
        }
    }

    #[test]
    fn what_is_derived_from_the_runs() {
        let kernel = KernelResult {
            plain: vec![run(10.0, 0, 0); 3],
            hinted: vec![run(4.0, 3, 4 * 4096); 3],
            plain_cold: vec![run(6.0, 0, 0)],
            hinted_cold: vec![run(3.0, 0, 0)],
            plain_warm: vec![run(1.0, 0, 0)],
            hinted_warm: vec![run(1.02, 0, 0)],
            ideal: Some(Ideal {
                seconds: 2.0,
                cpu_s: 0.5,
                bandwidth_s: 1.0,
                latency_s: 2.0,
                bound: Bound::Latency,
            }),
            ..KernelResult::default()
        };
        assert_eq!(kernel.speedup(), 2.5);
        assert_eq!(kernel.removed(), 0.75);
        assert!((kernel.removed_at_full_rate() - 6.0 / 9.0).abs() < 1e-9);
        assert_eq!(kernel.coverage(), 0.75);
        assert_eq!(kernel.dropped(), 0.9);
        assert_eq!((kernel.cold(), kernel.warm()), (2.0, 1.02));
        assert!(line(&kernel).contains("2.50×"));
    }

    #[test]
    fn writes_are_positioned_too() {
        let mut run = run(10.0, 0, 4096);
        run.device = Counts {
            reads: 1,
            bytes_read: 4096,
            writes: 3,
            bytes_written: 3 * 4096,
            busy_ns: Some(48_000_000),
            ..Counts::default()
        };
        let demand = demand(&[run]);
        assert_eq!((demand.reads, demand.bytes), (4.0, 4.0 * 4096.0));
        assert_eq!(demand.busy_s, Some(0.048));
    }

    #[test]
    fn an_unknown_kernel_is_named() {
        let options = CompilerOptions {
            kernels: vec!["nonesuch".into()],
            ratio: 2.2,
            small: true,
            size: None,
            memory_bytes: None,
            neighbour: None,
            speculate: None,
            runs: 1,
            place: PlaceOptions::default(),
            llvm: None,
        };
        let error = super::run(&options, |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("nonesuch"), "{error}");
    }
}
