//! Sequential streams of the program: a read that stalled where a stream
//! would is followed by a run of the competitive depth (Li et al. 2004; the
//! decisions are [`runahead_policy::competitive::streams`]).
//!
//! Only stalls come here. A run is issued by readahead(2) once the read that
//! stalled is on its way, and only for streams that are recognised: before
//! that it would keep the kernel's own readahead from seeing them.

use crate::arch::{Frame, nr, thread_pointer};
use crate::config::CONFIG;
use crate::normal::Request;
use crate::normal::asking::bytes;
use crate::normal::reads::is_transfer;
use crate::state::{State, class, lock};
use crate::sys;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use runahead_emulate::arch::nr as all_nr;
use runahead_policy::competitive::streams::{Action, PIECE_BYTES_MAX, WINDOW_BYTES};
use runahead_policy::competitive::{Crowd, Device, Miss, Streams};
use runahead_protocol::session::{self, DEVICES_MAX, Mode};
use runahead_protocol::stats::Counter;

/// Looks at the lock before a stall is passed over.
const SPINS_MAX: u32 = 64;

/// Streams of this process, by device: as many as a launcher names.
/// All-zero is a valid start.
#[derive(Debug)]
pub struct Table {
    /// 1 while a thread is in one of the entries.
    lock: AtomicU32,
    /// Stalls so far, for the age of entries.
    turn: AtomicU64,
    /// The last of them that another thread was found in the table at, plus one.
    found: AtomicU64,
    entries: core::cell::UnsafeCell<[Entry; DEVICES_MAX]>,
}

#[derive(Debug)]
struct Entry {
    /// Device number; 0: free.
    dev: u64,
    /// When it was used last, in turns.
    used_at: u64,
    device: Device,
    streams: Streams,
    crowd: Crowd,
}

impl Table {
    /// Runs `action` on the entry of a device; `None` where another thread
    /// stays in the table. Never waits for long: a thread that was stopped in
    /// here costs the others their prefetches and nothing else.
    fn with<R>(&self, dev: u64, action: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        let mut spins = 0;
        while self.lock.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            spins += 1;
            if spins == SPINS_MAX {
                return None;
            }
            core::hint::spin_loop();
        }
        // SAFETY: the lock is held, so this is the only reference.
        let entries = unsafe { &mut *self.entries.get() };
        let turn = self.turn.load(Relaxed).wrapping_add(1);
        self.turn.store(turn, Relaxed);
        let result = entry(entries, dev).map(|entry| {
            entry.used_at = turn;
            action(entry)
        });
        self.lock.store(0, Release);
        result
    }

    /// Whether the thread that was found in the table came there since this was
    /// last asked: one that was there already may have been left there for
    /// good, by a handler's `longjmp` or a cancellation.
    fn is_passed_through(&self) -> bool {
        let found = self.turn.load(Relaxed).wrapping_add(1);
        self.found.swap(found, Relaxed) != found
    }
}

/// The entry of a device, in the place of the one that was not used for
/// longest.
fn entry(entries: &mut [Entry; DEVICES_MAX], dev: u64) -> Option<&mut Entry> {
    let index = match entries.iter().position(|entry| entry.dev == dev) {
        Some(index) => index,
        None => {
            let oldest = entries.iter().enumerate().min_by_key(|(_, entry)| entry.used_at);
            let index = oldest.map(|(index, _)| index)?;
            let entry = entries.get_mut(index)?;
            entry.dev = dev;
            entry.device = known_device(dev);
            entry.streams = Streams::EMPTY;
            entry.crowd = Crowd::NONE;
            index
        }
    };
    entries.get_mut(index)
}

