//! What a benchmark found, as it is written to the result files.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::apps::{Case, Metadata};
use crate::device_counts::Counts;
use crate::harness::Subject;
use crate::ideal::{Device, Ideal};
use crate::in_memory::PAGE_BYTES;
use crate::launch::{Measured, Side};
use crate::statistics::Statistics;
use crate::summary::{Ratio, Summary};

/// Version of the result files: keys are added, never renamed.
const VERSION: u32 = 1;

/// A case under Runahead is slower where its median is above so many times
/// the plain one (the promise: nothing slower than 1.03×).
pub const SLOWER_ABOVE: f64 = 1.03;

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Wall-clock time, seconds.
    pub elapsed_s: f64,
    /// CPU time of the program, seconds.
    pub cpu_s: f64,
    /// Minor faults of the program.
    pub minor_faults: u64,
    /// Major faults of the program.
    pub major_faults: u64,
    /// What the device did.
    pub device: Counts,
    /// What Runahead counted.
    pub statistics: Option<Statistics>,
    /// Pages of the data that were in memory at the end.
    #[serde(default)]
    pub pages_in_memory: Option<u64>,
}

impl Run {
    /// The figures of a run.
    pub fn of(measured: &Measured) -> Self {
        Self {
            elapsed_s: measured.elapsed_s,
            cpu_s: measured.usage.cpu_s,
            minor_faults: measured.usage.minor_faults,
            major_faults: measured.usage.major_faults,
            device: measured.counts,
            statistics: measured.statistics.clone(),
            pages_in_memory: None,
        }
    }
}

/// A run whose output was not the plain run's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Side of the run.
    pub side: Side,
    /// Its number, from 1.
    pub run: usize,
    /// What differs.
    pub differences: Vec<String>,
    /// Where both outputs are kept.
    pub kept: PathBuf,
}

/// Everything about one case on one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// Name of the application.
    pub app: String,
    /// Name of the case within it; may be empty.
    pub case: String,
    /// State of the metadata at the start.
    pub metadata: Metadata,
    /// What was run.
    pub command: String,
    /// Plain runs.
    pub plain: Vec<Run>,
    /// Observed runs.
    pub observed: Vec<Run>,
    /// Runs under Runahead.
    pub runahead: Vec<Run>,
    /// Time at best.
    pub ideal: Option<Ideal>,
    /// [`CaseResult::speedup`], for who reads the file.
    #[serde(default)]
    pub ratio: Option<Ratio>,
    /// Pages of the data that it reads; none where no recording shows them.
    #[serde(default)]
    pub pages_read: Option<u64>,
    /// Runs with another output than the first plain run's.
    pub mismatches: Vec<Mismatch>,
}

impl CaseResult {
    /// A result without runs.
    pub fn new(subject: &Subject<'_>, case: &dyn Case) -> Self {
        Self {
            app: subject.app.into(),
            case: case.name().into(),
            metadata: subject.metadata,
            command: case.shown(),
            plain: Vec::new(),
            observed: Vec::new(),
            runahead: Vec::new(),
            ideal: None,
            ratio: None,
            pages_read: None,
            mismatches: Vec::new(),
        }
    }

    /// Adds a run.
    pub fn add(&mut self, side: Side, run: Run) {
        match side {
            Side::Plain => self.plain.push(run),
            Side::Observe => self.observed.push(run),
            Side::Runahead => self.runahead.push(run),
        }
    }

    /// Name for the reader: application, case, state of the metadata.
    pub fn title(&self) -> String {
        let mut title = self.app.clone();
        if !self.case.is_empty() {
            title += &format!("/{}", self.case);
        }
        match self.metadata {
            Metadata::Warm => title + " (metadata warm)",
            Metadata::Cold => title,
        }
    }

    /// Elapsed times of a side, seconds.
    pub fn elapsed(&self, side: Side) -> Vec<f64> {
        let runs = match side {
            Side::Plain => &self.plain,
            Side::Observe => &self.observed,
            Side::Runahead => &self.runahead,
        };
        runs.iter().map(|run| run.elapsed_s).collect()
    }

    /// How many times faster: plain elapsed / elapsed under Runahead.
    pub fn speedup(&self) -> Option<Ratio> {
        Ratio::of(&self.elapsed(Side::Plain), &self.elapsed(Side::Runahead))
    }

    /// Whether Runahead made it noticeably slower.
    pub fn is_slower(&self) -> bool {
        self.speedup().is_some_and(|ratio| ratio.value < 1.0 / SLOWER_ABOVE)
    }

