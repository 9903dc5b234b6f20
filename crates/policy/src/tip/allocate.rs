//! `TipPageAlloc`: the min-max buffer by lazy evaluation (sections 4.3.5 and 5.2.3).

use alloc::vec::Vec;

use super::buffers::{BufId, Nexus, State};
use super::config::{Mode, Valuation};
use super::estimates::Value;
use super::manager::{Layout, Tip};
use super::{Block, Io, Priority};

/// Who supplies a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Supplier {
    Orphan,
    Lru(usize),
    Hint(u16),
}

/// In a fixed-depth system the prefetches in the window are never given up for others.
const STATIC_COST: Value = u64::MAX - 1;
/// They take any other buffer.
pub(super) const STATIC_BID: Value = u64::MAX - 2;

impl<L: Layout> Tip<L> {
    /// Makes sure that a buffer is free. `None` bids infinity: a demand miss, which is
    /// refused only if no buffer is replaceable. Dirty blocks that are picked are flushed.
    pub(super) fn page_alloc(&mut self, bid: Option<Value>, ios: &mut Vec<Io>) -> bool {
        if bid.is_some() && self.buffers.busy + self.config.reserve >= self.buffers.total {
            self.stats.refused_bids += 1;
            return false;
        }
        if self.buffers.in_use < self.buffers.total {
            return true;
        }
        // TipLvbPick. Each round takes one block out of one estimator's view.
        while let Some((supplier, cost)) = self.lowest_cost() {
            if bid.is_some_and(|bid| bid <= cost) {
                break;
            }
            let id = self.pick(supplier);
            self.stats.picks += 1;
            if self.saved(id, cost) {
                self.stats.saves += 1;
            } else if self.buffers.get(id).replaceable() {
                self.evict_with_islands(id);
                return true;
            } else if self.buffers.get(id).state == State::Dirty {
                self.buffers.set_state(id, State::Writing);
                let first = self.buffers.get(id).block;
                self.issue(Io { first, blocks: 1, priority: Priority::Demand, write: true }, ios);
            }
        }
        self.stats.refused_bids += u64::from(bid.is_some());
        false
    }

    /// Ejects the min-max buffer, whatever it is worth; false if none is replaceable.
    pub(super) fn eject_cheapest(&mut self) -> bool {
        while let Some((supplier, cost)) = self.lowest_cost() {
            let id = self.pick(supplier);
            if self.saved(id, cost) {
                continue;
            }
            if self.buffers.get(id).replaceable() {
                self.evict(id);
                return true;
            }
            if self.buffers.get(id).state == State::Dirty {
                // Only a flush could free it, which the next bid will start.
                self.orphans.adopt(&mut self.buffers, id);
                return false;
            }
        }
        false
    }

    /// The cost of the least valuable tracked buffer of all; 0 while buffers are free.
    pub(super) fn lowest_value(&self) -> Value {
        if self.buffers.in_use < self.buffers.total {
            return 0;
        }
        self.lowest_cost().map_or(0, |(_, cost)| cost)
    }

    /// The supplier whose least valuable tracked buffer costs least, normalised.
    fn lowest_cost(&self) -> Option<(Supplier, Value)> {
        if !self.orphans.is_empty() {
            return Some((Supplier::Orphan, 0));
        }
        // Unhinted blocks go first among equals, the post-hint ones before the others.
        let queues = [1, 0]
            .into_iter()
            .filter_map(|i| self.lru[i].cost(&self.buffers).map(|cost| (Supplier::Lru(i), cost)));
        let hints = self.hints.iter().enumerate().filter_map(|(i, est)| {
            let index = *est.as_ref()?.tracking.last()?;
            Some((Supplier::Hint(i as u16), self.value_hinted(i as u16, index)))
        });
        queues.chain(hints).min_by_key(|&(_, cost)| cost)
    }

