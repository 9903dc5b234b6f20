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
use crate::state::{FDS_MAX, State};
use crate::sys;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Relaxed;
use runahead_emulate::{Emulator, Inherited, Kind};

/// Descriptors below this are looked at even where no hook has seen them.
const UNSEEN_END: u32 = 32;
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
/// that of `request`, if the stall is a read's.
///
/// # Safety
/// The caller must hold the ration's lock.
pub unsafe fn take(state: &State, request: Option<&Request>) {
    // SAFETY: the lock is held.
    let captured = unsafe { &mut *CAPTURED.0.get() };
    captured.len = 0;
    let all = captured.looks_left == 0 || CONFIG.unseen.load(Relaxed) != 0;
    captured.looks_left = if all { UNSEEN_LOOKS } else { captured.looks_left - 1 };
    let seen = state.fds_end.load(Relaxed).max(if all { UNSEEN_END } else { 0 });
    let end = (seen as usize).max(request.map_or(0, |request| request.fd as usize + 1));
    let mut open_end = 0;
    for fd in 0..end.min(FDS_MAX) as i32 {
        if let Some(inherited) = look(fd, request)
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
