//! How many prefetches may be in flight at a device.
//!
//! Fraser and Chang (section 4.1.3) issue a prefetch "only to a disk which
//! has no more than one request outstanding". That is right for a disk and
//! wrong for an array, a network volume or flash, which serve tens at once.
//! The limit is therefore found while running: it doubles as long as doubling
//! it brings throughput (slow start), stays where more brought only latency,
//! and falls back where more brought less (one spinning disk).
//!
//! While latency stays what it was at the start, nothing queues and the limit
//! grows; where it rises, throughput decides.
//!
//! Where several programs prefetch, throughput says nothing: more requests get
//! more of the device, whoever else waits. There only latency counts, and each
//! program begins as a plain one would, with one request ([`Share`]).
//!
//! Throughput is counted in requests *and* bytes per second, and the better
//! of the two gains counts, so that a stream of a few large requests and one
//! of many small ones are both judged by what they use up.

/// Limit that a device starts with, in requests.
pub const DEPTH_INITIAL: u32 = 8;

/// Highest limit, in requests.
pub const DEPTH_MAX: u32 = 256;

/// Completions in a round: as many as the limit, but at least this many, so
/// that a round's throughput means something.
const ROUND_COMPLETIONS_MIN: u32 = 8;

/// A round must be this much better (in 1/16) to count as a gain.
const GAIN_SIXTEENTHS: u64 = 18;

/// A round with fewer in flight must reach this much (in 1/16) of the best
/// to be kept.
const KEEP_SIXTEENTHS: u64 = 15;

/// Rounds without change after which another limit is tried.
const PROBE_ROUNDS: u32 = 16;

/// Completions in a round beside others, at least, and for each request that
/// may be in flight.
const SHARE_COMPLETIONS_MIN: u32 = 16;
const SHARE_COMPLETIONS_EACH: u32 = 4;

/// Latency up to which (in 1/8 of that with one request) one may have more,
/// and from which on less.
const SHARE_MORE_EIGHTHS: u64 = 9;
const SHARE_LESS_EIGHTHS: u64 = 10;

/// Rounds for which nothing more is tried after it has brought a queue: at
/// first, and at most, doubling.
const SHARE_HOLD_ROUNDS: u32 = 64;
const SHARE_HOLD_ROUNDS_MAX: u32 = 1024;

/// Limit from which on a device, if it has been found by one program alone, is
/// one that serves many at once, so that half of a part makes no queue.
const WIDE_DEPTH: u32 = 24;

/// What one program may have in flight at a device from which others prefetch,
/// too. With one request it waits as long as a plain program would there, and
/// adds no more to what others wait; that latency is the yardstick. It may
/// have more as long as they take no longer. All-zero is a valid start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    /// Requests that may be in flight; 0: no one else prefetches.
    depth: u32,
    /// What was right before `depth` was tried; 0: it is not being tried.
    before: u32,
    /// Mean latency with one request, or as many as it began with, in ns; 0:
    /// not known yet.
    alone_ns: u64,
    completions: u32,
    latency_ns: u64,
    /// Whether it held anything back in this round.
    limited: bool,
    /// A queue has been seen: from now on small steps.
    settled: bool,
    hold_rounds: u32,
    held_rounds: u32,
}

impl Share {
    fn completed(&mut self, latency_ns: u64, depth_max: u32) {
        self.completions += 1;
        self.latency_ns = self.latency_ns.saturating_add(latency_ns);
        let round = SHARE_COMPLETIONS_EACH.saturating_mul(self.depth).max(SHARE_COMPLETIONS_MIN);
        if self.completions < round {
            return;
        }
        let mean_ns = (self.latency_ns / u64::from(self.completions)).max(1);
        let is_limited = core::mem::take(&mut self.limited);
        (self.completions, self.latency_ns) = (0, 0);
        if self.alone_ns == 0 {
            self.alone_ns = mean_ns;
        } else if self.depth <= 1 {
            // Others come and go: it is what a plain program waits now.
            self.alone_ns = self.alone_ns - self.alone_ns / 4 + mean_ns / 4;
        }
        self.held_rounds = self.held_rounds.saturating_add(1);
        let exceeds = |eighths| mean_ns.saturating_mul(8) > self.alone_ns.saturating_mul(eighths);
        if self.before != 0 && exceeds(SHARE_MORE_EIGHTHS) {
            // What was tried has brought a queue. A little less than before:
            // that may have brought a short one.
            self.depth = self.before - self.before / 8;
            self.settled = true;
            self.hold_rounds =
                (2 * self.hold_rounds).clamp(SHARE_HOLD_ROUNDS, SHARE_HOLD_ROUNDS_MAX);
            self.held_rounds = 0;
            self.before = 0;
        } else if self.depth > 1 && exceeds(SHARE_LESS_EIGHTHS) {
            // Somebody else has come.
            self.depth /= 2;
            self.settled = true;
            self.held_rounds = 0;
            self.before = 0;
        } else {
            self.before = 0;
            if is_limited && self.held_rounds >= self.hold_rounds && self.depth < depth_max {
                self.before = self.depth;
                let more = if self.settled { self.depth / 4 + 1 } else { self.depth };
                self.depth = (self.depth + more).min(depth_max);
            }
        }
    }
}

