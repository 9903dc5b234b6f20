//! The paper's Table 2 and the lines below it.

use comfy_table::{CellAlignment, ContentArrangement, Table, TableComponent, presets};

use crate::launch::Side;
use crate::promised::{self, Promised};
use crate::results::{CaseResult, Results, Run};
use crate::summary::Summary;

/// What stands for a quantity that is not known.
const UNKNOWN: &str = "–";

const HEADER: [&str; 13] = [
    "benchmark",
    "runahead",
    "elapsed (spread)",
    "ratio",
    "ideal",
    "stalls",
    "stall time",
    "prefetches",
    "full",
    "unused spec",
    "unused RA",
    "sync (time)",
    "CoW faults",
];

/// The columns of Table 2, two rows a case as in the paper, and what it
/// leaves out: spread, ratio, ideal.
pub fn table2(results: &Results) -> String {
    let mut table = plain_table(&HEADER);
    for case in &results.cases {
        table.add_row(plain_row(case));
        table.add_row(runahead_row(case));
    }
    table.to_string()
}

/// A table with no line but the header's, numbers on the right.
pub fn plain_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_style(TableComponent::HeaderLines, '─');
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn plain_row(case: &CaseResult) -> Vec<String> {
    let mut row = vec![case.title(), "no".into(), elapsed(case, Side::Plain)];
    row.push(String::new());
    row.push(case.ideal.map_or(UNKNOWN.into(), |ideal| seconds(ideal.seconds)));
    row.extend(stalls(&case.observed));
    row.extend([UNKNOWN, UNKNOWN, UNKNOWN].map(str::to_owned));
    row.push(count(case.unused_readahead(Side::Plain)));
    row.extend([UNKNOWN, UNKNOWN].map(str::to_owned));
    row
}

fn runahead_row(case: &CaseResult) -> Vec<String> {
    let runs = &case.runahead;
    let mut row = vec![String::new(), "yes".into(), elapsed(case, Side::Runahead)];
    row.push(case.speedup().map_or(UNKNOWN.into(), |ratio| ratio_cell(ratio.value)));
    row.push(String::new());
    row.extend(stalls(runs));
    row.push(count(CaseResult::counted(runs, |s| s.speculation.prefetches.issued)));
    let full = CaseResult::counted(runs, |s| s.speculation.prefetches.full_share());
    row.push(full.map_or(UNKNOWN.into(), |share| format!("{:.0}%", share * 100.0)));
    row.push(count(CaseResult::counted(runs, |s| s.speculation.prefetches.unused)));
    row.push(count(case.unused_readahead(Side::Runahead)));
    let attempts = CaseResult::counted(runs, |s| s.speculation.synchronizations.attempted);
    let time_s = CaseResult::counted(runs, |s| s.speculation.synchronizations.time_s);
    row.push(match (attempts, time_s) {
        (None, None) => UNKNOWN.into(),
        (attempts, time_s) => {
            format!("{} ({})", count(attempts), time_s.map_or(UNKNOWN.into(), seconds))
        }
    });
    row.push(count(case.cow_faults()));
    row
}

fn stalls(runs: &[Run]) -> [String; 2] {
    let time_s = CaseResult::counted(runs, |s| s.io_stalls.time_s);
    [
        count(CaseResult::counted(runs, |s| s.io_stalls.count)),
        time_s.map_or(UNKNOWN.into(), seconds),
    ]
}

fn elapsed(case: &CaseResult, side: Side) -> String {
    Summary::of(&case.elapsed(side)).map_or(UNKNOWN.into(), |summary| spread(&summary))
}

/// Median with smallest and largest value.
pub fn spread(summary: &Summary) -> String {
    let (low, high) = (seconds(summary.min), seconds(summary.max));
    let unit = |text: &str| text.rsplit(' ').next().map(str::to_owned);
    let median = seconds(summary.median);
    // One unit is enough where all three have the same.
    if unit(&median) == unit(&low) && unit(&low) == unit(&high) {
        let low = low.rsplit_once(' ').map_or(low.as_str(), |(number, _)| number);
        let high = high.rsplit_once(' ').map_or(high.as_str(), |(number, _)| number);
        return format!("{median} ({low}–{high})");
    }
    format!("{median} ({low}–{high})")
}

