//! Decides: hints and reads in, prefetches and releases out. No system call in here.

mod issue;
mod setup;
mod types;

use std::collections::{BTreeMap, HashMap, VecDeque};

use runahead_policy::tip::{
    Block, FileId, Io, Layout as _, Priority, ProcessId, Read, ReadOutcome, Tip,
};

use self::issue::{Disk, InFlight};
use self::setup::make_tip;
pub use self::types::{
    Action, BUFFERS_MAX, BUFFERS_MIN, CREDIT, ClientId, FILES_MAX, Mode, Options, ReadNote, Report,
    Segment, Stats,
};
use crate::BLOCK_BYTES;
use crate::layout::{BLOCKS_MAX, FileInfo, LiveLayout};

#[derive(Debug, Default)]
struct Client {
    /// By the client's number. A map: the numbers are what the client makes them, and one of
    /// four millions must not cost room for all below it.
    files: HashMap<u32, FileId>,
    /// Mirror of the stored segments, for reads that are only observed as bytes.
    fed: VecDeque<(FileId, u64, u64)>,
    /// Bytes of the first one that were observed.
    head_read: u64,
    /// The block read last: it is held until another is read, as the next read often goes on
    /// in it (positive hand-off, section 5.1).
    held: Option<Block>,
    /// A prefetch of its was given up: it is told of no other, where somebody else can be, and
    /// nothing is prefetched for its hints until it reports one. It was stopped, or waits for
    /// a server that is gone.
    silent: bool,
}

/// Who has a file open, each once, with its number for it; the last one that is not silent is
/// told to prefetch.
#[derive(Debug, Default)]
struct Owners(Vec<(ClientId, u32)>);

impl Owners {
    fn add(&mut self, client: ClientId, number: u32) {
        self.0.retain(|&(owner, _)| owner != client);
        self.0.push((client, number));
    }

    /// Who is told to prefetch the file, and its number there.
    fn reader(&self, clients: &BTreeMap<ClientId, Client>) -> Option<(ClientId, u32)> {
        let reports = |client| clients.get(client).is_some_and(|known| !known.silent);
        self.0.iter().rev().find(|(client, _)| reports(client)).copied()
    }

    /// A client cannot read the file: the next one is told to. False where there is none: then
    /// it stays, to give back what is there.
    fn give_up(&mut self, client: ClientId) -> bool {
        let has_others = self.0.iter().any(|&(owner, _)| owner != client);
        if has_others {
            self.0.retain(|&(owner, _)| owner != client);
        }
        has_others
    }
}

/// What a file takes in an engine, beside its extents, and what a client's number for one does:
/// about, in bytes, with the room that tables keep for growth.
const FILE_BYTES: usize = 256;
/// See [`FILE_BYTES`].
const NUMBER_BYTES: usize = 32;

/// Accesses resolved for one frame, at most, some 10 ms of work: a frame may pass over tens of
/// thousands of whole files, and the others' hints wait for its end. The rest comes with the
/// client's next frames.
const RESOLVED_PER_FRAME: u64 = 65_536;

/// Decides for the processes that share one memory; see the [module](self).
#[derive(Debug)]
pub struct Engine {
    options: Options,
    tip: Option<Tip<LiveLayout>>,
    /// By device, inode and time of birth.
    names: HashMap<(u64, u64, u64), FileId>,
    owners: Vec<Owners>,
    /// Numbers that clients have for files, all together.
    numbers: usize,
    clients: BTreeMap<ClientId, Client>,
    disks: Vec<Disk>,
    in_flight: HashMap<u64, InFlight>,
    next_tag: u64,
    ios: Vec<Io>,
    actions: Vec<(ClientId, Action)>,
    buffers: u32,
    /// Exponential means, in nanoseconds: service time of an I/O, CPU time per block.
    t_disk_ns: u64,
    t_driver_ns: u64,
    measured: u32,
    stats: Stats,
}

impl Engine {
    /// An engine without clients.
    pub fn new(options: Options) -> Self {
        Self {
            buffers: options.buffers,
            options,
            tip: None,
            names: HashMap::new(),
            owners: Vec::new(),
            numbers: 0,
            clients: BTreeMap::new(),
            disks: Vec::new(),
            in_flight: HashMap::new(),
            next_tag: 0,
            ios: Vec::new(),
            actions: Vec::new(),
            t_disk_ns: 0,
            t_driver_ns: 5_000,
            measured: 0,
            stats: Stats::default(),
        }
    }

    /// What was counted.
    pub fn stats(&self) -> Stats {
        let policy = self.tip.as_ref().map(|tip| (*tip.stats(), tip.horizon()));
        let (counted, horizon) = policy.unwrap_or_default();
        Stats {
            reads: counted.requests,
            hinted: counted.hinted_requests,
            t_disk_us: (self.t_disk_ns / 1000) as u32,
            t_driver_us: (self.t_driver_ns / 1000) as u32,
            horizon,
            buffers: self.buffers,
            ..self.stats
        }
    }

