//! Directories that are read ahead of a speculative process which walks a
//! tree. One that follows a program through names alone waits for each
//! directory's inode, for its entries and for the inodes of its files, one
//! after the other; the next directories of the walk are known from their
//! parent's entries and need no execution to be asked for, all at a time.
//!
//! The [`Frontier`] is what *readers* (threads of the copy) share: the
//! directories that are to be read next, in the order of the walk, and which
//! were. [`read`] is what a reader does with one. What it reads it forgets: the
//! kernel's caches of inodes and entries are what is filled.

use crate::abi::*;
use crate::arch::nr;
use crate::context::{OPEN_FOR_READING, address_of, address_of_mut};
use crate::kernel::Calls;

/// Directories waiting to be read. More are left to the walk itself.
pub const TASKS_MAX: usize = 512;

/// Directories open at a time, each because some of its children are waiting.
pub const OPEN_MAX: usize = 96;

/// Longest name, in bytes, of a directory that is read ahead.
pub const NAME_MAX: usize = 87;

/// Directories that may have been read and not been come to yet: what is read
/// for nothing where the walk leaves the tree out.
pub const LEAD_MAX: u64 = 128;

/// Directories in a row that were in memory already, after which a tree is taken
/// to be there: no more of it is read ahead until the walk waits again.
pub const IN_MEMORY_MAX: u32 = 32;

/// Directories remembered as those that walks began in.
const ROOTS_MAX: usize = 4;

/// Directories remembered as read.
const READ_MAX: usize = 2048;

/// Of those, such that share a place: [`LEAD_MAX`] and what was come to lately
/// are kept, whatever their numbers.
const READ_WAYS: usize = 8;

/// Entries of one directory whose attributes are asked for.
const FILES_MAX: usize = 4096;

/// Reads of one directory's entries, of some 150 names each: what lies behind
/// them in a larger one is left to the walk.
const CALLS_MAX: usize = 1024;

/// A reader's buffer for entries, in bytes.
pub const BUFFER_LEN: usize = 6 * 1024;

/// Sub-directories that are passed on at a time: all that a buffer holds (an
/// entry takes 24 bytes or more).
const BATCH_MAX: usize = BUFFER_LEN / 24;

/// Sub-directories of one directory that are passed on: the last come to be
/// read first, and these are too far ahead. The walk finds them unread.
const PASSED_MAX: usize = 2 * LEAD_MAX as usize;

/// Sub-directories that are sorted together.
const SORTED: usize = 32;

/// `DT_DIR` (getdents(2)).
const DT_DIR: u8 = 4;

/// Fields of `struct linux_dirent64`.
const DIRENT_LEN_AT: usize = 16;
const DIRENT_TYPE_AT: usize = 18;
const DIRENT_NAME_AT: usize = 19;

/// `struct statx`, as far as it is looked at (statx(2)).
const STATX_LEN: usize = 256;
const STATX_ATTRIBUTES_AT: usize = 8;
const STATX_UID_AT: usize = 20;
const STATX_MODE_AT: usize = 28;
const STATX_DEV_AT: usize = 136;
/// `STATX_BASIC_STATS`.
const STATX_BASIC: usize = 0x7ff;
/// `AT_NO_AUTOMOUNT`: looking ahead mounts nothing.
const AT_NO_AUTOMOUNT: usize = 0x800;
/// `STATX_ATTR_AUTOMOUNT`: a directory on which opening it would mount something.
const STATX_AUTOMOUNT: u32 = 0x1000;

/// Where a walk is to be gone on with, ahead of the program.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// Real descriptor of a directory, given away.
    pub fd: i32,
    /// Device of it (`st_dev`): no other one is gone to.
    pub dev: u64,
    /// Inode number of the directory.
    pub ino: u64,
    /// Inode number of the entry that the program is at: what comes behind it
    /// is read.
    pub after: u64,
    /// The attributes of files will be wanted, too.
    pub files: bool,
    /// User for file system checks: whose directories need no change of their
    /// access time.
    pub fsuid: u32,
}

