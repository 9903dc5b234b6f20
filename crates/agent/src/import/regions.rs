//! Which of the program's memory an importing copy starts without, and how it
//! is kept from being copied.
//!
//! `MADV_DONTFORK` is of the region, not of the clone: a fork by another
//! thread of the program would lose the region, too, and taking the advice
//! back would take it back from a region that the program itself had kept
//! from its children. So the regions are found and marked only while the
//! process has one thread, and never in a program that has given such advice
//! ([`crate::state::Config::advised`]).

use crate::arch::{import_nr, nr, stack_pointer, thread_pointer};
use crate::state::{CONFIG, STATE_LEN, state};
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

const MADV_DONTFORK: usize = 10;
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
    /// Of them, marked.
    marked: usize,
    /// Where /proc is read: not on the program's stack, of which there may be
    /// 2 KiB left.
    text: [u8; TEXT_LEN],
}

/// Bytes of /proc/self/maps that are read at once.
const TEXT_LEN: usize = 4096;

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
        Regions { all: [NONE; REGIONS_MAX], len: 0, marked: 0, text: [0; TEXT_LEN] }
    }

    /// All of them.
    pub fn all(&self) -> &[Region] {
        self.all.get(..self.len.min(REGIONS_MAX)).unwrap_or(&[])
    }

    /// None.
    pub fn clear(&mut self) {
        self.len = 0;
        self.marked = 0;
    }

    /// Bytes of all.
    pub fn bytes(&self) -> usize {
        self.all().iter().map(Region::len).sum()
    }

    /// Finds the regions of this process that are `shortest` bytes long or
    /// longer; false where /proc does not say or there is none.
    pub fn find(&mut self, shortest: usize) -> bool {
        self.clear();
        let fd = sys::open_read(b"/proc/self/maps\0");
        if fd < 0 {
            return false;
        }
        let live = [thread_pointer(), stack_pointer()];
        let image = (CONFIG.image_start.load(Relaxed), CONFIG.image_end.load(Relaxed));
        let state = state().map_or(0, |state| core::ptr::from_ref(state) as usize);
        let own = [image, (state, state + STATE_LEN)];
        let mut held = 0usize;
        while let Some(room) = self.text.get_mut(held..).filter(|room| !room.is_empty()) {
            let got = sys::read(fd as i32, room);
            if got <= 0 {
                break;
            }
            let end = held + got as usize;
            let mut from = 0usize;
            while let Some(rest) = self.text.get(from..end)
                && let Some(len) = rest.iter().position(|&byte| byte == b'\n')
            {
                // The agent's own memory is needed before anything is imported.
                let ours = |region: &Region| {
                    own.iter().any(|(start, end)| region.start < *end && *start < region.end)
                };
                if let Some(region) = rest.get(..len).and_then(parse).filter(|r| !ours(r)) {
                    self.add(region, live, shortest);
                }
                from += len + 1;
            }
            held = end.saturating_sub(from);
            let bytes = self.text.as_mut_ptr();
            // SAFETY: from <= end <= the text's length: the rest of a line
            // moves to the front.
            unsafe { core::ptr::copy(bytes.wrapping_add(from), bytes, held) };
        }
        sys::close(fd as i32);
        self.len > 0
    }

    /// Takes a region in, without what is live in it.
    fn add(&mut self, region: Region, live: [usize; 2], shortest: usize) {
        let mut left = region;
        for at in live {
            if at < left.start || at >= left.end {
                continue;
            }
            let below = (at.saturating_sub(LIVE) & !(PAGE_SIZE - 1)).max(left.start);
            let above = (at.saturating_add(LIVE) & !(PAGE_SIZE - 1)).min(left.end);
            // The longer part.
            if below - left.start >= left.end - above {
                left.end = below;
            } else {
                left.start = above;
            }
        }
        if left.len() < shortest {
            return;
        }
        if let Some(slot) = self.all.get_mut(self.len) {
            *slot = left;
            self.len += 1;
        }
    }

    /// Keeps them from the next child; false where that fails, and nothing is
    /// marked then.
    pub fn mark(&mut self) -> bool {
        self.marked = 0;
        while let Some(region) = self.all().get(self.marked) {
            if advise(region, MADV_DONTFORK) != 0 {
                // A part may have been marked.
                advise(region, MADV_DOFORK);
                self.unmark();
                return false;
            }
            self.marked += 1;
        }
        true
    }

    /// Gives them back to children.
    pub fn unmark(&mut self) {
        for region in self.all().iter().take(self.marked) {
            advise(region, MADV_DOFORK);
        }
        self.marked = 0;
    }
}

