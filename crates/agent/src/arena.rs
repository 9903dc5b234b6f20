//! The agent's room: addresses that are taken before the program runs, in which all that
//! the agent maps late has its fixed place.
//!
//! Where the kernel chose the place, it could choose a hole that the program has made
//! by munmap(2) and counts as its own: the program may map something there later
//! (`MAP_FIXED`), or unmap a range with the hole in it, and either writes into what is
//! the agent's, is written into, or loses it. The room is nobody else's from the start on.
//! So each mapping is put over its place, and empty memory over the mapping when it is done
//! with: there is no hole that anybody's mapping could come into.
//!
//! With three exceptions, each of which is kept track of ([`Config::rings`],
//! [`Config::lost`]): forked children do not get the rings of events, where the
//! kernel refuses a mapping, it may have unmapped its place before, and a program that locks
//! its memory has nothing unused of it any more ([`leave`]). A hole of the first two is
//! filled unless somebody has come into it; where one has, it is his for good.
//!
//! What is empty can only be read, so that nobody reserves memory for it (strict
//! overcommit, `RLIMIT_DATA`), and it is no part of the image: garbage collectors look for
//! pointers in all that an image may write to, and read it (dl_iterate_phdr(3)).
//!
//! [`Config::rings`]: crate::config::Config::rings
//! [`Config::lost`]: crate::config::Config::lost

use crate::Gate;
use crate::arch::nr;
use crate::config::{CONFIG, LOGS};
use crate::import::DESK_LEN;
use crate::state::{NOTICED_THREADS_MAX, SCRATCHES_MAX, State};
use crate::sys::{self, PAGE_SIZE, call};
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use runahead_emulate::Calls;
use runahead_emulate::arch::nr as all_nr;
use runahead_emulate::residency::PAGES_MAX;
use runahead_protocol::learnt;
use runahead_protocol::log::Log;

/// From one log to the next, in bytes.
pub const LOG_STRIDE: usize = size_of::<Log>().next_multiple_of(PAGE_SIZE);

/// An event's control page and one page of ring.
pub const RING_LEN: usize = 2 * PAGE_SIZE;

/// Rings of one thread: a new event is made before the old one is closed.
pub const RINGS_EACH: usize = 2;

/// Rings of all threads.
pub const RINGS: usize = RINGS_EACH * NOTICED_THREADS_MAX;

/// Words of [`CONFIG`] with a bit for each ring.
pub const RING_WORDS: usize = RINGS.div_ceil(64);

/// Memory of one who executes a program, in bytes: room for 8000
/// variables, or a list of preloaded objects as long. With more it is executed plainly.
pub const SCRATCH_LEN: usize = 64 * 1024;

/// Those of children by vfork(2), and one of the process's own threads.
const SCRATCHES: usize = SCRATCHES_MAX + 1;

/// What the questions by mincore(2) map of a file.
const WINDOW_LEN: usize = PAGES_MAX * PAGE_SIZE;

/// By place. What is shared lies in a row, first what most programs have of it: each
/// place where one kind of mapping ends is a mapping more for every clone to copy.
#[repr(C, align(4096))]
struct Arena {
    table: [u8; learnt::FILE_LEN.next_multiple_of(PAGE_SIZE)],
    logs: [u8; LOGS * LOG_STRIDE],
    desk: [u8; DESK_LEN],
    window: [u8; WINDOW_LEN],
    rings: [[u8; RING_LEN]; RINGS],
    scratches: [[u8; SCRATCH_LEN]; SCRATCHES],
}

const _: () = assert!(DESK_LEN.is_multiple_of(PAGE_SIZE) && align_of::<Arena>() == PAGE_SIZE);

/// All of it, in bytes.
pub const ROOM_LEN: usize = size_of::<Arena>();

/// Takes the addresses, while the program has not begun; whether they are there.
pub fn reserve() -> bool {
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS;
    // SAFETY: new memory.
    let at = unsafe { call(nr::MMAP, &[0, ROOM_LEN, sys::PROT_READ, flags, usize::MAX, 0]) };
    if at > 0 {
        CONFIG.room.store(at as usize, Relaxed);
    }
    at > 0
}

