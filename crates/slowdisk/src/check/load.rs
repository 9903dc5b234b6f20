//! The load of a check: random and sequential reads past every cache.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::Advice;

use super::{BLOCK_BYTES, no_device};
use crate::error::{Context, Result};
use crate::handle::SlowDisk;
use crate::model::SplitMix;
use crate::sys::aio::{Ended, Reads};

/// File that an object store is checked with.
const OBJECT: &str = "object";
/// What a loop device's direct I/O asks of a buffer is 512 bytes; a page is safe anywhere.
const ALIGNMENT: usize = 4096;

/// What a load did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Measured {
    /// Requests completed.
    pub requests: u64,
    /// First start to last completion.
    pub elapsed_ns: u64,
    /// All latencies together.
    pub latency_ns_sum: u64,
    /// CPU time of the whole machine meanwhile.
    pub machine_cpu_ns: u64,
}

impl Measured {
    /// Requests per second.
    pub fn per_s(&self) -> f64 {
        self.requests as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Mean latency in microseconds.
    pub fn latency_us(&self) -> f64 {
        self.latency_ns_sum as f64 / 1e3 / self.requests.max(1) as f64
    }

    /// Decimal megabytes per second, for requests of `bytes` each.
    pub fn mb_per_s(&self, bytes: u64) -> f64 {
        self.per_s() * bytes as f64 / 1e6
    }
}

/// Where the reads go: a block device past the page cache, or a file through
/// FUSE in which no page is read twice.
pub struct Target {
    file: File,
    /// Whether it is a block device past the page cache.
    direct: bool,
    blocks: u64,
    /// Place in the order of the blocks.
    next: AtomicU64,
    seed: u64,
}

impl Target {
    /// The target of a device that is up.
    pub fn of(disk: &SlowDisk, size_bytes: u64, seed: u64) -> Result<Self> {
        let direct = disk.device().is_some();
        let file = match disk.device() {
            Some(device) => File::options()
                .read(true)
                .custom_flags(libc::O_DIRECT)
                .open(device)
                .context(|| format!("open {}", device.display()))?,
            None => open_object(disk.mountpoint())?,
        };
        let blocks = size_bytes / BLOCK_BYTES;
        Ok(Self { file, direct, blocks, next: AtomicU64::new(0), seed })
    }

    /// Random reads of a block, `depth` in flight, for about `duration`.
    pub fn random(&self, depth: usize, duration: Duration) -> Result<Measured> {
        let idle_before_ns = machine_idle_ns();
        let mut measured = match self.direct {
            true => self.random_at_once(depth, duration)?,
            // Reads through a page cache are not asynchronous.
            false => self.random_by_threads(depth, duration)?,
        };
        let idle_ns = machine_idle_ns().saturating_sub(idle_before_ns);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        measured.machine_cpu_ns = (measured.elapsed_ns * cpus).saturating_sub(idle_ns);
        Ok(measured)
    }

    /// From one thread, as a program that reads ahead does: threads that each
    /// wait for one read cost more than the device, and would be what is measured.
    fn random_at_once(&self, depth: usize, duration: Duration) -> Result<Measured> {
        let mut buffers: Vec<_> = (0..depth).map(|_| Aligned::new(BLOCK_BYTES as usize)).collect();
        let begin = Instant::now();
        let mut started = vec![begin; depth];
        let mut measured = Measured::default();
        let mut run = || -> std::io::Result<()> {
            let mut reads = Reads::new(&self.file, buffers.iter_mut().map(Aligned::bytes))?;
            (0..depth).for_each(|buffer| reads.queue(buffer, self.next_offset()));
            reads.submit()?;
            let mut ended = Vec::new();
            while reads.in_flight() > 0 {
                reads.wait(&mut ended)?;
                let now = Instant::now();
                for Ended { buffer, len } in ended.drain(..) {
                    if len < BLOCK_BYTES as usize {
                        return Err(std::io::ErrorKind::UnexpectedEof.into());
                    }
                    measured.requests += 1;
                    measured.latency_ns_sum += (now - started[buffer]).as_nanos() as u64;
                    if now - begin < duration {
                        started[buffer] = now;
                        reads.queue(buffer, self.next_offset());
                    }
                }
                reads.submit()?;
            }
            Ok(())
        };
        run().context(|| format!("keep {depth} reads of {BLOCK_BYTES} bytes in flight"))?;
        measured.elapsed_ns = begin.elapsed().as_nanos() as u64;
        Ok(measured)
    }

    fn random_by_threads(&self, depth: usize, duration: Duration) -> Result<Measured> {
        let begin = Instant::now();
        let outcomes: Vec<Result<(u64, u64)>> = std::thread::scope(|scope| {
            let readers: Vec<_> =
                (0..depth).map(|_| scope.spawn(|| self.read_blocks(begin, duration))).collect();
            readers.into_iter().map(|reader| reader.join().expect("a reader panicked")).collect()
        });
        let mut measured =
            Measured { elapsed_ns: begin.elapsed().as_nanos() as u64, ..Measured::default() };
        for outcome in outcomes {
            let (requests, latency_ns) = outcome?;
            measured.requests += requests;
            measured.latency_ns_sum += latency_ns;
        }
        Ok(measured)
    }

