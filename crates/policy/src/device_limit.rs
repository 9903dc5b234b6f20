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

/// The limit of one device. All-zero is a valid start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceLimit {
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
    /// (0 counts as 1): each has the same part of the limit, and at least one
    /// request.
    ///
    /// A refusal by the limit itself is remembered: only a round in which it
    /// held something back says anything about the device.
    pub fn admit(&mut self, in_flight: u32, sharers: u32) -> bool {
        let depth = self.depth();
        self.round_limited |= in_flight >= depth;
        in_flight < (depth / sharers.max(1)).max(1)
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
        if self.round_limited {
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
    fn sharers_have_equal_parts_and_learn_nothing_from_them() {
        let mut limit = run(32, 4000, |_| 1_000_000);
        let depth = limit.depth();
        let admitted = |limit: &mut DeviceLimit, sharers| {
            (0..).take_while(|&n| limit.admit(n, sharers)).count()
        };
        assert_eq!(admitted(&mut limit, 0), depth as usize);
        limit.round_limited = false;
        assert_eq!(admitted(&mut limit, 4), depth as usize / 4);
        assert!(!limit.round_limited);
        assert_eq!(admitted(&mut limit, 1000), 1);
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
