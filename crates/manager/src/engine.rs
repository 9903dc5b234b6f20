//! Decides: hints and reads in, prefetches and releases out. No system call in here.

use std::collections::{BTreeMap, HashMap, VecDeque};

use runahead_policy::tip::{
    Block, Config, Extensions, FileId, Io, Parameters, Priority, ProcessId, Read, ReadOutcome, Tip,
    Valuation,
};

use crate::geometry::Geometry;
use crate::layout::{FileInfo, LiveLayout};
use crate::{BLOCK_BYTES, CLUSTER_BLOCKS};

/// A hinting process, as its manager numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// A disclosed range of a file, which the client numbered when it registered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The client's number for the file.
    pub file: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0: to the end of the file.
    pub length: u64,
}

/// A read that a client has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadNote {
    /// The client's number for the file.
    pub file: u32,
    /// Where it began.
    pub offset: u64,
    /// Bytes that it returned.
    pub length: u64,
    /// Time since the read before it ended, in microseconds; 0: unknown.
    pub t_app_us: u32,
}

/// What a client is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read a range into the page cache, then report with [`Engine::done`].
    Prefetch {
        /// Names it in the report.
        tag: u64,
        /// The client's number for the file.
        file: u32,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Give a range of the page cache back.
    Release {
        /// The client's number for the file.
        file: u32,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// So many segments were consumed: as many more may be sent.
    Credit(u32),
}

/// Segments that a client may have sent and not consumed: enough for every horizon, and a
/// bound of the manager's memory. The client keeps the rest.
pub const CREDIT: u32 = 65_536;

/// The four systems that the thesis measures (section 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Prefetching and caching.
    #[default]
    Full,
    /// "TIP, no caching": hints only prefetch.
    PrefetchOnly,
    /// Hints are not looked at.
    NoHints,
}

/// What an engine is set up with.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Use made of hints.
    pub mode: Mode,
    /// Buffers of [`BLOCK_BYTES`] to begin with.
    pub buffers: u32,
    /// T_hit, measured, in microseconds, at least 1.
    pub t_hit_us: u32,
    /// Prefetches outstanding at each disk (2 in section 5.3.5).
    pub outstanding_per_disk: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { mode: Mode::Full, buffers: 4096, t_hit_us: 2, outstanding_per_disk: 2 }
    }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks that clients read, hinted or not.
    pub reads: u64,
    /// Of those, the ones that a hint had announced.
    pub hinted: u64,
    /// Blocks for which prefetches were sent.
    pub prefetched_blocks: u64,
    /// The prefetches.
    pub prefetches: u64,
    /// Blocks given back.
    pub released_blocks: u64,
    /// Prefetches that failed: the file went away or cannot be read.
    pub failed: u64,
    /// T_disk as measured, microseconds.
    pub t_disk_us: u32,
    /// T_driver as measured, microseconds per block.
    pub t_driver_us: u32,
    /// P̂, accesses.
    pub horizon: u64,
    /// Buffers.
    pub buffers: u32,
}

#[derive(Debug, Default)]
struct Client {
    /// By the client's number; none: not registered or gone.
    files: Vec<Option<FileId>>,
    /// Mirror of the stored segments, for reads that are only observed as bytes.
    fed: VecDeque<(FileId, u64, u64)>,
    /// Bytes of the first one that were observed.
    head_read: u64,
    /// The block read last: it is held until another is read, as the next read often goes on
    /// in it (positive hand-off, section 5.1).
    held: Option<Block>,
}

#[derive(Debug, Default)]
struct Disk {
    /// Prefetches that wait, by address: served in CSCAN order (section 5.3.5).
    waiting: BTreeMap<(u64, u64), Io>,
    outstanding: u32,
    head: u64,
    /// When the last one was complete: a service time begins no earlier.
    free_since_ns: u64,
}

#[derive(Debug)]
struct InFlight {
    io: Io,
    client: ClientId,
    disk: usize,
    /// Ticks that it has been under way.
    age: u32,
}

/// Ticks after which a prefetch that nobody reports is given up: its client was stopped.
const TICKS_MAX: u32 = 10;

/// A file that some client has open.
#[derive(Debug, Default)]
struct Owners(Vec<(ClientId, u32)>);

