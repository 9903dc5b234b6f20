//! Results, and the table of them for the reader.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Order, Policy, Workload};
use crate::results::Machine;
use crate::summary::{Ratio, Summary};
use crate::table::plain_table;

/// What one run did. Rates and times are the disk's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Bytes that the program read (or its clients received) per second, in MB/s.
    pub mb_s: f64,
    /// Requests answered per second.
    pub requests_per_s: f64,
    /// Mean time of a request, seconds.
    pub response_s: f64,
    /// Bytes that the device read for each byte used: above 1, readahead that
    /// was not used; below, what the cache answered.
    pub read_per_used: f64,
    /// Requests to the device for each MB used.
    #[serde(default)]
    pub device_requests_per_mb: f64,
    /// Of these, those for which it had to change its place.
    #[serde(default)]
    pub switches_per_mb: f64,
}

/// One workload, order and number of handlers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Workload.
    pub workload: Workload,
    /// Who orders requests.
    pub order: Order,
    /// Handlers at once.
    pub handlers: u32,
    /// Runs of each policy.
    pub runs: BTreeMap<Policy, Vec<Run>>,
    /// C_switch that the default's switches show, ms.
    pub switch_ms: Option<f64>,
    /// What the paper's model gives for it, MB/s.
    pub model_mb_s: Option<f64>,
    /// The estimated optimum, MB/s.
    pub optimum_mb_s: Option<f64>,
}

impl Point {
    /// Median throughput of a policy, MB/s.
    pub fn mb_s(&self, policy: Policy) -> Option<f64> {
        self.median(policy, |run| run.mb_s)
    }

    /// Median of something of a policy's runs.
    pub(super) fn median(&self, policy: Policy, of: impl Fn(&Run) -> f64) -> Option<f64> {
        let all: Vec<f64> = self.runs.get(&policy)?.iter().map(of).collect();
        Summary::of(&all).map(|summary| summary.median)
    }

    /// A policy's median throughput relative to the default's.
    pub fn gain(&self, policy: Policy) -> Option<f64> {
        Some(self.mb_s(policy)? / self.mb_s(Policy::Default)?)
    }
}

/// The whole benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamsResults {
    /// Version of this format.
    pub version: u32,
    /// `streams`.
    pub benchmark: String,
    /// The machine.
    pub machine: Machine,
    /// The device's profile.
    pub profile: String,
    /// How much faster its clock ran than the wall's.
    pub speed: f64,
    /// Time and data relative to the full ones.
    pub scale: f64,
    /// Mean time of a random request as `runahead profile` measured it, ms.
    pub latency_ms: f64,
    /// Sequential rate as it was measured, MB/s: the mean of the device's zones.
    pub rate_mb_s: f64,
    /// That where the microbenchmarks' files lie, which the model and the optimum
    /// are for.
    #[serde(default)]
    pub files_mb_s: f64,
    /// Competitive depth from these, KiB.
    pub depth_kib: u64,
    /// What was measured.
    pub points: Vec<Point>,
}

impl StreamsResults {
    /// Whether no target is missed for certain.
    pub fn pass(&self) -> bool {
        self.points.iter().all(|point| all_met(point, &self.profile) != Some(Met::No))
    }
}

/// One point in a line.
pub(super) fn line(point: &Point, profile: &str) -> String {
    let mut text =
        format!("{} {} {:>2} at once:", point.workload.name(), point.order.name(), point.handlers);
    for policy in Policy::ALL {
        if let (Some(mb_s), Some(gain)) = (point.mb_s(policy), point.gain(policy)) {
            text += &format!(" {} {mb_s:.1} MB/s ({gain:.2}×)", policy.name());
        }
    }
    for (name, mb_s) in [("model", point.model_mb_s), ("optimum", point.optimum_mb_s)] {
        if let Some(mb_s) = mb_s {
            text += &format!(" {name} {mb_s:.1}");
        }
    }
    if let Some(met) = all_met(point, profile) {
        text += &format!(": {}", met.name());
    }
    text
}

/// Concurrency for which the targets are.
const TARGET_HANDLERS: std::ops::RangeInclusive<u32> = 4..=64;

