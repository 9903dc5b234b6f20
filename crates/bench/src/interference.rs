//! `bench interference`: what speculation does to a program's own calls while
//! every processor is busy with other work.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::busy::Busy;
use crate::c_program::CProgram;
use crate::explicit::cache_directory;
use crate::generate::{records, scaled};
use crate::launch::{Launch, Side};
use crate::place::{Place, PlaceOptions};
use crate::process::{self, CommandSpec};
use crate::progress::Progress;
use crate::results::Machine;
use crate::summary::{Latencies, Summary};
use crate::table::{plain_table, seconds};
use crate::tools::{GCC, ensure_installed};

/// No call may be more than this slower than plain's.
pub const SLOWER_MAX_NS: u64 = 5_000_000;

/// Records of the file: 64 MiB.
const RECORDS: u64 = 4096;
/// Cold reads of each program.
const READS: u64 = 1200;
const LIMIT: Duration = Duration::from_secs(600);

const HEADERS: &[(&str, &str)] =
    &[("common.h", include_str!("../../../bench/interference/common.h"))];

/// One program: which calls it measures.
#[derive(Debug)]
pub struct Interference {
    /// Name of the program.
    pub name: &'static str,
    /// What it measures.
    pub calls: &'static str,
    program: CProgram,
    /// Whether it reads every record instead of some pages.
    reads_records: bool,
}

macro_rules! interference {
    ($name:literal, $calls:literal, $reads_records:literal) => {
        Interference {
            name: $name,
            calls: $calls,
            program: CProgram {
                name: $name,
                source: include_str!(concat!("../../../bench/interference/", $name, ".c")),
                headers: HEADERS,
            },
            reads_records: $reads_records,
        }
    };
}

/// The programs.
pub const ALL: &[Interference] = &[
    interference!("mmap", "mmap + munmap, by the stalling thread and by another, and brk", false),
    interference!("fork", "fork", false),
    interference!("shared_read", "read through a descriptor shared by four processes", true),
    interference!("exec_locks", "execve holding a POSIX lock and a flock", false),
    interference!("faults", "page faults of a second thread", false),
];

/// How to measure.
#[derive(Clone, Debug)]
pub struct InterferenceOptions {
    /// Names of programs; empty: all.
    pub programs: Vec<String>,
    /// Where the file lies.
    pub place: PlaceOptions,
    /// Runs of each side.
    pub runs: usize,
    /// Number of reads relative to the full one, above 0.
    pub scale: f64,
    /// Install what is missing.
    pub install: bool,
    /// The `runahead` executable.
    pub runahead: PathBuf,
    /// Further options of `runahead run`.
    pub run_options: Vec<String>,
    /// Leave the processors alone.
    pub idle: bool,
}

/// What one side's runs showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SideResult {
    /// Latencies of the calls of all runs.
    pub latencies: Latencies,
    /// Elapsed time of each run, seconds.
    pub elapsed_s: Vec<f64>,
    /// Sums of what went wrong: `torn`, `lost`, `strange`.
    pub wrong: BTreeMap<String, u64>,
    /// Synchronisations that made a speculative process; unknown if a run
    /// does not tell.
    pub synchronizations: Option<f64>,
}

/// What one program showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// Name of the program.
    pub name: String,
    /// What it measures.
    pub calls: String,
    /// Plain runs.
    pub plain: SideResult,
    /// Runs under Runahead.
    pub runahead: SideResult,
    /// Whether each output was the first plain run's.
    pub outputs_equal: bool,
}

impl CaseResult {
    /// How much the slowest call is slower than plain's slowest, nanoseconds.
    pub fn slower_ns(&self) -> u64 {
        self.runahead.latencies.max_ns.saturating_sub(self.plain.latencies.max_ns)
    }

    /// Why it fails, in words; empty: it passes.
    pub fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        if self.slower_ns() > SLOWER_MAX_NS {
            failures.push(format!("a call {} slower", seconds(self.slower_ns() as f64 / 1e9)));
        }
        for (what, count) in &self.runahead.wrong {
            if *count > self.plain.wrong.get(what).copied().unwrap_or(0) {
                failures.push(format!("{count} {what}"));
            }
        }
        if !self.outputs_equal {
            failures.push("output differs".into());
        }
        failures
    }
}

/// The whole benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterferenceResults {
    /// Version of this format.
    pub version: u32,
    /// `interference`.
    pub benchmark: String,
    /// The machine.
    pub machine: Machine,
    /// The place.
    pub profile: String,
    /// Spinning processes beside the program.
    pub busy_processes: usize,
    /// The programs.
    pub cases: Vec<CaseResult>,
}

impl InterferenceResults {
    /// Whether no program fails.
    pub fn pass(&self) -> bool {
        self.cases.iter().all(|case| case.failures().is_empty())
    }
}

