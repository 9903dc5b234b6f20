//! `bench sharing`: what four speculating programs do to a plain reader on
//! the same device. The reader is looked at while all of them run; beside it
//! the same four programs run plainly, in alternation, and plainly with their
//! data in memory: what they do to the reader then is done by their use of the
//! processors, which any way of making them faster brings with it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::apps::{self, Application, Case, Metadata, Setup};
use crate::explicit::cache_directory;
use crate::generate::scaled;
use crate::generate::tree::{self, TreeSpec};
use crate::launch::{self, Side};
use crate::place::{Place, PlaceOptions};
use crate::process::{self, CommandSpec, Output};
use crate::progress::Progress;
use crate::reader::{PlainReader, Seen};
use crate::results::Machine;
use crate::summary::{PairedRatio, Summary};
use crate::swap;
use crate::table::{plain_table, seconds};
use crate::tools::{COREUTILS, Tool};

/// Programs beside the reader.
pub const PROGRAMS: usize = 4;
/// The reader may lose so much of its throughput: at least this share stays.
pub const THROUGHPUT_MIN: f64 = 0.97;
/// The 99th percentile of its latency may be so many times as high.
pub const P99_MAX: f64 = 1.10;

/// What the third kind of runs is called.
const IN_MEMORY: &str = "in-memory";

const LIMIT: Duration = Duration::from_secs(600);

/// Files that the programs read, and bytes of all of them: enough that the
/// reader makes a thousand reads meanwhile, whose 99th percentile is not that
/// of the two slowest.
const FILES: u64 = 12_000;
const FILES_BYTES: u64 = 120_000_000;
/// Bytes of the file that the reader reads.
const READER_BYTES: u64 = 40 << 20;
/// Its name.
const READERS: &str = "reader.data";

/// What the programs and the reader read.
#[derive(Debug)]
struct SharingData;

impl Application for SharingData {
    fn name(&self) -> &'static str {
        "sharing"
    }

    fn about(&self) -> &'static str {
        "12000 small files, 120 MB, and one large one"
    }

    fn metadata(&self) -> &'static [Metadata] {
        &[Metadata::Cold]
    }

    fn tools(&self) -> &'static [Tool] {
        &[COREUTILS]
    }

    fn prepare(&self, setup: &Setup) -> Result<()> {
        let at = |name: &str| setup.directory.join(name);
        let files = scaled(FILES, setup.scale, PROGRAMS as u64);
        let bytes = scaled(FILES_BYTES, setup.scale, files);
        let spec = TreeSpec { name: "sharing", files, bytes, spread: 6.0, needle: None };
        let listed = tree::make(&at("tree"), &spec, setup.seed)?;
        let lines: Vec<_> = listed.iter().map(|path| format!("tree/{}", path.display())).collect();
        fs::write(at("tree.list"), lines.join("\n") + "\n").context("write tree.list")?;
        // Its blocks are only ever read past the cache: what they hold is the same.
        let block = vec![0x5a; 1 << 20];
        let mut file = File::create(at(READERS)).context("create the reader's file")?;
        for _ in 0..READER_BYTES >> 20 {
            file.write_all(&block).context("write the reader's file")?;
        }
        Ok(file.sync_all()?)
    }

    fn cases(&self, _setup: &Setup) -> Result<Vec<Box<dyn Case>>> {
        Ok(Vec::new())
    }
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct SharingOptions {
    /// Where the data lies.
    pub place: PlaceOptions,
    /// Pairs of runs, at least 2.
    pub runs: usize,
    /// Size of the data relative to the full one, above 0.
    pub scale: f64,
    /// Seed of the data and of the reader.
    pub seed: u64,
    /// The `runahead` executable.
    pub runahead: PathBuf,
    /// Further options of `runahead run`.
    pub run_options: Vec<String>,
    /// The programs have one processor and the reader all others, so that they
    /// share the device alone.
    pub apart: bool,
}

