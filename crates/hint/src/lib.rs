//! Disclose what will be read.
//!
//! A program that knows which parts of which files it will read says so, as early and as
//! completely as it can, in the order in which it will read them; a *manager* prefetches
//! them, keeps those that will be read again and gives back the others, by cost and benefit
//! (R. H. Patterson III, *Informed Prefetching and Caching*, 1997). Hints are disclosure, not
//! commands: nothing depends on them, wrong ones cost little.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! # let path = std::env::current_exe()?;
//! use runahead_hint::Range;
//! let file = std::fs::File::open(&path)?;
//! runahead_hint::disclose(&file, &[Range { offset: 0, length: 4096 }]).ok();
//! let mut block = [0; 4096];
//! runahead_hint::read_at(&file, &mut block, 0)?;
//! # Ok(())
//! # }
//! ```
//!
//! `RUNAHEAD=off` in the environment of the first hint switches it off. A process that forks
//! begins anew in the child.

mod backend;
mod disclosure;
mod environment;
mod ffi;
mod observe;
mod piece;
mod session;
mod sharers;
mod signals;
mod status;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

pub use backend::HintMode;
pub use disclosure::{Error, Range, SEGMENTS_MAX};
pub use runahead_manager::{ReadNote, Segment, Stats};
pub use session::Session;

use environment::Environment;
use status::Status;

/// The examples of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/hints.md")]
struct Documentation;

/// This process's session; null: none yet.
static SESSION: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());
/// Process whose reads are observed, if not this one; 0: this one.
static OBSERVED: AtomicU32 = AtomicU32::new(0);
static AT_FORK: Once = Once::new();
/// Hints are switched off, and the environment is not asked again with each read.
static OFF: AtomicBool = AtomicBool::new(false);

/// In the child of a fork: the thread that served the session is not there.
extern "C" fn after_fork_in_child() {
    SESSION.store(std::ptr::null_mut(), Ordering::Release);
}

/// This process's session, started by the first call; none where hints are switched off.
pub fn session() -> Option<&'static Session> {
    let now = SESSION.load(Ordering::Acquire);
    if !now.is_null() {
        // SAFETY: a session is never freed.
        return Some(unsafe { &*now });
    }
    start()
}

#[cold]
fn start() -> Option<&'static Session> {
    if OFF.load(Ordering::Relaxed) {
        return None;
    }
    let Some(environment) = Environment::read() else {
        OFF.store(true, Ordering::Relaxed);
        return None;
    };
    AT_FORK.call_once(|| {
        // SAFETY: the handler only stores to a static.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
    });
    let observed = OBSERVED.load(Ordering::Acquire);
    let fresh = Box::into_raw(Box::new(Session::idle((observed != 0).then_some(observed))));
    let null = std::ptr::null_mut();
    match SESSION.compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            // SAFETY: it was just made and is never freed.
            let session: &'static Session = unsafe { &*fresh };
            session.start(environment);
            Some(session)
        }
        Err(other) => {
            // SAFETY: nobody else has seen `fresh`; `other` is never freed.
            unsafe {
                drop(Box::from_raw(fresh));
                Some(&*other)
            }
        }
    }
}

/// Takes the reads of another process and its children for the hinted ones: for who hints
/// on behalf of a command. To be called before the first hint.
pub fn observe_process(pid: u32) {
    OBSERVED.store(pid, Ordering::Release);
}

/// Discloses that these ranges of an open file will be read, in this order.
///
/// # Errors
/// [`Error`]; the program need not care.
pub fn disclose(file: &impl AsFd, ranges: &[Range]) -> Result<(), Error> {
    let Some(session) = session() else { return Ok(()) };
    let number = session.fd_number(file.as_fd().as_raw_fd())?;
    session.disclose(ranges.iter().map(|range| segment(number, range)))
}

/// Discloses that these ranges of a file, open or not, will be read, in this order. What
/// cannot be opened when its turn comes is passed over.
///
/// # Errors
/// [`Error`]; the program need not care.
pub fn disclose_path(path: impl AsRef<Path>, ranges: &[Range]) -> Result<(), Error> {
    let Some(session) = session() else { return Ok(()) };
    let number = session.path_number(path.as_ref())?;
    session.disclose(ranges.iter().map(|range| segment(number, range)))
}

/// Discloses ranges of several open files, in the order in which they will be read.
///
/// # Errors
/// [`Error`]; the program need not care.
pub fn disclose_across<F: AsFd>(segments: &[(F, Range)]) -> Result<(), Error> {
    let Some(session) = session() else { return Ok(()) };
    let ranges = segments.iter().map(|(file, range)| (file.as_fd().as_raw_fd(), *range));
    session.disclose(session.across(ranges)?.into_iter())
}

fn segment(file: u32, range: &Range) -> Segment {
    Segment { file, offset: range.offset, length: range.length }
}

/// Cancels the first `segments` of what is outstanding: they will not be read.
pub fn cancel(segments: usize) {
    if let Some(session) = session() {
        session.cancel(segments);
    }
}

/// Segments disclosed and not read yet.
pub fn outstanding() -> usize {
    session().map_or(0, Session::outstanding)
}

/// Reads as `pread` does and tells the manager, which then knows exactly how far the program
/// is. Without such calls it goes by the number of bytes that the process reads.
///
/// # Errors
/// Those of `pread`.
pub fn read_at(file: &impl AsFd, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let fd = file.as_fd().as_raw_fd();
    let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the buffer is as long as it says.
    let read = noted(fd, offset as u64, || unsafe {
        libc::pread(fd, buffer.as_mut_ptr().cast(), buffer.len(), offset)
    });
    if read < 0 { Err(io::Error::last_os_error()) } else { Ok(read as usize) }
}

/// Tells the manager that bytes of an open file were read otherwise: through a mapping, or
/// by a library.
pub fn note_read(file: &impl AsFd, range: Range) {
    noted(file.as_fd().as_raw_fd(), range.offset, || bytes_read(range.length));
}

/// What a read returned by which so many bytes came: none for what no read could return, such
/// as the -1 of one that failed.
fn bytes_read(length: u64) -> isize {
    isize::try_from(length).unwrap_or(0)
}

thread_local! {
    /// When this thread's last noted read ended, nanoseconds; 0: none yet.
    static LAST_END_NS: Cell<u64> = const { Cell::new(0) };
}

/// Does a read and notes what it returns.
fn noted(fd: i32, offset: u64, read: impl FnOnce() -> isize) -> isize {
    let session = session().filter(|session| session.wants_reads());
    let Some(session) = session else { return read() };
    session.will_note();
    let started_ns = runahead_manager::actor::now_ns();
    let length = read();
    if length > 0 {
        // SAFETY: errno is this thread's own. A successful read does not touch it.
        let errno = unsafe { *libc::__errno_location() };
        let status = Status::of(fd);
        let number = status.and_then(|status| session.known(status.identity));
        if let (Some(status), Some(number)) = (status, number) {
            let last_ns = LAST_END_NS.replace(runahead_manager::actor::now_ns());
            let t_app_ns = if last_ns == 0 { 0 } else { started_ns.saturating_sub(last_ns) };
            let t_app_us = u32::try_from(t_app_ns / 1000).unwrap_or(u32::MAX);
            // No more than is there, whatever the program says.
            let length = (length as u64).min(status.bytes_from(offset));
            session.note_read(ReadNote { file: number, offset, length, t_app_us });
        }
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }
    length
}
