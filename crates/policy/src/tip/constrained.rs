//! Which disks cannot deliver in time: *constrained* ones (forestall, TIPTOE; section 7.3).

use super::Io;
use super::buffers::State;
use super::config::Valuation;
use super::manager::{Layout, Tip};
use super::rates::MeanTime;

/// Hinted reads between two examinations of a process's hints.
const EXAMINE_EVERY: u64 = 16;
/// Accesses ahead that are examined.
const EXAMINE_ACCESSES: u64 = 2048;

/// What a manager knows of a disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskView {
    /// Reads issued and not complete: I/Os and blocks.
    pub(super) ios: u32,
    pub(super) blocks: u32,
    /// Mean service time per block.
    pub(super) service: MeanTime,
    pub(super) constrained: bool,
    /// I/Os that may still be issued in the batch that began when the disk was free.
    batch_left: u32,
    /// While examining: time to service everything missing so far.
    backlog_us: u64,
}

impl DiskView {
    pub(super) fn new(t_disk_us: u32) -> Self {
        let service = MeanTime::starting_at(t_disk_us);
        Self { ios: 0, blocks: 0, service, constrained: false, batch_left: 0, backlog_us: 0 }
    }

    pub(super) fn issued(&mut self, io: &Io) {
        if !io.write {
            self.ios += 1;
            self.blocks += io.blocks;
            self.batch_left = self.batch_left.saturating_sub(1);
        }
    }

    /// Opens or closes the batch of one round of prefetching. Prefetching past the horizon
    /// begins when the disk is free and takes what buffers there are then: they become free
    /// one by one as blocks are consumed, and taking each at once would make single-block
    /// I/Os of what could be clusters.
    pub(super) fn begin_round(&mut self, batch_max: u32) {
        self.batch_left = if self.ios == 0 { batch_max } else { 0 };
    }

    pub(super) fn may_deepen(&self) -> bool {
        self.batch_left > 0
    }

    pub(super) fn done(&mut self, io: &Io, service_us: Option<u32>) {
        if !io.write {
            self.ios -= 1;
            self.blocks -= io.blocks;
            if let Some(us) = service_us {
                for _ in 0..io.blocks {
                    self.service.add(us / io.blocks);
                }
            }
        }
    }
}

impl<L: Layout> Tip<L> {
    /// Re-estimates, now and then, T_stall of the finite-disk model, the process's own
    /// horizon, and which disks are constrained: on those, servicing the missing blocks
    /// non-stop from now would still be too late for some access.
    pub(super) fn examine(&mut self, estimator: u16) {
        let extensions = self.config.extensions;
        let deep = matches!(self.config.valuation, Valuation::Tiptoe | Valuation::Forestall);
        let every = self.hint(estimator).next_index().is_multiple_of(EXAMINE_EVERY);
        if !every || !(deep || extensions.finite_disks || extensions.process_horizon) {
            return;
        }
        let parameters = self.config.parameters;
        let disks = self.disks.len() as u32;
        let sum_us: u64 = self.disks.iter().map(|disk| u64::from(disk.service.us())).sum();
        let service_us = (sum_us / u64::from(disks.max(1))) as u32;
        let t_app_us = self.hint(estimator).t_app.us();
        let horizon = self.horizon;
        let est = self.hint_mut(estimator);
        est.t_stall_us = parameters.t_stall_finite_us(horizon, disks, service_us, t_app_us);
        if deep || extensions.process_horizon {
            let access_us = u64::from(t_app_us + parameters.t_hit_us);
            self.find_constrained(estimator, access_us);
        }
        if extensions.process_horizon {
            let own = parameters.prefetch_horizon_of(t_app_us).min(horizon);
            let unconstrained = self.disks.iter().all(|disk| !disk.constrained);
            self.hint_mut(estimator).own_horizon = if unconstrained { own } else { horizon };
        }
    }

    fn find_constrained(&mut self, estimator: u16, access_us: u64) {
        for disk in &mut self.disks {
            disk.constrained = false;
            disk.backlog_us = u64::from(disk.blocks) * u64::from(disk.service.us());
        }
        // Late by less than an eighth and one access is not worth giving up cached blocks for,
        // and within what the estimates can tell.
        let slack_us = u64::from(self.config.parameters.t_disk_us);
        let est = self.hint(estimator);
        let end = est.resolved_end().min(est.next_index() + EXAMINE_ACCESSES);
        for index in est.next_index()..end {
            let est = self.hint(estimator);
            let buf = self.buffers.get(est.header(index));
            if buf.state != State::Ghost {
                continue;
            }
            let x = est.distance(index);
            let disk = &mut self.disks[usize::from(self.layout.disk(buf.block))];
            disk.backlog_us += u64::from(disk.service.us());
            disk.constrained |= disk.backlog_us > x * access_us * 9 / 8 + slack_us;
        }
    }
}
