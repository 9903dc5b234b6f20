//! `bench overhead`: what Runahead costs where there is nothing to gain,
//! because everything is in memory, or nothing can be predicted.

mod at_once;
mod promise;
mod resident;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use self::at_once::{at_once, two_processors};
pub use self::promise::{Comparison, Count, Kind};
use self::promise::{START_CALLS_ADDED_MAX, START_FAULTS_ADDED_MAX};
use self::resident::{Program, Resident, calibrate};
use crate::busy::Busy;
use crate::c_program::CProgram;
use crate::calls;
use crate::explicit::cache_directory;
use crate::generate::scaled;
use crate::interference::words;
use crate::interrupt;
use crate::launch::{self, Side};
use crate::place::{Place, PlaceOptions, empty_caches};
use crate::process::{self, CommandSpec, Output};
use crate::progress::{self, Progress};
use crate::results::Machine;
use crate::summary::{Summary, quantile, sorted};
use crate::swap;
use crate::table::{plain_table, seconds, times};
use crate::tools::{COREUTILS, GCC, GIT, GREP, TAR, ensure_installed};

/// System calls of programs that are allowed what a read is.
const READS_OF_PROGRAMS: [libc::c_long; 4] =
    [libc::SYS_read, libc::SYS_pread64, libc::SYS_readv, libc::SYS_preadv];

/// Calls in a batch of `bench/overhead/reads.c`.
const BATCH: f64 = 1000.0;
const BATCHES: u64 = 400;
/// Starts whose page faults are counted.
const COUNTED_STARTS: usize = 10;
/// Processes in a row.
const PROCESSES: u64 = 1000;
const LIMIT: Duration = Duration::from_secs(600);

/// Random touches of a resident file's mapping: about a second.
const TOUCHES: u64 = 60_000_000;
/// The large heap, in MiB.
const HEAP_MIB: u64 = 4096;
/// So much memory has to be available for each byte of it: what copies write, and
/// what is in use beside it.
const HEAP_ROOM: f64 = 1.25;
/// Its page faults that wait, milliseconds of work apart.
const RARE_FAULTS: u64 = 150;
/// Profile of the device that they wait for.
const RARE_FAULTS_ON: &str = "cloud";
/// By how much a program on a large heap is slower beside a copy: what one that
/// touches pages at random took longer beside another that does, in the mean of
/// ten (-1 to 42%).
const SLOWED_BY_COPY: f64 = 0.15;

const MAPPED: CProgram = CProgram {
    name: "touches",
    source: include_str!("../../../bench/faults/touches.c"),
    headers: &[],
};
const HEAP: CProgram =
    CProgram { name: "heap", source: include_str!("../../../bench/overhead/heap.c"), headers: &[] };
const READS: CProgram = CProgram {
    name: "reads",
    source: include_str!("../../../bench/overhead/reads.c"),
    headers: &[],
};

/// How to measure.
#[derive(Clone, Debug)]
pub struct OverheadOptions {
    /// Names of whole programs, which alone are measured; empty: everything.
    pub programs: Vec<String>,
    /// Directory of the data; none: the cache directory.
    pub data: Option<PathBuf>,
    /// Runs of each side.
    pub runs: usize,
    /// Runs of each side at most: as long as the interval of what is measured
    /// contains what is promised, their number is doubled.
    pub runs_max: usize,
    /// Size relative to the full one, above 0: data, calls, processes.
    pub scale: f64,
    /// Install what is missing.
    pub install: bool,
    /// The `runahead` executable.
    pub runahead: PathBuf,
}

/// The whole benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverheadResults {
    /// Version of this format.
    pub version: u32,
    /// `overhead`.
    pub benchmark: String,
    /// The machine.
    pub machine: Machine,
    /// The comparisons.
    pub comparisons: Vec<Comparison>,
    /// What a start takes.
    #[serde(default)]
    pub start: Vec<Count>,
    /// What there is not enough memory for.
    #[serde(default)]
    pub left_out: Vec<String>,
}

