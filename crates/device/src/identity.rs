//! Which device a path is on, by a name that outlives a reboot.
//!
//! Numbers (major:minor) are given anew at each boot, and loop devices change
//! theirs all the time; the key of a stored profile is therefore the device's
//! own serial number or WWID, its file system's UUID, or what is mounted.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Beginning of the id of a device of which nothing but its name is known.
const NAME_ONLY: &str = "name:";

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Kernel name (`sda2`), or the kind of a file system without a device.
    pub name: String,
    /// Device numbers; major 0: no block device.
    pub major: u32,
    /// See `major`.
    pub minor: u32,
    /// Stable name, such as `wwid:…`, `serial:…`, `fs:…` or `mount:…`.
    pub id: String,
    /// Bytes that were measured: of the device, or of the file on it.
    pub size_bytes: u64,
    /// What the kernel says; null without a block device.
    pub rotational: Option<bool>,
    /// Manufacturer's name for it, if known.
    pub model: Option<String>,
    /// Readahead of the kernel, KiB; null without a block device.
    pub read_ahead_kib: Option<u32>,
}

impl Identity {
    /// The device that `path` is on, or that it is.
    ///
    /// # Errors
    /// The path cannot be looked at.
    pub fn of(path: &Path) -> Result<Self> {
        let status = fs::metadata(path).map_err(|error| Error::io(path, error))?;
        let is_device = status.file_type().is_block_device();
        let number = if is_device { status.rdev() } else { status.dev() };
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        match sysfs(major, minor) {
            Some(directory) => Ok(Self::of_block(&directory, major, minor)),
            None => Self::of_mount(path, major, minor),
        }
    }

    /// The device with these numbers, if there is one.
    pub fn of_numbers(major: u32, minor: u32) -> Option<Self> {
        if let Some(directory) = sysfs(major, minor) {
            return Some(Self::of_block(&directory, major, minor));
        }
        let table = mount_table().ok()?;
        let (.., place) = mount(&table, major, minor)?;
        Self::of_mount(Path::new(&place), major, minor).ok()
    }

    /// The disk that this is a partition of, and where it begins there, in bytes;
    /// `None` where that disk has no name of its own: another one may come to be
    /// called `sdb`.
    pub fn whole(&self) -> Option<(Self, u64)> {
        let directory = sysfs(self.major, self.minor)?;
        let start = start(&directory)?;
        let disk = directory.parent()?;
        let (major, minor) = numbers(&text(&disk.join("dev"))?)?;
        let whole = Self::of_block(disk, major, minor);
        (!whole.id.starts_with(NAME_ONLY)).then_some((whole, start))
    }

    /// The partitions of the disk with these numbers, each with where it begins
    /// there, in bytes.
    pub fn partitions(major: u32, minor: u32) -> Vec<((u32, u32), u64)> {
        let directory = sysfs(major, minor);
        let name = directory.as_deref().and_then(Path::file_name).unwrap_or_default().to_owned();
        let entries = directory.and_then(|directory| fs::read_dir(directory).ok());
        let part = |entry: fs::DirEntry| {
            let directory = entry.path();
            // `sda1`, `nvme0n1p1`: all else there is no device.
            let is_named_so = entry.file_name().as_bytes().starts_with(name.as_bytes());
            let start = is_named_so.then(|| start(&directory))??;
            Some((numbers(&text(&directory.join("dev"))?)?, start))
        };
        entries.into_iter().flatten().filter_map(|entry| part(entry.ok()?)).collect()
    }

    fn of_block(directory: &Path, major: u32, minor: u32) -> Self {
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // A partition's queue and serial number are those of the whole.
        let whole = if directory.join("queue").exists() {
            directory.to_owned()
        } else {
            directory.parent().unwrap_or(directory).to_owned()
        };
        let sectors: u64 = number(&directory.join("size")).unwrap_or(0);
        Self {
            id: stable_name(directory, &whole, &name),
            major,
            minor,
            size_bytes: sectors * 512,
            rotational: number::<u8>(&whole.join("queue/rotational")).map(|value| value == 1),
            model: text(&whole.join("device/model")),
            read_ahead_kib: number(&whole.join("queue/read_ahead_kb")),
            name,
        }
    }