/// What the runs of one side showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SideResult {
    /// Until the last program ended, seconds, each run.
    pub elapsed_s: Vec<f64>,
    /// Throughput of the reader meanwhile, bytes per second.
    pub reader_bytes_per_s: Vec<f64>,
    /// 99th percentile of its latency, seconds.
    pub reader_p99_s: Vec<f64>,
}

/// The whole benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharingResults {
    /// Version of this format.
    pub version: u32,
    /// `sharing`.
    pub benchmark: String,
    /// The machine.
    pub machine: Machine,
    /// The place.
    pub profile: String,
    /// See [`SharingOptions::apart`].
    #[serde(default)]
    pub apart: bool,
    /// Beside plain programs.
    pub plain: SideResult,
    /// Beside programs under Runahead.
    pub runahead: SideResult,
    /// Beside plain programs whose data is in memory.
    #[serde(default)]
    pub in_memory: SideResult,
    /// Whether all outputs were those of the first plain run.
    pub outputs_equal: bool,
    /// Copies that the programs made in a run more, which is not timed; unknown if one
    /// does not tell.
    #[serde(default)]
    pub synchronizations: Option<f64>,
}

impl SharingResults {
    /// Throughput of the reader beside speculating programs over that beside
    /// plain ones, and likewise the 99th percentile and the programs' time.
    pub fn ratios(&self) -> Option<[PairedRatio; 3]> {
        self.ratios_of(&self.runahead)
    }

    fn ratios_of(&self, other: &SideResult) -> Option<[PairedRatio; 3]> {
        let of = |get: fn(&SideResult) -> &Vec<f64>| PairedRatio::of(get(other), get(&self.plain));
        Some([
            of(|side| &side.reader_bytes_per_s)?,
            of(|side| &side.reader_p99_s)?,
            of(|side| &side.elapsed_s)?,
        ])
    }

    fn speculated(&self) -> bool {
        self.synchronizations.is_some_and(|count| count > 0.0)
    }

    /// Whether the reader is spared, and not because nothing was done to it.
    pub fn pass(&self) -> bool {
        let spared = self.ratios().is_none_or(|[throughput, p99, _]| {
            throughput.value >= THROUGHPUT_MIN && p99.value <= P99_MAX
        });
        self.outputs_equal && spared && self.speculated()
    }
}

/// Measures.
///
/// # Errors
/// If something is missing or a run cannot be made.
pub fn run(options: &SharingOptions) -> Result<SharingResults> {
    ensure!(options.runs >= 2, "--runs {}: give at least 2", options.runs);
    let place = Place::open(&options.place)?;
    let cache = cache_directory()?;
    let setup = apps::prepare(&SharingData, &place, &cache, options.scale, options.seed)?;
    place.cold()?;
    let specs = programs(&setup.directory)?;
    let mut results = SharingResults {
        version: 1,
        benchmark: "sharing".into(),
        machine: Machine::here(),
        profile: place.name().into(),
        apart: options.apart,
        plain: SideResult::default(),
        runahead: SideResult::default(),
        in_memory: SideResult::default(),
        outputs_equal: true,
        synchronizations: None,
    };
    let progress = Progress::new(3 * options.runs as u64 + 1);
    let mut reference = None;
    for pair in 0..options.runs {
        let (plain, speculating) = (("plain", Side::Plain), ("speculating", Side::Runahead));
        let in_memory = (IN_MEMORY, Side::Plain);
        // Each of the two that are compared comes first every second time, and in
        // six rounds all three are in each place as often.
        let mut orders = [
            [plain, speculating, in_memory],
            [speculating, plain, in_memory],
            [in_memory, plain, speculating],
            [in_memory, speculating, plain],
            [plain, in_memory, speculating],
            [speculating, in_memory, plain],
        ]
        .into_iter()
        .cycle();
        for (name, side) in orders.nth(pair).into_iter().flatten() {
            progress.step(&format!("{name} {}", pair + 1));
            place.cold()?;
            if name == IN_MEMORY {
                read_all(&specs)?;
            }
            let ran = together(&specs, side, options, &setup.directory, false)?;
            let into = match (name, side) {
                (IN_MEMORY, _) => &mut results.in_memory,
                (_, Side::Plain) => &mut results.plain,
                _ => &mut results.runahead,
            };
            into.elapsed_s.push(ran.elapsed.as_secs_f64());
            into.reader_bytes_per_s.push(ran.seen.bytes_per_s());
            into.reader_p99_s.push(ran.seen.p99_ns() as f64 / 1e9);
            results.outputs_equal &= reference.get_or_insert_with(|| ran.said.clone()) == &ran.said;
        }
    }
    progress.step("counted");
    place.cold()?;
    let counted = together(&specs, Side::Runahead, options, &setup.directory, true)?;
    results.outputs_equal &= reference.is_none_or(|said| said == counted.said);
    results.synchronizations = counted.synchronizations;
    Ok(results)
}

