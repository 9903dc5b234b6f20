//! The emulated device's contents: a sparse mapping in memory, or a file of the user's.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, MemfdFlags, flock};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::{Context, Error, Result};

/// Bytes for which it is kept whether any of them was ever written.
const BLOCK: usize = 64 << 10;

/// What blocks that were never written are answered from: no request is longer
/// (FUSE's `max_pages`).
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// How long the process of an earlier device may take to let go of the image, and
/// the pause between two looks.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Sparse contents of a device. Reading is a copy from memory, so that only the
/// model decides how long a request takes; from a directory, as far as the page
/// cache holds it.
#[derive(Debug)]
pub struct Store {
    file: File,
    /// The memory; none for a file in a directory: a page of a mapping for which
    /// its file system has no room would end the process.
    base: Option<NonNull<c_void>>,
    len: usize,
    /// A bit for each [`BLOCK`] of memory: was it written? Reading memory that was
    /// not would make the kernel allocate and clear it, 1 ms for each MiB.
    written: Box<[AtomicU64]>,
}

// SAFETY: the mapping belongs to the Store alone and lives as long as it does;
// its bytes are only copied, never referred to as anything but raw bytes.
unsafe impl Send for Store {}
// SAFETY: as above; overlapping requests may race for bytes, as on a real
// device, whose content is then either the one or the other.
unsafe impl Sync for Store {}

/// Name of the file in a backing directory.
pub const IMAGE: &str = "disk.img";

impl Store {
    /// Contents of `len` bytes: zeros in anonymous memory, or [`IMAGE`] in `directory`,
    /// as it is there (kept there).
    ///
    /// # Errors
    /// If the file cannot be made or mapped, or is another device's.
    pub fn new(len: u64, directory: Option<&Path>) -> Result<Self> {
        let file = match directory {
            None => File::from(
                rustix::fs::memfd_create("runahead-slowdisk", MemfdFlags::CLOEXEC)
                    .context(|| "create the memory file".into())?,
            ),
            Some(directory) => open_image(directory)?,
        };
        file.set_len(len).context(|| format!("make a disk image of {len} bytes"))?;
        let len = len as usize;
        let base = if directory.is_none() { Some(map(&file, len)?) } else { None };
        let words = len.div_ceil(BLOCK).div_ceil(64);
        let written = (0..words).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { file, base, len, written })
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    fn clamp(&self, offset: u64, len: usize) -> (usize, usize) {
        let start = offset.min(self.len as u64) as usize;
        (start, len.min(self.len - start))
    }

    /// Words of `written` for a range that lies within the device, each with
    /// the bits of its blocks.
    fn blocks(&self, start: usize, len: usize) -> impl Iterator<Item = (&AtomicU64, u64)> {
        (start / BLOCK..(start + len).div_ceil(BLOCK))
            .filter_map(|block| Some((self.written.get(block / 64)?, 1 << (block % 64))))
    }

    /// The bytes from `offset`, at most `len`, fewer at the end; those of a file by
    /// way of `buffer`.
    ///
    /// The slice is for handing to the kernel (a `writev`): another request
    /// may be writing the same bytes.
    ///
    /// # Errors
    /// What `pread(2)` says of the file.
    pub fn read<'a>(
        &'a self,
        offset: u64,
        len: usize,
        buffer: &'a mut Vec<u8>,
    ) -> io::Result<&'a [u8]> {
        let (start, len) = self.clamp(offset, len);
        let Some(base) = self.base else {
            buffer.resize(buffer.len().max(len), 0);
            self.file.read_exact_at(&mut buffer[..len], start as u64)?;
            return Ok(&buffer[..len]);
        };
        let is_written = |(word, bit): (&AtomicU64, u64)| word.load(Relaxed) & bit != 0;
        if len <= ZEROS.len() && !self.blocks(start, len).any(is_written) {
            return Ok(&ZEROS[..len]);
        }
        // SAFETY: start + len lies within the mapping, which lives as long as
        // `self`. Concurrent writes come from requests that overlap, whose
        // result no one may rely upon; the bytes are only copied by the kernel.
        Ok(unsafe { std::slice::from_raw_parts(base.cast::<u8>().as_ptr().add(start), len) })
    }

    /// Overwrites from `offset`; returns how many bytes fitted.
    ///
    /// # Errors
    /// What `pwrite(2)` says of the file: its file system may be full.
    pub fn write(&self, offset: u64, data: &[u8]) -> io::Result<usize> {
        let (start, len) = self.clamp(offset, data.len());
        let Some(base) = self.base else {
            self.file.write_all_at(&data[..len], start as u64)?;
            return Ok(len);
        };
        self.blocks(start, len).for_each(|(word, bit)| {
            word.fetch_or(bit, Relaxed);
        });
        // SAFETY: the destination lies within the mapping and `data` cannot
        // overlap it, since no slice of the mapping is handed to writers.
        unsafe {
            let to = base.cast::<u8>().as_ptr().add(start);
            std::ptr::copy_nonoverlapping(data.as_ptr(), to, len);
        }
        Ok(len)
    }

    /// Makes a range read as zeros and gives its room back.
    ///
    /// # Errors
    /// What `fallocate(2)` says.
    pub fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, flags, offset, len)?)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(base) = self.base {
            // SAFETY: the mapping is ours and no slice outlives `self`.
            let _ = unsafe { rustix::mm::munmap(base.as_ptr(), self.len) };
        }
    }
}