/// A time in three digits: `2.51 s`, `84.0 ms`, `61.0 µs`, `80 ns`.
pub fn seconds(time_s: f64) -> String {
    let (value, unit) = match time_s.abs() {
        t if t >= 1.0 => (time_s, "s"),
        t if t >= 1e-3 => (time_s * 1e3, "ms"),
        t if t >= 1e-6 => (time_s * 1e6, "µs"),
        0.0 => return "0 s".into(),
        _ => return format!("{:.0} ns", time_s * 1e9),
    };
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

/// `24.9×`, `1.03×`.
pub fn times(ratio: f64) -> String {
    if ratio >= 9.95 { format!("{ratio:.1}×") } else { format!("{ratio:.2}×") }
}

/// `4.00× −75%`: how many times faster, and by how much elapsed time changes,
/// as the paper says it.
fn ratio_cell(ratio: f64) -> String {
    let change = ((1.0 / ratio - 1.0) * 100.0).round();
    let sign = if change < 0.0 { "−" } else { "+" };
    format!("{} {sign}{:.0}%", times(ratio), change.abs())
}

/// The cases of an application that has several, taken together: sums of
/// medians (the paper reports PostgreSQL's queries as one).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// How many they are, more than one.
    pub cases: usize,
    /// Elapsed time, seconds.
    pub plain_s: f64,
    /// The same under Runahead.
    pub runahead_s: f64,
    /// Time at best, where it is known of each.
    pub ideal_s: Option<f64>,
}

impl Mix {
    /// Of an application; none if it has one case.
    pub fn of(results: &Results, app: &str) -> Option<Self> {
        let cases: Vec<&CaseResult> =
            results.cases.iter().filter(|c| c.app == app && !c.case.is_empty()).collect();
        let sum = |side| -> Option<f64> {
            cases.iter().map(|case| Some(Summary::of(&case.elapsed(side))?.median)).sum()
        };
        let (plain_s, runahead_s) = (sum(Side::Plain)?, sum(Side::Runahead)?);
        let ideal_s = cases.iter().map(|case| Some(case.ideal?.seconds)).sum();
        (cases.len() > 1).then_some(Self { cases: cases.len(), plain_s, runahead_s, ideal_s })
    }

    /// How many times faster.
    pub fn speedup(&self) -> f64 {
        self.plain_s / self.runahead_s
    }
}

/// The mix of each application that has one, a line each.
fn mixes(results: &Results) -> Vec<String> {
    let mut apps: Vec<&str> = results.cases.iter().map(|case| case.app.as_str()).collect();
    apps.dedup();
    let line = |app: &str| {
        let mix = Mix::of(results, app)?;
        Some(format!(
            "{app}, its {} cases together: plain {}, runahead {}, {}, ideal {}",
            mix.cases,
            seconds(mix.plain_s),
            seconds(mix.runahead_s),
            ratio_cell(mix.speedup()),
            mix.ideal_s.map_or(UNKNOWN.into(), seconds)
        ))
    };
    apps.into_iter().filter_map(line).collect()
}

fn count(known: Option<f64>) -> String {
    known.map_or(UNKNOWN.into(), |value| format!("{value:.0}"))
}

/// One case in one line, while others are still to come.
pub fn line(case: &CaseResult) -> String {
    let ratio = case.speedup().map_or(UNKNOWN.into(), |ratio| times(ratio.value));
    let ideal = case.ideal.map_or(UNKNOWN.into(), |ideal| seconds(ideal.seconds));
    let output = if case.mismatches.is_empty() { "" } else { ", WRONG OUTPUT" };
    format!(
        "{}: plain {}, runahead {}, {ratio}, ideal {ideal}{output}",
        case.title(),
        elapsed(case, Side::Plain),
        elapsed(case, Side::Runahead),
    )
}

