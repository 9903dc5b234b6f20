//! Reads of the program: would this one block, was it predicted, and if not,
//! is it worth a synchronisation (design: "The normal side"; Fraser and
//! Chang, section 4.1.2).
//!
//! Three lanes, cheapest first:
//!
//! * *timed*: the program has long found everything in memory. One plain
//!   read between two looks at the time-stamp counter; a wait is noticed
//!   afterwards. The longer none is, the more of these reads the stubs make
//!   by themselves, unasked ([`State::unasked`]).
//! * *tracked*: a speculative process runs ahead. The log says whether this
//!   read was predicted; then one plain read, timed.
//! * *asked*: `preadv2(RWF_NOWAIT)` at the read's offset says whether it
//!   would wait, and has started the read where it would. Then one plain
//!   read. Never the rest of one: a read split in two is torn where the
//!   description is shared.

use super::processors::{are_busy, are_busy_at_first, holds_busy, is_look_overdue};
use super::{logs, record, streams, synchronise, waiting};
use crate::Gate;
use crate::arch::{Frame, nr, syscall6, thread_pointer, ticks};
use crate::hook::plain;
use crate::state::{CONFIG, State, class, stalls_always};
use crate::sys::{self, IoVec, RWF_NOWAIT};
use core::sync::atomic::Ordering::{Relaxed, Release};
use runahead_emulate::residency::{Method, Methods, Oracle, Resident, question, refused_nowait};
use runahead_policy::asking::{SHARE_BUSY, SHARE_IDLE};
use runahead_policy::competitive::depth_bytes;
use runahead_policy::ration::Standing;
use runahead_policy::readahead::Stalled;
use runahead_protocol::log::{FLAG_END, FLAG_PREFETCHED, Log, Prediction, life};
use runahead_protocol::session::Mode;
use runahead_protocol::stats::Counter;

/// A read that takes longer than this, beyond copying, has waited for storage,
/// in µs. A resident one takes below 1 µs.
const WAIT_US: u64 = 25;

/// Slowest copying of resident data that is not taken for a wait, in bytes
/// per ns.
const COPY_BYTES_PER_NS: u64 = 3;

/// Reads that are asked about after one that waited, at least.
pub const CREDIT: u32 = 24;

/// Most of them.
const CREDIT_MAX: u32 = 512;

/// A wait of so many ns pays for one more: a credit is worth about 2 µs, and so
/// asking takes 1/64 of the time that was waited. The reads of a run between
/// two stalls of a stream would otherwise use the credit up, and its next stall
/// would pass unseen.
const CREDIT_WAIT_NS: u64 = 128_000;

/// After so many timed reads of which none waited, one more goes unasked
/// between two that are timed.
const CALM_READS: u32 = 16;

/// Most reads that go unasked in a row: the stalls that may pass unnoticed
/// when data that was in memory no longer is.
const UNASKED_MAX: u32 = 15;

/// What asking is taken to cost where no counter tells the time, in ns.
const QUESTION_NS: u64 = 10_000;

/// Credit that a read costs of which nobody says whether it would wait.
const BLIND_COST: u32 = 8;

/// Asking copies the data once more: each so many bytes cost one credit.
const CREDIT_BYTES: usize = 16 * 1024;

/// How far the two sequences of reads may be out of step before the
/// speculative process counts as off track, in reads.
const SHIFT_MAX: u64 = 8;

/// What the kernel reads at once by default, in bytes.
pub const READ_AROUND_BYTES: u64 = 128 * 1024;

/// Most bytes of a read that a page cache oracle is asked about.
const QUESTION_BYTES: u64 = 128 * 1024;

/// Reads between two looks at who shares the device, where none of them waits.
const SHARE_READS: u64 = 64;

/// No offset is known.
pub const OFFSET_NONE: u64 = u64::MAX;

/// A read that the program is about to make.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Descriptor.
    pub fd: i32,
    /// Offset in the file: of the call, or the description's position where
    /// it has been asked for; else [`OFFSET_NONE`].
    pub offset: u64,
    /// Bytes asked for; `u64::MAX` where only the program's memory says.
    pub len: u64,
    /// The call itself gives the offset, and does not move the description's.
    pub explicit: bool,
    /// What is missing is being read already.
    pub started: bool,
}

