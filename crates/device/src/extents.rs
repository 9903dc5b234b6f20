//! Where files lie on their devices (ioctl_fiemap(2)). The agent, which has no
//! library, asks for one place at a time by itself.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// FS_IOC_FIEMAP, `_IOWR('f', 11, struct fiemap)` (linux/fs.h).
const FS_IOC_FIEMAP: libc::Ioctl = 0xc020_660b_u32 as libc::Ioctl;
/// FIEMAP_FLAG_SYNC: write the file first, so that every byte has its place.
const FIEMAP_FLAG_SYNC: u32 = 1;
/// FIEMAP_EXTENT_LAST, and the flags of extents without a place of their own:
/// UNKNOWN, DELALLOC, ENCODED, DATA_ENCRYPTED, NOT_ALIGNED, DATA_INLINE, DATA_TAIL.
const EXTENT_LAST: u32 = 1;
const EXTENT_ELSEWHERE: u32 = 0x7ce;
/// Extents that one question asks for.
const EXTENTS_PER_CALL: usize = 64;

/// A piece of a file that is in one piece on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte in the file.
    pub logical: u64,
    /// First byte on the device.
    pub physical: u64,
    /// Bytes.
    pub length: u64,
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
    extents: [FiemapExtent; EXTENTS_PER_CALL],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

/// Where a part of a file lies: at most about `most` extents, those that follow
/// each other on the device joined, without holes and what has no place of its own.
/// `written`: what is dirty is written first, so that it has a place.
///
/// # Errors
/// If the file system does not say.
pub fn extents(
    file: &File,
    part: Range<u64>,
    most: usize,
    written: bool,
) -> io::Result<Vec<Extent>> {
    let mut found: Vec<Extent> = Vec::new();
    let mut at = part.start;
    while at < part.end && found.len() < most {
        let mut map = Fiemap {
            start: at,
            length: part.end - at,
            flags: if written { FIEMAP_FLAG_SYNC } else { 0 },
            mapped: 0,
            room: EXTENTS_PER_CALL as u32,
            reserved: 0,
            extents: [FiemapExtent::default(); EXTENTS_PER_CALL],
        };
        // SAFETY: the pointer is to a struct fiemap with as much room as it says.
        if unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut map) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mapped = &map.extents[..(map.mapped as usize).min(EXTENTS_PER_CALL)];
        for extent in mapped.iter().filter(|extent| extent.flags & EXTENT_ELSEWHERE == 0) {
            let logical = extent.logical.max(part.start);
            let end = extent.logical.saturating_add(extent.length).min(part.end);
            if logical < end {
                let physical = extent.physical + (logical - extent.logical);
                join(&mut found, Extent { logical, physical, length: end - logical });
            }
        }
        match mapped.last() {
            Some(last) if last.flags & EXTENT_LAST == 0 => {
                at = last.logical.saturating_add(last.length);
            }
            _ => break,
        }
    }
    Ok(found)
}

fn join(found: &mut Vec<Extent>, next: Extent) {
    match found.last_mut() {
        Some(last)
            if last.logical + last.length == next.logical
                && last.physical + last.length == next.physical =>
        {
            last.length += next.length;
        }
        _ => found.push(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_are_the_kernel_s() {
        assert_eq!(size_of::<FiemapExtent>(), 56);
        assert_eq!(size_of::<Fiemap>(), 32 + 56 * EXTENTS_PER_CALL);
    }

    #[test]
    fn what_follows_on_the_device_is_one_piece() {
        let extent = |logical, physical, length| Extent { logical, physical, length };
        let mut found = Vec::new();
        for next in [extent(0, 100, 10), extent(10, 110, 5), extent(15, 200, 5), extent(30, 205, 5)]
        {
            join(&mut found, next);
        }
        assert_eq!(found, [extent(0, 100, 15), extent(15, 200, 5), extent(30, 205, 5)]);
    }
}