/// First address.
pub fn room() -> usize {
    #[cfg(test)]
    {
        static RESERVED: std::sync::Once = std::sync::Once::new();
        RESERVED.call_once(|| assert!(reserve()));
    }
    CONFIG.room.load(Relaxed)
}

/// What is mapped here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All logs ([`crate::config::Config::logs`]).
    Logs,
    /// [`crate::import::Desk`].
    Desk,
    /// The table of executables.
    Table,
    /// The ring of an event, by its number, below [`RINGS`].
    Ring(usize),
    /// What is asked about by mincore(2).
    Window,
    /// Memory of one who executes a program, by its number, below [`SCRATCHES`].
    Scratch(usize),
}

impl Part {
    /// Where it is.
    pub fn start(self) -> usize {
        let offset = match self {
            Part::Logs => offset_of!(Arena, logs),
            Part::Desk => offset_of!(Arena, desk),
            Part::Table => offset_of!(Arena, table),
            Part::Ring(number) => offset_of!(Arena, rings) + number.min(RINGS - 1) * RING_LEN,
            Part::Window => offset_of!(Arena, window),
            Part::Scratch(number) => {
                offset_of!(Arena, scratches) + number.min(SCRATCHES - 1) * SCRATCH_LEN
            }
        };
        room() + offset
    }

    /// How long it is, in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Part::Logs => LOGS * LOG_STRIDE,
            Part::Desk => DESK_LEN,
            Part::Table => learnt::FILE_LEN.next_multiple_of(PAGE_SIZE),
            Part::Ring(_) => RING_LEN,
            Part::Window => WINDOW_LEN,
            Part::Scratch(_) => SCRATCH_LEN,
        }
    }

    /// Its bit in [`crate::config::Config::lost`]: one for all rings, and one for all
    /// scratches.
    const fn bit(self) -> u32 {
        match self {
            Part::Logs => 1,
            Part::Desk => 2,
            Part::Table => 4,
            Part::Ring(_) => 8,
            Part::Window => 16,
            Part::Scratch(_) => 32,
        }
    }

    /// Whether it may be somebody else's by now, and is not used any more.
    pub fn is_lost(self) -> bool {
        CONFIG.lost.load(Relaxed) & self.bit() != 0
    }

    /// Maps something in its place, of `len` bytes: whatever mmap(2) is told but the
    /// address; whether it is there.
    pub fn map(
        self,
        len: usize,
        protection: usize,
        flags: usize,
        fd: usize,
        offset: usize,
    ) -> bool {
        if self.is_lost() || len > self.bytes() {
            return false;
        }
        let (at, flags) = (self.start(), flags | sys::MAP_FIXED);
        // SAFETY: over this part only, which is the agent's own.
        let mapped = unsafe { call(nr::MMAP, &[at, len, protection, flags, fd, offset]) };
        if mapped == at as isize {
            return true;
        }
        if !self.fill(len) {
            self.lose();
        }
        false
    }

    /// The same of zero memory that is shared with the processes to come.
    pub fn share(self) -> bool {
        let protection = sys::PROT_READ | sys::PROT_WRITE;
        let flags = sys::MAP_SHARED | sys::MAP_ANONYMOUS;
        self.map(self.bytes(), protection, flags, usize::MAX, 0)
    }

    /// Memory of this process's own, all zeros, in its place; whether it is there.
    fn own(self) -> bool {
        let protection = sys::PROT_READ | sys::PROT_WRITE;
        let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS;
        self.map(self.bytes(), protection, flags, usize::MAX, 0)
    }

    /// Takes away what `len` bytes of it map; false where they may be mapped still.
    fn clear(self, len: usize) -> bool {
        let cleared = cover(self.start(), len, sys::PROT_READ);
        if !cleared && !self.fill(len) {
            self.lose();
            return false;
        }
        true
    }

    /// Fills the hole that `len` bytes of it may be; false where anything is there.
    fn fill(self, len: usize) -> bool {
        const MAP_FIXED_NOREPLACE: usize = 0x10_0000;
        let at = self.start();
        let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        let args = [at, len, sys::PROT_READ, flags, usize::MAX, 0];
        // SAFETY: new memory where there is none.
        let filled = unsafe { call(nr::MMAP, &args) };
        if filled > 0 && filled != at as isize {
            // A kernel from before Linux 4.17, which takes the address for a wish.
            // SAFETY: what has just been mapped.
            unsafe { call(nr::MUNMAP, &[filled as usize, len]) };
        }
        filled == at as isize
    }

    #[cold]
    fn lose(self) {
        CONFIG.lost.fetch_or(self.bit(), Relaxed);
    }
}

