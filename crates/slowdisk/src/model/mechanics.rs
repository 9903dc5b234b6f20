//! How long one spindle or channel takes for one piece, given where its head is.

use crate::profile::{Positioning, Rate};

const NS_PER_S: u128 = 1_000_000_000;

/// Head and platter of one spindle (or one channel of network storage).
#[derive(Debug, Clone)]
pub struct Mechanics {
    positioning: Positioning,
    rate: Rate,
    /// Bytes on this spindle.
    capacity_bytes: u64,
    /// Byte after the last one transferred.
    head: u64,
    /// Angle of the platter at time 0, as nanoseconds of its revolution.
    phase_ns: u64,
}

/// Time for one piece, and whether it continued the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// Positioning and transfer together, nanoseconds.
    pub duration_ns: u64,
    /// The piece continued the last one on its spindle.
    pub sequential: bool,
}

impl Mechanics {
    /// A spindle of `capacity_bytes` whose head and platter stand where `random` puts them.
    pub fn new(positioning: Positioning, rate: Rate, capacity_bytes: u64, random: u64) -> Self {
        assert!(capacity_bytes > 0 && rate.zones > 0);
        let phase_ns = match positioning {
            Positioning::Curve { revolution_ns, .. } => (random >> 32) % revolution_ns,
            _ => 0,
        };
        // On a 512-byte sector, like every later place of the head.
        let head = random % capacity_bytes / 512 * 512;
        Self { positioning, rate, capacity_bytes, head, phase_ns }
    }

    /// Where the head stands: the byte after the last one transferred.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Serves `len` bytes at `offset`, starting at `start_ns`, and moves the head.
    pub fn serve(&mut self, start_ns: u64, offset: u64, len: u64) -> Service {
        let sequential = offset == self.head;
        let positioning_ns = match self.positioning {
            Positioning::EveryRequest { latency_ns } => latency_ns,
            _ if sequential => 0,
            Positioning::Fixed { latency_ns } => latency_ns,
            Positioning::Curve { .. } => {
                let seek_ns = self.seek_ns(offset);
                seek_ns + self.rotation_ns(start_ns + seek_ns, offset)
            }
        };
        let duration_ns = positioning_ns + transfer_ns(len, self.rate_at(offset));
        self.head = offset + len;
        Service { duration_ns, sequential }
    }

    fn seek_ns(&self, offset: u64) -> u64 {
        let Positioning::Curve { seek_min_ns, seek_mean_ns, revolution_ns } = self.positioning
        else {
            return 0;
        };
        let distance = offset.abs_diff(self.head);
        let track_bytes = u128::from(self.rate_at(offset)) * u128::from(revolution_ns) / NS_PER_S;
        if u128::from(distance) < track_bytes {
            return 0; // On the same track: only the platter has to turn.
        }
        let fraction = (distance as f64 / self.capacity_bytes as f64).min(1.0);
        let slope_ns = seek_mean_ns.saturating_sub(seek_min_ns) as f64 * 15.0 / 8.0;
        seek_min_ns + (slope_ns * fraction.sqrt()).round() as u64
    }

    /// From `now_ns` until `offset` passes under the head.
    fn rotation_ns(&self, now_ns: u64, offset: u64) -> u64 {
        let Positioning::Curve { revolution_ns, .. } = self.positioning else { return 0 };
        // A track holds what passes in one revolution, and tracks are skewed
        // so that sequential bytes follow each other without a gap.
        let in_zone = offset - self.zone(offset) * self.zone_bytes();
        let target_ns = transfer_ns(in_zone, self.rate_at(offset)) % revolution_ns;
        let angle_ns = (now_ns + self.phase_ns) % revolution_ns;
        (target_ns + revolution_ns - angle_ns) % revolution_ns
    }

    fn zone_bytes(&self) -> u64 {
        self.capacity_bytes.div_ceil(u64::from(self.rate.zones))
    }

    fn zone(&self, offset: u64) -> u64 {
        (offset / self.zone_bytes()).min(u64::from(self.rate.zones) - 1)
    }

    /// Bytes per second at `offset`.
    pub fn rate_at(&self, offset: u64) -> u64 {
        let Rate { outer_bytes_per_s: outer, inner_bytes_per_s: inner, zones } = self.rate;
        if zones == 1 {
            return outer;
        }
        let fraction = self.zone(offset) as f64 / f64::from(zones - 1);
        (outer as f64 + fraction * (inner as f64 - outer as f64)).round() as u64
    }
}

/// Nanoseconds to move `bytes` at `bytes_per_s`.
pub fn transfer_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    (u128::from(bytes) * NS_PER_S / u128::from(bytes_per_s.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SplitMix;
    use crate::profile::Profile;

    const CAPACITY: u64 = 8 << 30;

    fn spindle(profile: &str) -> Mechanics {
        let profile = Profile::by_name(profile).unwrap();
        Mechanics::new(profile.positioning, profile.rate, CAPACITY, 7)
    }

    #[test]
    fn a_continued_request_pays_transfer_only() {
        for (profile, expected_ns) in [("array-2003", 204_800), ("hdd", 67_147)] {
            let mut spindle = spindle(profile);
            assert!(!spindle.serve(0, 4096, 4096).sequential);
            let next = spindle.serve(1_000_000_000, 8192, 4096);
            assert_eq!(next, Service { duration_ns: expected_ns, sequential: true }, "{profile}");
        }
    }

    #[test]
    fn network_pays_every_time() {
        let mut channel = spindle("cloud");
        for offset in [0, 4096, 8192, 1 << 30] {
            assert_eq!(channel.serve(0, offset, 4096).duration_ns, 1_020_480);
        }
    }

    #[test]
    fn the_seek_curve_has_the_mean_that_the_profile_names() {
        let mut spindle = spindle("hdd");
        let mut random = SplitMix::new(42);
        let (mut seek_ns, mut rotation_ns, rounds) = (0, 0, 100_000);
        for _ in 0..rounds {
            let (offset, now_ns) = (random.below(CAPACITY), random.below(1 << 40));
            let seek = spindle.seek_ns(offset);
            assert!(seek <= 800_000 + 12_562_500);
            seek_ns += seek;
            rotation_ns += spindle.rotation_ns(now_ns + seek, offset);
            spindle.head = offset;
        }
        let (seek_us, rotation_us) = (seek_ns / rounds / 1000, rotation_ns / rounds / 1000);
        assert!((7_425..=7_575).contains(&seek_us), "mean seek {seek_us} µs");
        assert!((2_970..=3_030).contains(&rotation_us), "mean rotation {rotation_us} µs");
    }

    #[test]
    fn zones_slow_down_inwards_with_the_mean_that_the_profile_names() {
        let spindle = spindle("hdd");
        let rates: Vec<_> = (0..1000).map(|i| spindle.rate_at(i * (CAPACITY / 1000))).collect();
        assert!(rates.windows(2).all(|pair| pair[0] >= pair[1]));
        assert_eq!((rates[0], rates[999]), (61_000_000, 41_000_000));
        let mean = rates.iter().sum::<u64>() / 1000;
        assert!((50_500_000..51_500_000).contains(&mean), "{mean}");
    }

    #[test]
    fn rereading_a_block_waits_for_the_platter_not_for_the_arm() {
        let mut spindle = spindle("hdd");
        let end_ns = 5 + spindle.serve(5, 1 << 20, 4096).duration_ns;
        let again = spindle.serve(end_ns, 1 << 20, 4096);
        assert_eq!(again.duration_ns, 6_000_000, "one whole revolution");
    }
}
