//! Which file each inode number of the pass-through stands for.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fuser::{FileAttr, FileType, INodeNo};
use parking_lot::Mutex;

/// The files that the kernel knows, by path below the backing directory: a
/// descriptor for each would run into the limit of open files.
#[derive(Debug)]
pub struct Nodes {
    backing: PathBuf,
    device: u64,
    known: Mutex<HashMap<INodeNo, Node>>,
}

#[derive(Debug, Default)]
struct Node {
    /// Names below the backing directory, one per hard link that the kernel
    /// has looked up; none once it is unlinked.
    paths: Vec<PathBuf>,
    /// References that the kernel holds.
    lookups: u64,
}

impl Nodes {
    /// The root alone.
    pub fn new(backing: &Path) -> io::Result<Self> {
        let device = fs::metadata(backing)?.dev();
        let root = Node { paths: vec![PathBuf::new()], lookups: 1 };
        let known = Mutex::new(HashMap::from([(INodeNo::ROOT, root)]));
        Ok(Self { backing: backing.to_owned(), device, known })
    }

    /// The backing file of an inode.
    pub fn path(&self, inode: INodeNo) -> io::Result<PathBuf> {
        let known = self.known.lock();
        let path = known.get(&inode).and_then(|node| node.paths.last());
        Ok(self.backing.join(path.ok_or_else(stale)?))
    }

    /// The backing file of a name in a directory.
    pub fn child(&self, parent: INodeNo, name: &OsStr) -> io::Result<PathBuf> {
        Ok(self.path(parent)?.join(name))
    }

    /// Attributes of an inode.
    pub fn attributes(&self, inode: INodeNo) -> io::Result<FileAttr> {
        self.describe(&fs::symlink_metadata(self.path(inode)?)?)
    }

    /// Attributes of a file; inode numbers are the backing files' own.
    pub fn describe(&self, metadata: &Metadata) -> io::Result<FileAttr> {
        if metadata.dev() != self.device {
            // Inode numbers are unique within one file system only.
            return Err(io::Error::from_raw_os_error(libc::EXDEV));
        }
        let root = fs::metadata(&self.backing)?.ino() == metadata.ino();
        let kind = FileType::from_std(metadata.file_type()).unwrap_or(FileType::RegularFile);
        Ok(FileAttr {
            ino: if root { INodeNo::ROOT } else { INodeNo(metadata.ino()) },
            size: metadata.size(),
            blocks: metadata.blocks(),
            atime: time(metadata.atime(), metadata.atime_nsec()),
            mtime: time(metadata.mtime(), metadata.mtime_nsec()),
            ctime: time(metadata.ctime(), metadata.ctime_nsec()),
            crtime: SystemTime::UNIX_EPOCH,
            kind,
            perm: (metadata.mode() & 0o7777) as u16,
            nlink: metadata.nlink() as u32,
            uid: metadata.uid(),
            gid: metadata.gid(),
            rdev: metadata.rdev() as u32,
            blksize: metadata.blksize() as u32,
            flags: 0,
        })
    }

    /// The kernel learns of a name: counts the reference.
    pub fn enter(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let attributes = self.describe(&fs::symlink_metadata(self.child(parent, name)?)?)?;
        let mut known = self.known.lock();
        let directory = known.get(&parent).and_then(|node| node.paths.last());
        let path = directory.ok_or_else(stale)?.join(name);
        let node = known.entry(attributes.ino).or_default();
        if !node.paths.contains(&path) {
            node.paths.push(path);
        }
        node.lookups += 1;
        Ok(attributes)
    }

    /// The kernel gives references back.
    pub fn forget(&self, inode: INodeNo, lookups: u64) {
        let mut known = self.known.lock();
        if let Some(node) = known.get_mut(&inode) {
            node.lookups = node.lookups.saturating_sub(lookups);
            if node.lookups == 0 && inode != INodeNo::ROOT {
                known.remove(&inode);
            }
        }
    }

    /// A name is gone.
    pub fn removed(&self, path: &Path) {
        let Ok(path) = path.strip_prefix(&self.backing) else { return };
        for node in self.known.lock().values_mut() {
            node.paths.retain(|known| known != path);
        }
    }

    /// A file or a whole directory got another name; what had it is gone.
    pub fn renamed(&self, from: &Path, to: &Path) {
        self.removed(to);
        let (Ok(from), Ok(to)) = (from.strip_prefix(&self.backing), to.strip_prefix(&self.backing))
        else {
            return;
        };
        for path in self.known.lock().values_mut().flat_map(|node| &mut node.paths) {
            if let Ok(rest) = path.strip_prefix(from) {
                // Joining an empty rest would append a slash.
                *path = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
            }
        }
    }
}

fn stale() -> io::Error {
    io::Error::from_raw_os_error(libc::ESTALE)
}

fn time(seconds: i64, nanoseconds: i64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base =
        if seconds >= 0 { SystemTime::UNIX_EPOCH + whole } else { SystemTime::UNIX_EPOCH - whole };
    base + Duration::from_nanos(nanoseconds as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_renames_of_directories_and_forgets() {
        let backing = std::env::temp_dir().join(format!("slowdisk-nodes-{}", std::process::id()));
        fs::create_dir_all(backing.join("a/b")).unwrap();
        let nodes = Nodes::new(&backing).unwrap();
        let a = nodes.enter(INodeNo::ROOT, OsStr::new("a")).unwrap().ino;
        let b = nodes.enter(a, OsStr::new("b")).unwrap().ino;
        fs::rename(backing.join("a"), backing.join("c")).unwrap();
        nodes.renamed(&backing.join("a"), &backing.join("c"));
        assert_eq!(nodes.path(a).unwrap(), backing.join("c"));
        assert_eq!(nodes.path(b).unwrap(), backing.join("c/b"));
        assert_eq!(nodes.attributes(INodeNo::ROOT).unwrap().ino, INodeNo::ROOT);
        nodes.removed(&backing.join("c/b"));
        assert_eq!(nodes.path(b).unwrap_err().raw_os_error(), Some(libc::ESTALE));
        nodes.enter(a, OsStr::new("b")).unwrap();
        assert_eq!(nodes.path(b).unwrap(), backing.join("c/b"));
        nodes.forget(b, 2);
        assert_eq!(nodes.path(b).unwrap_err().raw_os_error(), Some(libc::ESTALE));
        assert!(nodes.enter(a, OsStr::new("none")).is_err());
        fs::remove_dir_all(&backing).unwrap();
    }

    #[test]
    fn times_before_the_epoch_too() {
        assert_eq!(time(-1, 500_000_000), SystemTime::UNIX_EPOCH - Duration::from_millis(500));
        assert_eq!(time(1, 0), SystemTime::UNIX_EPOCH + Duration::from_secs(1));
    }
}
