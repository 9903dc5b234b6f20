//! Blocks that cannot be read: a device's media errors, on demand.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;

use parking_lot::Mutex;

use crate::control::Ask;
use crate::error::{Context, Error, Result};
use crate::state::State;

/// Unit in which a device loses bytes, as a disk with 4 KiB sectors does.
pub const BLOCK_BYTES: u64 = 4096;
/// FS_IOC_FIEMAP, `_IOWR('f', 11, struct fiemap)` (linux/fs.h).
const FS_IOC_FIEMAP: libc::Ioctl = 0xc020_660b_u32 as libc::Ioctl;
/// FIEMAP_FLAG_SYNC: write the file first, so that every byte has its place.
const FIEMAP_FLAG_SYNC: u32 = 1;
/// FIEMAP_EXTENT_LAST, and the flags of extents without a place of their own:
/// UNKNOWN, DELALLOC, ENCODED, DATA_ENCRYPTED, NOT_ALIGNED, DATA_INLINE, DATA_TAIL.
const EXTENT_LAST: u32 = 1;
const EXTENT_ELSEWHERE: u32 = 0x7ce;
/// Extents that one question asks for.
const EXTENTS: usize = 64;

/// What a device cannot read, in bytes of the device.
#[derive(Debug, Default)]
pub struct BadBlocks(Mutex<Vec<Range<u64>>>);

impl BadBlocks {
    /// Loses these ranges as well, whole blocks of [`BLOCK_BYTES`].
    pub fn lose(&self, ranges: &[Range<u64>]) {
        let blocks = |range: &Range<u64>| {
            range.start / BLOCK_BYTES * BLOCK_BYTES..range.end.next_multiple_of(BLOCK_BYTES)
        };
        self.0.lock().extend(ranges.iter().map(blocks));
    }

    /// Every block can be read again.
    pub fn mend(&self) {
        self.0.lock().clear();
    }

    /// Whether a read of `len` bytes at `offset` meets a lost block.
    pub fn meets(&self, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        self.0.lock().iter().any(|lost| lost.start < end && offset < lost.end)
    }
}

/// Makes reads of this part of a file fail with EIO, where they reach the
/// device: what is in memory stays readable until the device goes cold.
/// Returns how many bytes of the device are lost.
///
/// # Errors
/// If the file is on no emulated block device (`object` has none), cannot be
/// opened, or has nothing there.
pub fn lose(file: &Path, part: Range<u64>) -> Result<u64> {
    let state = State::containing(file)?;
    if state.device.is_none() {
        return Err(Error::Usage(format!(
            "{} has no blocks that could go bad: use a profile with a block device",
            state.options.profile
        )));
    }
    let ranges = places(file, part)?;
    if ranges.is_empty() {
        return Err(Error::Usage(format!(
            "{} has no bytes on the device there: a hole, or beyond its end",
            file.display()
        )));
    }
    let bytes = ranges.iter().map(|range| range.end - range.start).sum();
    state.ask(Ask::Lose { ranges })?;
    Ok(bytes)
}

/// `struct fiemap` (linux/fiemap.h) with room for its extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
    extents: [Extent; EXTENTS],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

/// Where a part of a file lies on its device.
fn places(path: &Path, part: Range<u64>) -> Result<Vec<Range<u64>>> {
    let file = File::open(path).context(|| format!("open {}", path.display()))?;
    let mut places = Vec::new();
    let mut at = part.start;
    while at < part.end {
        let mut map = Fiemap {
            start: at,
            length: part.end - at,
            flags: FIEMAP_FLAG_SYNC,
            mapped: 0,
            room: EXTENTS as u32,
            reserved: 0,
            extents: [Extent::default(); EXTENTS],
        };
        // SAFETY: the pointer is to a struct fiemap with as much room as it says.
        if unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut map) } != 0 {
            return Err(std::io::Error::last_os_error())
                .context(|| format!("ask where {} lies", path.display()));
        }
        let found = &map.extents[..(map.mapped as usize).min(EXTENTS)];
        for extent in found {
            let (first, last) =
                (extent.logical.max(part.start), (extent.logical + extent.length).min(part.end));
            if extent.flags & EXTENT_ELSEWHERE == 0 && first < last {
                let start = extent.physical + (first - extent.logical);
                places.push(start..start + (last - first));
            }
        }
        match found.last() {
            Some(last) if last.flags & EXTENT_LAST == 0 => at = last.logical + last.length,
            _ => break,
        }
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_are_lost_and_no_others() {
        let bad = BadBlocks::default();
        bad.lose(std::slice::from_ref(&(5000..5001)));
        assert!(bad.meets(4096, 1) && bad.meets(8191, 1) && bad.meets(0, 1 << 20));
        assert!(!bad.meets(0, 4096) && !bad.meets(8192, 4096) && !bad.meets(4096, 0));
        bad.mend();
        assert!(!bad.meets(4096, 1));
    }

    #[test]
    fn the_structures_are_the_kernel_s() {
        assert_eq!((size_of::<Fiemap>(), size_of::<Extent>()), (32 + 56 * EXTENTS, 56));
    }
}