/// Measures everything.
///
/// # Errors
/// If something is missing or a run cannot be made.
pub fn run(options: &OverheadOptions) -> Result<OverheadResults> {
    ensure!(options.runs > 0, "--runs 0: give at least 1");
    let is_root = rustix::process::geteuid().is_root();
    ensure!(is_root || !options.programs.is_empty(), "this needs root: it empties the page cache");
    ensure_installed(&[GCC, GREP, COREUTILS, TAR, GIT], options.install)?;
    interrupt::watch();
    let cache = cache_directory()?;
    let data = options.data.clone().unwrap_or_else(|| cache.join("resident"));
    let resident = Resident::prepare(&data, options.scale)?;
    let second = resident.copy()?;
    let mut bench = Bench { options, comparisons: Vec::new(), left_out: Vec::new() };
    let mut programs = resident.programs();
    let mut start = Vec::new();
    if options.programs.is_empty() {
        start = bench.parts([&resident, &second], &cache)?;
    } else {
        let known = programs.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        for name in &options.programs {
            let is_known = programs.iter().any(|(one, _)| one == name);
            ensure!(is_known, "no program {name:?}: give some of {known}");
        }
        programs.retain(|(name, _)| options.programs.iter().any(|wanted| wanted == name));
    }
    for (name, program) in &mut programs {
        calibrate(name, program)?;
        bench.program(name, program, Kind::Program, &second)?;
    }
    let busy = Busy::start()?;
    for (name, program) in &programs {
        bench.program(&format!("{name}, busy"), program, Kind::BusyProgram, &second)?;
    }
    drop(busy);
    Ok(OverheadResults {
        version: 1,
        benchmark: "overhead".into(),
        machine: Machine::here(),
        comparisons: bench.comparisons,
        start,
        left_out: bench.left_out,
    })
}

struct Bench<'a> {
    options: &'a OverheadOptions,
    comparisons: Vec<Comparison>,
    left_out: Vec<String>,
}

/// Why a heap of so many MiB is too much, by the text of `/proc/meminfo`; none: it is
/// not, or the kernel does not tell.
fn too_large(heap_mib: u64, meminfo: &str) -> Option<String> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let available_mib = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? / 1024;
    let needed_mib = (heap_mib as f64 * HEAP_ROOM) as u64;
    (available_mib < needed_mib).then(|| {
        format!("it needs {needed_mib} MiB of memory, of which {available_mib} are available")
    })
}

/// Under `runahead run`, as a user would start it; no statistics.
fn under(runahead: &Path, spec: &CommandSpec) -> CommandSpec {
    let mut arguments = vec!["run".into(), "--".into(), spec.program.clone()];
    arguments.extend(spec.arguments.iter().cloned());
    CommandSpec { program: runahead.into(), arguments, ..spec.clone() }
}

