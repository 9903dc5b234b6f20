//! Where a benchmark's data lies: an emulated device of the test bed, or a
//! directory on one of the machine's own disks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use runahead_slowdisk::profile::{Discipline, Medium, Profile};
use runahead_slowdisk::{SlowDisk, UpOptions};

use crate::device_counts::{Counts, DeviceNumber};
use crate::ideal::Device;
use crate::interrupt;
use crate::probe;

/// Linux's default readahead window, pinned on every device measured: some
/// machines' disks and every loop device come up with another one.
const READ_AHEAD_KB: u64 = 128;

/// Times of the kernel's schedulers: BFQ waits `slice_idle` for a thread's next
/// request and serves it for `timeout_sync`, both serve a request at the latest
/// after the others (block/bfq-iosched.c, block/mq-deadline.c).
const SCHEDULER_TIMERS: [&str; 6] = [
    "slice_idle_us",
    "timeout_sync",
    "fifo_expire_sync",
    "fifo_expire_async",
    "read_expire",
    "write_expire",
];

/// What place to open.
#[derive(Clone, Debug, Default)]
pub struct PlaceOptions {
    /// Profile of the test bed; `nvme` is the machine's own disk.
    pub profile: String,
    /// Directory to work in: a mounted test bed keeps its data there between
    /// runs; any other directory is measured on the disk that it lies on.
    pub data: Option<PathBuf>,
    /// Measure through an overlayfs whose lower layer is the device.
    pub overlay: bool,
    /// FUSE's limit of requests in flight, if not the profile's.
    pub fuse_limit: Option<u16>,
    /// Spindles, if not the profile's number.
    pub spindles: Option<u32>,
    /// Queue discipline of each spindle, if not the profile's.
    pub queue: Option<Discipline>,
    /// Factor on every time of the modelled device, if not 1.
    pub time_factor: Option<f64>,
}

/// An open place.
#[derive(Debug)]
pub struct Place {
    bed: Option<SlowDisk>,
    root: PathBuf,
    number: DeviceNumber,
    device: Device,
    name: String,
    read_ahead_kb_before: Option<u64>,
    /// Removed with everything in it when the bed that was mounted there is
    /// down, or on the machine's own disk; dropped last.
    _scratch: Option<tempfile::TempDir>,
}

