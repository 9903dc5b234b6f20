//! Large mappings of files in the speculative process: inaccessible at first,
//! so that the first touch of each page is seen (see `pages`).
//!
//! Files that are also mapped as code are left alone, with their data: a
//! library whose tables read as zeros ends the speculation at once.

use super::{Own, shared};
use crate::arch::nr;
use crate::maps::Line;
use crate::normal::LARGE_BYTES;
use crate::sys::{self, call};
use core::cell::UnsafeCell;
use runahead_emulate::residency::Oracle;

/// Mappings that are kept track of.
pub const REGIONS_MAX: usize = 256;

/// Files mapped as code that are kept track of; with more, no mapping is
/// taken for data.
const CODE_MAX: usize = 512;

/// Room for the paths of mapped files, in bytes.
const NAMES_LEN: usize = 32 * 1024;

/// Whether a region's file is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// Not tried yet.
    Closed,
    /// Opened again, as this descriptor of the speculative process.
    Open(i32),
}

/// A mapping of a file.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// First address.
    pub start: usize,
    /// Address after it; equal to `start`: free.
    pub end: usize,
    /// Offset of `start` in the file.
    pub offset: u64,
    /// `PROT_*` bits of the program.
    pub protection: usize,
    /// The program mapped it `MAP_SHARED`.
    pub shared: bool,
    /// Device and inode number as /proc/self/maps gives them.
    pub device: (u32, u32),
    /// See `device`.
    pub inode: u64,
    /// The file's path in the names: start and length.
    name: (u32, u32),
    /// The file.
    pub file: File,
    /// Its device as stat(2) gives it.
    pub dev: u64,
    /// Its size in bytes, as last asked.
    pub size: u64,
    /// How residency is asked.
    pub oracle: Oracle,
}

impl Region {
    const FREE: Region = Region {
        start: 0,
        end: 0,
        offset: 0,
        protection: 0,
        shared: false,
        device: (0, 0),
        inode: 0,
        name: (0, 0),
        file: File::Closed,
        dev: 0,
        size: 0,
        oracle: Oracle::UNASKED,
    };

    /// Whether pages of it may be the program's own by now: written through a
    /// private mapping. Their content is not the file's.
    pub fn has_own_pages(&self) -> bool {
        !self.shared && self.protection & sys::PROT_WRITE != 0
    }
}

pub struct Regions {
    table: [Region; REGIONS_MAX],
    code: [u64; CODE_MAX],
    code_len: usize,
    names: [u8; NAMES_LEN],
    names_len: usize,
}

static REGIONS: Own<Regions> = Own(UnsafeCell::new(Regions::NONE));

impl Regions {
    const NONE: Regions = Regions {
        table: [Region::FREE; REGIONS_MAX],
        code: [0; CODE_MAX],
        code_len: 0,
        names: [0; NAMES_LEN],
        names_len: 0,
    };
}

/// The regions.
///
/// Used in the prologue, in the fault handler and in the emulator's calls of
/// its kernel. None of these runs inside another's use: the code that holds
/// the reference touches no memory of the program.
pub fn regions() -> &'static mut Regions {
    // SAFETY: one thread, no nested use (see above).
    unsafe { &mut *REGIONS.0.get() }
}

impl Regions {
    /// Looks at a mapping of the copied program; true where it is taken.
    pub fn consider(&mut self, line: &Line<'_>) -> bool {
        if line.inode == 0 || !line.path.starts_with(b"/") || line.path.starts_with(b"/memfd:") {
            return false;
        }
        if line.protection & sys::PROT_EXEC != 0 {
            if let Some(slot) = self.code.get_mut(self.code_len) {
                *slot = line.inode;
            }
            self.code_len += 1;
            return false;
        }
        if line.end - line.start < LARGE_BYTES
            || line.protection & sys::PROT_READ == 0
            || line.path.starts_with(b"/dev/")
            || line.path.starts_with(b"/SYSV")
            || self.code.contains(&line.inode)
        {
            return false;
        }
        let name_at = self.names_len;
        let Some(room) = self.names.get_mut(name_at..name_at + line.path.len() + 1) else {
            return false;
        };
        if let Some((last, path)) = room.split_last_mut() {
            path.copy_from_slice(line.path);
            *last = 0;
        }
        self.names_len += line.path.len() + 1;
        self.add(Region {
            start: line.start,
            end: line.end,
            offset: line.offset,
            protection: line.protection,
            shared: line.shared,
            device: line.device,
            inode: line.inode,
            name: (name_at as u32, line.path.len() as u32 + 1),
            ..Region::FREE
        })
    }

