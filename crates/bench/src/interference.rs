//! `bench interference`: what speculation does to a program's own calls while
//! every processor is busy with other work.

mod report;
mod results;

pub use report::table;
pub use results::{Call, CaseResult, InterferenceResults, RunResult, SideResult};

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::busy::Busy;
use crate::c_program::CProgram;
use crate::explicit::cache_directory;
use crate::generate::{records, scaled};
use crate::launch::{Launch, Measured, Side};
use crate::place::{Place, PlaceOptions};
use crate::process::{self, CommandSpec};
use crate::progress::Progress;
use crate::results::Machine;
use crate::summary::Latencies;
use crate::tools::{GCC, ensure_installed};

/// No call may be more than this slower than plain's.
pub const SLOWER_MAX_NS: u64 = 5_000_000;

/// A test of the benchmark, which `bench/interference/common.h` knows: one call
/// sleeps so many microseconds.
const LATE: &str = "INTERFERENCE_LATE_US";

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
    /// Whether several processes read every record by one description, and wait
    /// for each other, instead of one process some pages.
    shares: bool,
}

macro_rules! interference {
    ($name:literal, $calls:literal, $shares:literal) => {
        Interference {
            name: $name,
            calls: $calls,
            program: CProgram {
                name: $name,
                source: include_str!(concat!("../../../bench/interference/", $name, ".c")),
                headers: HEADERS,
            },
            shares: $shares,
        }
    };
}

/// The programs.
pub const ALL: &[Interference] = &[
    interference!("mmap", "mmap + munmap, by the stalling thread and by another, and brk", false),
    interference!("fork", "fork", false),
    interference!("read", "reads of what has just been read", false),
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
    /// Most runs of each side, where fewer decide nothing.
    pub runs_max: usize,
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
    /// A test of the benchmark: one call of each run under Runahead sleeps so
    /// many milliseconds more; none: 0.
    pub late_ms: u64,
}

/// Measures the programs.
///
/// # Errors
/// If something is missing or a run cannot be made.
pub fn run(options: &InterferenceOptions) -> Result<InterferenceResults> {
    ensure!(options.runs > 0, "--runs 0: give at least 1");
    ensure!(options.runs <= options.runs_max, "--runs-max is less than --runs");
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
        version: 2,
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

/// The sides of a round.
const SIDES: [Side; 3] = [Side::Plain, Side::Plain, Side::Runahead];
/// Every order in which they can run.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1], [2, 0, 1], [1, 0, 2]];

fn measure(
    one: &Interference,
    program: &Path,
    file: &Path,
    place: &Place,
    options: &InterferenceOptions,
) -> Result<CaseResult> {
    let progress = Progress::new((SIDES.len() * options.runs) as u64);
    let mut gathered = [(); 3].map(|()| Gathered::default());
    let mut outputs = Outputs::default();
    let mut wanted = options.runs;
    for (index, order) in (0..options.runs_max).zip(ORDERS.iter().cycle()) {
        for &number in order {
            progress.step(&format!("{} {:?} {}", one.name, SIDES[number], index + 1));
            let under = UnderWay { one, program, file, place, options, side: SIDES[number] };
            under.run(&mut gathered[number], &mut outputs)?;
        }
        if index + 1 == wanted {
            let sides = Gathered::sum_up(&gathered);
            let case = CaseResult::new(one, sides, outputs.equal);
            if wanted == options.runs_max || !case.is_undecided() {
                return Ok(case);
            }
            let before = wanted;
            wanted = (2 * wanted).min(options.runs_max);
            progress.extend((SIDES.len() * (wanted - before)) as u64);
        }
    }
    anyhow::bail!("--runs-max {}: give at least 1", options.runs_max)
}

/// What the runs printed.
#[derive(Debug)]
struct Outputs {
    first: Option<String>,
    equal: bool,
}

impl Default for Outputs {
    fn default() -> Self {
        Self { first: None, equal: true }
    }
}

/// A run to be made.
#[derive(Clone, Copy, Debug)]
struct UnderWay<'a> {
    one: &'a Interference,
    program: &'a Path,
    file: &'a Path,
    place: &'a Place,
    options: &'a InterferenceOptions,
    side: Side,
}

