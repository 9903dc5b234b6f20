//! `bench memory`: what memory control is worth (Fraser and Chang 2003,
//! section 6.2): Table 5 and figures 5 and 6. The programs that swap, at the
//! paper's memory size, and Sphinx at several: without speculation, with it,
//! and with memory control besides.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, DrawingBackend};
use serde::{Deserialize, Serialize};

use crate::plot::{self, Canvas, Drawn, IDEAL, PLAIN, Picture, RUNAHEAD, SLOWER};
use crate::progress::Progress;
use crate::statistics::Statistics;
use crate::summary::{Ratio, Summary};
use crate::swap::{
    KERNELS, Kernel, MEMORY_MB, Subject, SwapOptions, SwapResults, SwapRun, Way, compute_times,
    counted, named, number, time,
};
use crate::table::{plain_table, seconds, spread};

/// Most that a program may take under memory control, beside no speculation.
pub const CONTROLLED_RATIO_MAX: f64 = 1.01;
/// Least share of what speculation gains that memory control must leave.
pub const GAIN_KEPT_MIN: f64 = 0.95;

/// Memory sizes of Figure 6 and Table 5, in MB.
const SPHINX_MB: [f64; 5] = [48.0, 56.0, 64.0, 72.0, 80.0];

/// One program in one size of memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// The program.
    pub name: String,
    /// Megabytes of data.
    pub data_mb: f64,
    /// Megabytes of memory.
    pub memory_mb: f64,
    /// Did all runs print the same and end alike?
    pub equal: bool,
    /// No speculation, and nothing counted.
    pub plain: Vec<SwapRun>,
    /// No speculation: its stalls counted.
    pub observed: Vec<SwapRun>,
    /// Speculation without memory control.
    pub uncontrolled: Vec<SwapRun>,
    /// With memory control: as it is.
    pub controlled: Vec<SwapRun>,
}

/// Everything that was measured.
pub type MemoryResults = SwapResults<Configuration>;

impl Configuration {
    fn ratio(&self, runs: &[SwapRun]) -> Option<Ratio> {
        Ratio::of(&compute_times(runs), &compute_times(&self.plain))
    }

    /// What falls short, in words; none: everything is as promised. A promise
    /// is broken where the whole 95% interval is beyond it.
    pub fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        if !self.equal {
            broken.push("OUTPUT DIFFERS".to_owned());
        }
        let copies = counted(&self.uncontrolled, |s| s.speculation.synchronizations.completed);
        if copies.is_none_or(|copies| copies == 0.0) {
            broken.push("NOTHING SPECULATED".to_owned());
        }
        let (Some(with), Some(without)) =
            (self.ratio(&self.controlled), self.ratio(&self.uncontrolled))
        else {
            return broken;
        };
        if with.low > CONTROLLED_RATIO_MAX {
            broken.push(format!("slower than {CONTROLLED_RATIO_MAX}"));
        }
        // Where speculation helps for sure, most of that must be kept.
        if without.high < 1.0 && 1.0 - with.low < GAIN_KEPT_MIN * (1.0 - without.value) {
            broken.push(format!("keeps less than {:.0}% of the gain", 100.0 * GAIN_KEPT_MIN));
        }
        broken
    }

    /// Share of what speculation gains without memory control that is left
    /// with it; none where it gains nothing.
    fn gain_kept(&self) -> Option<f64> {
        let gain = 1.0 - self.ratio(&self.uncontrolled)?.value;
        (gain > 0.0).then_some((1.0 - self.ratio(&self.controlled)?.value) / gain)
    }

    fn title(&self) -> String {
        format!("{} ({:.0}/{:.0} MB)", self.name, self.data_mb, self.memory_mb)
    }
}

impl MemoryResults {
    /// Whether every promise is kept.
    pub fn pass(&self) -> bool {
        self.kernels.iter().all(|one| one.broken().is_empty())
    }
}

/// Measures. `so_far` is given the results after each configuration.
///
/// # Errors
/// If something is missing, a name is unknown, or a run cannot be made.
pub fn run(
    options: &SwapOptions,
    mut so_far: impl FnMut(&MemoryResults) -> Result<()>,
) -> Result<MemoryResults> {
    ensure!(
        options.scale.is_finite() && options.scale > 0.0,
        "--scale {}: give a factor above 0",
        options.scale
    );
    ensure!(options.runs > 0, "--runs 0: give at least 1");
    let mut results = MemoryResults::begin(options);
    let papers: Vec<Kernel> =
        KERNELS.into_iter().filter(|kernel| kernel.name != "random").collect();
    for kernel in named(&papers, &options.kernels)? {
        let sizes = if kernel.name == "sphinx" { &SPHINX_MB[..] } else { &[MEMORY_MB] };
        let mut subject = Subject::up(&kernel, options)?;
        for memory_mb in sizes {
            let measured = measure(&kernel, &mut subject, *memory_mb, options)
                .with_context(|| format!("{} in {memory_mb} MB", kernel.name))?;
            results.kernels.push(measured);
            so_far(&results)?;
        }
        subject.down()?;
    }
    Ok(results)
}