impl Request {
    /// Whether `prediction` is of this read.
    fn is(&self, prediction: &Prediction) -> bool {
        let end = prediction.flags & FLAG_END != 0;
        prediction.fd == self.fd
            && (end || self.len == u64::MAX || prediction.len == self.len)
            && (self.offset == OFFSET_NONE || prediction.offset == self.offset)
    }
}

/// `read`, `pread64`, `readv`, `preadv`, `preadv2`.
#[inline]
pub fn read(state: &'static State, frame: &mut Frame) -> isize {
    let [fd, _, len, offset, _, flags] = frame.args;
    let Some(class) = state.class(fd as u32 as usize) else { return plain(frame) };
    let class = class.load(Relaxed);
    if class == class::OTHER || (frame.number == nr::PREADV2 && flags != 0) {
        return plain(frame);
    }
    let explicit =
        matches!(frame.number, nr::PREAD64 | nr::PREADV | nr::PREADV2) && offset as isize >= 0;
    let request = Request {
        fd: fd as i32,
        offset: if explicit { offset as u64 } else { OFFSET_NONE },
        len: if matches!(frame.number, nr::READ | nr::PREAD64) { len as u64 } else { u64::MAX },
        explicit,
        started: false,
    };
    watched(state, frame, request, class)
}

/// `sendfile`, `copy_file_range`: reads of their input's range.
pub fn transfer(state: &'static State, frame: &mut Frame) -> isize {
    let [first, second, _, fourth, fifth, _] = frame.args;
    let (fd, len) = match frame.number {
        nr::SENDFILE => (second, fourth),
        _ => (first, fifth),
    };
    let Some(class) = state.class(fd as u32 as usize) else { return plain(frame) };
    let class = class.load(Relaxed);
    if class == class::OTHER {
        return plain(frame);
    }
    let request = Request {
        fd: fd as i32,
        offset: OFFSET_NONE,
        len: len as u64,
        explicit: false,
        started: false,
    };
    watched(state, frame, request, class)
}

#[inline]
fn watched(state: &'static State, frame: &mut Frame, request: Request, class: u8) -> isize {
    let tracked = state.speculative.load(Relaxed) != 0;
    if tracked && state.owner.load(Relaxed) == thread_pointer() {
        return self::tracked(state, frame, request, class);
    }
    if state.credit.load(Relaxed) == 0 {
        // The stubs count by themselves; here come the calls by symbol and
        // those of which only the registers tell the number.
        let unasked = state.unasked.load(Relaxed);
        if unasked != 0 {
            state.unasked.store(unasked - 1, Relaxed);
            return plain(frame);
        }
        return timed(state, frame, &request, class);
    }
    if !is_file(state, request.fd) {
        return plain(frame);
    }
    asked(state, frame, request, Standing::None)
}

/// Whether a descriptor is a regular file whose reads are watched.
pub fn is_file(state: &State, fd: i32) -> bool {
    match state.class(fd as u32 as usize).map(|class| class.load(Relaxed)) {
        None | Some(class::OTHER) => false,
        Some(class) if class::is_unknown(class) => classify(state, fd),
        Some(_) => true,
    }
}

/// Finds out what a descriptor is; false where its reads are left alone.
#[cold]
fn classify(state: &State, fd: i32) -> bool {
    let mut stat = sys::Stat::default();
    let Some(cell) = state.class(fd as u32 as usize) else { return false };
    let mut class = class::OTHER;
    if sys::fstat(fd, &mut stat) == 0 && stat.mode & sys::S_IFMT == sys::S_IFREG {
        let flags = sys::status_flags(fd);
        if flags >= 0 && flags as usize & sys::O_DIRECT == 0 {
            let inherited = cell.load(Relaxed) == class::INHERITED;
            class = if inherited { class::FILE_SHARED } else { class::FILE };
        }
    }
    cell.store(class, Relaxed);
    class != class::OTHER
}