impl Bench<'_> {
    /// Alternates both sides of `once`, which returns seconds per unit and
    /// what the program printed. One run of each warms everything up.
    fn compare(
        &mut self,
        mut comparison: Comparison,
        mut once: impl FnMut(bool) -> Result<(f64, String)>,
    ) -> Result<()> {
        let progress = Progress::new(2 * self.options.runs as u64 + 2);
        let name = comparison.name.clone();
        let mut expected = None;
        let (mut index, mut wanted) = (0, self.options.runs);
        while index <= wanted {
            for under_runahead in if index % 2 == 0 { [false, true] } else { [true, false] } {
                progress.step(&format!("{name} {index}"));
                let (time_s, output) =
                    once(under_runahead).with_context(|| format!("measure {name}"))?;
                comparison.outputs_equal &=
                    expected.get_or_insert_with(|| output.clone()) == &output;
                let times = if under_runahead {
                    &mut comparison.runahead_s
                } else {
                    &mut comparison.plain_s
                };
                if index > 0 {
                    times.push(time_s);
                }
            }
            let more = self.more(&comparison, index, &mut wanted);
            progress.extend(2 * more);
            index += 1;
        }
        self.add(comparison, &progress);
        Ok(())
    }

    /// Wants twice as many runs where all that were wanted are made and do not
    /// decide; how many more these are.
    fn more(&self, comparison: &Comparison, made: usize, wanted: &mut usize) -> u64 {
        if made < *wanted || *wanted >= self.options.runs_max || comparison.is_settled() {
            return 0;
        }
        *wanted = (2 * *wanted).min(self.options.runs_max);
        (*wanted - made) as u64
    }

    fn add(&mut self, comparison: Comparison, progress: &Progress) {
        progress.print(&line(&comparison));
        self.comparisons.push(comparison);
    }

    /// Both sides of a whole program that waits for nothing, at once, each on a
    /// processor, and again with the processors exchanged: one run of each. What
    /// slows the machine down slows both, and so a hundredth can be seen where
    /// runs one after the other differ by ten. `specs`: what runs on the one and
    /// on the other; files of its own for each, or the kernel's counts of who
    /// uses them would keep the two in step.
    fn beside_each_other(
        &mut self,
        mut comparison: Comparison,
        specs: [&CommandSpec; 2],
    ) -> Result<()> {
        let name = comparison.name.clone();
        let places = specs.map(|spec| [false, true].map(|side| self.side(spec, side)));
        let Some(processors) = two_processors() else {
            let [sides, _] = places;
            return self
                .compare(comparison, |side| run_once(&sides[usize::from(side)], &Output::new()?));
        };
        let progress = Progress::new(self.options.runs as u64 + 1);
        let mut expected = None;
        let (mut index, mut wanted) = (0, self.options.runs);
        while index <= wanted {
            progress.step(&format!("{name} {index}"));
            let mut sums_s = [0.0; 2];
            for exchanged in [false, true] {
                // Plain's place and Runahead's.
                let at = if exchanged { [1, 0] } else { [0, 1] };
                let specs = [0, 1].map(|side| &places[at[side]][side]);
                let ends = at_once(specs, at.map(|place| processors[place]))
                    .with_context(|| format!("measure {name}"))?;
                for (sum_s, (time_s, output)) in sums_s.iter_mut().zip(ends) {
                    *sum_s += time_s;
                    comparison.outputs_equal &=
                        expected.get_or_insert_with(|| output.clone()) == &output;
                }
            }
            if index > 0 {
                comparison.plain_s.push(sums_s[0] / 2.0);
                comparison.runahead_s.push(sums_s[1] / 2.0);
            }
            progress.extend(self.more(&comparison, index, &mut wanted));
            index += 1;
        }
        self.add(comparison, &progress);
        Ok(())
    }

    /// All but whole programs that read files; what a start takes.
    fn parts(&mut self, places: [&Resident; 2], cache: &Path) -> Result<Vec<Count>> {
        let [resident, second] = places;
        let on = PlaceOptions { profile: RARE_FAULTS_ON.into(), ..PlaceOptions::default() };
        let place = Place::open(&on).context("make the device that rare faults wait for")?;
        let reads = READS.build(cache)?;
        for kind in ["read", "pread", "same", "many"] {
            self.reads(&reads, kind, &resident.records)?;
        }
        self.starts(cache)?;
        let start = self.counts()?.into();
        let mapped = resident.mapped(self.options.scale)?;
        self.mapped(&MAPPED.build(cache)?, [&mapped, &second.mapped(self.options.scale)?])?;
        self.rare_faults(&HEAP.build(cache)?, &mapped, &place)?;
        Ok(start)
    }

    fn side(&self, spec: &CommandSpec, under_runahead: bool) -> CommandSpec {
        if under_runahead { under(&self.options.runahead, spec) } else { spec.clone() }
    }

    fn reads(&mut self, program: &Path, kind: &str, file: &Path) -> Result<()> {
        let batches = scaled(BATCHES, self.options.scale, 8).to_string();
        let options = self.options;
        let comparison = Comparison::new(&format!("4 KiB {}", reads_name(kind)), Kind::Read);
        self.compare(comparison, |under_runahead| {
            let output = Output::new()?;
            let samples = output.path("samples");
            let spec =
                CommandSpec::new(program, "/").arg(kind).arg(file).arg(&batches).arg(&samples);
            let spec = if under_runahead { under(&options.runahead, &spec) } else { spec };
            let (_, said) = run_once(&spec, &output)?;
            let bytes = fs::read(&samples).context("read the samples")?;
            let times: Vec<f64> = words(&bytes).iter().map(|ns| *ns as f64 / 1e9 / BATCH).collect();
            let median = quantile(&sorted(&times), 0.5).context("no batch was measured")?;
            Ok((median, said))
        })
    }

    fn starts(&mut self, cache: &Path) -> Result<()> {
        let count = scaled(PROCESSES, self.options.scale, 10);
        let script = format!("i=0; while [ $i -lt {count} ]; do /bin/true; i=$((i+1)); done");
        let shell = CommandSpec::new("/bin/sh", "/").args(["-c", &script]);
        let sides = [self.side(&shell, false), self.side(&shell, true)];
        let of = |name| Comparison::new(name, Kind::Start);
        self.compare(of("start of /bin/true, all under one runahead"), |side| {
            let (elapsed_s, said) = run_once(&sides[usize::from(side)], &Output::new()?)?;
            Ok((elapsed_s / count as f64, said))
        })?;
        let one = CommandSpec::new("/bin/true", "/");
        let sides = [self.side(&one, false), self.side(&one, true)];
        self.compare(of("start of runahead /bin/true"), |side| {
            let output = Output::new()?;
            let begun = Instant::now();
            for _ in 0..count {
                run_once(&sides[usize::from(side)], &output)?;
            }
            Ok((begun.elapsed().as_secs_f64() / count as f64, String::new()))
        })?;
        // Nothing of the executables is in memory, this one's neither: it runs,
        // so a copy is measured. The yardstick is another command that executes
        // the program that it is given, copied to the same directory: the way
        // there is not in memory either.
        let copied = |name: &str, from: &Path| -> Result<PathBuf> {
            let copy = cache.join(name);
            fs::copy(from, &copy)
                .with_context(|| format!("copy {} to {}", from.display(), copy.display()))?;
            Ok(copy)
        };
        let start = CommandSpec::new("/bin/true", "/");
        let env = copied("env-cold", Path::new("/usr/bin/env"))?;
        let sides = [
            CommandSpec::new(env, "/").arg("/bin/true"),
            under(&copied("runahead-cold", &self.options.runahead)?, &start),
        ];
        self.compare(of("start of runahead /bin/true, cold; plain: env"), |side| {
            empty_caches()?;
            let (elapsed_s, _) = run_once(&sides[usize::from(side)], &Output::new()?)?;
            Ok((elapsed_s, String::new()))
        })
    }

    /// What one start of `/bin/true` takes, with and without Runahead.
    fn counts(&self) -> Result<[Count; 2]> {
        let one = CommandSpec::new("/bin/true", "/");
        let [plain, ahead] = [false, true].map(|side| self.side(&one, side));
        let calls = |spec: &CommandSpec| calls::count(&mut spec.command());
        // The lowest of some: which pages the kernel maps beside the one that
        // is asked for differs with what it finds.
        let faults = |spec: &CommandSpec| -> Result<u64> {
            let mut lowest = u64::MAX;
            for _ in 0..COUNTED_STARTS {
                let finished = process::run(&mut spec.command(), &Output::new()?, LIMIT)?;
                lowest = lowest.min(finished.usage.minor_faults);
            }
            Ok(lowest)
        };
        Ok([
            Count {
                name: "system calls of runahead /bin/true".into(),
                plain: calls(&plain)?,
                runahead: calls(&ahead)?,
                added_max: START_CALLS_ADDED_MAX,
            },
            Count {
                name: "page faults of runahead /bin/true".into(),
                plain: faults(&plain)?,
                runahead: faults(&ahead)?,
                added_max: START_FAULTS_ADDED_MAX,
            },
        ])
    }

    fn mapped(&mut self, program: &Path, files: [&Path; 2]) -> Result<()> {
        let touches = scaled(TOUCHES, self.options.scale, 1 << 16).to_string();
        let [first, second] =
            files.map(|file| CommandSpec::new(program, "/").arg(file).args([&touches, "1"]));
        let comparison = Comparison::new("random touches of a mapped file", Kind::Program);
        self.beside_each_other(comparison, [&first, &second])
    }

    /// On an emulated device, whose waits are alike: a machine's own disk makes
    /// some runs wait twice as long as others, a tenth of what they take.
    fn rare_faults(&mut self, program: &Path, resident: &Path, place: &Place) -> Result<()> {
        let scale = self.options.scale;
        let (megabytes, faults) = (scaled(HEAP_MIB, scale, 16), scaled(RARE_FAULTS, scale, 4));
        let name = format!(
            "work on a heap of {megabytes} MiB, rare faults ({RARE_FAULTS_ON}) beside none"
        );
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        if let Some(why) = too_large(megabytes, &meminfo) {
            let what = format!("{name}: {why}");
            progress::say(format_args!("LEFT OUT: {what}"));
            self.left_out.push(what);
            return Ok(());
        }
        let file = &place.store().join("mapped");
        place.untimed(|| {
            fs::copy(resident, file).with_context(|| format!("write {}", file.display()))
        })?;
        place.cold()?;
        let options = self.options;
        self.compare(Comparison::new(&name, Kind::RareFaults), |under_runahead| {
            let output = Output::new()?;
            let report = output.path("report");
            let spec = CommandSpec::new(program, "/").arg(file);
            let spec = spec.args([megabytes.to_string(), faults.to_string()]).arg(&report);
            // Nothing is known of the program: what earlier runs left behind would
            // spare it the copies.
            let spec = spec.env("XDG_RUNTIME_DIR", output.directory());
            let counts = output.path("statistics.json");
            let side = if under_runahead { Side::Runahead } else { Side::Plain };
            let spec = launch::wrap(&spec, side, &options.runahead, &[], Some(&counts));
            let (_, said) = run_once(&spec, &output)?;
            let text = fs::read_to_string(&report).context("read the report")?;
            let figures: Vec<f64> = text.split_whitespace().flat_map(str::parse).collect();
            let [mut ratio, work_s] = figures[..] else { bail!("no two figures in {text:?}") };
            if under_runahead {
                let copies_s = swap::wait_for(&counts)?.speculation.cpu_s;
                let copies_s = copies_s.context("the statistics lack speculation.cpu_s")?;
                ratio *= 1.0 + SLOWED_BY_COPY * copies_s / work_s;
            }
            Ok((ratio, said))
        })
    }

    fn program(
        &mut self,
        name: &str,
        program: &Program,
        kind: Kind,
        second: &Resident,
    ) -> Result<()> {
        let spec = program.spec();
        // All arguments are relative.
        let beside = CommandSpec { directory: second.directory.clone(), ..spec.clone() };
        let reads = calls::count_of(&mut spec.command(), &READS_OF_PROGRAMS)
            .with_context(|| format!("count the reads of {name}"))?;
        let comparison = Comparison { reads, ..Comparison::new(name, kind) };
        self.beside_each_other(comparison, [&spec, &beside])?;
        let Some(shown) = program.shown() else { return Ok(()) };
        let printed = |under_runahead| {
            Ok::<_, anyhow::Error>(run_once(&self.side(&shown, under_runahead), &Output::new()?)?.1)
        };
        let equal = printed(false)? == printed(true)?;
        if let Some(comparison) = self.comparisons.last_mut() {
            comparison.outputs_equal &= equal;
        }
        Ok(())
    }
}

