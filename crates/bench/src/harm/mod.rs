//! `bench harm`: whether anything becomes slower. Everyday commands under
//! conditions in which speculation has little to gain or much to spoil, each
//! with and without Runahead in alternation, their outputs compared.
//!
//! A run lasts at least a second: what is over sooner is repeated, in one launch
//! ([`Series`]), because the start of `runahead` is no part of a program that
//! runs for a second, and is measured elsewhere.
//!
//! Of more than a thousand cells some are above the bound by chance, and most
//! are far below it. So pairs are made where they tell something ([`Cell::is_enough`]).

pub mod commands;
mod data;
mod results;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::apps;
use crate::busy::Busy;
use crate::cgroup::Cgroup;
use crate::digest::Digest;
use crate::explicit::cache_directory;
use crate::generate::repository;
use crate::launch::{self, Side};
use crate::place::{Place, PlaceOptions};
use crate::process::{self, CommandSpec, Finished, Output};
use crate::progress::Progress;
use crate::reader::PlainReader;
use crate::results::Machine;
use crate::series::{Series, Unfinished};
use crate::statistics::Statistics;
use crate::tools::ensure_installed;
use commands::Command;
pub use data::HarmData;
pub use results::{Cell, HARM_ABOVE, HarmResults, line, table};

/// Longest time of one run of a command by itself.
const PLAIN_LIMIT: Duration = Duration::from_secs(600);
/// Times a command is repeated within a run at most: where the caches are
/// emptied before each, and where they are not.
const REPEATS_MAX: usize = 40;
const REPEATS_WARM_MAX: usize = 1000;
/// Least memory that a tight cgroup is given, bytes: below it programs do not
/// even start.
const MEMORY_MIN_BYTES: u64 = 4 << 20;

/// Plain runs that are to get through where one under Runahead has not and memory is
/// tight: where one of them does not either, that says nothing of Runahead.
const PLAIN_AGAIN: usize = 10;

/// What a command meets when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Empty caches.
    Cold,
    /// Everything in memory.
    Warm,
    /// Empty caches, a spinning process on every processor.
    Busy,
    /// Empty caches, a memory cgroup of half of the working set.
    Memory50,
    /// The same with three quarters of it.
    Memory75,
    /// The same with just as much.
    Memory100,
    /// Empty caches, a plain reader on the same device.
    Shared,
}

impl Condition {
    /// Every condition.
    pub const ALL: &'static [Condition] = &[
        Condition::Cold,
        Condition::Warm,
        Condition::Busy,
        Condition::Memory50,
        Condition::Memory75,
        Condition::Memory100,
        Condition::Shared,
    ];

    /// Those of the quick selection.
    pub const QUICK: &'static [Condition] =
        &[Condition::Cold, Condition::Warm, Condition::Busy, Condition::Memory50];

    /// The word in tables and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Condition::Cold => "cold",
            Condition::Warm => "warm",
            Condition::Busy => "busy",
            Condition::Memory50 => "memory50",
            Condition::Memory75 => "memory75",
            Condition::Memory100 => "memory100",
            Condition::Shared => "shared",
        }
    }

    /// The condition of this name.
    pub fn from_name(name: &str) -> Option<Condition> {
        Condition::ALL.iter().copied().find(|condition| condition.name() == name)
    }

    /// Memory in hundredths of the working set; none: as much as there is.
    fn memory_percent(self) -> Option<u64> {
        match self {
            Condition::Memory50 => Some(50),
            Condition::Memory75 => Some(75),
            Condition::Memory100 => Some(100),
            _ => None,
        }
    }
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct HarmOptions {
    /// Names of commands; empty: all of the selection.
    pub commands: Vec<String>,
    /// Conditions; empty: all of the selection.
    pub conditions: Vec<Condition>,
    /// The short selection.
    pub quick: bool,
    /// Where the data lies.
    pub place: PlaceOptions,
    /// Pairs of runs, at least 2: see [`Cell::is_enough`].
    pub runs: usize,
    /// A command is repeated within a run until it has taken so long in all,
    /// seconds.
    pub run_s: f64,
    /// Each command has a launch of its own, and its time holds that of the
    /// launch; otherwise one launch makes all of a run.
    pub launches: bool,
    /// Size of the data relative to the full one, above 0.
    pub scale: f64,
    /// Seed of the data.
    pub seed: u64,
    /// Install what is missing; otherwise commands that are missing are left
    /// out, and named.
    pub install: bool,
    /// The `runahead` executable.
    pub runahead: PathBuf,
    /// Further options of `runahead run`.
    pub run_options: Vec<String>,
}