    /// Network, FUSE, overlay and memory file systems.
    fn of_mount(path: &Path, major: u32, minor: u32) -> Result<Self> {
        let table = mount_table().map_err(|error| Error::io(path, error))?;
        // btrfs has numbers of its own for each subvolume, which no mount has.
        let by_id = || mount_by_id(&table, mount_id_of(path)?);
        let (kind, source, mountpoint) = mount(&table, major, minor)
            .or_else(by_id)
            .unwrap_or_else(|| ("unknown".into(), String::new(), path.display().to_string()));
        Ok(Self {
            id: mount_id(&kind, &source, &mountpoint),
            name: kind,
            major,
            minor,
            size_bytes: 0,
            rotational: None,
            model: None,
            read_ahead_kib: None,
        })
    }

    /// The devices of everything that is mounted: their numbers and their
    /// stable names, each once.
    pub fn mounted() -> Vec<((u32, u32), String)> {
        let Ok(table) = mount_table() else { return Vec::new() };
        let mut devices: Vec<((u32, u32), String)> = Vec::new();
        // The last of several mounts of a device, as everywhere.
        for line in table.lines().rev() {
            let Some(((major, minor), kind, source, place)) = mounted_at(line) else { continue };
            let numbers = if kind == "btrfs" { own_numbers(place) } else { Some((major, minor)) };
            let Some(numbers) = numbers else { continue };
            if devices.iter().any(|(known, _)| *known == numbers) {
                continue;
            }
            let id = match sysfs(major, minor) {
                Some(directory) => Self::of_block(&directory, major, minor).id,
                None => mount_id(kind, source, place),
            };
            devices.push((numbers, id));
        }
        devices
    }

    /// The numbers of everything that is mounted.
    pub fn mounted_numbers() -> Vec<(u32, u32)> {
        let table = mount_table().unwrap_or_default();
        table.lines().filter_map(|line| Some(mounted_at(line)?.0)).collect()
    }

    /// The block device's node, if there is one.
    pub fn node(&self) -> Option<PathBuf> {
        (self.major != 0).then(|| Path::new("/dev").join(self.name.replace('!', "/")))
    }

    /// Name of the file in which the profile is kept.
    pub fn file_name(&self) -> String {
        let kept = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '_' };
        let readable: String = self.id.chars().map(kept).take(80).collect();
        // Two ids may read the same once characters are replaced.
        format!("{readable}-{:08x}.json", fingerprint(self.id.as_bytes()))
    }
}

/// FNV-1a, 32 bits.
fn fingerprint(bytes: &[u8]) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, step)
}

fn sysfs(major: u32, minor: u32) -> Option<PathBuf> {
    fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

/// Where a partition begins on its disk, in bytes; `None` for anything else.
fn start(directory: &Path) -> Option<u64> {
    text(&directory.join("partition"))?;
    Some(number::<u64>(&directory.join("start"))? * 512)
}

/// What stat(2) says of a place.
fn own_numbers(place: &str) -> Option<(u32, u32)> {
    let number = fs::metadata(place).ok()?.dev();
    Some((rustix::fs::major(number), rustix::fs::minor(number)))
}

/// The mount that a path is on (statx(2), Linux 5.8).
fn mount_id_of(path: &Path) -> Option<u64> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    let is_known = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    is_known.then_some(found.stx_mnt_id)
}

/// Kind, source and place of a mount.
fn mount_by_id(table: &str, id: u64) -> Option<(String, String, String)> {
    let is_it =
        |line: &&str| line.split(' ').next().and_then(|field| field.parse().ok()) == Some(id);
    let (_, kind, source, place) = mounted_at(table.lines().find(is_it)?)?;
    Some((kind.to_owned(), source.to_owned(), place.to_owned()))
}

