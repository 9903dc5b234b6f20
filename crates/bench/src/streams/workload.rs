//! What is run: the workloads, who orders their requests, and who prefetches.

use runahead_slowdisk::profile::Discipline;
use serde::{Deserialize, Serialize};

use super::data;
use super::model::Lengths;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Whole files.
    OneWhole,
    /// A random part from the beginning, with four thinks of 10 ms.
    OneRand,
    /// Random parts of two files in turns.
    TwoRand,
    /// 64 KB from anywhere in each of four files.
    #[serde(rename = "four-64kb")]
    Four64Kb,
    /// nginx with clips.
    Media,
    /// Keyword queries over posting lists.
    Search,
}

impl Workload {
    /// All, in the paper's order.
    pub const ALL: [Workload; 6] = [
        Workload::OneWhole,
        Workload::OneRand,
        Workload::TwoRand,
        Workload::Four64Kb,
        Workload::Search,
        Workload::Media,
    ];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Workload::OneWhole => "one-whole",
            Workload::OneRand => "one-rand",
            Workload::TwoRand => "two-rand",
            Workload::Four64Kb => "four-64kb",
            Workload::Media => "media",
            Workload::Search => "search",
        }
    }

    /// Lengths of its streams, where the benchmark decides them.
    pub fn lengths(self) -> Option<Lengths> {
        match self {
            Workload::OneWhole => Some(Lengths::all(data::FILE_BYTES)),
            Workload::OneRand | Workload::TwoRand => Some(Lengths::even(data::FILE_BYTES)),
            Workload::Four64Kb => Some(Lengths::all(65_536)),
            Workload::Media | Workload::Search => None,
        }
    }

    pub(super) fn handles_files(self) -> bool {
        self.lengths().is_some()
    }
}

/// Who orders the requests that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Nobody: in order of arrival.
    Fifo,
    /// The disk: C-SCAN.
    Cscan,
    /// The kernel's deadline scheduler, the disk in order of arrival.
    MqDeadline,
    /// The kernel's BFQ, which anticipates; the disk in order of arrival.
    Bfq,
}

impl Order {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Order::Fifo => "fifo",
            Order::Cscan => "cscan",
            Order::MqDeadline => "mq-deadline",
            Order::Bfq => "bfq",
        }
    }

    pub(super) fn discipline(self) -> Discipline {
        if self == Order::Cscan { Discipline::Cscan } else { Discipline::Fifo }
    }

    pub(super) fn scheduler(self) -> &'static str {
        match self {
            Order::Fifo | Order::Cscan => "none",
            other => other.name(),
        }
    }
}

/// How the streams are prefetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The kernel's default: 128 KiB.
    Default,
    /// The kernel's readahead at twice the competitive depth.
    Aggressive,
    /// The kernel's readahead at the competitive depth (`runahead tune`).
    Tuned,
    /// Under `runahead run`, readahead at its default.
    Live,
}

impl Policy {
    /// All.
    pub const ALL: [Policy; 4] = [Policy::Default, Policy::Aggressive, Policy::Tuned, Policy::Live];

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Default => "default",
            Policy::Aggressive => "aggressive",
            Policy::Tuned => "tuned",
            Policy::Live => "runahead",
        }
    }
}