fn advise(region: &Region, advice: usize) -> isize {
    // SAFETY: changes only what a child gets.
    unsafe { call(nr::MADVISE, &[region.start, region.len(), advice]) }
}

/// "7f00-7f10 rw-p 00000000 00:00 0   [heap]": private, writable, anonymous,
/// no stack.
fn parse(text: &[u8]) -> Option<Region> {
    let mut fields = text.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let mut range = fields.next()?.splitn(2, |&byte| byte == b'-');
    let start = hexadecimal(range.next()?)?;
    let end = hexadecimal(range.next()?)?;
    let flags = fields.next()?;
    let _offset = fields.next()?;
    let (device, inode) = (fields.next()?, fields.next()?);
    let name = fields.next().unwrap_or(b"");
    let plain = name.is_empty() || name == b"[heap]" || name.starts_with(b"[anon:");
    if flags.get(1) != Some(&b'w') || flags.get(3) != Some(&b'p') || !plain {
        return None;
    }
    if device != b"00:00" || inode != b"0" || end <= start {
        return None;
    }
    let mut protection = sys::PROT_WRITE;
    if flags.first() == Some(&b'r') {
        protection |= sys::PROT_READ;
    }
    if flags.get(2) == Some(&b'x') {
        protection |= sys::PROT_EXEC;
    }
    Some(Region { start, end, protection })
}

fn hexadecimal(digits: &[u8]) -> Option<usize> {
    digits.iter().try_fold(0usize, |value, &digit| {
        Some(value << 4 | char::from(digit).to_digit(16)? as usize)
    })
}

/// Whether regions may be marked now: one thread, and no advice of the
/// program's own about what its children get.
pub fn permitted() -> bool {
    CONFIG.advised.load(Relaxed) == 0 && threads() == 1
}

/// Threads of this process: /proc/self/task has a directory for each, and
/// their number is its link count less two.
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

/// Bytes of anonymous memory that this process has resident (proc_pid_statm(5)).
pub fn resident_bytes() -> u64 {
    let mut text = [0u8; 96];
    let fd = sys::open_read(b"/proc/self/statm\0");
    if fd < 0 {
        return 0;
    }
    let len = sys::read(fd as i32, &mut text).max(0) as usize;
    sys::close(fd as i32);
    let mut fields = text.get(..len).unwrap_or(&[]).split(|&byte| byte == b' ').map(|field| {
        field.iter().fold(0u64, |value, &digit| {
            value.wrapping_mul(10).wrapping_add(u64::from(digit.wrapping_sub(b'0')))
        })
    });
    let resident = fields.nth(1).unwrap_or(0);
    let shared = fields.next().unwrap_or(0);
    resident.saturating_sub(shared).saturating_mul(PAGE_SIZE as u64)
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
    fn only_private_writable_anonymous_memory_is_a_region() {
        let region = |text: &str| parse(text.as_bytes());
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
        let mut regions = Regions::none();
        let region = Region { start: 1 << 30, end: 2 << 30, protection: 3 };
        regions.add(region, [0, (1 << 30) + 4096], REGION_MIN);
        assert_eq!(regions.all()[0].start, (1 << 30) + 4096 + LIVE);
        assert_eq!(regions.all()[0].end, 2 << 30);
        regions.clear();
        regions.add(region, [(2 << 30) - 1, 0], REGION_MIN);
        assert_eq!(regions.all()[0].end, ((2 << 30) - 1 - LIVE) & !4095);
        regions.clear();
        regions.add(Region { end: (1 << 30) + REGION_MIN - 4096, ..region }, [0, 0], REGION_MIN);
        assert!(regions.all().is_empty(), "too short");
    }

    #[test]
    fn this_process_is_understood() {
        assert!(threads() >= 1);
        assert!(resident_bytes() > 0);
        let _ = swap_in_use();
    }
}
