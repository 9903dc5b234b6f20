//! The kernel's own readahead at the competitive depth, reversibly: for
//! servers that are not run under Runahead. What was there before is kept in a
//! directory of the machine's own, whoever changes it and by whatever path, with
//! the boot for which it holds.

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

/// Directory for what was there before: root's alone, as the change is, and gone
/// with it at the next boot. Not the run-time directory of the manager's unit,
/// which systemd removes whenever that stops.
pub const DIRECTORY: &str = "/run/runahead-tune";

/// Where the kernel keeps a device's readahead.
#[derive(Debug, Clone)]
pub struct Readahead {
    file: PathBuf,
    kept: PathBuf,
    id: String,
    boot: String,
}

impl Readahead {
    /// That of the device under `path`; what it was is kept in `directory`
    /// ([`DIRECTORY`]).
    ///
    /// # Errors
    /// The device has no readahead of its own.
    pub fn of(path: &Path, directory: &Path) -> Result<Self> {
        let identity = whole(Identity::of(path)?);
        let number = format!("{}:{}", identity.major, identity.minor);
        let file = PathBuf::from(format!("/sys/class/bdi/{number}/read_ahead_kb"));
        if !file.exists() {
            let reason = "its device has no readahead that could be set";
            return Err(Error::io(path, io::Error::other(reason)));
        }
        let kept = directory.join(format!("readahead-{number}.json"));
        Ok(Self { file, kept, id: identity.id, boot: boot() })
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

    /// The change that was made since this boot, if any.
    pub fn tuned(&self) -> Option<Tuned> {
        let tuned: Tuned = serde_json::from_slice(&fs::read(&self.kept).ok()?).ok()?;
        (tuned.boot == self.boot && tuned.device == self.id).then_some(tuned)
    }

    /// Sets it, in whole pages as the kernel does, and keeps what was there
    /// before: before the first change, unless somebody else has set it since.
    ///
    /// # Errors
    /// It cannot be written, or what was there not be kept.
    pub fn set(&self, kib: u64) -> Result<Tuned> {
        let kib = kib / PAGE_KIB * PAGE_KIB;
        let (last, now) = (self.tuned(), self.kib()?);
        let ours = last.as_ref().filter(|tuned| tuned.set_kib == now);
        let before_kib = ours.map_or(now, |tuned| tuned.before_kib);
        let tuned =
            Tuned { device: self.id.clone(), before_kib, set_kib: kib, boot: self.boot.clone() };
        // Kept first: a change that cannot be taken back is not made.
        self.keep(&tuned)?;
        if let Err(error) = self.write(kib) {
            let _ = match &last {
                Some(last) => self.keep(last),
                None => self.forget(),
            };
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
        if now == tuned.before_kib {
            // It never came to be set, or somebody else has set it back.
            self.forget()?;
            return Ok(None);
        }
        if now != tuned.set_kib {
            let reason = format!(
                "is {now} KiB, not the {} KiB that was set here: somebody has changed it since \
                 (before, it was {} KiB)",
                tuned.set_kib, tuned.before_kib
            );
            return Err(Error::io(&self.file, io::Error::other(reason)));
        }
        self.write(tuned.before_kib)?;
        self.forget()?;
        Ok(Some(tuned))
    }

    /// Replaced as a whole: half a record is none.
    fn keep(&self, tuned: &Tuned) -> Result<()> {
        let text = serde_json::to_vec_pretty(tuned)
            .map_err(|error| Error::io(&self.kept, io::Error::from(error)))?;
        let directory = self.kept.parent().unwrap_or(Path::new("."));
        let new = self.kept.with_extension(format!("{}.new", std::process::id()));
        fs::create_dir_all(directory)
            .and_then(|()| fs::write(&new, text))
            .and_then(|()| fs::rename(&new, &self.kept))
            .map_err(|error| Error::io(&self.kept, error))
    }

    fn forget(&self) -> Result<()> {
        fs::remove_file(&self.kept).map_err(|error| Error::io(&self.kept, error))
    }

    fn write(&self, kib: u64) -> Result<()> {
        fs::write(&self.file, kib.to_string()).map_err(|error| Error::io(&self.file, error))
    }
}

/// The changes of all devices that were made since this boot.
pub fn all(directory: &Path) -> Vec<Tuned> {
    let boot = boot();
    let files = fs::read_dir(directory).into_iter().flatten().filter_map(|entry| entry.ok());
    let records = files
        .filter(|entry| entry.path().extension().is_some_and(|kind| kind == "json"))
        .filter_map(|entry| serde_json::from_slice::<Tuned>(&fs::read(entry.path()).ok()?).ok());
    let mut all: Vec<_> = records.filter(|tuned| tuned.boot == boot).collect();
    all.sort_by(|one, other| one.device.cmp(&other.device));
    all
}

/// The disk of a partition, which has the one readahead of all of them.
fn whole(identity: Identity) -> Identity {
    let directory = format!("/sys/dev/block/{}:{}", identity.major, identity.minor);
    if !Path::new(&directory).join("partition").exists() {
        return identity;
    }
    let numbers = fs::read_to_string(format!("{directory}/../dev")).ok().and_then(|text| {
        let (major, minor) = text.trim().split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    numbers.and_then(|(major, minor)| Identity::of_numbers(major, minor)).unwrap_or(identity)
}

fn boot() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readahead(directory: &Path) -> Readahead {
        let file = directory.join("read_ahead_kb");
        fs::write(&file, "128\n").unwrap();
        let kept = directory.join("kept/readahead-8:0.json");
        Readahead { file, kept, id: "serial:1".into(), boot: boot() }
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
    fn a_change_that_fails_loses_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let readahead = readahead(directory.path());
        readahead.set(524).unwrap();
        // A number that not even root may write.
        let failing =
            Readahead { file: "/proc/sys/kernel/ngroups_max".into(), ..readahead.clone() };
        assert!(failing.set(600).is_err());
        assert_eq!(readahead.undo().unwrap().map(|tuned| tuned.before_kib), Some(128));
        // A crash between the record and the change.
        let tuned = readahead.set(524).unwrap();
        fs::write(&readahead.file, tuned.before_kib.to_string()).unwrap();
        assert_eq!(readahead.undo().unwrap(), None);
        assert_eq!(readahead.tuned(), None, "there is nothing to take back any more");
    }

    #[test]
    fn all_changes_of_this_boot_are_known() {
        let directory = tempfile::tempdir().unwrap();
        let readahead = readahead(directory.path());
        let kept = directory.path().join("kept");
        assert_eq!(all(&kept), []);
        let tuned = readahead.set(524).unwrap();
        fs::write(kept.join("readahead-8:1.json"), "half a rec").unwrap();
        assert_eq!(all(&kept), [tuned]);
    }

    /// systemd removes a unit's run-time directories when it stops, with all that is in them.
    #[test]
    fn no_unit_takes_the_records_away() {
        let unit = include_str!("../../../dist/runahead-manager.service");
        let named = unit.lines().filter_map(|line| line.trim().strip_prefix("RuntimeDirectory="));
        let owned: Vec<PathBuf> = named
            .flat_map(str::split_whitespace)
            .filter_map(|name| name.split(':').next())
            .map(|name| Path::new("/run").join(name))
            .collect();
        assert!(!owned.is_empty(), "the manager's socket is in none");
        for directory in owned {
            assert!(!Path::new(DIRECTORY).starts_with(&directory), "in {}", directory.display());
        }
    }

    #[test]
    fn what_somebody_else_has_set_stays() {
        let directory = tempfile::tempdir().unwrap();
        let readahead = readahead(directory.path());
        readahead.set(524).unwrap();
        fs::write(&readahead.file, "4096").unwrap();
        assert!(readahead.undo().unwrap_err().to_string().contains("4096"));
        assert_eq!(readahead.kib().unwrap(), 4096);
        // Set here once more, that is what was there before.
        assert_eq!(readahead.set(524).unwrap().before_kib, 4096);
        // After the next boot there is nothing to take back.
        let later = Readahead { boot: "b2".into(), ..readahead.clone() };
        assert_eq!(later.undo().unwrap(), None);
        readahead.undo().unwrap();
        assert_eq!(readahead.kib().unwrap(), 4096);
    }
}
