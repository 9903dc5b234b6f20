//! Asks whether a read of the program would wait (Fraser and Chang, section
//! 4.1.2), at an explicit offset, so that no description moves.
//!
//! `preadv2(RWF_NOWAIT)` says so, and starts the read where it would. While the
//! processors are busy cachestat(2) is asked first, which starts nothing; so
//! are the oracles of crate `emulate`, where the file system refuses
//! `RWF_NOWAIT`.

use super::processors::are_busy_at_first;
use super::reads::{WAIT_US, is_transfer};
use super::{OFFSET_NONE, Request, streams};
use crate::Gate;
use crate::arch::{Frame, nr, syscall6, ticks};
use crate::arena::Window;
use crate::config::CONFIG;
use crate::state::{State, class};
use crate::sys::{self, IoVec, RWF_NOWAIT};
use core::sync::atomic::Ordering::Relaxed;
use runahead_emulate::residency::{Method, Methods, Oracle, Resident, question, refused_nowait};

/// What the kernel reads at once by default, in bytes.
pub(super) const READ_AROUND_BYTES: u64 = 128 * 1024;

/// Most bytes of a read that a page cache oracle is asked about.
const QUESTION_BYTES: u64 = 128 * 1024;

/// Most bytes that are copied to find out whether they are there, and of a larger
/// read, most bytes that are looked at: 40 µs.
const COPY_BYTES_MAX: u64 = 1 << 20;
const LOOK_BYTES_MAX: u64 = 8 << 20;

/// Most bytes that one call returns (MAX_RW_COUNT, linux/fs.h).
const RESULT_MAX: usize = 0x7fff_f000;

/// What asking about a range found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// All there: the read will not wait. So many bytes were copied to find
    /// that out.
    Resident(usize),
    /// All there or on its way, and nothing was copied to find that out.
    Coming,
    /// Not there; what is missing is being read now.
    Missing,
    /// The file system does not say.
    Refused,
    /// Nobody may ask at which offset it reads without waiting for others.
    Shared,
}

/// The description's position, or what to answer without it.
///
/// lseek(2) waits for the reads that other processes make by the position of
/// the same description (fs/file.c, `fdget_pos`; Linux 3.14), and then the read
/// itself waits for the next of them. What follows on what, only their timing
/// says.
fn position(state: &State, fd: i32) -> Result<u64, Answer> {
    let class = state.class(fd as u32 as usize).ok_or(Answer::Refused)?;
    if class.load(Relaxed) == class::FILE_SHARED {
        return Err(Answer::Shared);
    }
    let began = ticks();
    let position = u64::try_from(sys::position(fd)).map_err(|_| Answer::Refused)?;
    let us = ticks().wrapping_sub(began).checked_div(CONFIG.ticks_per_us.load(Relaxed));
    if waits_for_others(state, fd, us.is_some_and(|us| us > WAIT_US)) {
        class.store(class::FILE_SHARED, Relaxed);
    }
    Ok(position)
}

/// Whether somebody else reads by a description whose position was told slowly
/// just now, or not: once says little, a thread that loses its processor there
/// takes as long.
fn waits_for_others(state: &State, fd: i32, slowly: bool) -> bool {
    let was_slow = state.slow_position.load(Relaxed) == fd + 1;
    if slowly != was_slow {
        state.slow_position.store(if slowly { fd + 1 } else { 0 }, Relaxed);
    }
    slowly && was_slow
}

/// Fills in where a read begins, if the call does not say so and its
/// description can be asked. `class` is that of its descriptor.
pub(super) fn locate(state: &State, frame: &Frame, request: &mut Request, class: u8) {
    // One that was inherited may be read by others.
    if class != class::INHERITED {
        let _ = place(state, frame, request);
    }
}

fn place(state: &State, frame: &Frame, request: &mut Request) -> Result<(), Answer> {
    if let Some(offset) = streams::named_offset(frame) {
        request.offset = offset;
        request.explicit = true;
    } else if request.offset == OFFSET_NONE {
        request.offset = position(state, request.fd)?;
    }
    Ok(())
}

