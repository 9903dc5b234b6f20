//! XDataSlice (sections 3.4.5 and 6.3.2): 25 planar slices through 512³ floats.

use super::start_up;
use crate::program::{Program, Range};
use crate::random::Random;

/// A block holds a submatrix of 16 × 16 × 8 elements, so the data set has 32 × 32 × 64 blocks;
/// they are stored Z first.
const EXTENT: [i64; 3] = [16, 16, 8];
const BLOCKS: [i64; 3] = [32, 32, 64];
const SIDE: i64 = 512;
const SLICES: usize = 25;
/// Blocks of all slices (table 3.3) and how near to that a draw must come.
const TOTAL_BLOCKS: usize = 45_241;
const TOLERANCE: f64 = 0.03;
/// User time, table 6.27: rendering a slice, after all its blocks have been read.
const RENDER_US: f64 = 11.4e6;
/// Kernel time outside the file system, and 2.2 s because its copies cost 21 ns a byte there
/// where the others' cost 15.
const READING_US: f64 = 3.2e6;

pub(super) fn program(random: &mut Random) -> Program {
    let mut program = Program::new("xds");
    let blocks = BLOCKS.iter().product::<i64>() as u64;
    // The container's description precedes the data.
    let file = program.file((blocks + 1) * crate::filesystem::BLOCK_BYTES, 0);
    start_up(&mut program, random, 130);
    let slices = draw_slices(random);
    let total: usize = slices.iter().map(Vec::len).sum();
    for slice in slices {
        program.hint(slice.iter().map(|&number| Range::blocks(file, number + 1, 1)).collect());
        let share = slice.len() as f64 / total as f64;
        for &number in &slice {
            program.read(Range::blocks(file, number + 1, 1));
            program.compute(READING_US / total as f64);
        }
        program.compute(RENDER_US * share);
    }
    program
}

/// Draws sets of slices until one has about as many blocks as the thesis's.
fn draw_slices(random: &mut Random) -> Vec<Vec<u32>> {
    loop {
        let slices: Vec<Vec<u32>> = (0..SLICES).map(|_| draw_slice(random)).collect();
        let total: usize = slices.iter().map(Vec::len).sum();
        let off = (total as f64 / TOTAL_BLOCKS as f64 - 1.0).abs();
        if off < TOLERANCE {
            return slices;
        }
    }
}

/// The blocks that a random plane cuts, in ascending order. Orientation and
/// distance are uniform over the planes that meet the cube.
fn draw_slice(random: &mut Random) -> Vec<u32> {
    loop {
        let normal = [random.normal(), random.normal(), random.normal()];
        let length = normal.iter().map(|n| n * n).sum::<f64>().sqrt();
        let normal = normal.map(|n| n / length);
        let reach = |sign: f64| normal.iter().map(|n| (n * sign).max(0.0) * sign).sum::<f64>();
        let level = SIDE as f64 * (reach(-1.0) + random.unit() * (reach(1.0) - reach(-1.0)));
        let blocks = cut(normal, level);
        // The smallest slice of the thesis has 46 blocks.
        if blocks.len() >= 46 {
            return blocks;
        }
    }
}

fn cut(normal: [f64; 3], level: f64) -> Vec<u32> {
    // What a block adds to the level at its nearest and farthest corner, per axis.
    let reach = |axis: usize, at: i64| {
        let from = normal[axis] * (at * EXTENT[axis]) as f64;
        let to = normal[axis] * ((at + 1) * EXTENT[axis]) as f64;
        (from.min(to), from.max(to))
    };
    let mut blocks = Vec::new();
    for x in 0..BLOCKS[0] {
        for y in 0..BLOCKS[1] {
            let (in_x, in_y) = (reach(0, x), reach(1, y));
            let (near, far) = (in_x.0 + in_y.0, in_x.1 + in_y.1);
            // The column may be cut only between these heights.
            let ends = [level - near, level - far].map(|rest| rest / normal[2] / EXTENT[2] as f64);
            let low = ends[0].min(ends[1]).floor().clamp(0.0, BLOCKS[2] as f64) as i64;
            let high = ends[0].max(ends[1]).ceil().clamp(0.0, BLOCKS[2] as f64) as i64;
            for z in low..high {
                let in_z = reach(2, z);
                if near + in_z.0 <= level && level < far + in_z.1 {
                    blocks.push(((x * BLOCKS[1] + y) * BLOCKS[2] + z) as u32);
                }
            }
        }
    }
    blocks
}
