//! The results for the reader.

use super::results::{Call, InterferenceResults, SideResult};
use crate::rounds::Verdict;
use crate::summary::Summary;
use crate::table::{plain_table, seconds};

/// The results for the reader.
pub fn table(results: &InterferenceResults) -> String {
    let mut table = plain_table(&[
        "program", "side", "calls", "median", "p99.9", "max", "+5 ms", "own", "elapsed", "syncs",
        "wrong", "",
    ]);
    let (mut reasons, mut slowest) = (String::new(), String::new());
    for case in &results.cases {
        let (failures, doubts) = (case.failures(), case.losses(Verdict::Undecided));
        let verdict = match case.runahead.synchronizations {
            _ if !failures.is_empty() => "FAIL",
            _ if !doubts.is_empty() => "undecided",
            Some(0.0) => "pass, but nothing speculated",
            _ => "pass",
        };
        for reason in failures.iter().chain(&doubts) {
            reasons += &format!("\n{}: {reason}", case.name);
        }
        let sides =
            [("plain", &case.plain), ("control", &case.control), ("runahead", &case.runahead)];
        for (index, (side, result)) in sides.into_iter().enumerate() {
            let name = if index == 0 { case.name.as_str() } else { "" };
            table.add_row(row(name, side, result, if index == 2 { verdict } else { "" }));
            slowest += &format!("\n  {}, {side}: {}", case.name, in_words(result));
        }
    }
    let calls: Vec<String> =
        results.cases.iter().map(|case| format!("  {}: {}", case.name, case.calls)).collect();
    if results.nothing_speculated() {
        reasons += "\nFAIL: nothing speculated";
    }
    format!(
        "{table}{reasons}\nCalls measured, with {} spinning processes beside them:\n{}\n\
         Each side's slowest call, and the slowest of each run:{slowest}",
        results.busy_processes,
        calls.join("\n")
    )
}

/// What the slowest call of a side consisted of, and each run's slowest.
fn in_words(result: &SideResult) -> String {
    let time = |ns: u64| seconds(ns as f64 / 1e9);
    let Call { whole_ns, computed_ns, queued_ns, slept_ns } = result.slowest();
    let left_ns = whole_ns.saturating_sub(computed_ns + queued_ns + slept_ns);
    let stolen_s: f64 = result.runs.iter().map(|run| run.stolen_s).sum();
    let mut each: Vec<u64> = result.runs.iter().map(|run| run.slowest.whole_ns).collect();
    each.sort_unstable();
    let each: Vec<String> = each.iter().map(|ns| format!("{:.1}", *ns as f64 / 1e6)).collect();
    format!(
        "{} = {} computing, {} waiting for a processor, {} otherwise, {} untold; \
         the host took {} of all runs; {} ms",
        time(whole_ns),
        time(computed_ns),
        time(queued_ns),
        time(slept_ns),
        time(left_ns),
        seconds(stolen_s),
        each.join(" ")
    )
}

fn row(name: &str, side: &str, result: &SideResult, verdict: &str) -> Vec<String> {
    let latency = |ns: u64| seconds(ns as f64 / 1e9);
    let elapsed: Vec<f64> = result.runs.iter().map(|run| run.elapsed_s).collect();
    let elapsed = Summary::of(&elapsed).map_or("–".into(), |s| seconds(s.median));
    let own_ns = result.runs.iter().map(|run| run.own_max_ns).max().unwrap_or(0);
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
        result.too_slow.to_string(),
        latency(own_ns),
        elapsed,
        result.synchronizations.map_or("–".into(), |count| format!("{count:.0}")),
        if wrong.is_empty() { "none".into() } else { wrong.join(", ") },
        verdict.into(),
    ]
}
