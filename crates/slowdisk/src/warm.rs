//! Warm metadata, cold data: everything about files is in memory, nothing of
//! their contents.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::Path;

use serde::Serialize;

use crate::error::{Context, Result};
use crate::state::{State, Untimed};

/// EXT4_IOC_PRECACHE_EXTENTS, `_IO('f', 18)` (fs/ext4/ext4.h).
const EXT4_IOC_PRECACHE_EXTENTS: libc::Ioctl = 0x6612;

/// What was walked over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Warmed {
    /// Directories listed.
    pub directories: u64,
    /// Regular files whose inode and extents are in memory now.
    pub files: u64,
}

/// Walks a tree on a device (or on its overlay), stats every entry and has ext4 read every file's extents, in no
/// modelled time. No data is read. The counters start from zero.
///
/// # Errors
/// If there is no device, the tree cannot be walked, or a signal is to end the program.
pub fn warm_metadata(directory: &Path) -> Result<Warmed> {
    let state = State::containing(directory)?;
    let untimed = Untimed::begin(&state)?;
    let mut warmed = Warmed::default();
    walk(directory, &untimed, &mut warmed)?;
    Ok(warmed)
}

fn walk(directory: &Path, untimed: &Untimed<'_>, warmed: &mut Warmed) -> Result<()> {
    warmed.directories += 1;
    let entries = fs::read_dir(directory).context(|| format!("read {}", directory.display()))?;
    for entry in entries {
        if untimed.is_interrupted() {
            let ended = std::io::Error::from(ErrorKind::Interrupted);
            return Err(ended).context(|| format!("walk over {}", directory.display()));
        }
        let path = entry.context(|| format!("read {}", directory.display()))?.path();
        let metadata =
            fs::symlink_metadata(&path).context(|| format!("look at {}", path.display()))?;
        if metadata.is_dir() {
            walk(&path, untimed, warmed)?;
        } else if metadata.is_file() {
            let file = File::open(&path).context(|| format!("open {}", path.display()))?;
            // SAFETY: this ioctl takes no argument. File systems that do not
            // know it (overlayfs, FUSE) refuse it, and need it less.
            unsafe { libc::ioctl(file.as_raw_fd(), EXT4_IOC_PRECACHE_EXTENTS) };
            warmed.files += 1;
        } else if metadata.is_symlink() {
            let _ = fs::read_link(&path);
        }
    }
    Ok(())
}
