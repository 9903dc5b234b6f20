//! The scout: for a program that reads directories and no files, where running
//! it ahead gains nothing that reading ahead would not. It executes none of the
//! program; it is told of the directories that the program reads, and has those
//! read that come next ([`crate::frontier`]).

use crate::abi::*;
use crate::arch::{nr, stat};
use crate::context::{OPEN_FOR_READING, Stat, address_of, address_of_mut};
use crate::frontier::{Ahead, BUFFER_LEN, Entries, Entry};
use crate::kernel::Kernel;
use crate::trial::ARM_NS;
use crate::walk::{Begin, begin_walk, readers, split};
use runahead_protocol::log::Directory;

/// `openat2`'s `RESOLVE_CACHED` (Linux 5.12): fails where a name would have to
/// be looked up.
const RESOLVE_CACHED: u64 = 0x20;

/// Files of one directory that are asked about.
const ASKED_MAX: usize = 4;

/// Directories without one file that the program has looked at, after which it
/// is taken to look at none.
const UNLOOKED_MAX: u32 = 2;

/// Directories asked about until it is taken to look at all: there may be none
/// with files.
const DIRECTORIES_ASKED_MAX: u32 = 4;

/// What came of being told of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// It had been read ahead, and the program did not wait.
    True,
    /// The same, but nobody would have waited.
    InMemory,
    /// It had been, or was about to be, and the program waited still.
    Late,
    /// It had not been.
    Unread,
}

/// What a scout knows of its program. All-zero: nothing.
#[derive(Debug, Default)]
pub struct Scout {
    fsuid: u32,
    /// Useful requests in flight; 0: not known.
    depth: u32,
    /// Whether the program looks at the files of directories, too; `None`: not
    /// known yet.
    files: Option<bool>,
    /// Directories asked about, and those of them of which no file was.
    asked: u32,
    unlooked: u32,
    /// Real descriptor of the directory before, to see which of its files were
    /// looked at.
    before: Option<usize>,
}

impl Scout {
    /// One for a program of this user, on a device that takes `depth` requests
    /// at a time (0: not known).
    pub fn new(fsuid: u32, depth: u32) -> Scout {
        Scout { fsuid, depth, ..Scout::default() }
    }

    /// The program has read a directory. `path` is its path, ended by NUL,
    /// where it waited.
    pub fn came_to<K: Kernel>(
        &mut self,
        k: &mut K,
        directory: &Directory,
        path: Option<&mut [u8]>,
    ) -> Came {
        let &Directory { dev, ino, waited_ns } = directory;
        let ahead = k.reached(dev, ino);
        let read = ahead != Ahead::Unread;
        if let Some(path) = path
            && is_of(k, directory, path)
        {
            if self.files.is_none() {
                self.ask_about_files(k, path);
            }
            if let Some(files) = self.files.filter(|_| !read) {
                self.begin(k, directory, path, files);
            }
        }
        match (ahead, waited_ns) {
            (Ahead::Unread, _) => Came::Unread,
            (Ahead::Waited, 0) => Came::True,
            (Ahead::InMemory, 0) => Came::InMemory,
            (Ahead::Waited | Ahead::InMemory, _) => Came::Late,
        }
    }

    /// Has what comes behind a directory in its parent read.
    fn begin<K: Kernel>(&self, k: &mut K, directory: &Directory, path: &mut [u8], files: bool) {
        let len = path.iter().position(|byte| *byte == 0).unwrap_or(0);
        let Some(parent_len) = split(path.get(..len).unwrap_or(&[])).filter(|len| *len > 0) else {
            return;
        };
        if let Some(end) = path.get_mut(parent_len) {
            *end = 0;
        }
        let wait_ns = directory.waited_ns;
        let depth = if self.depth == 0 { depth_unknown(wait_ns) } else { self.depth };
        let begin = Begin {
            dir: AT_FDCWD as usize,
            path: address_of(path),
            entry: (directory.dev, directory.ino),
            files,
            fsuid: self.fsuid,
            readers: readers(wait_ns, depth),
        };
        begin_walk(k, &begin);
    }

    /// Looks which files of the directory before the kernel knows by name: those
    /// that the program has looked at. This one is kept for the next look.
    fn ask_about_files<K: Kernel>(&mut self, k: &mut K, path: &[u8]) {
        let mut open = |more: usize| {
            let flags = OPEN_FOR_READING | O_DIRECTORY | more;
            k.call(nr::OPENAT, [AT_FDCWD as usize, address_of(path), flags, 0, 0, 0])
        };
        let mut result = open(O_NOATIME);
        if result < 0 {
            result = open(0);
        }
        let opened = usize::try_from(result).ok();
        let Some(before) = core::mem::replace(&mut self.before, opened) else { return };
        self.asked += 1;
        let looked = looked_at_files(k, before);
        self.unlooked += u32::from(looked == Some(false));
        if looked == Some(true) || self.asked >= DIRECTORIES_ASKED_MAX {
            self.files = Some(true);
        } else if self.unlooked >= UNLOOKED_MAX {
            self.files = Some(false);
        }
        k.call(nr::CLOSE, [before, 0, 0, 0, 0, 0]);
        if self.files.is_some()
            && let Some(fd) = self.before.take()
        {
            k.call(nr::CLOSE, [fd, 0, 0, 0, 0, 0]);
        }
    }
}

/// Whether a path leads to a directory still.
fn is_of<K: Kernel>(k: &mut K, directory: &Directory, path: &[u8]) -> bool {
    let mut bytes = [0u8; stat::LEN];
    let at = address_of_mut(&mut bytes);
    let args = [AT_FDCWD as usize, address_of(path), at, AT_SYMLINK_NOFOLLOW, 0, 0];
    let done = k.call(nr::NEWFSTATAT, args) == 0;
    let stat = Stat::parse(&bytes);
    done && (stat.dev, stat.ino) == (directory.dev, directory.ino)
}

/// Requests at a time of a device of which only the length of a wait is known:
/// one with arms to move takes several milliseconds, and gains little by more.
fn depth_unknown(wait_ns: u64) -> u32 {
    if wait_ns < ARM_NS { crate::READERS_MAX } else { 8 }
}

/// Whether any of a directory's first files is known to the kernel by name;
/// `None`: it has none.
fn looked_at_files<K: Kernel>(k: &mut K, fd: usize) -> Option<bool> {
    let mut buffer = [0u8; BUFFER_LEN];
    let at = address_of_mut(&mut buffer);
    let got = k.call(nr::GETDENTS64, [fd, at, buffer.len(), 0, 0, 0]);
    let entries = buffer.get(..usize::try_from(got).ok()?)?;
    let mut any = None;
    for entry in Entries::of(entries).filter(Entry::is_file).take(ASKED_MAX) {
        let how = [(O_PATH | O_NOFOLLOW | O_CLOEXEC) as u64, 0, RESOLVE_CACHED];
        let args = [fd, address_of(entry.name), address_of(&how), size_of_val(&how), 0, 0];
        match k.call(nr::OPENAT2, args) {
            EAGAIN_RESULT => any = Some(false),
            result => {
                if let Ok(fd) = usize::try_from(result) {
                    k.call(nr::CLOSE, [fd, 0, 0, 0, 0, 0]);
                }
                // Known; or nobody says, before Linux 5.12.
                return Some(true);
            }
        }
    }
    any
}

const EAGAIN_RESULT: isize = -(EAGAIN as isize);
