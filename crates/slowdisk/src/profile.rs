//! The profiles: which storage an emulated device stands for.
//!
//! The table is design.md's ("The test bed"). Rates are decimal megabytes per
//! second and belong to one channel ("rate each"): a `cloud` device as a whole
//! moves 32 × 200 MB/s when all its channels are busy.

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Nanoseconds in a millisecond.
pub(crate) const NS_PER_MS: u64 = 1_000_000;
/// Bytes in a decimal megabyte.
const MB: u64 = 1_000_000;

/// What kind of storage serves the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Medium {
    /// Spinning disks behind a stripe: each has its own queue and head.
    Disks,
    /// Network block storage: any free channel takes the next request.
    Network,
    /// Like `Network`, but files are served directly through a FUSE
    /// pass-through, without a block device.
    Object,
    /// No model: an image on the machine's own disk.
    Local,
}

/// Time between the start of a request's service and its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Positioning {
    /// Every request pays the same, wherever it is (network storage).
    EveryRequest {
        /// Nanoseconds paid by each request.
        latency_ns: u64,
    },
    /// A request that does not continue the last one on its spindle pays a
    /// fixed time.
    Fixed {
        /// Nanoseconds of seek and rotation together.
        latency_ns: u64,
    },
    /// Seek curve a + b·√distance, then the rotation to the first sector.
    ///
    /// The distance is a fraction of the spindle; for two independent uniform
    /// places E\[√distance\] = 8/15, so b = (mean − a)·15/8.
    Curve {
        /// a: the shortest seek (track to track), nanoseconds.
        seek_min_ns: u64,
        /// Mean over random pairs of places, nanoseconds; at least `seek_min_ns`.
        seek_mean_ns: u64,
        /// One revolution, nanoseconds; the mean wait is half of it.
        revolution_ns: u64,
    },
}

/// Transfer rate of one channel, in zones from the outer edge (offset 0) inwards.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Bytes per second in the outermost zone.
    pub outer_bytes_per_s: u64,
    /// Bytes per second in the innermost zone.
    pub inner_bytes_per_s: u64,
    /// Number of zones of equal size, at least 1; rates fall linearly.
    pub zones: u32,
}

impl Rate {
    /// The same rate everywhere.
    pub const fn flat(bytes_per_s: u64) -> Self {
        Self { outer_bytes_per_s: bytes_per_s, inner_bytes_per_s: bytes_per_s, zones: 1 }
    }
}

/// In which order a spindle serves the requests that wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discipline {
    /// In order of arrival.
    Fifo,
    /// Circular scan: the next one upwards from the head, then from the
    /// bottom again. A request is passed over a bounded number of times.
    Cscan,
}

impl std::str::FromStr for Discipline {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "fifo" => Ok(Self::Fifo),
            "cscan" => Ok(Self::Cscan),
            _ => Err(format!("unknown queue discipline {s:?}: give fifo or cscan")),
        }
    }
}

/// A named kind of storage.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Profile {
    /// Name given to `--profile`.
    pub name: &'static str,
    /// What it stands for, in a few words.
    pub stands_for: &'static str,
    /// Kind of storage.
    pub medium: Medium,
    /// Spindles or channels; 0 when there is no model.
    pub channels: u32,
    /// Time before the first byte.
    pub positioning: Positioning,
    /// Transfer rate of each channel.
    pub rate: Rate,
    /// Consecutive bytes on one spindle before the next one's turn.
    pub stripe_unit_bytes: u64,
    /// Queue discipline of each spindle (network storage is always FIFO).
    pub discipline: Discipline,
    /// Requests that FUSE lets be in flight in the background (`max_background`).
    pub fuse_limit: u16,
    /// How long requests and replies of a busy device may wait for others, so
    /// that they are handled together, nanoseconds; 0: not at all.
    pub moderation_ns: u64,
}

/// `max_background` for block devices: far above what any profile can use.
pub const FUSE_LIMIT_RAISED: u16 = 1024;
/// The kernel's own `max_background` (fs/fuse/inode.c, FUSE_DEFAULT_MAX_BACKGROUND).
pub const FUSE_LIMIT_DEFAULT: u16 = 12;

/// A tenth of a request's time. On the mean it makes a busy device's request
/// faster by so much, and the way through the kernel and back slower by more.
const MODERATION_NS: u64 = NS_PER_MS / 10;

