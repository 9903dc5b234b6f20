//! The object store: a FUSE pass-through of a directory in which every read
//! and write of file contents takes the model's time. Metadata takes none.

mod changes;
mod nodes;

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fuser::{
    BsdFileFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use rustix::fs::Advice;

use crate::disk_fs::configure;
use crate::error::{Context, Result};
use crate::model::Request;
use crate::timer::{Finish, Timer};
use nodes::Nodes;

/// Names and attributes stay valid: only this mount changes the directory
/// (or whoever does otherwise lets the device go cold afterwards).
const FOREVER: Duration = Duration::from_secs(1 << 30);

thread_local! {
    /// Contents on their way to the kernel.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The pass-through as FUSE serves it.
#[derive(Debug)]
pub struct ObjectFs {
    nodes: Nodes,
    timer: Arc<Timer<ObjectReply>>,
    fuse_limit: u16,
    open: Mutex<HashMap<u64, Open>>,
    next_handle: AtomicU64,
}

/// What a file handle stands for.
#[derive(Debug, Clone)]
enum Open {
    File(INodeNo, Arc<File>),
    /// Names, inodes and kinds as they were when it was opened.
    Directory(Arc<Vec<(INodeNo, FileType, std::ffi::OsString)>>),
}

/// A reply that waits for its time.
#[derive(Debug)]
pub enum ObjectReply {
    /// Contents of a file.
    Read {
        /// The backing file.
        file: Arc<File>,
        /// First byte.
        offset: u64,
        /// How many at most.
        len: usize,
        /// Whom to tell.
        reply: ReplyData,
    },
    /// So many bytes written (the backing file has them already).
    Written {
        /// How many.
        len: u32,
        /// Whom to tell.
        reply: ReplyWrite,
    },
}

impl Finish for ObjectReply {
    fn finish(self) {
        match self {
            Self::Written { len, reply } => reply.written(len),
            Self::Read { file, offset, len, reply } => BUFFER.with_borrow_mut(|buffer| {
                if buffer.len() < len {
                    buffer.resize(len, 0);
                }
                match read_full(&file, &mut buffer[..len], offset) {
                    Ok(read) => reply.data(&buffer[..read]),
                    Err(error) => reply.error(error.into()),
                }
            }),
        }
    }
}

/// Reads until the buffer is full or the file ends: FUSE takes a short read
/// for the end of the file.
fn read_full(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

impl ObjectFs {
    /// A pass-through of `backing` with this model.
    ///
    /// # Errors
    /// If `backing` cannot be looked at.
    pub fn new(backing: &Path, timer: Arc<Timer<ObjectReply>>, fuse_limit: u16) -> Result<Self> {
        let nodes = Nodes::new(backing).context(|| format!("look at {}", backing.display()))?;
        let (open, next_handle) = (Mutex::new(HashMap::new()), AtomicU64::new(1));
        Ok(Self { nodes, timer, fuse_limit, open, next_handle })
    }

    fn keep(&self, open: Open) -> FileHandle {
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.open.lock().insert(handle, open);
        FileHandle(handle)
    }

    fn file(&self, handle: FileHandle) -> io::Result<Arc<File>> {
        match self.open.lock().get(&handle.0) {
            Some(Open::File(_, file)) => Ok(Arc::clone(file)),
            _ => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
    }

    /// Attributes of an inode; a file without a name is known by a handle.
    fn attributes(&self, inode: INodeNo) -> io::Result<fuser::FileAttr> {
        match self.nodes.attributes(inode) {
            Err(error) => match self.opened(inode) {
                Some(file) => self.nodes.describe(&file.metadata()?),
                None => Err(error),
            },
            found => found,
        }
    }

    /// A handle of an inode, if it is open.
    fn opened(&self, inode: INodeNo) -> Option<Arc<File>> {
        self.open.lock().values().find_map(|open| match open {
            Open::File(opened, file) if *opened == inode => Some(Arc::clone(file)),
            _ => None,
        })
    }

    fn open_file(&self, inode: INodeNo, flags: OpenFlags) -> io::Result<FileHandle> {
        // The kernel has checked permissions, created and followed links.
        // Writes come with explicit offsets, and pages may need reading first.
        let write = flags.0 & libc::O_ACCMODE != libc::O_RDONLY;
        let file = File::options()
            .read(true)
            .write(write)
            .custom_flags((flags.0 & libc::O_TRUNC) | libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(self.nodes.path(inode)?)?;
        Ok(self.keep(Open::File(inode, Arc::new(file))))
    }

    fn open_directory(&self, inode: INodeNo) -> io::Result<FileHandle> {
        let mut names = vec![
            (inode, FileType::Directory, ".".into()),
            (INodeNo::ROOT, FileType::Directory, "..".into()),
        ];
        for entry in fs::read_dir(self.nodes.path(inode)?)? {
            let entry = entry?;
            let kind = FileType::from_std(entry.file_type()?).unwrap_or(FileType::RegularFile);
            let number = std::os::unix::fs::DirEntryExt::ino(&entry);
            names.push((INodeNo(number), kind, entry.file_name()));
        }
        Ok(self.keep(Open::Directory(Arc::new(names))))
    }
}

fn reply_entry(reply: ReplyEntry, entered: io::Result<fuser::FileAttr>) {
    match entered {
        Ok(attributes) => reply.entry(&FOREVER, &attributes, Generation(0)),
        Err(error) => reply.error(error.into()),
    }
}

fn reply_attributes(reply: ReplyAttr, attributes: io::Result<fuser::FileAttr>) {
    match attributes {
        Ok(attributes) => reply.attr(&FOREVER, &attributes),
        Err(error) => reply.error(error.into()),
    }
}

fn reply_done(reply: ReplyEmpty, done: io::Result<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error.into()),
    }
}

impl Filesystem for ObjectFs {
    fn init(&mut self, _req: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        configure(config, self.fuse_limit)
    }

    fn lookup(&self, _req: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        reply_entry(reply, self.nodes.enter(parent, name));
    }

    fn forget(&self, _req: &fuser::Request, inode: INodeNo, lookups: u64) {
        self.nodes.forget(inode, lookups);
    }

    fn getattr(
        &self,
        _req: &fuser::Request,
        inode: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        reply_attributes(reply, self.attributes(inode));
    }

    fn setattr(
        &self,
        _req: &fuser::Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let file = handle.and_then(|handle| self.file(handle).ok());
        let file = file.or_else(|| self.opened(inode));
        let change = changes::Attributes { mode, uid, gid, size, atime, mtime };
        let path = self.nodes.path(inode);
        let changed = match (path, file) {
            (Ok(path), _) => change.apply(&path),
            // Without a name: through the descriptor's.
            (Err(_), Some(file)) => change.apply(&changes::path_of(&file)),
            (Err(error), None) => Err(error),
        };
        let changed = changed.and_then(|()| self.attributes(inode));
        reply_attributes(reply, changed);
    }

    fn readlink(&self, _req: &fuser::Request, inode: INodeNo, reply: ReplyData) {
        match self.nodes.path(inode).and_then(fs::read_link) {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(error) => reply.error(error.into()),
        }
    }

    fn mknod(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let made = self.nodes.child(parent, name).and_then(|path| {
            changes::make_node(&path, mode & !umask, rdev)?;
            changes::give(&path, req)?;
            self.nodes.enter(parent, name)
        });
        reply_entry(reply, made);
    }

    fn mkdir(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.nodes.child(parent, name).and_then(|path| {
            changes::make_directory(&path, mode & !umask)?;
            changes::give(&path, req)?;
            self.nodes.enter(parent, name)
        });
        reply_entry(reply, made);
    }

    fn unlink(&self, _req: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.nodes.child(parent, name).and_then(|path| {
            fs::remove_file(&path)?;
            self.nodes.removed(&path);
            Ok(())
        });
        reply_done(reply, removed);
    }

    fn rmdir(&self, _req: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.nodes.child(parent, name).and_then(|path| {
            fs::remove_dir(&path)?;
            self.nodes.removed(&path);
            Ok(())
        });
        reply_done(reply, removed);
    }

    fn symlink(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = self.nodes.child(parent, name).and_then(|path| {
            std::os::unix::fs::symlink(target, &path)?;
            changes::give(&path, req)?;
            self.nodes.enter(parent, name)
        });
        reply_entry(reply, made);
    }

    fn rename(
        &self,
        _req: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if flags.contains(RenameFlags::RENAME_EXCHANGE) {
            return reply.error(Errno::EINVAL);
        }
        let renamed = self.nodes.child(parent, name).and_then(|from| {
            let to = self.nodes.child(new_parent, new_name)?;
            if flags.contains(RenameFlags::RENAME_NOREPLACE) && fs::symlink_metadata(&to).is_ok() {
                return Err(io::Error::from_raw_os_error(libc::EEXIST));
            }
            fs::rename(&from, &to)?;
            self.nodes.renamed(&from, &to);
            Ok(())
        });
        reply_done(reply, renamed);
    }

    fn link(
        &self,
        _req: &fuser::Request,
        inode: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let linked = self.nodes.path(inode).and_then(|from| {
            fs::hard_link(from, self.nodes.child(new_parent, new_name)?)?;
            self.nodes.enter(new_parent, new_name)
        });
        reply_entry(reply, linked);
    }

    fn open(&self, _req: &fuser::Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_file(inode, flags) {
            // What is resident stays so from one open to the next.
            Ok(handle) => reply.opened(handle, FopenFlags::FOPEN_KEEP_CACHE),
            Err(error) => reply.error(error.into()),
        }
    }

    fn create(
        &self,
        req: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let created = self.nodes.child(parent, name).and_then(|path| {
            let file = changes::create(&path, mode & !umask, flags)?;
            changes::give(&path, req)?;
            let attributes = self.nodes.enter(parent, name)?;
            Ok((attributes, self.keep(Open::File(attributes.ino, Arc::new(file)))))
        });
        match created {
            Ok((attributes, handle)) => reply.created(
                &FOREVER,
                &attributes,
                Generation(0),
                handle,
                FopenFlags::FOPEN_KEEP_CACHE,
            ),
            Err(error) => reply.error(error.into()),
        }
    }

    fn read(
        &self,
        _req: &fuser::Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = match self.file(handle) {
            Ok(file) => file,
            Err(error) => return reply.error(error.into()),
        };
        // In memory by the time of the reply, should it be on a real disk.
        let advised = std::num::NonZeroU64::new(size.into());
        let _ = rustix::fs::fadvise(&*file, offset, advised, Advice::WillNeed);
        let end = file.metadata().map_or(u64::MAX, |metadata| metadata.len());
        // A request beyond the end is one to the store all the same.
        let len = u64::from(size).min(end.saturating_sub(offset)).max(1);
        let payload = ObjectReply::Read { file, offset, len: size as usize, reply };
        self.timer.submit(Request { offset, len, write: false }, payload);
    }

    fn write(
        &self,
        _req: &fuser::Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.file(handle).and_then(|file| file.write_all_at(data, offset)) {
            Ok(()) => {
                let request = Request { offset, len: data.len() as u64, write: true };
                self.timer.submit(request, ObjectReply::Written { len: data.len() as u32, reply });
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn flush(
        &self,
        _req: &fuser::Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS); // Nothing to do; the kernel does not ask again.
    }

    fn fsync(
        &self,
        _req: &fuser::Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn release(
        &self,
        _req: &fuser::Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.open.lock().remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, _req: &fuser::Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.open_directory(inode) {
            Ok(handle) => reply.opened(handle, FopenFlags::FOPEN_KEEP_CACHE),
            Err(error) => reply.error(error.into()),
        }
    }

    fn readdir(
        &self,
        _req: &fuser::Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(Open::Directory(names)) = self.open.lock().get(&handle.0).cloned() else {
            return reply.error(Errno::EBADF);
        };
        for (position, (inode, kind, name)) in names.iter().enumerate().skip(offset as usize) {
            if reply.add(*inode, position as u64 + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _req: &fuser::Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.open.lock().remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _req: &fuser::Request, _inode: INodeNo, reply: ReplyStatfs) {
        match self.nodes.path(INodeNo::ROOT).and_then(|path| Ok(rustix::fs::statvfs(path)?)) {
            Ok(stat) => reply.statfs(
                stat.f_blocks,
                stat.f_bfree,
                stat.f_bavail,
                stat.f_files,
                stat.f_ffree,
                stat.f_bsize as u32,
                stat.f_namemax as u32,
                stat.f_frsize as u32,
            ),
            Err(error) => reply.error(error.into()),
        }
    }

    fn getxattr(
        &self,
        _req: &fuser::Request,
        _inode: INodeNo,
        _name: &OsStr,
        _size: u32,
        reply: ReplyXattr,
    ) {
        reply.error(Errno::ENOSYS); // The kernel does not ask again; likewise below.
    }

    fn listxattr(&self, _req: &fuser::Request, _inode: INodeNo, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }
}
