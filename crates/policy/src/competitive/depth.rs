//! The competitive depth of a device (Li et al., section 2): seek time over
//! distance, transfer rate over position, both measured offline
//! (`runahead profile`), and the moving average of the seek distance.

/// Largest depth where nothing but the stalls themselves is known, in bytes.
pub const DEPTH_BYTES_MAX: u64 = 256 * 1024;

/// Largest depth on a device that has been measured, in bytes.
pub const DEPTH_BYTES_MEASURED_MAX: u64 = 4 << 20;

/// Throughput that is assumed where none has been measured, in bytes/s.
const BYTES_PER_S_ASSUMED: u64 = 250_000_000;

/// One, in the fixed-point numbers of this module.
const ONE: u64 = 1 << 20;

/// Root of the distance between two independent random places, as a share of
/// the whole: its mean is 8/15.
const MEAN_ROOT: u64 = ONE * 8 / 15;

/// The competitive depth `S_p = C_switch × R_tr` (Li et al., section 2,
/// equation 5), in bytes, at most [`DEPTH_BYTES_MAX`].
///
/// * `switch_ns`: what a request costs before its first byte, as a stall
///   shows it.
/// * `bytes_per_s`: transfer rate; 0: unknown.
pub fn depth_bytes(switch_ns: u64, bytes_per_s: u64) -> u64 {
    let rate = if bytes_per_s == 0 { BYTES_PER_S_ASSUMED } else { bytes_per_s };
    transferred(switch_ns, rate).min(DEPTH_BYTES_MAX)
}

/// Bytes that are transferred in `ns`.
fn transferred(ns: u64, bytes_per_s: u64) -> u64 {
    let bytes = u128::from(ns) * u128::from(bytes_per_s) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// What was measured of a device. All-zero: nothing was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// What every switch costs besides seeking, in ns: half a revolution, or
    /// the latency of a network volume.
    pub latency_ns: u64,
    /// Shortest seek, in ns.
    pub seek_shortest_ns: u64,
    /// What a seek over the whole device takes more, in ns; 0: distance makes
    /// no difference.
    pub seek_stroke_ns: u64,
    /// Transfer rate at the beginning, in bytes/s; 0: not measured.
    pub first_bytes_per_s: u64,
    /// Transfer rate at the end, in bytes/s; it changes linearly in between.
    pub last_bytes_per_s: u64,
    /// Size, in bytes; 0: unknown, and position makes no difference.
    pub size_bytes: u64,
    /// Requests that it serves beside each other at most; 0 or 1: one after
    /// the other.
    pub parallelism: u64,
}

impl Device {
    /// Whether it has been measured.
    pub fn is_known(&self) -> bool {
        self.first_bytes_per_s != 0
    }

    /// Whether position and distance make a difference.
    pub fn has_places(&self) -> bool {
        self.seek_stroke_ns != 0 && self.size_bytes != 0
    }

    /// Whether it serves requests beside each other: there a switch costs the
    /// stream that waits for it, and no other one.
    pub fn is_parallel(&self) -> bool {
        self.parallelism > 1 && !self.has_places()
    }

    /// `C_switch` for a seek over `distance` bytes, in ns: f_seek(distance)
    /// and the mean rotational delay. `None`: the mean over random places.
    pub fn switch_ns(&self, distance: Option<u64>) -> u64 {
        let root = match distance {
            Some(bytes) if self.size_bytes != 0 => {
                let share = u128::from(bytes.min(self.size_bytes)) * u128::from(ONE)
                    / u128::from(self.size_bytes);
                (share as u64 * ONE).isqrt()
            }
            _ => MEAN_ROOT,
        };
        let stroke_ns = u128::from(self.seek_stroke_ns) * u128::from(root) / u128::from(ONE);
        self.latency_ns
            .saturating_add(self.seek_shortest_ns)
            .saturating_add(u64::try_from(stroke_ns).unwrap_or(u64::MAX))
    }

    /// `R_tr` at a position, in bytes/s: f_transfer(position). `None`: in the
    /// middle.
    pub fn bytes_per_s(&self, position: Option<u64>) -> u64 {
        let (first, last) = (self.first_bytes_per_s, self.last_bytes_per_s);
        let position = position.unwrap_or(self.size_bytes / 2).min(self.size_bytes);
        let share = match self.size_bytes {
            0 => ONE / 2,
            size => (u128::from(position) * u128::from(ONE) / u128::from(size)) as u64,
        };
        let part = u128::from(first.abs_diff(last)) * u128::from(share) / u128::from(ONE);
        if last < first { first - part as u64 } else { first.saturating_add(part as u64) }
    }

