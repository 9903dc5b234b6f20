//! Measures the hinting programs: both sides in one run, alternating, the caches emptied
//! before each, every output compared.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::{cost, programs};
use crate::cgroup::Cgroup;
use crate::place::{Place, PlaceOptions};
use crate::process::{self, CommandSpec, Output};
use crate::progress::Progress;
use crate::results::Machine;
use crate::summary::{Ratio, Summary};

/// Longest time of one program.
const LIMIT: Duration = Duration::from_secs(900);
const MIB: f64 = 1_048_576.0;

/// What a program's hints are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// `RUNAHEAD=off`: the kernel's own caching and readahead.
    Plain,
    /// The manager runs and takes no notice of hints.
    NoHints,
    /// Hints only prefetch ("TIP, no caching").
    Prefetch,
    /// Prefetching and caching.
    Full,
}

impl Mode {
    fn environment(self) -> (&'static str, &'static str) {
        match self {
            Self::Plain => ("RUNAHEAD", "off"),
            Self::NoHints => ("RUNAHEAD_HINT", "nohints"),
            Self::Prefetch => ("RUNAHEAD_HINT", "prefetch"),
            Self::Full => ("RUNAHEAD_HINT", "full"),
        }
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::NoHints => "no hints",
            Self::Prefetch => "prefetch only",
            Self::Full => "full",
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// Ten passes over a file of one and a half times the memory.
    Passes,
    /// Oblique slices through a volume.
    Slices,
    /// The join of which four in five tuples have a partner.
    Join,
    /// Slices and join at once, in one memory; until both have ended.
    SlicesJoin,
    /// Passes and slices at once, in one memory; until both have ended.
    PassesSlices,
    /// Passes and join at once, in one memory; until both have ended.
    PassesJoin,
    /// A program without hints beside slices that hint; its own time.
    Neighbour,
}

impl Subject {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Passes,
        Self::Slices,
        Self::Join,
        Self::SlicesJoin,
        Self::PassesSlices,
        Self::PassesJoin,
        Self::Neighbour,
    ];

    /// Its name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passes => "passes",
            Self::Slices => "slices",
            Self::Join => "join",
            Self::SlicesJoin => "slices+join",
            Self::PassesSlices => "passes+slices",
            Self::PassesJoin => "passes+join",
            Self::Neighbour => "neighbour",
        }
    }

    /// What must hold (issue: "Done when"): the disks and the highest ratio.
    pub fn target(self, disks: u32) -> Option<f64> {
        match (self, disks) {
            (Self::Passes, 1) => Some(0.50),
            (Self::Slices, 4) => Some(0.40),
            (Self::Slices, 10) => Some(0.25),
            (Self::Join, 4) => Some(0.50),
            (Self::SlicesJoin | Self::PassesSlices | Self::PassesJoin, 4) => Some(0.60),
            (Self::Neighbour, 4) => Some(1.03),
            _ => None,
        }
    }
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Profile of the device.
    pub profile: String,
    /// Numbers of spindles.
    pub disks: Vec<u32>,
    /// What to measure.
    pub subjects: Vec<Subject>,
    /// Modes beside plain.
    pub modes: Vec<Mode>,
    /// Only the cells that have a target.
    pub targets_only: bool,
    /// Runs of each side.
    pub runs: usize,
    /// Size of the data relative to the full one.
    pub scale: f64,
    /// The executable whose hidden command runs the programs.
    pub runahead: PathBuf,
}

/// Sizes, in bytes unless said otherwise, so that a whole table takes minutes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sizes {
    /// Memory limit of the passes, and of their pairs, so that LRU keeps nothing of the file
    /// there either; the file is half as much again.
    pub passes_limit: u64,
    /// Passes.
    pub passes: u64,
    /// Side of the volume, values.
    pub side: u64,
    /// Slices.
    pub slices: u64,
    /// Memory limit of slices, join and their pair.
    pub limit: u64,
    /// Tuples of the outer relation.
    pub tuples: u64,
    /// Blocks of the inner relation.
    pub inner_blocks: u64,
}