    /// estPick: the supplier names its least valuable tracked block and stops tracking it.
    fn pick(&mut self, supplier: Supplier) -> BufId {
        let picked = match supplier {
            Supplier::Orphan => self.orphans.pick(&mut self.buffers),
            Supplier::Lru(i) => self.lru[i].pick(&mut self.buffers),
            Supplier::Hint(estimator) => {
                let index = self.hint_mut(estimator).pick();
                index.map(|index| {
                    let id = self.hint(estimator).header(index);
                    self.buffers.get_mut(id).hint_trackers -= 1;
                    id
                })
            }
        };
        picked.expect("a supplier with a cost tracks a block")
    }

    /// TipLvbQuery: whether an estimator values the block more highly than `cost`; the one
    /// that values it most then tracks it. The LRU estimator saves what it tracks already.
    fn saved(&mut self, id: BufId, cost: Value) -> bool {
        if let Some((value, nexus)) = self.best_nexus(id)
            && value > cost
        {
            self.track(id, nexus);
            return true;
        }
        let tracked = self.buffers.get(id).lru.filter(|links| !links.ghost);
        tracked.is_some_and(|links| {
            self.lru[usize::from(links.queue)].value_of(&self.buffers, id) >= cost
        })
    }

    /// The hinted access by which a block is worth most, and that value: the maximum over
    /// all estimators and accesses, never a sum (section 4.2.6). Also the bid for adding the
    /// block to a cluster (estBid).
    pub(super) fn best_nexus(&self, id: BufId) -> Option<(Value, Nexus)> {
        let nexuses = self.buffers.get(id).nexuses.iter();
        nexuses
            .map(|&nexus| (self.value_hinted(nexus.estimator, nexus.index), nexus))
            .max_by_key(|&(value, nexus)| (value, core::cmp::Reverse(nexus.index)))
    }

    /// An estimator begins to track a block for one of its accesses.
    pub(super) fn track(&mut self, id: BufId, nexus: Nexus) {
        if self.hint_mut(nexus.estimator).tracking.insert(nexus.index) {
            self.buffers.get_mut(id).hint_trackers += 1;
        }
    }

    /// Ejects a block, and with it what would be left as a small island between it and
    /// missing blocks.
    fn evict_with_islands(&mut self, id: BufId) {
        let block = self.buffers.get(id).block;
        self.evict(id);
        for forward in [true, false] {
            let island = self.island(block, forward);
            // One block for each read at most: the values alone, which keep a block from being
            // ejected and fetched again for ever (Eq 4.29), are passed over here.
            if island.len() as u32 > self.island_credit {
                continue;
            }
            self.island_credit -= island.len() as u32;
            for neighbour in island {
                if let Some(links) = self.buffers.get(neighbour).lru {
                    self.lru[usize::from(links.queue)].remove(&mut self.buffers, neighbour);
                }
                self.evict(neighbour);
            }
        }
    }

    /// The blocks between a missing one and the next missing one on a side, if they are few
    /// and nobody will miss them soon; else none.
    fn island(&self, from: Block, forward: bool) -> Vec<BufId> {
        let mut island = Vec::new();
        let mut number = from.number;
        while island.len() <= self.config.island_blocks as usize {
            let next = if forward { number.checked_add(1) } else { number.checked_sub(1) };
            let Some(next) = next else { break };
            number = next;
            let block = Block { number, ..from };
            let id = self.buffers.find(block);
            let Some(id) = id.filter(|&id| self.buffers.get(id).state != State::Ghost) else {
                // Missing: all between are an island, unless the file ends here.
                return if self.exists(block) { island } else { Vec::new() };
            };
            let buf = self.buffers.get(id);
            let tracked_by_lru = buf.lru.is_some_and(|links| links.queue == 0 && !links.ghost);
            let far = buf
                .nexuses
                .iter()
                .all(|nexus| self.hint(nexus.estimator).distance(nexus.index) > self.horizon);
            if !buf.replaceable() || tracked_by_lru || !far || buf.nexuses.is_empty() {
                break;
            }
            island.push(id);
        }
        Vec::new()
    }

