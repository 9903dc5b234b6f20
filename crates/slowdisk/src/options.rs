//! What a device is brought up with.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::profile::{Discipline, FUSE_LIMIT_DEFAULT, Medium, Profile};

/// Smallest device: ext4 with a journal needs about this.
const SIZE_BYTES_MIN: u64 = 16 << 20;
/// Largest device: as much as one mapping may comfortably take.
const SIZE_BYTES_MAX: u64 = 16 << 40;
/// Most spindles or channels.
const SPINDLES_MAX: u32 = 4096;

/// What is made on the block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileSystem {
    /// ext4, mounted at the mount point.
    Ext4,
    /// Swap space, in use before any other; needs a backing directory on a
    /// disk.
    Swap,
    /// Nothing: the bare block device.
    None,
}

impl std::str::FromStr for FileSystem {
    type Err = String;
    fn from_str(s: &str) -> std::result::Result<Self, String> {
        match s {
            "ext4" => Ok(Self::Ext4),
            "swap" => Ok(Self::Swap),
            "none" => Ok(Self::None),
            _ => Err(format!("unknown file system {s:?}: give ext4, swap or none")),
        }
    }
}

/// How to bring up an emulated device.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UpOptions {
    /// Name of the profile.
    pub profile: String,
    /// Where to mount it.
    pub mountpoint: PathBuf,
    /// Size of the device in bytes; sparse, in memory. 16 MiB to 16 TiB.
    pub size_bytes: u64,
    /// Spindles or channels, if not the profile's number.
    pub spindles: Option<u32>,
    /// Seed of everything that is random.
    pub seed: u64,
    /// What to make on the device.
    pub fs: FileSystem,
    /// Directory for the contents instead of memory; what the object profile
    /// passes through; where the nvme profile puts its image.
    pub backing: Option<PathBuf>,
    /// Factor on every time of the model, above 0.
    pub scale: f64,
    /// FUSE's `max_background`, if not the profile's.
    pub fuse_limit: Option<u16>,
    /// Queue discipline of each spindle, if not the profile's.
    pub queue: Option<Discipline>,
    /// Writes cost no time.
    pub free_writes: bool,
    /// Leave timing off until it is resumed.
    pub paused: bool,
    /// Where to mount an overlayfs whose lower layer is the device.
    pub overlay: Option<PathBuf>,
    /// The `runahead` executable that serves the device; found by itself when
    /// this program is `runahead`, else from RUNAHEAD_BIN.
    #[serde(default)]
    pub daemon: Option<PathBuf>,
}

impl UpOptions {
    /// Defaults: 8 GiB, ext4, seed 1, in memory, timing on.
    pub fn new(profile: impl Into<String>, mountpoint: impl AsRef<Path>) -> Self {
        Self {
            profile: profile.into(),
            mountpoint: mountpoint.as_ref().to_owned(),
            size_bytes: 8 << 30,
            spindles: None,
            seed: 1,
            fs: FileSystem::Ext4,
            backing: None,
            scale: 1.0,
            fuse_limit: None,
            queue: None,
            free_writes: false,
            paused: false,
            overlay: None,
            daemon: None,
        }
    }

    /// What is emulated, for a name: the profile, and what was changed about its times.
    /// A device goes by it in the kernel's tables, so that one at a place is not taken
    /// for another that was there before.
    pub(crate) fn emulated(&self) -> String {
        let changes = [
            self.spindles.map(|number| format!("-{number}")),
            self.queue.map(|queue| format!("-{queue:?}").to_lowercase()),
            self.fuse_limit.map(|limit| format!("-limit{limit}")),
            (self.scale != 1.0).then(|| format!("-x{}", self.scale)),
        ];
        changes.into_iter().flatten().fold(self.profile.clone(), |name, change| name + &change)
    }

    /// The profile with the options' changes.
    ///
    /// # Errors
    /// [`Error::UnknownProfile`], or [`Error::Usage`] for a value out of range
    /// or an option that the profile has no use for.
    pub fn resolve(&self) -> Result<Profile> {
        let mut profile = Profile::by_name(&self.profile)?;
        self.check(&profile)?;
        if let Some(spindles) = self.spindles {
            profile.channels = spindles;
        }
        if let Some(queue) = self.queue {
            profile.discipline = queue;
        }
        profile.fuse_limit = self.fuse_limit.unwrap_or(profile.fuse_limit);
        Ok(profile.scaled(self.scale))
    }

