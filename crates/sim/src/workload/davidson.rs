//! Davidson (sections 3.4.4 and 6.3.1): a 16.3 MB matrix read sequentially sixty times.

use super::start_up;
use crate::filesystem::BLOCK_BYTES;
use crate::program::{Program, Range};
use crate::random::Random;

const MATRIX_BLOCKS: u64 = 2089;
const PASSES: u32 = 60;
/// 19,000 calls in 60 passes, of sizes that are no multiple of a block.
const READ_BYTES: u64 = 54_100;
/// User time of table 6.27, and the little kernel time outside the file system.
const CPU_US: f64 = 82.3e6;
const RESULT_WRITES: u32 = 1474;

pub(super) fn program(random: &mut Random) -> Program {
    let mut program = Program::new("davidson");
    let bytes = MATRIX_BLOCKS * BLOCK_BYTES - 3000;
    let matrix = program.file(bytes, 0);
    let output = program.file(16 * BLOCK_BYTES, 1);
    start_up(&mut program, random, 70);
    let calls_per_pass = bytes.div_ceil(READ_BYTES);
    let cpu_us = CPU_US / (calls_per_pass * u64::from(PASSES)) as f64;
    let whole = Range { file: matrix, offset: 0, length: 0 };
    program.hint(vec![whole]);
    for pass in 0..PASSES {
        program.hint(vec![whole]);
        for call in 0..calls_per_pass {
            program.read(Range { file: matrix, offset: call * READ_BYTES, length: READ_BYTES });
            program.compute(cpu_us);
        }
        for _ in 0..RESULT_WRITES / PASSES {
            let offset = u64::from(pass) * 1800 % (15 * BLOCK_BYTES);
            program.ops.push(crate::Op::Write(Range { file: output, offset, length: 75 }));
        }
    }
    program
}