/// All profiles, in the order of the table.
pub const PROFILES: [Profile; 5] = [
    Profile {
        name: "array-2003",
        stands_for: "the papers' machines: 4 disks (7 for swap and the compiler's programs), \
                     12 ms when not sequential, 20 MB/s each",
        medium: Medium::Disks,
        channels: 4,
        positioning: Positioning::Fixed { latency_ns: 12 * NS_PER_MS },
        rate: Rate::flat(20 * MB),
        stripe_unit_bytes: 64 << 10,
        discipline: Discipline::Cscan,
        fuse_limit: FUSE_LIMIT_RAISED,
        moderation_ns: 0,
    },
    Profile {
        name: "hdd",
        stands_for: "one spinning disk: 7.5 ms mean seek + 3 ms mean rotation, 51 MB/s in zones",
        medium: Medium::Disks,
        channels: 1,
        positioning: Positioning::Curve {
            seek_min_ns: 800_000,
            seek_mean_ns: 7_500_000,
            revolution_ns: 6 * NS_PER_MS,
        },
        rate: Rate { outer_bytes_per_s: 61 * MB, inner_bytes_per_s: 41 * MB, zones: 16 },
        stripe_unit_bytes: 64 << 10,
        discipline: Discipline::Cscan,
        fuse_limit: FUSE_LIMIT_RAISED,
        moderation_ns: 0,
    },
    Profile {
        name: "cloud",
        stands_for: "network block storage: 32 channels, 1 ms every request, 200 MB/s each",
        medium: Medium::Network,
        channels: 32,
        positioning: Positioning::EveryRequest { latency_ns: NS_PER_MS },
        rate: Rate::flat(200 * MB),
        stripe_unit_bytes: 0,
        discipline: Discipline::Fifo,
        fuse_limit: FUSE_LIMIT_RAISED,
        moderation_ns: MODERATION_NS,
    },
    Profile {
        name: "object",
        stands_for: "an object store through a FUSE pass-through: 64 channels, 30 ms every \
                     request, 50 MB/s each",
        medium: Medium::Object,
        channels: 64,
        positioning: Positioning::EveryRequest { latency_ns: 30 * NS_PER_MS },
        rate: Rate::flat(50 * MB),
        stripe_unit_bytes: 0,
        discipline: Discipline::Fifo,
        fuse_limit: FUSE_LIMIT_DEFAULT,
        moderation_ns: 0,
    },
    Profile {
        name: "nvme",
        stands_for: "local flash: an image on the machine's own disk, direct I/O, no model",
        medium: Medium::Local,
        channels: 0,
        positioning: Positioning::EveryRequest { latency_ns: 0 },
        rate: Rate::flat(1),
        stripe_unit_bytes: 0,
        discipline: Discipline::Fifo,
        fuse_limit: FUSE_LIMIT_RAISED,
        moderation_ns: 0,
    },
];

impl Profile {
    /// The profile of that name.
    ///
    /// # Errors
    /// [`Error::UnknownProfile`], which lists the names there are.
    pub fn by_name(name: &str) -> Result<Self, Error> {
        PROFILES.iter().copied().find(|p| p.name == name).ok_or_else(|| Error::UnknownProfile {
            name: name.to_owned(),
            known: PROFILES.map(|p| p.name).join(", "),
        })
    }

    /// The profile with every time multiplied by `factor` (rates divided by it).
    ///
    /// `factor` is above 0; 1 leaves the profile as it is.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        assert!(factor.is_finite() && factor > 0.0, "scale factor {factor} out of range");
        let time = |ns: u64| (ns as f64 * factor).round() as u64;
        self.positioning = match self.positioning {
            Positioning::EveryRequest { latency_ns } => {
                Positioning::EveryRequest { latency_ns: time(latency_ns) }
            }
            Positioning::Fixed { latency_ns } => {
                Positioning::Fixed { latency_ns: time(latency_ns) }
            }
            Positioning::Curve { seek_min_ns, seek_mean_ns, revolution_ns } => Positioning::Curve {
                seek_min_ns: time(seek_min_ns),
                seek_mean_ns: time(seek_mean_ns),
                revolution_ns: time(revolution_ns).max(1),
            },
        };
        self.moderation_ns = time(self.moderation_ns);
        let rate = |bytes_per_s: u64| ((bytes_per_s as f64 / factor).round() as u64).max(1);
        self.rate.outer_bytes_per_s = rate(self.rate.outer_bytes_per_s);
        self.rate.inner_bytes_per_s = rate(self.rate.inner_bytes_per_s);
        self
    }

    /// Time that one isolated random request of `bytes` takes on the mean, in
    /// nanoseconds, on the middle zone.
    pub fn mean_random_ns(&self, bytes: u64) -> u64 {
        let positioning_ns = match self.positioning {
            Positioning::EveryRequest { latency_ns } | Positioning::Fixed { latency_ns } => {
                latency_ns
            }
            Positioning::Curve { seek_mean_ns, revolution_ns, .. } => {
                seek_mean_ns + revolution_ns / 2
            }
        };
        let rate = u64::midpoint(self.rate.outer_bytes_per_s, self.rate.inner_bytes_per_s);
        positioning_ns + bytes * 1_000_000_000 / rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for profile in PROFILES {
            assert_eq!(Profile::by_name(profile.name).unwrap(), profile);
        }
        let error = Profile::by_name("floppy").unwrap_err().to_string();
        assert!(error.contains("array-2003") && error.contains("nvme"), "{error}");
    }

    #[test]
    fn scaling_multiplies_times() {
        let cloud = Profile::by_name("cloud").unwrap();
        assert_eq!(cloud.scaled(1.0), cloud);
        let slow = cloud.scaled(10.0);
        assert_eq!(slow.mean_random_ns(4096), 10 * cloud.mean_random_ns(4096));
    }
}
