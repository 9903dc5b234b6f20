//! The file behind a mapping, opened again for reading: the program may have
//! closed its descriptor long ago. By the path that the kernel gives, where
//! that still leads to the same file; else through `/proc/self/map_files`,
//! which takes CAP_CHECKPOINT_RESTORE.

use super::regions::Region;
use crate::Gate;
use crate::arch::nr;
use crate::sys::{self, call};
use runahead_emulate::residency::{Candidate, Method, Methods, Oracle, before_opening};
use runahead_protocol::log::Log;

const O_NOATIME: usize = 0o1_000_000;
const O_NONBLOCK: usize = 0o4_000;
const O_PATH: usize = 0o10_000_000;

/// Opens it and fills in what is known of it; not where the file system is one of which
/// files are not to be opened. `user` is the one for file system checks.
pub fn open(
    log: &Log,
    methods: &mut Methods,
    region: &mut Region,
    name: &[u8],
    user: u32,
) -> Option<i32> {
    let path = by_path(region, name).or_else(|| by_mapping(region))?;
    let fd = open_inode(log, methods, region, path, user);
    sys::close(path);
    fd
}

/// The same, of what there is an `O_PATH` descriptor.
fn open_inode(
    log: &Log,
    methods: &mut Methods,
    region: &mut Region,
    path: i32,
    user: u32,
) -> Option<i32> {
    let mut stat = sys::Stat::default();
    if sys::fstat(path, &mut stat) != 0 {
        return None;
    }
    let name = own_name(path);
    let owned = user == 0 || user == stat.uid;
    region.dev = stat.dev;
    region.size = stat.size.max(0) as u64;
    region.oracle = Oracle::new(owned);
    let candidate = Candidate {
        path_fd: path as usize,
        at: (sys::AT_FDCWD, name.as_ptr() as usize),
        dev: region.dev,
        size: region.size,
        owned,
    };
    match before_opening(&mut Gate, methods, &candidate, &log.opening) {
        Method::Delicate | Method::Unopened => None,
        // Nothing is waited for there; and where it is hugetlbfs, the mappings that a copy
        // makes in the place of the program's would take pages from the machine's pool.
        Method::MadeUp | Method::Sysfs => None,
        _ => open_for_reading(name.as_ptr() as usize),
    }
}

/// An `O_PATH` descriptor: what stands there now may be a FIFO or a device.
fn by_path(region: &Region, name: &[u8]) -> Option<i32> {
    if name.last() != Some(&0) {
        return None;
    }
    same(region, name.as_ptr() as usize)
}

/// An `O_PATH` descriptor by way of the mapping itself.
fn by_mapping(region: &Region) -> Option<i32> {
    let mut path = [0u8; 64];
    let mut at = 0usize;
    let mut put = |byte: u8| {
        if let Some(slot) = path.get_mut(at) {
            *slot = byte;
        }
        at += 1;
    };
    b"/proc/self/map_files/".iter().for_each(|&byte| put(byte));
    hexadecimal(region.start, &mut put);
    put(b'-');
    hexadecimal(region.end, &mut put);
    same(region, path.as_ptr() as usize)
}

fn same(region: &Region, path: usize) -> Option<i32> {
    let fd = open_at(path, O_PATH)?;
    if is_same(fd, region) {
        return Some(fd);
    }
    sys::close(fd);
    None
}

/// Whether a descriptor is of the region's file and that is a regular one.
fn is_same(fd: i32, region: &Region) -> bool {
    let mut stat = sys::Stat::default();
    if sys::fstat(fd, &mut stat) != 0 || stat.mode & sys::S_IFMT != sys::S_IFREG {
        return false;
    }
    // makedev(3).
    let major = (stat.dev >> 8) & 0xfff | (stat.dev >> 32) & !0xfff;
    let minor = stat.dev & 0xff | (stat.dev >> 12) & 0xffff_ff00;
    (major as u32, minor as u32) == region.device && stat.ino == region.inode
}

/// The very file behind one of this process's own descriptors, opened again
/// with a description of its own.
pub fn again(fd: i32) -> Option<i32> {
    open_for_reading(own_name(fd).as_ptr() as usize)
}

/// The path of one of this process's own descriptors.
fn own_name(fd: i32) -> [u8; 32] {
    let mut path = [0u8; 32];
    let mut at = 0usize;
    let mut put = |byte: u8| {
        if let Some(slot) = path.get_mut(at) {
            *slot = byte;
        }
        at += 1;
    };
    b"/proc/self/fd/".iter().for_each(|&byte| put(byte));
    let mut divisor = 1_000_000i32;
    while divisor > 0 {
        if fd / divisor > 0 || divisor == 1 {
            put(b'0' + (fd / divisor % 10) as u8);
        }
        divisor /= 10;
    }
    path
}

/// Without a change of the access time where that is allowed.
fn open_for_reading(path: usize) -> Option<i32> {
    open_at(path, O_NONBLOCK | O_NOATIME).or_else(|| open_at(path, O_NONBLOCK))
}

fn open_at(path: usize, flags: usize) -> Option<i32> {
    let args = [sys::AT_FDCWD, path, sys::O_RDONLY_CLOEXEC | flags];
    // SAFETY: opens a NUL-terminated path of ours for reading at most.
    let fd = unsafe { call(nr::OPENAT, &args) };
    (fd >= 0).then_some(fd as i32)
}

/// Lower-case digits without leading zeros, as the kernel names its links.
fn hexadecimal(value: usize, put: &mut impl FnMut(u8)) {
    let digits = (usize::BITS - value.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        let digit = (value >> (place * 4) & 15) as u8;
        put(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_named_as_the_kernel_does() {
        let mut text = Vec::new();
        hexadecimal(0x7f00_0ab0, &mut |byte| text.push(byte));
        text.push(b'-');
        hexadecimal(0, &mut |byte| text.push(byte));
        assert_eq!(text, b"7f000ab0-0");
    }

    #[test]
    fn a_descriptor_is_opened_again_with_an_offset_of_its_own() {
        use std::os::fd::AsRawFd;
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let fd = again(file.as_raw_fd()).unwrap();
        let (mut one, mut other) = (sys::Stat::default(), sys::Stat::default());
        assert_eq!(sys::fstat(fd, &mut one), 0);
        assert_eq!(sys::fstat(file.as_raw_fd(), &mut other), 0);
        assert_eq!((one.dev, one.ino), (other.dev, other.ino));
        assert_ne!(fd, file.as_raw_fd());
        sys::close(fd);
    }
}