/// Measures. `so_far` is given the results after each cell, so that a run
/// that is broken off leaves what it found.
///
/// A cell that fails on the way is named in the results and does not keep the others
/// from being measured.
///
/// # Errors
/// If something is missing, the data cannot be made, or `so_far` fails.
pub fn run(
    options: &HarmOptions,
    mut so_far: impl FnMut(&HarmResults) -> Result<()>,
) -> Result<HarmResults> {
    ensure!(options.runs >= 2, "--runs {}: a bound needs at least 2 pairs", options.runs);
    ensure!(options.scale.is_finite() && options.scale > 0.0, "--scale: give a factor above 0");
    let mut commands = commands::by_names(&options.commands, options.quick)?;
    let tools: Vec<_> = commands.iter().map(|command| command.tool).collect();
    if options.install {
        ensure_installed(&tools, true)?;
    }
    let place = Place::open(&options.place)?;
    let mut results = HarmResults {
        version: 1,
        benchmark: "harm".into(),
        machine: Machine::here(),
        profile: place.name().into(),
        scale: options.scale,
        launches: options.launches,
        cells: Vec::new(),
        left_out: Vec::new(),
        impossible: Vec::new(),
        not_run: Vec::new(),
    };
    commands.retain(|command| {
        let there = command.tool.find().is_some();
        if !there {
            results.left_out.push(format!("{} ({})", command.name, command.tool.package));
        }
        there
    });
    let preparing = Progress::new(0);
    preparing.note("preparing the data");
    let setup = apps::prepare(&HarmData, &place, &cache_directory()?, options.scale, options.seed)?;
    place.cold()?;
    drop(preparing);
    let conditions = match (options.conditions.as_slice(), options.quick) {
        ([], true) => Condition::QUICK,
        ([], false) => Condition::ALL,
        (given, _) => given,
    };
    let progress = Progress::new((commands.len() * conditions.len()) as u64);
    for condition in conditions {
        for command in &commands {
            progress.step(&format!("{} {}", command.name, condition.name()));
            let bench = Bench { options, place: &place, directory: &setup.directory };
            let title = format!("{} {}", command.name, condition.name());
            match bench.cell(command, *condition) {
                Ok(Some(cell)) => {
                    progress.print(&line(&cell));
                    results.cells.push(cell);
                }
                Ok(None) => results.impossible.push(title),
                Err(error) => {
                    let what = format!("{title}: {error:#}");
                    progress.print(&format!("NOT RUN: {what}"));
                    results.not_run.push(what);
                }
            }
            so_far(&results)?;
        }
    }
    Ok(results)
}

struct Bench<'a> {
    options: &'a HarmOptions,
    place: &'a Place,
    directory: &'a Path,
}

/// One run of one command.
struct Once {
    elapsed_s: f64,
    digest: Digest,
    /// Of one that failed, where they are known.
    last_words: String,
}

impl Once {
    /// # Errors
    /// If it did not do what it should: two runs that fail are alike, too.
    fn ensure_good(&self, command: &Command) -> Result<()> {
        if self.digest.ended_with(command.good) {
            return Ok(());
        }
        Err(process::failed(&self.digest.status, &self.last_words))
    }
}

