//! Postgres (sections 3.4.3 and 6.3.6): a join whose loop is split to give hints.

use super::start_up;
use crate::filesystem::BLOCK_BYTES;
use crate::program::{Op, Program, Range};
use crate::random::Random;

const OUTER_TUPLES: u32 = 20_000;
const OUTER_BLOCKS: u32 = 409;
const INNER_BLOCKS: u32 = 4082;
/// A 5 MB B-tree of three levels: the root, a few inner nodes, the leaves.
const INDEX_INNER_NODES: u32 = 6;
const INDEX_LEAVES: u32 = 633;
/// Postgres's own cache.
const PRIVATE_CACHE_BLOCKS: usize = 100;

/// The two benchmarks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Match {
    name: &'static str,
    /// Outer tuples that find a match.
    matches: u32,
    /// User and other kernel time, table 6.27, µs.
    cpu_us: f64,
    /// Blocks of output.
    output_blocks: u32,
}

impl Match {
    pub(super) const TWENTY_PERCENT: Self =
        Self { name: "postgres20", matches: 4_046, cpu_us: 24.8e6, output_blocks: 156 };
    pub(super) const EIGHTY_PERCENT: Self =
        Self { name: "postgres80", matches: 15_916, cpu_us: 36.8e6, output_blocks: 539 };
}

/// Blocks that Postgres keeps itself: whether a read reaches the file system.
struct PrivateCache(Vec<(u32, u32)>);

impl PrivateCache {
    fn misses(&mut self, block: (u32, u32)) -> bool {
        let found = self.0.iter().position(|&other| other == block);
        match found {
            Some(i) => {
                self.0.remove(i);
            }
            None if self.0.len() == PRIVATE_CACHE_BLOCKS => {
                self.0.remove(0);
            }
            None => {}
        }
        self.0.push(block);
        found.is_none()
    }
}

struct Join {
    program: Program,
    cache: PrivateCache,
    outer: u32,
    inner: u32,
    index: u32,
    output: u32,
}

impl Join {
    fn read(&mut self, file: u32, number: u32) -> bool {
        let reaches = self.cache.misses((file, number));
        if reaches {
            self.program.read(Range::blocks(file, number, 1));
        }
        reaches
    }
}

pub(super) fn program(random: &mut Random, benchmark: Match) -> Program {
    let mut program = Program::new(benchmark.name);
    let mut file = |blocks: u32| program.file(u64::from(blocks) * BLOCK_BYTES, 0);
    let outer = file(OUTER_BLOCKS);
    let inner = file(INNER_BLOCKS);
    let index = file(1 + INDEX_INNER_NODES + INDEX_LEAVES);
    let output = file(benchmark.output_blocks);
    start_up(&mut program, random, 400);
    let cache = PrivateCache(Vec::new());
    let mut join = Join { program, cache, outer, inner, index, output };
    // The inner block of each matching outer tuple.
    let mut matching: Vec<bool> = (0..OUTER_TUPLES).map(|i| i < benchmark.matches).collect();
    random.shuffle(&mut matching);
    let found: Vec<Option<u32>> = matching
        .iter()
        .map(|&found| found.then(|| random.below(u64::from(INNER_BLOCKS)) as u32))
        .collect();
    look_up(&mut join, random, &found, benchmark);
    let whole: Vec<Range> =
        found.iter().flatten().map(|&number| Range::blocks(inner, number, 1)).collect();
    join.program.hint(whole);
    fetch(&mut join, &found, benchmark);
    join.program
}

/// The first pass: the outer relation, hinted, and the index.
fn look_up(join: &mut Join, random: &mut Random, found: &[Option<u32>], benchmark: Match) {
    join.program.hint(vec![Range { file: join.outer, offset: 0, length: 0 }]);
    let (outer, index) = (join.outer, join.index);
    for (i, found) in found.iter().enumerate() {
        let number = i as u32 * OUTER_BLOCKS / OUTER_TUPLES;
        join.read(outer, number);
        if found.is_some() {
            let leaf = random.below(u64::from(INDEX_LEAVES)) as u32;
            join.read(index, 0);
            join.read(index, 1 + leaf * INDEX_INNER_NODES / INDEX_LEAVES);
            join.read(index, 1 + INDEX_INNER_NODES + leaf);
        }
        join.program.compute(cpu_of_tuple(found.is_some(), false, benchmark));
    }
}

/// The second pass: the outer relation again, not hinted, and the matching inner tuples.
fn fetch(join: &mut Join, found: &[Option<u32>], benchmark: Match) {
    let (outer, inner) = (join.outer, join.inner);
    let mut written = 0;
    let mut matches = 0;
    for (i, found) in found.iter().enumerate() {
        join.read(outer, i as u32 * OUTER_BLOCKS / OUTER_TUPLES);
        if let Some(number) = *found {
            if !join.read(inner, number) {
                join.program.ops.push(Op::Cancel);
            }
            matches += 1;
            if matches * benchmark.output_blocks / benchmark.matches > written {
                let range = Range::blocks(join.output, written, 1);
                join.program.ops.push(Op::Write(range));
                written += 1;
            }
        }
        join.program.compute(cpu_of_tuple(found.is_some(), true, benchmark));
    }
}

/// CPU time of a tuple in a pass. The user times of the two benchmarks, with 20,000 tuples and
/// 4,046 or 15,916 matches, say that a match costs as much again as its tuple; how much of it
/// overlaps with the second pass's I/O (stall in tables 6.11 and 6.13, service time in 6.15)
/// says that most of a tuple's time is in the first pass and most of a match's in the second.
fn cpu_of_tuple(matched: bool, second_pass: bool, benchmark: Match) -> f64 {
    let unit_us = benchmark.cpu_us / f64::from(OUTER_TUPLES + benchmark.matches);
    let (tuple, a_match) = if second_pass { (0.1, 0.75) } else { (0.9, 0.25) };
    unit_us * if matched { tuple + a_match } else { tuple }
}
