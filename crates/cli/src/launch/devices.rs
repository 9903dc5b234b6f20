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
    let mounted = OnceCell::new();
    let profiles = DeviceProfile::all_in(directory).into_iter();
    // Those of disks that have gone take nobody's place.
    let here = profiles.filter_map(|profile| Some((present(&profile.device, &mounted)?, profile)));
    for ((major, minor), profile) in here.take(DEVICES_MAX) {
        let separator = if text.is_empty() { "" } else { "," };
        let device = known_device(&profile, rustix::fs::makedev(major, minor));
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

/// The numbers that the device has now. They change from boot to boot; where
/// the ones that were measured belong to another device, it is looked for
/// among what is mounted, which is looked at once for all.
fn present(device: &Identity, mounted: &OnceCell<Mounted>) -> Option<(u32, u32)> {
    let (major, minor) = (device.major, device.minor);
    if Identity::of_numbers(major, minor).is_some_and(|found| found.id == device.id) {
        return Some((major, minor));
    }
    let mounted = mounted.get_or_init(Identity::mounted);
    mounted.iter().find(|(_, id)| *id == device.id).map(|(numbers, _)| *numbers)
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
/// latency, and the rate that one stream has.
fn known_device(profile: &DeviceProfile, dev: u64) -> KnownDevice {
    let micros = |value: f64| value.round().max(0.0) as u64;
    let kb_s = |mb_s: f64| (mb_s * 1e3).round().max(1.0) as u64;
    let latency_us = profile.latency_us.value;
    let places = &profile.sequential.by_position;
    // Places and distances inside one file are not those of its device.
    let whole = profile.measured.positions == Positions::Device && profile.device.size_bytes != 0;
    match (&profile.seek, places.first(), places.last()) {
        (Some(seek), Some(first), Some(last)) if whole => KnownDevice {
            dev,
            latency_us: micros(profile.revolution_us.map_or(0.0, |turn| turn.value / 2.0)),
            seek_shortest_us: micros(seek.shortest_us.value),
            seek_stroke_us: micros(seek.stroke_us.value),
            first_kb_s: kb_s(first.mb_s.value),
            last_kb_s: kb_s(last.mb_s.value),
            size_mib: profile.device.size_bytes >> 20,
            parallelism: 1,
        },
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