fn reads_name(kind: &str) -> &str {
    match kind {
        "same" => "pread of one page",
        "many" => "pread, 256 descriptors",
        other => other,
    }
}

/// Runs a command: elapsed seconds, and a fingerprint of how it ended and what
/// it printed.
fn run_once(spec: &CommandSpec, output: &Output) -> Result<(f64, String)> {
    let finished = process::run(&mut spec.command(), output, LIMIT)?;
    let digest = crate::launch::fingerprint(&finished, output, String::new())?;
    ensure!(
        ["exit 0", "exit 1"].contains(&digest.status.as_str()),
        "{}: {}: {}",
        spec.display(),
        digest.status,
        fs::read_to_string(output.path("stderr")).unwrap_or_default()
    );
    let elapsed_s = finished.elapsed_s;
    Ok((elapsed_s, format!("{} {} {}", digest.status, digest.stdout, digest.stderr)))
}

fn line(comparison: &Comparison) -> String {
    let mut cells = row(comparison);
    cells.retain(|cell| !cell.is_empty());
    cells.join("  ")
}

fn row(comparison: &Comparison) -> Vec<String> {
    // Of work with faults as many times that without, not of seconds.
    let unit = if comparison.kind == Kind::RareFaults { times } else { seconds };
    let median =
        |values: &[f64]| Summary::of(values).map_or("–".into(), |summary| unit(summary.median));
    let added = comparison.added_s().map_or("–".into(), |added| {
        let sign = if added < 0.0 { "−" } else { "+" };
        format!("{sign}{}", unit(added.abs()))
    });
    let ratio = comparison.ratio().map_or("–".into(), |ratio| {
        format!("{:.3}× ({:.3}–{:.3})", ratio.value, ratio.low, ratio.high)
    });
    let verdict = match (comparison.outputs_equal, comparison.keeps_promise()) {
        (false, _) => "WRONG OUTPUT",
        (true, true) if comparison.shows_promise() => "kept",
        (true, true) => "not shown",
        (true, false) => "BROKEN",
    };
    vec![
        comparison.name.clone(),
        median(&comparison.plain_s),
        median(&comparison.runahead_s),
        added,
        ratio,
        comparison.promise(),
        verdict.into(),
    ]
}

