//! Where a report goes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use runahead_sites::replace::name_beside;
use rustix::fs::OFlags;

/// Links that are followed from one to the next, as Linux does (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;

/// Where a report goes, and so in which form.
#[derive(Debug)]
pub enum Destination {
    /// A summary for people, on standard error.
    Stderr,
    /// JSON, in a regular file that is replaced as a whole.
    File(PathBuf),
    /// JSON, behind all else that goes into what is no regular file (a pipe, a
    /// terminal), or into a file that is open as a stream of the program's.
    Stream(File),
}

impl Destination {
    /// The destination that a path names. A path of the user's is taken from
    /// the current directory of now.
    ///
    /// # Errors
    /// Nothing could be written there.
    pub fn for_path(path: &Path) -> io::Result<Destination> {
        let metadata = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Destination::file_at(path);
            }
            found => found?,
        };
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !metadata.is_file() {
            return Ok(Destination::Stream(append_to(path)?));
        }
        // Another file in the place of the program's output would be all that is left
        // of it.
        let named = descriptor_named(path);
        let standard = libc::STDIN_FILENO..=libc::STDERR_FILENO;
        if let Some(stream) = named.into_iter().chain(standard).find_map(|fd| share(fd, &metadata))
        {
            return Ok(Destination::Stream(stream));
        }
        if named.is_some() {
            return Ok(Destination::Stream(append_to(path)?));
        }
        // Through a link, so that the link stays.
        let path = path.canonicalize()?;
        if is_anothers_for_good(&path, &metadata)? {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Destination::file_at(&path)
    }

    fn file_at(path: &Path) -> io::Result<Destination> {
        let path = std::path::absolute(path)?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        rustix::fs::access(directory, rustix::fs::Access::WRITE_OK)?;
        Ok(Destination::File(path))
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
                let beside = path.with_file_name(name_beside(path.file_name().unwrap_or_default()));
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

/// Whether another user's file lies where only who owns it may replace it: in `/tmp`.
fn is_anothers_for_good(path: &Path, metadata: &fs::Metadata) -> io::Result<bool> {
    let user = rustix::process::geteuid().as_raw();
    let directory = fs::metadata(path.parent().unwrap_or(Path::new("/")))?;
    let is_sticky = directory.mode() & libc::S_ISVTX != 0;
    Ok(is_sticky && user != 0 && metadata.uid() != user && directory.uid() != user)
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).custom_flags(libc::O_NOCTTY).open(path)
}

/// The number of the open file that a path stands for: `/dev/stdout`, `/dev/fd/N`,
/// `/proc/PID/fd/N`, or a link to one of them. The process need not be this one.
fn descriptor_named(path: &Path) -> Option<RawFd> {
    let mut path = std::path::absolute(path).ok()?;
    for _ in 0..LINKS_MAX {
        let target = fs::read_link(&path).ok()?;
        let directory = path.parent()?.canonicalize().ok()?;
        if directory.starts_with("/proc") && directory.ends_with("fd") {
            return path.file_name()?.to_str()?.parse().ok();
        }
        path = directory.join(target);
    }
    None
}

/// A descriptor of this process's once more, if it writes to the file that is
/// meant. The place in the file is one for both, so that what others write to the
/// stream afterwards goes behind the report.
fn share(fd: RawFd, meant: &fs::Metadata) -> Option<File> {
    // SAFETY: a number that is no open descriptor's is refused.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, libc::STDERR_FILENO + 1) };
    if copy < 0 {
        return None;
    }
    // SAFETY: made just now, and nobody else has it.
    let file = unsafe { File::from_raw_fd(copy) };
    let there = file.metadata().ok()?;
    let is_meant = (there.dev(), there.ino()) == (meant.dev(), meant.ino());
    let access = rustix::fs::fcntl_getfl(&file).ok()? & OFlags::RWMODE;
    (is_meant && access != OFlags::RDONLY).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a container the next run's collector may have the same process id.
    #[test]
    fn what_a_killed_process_left_is_in_nobodys_way() {
        let directory =
            std::env::temp_dir().join(format!("destination-test-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("run.json");
        let left = directory.join(format!("run.json.{}", std::process::id()));
        fs::write(&left, "{").unwrap();
        Destination::for_path(&path).unwrap().write(b"{}").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"{}");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "nothing else beside it");
        fs::remove_dir_all(&directory).unwrap();
    }
}
