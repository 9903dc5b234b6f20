//! Write-behind: dirty buffers, written in clusters.

use alloc::vec::Vec;

use super::buffers::State;
use super::manager::{Layout, Tip};
use super::{Block, Io, Priority, ProcessId};

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Kept in a buffer; written later.
    Buffered,
    /// No buffer could be spared: the I/O appended carries it.
    Through,
}

/// Blocks that a process wrote one after another, to be written in clusters.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirtyRun {
    pub(super) process: ProcessId,
    first: Block,
    blocks: u32,
}

impl<L: Layout> Tip<L> {
    /// Writes to one block. Runs of blocks are written behind in clusters.
    pub fn write(&mut self, process: ProcessId, block: Block, ios: &mut Vec<Io>) -> WriteOutcome {
        let id = self.buffers.find_or_ghost(block);
        let state = self.buffers.get(id).state;
        let spare = self.buffers.busy + self.config.reserve < self.buffers.total;
        let fits = match state {
            State::Dirty => true,
            State::Reading => false,
            State::Ghost => spare && self.page_alloc(None, ios),
            State::Clean | State::Writing => spare,
        };
        if !fits {
            self.buffers.drop_if_useless(id);
            self.stats.written_blocks += 1;
            self.stats.write_ios += 1;
            ios.push(Io { first: block, blocks: 1, priority: Priority::Demand, write: true });
            return WriteOutcome::Through;
        }
        if state == State::Ghost {
            self.note_fetched(id, false);
        }
        self.buffers.set_state(id, State::Dirty);
        self.buffers.get_mut(id).referenced = true;
        self.take_off_lru(id, true);
        self.buffers.get_mut(id).post_hint = false;
        self.release_to_lru(id);
        self.extend_dirty_run(process, block, ios);
        WriteOutcome::Buffered
    }

    fn extend_dirty_run(&mut self, process: ProcessId, block: Block, ios: &mut Vec<Io>) {
        let fresh = DirtyRun { process, first: block, blocks: 1 };
        let Some(i) = self
            .dirty_runs
            .iter()
            .position(|run| run.process == process && run.first.file == block.file)
        else {
            self.dirty_runs.push(fresh);
            return;
        };
        let run = self.dirty_runs[i];
        let last = Block { number: run.first.number + run.blocks - 1, ..run.first };
        if block == last {
            return;
        }
        let follows = block.number == last.number + 1
            && run.blocks < self.config.cluster_blocks
            && self.layout.next_is_contiguous(last);
        if follows {
            self.dirty_runs[i].blocks += 1;
        } else {
            self.dirty_runs[i] = fresh;
            self.flush(run, ios);
        }
    }

    /// Writes the dirty ones of a run of blocks.
    pub(super) fn flush(&mut self, run: DirtyRun, ios: &mut Vec<Io>) {
        let mut pending: Option<Io> = None;
        for i in 0..run.blocks {
            let block = Block { number: run.first.number + i, ..run.first };
            let dirty =
                self.buffers.find(block).filter(|&id| self.buffers.get(id).state == State::Dirty);
            match (dirty, &mut pending) {
                (Some(id), Some(io)) => {
                    self.buffers.set_state(id, State::Writing);
                    io.blocks += 1;
                }
                (Some(id), None) => {
                    self.buffers.set_state(id, State::Writing);
                    pending = Some(Io {
                        first: block,
                        blocks: 1,
                        priority: Priority::Demand,
                        write: true,
                    });
                }
                (None, _) => {
                    if let Some(io) = pending.take() {
                        self.issue(io, ios);
                    }
                }
            }
        }
        if let Some(io) = pending {
            self.issue(io, ios);
        }
    }
}