impl Bench<'_> {
    /// Measures one cell; none where the plain command does not get through.
    fn cell(&self, command: &Command, condition: Condition) -> Result<Option<Cell>> {
        let spec = self.spec(command)?;
        let cgroup = self.cgroup(&spec, command, condition)?;
        let memory_bytes = cgroup.as_ref().map(|(_, bytes)| *bytes);
        let cgroup = cgroup.map(|(cgroup, _)| cgroup);
        let wrapped = |spec: &CommandSpec, side: Side, statistics: Option<&Path>| {
            let spec = self.under(spec, side, statistics);
            cgroup.as_ref().map_or(spec.clone(), |cgroup| cgroup.wrap(&spec))
        };
        let _busy = if condition == Condition::Busy { Some(Busy::start()?) } else { None };
        let plain = wrapped(&spec, Side::Plain, None);
        if condition == Condition::Warm {
            // What the condition before has left cold is read: the repeats are counted warm.
            self.once(&plain, command, condition, PLAIN_LIMIT)?;
        }
        let reference = self.once(&plain, command, condition, PLAIN_LIMIT)?;
        if let Err(error) = reference.ensure_good(command) {
            // In tight memory some end by themselves when a child is killed.
            return if cgroup.is_some() { Ok(None) } else { Err(error) };
        }
        let limit = Duration::from_secs_f64(reference.elapsed_s * 20.0) + Duration::from_secs(60);
        let repeats = (self.options.run_s / reference.elapsed_s.max(1e-4)).ceil() as usize;
        let most = if condition == Condition::Warm { REPEATS_WARM_MAX } else { REPEATS_MAX };
        let repeats = repeats.clamp(1, most);
        let mut cell = Cell {
            command: command.name.into(),
            condition,
            repeats,
            plain_s: Vec::new(),
            runahead_s: Vec::new(),
            failures: Vec::new(),
            statistics: None,
            memory_bytes,
        };
        for pair in 0.. {
            if cell.is_enough(self.options.runs) {
                break;
            }
            let mut sides = [Side::Plain, Side::Runahead];
            if pair % 2 == 1 {
                sides.reverse();
            }
            for side in sides {
                let runs = |side: Side| {
                    let wrap = |spec: &CommandSpec| wrapped(spec, side, None);
                    let runs = self.run(&spec, wrap, repeats, command, condition, limit);
                    outcome(&reference.digest, runs, side)
                };
                let (elapsed_s, failures) = runs(side)?;
                if side == Side::Plain && !failures.is_empty() {
                    ensure!(cgroup.is_some(), "a plain run: {}", failures.join(", "));
                    return Ok(None);
                }
                if !failures.is_empty() && cell.failures.is_empty() && cgroup.is_some() {
                    // Which of the two the OOM killer takes may be chance.
                    for _ in 0..PLAIN_AGAIN {
                        if !runs(Side::Plain)?.1.is_empty() {
                            return Ok(None);
                        }
                    }
                }
                for what in failures {
                    if !cell.failures.contains(&what) {
                        cell.failures.push(what);
                    }
                }
                let Some(elapsed_s) = elapsed_s else { return Ok(Some(cell)) };
                match side {
                    Side::Plain => cell.plain_s.push(elapsed_s),
                    _ => cell.runahead_s.push(elapsed_s),
                }
            }
        }
        let kept = Output::new()?;
        let file = kept.path("statistics.json");
        let counted = wrapped(&spec, Side::Runahead, Some(&file));
        match self.once(&counted, command, condition, limit) {
            Ok(_) => cell.statistics = Statistics::read(&file).ok(),
            Err(error) => ensure!(cgroup.is_some(), "the run that is counted: {error:#}"),
        }
        Ok(Some(cell))
    }

    fn spec(&self, command: &Command) -> Result<CommandSpec> {
        let (program, arguments) = command.line.split_first().context("an empty command")?;
        let mut spec = CommandSpec::new(program, self.directory);
        for argument in arguments {
            let Some(name) = argument.strip_prefix('@') else {
                spec = spec.arg(argument);
                continue;
            };
            let path = self.directory.join(format!("{name}.list"));
            let text =
                fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            spec = spec.args(text.lines());
        }
        for (name, value) in repository::ENVIRONMENT {
            spec = spec.env(name, value);
        }
        Ok(spec)
    }

    /// As a user starts it: nobody asks for statistics, unless `statistics`
    /// does.
    fn under(&self, spec: &CommandSpec, side: Side, statistics: Option<&Path>) -> CommandSpec {
        let HarmOptions { runahead, run_options, .. } = self.options;
        launch::wrap(spec, side, runahead, run_options, statistics)
    }

    /// The memory cgroup of a tight condition and its limit in bytes: a share
    /// of what the plain command uses where there is no limit.
    fn cgroup(
        &self,
        spec: &CommandSpec,
        command: &Command,
        condition: Condition,
    ) -> Result<Option<(Cgroup, u64)>> {
        let Some(percent) = condition.memory_percent() else { return Ok(None) };
        let name = "runahead-harm";
        let working_set = {
            let cgroup = Cgroup::new(name)?;
            let plain = || self.once(&cgroup.wrap(spec), command, condition, PLAIN_LIMIT);
            let (once, working_set) = cgroup.peak_of(plain)?;
            once.ensure_good(command)?;
            working_set
        };
        let bytes = (working_set * percent / 100).max(MEMORY_MIN_BYTES);
        let cgroup = Cgroup::new(name)?;
        cgroup.limit(Some(bytes))?;
        Ok(Some((cgroup, bytes)))
    }

    /// A run: the command so many times, in one launch or with one for each.
    fn run(
        &self,
        spec: &CommandSpec,
        wrap: impl Fn(&CommandSpec) -> CommandSpec,
        repeats: usize,
        command: &Command,
        condition: Condition,
        limit: Duration,
    ) -> Result<Vec<Once>> {
        if self.options.launches {
            let spec = wrap(spec);
            return (0..repeats).map(|_| self.once(&spec, command, condition, limit)).collect();
        }
        let output = output(condition)?;
        let mut series = Series::start(&wrap(&Series::command(spec, &output)))?;
        let runs = (0..repeats)
            .map(|_| self.around(command, condition, &output, || series.once(limit)))
            .collect::<Result<_>>()?;
        series.end()?;
        Ok(runs)
    }

    /// The command once, in a launch of its own.
    fn once(
        &self,
        spec: &CommandSpec,
        command: &Command,
        condition: Condition,
        limit: Duration,
    ) -> Result<Once> {
        let output = output(condition)?;
        let run = || process::run(&mut spec.command(), &output, limit);
        self.around(command, condition, &output, run)
    }

    /// What comes before and after a command.
    fn around(
        &self,
        command: &Command,
        condition: Condition,
        output: &Output,
        run: impl FnOnce() -> Result<Finished>,
    ) -> Result<Once> {
        if condition != Condition::Warm {
            self.place.cold()?;
        }
        // After the caches were emptied: it keeps a file of the device open.
        let reader = match condition {
            Condition::Shared => {
                Some(PlainReader::start(&self.directory.join("big.copy"), self.options.seed)?)
            }
            _ => None,
        };
        let finished = run()?;
        if let Some(reader) = reader {
            reader.stop()?;
        }
        let writes: Vec<PathBuf> =
            command.writes.iter().map(|path| self.directory.join(path)).collect();
        let files = self.place.untimed(|| launch::take_away(&writes))?;
        let digest = launch::fingerprint(&finished, output, files)?;
        let is_good = digest.ended_with(command.good);
        let last_words = if is_good { String::new() } else { output.last_words() };
        Ok(Once { elapsed_s: finished.elapsed_s, digest, last_words })
    }
}

