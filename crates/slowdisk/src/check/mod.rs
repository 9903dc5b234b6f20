//! Proving the bed: what a device does, measured from outside, against what
//! the model says it should do.

mod load;
mod predict;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::down::clear_orphans;
use crate::error::{Context, Error, Result};
use crate::handle::SlowDisk;
use crate::options::{FileSystem, UpOptions};
use crate::profile::{Medium, PROFILES, Profile};
use crate::state::{self, Lock, is_locked};
use load::{Measured, Target};

/// Numbers of requests kept in flight.
const DEPTHS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Up to here the channels must be usable; beyond, two CPUs may be the limit.
const DEPTH_PROVEN_MAX: usize = 32;
/// Least share of the model's rate that must be measured.
const RATE_SHARE_MIN: f64 = 0.75;
/// Most: no device may be faster than its model, as far as a second can tell
/// (disks: as far as a sample of their seeks can).
const RATE_SHARE_MAX: f64 = 1.1;
/// Most that one isolated request may take beyond the model, as a share of it.
const LATENCY_EXCESS_MAX: f64 = 0.25;
/// Least that it may take: no device may be faster than its model, but a
/// sample of a disk's seeks may have a smaller mean.
const LATENCY_SHARE_MIN: f64 = 0.9;
/// Bytes of a random request.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Bytes of a sequential request.
const CHUNK_BYTES: u64 = 1 << 20;
/// Size of the devices that are checked. They are in memory, and full.
const SIZE_BYTES: u64 = 256 << 20;
/// The same of the machine's own disk, which has a cache.
const LOCAL_SIZE_BYTES: u64 = 1 << 30;

/// What to check, and how long.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// Names of profiles; all of them when empty.
    pub profiles: Vec<String>,
    /// How long each depth is measured; disks three times as long.
    pub each: Duration,
    /// `max_background`, if not the profile's; the machine's own disk has none.
    pub fuse_limit: Option<u16>,
    /// Seed of the device and of the offsets.
    pub seed: u64,
    /// As in [`UpOptions`].
    pub daemon: Option<PathBuf>,
}

/// One number of requests in flight.
#[derive(Debug, Clone, Serialize)]
pub struct DepthReport {
    /// Requests kept in flight.
    pub depth: usize,
    /// Requests measured.
    pub requests: u64,
    /// Requests per second.
    pub requests_per_s: f64,
    /// What the model says, requests per second; none without a model.
    pub model_requests_per_s: Option<f64>,
    /// Mean latency as the reader saw it, microseconds.
    pub latency_us: f64,
    /// What the model says, microseconds.
    pub model_latency_us: Option<f64>,
    /// CPU time of the serving process per request, microseconds.
    pub server_cpu_us: Option<f64>,
    /// CPU time of the whole machine per request, microseconds: the server's,
    /// the kernel's workers', the reader's, and whatever else ran.
    pub machine_cpu_us: f64,
    /// At least 75% of the model's rate, and at most 110%; true where nothing is
    /// demanded.
    pub pass: bool,
}

/// What was found about one profile.
#[derive(Debug, Clone, Serialize)]
pub struct ProfileReport {
    /// Its name.
    pub profile: String,
    /// Requests that can be served at once: channels, and what FUSE allows.
    pub parallel: u32,
    /// Random reads at each depth.
    pub depths: Vec<DepthReport>,
    /// Sequential reads, megabytes per second.
    pub sequential_mb_s: f64,
    /// What the model says.
    pub model_sequential_mb_s: Option<f64>,
    /// Mean latency at depth 1 beyond the model's, as a share of it.
    pub latency_excess: Option<f64>,
    /// Most requests in flight that the device saw.
    pub in_flight_max: Option<u64>,
    /// Load average of the last minute before the check: above about 0.5 the
    /// machine was busy with something else, and failures may be its doing.
    pub load_before: f64,
    /// What is wrong; empty when the bed can be trusted.
    pub failures: Vec<String>,
}

impl ProfileReport {
    /// Whether the bed does what the profile says.
    pub fn pass(&self) -> bool {
        self.failures.is_empty()
    }
}

