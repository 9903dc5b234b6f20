//! Large mappings of files, and anonymous memory where there is swap space:
//! where page faults may wait for storage, on which device, and whether it is
//! time to ask for notices of them ([`super::notice`]).

use super::{asking, handover, notice, sequence};
use crate::Gate;
use crate::arch::nr;
use crate::arena::Window;
use crate::config::{CONFIG, stalls_always};
use crate::import::regions::swap_exists;
use crate::state::{State, WRITTEN_MAX};
use crate::sys::{self, IoVec, call};
use core::ptr::from_ref;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use runahead_emulate::residency::{
    Method, Methods, Resident, is_in_memory, question, refused_nowait,
};
use runahead_protocol::session::Mode;

/// Mappings of files from this length on are watched, in bytes.
pub const LARGE_BYTES: usize = 1 << 20;

/// Anonymous memory from this length on, all together, is watched where there
/// is swap space, in bytes: filling so much takes far longer than arming.
pub const SWAPPED_BYTES: usize = 24 << 20;

/// Files mapped from this length on are worth a copy before their first touch, in
/// bytes: read in order, with the kernel's readahead, they are waited for a
/// hundred times.
const SEQUENCE_BYTES: usize = 16 << 20;

/// `MAP_TYPE`: of the flags of mmap(2), which kind of mapping it is.
pub const MAP_TYPE: usize = 0xf;

/// `MAP_DENYWRITE`, which the kernel ignores (mmap(2)).
const MAP_DENYWRITE: usize = 0x800;

/// Questions about pages of new mappings in the life of a process, until one
/// is found missing.
const SAMPLES_MAX: u32 = 256;
/// Questions about one mapping.
const SAMPLES: u32 = 16;
/// The same where each takes three system calls.
const SAMPLES_ELSEWHERE: usize = 4;
/// After [`SAMPLES_MAX`], one mapping in so many is still asked about.
const SAMPLE_EVERY: u32 = 64;

/// Before an mmap(2) with arguments `args`: a device, a socket or the like is in use
/// as long as a copy has it mapped.
pub fn before_mapped(state: &State, &[_, _, _, flags, fd, _]: &[usize; 6]) {
    if flags & MAP_TYPE == sys::MAP_PRIVATE || flags & sys::MAP_ANONYMOUS != 0 {
        return;
    }
    let mut stat = sys::Stat::default();
    if sys::known_fstat(fd as i32, &mut stat) && stat.mode & sys::S_IFMT != sys::S_IFREG {
        CONFIG.attaches.store(1, Relaxed);
        handover::await_made(state);
    }
}

/// After an mmap(2) with arguments `args` that came to `result`. Where much of a
/// file is mapped to be read, its first page is not in memory, and a copy may be
/// made before that is touched: how many bytes.
/// What the program waits for when it goes through them in order, the kernel
/// counts as no major fault, and nobody gets notice of it.
pub fn mapped(state: &'static State, result: isize, args: &[usize; 6]) -> Option<usize> {
    let &[_, len, protection, flags, fd, offset] = args;
    if result <= 0 {
        return None;
    }
    let writes = protection & sys::PROT_WRITE != 0
        && flags & sys::MAP_ANONYMOUS == 0
        && flags & MAP_TYPE != sys::MAP_PRIVATE;
    if writes {
        remember_written(state, result as usize, len);
    }
    if len < LARGE_BYTES {
        return None;
    }
    state.large_changes.fetch_add(1, Relaxed);
    let anonymous = flags & sys::MAP_ANONYMOUS != 0;
    // What glibc's loader maps, and nobody else marks so: the kernel reads
    // around its faults, and a notice costs a program that loads many libraries
    // more than it waits for them (a Python program 5 of 120 ms).
    let code = (protection & sys::PROT_EXEC != 0) || flags & MAP_DENYWRITE != 0;
    if code || CONFIG.mode.load(Relaxed) == Mode::Off as u32 {
        return None;
    }
    if anonymous {
        if flags & sys::MAP_PRIVATE != 0 {
            anonymous_memory(state, result as usize, len);
        }
        return None;
    }
    let shares = flags & MAP_TYPE != sys::MAP_PRIVATE;
    let reads = protection & sys::PROT_READ != 0 && !(shares && protection & sys::PROT_WRITE != 0);
    // Before the first page is asked about: whoever serves a read that this
    // starts would count among the runnable.
    let sequence = len >= SEQUENCE_BYTES
        && reads
        && may_be_asked_about(state)
        && sequence::may_expect(state, len as u64);
    // Not before: where the last copy's pages were, this may be.
    remember(state, result as usize, len, sys::device_of(fd as i32));
    // The question is an access, of which a program that watches files is told.
    let asks = CONFIG.watches.load(Relaxed) == 0 && state.disabled.load(Relaxed) == 0;
    if !asks || !may_be_asked_about(state) {
        return None;
    }
    let noticed = state.notice.load(Relaxed) != 0 || state.notice_later.load(Relaxed) != 0;
    if noticed && !sequence {
        return None;
    }
    let samples = if noticed { 1 } else { SAMPLES };
    let Missing { sample, bytes } = first_missing(state, fd, offset, len, samples)?;
    if !noticed {
        notice::want_if_worth(state);
    }
    (sample == 0 && sequence && bytes >= SEQUENCE_BYTES).then_some(bytes)
}

