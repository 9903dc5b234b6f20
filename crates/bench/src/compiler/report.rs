//! The results of `bench compiler` as a table.

use super::figures::{KernelResult, KernelResults, KernelRun, beside, median};
use crate::summary::{Ratio, Summary};
use crate::table::{plain_table, seconds, spread, times};

/// The table, as text: of what was measured in limited memory, or in memory alone.
pub fn table(results: &KernelResults) -> String {
    let is_warm = results.kernels.iter().all(|kernel| kernel.plain.is_empty());
    if is_warm { warm_table(results) } else { full_table(results) }
}

fn full_table(results: &KernelResults) -> String {
    let mut table = plain_table(&[
        "kernel",
        "data",
        "memory",
        "plain",
        "hinted",
        "speedup",
        "ideal",
        "removed",
        "at full rate",
        "idle",
        "stall",
        "sleep",
        "coverage",
        "dropped",
        "user",
        "CPU",
        "faults",
        "reads",
        "busy",
        "free",
        "cold",
        "warm",
        "neighbour",
        "speculated",
        "both",
        "equal",
    ]);
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    for kernel in &results.kernels {
        let both = |quantity: &dyn Fn(&KernelRun) -> f64| {
            format!(
                "{:.0}→{:.0}",
                median(&kernel.plain, quantity),
                median(&kernel.hinted, quantity)
            )
        };
        let faster = |runs: &[KernelRun]| {
            if runs.is_empty() {
                return "–".into();
            }
            let plain = median(&kernel.plain, |run| run.elapsed_s);
            times(plain / median(runs, |run| run.elapsed_s))
        };
        let cpu = median(&kernel.hinted, |run| run.cpu_s) / median(&kernel.plain, |run| run.cpu_s);
        table.add_row([
            kernel.name.clone(),
            megabytes(kernel.data_bytes),
            megabytes(kernel.memory_bytes),
            elapsed(&kernel.plain),
            elapsed(&kernel.hinted),
            times(kernel.speedup()),
            seconds(kernel.ideal.map_or(f64::NAN, |ideal| ideal.seconds)),
            percent(kernel.removed()),
            percent(kernel.removed_at_full_rate()),
            both(&|run| run.idle() * 100.0) + "%",
            percent(kernel.stall_removed()),
            percent(kernel.sleep_removed()),
            percent(kernel.coverage()),
            percent(kernel.dropped()),
            times(kernel.user()),
            times(cpu),
            both(&|run| run.major_faults as f64),
            both(&|run| run.device.reads as f64),
            both(&|run| {
                let busy_s = run.device.busy_ns.unwrap_or(0) as f64 / 1e9;
                100.0 * busy_s / run.elapsed_s / results.channels
            }) + "%",
            if kernel.plain.iter().chain(&kernel.hinted).all(|run| run.free.is_some()) {
                both(&|run| run.free.unwrap_or_default() * 100.0) + "%"
            } else {
                "–".into()
            },
            times(kernel.cold()),
            kernel.warm().map_or("–".into(), |ratio| times(ratio.value)),
            if kernel.plain.iter().any(|run| run.beside.is_some()) {
                format!("{}→{}", seconds(beside(&kernel.plain)), seconds(beside(&kernel.hinted)))
            } else {
                "–".into()
            },
            faster(&kernel.speculated),
            faster(&kernel.both),
            if kernel.equal { "yes" } else { "NO" }.into(),
        ]);
    }
    let runs = results.kernels.first().map_or(0, |kernel| kernel.plain.len());
    format!("{}, {runs} runs of each side\n{table}", heading(results))
}

/// With the data in memory and warm (Figure 6): times with their spread, and the ratio
/// with its interval.
fn warm_table(results: &KernelResults) -> String {
    let mut table = plain_table(&["kernel", "data", "plain", "hinted", "ratio", "equal"]);
    let shown = |ratio: Ratio| format!("{:.3} ({:.3}–{:.3})", ratio.value, ratio.low, ratio.high);
    for kernel in &results.kernels {
        table.add_row([
            kernel.name.clone(),
            megabytes(kernel.data_bytes),
            elapsed(&kernel.plain_warm),
            elapsed(&kernel.hinted_warm),
            kernel.warm().map_or("–".into(), shown),
            if kernel.equal { "yes" } else { "NO" }.into(),
        ]);
    }
    let runs = results.kernels.first().map_or(0, |kernel| kernel.plain_warm.len());
    format!(
        "{}, in memory and warm, {runs} runs of each side in pairs\n{table}\n\
         Ratio: median of the pairs, hinted over plain, and where 95% of such medians lie.",
        heading(results)
    )
}

