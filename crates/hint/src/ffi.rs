//! The C interface: include/runahead.h describes it.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::{Error, Range, Session, bytes_read, noted, segment, session};

/// `struct runahead_fd_segment`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FdSegment {
    fd: c_int,
    offset: u64,
    length: u64,
}

fn fail(errno: c_int) -> c_int {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

fn answer(result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(Error::TooMany(_)) => fail(libc::ENOSPC),
        Err(Error::TooManyFiles) => fail(libc::ENFILE),
        Err(Error::NotAFile) => fail(libc::EBADF),
    }
}

/// None where there can be none: at a null pointer, or so many that no memory holds them, as a
/// negative number becomes.
///
/// # Safety
/// `count` elements lie at `data`, unless it is null or they were more than `isize::MAX` bytes.
unsafe fn slice<'a, T>(data: *const T, count: usize) -> Option<&'a [T]> {
    if count == 0 {
        return Some(&[]);
    }
    let bytes = isize::try_from(count).ok()?.checked_mul(size_of::<T>() as isize);
    if data.is_null() || bytes.is_none() {
        return None;
    }
    // SAFETY: the caller's promise; they are no more than memory holds.
    Some(unsafe { std::slice::from_raw_parts(data, count) })
}

fn guarded(action: impl FnOnce(&Session) -> c_int) -> c_int {
    let Some(session) = session() else { return 0 };
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| action(session)));
    caught.unwrap_or_else(|_| fail(libc::EIO))
}

/// See include/runahead.h.
///
/// # Safety
/// `path` is a string, and `count` segments lie at `segments`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runahead_hint_path(
    path: *const c_char,
    segments: *const Range,
    count: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(ranges) = (unsafe { slice(segments, count) }) else { return fail(libc::EFAULT) };
    if path.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: the caller's promise.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
    guarded(|session| {
        answer(
            session.path_number(path).and_then(|number| {
                session.disclose(ranges.iter().map(|range| segment(number, range)))
            }),
        )
    })
}

/// See include/runahead.h.
///
/// # Safety
/// `count` segments lie at `segments`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runahead_hint_fd(
    fd: c_int,
    segments: *const Range,
    count: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(ranges) = (unsafe { slice(segments, count) }) else { return fail(libc::EFAULT) };
    guarded(|session| {
        answer(
            session.fd_number(fd).and_then(|number| {
                session.disclose(ranges.iter().map(|range| segment(number, range)))
            }),
        )
    })
}

/// See include/runahead.h.
///
/// # Safety
/// `count` segments lie at `segments`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runahead_hint_fds(segments: *const FdSegment, count: usize) -> c_int {
    // SAFETY: the caller's promise.
    let Some(given) = (unsafe { slice(segments, count) }) else { return fail(libc::EFAULT) };
    guarded(|session| {
        let ranges =
            given.iter().map(|&FdSegment { fd, offset, length }| (fd, Range { offset, length }));
        answer(session.across(ranges).and_then(|all| session.disclose(all.into_iter())))
    })
}

/// See include/runahead.h.
#[unsafe(no_mangle)]
pub extern "C" fn runahead_hint_cancel(count: usize) -> c_int {
    guarded(|session| {
        session.cancel(count);
        0
    })
}

/// See include/runahead.h.
#[unsafe(no_mangle)]
pub extern "C" fn runahead_hint_outstanding() -> usize {
    crate::outstanding()
}

/// See include/runahead.h.
#[unsafe(no_mangle)]
pub extern "C" fn runahead_hint_available() -> c_int {
    c_int::from(session().is_some_and(Session::is_served))
}

/// See include/runahead.h.
#[unsafe(no_mangle)]
pub extern "C" fn runahead_hint_consumed(fd: c_int, offset: u64, length: u64) {
    noted(fd, offset, || bytes_read(length));
}

/// See include/runahead.h.
///
/// # Safety
/// As `pread`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runahead_pread(
    fd: c_int,
    buffer: *mut c_void,
    count: usize,
    offset: i64,
) -> isize {
    // SAFETY: the caller's promise.
    noted(fd, offset.max(0) as u64, || unsafe { libc::pread(fd, buffer, count, offset) })
}