/// Checksums of a quarter of the tree each.
fn programs(directory: &Path) -> Result<Vec<CommandSpec>> {
    let list = directory.join("tree.list");
    let text = fs::read_to_string(&list).with_context(|| format!("read {}", list.display()))?;
    let files: Vec<&str> = text.lines().collect();
    let quarters = files.chunks(files.len().div_ceil(PROGRAMS));
    Ok(quarters.map(|files| CommandSpec::new("sha256sum", directory).args(files)).collect())
}

/// Brings what the programs read into memory.
fn read_all(specs: &[CommandSpec]) -> Result<()> {
    for spec in specs {
        let finished = process::run(&mut spec.command(), &Output::new()?, LIMIT)?;
        ensure!(
            finished.status.success(),
            "{}: {}",
            spec.program.display(),
            process::describe(finished.status)
        );
    }
    Ok(())
}

/// A run of the programs beside the reader.
struct Together {
    /// Until the last program ended.
    elapsed: Duration,
    /// By the reader.
    seen: Seen,
    /// Fingerprints of what the programs printed.
    said: Vec<String>,
    /// Copies that they made, where they were counted.
    synchronizations: Option<f64>,
}

/// Runs the programs at the same time beside the reader, as a user starts them, or with
/// what they do counted.
fn together(
    specs: &[CommandSpec],
    side: Side,
    options: &SharingOptions,
    directory: &Path,
    counts: bool,
) -> Result<Together> {
    let apart = options.apart.then(Processors::divide).transpose()?;
    let reader = || PlainReader::start(&directory.join(READERS), options.seed);
    // Threads and processes have the processors of whoever starts them.
    let reader = match &apart {
        Some(apart) => apart.of_the_reader(reader)?,
        None => reader()?,
    };
    let started = Instant::now();
    let one = |spec: &CommandSpec| -> Result<(String, Option<f64>)> {
        let output = Output::new()?;
        let file = output.path("statistics.json");
        let statistics = counts.then_some(file.as_path());
        let wrapped = launch::wrap(spec, side, &options.runahead, &options.run_options, statistics);
        if let Some(apart) = &apart {
            apart.stay_with_programs()?;
        }
        let finished = process::run(&mut wrapped.command(), &output, LIMIT)?;
        let digest = launch::fingerprint(&finished, &output, String::new())?;
        let statistics = statistics.map(swap::wait_for).transpose()?;
        let made = statistics.and_then(|s| s.speculation.synchronizations.completed);
        Ok((format!("{digest:?}"), made))
    };
    let ran = std::thread::scope(|scope| {
        let running: Vec<_> = specs.iter().map(|spec| scope.spawn(|| one(spec))).collect();
        let ended = running.into_iter().map(|thread| {
            thread.join().map_err(|_| anyhow::anyhow!("a thread that runs a program panicked"))?
        });
        ended.collect::<Result<Vec<(String, Option<f64>)>>>()
    })?;
    let elapsed = started.elapsed();
    let (said, made): (Vec<String>, Vec<Option<f64>>) = ran.into_iter().unzip();
    let synchronizations = made.into_iter().sum();
    Ok(Together { elapsed, seen: reader.stop()?, said, synchronizations })
}

/// The processors of this process, divided among the programs and the reader.
struct Processors {
    all: CpuSet,
    programs: CpuSet,
    reader: CpuSet,
}

