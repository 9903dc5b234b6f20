//! Memory calls: real where they touch nothing but this process's own
//! memory, private where the program asked for shared, bounded in all.

use crate::abi::*;
use crate::arch::nr;
use crate::context::Context;
use crate::descriptors::Kind;
use crate::kernel::{Kernel, Mapped, Protecting};
use crate::outcome::{Answer, Stop, errno, park};
use crate::residency;
use runahead_protocol::stats::Park;

/// Mappings up to this long are prefetched whole.
const MAPPED_WHOLE_MAX_BYTES: u64 = 2 * 1024 * 1024;

/// Of longer ones, this much.
const MAPPED_HEAD_BYTES: u64 = 128 * 1024;

/// `mmap` flags that a speculative process may use.
pub(crate) const MAP_ALLOWED: usize = MAP_PRIVATE
    | MAP_FIXED
    | MAP_ANONYMOUS
    | 0x40 // MAP_32BIT
    | 0x100 // MAP_GROWSDOWN
    | MAP_DENYWRITE
    | 0x1000 // MAP_EXECUTABLE
    | 0x4000 // MAP_NORESERVE
    | MAP_POPULATE
    | 0x10000 // MAP_NONBLOCK
    | 0x20000 // MAP_STACK
    | MAP_FIXED_NOREPLACE;

/// `madvise` advice that changes nothing outside this process: NORMAL,
/// RANDOM, SEQUENTIAL, WILLNEED, DONTNEED, FREE, HUGEPAGE, NOHUGEPAGE,
/// DONTDUMP, DODUMP.
pub(crate) const ADVICE_ALLOWED: [usize; 10] = [0, 1, 2, 3, 4, 8, 14, 15, 16, 17];

/// Advice that is harmless to leave out: DONTFORK, DOFORK, MERGEABLE,
/// UNMERGEABLE, WIPEONFORK, KEEPONFORK, COLD, PAGEOUT, POPULATE_READ,
/// POPULATE_WRITE, COLLAPSE.
const ADVICE_SWALLOWED: [usize; 11] = [10, 11, 12, 13, 18, 19, 20, 21, 22, 23, 25];