/// Decides for the processes that share one memory; see the [module](self).
#[derive(Debug)]
pub struct Engine {
    options: Options,
    tip: Option<Tip<LiveLayout>>,
    names: HashMap<(u64, u64), FileId>,
    owners: Vec<Owners>,
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

/// Completed prefetches between two looks at the measured times.
const MEASURE_EVERY: u32 = 64;

impl Engine {
    /// An engine without clients.
    pub fn new(options: Options) -> Self {
        Self {
            buffers: options.buffers,
            options,
            tip: None,
            names: HashMap::new(),
            owners: Vec::new(),
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
        for owners in &mut self.owners {
            owners.0.retain(|&(owner, _)| owner != client);
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
            self.done(client, tag, Report::default());
        }
        self.settle();
    }

    /// A client registers a file under a number of its own.
    pub fn file(&mut self, client: ClientId, number: u32, info: &FileInfo) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        if number > FILES_MAX {
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
        let id = *self.names.entry((info.device, info.inode)).or_insert_with(|| {
            owners.push(Owners::default());
            tip.layout_mut().add(info)
        });
        tip.layout_mut().set_bytes(id, info.bytes);
        let index = number as usize;
        if known.files.len() <= index {
            known.files.resize(index + 1, None);
        }
        known.files[index] = Some(id);
        owners[id.0 as usize].0.push((client, number));
    }

    /// A client discloses what it will read, behind what it disclosed before. Segments of
    /// files that are not registered, or empty, count as consumed.
    pub fn disclose(&mut self, client: ClientId, segments: &[Segment]) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        let mut dropped = 0;
        if let Some(tip) = self.tip.as_mut().filter(|_| self.options.mode != Mode::NoHints) {
            use runahead_policy::tip::Layout as _;
            let mut stored = Vec::with_capacity(segments.len());
            for segment in segments {
                let id = known.files.get(segment.file as usize).copied().flatten();
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
        if let Some(tip) = &mut self.tip {
            for _ in 0..segments {
                if tip.cancel(ProcessId(client.0), &mut self.ios).is_err() {
                    break;
                }
            }
        }
        self.follow(client);
        self.settle();
    }

    /// A client has read.
    pub fn read(&mut self, client: ClientId, notes: &[ReadNote]) {
        for note in notes {
            let Some(known) = self.clients.get(&client) else { return };
            if let Some(file) = known.files.get(note.file as usize).copied().flatten() {
                let end = note.offset.saturating_add(note.length);
                self.read_range(client, file, (note.offset, end), note.t_app_us);
            }
        }
        self.follow(client);
        self.settle();
    }

    /// A client has read so many bytes, nobody knows where: taken for the next hinted ones.
    pub fn observed(&mut self, client: ClientId, mut bytes: u64) {
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

    fn read_range(&mut self, client: ClientId, file: FileId, range: (u64, u64), t_app_us: u32) {
        let Some(tip) = &mut self.tip else { return };
        let (start, end) = range;
        let mut at = start;
        let mut t_app_us = t_app_us;
        while at < end {
            let block_end = (at / BLOCK_BYTES + 1).saturating_mul(BLOCK_BYTES).min(end);
            let Ok(number) = u32::try_from(at / BLOCK_BYTES) else { return };
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

    /// A prefetch is complete.
    pub fn done(&mut self, client: ClientId, tag: u64, report: Report) {
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
            let service_ns = report.ended_ns.saturating_sub(began);
            disk.free_since_ns = disk.free_since_ns.max(report.ended_ns);
            service_us = Some(u32::try_from(service_ns / 1000).unwrap_or(u32::MAX));
            mean(&mut self.t_disk_ns, service_ns);
            mean(&mut self.t_driver_ns, report.cpu_ns / u64::from(flying.io.blocks));
            self.measured += 1;
        }
        tip.io_done(&flying.io, service_us, &mut self.ios);
        if !report.ok {
            self.stats.failed += 1;
            let mut given_up = Vec::new();
            if !report.is_empty() {
                // It cannot be read: its hints are passed over.
                let file = flying.io.first.file;
                tip.layout_mut().set_bytes(file, 0);
                for disk in &mut self.disks {
                    let waiting = disk.waiting.extract_if(.., |_, io| io.first.file == file);
                    given_up.extend(waiting.map(|(_, io)| io));
                }
            }
            given_up.push(flying.io);
            for &io in &given_up[..given_up.len() - 1] {
                tip.io_done(&io, None, &mut self.ios);
            }
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
    /// they do not keep a disk from the others.
    pub fn tick(&mut self) {
        let mut late = Vec::new();
        for (&tag, flying) in &mut self.in_flight {
            flying.age += 1;
            if flying.age > TICKS_MAX {
                late.push((flying.client, tag));
            }
        }
        late.sort_unstable();
        for (client, tag) in late {
            self.done(client, tag, Report::default());
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

    /// Queues what the policy asked for, sends what the disks have room for, and gives back
    /// what it ejected.
    fn settle(&mut self) {
        let Some(tip) = &mut self.tip else { return };
        while !self.ios.is_empty() {
            for io in std::mem::take(&mut self.ios) {
                if io.priority == Priority::Demand {
                    tip.io_done(&io, None, &mut self.ios);
                    continue;
                }
                use runahead_policy::tip::Layout as _;
                let disk = usize::from(tip.layout().disk(io.first));
                self.next_tag += 1;
                let place = (tip.layout().address(io.first), self.next_tag);
                self.disks[disk].waiting.insert(place, io);
            }
        }
        self.release_evicted();
        for disk in 0..self.disks.len() {
            self.dispatch(disk);
        }
        if !self.ios.is_empty() {
            self.settle();
        }
    }

    fn dispatch(&mut self, index: usize) {
        let tip = self.tip.as_mut().expect("disks come with it");
        while self.disks[index].outstanding < self.options.outstanding_per_disk {
            let disk = &mut self.disks[index];
            let ahead = disk.waiting.range((disk.head, 0)..).next();
            let Some((&place, &io)) = ahead.or_else(|| disk.waiting.iter().next()) else { return };
            disk.waiting.remove(&place);
            let bytes = u64::from(io.blocks) * BLOCK_BYTES;
            disk.head = place.0 + bytes;
            let owner = self.owners[io.first.file.0 as usize].0.last().copied();
            let Some((client, file)) = owner else {
                // Nobody is left who has the file open.
                tip.io_done(&io, None, &mut self.ios);
                for number in io.first.number..io.first.number + io.blocks {
                    tip.lost(Block { number, ..io.first }, &mut self.ios);
                }
                continue;
            };
            let disk = &mut self.disks[index];
            disk.outstanding += 1;
            let tag = place.1;
            self.in_flight.insert(tag, InFlight { io, client, disk: index, age: 0 });
            self.stats.prefetches += 1;
            self.stats.prefetched_blocks += u64::from(io.blocks);
            let offset = u64::from(io.first.number) * BLOCK_BYTES;
            self.actions.push((client, Action::Prefetch { tag, file, offset, length: bytes }));
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
            if let Some(&(client, file)) = self.owners[block.file.0 as usize].0.last() {
                let offset = u64::from(first) * BLOCK_BYTES;
                let length = u64::from(end - first) * BLOCK_BYTES;
                self.actions.push((client, Action::Release { file, offset, length }));
            }
        }
    }
}

/// Most files that a client may register.
pub const FILES_MAX: u32 = 1 << 22;

/// Fewest buffers that a manager works with, and most (2 GiB): headers take memory too.
pub const BUFFERS_MIN: u32 = 64;
/// See [`BUFFERS_MIN`].
pub const BUFFERS_MAX: u32 = 262_144;

/// How a prefetch went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The data is in the page cache.
    pub ok: bool,
    /// When it was started, on a clock that all clients share (CLOCK_MONOTONIC).
    pub started_ns: u64,
    /// When it was complete.
    pub ended_ns: u64,
    /// CPU time that starting it took.
    pub cpu_ns: u64,
}

impl Report {
    /// Whether nobody reports at all: the client is gone.
    fn is_empty(&self) -> bool {
        self.ended_ns == 0
    }
}

/// Follows a measured value by a sixteenth of each new one.
fn mean(value: &mut u64, new: u64) {
    *value = *value - *value / 16 + new / 16;
}

fn parameters(options: &Options, t_driver_ns: u64, t_disk_ns: u64) -> Parameters {
    let us = |ns: u64| u32::try_from(ns / 1000).unwrap_or(u32::MAX).max(1);
    Parameters {
        t_hit_us: options.t_hit_us.max(1),
        t_driver_us: us(t_driver_ns),
        t_disk_us: us(t_disk_ns),
    }
}

/// P̂ is bounded by what the array can use: at twice the prefetches that are outstanding at
/// a time, full clusters, its queues never run empty and CSCAN has some to sort.
fn horizon_max(options: &Options, geometry: &Geometry, buffers: u32) -> u64 {
    let in_flight = u64::from(geometry.disks) * u64::from(options.outstanding_per_disk);
    let useful = (2 * in_flight * u64::from(CLUSTER_BLOCKS)).max(64);
    useful.min(u64::from(buffers / 4)).max(1)
}

fn make_tip(options: &Options, buffers: u32, geometry: &Geometry) -> Tip<LiveLayout> {
    let horizon_max = horizon_max(options, geometry, buffers);
    let mode = match options.mode {
        Mode::Full => runahead_policy::tip::Mode::CostBenefit,
        Mode::PrefetchOnly => {
            runahead_policy::tip::Mode::Static { depth: horizon_max, cluster_slack: 16 }
        }
        Mode::NoHints => runahead_policy::tip::Mode::NoPrefetch,
    };
    let config = Config {
        parameters: parameters(options, 5_000, u64::from(geometry.latency_us) * 1000),
        buffers,
        block_bytes: BLOCK_BYTES as u32,
        cluster_blocks: CLUSTER_BLOCKS,
        mode,
        valuation: Valuation::Tiptoe,
        extensions: Extensions { finite_disks: true, post_hint: true, process_horizon: false },
        // The kernel's own readahead serves unhinted reads.
        readahead: None,
        resolved_max: (u64::from(buffers) * 4).clamp(10_000, 500_000),
        segments_max: 2 * CREDIT as usize,
        // Programs of today have caches of their own in front (Postgres had, section 3.4.7).
        match_window: 256,
        reserve: 16.min(buffers / 4),
        horizon_max,
        report_evictions: true,
        ..Config::thesis()
    };
    Tip::new(config, LiveLayout::new(geometry))
}

#[cfg(test)]
mod tests;