impl UnderWay<'_> {
    /// Runs it as a user starts it, and under Runahead once more to count: the
    /// collector of statistics and what waits for it are not the program's.
    fn run(&self, gathered: &mut Gathered, outputs: &mut Outputs) -> Result<()> {
        let Self { one, side, .. } = *self;
        let stolen_s = stolen_s();
        let (measured, calls) = self.once(false, gathered, outputs)?;
        let stolen_s = stolen_s_since(stolen_s);
        gathered.runs.push(RunResult {
            elapsed_s: measured.elapsed_s,
            slowest: calls.iter().max_by_key(|call| call.whole_ns).copied().unwrap_or_default(),
            own_max_ns: calls.iter().map(|call| call.own_ns(one.shares)).max().unwrap_or(0),
            stolen_s,
        });
        gathered.whole_ns.extend(calls.iter().map(|call| call.whole_ns));
        let counted = match side {
            Side::Runahead => self.once(true, gathered, outputs)?.0.statistics,
            _ => None,
        };
        let synchronizations = counted.and_then(|s| s.speculation.synchronizations.completed);
        gathered.synchronizations.push(synchronizations);
        Ok(())
    }

    /// One run, its output compared; the calls that it timed.
    fn once(
        &self,
        counts: bool,
        gathered: &mut Gathered,
        outputs: &mut Outputs,
    ) -> Result<(Measured, Vec<Call>)> {
        let Self { one, options, side, .. } = *self;
        self.place.cold()?;
        let scratch = process::scratch_directory()?;
        let samples = scratch.path().join("samples");
        let reads = if one.shares { RECORDS } else { scaled(READS, options.scale, 16) };
        let mut spec =
            CommandSpec::new(self.program, "/").arg(self.file).arg(reads.to_string()).arg(&samples);
        if side == Side::Runahead && options.late_ms > 0 {
            spec = spec.env(LATE, (options.late_ms * 1000).to_string());
        }
        let launch = Launch {
            side,
            runahead: &options.runahead,
            stranger: None,
            run_options: &options.run_options,
            counts,
            records: false,
            place: self.place,
            limit: LIMIT,
        };
        let measured = launch.run(&spec, &[])?;
        let said = fs::read_to_string(measured.output.path("stdout"))?;
        let complaint = fs::read_to_string(measured.output.path("stderr"))?;
        let status = &measured.digest.status;
        ensure!(status == "exit 0", "{side:?}: {status}: {complaint}");
        outputs.equal &= outputs.first.get_or_insert_with(|| said.clone()) == &said;
        let bytes = fs::read(&samples).with_context(|| format!("read {}", samples.display()))?;
        for (what, count) in wrong(&said) {
            *gathered.wrong.entry(what).or_default() += count;
        }
        Ok((measured, calls(&bytes)))
    }
}

/// What the runs of one side showed so far.
#[derive(Debug, Default)]
struct Gathered {
    whole_ns: Vec<u64>,
    runs: Vec<RunResult>,
    wrong: BTreeMap<String, u64>,
    synchronizations: Vec<Option<f64>>,
}

impl Gathered {
    /// Sums up all sides, the plain one first.
    fn sum_up(sides: &[Self; 3]) -> [SideResult; 3] {
        let slowest_ns = sides[0].whole_ns.iter().max().copied().unwrap_or(0);
        let allowed_ns = slowest_ns + SLOWER_MAX_NS;
        [0, 1, 2].map(|side| sides[side].side(allowed_ns))
    }

