//! What `bench overhead` promises, and whether it is kept.

use serde::{Deserialize, Serialize};

use crate::summary::{Ratio, Summary};
use crate::table::seconds;

/// At most so much is added to a resident read of 4 KiB, nanoseconds.
pub const READ_ADDED_MAX_NS: f64 = 80.0;
/// At most so much is added to the start of a process, seconds.
pub const START_ADDED_MAX_S: f64 = 1e-3;
/// At most so many system calls are added to `/bin/true` by the usual
/// `runahead /bin/true`: some 30 of the launcher, 50 of the agent
/// (docs/SPECIFICATION, "What a start costs").
pub const START_CALLS_ADDED_MAX: u64 = 100;
/// At most so many page faults, the copies of pages that are patched included.
pub const START_FAULTS_ADDED_MAX: u64 = 100;
/// At most so many times plain on programs that run a second or longer, beyond
/// what their start and their reads are allowed ([`Comparison::allowed_s`]).
pub const PROGRAM_RATIO_MAX: f64 = 1.01;
/// The same while every processor is busy with other work.
pub const BUSY_RATIO_MAX: f64 = 1.03;
/// The same of a program with a large heap that rarely waits in a page fault.
pub const RARE_FAULTS_RATIO_MAX: f64 = 1.02;

/// What is being compared: the unit of a measurement and its promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One read of 4 KiB.
    Read,
    /// The start (and end) of one process.
    Start,
    /// A whole program.
    Program,
    /// A whole program with busy processors.
    BusyProgram,
    /// The work of a program with a large heap and rare faults.
    RareFaults,
}

/// One comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What is measured.
    pub name: String,
    /// Its unit and promise.
    pub kind: Kind,
    /// Each plain run, seconds per unit.
    pub plain_s: Vec<f64>,
    /// Each run under Runahead.
    pub runahead_s: Vec<f64>,
    /// Whether each output was the first plain run's.
    pub outputs_equal: bool,
    /// Reads that a run of a whole program makes.
    #[serde(default)]
    pub reads: u64,
}

impl Comparison {
    /// Before the first run.
    pub(super) fn new(name: &str, kind: Kind) -> Self {
        let (plain_s, runahead_s) = (Vec::new(), Vec::new());
        Self { name: name.into(), kind, plain_s, runahead_s, outputs_equal: true, reads: 0 }
    }

    /// What is allowed before the ratio counts: the start and the reads, at
    /// their own promises.
    pub fn allowed_s(&self) -> f64 {
        match self.kind {
            Kind::Program | Kind::BusyProgram => {
                START_ADDED_MAX_S + self.reads as f64 * READ_ADDED_MAX_NS * 1e-9
            }
            Kind::Read | Kind::Start | Kind::RareFaults => 0.0,
        }
    }

    /// Time under Runahead, less what is allowed, / plain time, of the pairs of
    /// runs.
    pub fn ratio(&self) -> Option<Ratio> {
        let beyond: Vec<f64> = self.runahead_s.iter().map(|it| it - self.allowed_s()).collect();
        Ratio::of_pairs(&beyond, &self.plain_s)
    }

    /// Median added to a unit, seconds; below 0 where Runahead is faster.
    pub fn added_s(&self) -> Option<f64> {
        Some(Summary::of(&self.runahead_s)?.median - Summary::of(&self.plain_s)?.median)
    }

    /// What was promised, in words.
    pub fn promise(&self) -> String {
        match self.kind {
            Kind::Read => format!("at most +{READ_ADDED_MAX_NS:.0} ns"),
            Kind::Start => format!("at most +{}", seconds(START_ADDED_MAX_S)),
            Kind::Program => {
                format!("at most {PROGRAM_RATIO_MAX}× beyond {}", seconds(self.allowed_s()))
            }
            Kind::BusyProgram => {
                format!("at most {BUSY_RATIO_MAX}× beyond {}", seconds(self.allowed_s()))
            }
            Kind::RareFaults => format!("at most {RARE_FAULTS_RATIO_MAX}×"),
        }
    }