/// The walk has come to it since.
const REACHED: u64 = 1;
/// Its reader waited for it.
const WAITED: u64 = 2;

fn is_of(slot: u64, ino: u64) -> bool {
    slot & !(REACHED | WAITED) == ino << 2
}

/// What was done of a directory ahead of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// Nothing: it was not read.
    Unread,
    /// It was read and had been in memory: the walk would not have waited.
    InMemory,
    /// It was read, and waited for; or is being read.
    Waited,
}

/// A name that is kept for later.
#[derive(Clone, Copy, Debug)]
struct Name([u8; NAME_MAX + 1]);

impl Name {
    const EMPTY: Name = Name([0; NAME_MAX + 1]);

    fn new(bytes: &[u8]) -> Option<Name> {
        let mut name = Name::EMPTY;
        // One byte stays 0, for the kernel.
        name.0.get_mut(..NAME_MAX)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(name)
    }
}

/// A directory that is open because of what is to be read below it.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Real descriptor plus 1; 0: the slot is free.
    fd_plus1: i32,
    /// Tasks and readers that need it; 0: it is to be closed.
    users: u16,
}

impl Open {
    fn is_to_be_closed(&self) -> bool {
        self.users == 0 && self.fd_plus1 != 0
    }
}

/// A directory that is to be read.
#[derive(Clone, Copy, Debug)]
struct Task {
    /// Index of the open directory that it is in.
    parent: u8,
    ino: u64,
    name: Name,
}

/// What a reader is to do.
#[derive(Clone, Copy, Debug)]
pub enum Job {
    /// Read the rest of the directory that the walk began in, behind the entry
    /// of this inode number.
    Rest(Within, u64),
    /// Read this directory, of this inode number.
    Directory(Within, u64),
    /// Close a descriptor that nobody needs any more.
    Close(i32),
}

/// A name in an open directory.
#[derive(Clone, Copy, Debug)]
pub struct Within {
    /// Index of the open directory.
    parent: u8,
    /// Its real descriptor.
    fd: i32,
    name: Name,
    dev: u64,
    fsuid: u32,
    files: bool,
}

/// The directories of a walk that are to be read next.
#[derive(Debug)]
pub struct Frontier {
    /// A stack, so that what is read is what a walk in depth comes to first.
    tasks: [Task; TASKS_MAX],
    count: u16,
    open: [Open; OPEN_MAX],
    /// Inode numbers of directories read, each in the set of its hash; four
    /// times, and [`REACHED`] and [`WAITED`] more.
    read: [[u64; READ_WAYS]; READ_MAX / READ_WAYS],
    /// Directories read since one was waited for.
    in_memory: u32,
    /// Directories read, and those of them that the walk came to.
    ahead: u64,
    used: u64,
    /// The beginning of a walk, not taken by a reader yet.
    begun: Option<u64>,
    begun_at: u8,
    dev: u64,
    /// Inode numbers of the directories that walks began in last.
    roots: [u64; ROOTS_MAX],
    /// The walk has come to a directory that was read since it was begun.
    came_true: bool,
    fsuid: u32,
    files: bool,
}

impl Frontier {
    /// An empty one.
    pub const EMPTY: Frontier = Frontier {
        tasks: [Task { parent: 0, ino: 0, name: Name::EMPTY }; TASKS_MAX],
        count: 0,
        open: [Open { fd_plus1: 0, users: 0 }; OPEN_MAX],
        read: [[0; READ_WAYS]; READ_MAX / READ_WAYS],
        in_memory: 0,
        ahead: 0,
        used: 0,
        begun: None,
        begun_at: 0,
        dev: 0,
        roots: [0; ROOTS_MAX],
        came_true: false,
        fsuid: 0,
        files: false,
    };