/// The limit of one device. All-zero is a valid start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceLimit {
    /// Where others prefetch from the device, too.
    share: Share,
    /// Programs that do, when last asked; 0 and 1: this one only.
    sharers: u32,
    /// Current limit; 0: not started.
    depth: u32,
    /// Limit of the round with the best throughput.
    best_depth: u32,
    /// Requests per second (in 1/16) of that round.
    best_requests: u64,
    /// Bytes per second of that round.
    best_bytes: u64,
    /// Completions so far in this round.
    round_completions: u32,
    /// Bytes of them.
    round_bytes: u64,
    /// Sum of their latencies, in ns.
    round_latency_ns: u64,
    /// Lowest mean latency of a round, in ns; 0: none yet.
    base_latency_ns: u64,
    /// Start of this round, in ns.
    round_start_ns: u64,
    /// Whether the limit held anything back in this round.
    round_limited: bool,
    /// Rounds since the limit last changed.
    steady_rounds: u32,
    /// Slow start is over.
    settled: bool,
    /// Whether the next look goes below the present limit.
    probe_down: bool,
    /// Smoothed latency (weight 1/8), in ns; 0: none seen.
    latency_ns: u64,
    /// Smoothed throughput (weight 1/4), in bytes per second; 0: none seen.
    bytes_per_s: u64,
}

impl DeviceLimit {
    /// A limit that starts at `initial` requests (0: [`DEPTH_INITIAL`]), as
    /// found by an earlier speculative process or by a device profile.
    pub fn new(initial: u32) -> DeviceLimit {
        DeviceLimit {
            depth: if initial == 0 { DEPTH_INITIAL } else { initial.clamp(1, DEPTH_MAX) },
            // What was found before is refined, not started over.
            settled: initial > DEPTH_INITIAL,
            ..DeviceLimit::default()
        }
    }

    /// Requests that may be in flight, 1 to [`DEPTH_MAX`].
    pub fn depth(&self) -> u32 {
        if self.depth == 0 { DEPTH_INITIAL } else { self.depth }
    }

    /// Smoothed latency of a request, queueing included, in ns; 0: unknown.
    pub fn latency_ns(&self) -> u64 {
        self.latency_ns
    }

    /// Smoothed throughput, in bytes per second; 0: unknown.
    pub fn bytes_per_s(&self) -> u64 {
        self.bytes_per_s
    }

    /// Whether one more request may be issued with `in_flight` outstanding of
    /// this program, which is one of `sharers` that prefetch from the device
    /// (0 counts as 1).
    ///
    /// A refusal is remembered: only a round in which the limit held something
    /// back says anything about the device.
    pub fn admit(&mut self, in_flight: u32, sharers: u32) -> bool {
        let depth = self.depth();
        self.sharers = sharers;
        if sharers <= 1 {
            self.share.depth = 0;
            self.round_limited |= in_flight >= depth;
            return in_flight < depth;
        }
        if self.share.depth == 0 {
            let half = if depth >= WIDE_DEPTH && self.settled { self.part() / 2 } else { 1 };
            self.share = Share { depth: half.max(1), ..Share::default() };
        }
        let part = self.share.depth.min(self.part());
        self.share.limited |= in_flight >= part;
        in_flight < part
    }

