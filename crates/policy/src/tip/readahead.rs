//! Sequential readahead of the base system, for unhinted reads (section 6.1).

use hashbrown::HashMap;

use super::buffers::BlockHasher;
use super::{FileId, ProcessId};
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
    /// First block that has not been read ahead.
    ahead_to: u32,
}

/// Detects runs and says what to read ahead.
#[derive(Debug, Default)]
pub(super) struct Readahead {
    runs: HashMap<(u32, u32), Run, BuildHasherDefault<BlockHasher>>,
}

impl Readahead {
    /// Notes the unhinted read of a block. Returns the blocks to read ahead, if any: "if an
    /// application reads 4 blocks, the system initiates readaheads for the next 4".
    pub(super) fn note(
        &mut self,
        config: &ReadaheadConfig,
        process: ProcessId,
        file: FileId,
        block: u32,
        file_blocks: u32,
    ) -> Option<(u32, u32)> {
        let fresh = Run { last: block, length: 1, ahead_to: block + 1 };
        let run = self.runs.entry((process.0, file.0)).or_insert(fresh);
        if block == run.last {
            return None;
        }
        if block != run.last.wrapping_add(1) {
            *run = fresh;
            return None;
        }
        run.last = block;
        run.length = run.length.saturating_add(1);
        run.ahead_to = run.ahead_to.max(block + 1);
        let window = run.length.min(config.blocks_max);
        let margin = (window / 2).min(config.margin_max);
        if run.length < config.start_run || run.ahead_to - (block + 1) > margin {
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

    fn windows(config: ReadaheadConfig, blocks: impl Iterator<Item = u32>) -> Vec<(u32, u32, u32)> {
        let mut readahead = Readahead::default();
        blocks
            .filter_map(|block| {
                readahead
                    .note(&config, ProcessId(1), FileId(1), block, 1_000)
                    .map(|(from, to)| (block, from, to))
            })
            .collect()
    }

    #[test]
    fn readahead_grows_with_the_run() {
        let config = ReadaheadConfig { start_run: 2, blocks_max: 64, margin_max: 0 };
        assert_eq!(windows(config, 10..18), [(11, 12, 14), (13, 14, 18), (17, 18, 26)]);
    }

    #[test]
    fn random_reads_start_none() {
        let config = ReadaheadConfig::default();
        assert_eq!(windows(config, [5, 9, 1, 3, 2, 7, 7].into_iter()), []);
    }

    #[test]
    fn long_runs_stay_ahead_by_at_most_the_maximum() {
        let config = ReadaheadConfig::default();
        let found = windows(config, 0..900);
        let (block, _, to) = found[found.len() - 1];
        assert!(to - block <= 64 + 8 + 1);
        assert!(found.windows(2).all(|pair| pair[0].2 == pair[1].1), "no gap, nothing twice");
    }
}