impl Sizes {
    /// At full scale: 48 MiB of memory and a file of 72 MiB; a volume of 256³ values, 64 MiB,
    /// and 5 slices of it; 2400 tuples and an inner relation of 32 MiB; 16 MiB of memory.
    pub fn at(scale: f64) -> Self {
        let bytes = |mib: f64| ((mib * scale).max(8.0) * MIB) as u64;
        let count = |n: f64, least: f64| (n * scale).max(least) as u64;
        Self {
            passes_limit: bytes(48.0),
            passes: 10,
            side: ((256.0 * scale.cbrt() / 16.0).round() as u64).max(4) * 16,
            slices: count(5.0, 1.0),
            limit: bytes(16.0),
            tuples: count(2400.0, 128.0),
            inner_blocks: count(4096.0, 256.0),
        }
    }
}

/// One cell of the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// What.
    pub subject: Subject,
    /// On how many spindles.
    pub disks: u32,
    /// In which mode.
    pub mode: Mode,
    /// Elapsed times of the plain runs, seconds.
    pub plain_s: Vec<f64>,
    /// Of the hinted ones.
    pub hinted_s: Vec<f64>,
    /// Whether every output was the first plain run's.
    pub outputs_equal: bool,
    /// What the managers said at the end of the last hinted run.
    pub said: String,
}

impl Cell {
    /// Hinted over plain, with its interval.
    pub fn ratio(&self) -> Option<Ratio> {
        Ratio::of(&self.hinted_s, &self.plain_s)
    }

    /// The target, if it has one, and whether it is met.
    pub fn target(&self) -> Option<(f64, bool)> {
        let target = (self.mode == Mode::Full).then(|| self.subject.target(self.disks))??;
        Some((target, self.ratio()?.value <= target))
    }

    /// Median and extremes of a side.
    pub fn summary(&self, mode: Mode) -> Option<Summary> {
        Summary::of(if mode == Mode::Plain { &self.plain_s } else { &self.hinted_s })
    }
}

/// Everything that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveResults {
    /// Version of this format.
    pub version: u32,
    /// `tip-live`.
    pub benchmark: String,
    /// The machine.
    pub machine: Machine,
    /// The device.
    pub profile: String,
    /// The sizes.
    pub sizes: Sizes,
    /// The cells.
    pub cells: Vec<Cell>,
    /// What a hint costs and how much memory it takes.
    pub cost: Option<cost::Cost>,
}

impl LiveResults {
    /// Whether outputs were equal and every target was met.
    pub fn pass(&self) -> bool {
        let cells = self
            .cells
            .iter()
            .all(|cell| cell.outputs_equal && cell.target().is_none_or(|(_, met)| met));
        cells && self.cost.as_ref().is_none_or(cost::Cost::is_met)
    }
}

/// Measures.
///
/// # Errors
/// Without root, or if a run cannot be made.
pub fn run(
    options: &LiveOptions,
    write: impl Fn(&LiveResults) -> Result<()>,
) -> Result<LiveResults> {
    ensure!(options.runs > 0, "--runs 0: give at least 1");
    ensure!(options.scale > 0.0, "--scale {}: give a factor above 0", options.scale);
    let has_target = |subject: &Subject| {
        options.disks.iter().any(|&disks| subject.target(disks).is_some())
            && options.modes.contains(&Mode::Full)
    };
    ensure!(
        !options.targets_only || options.subjects.iter().any(has_target),
        "--targets: nothing that was asked for has one: leave out --app, --disks and --mode"
    );
    let mut results = LiveResults {
        version: 1,
        benchmark: "tip-live".into(),
        machine: Machine::here(),
        profile: options.profile.clone(),
        sizes: Sizes::at(options.scale),
        cells: Vec::new(),
        cost: None,
    };
    for &disks in &options.disks {
        let wanted = |subject: &&Subject| !options.targets_only || subject.target(disks).is_some();
        let subjects: Vec<Subject> = options.subjects.iter().filter(wanted).copied().collect();
        if subjects.is_empty() {
            continue;
        }
        let place = Place::open(&PlaceOptions {
            profile: options.profile.clone(),
            spindles: Some(disks),
            ..PlaceOptions::default()
        })?;
        prepare(&place, &results.sizes)?;
        let bench = Bench { options, place: &place, sizes: results.sizes, disks };
        for subject in subjects {
            let cells = bench
                .measure(subject)
                .with_context(|| format!("{} on {disks} disks", subject.name()))?;
            results.cells.extend(cells);
            write(&results)?;
        }
    }
    results.cost = Some(cost::measure(options)?);
    write(&results)?;
    Ok(results)
}

