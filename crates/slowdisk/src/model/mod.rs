//! The timing model: pure code. It is given requests and times and returns
//! completions and their times; it has no clock, does no I/O and starts no thread.

mod mechanics;
mod queue;
mod stats;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub use mechanics::{Mechanics, Service, transfer_ns};
pub use queue::{BYPASSES_MAX, Piece, Queue};
pub use stats::{DeviceStats, Histogram, ServerStats};

use crate::profile::{Discipline, Medium, Profile};

/// One request to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// First byte.
    pub offset: u64,
    /// Length in bytes; 0 is answered at once.
    pub len: u64,
    /// Whether it writes.
    pub write: bool,
}

/// A request that is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion<P> {
    /// What was handed in with the request.
    pub payload: P,
    /// When the model finished it, nanoseconds.
    pub finished_ns: u64,
}

/// Spindles or channels with their queues. `P` is handed in with each request
/// and given back with its completion.
#[derive(Debug)]
pub struct Array<P> {
    medium: Medium,
    stripe_unit_bytes: u64,
    servers: Vec<Server>,
    /// Pieces that wait: one queue per spindle, or one for all channels.
    queues: Vec<Queue>,
    /// Channels with nothing to do (network storage only), and since when: the
    /// first first.
    idle: BinaryHeap<Reverse<(u64, usize)>>,
    /// (finish, order of starting, server) of each piece in service.
    in_service: BinaryHeap<Reverse<(u64, u64, usize)>>,
    starts: u64,
    requests: Vec<Option<Outstanding<P>>>,
    free_slots: Vec<usize>,
    stats: DeviceStats,
    now_ns: u64,
}

#[derive(Debug)]
struct Server {
    mechanics: Mechanics,
    serving: Option<Piece>,
}

#[derive(Debug)]
struct Outstanding<P> {
    payload: P,
    arrival_ns: u64,
    pieces_left: u64,
}

impl<P> Array<P> {
    /// A device of `capacity_bytes` with the profile's spindles or channels.
    /// The seed decides where heads and platters stand at time 0.
    ///
    /// # Panics
    /// If the profile has no model ([`Medium::Local`]).
    pub fn new(profile: &Profile, capacity_bytes: u64, seed: u64) -> Self {
        assert!(profile.medium != Medium::Local && profile.channels > 0, "no model");
        let channels = profile.channels as usize;
        let disks = profile.medium == Medium::Disks;
        // A spindle has its share of the bytes, a channel reaches all of them.
        let server_bytes = if disks {
            let row_bytes = profile.stripe_unit_bytes * channels as u64;
            capacity_bytes.div_ceil(row_bytes) * profile.stripe_unit_bytes
        } else {
            capacity_bytes
        };
        let mut random = SplitMix::new(seed);
        let mut server = || Server {
            mechanics: Mechanics::new(
                profile.positioning,
                profile.rate,
                server_bytes.max(1),
                random.next_u64(),
            ),
            serving: None,
        };
        let discipline = if disks { profile.discipline } else { Discipline::Fifo };
        let queues = if disks { channels } else { 1 };
        Self {
            medium: profile.medium,
            stripe_unit_bytes: profile.stripe_unit_bytes,
            servers: (0..channels).map(|_| server()).collect(),
            queues: (0..queues).map(|_| Queue::new(discipline)).collect(),
            idle: match disks {
                true => BinaryHeap::new(),
                false => (0..channels).map(|channel| Reverse((0, channel))).collect(),
            },
            in_service: BinaryHeap::new(),
            starts: 0,
            requests: Vec::new(),
            free_slots: Vec::new(),
            stats: fresh_stats(channels),
            now_ns: 0,
        }
    }

    /// Takes a request at `now_ns`. Times never run backwards: an earlier one
    /// counts as the latest seen. Completions due by then are appended to `done`.
    pub fn submit(
        &mut self,
        now_ns: u64,
        request: Request,
        payload: P,
        done: &mut Vec<Completion<P>>,
    ) {
        self.advance(now_ns, done);
        let now_ns = self.now_ns;
        self.count_request(request);
        if request.len == 0 {
            done.push(Completion { payload, finished_ns: now_ns });
            return;
        }
        let slot = self.take_slot(Outstanding { payload, arrival_ns: now_ns, pieces_left: 0 });
        let mut pieces = 0;
        for (queue, offset, len) in self.split(request) {
            pieces += 1;
            let piece =
                Piece { request: slot, offset, len, arrival_ns: now_ns, write: request.write };
            self.enqueue(queue, piece);
        }
        self.outstanding(slot).pieces_left = pieces;
        let in_flight = (self.requests.len() - self.free_slots.len()) as u64;
        self.stats.in_flight_max = self.stats.in_flight_max.max(in_flight);
    }

    /// Counts a request that is answered at once, without the model.
    pub fn count_untimed(&mut self) {
        self.stats.untimed += 1;
    }

    /// When the next piece finishes, if any is in service.
    pub fn next_event_ns(&self) -> Option<u64> {
        self.in_service.peek().map(|Reverse((finish_ns, _, _))| *finish_ns)
    }

    /// Requests that are not complete.
    pub fn in_flight(&self) -> usize {
        self.requests.len() - self.free_slots.len()
    }

    /// Runs the model up to `now_ns`; appends what completes to `done`, in the
    /// order of completion. A spindle starts its next piece at the moment when
    /// the model finished the last one, however late this is called.
    pub fn advance(&mut self, now_ns: u64, done: &mut Vec<Completion<P>>) {
        self.advance_early(now_ns, 0, done);
    }

