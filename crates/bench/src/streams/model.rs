//! What the paper's model gives (Li et al. 2004, sections 2 and 3.2), for the
//! switch cost that was measured.
//!
//! A device or an elevator that sorts its queue shortens the switch the more
//! requests wait. So C_switch is taken from the default's own throughput at
//! the same concurrency: the kernel reads windows of 128 KiB, each of which
//! costs a switch. (Today's kernel asks for the next window when the first
//! page of the last is touched, two windows ahead of 2004's: on a disk that
//! sorts, the default pays less for a switch than the paper's did, and the
//! measured C_switch says so.)

/// Linux's default window, bytes.
const WINDOW_BYTES: f64 = 131_072.0;
/// The paper's first prefetch, bytes.
const FIRST_BYTES: f64 = 65_536.0;

/// Lengths of a workload's streams in bytes, all equally likely.
#[derive(Clone, Debug, PartialEq)]
pub struct Lengths(pub Vec<f64>);

impl Lengths {
    /// All of `bytes`.
    pub fn all(bytes: u64) -> Self {
        Self(vec![bytes as f64])
    }

    /// Evenly distributed between a block and `bytes`, in blocks of 64 KiB.
    pub fn even(bytes: u64) -> Self {
        Self((1..=bytes / 65_536).map(|blocks| blocks as f64 * 65_536.0).collect())
    }

    fn mean(&self, of: impl Fn(f64) -> f64) -> f64 {
        self.0.iter().map(|length| of(*length)).sum::<f64>() / self.0.len().max(1) as f64
    }

    /// The estimated optimum, bytes/s: S / (S / R + C), S the mean length.
    pub fn optimum(&self, bytes_per_s: f64, switch_s: f64) -> f64 {
        let length = self.mean(|length| length);
        length / (length / bytes_per_s + switch_s)
    }

    /// The switch cost that a default throughput shows, seconds.
    pub fn switch_s(&self, default_bytes_per_s: f64, bytes_per_s: f64) -> f64 {
        let windows = self.mean(|length| runs(length, WINDOW_BYTES, WINDOW_BYTES).0);
        let bytes = self.mean(|length| runs(length, WINDOW_BYTES, WINDOW_BYTES).1);
        let time_s = self.mean(|length| length) / default_bytes_per_s;
        ((time_s - bytes / bytes_per_s) / windows).max(0.0)
    }

    /// Throughput of competitive prefetching with slow start, bytes/s.
    pub fn competitive(&self, depth_bytes: f64, switch_s: f64, bytes_per_s: f64) -> f64 {
        let of = |length| runs(length, FIRST_BYTES, depth_bytes);
        let switches = self.mean(|length| of(length).0);
        let bytes = self.mean(|length| of(length).1);
        self.mean(|length| length) / (switches * switch_s + bytes / bytes_per_s)
    }
}

/// Prefetches of a stream and their bytes: the first of `first`, each twice
/// the last, up to `depth`.
fn runs(length: f64, first: f64, depth: f64) -> (f64, f64) {
    let (mut count, mut bytes, mut run) = (0.0, 0.0, first.min(depth));
    while bytes < length {
        count += 1.0;
        bytes += run;
        run = (run * 2.0).min(depth);
    }
    (count, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 51.3e6;
    const SWITCH_S: f64 = 10.53e-3;
    const DEPTH: f64 = 540e3;

    #[test]
    fn the_papers_optima() {
        // Section 3.2: 45.3, 40.5 and 5.5 MB/s.
        for (lengths, expected) in [
            (Lengths::all(4_000_000), 45.3),
            (Lengths::even(4 << 20), 40.5),
            (Lengths::all(65_536), 5.5),
        ] {
            let optimum = lengths.optimum(RATE, SWITCH_S) / 1e6;
            assert!((optimum / expected - 1.0).abs() < 0.02, "{optimum} {expected}");
        }
    }

    #[test]
    fn the_papers_gain() {
        let lengths = Lengths::all(4 << 20);
        let default = (4 << 20) as f64 / (32.0 * (SWITCH_S + WINDOW_BYTES / RATE));
        let switch_s = lengths.switch_s(default, RATE);
        assert!((switch_s / SWITCH_S - 1.0).abs() < 1e-6);
        // Figure 3: up to two-fold.
        let gain = lengths.competitive(DEPTH, switch_s, RATE) / default;
        assert!((2.0..2.4).contains(&gain), "{gain}");
        let even = Lengths::even(4 << 20);
        assert!(even.competitive(DEPTH, SWITCH_S, RATE) < even.optimum(RATE, SWITCH_S));
    }

    #[test]
    fn where_switches_are_free_nothing_is_gained() {
        let lengths = Lengths::all(4 << 20);
        assert_eq!(lengths.switch_s(2.0 * RATE, RATE), 0.0);
        assert!(lengths.competitive(DEPTH, 0.0, RATE) <= RATE);
    }
}
