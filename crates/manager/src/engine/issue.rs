//! What the disks are given: the waiting I/Os in CSCAN order, neighbours in one request, and
//! what the policy ejected, to be given back.

use std::collections::BTreeMap;

use runahead_policy::tip::{Block, Io, Layout as _, Priority, ProcessId};

use super::Engine;
use super::setup::parameters;
use super::types::{Action, ClientId, Report};
use crate::{BLOCK_BYTES, CLUSTER_BLOCKS};

#[derive(Debug, Default)]
pub(super) struct Disk {
    /// Prefetches that wait, by address: served in CSCAN order (section 5.3.5).
    pub(super) waiting: BTreeMap<(u64, u64), Io>,
    outstanding: u32,
    head: u64,
    /// When the last one was complete: a service time begins no earlier.
    free_since_ns: u64,
}

impl Disk {
    /// Takes the waiting I/O that comes next in CSCAN order, and those that continue it; the
    /// first one's tag.
    fn next_run(&mut self) -> Option<(u64, Vec<Io>)> {
        let ahead = self.waiting.range((self.head, 0)..).next();
        let (&place, &first) = ahead.or_else(|| self.waiting.iter().next())?;
        self.waiting.remove(&place);
        let mut run = vec![first];
        let mut blocks = first.blocks;
        self.head = place.0 + u64::from(blocks) * BLOCK_BYTES;
        let mut next = Block { number: first.first.number + blocks, ..first.first };
        while let Some((&place, &io)) = self.waiting.range((self.head, 0)..).next()
            && place.0 == self.head
            && io.first == next
            && blocks + io.blocks <= RUN_BLOCKS_MAX
        {
            self.waiting.remove(&place);
            run.push(io);
            blocks += io.blocks;
            next.number += io.blocks;
            self.head += u64::from(io.blocks) * BLOCK_BYTES;
        }
        Some((place.1, run))
    }
}

fn blocks_of(io: &Io) -> impl Iterator<Item = Block> + use<> {
    let Io { first, blocks, .. } = *io;
    (first.number..first.number + blocks).map(move |number| Block { number, ..first })
}

#[derive(Debug)]
pub(super) struct InFlight {
    /// What one request fetches: I/Os that lie one behind the other.
    run: Vec<Io>,
    pub(super) client: ClientId,
    disk: usize,
    /// Ticks that it has been under way.
    age: u32,
}

/// Ticks after which a prefetch that nobody reports is given up: its client was stopped.
pub(super) const TICKS_MAX: u32 = 10;

/// Most blocks of one request, 256 KiB: as long as positioning takes on a disk, so that a run
/// delays others no more than an I/O elsewhere would. It spares wake-ups and keeps the disk
/// at work while the manager's thread waits for a processor.
const RUN_BLOCKS_MAX: u32 = 32;

/// Completed prefetches between two looks at the measured times.
const MEASURE_EVERY: u32 = 64;

/// Follows a measured value by a sixteenth of each new one.
fn mean(value: &mut u64, new: u64) {
    *value = *value - *value / 16 + new / 16;
}

impl Engine {
    /// A client reports that a prefetch is complete, however late.
    pub fn done(&mut self, client: ClientId, tag: u64, report: Report) {
        self.complete(client, tag, report);
        self.wake(client);
    }

    pub(super) fn complete(&mut self, client: ClientId, tag: u64, report: Report) {
        if self.in_flight.get(&tag).is_none_or(|flying| flying.client != client) {
            return;
        }
        let flying = self.in_flight.remove(&tag).expect("just looked up");
        let disk = &mut self.disks[flying.disk];
        disk.outstanding -= 1;
        let tip = self.tip.as_mut().expect("an I/O was issued");
        let mut service_us = None;
        if report.ok {
            let began = report.started_ns.max(disk.free_since_ns);
            let ios = flying.run.len() as u64;
            let service_ns = report.ended_ns.saturating_sub(began) / ios;
            disk.free_since_ns = disk.free_since_ns.max(report.ended_ns);
            service_us = Some(u32::try_from(service_ns / 1000).unwrap_or(u32::MAX));
            let blocks: u32 = flying.run.iter().map(|io| io.blocks).sum();
            for _ in 0..ios {
                mean(&mut self.t_disk_ns, service_ns);
            }
            mean(&mut self.t_driver_ns, report.cpu_ns / u64::from(blocks));
            self.measured += 1;
        }
        for io in &flying.run {
            tip.io_done(io, service_us, &mut self.ios);
        }
        if !report.ok {
            self.stats.failed += 1;
            let mut given_up = Vec::new();
            let file = flying.run[0].first.file;
            if !report.is_empty() && !self.owners[file.0 as usize].give_up(client) {
                // Nobody can read it: its hints are passed over.
                tip.layout_mut().set_readable(file, false);
                for disk in &mut self.disks {
                    let waiting = disk.waiting.extract_if(.., |_, io| io.first.file == file);
                    given_up.extend(waiting.map(|(_, io)| io));
                }
            }
            for io in &given_up {
                tip.io_done(io, None, &mut self.ios);
            }
            given_up.extend(flying.run);
            for io in given_up {
                for number in io.first.number..io.first.number + io.blocks {
                    tip.lost(Block { number, ..io.first }, &mut self.ios);
                }
            }
        }
        if self.measured >= MEASURE_EVERY {
            self.measured = 0;
            let tip = self.tip.as_mut().expect("an I/O was issued");
            tip.set_parameters(parameters(&self.options, self.t_driver_ns, self.t_disk_ns));
        }
        self.settle();
    }

