//! Agrep (sections 3.4.1 and 6.3.4): 1349 small files, each read once, hinted beforehand.

use super::start_up;
use crate::filesystem::BLOCK_BYTES;
use crate::program::{Program, Range};
use crate::random::Random;

/// Files by size in blocks: 1349 files of 2922 blocks, over 80% of at most two, over 94% of at
/// most five, four of more than 20, the largest of 38.
const FILES_BY_BLOCKS: &[(u32, u32)] = &[
    (1, 790),
    (2, 293),
    (3, 90),
    (4, 58),
    (5, 44),
    (6, 22),
    (8, 17),
    (11, 13),
    (14, 10),
    (19, 8),
    (22, 1),
    (27, 1),
    (30, 1),
    (38, 1),
];
/// User time, and kernel time outside the file system, of table 6.27.
const CPU_US: f64 = 0.95e6;

pub(super) fn program(random: &mut Random) -> Program {
    let mut program = Program::new("agrep");
    let mut sizes: Vec<u32> = FILES_BY_BLOCKS
        .iter()
        .flat_map(|&(blocks, count)| (0..count).map(move |_| blocks))
        .collect();
    random.shuffle(&mut sizes);
    let third = sizes.len().div_ceil(3);
    let files: Vec<(u32, u32)> = sizes
        .iter()
        .enumerate()
        .map(|(i, &blocks)| {
            let last = random.between(1, BLOCK_BYTES);
            let bytes = u64::from(blocks - 1) * BLOCK_BYTES + last;
            (program.file(bytes, (i / third) as u32), blocks)
        })
        .collect();
    start_up(&mut program, random, 12);
    let order = argument_order(random, files.len(), third);
    let blocks: u32 = sizes.iter().sum();
    for &i in &order {
        program.compute(0.2 * CPU_US / files.len() as f64);
        program.hint(vec![Range { file: files[i].0, offset: 0, length: 0 }]);
    }
    for &i in &order {
        let (file, blocks_here) = files[i];
        for number in 0..=blocks_here {
            // The last call finds the end of the file.
            program.read(Range::blocks(file, number, 1));
            if number < blocks_here {
                program.compute(0.8 * CPU_US / f64::from(blocks));
            }
        }
    }
    program
}

/// Files lie in the order of their creation and are read in the order of their names:
/// directory by directory, but within one independently.
fn argument_order(random: &mut Random, files: usize, per_directory: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..files).collect();
    for directory in order.chunks_mut(per_directory) {
        random.shuffle(directory);
    }
    order
}
