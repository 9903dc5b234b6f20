//! Sphinx (sections 3.4.6 and 6.3.3): speech recognition with its language model on disk.

use super::start_up;
use crate::filesystem::BLOCK_BYTES;
use crate::program::{Program, Range};
use crate::random::Random;

/// The model's blocks, and from where on its scan skips less than a block (figure 6.8).
const MODEL_BLOCKS: u32 = 22_523;
const DENSE_FROM: u32 = 13_275;
/// Mean length in blocks of what is read between skips before that, and the mean skip at the
/// beginning and at the end: about 7,500 blocks are visited in all.
const RUN_BLOCKS: f64 = 3.8;
const SKIP_BLOCKS: (f64, f64) = (5.6, 0.4);
/// About 57,000 calls for the 137 MB of the scan, half of which stop at a block's end.
const SCAN_READ_BYTES: u64 = 2_500;
const SCAN_HINTS: usize = 120;
/// The largest hint (table 3.3).
const HINT_BLOCKS_MAX: usize = 2_400;
const BURSTS: u32 = 753;
/// Ranges in a burst: log-normal, with a mean of about 3.4, so that a burst has 15 blocks.
const BURST_RANGES: (f64, f64) = (0.45, 1.25);
/// Mean bytes in a range.
const RANGE_BYTES: f64 = 27_000.0;
/// CPU time of initialisation without the kernel's share, and of recognition, µs: 53 s, and
/// the rest of table 6.27.
const SCAN_CPU_US: f64 = 46e6;
const RECOGNITION_CPU_US: f64 = 89e6;
/// "Often pauses to compute for ten or more milliseconds in the middle of a burst".
const PAUSE_US: f64 = 10_000.0;

pub(super) fn program(random: &mut Random) -> Program {
    let mut program = Program::new("sphinx");
    let model = program.file(u64::from(MODEL_BLOCKS) * BLOCK_BYTES, 0);
    start_up(&mut program, random, 220);
    let reads = scan(random, model);
    let cpu_us = SCAN_CPU_US / reads.len() as f64;
    let per_hint = reads.len().div_ceil(SCAN_HINTS);
    let mut rest = &reads[..];
    while !rest.is_empty() {
        let mean = random.exponential(per_hint as f64) as usize;
        let (now, later) = rest.split_at(mean.clamp(1, HINT_BLOCKS_MAX).min(rest.len()));
        program.hint(now.to_vec());
        read_with_pauses(&mut program, now, cpu_us);
        rest = later;
    }
    for _ in 0..BURSTS {
        recognise(&mut program, random, model);
    }
    program
}

/// The reads of the ascending scan.
fn scan(random: &mut Random, model: u32) -> Vec<Range> {
    let mut reads = Vec::new();
    let mut block = 0.0;
    while block < f64::from(DENSE_FROM) {
        let part = block / f64::from(DENSE_FROM);
        let skip = SKIP_BLOCKS.0 + part * (SKIP_BLOCKS.1 - SKIP_BLOCKS.0);
        let run = 0.2 + random.exponential(RUN_BLOCKS);
        let end = (block + run).min(f64::from(DENSE_FROM));
        read_through(random, model, block, end, &mut reads);
        block = end + random.exponential(skip);
    }
    read_through(random, model, f64::from(DENSE_FROM), f64::from(MODEL_BLOCKS), &mut reads);
    reads
}

fn read_through(random: &mut Random, model: u32, from: f64, to: f64, reads: &mut Vec<Range>) {
    let bytes = |blocks: f64| (blocks * BLOCK_BYTES as f64) as u64;
    let (mut at, end) = (bytes(from), bytes(to));
    while at < end {
        let length = random.between(SCAN_READ_BYTES * 6 / 10, SCAN_READ_BYTES * 14 / 10);
        let block_end = (at / BLOCK_BYTES + 1) * BLOCK_BYTES;
        let mut stop = (at + length).min(end);
        if stop > block_end && random.below(2) == 0 {
            stop = block_end;
        }
        reads.push(Range { file: model, offset: at, length: stop - at });
        at = stop;
    }
}

fn read_with_pauses(program: &mut Program, reads: &[Range], cpu_us: f64) {
    let mut saved = 0.0;
    for &range in reads {
        program.read(range);
        program.compute(cpu_us / 2.0);
        saved += cpu_us / 2.0;
        if saved >= PAUSE_US {
            program.compute(saved);
            saved = 0.0;
        }
    }
    program.compute(saved);
}

/// One frame's look-ups that miss in Sphinx's own cache: hinted just before they are read.
fn recognise(program: &mut Program, random: &mut Random, model: u32) {
    let cpu_us = RECOGNITION_CPU_US / f64::from(BURSTS);
    program.compute(cpu_us * 0.8);
    let (mean, deviation) = BURST_RANGES;
    let ranges = (mean + deviation * random.normal()).exp().clamp(1.0, 400.0) as usize;
    let bytes = u64::from(MODEL_BLOCKS) * BLOCK_BYTES;
    let mut reads: Vec<Range> = (0..ranges)
        .map(|_| Range {
            file: model,
            offset: random.below(bytes - 20 * BLOCK_BYTES),
            length: (random.exponential(RANGE_BYTES) as u64).clamp(200, 20 * BLOCK_BYTES),
        })
        .collect();
    // Over 85% of the bursts ascend.
    if random.below(100) < 87 {
        reads.sort_by_key(|range| range.offset);
    }
    program.hint(reads.clone());
    read_with_pauses(program, &reads, cpu_us * 0.2 / reads.len() as f64);
}