/// `MAJOR:MINOR`.
fn numbers(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The best name that there is; a partition has its number added.
fn stable_name(directory: &Path, whole: &Path, name: &str) -> String {
    let part = text(&directory.join("partition")).map_or(String::new(), |part| format!(":{part}"));
    if let Some(backing) = text(&directory.join("loop/backing_file")) {
        return format!("loop:{backing}");
    }
    for (kind, file) in [
        ("wwid", "wwid"),
        ("wwid", "device/wwid"),
        ("serial", "serial"),
        ("serial", "device/serial"),
        ("dm", "dm/uuid"),
        ("md", "md/uuid"),
    ] {
        if let Some(value) = text(&whole.join(file)) {
            return format!("{kind}:{value}{part}");
        }
    }
    match by_uuid(name) {
        Some(uuid) => format!("fs:{uuid}"),
        None => format!("{NAME_ONLY}{name}"),
    }
}

/// UUID of the file system on a device, as udev has linked it.
fn by_uuid(name: &str) -> Option<String> {
    let links = fs::read_dir("/dev/disk/by-uuid").ok()?;
    links.filter_map(|entry| entry.ok()).find_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        (target.file_name()?.to_str()? == name)
            .then(|| entry.file_name().to_string_lossy().into_owned())
    })
}

fn mount_id(kind: &str, source: &str, place: &str) -> String {
    format!("mount:{kind}:{source}:{place}")
}

/// The mount table. Names need not be UTF-8: one that is not hides no other mount.
fn mount_table() -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read("/proc/self/mountinfo")?).into_owned())
}

/// Kind, source and place of the mount with that device number.
fn mount(table: &str, major: u32, minor: u32) -> Option<(String, String, String)> {
    table.lines().rev().filter_map(mounted_at).find_map(|(numbers, kind, source, place)| {
        (numbers == (major, minor)).then(|| (kind.to_owned(), source.to_owned(), place.to_owned()))
    })
}

/// Device number, kind, source and place in a line of the mount table
/// (proc_pid_mountinfo(5)).
fn mounted_at(line: &str) -> Option<((u32, u32), &str, &str, &str)> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(2);
    let numbers = numbers(left.next()?)?;
    let place = left.nth(1)?;
    let mut right = right.split(' ');
    Some((numbers, right.next()?, right.next()?, place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_without_a_device_are_named_by_what_is_mounted() {
        let table = "22 1 0:20 / /proc rw - proc proc rw\n\
                     40 1 0:35 / /srv/objects rw,nosuid shared:1 - fuse.s3 bucket rw,user_id=0\n";
        let found = mount(table, 0, 35).unwrap();
        assert_eq!(mount_by_id(table, 40).as_ref(), Some(&found));
        assert_eq!(mount_by_id(table, 41), None);
        assert_eq!(found, ("fuse.s3".into(), "bucket".into(), "/srv/objects".into()));
        assert_eq!(mount(table, 8, 1), None);
    }

    #[test]
    fn what_is_mounted_is_named_as_by_its_numbers() {
        let mounted = Identity::mounted();
        assert!(!mounted.is_empty());
        for (at, ((major, minor), id)) in mounted.iter().enumerate() {
            let by_numbers = Identity::of_numbers(*major, *minor).unwrap();
            // Others may mount meanwhile.
            let again = Identity::mounted();
            assert!(by_numbers.id == *id || again != mounted, "{major}:{minor} {id}");
            assert!(mounted[..at].iter().all(|(numbers, _)| *numbers != (*major, *minor)));
        }
    }

    #[test]
    fn file_names_are_safe_and_differ() {
        let identity =
            |id: &str| Identity { id: id.into(), ..Identity::of(Path::new("/")).unwrap() };
        let (a, b) =
            (identity("mount:fuse:a/b:/x").file_name(), identity("mount:fuse:a_b:/x").file_name());
        assert_ne!(a, b);
        assert!(!a.contains('/') && a.len() < 120, "{a}");
        assert!(identity(&"long".repeat(100)).file_name().len() < 120);
    }

    #[test]
    fn every_path_has_an_identity() {
        for path in ["/", "/proc", "/tmp"] {
            assert!(!Identity::of(Path::new(path)).unwrap().id.is_empty());
        }
        assert!(Identity::of(Path::new("/nonexistent")).is_err());
    }
}
