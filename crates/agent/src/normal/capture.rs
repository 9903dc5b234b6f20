//! What the program has open, taken down before the copy is made.
//!
//! By the normal process, not by the copy while it still shares the table:
//! every look at a descriptor of a shared table holds a reference to the open
//! file for that moment. Were the program to close it just then, the copy
//! would have the last reference, and let go of it only when it is scheduled
//! again: a pipe's reader would not see the end of file, a socket's peer not
//! the close, a lock would stay.

use super::{OFFSET_NONE, Request};
use crate::config::CONFIG;
use crate::import::regions::is_single_threaded;
use crate::state::{FDS_MAX, State, class};
use crate::sys;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Relaxed;
use runahead_emulate::{Emulator, Inherited, Kind, POSITION_UNKNOWN};

/// Descriptors below this are looked at even where no hook has seen them.
pub const UNSEEN_END: u32 = 32;
/// Synchronisations between two such looks: what the program had from the
/// start is known after the first, and what it gets where no hook sees it
/// (from a socket, by a system call of its own) is seldom read.
const UNSEEN_LOOKS: u32 = 32;

/// The descriptors of the last synchronisation, by number. Each page that is
/// written is one that the next copy shares, a fault each: what is always
/// written lies beside the first of them.
#[repr(C, align(4096))]
struct Captured {
    /// Synchronisations before descriptors that no hook has seen are looked
    /// at again.
    looks_left: u32,
    len: usize,
    open: [(i32, Inherited); FDS_MAX],
}

struct Shared(UnsafeCell<Captured>);

// SAFETY: used by the thread that holds the ration's lock, and in the copy
// that it makes, which has no other thread.
unsafe impl Sync for Shared {}

const NONE: Inherited = Inherited {
    kind: Kind::Free,
    dev: 0,
    ino: 0,
    offset: 0,
    size: 0,
    mode: 0,
    status_flags: 0,
    cloexec: false,
};

static CAPTURED: Shared =
    Shared(UnsafeCell::new(Captured { looks_left: 0, len: 0, open: [(0, NONE); FDS_MAX] }));

/// Takes down the descriptors that hooks have seen, now and then others, and
/// that of `request`, if the stall is a read's. `listed`: the directory that this
/// thread has waited for, if it is a directory's.
///
/// # Safety
/// The caller must hold the ration's lock.
pub unsafe fn take(state: &State, request: Option<&Request>, listed: Option<i32>) {
    // SAFETY: the lock is held.
    let captured = unsafe { &mut *CAPTURED.0.get() };
    captured.len = 0;
    let all = captured.looks_left == 0 || CONFIG.unseen.load(Relaxed) != 0;
    captured.looks_left = if all { UNSEEN_LOOKS } else { captured.looks_left - 1 };
    let seen = state.fds_end.load(Relaxed).max(if all { UNSEEN_END } else { 0 });
    let end = (seen as usize).max(request.map_or(0, |request| request.fd as usize + 1));
    let mut open_end = 0;
    for fd in 0..end.min(FDS_MAX) as i32 {
        if let Some(inherited) = look(state, fd, request, listed)
            && let Some(slot) = captured.open.get_mut(captured.len)
        {
            *slot = (fd, inherited);
            captured.len += 1;
            open_end = fd as u32 + 1;
        }
    }
    // From here on as if a hook had seen it.
    state.fds_end.fetch_max(open_end, Relaxed);
}

/// Whether a file is among what was taken down whose reads are direct.
///
/// # Safety
/// As for [`take`].
pub unsafe fn reads_directly() -> bool {
    // SAFETY: the lock is held.
    let captured = unsafe { &*CAPTURED.0.get() };
    // Of a pipe the flag means something else.
    captured.open.iter().take(captured.len).any(|(_, one)| {
        matches!(one.mode & sys::S_IFMT, sys::S_IFREG | sys::S_IFBLK)
            && one.status_flags & sys::O_DIRECT as u32 != 0
    })
}