/// What the launcher knows of a device; all zero: nothing.
fn known_device(dev: u64) -> Device {
    let text = CONFIG.session.get();
    let Some(start) = text.iter().position(|&byte| byte == b'=') else { return Device::default() };
    let text = text.get(start + 1..).unwrap_or(&[]);
    let text = text.strip_suffix(b"\0").unwrap_or(text);
    let Some(session) = session::parse(text) else { return Device::default() };
    let found = session::devices(session.devices).find(|known| known.dev == dev);
    found.map_or_else(Device::default, |known| Device {
        latency_ns: known.latency_us.saturating_mul(1000),
        seek_shortest_ns: known.seek_shortest_us.saturating_mul(1000),
        seek_stroke_ns: known.seek_stroke_us.saturating_mul(1000),
        first_bytes_per_s: known.first_kb_s.saturating_mul(1000),
        last_bytes_per_s: known.last_kb_s.saturating_mul(1000),
        size_bytes: known.size_mib.saturating_mul(1 << 20),
        parallelism: known.parallelism,
    })
}

/// A stall that is going on.
#[derive(Clone, Copy, Debug)]
pub struct Stalled {
    dev: u64,
    action: Action,
}

impl Stalled {
    /// Whether something was prefetched behind the read.
    pub fn prefetched(&self) -> bool {
        self.action.len != 0
    }
}

/// The program's read is about to wait, and nobody predicted it: prefetches
/// what a stream will read behind it.
pub fn at_stall(
    state: &State,
    frame: &Frame,
    request: &Request,
    stat: &sys::Stat,
) -> Option<Stalled> {
    if CONFIG.mode.load(Relaxed) != Mode::Speculate as u32
        || request.offset == super::OFFSET_NONE
        || runs_ahead(state)
    {
        return None;
    }
    if stat.mode & sys::S_IFMT != sys::S_IFREG {
        return None;
    }
    let size = stat.size.max(0) as u64;
    if request.offset >= size {
        return None;
    }
    let len = bytes(frame, request)?.min(size - request.offset);
    let transfers = is_transfer(frame.number);
    // What splice(2) is asked for goes through a pipe, piece by piece.
    let says_all = transfers && frame.number != nr::SPLICE;
    let mut miss = Miss {
        file: stat.ino.wrapping_add(1).max(1),
        by: thread_pointer() as u64,
        offset: request.offset,
        len: if transfers { len.min(FIRST_READ_BYTES) } else { len },
        size,
        known: if says_all { len } else { 0 },
        passed: 0,
        place: None,
        now_ns: sys::now_ns(),
    };
    let look =
        |entry: &mut Entry| (entry.device.has_places(), entry.streams.behind(&miss, &entry.device));
    let (has_places, behind) = state.streams.with(stat.dev, look)?;
    if behind != 0 && are_missing(request.fd, request.offset - behind, behind) == Some(false) {
        miss.passed = behind;
    }
    if has_places {
        miss.place = place(request.fd, request.offset);
    }
    let act = |entry: &mut Entry| entry.streams.miss(&miss, &entry.device);
    let mut action = state.streams.with(stat.dev, act)?;
    if action.expected != 0
        && let Some(cached) = cached(request.fd, request.offset, action.expected)
        && cached.missing != 0
    {
        let evicted = cached.evicted != 0;
        let again =
            |entry: &mut Entry| entry.streams.missing(&miss, &entry.device, &action, evicted);
        action = state.streams.with(stat.dev, again)?;
    }
    let class = state.class(request.fd as u32 as usize);
    // Until runs are read there, asking has had the kernel read what is resident.
    if action.counts
        && action.len != 0
        && class.is_some_and(|class| class.load(Relaxed) == class::FILE_STREAM)
        && let Some(Cached { resident: resident @ 1.., .. }) =
            cached(request.fd, action.offset, action.len)
    {
        let extend = |entry: &mut Entry| entry.streams.extended(&miss, &action, resident);
        action.len = state.streams.with(stat.dev, extend).unwrap_or(action.len);
    }
    action.sequential &= may_be_advised(class.map_or(class::FILE, |class| class.load(Relaxed)));
    if action.sequential {
        advise_sequential(request.fd);
    }
    if action.len != 0 {
        issue(request.fd, stat.dev, &action);
    }
    if action.len != 0 || action.sequential {
        state.served();
    }
    if (action.len != 0 || action.sequential)
        && let Some(class) = class
        && class.load(Relaxed) == class::FILE
    {
        class.store(class::FILE_STREAM, Relaxed);
    }
    if action.len != 0 {
        state.count(Counter::StreamRuns, 1);
        state.count(Counter::StreamBytes, action.len);
    }
    Some(Stalled { dev: stat.dev, action })
}

