//! A plain reader beside the measured programs: it knows nothing of Runahead
//! and reads blocks of one file here and there, one after the other.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use crate::rng::Rng;

/// Bytes of one read.
pub const BLOCK_BYTES: u64 = 16 * 1024;

/// What a reader saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Latency of each read, nanoseconds.
    pub latencies_ns: Vec<u64>,
    /// For how long it read.
    pub elapsed: Duration,
}

impl Seen {
    /// Bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        let bytes = self.latencies_ns.len() as f64 * BLOCK_BYTES as f64;
        bytes / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// 99th percentile of the latency, nanoseconds (nearest rank).
    pub fn p99_ns(&self) -> u64 {
        let mut sorted = self.latencies_ns.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * 99).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or(0)
    }
}

/// A thread that reads until it is told to stop.
#[derive(Debug)]
pub struct PlainReader {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Seen>>>,
}

impl PlainReader {
    /// Starts reading blocks of `path`, past the page cache, in an order that
    /// `seed` gives.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn start(path: &Path, seed: u64) -> Result<Self> {
        // O_DIRECT: its reads are the device's, however long it has run.
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(path)
            .with_context(|| format!("open {}", path.display()))?;
        let blocks = file.metadata()?.len() / BLOCK_BYTES;
        anyhow::ensure!(blocks > 0, "{} is too short", path.display());
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || read(&file, blocks, seed, &told));
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Stops it and says what it saw.
    ///
    /// # Errors
    /// If a read failed.
    pub fn stop(mut self) -> Result<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("stopped twice")?;
        thread.join().map_err(|_| anyhow!("the reading thread panicked"))?
    }
}

impl Drop for PlainReader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read(file: &File, blocks: u64, seed: u64, stop: &AtomicBool) -> Result<Seen> {
    const ALIGNMENT: usize = 4096;
    let mut rng = Rng::new(seed, "plain reader");
    let mut room = vec![0u8; BLOCK_BYTES as usize + ALIGNMENT];
    let skip = room.as_ptr().align_offset(ALIGNMENT);
    let block = &mut room[skip..skip + BLOCK_BYTES as usize];
    let mut seen = Seen::default();
    let started = Instant::now();
    // Once at least, however soon it is stopped.
    while seen.latencies_ns.is_empty() || !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let at = rng.below(blocks) * BLOCK_BYTES;
        file.read_exact_at(block, at)
            .with_context(|| format!("read at {at} of descriptor {}", file.as_raw_fd()))?;
        seen.latencies_ns.push(begun.elapsed().as_nanos() as u64);
    }
    seen.elapsed = started.elapsed();
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_until_it_is_stopped() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![1u8; 64 << 10]).unwrap();
        let reader = PlainReader::start(&path, 1).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let seen = reader.stop().unwrap();
        assert!(!seen.latencies_ns.is_empty() && seen.bytes_per_s() > 0.0);
        assert!(seen.p99_ns() >= *seen.latencies_ns.iter().min().unwrap());
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let seen =
            Seen { latencies_ns: (1..=200).rev().collect(), elapsed: Duration::from_secs(1) };
        assert_eq!(seen.p99_ns(), 198);
        assert_eq!(Seen::default().p99_ns(), 0);
    }
}