    /// As [`Array::advance`], and hands out early what completes within the
    /// next `lead_ns`. For the requests that come meanwhile nothing else
    /// changes: a channel is free when the model says so.
    pub fn advance_early(&mut self, now_ns: u64, lead_ns: u64, done: &mut Vec<Completion<P>>) {
        self.now_ns = self.now_ns.max(now_ns);
        let until_ns = self.now_ns.saturating_add(lead_ns);
        while let Some(Reverse((finish_ns, _, server))) = self.in_service.peek().copied() {
            if finish_ns > until_ns {
                break;
            }
            self.in_service.pop();
            self.finish(server, finish_ns, done);
            match self.medium {
                Medium::Disks => self.start_next(server, server, finish_ns),
                _ => {
                    self.idle.push(Reverse((finish_ns, server)));
                    self.start_idle(finish_ns);
                }
            }
        }
    }

    /// The counters since the last reset.
    pub fn stats(&self) -> &DeviceStats {
        &self.stats
    }

    /// Sets every counter to zero.
    pub fn reset_stats(&mut self) {
        self.stats = fresh_stats(self.servers.len());
    }

    fn count_request(&mut self, request: Request) {
        if request.write {
            self.stats.writes += 1;
            self.stats.bytes_written += request.len;
        } else {
            self.stats.reads += 1;
            self.stats.bytes_read += request.len;
        }
    }

    /// (queue, offset on its server, length) of each piece. A contiguous range
    /// of a striped device is contiguous on each spindle that it touches.
    fn split(&self, request: Request) -> Vec<(usize, u64, u64)> {
        if self.medium != Medium::Disks {
            return vec![(0, request.offset, request.len)];
        }
        let (unit, spindles) = (self.stripe_unit_bytes, self.servers.len() as u64);
        let end = request.offset + request.len;
        let mut pieces: Vec<(usize, u64, u64)> = Vec::new();
        let mut at = request.offset;
        while at < end {
            let stripe = at / unit;
            let len = ((stripe + 1) * unit).min(end) - at;
            let spindle = (stripe % spindles) as usize;
            let local = stripe / spindles * unit + at % unit;
            match pieces.iter_mut().find(|piece| piece.0 == spindle) {
                Some(piece) => {
                    debug_assert_eq!(piece.1 + piece.2, local);
                    piece.2 += len;
                }
                None => pieces.push((spindle, local, len)),
            }
            at += len;
        }
        pieces
    }

    fn enqueue(&mut self, queue: usize, piece: Piece) {
        self.queues[queue].push(piece);
        if self.medium == Medium::Disks {
            if self.servers[queue].serving.is_none() {
                self.start_next(queue, queue, self.now_ns);
            }
        } else {
            self.start_idle(self.now_ns);
        }
        let waiting = self.queues[queue].len() as u64;
        if waiting > 0 {
            let watched = &mut self.stats.servers[queue];
            watched.queue_max = watched.queue_max.max(waiting);
        }
    }

    /// Hands waiting pieces to idle channels.
    fn start_idle(&mut self, start_ns: u64) {
        while !self.queues[0].is_empty() {
            let Some(Reverse((free_ns, channel))) = self.idle.pop() else { break };
            self.start_next(channel, 0, start_ns.max(free_ns));
        }
    }

    fn start_next(&mut self, server: usize, queue: usize, start_ns: u64) {
        let head = self.servers[server].mechanics.head();
        let Some(piece) = self.queues[queue].pop(head) else { return };
        let service = self.servers[server].mechanics.serve(start_ns, piece.offset, piece.len);
        self.servers[server].serving = Some(piece);
        let stats = &mut self.stats.servers[server];
        stats.requests += 1;
        stats.sequential += u64::from(service.sequential);
        stats.busy_ns += service.duration_ns;
        stats.waited_ns += start_ns - piece.arrival_ns;
        if piece.write {
            stats.bytes_written += piece.len;
        } else {
            stats.bytes_read += piece.len;
        }
        self.starts += 1;
        self.in_service.push(Reverse((start_ns + service.duration_ns, self.starts, server)));
    }

    fn finish(&mut self, server: usize, finish_ns: u64, done: &mut Vec<Completion<P>>) {
        let piece = self.servers[server].serving.take().expect("a piece in service");
        self.stats.servers[server].latency.record(finish_ns - piece.arrival_ns);
        let outstanding = self.outstanding(piece.request);
        outstanding.pieces_left -= 1;
        if outstanding.pieces_left > 0 {
            return;
        }
        let outstanding = self.requests[piece.request].take().expect("an outstanding request");
        self.free_slots.push(piece.request);
        self.stats.latency.record(finish_ns - outstanding.arrival_ns);
        done.push(Completion { payload: outstanding.payload, finished_ns: finish_ns });
    }

    fn take_slot(&mut self, outstanding: Outstanding<P>) -> usize {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() - 1
        });
        self.requests[slot] = Some(outstanding);
        slot
    }

    fn outstanding(&mut self, slot: usize) -> &mut Outstanding<P> {
        self.requests[slot].as_mut().expect("an outstanding request")
    }
}

fn fresh_stats(servers: usize) -> DeviceStats {
    DeviceStats { servers: vec![ServerStats::default(); servers], ..DeviceStats::default() }
}

/// SplitMix64 (Steele, Lea and Flood 2014): small, seeded, good enough to
/// place heads and to draw offsets.
#[derive(Debug, Clone)]
pub struct SplitMix(u64);

impl SplitMix {
    /// A generator that always gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to `bound` − 1, nearly uniform; `bound` is above 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}
