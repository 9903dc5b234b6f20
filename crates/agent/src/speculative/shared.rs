//! Mappings shared with other processes are private on touch (Fraser and
//! Chang, section 4.1.1: "write access to mapped files and shared memory
//! segments is changed to copy-on-write access"): write-protected at first,
//! and replaced granule by granule by private copies when written. Those that
//! the program may not write to are kept track of, too: it may ask for the
//! right later, and the kernel would give it.

use super::Own;
use crate::arch::nr;
use crate::arena::{self, LOG_STRIDE};
use crate::config::CONFIG;
use crate::maps::{self, Line};
use crate::sys::{self, PAGE_SIZE, call};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Relaxed;
use runahead_emulate::Protecting;
use runahead_protocol::log::Log;

/// Granule that is copied at the first write, in bytes: a mapping per page
/// would use up the kernel's limit of 65,530 too soon, and one of 64 KiB takes
/// 100 µs, ten times what a predicted read does besides.
const GRANULE: usize = 16 * 1024;

/// Shared mappings that are kept track of.
const REGIONS_MAX: usize = 128;

/// Largest such segment or file of which a copy is kept, in bytes: it
/// lies on the prologue's stack meanwhile. PostgreSQL's has 56.
const ATTACHED_COPY_MAX: usize = 4 * PAGE_SIZE;

/// Granules that may become private: two mappings each.
const PRIVATE_GRANULES_MAX: usize = 16 * 1024;

/// Granules that are kept track of, in all regions together (8 GiB).
const GRANULES_MAX: usize = 512 * 1024;

#[derive(Clone, Copy)]
struct Region {
    start: usize,
    end: usize,
    /// Number of its first granule in the bitmap.
    first: usize,
    /// Whether the program could read it when this process began.
    readable: bool,
    /// Whether it may write to it, from the start or since.
    writable: bool,
}

impl Region {
    const NONE: Region = Region { start: 0, end: 0, first: 0, readable: false, writable: false };
}

struct Regions {
    regions: [Region; REGIONS_MAX],
    len: usize,
    granules: usize,
    made_private: usize,
    /// Some mapping is not kept track of, for want of room.
    incomplete: bool,
    private: [u64; GRANULES_MAX / 64],
}

static REGIONS: Own<Regions> = Own(UnsafeCell::new(Regions {
    regions: [Region::NONE; REGIONS_MAX],
    len: 0,
    granules: 0,
    made_private: 0,
    incomplete: false,
    private: [0; GRANULES_MAX / 64],
}));

static SCRATCH: Own<[u8; GRANULE]> = Own(UnsafeCell::new([0; GRANULE]));

// It must hold the longest line of /proc/self/maps, whose path is PATH_MAX.
const _: () = assert!(GRANULE > 2 * 4096);

fn regions() -> &'static mut Regions {
    // SAFETY: one thread; the two callers (prologue, fault handler and
    // kernel side of the emulator) never nest while holding the reference:
    // none of the code below faults on a shared mapping.
    unsafe { &mut *REGIONS.0.get() }
}

/// Write-protects every shared mapping but the log, takes access from large
/// mappings of files, and covers the other logs and drops all mappings of devices. False
/// where that fails and it is not safe to go on.
///
/// Where an earlier copy has found no large mapping of a file, only the shared
/// mappings are asked for: of PostgreSQL's 300, listing all takes 250 µs and
/// these 40.
pub fn make_private_on_touch(log: &Log) -> bool {
    let (mut ok, mut private_device) = (cover_other_logs(), false);
    let kept = regions();
    let large = super::regions::regions();
    let mut action = |line: &Line<'_>| {
        if line.is_device() {
            // It may act on reads, too, and is open as long as it is mapped: the
            // program may be about to open it anew.
            private_device |= !line.shared;
            ok &= Regions::detach(line, false);
        } else if line.shared && line.is_attached() || is_locked(line) {
            ok &= Regions::detach(line, line.protection & sys::PROT_READ != 0);
        } else if !large.consider(line) && line.shared {
            ok &= kept.protect(line);
        }
        true
    };
    // SAFETY: one thread; `make_private`, which uses it too, is not reached
    // from here.
    let scratch = unsafe { &mut *SCRATCH.0.get() };
    let changes = u64::from(log.large_changes.load(Relaxed)) + 1;
    let known = log.without_files.load(Relaxed) == changes && !any_locked();
    if known && maps::for_each_shared(scratch, &mut action) {
        log.shares.store(u64::from(kept.any_writable()), Relaxed);
        return ok;
    }
    // What has been protected already is so twice, which does no harm.
    ok &= maps::for_each(scratch, action);
    log.shares.store(u64::from(kept.any_writable()), Relaxed);
    let without = large.is_empty() && !private_device;
    log.without_files.store(if without { changes } else { 0 }, Relaxed);
    large.protect();
    ok
}

