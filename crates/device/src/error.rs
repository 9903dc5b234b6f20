//! What can go wrong, with the next step in the message.

use std::io;
use std::path::{Path, PathBuf};

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a device was not measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed on a path.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Of what.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A block device that this user may not read.
    #[error("{}: {cause}; run with sudo, or give a directory on it", path.display())]
    Denied {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A directory in which no file is large enough to measure the device with.
    #[error(
        "{}: no readable file of {} MiB or more on this file system; make one (`dd if=/dev/urandom \
         of=FILE bs=1M count=256`) and give it, or run as root to read the device itself",
        path.display(),
        bytes_min >> 20
    )]
    NoFile {
        /// Where it was looked for.
        path: PathBuf,
        /// Smallest size that would do, bytes.
        bytes_min: u64,
    },
    /// The file or device is too small.
    #[error("{}: {bytes} bytes are too few to measure; {} MiB are needed", path.display(), bytes_min >> 20)]
    TooSmall {
        /// Which.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// Smallest size that would do, bytes.
        bytes_min: u64,
    },
    /// Neither a block device nor a file or directory.
    #[error("{}: neither a file, a directory nor a block device", path.display())]
    Kind {
        /// Which.
        path: PathBuf,
    },
    /// Every read was answered from memory.
    #[error(
        "{}: its pages stay in memory, so reads do not reach the device; give a file that nothing \
         else uses, or run as root to read the device itself",
        path.display()
    )]
    Resident {
        /// Which.
        path: PathBuf,
    },
    /// A file much of which is not on the device.
    #[error(
        "{}: much of it is holes or has never been written, which no device is asked for; give a \
         file with data, or run as root to read the device itself",
        path.display()
    )]
    Sparse {
        /// Which.
        path: PathBuf,
    },
    /// Not so many reads at once: their threads cannot be made.
    #[error(
        "cannot start {threads} threads that read at once ({cause}); allow more of them (`ulimit \
         -u`, or pids.max of the control group)"
    )]
    Threads {
        /// How many were to read.
        threads: usize,
        /// Why not.
        cause: io::Error,
    },
    /// Too few samples for an estimate: the time was too short.
    #[error("too few reads completed in the time given; give more with --time, or use --full")]
    TooFew,
    /// A plot could not be drawn.
    #[error("draw {}: {reason}", path.display())]
    Plot {
        /// Where to.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
}

impl Error {
    /// An error of a system call on `path`.
    pub(crate) fn io(path: &Path, cause: impl Into<io::Error>) -> Self {
        Error::Io { path: path.to_owned(), cause: cause.into() }
    }

    /// The same with the next step, of a block device that is read itself.
    pub(crate) fn of_device(self) -> Self {
        match self {
            Error::Io { path, cause } if cause.kind() == io::ErrorKind::PermissionDenied => {
                Error::Denied { path, cause }
            }
            other => other,
        }
    }
}
