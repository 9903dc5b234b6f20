//! What `bench harm` found: when it is enough, when it is harm, and how it is shown.

use serde::{Deserialize, Serialize};

use super::Condition;
use crate::results::Machine;
use crate::statistics::Statistics;
use crate::summary::{PairedRatio, Summary};
use crate::table::{plain_table, seconds};

/// A cell counts as harm where the lower bound of its slowdown is above this.
pub const HARM_ABOVE: f64 = 1.03;

/// Pairs after which a cell may be certain not to be harmed.
const CERTAIN_AFTER: usize = 3;
/// So many times the usual pairs where those say that it is harmed.
const IN_DOUBT: usize = 3;

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
    pub(super) fn is_enough(&self, runs: usize) -> bool {
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
}