/// Whether a place is memory that this process shares with none.
pub fn is_private(at: usize) -> bool {
    // SAFETY: one thread, before anything else uses it.
    maps::is_private(unsafe { &mut *SCRATCH.0.get() }, at)
}

/// Whether the kernel counts what a copy still shares after it has left the
/// descriptor table: attachments of System V segments, the descriptions that are
/// mapped and locked, and devices that are mapped. Nobody knows where mmap(2) is
/// not seen (tier T0).
pub fn counts() -> bool {
    let may = [&CONFIG.attaches, &CONFIG.unseen];
    any_locked() || may.iter().any(|may| may.load(Relaxed) != 0)
}

/// Whether the program has locked any file.
fn any_locked() -> bool {
    CONFIG.locked.first().is_some_and(|locked| locked.load(Relaxed) != 0)
}

/// Keeps track of a shared mapping from which write access has been taken, and
/// which the program has with `protection`.
pub fn keep(start: usize, end: usize, protection: usize) {
    regions().keep(start, end, protection);
}

/// Whether the program has locked the mapped file's description, which the
/// mapping holds.
fn is_locked(line: &Line<'_>) -> bool {
    line.inode != 0 && CONFIG.locked.iter().any(|locked| locked.load(Relaxed) == line.inode)
}

/// Covers what nothing in the speculative process refers to.
fn cover_other_logs() -> bool {
    let own = super::LOG.load(Relaxed);
    CONFIG.logs.iter().all(|cell| {
        let log = cell.load(Relaxed);
        log.is_null() || log == own || arena::cover(log as usize, LOG_STRIDE, 0)
    })
}

impl Regions {
    /// Whether the program may write to any.
    fn any_writable(&self) -> bool {
        self.incomplete || self.regions.iter().take(self.len).any(|kept| kept.writable)
    }

    /// Takes write access from a mapping, if the program has it, and keeps track
    /// of it.
    fn protect(&mut self, line: &Line<'_>) -> bool {
        let log = super::LOG.load(Relaxed) as usize;
        let desk = CONFIG.desk.load(Relaxed) as usize;
        // The mappings may have become one.
        if line.start <= log && log < line.end || line.start <= desk && desk < line.end {
            return true;
        }
        let len = line.end - line.start;
        if line.protection & sys::PROT_WRITE != 0
            // SAFETY: this process's view only.
            && unsafe { call(nr::MPROTECT, &[line.start, len, sys::PROT_READ]) } != 0
        {
            return false;
        }
        self.keep(line.start, line.end, line.protection);
        true
    }

    /// Replaces an attached System V segment, so that the kernel does not
    /// count this process's attachment, a locked file, so that the lock does
    /// not last as long as this process, or a device: by a private copy where it
    /// may be read (`readable`) and is small, else by memory that ends the
    /// speculation when it is touched.
    fn detach(line: &Line<'_>, readable: bool) -> bool {
        let len = line.end - line.start;
        // The scratch memory holds lines of the file that is being read.
        let mut bytes = [0u8; ATTACHED_COPY_MAX];
        // Not by loads: beyond the end of a file they fault.
        let copied = readable
            && len <= ATTACHED_COPY_MAX
            // SAFETY: into an array of ours that is as long.
            && unsafe { sys::copy_own(line.start, bytes.as_mut_ptr(), len) };
        let protection = if copied { sys::PROT_READ | sys::PROT_WRITE } else { 0 };
        let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED;
        let args = [line.start, len, protection, flags, usize::MAX, 0];
        // SAFETY: the replacement is of the same place and length.
        unsafe {
            if call(nr::MMAP, &args) != line.start as isize {
                return false;
            }
            if copied {
                core::ptr::copy_nonoverlapping(bytes.as_ptr(), line.start as *mut u8, len);
            }
        }
        true
    }

    /// Where there is too much to keep track of, it stays read-only, and a
    /// write to it ends the speculation, as does asking for the right to write
    /// anywhere.
    fn keep(&mut self, start: usize, end: usize, protection: usize) {
        let known = |kept: &Region| (kept.start, kept.end) == (start, end);
        if self.regions.iter().take(self.len).any(known) {
            return;
        }
        let granules = (end - start).div_ceil(GRANULE);
        if self.granules + granules <= GRANULES_MAX
            && let Some(slot) = self.regions.get_mut(self.len)
        {
            let writable = protection & sys::PROT_WRITE != 0;
            let readable = writable || protection & sys::PROT_READ != 0;
            *slot = Region { start, end, first: self.granules, readable, writable };
            self.len += 1;
            self.granules += granules;
        } else {
            self.incomplete = true;
        }
    }

