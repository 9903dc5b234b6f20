//! Which of the program's memory an importing copy starts without, and how it
//! is kept from being copied.
//!
//! `MADV_DONTFORK` is of the region, not of the clone: a fork by another
//! thread of the program would lose the region, too, and taking the advice
//! back would take it back from a region that the program itself had kept
//! from its children. So the regions are found and marked only while the
//! process has one thread, and never in a program that has given such advice
//! ([`crate::config::Config::advised`]).

use crate::apart;
use crate::arch::{import_nr, nr, thread_pointer};
use crate::arena::{self, ROOM_LEN};
use crate::config::CONFIG;
use crate::maps::{self, Line};
use crate::procfs;
use crate::state::{STATE_LEN, state};
use crate::sys::{self, PAGE_SIZE, call};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Relaxed;

/// Regions that are kept track of.
pub const REGIONS_MAX: usize = 64;

/// Shortest region that is worth it, in bytes: as many page tables as one
/// mark costs time.
pub const REGION_MIN: usize = 2 * 1024 * 1024;

/// Memory around the thread control block and the stack pointer that is
/// always copied, in bytes: the kernel itself writes there (rseq(2)), and it
/// is needed first.
const LIVE: usize = 256 * 1024;

/// The thread control block, the stack, and the registers after a fault.
const LIVE_PLACES: usize = 3;

const MADV_DOFORK: usize = 11;

/// A range of private anonymous memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: usize,
    /// The one after the last.
    pub end: usize,
    /// `PROT_*` bits.
    pub protection: usize,
}

impl Region {
    fn len(&self) -> usize {
        self.end - self.start
    }
}

/// The regions of the last importing copy.
#[derive(Debug)]
pub struct Regions {
    all: [Region; REGIONS_MAX],
    len: usize,
    /// How many were found last, of which length at least, when this was the
    /// number of changes, and how often they may serve again.
    found: usize,
    shortest: usize,
    found_at: u32,
    uses_left: u32,
    /// Resident anonymous memory then, in bytes.
    resident_bytes: u64,
    /// What of private memory is copied all the same.
    copied: Ranges,
    /// Where /proc is read: not on the program's stack, of which there may be
    /// 2 KiB left.
    text: [u8; TEXT_LEN],
}

/// Ranges of memory that are kept track of.
pub const RANGES_MAX: usize = 64;

/// Ranges of memory, by first address and the one after the last.
#[derive(Clone, Copy, Debug)]
pub struct Ranges {
    all: [(usize, usize); RANGES_MAX],
    len: usize,
}

impl Ranges {
    const NONE: Ranges = Ranges { all: [(0, 0); RANGES_MAX], len: 0 };

    /// All of them.
    pub fn all(&self) -> &[(usize, usize)] {
        self.all.get(..self.len.min(RANGES_MAX)).unwrap_or(&[])
    }

    fn add(&mut self, start: usize, end: usize) {
        if start < end
            && let Some(slot) = self.all.get_mut(self.len)
        {
            *slot = (start, end);
            self.len += 1;
        }
    }
}

/// Bytes of /proc/self/maps that are read at once: more than its longest line
/// (a path of 4095 bytes).
const TEXT_LEN: usize = 8192;

/// Copies that one look at /proc/self/maps serves, at most: what the program
/// maps by system calls of its own is seen then.
const USES_MAX: u32 = 64;

struct Shared(UnsafeCell<Regions>);

// SAFETY: written by the thread that holds the ration's lock, in a process
// with one thread; read in the copy, which has one thread, and by the aide,
// which bounds what it reads.
unsafe impl Sync for Shared {}

const NONE: Region = Region { start: 0, end: 0, protection: 0 };

static REGIONS: Shared = Shared(UnsafeCell::new(Regions::none()));

/// The regions.
///
/// # Safety
/// The caller must be the only one to use them: hold the ration's lock, or be
/// the copy.
pub unsafe fn regions() -> &'static mut Regions {
    // SAFETY: forwarded to the caller.
    unsafe { &mut *REGIONS.0.get() }
}

/// Whether any region holds all of a range. For the aide: a torn answer is as
/// good as a wrong one, the copy's questions are garbage at times anyway.
pub fn holds(start: usize, end: usize) -> bool {
    // SAFETY: shared memory of plain numbers, each read once.
    let regions = unsafe { &*REGIONS.0.get() };
    regions.all().iter().any(|region| region.start <= start && end <= region.end)
}

