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
    let io_us = |blocks| costs.io_start_us(blocks) + costs.io_end_us(blocks);
    let (clusters, rest) = (min_fetches / u64::from(cluster), min_fetches % u64::from(cluster));
    let rest_us = if rest > 0 { io_us(rest as u32) } else { 0 };
    let cpu_us = calls_us(program, costs) + clusters * io_us(cluster) + rest_us;
    let media_us = (min_fetches as f64 * drive.block_us / f64::from(disks)) as Micros;
    Bounds { min_fetches, cpu_us, elapsed_us: cpu_us.max(media_us) }
}

fn calls_us(program: &Program, costs: &CpuCosts) -> Micros {
    let mut us = 0;
    for op in &program.ops {
        match op {
            Op::Compute(compute) => us += Micros::from(*compute),
            Op::Read(range) => {
                us += costs.call_ns / 1000;
                let (mut at, end) = program.clip(*range);
                while at < end {
                    let block_end = ((at / BLOCK_BYTES + 1) * BLOCK_BYTES).min(end);
                    us += costs.request_us(block_end - at, false);
                    at = block_end;
                }
            }
            Op::Hint(_) | Op::Cancel | Op::Write(_) => {}
        }
    }
    us
}

/// A block of a file.
type Block = (u32, u32);

/// A block that a program reads or writes.
#[derive(Clone, Copy, Debug)]
struct Reference {
    block: Block,
    /// It comes into the cache without being fetched.
    is_write: bool,
}

/// The blocks that the program reads and writes, in order.
fn references(program: &Program) -> Vec<Reference> {
    let mut all = Vec::new();
    for op in &program.ops {
        let (range, (start, end), is_write) = match op {
            Op::Read(range) => (range, program.clip(*range), false),
            Op::Write(range) => (range, (range.offset, range.offset + range.length.max(1)), true),
            Op::Compute(_) | Op::Hint(_) | Op::Cancel => continue,
        };
        let blocks = start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        all.extend(
            blocks
                .filter(|_| start < end)
                .map(|number| Reference { block: (range.file, number as u32), is_write }),
        );
    }
    all
}

/// Fetches of the optimal replacement. What is written need not be kept.
fn belady(references: &[Reference], buffers: usize) -> u64 {
    /// Never read again, or written before.
    const NEVER: usize = usize::MAX;
    let mut next_read = vec![NEVER; references.len()];
    let mut next: HashMap<Block, usize> = HashMap::new();
    for (i, reference) in references.iter().enumerate().rev() {
        let this = if reference.is_write { NEVER } else { i };
        next_read[i] = next.insert(reference.block, this).unwrap_or(NEVER);
    }
    // (next read, block), so that the last is the one to eject.
    let mut cached: BTreeSet<(usize, Block)> = BTreeSet::new();
    let mut fetches = 0;
    for (i, &Reference { block, is_write }) in references.iter().enumerate() {
        if is_write {
            cached.remove(&(NEVER, block));
            cached.insert((next_read[i], block));
            if cached.len() > buffers {
                cached.pop_last();
            }
            continue;
        }
        if !cached.remove(&(i, block)) {
            fetches += 1;
            if cached.len() == buffers {
                cached.pop_last();
            }
        }
        cached.insert((next_read[i], block));
    }
    fetches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::scenario::{Policy, Scenario};
    use crate::{Task, trace};

    /// The least over all choices of victims, by trying them all.
    fn exhaustive(references: &[Reference], cached: &[Block], buffers: usize) -> u64 {
        let Some((&Reference { block, is_write }, rest)) = references.split_first() else {
            return 0;
        };
        if cached.contains(&block) {
            return exhaustive(rest, cached, buffers);
        }
        let fetches = u64::from(!is_write);
        let mut with = cached.to_vec();
        with.push(block);
        if with.len() <= buffers {
            return fetches + exhaustive(rest, &with, buffers);
        }
        // The last is the block itself, which may go at once if it was written.
        let victims = if is_write { buffers + 1 } else { buffers };
        (0..victims)
            .map(|victim| {
                let mut kept = with.clone();
                kept.remove(victim);
                fetches + exhaustive(rest, &kept, buffers)
            })
            .min()
            .unwrap_or(0)
    }

    #[test]
    fn belady_is_optimal() {
        let mut random = Random::new(4);
        for round in 0..120 {
            let references: Vec<Reference> = (0..12)
                .map(|_| Reference {
                    block: (0, random.below(5) as u32),
                    is_write: round >= 60 && random.below(3) == 0,
                })
                .collect();
            assert_eq!(belady(&references, 3), exhaustive(&references, &[], 3), "{references:?}");
        }
    }

    #[test]
    fn no_run_is_faster_than_its_bound() {
        let step = |kind: &str, offset: u64, length: u64| {
            format!(r#"{{"{kind}":{{"file":0,"offset":{offset},"length":{length}}}}}"#) + "\n"
        };
        let blocks = |kind: &str| (0..100).map(|i| step(kind, i * 8192, 8192)).collect::<String>();
        let traces = [
            // Behind the end, nothing at all, what was just written, and what is in memory.
            step("read", 819_200 - 192, 4096).repeat(1000),
            step("read", 0, 0).repeat(1000),
            blocks("write") + &blocks("read"),
            step("read", 0, 819_008).repeat(50),
        ];
        for (i, steps) in traces.iter().enumerate() {
            let header = r#"{"name":"x","files":[{"bytes":819008,"directory":0}]}"#;
            let program = trace::read_trace(format!("{header}\n{steps}").as_bytes()).unwrap();
            let scenario = Scenario::of(Vec::new(), Policy::Du, 1, 1);
            let bound_us = scenario.bounds_of(&program).elapsed_us;
            let task = Task { program, hints: false };
            let report = scenario.run_tasks(vec![task], Policy::Du.config());
            assert!(report.elapsed_us >= bound_us, "{i}: {} < {bound_us}", report.elapsed_us);
        }
    }
}
