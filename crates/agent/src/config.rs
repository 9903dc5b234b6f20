//! What the agent knows from its start on, and what forked children inherit of
//! it: the session, the program, and what this process or a parent has done
//! that holds for its children, too. What each process keeps for itself is in
//! [`crate::state`].

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use runahead_protocol::learnt;
use runahead_protocol::log::Log;
use runahead_protocol::reads;
use runahead_protocol::session::SESSION_LEN_MAX;
use runahead_protocol::stats::Header;

use crate::arena::RING_WORDS;
use crate::import::Desk;
use crate::lease::Lease;

/// Logs used in turn, so that a dying speculative process cannot write into
/// that of the next. Two more than two: after a page fault no wait follows in
/// which the last one could die, and the one before it is reaped only beside
/// the start of the next.
pub const LOGS: usize = 4;

/// Files locked by their description that are kept track of; with more, the
/// program is not speculated for any more.
pub const LOCKED_MAX: usize = 16;

/// What an allocator may write at the beginning of memory that is given back to it, in
/// bytes (glibc: two pointers, and two more in a large chunk).
pub const ALLOCATORS: usize = 32;

/// Shortest read of which the bytes behind these tell whether it brought text.
pub const READ_MIN: usize = 96;

/// Children by vfork(2) that may have restricted themselves and not executed a program
/// yet; with more, their parent does without the agent, too.
pub const SILENT_MAX: usize = 4;

/// Longest path of the agent library, in bytes.
pub const AGENT_PATH_LEN_MAX: usize = 512;

/// Fixed at start.
#[derive(Debug)]
pub struct Config {
    /// A [`runahead_protocol::session::Mode`] as a number.
    pub mode: AtomicU32,
    /// `TEST_*` bits of the session.
    pub test: AtomicU64,
    /// Time-stamp counter ticks per µs; 0: use the clock.
    pub ticks_per_us: AtomicU64,
    /// Prefetch horizon asked for by the user; 0: worked out.
    pub horizon: AtomicU64,
    /// Depth asked for by the user; 0: worked out.
    pub depth: AtomicU32,
    /// The program may not make calls that it did not mean to make (a seccomp
    /// filter of its own): this process and its children are left alone.
    pub forbidden: AtomicU32,
    /// Children by vfork(2) that have restricted themselves likewise, and what they
    /// fork. Here, because the kernel empties a forked child's [`crate::state`].
    pub silent: [Lease; SILENT_MAX],
    /// 1: there are or were such children.
    pub silenced: AtomicU32,
    /// 1: this process or a parent has attached System V shared memory, which
    /// counts its attachments, or has mapped a device, which is in use then.
    pub attaches: AtomicU32,
    /// 1: this process or a parent has used something that a second process would
    /// disturb.
    pub delicate: AtomicU32,
    /// 1: this process or a parent has got another root directory (chroot(2),
    /// pivot_root(2)), where the paths of ours may lead to anything.
    pub other_root: AtomicU32,
    /// 1: this process or a parent has said that it reads a file at random
    /// (posix_fadvise(2), POSIX_FADV_RANDOM): none of its descriptions gets other advice.
    pub reads_at_random: AtomicU32,
    /// 1: this process or a parent is told of what is done to files (inotify(7),
    /// fanotify(7), F_NOTIFY).
    pub watches: AtomicU32,
    /// Inode numbers of files that this process or a parent has locked by
    /// their description; 0: free.
    pub locked: [AtomicU64; LOCKED_MAX],
    /// The table of executables, its path and NUL; empty: none.
    pub learnt: Text<{ learnt::PATH_LEN_MAX + 1 }>,
    /// That table, mapped by this process or a parent, or null. Forked children
    /// inherit it; speculative processes cover it.
    pub table: AtomicPtr<learnt::Table>,
    /// Whose it is: the user that it was mapped as.
    pub table_user: AtomicU32,
    /// Key of the executable in that table, which is a forked child's, too; 0: not
    /// asked yet.
    pub executable: AtomicU64,
    /// Where the last read that was waited for, and brought [`READ_MIN`] bytes or more, has
    /// put them; 0: nowhere yet. For a copy, which may find them overwritten.
    pub read_to: AtomicUsize,
    /// Arguments that the program was given, its name counted; 0: unknown.
    pub arguments: AtomicUsize,
    /// Statistics file, or null.
    pub stats: AtomicPtr<Header>,
    /// Where reads are recorded, or null: they are not.
    pub reads: AtomicPtr<reads::Header>,
    /// The logs, shared with speculative processes, or null. In memory that
    /// forked children keep, so that they can cover them.
    pub logs: [AtomicPtr<Log>; LOGS],
    /// What importing copies share with the aide, or null. Forked children
    /// cover it as they do the logs.
    pub desk: AtomicPtr<Desk>,
    /// First address of the agent's room ([`crate::arena`]).
    pub room: AtomicUsize,
    /// Which scratches are mapped, in this process or since a parent: a bit each.
    pub scratches: AtomicU32,
    /// Which rings are mapped ([`crate::arena`]), or were in the parent: a bit each. Its
    /// children do not get them, and have holes in their places.
    pub rings: [AtomicU64; RING_WORDS],
    /// Whether the window is mapped ([`crate::arena::Window`]), or may have been in the
    /// parent when it forked.
    pub window: AtomicU32,
    /// Parts of the arena that may be the program's by now, in this process and its
    /// children: a bit each.
    pub lost: AtomicU32,
    /// The program has said what its children get of its memory (madvise(2)):
    /// nothing is marked there any more, in this process and its children.
    pub advised: AtomicU32,
    /// 1: the signal of notices was ignored when this process or a parent took it,
    /// and is to be so again in what it executes.
    pub notice_ignored: AtomicU32,
    /// 1: importing copies may be made.
    pub imports: AtomicU32,
    /// 1: the program's library makes calls that no hook sees: in tier T0, where
    /// a site was not as the table says, and where the table says so.
    pub unseen: AtomicU32,
    /// 1: the program's library is musl, which closes inside itself at a site that
    /// must not be patched, and has the notices' signal for its timers.
    pub is_musl: AtomicU32,
    /// 1: somebody else's filter looks at the calls of this process (seccomp(2)):
    /// none is made for convenience.
    pub filtered: AtomicU32,
    /// The process's first thread ([`crate::arch::thread_pointer`]), or that of
    /// a parent.
    pub first_thread: AtomicUsize,
    /// 1: the program has said who may look at it (`PR_SET_PTRACER`), or a
    /// parent has.
    pub says_tracer: AtomicU32,
    /// 1: this process or a parent has called ptrace(2), or was traced when it began.
    pub traces: AtomicU32,
    /// First address of the agent's own image.
    pub image_start: AtomicUsize,
    /// Address after it.
    pub image_end: AtomicUsize,
    /// Bytes that the agent's file has at least.
    pub agent_len: AtomicUsize,
    /// The session's variable, name, text and NUL, to be handed on at exec.
    pub session: Text<{ SESSION_LEN_MAX + 32 }>,
    /// `LD_PRELOAD=`, the agent's path and NUL, to be handed on at exec.
    pub preload: Text<{ AGENT_PATH_LEN_MAX + 16 }>,
}