    /// Begins a walk, or goes on with one that has come to what was not read.
    /// What was read and not come to is no longer waited for, and what was to
    /// be read besides is forgotten, unless some of that was come to: a program
    /// may walk two trees by turns. False: there is no room, the descriptor
    /// stays the caller's.
    pub fn begin(&mut self, walk: &Walk) -> bool {
        let other = walk.dev != self.dev;
        if !self.came_true || other {
            self.forget();
        }
        if self.begun.take().is_some() {
            self.leave(self.begun_at);
        }
        if other {
            self.read = Frontier::EMPTY.read;
            self.roots = [0; ROOTS_MAX];
        }
        // All of it is read where the walk comes back to it with a directory that
        // was not: its order is another than that of the entries.
        let again = self.roots.contains(&walk.ino);
        let after = if again { 0 } else { walk.after };
        let Some(parent) = self.enter(walk.fd) else { return false };
        if !again {
            self.roots.rotate_right(1);
            self.roots[0] = walk.ino;
        }
        (self.begun, self.begun_at) = (Some(after), parent);
        (self.dev, self.fsuid, self.files) = (walk.dev, walk.fsuid, walk.files);
        (self.used, self.came_true, self.in_memory) = (self.ahead, false, 0);
        true
    }

    /// Forgets what was to be read.
    pub fn forget(&mut self) {
        while let Some(task) = self.pop() {
            self.leave(task.parent);
        }
    }

    /// The next thing to do; `None`: nothing, for now.
    pub fn take(&mut self) -> Option<Job> {
        // Descriptors first: there are few.
        if let Some(open) = self.open.iter_mut().find(|open| open.is_to_be_closed()) {
            return Some(Job::Close(core::mem::take(&mut open.fd_plus1) - 1));
        }
        if let Some(after) = self.begun.take() {
            return Some(Job::Rest(self.within(self.begun_at, Name::EMPTY), after));
        }
        if !self.goes_on() {
            return None;
        }
        while let Some(task) = self.pop() {
            let slot = self.slot(task.ino);
            if is_of(*slot, task.ino) {
                self.leave(task.parent);
                continue;
            }
            // Believed until it has been read.
            *slot = task.ino << 2 | WAITED;
            self.ahead += 1;
            return Some(Job::Directory(self.within(task.parent, task.name), task.ino));
        }
        None
    }

    /// Whether something is left to be done that needs no more than a reader.
    pub fn is_waiting(&self) -> bool {
        self.begun.is_some()
            || self.open.iter().any(Open::is_to_be_closed)
            || self.count > 0 && self.goes_on()
    }

    /// Whether more directories are to be read ahead for now.
    fn goes_on(&self) -> bool {
        self.ahead.saturating_sub(self.used) < LEAD_MAX && !self.is_in_memory()
    }

    /// Whether the tree is in memory, as far as it has been read.
    pub fn is_in_memory(&self) -> bool {
        self.in_memory >= IN_MEMORY_MAX
    }

    /// The walk itself has come to a directory: what was done of it before.
    pub fn reached(&mut self, dev: u64, ino: u64) -> Ahead {
        if dev != self.dev {
            return Ahead::Unread;
        }
        let slot = self.slot(ino);
        if !is_of(*slot, ino) || ino == 0 {
            return Ahead::Unread;
        }
        let waited = *slot & WAITED != 0;
        if *slot & REACHED == 0 {
            *slot |= REACHED;
            self.used = (self.used + 1).min(self.ahead);
            self.came_true = true;
        }
        if waited { Ahead::Waited } else { Ahead::InMemory }
    }

    /// A directory has been read ahead; `waited`: for storage.
    pub fn was_read(&mut self, ino: u64, waited: bool) {
        self.in_memory = if waited { 0 } else { self.in_memory.saturating_add(1) };
        let slot = self.slot(ino);
        if !waited && is_of(*slot, ino) {
            *slot &= !WAITED;
        }
    }