impl<K: Kernel> Context<'_, K> {
    /// Parks where a range touches what the agent lives in.
    fn guard(&self, address: usize, len: usize) -> Result<(), Stop> {
        let end = address.saturating_add(len.max(1));
        let touched = self.e.protected.iter().any(|range| address < range.end && range.start < end);
        if touched { park(Park::BadPointer) } else { Ok(()) }
    }

    fn charge(&mut self, len: usize) -> Result<(), Stop> {
        let mapped = self.e.mapped_bytes.saturating_add(len as u64);
        if mapped > self.e.memory_max_bytes {
            return park(Park::MemoryLimit);
        }
        self.e.mapped_bytes = mapped;
        Ok(())
    }

    pub(crate) fn mmap(&mut self, a: [usize; 6]) -> Answer {
        let [address, len, prot, flags, fd, offset] = a;
        if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
            self.guard(address, len)?;
        }
        // Huge pages are a scarce resource of the whole machine; locked ones
        // of the process; MAP_SYNC needs a shared mapping.
        let private = match flags & MAP_TYPE {
            MAP_PRIVATE => flags,
            MAP_SHARED | MAP_SHARED_VALIDATE => flags & !MAP_TYPE | MAP_PRIVATE,
            _ => return errno(EINVAL),
        } & !(MAP_HUGETLB | 0x3f << 26 | MAP_LOCKED | MAP_SYNC);
        if private & !MAP_ALLOWED != 0 {
            return park(Park::Unanswerable);
        }
        if private & MAP_ANONYMOUS != 0 {
            return self.map_anonymous(address, len, prot, private);
        }
        let id = self.id(fd)?;
        self.reopen_or_lose(id)?;
        let file = *self.e.table.file(id);
        match file.kind {
            Kind::Regular => {}
            // Nothing of it exists but its size.
            Kind::Sink | Kind::Zero => {
                return self.map_anonymous(address, len, prot, private | MAP_ANONYMOUS);
            }
            _ => return park(Park::Unanswerable),
        }
        if prot & PROT_WRITE != 0 && flags & MAP_TYPE != MAP_PRIVATE && !file.writable() {
            return errno(EACCES);
        }
        let real = self.real(id)?;
        if !residency::may_be_mapped(self.k, &mut self.e.methods, real, file.dev) {
            return park(Park::Unanswerable);
        }
        // Populating would wait for storage.
        let private = private & !MAP_POPULATE;
        let mapping = self.on_program(nr::MMAP, [address, len, prot, private, real, offset])?;
        self.prefetch_mapped(id, offset as u64, len as u64);
        // The dynamic linker's mappings, recognised by its flag, are a
        // library's, of which no part may be missing.
        let data = prot & PROT_EXEC == 0 && flags & MAP_DENYWRITE == 0;
        let of = Mapped { fd: real as i32, offset: offset as u64, protection: prot };
        self.k.mapped(mapping, len, data.then_some(of));
        Ok(mapping)
    }

    fn map_anonymous(&mut self, address: usize, len: usize, prot: usize, flags: usize) -> Answer {
        self.charge(len)?;
        let minus_one = usize::MAX;
        let mapping = self.on_program(nr::MMAP, [address, len, prot, flags, minus_one, 0])?;
        self.k.mapped(mapping, len, None);
        Ok(mapping)
    }

    fn prefetch_mapped(&mut self, id: crate::descriptors::FileId, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.e.table.file(id).size);
        let end = match end.saturating_sub(offset) {
            whole if whole <= MAPPED_WHOLE_MAX_BYTES => end,
            _ => offset + MAPPED_HEAD_BYTES,
        };
        if offset < end && !self.is_behind() {
            self.wait_for_device();
            self.prefetch(id, offset, end);
        }
    }

    pub(crate) fn munmap(&mut self, a: [usize; 6]) -> Answer {
        self.guard(a[0], a[1])?;
        let result = self.on_program(nr::MUNMAP, [a[0], a[1], 0, 0, 0, 0])?;
        self.e.mapped_bytes = self.e.mapped_bytes.saturating_sub(a[1] as u64);
        self.k.unmapped(a[0], a[1]);
        Ok(result)
    }

    pub(crate) fn mprotect(&mut self, a: [usize; 6]) -> Answer {
        const PROT_ALLOWED: usize = 0x0f | 0x0300_0000;
        self.guard(a[0], a[1])?;
        if a[2] & !PROT_ALLOWED != 0 {
            return errno(EINVAL);
        }
        match self.k.protecting(a[0], a[1], a[2]) {
            Protecting::Real => self.on_program(nr::MPROTECT, [a[0], a[1], a[2], 0, 0, 0]),
            Protecting::Done => Ok(0),
            Protecting::Refused => park(Park::TableFull),
        }
    }

    pub(crate) fn mremap(&mut self, a: [usize; 6]) -> Answer {
        const MREMAP_FIXED: usize = 2;
        let [address, old_len, new_len, flags, to, _] = a;
        self.guard(address, old_len)?;
        if flags & MREMAP_FIXED != 0 {
            self.guard(to, new_len)?;
        }
        // An old length of 0 would make a second view of a shared mapping.
        if old_len == 0 || self.k.is_shared(address, old_len) {
            return park(Park::Unanswerable);
        }
        if self.k.is_absent(address, old_len) {
            return park(Park::Unanswerable);
        }
        self.charge(new_len.saturating_sub(old_len))?;
        let mapping = self.on_program(nr::MREMAP, a)?;
        self.k.unmapped(address, old_len);
        self.k.mapped(mapping, new_len, None);
        Ok(mapping)
    }

    pub(crate) fn brk(&mut self, a: [usize; 6]) -> Answer {
        if a[0] == 0 {
            return self.on_program(nr::BRK, a);
        }
        let now = self.on_program(nr::BRK, [0; 6])?;
        self.charge(a[0].saturating_sub(now))?;
        self.on_program(nr::BRK, a)
    }

    pub(crate) fn madvise(&mut self, a: [usize; 6]) -> Answer {
        self.guard(a[0], a[1])?;
        if ADVICE_SWALLOWED.contains(&a[2]) {
            return Ok(0);
        }
        if !ADVICE_ALLOWED.contains(&a[2]) {
            return park(Park::Unanswerable);
        }
        self.on_program(nr::MADVISE, [a[0], a[1], a[2], 0, 0, 0])
    }

    pub(crate) fn mincore(&mut self, a: [usize; 6]) -> Answer {
        self.ready(a[2], a[1].div_ceil(PAGE_BYTES as usize))?;
        self.on_program(nr::MINCORE, [a[0], a[1], a[2], 0, 0, 0])
    }
}