fn measure(
    kernel: &Kernel,
    subject: &mut Subject<'_>,
    memory_mb: f64,
    options: &SwapOptions,
) -> Result<Configuration> {
    subject.limit(memory_mb)?;
    let mut one = Configuration {
        name: kernel.name.into(),
        data_mb: subject.data_mb,
        memory_mb: memory_mb * options.scale,
        ..Configuration::default()
    };
    let progress = Progress::new(3 * options.runs as u64 + 1);
    progress.step(&format!("{} observed", one.title()));
    one.observed.push(subject.run(Way::Observe)?);
    let ways = [Way::Plain, Way::Uncontrolled, Way::Runahead];
    for round in 0..options.runs {
        // Which comes first goes round.
        for index in 0..ways.len() {
            let way = ways[(round + index) % ways.len()];
            progress.step(&format!("{} {way:?}", one.title()));
            let run = subject.run(way)?;
            match way {
                Way::Uncontrolled => one.uncontrolled.push(run),
                Way::Runahead => one.controlled.push(run),
                _ => one.plain.push(run),
            }
        }
    }
    one.equal = subject.equal;
    let median = |runs: &[SwapRun]| {
        Summary::of(&compute_times(runs)).map_or("–".into(), |summary| seconds(summary.median))
    };
    progress.print(&format!(
        "{}: plain {}, speculation {}, with control {} {}",
        one.title(),
        median(&one.plain),
        median(&one.uncontrolled),
        median(&one.controlled),
        one.broken().join(", ")
    ));
    Ok(one)
}

/// How often speculation was stopped because of its memory.
fn crossings(statistics: &Statistics) -> Option<f64> {
    statistics.rest.get("control")?.get("disabled_count")?.as_f64()
}

/// The paper's Table 5, with the times of Figure 6.
pub fn table(results: &MemoryResults) -> String {
    let mut table = plain_table(&[
        "Table 5",
        "speculation",
        "control",
        "threshold crossings",
        "syncs",
        "stall time",
        "computation (spread)",
        "beside no speculation (95%)",
        "gain kept",
        "",
    ]);
    for one in &results.kernels {
        let rows = [
            ("off", "–", &one.plain, &one.observed),
            ("on", "no", &one.uncontrolled, &one.uncontrolled),
            ("on", "yes", &one.controlled, &one.controlled),
        ];
        for (speculation, control, runs, counts) in rows {
            let is_on = speculation == "on";
            let is_controlled = control == "yes";
            let only = |is: bool, text: String| if is { text } else { "–".into() };
            let ratio = one.ratio(runs).map_or("–".into(), |ratio| {
                format!("{:.3} ({:.3}–{:.3})", ratio.value, ratio.low, ratio.high)
            });
            let kept = one.gain_kept().map_or("–".into(), |kept| format!("{:.0}%", 100.0 * kept));
            table.add_row([
                if is_on { String::new() } else { one.title() },
                speculation.into(),
                control.into(),
                only(is_controlled, number(counted(counts, crossings))),
                only(is_on, number(counted(counts, |s| s.speculation.synchronizations.attempted))),
                time(counted(counts, |s| s.io_stalls.time_s)),
                Summary::of(&compute_times(runs)).map_or("–".into(), |summary| spread(&summary)),
                only(is_on, ratio),
                only(is_controlled, kept),
                if is_controlled { one.broken().join(", ") } else { String::new() },
            ]);
        }
    }
    let verdict = if results.pass() {
        "With memory control nothing is slower, and what speculation gains is kept."
    } else {
        "Not all is as promised: see the last column."
    };
    format!("{table}\n{verdict}")
}

/// Draws figures 5 and 6 in one: computations relative to no speculation.
///
/// # Errors
/// If there is nothing to draw or a file cannot be written.
pub fn draw(results: &MemoryResults, path: &Path) -> Result<Vec<PathBuf>> {
    ensure!(!results.kernels.is_empty(), "nothing was measured: there is nothing to draw");
    plot::write(&Figure { results }, path)
}

struct Figure<'a> {
    results: &'a MemoryResults,
}