    /// A directory that was taken could not be read.
    fn unread(&mut self, ino: u64) {
        let slot = self.slot(ino);
        if is_of(*slot, ino) {
            *slot = 0;
            self.ahead = self.ahead.saturating_sub(1);
            self.used = self.used.min(self.ahead);
        }
    }

    /// Directories read ahead of the walk so far.
    pub fn ahead(&self) -> u64 {
        self.ahead
    }

    fn within(&self, parent: u8, name: Name) -> Within {
        let fd = self.open.get(parent as usize).map_or(-1, |open| open.fd_plus1 - 1);
        Within { parent, fd, name, dev: self.dev, fsuid: self.fsuid, files: self.files }
    }

    /// Where a directory is remembered, or is to be: in place of one that was
    /// come to, if all of the set are taken, or of the first.
    #[expect(clippy::indexing_slicing, reason = "the mask and the set's length keep it inside")]
    fn slot(&mut self, ino: u64) -> &mut u64 {
        const SETS: usize = READ_MAX / READ_WAYS;
        const _: () = assert!(SETS.is_power_of_two());
        let hash = ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let set = &mut self.read[hash as usize & (SETS - 1)];
        let at = (set.iter().position(|slot| is_of(*slot, ino)))
            .or_else(|| set.iter().position(|slot| *slot == 0))
            .or_else(|| set.iter().position(|slot| slot & REACHED != 0));
        &mut set[at.unwrap_or(0)]
    }

    fn pop(&mut self) -> Option<Task> {
        self.count = self.count.checked_sub(1)?;
        self.tasks.get(self.count as usize).copied()
    }

    /// Adds a directory in an open one, unless it was read before; whether it
    /// did.
    fn push(&mut self, parent: u8, entry: &Entry<'_>) -> bool {
        if is_of(*self.slot(entry.ino), entry.ino) {
            return false;
        }
        let Some(name) = Name::new(entry.name) else { return false };
        let Some(slot) = self.tasks.get_mut(self.count as usize) else { return false };
        let Some(open) = self.open.get_mut(parent as usize) else { return false };
        *slot = Task { parent, ino: entry.ino, name };
        open.users = open.users.saturating_add(1);
        self.count += 1;
        true
    }

    /// Keeps a descriptor open for its first user.
    fn enter(&mut self, fd: i32) -> Option<u8> {
        let at = self.open.iter().position(|open| open.fd_plus1 == 0)?;
        *self.open.get_mut(at)? = Open { fd_plus1: fd.checked_add(1)?, users: 1 };
        Some(at as u8)
    }

    /// One user less. A descriptor without any is closed by the next reader.
    fn leave(&mut self, parent: u8) {
        if let Some(open) = self.open.get_mut(parent as usize) {
            open.users = open.users.saturating_sub(1);
        }
    }
}

/// The frontier as its readers share it.
pub trait Shared {
    /// Does something with it, alone.
    fn with<R>(&self, act: impl FnOnce(&mut Frontier) -> R) -> R;

    /// Told after there was something put into it.
    fn filled(&self);
}

/// Does one job. Gives the inode number of the directory that has been read.
pub fn read<C: Calls, S: Shared>(
    calls: &mut C,
    shared: &S,
    job: &Job,
    buffer: &mut [u8],
) -> Option<u64> {
    match job {
        Job::Close(fd) => {
            close(calls, *fd);
            None
        }
        Job::Rest(within, after) => {
            list(calls, shared, within, *after, buffer);
            shared.with(|frontier| frontier.leave(within.parent));
            None
        }
        Job::Directory(within, ino) => {
            let is_read = open(calls, within).is_some_and(|fd| {
                let entered = shared.with(|frontier| frontier.enter(fd));
                match entered {
                    Some(parent) => {
                        let inside = Within { parent, fd, name: Name::EMPTY, ..*within };
                        list(calls, shared, &inside, 0, buffer);
                        shared.with(|frontier| frontier.leave(parent));
                    }
                    None => close(calls, fd),
                }
                entered.is_some()
            });
            shared.with(|frontier| {
                frontier.leave(within.parent);
                if !is_read {
                    frontier.unread(*ino);
                }
            });
            is_read.then_some(*ino)
        }
    }
}