    /// Takes what is to be done, in order.
    pub fn take_actions(&mut self) -> Vec<(ClientId, Action)> {
        std::mem::take(&mut self.actions)
    }

    /// Prefetches that are under way or wait.
    pub fn pending(&self) -> usize {
        self.in_flight.len() + self.disks.iter().map(|disk| disk.waiting.len()).sum::<usize>()
    }

    /// A process begins to hint.
    pub fn connect(&mut self, client: ClientId) {
        self.clients.insert(client, Client::default());
        self.actions.push((client, Action::Credit(CREDIT)));
    }

    /// A process has ended: its hints are freed, what only it wanted loses its value.
    pub fn disconnect(&mut self, client: ClientId) {
        let Some(gone) = self.clients.remove(&client) else { return };
        self.numbers -= gone.files.len();
        for file in gone.files.values() {
            self.owners[file.0 as usize].0.retain(|&(owner, _)| owner != client);
        }
        let Some(tip) = &mut self.tip else { return };
        if let Some(held) = gone.held {
            tip.release(held);
        }
        tip.exit(ProcessId(client.0), &mut self.ios);
        // Nobody will report these: the blocks count as not there.
        let mut orphaned: Vec<u64> = self
            .in_flight
            .iter()
            .filter(|(_, f)| f.client == client)
            .map(|(&tag, _)| tag)
            .collect();
        orphaned.sort_unstable();
        for tag in orphaned {
            self.complete(client, tag, Report::default());
        }
        self.settle();
    }

