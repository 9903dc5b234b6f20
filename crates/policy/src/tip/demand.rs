//! Fetching without hints: demand misses, and the base system's readahead.

use alloc::vec::Vec;

use super::buffers::{BufId, State};
use super::config::Mode;
use super::manager::{Layout, Read, Tip};
use super::{Block, Io, Priority};

impl<L: Layout> Tip<L> {
    /// Reads a missed block, and with it those that the same call will miss (section 6.1).
    /// False where every buffer is busy: more processes wait than `reserve` covers.
    pub(super) fn demand_fetch(
        &mut self,
        id: BufId,
        hinted: bool,
        read: &Read,
        ios: &mut Vec<Io>,
    ) -> bool {
        if !self.page_alloc(None, ios) {
            // Counted as a miss, whatever the block's header was used for before.
            self.note_fetched(id, false);
            return false;
        }
        self.start_read(id, false);
        self.buffers.get_mut(id).release = true;
        let first = self.buffers.get(id).block;
        let mut io = Io { first, blocks: 1, priority: Priority::Demand, write: false };
        match self.config.mode {
            Mode::Static { depth: 0, .. } if hinted => io = self.kluster(io, ios),
            Mode::NoPrefetch if hinted => {}
            _ => self.extend_demand(&mut io, read, ios),
        }
        self.stats.miss_ios += 1;
        self.issue(io, ios);
        true
    }

    fn extend_demand(&mut self, io: &mut Io, read: &Read, ios: &mut Vec<Io>) {
        let last = self.block_at(read.file, read.call_end.max(1) - 1).number;
        while io.blocks < self.config.cluster_blocks {
            let end = Block { number: io.first.number + io.blocks - 1, ..io.first };
            let next = Block { number: end.number + 1, ..end };
            if end.number >= last || !self.layout.next_is_contiguous(end) {
                return;
            }
            let id = self.buffers.find_or_ghost(next);
            if self.buffers.get(id).state != State::Ghost || !self.page_alloc(Some(u64::MAX), ios) {
                self.buffers.drop_if_useless(id);
                return;
            }
            self.start_read(id, false);
            let post_hint =
                self.buffers.get(self.buffers.find(io.first).expect("in use")).post_hint;
            self.buffers.get_mut(id).post_hint = post_hint;
            self.buffers.get_mut(id).release = true;
            io.blocks += 1;
        }
    }

    /// Readahead of unhinted reads, with buffers at demand priority (section 5.2, note 2).
    pub(super) fn read_ahead(&mut self, read: &Read, block: Block, ios: &mut Vec<Io>) {
        let Some(config) = self.config.readahead else { return };
        let file_blocks =
            self.layout.file_bytes(block.file).div_ceil(u64::from(self.config.block_bytes)) as u32;
        let Some((from, to)) = self.readahead.note(&config, read, block.number, file_blocks) else {
            return;
        };
        let mut pending: Option<Io> = None;
        for number in from..to {
            let next = Block { number, ..block };
            let id = self.buffers.find_or_ghost(next);
            if self.buffers.get(id).state != State::Ghost || !self.page_alloc(Some(u64::MAX), ios) {
                self.buffers.drop_if_useless(id);
                continue;
            }
            self.start_read(id, true);
            self.buffers.get_mut(id).post_hint = false;
            self.buffers.get_mut(id).release = true;
            self.stats.readahead_blocks += 1;
            let last = Block { number: number.wrapping_sub(1), ..block };
            match &mut pending {
                Some(io)
                    if io.first.number + io.blocks == number
                        && io.blocks < self.config.cluster_blocks
                        && self.layout.next_is_contiguous(last) =>
                {
                    io.blocks += 1;
                }
                _ => {
                    let io =
                        Io { first: next, blocks: 1, priority: Priority::Prefetch, write: false };
                    if let Some(done) = pending.replace(io) {
                        self.issue_prefetch(done, ios);
                    }
                }
            }
        }
        if let Some(io) = pending {
            self.issue_prefetch(io, ios);
        }
    }
}