/// Asks whether the read would wait, and starts it if so. Fills in the
/// request's offset where the call does not give one. What it takes of the stack it has
/// given back before anything is done about that.
#[inline(never)]
pub(super) fn ask(state: &State, frame: &Frame, request: &mut Request) -> Answer {
    if let Err(answer) = place(state, frame, request) {
        return answer;
    }
    let class = state.class(request.fd as u32 as usize);
    if let Some(method) = class.and_then(|class| class::method(class.load(Relaxed))) {
        return ask_page_cache(state, request, method);
    }
    let mut buffers = if is_transfer(frame.number) { None } else { Buffers::of(frame) };
    let known = buffers.as_ref().map(Buffers::bytes);
    if known == Some(0) {
        return Answer::Resident(0);
    }
    // Where the processors are busy, asking must not start the read: the kernel's
    // worker would take this thread's processor before it sleeps, and the
    // others' slices come before it is back. And what is large is not copied twice.
    let is_large = known.is_some_and(|known| known > COPY_BYTES_MAX);
    if let Some(class) = class
        && (is_large || class.load(Relaxed) == class::FILE_STREAM || are_busy_at_first(state))
    {
        let most = if is_large { LOOK_BYTES_MAX } else { READ_AROUND_BYTES };
        let len = known.unwrap_or(1).clamp(1, most);
        match streams::is_missing(request, len) {
            Some(true) => return Answer::Missing,
            Some(false) if is_large || known.is_some_and(|known| len >= known) => {
                return Answer::Coming;
            }
            Some(false) => {}
            None => {
                if class.load(Relaxed) == class::FILE_STREAM {
                    class.store(class::FILE, Relaxed);
                }
                // Another user's file: its first byte tells whether the read is to begin
                // with a wait, and the read itself the rest.
                if is_large {
                    buffers = None;
                }
            }
        }
    }
    let [_, buffer, len, ..] = frame.args;
    let mut scratch = 0u8;
    // Into nobody's buffer: one byte tells.
    let byte = [IoVec { base: core::ptr::from_mut(&mut scratch) as usize, len: 1 }];
    // The kernel has read the array before it writes the buffers; the call is yet to
    // read it.
    if buffers.as_ref().is_some_and(|buffers| buffers.touch(buffer, len)) {
        return Answer::Resident(0);
    }
    let vector = buffers.as_ref().and_then(Buffers::left).unwrap_or(&byte);
    let [fd, at] = [request.fd as usize, vector.as_ptr() as usize];
    let args = [fd, at, vector.len(), request.offset as usize, 0, RWF_NOWAIT];
    // SAFETY: fills the program's buffers with the bytes that its own read is
    // about to put there, at an explicit offset, so that no description moves.
    let result = sys::count_own_read(unsafe { syscall6(nr::PREADV2, args) });
    match result {
        sys::EAGAIN => {
            request.started = true;
            if buffers.is_none() {
                // One byte was asked for; the call itself would read more.
                start_read(request.fd, request.offset, request.len.min(READ_AROUND_BYTES));
            }
            Answer::Missing
        }
        // The last two: a container's filter.
        sys::EOPNOTSUPP | sys::ENOSYS | sys::EPERM => refused(state, request),
        // Errors are the read's own business, and so is the end of the file.
        ..=0 => Answer::Resident(0),
        got => {
            let got = got as usize;
            match &mut buffers {
                Some(buffers) if got < RESULT_MAX => ask_rest(buffers, request, got),
                _ if is_large => Answer::Coming,
                _ => Answer::Resident(got),
            }
        }
    }
}