/// Anonymous memory that may be swapped out.
fn anonymous_memory(state: &'static State, start: usize, len: usize) {
    remember(state, start, len, 0);
    let all = state.anonymous_bytes.fetch_add(len, Relaxed).saturating_add(len);
    if all >= SWAPPED_BYTES && state.notice.load(Relaxed) == 0 && swap_exists() {
        notice::want(state);
    }
}

/// After an mremap(2) with arguments `args` that came to `result`.
pub fn remapped(state: &'static State, result: isize, args: &[usize; 6]) {
    let &[old, old_len, len, ..] = args;
    if result <= 0 || old_len.max(len) < LARGE_BYTES {
        return;
    }
    unmapped(state, old, old_len);
    // What grows (realloc(3)) is anonymous memory nearly always.
    if len >= LARGE_BYTES && CONFIG.mode.load(Relaxed) != Mode::Off as u32 {
        anonymous_memory(state, result as usize, len);
    }
}

/// After a brk(2) that came to `end`.
pub fn heap_ends(state: &'static State, end: isize) {
    let Some(end) = usize::try_from(end).ok().filter(|&end| end != 0) else { return };
    let start = state.heap_start.load(Relaxed);
    if start == 0 || end < start {
        state.heap_start.store(end, Relaxed);
        return;
    }
    let len = end - start;
    if len < SWAPPED_BYTES || CONFIG.mode.load(Relaxed) == Mode::Off as u32 {
        return;
    }
    let area = state.areas.iter().find(|area| area.start.load(Relaxed) == start);
    match area {
        Some(area) => area.end.store(end, Release),
        None => anonymous_memory(state, start, len),
    }
}

/// Keeps a large mapping in mind, of a file on `device` (0: anonymous memory).
#[cold]
fn remember(state: &State, start: usize, len: usize, device: u64) {
    state.large_mappings.fetch_add(1, Relaxed);
    unmapped(state, start, len);
    for area in &state.areas {
        // The end is stored last and taken back first: a reader that sees one
        // without the other sees an empty or a smaller area.
        if area.end.load(Relaxed) == 0
            && area.end.compare_exchange(0, start + 1, Relaxed, Relaxed).is_ok()
        {
            area.start.store(start, Relaxed);
            area.device.store(device, Relaxed);
            area.end.store(start + len, Release);
            return;
        }
    }
}

/// Keeps in mind where a file is written through a mapping.
#[cold]
fn remember_written(state: &State, start: usize, len: usize) {
    state.writings.fetch_add(1, Relaxed);
    let end = start.saturating_add(len).next_multiple_of(sys::PAGE_SIZE);
    for area in &state.written {
        if area.end.compare_exchange(0, end, Relaxed, Relaxed).is_ok() {
            area.start.store(start, Relaxed);
            return;
        }
    }
}

/// Whether a munmap(2) lets go of a file that was written through what it takes away: a
/// copy has the mapping as well, and with it the file open for writing, which nobody could
/// execute, lease or mount read-only meanwhile, and of whose closing a watcher would be
/// told late.
pub fn lets_go_of_written(state: &State, start: usize, len: usize) -> bool {
    let writings = state.writings.load(Relaxed);
    if writings == 0 {
        return false;
    }
    let end = start.saturating_add(len);
    let mut lets_go = writings > WRITTEN_MAX;
    for area in &state.written {
        let (from, to) = (area.start.load(Relaxed), area.end.load(Relaxed));
        if to == 0 || to <= start || end <= from {
            continue;
        }
        lets_go = true;
        if start <= from && to <= end {
            area.start.store(0, Relaxed);
            area.end.store(0, Relaxed);
            // More than there is room for stay more.
            let fewer = |all: usize| (all <= WRITTEN_MAX).then(|| all.saturating_sub(1));
            let _ = state.writings.fetch_update(Relaxed, Relaxed, fewer);
        }
    }
    lets_go
}

