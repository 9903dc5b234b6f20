//! Files that the agent opens for a moment, in the descriptor table of the program: no
//! handler of the program's leaves them open, and no thread of it lacks the descriptor.

use crate::arch::nr;
use crate::config::CONFIG;
use crate::import::regions::is_single_threaded;
use crate::state::{role, state};
use crate::sys::{self, call};
use core::sync::atomic::Ordering::Relaxed;

/// Descriptors that must be free where there are threads: one is ours, and the others go on
/// opening files meanwhile.
const ROOM: u64 = 8;

/// What `action` makes of a file that is open to be read meanwhile; `None` where it cannot
/// be opened, or has no room, or the root directory is another one by now. `path` ends in
/// NUL. Without a signal in between: a handler that left by `longjmp`, or a cancellation,
/// would leave the file open. A copy has no handlers and a table of its own, and its filter
/// ends it where it sets a mask.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
pub fn with<R>(path: &[u8], action: impl FnOnce(i32) -> R) -> Option<R> {
    if state().is_some_and(|state| state.role.load(Relaxed) == role::SPECULATIVE) {
        return undisturbed(path, action);
    }
    sys::undisturbed(|| if has_room() { undisturbed(path, action) } else { None })
}

/// Whether no other thread can lack the descriptor that is about to be used. The last ones
/// are looked at: a new one is the first that is free. Under a filter nobody asks how many
/// threads there are, which would take longer.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
pub fn has_room() -> bool {
    CONFIG.filtered.load(Relaxed) == 0 && is_single_threaded() || are_last_free()
}

#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn are_last_free() -> bool {
    const RLIMIT_NOFILE: usize = 7;
    match sys::soft_limit(RLIMIT_NOFILE) {
        Some(limit) => are_last_free_below(limit),
        // A filter may refuse to say.
        None => is_single_threaded(),
    }
}

#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn are_last_free_below(limit: u64) -> bool {
    const F_GETFD: usize = 1;
    const FD_END: u64 = i32::MAX as u64;
    // SAFETY: a query.
    let is_free = |fd| unsafe { call(nr::FCNTL, &[fd as usize, F_GETFD]) } == sys::EBADF;
    let end = limit.min(FD_END);
    end >= ROOM && (end - ROOM..end).rev().all(is_free)
}

/// The same where no handler is to be feared, or signals are blocked already.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
pub fn undisturbed<R>(path: &[u8], action: impl FnOnce(i32) -> R) -> Option<R> {
    if CONFIG.other_root.load(Relaxed) != 0 { None } else { below_any_root(path, action) }
}

/// The same of a path that means what is there now, whichever root directory this is.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
pub fn below_any_root<R>(path: &[u8], action: impl FnOnce(i32) -> R) -> Option<R> {
    let fd = i32::try_from(sys::open_read(path)).ok().filter(|fd| *fd >= 0)?;
    let result = action(fd);
    sys::close(fd);
    Some(result)
}

/// Most that is read of a file, in bytes: /proc/self/smaps says some 700 of each mapping,
/// of which a process has 65,530 unless somebody has allowed more. What has no end (a
/// device in the place of a file) is given up.
const READ_BYTES_MAX: usize = 64 << 20;

/// Reads an open file to its end, `chunk` by `chunk`, or as long as `action` goes on.
#[inline]
pub fn read_all(fd: i32, chunk: &mut [u8], mut action: impl FnMut(&[u8]) -> bool) {
    let mut left = READ_BYTES_MAX;
    while left != 0 {
        let len = sys::read(fd, chunk).max(0) as usize;
        let text = chunk.get(..len).filter(|text| !text.is_empty());
        if !text.is_some_and(&mut action) {
            break;
        }
        left = left.saturating_sub(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_room_where_one_of_the_last_descriptors_is_used() {
        const LIMIT: u64 = 600;
        for fd in [LIMIT - ROOM, LIMIT - 1] {
            assert!(are_last_free_below(LIMIT));
            // SAFETY: a copy of a descriptor where there is none.
            unsafe {
                assert_eq!(libc::dup2(0, fd as i32), fd as i32);
                assert!(!are_last_free_below(LIMIT));
                libc::close(fd as i32);
            }
        }
        assert!(are_last_free_below(u64::MAX) && !are_last_free_below(ROOM - 1));
    }

    #[test]
    fn what_has_been_opened_is_closed() {
        let of = |fd| sys::identity(fd);
        let (fd, known) = with(b"/proc/self/stat\0", |fd| (fd, of(fd))).unwrap();
        assert!(known.is_some() && of(fd) != known);
        assert!(with(b"/proc/self/nothing\0", |_| ()).is_none());
    }
}
