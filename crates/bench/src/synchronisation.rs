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
use crate::place::Place;
use crate::process::{self, CommandSpec, Output};
use crate::statistics::Statistics;
use crate::summary::{Summary, quantile, sorted};
use crate::swap::{LIMIT, wait_for};
use crate::table::{plain_table, seconds, spread};
use crate::tools::{GCC, ensure_installed};

const SYNC: CProgram =
    CProgram { name: "sync", source: include_str!("../../../bench/faults/sync.c"), headers: &[] };
/// Stores to memory between two synchronisations, in the program.
const SYNC_STORES: f64 = 64.0;
/// What a synchronisation by an importing copy may take, median, in s.
const SYNC_MAX_S: f64 = 150e-6;
/// Reads of a run before page faults are counted, in the program.
const WARM: u64 = 32;
/// Reads of a run in which system calls are counted.
const COUNTED_READS: u64 = 48;

/// What synchronisations cost, one way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SyncCost {
    /// What was run: `plain`, `importing copy`, `full copy`.
    pub way: String,
    /// Did the reads wait for the device, or was the data in memory, where no
    /// wait hides anything?
    pub missing: bool,
    /// Mean time of the normal process that a synchronisation took, in seconds,
    /// by its own clock, a mean for each run.
    pub mean_s: Vec<f64>,
    /// Time of one read at which a synchronisation is made, seconds: quantiles
    /// 0.1, 0.5, 0.9, 0.99, over all runs.
    pub read_s: [f64; 4],
    /// Minor faults between two reads, beside those stores that the program
    /// makes to resident memory would raise by themselves.
    pub minor_faults: f64,
    /// Share of the reads at which a synchronisation was attempted.
    pub attempted: f64,
    /// Of these, those at which a copy was made.
    pub completed: f64,
    /// Of these copies, the importing ones.
    pub importing: f64,
    /// System calls that the program makes more than plain from a read at which
    /// one is made to the next read, median, counted by tracing.
    #[serde(default)]
    pub calls: f64,
}

/// How synchronisations are measured.
#[derive(Debug)]
pub struct SyncOptions<'a> {
    /// The runahead executable to measure.
    pub runahead: &'a Path,
    /// Where the file lies that is read.
    pub place: &'a Place,
    /// Resident memory of the program, in MiB.
    pub megabytes: u64,
    /// Reads of a run.
    pub reads: u64,
    /// Runs of each way.
    pub runs: usize,
}

/// A way to run the program, and what its runs have come to.
struct Way {
    name: &'static str,
    side: Side,
    test: u64,
    missing: bool,
    mean_s: Vec<f64>,
    dearest_ns: Vec<f64>,
    faults: f64,
    attempted: f64,
    completed: f64,
    importing: f64,
}