    /// Whether that is certain: the whole 95% interval says so.
    pub fn is_certainly_slower(&self) -> bool {
        self.speedup().is_some_and(|ratio| ratio.high < 1.0 / SLOWER_ABOVE)
    }

    /// Median of a quantity of the runs' statistics, where each run knows it.
    pub fn counted(runs: &[Run], quantity: impl Fn(&Statistics) -> Option<f64>) -> Option<f64> {
        let known: Option<Vec<f64>> =
            runs.iter().map(|run| run.statistics.as_ref().and_then(&quantity)).collect();
        Some(Summary::of(&known?)?.median)
    }

    /// Pages that came into memory in runs of one side and that the program has
    /// not read, nor were they speculative prefetches of which nothing was asked
    /// for: what readahead brought for nothing (Table 2, "unused readahead
    /// prefetches"), the kernel's or that of a copy which follows a stream.
    pub fn unused_readahead(&self, side: Side) -> Option<f64> {
        let runs = match side {
            Side::Plain => &self.plain,
            Side::Observe => &self.observed,
            Side::Runahead => &self.runahead,
        };
        let unused = |run: &Run| {
            let unread = run.pages_in_memory?.saturating_sub(self.pages_read?) as f64;
            let speculative = match side {
                Side::Plain | Side::Observe => 0.0,
                Side::Runahead => {
                    run.statistics.as_ref()?.speculation.prefetches.unused_bytes()?
                        / PAGE_BYTES as f64
                }
            };
            Some((unread - speculative).max(0.0))
        };
        let known: Option<Vec<f64>> = runs.iter().map(unused).collect();
        Some(Summary::of(&known?)?.median)
    }

    /// Copy-on-write faults of the runs under Runahead: counted ones, or the
    /// minor faults that observed runs do not have (those of the launcher and
    /// the agent are in both).
    pub fn cow_faults(&self) -> Option<f64> {
        let median = |runs: &[Run]| {
            let faults: Vec<f64> = runs.iter().map(|run| run.minor_faults as f64).collect();
            Some(Summary::of(&faults)?.median)
        };
        Self::counted(&self.runahead, |statistics| statistics.faults.cow)
            .or_else(|| Some((median(&self.runahead)? - median(&self.observed)?).max(0.0)))
    }
}

/// The machine and what was measured on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Release of the kernel.
    pub kernel: String,
    /// Processors.
    pub cpus: usize,
    /// Memory, KiB.
    pub memory_kib: u64,
    /// Whether a DAMON scheme pages out memory that nobody lacks.
    #[serde(default)]
    pub pages_out: bool,
    /// Version of this program.
    pub runahead: String,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
        let uname = rustix::system::uname();
        let info = rustix::system::sysinfo();
        Self {
            kernel: uname.release().to_string_lossy().into_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_kib: info.totalram * u64::from(info.mem_unit) / 1024,
            pages_out: !crate::damon::paging_out().is_empty(),
            runahead: env!("CARGO_PKG_VERSION").into(),
        }
    }
}

/// One benchmark on one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Version of this format.
    pub version: u32,
    /// `explicit`.
    pub benchmark: String,
    /// Start, seconds since 1970.
    pub started_unix_s: u64,
    /// The machine.
    pub machine: Machine,
    /// The place: the profile and what was changed about it.
    pub profile: String,
    /// Whether other work kept every processor busy.
    #[serde(default)]
    pub busy: bool,
    /// What the ideal assumes of the device.
    pub device: Option<Device>,
    /// Size of the data relative to the full one.
    pub scale: f64,
    /// Seed of the data.
    pub seed: u64,
    /// The cases.
    pub cases: Vec<CaseResult>,
    /// Applications that were asked for and could not be run to their end.
    #[serde(default)]
    pub not_run: Vec<NotRun>,
}

/// An application that could not be run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotRun {
    /// Its name.
    pub app: String,
    /// The cause, and what to do about it.
    pub why: String,
}

impl Results {
    /// Results without cases, begun now.
    pub fn begin(benchmark: &str, profile: &str, scale: f64, seed: u64) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            version: VERSION,
            benchmark: benchmark.into(),
            started_unix_s: now.map_or(0, |since| since.as_secs()),
            machine: Machine::here(),
            profile: profile.into(),
            busy: false,
            device: None,
            scale,
            seed,
            cases: Vec::new(),
            not_run: Vec::new(),
        }
    }

    /// Whether everything was run and each output was as it should be.
    pub fn is_whole(&self) -> bool {
        self.not_run.is_empty() && self.outputs_equal()
    }

    /// Whether each output was as it should be.
    pub fn outputs_equal(&self) -> bool {
        self.cases.iter().all(|case| case.mismatches.is_empty())
    }
}

