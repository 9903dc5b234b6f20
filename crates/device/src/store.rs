//! Where profiles are kept: `$XDG_CACHE_HOME/runahead/devices/`, else
//! `~/.cache/runahead/devices/`, one JSON file per device.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::profile::{DeviceProfile, Positions, VERSION};

/// The directory of the user's profiles; `None` where the environment names no place.
pub fn directory() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = match variable("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => Path::new(&variable("HOME")?).join(".cache"),
    };
    Some(cache.join("runahead/devices"))
}

impl DeviceProfile {
    /// The stored profile of the device under `path`, or of the disk that it is a
    /// partition of; `None` where neither was ever measured, or where anything is
    /// wrong with what is stored.
    pub fn load_for(path: &Path) -> Option<Self> {
        Self::load_from(&directory()?, path)
    }

    /// The same from a directory of the caller's choice.
    pub fn load_from(directory: &Path, path: &Path) -> Option<Self> {
        let identity = Identity::of(path).ok()?;
        Self::of_identity(directory, &identity)
            .or_else(|| Self::of_identity(directory, &identity.whole()?.0))
    }

    fn of_identity(directory: &Path, identity: &Identity) -> Option<Self> {
        let text = fs::read(directory.join(identity.file_name())).ok()?;
        let profile: Self = serde_json::from_slice(&text).ok()?;
        (profile.version == VERSION && profile.is_of(identity)).then_some(profile)
    }

    /// Whether this was measured of that device. One whose places make a difference
    /// has to have its size still: another one may have come to its name.
    pub fn is_of(&self, identity: &Identity) -> bool {
        let has_places = self.measured.positions == Positions::Device && self.seek.is_some();
        self.device.id == identity.id
            && (!has_places || self.device.size_bytes == identity.size_bytes)
    }

    /// Every profile in a directory; what cannot be read is left out.
    pub fn all_in(directory: &Path) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
        let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let profiles = files.filter(|path| path.extension().is_some_and(|end| end == "json"));
        let parsed = profiles.filter_map(|path| {
            let profile: Self = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
            (profile.version == VERSION).then_some(profile)
        });
        parsed.collect()
    }

    /// Keeps the profile for the user; returns the file.
    ///
    /// # Errors
    /// No place is known, or it cannot be written.
    pub fn store(&self) -> Result<PathBuf> {
        let directory = directory().ok_or_else(|| {
            let reason =
                io::Error::other("set XDG_CACHE_HOME or HOME, so that profiles have a place");
            Error::io(Path::new("~/.cache/runahead/devices"), reason)
        })?;
        self.store_in(&directory)
    }

    /// The same in a directory of the caller's choice.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn store_in(&self, directory: &Path) -> Result<PathBuf> {
        let path = directory.join(self.device.file_name());
        let beside = directory.join(format!(".{}-{}", self.device.file_name(), std::process::id()));
        let text = serde_json::to_vec_pretty(self).map_err(|error| Error::io(&path, error))?;
        // A reader sees the old profile or the new one.
        // The launcher uses no cache directory that others may write.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .and_then(|()| fs::write(&beside, text))
            .and_then(|()| fs::rename(&beside, &path))
            .map_err(|error| Error::io(&path, error))?;
        Ok(path)
    }
}
