//! Reads of the program: was this one predicted, and if not, does it wait
//! (design: "A read of the program"; Fraser and Chang, section 4.1.2)? What is
//! asked is in [`super::asking`], which reads are asked about in
//! [`super::credit`], what is done about one that waits in [`super::stall`].
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

use super::asking::{Answer, ask, locate};
use super::credit::{CREDIT, book_question, earn, is_again_wanted, rests};
use super::processors::{are_busy, are_idle_again, is_look_overdue};
use super::stall::{count_stall, count_stalls, goes_on_served, stall};
use super::{logs, record, streams, synchronise, whole_files};
use crate::apart;
use crate::arch::{Frame, nr, thread_pointer, ticks};
use crate::config::{CONFIG, stalls_always};
use crate::hook::plain;
use crate::state::{ENDS, State, class, role};
use crate::sys;
use crate::usage;
use core::sync::atomic::Ordering::{Relaxed, Release};
use runahead_emulate::PIPE_BYTES;
use runahead_policy::ration::{SHORT_STALL_NS, Standing};
use runahead_protocol::log::{FLAG_END, FLAG_PREFETCHED, Log, Prediction, life};
use runahead_protocol::stats::Counter;

/// A read that takes longer than this, beyond copying, has waited for storage,
/// in µs. A resident one takes below 1 µs.
pub(super) const WAIT_US: u64 = 25;

/// Slowest copying of resident data that is not taken for a wait, in bytes
/// per ns.
const COPY_BYTES_PER_NS: u64 = 3;

/// After so many timed reads of which none waited, one more goes unasked
/// between two that are timed.
const CALM_READS: u32 = 16;

/// Most reads that go unasked in a row: the stalls that may pass unnoticed
/// when data that was in memory no longer is.
const UNASKED_MAX: u32 = 15;

/// See [`is_sample`]: on flash finding out what was read takes a hundredth of
/// the wait, on each processor that a program fills. Odd, so that pipes and files
/// opened by turns are both seen.
const SAMPLE: u32 = 7;

/// Short waits in a row after which one may stand for several: a program that
/// finds one read in ten in memory is then taken to have waited a tenth longer
/// than it has, and one that finds every second in memory hardly ever (a linker).
const ROW_MIN: u32 = 8;

/// Credit that a read costs of which nobody says whether it would wait.
const BLIND_COST: u32 = 8;

/// Asking copies the data once more: each so many bytes cost one credit.
const CREDIT_BYTES: usize = 16 * 1024;

/// How far the two sequences of reads may be out of step before the
/// speculative process counts as off track, in reads.
const SHIFT_MAX: u64 = 8;

/// The same for the first read of a file that is known: how many reads the one
/// side may have made that the other did not, since the last such file.
const SHIFT_FILE_MAX: u64 = 256;

/// Stalls that may be passed over, each for a file that has been found in the
/// log after reads which were not predicted.
const FOUND_AGAIN_MAX: u32 = 4;

/// Reads between two looks at what the copy has saved, and, where none of them
/// waits, at who shares the device.
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
    /// Inode number of the file, where it has been asked for; else 0.
    pub file: u64,
}