/// What is asked of Runahead at one point, on one disk.
struct Target {
    name: &'static str,
    /// Least ratio of Runahead's throughput to `of`.
    least: f64,
    of: Vec<f64>,
}

fn targets(point: &Point) -> Vec<Target> {
    let rates = |policy| {
        let runs = point.runs.get(&policy).map_or(&[][..], Vec::as_slice);
        runs.iter().map(|run| run.mb_s).collect::<Vec<f64>>()
    };
    let mut targets = Vec::new();
    let mut ask = |name, least, of: Vec<f64>| targets.push(Target { name, least, of });
    let given = |rate: Option<f64>| rate.into_iter().collect::<Vec<f64>>();
    match point.workload {
        Workload::Search => ask("of default", 1.4, rates(Policy::Default)),
        Workload::Media => ask("of default", 1.15, rates(Policy::Default)),
        Workload::Four64Kb => ask("of default", 0.98, rates(Policy::Default)),
        Workload::OneWhole | Workload::OneRand | Workload::TwoRand => {
            ask("of the model", 0.95, given(point.model_mb_s));
        }
    }
    match point.workload {
        Workload::OneWhole => ask("of the optimum", 0.7, given(point.optimum_mb_s)),
        Workload::OneRand | Workload::TwoRand => {
            ask("of the optimum", 0.5, given(point.optimum_mb_s));
            ask("of aggressive", 1.0, rates(Policy::Aggressive));
        }
        _ => {}
    }
    targets
}

/// How far a target is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Met {
    Yes,
    /// The runs differ too much to tell.
    Perhaps,
    No,
}

impl Met {
    fn name(self) -> &'static str {
        match self {
            Met::Yes => "met",
            Met::Perhaps => "not told apart",
            Met::No => "missed",
        }
    }
}

/// Each target of a point and how Runahead stands to it; empty on devices and
/// at numbers of handlers for which there is none.
fn judged(point: &Point, profile: &str) -> Vec<(Target, Ratio, Met)> {
    if profile != "hdd" || !TARGET_HANDLERS.contains(&point.handlers) {
        return Vec::new();
    }
    let live = point.runs.get(&Policy::Live).map_or(&[][..], Vec::as_slice);
    let live: Vec<f64> = live.iter().map(|run| run.mb_s).collect();
    let judge = |target: Target| {
        let ratio = Ratio::of(&live, &target.of)?;
        let met = match target.least {
            least if ratio.value >= least => Met::Yes,
            least if ratio.high >= least => Met::Perhaps,
            _ => Met::No,
        };
        Some((target, ratio, met))
    };
    targets(point).into_iter().filter_map(judge).collect()
}

/// How far all targets of a point are met.
fn all_met(point: &Point, profile: &str) -> Option<Met> {
    judged(point, profile).into_iter().map(|(_, _, met)| met).max()
}

/// Whether each target is met, and where it is not; empty on devices for
/// which there is none.
fn verdicts(results: &StreamsResults) -> String {
    let mut lines: Vec<(String, Vec<String>, usize)> = Vec::new();
    for point in &results.points {
        for (target, ratio, how) in judged(point, &results.profile) {
            let name = format!(
                "{} {}: at least {} {}",
                point.workload.name(),
                point.order.name(),
                target.least,
                target.name
            );
            if !lines.iter().any(|(other, ..)| *other == name) {
                lines.push((name.clone(), Vec::new(), 0));
            }
            let Some((_, failed, met)) = lines.iter_mut().find(|(other, ..)| *other == name) else {
                continue;
            };
            if how == Met::Yes {
                *met += 1;
                continue;
            }
            failed.push(format!(
                "{} at {}: {:.2} ({:.2} to {:.2})",
                how.name(),
                point.handlers,
                ratio.value,
                ratio.low,
                ratio.high
            ));
        }
    }
    let mut text = String::new();
    for (name, failed, met) in lines {
        let all = met + failed.len();
        text += &format!("{name}: met at {met} of {all}");
        for one in failed {
            text += &format!("; {one}");
        }
        text.push('\n');
    }
    text
}