impl Regions {
    const fn none() -> Regions {
        Regions {
            all: [NONE; REGIONS_MAX],
            len: 0,
            found: 0,
            shortest: 0,
            found_at: 0,
            uses_left: 0,
            resident_bytes: 0,
            copied: Ranges::NONE,
            text: [0; TEXT_LEN],
        }
    }

    /// All of them.
    pub fn all(&self) -> &[Region] {
        self.all.get(..self.len.min(REGIONS_MAX)).unwrap_or(&[])
    }

    /// What of the process's private writable memory was no region when they
    /// were found, as far as it is short: what a copy shares with it.
    pub fn copied(&self) -> &Ranges {
        &self.copied
    }

    /// None.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Finds the regions of this process that are `shortest` bytes long or
    /// longer; false where /proc does not say or there is none.
    ///
    /// What was found last serves [`USES_MAX`] times while the program has
    /// mapped and unmapped nothing large through a hooked call
    /// ([`crate::state::State::large_changes`]): reading the list takes 50 µs,
    /// of which the program pays each. One that is out of date leaves memory
    /// in the copy that it could do without, or [`Regions::mark`] fails.
    pub fn find(&mut self, shortest: usize, changes: u32) -> bool {
        // After a fault this runs on a stack of the agent's, and the thread's
        // own has the registers.
        let context = state().map_or(0, |state| state.fault_context.load(Relaxed));
        let live = [thread_pointer(), apart::left().at, context];
        if self.serves(changes) && self.shortest == shortest && !self.are_live(live) {
            self.uses_left -= 1;
            self.len = self.found;
            return self.len > 0;
        }
        self.clear();
        let image = (CONFIG.image_start.load(Relaxed), CONFIG.image_end.load(Relaxed));
        let state = state().map_or(0, |state| core::ptr::from_ref(state) as usize);
        let room = arena::room();
        let own = [image, (state, state + STATE_LEN), (room, room + ROOM_LEN)];
        self.copied.len = 0;
        let Regions { all, len, copied, text, .. } = self;
        // Until Linux 6.5 direct I/O that is in flight would come into the page
        // that is left to the copy.
        let mut asynchronous = false;
        let read = maps::for_each(text, |line| {
            // The agent's own memory is needed before anything is imported.
            let ours = own.iter().any(|&(start, end)| line.start < end && start < line.end);
            let before = *len;
            asynchronous |= line.path.starts_with(b"/[aio]");
            if !ours && let Some(region) = importable(line) {
                add(all, len, region, live, shortest);
            }
            if is_private(line) {
                let region = all.get(before).filter(|_| *len > before);
                let (start, end) = region.map_or((line.end, line.end), |it| (it.start, it.end));
                [(line.start, start), (end, line.end)]
                    .into_iter()
                    .filter(|(start, end)| end - start < REGION_MIN)
                    .for_each(|(start, end)| copied.add(start, end));
            }
            true
        });
        if asynchronous {
            copied.len = 0;
        }
        if !read {
            self.clear();
        }
        (self.found, self.found_at, self.shortest) = (self.len, changes, shortest);
        self.uses_left = USES_MAX;
        self.len > 0
    }

    /// Whether what was found last has memory that is always copied: another
    /// thread is left, or another stack is in use.
    fn are_live(&self, live: [usize; LIVE_PLACES]) -> bool {
        let found = self.all.get(..self.found).unwrap_or(&[]);
        let near = |region: &Region, at: usize| {
            let (below, above) = around(at);
            region.start < above && below < region.end
        };
        found.iter().any(|region| live.iter().any(|&at| at != 0 && near(region, at)))
    }

    fn serves(&self, changes: u32) -> bool {
        self.uses_left > 0 && self.found_at == changes
    }

    /// Bytes of anonymous memory that this process has resident: as they were
    /// when the regions were found, while these serve.
    pub fn resident_bytes(&mut self, changes: u32) -> u64 {
        if !self.serves(changes) {
            self.resident_bytes = resident_bytes();
        }
        self.resident_bytes
    }

    /// What was found last is not so any more.
    pub fn forget(&mut self) {
        self.clear();
        self.uses_left = 0;
    }

    /// Keeps them from the next child; false where that fails, and nothing is
    /// marked then.
    pub fn mark(&self) -> bool {
        let marked = self.all().iter().all(|region| advise(region, sys::MADV_DONTFORK) == 0);
        if !marked {
            self.unmark();
        }
        marked
    }

    /// Gives them back to children, all of them: whoever marked them may have been
    /// ended in the middle. Writes nothing: the copy that has just been made
    /// shares these pages, and a store would be a fault.
    pub fn unmark(&self) {
        for region in self.all() {
            advise(region, MADV_DOFORK);
        }
    }
}

