//! Tells the agent what was measured of the devices that are here: the
//! stored profiles whose device is present, by the number that stat(2) gives.

use std::cell::OnceCell;
use std::fmt::Write;
use std::path::Path;

use runahead_device::DeviceProfile;
use runahead_device::identity::Identity;
use runahead_device::profile::{Positions, RandomReads};
use runahead_protocol::session::{DEVICES_MAX, KnownDevice};

/// The devices as the session names them; empty where none was measured.
pub fn known() -> String {
    let Some(directory) = runahead_device::store::directory() else { return String::new() };
    known_in(&directory)
}

fn known_in(directory: &Path) -> String {
    let mut text = String::new();
    for device in devices(&DeviceProfile::all_in(directory)).into_iter().take(DEVICES_MAX) {
        let separator = if text.is_empty() { "" } else { "," };
        let _ = write!(
            text,
            "{separator}{}:{}:{}:{}:{}:{}:{}:{}",
            device.dev,
            device.latency_us,
            device.seek_shortest_us,
            device.seek_stroke_us,
            device.first_kb_s,
            device.last_kb_s,
            device.size_mib,
            device.parallelism,
        );
    }
    text
}

/// What is known of the devices that are here: of those that were measured, and
/// behind them, which take nobody's place, of mounted partitions of disks that
/// were.
fn devices(profiles: &[DeviceProfile]) -> Vec<KnownDevice> {
    let mounted = OnceCell::new();
    let number = |(major, minor)| rustix::fs::makedev(major, minor);
    let mut devices: Vec<KnownDevice> = Vec::new();
    let mut disks = Vec::new();
    // Those of disks that have gone take nobody's place.
    for profile in profiles {
        for numbers in present(profile, &mounted) {
            devices.push(known_device(profile, number(numbers), 0));
            disks.push((numbers, profile));
        }
    }
    let numbers = OnceCell::new();
    for ((major, minor), profile) in disks {
        if devices.len() >= DEVICES_MAX {
            break;
        }
        for (part, start) in Identity::partitions(major, minor) {
            let dev = number(part);
            let is_known = devices.iter().any(|known| known.dev == dev);
            if !is_known && numbers.get_or_init(Identity::mounted_numbers).contains(&part) {
                devices.push(known_device(profile, dev, start));
            }
        }
    }
    devices
}

/// The numbers that the device has now. They change from boot to boot; where
/// the ones that were measured belong to another device, it is looked for
/// among what is mounted, which is looked at once for all, and among the disks
/// of mounted partitions. A file system with several numbers has them all.
fn present(profile: &DeviceProfile, mounted: &OnceCell<Mounted>) -> Vec<(u32, u32)> {
    let (major, minor) = (profile.device.major, profile.device.minor);
    if Identity::of_numbers(major, minor).is_some_and(|found| profile.is_of(&found)) {
        return vec![(major, minor)];
    }
    let mounted = mounted.get_or_init(Identity::mounted);
    let same =
        |(numbers, id): &((u32, u32), String)| (*id == profile.device.id).then_some(*numbers);
    let found: Vec<(u32, u32)> = mounted.iter().filter_map(same).collect();
    if !found.is_empty() {
        return found;
    }
    let disk = |((major, minor), _): &((u32, u32), String)| {
        let (disk, _) = Identity::of_numbers(*major, *minor)?.whole()?;
        profile.is_of(&disk).then_some((disk.major, disk.minor))
    };
    mounted.iter().find_map(disk).into_iter().collect()
}

type Mounted = Vec<((u32, u32), String)>;

/// Requests that are served beside each other. A disk whose queue is sorted
/// serves more of them in a time, but still one after the other.
fn parallelism(profile: &DeviceProfile) -> u64 {
    let parallel = &profile.parallelism;
    if parallel.random_reads != RandomReads::Help
        || profile.seek.is_some()
        || profile.revolution_us.is_some()
    {
        return 1;
    }
    parallel.effective.value.round().max(1.0) as u64
}

