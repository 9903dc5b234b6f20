//! The FUSE file system with one file, `disk`: the contents of the device.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, ReplyXattr, WriteFlags,
};

use crate::bad_blocks::BadBlocks;
use crate::engine::{Engine, Finish};
use crate::model::Request;
use crate::store::Store;

/// Name of the one file.
pub const DISK: &str = "disk";
const DISK_INODE: INodeNo = INodeNo(2);
/// Attributes never change.
const FOREVER: Duration = Duration::from_secs(1 << 30);
/// Largest read or write in one FUSE request (the kernel's own limit without
/// raising fs.fuse.max_pages_limit).
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// The device as FUSE serves it.
#[derive(Debug)]
pub struct DiskFs {
    store: Arc<Store>,
    engine: Arc<Engine<DiskReply>>,
    bad: Arc<BadBlocks>,
    fuse_limit: u16,
}

/// A reply that waits for its time.
#[derive(Debug)]
pub enum DiskReply {
    /// Bytes of the store.
    Read {
        /// Where they are.
        store: Arc<Store>,
        /// First byte.
        offset: u64,
        /// How many.
        len: usize,
        /// Whom to tell.
        reply: ReplyData,
    },
    /// A block that cannot be read: known only when the disk has tried.
    Lost(ReplyData),
    /// So many bytes written (they are in the store already).
    Written {
        /// How many.
        len: u32,
        /// Whom to tell.
        reply: ReplyWrite,
    },
}

impl Finish for DiskReply {
    fn finish(self) {
        match self {
            Self::Read { store, offset, len, reply } => reply.data(store.bytes(offset, len)),
            Self::Lost(reply) => reply.error(Errno::EIO),
            Self::Written { len, reply } => reply.written(len),
        }
    }
}

/// Raises (or lowers) FUSE's own limits in `init`. Without this the kernel
/// lets 12 requests be in flight, and a 32-way device is a 12-way one.
pub fn configure(config: &mut KernelConfig, fuse_limit: u16) -> io::Result<()> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    config.set_max_background(fuse_limit).map_err(|_| invalid("max_background"))?;
    // The kernel's own ratio, as for its default of 12 and 9.
    let threshold = (u32::from(fuse_limit) * 3 / 4).max(1) as u16;
    config.set_congestion_threshold(threshold).map_err(|_| invalid("congestion_threshold"))?;
    config.set_max_write(REQUEST_BYTES_MAX).map_err(|_| invalid("max_write"))?;
    Ok(())
}

impl DiskFs {
    /// A device with these contents and this model behind it.
    pub fn new(
        store: Arc<Store>,
        engine: Arc<Engine<DiskReply>>,
        bad: Arc<BadBlocks>,
        fuse_limit: u16,
    ) -> Self {
        Self { store, engine, bad, fuse_limit }
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, size, perm) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0, 0o500),
            DISK_INODE => (FileType::RegularFile, self.store.len(), 0o600),
            _ => return None,
        };
        let epoch = SystemTime::UNIX_EPOCH;
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: epoch,
            mtime: epoch,
            ctime: epoch,
            crtime: epoch,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

impl Filesystem for DiskFs {
    fn init(&mut self, _req: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        configure(config, self.fuse_limit)?;
        // Without it the loop device's direct reads go one after another.
        config
            .add_capabilities(InitFlags::FUSE_ASYNC_DIO)
            .map_err(|_| io::Error::other("this kernel's FUSE has no asynchronous direct I/O"))
    }

    fn lookup(&self, _req: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(DISK_INODE) {
            Some(attributes) if parent == INodeNo::ROOT && name == DISK => {
                reply.entry(&FOREVER, &attributes, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(
        &self,
        _req: &fuser::Request,
        inode: INodeNo,
        _fh: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _req: &fuser::Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _req: &fuser::Request,
        _inode: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = u64::from(size).min(self.store.len().saturating_sub(offset));
        let store = Arc::clone(&self.store);
        let payload = if self.bad.meets(offset, len) {
            DiskReply::Lost(reply)
        } else {
            DiskReply::Read { store, offset, len: len as usize, reply }
        };
        self.engine.submit(Request { offset, len, write: false }, payload);
    }

    fn write(
        &self,
        _req: &fuser::Request,
        _inode: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let len = self.store.write(offset, data);
        if len < data.len() {
            return reply.error(Errno::ENOSPC);
        }
        let request = Request { offset, len: len as u64, write: true };
        self.engine.submit(request, DiskReply::Written { len: len as u32, reply });
    }

    fn getxattr(
        &self,
        _req: &fuser::Request,
        _inode: INodeNo,
        _name: &OsStr,
        _size: u32,
        reply: ReplyXattr,
    ) {
        reply.error(Errno::ENOSYS); // The kernel does not ask again.
    }

    fn flush(
        &self,
        _req: &fuser::Request,
        _inode: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _req: &fuser::Request,
        _inode: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        // A write is complete when it is answered: there is no cache to flush.
        reply.ok();
    }

    fn fallocate(
        &self,
        _req: &fuser::Request,
        _inode: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        // The loop device asks for this on discard and on writing zeros.
        let zeroing = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
        if mode & zeroing == 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        match self.store.discard(offset, length) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }
}