/// After a short answer: the end of the file, or the first missing page? Asks
/// for all of the rest, so that the kernel's readahead sees the read that is
/// to come and not a smaller one.
fn ask_rest(buffers: &mut Buffers, request: &mut Request, copied: usize) -> Answer {
    buffers.skip(copied);
    let Some(vector) = buffers.left() else { return Answer::Resident(copied) };
    let offset = request.offset.wrapping_add(copied as u64) as usize;
    let [fd, at] = [request.fd as usize, vector.as_ptr() as usize];
    let args = [fd, at, vector.len(), offset, 0, RWF_NOWAIT];
    // SAFETY: into the program's buffers, what its own read is about to put
    // there.
    let result = sys::count_own_read(unsafe { syscall6(nr::PREADV2, args) });
    if result != sys::EAGAIN {
        return Answer::Resident(copied);
    }
    request.started = true;
    Answer::Missing
}

/// Bytes that a read asks for, also where only the program's memory says
/// (readv(2)); `None` where there is nothing to be seen or too much.
pub(super) fn bytes(frame: &Frame, request: &Request) -> Option<u64> {
    if request.len != u64::MAX {
        return Some(request.len);
    }
    Buffers::of(frame).map(|buffers| buffers.bytes())
}

/// Buffers of one read: more are not looked at. PostgreSQL 17 reads into 16. They lie on
/// the program's stack, which may be nearly used up.
const BUFFERS_MAX: usize = 16;

/// Where a read puts its bytes.
struct Buffers {
    /// The call names them in an array.
    is_vector: bool,
    vectors: [IoVec; BUFFERS_MAX],
    from: usize,
    count: usize,
}

impl Buffers {
    /// Those of the program's call; `None` where there are more, or none can be
    /// seen.
    fn of(frame: &Frame) -> Option<Self> {
        let [_, at, len, ..] = frame.args;
        let mut vectors = [IoVec { base: at, len }; BUFFERS_MAX];
        if matches!(frame.number, nr::READ | nr::PREAD64) {
            return Some(Self { is_vector: false, vectors, from: 0, count: 1 });
        }
        let bytes = len.checked_mul(size_of::<IoVec>())?;
        if at == 0 || len > BUFFERS_MAX || len == 0 {
            return None;
        }
        let into = core::ptr::from_mut(&mut vectors).cast::<u8>();
        // SAFETY: `bytes` is at most the size of `vectors`, of plain numbers.
        let copied = unsafe { sys::copy_own(at, into, bytes) };
        copied.then_some(Self { is_vector: true, vectors, from: 0, count: len })
    }

    /// What they hold together.
    fn bytes(&self) -> u64 {
        let sum = |sum: u64, buffer: &IoVec| sum.saturating_add(buffer.len as u64);
        self.left().unwrap_or(&[]).iter().fold(0, sum)
    }

    /// Whether one of them lies in the array of the call itself, `len` of them at
    /// `at`.
    fn touch(&self, at: usize, len: usize) -> bool {
        let end = at.saturating_add(len.saturating_mul(size_of::<IoVec>()));
        let inside = |one: &IoVec| one.base < end && at < one.base.saturating_add(one.len);
        self.is_vector && self.vectors.iter().take(self.count).any(inside)
    }

    /// Goes on behind the first `bytes` of them.
    fn skip(&mut self, mut bytes: usize) {
        while let Some(first) = self.vectors.get_mut(self.from)
            && self.from < self.count
        {
            if bytes < first.len {
                first.base = first.base.wrapping_add(bytes);
                first.len -= bytes;
                return;
            }
            bytes -= first.len;
            self.from += 1;
        }
    }

    /// What is left of them; `None`: nothing.
    fn left(&self) -> Option<&[IoVec]> {
        self.vectors.get(self.from..self.count).filter(|left| !left.is_empty())
    }
}

/// A file system that refuses `RWF_NOWAIT` (overlayfs, FUSE, squashfs, tmpfs):
/// finds out how it can be asked.
#[cold]
fn refused(state: &State, request: &Request) -> Answer {
    let mut stat = sys::Stat::default();
    if !sys::known_fstat(request.fd, &mut stat) {
        return Answer::Refused;
    }
    let fd = request.fd as usize;
    let method = refusing(state, fd, stat.dev);
    if let Some(class) = state.class(fd) {
        class.store(class::of(method), Relaxed);
    }
    ask_page_cache(state, request, method)
}