/// Before a munmap(2): forgets the mappings that begin in the range.
pub fn unmapped(state: &State, start: usize, len: usize) {
    state.large_changes.fetch_add(1, Relaxed);
    if state.large_mappings.load(Relaxed) == 0 {
        return;
    }
    let end = start.saturating_add(len);
    for area in &state.areas {
        let at = area.start.load(Relaxed);
        if at != 0 && at >= start && at < end {
            area.start.store(0, Relaxed);
            area.end.store(0, Relaxed);
        }
    }
}

/// Whether an address lies in a large mapping of a file, or in anonymous
/// memory that is watched.
pub fn is_watched(state: &State, address: usize) -> bool {
    device(state, address).is_some()
}

/// The device of the file that is mapped at a watched address, 0 where it is
/// anonymous memory; `None` where it is not watched.
pub fn device(state: &State, address: usize) -> Option<u64> {
    let area = state.areas.iter().find(|area| {
        let start = area.start.load(Relaxed);
        start != 0 && address >= start && address < area.end.load(Acquire)
    })?;
    Some(area.device.load(Relaxed))
}

/// A page of a mapping that is not in memory.
struct Missing {
    /// Which of those that were looked at.
    sample: usize,
    /// Bytes of the file that are mapped.
    bytes: usize,
}

/// Whether the pages of one mapping more may be asked about.
fn may_be_asked_about(state: &State) -> bool {
    let mapping = state.large_mappings.load(Relaxed);
    let enough = state.samples.load(Relaxed) >= SAMPLES_MAX;
    !enough || mapping.is_multiple_of(SAMPLE_EVERY) || stalls_always()
}

/// Looks at the first `samples` of [`SAMPLES`] pages of a file, evenly spaced,
/// until one is missing (whose read has then been started).
#[cold]
fn first_missing(
    state: &State,
    fd: usize,
    offset: usize,
    len: usize,
    samples: u32,
) -> Option<Missing> {
    // A mapping may reach far beyond its file: databases map what they may
    // grow to.
    let mut stat = sys::Stat::default();
    if !sys::known_fstat(fd as i32, &mut stat) {
        return None;
    }
    let len = len.min((stat.size.max(0) as usize).saturating_sub(offset));
    let regular = stat.mode & sys::S_IFMT == sys::S_IFREG;
    // Of a hole nothing is waited for; of no blocks at all some file systems tell.
    let stored = match stat.blocks {
        ..=0 => len,
        blocks => (blocks as usize).saturating_mul(512),
    };
    let missing =
        |sample| Some(Missing { sample, bytes: if regular { len.min(stored) } else { 0 } });
    if stalls_always() {
        return missing(0);
    }
    if regular && len == 0 {
        return None;
    }
    let mut byte = 0u8;
    let vector = IoVec { base: core::ptr::from_mut(&mut byte) as usize, len: 1 };
    for sample in 0..samples as usize {
        let at = offset + len / SAMPLES as usize * sample;
        let args = [fd, from_ref(&vector) as usize, 1, at, 0, sys::RWF_NOWAIT];
        state.samples.fetch_add(1, Relaxed);
        // SAFETY: into a byte of ours, at an explicit offset.
        match unsafe { call(nr::PREADV2, &args) } {
            1 => {}
            0 => return None, // It has been cut off meanwhile.
            sys::EAGAIN => return missing(sample),
            // Asking there takes calls that may wait.
            _ if samples < SAMPLES => return None,
            _ => return missing(first_missing_elsewhere(state, fd, &stat, offset, len)?),
        }
    }
    None
}

/// The same of a file whose file system refuses `RWF_NOWAIT`.
#[cold]
fn first_missing_elsewhere(
    state: &State,
    fd: usize,
    stat: &sys::Stat,
    offset: usize,
    len: usize,
) -> Option<usize> {
    // Every backend of PostgreSQL maps 1 MiB of shared memory, and an event takes
    // 2% where each read waits 60 µs.
    if is_in_memory(&mut Gate, fd) {
        return swap_exists().then_some(SAMPLES_ELSEWHERE);
    }
    let method = refused_nowait(&mut Gate, &mut Methods::default(), fd, stat.dev);
    if matches!(method, Method::MadeUp | Method::Sysfs | Method::Delicate) {
        return None;
    }
    let mut oracle = asking::oracle(stat, method);
    let mut is_there = |sample| {
        let at = offset + len / SAMPLES_ELSEWHERE * sample;
        let file = (fd, stat.dev);
        let (gate, methods) = (&mut Window::of(state), &mut Methods::default());
        question(gate, methods, &mut oracle, file, at as u64, 1) == Resident::All
    };
    (0..SAMPLES_ELSEWHERE).find(|&sample| !is_there(sample))
}