    /// A client registers a file under a number of its own, or again, or another file under
    /// it. Of one with more than [`FILES_MAX`] of them the rest are ignored, hints with them.
    pub fn file(&mut self, client: ClientId, number: u32, info: &FileInfo) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        if known.files.len() > FILES_MAX as usize && !known.files.contains_key(&number) {
            return;
        }
        if self.tip.is_none() {
            let geometry = info.geometry;
            self.disks = (0..geometry.disks.max(1)).map(|_| Disk::default()).collect();
            self.t_disk_ns = u64::from(geometry.latency_us) * 1000;
            self.tip = Some(make_tip(&self.options, self.buffers, &geometry));
        }
        let tip = self.tip.as_mut().expect("just made");
        let owners = &mut self.owners;
        let name = (info.device, info.inode, info.born_ns);
        if owners.len() > FILES_MAX as usize && !self.names.contains_key(&name) {
            return;
        }
        let id = *self.names.entry(name).or_insert_with(|| {
            owners.push(Owners::default());
            tip.layout_mut().add(info)
        });
        tip.layout_mut().set_bytes(id, info.bytes);
        match known.files.insert(number, id) {
            None => self.numbers += 1,
            Some(before) if before != id => {
                owners[before.0 as usize].0.retain(|&owner| owner != (client, number));
            }
            Some(_) => {}
        }
        owners[id.0 as usize].add(client, number);
    }

    /// Memory that what is known of files takes, about, in bytes.
    pub fn files_bytes(&self) -> usize {
        let extents = self.tip.as_ref().map_or(0, |tip| tip.layout().extents_bytes());
        self.owners.len() * FILE_BYTES + self.numbers * NUMBER_BYTES + extents
    }

    /// A client discloses what it will read, behind what it disclosed before. Segments of
    /// files that are not registered, or empty, count as consumed.
    pub fn disclose(&mut self, client: ClientId, segments: &[Segment]) {
        self.begin_frame();
        let Some(known) = self.clients.get_mut(&client) else { return };
        let mut dropped = 0;
        if let Some(tip) = self.tip.as_mut().filter(|_| self.options.mode != Mode::NoHints) {
            let mut stored = Vec::with_capacity(segments.len());
            for segment in segments {
                let id = known.files.get(&segment.file).copied();
                let end = id.map_or(0, |id| {
                    let bytes = tip.layout().file_bytes(id);
                    match segment.length {
                        0 => bytes,
                        length => segment.offset.saturating_add(length).min(bytes),
                    }
                });
                match id {
                    Some(file) if segment.offset < end => {
                        let (offset, length) = (segment.offset, end - segment.offset);
                        known.fed.push_back((file, offset, end));
                        stored.push(runahead_policy::tip::Segment { file, offset, length });
                    }
                    _ => dropped += 1,
                }
            }
            // The credit keeps below the policy's limit; who sends more loses hints only.
            let told = tip.disclose(ProcessId(client.0), &stored, &mut self.ios);
            if let Err(runahead_policy::tip::HintError::TooMany { stored: kept }) = told {
                for _ in kept..stored.len() {
                    known.fed.pop_back();
                }
            }
        } else {
            dropped = segments.len() as u32;
        }
        if dropped > 0 {
            self.actions.push((client, Action::Credit(dropped)));
        }
        self.settle();
    }

    /// A client cancels its first `segments` outstanding segments.
    pub fn cancel(&mut self, client: ClientId, segments: u32) {
        self.begin_frame();
        if let Some(tip) = &mut self.tip {
            // Of one that has none outstanding there is nothing to cancel.
            let _ = tip.cancel_first(ProcessId(client.0), segments, &mut self.ios);
        }
        self.follow(client);
        self.settle();
    }

    /// A client has read.
    pub fn read(&mut self, client: ClientId, notes: &[ReadNote]) {
        self.begin_frame();
        for note in notes {
            let Some(known) = self.clients.get(&client) else { return };
            if let Some(file) = known.files.get(&note.file).copied() {
                let end = note.offset.saturating_add(note.length);
                self.read_range(client, file, (note.offset, end), note.t_app_us);
            }
        }
        self.follow(client);
        self.settle();
    }

    /// A client has read so many bytes, nobody knows where: taken for the next hinted ones.
    pub fn observed(&mut self, client: ClientId, mut bytes: u64) {
        self.begin_frame();
        while bytes > 0 {
            let Some(known) = self.clients.get(&client) else { return };
            let Some(&(file, start, end)) = known.fed.front() else { break };
            let from = start + known.head_read;
            let to = end.min(from.saturating_add(bytes));
            bytes -= to - from;
            self.read_range(client, file, (from, to), 0);
            let known = self.clients.get_mut(&client).expect("looked up above");
            known.head_read = to - start;
            let before = known.fed.len();
            self.follow(client);
            let known = self.clients.get_mut(&client).expect("looked up above");
            if to == end && known.fed.len() == before {
                // The policy matched something else: it and the mirror must not part.
                if let Some(tip) = &mut self.tip {
                    let _ = tip.cancel(ProcessId(client.0), &mut self.ios);
                }
                self.follow(client);
            }
        }
        self.settle();
    }

    fn begin_frame(&mut self) {
        if let Some(tip) = &mut self.tip {
            tip.bound_resolving(RESOLVED_PER_FRAME);
        }
    }

    fn read_range(&mut self, client: ClientId, file: FileId, range: (u64, u64), t_app_us: u32) {
        let Some(tip) = &mut self.tip else { return };
        let (start, end) = range;
        let mut at = start;
        let mut t_app_us = t_app_us;
        while at < end {
            let block_end = (at / BLOCK_BYTES + 1).saturating_mul(BLOCK_BYTES).min(end);
            // What lies behind can be neither hinted nor counted.
            if at / BLOCK_BYTES >= BLOCKS_MAX {
                return;
            }
            let number = (at / BLOCK_BYTES) as u32;
            let read = Read {
                process: ProcessId(client.0),
                file,
                offset: at,
                length: block_end - at,
                call_start: start,
                call_end: end,
                t_app_us: std::mem::take(&mut t_app_us),
            };
            let outcome = tip.read(&read, &mut self.ios);
            if outcome == ReadOutcome::Miss {
                // The program fetched it itself, by the very read that is reported.
                let mut later = Vec::new();
                for io in self.ios.drain(..) {
                    if io.priority == Priority::Demand {
                        tip.io_done(&io, None, &mut later);
                    } else {
                        later.push(io);
                    }
                }
                self.ios = later;
            }
            let block = Block { file, number };
            let known = self.clients.get_mut(&client).expect("its callers look it up");
            if known.held == Some(block) {
                tip.release(block);
            } else if let Some(before) = known.held.replace(block) {
                tip.release(before);
            }
            at = block_end;
        }
    }

    /// Brings the mirror of the stored segments up to date and returns the credit.
    fn follow(&mut self, client: ClientId) {
        let (Some(known), Some(tip)) = (self.clients.get_mut(&client), &self.tip) else { return };
        let left = tip.outstanding_segments(ProcessId(client.0));
        let consumed = known.fed.len().saturating_sub(left);
        if consumed > 0 {
            known.fed.drain(..consumed);
            known.head_read = 0;
            self.actions.push((client, Action::Credit(consumed as u32)));
        }
    }

    /// There are more or fewer buffers now.
    pub fn set_buffers(&mut self, buffers: u32) {
        let buffers = buffers.clamp(BUFFERS_MIN, BUFFERS_MAX);
        if buffers == self.buffers {
            return;
        }
        self.buffers = buffers;
        if let Some(tip) = &mut self.tip {
            tip.set_buffers(buffers);
        }
        self.settle();
    }

    /// Bytes of page cache that the policy believes to be its own.
    pub fn bytes_in_use(&self) -> u64 {
        self.tip.as_ref().map_or(0, |tip| u64::from(tip.buffers_in_use()) * BLOCK_BYTES)
    }
}

#[cfg(test)]
mod passes;
#[cfg(test)]
mod tests;