/// What the reader must not miss: promises, cases that lose, outputs that differ.
pub fn verdict(results: &Results) -> String {
    let mut lines = mixes(results);
    lines.extend(promised::of(results).iter().map(Promised::line));
    let mut slower: Vec<&CaseResult> = results.cases.iter().filter(|c| c.is_slower()).collect();
    slower.sort_by_key(|case| case.title());
    let broken = promised::slowed(results);
    for case in &slower {
        if let Some(ratio) = case.speedup() {
            let is_broken = broken.iter().any(|one| std::ptr::eq(*one, *case));
            lines.push(format!(
                "LOSES: {}: {} the plain time (95%: {} to {}){}",
                case.title(),
                times(1.0 / ratio.value),
                times(1.0 / ratio.high),
                times(1.0 / ratio.low),
                if is_broken { ", MISSED: at most 1.03× was promised" } else { "" }
            ));
        }
    }
    if slower.is_empty() {
        lines.push("No case loses (more than 1.03× the plain time).".into());
    }
    for case in &results.cases {
        for mismatch in &case.mismatches {
            lines.push(format!(
                "WRONG OUTPUT: {}, {:?} run {}: {} differ; both are in {}",
                case.title(),
                mismatch.side,
                mismatch.run,
                mismatch.differences.join(", "),
                mismatch.kept.display()
            ));
        }
    }
    for missing in &results.not_run {
        lines.push(format!("NOT RUN: {}: {}", missing.app, missing.why));
    }
    if results.outputs_equal() {
        lines.push("Every run's output equals the first plain run's.".into());
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Mismatch;
    use crate::results::tests::example;

    fn results(cases: Vec<CaseResult>) -> Results {
        Results { cases, ..Results::begin("explicit", "cloud", 1.0, 1) }
    }

    #[test]
    fn times_have_three_digits() {
        let shown: Vec<String> =
            [0.0, 80e-9, 61.4e-6, 0.084, 0.9996, 2.514, 42.04, 9915.0].map(seconds).to_vec();
        assert_eq!(
            shown,
            ["0 s", "80 ns", "61.4 µs", "84.0 ms", "1000 ms", "2.51 s", "42.0 s", "9915 s"]
        );
        assert_eq!(times(1.0), "1.00×");
        assert_eq!(times(24.94), "24.9×");
    }

    #[test]
    fn unknown_is_a_dash_and_never_zero() {
        let text = table2(&results(vec![example(2.0, 0.5)]));
        let rows: Vec<&str> = text.lines().filter(|line| line.contains(" s ")).collect();
        assert!(text.contains("unused RA"), "{text}");
        let plain = text.lines().find(|line| line.contains("agrep")).unwrap();
        assert_eq!(plain.matches(UNKNOWN).count(), 8 + 1, "{plain}");
        assert!(!plain.contains(" 0 "), "{plain}");
        assert!(text.contains("90%") && text.contains("2 (3.00 ms)"), "{text}");
        assert!(text.contains("4.00×"), "{text}");
        assert!(!rows.is_empty());
    }

    #[test]
    fn queries_are_also_taken_together() {
        let query = |name: &str, runahead_s| {
            let mut case = example(2.0, runahead_s);
            (case.app, case.case) = ("postgresql".into(), name.into());
            case
        };
        let cases = vec![example(1.0, 0.1), query("a", 0.5), query("b", 1.5)];
        assert_eq!(
            mixes(&results(cases)),
            ["postgresql, its 2 cases together: plain 4.00 s, runahead 2.00 s, 2.00× −50%, \
              ideal 400 ms"]
        );
        assert_eq!(ratio_cell(0.8), "0.80× +25%");
    }

    #[test]
    fn what_could_not_be_run_is_named() {
        use crate::results::NotRun;
        let mut results = results(vec![example(2.0, 0.5)]);
        assert!(results.is_whole());
        results.not_run.push(NotRun { app: "lmdb".into(), why: "no space left".into() });
        assert!(!results.is_whole());
        assert!(verdict(&results).contains("NOT RUN: lmdb: no space left"));
    }

    #[test]
    fn short_forms() {
        let case = example(2.0, 0.5);
        assert_eq!(
            line(&case),
            "agrep: plain 2.00 s (1.96–2.10), runahead 500 ms (490–525), 4.00×, \
             ideal 200 ms"
        );
    }

    #[test]
    fn losers_and_wrong_outputs_are_named() {
        let good = verdict(&results(vec![example(2.0, 0.5)]));
        assert!(good.contains("No case loses") && good.contains("output equals"), "{good}");
        let mut bad = example(2.0, 3.0);
        bad.mismatches.push(Mismatch {
            side: Side::Runahead,
            run: 2,
            differences: vec!["standard output".into()],
            kept: "/kept".into(),
        });
        let text = verdict(&results(vec![bad]));
        assert!(text.contains("LOSES: agrep: 1.50×") && !text.contains("MISSED"), "{text}");
        assert!(text.contains("WRONG OUTPUT: agrep, Runahead run 2"), "{text}");
        assert!(!text.contains("output equals"), "{text}");
        let busy = Results { busy: true, ..results(vec![example(2.0, 3.0)]) };
        let text = verdict(&busy);
        assert!(text.contains(", MISSED: at most 1.03× was promised"), "{text}");
    }
}