/// Measures what a synchronisation costs, all ways in turn.
///
/// # Errors
/// If a run cannot be made.
pub fn measure(options: &SyncOptions<'_>) -> Result<Vec<SyncCost>> {
    let SyncOptions { runahead, place, megabytes, reads, runs } = *options;
    ensure_installed(&[GCC], false)?;
    let program = SYNC.build(&cache_directory()?)?;
    let scratch = process::scratch_directory()?;
    let report = scratch.path().join("report");
    let file = place.store().join("runahead-bench-sync");
    place.untimed(|| -> Result<()> {
        fs::write(&file, vec![7; 4 << 20]).context("write the file that is read")?;
        File::open(&file).and_then(|file| file.sync_all()).context("flush the file that is read")
    })?;
    let file = place.root().join("runahead-bench-sync");
    let spec = |reads: u64, missing: bool| {
        let arguments = [megabytes.to_string(), reads.to_string()];
        let spec = CommandSpec::new(&program, "/").arg(&file).args(arguments).arg(&report);
        if missing { spec.arg("missing") } else { spec }
    };
    let always = TEST_EVERY_READ_STALLS;
    // System calls from one read to the next.
    let count = |side: Side, test: u64, missing: bool| -> Result<f64> {
        let output = Output::new()?;
        let file = output.path("statistics.json");
        let options = [format!("--test={}", test | TEST_ALLOW_TRACER)];
        let wrapped =
            launch::wrap(&spec(COUNTED_READS, missing), side, runahead, &options, Some(&file));
        let calls = calls::between(&mut wrapped.command(), libc::SYS_getrandom)?;
        let calls: Vec<f64> = calls.into_iter().map(|calls| calls as f64).collect();
        let made = if side == Side::Plain { None } else { Some(completed(&wait_for(&file)?)) };
        quantile(&dearest(&calls, made), 0.5).context("the program was not seen to read")
    };
    let way = |name, side, test, missing| Way {
        name,
        side,
        test,
        missing,
        mean_s: Vec::new(),
        dearest_ns: Vec::new(),
        faults: 0.0,
        attempted: 0.0,
        completed: 0.0,
        importing: 0.0,
    };
    let mut ways = [
        way("plain", Side::Plain, 0, true),
        way("importing copy", Side::Runahead, always, true),
        way("full copy", Side::Runahead, always | TEST_FULL_COPIES, true),
        way("plain", Side::Plain, 0, false),
        way("importing copy", Side::Runahead, always, false),
        way("full copy", Side::Runahead, always | TEST_FULL_COPIES, false),
    ];
    for _ in 0..runs {
        for way in &mut ways {
            let output = Output::new()?;
            let statistics_file = output.path("statistics.json");
            let options = [format!("--test={}", way.test)];
            let spec = spec(reads, way.missing);
            let statistics_at = Some(statistics_file.as_path());
            let wrapped = launch::wrap(&spec, way.side, runahead, &options, statistics_at);
            let finished = process::run(&mut wrapped.command(), &output, LIMIT)?;
            let ended = process::describe(finished.status);
            ensure!(finished.status.success(), "the program failed: {ended}");
            let text = fs::read_to_string(&report).context("read the report")?;
            let numbers: Vec<f64> = text
                .lines()
                .map(str::parse)
                .collect::<Result<_, _>>()
                .context("parse the report")?;
            let (faults, took_ns) = numbers.split_first().context("the report is empty")?;
            way.faults += faults;
            if way.side == Side::Plain {
                way.dearest_ns.extend(took_ns);
                continue;
            }
            let statistics = wait_for(&statistics_file)?;
            let made = &statistics.speculation.synchronizations;
            let attempted = made.attempted.unwrap_or(0.0);
            way.mean_s.push(made.time_s.unwrap_or(f64::NAN) / attempted.max(1.0));
            way.attempted += attempted;
            way.completed += completed(&statistics);
            way.importing += made.importing();
            way.dearest_ns.extend(dearest(took_ns, Some(attempted)));
        }
    }
    let plain_calls = [count(Side::Plain, 0, false)?, count(Side::Plain, 0, true)?];
    let all = (reads * runs as u64) as f64;
    ways.into_iter()
        .map(|way| {
            let slowest = sorted(&way.dearest_ns);
            let quantile = |q| quantile(&slowest, q).unwrap_or(f64::NAN) * 1e-9;
            let [in_memory, from_device] = plain_calls;
            let plain_calls = if way.missing { from_device } else { in_memory };
            Ok(SyncCost {
                way: way.name.into(),
                missing: way.missing,
                mean_s: way.mean_s,
                read_s: [0.1, 0.5, 0.9, 0.99].map(quantile),
                minor_faults: way.faults / (reads.saturating_sub(WARM) * runs as u64) as f64,
                attempted: way.attempted / all,
                completed: way.completed / way.attempted.max(1.0),
                importing: way.importing / way.completed.max(1.0),
                calls: match way.side {
                    Side::Plain => 0.0,
                    side => count(side, way.test, way.missing)? - plain_calls,
                },
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
        "mean of a run",
        "the read: median",
        "10%",
        "90%",
        "99%",
        "minor faults each",
        "system calls each",
        "attempted",
        "completed",
        "importing",
    ]);
    for cost in costs {
        let [low, middle, high, highest] = cost.read_s.map(seconds);
        let percent = |share: f64| format!("{:.0}%", 100.0 * share);
        let made = |text: String| if cost.mean_s.is_empty() { "–".into() } else { text };
        table.add_row([
            if cost.missing { cost.way.clone() } else { format!("{}, data in memory", cost.way) },
            made(Summary::of(&cost.mean_s).map_or_else(|| "–".into(), |mean| spread(&mean))),
            middle,
            low,
            high,
            highest,
            format!("{:.1} (of {SYNC_STORES} stores)", cost.minor_faults),
            made(format!("{:.0}", cost.calls)),
            made(percent(cost.attempted)),
            made(percent(cost.completed)),
            made(percent(cost.importing)),
        ]);
    }
    let met = if is_met(costs) { "met" } else { "not met" };
    let limit = seconds(SYNC_MAX_S);
    format!(
        "{table}\nImporting copy where data is missing: at most {limit} of the program's time, in the mean of a run and beyond a plain read: {met}"
    )
}

/// Whether the importing copy takes no longer than is promised: of the program's
/// time by its clock, and of a read's in all.
pub fn is_met(costs: &[SyncCost]) -> bool {
    let of = |way: &str| costs.iter().find(|cost| cost.missing && cost.way == way);
    let (Some(plain), Some(copy)) = (of("plain"), of("importing copy")) else { return false };
    let ([_, plain_s, ..], [_, copy_s, ..]) = (plain.read_s, copy.read_s);
    let mean_s = quantile(&sorted(&copy.mean_s), 0.5).unwrap_or(f64::INFINITY);
    let made = copy.completed > 0.9 && copy.importing > 0.9;
    made && mean_s <= SYNC_MAX_S && copy_s - plain_s <= SYNC_MAX_S
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_synchronisation_has_a_limit() {
        let cost = |way: &str, mean_s: &[f64], read_s: f64| SyncCost {
            way: way.into(),
            missing: true,
            mean_s: mean_s.to_vec(),
            read_s: [read_s; 4],
            minor_faults: 0.0,
            attempted: 1.0,
            completed: 1.0,
            importing: 1.0,
            calls: 40.0,
        };
        let plain = || cost("plain", &[], 1e-3);
        let copy = |mean_s, read_s| cost("importing copy", &[1.0, mean_s, 0.0], read_s);
        let says = |costs: &[SyncCost]| table(costs, 64).rsplit(": ").next().unwrap().to_owned();
        assert_eq!(says(&[plain(), copy(140e-6, 1.1e-3)]), "met");
        assert_eq!(says(&[plain(), copy(160e-6, 1.1e-3)]), "not met", "its own time");
        assert_eq!(says(&[plain(), copy(140e-6, 1.2e-3)]), "not met", "the read's");
        let seldom = SyncCost { completed: 0.5, ..copy(140e-6, 1.1e-3) };
        assert_eq!(says(&[plain(), seldom]), "not met", "given up");
        let in_memory = SyncCost { missing: false, ..copy(140e-6, 1.1e-3) };
        assert_eq!(says(&[plain(), in_memory]), "not met", "it does not count");
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