    /// Takes the buffer away from its block. The header stays as a ghost where it is hinted
    /// or remembered; hinted accesses are listed for the prefetcher again.
    fn evict(&mut self, id: BufId) {
        let buf = self.buffers.get(id);
        debug_assert!(buf.lru.is_none_or(|links| links.ghost), "LRU would have saved it");
        self.stats.evictions += 1;
        if self.config.report_evictions {
            self.evicted.push(buf.block);
        }
        self.stats.unused_prefetches += u64::from(buf.prefetched && !buf.referenced);
        self.orphans.remove(&mut self.buffers, id);
        self.untrack_everywhere(id);
        self.buffers.set_state(id, State::Ghost);
        self.buffers.drop_if_useless(id);
    }

    pub(super) fn untrack_everywhere(&mut self, id: BufId) {
        let nexuses = core::mem::take(&mut self.buffers.get_mut(id).nexuses);
        let disk = self.layout.disk(self.buffers.get(id).block);
        for nexus in &nexuses {
            let est = self.hint_mut(nexus.estimator);
            est.relist(nexus.index, disk);
            if est.tracking.remove(&nexus.index) {
                self.buffers.get_mut(id).hint_trackers -= 1;
            }
        }
        self.buffers.get_mut(id).nexuses = nexuses;
    }

    /// The normalised value to its estimator of having a block for a hinted access.
    pub(super) fn value_hinted(&self, estimator: u16, index: u64) -> Value {
        let est = self.hint(estimator);
        let y = est.distance(index);
        match self.config.mode {
            Mode::NoPrefetch => 0,
            Mode::Static { .. } => STATIC_COST,
            Mode::CostBenefit => est.normal() * self.cost_eject(estimator, index, y),
        }
    }

    fn cost_eject(&self, estimator: u16, index: u64, y: u64) -> Value {
        let parameters = &self.config.parameters;
        let disk = || {
            let block = self.buffers.get(self.hint(estimator).header(index)).block;
            &self.disks[usize::from(self.layout.disk(block))]
        };
        match self.config.valuation {
            Valuation::FixedHorizon | Valuation::Aggressive | Valuation::Forestall => {
                parameters.benefit_deep(y, parameters.t_disk_us)
            }
            Valuation::Tiptoe if y > self.horizon && disk().constrained => {
                let again = parameters.cost_eject_constrained(y, parameters.t_disk_us);
                // Hysteresis, which Eq 7.8 alone has only beyond y = 1 + T_disk/T_driver.
                again.max(parameters.benefit_deep(y - 1, parameters.t_disk_us) + 1)
            }
            _ if self.config.extensions.finite_disks => {
                let est = self.hint(estimator);
                parameters.cost_eject_finite(y, self.horizon, est.t_stall_us)
            }
            _ => parameters.cost_eject(y, self.horizon),
        }
    }

    /// How far the estimator's hints are worth resolving: where the value of a block falls
    /// below that of the least valuable buffer, the caching horizon (section 5.3.1).
    pub(super) fn resolve_limit(&self, estimator: u16) -> u64 {
        let est = self.hint(estimator);
        let ahead = match self.config.mode {
            Mode::NoPrefetch => 0,
            Mode::Static { depth, cluster_slack } => depth + cluster_slack,
            Mode::CostBenefit => {
                let lowest = self.lowest_value();
                let numerator = est.normal() * self.far_numerator(est.t_stall_us);
                let caching = numerator.checked_div(lowest).unwrap_or(u64::MAX);
                let most = self.config.resolved_max.min(self.resolved_part());
                self.horizon.saturating_add(caching).min(most)
            }
        };
        est.next_index().saturating_add(ahead)
    }

    /// How much of what all processes may have resolved is one process's.
    pub(super) fn resolved_part(&self) -> u64 {
        let processes = self.hints.iter().flatten().count() as u64;
        (self.config.resolved_total / processes.max(1)).max(self.horizon)
    }

    /// The value of a block far ahead is this divided by its distance.
    fn far_numerator(&self, t_stall_us: u32) -> Value {
        let p = &self.config.parameters;
        let us = match self.config.valuation {
            Valuation::Tip if self.config.extensions.finite_disks => p.t_driver_us + t_stall_us,
            Valuation::Tip => p.t_driver_us,
            _ => p.t_driver_us + p.t_disk_us,
        };
        u64::from(us) << super::FIXED_POINT_SHIFT
    }
}
