//! Finds out that a program walks a tree of directories and waits for them, so
//! that the next ones are read ahead, many at a time ([`crate::frontier`]).
//!
//! Evidence is a call on a name that waited, and a second directory opened in
//! the same parent. A program that opens one directory here and one there
//! (searches for headers, for modules) is none that walks.

use crate::abi::*;
use crate::arch::{nr, stat};
use crate::context::{Context, OPEN_FOR_READING, Stat, address_of, address_of_mut};
use crate::descriptors::FileId;
use crate::frontier::{Ahead, Walk};
use crate::kernel::{Calls, Kernel};
use core::sync::atomic::Ordering::Relaxed;
use runahead_protocol::log::{FLAG_PREFETCHED, Prediction};

/// A call on a name that takes longer has waited for storage, in ns, if the copy
/// slept: whoever else wants its processor gets it at once. Of what is in the
/// kernel's caches it takes 1 to 3 µs.
const WAIT_NS: u64 = 25_000;

/// Directories of which is remembered that others were opened in them.
const PARENTS_MAX: usize = 8;

/// Fewest and most directories that are read at a time.
const READERS_MIN: u32 = 2;
/// See [`READERS_MIN`].
pub const READERS_MAX: u32 = 32;

/// Processor time that a reader takes between two waits, in ns: some ten entries
/// at 2 µs.
const READER_NS: u64 = 20_000;

/// File systems whose directories are made up as they are read (statfs(2)), or cannot be
/// removed while they are open.
const NOT_READ_AHEAD: [u64; 11] = [
    0xff53_4d42, // SMB
    0xfe53_4d42, // the same since version 2
    0x0187,      // autofs, which mounts where it is opened
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x6367_7270, // cgroup2
    0x27_e0eb,   // cgroup
    0x1cd1,      // devpts
    0x0102_1994, // tmpfs
];

/// What is known of the program as one that walks. All-zero: nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walker {
    /// Identities of the directories in which others were opened last.
    parents: [u64; PARENTS_MAX],
    next: u8,
    /// A call on a name has waited since the last directory was opened.
    waited: bool,
    /// Smoothed time of such a wait (weight 1/4), in ns.
    wait_ns: u64,
    /// What the next directory to be read needs was not all in memory.
    cold: bool,
    /// Attributes of files are asked for, or files opened.
    files: bool,
    /// Identity of the directory that a path led through last.
    here: u64,
    /// It has been seen to walk.
    walks: bool,
}

impl Walker {
    /// Remembers a parent; whether it was known.
    fn is_known(&mut self, parent: u64) -> bool {
        if self.parents.contains(&parent) {
            return true;
        }
        if let Some(slot) = self.parents.get_mut(self.next as usize % PARENTS_MAX) {
            *slot = parent;
        }
        self.next = self.next.wrapping_add(1);
        false
    }
}

impl<K: Kernel> Context<'_, K> {
    /// A real call on a name, which is looked at for a wait.
    pub(crate) fn on_name(&mut self, number: usize, args: [usize; 6]) -> isize {
        let began_ns = self.k.now_ns();
        let result = self.k.call(number, args);
        let ns = self.k.now_ns().saturating_sub(began_ns);
        if ns > WAIT_NS && self.k.slept() {
            let walker = &mut self.e.walker;
            walker.waited = true;
            walker.cold = true;
            walker.wait_ns = match walker.wait_ns {
                0 => ns,
                old => old - old / 4 + ns / 4,
            };
        }
        result
    }

    /// The program has read from a directory, with a buffer of `len` bytes: the
    /// next read in the log. Its offset there says which directory it is.
    pub(crate) fn listed(&mut self, fd: usize, len: usize, id: FileId) {
        let number = self.read_number();
        let cold = core::mem::take(&mut self.e.walker.cold) && !self.is_behind();
        self.log.push(Prediction {
            offset: self.e.table.file(id).ino,
            len: len as u64,
            fd: fd as i32,
            flags: if cold { FLAG_PREFETCHED } else { 0 },
            prefetched_len: u64::from(cold),
            file: 0,
        });
        if cold {
            self.e.counters.prefetches += 1;
            self.log.prefetches.store(self.e.counters.prefetches, Relaxed);
            self.e.prefetcher.went_ahead(number, true);
        }
    }

    /// The program asked for the attributes of a name, or opened one that is no
    /// directory.
    pub(crate) fn saw_file(&mut self) {
        self.e.walker.files = true;
    }

    /// The same by the mode that the program was told of a name.
    pub(crate) fn saw_mode(&mut self, mode_at: usize, dir: usize, path: usize) {
        if self.e.walker.files && !self.e.walker.waited {
            return;
        }
        let mut mode = [0u8; 2];
        if !self.k.load(mode_at, &mut mode) {
            return;
        }
        if u32::from(u16::from_ne_bytes(mode)) & S_IFMT != S_IFDIR {
            self.e.walker.files = true;
            self.came_by_path(dir, path);
        }
    }

    /// The program has opened a directory by its path, relative to the real
    /// descriptor `dir`: where it walks and waits, the directories behind this
    /// one are read ahead.
    pub(crate) fn came_to_directory(&mut self, dir: usize, path: usize, stat: &Stat) {
        let waited = core::mem::take(&mut self.e.walker.waited);
        match self.k.reached(stat.dev, stat.ino) {
            Ahead::Unread => {}
            Ahead::InMemory => return,
            Ahead::Waited => {
                self.e.walker.cold = true;
                self.e.counters.directories_used += 1;
                return;
            }
        }
        let Ok(len) = self.load_path(path) else { return };
        let Some(parent_len) = split(self.e.path.get(..len).unwrap_or(&[])) else { return };
        let parent = identity(dir, self.e.path.get(..parent_len).unwrap_or(&[]));
        self.e.walker.here = identity(dir, self.e.path.get(..len).unwrap_or(&[]));
        let known = self.e.walker.is_known(parent) || self.e.walker.walks;
        if waited && known {
            self.e.walker.walks = true;
            self.read_ahead_of(dir, parent_len, stat);
        }
    }

    /// The program has named something by its path, relative to the real
    /// descriptor `dir`, and not opened a directory: where it waited, it has
    /// come to the directory that this is in (a list of files, in the order of
    /// a tree).
    pub(crate) fn came_by_path(&mut self, dir: usize, path: usize) {
        if !core::mem::take(&mut self.e.walker.waited) {
            return;
        }
        let Ok(len) = self.load_path(path) else { return };
        let text = self.e.path.get(..len).unwrap_or(&[]);
        let Some(within_len) = split(text) else { return };
        let within = text.get(..within_len).unwrap_or(&[]);
        let Some(parent_len) = split(within) else { return };
        let here = identity(dir, within);
        let parent = identity(dir, within.get(..parent_len).unwrap_or(&[]));
        if core::mem::replace(&mut self.e.walker.here, here) == here {
            return;
        }
        if !self.e.walker.is_known(parent) && !self.e.walker.walks {
            return;
        }
        if let Some(end) = self.e.path.get_mut(within_len) {
            *end = 0;
        }
        let within = address_of(&self.e.path);
        if let Ok(stat) = self.stat_at(dir, within, 0) {
            self.e.walker.walks = true;
            self.read_ahead_of(dir, parent_len, &stat);
        }
    }

    /// Has what comes behind an entry of a directory read. The entry's path is
    /// in `Emulator::path`: the directory's are its first bytes.
    fn read_ahead_of(&mut self, dir: usize, parent_len: usize, entry: &Stat) {
        if let Some(end) = self.e.path.get_mut(parent_len) {
            *end = 0;
        }
        let path = if parent_len == 0 { address_of(c".") } else { address_of(&self.e.path) };
        let begin = Begin {
            dir,
            path,
            entry: (entry.dev, entry.ino),
            files: self.e.walker.files,
            fsuid: self.e.identity.fsuid,
            readers: readers(self.e.walker.wait_ns, self.e.prefetcher.limit.depth()),
        };
        begin_walk(self.k, &begin);
    }
}

