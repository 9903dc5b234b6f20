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
use crate::summary::{PairedRatio, Summary};
use crate::table::{plain_table, seconds};
use crate::tools::ensure_installed;
use commands::Command;
pub use data::HarmData;

/// A cell counts as harm where the lower bound of its slowdown is above this.
pub const HARM_ABOVE: f64 = 1.03;

/// Pairs after which a cell may be certain not to be harmed.
const CERTAIN_AFTER: usize = 3;
/// So many times the usual pairs where those say that it is harmed.
const IN_DOUBT: usize = 3;

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

/// One command under one condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Name of the command.
    pub command: String,
    /// The condition.
    pub condition: Condition,
    /// Times that the command was repeated in each run.
    pub repeats: usize,
    /// Each plain run, seconds.
    pub plain_s: Vec<f64>,
    /// Each run under Runahead, seconds; the pairs in order.
    pub runahead_s: Vec<f64>,
    /// What went wrong under Runahead and not without; empty: nothing.
    pub failures: Vec<String>,
    /// Statistics of one run that is not among those.
    pub statistics: Option<Statistics>,
    /// Limit of the memory cgroup, bytes.
    pub memory_bytes: Option<u64>,
}

impl Cell {
    /// Time under Runahead over plain time, over the pairs.
    pub fn ratio(&self) -> Option<PairedRatio> {
        PairedRatio::of(&self.runahead_s, &self.plain_s)
    }

    /// Whether it is harmed.
    pub fn is_harm(&self) -> bool {
        !self.failures.is_empty() || self.ratio().is_some_and(|ratio| ratio.low > HARM_ABOVE)
    }

    /// Whether further pairs would tell nothing. Of a cell that is certainly not
    /// harmed three suffice; of one that is harmed by `runs` there are three times
    /// as many, all of which count.
    fn is_enough(&self, runs: usize) -> bool {
        let pairs = self.plain_s.len().min(self.runahead_s.len());
        let is_certain = self.ratio().is_some_and(|ratio| ratio.high <= HARM_ABOVE);
        if pairs < runs {
            return self.failures.is_empty() && pairs >= CERTAIN_AFTER && is_certain;
        }
        // Asked once: a cell that were acquitted by the first lucky pair would seldom be found.
        let first = PairedRatio::of(&self.runahead_s[..runs], &self.plain_s[..runs]);
        let is_in_doubt = first.is_some_and(|first| first.low > HARM_ABOVE);
        !self.failures.is_empty() || !is_in_doubt || pairs >= runs * IN_DOUBT
    }
}

/// The whole benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HarmResults {
    /// Version of this format.
    pub version: u32,
    /// `harm`.
    pub benchmark: String,
    /// The machine.
    pub machine: Machine,
    /// The place.
    pub profile: String,
    /// Size of the data.
    pub scale: f64,
    /// Whether the times hold a launch for each command.
    pub launches: bool,
    /// The cells.
    pub cells: Vec<Cell>,
    /// Commands that are not installed.
    pub left_out: Vec<String>,
    /// Cells that cannot be: the plain command does not get through either.
    pub impossible: Vec<String>,
    /// Cells that could not be measured, and why.
    #[serde(default)]
    pub not_run: Vec<String>,
}

impl HarmResults {
    /// Geometric mean of all ratios; below 1 is gain.
    pub fn geometric_mean(&self) -> Option<f64> {
        geometric_mean(self.cells.iter())
    }

    /// Whether something was measured, and nothing is harmed.
    pub fn pass(&self) -> bool {
        self.geometric_mean().is_some_and(|mean| mean <= 1.0)
            && self.not_run.is_empty()
            && !self.cells.iter().any(Cell::is_harm)
    }
}