/// A plain read and how long it waited for storage, in ns; 0: not at all.
#[inline]
fn timed_plain(frame: &Frame) -> (isize, u64) {
    let ticks_per_us = CONFIG.ticks_per_us.load(Relaxed);
    if ticks_per_us == 0 {
        let start_ns = sys::now_ns();
        let result = plain(frame);
        return (result, waited(sys::now_ns().saturating_sub(start_ns), result));
    }
    let start = ticks();
    let result = plain(frame);
    let passed = ticks().wrapping_sub(start);
    if passed < WAIT_US * ticks_per_us {
        return (result, 0);
    }
    (result, waited(passed.saturating_mul(1000) / ticks_per_us, result))
}

/// What of a call's `ns` was a wait, given the bytes that it copied.
fn waited(ns: u64, result: isize) -> u64 {
    let copied_ns = result.max(0) as u64 / COPY_BYTES_PER_NS;
    if ns > WAIT_US * 1000 + copied_ns { ns } else { 0 }
}

/// Lane one: everything has been in memory for a while.
#[inline]
fn timed(state: &State, frame: &Frame, request: &Request, class: u8) -> isize {
    let (result, waited_ns) = timed_plain(frame);
    if waited_ns == 0 {
        let calm = state.calm.load(Relaxed).saturating_add(1);
        state.calm.store(calm, Relaxed);
        // Beside a speculative process all of its thread's reads are seen, and
        // where they are recorded, all reads.
        if state.speculative.load(Relaxed) == 0 && !record::wanted() {
            state.unasked.store((calm / CALM_READS).min(UNASKED_MAX), Relaxed);
        }
        return result;
    }
    let rests = rests(state);
    let due = rests && are_busy(state) && is_look_overdue(state);
    // Among busy processors each call counts: while reads are only timed, and
    // nobody collects, this wait is not worth finding out what was read.
    let counts = !rests || due || !are_busy(state) || state.slot().is_some();
    if class::is_unknown(class) && !counts {
        state.calm.store(0, Relaxed);
        return result;
    }
    // What was read is asked only now: most reads never wait.
    if !class::is_unknown(class) || classify(state, request.fd) {
        count_stall(state, waited_ns, true);
        if !rests || due || is_again_wanted(state, waited_ns) {
            earn(state, waited_ns);
        }
        state.calm.store(0, Relaxed);
    }
    result
}

/// Notes a wait that was only timed, for the ration; whether the next read is
/// to be asked about, because the ration passes over no more stalls.
#[cold]
fn is_again_wanted(state: &State, waited_ns: u64) -> bool {
    state.untold.fetch_add(1, Relaxed);
    state.untold_ns.fetch_add(waited_ns, Relaxed);
    if are_busy(state) {
        return false;
    }
    let passes_over = state.try_locked(|rations, _| {
        synchronise::tell(state, rations);
        rations.synchronisations.passes_over()
    });
    if passes_over == Some(false) {
        state.passes_over.store(0, Relaxed);
    }
    passes_over == Some(false)
}

