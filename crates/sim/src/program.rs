//! What a simulated application does.

use serde::{Deserialize, Serialize};

use crate::filesystem::{BLOCK_BYTES, FileSpec, blocks_of};

/// A byte range of one of a program's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// The file, as numbered in the program.
    pub file: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes; in a hint, 0 means to the end of the file.
    pub length: u64,
}

impl Range {
    /// Whole blocks of a file.
    pub fn blocks(file: u32, first: u32, count: u32) -> Self {
        let bytes = |blocks: u32| u64::from(blocks) * BLOCK_BYTES;
        Self { file, offset: bytes(first), length: bytes(count) }
    }
}

/// One step of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Uses the CPU for so many microseconds, outside of read calls.
    Compute(u32),
    /// Discloses segments, in one call.
    Hint(Vec<Range>),
    /// Cancels the segment at the head of its hints.
    Cancel,
    /// One read call.
    Read(Range),
    /// One write call.
    Write(Range),
}

/// A program: its files and its steps.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Name for tables.
    pub name: String,
    /// Its files, numbered from 0.
    pub files: Vec<FileSpec>,
    /// Its steps in order.
    pub ops: Vec<Op>,
}

/// Totals of a program's steps, for comparison with tables 3.2 and 3.3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Read calls.
    pub read_calls: u64,
    /// References to blocks by read calls.
    pub read_blocks: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Distinct blocks read.
    pub distinct_blocks: u64,
    /// Hint calls.
    pub hint_calls: u64,
    /// Hinted segments.
    pub hint_segments: u64,
    /// References to blocks by hinted segments.
    pub hint_blocks: u64,
    /// Cancelled segments.
    pub cancels: u64,
    /// Write calls.
    pub write_calls: u64,
    /// CPU time outside of calls, µs.
    pub compute_us: u64,
}

impl Program {
    /// A program without files or steps.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_string(), ..Self::default() }
    }

    /// Adds a file; returns its number.
    pub fn file(&mut self, bytes: u64, directory: u32) -> u32 {
        self.files.push(FileSpec { bytes, directory });
        (self.files.len() - 1) as u32
    }

    /// Adds computation, joined to computation just before.
    pub fn compute(&mut self, us: f64) {
        let us = us.max(0.0).round() as u32;
        match self.ops.last_mut() {
            Some(Op::Compute(before)) => *before += us,
            _ => self.ops.push(Op::Compute(us)),
        }
    }

    /// Adds a read call.
    pub fn read(&mut self, range: Range) {
        self.ops.push(Op::Read(range));
    }

    /// Adds a hint call; an empty one is left out.
    pub fn hint(&mut self, segments: Vec<Range>) {
        if !segments.is_empty() {
            self.ops.push(Op::Hint(segments));
        }
    }

    /// Bytes that a range means, with the length 0 of a hint resolved.
    pub fn clip(&self, range: Range) -> (u64, u64) {
        let bytes = self.files.get(range.file as usize).map_or(0, |file| file.bytes);
        let end = match range.length {
            0 => bytes,
            length => range.offset.saturating_add(length).min(bytes),
        };
        (range.offset.min(end), end)
    }

    fn blocks_in(&self, range: Range) -> core::ops::Range<u32> {
        let (start, end) = self.clip(range);
        if start == end {
            return 0..0;
        }
        (start / BLOCK_BYTES) as u32..blocks_of(end)
    }

    /// Counts.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        let mut seen: Vec<Vec<bool>> =
            self.files.iter().map(|file| vec![false; blocks_of(file.bytes) as usize]).collect();
        for op in &self.ops {
            match op {
                Op::Compute(us) => totals.compute_us += u64::from(*us),
                Op::Cancel => totals.cancels += 1,
                Op::Write(_) => totals.write_calls += 1,
                Op::Hint(segments) => {
                    totals.hint_calls += 1;
                    totals.hint_segments += segments.len() as u64;
                    totals.hint_blocks +=
                        segments.iter().map(|&s| self.blocks_in(s).len() as u64).sum::<u64>();
                }
                Op::Read(range) => {
                    let (start, end) = self.clip(*range);
                    totals.read_calls += 1;
                    totals.read_bytes += end - start;
                    for number in self.blocks_in(*range) {
                        totals.read_blocks += 1;
                        seen[range.file as usize][number as usize] = true;
                    }
                }
            }
        }
        totals.distinct_blocks = seen.iter().flatten().filter(|&&seen| seen).count() as u64;
        totals
    }
}
