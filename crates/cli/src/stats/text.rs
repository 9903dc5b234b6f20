//! The summary for people.

use std::fmt::Write;
use std::time::Duration;

use runahead_protocol::stats::Counter;

use super::{Ended, Report, Totals};

/// What the kernel counts pages of files by.
const PAGE_BYTES: f64 = 4096.0;

/// The summary, each line after the first indented.
pub fn report(report: &Report, totals: &Totals, elapsed: Duration, ended: Option<Ended>) -> String {
    let name = report.command.first().map_or("", String::as_str);
    let end = match ended {
        Some(Ended::Status(status)) => format!("ended with status {status}"),
        Some(Ended::Signal(signal)) => format!("was killed by signal {signal}"),
        None => "ended".into(),
    };
    let mut lines =
        vec![format!("runahead: {name} {end} after {}", seconds(elapsed.as_secs_f64()))];
    if totals.is_measured() {
        reads(totals, &mut lines);
        speculation(totals, &mut lines);
        programs(totals, &mut lines);
    } else {
        lines.push("  nothing was measured in it".into());
    }
    lines.extend(report.all_losses(totals).iter().map(|loss| format!("  lost: {loss}")));
    lines.join("\n") + "\n"
}

fn reads(totals: &Totals, lines: &mut Vec<String>) {
    let all = &totals.all;
    lines.push(format!(
        "  reads             {}; {} waited for storage, {} in all ({} not predicted)",
        all.get(Counter::Reads),
        all.get(Counter::Stalls),
        seconds(all.get(Counter::StallNs) as f64 / 1e9),
        all.get(Counter::StallsUnpredicted),
    ));
}

fn speculation(totals: &Totals, lines: &mut Vec<String>) {
    let all = &totals.all;
    let signs = [Counter::SyncsAttempted, Counter::SyncsCompleted, Counter::PrefetchesIssued];
    if signs.iter().all(|sign| all.get(*sign) == 0) {
        lines.push("  speculation       none".into());
        return;
    }
    lines.push(format!(
        "  prefetches        {} ({:.1} MB): {} complete when asked for, {} in flight, {} never asked for",
        all.get(Counter::PrefetchesIssued),
        all.get(Counter::PrefetchedBytes) as f64 / 1e6,
        all.get(Counter::PrefetchesFull),
        all.get(Counter::PrefetchesPartial),
        all.get(Counter::PrefetchesUnused),
    ));
    let each = all.predicted_per_synchronization();
    lines.push(format!(
        "  synchronisations  {} of {} attempted, {} declined, {}{}",
        all.get(Counter::SyncsCompleted),
        all.get(Counter::SyncsAttempted),
        all.get(Counter::SyncsDeclined),
        seconds(all.get(Counter::SyncNs) as f64 / 1e9),
        each.map_or(String::new(), |each| format!("; {each:.1} reads predicted by each")),
    ));
    if !totals.parked.is_empty() {
        let reasons = totals.parked.iter().map(|(reason, count)| (reason.name(), *count));
        lines.push(format!("  stopped by        {}", counted(reasons)));
    }
    if !totals.parked_calls.is_empty() {
        let calls = totals.parked_calls.iter().map(|(name, count)| (name.as_str(), *count));
        lines.push(format!("  at the calls      {}", counted(calls)));
    }
    lines.push(format!(
        "  its processor     {}; memory at most {:.1} MiB",
        seconds(all.get(Counter::SpeculativeCpuUs) as f64 / 1e6),
        all.get(Counter::SpeculativePeakKib) as f64 / 1024.0,
    ));
    if all.get(Counter::DisabledCount) > 0 {
        lines.push(format!(
            "  switched off      {} times, {}",
            all.get(Counter::DisabledCount),
            seconds(all.get(Counter::DisabledNs) as f64 / 1e9),
        ));
    }
    if all.get(Counter::PagesReleased) > 0 {
        lines.push(format!(
            "  given back        {:.1} MB behind the program, {:.1} MB of it read again",
            all.get(Counter::PagesReleased) as f64 * PAGE_BYTES / 1e6,
            all.get(Counter::PagesReturned) as f64 * PAGE_BYTES / 1e6,
        ));
    }
    if all.get(Counter::StreamRuns) > 0 {
        lines.push(format!(
            "  streams           {} runs prefetched, {:.1} MB",
            all.get(Counter::StreamRuns),
            all.get(Counter::StreamBytes) as f64 / 1e6,
        ));
    }
    device(totals, lines);
}

fn device(totals: &Totals, lines: &mut Vec<String>) {
    let all = &totals.all;
    let mut found = String::new();
    if let Some(latency_ns) = all.measured(Counter::DeviceLatencyNs) {
        let _ = write!(found, ", latency {}", seconds(latency_ns as f64 / 1e9));
    }
    if let Some(rate) = all.measured(Counter::DeviceBytesPerS) {
        let _ = write!(found, ", {:.0} MB/s", rate as f64 / 1e6);
    }
    if let Some(depth) = all.measured(Counter::DeviceParallelism) {
        let _ = write!(found, ", {depth} requests at once");
    }
    if let Some(horizon) = all.measured(Counter::DeviceHorizon) {
        let _ = write!(found, ", horizon {horizon} reads");
    }
    if let Some(found) = found.strip_prefix(", ") {
        lines.push(format!("  device            {found}"));
    }
}

/// A line for each program where there are several.
fn programs(totals: &Totals, lines: &mut Vec<String>) {
    if totals.programs.len() < 2 {
        return;
    }
    for program in &totals.programs {
        let each = program.predicted_per_synchronization();
        lines.push(format!(
            "  {:<17} {} processes, {} reads, {} waited {}{}",
            program.name,
            program.processes,
            program.get(Counter::Reads),
            program.get(Counter::Stalls),
            seconds(program.get(Counter::StallNs) as f64 / 1e9),
            each.map_or(String::new(), |each| format!(", {each:.1} predicted by each copy")),
        ));
    }
}

fn counted<'n>(pairs: impl Iterator<Item = (&'n str, u64)>) -> String {
    pairs.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

/// A time with a unit that suits it.
fn seconds(time_s: f64) -> String {
    if time_s >= 1.0 {
        format!("{time_s:.2} s")
    } else if time_s >= 1e-3 {
        format!("{:.1} ms", time_s * 1e3)
    } else {
        format!("{:.0} µs", time_s * 1e6)
    }
}