/// The results for the reader.
pub fn table(results: &StreamsResults) -> String {
    let mut table = plain_table(&[
        "workload",
        "order",
        "at once",
        "default",
        "aggressive",
        "tuned",
        "runahead",
        "model",
        "optimum",
        "of model",
        "of optimum",
        "response",
        "read/used",
        "targets",
    ]);
    for point in &results.points {
        let rate = |mb_s: Option<f64>| mb_s.map_or("–".into(), |mb_s| format!("{mb_s:.1}"));
        let gained = |policy| match (point.mb_s(policy), point.gain(policy)) {
            (Some(mb_s), Some(gain)) => format!("{mb_s:.1} ({gain:.2}×)"),
            _ => "–".into(),
        };
        let live = point.mb_s(Policy::Live);
        let share = |of: Option<f64>| match (live, of) {
            (Some(live), Some(of)) if of > 0.0 => format!("{:.0}%", 100.0 * live / of),
            _ => "–".into(),
        };
        let response = point
            .median(Policy::Live, |run| run.response_s)
            .zip(point.median(Policy::Default, |run| run.response_s))
            .map_or("–".into(), |(live, default)| format!("{:.0}%", 100.0 * live / default));
        let unused = point.median(Policy::Live, |run| run.read_per_used);
        table.add_row([
            point.workload.name().to_owned(),
            point.order.name().to_owned(),
            point.handlers.to_string(),
            rate(point.mb_s(Policy::Default)),
            gained(Policy::Aggressive),
            gained(Policy::Tuned),
            gained(Policy::Live),
            rate(point.model_mb_s),
            rate(point.optimum_mb_s),
            share(point.model_mb_s),
            share(point.optimum_mb_s),
            response,
            unused.map_or("–".into(), |unused| format!("{unused:.2}")),
            all_met(point, &results.profile).map_or("–", Met::name).to_owned(),
        ]);
    }
    format!(
        "{table}\nMB/s in the disk's time, which ran {}× as fast as the wall's; medians of the runs.\n\
         Measured: random request {:.1} ms, {:.1} MB/s ({:.1} where the files lie), competitive \
         depth {} KiB.\n\
         of model, of optimum, response (of the default's), read/used: runahead's.\n\n{}",
        results.speed,
        results.latency_ms,
        results.rate_mb_s,
        results.files_mb_s,
        results.depth_kib,
        verdicts(results)
    )
}

#[cfg(test)]
mod tests {
    use super::super::draw;
    use super::*;

    #[test]
    fn the_table_shows_gain_and_shares() {
        let run = |mb_s| vec![Run { mb_s, response_s: 1.0 / mb_s, ..Run::default() }];
        let point = Point {
            workload: Workload::OneWhole,
            order: Order::Fifo,
            handlers: 16,
            runs: [(Policy::Default, run(10.0)), (Policy::Live, run(22.0))].into(),
            switch_ms: Some(10.5),
            model_mb_s: Some(21.0),
            optimum_mb_s: Some(44.0),
        };
        let results = StreamsResults {
            version: 1,
            benchmark: "streams".into(),
            machine: Machine::default(),
            profile: "hdd".into(),
            speed: 4.0,
            scale: 1.0,
            latency_ms: 10.5,
            rate_mb_s: 51.0,
            files_mb_s: 44.0,
            depth_kib: 524,
            points: vec![point],
        };
        assert!(!results.pass());
        let mut met = results.clone();
        met.points[0].optimum_mb_s = Some(25.0);
        assert!(met.pass());
        let text = table(&results);
        let verdicts = [
            "one-whole fifo: at least 0.95 of the model: met at 1 of 1\n",
            "one-whole fifo: at least 0.7 of the optimum: met at 0 of 1; \
             missed at 16: 0.50 (0.50 to 0.50)\n",
        ];
        let printed = line(&results.points[0], "hdd");
        let expected = "runahead 22.0 MB/s (2.20×) model 21.0 optimum 44.0: missed";
        assert!(printed.ends_with(expected), "{printed}");
        for part in ["22.0 (2.20×)", "105%", "50%", "45%", "missed"].iter().chain(&verdicts) {
            assert!(text.contains(part), "no {part} in {text}");
        }
        let directory = tempfile::tempdir().unwrap();
        let drawn = draw(&results, &directory.path().join("streams")).unwrap();
        assert_eq!(drawn.len(), 2);
    }
}
