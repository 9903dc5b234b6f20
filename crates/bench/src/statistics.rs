//! The statistics that `runahead run --stats=FILE` writes, version 1.
//!
//! Everything is optional: what a run did not or could not count is null and
//! stays unknown here, never 0. Keys that this version does not know are
//! kept, so that they reach the result files.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Deserializer, Serialize};

/// A quantity that may be unknown. All numbers are read as floating point:
/// counts stay exact below 2⁵³.
pub type Known = Option<f64>;

/// A part that is missing or null counts as one of which nothing is known.
fn part<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Statistics of one run, version 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Statistics {
    /// Wall-clock time, seconds.
    pub elapsed_s: Known,
    /// Exit status of the program.
    pub exit_status: Known,
    /// Waits of the program for storage.
    #[serde(deserialize_with = "part")]
    pub io_stalls: Stalls,
    /// What speculation did.
    #[serde(deserialize_with = "part")]
    pub speculation: Speculation,
    /// Page faults of the program.
    #[serde(deserialize_with = "part")]
    pub faults: Faults,
    /// Every other key, as it stands.
    #[serde(flatten)]
    pub rest: BTreeMap<String, serde_json::Value>,
}

/// `io_stalls`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stalls {
    /// Number of waits.
    pub count: Known,
    /// Time in them, seconds.
    pub time_s: Known,
}

/// `speculation`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Speculation {
    /// Prefetches.
    #[serde(deserialize_with = "part")]
    pub prefetches: Prefetches,
    /// Synchronisations.
    #[serde(deserialize_with = "part")]
    pub synchronizations: Synchronizations,
    /// Why speculative processes stopped.
    #[serde(deserialize_with = "part")]
    pub parked: BTreeMap<String, f64>,
    /// CPU time of speculative processes, seconds.
    pub cpu_s: Known,
    /// Every other key.
    #[serde(flatten)]
    pub rest: BTreeMap<String, serde_json::Value>,
}

/// `speculation.prefetches`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Prefetches {
    /// Issued.
    pub issued: Known,
    /// Complete before the program asked.
    pub full: Known,
    /// Still in flight when it asked.
    pub partial: Known,
    /// Never asked for.
    pub unused: Known,
    /// Bytes of all that were issued.
    pub bytes: Known,
}

impl Prefetches {
    /// Bytes that were never asked for: nobody counts them by themselves, so
    /// prefetches are taken to be of one size.
    pub fn unused_bytes(&self) -> Known {
        let (unused, issued, bytes) = (self.unused?, self.issued?, self.bytes?);
        Some(if issued > 0.0 { bytes * unused / issued } else { 0.0 })
    }

    /// Share of the prefetches that were complete in time (the paper's column
    /// "Full"), 0 to 1. One request may serve several ranges that the program
    /// asks for, each counted as full or partial: then it is the share of
    /// these.
    pub fn full_share(&self) -> Known {
        let (full, issued) = (self.full?, self.issued?);
        let all = issued.max(full + self.partial.unwrap_or(0.0));
        (all > 0.0).then(|| full / all)
    }
}

/// `speculation.synchronizations`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Synchronizations {
    /// Begun.
    pub attempted: Known,
    /// That made a speculative process.
    pub completed: Known,
    /// Time of the program in them, seconds.
    pub time_s: Known,
    /// Every other key.
    #[serde(flatten)]
    pub rest: BTreeMap<String, serde_json::Value>,
}

impl Synchronizations {
    /// Importing copies among them.
    pub fn importing(&self) -> f64 {
        self.rest.get("importing").and_then(serde_json::Value::as_f64).unwrap_or(0.0)
    }

    /// Pages that copies imported.
    pub fn imported(&self) -> Known {
        self.rest.get("pages_imported")?.as_f64()
    }
}

/// `faults`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Faults {
    /// Major faults.
    pub major: Known,
    /// Copy-on-write faults.
    pub cow: Known,
}

impl Statistics {
    /// Parses the JSON text of one run.
    ///
    /// # Errors
    /// When it is not JSON of version 1.
    pub fn parse(text: &str) -> Result<Self> {
        let statistics: Self = serde_json::from_str(text)?;
        if let Some(version) = statistics.rest.get("version") {
            anyhow::ensure!(version == 1, "statistics of version {version}, expected 1");
        }
        Ok(statistics)
    }

    /// Reads the file that a run left.
    ///
    /// # Errors
    /// When it cannot be read or parsed; the message names the file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("read the statistics {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("parse the statistics {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"{
        "version": 1, "elapsed_s": 0.25, "exit_status": 1,
        "io_stalls": {"count": 12, "time_s": 0.01},
        "speculation": {
            "prefetches": {"issued": 200, "full": 150, "partial": 10, "unused": null},
            "synchronizations": {"attempted": 3, "completed": 2, "time_s": 0.001},
            "parked": {"exit": 2}, "cpu_s": 0.02, "reads_predicted": 199
        },
        "faults": {"major": 0, "cow": null}, "readahead": null,
        "memory": {"fork_kib": 120}
    }"#;

    #[test]
    fn nulls_and_missing_parts_are_unknown() {
        let statistics = Statistics::parse(FULL).unwrap();
        assert_eq!(statistics.io_stalls.count, Some(12.0));
        assert_eq!(statistics.speculation.prefetches.unused, None);
        assert_eq!(statistics.speculation.prefetches.full_share(), Some(0.75));
        assert_eq!(statistics.speculation.parked["exit"], 2.0);
        assert_eq!((statistics.faults.major, statistics.faults.cow), (Some(0.0), None));
        assert_eq!(statistics.speculation.prefetches.unused_bytes(), None);
        assert_eq!(statistics.speculation.rest["reads_predicted"], 199);
        let nothing = Statistics::parse("{}").unwrap();
        assert_eq!(nothing, Statistics::default());
    }

    #[test]
    fn a_share_of_nothing_is_unknown() {
        let prefetches = Prefetches { issued: Some(0.0), full: Some(0.0), ..Default::default() };
        assert_eq!(prefetches.full_share(), None);
        let shared = Prefetches {
            issued: Some(100.0),
            full: Some(150.0),
            partial: Some(50.0),
            ..Default::default()
        };
        assert_eq!(shared.full_share(), Some(0.75), "several ranges in one request");
    }

    #[test]
    fn what_is_not_version_1_is_refused() {
        assert!(Statistics::parse(r#"{"version": 2}"#).unwrap_err().to_string().contains("2"));
        assert!(Statistics::parse("not json").is_err());
        let missing = Statistics::read(Path::new("/nonexistent/stats")).unwrap_err();
        assert!(format!("{missing:#}").contains("/nonexistent/stats"));
    }

    #[test]
    fn survives_a_round_trip() {
        let statistics = Statistics::parse(FULL).unwrap();
        let text = serde_json::to_string(&statistics).unwrap();
        assert_eq!(Statistics::parse(&text).unwrap(), statistics);
    }
}