/// Writes results as JSON, making the directory if it is not there.
///
/// # Errors
/// If the file cannot be written.
pub fn write_json(path: &Path, results: &impl Serialize) -> Result<()> {
    make_parent(path)?;
    let text = serde_json::to_string_pretty(results)?;
    std::fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))
}

/// Makes the directory of a file.
///
/// # Errors
/// If it cannot be made.
pub fn make_parent(path: &Path) -> Result<()> {
    let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) else {
        return Ok(());
    };
    std::fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ideal::{Bound, Ideal};

    /// A case with three runs a side and the statistics of a real run.
    pub fn example(plain_s: f64, runahead_s: f64) -> CaseResult {
        let statistics = Statistics::parse(
            r#"{"io_stalls": {"count": 20, "time_s": 0.02},
                "speculation": {"prefetches": {"issued": 1000, "full": 900, "unused": 3, "bytes": 8192000},
                "synchronizations": {"attempted": 2, "completed": 2, "time_s": 0.003}}}"#,
        );
        let run = |elapsed_s, minor_faults| Run { elapsed_s, minor_faults, ..Run::default() };
        let spread = |median: f64, faults| {
            [0.98, 1.0, 1.05].map(|factor| run(median * factor, faults)).to_vec()
        };
        let mut runahead = spread(runahead_s, 326);
        for run in &mut runahead {
            run.statistics = statistics.as_ref().ok().cloned();
        }
        CaseResult {
            app: "agrep".into(),
            case: String::new(),
            metadata: Metadata::Cold,
            command: "grep".into(),
            plain: spread(plain_s, 286),
            observed: vec![run(plain_s, 300)],
            runahead,
            ideal: Some(Ideal {
                seconds: plain_s / 10.0,
                cpu_s: 0.01,
                bandwidth_s: 0.02,
                latency_s: plain_s / 10.0,
                bound: Bound::Latency,
            }),
            ratio: None,
            pages_read: None,
            mismatches: Vec::new(),
        }
    }

    #[test]
    fn what_nobody_used_was_read_ahead() {
        let mut case = example(2.0, 0.5);
        for (run, pages) in case.plain.iter_mut().zip([1400, 1500, 1900]) {
            run.pages_in_memory = Some(pages);
        }
        case.runahead.iter_mut().for_each(|run| run.pages_in_memory = Some(1020));
        assert_eq!(case.unused_readahead(Side::Plain), None, "what it reads is not known");
        case.pages_read = Some(1000);
        assert_eq!(case.unused_readahead(Side::Plain), Some(500.0));
        // 3 prefetches of 2 pages are speculation's.
        assert_eq!(case.unused_readahead(Side::Runahead), Some(14.0));
    }

    #[test]
    fn ratios_and_losers() {
        let fast = example(2.0, 0.5);
        assert_eq!(fast.speedup().unwrap().value, 4.0);
        assert!(!fast.is_slower());
        assert!(example(2.0, 2.2).is_slower());
        assert!(!example(2.0, 2.04).is_slower());
        // 3 runs of each side, from 0.98 to 1.05 of the median.
        assert!(example(2.0, 2.3).is_certainly_slower());
        assert!(example(2.0, 2.1).is_slower() && !example(2.0, 2.1).is_certainly_slower());
    }

    #[test]
    fn unknown_quantities_stay_unknown() {
        let case = example(2.0, 0.5);
        assert_eq!(
            CaseResult::counted(&case.runahead, |s| s.speculation.prefetches.issued),
            Some(1000.0)
        );
        assert_eq!(case.unused_readahead(Side::Plain), None);
        assert_eq!(CaseResult::counted(&case.runahead, |s| s.speculation.cpu_s), None);
        assert_eq!(CaseResult::counted(&case.plain, |s| s.io_stalls.count), None);
        assert_eq!(case.cow_faults(), Some(26.0));
    }

    #[test]
    fn results_survive_a_round_trip() {
        let mut results = Results::begin("explicit", "cloud", 0.01, 1);
        results.cases.push(example(2.0, 0.5));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/er/results.json");
        write_json(&path, &results).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
        assert!(results.outputs_equal());
    }
}