/// Measures the programs.
///
/// # Errors
/// If something is missing or a run cannot be made.
pub fn run(options: &InterferenceOptions) -> Result<InterferenceResults> {
    ensure!(options.runs > 0, "--runs 0: give at least 1");
    let unknown = options.programs.iter().find(|name| ALL.iter().all(|one| one.name != **name));
    if let Some(name) = unknown {
        let known: Vec<_> = ALL.iter().map(|one| one.name).collect();
        anyhow::bail!("no program {name:?}: give some of {}", known.join(", "));
    }
    ensure_installed(&[GCC], options.install)?;
    let cache = cache_directory()?;
    let place = Place::open(&options.place)?;
    let file = place.store().join("runahead-bench-records");
    place.untimed(|| records::make(&file, RECORDS))?;
    let file = place.root().join("runahead-bench-records");
    let busy = if options.idle { None } else { Some(Busy::start()?) };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut results = InterferenceResults {
        version: 1,
        benchmark: "interference".into(),
        machine: Machine::here(),
        profile: place.name().into(),
        busy_processes: if busy.is_some() { cpus } else { 0 },
        cases: Vec::new(),
    };
    let wanted =
        |one: &&Interference| options.programs.is_empty() || is_in(&options.programs, one.name);
    for one in ALL.iter().filter(wanted) {
        let program = one.program.build(&cache)?;
        let case = measure(one, &program, &file, &place, options)
            .with_context(|| format!("the program {}", one.name))?;
        results.cases.push(case);
    }
    drop(busy);
    let _ = fs::remove_file(&file);
    Ok(results)
}

fn is_in(names: &[String], name: &str) -> bool {
    names.iter().any(|one| one == name)
}

fn measure(
    one: &Interference,
    program: &Path,
    file: &Path,
    place: &Place,
    options: &InterferenceOptions,
) -> Result<CaseResult> {
    let progress = Progress::new(2 * options.runs as u64);
    let reads = if one.reads_records { RECORDS } else { scaled(READS, options.scale, 16) };
    let mut sides = [(Side::Plain, Gathered::default()), (Side::Runahead, Gathered::default())];
    let mut first_output = None;
    let mut outputs_equal = true;
    for index in 0..options.runs {
        for side_index in if index % 2 == 0 { [0, 1] } else { [1, 0] } {
            let (side, gathered) = &mut sides[side_index];
            progress.step(&format!("{} {side:?} {}", one.name, index + 1));
            place.cold()?;
            let scratch = process::scratch_directory()?;
            let samples = scratch.path().join("samples");
            let spec =
                CommandSpec::new(program, "/").arg(file).arg(reads.to_string()).arg(&samples);
            let launch = Launch {
                side: *side,
                runahead: &options.runahead,
                stranger: None,
                run_options: &options.run_options,
                place,
                limit: LIMIT,
            };
            let measured = launch.run(&spec, &[])?;
            let said = fs::read_to_string(measured.output.path("stdout"))?;
            let complaint = fs::read_to_string(measured.output.path("stderr"))?;
            ensure!(
                measured.digest.status == "exit 0",
                "{side:?}: {}: {complaint}",
                measured.digest.status
            );
            outputs_equal &= first_output.get_or_insert_with(|| said.clone()) == &said;
            gathered.add(&samples, &said, measured.elapsed_s)?;
            gathered
                .synchronizations
                .push(measured.statistics.and_then(|s| s.speculation.synchronizations.completed));
        }
    }
    let [plain, runahead] = sides.map(|(_, gathered)| gathered.sum_up());
    Ok(CaseResult {
        name: one.name.into(),
        calls: one.calls.into(),
        plain,
        runahead,
        outputs_equal,
    })
}

/// What the runs of one side showed so far.
#[derive(Debug, Default)]
struct Gathered {
    calls_ns: Vec<u64>,
    elapsed_s: Vec<f64>,
    wrong: BTreeMap<String, u64>,
    synchronizations: Vec<Option<f64>>,
}

impl Gathered {
    fn add(&mut self, samples: &Path, said: &str, elapsed_s: f64) -> Result<()> {
        let bytes = fs::read(samples).with_context(|| format!("read {}", samples.display()))?;
        self.calls_ns.extend(words(&bytes));
        self.elapsed_s.push(elapsed_s);
        for (what, count) in wrong(said) {
            *self.wrong.entry(what).or_default() += count;
        }
        Ok(())
    }

    fn sum_up(self) -> SideResult {
        let known: Option<Vec<f64>> = self.synchronizations.into_iter().collect();
        SideResult {
            latencies: Latencies::of(self.calls_ns),
            elapsed_s: self.elapsed_s,
            wrong: self.wrong,
            synchronizations: known.map(|counts| counts.iter().sum()),
        }
    }
}

/// 64-bit words of a file of samples.
pub fn words(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| chunk.try_into().map(u64::from_ne_bytes).unwrap_or_default();
    bytes.chunks_exact(8).map(word).collect()
}

/// Counts of what went wrong, from lines such as `torn 0`.
fn wrong(said: &str) -> Vec<(String, u64)> {
    let count = |line: &str| {
        let (what, count) = line.split_once(' ')?;
        ["torn", "lost", "strange"].contains(&what).then_some(())?;
        Some((what.to_owned(), count.parse().ok()?))
    };
    said.lines().filter_map(count).collect()
}