/// Opens a directory where it is one, on the walk's device. Nothing else is
/// opened, nor mounted, whatever has taken its place meanwhile.
fn open<C: Calls>(calls: &mut C, within: &Within) -> Option<i32> {
    let (dir, name) = (within.fd as usize, address_of(&within.name.0));
    let statx = attributes(calls, dir, name)?;
    let number = |at: usize| {
        statx.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b))
    };
    let (major, minor) = crate::context::device_numbers(within.dev);
    let here = (u64::from(number(STATX_DEV_AT)), u64::from(number(STATX_DEV_AT + 4)));
    let mounts = number(STATX_ATTRIBUTES_AT) & STATX_AUTOMOUNT != 0;
    if number(STATX_MODE_AT) & 0xffff & S_IFMT != S_IFDIR || here != (major, minor) || mounts {
        return None;
    }
    let flags = OPEN_FOR_READING | O_DIRECTORY | O_NOFOLLOW;
    let owned = within.fsuid == 0 || within.fsuid == number(STATX_UID_AT);
    let more = if owned { O_NOATIME } else { 0 };
    let result = calls.call(nr::OPENAT, [dir, name, flags | more, 0, 0, 0]);
    i32::try_from(result).ok().filter(|fd| *fd >= 0)
}

/// Asks for the attributes of a name, not following it.
fn attributes<C: Calls>(calls: &mut C, dir: usize, name: usize) -> Option<[u8; STATX_LEN]> {
    let mut statx = [0u8; STATX_LEN];
    let at = address_of_mut(&mut statx);
    let flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;
    let result = calls.call(nr::STATX, [dir, name, flags, STATX_BASIC, at, 0]);
    (result == 0).then_some(statx)
}

fn close<C: Calls>(calls: &mut C, fd: i32) {
    calls.call(nr::CLOSE, [fd as usize, 0, 0, 0, 0, 0]);
}

/// Reads the entries behind that of inode number `after` (all where it is 0, or
/// not there; [`CALLS_MAX`] reads of them), and the attributes of the files among them; passes the
/// directories on.
fn list<C: Calls, S: Shared>(
    calls: &mut C,
    shared: &S,
    within: &Within,
    after: u64,
    buffer: &mut [u8],
) {
    let fd = within.fd as usize;
    let mut found = after == 0;
    let (mut passed, mut files) = (0, 0);
    for _ in 0..2 {
        let mut ended = false;
        for _ in 0..CALLS_MAX {
            let at = address_of_mut(buffer);
            let got = calls.call(nr::GETDENTS64, [fd, at, buffer.len(), 0, 0, 0]);
            let Some(entries) =
                usize::try_from(got).ok().filter(|got| *got > 0).and_then(|got| buffer.get(..got))
            else {
                ended = true;
                break;
            };
            let from = if found { Some(0) } else { behind(entries, after) };
            let Some(entries) = from.and_then(|from| entries.get(from..)) else { continue };
            found = true;
            if passed < PASSED_MAX {
                passed += pass_on(shared, within.parent, entries, PASSED_MAX - passed);
            }
            if within.files && files < FILES_MAX {
                files += look(calls, fd, entries);
            }
        }
        if found || !ended {
            return;
        }
        // Not an entry any more: the walk is anywhere.
        found = true;
        calls.call(nr::LSEEK, [fd, 0, SEEK_SET, 0, 0, 0]);
    }
}

/// Where what comes behind the entry of this inode number begins.
fn behind(entries: &[u8], ino: u64) -> Option<usize> {
    let mut entries = Entries::of(entries);
    entries.find(|entry| entry.ino == ino)?;
    Some(entries.at)
}