/// Brings each profile up, measures it, takes it down; `each` is told of every report.
///
/// # Errors
/// If a device cannot be brought up or read. A device that does not do what
/// its model says is not an error but a report with failures.
pub fn check(
    options: &CheckOptions,
    mut each: impl FnMut(&ProfileReport),
) -> Result<Vec<ProfileReport>> {
    let mut names: Vec<&str> = options.profiles.iter().map(String::as_str).collect();
    if names.is_empty() {
        names = PROFILES.iter().map(|profile| profile.name).collect();
    }
    // Unknown names before the first device is up.
    names.iter().try_for_each(|name| Profile::by_name(name).map(drop))?;
    {
        let _lock = Lock::take()?;
        clear_orphans();
    }
    let scratch = Scratch::new()?;
    // Once: later ones would count our own readers.
    let load_before = load_average();
    names
        .into_iter()
        .map(|name| {
            let report = check_profile(name, options, &scratch.path)?;
            let report = judge(ProfileReport { load_before, ..report });
            each(&report);
            Ok(report)
        })
        .collect()
}

fn check_profile(name: &str, options: &CheckOptions, scratch: &Path) -> Result<ProfileReport> {
    let profile = Profile::by_name(name)?;
    let mut up = UpOptions::new(name, scratch.join(name));
    up.seed = options.seed;
    up.fuse_limit = options.fuse_limit.filter(|_| has_model(&profile));
    up.daemon.clone_from(&options.daemon);
    let profile = up.resolve()?;
    let size_bytes = size_bytes(&profile);
    up.size_bytes = size_bytes;
    if profile.medium == Medium::Object {
        let backing = scratch.join(format!("{name}-backing"));
        load::write_object(&backing, size_bytes)?;
        up.backing = Some(backing);
    } else {
        up.fs = FileSystem::None;
    }
    let disk = SlowDisk::up(&up)?;
    let each = duration(&profile, options);
    let target = Target::of(&disk, size_bytes, options.seed)?;
    if disk.device().is_some() {
        fill(&disk, &profile, size_bytes)?;
    }
    let mut depths = Vec::new();
    for depth in DEPTHS {
        depths.push(check_depth(&disk, &profile, &target, depth, options)?);
    }
    drop(target); // An open file would keep it from going cold.
    disk.cold()?;
    let target = Target::of(&disk, size_bytes, options.seed)?;
    let sequential = target.sequential(CHUNK_BYTES, each)?;
    drop(target);
    let in_flight_max =
        if has_model(&profile) { Some(disk.stats()?.device.in_flight_max) } else { None };
    let report = ProfileReport {
        profile: name.to_owned(),
        parallel: parallel(&profile),
        latency_excess: depths[0]
            .model_latency_us
            .map(|model_us| depths[0].latency_us / model_us - 1.0),
        depths,
        sequential_mb_s: sequential.mb_per_s(CHUNK_BYTES),
        model_sequential_mb_s: has_model(&profile).then(|| {
            predict::sequential(&profile, size_bytes, options.seed, each).mb_per_s(CHUNK_BYTES)
        }),
        in_flight_max,
        load_before: 0.0,
        failures: Vec::new(),
    };
    disk.down(false)?;
    Ok(report)
}

fn size_bytes(profile: &Profile) -> u64 {
    if has_model(profile) { SIZE_BYTES } else { LOCAL_SIZE_BYTES }
}

/// Blocks that were never written would cost memory at their first reading.
fn fill(disk: &SlowDisk, profile: &Profile, size_bytes: u64) -> Result<()> {
    if !has_model(profile) {
        return load::fill(disk, size_bytes);
    }
    disk.pause()?;
    load::fill(disk, size_bytes)?;
    disk.resume()
}

fn has_model(profile: &Profile) -> bool {
    profile.medium != Medium::Local
}

/// Disks serve fewer requests a second and need longer for as sure a mean.
fn duration(profile: &Profile, options: &CheckOptions) -> Duration {
    options.each * if profile.medium == Medium::Disks { 3 } else { 1 }
}

/// Runnable processes over the last minute (proc(5), loadavg).
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or_default()
}

/// Requests that can be served at once.
fn parallel(profile: &Profile) -> u32 {
    match profile.medium {
        // Readahead through FUSE itself counts as background.
        Medium::Object => profile.channels.min(profile.fuse_limit.into()),
        _ => profile.channels,
    }
}