/// The program's read was on its way already, and has waited `ns` for that
/// until `now_ns`.
pub fn came(state: &State, frame: &Frame, request: &Request, ns: u64, now_ns: u64) {
    let mut stat = sys::Stat::default();
    if sys::known_fstat(request.fd, &mut stat)
        && let Some(stalled) = at_stall(state, frame, request, &stat)
    {
        ended(state, &stalled, ns, now_ns);
    }
}

/// Mean stall, in ns, from which on a device that nobody has measured is taken
/// for a disk, which positions for one request at a time.
const DISK_STALL_NS: u64 = 3_000_000;

/// Whether another thread waits for the same disk, or did within two switches or
/// two mean stalls, whichever is longer. Devices that answer sooner, or are
/// known to have no seeks, serve requests beside each other.
pub fn is_crowded(state: &State, stat: &sys::Stat, now_ns: u64) -> bool {
    if !may_crowd(stat) {
        return false;
    }
    let stall_ns = state.mean_stall_ns();
    let look = |entry: &mut Entry| {
        entry.crowd.waits(thread_pointer(), now_ns);
        let device = &entry.device;
        let switch_ns = match device.is_known() {
            true if device.has_places() => device.switch_ns(None),
            false if stall_ns >= DISK_STALL_NS => stall_ns,
            _ => return false,
        };
        entry.crowd.is_there(now_ns, switch_ns.max(stall_ns).saturating_mul(2))
    };
    // Who finds another thread in the table is not alone.
    let meets = || stall_ns >= DISK_STALL_NS && state.streams.is_passed_through();
    state.streams.with(stat.dev, look).unwrap_or_else(meets)
}

fn may_crowd(stat: &sys::Stat) -> bool {
    CONFIG.mode.load(Relaxed) == Mode::Speculate as u32 && stat.mode & sys::S_IFMT == sys::S_IFREG
}

/// Shortest wait that may be one for a disk, in ns.
const DISK_WAIT_NS: u64 = 500_000;

/// The thread that a copy runs ahead of has waited `ns` for what that asked
/// for: it may be one of a crowd.
pub fn waited_behind(state: &State, fd: i32, ns: u64) {
    let mut stat = sys::Stat::default();
    if ns >= DISK_WAIT_NS && sys::known_fstat(fd, &mut stat) && may_crowd(&stat) {
        let now_ns = sys::now_ns();
        let note = |entry: &mut Entry| entry.crowd.waits(thread_pointer(), now_ns);
        state.streams.with(stat.dev, note);
    }
}

/// What a call that sends a file reads at once, in bytes: a pipe's buffers
/// (fs/splice.c, Linux 6.18).
const FIRST_READ_BYTES: u64 = 64 * 1024;

/// The stall took `ns` and has just ended.
pub fn ended(state: &State, stalled: &Stalled, ns: u64, now_ns: u64) {
    let tell = |entry: &mut Entry| {
        entry.crowd.waits(thread_pointer(), now_ns);
        entry.streams.waited(&stalled.action, ns, now_ns);
    };
    state.streams.with(stalled.dev, tell);
}

/// Whether a speculative process runs ahead of this thread, or is being made:
/// then that prefetches.
fn runs_ahead(state: &State) -> bool {
    if state.lock.load(Relaxed) == lock::HANDED {
        return true;
    }
    state.owner.load(Relaxed) == thread_pointer() && state.copy_lives()
}

/// Whether advice may be given about a description of this class. It is the
/// description's: others who have it keep their window, and the program keeps its own
/// advice, which this would take the place of.
fn may_be_advised(class: u8) -> bool {
    class != class::FILE_SHARED && CONFIG.reads_at_random.load(Relaxed) == 0
}

/// Doubles the window of the kernel's own readahead for this description
/// (mm/fadvise.c, Linux 6.18).
fn advise_sequential(fd: i32) {
    const POSIX_FADV_SEQUENTIAL: usize = 2;
    // SAFETY: advice; what is read through the description stays the same.
    unsafe { sys::call(all_nr::FADVISE64, &[fd as usize, 0, 0, POSIX_FADV_SEQUENTIAL]) };
}

