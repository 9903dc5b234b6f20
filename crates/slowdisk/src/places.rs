//! Where files lie on their devices.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::error::{Context, Result};

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

/// Where a part of a file lies on its device, in bytes of the device: one range
/// for each extent, without holes and what has no place of its own.
///
/// # Errors
/// If the file cannot be opened or its file system does not say (ioctl_fiemap(2)).
pub fn places(path: &Path, part: Range<u64>) -> Result<Vec<Range<u64>>> {
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
    fn the_structures_are_the_kernel_s() {
        assert_eq!((size_of::<Fiemap>(), size_of::<Extent>()), (32 + 56 * EXTENTS, 56));
    }
}