fn check_depth(
    disk: &SlowDisk,
    profile: &Profile,
    target: &Target,
    depth: usize,
    options: &CheckOptions,
) -> Result<DepthReport> {
    if has_model(profile) {
        disk.reset_stats()?;
    }
    let measured = target.random(depth, duration(profile, options))?;
    let server_cpu_us = match has_model(profile) {
        true => Some(disk.stats()?.cpu_ns as f64 / 1e3 / measured.requests.max(1) as f64),
        false => None,
    };
    let model = has_model(profile).then(|| {
        predict::random(profile, size_bytes(profile), depth, measured.requests, options.seed)
    });
    let rate = measured.per_s();
    let least = if depth <= DEPTH_PROVEN_MAX { RATE_SHARE_MIN } else { 0.0 };
    Ok(DepthReport {
        depth,
        requests: measured.requests,
        requests_per_s: rate,
        model_requests_per_s: model.as_ref().map(Measured::per_s),
        latency_us: measured.latency_us(),
        model_latency_us: model.as_ref().map(Measured::latency_us),
        server_cpu_us,
        machine_cpu_us: measured.machine_cpu_ns as f64 / 1e3 / measured.requests.max(1) as f64,
        pass: model.is_none_or(|model| (least..=RATE_SHARE_MAX).contains(&(rate / model.per_s()))),
    })
}

fn judge(mut report: ProfileReport) -> ProfileReport {
    for depth in report.depths.iter().filter(|depth| !depth.pass) {
        report.failures.push(format!(
            "{:.0} requests/s at depth {}, where the model has {:.0} (allowed 75 to 110%)",
            depth.requests_per_s,
            depth.depth,
            depth.model_requests_per_s.unwrap_or_default()
        ));
    }
    if let Some(excess) = report.latency_excess
        && !(LATENCY_SHARE_MIN - 1.0..=LATENCY_EXCESS_MAX).contains(&excess)
    {
        report.failures.push(format!(
            "one request at a time takes {:+.0}% against the model (allowed −10 to +25%)",
            excess * 100.0
        ));
    }
    if let Some(model) = report.model_sequential_mb_s
        && report.sequential_mb_s < RATE_SHARE_MIN * model
    {
        report.failures.push(format!(
            "{:.0} MB/s in sequence, below 75% of the model's {model:.0}",
            report.sequential_mb_s
        ));
    }
    report
}

/// A directory of our own, gone when dropped.
struct Scratch {
    path: PathBuf,
    /// Locked, so that the next check knows whether to clean up.
    _lock: File,
}

impl Scratch {
    /// Begin of every name.
    const NAME: &str = "slowdisk-check-";

    fn new() -> Result<Self> {
        let parent = std::env::temp_dir();
        Self::clear_remains(&parent);
        let path = parent.join(format!("{}{}", Self::NAME, std::process::id()));
        let made = std::fs::create_dir_all(&path).and_then(|()| File::open(&path));
        let lock = made.context(|| format!("create {}", path.display()))?;
        state::lock(&lock).context(|| format!("lock {}", path.display()))?;
        Ok(Self { path, _lock: lock })
    }

    /// Removes what checks left that were killed; their devices are down by now.
    fn clear_remains(parent: &Path) {
        for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
            let named = entry.file_name().to_string_lossy().starts_with(Self::NAME);
            if named && File::open(entry.path()).is_ok_and(|directory| !is_locked(&directory)) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            log::error!("{}: {error}", self.path.display());
        }
    }
}

/// A device without the means to be checked.
pub(crate) fn no_device() -> Error {
    Error::Usage("the device has no block device to check".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rate: f64, latency_us: f64, sequential_mb_s: f64) -> ProfileReport {
        let pass = rate >= 750.0;
        let depth = DepthReport {
            depth: 1,
            requests: 1000,
            requests_per_s: rate,
            model_requests_per_s: Some(1000.0),
            latency_us,
            model_latency_us: Some(1000.0),
            server_cpu_us: Some(1.0),
            machine_cpu_us: 2.0,
            pass,
        };
        judge(ProfileReport {
            profile: "cloud".into(),
            parallel: 32,
            latency_excess: Some(latency_us / 1000.0 - 1.0),
            depths: vec![depth],
            sequential_mb_s,
            model_sequential_mb_s: Some(100.0),
            in_flight_max: Some(1),
            load_before: 0.0,
            failures: Vec::new(),
        })
    }

    #[test]
    fn a_faithful_bed_passes_and_each_fault_is_named() {
        assert!(report(990.0, 1010.0, 99.0).pass());
        assert!(report(700.0, 1010.0, 99.0).failures[0].contains("depth 1"));
        assert!(report(990.0, 1300.0, 99.0).failures[0].contains("+30%"));
        assert!(report(990.0, 500.0, 99.0).failures[0].contains("-50%"));
        assert!(report(990.0, 1010.0, 60.0).failures[0].contains("MB/s"));
    }
}
