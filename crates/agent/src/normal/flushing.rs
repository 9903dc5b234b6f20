//! Whether a copy could be made without a server of files, or its driver, taking that for
//! a close(2) of the program's.
//!
//! A copy shares the program's descriptors for a moment, and leaves their table by
//! close_range(2) with `CLOSE_RANGE_UNSHARE`. Of the first 64 the kernel copies what is
//! there all the same (dup_fd(), `NR_OPEN_DEFAULT`; Linux 6.18), and closes it, as a child
//! does that ends. Most file systems do nothing then. One of a server sends what was
//! written and asks the server (`->flush`; fuse_flush(), cifs_flush()): some servers end
//! the file with that (rclone without a cache: the next write(2) says EBADF), and some tell
//! of a failed write there, which the program's own close would have been told. So where the
//! program has such a file open to be written, there are no copies.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{opening, sys};

/// Descriptors that the kernel copies whatever it is told.
const COPIED: i32 = 64;
/// Devices of which it is remembered.
const DEVICES: usize = 4;
/// Bytes of a field of mountinfo that are looked at: those of a device's numbers, and what
/// the names of such file systems begin with.
const FIELD_LEN: usize = 24;
/// Bytes read at once.
const CHUNK_LEN: usize = 512;
/// Event devices are char devices with this major number; a close ends effects that were
/// played (evdev_flush()).
const INPUT_MAJOR: u64 = 13;

/// File systems whose files are told of each close, by what their names begin with; NFS
/// writes then and forgets nothing (nfs_file_flush()).
const NAMES: [&[u8]; 8] =
    [b"fuse", b"virtiofs", b"cifs", b"smb", b"ecryptfs", b"afs", b"coda", b"orangefs"];
/// The same by statfs(2), in the same order but for virtiofs, which is FUSE's.
const KINDS: [u64; 8] =
    [0x6573_5546, 0xff53_4d42, 0xfe53_4d42, 0x517b, 0xf15f, 0x5346_414f, 0x7375_7245, 0x2003_0528];

/// What is known of devices: a number, doubled, and 1 where files there are told of closes;
/// 0: nothing. All-zero is a valid start.
#[derive(Debug, Default)]
pub struct Known([AtomicU64; DEVICES]);

/// Whether a copy made now would be taken for a close of what the program writes. Some 4 µs:
/// a question about each of 64 numbers.
pub fn would_be_told(known: &Known) -> bool {
    (0..COPIED).any(|fd| {
        let flags = sys::status_flags(fd);
        flags >= 0 && flags as usize & O_ACCMODE != 0 && is_told(known, fd)
    })
}

const O_ACCMODE: usize = 3;

fn is_told(known: &Known, fd: i32) -> bool {
    let mut stat = sys::Stat::default();
    if !sys::known_fstat(fd, &mut stat) {
        return false;
    }
    match stat.mode & sys::S_IFMT {
        sys::S_IFREG => known.is_told(stat.dev, || asked(fd, stat.dev)),
        sys::S_IFCHR => major(stat.rdev) == INPUT_MAJOR,
        _ => false,
    }
}

impl Known {
    fn is_told(&self, device: u64, ask: impl FnOnce() -> bool) -> bool {
        let at = (device ^ device >> 8) as usize % DEVICES;
        let Some(cell) = self.0.get(at) else { return ask() };
        let known = cell.load(Relaxed);
        if known != 0 && known >> 1 == device {
            return known & 1 != 0;
        }
        let told = ask();
        cell.store(device << 1 | u64::from(told), Relaxed);
        told
    }
}

/// By the list of mounts, which no server is asked for, where the device is none of blocks;
/// what is not in it (subvolumes of btrfs), and others, say it themselves.
fn asked(fd: i32, device: u64) -> bool {
    let listed = if major(device) == 0 { listed(device) } else { None };
    listed.unwrap_or_else(|| sys::file_system(fd).is_none_or(|kind| KINDS.contains(&kind)))
}

