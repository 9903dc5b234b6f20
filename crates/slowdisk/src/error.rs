//! What can go wrong, each with its cause and the next step.

use std::io;
use std::path::PathBuf;

/// Result of this crate's operations.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the test bed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No profile of that name.
    #[error("there is no profile {name:?}; the profiles are {known}")]
    UnknownProfile {
        /// Name asked for.
        name: String,
        /// Names there are.
        known: String,
    },
    /// An option that makes no sense, alone or with the profile.
    #[error("{0}")]
    Usage(String),
    /// Not root.
    #[error(
        "slowdisk needs root (it mounts a file system and sets up a loop device): run it with sudo"
    )]
    NotRoot,
    /// /dev/fuse cannot be used.
    #[error(
        "cannot open /dev/fuse ({0}): the emulated device is a FUSE file; load the module \
         (modprobe fuse), or give a container --device /dev/fuse --cap-add SYS_ADMIN"
    )]
    NoFuse(io::Error),
    /// No loop device can be had.
    #[error(
        "no loop device can be had ({0}): load the module (modprobe loop), or give a container \
         /dev/loop-control and the loop devices"
    )]
    NoLoop(io::Error),
    /// A program that is needed is not installed.
    #[error("{program} is not installed: install the package {package}")]
    MissingProgram {
        /// Program.
        program: &'static str,
        /// Debian package that has it.
        package: &'static str,
    },
    /// The mount point cannot be used.
    #[error("{path}: {why}", path = path.display())]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// Why not, and what to do.
        why: String,
    },
    /// Nothing of ours is mounted there.
    #[error(
        "no slowdisk is up at {path}: `runahead slowdisk list` shows those there are",
        path = .0.display()
    )]
    NotUp(PathBuf),
    /// The device's process is dead.
    #[error(
        "the process that serves {path} has died; `runahead slowdisk down {path}` cleans up \
         (its last words: {log})",
        path = path.display()
    )]
    DaemonDied {
        /// The mount point.
        path: PathBuf,
        /// Last lines of its log.
        log: String,
    },
    /// Somebody uses what was to be unmounted.
    #[error("{path} is in use{holders}: stop that, or use `down --force`", path = path.display())]
    Busy {
        /// What is in use.
        path: PathBuf,
        /// " by NAME (PID), …" or nothing.
        holders: String,
    },
    /// A program that we ran failed.
    #[error("{program} failed: {stderr}")]
    Program {
        /// Program and arguments.
        program: String,
        /// What it said.
        stderr: String,
    },
    /// A system call failed.
    #[error("cannot {what}: {cause}")]
    Io {
        /// What was to be done.
        what: String,
        /// Why not.
        cause: io::Error,
    },
}

/// Says what was to be done when it fails.
pub(crate) trait Context<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::Io { what: what(), cause: error.into() })
    }
}
