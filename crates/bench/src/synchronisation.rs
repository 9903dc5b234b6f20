//! `bench faults --sync`: what a synchronisation costs the program that makes
//! it (Fraser and Chang 2003, sections 5.1 and 5.2).

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use runahead_protocol::session::{TEST_ALLOW_TRACER, TEST_EVERY_READ_STALLS, TEST_FULL_COPIES};
use serde::{Deserialize, Serialize};

use crate::c_program::CProgram;
use crate::calls;
use crate::explicit::cache_directory;
use crate::launch::{self, Side};
use crate::process::{self, CommandSpec, Output};
use crate::statistics::Statistics;
use crate::summary::{quantile, sorted};
use crate::swap::{LIMIT, wait_for};
use crate::table::{plain_table, seconds};
use crate::tools::{GCC, ensure_installed};

const SYNC: CProgram =
    CProgram { name: "sync", source: include_str!("../../../bench/faults/sync.c"), headers: &[] };
/// Stores to memory between two synchronisations, in the program.
const SYNC_STORES: f64 = 64.0;
/// What a synchronisation by an importing copy may take, median, in s.
const SYNC_MAX_S: f64 = 150e-6;
/// Reads of a run in which system calls are counted.
const COUNTED_READS: u64 = 48;

/// What synchronisations cost, one way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SyncCost {
    /// What was run: `plain`, `importing copy`, `full copy`.
    pub way: String,
    /// Was what is read not in memory, so that the read's wait for the machine's
    /// own disk hides what it can?
    #[serde(default)]
    pub missing: bool,
    /// Time of one read at which a synchronisation is made, seconds: quantiles
    /// 0.1, 0.5, 0.9, 0.99.
    pub read_s: [f64; 4],
    /// Minor faults between two reads, beside those stores that the program
    /// makes to resident memory would raise by themselves.
    pub minor_faults: f64,
    /// Share of the reads at which a copy was made.
    pub synchronised: f64,
    /// Of these copies, the importing ones.
    pub importing: f64,
    /// System calls that the program makes more than plain from a read at which
    /// one is made to the next read, median, counted by tracing.
    #[serde(default)]
    pub calls: f64,
}

/// Measures what a synchronisation costs a program with `megabytes` of
/// resident memory, over `reads` of them.
///
/// # Errors
/// If a run cannot be made.
pub fn measure(runahead: &Path, megabytes: u64, reads: u64) -> Result<Vec<SyncCost>> {
    ensure_installed(&[GCC], false)?;
    let program = SYNC.build(&cache_directory()?)?;
    let scratch = process::scratch_directory()?;
    let report = scratch.path().join("report");
    // On a disk; what has not reached it stays in memory.
    let on_disk = process::scratch_directory_in(&cache_directory()?)?;
    let file = on_disk.path().join("file");
    fs::write(&file, vec![7; 4 << 20]).context("write the file that is read")?;
    File::open(&file).and_then(|file| file.sync_all()).context("flush the file that is read")?;
    let spec = |reads: u64, missing: bool| {
        let arguments = [megabytes.to_string(), reads.to_string()];
        let spec = CommandSpec::new(&program, "/").arg(&file).args(arguments).arg(&report);
        if missing { spec.arg("missing") } else { spec }
    };
    let always = TEST_EVERY_READ_STALLS;
    // System calls from one read to the next.
    let count = |side: Side, test: u64| -> Result<f64> {
        let output = Output::new()?;
        let file = output.path("statistics.json");
        let options = [format!("--test={}", test | TEST_ALLOW_TRACER)];
        let wrapped =
            launch::wrap(&spec(COUNTED_READS, false), side, runahead, &options, Some(&file));
        let calls = calls::between(&mut wrapped.command(), libc::SYS_getrandom)?;
        let calls: Vec<f64> = calls.into_iter().map(|calls| calls as f64).collect();
        let made = if side == Side::Plain { None } else { Some(completed(&wait_for(&file)?)) };
        quantile(&dearest(&calls, made), 0.5).context("the program was not seen to read")
    };
    let plain_calls = count(Side::Plain, 0)?;
    [
        ("plain", Side::Plain, 0, false),
        ("importing copy", Side::Runahead, always, false),
        ("full copy", Side::Runahead, always | TEST_FULL_COPIES, false),
        ("plain", Side::Plain, 0, true),
        ("importing copy", Side::Runahead, always, true),
    ]
    .into_iter()
    .map(|(way, side, test, missing)| {
        let output = Output::new()?;
        let statistics_file = output.path("statistics.json");
        let options = [format!("--test={test}")];
        let wrapped =
            launch::wrap(&spec(reads, missing), side, runahead, &options, Some(&statistics_file));
        let finished = process::run(&mut wrapped.command(), &output, LIMIT)?;
        let ended = process::describe(finished.status);
        ensure!(finished.status.success(), "the program failed: {ended}");
        let text = fs::read_to_string(&report).context("read the report")?;
        let numbers: Vec<f64> =
            text.lines().map(str::parse).collect::<Result<_, _>>().context("parse the report")?;
        let (faults, took_ns) = numbers.split_first().context("the report is empty")?;
        let statistics =
            if side == Side::Plain { Statistics::default() } else { wait_for(&statistics_file)? };
        let completed = completed(&statistics);
        let made = (side != Side::Plain).then_some(completed);
        let slowest = dearest(took_ns, made);
        let quantile = |q| quantile(&slowest, q).unwrap_or(f64::NAN) * 1e-9;
        Ok(SyncCost {
            way: way.into(),
            missing,
            read_s: [0.1, 0.5, 0.9, 0.99].map(quantile),
            minor_faults: faults / reads as f64,
            synchronised: completed / reads as f64,
            importing: statistics.speculation.synchronizations.importing() / completed.max(1.0),
            calls: if made.is_none() || missing { 0.0 } else { count(side, test)? - plain_calls },
        })
    })
    .collect()
}

