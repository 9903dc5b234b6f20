//! `bench compiler`: the kernels of Mowry, Demke and Krieger (1996), compiled
//! with and without inserted prefetches and releases.

mod figures;
mod report;

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use runahead_compile::{Compiler, Language};

use crate::cgroup::Cgroup;
use crate::digest;
use crate::explicit::cache_directory;
use crate::ideal::Ideal;
use crate::launch::{self, Side};
use crate::neighbour::{self, Neighbour};
use crate::place::{Place, PlaceOptions};
use crate::process::{self, CommandSpec, Output};
use crate::progress::{self, Progress};
use crate::results::Machine;

use figures::demand;
pub use figures::{KernelResult, KernelResults, KernelRun};
use report::line;
pub use report::table;

const LIMIT: Duration = Duration::from_secs(900);
/// What the program beside the runs reads.
const SECOND: &str = "neighbour";
/// So many plain runs of a kernel are made again.
const PLAIN_KILLED_MAX: u32 = 10;
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

const SLOW_PROCESSOR: (&str, &str) =
    ("SlowProcessor.cpp", include_str!("../../../compiler/kernels/SlowProcessor.cpp"));

/// The order of the paper's Table 2 behind MATVEC, and two of them in Fortran. BUK and EMBAR
/// have as many keys and numbers as there.
const KERNELS: [Kernel; 11] = [
    kernel!("matvec", 3600, 900),
    kernel!("buk", 8_388_608, 500_000),
    kernel!("cgm", 60_000, 3000),
    kernel!("embar", 16_777_216, 1_000_000),
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
    /// Only with the data in memory and warm.
    pub warm: bool,
    /// Runs of each side.
    pub runs: usize,
    /// Where the data lies.
    pub place: PlaceOptions,
    /// Major version of LLVM; none: the newest that is there.
    pub llvm: Option<u32>,
    /// Cycles that every operation of the kernels takes longer.
    pub slower_cycles: u32,
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
    let scratch = process::scratch_directory()?;
    let slow = slow_processor(options.slower_cycles, &compiler, scratch.path())?;
    let place = Place::open(&options.place)?;
    let mut results = KernelResults {
        profile: place.name().to_owned(),
        channels: place.device().parallelism,
        time_factor: options.place.time_factor.unwrap_or(1.0),
        slower_cycles: options.slower_cycles,
        llvm: compiler.version,
        machine: Machine::here(),
        kernels: Vec::new(),
    };
    let wanted = |kernel: &&Kernel| {
        options.kernels.is_empty() || options.kernels.iter().any(|name| name == kernel.name)
    };
    for kernel in KERNELS.iter().filter(wanted) {
        let compilers = match (&fortran, kernel.fortran) {
            (_, None) => Compilers { c: &compiler, fortran: None, slow: &slow },
            (Ok(fortran), Some(_)) => {
                Compilers { c: &compiler, fortran: Some(fortran), slow: &slow }
            }
            (Err(error), Some(_)) if options.kernels.is_empty() => {
                progress::say(format_args!("left out {}: {error:#}", kernel.name));
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
    /// Options for both sides that make the processor slower; empty: as it is.
    slow: &'a [OsString],
}

/// The compiler's options for a processor on which an operation takes so many cycles
/// longer; none where it takes no longer.
fn slow_processor(cycles: u32, compiler: &Compiler, directory: &Path) -> Result<Vec<OsString>> {
    if cycles == 0 {
        return Ok(Vec::new());
    }
    let (name, text) = SLOW_PROCESSOR;
    fs::write(directory.join(name), text).with_context(|| format!("write {name}"))?;
    let define = format!("-DCYCLES={cycles}");
    let mut option = OsString::from("-fpass-plugin=");
    option.push(compiler.build_pass(directory, name, &[&define])?);
    Ok(vec![option])
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
            let words =
                ["-O2".into(), "-c".into(), source.into(), "-o".into(), object.clone().into()];
            compile(fortran, hinted, &[compilers.slow, &words].concat())?;
            arguments.extend(["-DKERNEL_FORTRAN".into(), object.into()]);
        }
        arguments.extend_from_slice(compilers.slow);
        arguments.extend(["-o".into(), program.into(), "-lm".into()]);
        compile(compilers.c, hinted, &arguments)?;
    }
    Ok(programs)
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
    let mut conditions = Vec::new();
    if !options.warm {
        conditions.push((Memory::Limited, None));
        if let Some(runahead) = options.speculate.as_deref() {
            conditions.push((Memory::Limited, Some(runahead)));
        }
        conditions.push((Memory::Cold, None));
    }
    conditions.push((Memory::Warm, None));
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
                let spec = spec(&programs[side], "run", &work);
                let (run, ended) = loop {
                    match subject.run(&spec, side == 1) {
                        Err(error)
                            if side == 0
                                && error.is::<Killed>()
                                && result.plain_killed < PLAIN_KILLED_MAX =>
                        {
                            result.plain_killed += 1;
                            progress
                                .print(&format!("{} plain: {error}; it is run again", kernel.name));
                        }
                        finished => break finished?,
                    }
                };
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
    result.ideal =
        (!options.warm).then(|| Ideal::of(&demand(&result.plain), &place.device(), cpus));
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

/// A run in limited memory was ended by SIGKILL. Where pages of a file are written through
/// a mapping until all of a memory cgroup is being written, version 1 of these kills (Linux
/// 6.18): reclaim, in a page fault of ext4, may not wait for what is being written.
#[derive(Debug, thiserror::Error)]
#[error("the kernel killed it (signal 9), in a cgroup for want of memory")]
struct Killed;

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
        let mut free = None;
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
        if self.memory == Memory::Limited && finished.status.signal() == Some(libc::SIGKILL) {
            return Err(Killed.into());
        }
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
            first_thread: finished.first_thread,
            major_faults: finished.usage.major_faults,
            device,
            free,
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
    ) -> Result<(process::Finished, Option<f64>)> {
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
                (samples > 0.0).then_some(sum / samples)
            });
            let finished =
                process::run_stopped(&mut self.cgroup.wrap_stopped(spec).command(), output, LIMIT);
            over.store(true, Ordering::Relaxed);
            let free = sampler.join().unwrap_or_default();
            Ok((finished?, free))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            warm: false,
            runs: 1,
            place: PlaceOptions::default(),
            llvm: None,
            slower_cycles: 0,
        };
        let error = super::run(&options, |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("nonesuch"), "{error}");
    }
}