/// Puts memory of this process's own, all zeros, over what the agent has mapped; whether
/// it is there.
pub fn cover(at: usize, len: usize, protection: usize) -> bool {
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED;
    // SAFETY: the agent's own mapping, for whose users zeros are valid.
    let covered = unsafe { call(nr::MMAP, &[at, len, protection, flags, usize::MAX, 0]) };
    covered == at as isize
}

/// Log number `number`, below [`LOGS`].
pub fn log(number: usize) -> usize {
    Part::Logs.start() + number.min(LOGS - 1) * LOG_STRIDE
}

/// Memory number `number` of those who execute programs, the process's own threads' last;
/// [`SCRATCH_LEN`] bytes of any content. Whoever comes first has it mapped, for those after
/// it and for forked children, too; `None` where it cannot be.
pub fn scratch(number: usize) -> Option<usize> {
    let (part, bit) = (Part::Scratch(number), 1 << number.min(SCRATCHES - 1));
    if CONFIG.scratches.load(Relaxed) & bit == 0 {
        if !part.own() {
            return None;
        }
        CONFIG.scratches.fetch_or(bit, Relaxed);
    }
    (!part.is_lost()).then(|| part.start())
}

/// Gives back for good what is not in use now, before a program of one thread, which has no
/// copy any more, locks all of its memory: addresses count in its limit, whatever they hold
/// (mlockall(2), `RLIMIT_MEMLOCK`). Once: what comes to lie there afterwards is the program's.
pub fn leave() {
    if CONFIG.lost.swap(u32::MAX, Relaxed) == u32::MAX {
        return;
    }
    for cell in &CONFIG.logs {
        cell.store(core::ptr::null_mut(), Relaxed);
    }
    CONFIG.desk.store(core::ptr::null_mut(), Relaxed);
    CONFIG.table.store(core::ptr::null_mut(), Relaxed);
    CONFIG.scratches.store(0, Relaxed);
    let ring_open = CONFIG.rings.iter().any(|word| word.load(Relaxed) != 0);
    let (rings, end) = (offset_of!(Arena, rings), offset_of!(Arena, scratches));
    let unused = if ring_open { [(0, rings), (end, ROOM_LEN)] } else { [(0, ROOM_LEN), (0, 0)] };
    for (from, to) in unused {
        // SAFETY: the agent's own, to which nothing refers any more.
        unsafe { call(nr::MUNMAP, &[room() + from, to - from]) };
    }
}

/// Maps ring number `number`, of an event; whether it is there. Forked children have a
/// hole in its place, from before that on until it is closed.
pub fn open_ring(number: usize, event: usize) -> bool {
    let protection = sys::PROT_READ | sys::PROT_WRITE;
    note(number, true);
    let mapped = Part::Ring(number).map(RING_LEN, protection, sys::MAP_SHARED, event, 0);
    if !mapped {
        note(number, false);
    }
    mapped
}

/// Closes the ring at an address.
pub fn close_ring(at: usize) {
    let number = at.wrapping_sub(Part::Ring(0).start()) / RING_LEN;
    if number < RINGS && Part::Ring(number).clear(RING_LEN) {
        note(number, false);
    }
}

fn note(number: usize, mapped: bool) {
    if let Some(word) = CONFIG.rings.get(number / 64) {
        let bit = 1 << (number % 64);
        if mapped {
            word.fetch_or(bit, Relaxed)
        } else {
            word.fetch_and(!bit, Relaxed)
        };
    }
}