/// Bytes written once at start, while the process has one thread.
#[derive(Debug)]
pub struct Text<const MAX: usize> {
    len: AtomicUsize,
    bytes: UnsafeCell<[u8; MAX]>,
}

// SAFETY: written by `set` only, which start-up calls once before the process
// can have a second thread; read-only afterwards.
unsafe impl<const MAX: usize> Sync for Text<MAX> {}

impl<const MAX: usize> Text<MAX> {
    const fn new() -> Self {
        Text { len: AtomicUsize::new(0), bytes: UnsafeCell::new([0; MAX]) }
    }

    /// Keeps `parts`, joined; false where they are too long.
    ///
    /// # Safety
    /// Only while the process has one thread and nobody holds [`Text::get`].
    pub unsafe fn set(&self, parts: &[&[u8]]) -> bool {
        // SAFETY: exclusive, as the caller promises.
        let bytes = unsafe { &mut *self.bytes.get() };
        let mut len = 0;
        for part in parts {
            let Some(room) = bytes.get_mut(len..len + part.len()) else { return false };
            room.copy_from_slice(part);
            len += part.len();
        }
        self.len.store(len, Relaxed);
        true
    }

    /// The text; empty before `set`.
    pub fn get(&self) -> &[u8] {
        // SAFETY: not written any more once it is read (see `set`).
        let bytes = unsafe { &*self.bytes.get() };
        bytes.get(..self.len.load(Relaxed)).unwrap_or(&[])
    }
}

/// The one configuration.
pub static CONFIG: Config = Config {
    mode: AtomicU32::new(0),
    test: AtomicU64::new(0),
    ticks_per_us: AtomicU64::new(0),
    horizon: AtomicU64::new(0),
    depth: AtomicU32::new(0),
    forbidden: AtomicU32::new(0),
    silent: [const { Lease::free() }; SILENT_MAX],
    silenced: AtomicU32::new(0),
    attaches: AtomicU32::new(0),
    delicate: AtomicU32::new(0),
    other_root: AtomicU32::new(0),
    reads_at_random: AtomicU32::new(0),
    watches: AtomicU32::new(0),
    locked: [const { AtomicU64::new(0) }; LOCKED_MAX],
    learnt: Text::new(),
    table: AtomicPtr::new(core::ptr::null_mut()),
    table_user: AtomicU32::new(0),
    executable: AtomicU64::new(0),
    read_to: AtomicUsize::new(0),
    arguments: AtomicUsize::new(0),
    stats: AtomicPtr::new(core::ptr::null_mut()),
    reads: AtomicPtr::new(core::ptr::null_mut()),
    logs: [const { AtomicPtr::new(core::ptr::null_mut()) }; LOGS],
    desk: AtomicPtr::new(core::ptr::null_mut()),
    room: AtomicUsize::new(0),
    scratches: AtomicU32::new(0),
    rings: [const { AtomicU64::new(0) }; RING_WORDS],
    window: AtomicU32::new(0),
    lost: AtomicU32::new(0),
    // Until the memory calls are hooked, nobody would hear of such advice.
    advised: AtomicU32::new(1),
    notice_ignored: AtomicU32::new(0),
    imports: AtomicU32::new(1),
    unseen: AtomicU32::new(0),
    is_musl: AtomicU32::new(0),
    filtered: AtomicU32::new(0),
    first_thread: AtomicUsize::new(0),
    says_tracer: AtomicU32::new(0),
    traces: AtomicU32::new(0),
    image_start: AtomicUsize::new(0),
    image_end: AtomicUsize::new(0),
    agent_len: AtomicUsize::new(0),
    session: Text::new(),
    preload: Text::new(),
};

/// While testing, every read counts as a stall
/// ([`TEST_EVERY_READ_STALLS`](runahead_protocol::session::TEST_EVERY_READ_STALLS)).
pub fn stalls_always() -> bool {
    CONFIG.test.load(Relaxed) & runahead_protocol::session::TEST_EVERY_READ_STALLS != 0
}
