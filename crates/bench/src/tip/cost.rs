//! What a hint costs the program that gives it, and how much memory outstanding ones take.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use runahead_hint::Range;
use serde::{Deserialize, Serialize};

use super::live::LiveOptions;
use crate::process::{self, CommandSpec, Output};
use crate::rng::Rng;

/// Most nanoseconds that a hint may cost.
const HINT_NS_MAX: f64 = 100.0;
/// Most memory that a million outstanding segments may take.
const MILLION_BYTES_MAX: u64 = 64 << 20;
/// Segments that are outstanding at the end.
const SEGMENTS: usize = 1_000_000;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Per segment in calls of a thousand, nanoseconds of wall-clock time in the program.
    pub batched_ns: f64,
    /// Per call of one segment.
    pub single_ns: f64,
    /// Resident memory that a million outstanding segments add, at its peak, bytes.
    pub million_bytes: u64,
}

impl Cost {
    /// Whether both bounds hold.
    pub fn is_met(&self) -> bool {
        self.batched_ns <= HINT_NS_MAX && self.million_bytes <= MILLION_BYTES_MAX
    }
}

/// The hidden program: hints for a file of its own, which it never reads.
///
/// # Errors
/// If the file cannot be made.
pub fn program() -> Result<()> {
    let file = tempfile::tempfile()?;
    file.set_len(1 << 30)?;
    // The session's own threads and buffers are not the hints'.
    runahead_hint::disclose(&file, &[Range { offset: 0, length: 1 }])?;
    let deadline = Instant::now() + std::time::Duration::from_secs(10);
    while runahead_hint::session().is_some_and(|session| session.stats().prefetches == 0)
        && Instant::now() < deadline
    {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let before = peak_bytes()?;
    // Blocks anywhere in the file, so that no order of theirs makes them cheap to keep.
    let mut rng = Rng::new(1, "hints");
    let anywhere: Vec<Range> = (0..1000)
        .map(|_| Range { offset: rng.below(1 << 30), length: 1 + rng.below(65_536) })
        .collect();
    // A few count as read when this process reads its own statistics.
    let half = SEGMENTS / 2 + 5_000;
    let started = Instant::now();
    for _ in 0..half / 1000 {
        runahead_hint::disclose(&file, &anywhere)?;
    }
    let batched_ns = started.elapsed().as_nanos() as f64 / half as f64;
    let session = runahead_hint::session().context("hints are switched off")?;
    let number = session.fd_number(std::os::fd::AsRawFd::as_raw_fd(&file))?;
    let started = Instant::now();
    for i in 0..half {
        let Range { offset, length } = anywhere[i % anywhere.len()];
        let segment = runahead_hint::Segment { file: number, offset, length };
        session.disclose(std::iter::once(segment))?;
    }
    let single_ns = started.elapsed().as_nanos() as f64 / half as f64;
    std::thread::sleep(std::time::Duration::from_millis(500));
    ensure!(session.outstanding() >= SEGMENTS, "{} are outstanding", session.outstanding());
    let million_bytes = peak_bytes()?.saturating_sub(before);
    let cost = Cost { batched_ns, single_ns, million_bytes };
    println!("{}", serde_json::to_string(&cost)?);
    Ok(())
}

/// Peak resident memory of this process.
fn peak_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.context("the kernel does not tell the peak of memory")? * 1024)
}

/// Runs the hidden program; the median of several times.
///
/// # Errors
/// If it fails.
pub fn measure(options: &LiveOptions) -> Result<Cost> {
    let mut costs = Vec::new();
    for _ in 0..options.runs {
        let spec = CommandSpec::new(&options.runahead, "/")
            .args(["bench", "tip-program", "cost"])
            .env("RUNAHEAD_MANAGER", "embedded");
        let output = Output::new()?;
        let limit = std::time::Duration::from_secs(120);
        let finished = process::run(&mut spec.command(), &output, limit)?;
        let read = |name| fs::read_to_string(output.path(name));
        ensure!(finished.status.success(), "{}", read("stderr")?);
        costs.push(serde_json::from_str::<Cost>(&read("stdout")?)?);
    }
    let median = |of: &dyn Fn(&Cost) -> f64| {
        let mut values: Vec<f64> = costs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Ok(Cost {
        batched_ns: median(&|cost| cost.batched_ns),
        single_ns: median(&|cost| cost.single_ns),
        million_bytes: median(&|cost| cost.million_bytes as f64) as u64,
    })
}
