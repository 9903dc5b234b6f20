//! What is known of a device after it was measured. Field names are the keys
//! of the JSON: stable, units last, times in microseconds, rates in decimal
//! megabytes (10⁶ bytes) per second.

use serde::{Deserialize, Serialize};

use crate::estimate::Estimate;
use crate::identity::Identity;

/// Version of the stored form; profiles of another one are not read.
pub const VERSION: u32 = 1;

/// A device's parameters, each with its 95% interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceProfile {
    /// [`VERSION`].
    pub version: u32,
    /// Which device.
    pub device: Identity,
    /// How it was measured.
    pub measured: Measurement,
    /// Time of a random request of no bytes: on a disk seek and rotation, on a
    /// network volume the way there and back (intercept of the fit).
    pub latency_us: Estimate,
    /// Rate at which one request is transferred (slope of the fit).
    pub bandwidth_mb_s: Estimate,
    /// Request size from which several servers work at one request.
    pub split_bytes: Option<u64>,
    /// Request size from which a request is cut into pieces that are served one
    /// after the other.
    #[serde(default)]
    pub cut_bytes: Option<u64>,
    /// The points of the fit.
    pub requests: Vec<SizeTime>,
    /// One stream, one request at a time.
    pub sequential: Sequential,
    /// Seek curve; null where time does not depend on distance.
    pub seek: Option<Seek>,
    /// One turn of the platter; null where nothing turns or a cache hides it.
    pub revolution_us: Option<Estimate>,
    /// C_switch: what the first request of another stream takes more than the
    /// next one of its own.
    pub switch_cost_us: Estimate,
    /// Throughput over depth.
    pub parallelism: Parallelism,
    /// Competitive prefetching's depth.
    pub competitive: Competitive,
}

/// How a profile was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// What the positions are.
    pub positions: Positions,
    /// When, seconds since 1970.
    pub unix_time_s: u64,
    /// How long it took, seconds.
    pub elapsed_s: f64,
    /// Limit on the device's busy share, 0 to 1.
    pub load: f64,
    /// Load average of the machine before it; null where nobody looked. Above
    /// the number of processors times come out too long, beyond the intervals.
    pub machine_load: Option<f64>,
    /// Reads made.
    pub reads: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// What was read, and so what "position" and "distance" mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Positions {
    /// The block device itself: all of it.
    Device,
    /// A file, past the page cache: distances are those inside the file.
    File,
    /// A file, through the page cache, its pages given back before each read.
    CachedFile,
}

impl Positions {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Positions::Device => "the device itself, past the page cache",
            Positions::File => "one file, past the page cache (distances inside that file only)",
            Positions::CachedFile => {
                "one file through the page cache, emptied before each read (no direct I/O here)"
            }
        }
    }
}

/// Mean time of random requests of one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SizeTime {
    /// Size.
    pub bytes: u64,
    /// Time.
    pub time_us: Estimate,
    /// Requests measured.
    pub samples: usize,
}

/// Rate of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sequential {
    /// Over the whole.
    pub mean_mb_s: Estimate,
    /// By position: zones.
    pub by_position: Vec<Place>,
}

impl Sequential {
    /// Rate at a position (share of the size, 0 to 1), MB/s: on the straight line
    /// between those that were measured on both sides of it, and the nearest one's
    /// beyond them.
    pub fn mb_s_at(&self, position: f64) -> f64 {
        let after = self.by_position.partition_point(|place| place.position <= position);
        let place = |index: usize| self.by_position.get(index);
        match (after.checked_sub(1).and_then(place), place(after)) {
            (Some(low), Some(high)) => {
                let share = (position - low.position) / (high.position - low.position);
                low.mb_s.value + share * (high.mb_s.value - low.mb_s.value)
            }
            (Some(only), None) | (None, Some(only)) => only.mb_s.value,
            (None, None) => self.mean_mb_s.value,
        }
    }
}

/// Rate at one position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// Share of the size, 0 to 1.
    pub position: f64,
    /// Rate there.
    pub mb_s: Estimate,
}

/// Seek time = shortest + stroke·√distance, distance as a share of the whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Seek {
    /// To the next track.
    pub shortest_us: Estimate,
    /// What a full stroke takes more.
    pub stroke_us: Estimate,
    /// Between two independent random places.
    pub mean_us: Estimate,
    /// The measured curve.
    pub by_distance: Vec<SeekPoint>,
}

/// Mean seek time around one distance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeekPoint {
    /// Share of the whole, 0 to 1.
    pub distance: f64,
    /// Time without the rotation.
    pub time_us: Estimate,
    /// Reads measured.
    pub samples: usize,
}

/// What requests at once bring.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parallelism {
    /// Requests served at once at the best throughput (Little's law).
    pub effective: Estimate,
    /// Smallest depth with nine tenths of the best throughput: what policies use.
    pub knee_depth: u32,
    /// Depth of the best throughput.
    pub best_depth: u32,
    /// The verdict on parallel random reads.
    pub random_reads: RandomReads,
    /// Throughput of random pages over depth.
    pub depths: Vec<Depth>,
}

/// Whether parallel random reads raise throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RandomReads {
    /// By a tenth or more.
    Help,
    /// No difference worth a word.
    Neither,
    /// They lower it.
    Hurt,
}

/// Throughput at one depth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Depth {
    /// Requests at once.
    pub depth: u32,
    /// Random pages per second.
    pub reads_per_s: Estimate,
}

/// Li, Papathanasiou and Shen 2004, equation 5.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Competitive {
    /// S_p = C_switch · R_tr, bytes; a random read's latency stands for C_switch.
    pub depth_bytes: Estimate,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_lie_on_lines_between_places() {
        let rate = |value| Estimate { value, low: value, high: value };
        let by_position = [(0.0, 60.0), (0.5, 50.0), (1.0, 45.0)];
        let by_position = by_position.map(|(position, mb_s)| Place { position, mb_s: rate(mb_s) });
        let mut sequential =
            Sequential { mean_mb_s: rate(51.0), by_position: by_position.to_vec() };
        for (position, mb_s) in [(0.0, 60.0), (0.25, 55.0), (0.5, 50.0), (0.9, 46.0), (1.0, 45.0)] {
            assert!((sequential.mb_s_at(position) - mb_s).abs() < 1e-9, "{position}");
        }
        assert_eq!((sequential.mb_s_at(-1.0), sequential.mb_s_at(2.0)), (60.0, 45.0));
        sequential.by_position.clear();
        assert_eq!(sequential.mb_s_at(0.5), 51.0);
    }
}