    /// The next block in the order, each once.
    fn next_offset(&self) -> u64 {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        shuffled(turn % self.blocks, self.blocks, self.seed) * BLOCK_BYTES
    }

    fn read_blocks(&self, begin: Instant, duration: Duration) -> Result<(u64, u64)> {
        let mut buffer = Aligned::new(BLOCK_BYTES as usize);
        let (mut requests, mut latency_ns) = (0, 0);
        while begin.elapsed() < duration {
            let offset = self.next_offset();
            let start = Instant::now();
            self.read_at(buffer.bytes(), offset)?;
            latency_ns += start.elapsed().as_nanos() as u64;
            requests += 1;
        }
        Ok((requests, latency_ns))
    }

    /// One reader from the start onwards, for about `duration`.
    pub fn sequential(&self, chunk_bytes: u64, duration: Duration) -> Result<Measured> {
        // Nothing for direct I/O; in a file it turns readahead on again.
        let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::Normal);
        let mut buffer = Aligned::new(chunk_bytes as usize);
        let begin = Instant::now();
        let mut measured = Measured::default();
        let end = self.blocks * BLOCK_BYTES;
        while begin.elapsed() < duration && (measured.requests + 1) * chunk_bytes <= end {
            self.read_at(buffer.bytes(), measured.requests * chunk_bytes)?;
            measured.requests += 1;
        }
        measured.elapsed_ns = begin.elapsed().as_nanos() as u64;
        measured.latency_ns_sum = measured.elapsed_ns;
        Ok(measured)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.file
            .read_exact_at(buffer, offset)
            .context(|| format!("read {} bytes at {offset}", buffer.len()))
    }
}

fn open_object(mountpoint: &Path) -> Result<File> {
    let path = mountpoint.join(OBJECT);
    let file = File::open(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => std::io::Error::other(no_device()),
        _ => error,
    });
    let file = file.context(|| format!("open {}", path.display()))?;
    rustix::fs::fadvise(&file, 0, None, Advice::Random)
        .context(|| format!("advise on {}", path.display()))?;
    Ok(file)
}

/// A sparse file of that size in a new directory.
pub fn write_object(directory: &Path, size_bytes: u64) -> Result<()> {
    let path = directory.join(OBJECT);
    fs::create_dir_all(directory)
        .and_then(|()| File::create(&path)?.set_len(size_bytes))
        .context(|| format!("create {}", path.display()))
}

/// Writes real bytes to the whole device: flash answers unwritten blocks
/// without reading.
pub fn fill(disk: &SlowDisk, size_bytes: u64) -> Result<()> {
    let device = disk.device().ok_or_else(no_device)?;
    let mut file = File::options()
        .write(true)
        .open(device)
        .context(|| format!("open {}", device.display()))?;
    let chunk = vec![0x5A; 1 << 20];
    let written = (0..size_bytes >> 20).try_for_each(|_| file.write_all(&chunk));
    written.and_then(|()| file.sync_all()).context(|| format!("fill {}", device.display()))
}

/// A page-aligned buffer for direct I/O.
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Self {
        let bytes = vec![0; len + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Self { bytes, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// The block at a place of a random order of all blocks, each once. `blocks`
/// is a power of two, so that each step can be undone and no two places meet.
pub fn shuffled(place: u64, blocks: u64, seed: u64) -> u64 {
    assert!(blocks.is_power_of_two() && place < blocks);
    let (mask, half) = (blocks - 1, blocks.trailing_zeros().div_ceil(2).max(1));
    let mut random = SplitMix::new(seed);
    (0..4).fold(place, |block, _| {
        let mixed = block.wrapping_mul(random.next_u64() | 1) & mask;
        (mixed ^ (mixed >> half)).wrapping_add(random.next_u64()) & mask
    })
}

/// Time that all CPUs were idle since boot, waiting for I/O included
/// (/proc/stat, in ticks of 10 ms but counted finely by tickless kernels).
fn machine_idle_ns() -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = text.lines().next().unwrap_or_default();
    // cpu user nice system idle iowait ...
    let ticks: u64 = first.split_whitespace().skip(4).take(2).flat_map(str::parse::<u64>).sum();
    ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_visited_once_in_a_random_order() {
        for (blocks, seed) in [(1, 1), (2, 1), (1 << 13, 2), (1 << 16, 3)] {
            let mut seen = vec![false; blocks as usize];
            for place in 0..blocks {
                let block = shuffled(place, blocks, seed) as usize;
                assert!(!std::mem::replace(&mut seen[block], true));
            }
        }
        let blocks = 1u64 << 18;
        let block = |place| shuffled(place, blocks, 1);
        let steps: u64 = (1..10_000).map(|place| block(place).abs_diff(block(place - 1))).sum();
        // Two independent places are a third of the whole apart.
        let mean = steps as f64 / 10_000.0 / blocks as f64;
        assert!((0.32..0.345).contains(&mean), "{mean}");
    }

    #[test]
    fn buffers_are_aligned() {
        let mut buffer = Aligned::new(100);
        assert_eq!(buffer.bytes().len(), 100);
        assert!(buffer.bytes().as_ptr().cast::<[u8; ALIGNMENT]>().addr().is_multiple_of(ALIGNMENT));
    }
}