fn geometric_mean<'a>(cells: impl Iterator<Item = &'a Cell>) -> Option<f64> {
    let logs: Vec<f64> = cells.filter_map(Cell::ratio).map(|ratio| ratio.value.ln()).collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
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

/// One cell in a line, for the progress.
pub fn line(cell: &Cell) -> String {
    format!("{:16} {:10} {}", cell.command, cell.condition.name(), verdict(cell))
}

fn verdict(cell: &Cell) -> String {
    let ratio = cell
        .ratio()
        .map_or("–".into(), |ratio| format!("{:.3} (at least {:.3})", ratio.value, ratio.low));
    match (cell.failures.as_slice(), cell.is_harm()) {
        ([], false) => ratio,
        ([], true) => format!("{ratio} HARM"),
        (failures, _) => format!("{ratio} FAILS: {}", failures.join(", ")),
    }
}

/// The results for the reader, the worst on top.
pub fn table(results: &HarmResults) -> String {
    let mut table =
        plain_table(&["command", "condition", "plain", "ratio", "≥ (95%)", "syncs", "hits", ""]);
    let mut cells: Vec<&Cell> = results.cells.iter().collect();
    let low = |cell: &Cell| {
        let bound = cell.ratio().map_or(f64::INFINITY, |ratio| ratio.low);
        if cell.failures.is_empty() { bound } else { f64::INFINITY }
    };
    cells.sort_by(|a, b| low(b).total_cmp(&low(a)));
    for cell in cells {
        let ratio = cell.ratio();
        let known = |value: Option<f64>| value.map_or("–".into(), |v| format!("{v:.0}"));
        let speculation = cell.statistics.as_ref().map(|statistics| &statistics.speculation);
        let plain = Summary::of(&cell.plain_s).map(|s| s.median / cell.repeats as f64);
        table.add_row([
            cell.command.clone(),
            cell.condition.name().into(),
            plain.map_or("–".into(), seconds),
            ratio.map_or("–".into(), |ratio| format!("{:.3}", ratio.value)),
            ratio.map_or("–".into(), |ratio| format!("{:.3}", ratio.low)),
            known(speculation.and_then(|s| s.synchronizations.completed)),
            known(speculation.and_then(|s| s.prefetches.full)),
            match (cell.failures.as_slice(), cell.is_harm()) {
                ([], false) => String::new(),
                ([], true) => "harm".into(),
                (failures, _) => format!("FAILS: {}", failures.join(", ")),
            },
        ]);
    }
    format!("{table}\n{}", sums(results))
}

fn sums(results: &HarmResults) -> String {
    let mut lines = Vec::new();
    for condition in Condition::ALL {
        let cells = || results.cells.iter().filter(|cell| cell.condition == *condition);
        if let Some(mean) = geometric_mean(cells()) {
            let harmed = cells().filter(|cell| cell.is_harm()).count();
            let name = condition.name();
            lines.push(format!(
                "{name:10} geometric mean {mean:.3} of {} commands, {harmed} harmed",
                cells().count()
            ));
        }
    }
    if let Some(mean) = results.geometric_mean() {
        lines.push(format!("{:10} geometric mean {mean:.3} (below 1 is gain)", "all"));
    }
    let listed = |what: &str, names: &[String]| format!("{what}: {}", names.join(", "));
    if !results.left_out.is_empty() {
        lines.push(listed("Not installed, left out (--install)", &results.left_out));
    }
    if !results.impossible.is_empty() {
        lines.push(listed(
            "Killed or failing without Runahead, too, all or some of the time",
            &results.impossible,
        ));
    }
    lines.extend(results.not_run.iter().map(|what| format!("NOT RUN: {what}")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(command: &str, ratios: &[f64], failures: &[&str]) -> Cell {
        Cell {
            command: command.into(),
            condition: Condition::Cold,
            repeats: 1,
            plain_s: vec![1.0; ratios.len()],
            runahead_s: ratios.to_vec(),
            failures: failures.iter().map(|text| (*text).to_owned()).collect(),
            statistics: None,
            memory_bytes: None,
        }
    }

    fn results(cells: Vec<Cell>) -> HarmResults {
        HarmResults {
            version: 1,
            benchmark: "harm".into(),
            machine: Machine::default(),
            profile: "cloud".into(),
            scale: 1.0,
            launches: false,
            cells,
            left_out: vec!["h5ls (hdf5-tools)".into()],
            impossible: Vec::new(),
            not_run: Vec::new(),
        }
    }

    #[test]
    fn harm_is_a_lower_bound_above_the_limit_or_another_output() {
        assert!(!cell("a", &[1.02, 1.02, 1.02], &[]).is_harm());
        assert!(cell("a", &[1.05, 1.06, 1.05], &[]).is_harm());
        assert!(!cell("a", &[0.9, 1.3, 1.05], &[]).is_harm(), "too noisy to tell");
        assert!(cell("a", &[0.5, 0.5, 0.5], &["standard output"]).is_harm());
    }

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
    fn pairs_are_made_until_they_tell() {
        let after = |ratios: &[f64]| {
            (1..).find(|&pairs| {
                let ratios: Vec<f64> = ratios.iter().copied().cycle().take(pairs).collect();
                cell("a", &ratios, &[]).is_enough(5)
            })
        };
        assert_eq!(after(&[0.5, 0.52]), Some(3), "certainly faster");
        assert_eq!(after(&[0.9, 1.2]), Some(5), "nothing to be said");
        assert_eq!(after(&[1.06, 1.05]), Some(15), "harmed");
        assert_eq!(after(&[1.06, 1.05, 1.06, 1.05, 1.06, 0.8]), Some(15), "seemingly harmed");
        assert!(!cell("a", &[0.5; 3], &["standard output"]).is_enough(5));
        assert!(cell("a", &[0.5; 5], &["standard output"]).is_enough(5));
    }

    #[test]
    fn the_worst_is_on_top() {
        let text = table(&results(vec![
            cell("good", &[0.5, 0.5, 0.5], &[]),
            cell("wrong", &[0.4, 0.4, 0.4], &["standard output"]),
            cell("slow", &[1.2, 1.2, 1.2], &[]),
        ]));
        let at = |name: &str| text.find(name).unwrap();
        assert!(at("wrong") < at("slow") && at("slow") < at("good"), "{text}");
        assert!(text.contains("h5ls (hdf5-tools)") && text.contains("2 harmed"), "{text}");
    }

    #[test]
    fn a_mean_above_one_fails_even_without_a_harmed_cell() {
        assert!(results(vec![cell("a", &[0.99, 0.99], &[])]).pass());
        assert!(!results(vec![cell("a", &[1.02, 1.02], &[])]).pass());
    }

    #[test]
    fn what_was_not_measured_does_not_pass() {
        assert!(!results(Vec::new()).pass());
        let mut some = results(vec![cell("a", &[0.99, 0.99], &[])]);
        some.not_run.push("b cold: by itself it ends with exit 2".into());
        assert!(!some.pass());
        let text = table(&some);
        assert!(text.contains("NOT RUN: b cold: by itself it ends with exit 2"), "{text}");
    }

    #[test]
    fn conditions_have_names() {
        for condition in Condition::ALL {
            assert_eq!(Condition::from_name(condition.name()), Some(*condition));
        }
        assert_eq!(Condition::from_name("hot"), None);
    }
}
