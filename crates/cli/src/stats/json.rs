//! The JSON form, version 1. Keys are stable: they may be added to, never
//! renamed. What nobody measured is null.

use std::time::Duration;

use runahead_protocol::stats::Counter;
use serde_json::{Map, Value, json};

use super::{Ended, Program, Report, Totals};

/// The report as one line-broken JSON object.
pub fn report(report: &Report, totals: &Totals, elapsed: Duration, ended: Option<Ended>) -> String {
    let signal = match ended {
        Some(Ended::Signal(signal)) => Some(signal),
        _ => None,
    };
    let all = Numbers { program: &totals.all, is_measured: totals.is_measured() };
    let value = json!({
        "version": 1,
        "command": report.command,
        "mode": report.mode,
        "elapsed_s": elapsed.as_secs_f64(),
        "exit_status": ended.map(Ended::shell_status),
        "signal": signal,
        "reads": all.count(Counter::Reads),
        "reads_predicted": all.count(Counter::ReadsPredicted),
        "io_stalls": {
            "count": all.count(Counter::Stalls),
            "time_s": all.scaled(Counter::StallNs, 1e9),
            "unpredicted": all.count(Counter::StallsUnpredicted),
        },
        "speculation": speculation(&all, totals),
        "faults": {
            "major": all.count(Counter::MajorFaults),
            "minor": all.count(Counter::MinorFaults),
            "notices": all.count(Counter::FaultNotices),
            "notices_by_watching": all.count(Counter::FaultNoticesWatched),
            "cow": null,
        },
        "readahead": { "unused": null },
        "streams": {
            "runs": all.count(Counter::StreamRuns),
            "bytes": all.count(Counter::StreamBytes),
        },
        "memory": {
            "speculative_peak_kib": all.measured(Counter::SpeculativePeakKib, 1.0),
            "fork_kib": null,
        },
        "control": {
            "disabled_count": all.count(Counter::DisabledCount),
            "disabled_s": all.scaled(Counter::DisabledNs, 1e9),
            "intervals": totals.intervals,
        },
        "device": {
            "latency_us": all.measured(Counter::DeviceLatencyNs, 1e3),
            "bandwidth_mb_s": all.measured(Counter::DeviceBytesPerS, 1e6),
            "parallelism": all.measured(Counter::DeviceParallelism, 1.0),
            "horizon": all.measured(Counter::DeviceHorizon, 1.0),
        },
        "sites": {
            "patched": all.count(Counter::SitesPatched),
            "refused": all.count(Counter::SitesRefused),
        },
        "programs": totals.programs.iter().map(program).collect::<Vec<_>>(),
        "losses": report.all_losses(totals),
    });
    format!("{value:#}\n")
}

fn speculation(all: &Numbers<'_>, totals: &Totals) -> Value {
    let parked: Map<String, Value> =
        totals.parked.iter().map(|(reason, count)| (reason.name().into(), json!(count))).collect();
    let calls: Map<String, Value> =
        totals.parked_calls.iter().map(|(name, count)| (name.clone(), json!(count))).collect();
    json!({
        "prefetches": {
            "issued": all.count(Counter::PrefetchesIssued),
            "full": all.count(Counter::PrefetchesFull),
            "partial": all.count(Counter::PrefetchesPartial),
            "unused": all.count(Counter::PrefetchesUnused),
            "bytes": all.count(Counter::PrefetchedBytes),
        },
        "synchronizations": {
            "attempted": all.count(Counter::SyncsAttempted),
            "completed": all.count(Counter::SyncsCompleted),
            "declined": all.count(Counter::SyncsDeclined),
            "time_s": all.scaled(Counter::SyncNs, 1e9),
            "importing": all.count(Counter::SyncsImporting),
            "pages_imported": all.count(Counter::PagesImported),
        },
        "swap": {
            "prefetched": all.count(Counter::SwapPrefetches),
            "used": all.count(Counter::SwapPrefetchesUsed),
        },
        "released": {
            "pages": all.count(Counter::PagesReleased),
            "returned": all.count(Counter::PagesReturned),
        },
        "parked": if all.is_measured { Value::Object(parked) } else { Value::Null },
        "parked_calls": if all.is_measured { Value::Object(calls) } else { Value::Null },
        "cpu_s": all.scaled(Counter::SpeculativeCpuUs, 1e6),
    })
}

fn program(program: &Program) -> Value {
    let numbers = Numbers { program, is_measured: true };
    json!({
        "name": program.name,
        "processes": program.processes,
        "reads": numbers.count(Counter::Reads),
        "stalls": numbers.count(Counter::Stalls),
        "stall_time_s": numbers.scaled(Counter::StallNs, 1e9),
        "reads_predicted": numbers.count(Counter::ReadsPredicted),
        "synchronizations": numbers.count(Counter::SyncsCompleted),
        "reads_predicted_per_synchronization": program.predicted_per_synchronization(),
        "losses": program.losses.iter().map(|loss| loss.text()).collect::<Vec<_>>(),
    })
}

/// Counters as JSON sees them: null where nobody counted.
struct Numbers<'t> {
    program: &'t Program,
    is_measured: bool,
}

impl Numbers<'_> {
    fn count(&self, counter: Counter) -> Option<u64> {
        self.is_measured.then(|| self.program.get(counter))
    }

    fn scaled(&self, counter: Counter, unit: f64) -> Option<f64> {
        self.count(counter).map(|value| value as f64 / unit)
    }

    /// Of a counter that stays 0 until something is measured.
    fn measured(&self, counter: Counter, unit: f64) -> Option<f64> {
        self.program.measured(counter).map(|value| value as f64 / unit)
    }
}
