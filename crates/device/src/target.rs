//! The live reader: a block device or a file, past the page cache.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, SeekFrom, seek};
use rustix::io::ReadWriteFlags;

use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::measure::SIZE_MIN_BYTES;
use crate::profile::Positions;
use crate::reader::{Reader, Timed};

/// Alignment of buffers, offsets and lengths that every device accepts.
const ALIGNMENT: usize = 4096;
/// Largest single request.
const REQUEST_BYTES_MAX: u64 = 4 << 20;
/// Files looked at when a directory is given.
const FILES_MAX: usize = 50_000;
/// A file this large is good enough: the search ends.
const FILE_ENOUGH_BYTES: u64 = 4 << 30;
/// Stack of a reading thread: it calls `pread` and little else.
const STACK_BYTES: usize = 128 << 10;

/// What is read.
#[derive(Debug)]
pub struct Target {
    file: File,
    path: PathBuf,
    size_bytes: u64,
    positions: Positions,
    epoch: Instant,
    buffer: Aligned,
    /// The kernel may say what is in memory: not on overlayfs, where it looks at
    /// pages that it never fills.
    tells: bool,
}

impl Target {
    /// What to read for `path`: the block device itself where that may be
    /// opened (root), otherwise the file, or a large file on the same file
    /// system below the directory.
    ///
    /// # Errors
    /// Nothing there can be measured; the message says what to do.
    pub fn open(path: &Path) -> Result<(Self, Identity)> {
        let status = fs::metadata(path).map_err(|error| Error::io(path, error))?;
        let kind = status.file_type();
        if !(kind.is_block_device() || kind.is_dir() || kind.is_file()) {
            return Err(Error::Kind { path: path.to_owned() });
        }
        let mut identity = Identity::of(path)?;
        let node = if kind.is_block_device() { Some(path.to_owned()) } else { identity.node() };
        // In a container the name may be another device's.
        let is_it = |node: &PathBuf| {
            fs::metadata(node).is_ok_and(|status| {
                status.rdev() == rustix::fs::makedev(identity.major, identity.minor)
            })
        };
        if let Some(node) = node.filter(is_it) {
            match Self::of(&node, identity.size_bytes, true) {
                Ok(target) => return Ok((target, identity)),
                Err(error) if kind.is_block_device() => return Err(error.of_device()),
                // Not root, or no node for it in this container: a file has to do.
                Err(_) => {}
            }
        }
        let file = if kind.is_dir() { find_file(path, status.dev())? } else { path.to_owned() };
        let bytes = fs::metadata(&file).map_err(|error| Error::io(&file, error))?.len();
        if bytes >= SIZE_MIN_BYTES && !has_data(&file, bytes) {
            return Err(Error::Sparse { path: file });
        }
        identity.size_bytes = bytes;
        Ok((Self::of(&file, bytes, false)?, identity))
    }

    fn of(path: &Path, size_bytes: u64, device: bool) -> Result<Self> {
        // Blocks at the end that are no whole page are left out.
        let size_bytes = size_bytes / ALIGNMENT as u64 * ALIGNMENT as u64;
        if size_bytes < SIZE_MIN_BYTES {
            let path = path.to_owned();
            return Err(Error::TooSmall { path, bytes: size_bytes, bytes_min: SIZE_MIN_BYTES });
        }
        // It never writes, times of access neither: refused for files of others.
        let open_with = |flags| File::options().read(true).custom_flags(flags).open(path);
        let open = |flags| open_with(flags | libc::O_NOATIME).or_else(|_| open_with(flags));
        let mut target = Self {
            file: open(libc::O_DIRECT)
                .or_else(|_| open(0))
                .map_err(|error| Error::io(path, error))?,
            path: path.to_owned(),
            size_bytes,
            positions: if device { Positions::Device } else { Positions::File },
            epoch: Instant::now(),
            buffer: Aligned::new(REQUEST_BYTES_MAX as usize),
            tells: true,
        };
        // Some file systems refuse O_DIRECT at open, some at the first read.
        let direct = rustix::fs::fcntl_getfl(&target.file)
            .is_ok_and(|flags| flags.contains(rustix::fs::OFlags::DIRECT));
        let buffer = target.buffer.bytes(ALIGNMENT);
        if !direct || target.file.read_at(buffer, 0).is_err() {
            target.file = open(0).map_err(|error| Error::io(path, error))?;
            target.positions = Positions::CachedFile;
            target.tells = !is_overlay(&target.file);
            // Of our own description: nobody else's readahead changes.
            let _ = rustix::fs::fadvise(&target.file, 0, None, Advice::Random);
        }
        Ok(target)
    }