    fn check(&self, profile: &Profile) -> Result<()> {
        let usage = |message: String| Err(Error::Usage(message));
        if !(SIZE_BYTES_MIN..=SIZE_BYTES_MAX).contains(&self.size_bytes) {
            return usage(format!("--size {}: give 16M to 16T", self.size_bytes));
        }
        if !(self.scale.is_finite() && (1e-3..=1e3).contains(&self.scale)) {
            return usage(format!("--scale {}: give a factor from 0.001 to 1000", self.scale));
        }
        if self.spindles.is_some_and(|n| !(1..=SPINDLES_MAX).contains(&n)) {
            return usage(format!("--spindles: give 1 to {SPINDLES_MAX}"));
        }
        if self.fuse_limit == Some(0) {
            return usage(format!(
                "--fuse-limit 0: give at least 1 (the kernel's default is {FUSE_LIMIT_DEFAULT})"
            ));
        }
        if self.queue.is_some() && profile.medium != Medium::Disks {
            return usage(format!("--queue is for disks; {} has none", profile.name));
        }
        if profile.medium == Medium::Local {
            let modelled = self.spindles.is_some() || self.fuse_limit.is_some();
            if modelled || self.scale != 1.0 || self.free_writes || self.paused {
                return usage(format!(
                    "{} is the machine's own disk: it has no model to change",
                    profile.name
                ));
            }
        }
        if self.fs != FileSystem::Ext4 && self.overlay.is_some() {
            return usage("--overlay needs a file system under it: leave out --fs".into());
        }
        if self.fs != FileSystem::Ext4 && profile.medium == Medium::Object {
            return usage(format!("{} has no block device: leave out --fs", profile.name));
        }
        Ok(())
    }
}

/// A size such as 8G, 512M, 65536: bytes, with binary K, M, G, T.
///
/// # Errors
/// If it is not of that form, or beyond 64 bits.
pub fn parse_size(text: &str) -> std::result::Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("{text:?} is not a size: give for example 512M or 8G")),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| format!("{text:?} is not a size: give for example 512M or 8G"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("8G"), Ok(8 << 30));
        assert_eq!(parse_size("512MiB"), Ok(512 << 20));
        assert_eq!(parse_size("65536"), Ok(65536));
        for bad in ["", "G", "8X", "-1", "99999999999T", "1.5G"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn options_change_the_profile() {
        let mut options = UpOptions::new("array-2003", "/mnt/x");
        options.spindles = Some(7);
        options.queue = Some(Discipline::Fifo);
        options.scale = 0.5;
        let profile = options.resolve().unwrap();
        assert_eq!((profile.channels, profile.discipline), (7, Discipline::Fifo));
        assert_eq!(profile.mean_random_ns(0), 6_000_000);
        assert_eq!(options.emulated(), "array-2003-7-fifo-x0.5");
        assert_eq!(UpOptions::new("cloud", "/mnt/x").emulated(), "cloud");
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        let refused = |change: fn(&mut UpOptions)| {
            let mut options = UpOptions::new("cloud", "/mnt/x");
            change(&mut options);
            options.resolve().unwrap_err().to_string()
        };
        assert!(refused(|o| o.profile = "tape".into()).contains("cloud"));
        assert!(refused(|o| o.size_bytes = 1).contains("16M"));
        assert!(refused(|o| o.scale = 0.0).contains("factor"));
        assert!(refused(|o| o.scale = f64::NAN).contains("factor"));
        assert!(refused(|o| o.spindles = Some(0)).contains("--spindles"));
        assert!(refused(|o| o.fuse_limit = Some(0)).contains("12"));
        assert!(refused(|o| o.queue = Some(Discipline::Fifo)).contains("--queue"));
        assert!(
            refused(|o| {
                o.profile = "nvme".into();
                o.scale = 2.0;
            })
            .contains("own disk")
        );
        assert!(
            refused(|o| {
                o.fs = FileSystem::None;
                o.overlay = Some("/mnt/o".into());
            })
            .contains("--overlay")
        );
    }
}