/// Lane two: a speculative process of this thread runs ahead, or did.
fn tracked(state: &'static State, frame: &mut Frame, request: Request, class: u8) -> isize {
    let Some(log) = state.log() else { return plain(frame) };
    let number = state.consumed.load(Relaxed);
    let (standing, prediction) = standing(state, log, &request, number);
    // A read that was predicted is of a file; of others that must be known
    // before they count.
    if prediction.is_none() && class::is_unknown(class) && !classify(state, request.fd) {
        return plain(frame);
    }
    state.consumed.store(number.wrapping_add(1), Relaxed);
    consume(state, log, number);
    if number % SHARE_READS == SHARE_READS - 1 {
        logs::share(state, log, sys::now_ns());
    }
    let Some(prediction) = prediction else { return asked(state, frame, request, standing) };

    state.predicted.store(state.predicted.load(Relaxed).wrapping_add(1), Relaxed);
    let (result, waited_ns) = timed_plain(frame);
    if prediction.flags & FLAG_PREFETCHED != 0 && prediction.prefetched_len > 0 {
        state.hits.store(state.hits.load(Relaxed).wrapping_add(1), Relaxed);
        if waited_ns != 0 {
            state.partial.store(state.partial.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }
    if waited_ns != 0 {
        // A partial stall: predicted, just not early enough.
        count_stall(state, waited_ns, false);
        synchronise::at_partial_stall(state, log);
    }
    result
}

/// Where the speculative process stands towards read `number`, and its
/// prediction if that came true.
fn standing(
    state: &State,
    log: &Log,
    request: &Request,
    number: u64,
) -> (Standing, Option<Prediction>) {
    let entry = number.wrapping_add(state.shift.load(Relaxed));
    let Some(prediction) = log.get(entry) else {
        return match log.life.load(Relaxed) {
            life::PARKED | life::NONE => (Standing::None, None),
            _ => (Standing::Behind, None),
        };
    };
    if request.is(&prediction) {
        return (Standing::None, Some(prediction));
    }
    // One side may have made a read or two that the other did not.
    for step in 1..=SHIFT_MAX {
        for candidate in [entry.wrapping_add(step), entry.wrapping_sub(step)] {
            let found = log.get(candidate).filter(|found| found.flags & FLAG_END == 0);
            if let Some(prediction) = found.filter(|found| request.is(found)) {
                state.shift.store(candidate.wrapping_sub(number), Relaxed);
                return (Standing::None, Some(prediction));
            }
        }
    }
    (Standing::OffTrack, None)
}

/// Tells the speculative process how far the program has come.
#[inline]
fn consume(state: &State, log: &Log, number: u64) {
    let consumed = number.wrapping_add(1).wrapping_add(state.shift.load(Relaxed));
    log.consumed.store(consumed, Release);
    let wake_at = log.wake_at.load(Relaxed);
    if wake_at != u64::MAX && consumed >= wake_at && wake_at != 0 {
        log.wake_at.store(u64::MAX, Relaxed);
        log.wake_word.fetch_add(1, Release);
        sys::futex_wake(&log.wake_word);
    }
}

/// What asking about a range found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
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

/// Lane three: ask first.
#[cold]
fn asked(
    state: &'static State,
    frame: &mut Frame,
    mut request: Request,
    standing: Standing,
) -> isize {
    let began = ticks();
    let answer = ask(state, frame, &mut request);
    let credit = state.credit.load(Relaxed);
    state.count(Counter::Reads, 1);
    let stalls_always = stalls_always();
    // There is nothing to start, while testing.
    request.started |= matches!(answer, Answer::Resident(_) | Answer::Coming);
    match answer {
        Answer::Resident(copied) if !stalls_always => {
            let cost = 1 + (copied / CREDIT_BYTES).min(CREDIT as usize) as u32;
            state.credit.store(credit.saturating_sub(cost), Relaxed);
            book_question(state, began);
            found(state, &request, copied);
            plain(frame)
        }
        Answer::Coming if !stalls_always => {
            state.credit.store(credit.saturating_sub(1), Relaxed);
            book_question(state, began);
            coming(state, frame, &request)
        }
        Answer::Shared if !stalls_always => timed(state, frame, &request, class::FILE_SHARED),
        // Nobody says (no rights on a file of overlayfs or FUSE). A read has
        // just waited, so this one may: taken for a stall a few times.
        Answer::Refused if !stalls_always && credit < BLIND_COST => {
            state.credit.store(0, Relaxed);
            timed(state, frame, &request, class::FILE)
        }
        Answer::Refused => {
            let result = stall(state, frame, request, standing, began);
            state.credit.store(credit.min(CREDIT).saturating_sub(BLIND_COST), Relaxed);
            result
        }
        _ => stall(state, frame, request, standing, began),
    }
}

/// A read of what is there or on its way: a wait shows afterwards how far a
/// stream has come.
fn coming(state: &State, frame: &Frame, request: &Request) -> isize {
    let (result, waited_ns) = timed_plain(frame);
    if waited_ns != 0 {
        count_stall(state, waited_ns, true);
        earn(state, waited_ns);
        streams::came(state, frame, request, waited_ns, sys::now_ns());
    }
    found(state, request, result.max(0) as usize);
    result
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
    if us.is_some_and(|us| us > WAIT_US) {
        class.store(class::FILE_SHARED, Relaxed);
    }
    Ok(position)
}

/// Asks whether the read would wait, and starts it if so. Fills in the
/// request's offset where the call does not give one.
fn ask(state: &State, frame: &Frame, request: &mut Request) -> Answer {
    if let Some(offset) = streams::named_offset(frame) {
        request.offset = offset;
        request.explicit = true;
    } else if request.offset == OFFSET_NONE {
        match position(state, request.fd) {
            Ok(position) => request.offset = position,
            Err(answer) => return answer,
        }
    }
    let class = state.class(request.fd as u32 as usize);
    if let Some(method) = class.and_then(|class| class::method(class.load(Relaxed))) {
        return ask_page_cache(request, method);
    }
    // Where the processors are busy, asking must not start the read: the kernel's
    // worker would take this thread's processor before it sleeps, and the
    // others' slices come before it is back.
    if let Some(class) = class
        && (class.load(Relaxed) == class::FILE_STREAM || are_busy_at_first(state))
    {
        let known = matches!(frame.number, nr::READ | nr::PREAD64);
        let len = if known { request.len.clamp(1, READ_AROUND_BYTES) } else { 1 };
        match streams::is_missing(request, len) {
            Some(true) => return Answer::Missing,
            Some(false) if known && len >= request.len => return Answer::Coming,
            Some(false) => {}
            None => class.store(class::FILE, Relaxed),
        }
    }
    let [_, buffer, len, ..] = frame.args;
    let mut scratch = 0u8;
    let own = match frame.number {
        nr::READ | nr::PREAD64 => IoVec { base: buffer, len },
        // Into nobody's buffer: one byte tells.
        _ => IoVec { base: core::ptr::from_mut(&mut scratch) as usize, len: 1 },
    };
    let (vector, vectors) = match frame.number {
        nr::READV | nr::PREADV | nr::PREADV2 => (buffer, len),
        _ => (core::ptr::from_ref(&own) as usize, 1),
    };
    let args = [request.fd as usize, vector, vectors, request.offset as usize, 0, RWF_NOWAIT];
    // SAFETY: fills the program's buffer with the bytes that its own read is
    // about to put there, at an explicit offset, so that no description moves.
    let result = unsafe { syscall6(nr::PREADV2, args) };
    match result {
        sys::EAGAIN => {
            request.started = true;
            if matches!(frame.number, nr::SENDFILE | nr::COPY_FILE_RANGE) {
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
            let whole = request.len == u64::MAX
                || got as u64 >= request.len
                || matches!(frame.number, nr::SENDFILE | nr::COPY_FILE_RANGE);
            if whole { Answer::Resident(got) } else { ask_rest(request, buffer, got) }
        }
    }
}

/// After a short answer: the end of the file, or the first missing page? Asks
/// for all of the rest, so that the kernel's readahead sees the read that is
/// to come and not a smaller one.
fn ask_rest(request: &mut Request, buffer: usize, copied: usize) -> Answer {
    let got = copied as u64;
    let rest =
        IoVec { base: buffer.wrapping_add(copied), len: request.len.wrapping_sub(got) as usize };
    let offset = request.offset.wrapping_add(got) as usize;
    let args = [request.fd as usize, core::ptr::from_ref(&rest) as usize, 1, offset, 0, RWF_NOWAIT];
    // SAFETY: into the program's buffer, what its own read is about to put
    // there.
    if unsafe { syscall6(nr::PREADV2, args) } != sys::EAGAIN {
        return Answer::Resident(copied);
    }
    request.started = true;
    Answer::Missing
}

/// A file system that refuses `RWF_NOWAIT` (overlayfs, FUSE, squashfs, tmpfs):
/// finds out how it can be asked.
#[cold]
fn refused(state: &State, request: &Request) -> Answer {
    let mut stat = sys::Stat::default();
    if sys::fstat(request.fd, &mut stat) != 0 {
        return Answer::Refused;
    }
    let fd = request.fd as usize;
    let method = refused_nowait(&mut Gate, &mut Methods::default(), fd, stat.dev);
    if let Some(class) = state.class(fd) {
        class.store(class::of(method), Relaxed);
    }
    ask_page_cache(request, method)
}

/// What a file is asked by whose file system refuses `RWF_NOWAIT`.
pub fn oracle(stat: &sys::Stat, method: Method) -> Oracle {
    let user = sys::file_system_user();
    let mut oracle = Oracle::new(user == 0 || user == stat.uid);
    oracle.method = method;
    oracle
}

/// Asks the page cache by the oracles of crate `emulate`.
fn ask_page_cache(request: &Request, method: Method) -> Answer {
    let mut stat = sys::Stat::default();
    if sys::fstat(request.fd, &mut stat) != 0 {
        return Answer::Refused;
    }
    let size = stat.size.max(0) as u64;
    let len = request.len.min(size.saturating_sub(request.offset)).min(QUESTION_BYTES);
    if len == 0 {
        return Answer::Resident(0);
    }
    let mut oracle = oracle(&stat, method);
    let at = (request.fd as usize, stat.dev);
    match question(&mut Gate, &mut Methods::default(), &mut oracle, at, request.offset, len) {
        Resident::All => Answer::Coming,
        // Nothing is started here: that would keep the kernel's own readahead
        // from seeing the stream.
        Resident::NotAll => Answer::Missing,
        Resident::Unknown => Answer::Refused,
    }
}

/// readahead(2): starts reading without waiting for it.
pub fn start_read(fd: i32, offset: u64, len: u64) {
    // SAFETY: advice; changes no description.
    unsafe { sys::call(nr::READAHEAD, &[fd as usize, offset as usize, len.min(1 << 20) as usize]) };
}

/// The read would wait, and nobody predicted it. Asking began at `began`.
fn stall(
    state: &'static State,
    frame: &mut Frame,
    request: Request,
    standing: Standing,
    began: u64,
) -> isize {
    earn(state, 0);
    let start_ns = sys::now_ns();
    let mut stat = sys::Stat::default();
    sys::fstat(request.fd, &mut stat);
    if streams::is_crowded(state, &stat, start_ns) {
        synchronise::give_way(state);
    } else if is_hopeless(state, standing, start_ns) || is_served(state, &request, &stat, start_ns)
    {
        state.count(Counter::SyncsDeclined, 1);
    } else if let Some(result) = synchronise::at_stall(state, frame, request, standing, start_ns) {
        // In the speculative process: what the read comes to there.
        return result;
    }
    let stalled = streams::at_stall(state, frame, &request, &stat);
    if !stalled.is_some_and(|stalled| stalled.prefetched()) {
        prefetch_whole(state, &request, &stat);
    }
    book_question(state, began);
    let synchronised_ns = sys::now_ns();
    let result = plain(frame);
    waiting::await_detached(state);
    let end_ns = sys::now_ns();
    let waited_ns = waited(end_ns.saturating_sub(start_ns), result);
    if waited_ns != 0 {
        count_stall(state, waited_ns, true);
        earn(state, waited_ns);
    }
    if let Some(stalled) = stalled {
        streams::ended(state, &stalled, end_ns.saturating_sub(synchronised_ns), end_ns);
    }
    let passes_over = state.try_locked(|rations, _| {
        let ration = &mut rations.synchronisations;
        ration.stalled(end_ns.saturating_sub(synchronised_ns));
        state.speculative.load(Relaxed) == 0 && ration.passes_over()
    });
    state.passes_over.store(u32::from(passes_over == Some(true)), Relaxed);
    if rests(state) {
        state.credit.store(0, Relaxed);
    }
    waiting::await_prediction(state);
    result
}

/// Whether no copy can come of a stall: there is none, and the processors were
/// busy at a look that holds. The slow path would find the same, by some ten
/// system calls that on busy processors nothing hides.
fn is_hopeless(state: &State, standing: Standing, now_ns: u64) -> bool {
    standing == Standing::None
        && state.speculative.load(Relaxed) == 0
        && holds_busy(state, now_ns)
        && !stalls_always()
}

/// Whether the kernel's readahead does what a copy would, and there is none.
fn is_served(state: &State, request: &Request, stat: &sys::Stat, now_ns: u64) -> bool {
    let stalled = Stalled {
        fd: request.fd,
        offset: request.offset,
        size: stat.size.max(0) as u64,
        stall_ns: state.mean_stall_ns(),
        waited_ns: state.stalls_ns.load(Relaxed),
        now_ns,
    };
    let may_gain = state.try_locked(|rations, _| rations.readahead.may_gain(&stalled));
    may_gain == Some(false) && state.speculative.load(Relaxed) == 0 && !stalls_always()
}

/// Whether reads are only timed for now: no copy is made, because the
/// processors are busy or the ration passes stalls over, and what else asking
/// serves has not been needed for a while. Asked again when the processors are
/// to be looked at, or the ration has passed over what it would.
fn rests(state: &State) -> bool {
    let rests = if are_busy(state) {
        state.asking().rests(SHARE_BUSY)
    } else {
        state.passes_over.load(Relaxed) != 0 && state.asking().rests(SHARE_IDLE)
    };
    rests && !stalls_always()
}

/// A question that began at `began` is answered.
fn book_question(state: &State, began: u64) {
    let passed = ticks().wrapping_sub(began).saturating_mul(1000);
    let ns = passed.checked_div(CONFIG.ticks_per_us.load(Relaxed)).unwrap_or(QUESTION_NS);
    state.asked_ns.store(state.asking().asked(ns).asked_ns, Relaxed);
}

/// At a stall that nobody predicted, in a file no larger than the competitive
/// depth: all of the file (see `policy::competitive`).
fn prefetch_whole(state: &State, request: &Request, stat: &sys::Stat) {
    let Some(class) = state.class(request.fd as u32 as usize) else { return };
    if CONFIG.mode.load(Relaxed) != Mode::Speculate as u32 || class.load(Relaxed) != class::FILE {
        return;
    }
    let size = stat.size.max(0) as u64;
    let rate = state.bytes_per_s.load(Relaxed);
    let decided = state.try_locked(|rations, _| {
        let depth = depth_bytes(rations.synchronisations.stall_ns(), rate);
        rations.whole_files.eager()
            && rations.whole_files.decide(size, request.offset, request.len, depth)
    });
    if decided == Some(true) {
        start_read(request.fd, 0, size);
        class.store(class::FILE_WHOLE, Relaxed);
    }
}

/// A read found its data; if that was prefetched with the whole file, its use
/// is counted once.
fn found(state: &State, request: &Request, copied: usize) {
    if copied == 0 {
        return;
    }
    if let Some(class) = state.class(request.fd as u32 as usize)
        && class.load(Relaxed) == class::FILE_WHOLE
    {
        class.store(class::FILE, Relaxed);
        state.try_locked(|rations, _| rations.whole_files.used());
        let asking = state.asking().saved(state.mean_stall_ns());
        state.asked_ns.store(asking.asked_ns, Relaxed);
    }
}

/// A wait gives credit.
fn earn(state: &State, waited_ns: u64) {
    let more = (waited_ns / CREDIT_WAIT_NS).min(u64::from(CREDIT_MAX - CREDIT)) as u32;
    let credit = state.credit.load(Relaxed).max(CREDIT + more);
    state.credit.store(credit, Relaxed);
}

fn count_stall(state: &State, waited_ns: u64, unpredicted: bool) {
    state.stalled_ns.store(state.stalled_ns.load(Relaxed).wrapping_add(waited_ns), Relaxed);
    state.stalled(1, waited_ns);
    if let Some(slot) = state.slot() {
        slot.add(Counter::Stalls, 1);
        slot.add(Counter::StallNs, waited_ns);
        slot.add(Counter::StallsUnpredicted, u64::from(unpredicted));
    }
}
