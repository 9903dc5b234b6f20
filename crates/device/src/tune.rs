//! The kernel's own readahead at the competitive depth, reversibly: for
//! servers that are not run under Runahead. What was there before is kept
//! beside the profile, with the boot for which it holds.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::profile::DeviceProfile;

/// Linux's default, KiB.
pub const DEFAULT_KIB: u64 = 128;

/// The kernel keeps readahead in whole pages, KiB.
const PAGE_KIB: u64 = 4;

/// Largest readahead that is set, KiB.
pub const MAX_KIB: u64 = 4096;

/// A change of a device's readahead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuned {
    /// Stable name of the device.
    pub device: String,
    /// Readahead before the first change, KiB.
    pub before_kib: u64,
    /// Readahead that was set, KiB.
    pub set_kib: u64,
    /// The boot during which it was set: it is lost at the next one.
    pub boot: String,
}

/// The readahead that gives a device's streams the competitive depth, KiB: S_p
/// in whole pages, at least Linux's default.
pub fn wanted_kib(profile: &DeviceProfile) -> u64 {
    let kib = (profile.competitive.depth_bytes.value / 4096.0).round() * 4.0;
    (kib.max(0.0) as u64).clamp(DEFAULT_KIB, MAX_KIB)
}

/// Where the kernel keeps a device's readahead.
#[derive(Debug, Clone)]
pub struct Readahead {
    file: PathBuf,
    kept: PathBuf,
    id: String,
    boot: String,
}

impl Readahead {
    /// That of the device under `path`; what it was is kept in `directory`.
    ///
    /// # Errors
    /// The device has no readahead of its own.
    pub fn of(path: &Path, directory: &Path) -> Result<Self> {
        let identity = Identity::of(path)?;
        let (major, minor) = (identity.major, identity.minor);
        let bdi = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
        // A partition has its disk's.
        let disk = format!("/sys/dev/block/{major}:{minor}/../queue/read_ahead_kb");
        let files = [bdi, PathBuf::from(disk)];
        let file = files.into_iter().find(|file| file.exists()).ok_or_else(|| {
            Error::io(path, io::Error::other("its device has no readahead that could be set"))
        })?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Ok(Self {
            file,
            kept: directory.join(format!("{}.tuned", identity.file_name())),
            id: identity.id,
            boot: boot.trim().to_owned(),
        })
    }

    /// The file in /sys.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Stable name of the device.
    pub fn device(&self) -> &str {
        &self.id
    }

    /// What is set now, KiB.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn kib(&self) -> Result<u64> {
        let text = fs::read_to_string(&self.file).map_err(|error| Error::io(&self.file, error))?;
        text.trim().parse().map_err(|_| Error::io(&self.file, io::Error::other("not a number")))
    }

    /// The change that is in force since this boot, if any.
    pub fn tuned(&self) -> Option<Tuned> {
        let tuned: Tuned = serde_json::from_slice(&fs::read(&self.kept).ok()?).ok()?;
        (tuned.boot == self.boot && tuned.device == self.id).then_some(tuned)
    }

    /// Sets it, in whole pages as the kernel does, and keeps what was there
    /// before the first change.
    ///
    /// # Errors
    /// It cannot be written, or what was there not be kept.
    pub fn set(&self, kib: u64) -> Result<Tuned> {
        let kib = kib / PAGE_KIB * PAGE_KIB;
        let before_kib = match self.tuned() {
            Some(tuned) => tuned.before_kib,
            None => self.kib()?,
        };
        let tuned =
            Tuned { device: self.id.clone(), before_kib, set_kib: kib, boot: self.boot.clone() };
        let text = serde_json::to_vec_pretty(&tuned)
            .map_err(|error| Error::io(&self.kept, io::Error::from(error)))?;
        // Kept first: a change that cannot be taken back is not made.
        let parent = self.kept.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&self.kept, text))
            .map_err(|error| Error::io(&self.kept, error))?;
        if let Err(error) = self.write(kib) {
            if before_kib == self.kib()? {
                let _ = fs::remove_file(&self.kept);
            }
            return Err(error);
        }
        Ok(tuned)
    }

    /// Sets back what was there before, if nobody has changed it since;
    /// returns that change, or `None` where there is none.
    ///
    /// # Errors
    /// Somebody else has changed it since, or it cannot be written.
    pub fn undo(&self) -> Result<Option<Tuned>> {
        let Some(tuned) = self.tuned() else { return Ok(None) };
        let now = self.kib()?;
        if now != tuned.set_kib {
            let reason = format!(
                "is {now} KiB, not the {} KiB that was set here: somebody has changed it since \
                 (before, it was {} KiB)",
                tuned.set_kib, tuned.before_kib
            );
            return Err(Error::io(&self.file, io::Error::other(reason)));
        }
        self.write(tuned.before_kib)?;
        fs::remove_file(&self.kept).map_err(|error| Error::io(&self.kept, error))?;
        Ok(Some(tuned))
    }

    fn write(&self, kib: u64) -> Result<()> {
        fs::write(&self.file, kib.to_string()).map_err(|error| Error::io(&self.file, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readahead(directory: &Path) -> Readahead {
        let file = directory.join("read_ahead_kb");
        fs::write(&file, "128\n").unwrap();
        let kept = directory.join("kept/x.tuned");
        Readahead { file, kept, id: "serial:1".into(), boot: "b1".into() }
    }

    #[test]
    fn what_was_set_is_taken_back() {
        let directory = tempfile::tempdir().unwrap();
        let readahead = readahead(directory.path());
        assert_eq!(readahead.undo().unwrap(), None);
        readahead.set(524).unwrap();
        let again = readahead.set(600).unwrap();
        assert_eq!((again.before_kib, readahead.kib().unwrap()), (128, 600));
        assert_eq!(readahead.undo().unwrap(), Some(again));
        assert_eq!((readahead.kib().unwrap(), readahead.tuned()), (128, None));
        assert_eq!(readahead.set(777).unwrap().set_kib, 776, "what the kernel makes of it");
    }

    #[test]
    fn what_somebody_else_has_set_stays() {
        let directory = tempfile::tempdir().unwrap();
        let readahead = readahead(directory.path());
        readahead.set(524).unwrap();
        fs::write(&readahead.file, "4096").unwrap();
        assert!(readahead.undo().unwrap_err().to_string().contains("4096"));
        assert_eq!(readahead.kib().unwrap(), 4096);
        // After the next boot there is nothing to take back.
        let later = Readahead { boot: "b2".into(), ..readahead };
        assert_eq!(later.undo().unwrap(), None);
    }
}
