//! What the paper's model gives (Li et al. 2004, sections 2 and 3.2), for the
//! switch cost that was measured.
//!
//! A device or an elevator that sorts its queue shortens the switch the more
//! requests wait. So C_switch is taken from what the default's own requests
//! took at the same concurrency, beyond their transfer, for each time that the
//! head had to change its place. (Today's kernel asks for the next window when
//! the first page of the last is touched, two windows ahead of 2004's: on a disk
//! that sorts, or behind a scheduler that serves one thread several times in a
//! row, several windows of a stream follow each other, and only the first of
//! them is a switch.)

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

    /// Throughput of competitive prefetching with slow start, bytes/s.
    pub fn competitive(&self, depth_bytes: f64, switch_s: f64, bytes_per_s: f64) -> f64 {
        let of = |length| runs(length, FIRST_BYTES, depth_bytes);
        let switches = self.mean(|length| of(length).0);
        let bytes = self.mean(|length| of(length).1);
        self.mean(|length| length) / (switches * switch_s + bytes / bytes_per_s)
    }
}

/// The switch cost of a device that was busy all the time, seconds: what its
/// requests took for each byte that was used of them, beyond the transfer of
/// `read` bytes, in `switches`.
pub fn switch_s(used_per_s: f64, read: f64, switches: f64, bytes_per_s: f64) -> f64 {
    ((1.0 / used_per_s - read / bytes_per_s) / switches.max(f64::MIN_POSITIVE)).max(0.0)
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
    /// Linux's default.
    const WINDOW_BYTES: f64 = 131_072.0;
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
        let switch_s = switch_s(default, 1.0, 1.0 / WINDOW_BYTES, RATE);
        assert!((switch_s / SWITCH_S - 1.0).abs() < 1e-6);
        // Figure 3: up to two-fold.
        let gain = lengths.competitive(DEPTH, switch_s, RATE) / default;
        assert!((2.0..2.4).contains(&gain), "{gain}");
        let even = Lengths::even(4 << 20);
        assert!(even.competitive(DEPTH, SWITCH_S, RATE) < even.optimum(RATE, SWITCH_S));
    }

    /// Windows that the kernel reads behind the ends of streams are no dearer
    /// switches.
    #[test]
    fn what_is_read_in_vain_is_no_switch() {
        let (read, windows) = (1.25 * WINDOW_BYTES * 8.0, 10.0);
        let used = WINDOW_BYTES * 8.0;
        let default = used / (windows * SWITCH_S + read / RATE);
        let found = switch_s(default, read / used, windows / used, RATE);
        assert!((found / SWITCH_S - 1.0).abs() < 1e-6, "{found}");
    }

    #[test]
    fn where_switches_are_free_nothing_is_gained() {
        let lengths = Lengths::all(4 << 20);
        assert_eq!(switch_s(2.0 * RATE, 1.0, 1.0 / WINDOW_BYTES, RATE), 0.0);
        assert!(lengths.competitive(DEPTH, 0.0, RATE) <= RATE);
    }
}