/// Most bytes of which one readahead(2) takes notice: the kernel cuts a call
/// to the window of the description or the device's largest request, and
/// without a block device there is none of the latter (mm/readahead.c,
/// `force_page_cache_ra`, Linux 6.18).
fn call_bytes_max(dev: u64, action: &Action) -> u64 {
    // Device numbers of major 0, as stat(2) has them: network, FUSE.
    const MAJOR: u64 = 0xffff_f000_000f_ff00;
    match (dev & MAJOR, action.sequential) {
        (0, false) => WINDOW_BYTES,
        (0, true) => 2 * WINDOW_BYTES,
        _ => PIECE_BYTES_MAX,
    }
}

fn issue(fd: i32, dev: u64, action: &Action) {
    let end = action.offset.saturating_add(action.len);
    let piece = action.piece.min(call_bytes_max(dev, action)).max(WINDOW_BYTES);
    let mut at = action.offset;
    while at < end {
        let bytes = (end - at).min(piece);
        super::asking::start_read(fd, at, bytes);
        at += bytes;
    }
}

/// Whether the read would find pages, of the first `len` bytes, that are
/// neither in memory nor on their way, without starting anything; `None` where
/// the kernel does not say.
///
/// Asking by `RWF_NOWAIT` makes the kernel read a window at the end of a run,
/// whose mark makes it read the next one, and so on: windows beside the runs,
/// each of which costs a switch.
pub fn is_missing(request: &Request, len: u64) -> Option<bool> {
    if !are_missing(request.fd, request.offset, len)? {
        return Some(false);
    }
    // Behind the end of the file nothing is ever cached.
    let mut stat = sys::Stat::default();
    if !sys::known_fstat(request.fd, &mut stat) {
        return None;
    }
    let size = stat.size.max(0) as u64;
    let rest = size.saturating_sub(request.offset);
    if rest >= len {
        return Some(true);
    }
    if rest == 0 { Some(false) } else { are_missing(request.fd, request.offset, rest) }
}

/// Whether pages of a range are neither in memory nor on their way.
fn are_missing(fd: i32, offset: u64, len: u64) -> Option<bool> {
    Some(cached(fd, offset, len)?.missing != 0)
}

/// Of the pages of a range, in bytes: those that are in memory or on their way,
/// the others, and how many of these have been evicted, as far as the kernel
/// remembers.
struct Cached {
    resident: u64,
    missing: u64,
    evicted: u64,
}

/// cachestat(2), Linux 6.5; who may not ask is told nothing.
fn cached(fd: i32, offset: u64, len: u64) -> Option<Cached> {
    const PAGE: u64 = sys::PAGE_SIZE as u64;
    let first = offset / PAGE;
    let pages = (offset.saturating_add(len)).div_ceil(PAGE) - first;
    let range = [first * PAGE, pages * PAGE];
    let mut counts = [0u64; 5];
    let args = [fd as usize, range.as_ptr() as usize, counts.as_mut_ptr() as usize, 0];
    // SAFETY: the kernel reads one struct cachestat_range and writes one
    // struct cachestat.
    let result = unsafe { sys::call(all_nr::CACHESTAT, &args) };
    let [resident, _dirty, _writeback, evicted, _recently] = counts;
    (result == 0).then_some(Cached {
        resident: resident * PAGE,
        missing: pages.saturating_sub(resident) * PAGE,
        evicted: evicted * PAGE,
    })
}

/// Whether copy_file_range(2) reads what it copies: some file systems share the
/// blocks of both files, or leave it to a server.
pub fn copies_by_reading(fd: i32) -> bool {
    /// linux/magic.h, and of those that are not there: XFS, ZFS.
    const ELSEWHERE: [u32; 9] = [
        0x5846_5342, // XFS
        0x9123_683e, // btrfs
        0xca45_1a4e, // bcachefs
        0x2fc1_2fc1, // ZFS
        0x7461_636f, // OCFS2
        0x6969,      // NFS
        0xff53_4d42, // CIFS
        0xfe53_4d42, // SMB2
        0x00c3_6400, // Ceph
    ];
    sys::file_system(fd).is_none_or(|kind| !ELSEWHERE.contains(&(kind as u32)))
}