/// Hands what was taken down to the emulator, in the copy.
///
/// # Safety
/// Only in a speculative process, before the program's code runs there.
pub unsafe fn hand_over(emulator: &mut Emulator) {
    // SAFETY: one thread, and `take` has ended before the clone.
    let captured = unsafe { &*CAPTURED.0.get() };
    for &(fd, inherited) in captured.open.iter().take(captured.len) {
        emulator.inherit(fd, inherited);
    }
}

fn look(
    state: &State,
    fd: i32,
    request: Option<&Request>,
    listed: Option<i32>,
) -> Option<Inherited> {
    let mut stat = sys::Stat::default();
    // Nobody has asked for it, and the file may be another's than the read's.
    if !sys::known_fstat(fd, &mut stat) {
        return None;
    }
    let kind = match stat.mode & sys::S_IFMT {
        sys::S_IFREG => Kind::Regular,
        sys::S_IFDIR => Kind::Directory,
        _ => Kind::Other,
    };
    let own = request
        .filter(|request| fd == request.fd && request.offset != OFFSET_NONE && !request.explicit);
    let offset = match kind {
        _ if own.is_some() => own.map_or(0, |request| request.offset),
        Kind::Regular => position(fd, stat.size),
        Kind::Directory if listed == Some(fd) || is_listed_by_nobody_else(state, fd) => {
            sys::position(fd).max(0) as u64
        }
        Kind::Directory => POSITION_UNKNOWN,
        _ => 0,
    };
    Some(Inherited {
        kind,
        dev: stat.dev,
        ino: stat.ino,
        mode: stat.mode,
        offset,
        size: stat.size.max(0) as u64,
        status_flags: sys::status_flags(fd).max(0) as u32,
        cloexec: false,
    })
}

/// The position of a regular file of `size` bytes, as far as that can be told
/// without waiting for anybody.
///
/// lseek(2) takes the lock that a read by the position holds until it returns
/// (fs/file.c, `fdget_pos`; Linux 3.14), and cannot be interrupted there, not
/// even by SIGKILL. Another thread, or a process that shares the description,
/// may be in such a read for as long as a device or a server takes, or for
/// good (/proc/kmsg). `FIONREAD` takes no lock: it is the size less the
/// position, of which an int is told (fs/ioctl.c, `do_vfs_ioctl`). Of larger
/// files, and of directories that others may list, the copy looks it up where it
/// needs it.
fn position(fd: i32, size: i64) -> u64 {
    const FIONREAD: usize = 0x541b;
    let Ok(size) = u32::try_from(size) else { return POSITION_UNKNOWN };
    let mut left = 0u32;
    // SAFETY: a question; the kernel writes one int.
    match unsafe { sys::ioctl(fd, FIONREAD, core::ptr::from_mut(&mut left) as usize) } {
        0 => u64::from(size.wrapping_sub(left)),
        _ => POSITION_UNKNOWN,
    }
}

/// Whether lseek(2) of a directory waits for nobody, as far as can be known. Where
/// it does, the position is that of this moment: after a wait for a directory the
/// program goes on at once, and lists more before the copy could look it up.
fn is_listed_by_nobody_else(state: &State, fd: i32) -> bool {
    let class = state.class(fd as u32 as usize).map(|class| class.load(Relaxed));
    class != Some(class::INHERITED) && is_single_threaded()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_position_is_told_as_far_as_an_int_tells_it() {
        const INT: u64 = 1 << 32;
        let name = std::format!("runahead-position-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut file = std::fs::File::create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for (size, at) in [(0, 0), (5000, 0), (5000, 4321), (5000, 6000), (INT - 1, INT - 2)] {
            file.set_len(size).unwrap();
            file.seek(SeekFrom::Start(at)).unwrap();
            assert_eq!(position(file.as_raw_fd(), size as i64), at, "of {size}");
        }
        file.set_len(INT).unwrap();
        file.seek(SeekFrom::Start(1)).unwrap();
        assert_eq!(position(file.as_raw_fd(), INT as i64), POSITION_UNKNOWN);
        let directory = std::fs::File::open("/").unwrap();
        assert_eq!(position(directory.as_raw_fd(), 1), POSITION_UNKNOWN, "no file");
    }
}