    fn side(&self, allowed_ns: u64) -> SideResult {
        let known: Option<Vec<f64>> = self.synchronizations.iter().copied().collect();
        SideResult {
            latencies: Latencies::of(self.whole_ns.clone()),
            too_slow: self.whole_ns.iter().filter(|ns| **ns > allowed_ns).count() as u64,
            runs: self.runs.clone(),
            wrong: self.wrong.clone(),
            synchronizations: known.map(|counts| counts.iter().sum()),
        }
    }
}

/// What the host has taken of all processors so far, seconds (proc(5), `stat`:
/// the eighth number); 0 where nobody counts it.
fn stolen_s() -> f64 {
    const HUNDREDTHS: f64 = 100.0;
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let stolen = text.split_ascii_whitespace().nth(8).and_then(|word| word.parse::<f64>().ok());
    stolen.unwrap_or(0.0) / HUNDREDTHS
}

fn stolen_s_since(before: f64) -> f64 {
    (stolen_s() - before).max(0.0)
}

/// The calls of a file of samples.
fn calls(bytes: &[u8]) -> Vec<Call> {
    let call = |words: &[u64]| {
        let &[whole_ns, computed_ns, queued_ns, slept_ns] = words else { return Call::default() };
        Call { whole_ns, computed_ns, queued_ns, slept_ns }
    };
    words(bytes).chunks_exact(4).map(call).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    const READ: &Interference = &ALL[2];
    const SHARED: &Interference = &ALL[3];

    /// A side of six runs whose slowest call is this.
    fn side(slowest: Call, torn: u64) -> SideResult {
        let run = |shares| RunResult {
            elapsed_s: 1.0,
            slowest,
            own_max_ns: slowest.own_ns(shares),
            stolen_s: 0.0,
        };
        SideResult {
            latencies: Latencies::of(vec![100, 200, slowest.whole_ns]),
            too_slow: 0,
            runs: vec![run(false); 6],
            wrong: [("torn".to_owned(), torn)].into(),
            synchronizations: None,
        }
    }

    fn call(computed_ms: u64, queued_ms: u64, slept_ms: u64) -> Call {
        let [computed_ns, queued_ns, slept_ns] =
            [computed_ms, queued_ms, slept_ms].map(|ms| ms * 1_000_000);
        let whole_ns = computed_ns + queued_ns + slept_ns;
        Call { whole_ns, computed_ns, queued_ns, slept_ns }
    }

    fn case(plain: Call, runahead: Call, torn: u64) -> CaseResult {
        let sides = [side(plain, 0), side(plain, 0), side(runahead, torn)];
        CaseResult::new(READ, sides, true)
    }

    #[test]
    fn a_call_may_be_five_milliseconds_slower() {
        assert!(case(call(1, 0, 0), call(6, 0, 0), 0).failures().is_empty());
        let slow = case(call(1, 0, 0), call(1, 7, 0), 0);
        let words = "a call 5.00 ms slower in 6 of 6 rounds (others 0; chance 0.00)";
        assert_eq!(slow.failures(), [words]);
        // Slower than 5 ms is fine where plain is as slow.
        assert!(case(call(1, 9, 0), call(1, 13, 0), 0).failures().is_empty());
    }

    /// What plain waits for a processor hides no sleep of ours.
    #[test]
    fn a_call_that_sleeps_is_found_below_the_slowest() {
        let sleeps = case(call(0, 9, 0), call(0, 1, 6), 0);
        let words = "a call 5.00 ms slower by itself in 6 of 6 rounds (others 0; chance 0.00)";
        assert_eq!(sleeps.failures(), [words]);
        assert_eq!(case(call(0, 9, 0), call(7, 0, 0), 0).failures().len(), 1, "computes");
    }

    #[test]
    fn who_shares_sleeps_while_others_are_preempted() {
        assert!(SHARED.shares && !READ.shares);
        assert_eq!(call(1, 2, 4).own_ns(false), 5_000_000);
        assert_eq!(call(1, 2, 4).own_ns(true), 1_000_000);
    }

    #[test]
    fn one_slow_run_decides_nothing_and_is_shown() {
        let mut doubtful = case(call(1, 0, 0), call(1, 0, 0), 0);
        doubtful.runahead.runs[0].slowest = call(1, 8, 0);
        let sides = [doubtful.plain, doubtful.control, doubtful.runahead];
        let doubtful = CaseResult::new(READ, sides, true);
        assert!(doubtful.is_undecided() && doubtful.failures().is_empty());
        let text = table(&results(doubtful));
        assert!(text.contains("undecided"), "{text}");
        assert!(text.contains("read: a call 5.00 ms slower in 1 of 6 rounds"), "{text}");
        assert!(text.contains("9.00 ms = 1.00 ms computing, 8.00 ms waiting"), "{text}");
    }

    #[test]
    fn torn_records_and_other_outputs_fail() {
        assert_eq!(case(call(1, 0, 0), call(1, 0, 0), 3).failures(), ["3 torn"]);
        let mut other = case(call(1, 0, 0), call(1, 0, 0), 0);
        other.outputs_equal = false;
        assert_eq!(other.failures(), ["output differs"]);
    }

    #[test]
    fn calls_above_plains_slowest_are_counted() {
        let side =
            |whole_ns: &[u64]| Gathered { whole_ns: whole_ns.to_vec(), ..Gathered::default() };
        let sides = [side(&[1, 10]), side(&[5_000_010]), side(&[2, 5_000_011, 5_000_012])];
        assert_eq!(Gathered::sum_up(&sides).map(|side| side.too_slow), [0, 0, 2]);
    }

    #[test]
    fn output_and_samples_are_parsed() {
        let said = "read 00ff\ntorn 2\nlost 0\n3 00ff\nstrange x\n";
        assert_eq!(wrong(said), [("torn".into(), 2), ("lost".into(), 0)]);
        let bytes: Vec<u8> = [7_u64, 9].iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(words(&bytes), [7, 9]);
        let bytes: Vec<u8> = (1..=8_u64).flat_map(u64::to_ne_bytes).collect();
        let call = Call { whole_ns: 5, computed_ns: 6, queued_ns: 7, slept_ns: 8 };
        assert_eq!(calls(&bytes)[1], call);
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
            let calls = calls(&fs::read(&samples).unwrap());
            assert!(!calls.is_empty(), "{}", one.name);
            for call in calls {
                let told_ns = call.computed_ns + call.queued_ns + call.slept_ns;
                assert!(call.whole_ns > 0 && told_ns <= call.whole_ns, "{}: {call:?}", one.name);
            }
        }
    }

    fn results(case: CaseResult) -> InterferenceResults {
        InterferenceResults {
            version: 2,
            benchmark: "interference".into(),
            machine: Machine::default(),
            profile: "cloud".into(),
            busy_processes: 2,
            cases: vec![case],
        }
    }

    #[test]
    fn the_table_says_what_fails() {
        let torn = results(case(call(1, 0, 0), call(1, 0, 0), 1));
        let text = table(&torn);
        assert!(
            text.contains("FAIL") && text.contains("read: 1 torn") && text.contains("2 spinning"),
            "{text}"
        );
        assert!(!torn.pass());
        let mut quiet = case(call(1, 0, 0), call(1, 0, 0), 0);
        quiet.runahead.synchronizations = Some(0.0);
        let busy = results(quiet);
        let text = table(&busy);
        assert!(text.contains("pass, but nothing speculated"), "{text}");
        assert!(busy.pass(), "no copy is made there");
        let mut idle = InterferenceResults { busy_processes: 0, ..busy };
        assert!(!idle.pass() && table(&idle).contains("FAIL: nothing speculated"));
        idle.cases[0].runahead.synchronizations = Some(1.0);
        assert!(idle.pass());
    }
}