fn prepare(place: &Place, sizes: &Sizes) -> Result<()> {
    place.untimed(|| {
        let at = |name: &str| place.store().join(name);
        let volume = sizes.side.pow(3) * 4;
        programs::make_random(&at("file"), sizes.passes_limit * 3 / 2, 1)?;
        programs::make_random(&at("volume"), volume, 2)?;
        programs::make_random(&at("volume2"), volume, 3)?;
        programs::make_relations(place.store(), sizes.tuples, sizes.inner_blocks, 4)
    })
}

struct Bench<'a> {
    options: &'a LiveOptions,
    place: &'a Place,
    sizes: Sizes,
    disks: u32,
}

/// One program of a run, and whether it hints where the run does.
struct Part {
    arguments: Vec<String>,
    hints: bool,
    cgroup: Option<usize>,
}

impl Bench<'_> {
    fn parts(&self, subject: Subject) -> (Vec<Part>, Vec<u64>) {
        let Sizes { passes_limit, passes, side, slices, limit, .. } = self.sizes;
        let file = |name: &str| self.place.root().join(name).display().to_string();
        let part = |arguments: Vec<String>, hints, cgroup| Part { arguments, hints, cgroup };
        let text = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let the_passes =
            |cgroup| part(text(&["passes", &file("file"), &passes.to_string()]), true, cgroup);
        let the_slices = |name, seed: &str, hints, cgroup| {
            let words = ["slices", &file(name), &side.to_string(), &slices.to_string(), seed];
            part(text(&words), hints, cgroup)
        };
        let the_join = |cgroup| {
            part(text(&["join", &file("outer"), &file("index"), &file("inner")]), true, cgroup)
        };
        let shared = Some(0);
        match subject {
            Subject::Passes => (vec![the_passes(shared)], vec![passes_limit]),
            Subject::Slices => (vec![the_slices("volume", "1", true, shared)], vec![limit]),
            Subject::Join => (vec![the_join(shared)], vec![limit]),
            Subject::SlicesJoin => {
                (vec![the_slices("volume", "1", true, shared), the_join(shared)], vec![2 * limit])
            }
            Subject::PassesSlices => {
                let slices = the_slices("volume", "1", true, shared);
                (vec![the_passes(shared), slices], vec![passes_limit])
            }
            Subject::PassesJoin => (vec![the_passes(shared), the_join(shared)], vec![passes_limit]),
            Subject::Neighbour => {
                let neighbour = the_slices("volume2", "2", false, Some(0));
                (vec![neighbour, the_slices("volume", "1", true, Some(1))], vec![limit, limit])
            }
        }
    }

    fn measure(&self, subject: Subject) -> Result<Vec<Cell>> {
        let runs = self.options.runs;
        let modes = &self.options.modes;
        let progress = Progress::new((runs * (modes.len() + 1)) as u64);
        let mut plain_s = Vec::new();
        let mut cells: Vec<Cell> = modes
            .iter()
            .map(|&mode| Cell {
                subject,
                disks: self.disks,
                mode,
                plain_s: Vec::new(),
                hinted_s: Vec::new(),
                outputs_equal: true,
                said: String::new(),
            })
            .collect();
        let mut reference: Option<Vec<String>> = None;
        for index in 0..runs {
            let mut sides: Vec<Option<usize>> = vec![None];
            sides.extend((0..modes.len()).map(Some));
            if index % 2 == 1 {
                sides.reverse();
            }
            for side in sides {
                let mode = side.map_or(Mode::Plain, |cell| modes[cell]);
                let what = format!(
                    "{} {} disks {} {}",
                    subject.name(),
                    self.disks,
                    mode.name(),
                    index + 1
                );
                progress.step(&what);
                let ran = self.run_once(subject, mode).with_context(|| what)?;
                let equal = reference.get_or_insert_with(|| ran.outputs.clone()) == &ran.outputs;
                match side {
                    None => plain_s.push(ran.elapsed_s),
                    Some(cell) => {
                        cells[cell].hinted_s.push(ran.elapsed_s);
                        cells[cell].said = ran.said;
                    }
                }
                if !equal {
                    cells.iter_mut().for_each(|cell| cell.outputs_equal = false);
                }
            }
        }
        for cell in &mut cells {
            cell.plain_s.clone_from(&plain_s);
        }
        Ok(cells)
    }

    /// One run on cold caches: all parts at once. The time is the neighbour's own, or until
    /// all have ended.
    fn run_once(&self, subject: Subject, mode: Mode) -> Result<Ran> {
        self.place.cold()?;
        let (parts, limits) = self.parts(subject);
        let cgroups: Vec<Cgroup> = limits
            .iter()
            .enumerate()
            .map(|(i, &limit)| {
                let cgroup = Cgroup::new(&format!("runahead-bench-tip-{i}"))?;
                cgroup.limit(Some(limit))?;
                Ok(cgroup)
            })
            .collect::<Result<_>>()?;
        let finished: Vec<Result<(f64, String, String)>> = std::thread::scope(|scope| {
            let started: Vec<_> = parts
                .iter()
                .map(|part| {
                    let cgroup = part.cgroup.map(|i| &cgroups[i]);
                    scope.spawn(move || self.run_part(part, mode, cgroup))
                })
                .collect();
            let died = || Err(anyhow::anyhow!("its thread died"));
            started.into_iter().map(|one| one.join().unwrap_or_else(|_| died())).collect()
        });
        let finished: Vec<(f64, String, String)> = finished.into_iter().collect::<Result<_>>()?;
        let elapsed_s = match subject {
            Subject::Neighbour => finished[0].0,
            _ => finished.iter().map(|one| one.0).fold(0.0, f64::max),
        };
        let said: Vec<String> = finished.iter().map(|one| one.2.clone()).collect();
        let outputs = finished.into_iter().map(|one| one.1).collect();
        Ok(Ran { elapsed_s, outputs, said: said.join("") })
    }

    fn run_part(
        &self,
        part: &Part,
        mode: Mode,
        cgroup: Option<&Cgroup>,
    ) -> Result<(f64, String, String)> {
        let mode = if part.hints { mode } else { Mode::Plain };
        let (name, value) = mode.environment();
        let mut spec = CommandSpec::new(&self.options.runahead, "/")
            .args(["bench", "tip-program"])
            .args(&part.arguments)
            .env(name, value)
            // What an administrator would measure once with `runahead profile`.
            .env("RUNAHEAD_ARRAY", self.disks.to_string())
            .env("RUNAHEAD_MANAGER", "embedded");
        if let Some(cgroup) = cgroup {
            spec = cgroup.wrap(&spec);
        }
        let output = Output::new()?;
        let finished = process::run(&mut spec.command(), &output, LIMIT)?;
        let read = |name| std::fs::read_to_string(output.path(name));
        let (out, err) = (read("stdout")?, read("stderr")?);
        ensure!(finished.status.success(), "{:?}: {err}", part.arguments);
        Ok((finished.elapsed_s, out, err))
    }
}

struct Ran {
    elapsed_s: f64,
    outputs: Vec<String>,
    said: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_what_has_none_are_not_met() {
        let said = |disks: u32, modes: &[Mode]| {
            let options = LiveOptions {
                profile: "floppy".into(),
                disks: vec![disks],
                subjects: vec![Subject::Slices],
                modes: modes.to_vec(),
                targets_only: true,
                runs: 1,
                scale: 1.0,
                runahead: PathBuf::new(),
            };
            run(&options, |_| Ok(())).unwrap_err().to_string()
        };
        assert!(said(3, &[Mode::Full]).contains("--targets"));
        assert!(said(4, &[Mode::Prefetch]).contains("--targets"));
        assert!(!said(4, &[Mode::Full]).contains("--targets"), "there is one");
    }
}