    /// Takes access from all regions; those of files that are code, too, are
    /// given up.
    pub fn protect(&mut self) {
        let (code, code_len) = (&self.code, self.code_len);
        for region in self.table.iter_mut().filter(|region| region.end != 0) {
            let is_code = code_len > CODE_MAX || code.contains(&region.inode);
            let len = region.end - region.start;
            // SAFETY: this process's view of a mapping of the program.
            if is_code || unsafe { call(nr::MPROTECT, &[region.start, len, 0]) } != 0 {
                give_up(region);
            }
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.table.iter().all(|region| region.end == 0)
    }

    /// Adds a region; false where the table is full.
    pub fn add(&mut self, region: Region) -> bool {
        match self.table.iter_mut().find(|slot| slot.end == 0) {
            Some(slot) => *slot = region,
            None => return false,
        }
        true
    }

    /// A mapping that this process has made itself, of the file behind `fd`,
    /// which is the region's from here on.
    pub fn add_own(&mut self, range: (usize, usize), offset: u64, protection: usize, fd: i32) {
        let (start, end) = range;
        let mut stat = sys::Stat::default();
        let region = Region {
            start,
            end,
            offset,
            protection,
            shared: true, // Its pages are the file's: no COW has happened yet.
            file: File::Open(fd),
            ..Region::FREE
        };
        if sys::fstat(fd, &mut stat) != 0 || stat.mode & sys::S_IFMT != sys::S_IFREG {
            sys::close(fd);
            return;
        }
        let region = Region { dev: stat.dev, size: stat.size.max(0) as u64, ..region };
        // SAFETY: the mapping has just been made.
        if unsafe { call(nr::MPROTECT, &[start, end - start, 0]) } != 0 || !self.add(region) {
            // SAFETY: as above.
            unsafe { call(nr::MPROTECT, &[start, end - start, protection]) };
            sys::close(fd);
        }
    }

    /// The region of an address.
    pub fn find(&mut self, address: usize) -> Option<&mut Region> {
        self.table.iter_mut().find(|region| address >= region.start && address < region.end)
    }

    /// All regions.
    pub fn all(&mut self) -> impl Iterator<Item = &mut Region> {
        self.table.iter_mut().filter(|region| region.end != 0)
    }

    /// Whether any byte of a range lies in a region.
    pub fn covers(&self, address: usize, len: usize) -> bool {
        let end = address.saturating_add(len.max(1));
        self.table.iter().any(|region| region.start < end && address < region.end)
    }

    /// The path of a region's file, with a NUL.
    pub fn name(&self, region: &Region) -> &[u8] {
        let (at, len) = (region.name.0 as usize, region.name.1 as usize);
        self.names.get(at..at + len).unwrap_or(&[])
    }

    /// The program has unmapped a range, or mapped something else there. False where nothing
    /// can be kept of what lies behind it: nobody would know that it is shared with the
    /// program.
    pub fn cut(&mut self, start: usize, len: usize) -> bool {
        let end = start.saturating_add(len);
        let mut rest = None;
        for region in self.table.iter_mut().filter(|region| region.end != 0) {
            if end <= region.start || region.end <= start {
                continue;
            }
            if region.start < start && end < region.end {
                // What lies behind becomes a region of its own. It shares the
                // descriptor, which is then never closed.
                rest = Some(Region {
                    start: end,
                    offset: region.offset + (end - region.start) as u64,
                    ..*region
                });
                region.end = start;
            } else if region.start < start {
                region.end = start;
            } else if end < region.end {
                region.offset += (end - region.start) as u64;
                region.start = end;
            } else {
                if let File::Open(fd) = region.file {
                    sys::close(fd);
                }
                *region = Region::FREE;
            }
        }
        rest.is_none_or(|rest| self.add(rest))
    }
}

/// Makes a region accessible as a whole again: this process may wait for
/// storage there, or write to it as `shared` allows.
pub fn give_up(region: &mut Region) {
    let len = region.end - region.start;
    let writable = region.shared && region.protection & sys::PROT_WRITE != 0;
    let protection =
        if writable { region.protection & !sys::PROT_WRITE } else { region.protection };
    // SAFETY: this process's view of a mapping of the program.
    unsafe { call(nr::MPROTECT, &[region.start, len, protection]) };
    if region.shared {
        shared::keep(region.start, region.end, region.protection);
    }
    if let File::Open(fd) = region.file {
        sys::close(fd);
    }
    *region = Region::FREE;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_behind_a_hole_is_kept_or_said_to_be_lost() {
        const LEN: usize = 1 << 20;
        let mut regions = std::boxed::Box::new(Regions::NONE);
        for at in 1..REGIONS_MAX {
            let start = at * 2 * LEN;
            assert!(regions.add(Region { start, end: start + LEN, ..Region::FREE }));
        }
        let hole = |at: usize| at * 2 * LEN + LEN / 2;
        assert!(regions.cut(hole(1), sys::PAGE_SIZE), "there is room for one more");
        assert!(regions.covers(hole(1) + sys::PAGE_SIZE, 1) && !regions.covers(hole(1), 1));
        assert!(!regions.cut(hole(2), sys::PAGE_SIZE));
        // What needs no room is cut all the same.
        assert!(regions.cut(3 * 2 * LEN, LEN / 2) && !regions.covers(3 * 2 * LEN, 1));
    }
}
