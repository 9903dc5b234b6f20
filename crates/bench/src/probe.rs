//! Latency, parallelism and bandwidth of the machine's own disk, measured for
//! the ideal by direct reads of a scratch file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::ideal::Device;
use crate::rng::Rng;
use crate::summary::{quantile, sorted};

const FILE_BYTES: u64 = 128 << 20;
const SMALL_BYTES: usize = 4096;
const LARGE_BYTES: usize = 1 << 20;
/// Alignment that direct I/O may ask for: the largest block size of ext4, xfs.
const ALIGNMENT: usize = 4096;
const THREADS: u64 = 32;
const SERIAL_READS: u64 = 300;
const PARALLEL_READS: u64 = 4000;

/// Measures the device under a directory; takes well under a second on flash.
///
/// # Errors
/// If a scratch file cannot be written there or read directly.
pub fn measure(directory: &Path) -> Result<Device> {
    let scratch = tempfile::Builder::new()
        .prefix(".runahead-probe-")
        .tempfile_in(directory)
        .with_context(|| format!("make a scratch file in {}", directory.display()))?;
    fill(scratch.as_file()).context("write the scratch file")?;
    let direct = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(scratch.path())
        .with_context(|| format!("read directly from the disk under {}", directory.display()))?;
    let latency_s = serial_latency_s(&direct)?;
    let reads_per_s = parallel(&direct, SMALL_BYTES, PARALLEL_READS)?;
    let large_per_s = parallel(&direct, LARGE_BYTES, FILE_BYTES / LARGE_BYTES as u64)?;
    Ok(Device {
        latency_s,
        bandwidth_bytes_per_s: large_per_s * LARGE_BYTES as f64,
        // Little's law: requests in service = throughput × latency.
        parallelism: (reads_per_s * latency_s).max(1.0),
    })
}

fn fill(file: &File) -> std::io::Result<()> {
    // Not zeros: some disks answer those without reading.
    let mut rng = Rng::new(1, "probe");
    let mut block = vec![0_u8; LARGE_BYTES];
    for word in block.chunks_exact_mut(8) {
        word.copy_from_slice(&rng.next_u64().to_le_bytes());
    }
    for index in 0..FILE_BYTES / LARGE_BYTES as u64 {
        file.write_all_at(&block, index * LARGE_BYTES as u64)?;
    }
    file.sync_all()
}

/// A buffer, and where in it the aligned part of `len` bytes begins.
fn aligned_buffer(len: usize) -> (Vec<u8>, usize) {
    let buffer = vec![0_u8; len + ALIGNMENT];
    let start = buffer.as_ptr().align_offset(ALIGNMENT);
    (buffer, start)
}

fn serial_latency_s(file: &File) -> Result<f64> {
    let (mut buffer, start) = aligned_buffer(SMALL_BYTES);
    let mut rng = Rng::new(2, "probe");
    let mut times_s = Vec::new();
    for _ in 0..SERIAL_READS {
        let offset = rng.below(FILE_BYTES / SMALL_BYTES as u64) * SMALL_BYTES as u64;
        let begun = Instant::now();
        file.read_exact_at(&mut buffer[start..start + SMALL_BYTES], offset)?;
        times_s.push(begun.elapsed().as_secs_f64());
    }
    quantile(&sorted(&times_s), 0.5).context("no read was measured")
}

/// Reads per second of `total` reads of `len` bytes by many threads.
fn parallel(file: &File, len: usize, total: u64) -> Result<f64> {
    let next = AtomicU64::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let worker = |seed| {
            let next = &next;
            move || -> std::io::Result<()> {
                let (mut buffer, start) = aligned_buffer(len);
                let mut rng = Rng::new(seed, "probe thread");
                while next.fetch_add(1, Ordering::Relaxed) < total {
                    let offset = rng.below(FILE_BYTES / len as u64) * len as u64;
                    file.read_exact_at(&mut buffer[start..start + len], offset)?;
                }
                Ok(())
            }
        };
        let workers: Vec<_> = (0..THREADS).map(|seed| scope.spawn(worker(seed))).collect();
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a reading thread panicked"))??;
        }
        Ok(())
    })?;
    Ok(total as f64 / begun.elapsed().as_secs_f64())
}