impl Processors {
    fn divide() -> Result<Self> {
        let all = sched_getaffinity(None).context("ask for the processors")?;
        let (mut programs, mut reader) = (CpuSet::new(), all);
        let first = (0..CpuSet::MAX_CPU).find(|&number| all.is_set(number));
        let first = first.context("no processor among those that can be chosen")?;
        programs.set(first);
        reader.unset(first);
        ensure!(reader.count() > 0, "--apart: there is only one processor");
        Ok(Self { all, programs, reader })
    }

    fn of_the_reader<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        sched_setaffinity(None, &self.reader).context("leave the programs' processor")?;
        let started = start();
        sched_setaffinity(None, &self.all).context("come back to all processors")?;
        started
    }

    /// For this thread and what it starts.
    fn stay_with_programs(&self) -> Result<()> {
        sched_setaffinity(None, &self.programs).context("stay on the programs' processor")
    }
}

/// The results for the reader of the table.
pub fn table(results: &SharingResults) -> String {
    let mut table = plain_table(&["beside", "programs take", "reader MB/s", "reader p99"]);
    let sides = [
        ("plain", &results.plain),
        ("speculating", &results.runahead),
        (IN_MEMORY, &results.in_memory),
    ];
    for (name, side) in sides {
        let median = |values: &[f64]| Summary::of(values).map_or(f64::NAN, |s| s.median);
        table.add_row([
            format!("{PROGRAMS} {name} programs"),
            seconds(median(&side.elapsed_s)),
            format!("{:.2}", median(&side.reader_bytes_per_s) / 1e6),
            seconds(median(&side.reader_p99_s)),
        ]);
    }
    let processors = results.ratios_of(&results.in_memory).map_or(
        String::new(),
        |[throughput, p99, elapsed]| {
            format!(
                "\nBeside the same programs with their data in memory, which take {:.3} times as \
                 long, it is {:.3} and {:.3} times: so much by their use of the processors.",
                elapsed.value, throughput.value, p99.value,
            )
        },
    );
    let verdict = results.ratios().map_or(String::new(), |[throughput, p99, elapsed]| {
        format!(
            "The reader's throughput is {:.3} times (promise: at least {THROUGHPUT_MIN}), its 99th \
             percentile {:.3} times (promise: at most {P99_MAX}); the programs take {:.3} times as \
             long.{}{}",
            throughput.value,
            p99.value,
            elapsed.value,
            if results.outputs_equal { "" } else { " OUTPUTS DIFFER." },
            if results.speculated() { "" } else { " NOTHING SPECULATED." }
        )
    });
    format!("{table}\n{verdict}{processors}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(throughput: f64, p99: f64) -> SharingResults {
        let side = |bytes, p99| SideResult {
            elapsed_s: vec![1.0; 3],
            reader_bytes_per_s: vec![bytes; 3],
            reader_p99_s: vec![p99; 3],
        };
        SharingResults {
            version: 1,
            benchmark: "sharing".into(),
            machine: Machine::default(),
            profile: "cloud".into(),
            apart: false,
            plain: side(1e6, 0.001),
            runahead: side(1e6 * throughput, 0.001 * p99),
            in_memory: side(9e5, 0.0013),
            outputs_equal: true,
            synchronizations: Some(4.0),
        }
    }

    #[test]
    fn the_reader_may_lose_little() {
        assert!(results(0.98, 1.05).pass());
        assert!(!results(0.9, 1.0).pass());
        assert!(!results(1.0, 1.2).pass());
        assert!(!SharingResults { outputs_equal: false, ..results(1.0, 1.0) }.pass());
        for synchronizations in [None, Some(0.0)] {
            let idle = SharingResults { synchronizations, ..results(1.0, 1.0) };
            assert!(!idle.pass());
            assert!(self::table(&idle).contains("NOTHING SPECULATED"));
        }
        let table = table(&results(0.95, 1.2));
        assert!(table.contains("0.950 times"), "{table}");
        assert!(table.contains("0.900 and 1.300 times"), "{table}");
    }
}