/// In a forked child: fills the holes that are left where its parent had rings. Where the
/// child has mapped something there meanwhile, that is the child's, and there is no notice
/// of faults in it any more.
pub fn fill_rings() {
    // Looked at first: a store to what was inherited copies a page.
    for (number, word) in CONFIG.rings.iter().enumerate() {
        if word.load(Relaxed) != 0 {
            let mut left = word.swap(0, Relaxed);
            while left != 0 {
                let ring = Part::Ring(number * 64 + left.trailing_zeros() as usize);
                if !ring.fill(RING_LEN) {
                    ring.lose();
                }
                left &= left - 1;
            }
        }
    }
}

/// The same in a copy, which has run nothing of the program yet: nobody may touch them.
/// Whether it is done.
pub fn bar_rings() -> bool {
    CONFIG.rings.iter().enumerate().all(|(number, word)| {
        let bits = word.load(Relaxed);
        (0..64)
            .filter(|bit| bits & 1 << bit != 0)
            .all(|bit| cover(Part::Ring(number * 64 + bit).start(), RING_LEN, 0))
    })
}

/// In a forked child: gives up what another of its parent's threads was asking about, which
/// would keep that file open.
pub fn leave_window() {
    if CONFIG.window.load(Relaxed) != 0 && Part::Window.clear(WINDOW_LEN) {
        CONFIG.window.store(0, Relaxed);
    }
}

/// The same in a copy; whether it is done.
pub fn bar_window() -> bool {
    CONFIG.window.load(Relaxed) == 0 || cover(Part::Window.start(), WINDOW_LEN, 0)
}

/// [`State::window`]: nobody maps there.
const FREE: u32 = 0;
const TAKEN: u32 = 1;

/// The gate of the residency oracles in the normal process: what they map to ask about it
/// has its place here, one at a time. While it is mapped no signal comes: one whose
/// handler leaves by `longjmp`, or a cancellation, would leave it there.
pub struct Window<'a> {
    state: &'a State,
    /// The thread's signal mask.
    mask: u64,
}