/// The results for the reader.
pub fn table(results: &OverheadResults) -> String {
    let mut table = plain_table(&[
        "everything in memory",
        "plain",
        "runahead",
        "added",
        "ratio beyond what is allowed (95%)",
        "promise",
        "",
    ]);
    for comparison in &results.comparisons {
        table.add_row(row(comparison));
    }
    for count in &results.start {
        let Count { name, plain, runahead, added_max } = count;
        table.add_row(vec![
            name.clone(),
            plain.to_string(),
            runahead.to_string(),
            format!("{:+}", runahead.wrapping_sub(*plain) as i64),
            String::new(),
            format!("at most +{added_max}"),
            if count.keeps_promise() { "kept" } else { "BROKEN" }.into(),
        ]);
    }
    let left_out = results.left_out.iter().map(|what| format!("\nLEFT OUT: {what}"));
    format!("{table}{}", left_out.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::promise::tests::comparison;
    use super::*;

    #[test]
    fn runahead_goes_before_the_program() {
        let spec = under(Path::new("/ra"), &CommandSpec::new("/bin/true", "/").arg("y"));
        assert_eq!(spec.program, "/ra");
        assert_eq!(spec.arguments, ["run", "--", "/bin/true", "y"]);
    }

    #[test]
    fn the_table_shows_signs() {
        let results = OverheadResults {
            version: 1,
            benchmark: "overhead".into(),
            machine: Machine::default(),
            comparisons: vec![
                comparison(Kind::Read, 350e-9, 450e-9),
                comparison(Kind::Program, 2.0, 1.9),
            ],
            start: vec![Count { name: "c".into(), plain: 30, runahead: 131, added_max: 100 }],
            left_out: vec!["a heap".into()],
        };
        let text = table(&results);
        assert!(text.contains("+100 ns") && text.contains("BROKEN"), "{text}");
        assert!(text.contains("−100 ms") && text.contains("kept"), "{text}");
        assert!(text.contains("+101") && text.contains("at most +100"), "{text}");
        assert!(text.contains("LEFT OUT: a heap"), "{text}");
    }

    #[test]
    fn a_heap_has_to_fit_into_what_is_available() {
        let of = |available_kib: u64| {
            let meminfo = format!("MemTotal: 99999999 kB\nMemAvailable:   {available_kib} kB\n");
            too_large(4096, &meminfo)
        };
        assert_eq!(of(5120 * 1024), None);
        let why = "it needs 5120 MiB of memory, of which 5119 are available";
        assert_eq!(of(5120 * 1024 - 1).as_deref(), Some(why));
        assert_eq!(too_large(4096, "MemTotal: 1 kB\n"), None);
    }
}