/// Opens [`IMAGE`] for one device alone: with two of them on it, each file system
/// would destroy the other.
fn open_image(directory: &Path) -> Result<File> {
    let path = directory.join(IMAGE);
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        // Reading is no reason to write.
        .custom_flags(libc::O_NOATIME)
        .open(&path)
        .context(|| format!("create a disk image in {}", directory.display()))?;
    let give_up = Instant::now() + LOCK_PATIENCE;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if Instant::now() < give_up => std::thread::sleep(LOCK_PAUSE),
            Err(Errno::WOULDBLOCK) => {
                let why = "another device has its contents there: take that one down first, or \
                           give another directory";
                return Err(Error::MountPoint { path, why: why.into() });
            }
            Err(error) => return Err(error).context(|| format!("lock {}", path.display())),
        }
    }
}

fn map(file: &File, len: usize) -> Result<NonNull<c_void>> {
    // SAFETY: a fresh shared mapping at an address of the kernel's choice.
    let base = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::NORESERVE,
            file.as_fd(),
            0,
        )
    }
    .context(|| format!("map a disk image of {len} bytes"))?;
    Ok(NonNull::new(base).expect("mmap never returns null"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(store: &Store, offset: u64, len: usize) -> Vec<u8> {
        store.read(offset, len, &mut Vec::new()).unwrap().to_vec()
    }

    #[test]
    fn reads_what_was_written_and_zeros_elsewhere() {
        let store = Store::new(1 << 20, None).unwrap();
        assert_eq!(store.write(5000, b"hello").unwrap(), 5);
        assert_eq!(read(&store, 4999, 7), b"\0hello\0");
        assert_eq!(store.write((1 << 20) - 2, b"hello").unwrap(), 2, "cut at the end");
        assert_eq!(read(&store, (1 << 20) - 2, 10), b"he");
        assert_eq!(read(&store, 1 << 21, 10), b"");
        // Blocks are noted one by one, those that a write only touches, too.
        let edge = 3 * BLOCK as u64;
        assert_eq!(store.write(edge - 1, b"ab").unwrap(), 2);
        assert_eq!(read(&store, edge - 2, 4), b"\0ab\0");
        assert_eq!(read(&store, edge - 4, 4), b"\0\0\0a");
        assert_eq!(read(&store, edge, 1), b"b");
        assert_eq!(read(&store, edge - 1, BLOCK + 9)[..2], *b"ab");
        store.discard(4096, 4096).unwrap();
        assert_eq!(read(&store, 5000, 5), [0; 5]);
    }

    #[test]
    fn what_was_never_written_takes_no_memory() {
        let store = Store::new(8 << 20, None).unwrap();
        store.write(1 << 20, b"x").unwrap();
        for at in 0..8 {
            assert_eq!(
                read(&store, at << 20, 1 << 20).iter().filter(|&&byte| byte != 0).count(),
                usize::from(at == 1)
            );
        }
        let held = rustix::fs::fstat(&store.file).unwrap().st_blocks * 512;
        assert!(held <= 2 << 20, "{held} bytes");
    }

    #[test]
    fn a_directory_keeps_the_image() {
        let directory = std::env::temp_dir().join(format!("slowdisk-store-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        Store::new(8192, Some(&directory)).unwrap().write(1, b"kept").unwrap();
        let store = Store::new(8192, Some(&directory)).unwrap();
        assert_eq!(read(&store, 0, 6), b"\0kept\0");
        assert_eq!(store.write(8190, b"hello").unwrap(), 2, "cut at the end");
        assert_eq!(read(&store, 8190, 10), b"he");
        let error = Store::new(8192, Some(&directory)).unwrap_err().to_string();
        assert!(error.contains("another device"), "{error}");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