/// Where a byte of a file lies on its device (FS_IOC_FIEMAP), in bytes.
fn place(fd: i32, offset: u64) -> Option<u64> {
    const FS_IOC_FIEMAP: usize = 0xc020_660b;
    const FIEMAP_EXTENT_UNKNOWN: u32 = 2;
    /// struct fiemap with one struct fiemap_extent.
    #[derive(Default)]
    #[repr(C)]
    struct Fiemap {
        start: u64,
        length: u64,
        flags: u32,
        mapped: u32,
        room: u32,
        reserved: u32,
        logical: u64,
        physical: u64,
        extent_length: u64,
        extent_reserved: [u64; 2],
        extent_flags: u32,
        extent_rest: [u32; 3],
    }
    const _: () = assert!(size_of::<Fiemap>() == 32 + 56);
    let mut map = Fiemap { start: offset, length: 1, room: 1, ..Fiemap::default() };
    let at = core::ptr::from_mut(&mut map) as usize;
    // SAFETY: the kernel fills in the struct and the one extent there is room
    // for.
    let result = unsafe { sys::call(all_nr::IOCTL, &[fd as usize, FS_IOC_FIEMAP, at]) };
    let known = result == 0 && map.mapped == 1 && map.extent_flags & FIEMAP_EXTENT_UNKNOWN == 0;
    known.then(|| map.physical.saturating_add(offset.saturating_sub(map.logical)))
}

/// The offset that a call names in the program's memory (sendfile(2),
/// copy_file_range(2), splice(2)), read so that a wild pointer does nothing.
pub fn named_offset(frame: &Frame) -> Option<u64> {
    let [_, second, third, ..] = frame.args;
    let at = match frame.number {
        nr::SENDFILE => third,
        nr::COPY_FILE_RANGE | nr::SPLICE => second,
        _ => return None,
    };
    word_at(at).filter(|&value| value <= i64::MAX as u64)
}

/// Eight bytes of the program's memory, read so that a wild pointer does nothing.
pub fn word_at(at: usize) -> Option<u64> {
    if at == 0 {
        return None;
    }
    let mut value = 0u64;
    // SAFETY: eight bytes into `value`, which may be any.
    unsafe { sys::copy_own(at, core::ptr::from_mut(&mut value).cast(), 8) }.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_that_are_read_in_turn_keep_their_streams() {
        let state = crate::state::zeroed();
        let disks = 1..=DEVICES_MAX as u64;
        for dev in disks.clone() {
            state.streams.with(dev, |entry| entry.device.latency_ns = 1000 + dev);
        }
        for dev in disks {
            let known = state.streams.with(dev, |entry| entry.device.latency_ns);
            assert_eq!(known, Some(1000 + dev));
        }
    }

    #[test]
    fn who_was_left_in_the_table_is_no_crowd() {
        let state = crate::state::zeroed();
        let table = &state.streams;
        let enter = || table.with(1, |_| ());
        assert!(enter().is_some());
        assert!(table.is_passed_through());
        assert!(enter().is_some());
        assert!(table.is_passed_through(), "another time");
        table.lock.store(1, Relaxed);
        assert_eq!(enter(), None);
        assert!(!table.is_passed_through(), "the same");
    }

    #[test]
    fn a_program_that_reads_at_random_keeps_its_own_advice() {
        use crate::normal::before_read_advice;
        const NORMAL: usize = 0;
        const RANDOM: usize = 1;
        before_read_advice([3, 0, 0, NORMAL, 0, 0]);
        assert!(may_be_advised(class::FILE_STREAM));
        assert!(!may_be_advised(class::FILE_SHARED), "others have it");
        before_read_advice([3, 0, 0, RANDOM, 0, 0]);
        assert!(!may_be_advised(class::FILE_STREAM));
        CONFIG.reads_at_random.store(0, Relaxed);
    }
}