/// What the policies need of a profile. On a disk: half a revolution, the
/// seek curve, the rates of the outer and inner zone; where nothing seeks: the
/// latency, and the rate that one stream has. Places on `dev` count from `start`
/// on, in bytes of what was measured: the rates are those from there on.
fn known_device(profile: &DeviceProfile, dev: u64, start: u64) -> KnownDevice {
    let micros = |value: f64| value.round().max(0.0) as u64;
    let kb_s = |mb_s: f64| (mb_s * 1e3).round().max(1.0) as u64;
    let latency_us = profile.latency_us.value;
    let places = &profile.sequential.by_position;
    // Places and distances inside one file are not those of its device.
    let whole = profile.measured.positions == Positions::Device && profile.device.size_bytes != 0;
    match (&profile.seek, places.first(), places.last()) {
        (Some(seek), Some(first), Some(last)) if whole => {
            let (first, last) = (first.mb_s.value, last.mb_s.value);
            let slower = (first - last) * start as f64 / profile.device.size_bytes as f64;
            KnownDevice {
                dev,
                latency_us: micros(profile.revolution_us.map_or(0.0, |turn| turn.value / 2.0)),
                seek_shortest_us: micros(seek.shortest_us.value),
                seek_stroke_us: micros(seek.stroke_us.value),
                first_kb_s: kb_s(first - slower),
                last_kb_s: kb_s(last - slower),
                size_mib: profile.device.size_bytes >> 20,
                parallelism: 1,
            }
        }
        _ => {
            let depth = profile.competitive.depth_bytes.value;
            let rate = if latency_us > 0.0 { kb_s(depth / latency_us) } else { 1 };
            KnownDevice {
                dev,
                latency_us: micros(latency_us),
                first_kb_s: rate,
                last_kb_s: rate,
                parallelism: parallelism(profile),
                ..KnownDevice::default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runahead_device::estimate::Estimate;
    use runahead_device::profile::{
        Competitive, Measurement, Parallelism, Place, Seek, Sequential, VERSION,
    };

    fn exactly(value: f64) -> Estimate {
        Estimate { value, low: value, high: value }
    }

    /// Half as fast at its inner edge as at its outer one.
    fn disk() -> DeviceProfile {
        let mut device = Identity::of(Path::new("/")).unwrap();
        device.size_bytes = 1 << 40;
        let by_position = [(0.0, 200.0), (1.0, 100.0)];
        DeviceProfile {
            version: VERSION,
            device,
            measured: Measurement {
                positions: Positions::Device,
                unix_time_s: 0,
                elapsed_s: 20.0,
                load: 0.8,
                machine_load: None,
                reads: 1000,
                bytes: 1 << 30,
            },
            latency_us: exactly(10_500.0),
            bandwidth_mb_s: exactly(150.0),
            split_bytes: None,
            cut_bytes: None,
            requests: Vec::new(),
            sequential: Sequential {
                mean_mb_s: exactly(150.0),
                by_position: by_position
                    .map(|(position, mb_s)| Place { position, mb_s: exactly(mb_s) })
                    .to_vec(),
            },
            seek: Some(Seek {
                shortest_us: exactly(1000.0),
                stroke_us: exactly(12_000.0),
                mean_us: exactly(7500.0),
                by_distance: Vec::new(),
            }),
            revolution_us: Some(exactly(6000.0)),
            switch_cost_us: exactly(10_500.0),
            parallelism: Parallelism {
                effective: exactly(1.0),
                knee_depth: 1,
                best_depth: 1,
                random_reads: RandomReads::Neither,
                depths: Vec::new(),
            },
            competitive: Competitive { depth_bytes: exactly(1_575_000.0) },
        }
    }

    #[test]
    fn a_partition_has_the_rates_of_its_place() {
        let whole = known_device(&disk(), 1, 0);
        assert_eq!((whole.first_kb_s, whole.last_kb_s), (200_000, 100_000));
        let half = known_device(&disk(), 2, 1 << 39);
        assert_eq!((half.first_kb_s, half.last_kb_s), (150_000, 50_000));
        assert_eq!((half.size_mib, half.seek_stroke_us), (1 << 20, 12_000));
    }
}
