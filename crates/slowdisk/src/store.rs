//! The emulated device's contents: a sparse mapping in memory.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::{Context, Result};

/// Sparse, mapped contents of a device. Reading is a copy from memory, so
/// that only the model decides how long a request takes.
#[derive(Debug)]
pub struct Store {
    file: File,
    base: NonNull<c_void>,
    len: usize,
}

// SAFETY: the mapping belongs to the Store alone and lives as long as it does;
// its bytes are only copied, never referred to as anything but raw bytes.
unsafe impl Send for Store {}
// SAFETY: as above; overlapping requests may race for bytes, as on a real
// device, whose content is then either the one or the other.
unsafe impl Sync for Store {}

impl Store {
    /// Contents of `len` zero bytes in anonymous memory, or in a new file
    /// `disk.img` in `directory` (kept there).
    ///
    /// # Errors
    /// If the file cannot be made or mapped.
    pub fn new(len: u64, directory: Option<&Path>) -> Result<Self> {
        let file = match directory {
            None => File::from(
                rustix::fs::memfd_create("runahead-slowdisk", MemfdFlags::CLOEXEC)
                    .context(|| "create the memory file".into())?,
            ),
            Some(directory) => File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(directory.join("disk.img"))
                .context(|| format!("create a disk image in {}", directory.display()))?,
        };
        file.set_len(len).context(|| format!("make a disk image of {len} bytes"))?;
        let len = len as usize;
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
        let base = NonNull::new(base).expect("mmap never returns null");
        Ok(Self { file, base, len })
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    fn clamp(&self, offset: u64, len: usize) -> (usize, usize) {
        let start = offset.min(self.len as u64) as usize;
        (start, len.min(self.len - start))
    }

    /// The bytes from `offset`, at most `len`, fewer at the end.
    ///
    /// The slice is for handing to the kernel (a `writev`): another request
    /// may be writing the same bytes.
    pub fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        let (start, len) = self.clamp(offset, len);
        // SAFETY: start + len lies within the mapping, which lives as long as
        // `self`. Concurrent writes come from requests that overlap, whose
        // result no one may rely upon; the bytes are only copied by the kernel.
        unsafe { std::slice::from_raw_parts(self.base.cast::<u8>().as_ptr().add(start), len) }
    }

    /// Overwrites from `offset`; returns how many bytes fitted.
    pub fn write(&self, offset: u64, data: &[u8]) -> usize {
        let (start, len) = self.clamp(offset, data.len());
        // SAFETY: the destination lies within the mapping and `data` cannot
        // overlap it, since no slice of the mapping is handed to writers.
        unsafe {
            let to = self.base.cast::<u8>().as_ptr().add(start);
            std::ptr::copy_nonoverlapping(data.as_ptr(), to, len);
        }
        len
    }

    /// Makes a range read as zeros and gives its memory back.
    ///
    /// # Errors
    /// What `fallocate(2)` says.
    pub fn discard(&self, offset: u64, len: u64) -> std::io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, flags, offset, len)?)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no slice outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_was_written_and_zeros_elsewhere() {
        let store = Store::new(1 << 20, None).unwrap();
        assert_eq!(store.write(5000, b"hello"), 5);
        assert_eq!(store.bytes(4999, 7), b"\0hello\0");
        assert_eq!(store.write((1 << 20) - 2, b"hello"), 2, "cut at the end");
        assert_eq!(store.bytes((1 << 20) - 2, 10), b"he");
        assert_eq!(store.bytes(1 << 21, 10), b"");
        store.discard(4096, 4096).unwrap();
        assert_eq!(store.bytes(5000, 5), [0; 5]);
    }

    #[test]
    fn a_directory_keeps_the_image() {
        let directory = std::env::temp_dir().join(format!("slowdisk-store-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        Store::new(8192, Some(&directory)).unwrap().write(1, b"kept");
        assert_eq!(Store::new(8192, Some(&directory)).unwrap().bytes(1, 4), b"kept");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