    /// How it is read.
    pub fn positions(&self) -> Positions {
        self.positions
    }

    /// One read into `buffer`; `None` where memory answered.
    fn read_once(&self, buffer: &mut [u8], offset: u64) -> Result<Option<Timed>> {
        let cached = self.positions == Positions::CachedFile;
        let len = buffer.len() as u64;
        if cached {
            match self.tells.then(|| self.pages_cached(offset, len)).flatten() {
                Some(0) => {}
                // Others use them: they stay.
                Some(_) => return Ok(None),
                None => self.drop_pages(offset, len),
            }
        }
        let start_ns = self.now_ns();
        // Asking starts the read where the answer is no, so it is timed too.
        let resident = cached && self.is_resident(buffer, offset);
        let read = self.file.read_exact_at(buffer, offset);
        let end_ns = self.now_ns();
        read.map_err(|error| Error::io(&self.path, error))?;
        if cached && !resident {
            // Nobody else has asked for it.
            self.drop_pages(offset, len);
        }
        Ok((!resident).then_some(Timed { start_ns, end_ns }))
    }

    /// Pages of a range in memory, dirty or being written among them (cachestat(2),
    /// Linux 6.5); `None` where the kernel does not say, as of files that one
    /// neither owns nor may write.
    fn pages_cached(&self, offset: u64, len: u64) -> Option<u64> {
        /// The same number on all architectures.
        const SYS_CACHESTAT: libc::c_long = 451;
        let range = [offset, len];
        let mut found = [0u64; 5];
        let [range_at, found_at] = [range.as_ptr(), found.as_mut_ptr().cast_const()];
        // SAFETY: the kernel reads one struct cachestat_range (two numbers) and
        // writes one struct cachestat (five).
        let result =
            unsafe { libc::syscall(SYS_CACHESTAT, self.file.as_raw_fd(), range_at, found_at, 0) };
        (result == 0).then_some(found[0])
    }

    fn drop_pages(&self, offset: u64, len: u64) {
        let len = std::num::NonZeroU64::new(len);
        let _ = rustix::fs::fadvise(&self.file, offset, len, Advice::DontNeed);
    }

    /// Whether the first page is in memory (RWF_NOWAIT, preadv2(2)); false
    /// where the file system does not tell.
    fn is_resident(&self, buffer: &mut [u8], offset: u64) -> bool {
        let page = buffer.len().min(ALIGNMENT);
        let mut slices = [io::IoSliceMut::new(&mut buffer[..page])];
        let asked = rustix::io::preadv2(&self.file, &mut slices, offset, ReadWriteFlags::NOWAIT);
        asked.is_ok_and(|read| read > 0)
    }
}

impl Reader for Target {
    fn path(&self) -> &Path {
        &self.path
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn request_bytes_max(&self) -> u64 {
        REQUEST_BYTES_MAX
    }

    fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn pause(&mut self, duration_ns: u64) {
        std::thread::sleep(Duration::from_nanos(duration_ns));
    }

    fn read(&mut self, offset: u64, len: u64) -> Result<Option<Timed>> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let timed = self.read_once(buffer.bytes(len as usize), offset);
        self.buffer = buffer;
        timed
    }

    fn parallel(&mut self, offsets: &[u64], len: u64, depth: usize) -> Result<Vec<u64>> {
        let (target, next) = (&*self, AtomicUsize::new(0));
        let worker = || -> Result<Vec<u64>> {
            let (mut buffer, mut ends) = (Aligned::new(len as usize), Vec::new());
            while let Some(offset) = offsets.get(next.fetch_add(1, Ordering::Relaxed)) {
                ends.extend(
                    target.read_once(buffer.bytes(len as usize), *offset)?.map(|t| t.end_ns),
                );
            }
            Ok(ends)
        };
        let outcomes: Vec<Result<Vec<u64>>> = std::thread::scope(|scope| {
            let builder = || std::thread::Builder::new().stack_size(STACK_BYTES);
            let workers: Vec<_> =
                (0..depth).map(|_| builder().spawn_scoped(scope, worker)).collect();
            let join = |spawned: io::Result<std::thread::ScopedJoinHandle<'_, _>>| match spawned {
                Ok(worker) => worker.join().expect("a reader panicked"),
                Err(cause) => Err(Error::Threads { threads: depth, cause }),
            };
            workers.into_iter().map(join).collect()
        });
        let mut ends = Vec::new();
        for outcome in outcomes {
            ends.extend(outcome?);
        }
        Ok(ends)
    }
}