impl Request {
    /// Whether `prediction` is of this read. At the same place it may ask for
    /// less: what it has in its buffer already may have depended on bytes that
    /// the speculative process did not have (grep keeps the last line).
    fn is(&self, prediction: &Prediction) -> bool {
        let located = self.offset != OFFSET_NONE;
        let end = prediction.flags & FLAG_END != 0;
        prediction.fd == self.fd
            && (self.file == 0 || prediction.file == 0 || prediction.file == self.file)
            && (!located || prediction.offset == self.offset)
            && (end
                || self.len == u64::MAX
                || prediction.len == self.len
                || located && self.len < prediction.len)
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
    let explicit = matches!(frame.number, nr::PREAD64 | nr::PREADV | nr::PREADV2)
        && !(frame.number == nr::PREADV2 && offset as isize == -1);
    if explicit && (offset as isize) < 0 {
        return plain(frame);
    }
    let request = Request {
        fd: fd as i32,
        offset: if explicit { offset as u64 } else { OFFSET_NONE },
        len: if matches!(frame.number, nr::READ | nr::PREAD64) { len as u64 } else { u64::MAX },
        explicit,
        started: false,
        file: 0,
    };
    watched(state, frame, request, class)
}

/// Whether a call reads its input's range into another descriptor.
pub const fn is_transfer(number: usize) -> bool {
    matches!(number, nr::SENDFILE | nr::COPY_FILE_RANGE | nr::SPLICE)
}

/// `sendfile`, `copy_file_range`, `splice`: reads of their input's range. Not
/// where a copy may be made without reading, by cloning or by the server.
#[inline(never)]
pub fn transfer(state: &'static State, frame: &mut Frame) -> isize {
    let [first, second, _, fourth, fifth, _] = frame.args;
    let (fd, len) = match frame.number {
        nr::SENDFILE => (second, fourth),
        nr::SPLICE => (first, fifth.min(PIPE_BYTES as usize)),
        _ => (first, fifth),
    };
    let Some(class) = state.class(fd as u32 as usize) else { return plain(frame) };
    let class = class.load(Relaxed);
    let copies = frame.number == nr::COPY_FILE_RANGE;
    if class == class::OTHER || (copies && !copies_by_reading(state, fd as i32)) {
        return plain(frame);
    }
    let request = Request {
        fd: fd as i32,
        offset: OFFSET_NONE,
        len: len as u64,
        explicit: false,
        started: false,
        file: 0,
    };
    watched(state, frame, request, class)
}

/// [`streams::copies_by_reading`], which asks the file system, and that a server: once
/// for the files of a device.
fn copies_by_reading(state: &State, fd: i32) -> bool {
    let Some((dev, _)) = sys::identity(fd) else { return streams::copies_by_reading(fd) };
    let known = state.copies_dev.load(Relaxed);
    if known >> 1 == dev && known != 0 {
        return known & 1 != 0;
    }
    let reads = streams::copies_by_reading(fd);
    state.copies_dev.store(dev << 1 | u64::from(reads), Relaxed);
    reads
}

#[inline]
fn watched(state: &'static State, frame: &mut Frame, request: Request, class: u8) -> isize {
    // A scout predicts no reads.
    let tracked = state.speculative.load(Relaxed) != 0 && state.scouts.load(Relaxed) == 0;
    if tracked && state.owner.load(Relaxed) == thread_pointer() {
        return self::tracked(state, frame, request, class);
    }
    // A question is an access, of which a program that watches files is told.
    if state.credit.load(Relaxed) == 0 || CONFIG.watches.load(Relaxed) != 0 {
        // The stubs count by themselves; here come those of which only the registers
        // tell the number.
        if goes_unasked(state) {
            return plain(frame);
        }
        return timed(state, frame, &request, class);
    }
    if !is_file(state, request.fd) {
        if class::is_unknown(class) && !stalls_always() {
            // Finding that out costs as much as asking (a receiver that opens
            // /dev/urandom for the name of each file).
            let credit = state.credit.load(Relaxed);
            state.credit.store(credit.saturating_sub(1), Relaxed);
        }
        return plain(frame);
    }
    asked(state, frame, request, Standing::None)
}

/// Whether this read is one of those that go unasked ([`leave_unasked`]).
fn goes_unasked(state: &State) -> bool {
    let unasked = state.unasked.load(Relaxed);
    if unasked != 0 {
        state.unasked.store(unasked - 1, Relaxed);
    }
    unasked != 0
}

/// Whether a read is the agent's to make where nobody cancels a thread that waits for
/// somebody else: of a regular file, and none of those that go unasked. Not all closes are
/// seen where symbols are hooked (those of objects that have been loaded since, or by
/// syscall(2)), nor where another library makes one by itself, and a pipe may have the number
/// by now: what is known to be a file is asked once more. Files of the kernel's own of which
/// a read waits for news (`/proc/kmsg`, `trace_pipe`) say that they have no bytes.
pub fn is_looked_at(state: &State, fd: i32) -> bool {
    let unasked = || state.credit.load(Relaxed) == 0 && goes_unasked(state);
    if !is_file(state, fd) || unasked() {
        return false;
    }
    let mut stat = sys::Stat::default();
    let is_regular = sys::known_fstat(fd, &mut stat) && stat.mode & sys::S_IFMT == sys::S_IFREG;
    if !is_regular {
        state.forget(fd as u32 as usize);
    }
    is_regular && stat.size != 0
}

/// Whether a descriptor is a regular file whose reads are watched.
fn is_file(state: &State, fd: i32) -> bool {
    match state.class(fd as u32 as usize).map(|class| class.load(Relaxed)) {
        None | Some(class::OTHER) => false,
        Some(class) if class::is_unknown(class) => classify(state, fd).is_some(),
        Some(_) => true,
    }
}

/// Finds out what a descriptor is: the inode number of a file whose reads are
/// watched.
#[cold]
fn classify(state: &State, fd: i32) -> Option<u64> {
    let mut stat = sys::Stat::default();
    let cell = state.class(fd as u32 as usize)?;
    let mut class = class::OTHER;
    if sys::known_fstat(fd, &mut stat) && stat.mode & sys::S_IFMT == sys::S_IFREG {
        let flags = sys::status_flags(fd);
        if flags >= 0 && flags as usize & sys::O_DIRECT == 0 {
            let inherited = cell.load(Relaxed) == class::INHERITED;
            class = if inherited { class::FILE_SHARED } else { class::FILE };
        }
    }
    cell.store(class, Relaxed);
    (class != class::OTHER).then_some(stat.ino)
}

/// Whether this thread may have slept since the last look: a call that took
/// long without that waited for a processor, or computed, and not for storage
/// (a resident directory that is sorted, a readahead that is submitted, a
/// thread that was preempted). A thread that sleeps elsewhere, too, or takes
/// turns with another one, is believed to have waited.
/// Nobody is asked any more where another thread has restricted meanwhile what this
/// one may call ([`super::restricted`]).
#[cold]
pub(super) fn slept(state: &State) -> bool {
    if state.role.load(Relaxed) != role::NORMAL {
        return false;
    }
    let thread = (thread_pointer() as u64).rotate_left(24) & !u64::from(u32::MAX);
    let now = thread | usage::of_thread().voluntary_switches & u64::from(u32::MAX);
    state.slept.swap(now, Relaxed) != now
}

/// A plain call and what it took, in ns.
#[inline]
pub(super) fn timed_call(frame: &Frame) -> (isize, u64) {
    let ticks_per_us = CONFIG.ticks_per_us.load(Relaxed);
    if ticks_per_us == 0 {
        let start_ns = sys::now_ns();
        let result = plain(frame);
        return (result, sys::now_ns().saturating_sub(start_ns));
    }
    let start = ticks();
    let result = plain(frame);
    (result, ticks().wrapping_sub(start).saturating_mul(1000) / ticks_per_us)
}

/// A plain read and how long it took, in ns, if that was [`waited`]; 0: it was
/// not.
#[inline]
fn timed_plain(frame: &Frame) -> (isize, u64) {
    if !waits_for_storage(frame) {
        return (plain(frame), 0);
    }
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

/// Whether what a call may wait for is storage, and not the room in the pipe that
/// splice(2) fills first.
#[inline]
pub(super) fn waits_for_storage(frame: &Frame) -> bool {
    const POLLOUT: u64 = 4;
    if frame.number != nr::SPLICE {
        return true;
    }
    let [_, _, out, ..] = frame.args;
    // struct pollfd: descriptor, events, what is so.
    let mut poll = u64::from(out as u32) | POLLOUT << 32;
    let at = core::ptr::from_mut(&mut poll) as usize;
    // SAFETY: a question about one descriptor, without a wait.
    let ready = unsafe { sys::call(nr::POLL, &[at, 1, 0]) };
    ready != 0
}

/// A plain read and how long it waited for storage, in ns; 0: not at all.
#[inline]
pub(super) fn waited_plain(state: &State, frame: &Frame) -> (isize, u64) {
    let (result, ns) = timed_plain(frame);
    (result, if ns != 0 && slept(state) { ns } else { 0 })
}

/// What of a call's `ns` was a wait, given the bytes that it copied.
pub(super) fn waited(ns: u64, result: isize) -> u64 {
    let copied_ns = result.max(0) as u64 / COPY_BYTES_PER_NS;
    if ns > WAIT_US * 1000 + copied_ns { ns } else { 0 }
}

/// Lane one: everything has been in memory for a while.
#[inline]
fn timed(state: &State, frame: &Frame, request: &Request, class: u8) -> isize {
    let (result, waited_ns) = timed_plain(frame);
    if waited_ns == 0 {
        stays_calm(state);
        return result;
    }
    let rests = rests(state);
    let busy = are_busy(state);
    let due = rests && busy && (is_look_overdue(state) || are_idle_again(state));
    let passed_over = rests && !due;
    let served = goes_on_served(state, request.fd, waited_ns);
    let short = waited_ns < SHORT_STALL_NS;
    let known = !class::is_unknown(class);
    let waits = stands_for(state, passed_over && !busy && short && known);
    state.skips.store(skips(state, passed_over && busy), Relaxed);
    // Among busy processors each call counts: while reads are only timed, and
    // nobody collects, this wait is not worth finding out what was read, or
    // whether it was one.
    let uncollected = passed_over && state.slot().is_none();
    let sampled = uncollected && !known && short;
    if uncollected && busy || sampled && !is_sample(state) {
        state.calm.store(0, Relaxed);
        leave_unasked(state);
        return result;
    }
    // Where a processor is idle hardly any thread loses its own. While a wait
    // decides about nothing but when to ask again, it is believed to be one: on
    // flash finding that out takes a hundredth of it.
    let believed = passed_over || served && state.slot().is_none();
    if (busy || !believed) && !slept(state) {
        stays_calm(state);
        return result;
    }
    // What was read is asked only now: most reads never wait.
    if known || classify(state, request.fd).is_some() {
        let waits = if sampled { SAMPLE } else { waits };
        let waited_ns = waited_ns.saturating_mul(u64::from(waits));
        count_stalls(state, waits, waited_ns, true);
        if served {
            state.untold_ns.fetch_add(waited_ns, Relaxed);
        } else if !rests || due || is_again_wanted(state, waited_ns) {
            earn(state, waited_ns);
        }
        state.calm.store(0, Relaxed);
        if state.credit.load(Relaxed) == 0 {
            leave_unasked(state);
        }
    }
    result
}

/// Of the waits of newly opened files, while they decide about nothing but when
/// to ask again and nobody collects, one in [`SAMPLE`] is looked at for all.
fn is_sample(state: &State) -> bool {
    let waits = state.sampled.load(Relaxed).wrapping_add(1);
    state.sampled.store(waits, Relaxed);
    waits.is_multiple_of(SAMPLE)
}

/// Reads that go unasked after one that is timed, while reads rest and nobody
/// collects. After each wait the hook's code and data have gone from the caches,
/// and come back in 0.7 us: a hundredth of what a small file or a page of an
/// index takes on flash. On busy processors so many go unasked whether it waited
/// or not, and a look at the processors is late by as many at most. Where one is
/// idle, [`SAMPLE`] less one, after the last of [`ROW_MIN`] short waits in a row:
/// then the next that waits stands for them, too.
fn skips(state: &State, rests_busy: bool) -> u32 {
    match state.slot() {
        None if rests_busy => UNASKED_MAX,
        None if state.row.load(Relaxed) >= ROW_MIN => SAMPLE - 1,
        _ => 0,
    }
}

/// How many waits one that was timed stands for: in a row its own and those of
/// the reads that went unasked before it ([`skips`]).
fn stands_for(state: &State, in_row: bool) -> u32 {
    let row = if in_row { state.row.load(Relaxed).saturating_add(1) } else { 0 };
    state.row.store(row, Relaxed);
    if row > ROW_MIN { state.skips.load(Relaxed) + 1 } else { 1 }
}

/// One more read that did not wait.
#[inline]
fn stays_calm(state: &State) {
    if state.row.load(Relaxed) != 0 {
        state.row.store(0, Relaxed);
        state.skips.store(0, Relaxed);
    }
    let calm = state.calm.load(Relaxed).saturating_add(1);
    state.calm.store(calm, Relaxed);
    leave_unasked(state);
}

/// How many of the next reads the stubs make by themselves.
#[inline]
fn leave_unasked(state: &State) {
    let unasked = (state.calm.load(Relaxed) / CALM_READS).max(state.skips.load(Relaxed));
    // Beside a speculative process all of its thread's reads are seen, and
    // where they are recorded, all reads.
    if state.speculative.load(Relaxed) == 0 && !record::wanted() {
        state.unasked.store(unasked.min(UNASKED_MAX), Relaxed);
    }
}

/// Lane two: a speculative process of this thread runs ahead, or did.
fn tracked(state: &'static State, frame: &mut Frame, mut request: Request, mut class: u8) -> isize {
    let Some(log) = state.log() else { return plain(frame) };
    let number = state.consumed.load(Relaxed);
    if class::is_unknown(class) && state.adrift.load(Relaxed) != 0 {
        // One side reads more of each file than the other (diff, which takes
        // what is missing for a binary file and leaves it at the first block).
        // Counting alone would soon put the one that is ahead behind.
        let Some(file) = classify(state, request.fd) else { return plain(frame) };
        request.file = file;
        class = state.class(request.fd as u32 as usize).map_or(class, |class| class.load(Relaxed));
        locate(state, frame, &mut request, class);
    } else if request.offset == OFFSET_NONE && log.get(entry(state, number)).is_some() {
        // A program that opens one file after another reads them all by one
        // number: without the offset the end of one is taken for the beginning of
        // the next, and from then on no read for the one that it is.
        locate(state, frame, &mut request, class);
    }
    if frame.number == nr::SPLICE && is_rest(state, log, &request, number) {
        return plain(frame);
    }
    let (standing, prediction) = standing(state, log, &request, number);
    // A read that was predicted is of a file; of others that must be known
    // before they count.
    if prediction.is_none() && class::is_unknown(class) && classify(state, request.fd).is_none() {
        return plain(frame);
    }
    count_off(state, log, number);
    let Some(prediction) = prediction else {
        // A copy that gets no processor is behind for as long as the program
        // runs; where nothing waits it is not worth a question for each read.
        if state.credit.load(Relaxed) == 0 && !stalls_always() {
            return timed(state, frame, &request, class);
        }
        return asked(state, frame, request, standing);
    };
    let (result, waited_ns) = waited_plain(state, frame);
    came_true(state, &prediction, waited_ns);
    result
}

/// Whether a splice(2) moves what is left of the last one: there was not as much
/// room in the pipe as the copy had in its own.
fn is_rest(state: &State, log: &Log, request: &Request, number: u64) -> bool {
    let last = log.get(entry(state, number).wrapping_sub(1)).filter(|_| number != 0);
    last.is_some_and(|last| {
        let into = request.offset.wrapping_sub(last.offset);
        let located = request.offset != OFFSET_NONE;
        located && last.fd == request.fd && into != 0 && into < last.len
    })
}

/// Counts what was just read of a directory as the thread's next read: what the
/// log says of it. `None`: there is no log.
pub(super) fn follow(state: &State, request: &Request) -> Option<(Standing, Option<Prediction>)> {
    let log = state.log()?;
    let number = state.consumed.load(Relaxed);
    let found = standing(state, log, request, number);
    count_off(state, log, number);
    Some(found)
}

/// Read `number` is made.
fn count_off(state: &State, log: &Log, number: u64) {
    state.consumed.store(number.wrapping_add(1), Relaxed);
    consume(state, log, number);
    if number % SHARE_READS == SHARE_READS - 1 {
        apart::run(state, || {
            let now_ns = sys::now_ns();
            logs::share(state, log, now_ns);
            synchronise::at_interval(state, log, now_ns);
        });
    }
}

/// A read was predicted, and waited so long.
pub(super) fn came_true(state: &State, prediction: &Prediction, waited_ns: u64) {
    state.predicted.store(state.predicted.load(Relaxed).wrapping_add(1), Relaxed);
    let goes_on = goes_on(state, prediction);
    if prediction.flags & FLAG_PREFETCHED != 0 && prediction.prefetched_len > 0 {
        state.hits.store(state.hits.load(Relaxed).wrapping_add(1), Relaxed);
        if goes_on {
            state.streamed.store(state.streamed.load(Relaxed).wrapping_add(1), Relaxed);
        }
        if waited_ns != 0 {
            state.partial.store(state.partial.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }
    if waited_ns != 0 {
        // A partial stall: predicted, just not early enough.
        count_stall(state, waited_ns, false);
        streams::waited_behind(state, prediction.fd, waited_ns);
        if let Some(log) = state.log() {
            apart::run(state, || synchronise::at_partial_stall(state, log));
        }
    }
}

/// Whether a read goes on where the last predicted one of its descriptor ended.
fn goes_on(state: &State, prediction: &Prediction) -> bool {
    const OFFSET_BITS: u32 = 48;
    let &Prediction { fd, offset, len, .. } = prediction;
    let place = |offset: u64| (fd as u64) << OFFSET_BITS | offset & ((1 << OFFSET_BITS) - 1);
    let Some(end) = state.ends.get(fd as u32 as usize % ENDS) else { return false };
    end.swap(place(offset.wrapping_add(len)), Relaxed) == place(offset) && offset != 0
}

/// Number in the log of the program's read `number`.
fn entry(state: &State, number: u64) -> u64 {
    number.wrapping_add(state.shift.load(Relaxed))
}

/// Where the speculative process stands towards read `number`, and its
/// prediction if that came true.
fn standing(
    state: &State,
    log: &Log,
    request: &Request,
    number: u64,
) -> (Standing, Option<Prediction>) {
    let entry = entry(state, number);
    let next = log.get(entry);
    if let Some(prediction) = next.filter(|next| request.is(next)) {
        found(state, request, &prediction);
        return (Standing::None, Some(prediction));
    }
    if next.is_none() && request.file == 0 {
        state.adrift.store(1, Relaxed);
        return (absent(log), None);
    }
    // One side may have made a read or two that the other did not. Only an
    // offset tells the end of a file from any other read.
    let is_sure = |found: &Prediction| {
        (request.offset != OFFSET_NONE || found.flags & FLAG_END == 0)
            && (request.file == 0 || found.file == request.file)
    };
    let reach = if request.file == 0 { SHIFT_MAX } else { SHIFT_FILE_MAX };
    for step in 1..=reach {
        for candidate in [entry.wrapping_add(step), entry.wrapping_sub(step)] {
            let found = log.get(candidate).filter(is_sure);
            if let Some(prediction) = found.filter(|found| request.is(found)) {
                self::found(state, request, &prediction);
                unpredicted(log);
                state.shift.store(candidate.wrapping_sub(number), Relaxed);
                return (Standing::None, Some(prediction));
            }
        }
    }
    state.adrift.store(1, Relaxed);
    // Of a file that is known nothing is in the log, which ends here: it has not
    // come to it yet.
    let ends = log.tail.load(Relaxed).wrapping_sub(entry) <= SHIFT_MAX;
    if next.is_none() || request.file != 0 && ends {
        return (absent(log), None);
    }
    unpredicted(log);
    (Standing::OffTrack, None)
}

/// A read that the log does not say anything about yet.
fn absent(log: &Log) -> Standing {
    match log.life.load(Relaxed) {
        life::PARKED | life::NONE => Standing::None,
        _ => Standing::Behind,
    }
}

/// A read was predicted: where its file is known, so is where the log stands.
fn found(state: &State, request: &Request, prediction: &Prediction) {
    if request.file != 0 && prediction.file == request.file {
        state.adrift.store(0, Relaxed);
        let times = state.found_again.load(Relaxed).saturating_add(1);
        state.found_again.store(times.min(FOUND_AGAIN_MAX), Relaxed);
    }
}

/// The copy has read something that the program has not, or the other way
/// round: not all that it read was read by the program.
fn unpredicted(log: &Log) {
    log.unpredicted.store(log.unpredicted.load(Relaxed).wrapping_add(1), Relaxed);
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
            whole_files::found(state, &request, copied);
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
    let (result, waited_ns) = waited_plain(state, frame);
    if waited_ns != 0 {
        count_stall(state, waited_ns, true);
        earn(state, waited_ns);
        apart::run(state, || streams::came(state, frame, request, waited_ns, sys::now_ns()));
    }
    whole_files::came(state, request, result.max(0) as usize, waited_ns);
    result
}

#[cfg(test)]
mod tests;
