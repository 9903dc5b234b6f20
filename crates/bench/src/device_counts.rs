//! What the block layer counted: requests and bytes of one device.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Size of the sectors in which the kernel counts, whatever the device's own
/// (Documentation/block/stat.rst).
const SECTOR_BYTES: u64 = 512;

/// Where the kernel tells of its devices.
const SYSFS: &str = "/sys";

/// Counters of a device; the difference of two is what happened between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Read requests completed.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Requests that began where the one before had ended, where the device tells;
    /// else 0.
    pub continued: u64,
    /// Write requests completed.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Time that the device's channels were busy, summed, nanoseconds, where
    /// the device tells.
    pub busy_ns: Option<u64>,
    /// CPU time of an emulated device, nanoseconds; 0 on a real one.
    pub device_cpu_ns: u64,
}

impl Counts {
    /// What happened since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let busy_ns = self.busy_ns.zip(earlier.busy_ns);
        Self {
            reads: self.reads.saturating_sub(earlier.reads),
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            continued: self.continued.saturating_sub(earlier.continued),
            writes: self.writes.saturating_sub(earlier.writes),
            bytes_written: self.bytes_written.saturating_sub(earlier.bytes_written),
            busy_ns: busy_ns.map(|(now, then)| now.saturating_sub(then)),
            device_cpu_ns: self.device_cpu_ns.saturating_sub(earlier.device_cpu_ns),
        }
    }

    /// Parses a `stat` file of /sys/block (Documentation/block/stat.rst:
    /// reads, merged, sectors, ms, writes, merged, sectors, ms, ...).
    pub fn parse(text: &str) -> Option<Self> {
        let fields: Vec<u64> =
            text.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self {
            reads: *fields.first()?,
            bytes_read: fields.get(2)? * SECTOR_BYTES,
            writes: *fields.get(4)?,
            bytes_written: fields.get(6)? * SECTOR_BYTES,
            ..Self::default()
        })
    }
}

/// The block device (or anonymous device, for overlayfs and FUSE) under a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNumber {
    major: u32,
    minor: u32,
}

impl DeviceNumber {
    /// Of the file system that holds `path`.
    ///
    /// # Errors
    /// If the path cannot be looked at.
    pub fn of(path: &Path) -> Result<Self> {
        let metadata = fs::metadata(path).with_context(|| format!("look at {}", path.display()))?;
        Ok(Self { major: libc::major(metadata.dev()), minor: libc::minor(metadata.dev()) })
    }

    /// Of a device file.
    ///
    /// # Errors
    /// If the path cannot be looked at.
    pub fn of_device_file(path: &Path) -> Result<Self> {
        let metadata = fs::metadata(path).with_context(|| format!("look at {}", path.display()))?;
        Ok(Self { major: libc::major(metadata.rdev()), minor: libc::minor(metadata.rdev()) })
    }

    /// The block layer's counters.
    ///
    /// # Errors
    /// If the device has none: it is not a block device.
    pub fn counts(self) -> Result<Counts> {
        let path = format!("{SYSFS}/dev/block/{}:{}/stat", self.major, self.minor);
        let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        Counts::parse(&text).with_context(|| format!("{path} is not what it should be: {text:?}"))
    }

    /// A partition has the one readahead of its disk, and no bdi of its own.
    fn read_ahead_path(self, sysfs: &Path) -> PathBuf {
        let Self { major, minor } = self;
        let device = sysfs.join(format!("dev/block/{major}:{minor}"));
        if device.join("partition").exists() {
            return device.join("../queue/read_ahead_kb");
        }
        sysfs.join(format!("class/bdi/{major}:{minor}/read_ahead_kb"))
    }

    /// The kernel's readahead window, KiB.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn read_ahead_kb(self) -> Result<u64> {
        self.read_ahead_kb_in(Path::new(SYSFS))
    }

    fn read_ahead_kb_in(self, sysfs: &Path) -> Result<u64> {
        let path = self.read_ahead_path(sysfs);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        text.trim().parse().with_context(|| format!("{} is not a number", path.display()))
    }

    /// Sets the kernel's readahead window.
    ///
    /// # Errors
    /// Without root.
    pub fn set_read_ahead_kb(self, kib: u64) -> Result<()> {
        let path = self.read_ahead_path(Path::new(SYSFS));
        fs::write(&path, kib.to_string())
            .with_context(|| format!("set {} to {kib}: this needs root", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "    4510     12   360000     900      20       3      160      15        \
                        0      800      915        0        0        0        0        5  7\n";

    #[test]
    fn stat_files_are_parsed() {
        let counts = Counts::parse(STAT).unwrap();
        assert_eq!((counts.reads, counts.bytes_read), (4510, 360_000 * 512));
        assert_eq!((counts.writes, counts.bytes_written), (20, 160 * 512));
        assert_eq!(counts.busy_ns, None);
        for bad in ["", "1 2", "a b c d e f g"] {
            assert_eq!(Counts::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_partition_has_the_readahead_of_its_disk() {
        let sysfs = tempfile::tempdir().unwrap();
        let at = |name: &str| sysfs.path().join(name);
        for directory in ["devices/sda/sda1", "devices/sda/queue", "dev/block", "class/bdi/8:0"] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        fs::write(at("devices/sda/sda1/partition"), "1\n").unwrap();
        fs::write(at("devices/sda/queue/read_ahead_kb"), "512\n").unwrap();
        fs::write(at("class/bdi/8:0/read_ahead_kb"), "128\n").unwrap();
        for (number, device) in [("8:0", "sda"), ("8:1", "sda/sda1")] {
            let to = format!("../../devices/{device}");
            std::os::unix::fs::symlink(to, at(&format!("dev/block/{number}"))).unwrap();
        }
        let of = |minor| DeviceNumber { major: 8, minor }.read_ahead_kb_in(sysfs.path()).unwrap();
        assert_eq!((of(0), of(1)), (128, 512));
    }

    #[test]
    fn differences_of_counters() {
        let then = Counts { reads: 10, busy_ns: Some(5), ..Counts::default() };
        let now = Counts { reads: 15, busy_ns: Some(9), bytes_read: 4096, ..Counts::default() };
        let since = now.since(&then);
        assert_eq!((since.reads, since.bytes_read, since.busy_ns), (5, 4096, Some(4)));
        assert_eq!(now.since(&Counts::default()).busy_ns, None);
    }
}
