//! Changing the backing directory as the caller of the pass-through would.

use std::fs::{self, DirBuilder, File, FileTimes, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown, lchown};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fuser::TimeOrNow;
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// What `setattr` may change.
#[derive(Debug)]
pub struct Attributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<TimeOrNow>,
    /// Last change.
    pub mtime: Option<TimeOrNow>,
}

impl Attributes {
    /// Changes a file.
    pub fn apply(&self, path: &Path) -> io::Result<()> {
        if self.uid.is_some() || self.gid.is_some() {
            own(path, self.uid, self.gid)?;
        }
        if let Some(mode) = self.mode {
            fs::set_permissions(path, Permissions::from_mode(mode & 0o7777))?;
        }
        if let Some(size) = self.size {
            File::options().write(true).open(path)?.set_len(size)?;
        }
        if self.atime.is_some() || self.mtime.is_some() {
            self.set_times(path)?;
        }
        Ok(())
    }

    fn set_times(&self, path: &Path) -> io::Result<()> {
        if fs::symlink_metadata(path)?.is_symlink() && !path.starts_with(OWN_DESCRIPTORS) {
            return Ok(()); // A link's own times matter to nobody here.
        }
        let resolve = |time: TimeOrNow| match time {
            TimeOrNow::SpecificTime(time) => time,
            TimeOrNow::Now => SystemTime::now(),
        };
        let mut times = FileTimes::new();
        if let Some(atime) = self.atime {
            times = times.set_accessed(resolve(atime));
        }
        if let Some(mtime) = self.mtime {
            times = times.set_modified(resolve(mtime));
        }
        // Read-only is enough for a file's owner and for root.
        File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?.set_times(times)
    }
}

/// Links that lead to open files, whatever their names.
const OWN_DESCRIPTORS: &str = "/proc/self/fd";

/// A path to an open file that may have no name.
pub fn path_of(file: &File) -> PathBuf {
    Path::new(OWN_DESCRIPTORS).join(file.as_raw_fd().to_string())
}

fn own(path: &Path, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    if path.starts_with(OWN_DESCRIPTORS) { chown(path, uid, gid) } else { lchown(path, uid, gid) }
}

/// Creates and opens a file, with exactly this mode.
pub fn create(path: &Path, mode: u32, flags: i32) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .mode(mode)
        .custom_flags((flags & (libc::O_EXCL | libc::O_TRUNC)) | libc::O_NOFOLLOW)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
    Ok(file)
}

/// Makes a directory with exactly this mode.
pub fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode & 0o7777))
}

/// Makes a regular file, FIFO, socket or device.
pub fn make_node(path: &Path, mode: u32, rdev: u32) -> io::Result<()> {
    let (kind, bits) = (FileType::from_raw_mode(mode), Mode::from_raw_mode(mode));
    mknodat(CWD, path, kind, bits, rdev.into())?;
    fs::set_permissions(path, Permissions::from_mode(mode & 0o7777))
}

/// Gives what was made to the caller; the serving process is root.
pub fn give(path: &Path, caller: &fuser::Request) -> io::Result<()> {
    lchown(path, Some(caller.uid()), Some(caller.gid()))
}
