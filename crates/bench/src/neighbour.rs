//! A plain program beside the measured one, in the same memory: it reads pages of
//! one file here and there, and waits where they were thrown out.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::c_program::CProgram;
use crate::process::{self, CommandSpec, reap_within};
use crate::rng::Rng;

/// It is told to end, and does so after its next read.
const LIMIT: Duration = Duration::from_secs(60);

/// The program: its arguments are the file and where its report goes.
pub const PROGRAM: CProgram = CProgram {
    name: "neighbour",
    source: include_str!("../../../bench/release/neighbour.c"),
    headers: &[],
};

/// What the plain program saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// Pages that it read.
    pub reads: f64,
    /// Of these, those that waited for storage.
    pub waited: f64,
    /// Mean time of a read, seconds.
    pub mean_s: f64,
    /// 99th percentile, seconds.
    pub p99_s: f64,
}

/// The plain program. Ended when it is dropped.
#[derive(Debug)]
pub struct Neighbour(Child);

impl Neighbour {
    /// Starts it, and waits until it has read its file.
    ///
    /// # Errors
    /// If it cannot be started or cannot read its file.
    pub fn start(spec: &CommandSpec) -> Result<Self> {
        let child = spec.command().stdout(Stdio::piped()).spawn();
        let mut neighbour = Self(child.context("start the plain program")?);
        let said = neighbour.0.stdout.take().context("it has no output")?;
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line).context("wait for the plain program")?;
        ensure!(line == "ready\n", "the plain program cannot read its file");
        Ok(neighbour)
    }

    /// Ends it, and says what it saw; `report` is the second of its arguments.
    ///
    /// # Errors
    /// If it failed.
    pub fn stop(self, report: &Path) -> Result<Beside> {
        let pid = self.0.id() as libc::pid_t;
        // SAFETY: a signal to a child that has not been waited for.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let (status, _) = reap_within(pid, LIMIT)?;
        std::mem::forget(self);
        ensure!(status.success(), "the plain program: {}", process::describe(status));
        let [reads, waited, mean_us, p99_us] = numbers(report)?;
        Ok(Beside { reads, waited, mean_s: mean_us / 1e6, p99_s: p99_us / 1e6 })
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The numbers in a report, which is removed.
///
/// # Errors
/// If there are not so many.
pub fn numbers<const N: usize>(path: &Path) -> Result<[f64; N]> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    fs::remove_file(path).with_context(|| format!("remove {}", path.display()))?;
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    <[f64; N]>::try_from(numbers).ok().with_context(|| format!("a report reads {text:?}"))
}

/// Makes a file that cannot be compressed.
///
/// # Errors
/// If it cannot be written.
pub fn noise(path: &Path, bytes: u64) -> Result<()> {
    let mut rng = Rng::new(bytes, "release");
    let mut file = fs::File::create(path).with_context(|| format!("create {}", path.display()))?;
    let mut piece = vec![0; 1 << 16];
    for _ in 0..bytes.div_ceil(1 << 16) {
        for word in piece.chunks_exact_mut(8) {
            word.copy_from_slice(&rng.next_u64().to_ne_bytes());
        }
        file.write_all(&piece).with_context(|| format!("write {}", path.display()))?;
    }
    file.set_len(bytes)?;
    file.sync_all().with_context(|| format!("write {}", path.display()))
}
