//! `TipPrefetch` and `TipKluster` (sections 5.2.1 and 5.2.2).

use alloc::vec::Vec;

use super::allocate::STATIC_BID;
use super::buffers::{BufId, Nexus, State};
use super::config::{Mode, Valuation};
use super::estimates::Value;
use super::manager::{Layout, Tip};
use super::{Block, Io, Priority};

/// A missing block, the access that wants it, and the normalised benefit of fetching it.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    bid: Value,
    nexus: Nexus,
}

impl<L: Layout> Tip<L> {
    /// Bids for buffers, the highest benefit among the processes first, until refused or
    /// until nobody benefits. To be called whenever a benefit or the lowest cost may have
    /// changed.
    pub(super) fn prefetch(&mut self, ios: &mut Vec<Io>) {
        if self.config.mode == Mode::NoPrefetch {
            return;
        }
        for disk in &mut self.disks {
            disk.begin_round(self.config.deep_batch);
        }
        while let Some(best) = self.best_candidate() {
            if best.bid == 0 || !self.page_alloc(Some(best.bid), ios) {
                return;
            }
            let id = self.hint(best.nexus.estimator).header(best.nexus.index);
            self.start_read(id, true);
            self.track(id, best.nexus);
            let first = self.buffers.get(id).block;
            let io = Io { first, blocks: 1, priority: Priority::Prefetch, write: false };
            let io = self.kluster(io, ios);
            self.issue_prefetch(io, ios);
        }
    }

    fn best_candidate(&mut self) -> Option<Candidate> {
        let mut best: Option<Candidate> = None;
        for i in 0..self.hints.len() as u16 {
            let est = self.hints[usize::from(i)].as_ref();
            if est.is_none_or(|est| self.paused.contains(&est.process)) {
                continue;
            }
            for found in [self.first_missing(i), self.deep_missing(i)].into_iter().flatten() {
                if best.is_none_or(|best| found.bid > best.bid) {
                    best = Some(found);
                }
            }
        }
        best
    }

    /// The first missing block within the prefetch horizon. Accesses are taken from the head
    /// of the prefetch list as they are checked.
    fn first_missing(&mut self, estimator: u16) -> Option<Candidate> {
        let est = self.hint(estimator);
        let depth = match (self.config.mode, self.config.valuation) {
            (Mode::Static { depth, .. }, _) => depth,
            (_, Valuation::Aggressive) => return None,
            _ if self.config.extensions.process_horizon => est.own_horizon,
            _ => self.horizon,
        };
        let end = est.resolved_end().min(est.next_index() + depth);
        let mut index = est.prefetch_index.max(est.next_index());
        while index < end && !self.is_missing(self.hint(estimator).header(index)) {
            index += 1;
        }
        let est = self.hint_mut(estimator);
        est.prefetch_index = index;
        (index < end).then(|| Candidate {
            bid: self.benefit_prefetch(estimator, index),
            nexus: Nexus { estimator, index },
        })
    }

    fn benefit_prefetch(&self, estimator: u16, index: u64) -> Value {
        let est = self.hint(estimator);
        let x = est.distance(index);
        if matches!(self.config.mode, Mode::Static { .. }) {
            return STATIC_BID;
        }
        let parameters = &self.config.parameters;
        let benefit = match self.config.valuation {
            Valuation::Tip | Valuation::Tiptoe => parameters.benefit_prefetch(x, self.horizon),
            _ => parameters.benefit_deep(x, parameters.t_disk_us),
        };
        est.normal() * benefit
    }

    /// Of the disks from which to prefetch past the horizon, the missing block that is used
    /// first.
    fn deep_missing(&mut self, estimator: u16) -> Option<Candidate> {
        let everywhere = match (self.config.mode, self.config.valuation) {
            (Mode::CostBenefit, Valuation::Aggressive) => true,
            (Mode::CostBenefit, Valuation::Tiptoe | Valuation::Forestall) => false,
            _ => return None,
        };
        let mut first: Option<u64> = None;
        for disk in 0..self.disks.len() {
            let constrained = everywhere || self.disks[disk].constrained;
            if constrained && self.disks[disk].may_deepen() {
                let index = self.first_missing_on(estimator, disk as u16);
                first = first.into_iter().chain(index).min();
            }
        }
        let index = first?;
        let est = self.hint(estimator);
        let parameters = &self.config.parameters;
        let bid = est.normal() * parameters.benefit_deep(est.distance(index), parameters.t_disk_us);
        Some(Candidate { bid, nexus: Nexus { estimator, index } })
    }