impl Picture for Figure<'_> {
    fn size(&self) -> (u32, u32) {
        let groups = self.results.kernels.len() as u32;
        (plot::WIDTH, plot::TOP + plot::BOTTOM + plot::ROW_HEIGHT * groups)
    }

    fn paint<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn<B> {
        let groups = &self.results.kernels;
        let share = |one: &Configuration, runs: &[SwapRun]| {
            one.ratio(runs).map_or(0.0, |ratio| ratio.value)
        };
        let longest = groups
            .iter()
            .flat_map(|one| [share(one, &one.uncontrolled), share(one, &one.controlled)])
            .fold(1.0, f64::max);
        let canvas = Canvas::new(area, longest);
        let legend = [
            ("no speculation", PLAIN),
            ("speculation", RUNAHEAD),
            ("with memory control", IDEAL),
            ("slower", SLOWER),
        ];
        canvas.heading(&format!("Swapped memory on {}", self.results.profile), &legend)?;
        let mut top = plot::TOP as i32;
        for one in groups {
            canvas.name(&one.title(), top)?;
            let bars =
                [(&one.plain, PLAIN), (&one.uncontrolled, RUNAHEAD), (&one.controlled, IDEAL)];
            for (place, (runs, color)) in (0..).zip(bars) {
                let Some(summary) = Summary::of(&compute_times(runs)) else { continue };
                let share = share(one, runs);
                let color = if share > CONTROLLED_RATIO_MAX { SLOWER } else { color };
                canvas.bar(place, share, &seconds(summary.median), top, color)?;
            }
            top += plot::ROW_HEIGHT as i32;
        }
        canvas.axis(top, longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(compute_s: f64) -> Vec<SwapRun> {
        let statistics = r#"{"version": 1, "io_stalls": {"count": 9, "time_s": 0.5},
            "control": {"disabled_count": 12, "disabled_s": 1.0, "intervals": []},
            "speculation": {"synchronizations": {"attempted": 345, "completed": 340}}}"#;
        let statistics = Statistics::parse(statistics).unwrap();
        [0.999, 1.0, 1.001]
            .map(|factor| SwapRun {
                compute_s: compute_s * factor,
                statistics: Some(statistics.clone()),
                ..SwapRun::default()
            })
            .to_vec()
    }

    fn configuration(plain: f64, uncontrolled: f64, controlled: f64) -> Configuration {
        Configuration {
            name: "sphinx".into(),
            data_mb: 181.0,
            memory_mb: 56.0,
            equal: true,
            plain: runs(plain),
            observed: runs(plain),
            uncontrolled: runs(uncontrolled),
            controlled: runs(controlled),
        }
    }

    #[test]
    fn promises() {
        let kept = |plain, without, with| configuration(plain, without, with).broken().is_empty();
        assert!(kept(2.0, 1.0, 1.0));
        assert!(kept(2.0, 1.0, 0.9));
        assert!(!kept(2.0, 1.0, 1.2), "a fifth of the gain is lost");
        assert!(kept(2.0, 3.0, 2.01));
        assert!(!kept(2.0, 3.0, 2.1), "slower than without speculation");
        let mut differs = configuration(2.0, 1.0, 1.0);
        differs.equal = false;
        assert!(!differs.broken().is_empty());
        let mut nothing = configuration(2.0, 2.0, 2.0);
        assert!(nothing.broken().is_empty());
        for statistics in nothing.uncontrolled.iter_mut().flat_map(|run| &mut run.statistics) {
            statistics.speculation.synchronizations.completed = Some(0.0);
        }
        assert_eq!(nothing.broken(), ["NOTHING SPECULATED"]);
    }

    #[test]
    fn the_table_and_the_figure_are_the_papers() {
        let results = MemoryResults {
            profile: "cloud".into(),
            scale: 1.0,
            machine: crate::results::Machine::here(),
            kernels: vec![configuration(2.0, 1.0, 1.0), configuration(2.0, 3.0, 2.5)],
        };
        let text = table(&results);
        for expected in ["sphinx (181/56 MB)", "345", " 12 ", "500 ms", "0.500", "100%", "slower"] {
            assert!(text.contains(expected), "{expected} in\n{text}");
        }
        assert!(!results.pass());
        let directory = tempfile::tempdir().unwrap();
        let written = draw(&results, &directory.path().join("memory")).unwrap();
        let svg = std::fs::read_to_string(&written[0]).unwrap();
        for expected in ["with memory control", "sphinx (181/56 MB)", "2.50 s", "150%"] {
            assert!(svg.contains(expected), "no {expected:?} in the drawing");
        }
    }
}