    /// `S_p` at a position for switches of `switch_ns`, in bytes, at most
    /// [`DEPTH_BYTES_MEASURED_MAX`].
    pub fn depth_bytes(&self, switch_ns: u64, position: Option<u64>) -> u64 {
        transferred(switch_ns, self.bytes_per_s(position)).min(DEPTH_BYTES_MEASURED_MAX)
    }
}

/// The exponentially weighted moving average of the seek distance, D_seek
/// (section 2; weight 1/8). All-zero is a valid start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeekDistance {
    /// Where the last request ended, in bytes.
    head: u64,
    /// The average, in bytes.
    mean: u64,
    /// Requests seen, up to [`SEEKS_MIN`].
    seen: u32,
}

/// Seeks before the average is believed.
const SEEKS_MIN: u32 = 8;

impl SeekDistance {
    /// Nothing seen.
    pub const NONE: SeekDistance = SeekDistance { head: 0, mean: 0, seen: 0 };

    /// A request of `len` bytes at `position` is being made.
    pub fn request(&mut self, position: u64, len: u64) {
        let distance = position.abs_diff(self.head);
        self.head = position.saturating_add(len);
        if self.seen == 0 {
            self.seen = 1;
            return;
        }
        self.mean = match self.seen {
            1 => distance,
            _ => self.mean - self.mean / 8 + distance / 8,
        };
        self.seen = (self.seen + 1).min(SEEKS_MIN);
    }

    /// How far `position` is from where the last request ended.
    pub fn distance(&self, position: u64) -> Option<u64> {
        (self.seen != 0).then(|| position.abs_diff(self.head))
    }

    /// The average, once there are enough requests.
    pub fn mean(&self) -> Option<u64> {
        (self.seen >= SEEKS_MIN).then_some(self.mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's IBM drive: 7.53 ms + 3 ms, 51.3 MB/s on the mean.
    const DRIVE: Device = Device {
        latency_ns: 3_000_000,
        seek_shortest_ns: 800_000,
        seek_stroke_ns: 12_618_750,
        first_bytes_per_s: 61_300_000,
        last_bytes_per_s: 41_300_000,
        size_bytes: 36_400_000_000,
        parallelism: 1,
    };

    #[test]
    fn depth_is_switch_cost_times_rate() {
        assert_eq!(depth_bytes(10_500_000, 51_000_000), DEPTH_BYTES_MAX);
        assert_eq!(depth_bytes(1_000_000, 200_000_000), 200_000);
        assert_eq!(depth_bytes(60_000, 0), 15_000);
        assert_eq!(depth_bytes(u64::MAX, u64::MAX), DEPTH_BYTES_MAX);
    }

    #[test]
    fn the_papers_drive_justifies_540_kb() {
        let depth = DRIVE.depth_bytes(DRIVE.switch_ns(None), None);
        assert!((535_000..=545_000).contains(&depth), "{depth}");
    }

    #[test]
    fn near_seeks_and_inner_zones_are_shallower() {
        let depth = |distance, at| DRIVE.depth_bytes(DRIVE.switch_ns(Some(distance)), Some(at));
        let far = depth(DRIVE.size_bytes, 0);
        let near = depth(DRIVE.size_bytes / 1000, 0);
        let inner = depth(DRIVE.size_bytes, DRIVE.size_bytes);
        assert!(near < inner && inner < far, "{near} {inner} {far}");
        assert_eq!(DRIVE.bytes_per_s(Some(u64::MAX)), 41_300_000);
        assert_eq!(DRIVE.switch_ns(Some(0)), 3_800_000);
        assert_eq!(DRIVE.switch_ns(Some(u64::MAX)), 16_418_750);
    }

    #[test]
    fn a_network_volume_has_no_places() {
        let volume = Device {
            latency_ns: 1_000_000,
            first_bytes_per_s: 200_000_000,
            last_bytes_per_s: 200_000_000,
            ..Device::default()
        };
        assert!(volume.is_known() && !volume.has_places());
        assert_eq!(volume.depth_bytes(volume.switch_ns(Some(1)), Some(1)), 200_000);
        assert!(!Device::default().is_known());
    }

    #[test]
    fn the_average_follows_the_seeks() {
        let mut seeks = SeekDistance::default();
        for turn in 0..100u64 {
            seeks.request(if turn.is_multiple_of(2) { 0 } else { 1_000_000 }, 0);
        }
        let mean = seeks.mean().unwrap();
        assert!((999_000..=1_000_000).contains(&mean), "{mean}");
        for position in 0..100u64 {
            seeks.request(position * 4096, 4096);
        }
        assert!(seeks.mean().unwrap() < 1000);
    }
}