/// Passes at most `most` of the directories among some entries on, the first of
/// them to be read first: how many. So many at a time in the order of their
/// inodes, which is about that of their places on a disk: entries are in the
/// order of a hash.
fn pass_on<S: Shared>(shared: &S, parent: u8, entries: &[u8], most: usize) -> usize {
    let mut batch = [0u16; BATCH_MAX];
    let mut count = 0;
    let directories = Entries::of(entries).filter(|entry| entry.kind == DT_DIR && !entry.is_dots());
    for (slot, entry) in batch.iter_mut().zip(directories) {
        *slot = entry.at as u16;
        count += 1;
    }
    if count == 0 {
        return 0;
    }
    let entry = |at: &u16| Entries::of(entries.get(*at as usize..).unwrap_or(&[])).next();
    let ino = |at: &u16| entry(at).map_or(0, |entry| entry.ino);
    let passed = shared.with(|frontier| {
        // Where there is no room for all, for those that come first.
        let room = TASKS_MAX.saturating_sub(frontier.count as usize).min(most);
        let batch = batch.get_mut(..count.min(room)).unwrap_or(&mut []);
        let mut passed = 0;
        for run in batch.chunks_mut(SORTED) {
            sort(run, ino);
        }
        for at in batch.iter().rev() {
            passed += usize::from(entry(at).is_some_and(|entry| frontier.push(parent, &entry)));
        }
        passed
    });
    if passed > 0 {
        shared.filled();
    }
    passed
}

/// Sorts a few places by their inode numbers (insertion: core's sorts may
/// panic, and so may its `swap` of two places).
fn sort(run: &mut [u16], ino: impl Fn(&u16) -> u64) {
    for end in 1..run.len() {
        for at in (1..=end).rev() {
            let [before, this] = [at - 1, at].map(|at| run.get(at).map_or(0, &ino));
            if before <= this {
                break;
            }
            if let Some([first, second]) = run.get_mut(at - 1..at + 1) {
                core::mem::swap(first, second);
            }
        }
    }
}

/// Looks at the attributes of the entries that are no directories: how many.
fn look<C: Calls>(calls: &mut C, fd: usize, entries: &[u8]) -> usize {
    let mut looked = 0;
    for entry in Entries::of(entries).filter(Entry::is_file) {
        // The name ends with the kernel's own NUL.
        attributes(calls, fd, address_of(entry.name));
        looked += 1;
    }
    looked
}

/// One entry of a directory.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    ino: u64,
    kind: u8,
    /// Its name, which the kernel's own NUL follows.
    pub name: &'a [u8],
    /// Offset of the entry.
    at: usize,
}

impl Entry<'_> {
    /// Whether it is neither a directory nor one of its dots.
    pub(crate) fn is_file(&self) -> bool {
        self.kind != DT_DIR && !self.is_dots()
    }

    fn is_dots(&self) -> bool {
        matches!(self.name, b"." | b"..")
    }
}

/// Entries as getdents64(2) lays them out; what is no whole entry ends them.
#[derive(Debug)]
pub struct Entries<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Entries<'a> {
    /// Those in what the call has written.
    pub fn of(bytes: &'a [u8]) -> Entries<'a> {
        Entries { rest: bytes, at: 0 }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let ino = u64::from_ne_bytes(*self.rest.first_chunk()?);
        let len = u16::from_ne_bytes(*self.rest.get(DIRENT_LEN_AT..)?.first_chunk()?) as usize;
        let kind = *self.rest.get(DIRENT_TYPE_AT)?;
        let name = self.rest.get(DIRENT_NAME_AT..len)?;
        let end = name.iter().position(|byte| *byte == 0)?;
        let at = self.at;
        self.rest = self.rest.get(len..)?;
        self.at += len;
        Some(Entry { ino, kind, name: name.get(..end)?, at })
    }
}
