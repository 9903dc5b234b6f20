//! What no policy can beat: offline bounds with full knowledge of a program's reads.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use crate::cost::CpuCosts;
use crate::disk::{DriveParameters, Micros};
use crate::filesystem::BLOCK_BYTES;
use crate::program::{Op, Program};

/// Lower bounds of a program on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bounds {
    /// The fewest blocks that any cache of that size must fetch (Belady 1966: eject what is
    /// used last).
    pub min_fetches: u64,
    /// CPU time if each fetched cluster is full, µs.
    pub cpu_us: Micros,
    /// Elapsed time, µs: the CPU alone, or the disks at media rate, whichever takes longer.
    pub elapsed_us: Micros,
}

/// The bounds of a program that runs alone with so many buffers and disks.
pub fn bounds(
    program: &Program,
    buffers: usize,
    disks: u16,
    drive: &DriveParameters,
    costs: &CpuCosts,
) -> Bounds {
    let min_fetches = belady(&references(program), buffers);
    let cluster = crate::STRIPE_UNIT;
    let clusters = min_fetches.div_ceil(u64::from(cluster));
    let io_us = costs.io_start_us(cluster) + costs.io_end_us(cluster);
    let cpu_us = calls_us(program, costs) + clusters * io_us;
    let media_us = (min_fetches as f64 * drive.block_us / f64::from(disks)) as Micros;
    Bounds { min_fetches, cpu_us, elapsed_us: cpu_us.max(media_us) }
}

fn calls_us(program: &Program, costs: &CpuCosts) -> Micros {
    let mut us = 0;
    for op in &program.ops {
        match op {
            Op::Compute(compute) => us += Micros::from(*compute),
            Op::Read(range) => {
                let (start, end) = program.clip(*range);
                let blocks = end.div_ceil(BLOCK_BYTES) - start / BLOCK_BYTES;
                let requests = costs.request_us(0, false) * blocks;
                us += costs.call_ns / 1000 + requests + costs.copy_byte_ns * (end - start) / 1000;
            }
            Op::Hint(_) | Op::Cancel | Op::Write(_) => {}
        }
    }
    us
}

/// The blocks that the program reads, in order.
fn references(program: &Program) -> Vec<(u32, u32)> {
    let mut all = Vec::new();
    for op in &program.ops {
        if let Op::Read(range) = op {
            let (start, end) = program.clip(*range);
            let blocks = start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
            all.extend(blocks.filter(|_| start < end).map(|number| (range.file, number as u32)));
        }
    }
    all
}

/// Fetches of the optimal replacement.
fn belady(references: &[(u32, u32)], buffers: usize) -> u64 {
    let mut next_use = vec![usize::MAX; references.len()];
    let mut last: HashMap<(u32, u32), usize> = HashMap::new();
    for (i, &block) in references.iter().enumerate().rev() {
        next_use[i] = last.insert(block, i).unwrap_or(usize::MAX);
    }
    // (next use, block), so that the last is the one to eject.
    let mut cached: BTreeSet<(usize, (u32, u32))> = BTreeSet::new();
    let mut fetches = 0;
    for (i, &block) in references.iter().enumerate() {
        if !cached.remove(&(i, block)) {
            fetches += 1;
            if cached.len() == buffers {
                cached.pop_last();
            }
        }
        cached.insert((next_use[i], block));
    }
    fetches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// The least over all choices of victims, by trying them all.
    fn exhaustive(references: &[(u32, u32)], cached: &[(u32, u32)], buffers: usize) -> u64 {
        let Some((&block, rest)) = references.split_first() else { return 0 };
        if cached.contains(&block) {
            return exhaustive(rest, cached, buffers);
        }
        let mut with = cached.to_vec();
        with.push(block);
        if with.len() <= buffers {
            return 1 + exhaustive(rest, &with, buffers);
        }
        (0..buffers)
            .map(|victim| {
                let mut kept = with.clone();
                kept.remove(victim);
                1 + exhaustive(rest, &kept, buffers)
            })
            .min()
            .unwrap_or(0)
    }

    #[test]
    fn belady_is_optimal() {
        let mut random = Random::new(4);
        for _ in 0..60 {
            let references: Vec<(u32, u32)> =
                (0..12).map(|_| (0, random.below(5) as u32)).collect();
            assert_eq!(belady(&references, 3), exhaustive(&references, &[], 3), "{references:?}");
        }
    }
}