    /// What was promised at most, and the 95% interval of what was measured:
    /// seconds added to a unit, or a ratio.
    fn promised(&self) -> Option<(f64, [f64; 2])> {
        let ratio = self.ratio()?;
        let ratios = [ratio.low, ratio.high];
        let plain_s = Summary::of(&self.plain_s)?.median;
        let added_s = ratios.map(|ratio| (ratio - 1.0) * plain_s);
        Some(match self.kind {
            Kind::Read => (READ_ADDED_MAX_NS * 1e-9, added_s),
            Kind::Start => (START_ADDED_MAX_S, added_s),
            Kind::Program => (PROGRAM_RATIO_MAX, ratios),
            Kind::BusyProgram => (BUSY_RATIO_MAX, ratios),
            Kind::RareFaults => (RARE_FAULTS_RATIO_MAX, ratios),
        })
    }

    /// Whether the promise is kept. What is added to a unit breaks it where its
    /// median is above it, a ratio where its whole interval is: runs of a second
    /// differ by about as much as is promised.
    pub fn keeps_promise(&self) -> bool {
        let is_within = |(most, [low, _]): (f64, [f64; 2])| match self.kind {
            Kind::Read | Kind::Start => self.added_s().is_none_or(|added_s| added_s <= most),
            Kind::Program | Kind::BusyProgram | Kind::RareFaults => low <= most,
        };
        self.outputs_equal && self.promised().is_none_or(is_within)
    }

    /// Whether it is shown to be kept: the whole interval is below it.
    pub fn shows_promise(&self) -> bool {
        self.promised().is_some_and(|(most, [_, high])| high <= most)
    }

    /// Whether more runs would change the verdict only by chance.
    pub(super) fn is_settled(&self) -> bool {
        let breaks = |(most, [low, _]): (f64, [f64; 2])| low > most;
        !self.outputs_equal || self.shows_promise() || self.promised().is_some_and(breaks)
    }
}

/// What a start takes, in figures that other load does not disturb.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// What is counted.
    pub name: String,
    /// Of the plain start.
    pub plain: u64,
    /// Under Runahead.
    pub runahead: u64,
    /// At most so many more were promised.
    pub added_max: u64,
}

impl Count {
    /// Whether the promise is kept.
    pub fn keeps_promise(&self) -> bool {
        self.runahead <= self.plain + self.added_max
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn comparison(kind: Kind, plain_s: f64, runahead_s: f64) -> Comparison {
        let spread = |median: f64| [0.999, 1.0, 1.001].map(|factor| median * factor).to_vec();
        Comparison {
            name: "x".into(),
            kind,
            plain_s: spread(plain_s),
            runahead_s: spread(runahead_s),
            outputs_equal: true,
            reads: 0,
        }
    }

    #[test]
    fn promises() {
        let keeps = |kind, plain, ahead| comparison(kind, plain, ahead).keeps_promise();
        assert!(keeps(Kind::Read, 350e-9, 420e-9));
        assert!(!keeps(Kind::Read, 350e-9, 440e-9));
        assert!(keeps(Kind::Start, 1e-3, 1.9e-3));
        assert!(!keeps(Kind::Start, 1e-3, 2.1e-3));
        assert!(keeps(Kind::Program, 1.0, 1.005));
        assert!(!keeps(Kind::Program, 1.0, 1.05));
        assert!(keeps(Kind::BusyProgram, 1.0, 1.02));
        assert!(!keeps(Kind::BusyProgram, 1.0, 1.05));
        assert!(keeps(Kind::RareFaults, 1.0, 1.015));
        assert!(!keeps(Kind::RareFaults, 1.0, 1.03));
        let shows = |plain, ahead| comparison(Kind::Program, plain, ahead).shows_promise();
        assert!(shows(1.0, 0.9) && !shows(1.0, 1.05));
        let mut unsure = comparison(Kind::Program, 1.0, 1.0);
        unsure.plain_s = vec![1.0; 5];
        unsure.runahead_s = vec![0.8, 0.9, 1.0, 1.2, 1.3];
        assert!(unsure.keeps_promise() && !unsure.shows_promise());
        // 1 ms for the start and 80 ns a read come first.
        let reader = Comparison { reads: 1_000_000, ..comparison(Kind::Program, 1.0, 1.085) };
        assert!(reader.keeps_promise() && reader.shows_promise());
        assert!((reader.allowed_s() - 0.081).abs() < 1e-9);
        let mut wrong = comparison(Kind::Program, 1.0, 1.0);
        wrong.outputs_equal = false;
        assert!(!wrong.keeps_promise());
    }
}
