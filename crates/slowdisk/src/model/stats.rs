//! What the emulated device counts.

use serde::{Deserialize, Serialize};

/// Sub-buckets per power of two, as a power of two: bounds are at most 1/16 apart.
const SUB_BITS: u32 = 4;
const SUB_BUCKETS: u64 = 1 << SUB_BITS;
const BUCKETS: usize = 64 << SUB_BITS;

/// Log-linear histogram of latencies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Histogram {
    counts: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS] }
    }
}

impl Histogram {
    fn bucket(ns: u64) -> usize {
        let ns = ns.max(SUB_BUCKETS);
        let power = ns.ilog2();
        let sub = (ns >> (power - SUB_BITS)) & (SUB_BUCKETS - 1);
        ((u64::from(power) << SUB_BITS) | sub) as usize
    }

    /// Smallest latency beyond the bucket, nanoseconds.
    fn upper_ns(bucket: usize) -> u64 {
        let (power, sub) = (bucket as u32 >> SUB_BITS, bucket as u64 & (SUB_BUCKETS - 1));
        let Some(shift) = power.checked_sub(SUB_BITS) else { return SUB_BUCKETS };
        u64::try_from(u128::from(SUB_BUCKETS + sub + 1) << shift).unwrap_or(u64::MAX)
    }

    /// Counts one latency.
    pub fn record(&mut self, ns: u64) {
        self.counts[Self::bucket(ns)] += 1;
    }

    /// Number of latencies counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
    }

    /// Upper bound of the bucket in which the `q` quantile lies (0 to 1), in
    /// nanoseconds; 0 when nothing was counted.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        let rank = (q.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Self::upper_ns(bucket);
            }
        }
        0
    }
}

/// As pairs (upper bound in nanoseconds, count) of the buckets in use.
impl From<Histogram> for Vec<(u64, u64)> {
    fn from(histogram: Histogram) -> Self {
        let used = histogram.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        used.map(|(bucket, count)| (Histogram::upper_ns(bucket), *count)).collect()
    }
}

impl From<Vec<(u64, u64)>> for Histogram {
    fn from(pairs: Vec<(u64, u64)>) -> Self {
        let mut histogram = Self::default();
        for (upper_ns, count) in pairs {
            histogram.counts[Self::bucket(upper_ns.saturating_sub(1))] += count;
        }
        histogram
    }
}

/// What one spindle (or channel) did. Counts pieces: a request that is larger
/// than a stripe unit has one on each spindle that it touches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStats {
    /// Pieces served.
    pub requests: u64,
    /// Of these, those that continued the last one.
    pub sequential: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Time spent serving, nanoseconds.
    pub busy_ns: u64,
    /// Time that the pieces waited before service, summed, nanoseconds;
    /// divided by the elapsed time it is the mean queue length.
    pub waited_ns: u64,
    /// Longest queue, the piece in service not counted (on network storage
    /// the one queue of all channels).
    pub queue_max: u64,
    /// Arrival to completion.
    pub latency: Histogram,
}

/// What the whole device did since the counters were last reset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStats {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Requests answered at once: while paused, or free writes.
    pub untimed: u64,
    /// Bytes read in timed requests.
    pub bytes_read: u64,
    /// Bytes written in timed requests.
    pub bytes_written: u64,
    /// Most timed requests in flight at one time.
    pub in_flight_max: u64,
    /// Arrival to completion of timed requests, by the model.
    pub latency: Histogram,
    /// Per spindle or channel.
    pub servers: Vec<ServerStats>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_they_say() {
        for ns in (0..2000).chain((11..63).map(|power| (1 << power) + 12345)) {
            let bucket = Histogram::bucket(ns);
            assert!(Histogram::upper_ns(bucket) > ns, "{ns}");
            if ns >= SUB_BUCKETS {
                assert!(Histogram::upper_ns(bucket) <= ns + ns / SUB_BUCKETS + 1, "{ns} loose");
            }
        }
    }

    #[test]
    fn quantiles_and_round_trip() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile_ns(0.5), 0);
        for us in 1..=1000 {
            histogram.record(us * 1000);
        }
        assert_eq!(histogram.count(), 1000);
        assert!((500_000..=532_000).contains(&histogram.quantile_ns(0.5)));
        assert!((1_000_000..=1_063_000).contains(&histogram.quantile_ns(1.0)));
        let pairs: Vec<(u64, u64)> = histogram.clone().into();
        assert_eq!(Histogram::from(pairs), histogram);
    }
}
