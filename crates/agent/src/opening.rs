//! Files that the agent opens for a moment, in the descriptor table of the program: no
//! handler of the program's leaves them open.

use crate::sys;

/// What `action` makes of a file that is open to be read meanwhile; `None` where it cannot
/// be opened. `path` ends in NUL. Without a signal in between: a handler that left by
/// `longjmp`, or a cancellation, would leave the file open.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
pub fn with<R>(path: &[u8], action: impl FnOnce(i32) -> R) -> Option<R> {
    sys::undisturbed(|| undisturbed(path, action))
}

/// The same where no handler is to be feared, or signals are blocked already.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
pub fn undisturbed<R>(path: &[u8], action: impl FnOnce(i32) -> R) -> Option<R> {
    let fd = i32::try_from(sys::open_read(path)).ok().filter(|fd| *fd >= 0)?;
    let result = action(fd);
    sys::close(fd);
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_been_opened_is_closed() {
        let of = |fd| sys::identity(fd);
        let (fd, known) = with(b"/proc/self/stat\0", |fd| (fd, of(fd))).unwrap();
        assert!(known.is_some() && of(fd) != known);
        assert!(with(b"/proc/self/nothing\0", |_| ()).is_none());
    }
}