/// The median of the elapsed times, the least and the most.
fn elapsed(runs: &[KernelRun]) -> String {
    let times: Vec<f64> = runs.iter().map(|run| run.elapsed_s).collect();
    Summary::of(&times).map_or("–".into(), |summary| spread(&summary))
}

fn megabytes(bytes: u64) -> String {
    format!("{:.0} MB", bytes as f64 / 1e6)
}

/// What it was measured on.
fn heading(results: &KernelResults) -> String {
    format!(
        "Profile {}{}{}, LLVM {}",
        results.profile,
        if results.time_factor == 1.0 {
            String::new()
        } else {
            format!(", times × {}", results.time_factor)
        },
        match results.slower_cycles {
            0 => String::new(),
            cycles => format!(", every operation {cycles} cycles longer"),
        },
        results.llvm
    )
}

pub(super) fn line(kernel: &KernelResult) -> String {
    let (plain, hinted) = if kernel.plain.is_empty() {
        (&kernel.plain_warm, &kernel.hinted_warm)
    } else {
        (&kernel.plain, &kernel.hinted)
    };
    let (plain_s, hinted_s) =
        (median(plain, |run| run.elapsed_s), median(hinted, |run| run.elapsed_s));
    format!(
        "{:8} {} → {}, {}{}",
        kernel.name,
        seconds(plain_s),
        seconds(hinted_s),
        times(plain_s / hinted_s),
        if kernel.equal { "" } else { " RESULTS DIFFER" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Machine;

    fn timed(elapsed_s: f64) -> KernelRun {
        KernelRun { elapsed_s, ..KernelRun::default() }
    }

    fn results(kernel: KernelResult) -> KernelResults {
        KernelResults {
            profile: "cloud".into(),
            channels: 1.0,
            time_factor: 1.0,
            slower_cycles: 0,
            llvm: 22,
            machine: Machine::default(),
            kernels: vec![kernel],
        }
    }

    #[test]
    fn elapsed_times_have_their_spread() {
        let kernel = KernelResult {
            name: "buk".into(),
            plain: vec![timed(2.0), timed(9.0), timed(4.0)],
            hinted: vec![timed(1.0), timed(1.25), timed(1.5)],
            ..KernelResult::default()
        };
        let table = table(&results(kernel));
        assert!(table.contains("4.00 s (2.00–9.00)"), "{table}");
        assert!(table.contains("1.25 s (1.00–1.50)"), "{table}");
    }

    #[test]
    fn what_ran_in_memory_alone_has_a_ratio_with_its_interval() {
        let kernel = KernelResult {
            name: "buk".into(),
            plain_warm: vec![timed(1.0), timed(2.0), timed(4.0)],
            hinted_warm: vec![timed(1.01), timed(2.04), timed(4.12)],
            equal: true,
            ..KernelResult::default()
        };
        assert!(line(&kernel).contains("2.00 s → 2.04 s, 0.98×"), "{}", line(&kernel));
        let table = table(&results(kernel));
        assert!(table.contains("3 runs of each side in pairs"), "{table}");
        assert!(table.contains("1.020 (1.010–1.030)"), "{table}");
        assert!(!table.contains("NaN"), "{table}");
    }

    #[test]
    fn memory_at_which_nobody_looked_is_not_full() {
        let shown = |free| {
            let run = KernelRun { free, ..KernelRun::default() };
            let runs = vec![run.clone()];
            let kernel =
                KernelResult { plain: runs.clone(), hinted: runs, ..KernelResult::default() };
            let results = KernelResults {
                profile: "cloud".into(),
                channels: 1.0,
                time_factor: 1.0,
                slower_cycles: 0,
                llvm: 14,
                machine: Machine::default(),
                kernels: vec![kernel],
            };
            (table(&results), serde_json::to_value(&run).unwrap()["free"].clone())
        };
        let (unknown, none) = shown(None);
        let (known, half) = shown(Some(0.5));
        assert!(none.is_null() && half == 0.5, "{none} {half}");
        assert!(known.contains("50→50%"), "{known}");
        let dashes = |table: &str| table.matches('–').count();
        assert_eq!(dashes(&unknown), dashes(&known) + 1, "{unknown}");
    }
}