impl Place {
    /// Opens a place: brings the test bed up, or takes the one that is up at
    /// `data`, or the directory `data`.
    ///
    /// # Errors
    /// Without root (mounting and emptying caches need it), for an unknown
    /// profile, or a directory that does not exist.
    pub fn open(options: &PlaceOptions) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "benchmarks mount devices and empty caches, which needs root: use sudo"
        );
        interrupt::watch();
        match &options.data {
            None => match Self::own_disk(options)? {
                Some(place) => Ok(place),
                None => Self::bring_up(options),
            },
            Some(data) => match SlowDisk::at(data) {
                Ok(bed) => {
                    let root = data.clone();
                    Self::on_bed(bed, root, None)
                }
                Err(runahead_slowdisk::Error::NotUp(_)) => Self::directory(data),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// A directory on the machine's own disk, where that is what was asked for
    /// and a file system lies on one: a loop device on it would be another
    /// device, whose worker threads take processor time and a burst of requests
    /// in turn.
    fn own_disk(options: &PlaceOptions) -> Result<Option<Self>> {
        let profile = Profile::by_name(&options.profile)?;
        if profile.medium != Medium::Local || options.overlay {
            return Ok(None);
        }
        let is_changed = options.fuse_limit.is_some()
            || options.spindles.is_some()
            || options.queue.is_some()
            || options.time_factor.is_some_and(|factor| factor != 1.0);
        ensure!(
            !is_changed,
            "{} is the machine's own disk: it has no model to change",
            profile.name
        );
        for base in [std::env::temp_dir(), "/var/tmp".into()] {
            let made = tempfile::Builder::new().prefix("runahead-bench-").tempdir_in(&base);
            let scratch =
                made.with_context(|| format!("make a directory in {}", base.display()))?;
            if DeviceNumber::of(scratch.path()).and_then(DeviceNumber::counts).is_ok() {
                open_to_others(scratch.path())?;
                interrupt::remember_directory(scratch.path());
                let mut place = Self::directory(scratch.path())?;
                place._scratch = Some(scratch);
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    fn bring_up(options: &PlaceOptions) -> Result<Self> {
        let scratch = tempfile::Builder::new()
            .prefix("runahead-bench-")
            .tempdir()
            .context("make a directory for the mount point")?;
        // Programs of other users (the database server) pass through it.
        open_to_others(scratch.path())?;
        let mut up = UpOptions::new(&options.profile, scratch.path().join("disk"));
        up.fuse_limit = options.fuse_limit;
        up.spindles = options.spindles;
        up.queue = options.queue;
        up.scale = options.time_factor.unwrap_or(1.0);
        let mut root = up.mountpoint.clone();
        if options.overlay {
            root = scratch.path().join("overlay");
            up.overlay = Some(root.clone());
        }
        interrupt::guard(&up.mountpoint, scratch.path());
        let bed = SlowDisk::up(&up)?;
        Self::on_bed(bed, root, Some(scratch))
    }

    fn on_bed(bed: SlowDisk, root: PathBuf, scratch: Option<tempfile::TempDir>) -> Result<Self> {
        let state = bed.state();
        let profile = state.options.resolve()?;
        let number = match bed.device() {
            Some(device) => DeviceNumber::of_device_file(device)?,
            None => DeviceNumber::of(&root)?,
        };
        let mut place = Self {
            name: bed_name(&state.options),
            device: Device { latency_s: 0.0, bandwidth_bytes_per_s: 1.0, parallelism: 1.0 },
            bed: Some(bed),
            root,
            number,
            read_ahead_kb_before: None,
            _scratch: scratch,
        };
        place.pin_read_ahead()?;
        place.device = match profile.medium {
            Medium::Local => probe::measure(&place.root)?,
            _ => modelled(&profile),
        };
        Ok(place)
    }

    fn directory(directory: &Path) -> Result<Self> {
        let root = fs::canonicalize(directory).with_context(|| {
            format!("find the directory {}: make it, or leave out --data", directory.display())
        })?;
        let number = DeviceNumber::of(&root)?;
        number.counts().with_context(|| {
            format!("{} is not on a block device: give another --data", root.display())
        })?;
        let mut place = Self {
            name: "nvme".into(),
            device: probe::measure(&root)?,
            bed: None,
            root,
            number,
            read_ahead_kb_before: None,
            _scratch: None,
        };
        place.pin_read_ahead()?;
        Ok(place)
    }

    fn pin_read_ahead(&mut self) -> Result<()> {
        let before = self.number.read_ahead_kb()?;
        if before != READ_AHEAD_KB {
            if self.bed.is_none() {
                interrupt::remember_read_ahead(self.number, before);
            }
            self.number.set_read_ahead_kb(READ_AHEAD_KB)?;
            self.read_ahead_kb_before = Some(before);
        }
        Ok(())
    }

    /// Name of the profile, with what was changed about it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the data lies.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where to prepare the data: below the overlayfs where there is one, or
    /// it would lie in the upper layer, which is no part of the device.
    pub fn store(&self) -> &Path {
        self.bed.as_ref().map_or(&self.root, SlowDisk::mountpoint)
    }

    /// Sets the device's readahead, until the caches are emptied.
    ///
    /// # Errors
    /// Without root.
    pub fn set_read_ahead_kb(&self, kib: u64) -> Result<()> {
        self.number.set_read_ahead_kb(kib)
    }

    /// Whether it is an emulated block device, whose requests the kernel may
    /// order; an object store has none.
    pub fn has_block_device(&self) -> bool {
        self.bed.as_ref().is_some_and(|bed| bed.device().is_some())
    }

    /// Sets the kernel's scheduler of the device, its times divided by `speed`: the
    /// device's clock runs so much faster than the wall's, by which the kernel waits.
    ///
    /// # Errors
    /// Without root, or if there is no such scheduler.
    pub fn set_scheduler(&self, name: &str, speed: f64) -> Result<()> {
        let device = self.bed.as_ref().and_then(SlowDisk::device);
        let device = device.and_then(Path::file_name).context("there is no block device")?;
        let queue = Path::new("/sys/block").join(device).join("queue");
        let set = |file: PathBuf, value: &str| {
            fs::write(&file, value).with_context(|| format!("write {value} to {}", file.display()))
        };
        // Leaving the last one takes its times along.
        set(queue.join("scheduler"), "none")?;
        set(queue.join("scheduler"), name)?;
        for timer in SCHEDULER_TIMERS {
            let file = queue.join("iosched").join(timer);
            let Ok(time) = fs::read_to_string(&file) else { continue };
            let time: f64 = time.trim().parse().with_context(|| file.display().to_string())?;
            set(file, &format!("{}", (time / speed).round().max(1.0)))?;
        }
        Ok(())
    }

    /// What the ideal assumes of the device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Empties every cache of the data. On a directory of the machine's own
    /// disk these are the whole machine's caches.
    ///
    /// # Errors
    /// If the file system is in use, or without root.
    pub fn cold(&self) -> Result<()> {
        let Some(bed) = &self.bed else {
            return empty_caches();
        };
        bed.cold()?;
        let read_ahead_kb = self.number.read_ahead_kb()?;
        if read_ahead_kb != READ_AHEAD_KB {
            // Some file systems set their own window at mount.
            self.number.set_read_ahead_kb(READ_AHEAD_KB)?;
        }
        Ok(())
    }

    /// Brings everything about the files below `directory` into memory, but
    /// nothing of their contents.
    ///
    /// # Errors
    /// If the tree cannot be walked.
    pub fn warm_metadata(&self, directory: &Path) -> Result<()> {
        if self.bed.is_some() {
            runahead_slowdisk::warm_metadata(&self.root)?;
            return Ok(());
        }
        for entry in walkdir::WalkDir::new(directory) {
            let entry = entry.with_context(|| format!("walk {}", directory.display()))?;
            entry.metadata().with_context(|| format!("look at {}", entry.path().display()))?;
        }
        Ok(())
    }

    /// Does something for which the device's timing is off: preparing data,
    /// looking at results.
    ///
    /// # Errors
    /// What `action` returns, or if the device does not answer.
    pub fn untimed<T>(&self, action: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(bed) = self.bed.as_ref().filter(|bed| bed.state().daemon.is_some()) else {
            return action();
        };
        // One that is ours goes down with this process.
        let stays_up = self._scratch.is_none();
        if stays_up {
            interrupt::pause(bed.mountpoint(), || bed.pause())?;
        } else {
            bed.pause()?;
        }
        let result = action();
        resume(bed)?;
        if stays_up {
            interrupt::forget_pause();
        }
        result
    }

    /// Counters of the device so far.
    ///
    /// # Errors
    /// If neither the device nor the kernel tells.
    pub fn counts(&self) -> Result<Counts> {
        let Some(bed) = self.bed.as_ref().filter(|bed| bed.state().daemon.is_some()) else {
            return self.number.counts();
        };
        let snapshot = bed.stats()?;
        let device = &snapshot.device;
        Ok(Counts {
            reads: device.reads,
            bytes_read: device.bytes_read,
            continued: device.servers.iter().map(|server| server.sequential).sum(),
            writes: device.writes,
            bytes_written: device.bytes_written,
            busy_ns: Some(device.servers.iter().map(|server| server.busy_ns).sum()),
            device_cpu_ns: snapshot.cpu_ns,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let is_bed = self.bed.is_some();
        if let Some(scratch) = &self._scratch {
            interrupt::forget_directory(scratch.path());
            // Down before an interrupt could take it down a second time.
            drop(self.bed.take());
            interrupt::release();
        }
        if let Some(before) = self.read_ahead_kb_before
            && !is_bed
        {
            // The machine's own disk gets back what it had.
            let _ = self.number.set_read_ahead_kb(before);
            interrupt::forget_read_ahead();
        }
    }
}

/// Switches the timing of a device on again.
///
/// # Errors
/// If the device does not answer.
pub(crate) fn resume(bed: &SlowDisk) -> Result<()> {
    // What was written must not be written back in modelled time.
    if let Ok(directory) = File::open(bed.mountpoint()) {
        let _ = rustix::fs::syncfs(&directory);
    }
    Ok(bed.resume()?)
}

/// The profile, and all by which the device is another than the profile's.
fn bed_name(options: &UpOptions) -> String {
    let mut name = options.profile.clone();
    if let Some(limit) = options.fuse_limit {
        name += &format!(" fuse-limit {limit}");
    }
    if let Some(spindles) = options.spindles {
        name += &format!(" spindles {spindles}");
    }
    if let Some(queue) = options.queue {
        name += match queue {
            Discipline::Fifo => " fifo",
            Discipline::Cscan => " cscan",
        };
    }
    if options.scale != 1.0 {
        name += &format!(" scale {}", options.scale);
    }
    if options.free_writes {
        name += " free-writes";
    }
    if options.overlay.is_some() {
        name += " overlay";
    }
    name
}

/// What the ideal assumes of a modelled device.
fn modelled(profile: &Profile) -> Device {
    let rate = u64::midpoint(profile.rate.outer_bytes_per_s, profile.rate.inner_bytes_per_s);
    let channels = f64::from(profile.channels);
    Device {
        latency_s: profile.mean_random_ns(0) as f64 / 1e9,
        bandwidth_bytes_per_s: rate as f64 * channels,
        parallelism: channels.min(f64::from(profile.fuse_limit)),
    }
}

/// Lets other users pass through a directory.
///
/// # Errors
/// If the mode cannot be changed.
pub fn open_to_others(directory: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("change the mode of {}", directory.display()))
}

/// Empties all of the machine's caches of files, names and inodes.
///
/// # Errors
/// Without root.
pub fn empty_caches() -> Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").context("empty the page cache: this needs root")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No loop device; and nothing of it is left.
    #[test]
    fn the_machines_own_disk_is_a_directory_of_it() {
        let options = PlaceOptions { profile: "nvme".into(), ..PlaceOptions::default() };
        let on_disk = |base: &Path| DeviceNumber::of(base).and_then(DeviceNumber::counts).is_ok();
        let base = [std::env::temp_dir(), "/var/tmp".into()].into_iter().find(|base| on_disk(base));
        if base.is_some() && !rustix::process::geteuid().is_root() {
            assert!(Place::own_disk(&options).is_err(), "readahead is pinned by root alone");
            return;
        }
        let place = Place::own_disk(&options).unwrap();
        assert_eq!(place.is_some(), base.is_some());
        if let (Some(place), Some(base)) = (place, base) {
            let (root, number) = (place.root().to_owned(), DeviceNumber::of(&base).unwrap());
            assert_eq!(DeviceNumber::of(&root).unwrap(), number);
            assert_eq!(number.read_ahead_kb().unwrap(), READ_AHEAD_KB);
            let before = place.read_ahead_kb_before.unwrap_or(READ_AHEAD_KB);
            drop(place);
            assert!(!root.exists());
            assert_eq!(number.read_ahead_kb().unwrap(), before);
        }
        let limited = PlaceOptions { fuse_limit: Some(12), ..options };
        let said = Place::own_disk(&limited).unwrap_err().to_string();
        assert!(said.contains("no model to change"), "{said}");
        let options = PlaceOptions { profile: "cloud".into(), ..PlaceOptions::default() };
        assert!(Place::own_disk(&options).unwrap().is_none());
    }

    #[test]
    fn a_device_that_was_changed_is_not_called_by_its_profile_alone() {
        let up = || UpOptions::new("array-2003", "/mnt/slow");
        assert_eq!(bed_name(&up()), "array-2003");
        let changed = UpOptions {
            spindles: Some(7),
            queue: Some(Discipline::Fifo),
            scale: 0.5,
            free_writes: true,
            overlay: Some("/mnt/overlay".into()),
            ..up()
        };
        let name = "array-2003 spindles 7 fifo scale 0.5 free-writes overlay";
        assert_eq!(bed_name(&changed), name);
    }

    #[test]
    fn the_ideal_of_a_profile() {
        let cloud = modelled(&Profile::by_name("cloud").unwrap());
        assert_eq!((cloud.latency_s, cloud.parallelism), (0.001, 32.0));
        assert_eq!(cloud.bandwidth_bytes_per_s, 32.0 * 200e6);
        // FUSE's default limit is below the 64 channels.
        let object = modelled(&Profile::by_name("object").unwrap());
        assert_eq!(object.parallelism, 12.0);
    }
}