/// Copies that were made.
fn completed(statistics: &Statistics) -> f64 {
    statistics.speculation.synchronizations.completed.unwrap_or(0.0)
}

/// In order, the costs of the reads at which a copy was `made`, of which there
/// are so many: they are the highest. All where that is `None`.
fn dearest(costs: &[f64], made: Option<f64>) -> Vec<f64> {
    let all = sorted(costs);
    let others = made.map_or(0, |made| all.len().saturating_sub(made as usize));
    all[others..].to_vec()
}

/// What [`measure`] found.
pub fn table(costs: &[SyncCost], megabytes: u64) -> String {
    let title = format!("{megabytes} MiB resident");
    let mut table = plain_table(&[
        &title,
        "median",
        "10%",
        "90%",
        "99%",
        "minor faults each",
        "system calls each",
        "synchronised",
        "importing",
    ]);
    for cost in costs {
        let [low, middle, high, highest] = cost.read_s.map(seconds);
        table.add_row([
            if cost.missing { format!("{}, data missing", cost.way) } else { cost.way.clone() },
            middle,
            low,
            high,
            highest,
            format!("{:.1} (of {SYNC_STORES} stores)", cost.minor_faults),
            if cost.missing { "–".into() } else { format!("{:.0}", cost.calls) },
            format!("{:.0}%", 100.0 * cost.synchronised),
            format!("{:.0}%", 100.0 * cost.importing),
        ]);
    }
    let met = if is_met(costs) { "met" } else { "not met" };
    format!("{table}\nImporting copy: at most {} median: {met}", seconds(SYNC_MAX_S))
}

/// Whether the importing copy takes no longer than is promised.
fn is_met(costs: &[SyncCost]) -> bool {
    costs.iter().any(|cost| {
        let [_, median, _, _] = cost.read_s;
        !cost.missing && cost.importing > 0.5 && median <= SYNC_MAX_S
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_synchronisation_has_a_limit() {
        let cost = |importing, median| SyncCost {
            way: "copy".into(),
            missing: false,
            read_s: [median; 4],
            minor_faults: 0.0,
            synchronised: 1.0,
            importing,
            calls: 40.0,
        };
        assert!(table(&[cost(0.0, 0.02), cost(1.0, 140e-6)], 64).ends_with(": met"));
        assert!(table(&[cost(0.0, 50e-6), cost(1.0, 160e-6)], 64).ends_with(": not met"));
        let hidden = SyncCost { missing: true, ..cost(1.0, 140e-6) };
        assert!(table(&[hidden], 64).ends_with(": not met"), "it does not count");
    }

    #[test]
    fn the_dearest_reads_are_those_with_a_copy() {
        let costs = [3.0, 40.0, 2.0, 50.0, 3.0];
        assert_eq!(dearest(&costs, Some(2.0)), [40.0, 50.0]);
        assert_eq!(dearest(&costs, None).len(), 5);
        assert!(dearest(&costs, Some(0.0)).is_empty());
        assert_eq!(dearest(&costs, Some(9.0)).len(), 5);
    }

    #[test]
    fn the_program_compiles() {
        SYNC.build(tempfile::tempdir().unwrap().path()).unwrap();
    }
}