/// The results for the reader.
pub fn table(results: &InterferenceResults) -> String {
    let mut table = plain_table(&[
        "program", "runahead", "calls", "median", "p99.9", "max", "elapsed", "syncs", "wrong", "",
    ]);
    for case in &results.cases {
        let failures = case.failures();
        let verdict = match (failures.as_slice(), case.runahead.synchronizations) {
            ([], Some(0.0)) => "pass, but nothing speculated".into(),
            ([], _) => "pass".into(),
            _ => format!("FAIL: {}", failures.join(", ")),
        };
        table.add_row(row(&case.name, "no", &case.plain, ""));
        table.add_row(row("", "yes", &case.runahead, &verdict));
    }
    let calls: Vec<String> =
        results.cases.iter().map(|case| format!("  {}: {}", case.name, case.calls)).collect();
    format!(
        "{table}\nCalls measured, with {} spinning processes beside them:\n{}",
        results.busy_processes,
        calls.join("\n")
    )
}

fn row(name: &str, side: &str, result: &SideResult, verdict: &str) -> Vec<String> {
    let latency = |ns: u64| seconds(ns as f64 / 1e9);
    let elapsed = Summary::of(&result.elapsed_s).map_or("–".into(), |s| seconds(s.median));
    let wrong: Vec<String> = result
        .wrong
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    vec![
        name.into(),
        side.into(),
        result.latencies.count.to_string(),
        latency(result.latencies.median_ns),
        latency(result.latencies.p999_ns),
        latency(result.latencies.max_ns),
        elapsed,
        result.synchronizations.map_or("–".into(), |count| format!("{count:.0}")),
        if wrong.is_empty() { "none".into() } else { wrong.join(", ") },
        verdict.into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(max_ns: u64, torn: u64) -> SideResult {
        SideResult {
            latencies: Latencies::of(vec![100, 200, max_ns]),
            elapsed_s: vec![1.0],
            wrong: [("torn".to_owned(), torn)].into(),
            synchronizations: None,
        }
    }

    fn case(plain: SideResult, runahead: SideResult) -> CaseResult {
        let (name, calls) = ("x".into(), "y".into());
        CaseResult { name, calls, plain, runahead, outputs_equal: true }
    }

    #[test]
    fn a_call_may_be_five_milliseconds_slower() {
        assert!(case(side(1000, 0), side(5_001_000, 0)).failures().is_empty());
        assert_eq!(case(side(1000, 0), side(7_001_000, 0)).failures(), ["a call 7.00 ms slower"]);
        // Slower than 5 ms is fine where plain is as slow.
        assert!(case(side(9_000_000, 0), side(9_500_000, 0)).failures().is_empty());
    }

    #[test]
    fn torn_records_and_other_outputs_fail() {
        assert_eq!(case(side(10, 0), side(10, 3)).failures(), ["3 torn"]);
        let mut other = case(side(10, 0), side(10, 0));
        other.outputs_equal = false;
        assert_eq!(other.failures(), ["output differs"]);
    }

    #[test]
    fn output_and_samples_are_parsed() {
        let said = "read 00ff\ntorn 2\nlost 0\n3 00ff\nstrange x\n";
        assert_eq!(wrong(said), [("torn".into(), 2), ("lost".into(), 0)]);
        let bytes: Vec<u8> = [7_u64, 9].iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(words(&bytes), [7, 9]);
    }

    /// Each program, small, on data that is resident: it ends well and finds
    /// nothing wrong where nothing interferes.
    #[test]
    fn programs_find_nothing_wrong_by_themselves() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("records");
        records::make(&file, 64).unwrap();
        for one in ALL {
            let program = one.program.build(directory.path()).unwrap();
            let samples = directory.path().join(format!("samples-{}", one.name));
            let spec = CommandSpec::new(program, "/").arg(&file).arg("64").arg(&samples);
            let output = process::Output::new().unwrap();
            let ended =
                process::run(&mut spec.command(), &output, Duration::from_secs(300)).unwrap();
            let said = fs::read_to_string(output.path("stdout")).unwrap();
            assert!(ended.status.success(), "{}: {said}", one.name);
            assert!(wrong(&said).iter().all(|(_, count)| *count == 0), "{}: {said}", one.name);
            assert!(!words(&fs::read(&samples).unwrap()).is_empty(), "{}", one.name);
        }
    }

    #[test]
    fn the_table_says_what_fails() {
        let results = InterferenceResults {
            version: 1,
            benchmark: "interference".into(),
            machine: Machine::default(),
            profile: "cloud".into(),
            busy_processes: 2,
            cases: vec![case(side(10, 0), side(20, 1))],
        };
        let text = table(&results);
        assert!(text.contains("FAIL: 1 torn") && text.contains("2 spinning"), "{text}");
        assert!(!results.pass());
        let mut quiet = case(side(10, 0), side(20, 0));
        quiet.runahead.synchronizations = Some(0.0);
        let text = table(&InterferenceResults { cases: vec![quiet], ..results });
        assert!(text.contains("nothing speculated"), "{text}");
    }
}
