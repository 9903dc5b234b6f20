//! Where a report goes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where a report goes, and so in which form.
#[derive(Debug)]
pub enum Destination {
    /// A summary for people, on standard error.
    Stderr,
    /// JSON, in a regular file that is replaced as a whole.
    File(PathBuf),
    /// JSON, into what is no regular file (a pipe, a terminal).
    Stream(File),
}

impl Destination {
    /// The destination that a path names. A path of the user's is taken from
    /// the current directory of now.
    ///
    /// # Errors
    /// Nothing could be written there.
    pub fn for_path(path: &Path) -> io::Result<Destination> {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            Ok(metadata) if !metadata.is_file() => {
                let mut options = OpenOptions::new();
                let flags = libc::O_NOCTTY;
                Ok(Destination::Stream(options.append(true).custom_flags(flags).open(path)?))
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            found => {
                // Through a link, so that the link stays.
                let path = if found.is_ok() { path.canonicalize()? } else { path.to_owned() };
                let path = std::path::absolute(path)?;
                let directory = path.parent().unwrap_or(Path::new("/"));
                rustix::fs::access(directory, rustix::fs::Access::WRITE_OK)?;
                Ok(Destination::File(path))
            }
        }
    }

    /// Whether it is for machines.
    pub fn wants_json(&self) -> bool {
        !matches!(self, Destination::Stderr)
    }

    /// The descriptor that must stay open for it.
    pub fn descriptor(&self) -> Option<RawFd> {
        match self {
            Destination::Stderr => Some(libc::STDERR_FILENO),
            Destination::File(_) => None,
            Destination::Stream(file) => Some(file.as_raw_fd()),
        }
    }

    /// Writes the whole report.
    ///
    /// # Errors
    /// Those of the file.
    pub fn write(&self, report: &[u8]) -> io::Result<()> {
        match self {
            Destination::Stderr => io::stderr().write_all(report),
            Destination::Stream(file) => {
                let mut file = file;
                file.write_all(report)
            }
            Destination::File(path) => {
                let mut beside = path.as_os_str().to_owned();
                beside.push(format!(".{}", std::process::id()));
                let beside = PathBuf::from(beside);
                let mut options = OpenOptions::new();
                let mut file = options.write(true).create_new(true).open(&beside)?;
                let written = file.write_all(report).and_then(|()| fs::rename(&beside, path));
                if written.is_err() {
                    let _ = fs::remove_file(&beside);
                }
                written
            }
        }
    }
}
