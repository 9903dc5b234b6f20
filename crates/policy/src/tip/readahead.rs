//! Sequential readahead of the base system, for unhinted reads (section 6.1).

use hashbrown::HashMap;

use super::buffers::BlockHasher;
use super::{FileId, ProcessId, Read};
use core::hash::BuildHasherDefault;

/// How readahead grows: in proportion to the current sequential run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadaheadConfig {
    /// Blocks read in sequence before readahead begins.
    pub start_run: u32,
    /// The most blocks read ahead (8 clusters of 8 blocks in the thesis).
    pub blocks_max: u32,
    /// Blocks before the end of what was read ahead at which the next window is started.
    pub margin_max: u32,
}

impl Default for ReadaheadConfig {
    fn default() -> Self {
        Self { start_run: 2, blocks_max: 64, margin_max: 8 }
    }
}

/// A run of sequential unhinted reads in one file by one process.
#[derive(Clone, Copy, Debug)]
struct Run {
    last: u32,
    length: u32,
    /// Read calls in it: one call alone is no sequence, however long.
    calls: u32,
    /// First block that has not been read ahead.
    ahead_to: u32,
}

/// Detects runs and says what to read ahead.
#[derive(Debug, Default)]
pub(super) struct Readahead {
    runs: HashMap<(u32, u32), Run, BuildHasherDefault<BlockHasher>>,
}

impl Readahead {
    /// Notes the unhinted read of a block. At the end of a call that continues a run it
    /// returns the blocks to read ahead, if any: "if an application sequentially reads 4
    /// blocks, then the system initiates readaheads for the next 4".
    pub(super) fn note(
        &mut self,
        config: &ReadaheadConfig,
        read: &Read,
        block: u32,
        file_blocks: u32,
    ) -> Option<(u32, u32)> {
        let fresh = Run { last: block, length: 1, calls: 1, ahead_to: block + 1 };
        let begins = read.offset == read.call_start;
        let run = self
            .runs
            .entry((read.process.0, read.file.0))
            .or_insert(Run { calls: u32::from(!begins), ..fresh });
        if block == run.last || block == run.last.wrapping_add(1) {
            run.length = run.length.saturating_add(u32::from(block != run.last));
            run.calls = run.calls.saturating_add(u32::from(begins));
            run.last = block;
            run.ahead_to = run.ahead_to.max(block + 1);
        } else {
            *run = fresh;
        }
        let ends = read.offset + read.length >= read.call_end;
        let window = run.length.min(config.blocks_max);
        let margin = (window / 8).min(config.margin_max);
        if !ends || run.calls < 2 || run.length < config.start_run {
            return None;
        }
        if run.ahead_to - (block + 1) > margin {
            return None;
        }
        let from = run.ahead_to;
        let to = (from + window).min(file_blocks);
        run.ahead_to = to.max(from);
        (from < to).then_some((from, to))
    }

    pub(super) fn forget_process(&mut self, process: ProcessId) {
        self.runs.retain(|&(owner, _), _| owner != process.0);
    }

    pub(super) fn forget_file(&mut self, file: FileId) {
        self.runs.retain(|&(_, name), _| name != file.0);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn windows(
        config: ReadaheadConfig,
        calls: impl Iterator<Item = (u32, u32)>,
    ) -> Vec<(u32, u32, u32)> {
        let mut readahead = Readahead::default();
        let mut found = Vec::new();
        for (first, blocks) in calls {
            for block in first..first + blocks {
                let read = Read {
                    process: ProcessId(1),
                    file: FileId(1),
                    offset: u64::from(block) * 8192,
                    length: 8192,
                    call_start: u64::from(first) * 8192,
                    call_end: u64::from(first + blocks) * 8192,
                    t_app_us: 0,
                };
                if let Some((from, to)) = readahead.note(&config, &read, block, 1_000) {
                    found.push((block, from, to));
                }
            }
        }
        found
    }

    fn single(blocks: impl Iterator<Item = u32>) -> impl Iterator<Item = (u32, u32)> {
        blocks.map(|block| (block, 1))
    }

    #[test]
    fn readahead_grows_with_the_run() {
        let config = ReadaheadConfig::default();
        assert_eq!(windows(config, single(10..18)), [(11, 12, 14), (13, 14, 18), (17, 18, 26)]);
    }

    #[test]
    fn random_reads_start_none_nor_does_one_long_call() {
        let config = ReadaheadConfig::default();
        assert_eq!(windows(config, single([5, 9, 1, 3, 2, 7, 7].into_iter())), []);
        assert_eq!(windows(config, [(100, 7), (300, 7)].into_iter()), []);
        assert_eq!(windows(config, [(100, 7), (107, 7)].into_iter()), [(113, 114, 128)]);
    }

    #[test]
    fn long_runs_stay_ahead_by_at_most_the_maximum() {
        let config = ReadaheadConfig::default();
        let found = windows(config, single(0..900));
        let (block, _, to) = found[found.len() - 1];
        assert!(to - block <= 64 + 8 + 1);
        assert!(found.windows(2).all(|pair| pair[0].2 == pair[1].1), "no gap, nothing twice");
    }
}