fn listed(device: u64) -> Option<bool> {
    let mut mounts = Mounts::of(device);
    let mut chunk = [0u8; CHUNK_LEN];
    opening::with(b"/proc/self/mountinfo\0", |fd| {
        opening::read_all(fd, &mut chunk, |text| {
            text.iter().all(|byte| !mounts.take(*byte));
            mounts.found.is_none()
        });
    })?;
    mounts.found
}

/// Looks for a device in the lines of proc_pid_mountinfo(5), whatever their length: the
/// third field has its numbers, and the one behind a hyphen the file system's name.
struct Mounts {
    device: u64,
    /// Which field of the line, from 0 on.
    number: usize,
    field: [u8; FIELD_LEN],
    len: usize,
    is_ours: bool,
    names: bool,
    found: Option<bool>,
}

impl Mounts {
    fn of(device: u64) -> Mounts {
        let field = [0; FIELD_LEN];
        Mounts { device, number: 0, field, len: 0, is_ours: false, names: false, found: None }
    }

    /// One byte more; whether it has been found.
    fn take(&mut self, byte: u8) -> bool {
        if byte != b' ' && byte != b'\n' {
            if let Some(place) = self.field.get_mut(self.len) {
                *place = byte;
            }
            self.len += 1;
            return false;
        }
        let field = self.field.get(..self.len).unwrap_or(&self.field);
        const DEVICE: usize = 2;
        /// Before the hyphen there are so many at least.
        const OPTIONS: usize = 6;
        if self.number == DEVICE {
            self.is_ours = is_device(field, self.device);
        } else if self.names && self.is_ours {
            self.found = Some(NAMES.iter().any(|name| field.starts_with(name)));
        }
        self.names = self.number >= OPTIONS && field == b"-";
        self.number += 1;
        self.len = 0;
        if byte == b'\n' {
            (self.number, self.is_ours, self.names) = (0, false, false);
        }
        self.found.is_some()
    }
}

/// Whether a field says `major:minor` of a device.
fn is_device(field: &[u8], device: u64) -> bool {
    let Some(colon) = field.iter().position(|byte| *byte == b':') else { return false };
    let (before, after) = field.split_at(colon);
    let number = |digits: &[u8]| crate::procfs::decimal(digits);
    let minor = number(after.get(1..).unwrap_or(&[]));
    number(before) == Some(major(device)) && minor == Some(minor_of(device))
}

/// As stat(2) has them (makedev(3)).
fn major(device: u64) -> u64 {
    (device >> 8 & 0xfff) | (device >> 32 & !0xfff)
}

fn minor_of(device: u64) -> u64 {
    (device & 0xff) | (device >> 12 & !0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, device: u64) -> Option<bool> {
        let mut mounts = Mounts::of(device);
        text.bytes().all(|byte| !mounts.take(byte));
        mounts.found
    }

    #[test]
    fn the_list_of_mounts_says_who_is_told() {
        let long = "/very".repeat(1000);
        let text = std::format!(
            "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n\
             36 22 0:45 / {long} rw shared:7 master:2 - fuse.rclone remote: rw,user_id=0\n\
             37 22 0:46 / /a\\040-\\040b rw - tmpfs tmpfs rw\n\
             38 22 0:300 / /smb rw - cifs //host/share rw\n\
             39 22 0:47 / /nfs rw - nfs4 host:/ rw\n"
        );
        let device =
            |major: u64, minor: u64| (major & 0xfff) << 8 | (minor & 0xff) | (minor & !0xff) << 12;
        assert_eq!(found(&text, device(0, 45)), Some(true));
        assert_eq!(found(&text, device(0, 46)), Some(false));
        assert_eq!(found(&text, device(0, 300)), Some(true));
        assert_eq!(found(&text, device(0, 47)), Some(false));
        assert_eq!(found(&text, device(254, 1)), Some(false));
        assert_eq!(found(&text, device(0, 48)), None);
    }

    #[test]
    fn each_device_is_asked_about_once() {
        let known = Known::default();
        assert!(known.is_told(46, || true) && known.is_told(46, || unreachable!()));
        assert!(!known.is_told(47, || false) && !known.is_told(47, || unreachable!()));
        assert!(known.is_told(46, || unreachable!()));
    }
}
