//! Gnu ld (sections 3.4.2 and 6.3.5): linking 562 object files in several passes.

use super::start_up;
use crate::filesystem::BLOCK_BYTES;
use crate::program::{Op, Program, Range};
use crate::random::Random;

const FILES: usize = 562;
/// The largest file, and the next (section 6.3.5).
const LARGEST_BLOCKS: u32 = 152;
const NEXT_BLOCKS: f64 = 50.0;
/// Log-normal sizes in blocks, with a mean of 13.9: 64 MB in all.
const SIZE: (f64, f64) = (2.5, 0.5);
/// Small reads of debugging information per file, up to nine.
const DEBUG_READS: u64 = 8;
/// A read call of the final passes.
const CALL_BYTES: u64 = 10_240;
/// A read call of a symbol or string table.
const TABLE_CALL_BYTES: u64 = 12_288;
const OUTPUT_BYTES: u64 = 8_824_188;
/// User and other kernel time, table 6.27.
const CPU_US: f64 = 5.75e6;

/// An object file: where its parts lie, in bytes.
#[derive(Clone, Copy, Debug)]
struct Object {
    file: u32,
    text: (u64, u64),
    data: (u64, u64),
    debug: [(u64, u64); 2],
    shuffled: [(u64, u64); 2],
    /// Symbols and strings.
    tables: [(u64, u64); 2],
}

pub(super) fn program(random: &mut Random) -> Program {
    let mut program = Program::new("gnuld");
    let objects: Vec<Object> = (0..FILES).map(|i| object(&mut program, random, i)).collect();
    let output = program.file(OUTPUT_BYTES, 40);
    start_up(&mut program, random, 240);
    // Objects are linked in the order of their creation: scheduling gains little (table 6.15).
    let order = objects;
    let step_us = CPU_US / 4.0 / FILES as f64;
    headers_and_symbols(&mut program, &order, step_us);
    debugging(&mut program, random, &order, step_us);
    final_passes(&mut program, &order, output, step_us);
    program
}

fn object(program: &mut Program, random: &mut Random, i: usize) -> Object {
    let (mean, deviation) = SIZE;
    let blocks = match i {
        300 => LARGEST_BLOCKS,
        _ => (mean + deviation * random.normal()).exp().clamp(4.0, NEXT_BLOCKS) as u32,
    };
    let bytes = u64::from(blocks) * BLOCK_BYTES + random.below(BLOCK_BYTES);
    let file = program.file(bytes, (i / 100) as u32);
    let part = |share: f64| (bytes as f64 * share) as u64;
    Object {
        file,
        text: (part(0.02), part(0.42)),
        data: (part(0.45), part(0.50)),
        debug: [(part(0.50), part(0.60)), (part(0.72), part(0.78))],
        shuffled: [(part(0.60), part(0.65)), (part(0.67), part(0.71))],
        tables: [(part(0.78), part(0.89)), (part(0.89), bytes)],
    }
}

/// Headers are hinted by a duplicated loop; symbols and strings, whose place the secondary
/// header tells, while the first loop runs, and read in the next.
fn headers_and_symbols(program: &mut Program, order: &[Object], step_us: f64) {
    let header = |object: &Object| Range { file: object.file, offset: 0, length: 400 };
    for object in order {
        program.hint(vec![header(object)]);
    }
    for object in order {
        program.read(header(object));
        for part in 0..4 {
            program.read(Range { file: object.file, offset: 400 + part * 300, length: 300 });
        }
        program.compute(step_us);
        program.hint(object.tables.map(|part| range(object, part)).to_vec());
    }
    for object in order {
        for part in object.tables {
            read_in_calls(program, range(object, part), TABLE_CALL_BYTES);
        }
        program.compute(step_us);
    }
}

fn read_in_calls(program: &mut Program, range: Range, call_bytes: u64) {
    let end = range.offset + range.length;
    let mut at = range.offset;
    while at < end {
        let length = call_bytes.min(end - at);
        program.read(Range { offset: at, length, ..range });
        at += length;
    }
}

/// Up to nine small reads of each file, not sequential.
fn debugging(program: &mut Program, random: &mut Random, order: &[Object], step_us: f64) {
    let reads: Vec<Vec<Range>> = order
        .iter()
        .map(|object| {
            let mut reads: Vec<Range> = (0..DEBUG_READS)
                .map(|i| {
                    let (from, to) = object.debug[i as usize % 2];
                    let length = random.between(500, 3_000).min(to - from);
                    let offset = random.between(from, to - length);
                    range(object, (offset, offset + length))
                })
                .collect();
            reads.sort_by_key(|read| read.offset);
            reads
        })
        .collect();
    for of_file in &reads {
        for &read in of_file {
            program.hint(vec![read]);
        }
    }
    for of_file in reads {
        for read in of_file {
            program.read(read);
        }
        program.compute(step_us);
    }
}

/// The shuffle lists, then the segments of the executable: each loops over all files, reads a
/// range of each and writes it to the output.
fn final_passes(program: &mut Program, order: &[Object], output: u32, step_us: f64) {
    let passes: [Vec<Range>; 4] = [
        order.iter().map(|o| range(o, o.shuffled[0])).collect(),
        order.iter().map(|o| range(o, o.shuffled[1])).collect(),
        order.iter().map(|o| range(o, o.text)).collect(),
        order.iter().map(|o| range(o, o.data)).collect(),
    ];
    let all: Vec<Range> = passes.concat();
    for &part in &all {
        program.hint(vec![part]);
    }
    let bytes: u64 = all.iter().map(|part| part.length).sum();
    let mut written = 0;
    for part in all {
        read_in_calls(program, part, CALL_BYTES);
        let share = OUTPUT_BYTES * part.length / bytes;
        if share > 0 {
            program.ops.push(Op::Write(Range { file: output, offset: written, length: share }));
            written += share;
        }
        program.compute(step_us / 4.0);
    }
}

fn range(object: &Object, (from, to): (u64, u64)) -> Range {
    Range { file: object.file, offset: from, length: to - from }
}