impl<'a> Window<'a> {
    /// Nothing is mapped yet.
    pub fn of(state: &'a State) -> Window<'a> {
        Window { state, mask: 0 }
    }

    fn map(&mut self, args: [usize; 6]) -> isize {
        let [_, len, protection, flags, fd, offset] = args;
        let mask = sys::set_signal_mask(u64::MAX);
        let lock = &self.state.window;
        if lock.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok() {
            // Before: another thread may fork in between.
            CONFIG.window.store(1, Relaxed);
            if Part::Window.map(len, protection, flags, fd, offset) {
                self.mask = mask;
                return Part::Window.start() as isize;
            }
            CONFIG.window.store(0, Relaxed);
            lock.store(FREE, Release);
        }
        sys::set_signal_mask(mask);
        sys::EAGAIN
    }

    fn unmap(&mut self, len: usize) -> isize {
        if Part::Window.clear(len) {
            CONFIG.window.store(0, Relaxed);
        }
        self.state.window.store(FREE, Release);
        sys::set_signal_mask(self.mask);
        0
    }
}

impl Calls for Window<'_> {
    fn call(&mut self, number: usize, args: [usize; 6]) -> isize {
        match number {
            all_nr::MMAP => self.map(args),
            all_nr::MUNMAP => self.unmap(args[1]),
            _ => Gate.call(number, args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runahead_emulate::residency::{Method, Methods, Oracle, Resident, question};
    use std::os::fd::AsRawFd;

    /// The lines of this process's mappings that lie in a part.
    fn mapped(part: Part) -> std::string::String {
        let all = std::fs::read_to_string("/proc/self/maps").unwrap();
        let inside = |line: &&str| {
            let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            let [start, end] = [start, end].map(|at| usize::from_str_radix(at, 16).unwrap());
            start < part.start() + part.bytes() && part.start() < end
        };
        all.lines().filter(inside).collect::<std::vec::Vec<_>>().join("\n")
    }

    #[test]
    fn every_part_is_whole_pages_of_its_own() {
        let rings = [Part::Ring(0), Part::Ring(RINGS - 1)];
        let mut parts = [Part::Logs, Part::Desk, Part::Table, Part::Window].to_vec();
        parts.extend(rings);
        parts.extend((0..SCRATCHES).map(Part::Scratch));
        let place = |part: &Part| (part.start(), part.start() + part.bytes());
        let mut places: std::vec::Vec<_> = parts.iter().map(place).collect();
        places.sort_unstable();
        let room = room();
        assert!(places.iter().all(|(start, end)| start % PAGE_SIZE == 0 && end % PAGE_SIZE == 0));
        assert!(places.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{places:x?}");
        assert!(places.first().unwrap().0 >= room);
        assert!(places.last().unwrap().1 <= room + size_of::<Arena>());
        assert_eq!(log(LOGS - 1) + LOG_STRIDE, Part::Logs.start() + Part::Logs.bytes());
    }

    #[test]
    fn what_is_asked_about_is_mapped_in_the_window_by_one_at_a_time() {
        let state = crate::state::zeroed();
        let path = std::env::current_exe().unwrap();
        std::fs::read(&path).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let at = (file.as_raw_fd() as usize, 1);
        let ask = || {
            let mut oracle = Oracle::new(true);
            oracle.method = Method::Mincore;
            let methods = &mut Methods::default();
            question(&mut Window::of(&state), methods, &mut oracle, at, 0, 1 << 16)
        };
        assert_eq!(ask(), Resident::All);
        state.window.store(TAKEN, Relaxed);
        assert_eq!(ask(), Resident::Unknown, "another thread asks");
        state.window.store(FREE, Relaxed);
        let mut window = Window::of(&state);
        let args = [0, PAGE_SIZE, 0, sys::MAP_PRIVATE, at.0, 0];
        let mapped_at = window.call(all_nr::MMAP, args);
        assert_eq!(mapped_at, Part::Window.start() as isize);
        assert!(mapped(Part::Window).contains(path.to_str().unwrap()));
        assert_eq!(ask(), Resident::Unknown, "it is in use");
        // As a child would that were forked now.
        leave_window();
        assert!(!mapped(Part::Window).contains(path.to_str().unwrap()));
        window.call(all_nr::MUNMAP, [mapped_at as usize, PAGE_SIZE, 0, 0, 0, 0]);
        assert!(!mapped(Part::Window).contains(path.to_str().unwrap()));
        assert_eq!(ask(), Resident::All);
        let too_long = [0, WINDOW_LEN + PAGE_SIZE, 0, sys::MAP_PRIVATE, at.0, 0];
        assert_eq!(window.call(all_nr::MMAP, too_long), sys::EAGAIN);
        assert_eq!(ask(), Resident::All, "nobody has it");
    }

    #[test]
    fn a_hole_is_filled_and_what_has_come_into_it_is_left_alone() {
        let ring = Part::Ring(RINGS - 1);
        // SAFETY: nobody uses this ring.
        let unmap = || unsafe { call(nr::MUNMAP, &[ring.start(), RING_LEN]) };
        assert_eq!(unmap(), 0);
        note(RINGS - 1, true);
        fill_rings();
        assert!(!ring.is_lost() && CONFIG.rings.iter().all(|word| word.load(Relaxed) == 0));
        // SAFETY: filled just now.
        assert_eq!(unsafe { *(ring.start() as *const u64) }, 0);
        let writable = sys::PROT_READ | sys::PROT_WRITE;
        assert!(cover(ring.start(), RING_LEN, writable));
        // SAFETY: as above; what is there now is somebody's.
        unsafe { *(ring.start() as *mut u64) = 7 };
        note(RINGS - 1, true);
        fill_rings();
        assert!(ring.is_lost() && !open_ring(RINGS - 1, usize::MAX));
        // SAFETY: as above.
        assert_eq!(unsafe { *(ring.start() as *const u64) }, 7);
        CONFIG.lost.store(0, Relaxed);
        close_ring(ring.start());
    }
}
