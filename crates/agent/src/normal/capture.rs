//! What the program has open, taken down before the copy is made.
//!
//! By the normal process, not by the copy while it still shares the table:
//! every look at a descriptor of a shared table holds a reference to the open
//! file for that moment. Were the program to close it just then, the copy
//! would have the last reference, and let go of it only when it is scheduled
//! again: a pipe's reader would not see the end of file, a socket's peer not
//! the close, a lock would stay.

use super::{OFFSET_NONE, Request};
use crate::state::FDS_MAX;
use crate::sys;
use core::cell::UnsafeCell;
use runahead_emulate::{Emulator, Inherited, Kind};

/// The descriptors of the last synchronisation, by number.
struct Captured {
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

static CAPTURED: Shared = Shared(UnsafeCell::new(Captured { len: 0, open: [(0, NONE); FDS_MAX] }));

/// Takes down the descriptors below `fds_end`, and that of `request`, if
/// the stall is a read's.
///
/// # Safety
/// The caller must hold the ration's lock.
pub unsafe fn take(request: Option<&Request>, fds_end: u32) {
    // SAFETY: the lock is held.
    let captured = unsafe { &mut *CAPTURED.0.get() };
    captured.len = 0;
    let end =
        (fds_end as usize).max(request.map_or(0, |request| request.fd as usize + 1)).min(FDS_MAX);
    for fd in 0..end as i32 {
        if let Some(inherited) = look(fd, request)
            && let Some(slot) = captured.open.get_mut(captured.len)
        {
            *slot = (fd, inherited);
            captured.len += 1;
        }
    }
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

fn look(fd: i32, request: Option<&Request>) -> Option<Inherited> {
    let mut stat = sys::Stat::default();
    if sys::fstat(fd, &mut stat) != 0 {
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
        Kind::Regular | Kind::Directory => sys::position(fd).max(0) as u64,
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
