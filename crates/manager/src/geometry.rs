//! How many disks a file lies on, and how long one takes.
//!
//! In this order: `RUNAHEAD_ARRAY=DISKS[:UNIT_KIB]`; the limits that
//! striped devices (md, LVM) show in sysfs; the stored measurement of `runahead profile`;
//! else a guess that the engine corrects by what it sees.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use runahead_device::DeviceProfile;

/// Disks in the array as far as prefetching is concerned: what serves requests at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Requests that are served at a time, 1 to [`DISKS_MAX`].
    pub disks: u16,
    /// Consecutive bytes on one disk.
    pub stripe_unit: u64,
    /// T_disk to begin with, in microseconds; measured while running.
    pub latency_us: u32,
}

/// Most disks that are told apart: beyond, they are counted as this many.
pub const DISKS_MAX: u16 = 32;

/// What is said of the disks beside what they say themselves. The environment names it, which
/// is read by others: in a thread that a program does not know it is not for reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Disks and stripe unit, by [`Given::parse_array`].
    pub array: Option<(u16, u64)>,
    /// The directory of stored profiles, by [`profiles`].
    pub profiles: Option<PathBuf>,
}

impl Given {
    /// `DISKS[:UNIT_KIB]`, as in `RUNAHEAD_ARRAY`; none for what makes no sense.
    pub fn parse_array(text: &OsStr) -> Option<(u16, u64)> {
        parse(text.to_str()?)
    }
}

/// The directory that the environment names for the profiles of `runahead profile`.
pub fn profiles() -> Option<PathBuf> {
    runahead_device::store::directory()
}

const STRIPE_UNIT: u64 = 65536;
/// Where nothing is known of a device: flash and network storage serve several at a time.
const DISKS_UNKNOWN: u16 = 8;
const LATENCY_UNKNOWN_US: u32 = 1000;
const LATENCY_ROTATIONAL_US: u32 = 10_000;

impl Geometry {
    /// The array below an open file: `path` names it, `device` is its `st_dev`.
    pub fn of(path: &Path, device: u64, given: &Given) -> Self {
        let profiles = given.profiles.as_deref();
        let profile = profiles.and_then(|profiles| DeviceProfile::load_from(profiles, path));
        let latency_us = profile.as_ref().map(|p| p.latency_us.value as u32);
        let queue = queue_directory(device);
        let rotational = queue.as_ref().is_some_and(|queue| queue.get("rotational") == Some(1));
        let (disks, stripe_unit) = given
            .array
            .or_else(|| queue.as_ref().and_then(Queue::striped))
            .or_else(|| {
                let parallelism = profile.as_ref()?.parallelism.effective.value;
                Some((parallelism.round().clamp(1.0, f64::from(DISKS_MAX)) as u16, STRIPE_UNIT))
            })
            .unwrap_or((if rotational { 1 } else { DISKS_UNKNOWN }, STRIPE_UNIT));
        let unknown = if rotational { LATENCY_ROTATIONAL_US } else { LATENCY_UNKNOWN_US };
        Self {
            disks: disks.clamp(1, DISKS_MAX),
            stripe_unit,
            latency_us: latency_us.unwrap_or(unknown).max(1),
        }
    }
}

/// `DISKS[:UNIT_KIB]`.
fn parse(text: &str) -> Option<(u16, u64)> {
    let (disks, unit) = match text.split_once(':') {
        Some((disks, unit)) => (disks, unit.parse::<u64>().ok()?.checked_mul(1024)?),
        None => (text, STRIPE_UNIT),
    };
    let disks = disks.parse().ok().filter(|&disks| disks > 0)?;
    (unit >= 4096).then_some((disks, unit))
}

struct Queue(std::path::PathBuf);

fn queue_directory(device: u64) -> Option<Queue> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let directory = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let own = directory.join("queue");
    // A partition's queue is the whole disk's.
    let queue = if own.exists() { own } else { directory.parent()?.join("queue") };
    queue.exists().then_some(Queue(queue))
}

impl Queue {
    fn get(&self, name: &str) -> Option<u64> {
        fs::read_to_string(self.0.join(name)).ok()?.trim().parse().ok()
    }

    /// Striped devices show their unit as the least and their width as the best I/O size.
    fn striped(&self) -> Option<(u16, u64)> {
        let (unit, width) = (self.get("minimum_io_size")?, self.get("optimal_io_size")?);
        let striped = unit >= 16384 && width > unit && width.is_multiple_of(unit);
        striped.then(|| ((width / unit).min(u64::from(DISKS_MAX)) as u16, unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_read_strictly() {
        assert_eq!(parse("4"), Some((4, 65536)));
        assert_eq!(parse("10:128"), Some((10, 131_072)));
        for wrong in ["", "0", "x", "4:", "4:1", "-1", "4:99999999999999999999"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn every_path_has_a_geometry() {
        let geometry = Geometry::of(Path::new("/"), 0, &Given::default());
        assert!((1..=DISKS_MAX).contains(&geometry.disks) && geometry.latency_us > 0);
        let array = Given::parse_array("3:128".as_ref());
        let given = Geometry::of(Path::new("/"), 0, &Given { array, profiles: None });
        assert_eq!((given.disks, given.stripe_unit), (3, 131_072));
    }
}