    /// What this program may have at most of what is known to be useful, at
    /// least one request.
    fn part(&self) -> u32 {
        let useful = if self.settled { self.depth() } else { DEPTH_MAX };
        (useful / self.sharers.max(1)).max(1)
    }

    /// No requests come for a reason of ours (the prefetch horizon): what
    /// this round showed is no measure of the device.
    pub fn interrupted(&mut self) {
        self.round_start_ns = 0;
    }

    /// A request of `bytes` completed `latency_ns` after its issue, at time
    /// `now_ns` (any monotonic clock).
    pub fn completed(&mut self, latency_ns: u64, bytes: u64, now_ns: u64) {
        self.depth = self.depth();
        self.latency_ns = match self.latency_ns {
            0 => latency_ns.max(1),
            old => (old - old / 8 + latency_ns / 8).max(1),
        };
        if self.share.depth != 0 {
            self.share.completed(latency_ns, self.part());
        }
        if self.round_start_ns == 0 {
            self.start_round(now_ns.saturating_sub(latency_ns).max(1));
        }
        self.round_completions += 1;
        self.round_bytes = self.round_bytes.saturating_add(bytes);
        self.round_latency_ns = self.round_latency_ns.saturating_add(latency_ns);
        if self.round_completions >= self.depth.max(ROUND_COMPLETIONS_MIN) {
            self.end_round(now_ns);
        }
    }

    fn start_round(&mut self, now_ns: u64) {
        self.round_start_ns = now_ns.max(1);
        self.round_completions = 0;
        self.round_bytes = 0;
        self.round_latency_ns = 0;
        self.round_limited = false;
    }