fn advise(region: &Region, advice: usize) -> isize {
    // SAFETY: changes only what a child gets.
    unsafe { call(nr::MADVISE, &[region.start, region.len(), advice]) }
}

/// What is always copied around a place: first address and the one after the
/// last, whole pages.
fn around(at: usize) -> (usize, usize) {
    let page = |address: usize| address & !(PAGE_SIZE - 1);
    (page(at.saturating_sub(LIVE)), page(at.saturating_add(LIVE)))
}

/// Takes a region in, without what is live in it.
fn add(
    all: &mut [Region; REGIONS_MAX],
    len: &mut usize,
    region: Region,
    live: [usize; LIVE_PLACES],
    shortest: usize,
) {
    let mut left = region;
    for at in live {
        if at < left.start || at >= left.end {
            continue;
        }
        let (below, above) = around(at);
        let (below, above) = (below.max(left.start), above.min(left.end));
        // The longer part.
        if below - left.start >= left.end - above {
            left.end = below;
        } else {
            left.start = above;
        }
    }
    if left.len() >= shortest
        && let Some(slot) = all.get_mut(*len)
    {
        *slot = left;
        *len += 1;
    }
}

fn is_private(line: &Line<'_>) -> bool {
    !line.shared && line.protection & sys::PROT_WRITE != 0
}

/// A mapping that is private, writable and anonymous, and no stack.
fn importable(line: &Line<'_>) -> Option<Region> {
    let plain = line.path.is_empty() || line.path == b"[heap]" || line.path.starts_with(b"[anon:");
    if !is_private(line) || !plain || line.inode != 0 || line.device != (0, 0) {
        return None;
    }
    let Line { start, end, protection, .. } = *line;
    (start < end).then_some(Region { start, end, protection })
}

/// Whether regions may be marked now: one thread, and no advice of the
/// program's own about what its children get.
pub fn permitted() -> bool {
    CONFIG.advised.load(Relaxed) == 0 && is_single_threaded()
}

/// Whether this process has one thread.
///
/// unshare(2) of what only a process with one thread need not share does
/// nothing, and fails where there are more: a thirtieth of what it takes to
/// look into /proc. Sandboxes refuse it; theirs are not asked.
pub fn is_single_threaded() -> bool {
    const CLONE_THREAD: usize = 0x1_0000;
    const EINVAL: isize = -22;
    if CONFIG.filtered.load(Relaxed) == 0 {
        // SAFETY: changes nothing.
        match unsafe { call(nr::UNSHARE, &[CLONE_THREAD]) } {
            0 => return true,
            EINVAL => return false,
            _ => {}
        }
    }
    threads() == 1
}

/// Threads of this process: /proc/self/task has a directory for each, and
/// their number is its link count less two. 0: not known.
fn threads() -> u64 {
    /// Word of `struct stat` with the link count.
    const LINKS: usize = 2;
    let mut stat = [0u64; 18];
    let path = c"/proc/self/task".as_ptr() as usize;
    let args = [sys::AT_FDCWD, path, stat.as_mut_ptr() as usize, 0];
    // SAFETY: the kernel writes one struct stat, 144 bytes.
    if unsafe { call(import_nr::NEWFSTATAT, &args) } != 0 {
        return 0;
    }
    stat.get(LINKS).copied().unwrap_or(0).saturating_sub(2)
}

/// Bytes of anonymous memory that this process has resident.
fn resident_bytes() -> u64 {
    let (all, mapped) = resident();
    all.saturating_sub(mapped)
}

/// Bytes of files, shared memory among them, that this process has mapped and resident.
pub fn mapped_bytes() -> u64 {
    resident().1
}

/// All that is resident, and what of it is a file's, in bytes (proc_pid_statm(5)).
fn resident() -> (u64, u64) {
    let mut text = [0u8; 96];
    let text = procfs::read(b"/proc/self/statm\0", &mut text).unwrap_or(&[]);
    let mut fields = text.split(|&byte| byte == b' ').filter_map(procfs::decimal);
    let mut next = || fields.next().unwrap_or(0).saturating_mul(PAGE_SIZE as u64);
    let _addresses = next();
    (next(), next())
}

/// Whether anything on this machine is swapped out.
pub fn swap_in_use() -> bool {
    let (total, free) = swap();
    total > free
}

/// Whether there is swap space.
pub fn swap_exists() -> bool {
    swap().0 > 0
}

