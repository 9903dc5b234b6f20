//! What the kernel says of an open file: which one it is, and its size.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;

use runahead_manager::actor;

/// What is known of an open regular file or block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    /// `st_dev` and `st_ino`.
    pub identity: (u64, u64),
    /// None: it is a device.
    bytes: Option<u64>,
}

impl Status {
    /// None for what has no page cache.
    pub(crate) fn of(fd: i32) -> Option<Self> {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the kernel fills the whole structure where it succeeds.
        let stat = unsafe {
            if libc::fstat(fd, stat.as_mut_ptr()) < 0 {
                return None;
            }
            stat.assume_init()
        };
        let bytes = match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => Some(u64::try_from(stat.st_size).unwrap_or(0)),
            libc::S_IFBLK => None,
            _ => return None,
        };
        Some(Self { identity: (stat.st_dev, stat.st_ino), bytes })
    }

    /// Most bytes that a read at an offset could return.
    pub(crate) fn bytes_from(&self, offset: u64) -> u64 {
        self.bytes.map_or(u64::MAX, |bytes| bytes.saturating_sub(offset))
    }
}

/// In what a file differs that has grown, or was given the inode of one that is gone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub born_ns: u64,
    pub bytes: u64,
}

/// `st_dev` and `st_ino` of a regular file or block device.
pub(crate) fn identity(fd: i32) -> Option<(u64, u64)> {
    Status::of(fd).map(|status| status.identity)
}

/// The same, and the file's state.
pub(crate) fn look(fd: i32) -> Option<((u64, u64), State)> {
    let identity = identity(fd)?;
    // SAFETY: it was open just now, is only asked about, and not closed.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    let metadata = file.metadata().ok()?;
    Some((identity, State { born_ns: actor::born_ns(&metadata), bytes: metadata.len() }))
}