    fn end_round(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.round_start_ns).max(1);
        let per_second = |amount: u64| amount.saturating_mul(1_000_000_000) / elapsed_ns;
        let requests = per_second(u64::from(self.round_completions) * 16);
        let bytes = per_second(self.round_bytes);
        self.bytes_per_s = match self.bytes_per_s {
            0 => bytes,
            old => old - old / 4 + bytes / 4,
        };
        let mean_ns = self.round_latency_ns / u64::from(self.round_completions.max(1));
        if self.base_latency_ns == 0 || mean_ns < self.base_latency_ns {
            self.base_latency_ns = mean_ns.max(1);
        }
        if self.round_limited && self.share.depth == 0 {
            self.judge(requests, bytes, mean_ns);
        }
        self.start_round(now_ns);
    }

    /// Compares a round that the limit held back with the best one.
    fn judge(&mut self, requests: u64, bytes: u64, mean_ns: u64) {
        // Requests that do not wait for each other: by Little's law more of
        // them bring more, whatever one noisy round says.
        let unqueued = mean_ns.saturating_mul(4) <= self.base_latency_ns.saturating_mul(5);
        let at_least = |sixteenths: u64| {
            requests.saturating_mul(16) >= self.best_requests.saturating_mul(sixteenths)
                || bytes.saturating_mul(16) >= self.best_bytes.saturating_mul(sixteenths)
        };
        let gain = at_least(GAIN_SIXTEENTHS) || unqueued;
        if self.best_depth == 0 || (gain && self.depth >= self.best_depth) {
            self.best_depth = self.depth;
            self.best_requests = self.best_requests.max(requests);
            self.best_bytes = self.best_bytes.max(bytes);
            let quarter = self.depth + self.depth / 4 + 1;
            self.set_depth(if self.settled { quarter } else { self.depth * 2 });
        } else if !self.settled {
            // The last doubling brought nothing: keep what the device can have
            // in flight without a queue, by Little's law throughput times
            // latency. A queue would delay the demand reads of all.
            self.settled = true;
            let unqueued = (u128::from(self.best_requests) * u128::from(self.base_latency_ns)
                / 16_000_000_000)
                .min(u128::from(DEPTH_MAX)) as u32;
            let half = self.best_depth / 2;
            // No `clamp`: it panics where its bounds are in the wrong order,
            // which the compiler cannot see that they are not.
            self.best_depth = unqueued.max(half).min(self.best_depth + half).max(1);
            self.set_depth(self.best_depth);
        } else if self.depth < self.best_depth && at_least(KEEP_SIXTEENTHS) {
            // Fewer in flight do as well, and delay demand reads less. The
            // best throughput stays the yardstick, so that small losses
            // cannot add up.
            self.best_depth = self.depth;
            self.set_depth(self.depth * 3 / 4);
        } else if self.depth != self.best_depth {
            self.set_depth(self.best_depth);
        } else {
            self.steady_rounds += 1;
            if self.steady_rounds >= PROBE_ROUNDS {
                // The device may have become faster, or slower: take today's
                // figures for the yardstick and look to either side in turn.
                self.best_requests = requests;
                self.best_bytes = bytes;
                self.base_latency_ns += self.base_latency_ns / 8;
                self.probe_down = !self.probe_down;
                let lower = self.best_depth * 3 / 4;
                let higher = self.best_depth + self.best_depth / 4 + 1;
                self.set_depth(if self.probe_down { lower } else { higher });
            }
        }
    }

    fn set_depth(&mut self, depth: u32) {
        self.depth = depth.clamp(1, DEPTH_MAX);
        self.steady_rounds = 0;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    /// Keeps the limit full against a device with `channels` servers; each
    /// request takes `service_ns(in_flight)`. Returns the limit at the end.
    fn run(channels: usize, requests: u32, service_ns: impl Fn(usize) -> u64) -> DeviceLimit {
        let mut limit = DeviceLimit::new(0);
        let mut free_at = std::vec![0u64; channels];
        let mut in_flight = BinaryHeap::new();
        let mut now_ns = 1_000;
        for _ in 0..requests {
            while !limit.admit(in_flight.len() as u32, 1) {
                let Reverse((done_ns, issued_ns)) = in_flight.pop().unwrap();
                now_ns = now_ns.max(done_ns);
                limit.completed(done_ns - issued_ns, 4096, now_ns);
            }
            let channel = free_at.iter_mut().min().unwrap();
            let done_ns = (*channel).max(now_ns) + service_ns(in_flight.len());
            *channel = done_ns;
            in_flight.push(Reverse((done_ns, now_ns)));
            now_ns += 5_000;
        }
        limit
    }

    #[test]
    fn fills_a_network_volume() {
        let limit = run(32, 4000, |_| 1_000_000);
        assert!((32..=96).contains(&limit.depth()), "{limit:?}");
    }

    #[test]
    fn stays_shallow_on_one_server() {
        let limit = run(1, 2000, |_| 5_000_000);
        assert!(limit.depth() <= 16, "{limit:?}");
    }

    #[test]
    fn backs_off_where_parallel_reading_loses() {
        // A disk that loses its sequential stream as soon as two compete.
        let limit = run(1, 2000, |in_flight| if in_flight > 8 { 9_000_000 } else { 1_000_000 });
        assert!(limit.depth() <= 12, "{limit:?}");
    }

    #[test]
    fn a_settled_limit_is_divided_among_sharers() {
        let mut limit = run(32, 4000, |_| 1_000_000);
        let depth = limit.depth();
        let admitted = |limit: &mut DeviceLimit, sharers| {
            (0..).take_while(|&n| limit.admit(n, sharers)).count()
        };
        assert_eq!(admitted(&mut limit, 0), depth as usize);
        assert!(depth >= WIDE_DEPTH);
        assert_eq!(admitted(&mut limit, 4), depth as usize / 8, "half of a part, first");
        assert_eq!(admitted(&mut DeviceLimit::new(0), 4), 1, "as a plain program, first");
        for n in 0..10_000 {
            admitted(&mut limit, 4);
            limit.completed(1_000_000, 4096, n * 1_000_000);
        }
        assert_eq!(admitted(&mut limit, 4), depth as usize / 4);
        assert_eq!(limit.depth(), depth, "nothing is learnt beside others");
        assert_eq!(admitted(&mut limit, 1000), 1);
        assert_eq!(admitted(&mut limit, 1), depth as usize, "and nothing forgotten");
    }

    #[test]
    fn a_share_is_given_back_when_somebody_else_comes() {
        let mut limit = DeviceLimit::default();
        let mut now_ns = 0;
        // The highest and the lowest part while each request takes so long.
        let mut parts = |latency_ns: u64| {
            let parts = (0..20_000).map(|_| {
                let part = (0..).take_while(|&n| limit.admit(n, 2)).count();
                now_ns += 1_000_000;
                limit.completed(latency_ns, 4096, now_ns);
                part
            });
            let parts: std::vec::Vec<usize> = parts.collect();
            (*parts.iter().max().unwrap(), *parts.iter().min().unwrap(), parts[19_999])
        };
        let (highest, lowest, _) = parts(1_000_000);
        assert!(highest > 16 && lowest == 1);
        // Then that is what everybody waits there, and it may have more again.
        let (_, lowest, last) = parts(3_000_000);
        assert!(lowest == 1 && last > 1);
        let (_, _, last) = parts(1_000_000);
        assert!(last > 1);
    }

    /// Latencies of a plain reader, one request at a time, beside `programs`
    /// that prefetch as their limits let them (or, plain, one at a time) from
    /// a device that serves `channels` requests at once, each for
    /// `service_ns`, in the order in which they come. In ns, sorted.
    fn reader_beside(
        programs: usize,
        speculate: bool,
        channels: usize,
        service_ns: u64,
        reads: usize,
    ) -> std::vec::Vec<u64> {
        const THINK_NS: u64 = 5_000;
        let reader = programs;
        let mut limits = std::vec![DeviceLimit::new(0); programs];
        let mut in_flight = std::vec![0u32; programs + 1];
        let mut free_at = std::vec![0u64; channels];
        // Who comes when to ask for one more; who is served when.
        let mut asks = BinaryHeap::new();
        let mut done: BinaryHeap<Reverse<(u64, u64, usize)>> = BinaryHeap::new();
        let mut waiting = std::vec![false; programs + 1];
        for who in 0..=programs {
            asks.push(Reverse((who as u64 * 70_000, who)));
        }
        let mut seen = std::vec::Vec::new();
        while seen.len() < reads {
            let next_ask = asks.peek().map_or(u64::MAX, |Reverse((at_ns, _))| *at_ns);
            let next_done = done.peek().map_or(u64::MAX, |Reverse((at_ns, _, _))| *at_ns);
            if next_done <= next_ask {
                let Reverse((now_ns, issued_ns, who)) = done.pop().unwrap();
                in_flight[who] -= 1;
                if who == reader {
                    seen.push(now_ns - issued_ns);
                } else {
                    limits[who].completed(now_ns - issued_ns, 4096, now_ns);
                }
                if core::mem::take(&mut waiting[who]) {
                    asks.push(Reverse((now_ns + THINK_NS, who)));
                }
                continue;
            }
            let Reverse((now_ns, who)) = asks.pop().unwrap();
            let admitted = match who == reader || !speculate {
                true => in_flight[who] == 0,
                false => limits[who].admit(in_flight[who], programs as u32),
            };
            if !admitted {
                waiting[who] = true;
                continue;
            }
            in_flight[who] += 1;
            // Services vary a little, or all would march in step.
            let jitter_ns = (seen.len() as u64 * 7919 + who as u64 * 104_729) % (service_ns / 8);
            let channel = free_at.iter_mut().min().unwrap();
            let at_ns = (*channel).max(now_ns) + service_ns + jitter_ns;
            *channel = at_ns;
            done.push(Reverse((at_ns, now_ns, who)));
            asks.push(Reverse((now_ns + THINK_NS, who)));
        }
        seen.sort_unstable();
        seen
    }

    #[test]
    fn a_plain_reader_beside_four_programs() {
        for (channels, service_ns) in [(32, 1_000_000), (4, 5_000_000), (1, 8_000_000)] {
            let plain = reader_beside(4, false, channels, service_ns, 2000);
            let speculating = reader_beside(4, true, channels, service_ns, 2000);
            let sum = |seen: &[u64]| seen.iter().sum::<u64>() as f64;
            let throughput = sum(&plain) / sum(&speculating);
            let p99 = speculating[1980] as f64 / plain[1980] as f64;
            assert!(throughput >= 0.97, "{channels} channels: {throughput:.3}");
            assert!(p99 <= 1.1, "{channels} channels: {p99:.3}");
        }
    }

    #[test]
    fn never_leaves_its_bounds() {
        let mut limit = DeviceLimit::default();
        let mut seed = 1u64;
        for _ in 0..100_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            limit.admit((seed >> 40) as u32 % 300, (seed >> 50) as u32 % 5);
            limit.completed(seed >> 20, seed >> 30, seed >> 10);
            assert!((1..=DEPTH_MAX).contains(&limit.depth()));
        }
    }
}