    /// What becomes of an mprotect(2): write access is never given to what is
    /// still shared. What the program could read stays readable, and what is
    /// private already stays writable, whatever it asks for.
    fn reprotect(&mut self, address: usize, len: usize, protection: usize) -> Protecting {
        let end = address.saturating_add(len).next_multiple_of(PAGE_SIZE);
        let writes = protection & sys::PROT_WRITE != 0;
        let reads = writes || protection & sys::PROT_READ != 0;
        let mut found = false;
        for kept in self.regions.iter_mut().take(self.len) {
            let (low, high) = (kept.start.max(address), kept.end.min(end));
            if low >= high {
                continue;
            }
            found = true;
            kept.writable |= writes;
            if reads && !kept.readable {
                // SAFETY: this process's view of a mapping of the program.
                unsafe { call(nr::MPROTECT, &[low, high - low, sys::PROT_READ]) };
            }
        }
        match found {
            true => Protecting::Done,
            false if writes && self.incomplete => Protecting::Refused,
            false => Protecting::Real,
        }
    }

    /// Makes the granule at `address` of a region private, unless it is; then
    /// writable, if it has just been found not to be (`faulted`): what was
    /// inaccessible and became private may have been made readable since.
    fn make_private(&mut self, region: Region, address: usize, faulted: bool) -> bool {
        let index = (address - region.start) / GRANULE;
        let bit = region.first + index;
        let Some(word) = self.private.get_mut(bit / 64) else { return false };
        let start = region.start + index * GRANULE;
        let len = GRANULE.min(region.end - start);
        let protection = sys::PROT_READ | sys::PROT_WRITE;
        if *word & 1 << (bit % 64) != 0 {
            // SAFETY: memory of this process alone.
            return !faulted || unsafe { call(nr::MPROTECT, &[start, len, protection]) } == 0;
        }
        if self.made_private >= PRIVATE_GRANULES_MAX {
            return false;
        }
        let scratch = SCRATCH.0.get().cast::<u8>();
        let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED;
        // SAFETY: the granule is mapped and readable; its replacement is of
        // the same place and length, and gets the same bytes.
        unsafe {
            core::ptr::copy_nonoverlapping(start as *const u8, scratch, len);
            let args = [start, len, protection, flags, usize::MAX, 0];
            if call(nr::MMAP, &args) != start as isize {
                return false;
            }
            core::ptr::copy_nonoverlapping(scratch, start as *mut u8, len);
        }
        *word |= 1 << (bit % 64);
        self.made_private += 1;
        true
    }

    /// The region that `address` lies in.
    fn region(&self, address: usize) -> Option<Region> {
        self.regions
            .get(..self.len)?
            .iter()
            .copied()
            .find(|region| address >= region.start && address < region.end)
    }
}

/// Makes `[address, address + len)` private where it was shared and the program
/// may write to it; false where `address` is not in such a mapping or it cannot be
/// done.
pub fn make_private(address: usize, len: usize) -> bool {
    make(address, len, false)
}

/// The same where a store of the program's has been refused.
pub fn make_private_on_fault(address: usize) -> bool {
    make(address, 1, true)
}

fn make(address: usize, len: usize, faulted: bool) -> bool {
    let regions = regions();
    let Some(region) = regions.region(address) else { return false };
    if !region.writable {
        return false;
    }
    let end = address.saturating_add(len.max(1)).min(region.end);
    let mut at = address;
    while at < end {
        if !regions.make_private(region, at, faulted) {
            return false;
        }
        at = region.start + ((at - region.start) / GRANULE + 1) * GRANULE;
    }
    true
}

/// Whether any byte of a range was shared when the process began.
pub fn was_shared(address: usize, len: usize) -> bool {
    let regions = regions();
    let end = address.saturating_add(len);
    regions
        .regions
        .get(..regions.len)
        .is_some_and(|all| all.iter().any(|region| region.start < end && address < region.end))
}

/// See [`runahead_emulate::Kernel::protecting`].
pub fn protecting(address: usize, len: usize, protection: usize) -> Protecting {
    regions().reprotect(address, len, protection)
}

const _: () = assert!(GRANULE.is_multiple_of(PAGE_SIZE));
