//! The results of `bench compiler` as a table.

use super::figures::{KernelResult, KernelResults, KernelRun, beside, median};
use crate::table::{plain_table, seconds, times};

/// The table, as text.
pub fn table(results: &KernelResults) -> String {
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
    let megabytes = |bytes: u64| format!("{:.0} MB", bytes as f64 / 1e6);
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
            seconds(median(&kernel.plain, |run| run.elapsed_s)),
            seconds(median(&kernel.hinted, |run| run.elapsed_s)),
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
            times(kernel.warm()),
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
    format!(
        "Profile {}{}{}, LLVM {}, {} runs of each side\n{table}",
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
        results.llvm,
        results.kernels.first().map_or(0, |kernel| kernel.plain.len())
    )
}

pub(super) fn line(kernel: &KernelResult) -> String {
    format!(
        "{:8} {} → {}, {}{}",
        kernel.name,
        seconds(median(&kernel.plain, |run| run.elapsed_s)),
        seconds(median(&kernel.hinted, |run| run.elapsed_s)),
        times(kernel.speedup()),
        if kernel.equal { "" } else { " RESULTS DIFFER" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Machine;

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