/// How the files of a device are asked, of which `fd` is one. What their file system is,
/// for which a server may be asked, is asked once.
fn refusing(state: &State, fd: usize, dev: u64) -> Method {
    let known = state.refused_dev.load(Relaxed);
    if known >> 8 == dev
        && let Some(method) = class::method(known as u8)
    {
        return method;
    }
    let method = refused_nowait(&mut Gate, &mut Methods::default(), fd, dev);
    state.refused_dev.store(dev << 8 | u64::from(class::of(method)), Relaxed);
    method
}

/// What a file is asked by whose file system refuses `RWF_NOWAIT`.
pub(super) fn oracle(stat: &sys::Stat, method: Method) -> Oracle {
    let user = sys::file_system_user();
    let mut oracle = Oracle::new(user == 0 || user == stat.uid);
    oracle.method = method;
    oracle
}

/// Asks the page cache by the oracles of crate `emulate`.
fn ask_page_cache(state: &State, request: &Request, method: Method) -> Answer {
    let mut stat = sys::Stat::default();
    if !sys::known_fstat(request.fd, &mut stat) {
        return Answer::Refused;
    }
    let size = stat.size.max(0) as u64;
    let len = request.len.min(size.saturating_sub(request.offset)).min(QUESTION_BYTES);
    if len == 0 {
        return Answer::Resident(0);
    }
    let mut oracle = oracle(&stat, method);
    let at = (request.fd as usize, stat.dev);
    let (gate, methods) = (&mut Window::of(state), &mut Methods::default());
    match question(gate, methods, &mut oracle, at, request.offset, len) {
        Resident::All => Answer::Coming,
        // Nothing is started here: that would keep the kernel's own readahead
        // from seeing the stream.
        Resident::NotAll => Answer::Missing,
        Resident::Unknown => Answer::Refused,
    }
}

/// readahead(2): starts reading without waiting for it.
pub(super) fn start_read(fd: i32, offset: u64, len: u64) {
    // SAFETY: advice; changes no description.
    unsafe { sys::call(nr::READAHEAD, &[fd as usize, offset as usize, len.min(1 << 20) as usize]) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_answer_is_no_proof_that_others_read_by_the_description() {
        let state = crate::state::zeroed();
        let waits = |fd, slowly| waits_for_others(&state, fd, slowly);
        assert!(!waits(0, false) && !waits(0, true));
        assert!(!waits(0, false), "it was the scheduler");
        assert!(!waits(0, true) && !waits(3, true) && !waits(0, true), "of two files by turns");
        assert!(waits(0, true), "twice in a row");
    }

    /// cachestat(2) says nothing to one who may not write the file (Linux 6.5).
    #[test]
    fn what_is_large_is_not_copied_twice_where_nobody_may_ask() {
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::PermissionsExt;
        const LEN: usize = 2 * COPY_BYTES_MAX as usize;
        let path = std::env::temp_dir().join(format!("asking-{}", std::process::id()));
        std::fs::write(&path, vec![7; LEN]).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
        let asked = std::thread::spawn({
            let path = path.clone();
            move || {
                const NOBODY: usize = 65534;
                // SAFETY: of this thread, which ends next.
                unsafe { libc::syscall(libc::SYS_setresuid, -1, NOBODY, -1) };
                let file = std::fs::File::open(path).unwrap();
                let fd = file.as_raw_fd();
                let state = crate::state::zeroed();
                state.class(fd as usize).unwrap().store(class::FILE, Relaxed);
                let mut buffer = vec![1u8; LEN];
                let args = [fd as usize, buffer.as_mut_ptr() as usize, LEN, 0, 0, 0];
                let frame = Frame { number: nr::PREAD64, args, resume: 0 };
                let mut request = Request {
                    fd,
                    offset: 0,
                    len: LEN as u64,
                    explicit: true,
                    started: false,
                    file: 0,
                };
                let answer = ask(&state, &frame, &mut request);
                (answer == Answer::Coming, buffer.iter().all(|byte| *byte == 1))
            }
        });
        let asked = asked.join().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(asked, (true, true));
    }
}