fn is_overlay(file: &File) -> bool {
    /// OVERLAYFS_SUPER_MAGIC (linux/magic.h).
    const OVERLAYFS: i64 = 0x794c_7630;
    rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type == OVERLAYFS)
}

/// Whether nearly all of a file is data: holes, and what was only set aside for it
/// (fallocate(2)), are read without the device. `false` where it cannot be opened.
fn has_data(path: &Path, bytes: u64) -> bool {
    /// Pieces of data that are counted; a file of more is taken to be whole.
    const PIECES_MAX: usize = 4096;
    let Ok(file) = File::open(path) else { return false };
    let (mut at, mut data) = (0, 0);
    for _ in 0..PIECES_MAX {
        // ENXIO: none behind.
        let Ok(start) = seek(&file, SeekFrom::Data(at)) else { return data >= bytes / 10 * 9 };
        let Ok(end) = seek(&file, SeekFrom::Hole(start)) else { break };
        data += end - start;
        at = end;
    }
    true
}

/// The largest readable file on the file system below `directory`.
fn find_file(directory: &Path, device: u64) -> Result<PathBuf> {
    let mut best: Option<(u64, PathBuf)> = None;
    let walk = walkdir::WalkDir::new(directory).same_file_system(true).max_depth(12);
    for entry in walk.into_iter().filter_map(|entry| entry.ok()).take(FILES_MAX) {
        let Ok(status) = entry.metadata() else { continue };
        if !status.is_file() || status.dev() != device || status.len() < SIZE_MIN_BYTES {
            continue;
        }
        let better = best.as_ref().is_none_or(|(bytes, _)| status.len() > *bytes);
        if better && has_data(entry.path(), status.len()) {
            best = Some((status.len(), entry.into_path()));
        }
        if best.as_ref().is_some_and(|(bytes, _)| *bytes >= FILE_ENOUGH_BYTES) {
            break;
        }
    }
    let none = || Error::NoFile { path: directory.to_owned(), bytes_min: SIZE_MIN_BYTES };
    best.map(|(_, path)| path).ok_or_else(none)
}

/// Gives this process the idle I/O class (ioprio_set(2)): reads of others go
/// first, where the device's scheduler heeds it.
///
/// # Errors
/// The kernel refused.
pub fn use_idle_io_priority() -> io::Result<()> {
    const IOPRIO_WHO_PROCESS: libc::c_long = 1;
    const IOPRIO_CLASS_IDLE: libc::c_long = 3 << 13;
    // SAFETY: three numbers; concerns the calling thread and those it starts.
    let result =
        unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_CLASS_IDLE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A page-aligned buffer for direct I/O.
#[derive(Debug, Default)]
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
}

impl Aligned {
    fn new(len: usize) -> Self {
        let bytes = vec![0; len + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Self { bytes, start }
    }

    fn bytes(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_a_large_file_says_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("small"), "x").unwrap();
        let error = find_file(directory.path(), fs::metadata(directory.path()).unwrap().dev());
        assert!(error.unwrap_err().to_string().contains("dd if="));
    }

    #[test]
    fn a_file_is_read_at_any_depth() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        fs::write(&path, vec![7u8; SIZE_MIN_BYTES as usize]).unwrap();
        let mut target = Target::of(&path, SIZE_MIN_BYTES, false).unwrap();
        let offsets: Vec<u64> = (0..100).map(|i| i * 4096).collect();
        let ends = target.parallel(&offsets, 4096, 16).unwrap();
        assert!(ends.len() <= 100);
        if target.positions() == Positions::File {
            assert_eq!(ends.len(), 100);
            assert!(target.read(4096, 65_536).unwrap().is_some());
        }
    }

    #[test]
    fn a_file_without_data_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("holes");
        let file = File::create(&path).unwrap();
        file.set_len(SIZE_MIN_BYTES * 4).unwrap();
        file.write_all_at(&[1; 65_536], SIZE_MIN_BYTES).unwrap();
        assert!(!has_data(&path, SIZE_MIN_BYTES * 4));
        let device = fs::metadata(directory.path()).unwrap().dev();
        assert!(matches!(find_file(directory.path(), device), Err(Error::NoFile { .. })));
        let full = directory.path().join("full");
        fs::write(&full, vec![1u8; SIZE_MIN_BYTES as usize]).unwrap();
        assert!(has_data(&full, SIZE_MIN_BYTES));
        assert_eq!(find_file(directory.path(), device).unwrap(), full);
    }

    #[test]
    fn what_is_no_storage_is_refused() {
        assert!(matches!(Target::open(Path::new("/dev/null")), Err(Error::Kind { .. })));
        assert!(matches!(Target::open(Path::new("/nonexistent")), Err(Error::Io { .. })));
    }
}