    fn first_missing_on(&mut self, estimator: u16, disk: u16) -> Option<u64> {
        let est = self.hint(estimator);
        let (mut index, end) =
            (est.deep_index[usize::from(disk)].max(est.next_index()), est.resolved_end());
        while index < end {
            let id = self.hint(estimator).header(index);
            if self.layout.disk(self.buffers.get(id).block) == disk && self.is_missing(id) {
                break;
            }
            index += 1;
        }
        self.hint_mut(estimator).deep_index[usize::from(disk)] = index;
        (index < end).then_some(index)
    }

    fn is_missing(&self, id: BufId) -> bool {
        let buf = self.buffers.get(id);
        buf.state == State::Ghost && self.exists(buf.block)
    }

    pub(super) fn exists(&self, block: Block) -> bool {
        u64::from(block.number) * u64::from(self.config.block_bytes)
            < self.layout.file_bytes(block.file)
    }

    /// Extends an I/O that is about to be queued by neighbouring blocks that are hinted and
    /// not cached: forwards, then backwards, one bid for each.
    pub(super) fn kluster(&mut self, mut io: Io, ios: &mut Vec<Io>) -> Io {
        while io.blocks < self.config.cluster_blocks {
            let end = Block { number: io.first.number + io.blocks - 1, ..io.first };
            let next = Block { number: end.number + 1, ..end };
            if !self.layout.next_is_contiguous(end) || !self.join_cluster(next, io.priority, ios) {
                break;
            }
            io.blocks += 1;
        }
        while io.blocks < self.config.cluster_blocks && io.first.number > 0 {
            let before = Block { number: io.first.number - 1, ..io.first };
            if !self.layout.next_is_contiguous(before)
                || !self.join_cluster(before, io.priority, ios)
            {
                break;
            }
            io = Io { first: before, blocks: io.blocks + 1, ..io };
        }
        io
    }

    /// Adds one block to a cluster if its benefit, Cost_eject (Eq 4.18), wins a buffer.
    fn join_cluster(&mut self, block: Block, priority: Priority, ios: &mut Vec<Io>) -> bool {
        let Some(id) = self.buffers.find(block) else { return false };
        if !self.is_missing(id) {
            return false;
        }
        let Some((value, nexus)) = self.best_nexus(id) else { return false };
        if !self.page_alloc(Some(value.min(STATIC_BID)), ios) {
            return false;
        }
        let prefetch = priority == Priority::Prefetch;
        self.start_read(id, prefetch);
        self.track(id, nexus);
        self.stats.clustered_blocks += u64::from(prefetch);
        true
    }

    /// A buffer begins to be filled.
    pub(super) fn start_read(&mut self, id: BufId, prefetch: bool) {
        self.buffers.set_state(id, State::Reading);
        self.note_fetched(id, prefetch);
    }

    /// A block's data is new in the cache.
    pub(super) fn note_fetched(&mut self, id: BufId, prefetch: bool) {
        let buf = self.buffers.get_mut(id);
        buf.prefetched = prefetch;
        buf.referenced = false;
        buf.release = false;
        buf.ghost_place = None;
    }

    pub(super) fn issue_prefetch(&mut self, io: Io, ios: &mut Vec<Io>) {
        self.stats.prefetch_ios += 1;
        self.stats.prefetched_blocks += u64::from(io.blocks);
        self.issue(io, ios);
    }

    pub(super) fn issue(&mut self, io: Io, ios: &mut Vec<Io>) {
        if io.write {
            self.stats.write_ios += 1;
            self.stats.written_blocks += u64::from(io.blocks);
        }
        let disk = usize::from(self.layout.disk(io.first));
        self.disks[disk].issued(&io);
        ios.push(io);
    }
}