/// How a walk is begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin {
    /// Real descriptor and path of the directory.
    pub(crate) dir: usize,
    pub(crate) path: usize,
    /// Device and inode number of the entry that the program is at.
    pub(crate) entry: (u64, u64),
    pub(crate) files: bool,
    pub(crate) fsuid: u32,
    pub(crate) readers: u32,
}

/// Hands a directory to the readers.
pub(crate) fn begin_walk<K: Kernel>(k: &mut K, begin: &Begin) {
    let (dev, after) = begin.entry;
    let mut open = |more| {
        let flags = OPEN_FOR_READING | O_DIRECTORY | more;
        k.call(nr::OPENAT, [begin.dir, begin.path, flags, 0, 0, 0])
    };
    let result = match open(O_NOATIME) {
        EPERM_RESULT => open(0),
        other => other,
    };
    let Ok(fd) = usize::try_from(result) else { return };
    let mut bytes = [0u8; stat::LEN];
    let at = address_of_mut(&mut bytes);
    let known = k.call(nr::FSTAT, [fd, at, 0, 0, 0, 0]) == 0;
    let parent = Stat::parse(&bytes);
    let Begin { files, fsuid, readers, .. } = *begin;
    let walk = Walk { fd: fd as i32, dev, ino: parent.ino, after, files, fsuid };
    // The root of a file system is no entry of what lies above it.
    let within = known && parent.dev == dev && parent.ino != after;
    if !within || is_made_up(k, fd) || !k.walk(&walk, readers) {
        k.call(nr::CLOSE, [fd, 0, 0, 0, 0, 0]);
    }
}

const EPERM_RESULT: isize = -(EPERM as isize);

/// How many readers keep a device busy whose waits take `wait_ns` and which
/// takes `depth` requests at a time: as many as there is processor time for in
/// one wait. More would only take it from the copy.
pub(crate) fn readers(wait_ns: u64, depth: u32) -> u32 {
    let fill = (wait_ns / READER_NS).min(u64::from(READERS_MAX)) as u32;
    fill.clamp(READERS_MIN, depth.clamp(READERS_MIN, READERS_MAX))
}

/// Whether a directory, by its real descriptor, is of a file system that has
/// nothing to wait for.
pub fn is_made_up<C: Calls>(calls: &mut C, fd: usize) -> bool {
    let mut statfs = [0u64; 15];
    let at = address_of_mut(&mut statfs);
    calls.call(nr::FSTATFS, [fd, at, 0, 0, 0, 0]) != 0
        || statfs.first().is_none_or(|kind| NOT_READ_AHEAD.contains(kind))
}

/// Length of the directory's part of a path. `None` where the last component is
/// no name.
pub(crate) fn split(path: &[u8]) -> Option<usize> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let start = path.get(..end)?.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    match path.get(start..end)? {
        b"." | b".." => None,
        // The slash stays where it is all of it.
        _ => Some(if start == 1 { 1 } else { start.saturating_sub(1) }),
    }
}

/// Identity of a directory by how it is named.
fn identity(dir: usize, path: &[u8]) -> u64 {
    // FNV-1a; never 0, which stands for none.
    let seed = 0xcbf2_9ce4_8422_2325 ^ dir as u64;
    path.iter().fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
        | 1
}