    /// Time passes: to be called once a second where clients may stop to report, so that
    /// they do not keep a disk from the others, nor are told of prefetches again and again.
    pub fn tick(&mut self) {
        let mut late = Vec::new();
        for (&tag, flying) in &mut self.in_flight {
            flying.age += 1;
            if flying.age > TICKS_MAX {
                late.push((flying.client, tag));
            }
        }
        late.sort_unstable();
        for &(client, _) in &late {
            if let (Some(known), Some(tip)) = (self.clients.get_mut(&client), &mut self.tip) {
                known.silent = true;
                tip.pause(ProcessId(client.0));
            }
        }
        for (client, tag) in late {
            self.complete(client, tag, Report::default());
        }
    }

    /// A client that was silent has reported a prefetch: it is told of others again.
    fn wake(&mut self, client: ClientId) {
        let silent = self.clients.get_mut(&client).filter(|known| known.silent);
        let (Some(known), Some(tip)) = (silent, &mut self.tip) else { return };
        known.silent = false;
        for &file in known.files.values() {
            if self.owners[file.0 as usize].0.iter().any(|&(owner, _)| owner == client) {
                tip.layout_mut().set_readable(file, true);
            }
        }
        tip.resume(ProcessId(client.0), &mut self.ios);
        self.settle();
    }

    /// Queues what the policy asked for, sends what the disks have room for, and gives back
    /// what it ejected.
    pub(super) fn settle(&mut self) {
        while self.tip.is_some() {
            self.queue();
            self.release_evicted();
            for disk in 0..self.disks.len() {
                self.dispatch(disk);
            }
            if self.ios.is_empty() {
                return;
            }
        }
    }

    fn queue(&mut self) {
        let Some(tip) = &mut self.tip else { return };
        while !self.ios.is_empty() {
            for io in std::mem::take(&mut self.ios) {
                if io.priority == Priority::Demand {
                    tip.io_done(&io, None, &mut self.ios);
                    continue;
                }
                let disk = usize::from(tip.layout().disk(io.first));
                self.next_tag += 1;
                let place = (tip.layout().address(io.first), self.next_tag);
                self.disks[disk].waiting.insert(place, io);
            }
        }
    }

    fn dispatch(&mut self, index: usize) {
        while self.disks[index].outstanding < self.options.outstanding_per_disk {
            let Some((tag, run)) = self.disks[index].next_run() else { return };
            let file = run[0].first.file;
            let reader = self.owners[file.0 as usize].reader(&self.clients);
            let tip = self.tip.as_mut().expect("disks come with it");
            // What a program that was faster has read itself meanwhile is there.
            let blocks = run.iter().flat_map(blocks_of);
            let mut ahead = blocks.filter(|&block| tip.is_ahead(block)).map(|block| block.number);
            let range = ahead.next().map(|first| (first, ahead.last().unwrap_or(first) + 1));
            let (Some((client, file)), Some((first, end))) = (reader, range) else {
                if reader.is_none() {
                    // Nobody is left who has the file open, or they are all silent: else what
                    // is lost here would be asked for again at once, for ever.
                    tip.layout_mut().set_readable(file, false);
                }
                for io in &run {
                    tip.io_done(io, None, &mut self.ios);
                }
                if reader.is_none() {
                    for block in run.iter().flat_map(blocks_of) {
                        tip.lost(block, &mut self.ios);
                    }
                }
                continue;
            };
            self.disks[index].outstanding += 1;
            self.in_flight.insert(tag, InFlight { run, client, disk: index, age: 0 });
            self.stats.prefetches += 1;
            self.stats.prefetched_blocks += u64::from(end - first);
            let offset = u64::from(first) * BLOCK_BYTES;
            let length = u64::from(end - first) * BLOCK_BYTES;
            self.actions.push((client, Action::Prefetch { tag, file, offset, length }));
        }
    }

    /// Gives ejected blocks back, neighbours together. A range is widened over blocks without
    /// a buffer to whole stripe units: the kernel drops a large folio only as a whole, and its
    /// own readahead leaves pages behind that nobody accounts for.
    fn release_evicted(&mut self) {
        let tip = self.tip.as_mut().expect("called with it");
        let mut evicted = tip.take_evicted();
        if evicted.is_empty() {
            return;
        }
        evicted.sort_unstable();
        evicted.dedup();
        let mut done_to: Option<Block> = None;
        for block in evicted {
            let passed =
                done_to.is_some_and(|end| end.file == block.file && block.number < end.number);
            if passed || tip.has_buffer(block) {
                continue;
            }
            let unit_start = block.number / CLUSTER_BLOCKS * CLUSTER_BLOCKS;
            let unit_end = unit_start.saturating_add(CLUSTER_BLOCKS);
            let free = |number| !tip.has_buffer(Block { number, ..block });
            let mut first = block.number;
            while first > unit_start && free(first - 1) {
                first -= 1;
            }
            let mut end = block.number + 1;
            while end < unit_end && free(end) {
                end += 1;
            }
            done_to = Some(Block { number: end, ..block });
            self.stats.released_blocks += u64::from(end - first);
            let owners = &self.owners[block.file.0 as usize];
            let owner = owners.reader(&self.clients).or(owners.0.last().copied());
            if let Some((client, file)) = owner {
                let offset = u64::from(first) * BLOCK_BYTES;
                let length = u64::from(end - first) * BLOCK_BYTES;
                self.actions.push((client, Action::Release { file, offset, length }));
            }
        }
    }
}