/// How long runs took together, where all of them ended, and how they differ from what
/// they should have done.
///
/// # Errors
/// If plain runs have no result for another reason than that one did not end.
fn outcome(
    reference: &Digest,
    runs: Result<Vec<Once>>,
    side: Side,
) -> Result<(Option<f64>, Vec<String>)> {
    let runs = match runs {
        Ok(runs) => runs,
        Err(error) if side == Side::Plain && !error.is::<Unfinished>() => {
            return Err(error.context("the plain run"));
        }
        Err(error) => return Ok((None, vec![format!("{error:#}")])),
    };
    let mut failures: Vec<String> = Vec::new();
    for one in &runs {
        let what = reference.differences(&one.digest).join(", ");
        if !what.is_empty() && !failures.contains(&what) {
            failures.push(what);
        }
    }
    Ok((Some(runs.iter().map(|one| one.elapsed_s).sum()), failures))
}

/// Where the commands' output goes: not into files of the cgroup that is to be tight.
fn output(condition: Condition) -> Result<Output> {
    match condition.memory_percent() {
        Some(_) => Output::piped(),
        None => Output::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_do_not_end_or_differ_fail_and_no_others() {
        let digest = |status: &str| Digest {
            status: status.into(),
            stdout: String::new(),
            stderr: String::new(),
            files: String::new(),
        };
        let once = |status| Once {
            elapsed_s: 0.5,
            digest: digest(status),
            last_words: "no such file".into(),
        };
        let outcome = |runs, side| outcome(&digest("exit 0"), runs, side);
        let equal = outcome(Ok(vec![once("exit 0"), once("exit 0")]), Side::Plain).unwrap();
        assert_eq!(equal, (Some(1.0), vec![]));
        let killed = ["exit 0", "signal 9", "signal 9"].map(once);
        let (elapsed_s, failures) = outcome(Ok(killed.into()), Side::Runahead).unwrap();
        assert_eq!((elapsed_s, failures.len()), (Some(1.5), 1), "{failures:?}");
        for side in [Side::Plain, Side::Runahead] {
            let overdue = Unfinished::Overdue(Duration::from_secs(65));
            let (elapsed_s, failures) = outcome(Err(overdue.into()), side).unwrap();
            assert_eq!((elapsed_s, failures), (None, vec!["no end within 65 s".to_owned()]));
        }
        assert!(outcome(Err(anyhow::anyhow!("no device")), Side::Plain).is_err());
    }

    #[test]
    fn a_command_that_fails_by_itself_says_nothing_of_runahead() {
        let ended = |name: &str, status: &str| {
            let command = commands::by_names(&[name.to_owned()], false).unwrap()[0];
            let digest = Digest { status: status.into(), ..Digest::default() };
            let once = Once { elapsed_s: 0.5, digest, last_words: "cat: x: no such file".into() };
            once.ensure_good(command).map_err(|error| error.to_string())
        };
        assert_eq!(ended("cat", "exit 0"), Ok(()));
        let said = "by itself it ends with exit 1: cat: x: no such file";
        assert_eq!(ended("cat", "exit 1"), Err(said.into()));
        assert_eq!(ended("diff -r", "exit 1"), Ok(()));
        assert!(ended("diff -r", "exit 2").is_err() && ended("cat", "signal 9").is_err());
    }

    #[test]
    fn conditions_have_names() {
        for condition in Condition::ALL {
            assert_eq!(Condition::from_name(condition.name()), Some(*condition));
        }
        assert_eq!(Condition::from_name("hot"), None);
    }
}