/// The device of the swap space, as stat(2) gives it: of what /proc/swaps
/// (proc(5)) names first. All programs have the same, so where it cannot be
/// asked about from here, a number that no device has.
#[cold]
#[inline(never)]
pub fn swap_device() -> u64 {
    const NAMELESS: u64 = u32::MAX as u64;
    let mut text = [0u8; 512];
    let Some(len) = procfs::read(b"/proc/swaps\0", &mut text).map(<[u8]>::len) else {
        return NAMELESS;
    };
    let path = text.get_mut(..len).and_then(first_swap);
    let mut stat = sys::Stat::default();
    if !path.is_some_and(|path| sys::stat(path, &mut stat)) {
        return NAMELESS;
    }
    if stat.mode & sys::S_IFMT == sys::S_IFBLK { stat.rdev } else { stat.dev }
}

/// The path in the second line of /proc/swaps, with a NUL in place of the
/// space behind it. The kernel writes spaces in a path as `\040`: such a one is
/// not found then.
fn first_swap(text: &mut [u8]) -> Option<&[u8]> {
    let line = text.iter().position(|&byte| byte == b'\n')? + 1;
    let line = text.get_mut(line..)?;
    let end = line.iter().position(|&byte| byte == b' ' || byte == b'\t')?;
    *line.get_mut(end)? = 0;
    line.get(..=end).filter(|path| path.first() == Some(&b'/'))
}

/// Swap space of this machine, all and free (sysinfo(2)).
fn swap() -> (u64, u64) {
    let mut info = [0u64; 14];
    // SAFETY: the kernel writes one struct sysinfo, 112 bytes.
    if unsafe { call(import_nr::SYSINFO, &[info.as_mut_ptr() as usize]) } != 0 {
        return (0, 0);
    }
    // uptime, three loads, then total, free, shared, buffer, total swap and
    // free swap.
    let [.., total, free, _, _, _, _] = info;
    (total, free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_swap_space_is_found() {
        let path = |text: &str| {
            let mut text = text.as_bytes().to_vec();
            first_swap(&mut text).map(<[u8]>::to_vec)
        };
        let head = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        let two = std::format!("{head}/dev/vdb   partition\t262140\t0\t-2\n/b file\t1\t0\t-3\n");
        assert_eq!(path(&two).unwrap(), b"/dev/vdb\0");
        for none in [head, "", "no line", "\n/cut", "\n relative x"] {
            assert_eq!(path(none), None, "{none}");
        }
        // Whatever there is here: every program gets the same, and a number.
        assert_ne!(swap_device(), 0);
        assert_eq!(swap_device(), swap_device());
    }

    #[test]
    fn only_private_writable_anonymous_memory_is_a_region() {
        let region = |text: &str| importable(&Line::parse(text.as_bytes())?);
        let full = Region { start: 0x1000, end: 0x9000, protection: 3 };
        assert_eq!(region("1000-9000 rw-p 00000000 00:00 0 "), Some(full));
        assert_eq!(region("1000-9000 rw-p 00000000 00:00 0   [heap]"), Some(full));
        assert_eq!(region("1000-9000 rw-p 00000000 00:00 0   [anon:x y]"), Some(full));
        for other in [
            "1000-9000 rw-p 00000000 00:00 0   [stack]",
            "1000-9000 r--p 00000000 00:00 0 ",
            "1000-9000 rw-s 00000000 00:01 42   /dev/zero (deleted)",
            "1000-9000 rw-p 00000000 00:0f 42   /anon_hugepage (deleted)",
            "1000-9000 rw-p 00001000 08:01 99   /usr/lib/x.so",
            "nonsense",
            "",
        ] {
            assert_eq!(region(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_live_is_left_out() {
        let region = Region { start: 1 << 30, end: 2 << 30, protection: 3 };
        let left = |region, live| {
            let (mut all, mut len) = ([NONE; REGIONS_MAX], 0);
            add(&mut all, &mut len, region, live, REGION_MIN);
            (len > 0).then_some(all[0])
        };
        let above = left(region, [0, (1 << 30) + 4096, 0]).unwrap();
        assert_eq!((above.start, above.end), ((1 << 30) + 4096 + LIVE, 2 << 30));
        let below = left(region, [(2 << 30) - 1, 0, 0]).unwrap();
        assert_eq!(below.end, ((2 << 30) - 1 - LIVE) & !4095);
        let short = Region { end: (1 << 30) + REGION_MIN - 4096, ..region };
        assert_eq!(left(short, [0; 3]), None, "too short");
    }

    #[test]
    fn this_process_is_understood() {
        std::thread::scope(|scope| {
            let (end, ended) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || ended.recv());
            assert!(threads() >= 2);
            assert!(!is_single_threaded());
            drop(end);
        });
        assert!(resident_bytes() > 0);
        let _ = swap_in_use();
    }
}
