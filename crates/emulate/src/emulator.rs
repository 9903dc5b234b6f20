//! The state of a speculative process.

use crate::abi::*;
use crate::arch::stat;
use crate::context::Context;
use crate::descriptors::{Descriptors, File, Kind};
use crate::kernel::Kernel;
use crate::names::Names;
use crate::outcome::Outcome;
use crate::pipes::Pipes;
use crate::prefetch::Prefetcher;
use crate::release::Release;
use crate::residency::{Methods, Oracle};
use crate::walk::Walker;
use runahead_policy::device_limit::DeviceLimit;
use runahead_policy::release;
use runahead_protocol::log::Log;

/// Ranges of memory that the program must not touch with its calls.
pub const PROTECTED_MAX: usize = 32;

/// Signals of Linux.
pub const SIGNALS_MAX: usize = 64;

/// The normal process as the program sees itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Process id.
    pub pid: i32,
    /// Thread id of the thread that was copied.
    pub tid: i32,
    /// Parent's process id.
    pub ppid: i32,
    /// Process group.
    pub pgid: i32,
    /// Session.
    pub sid: i32,
    /// User for file system checks.
    pub fsuid: u32,
    /// Group for file system checks.
    pub fsgid: u32,
}

/// What a speculative process starts with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start {
    /// Who it is taken for.
    pub identity: Identity,
    /// Most bytes that it may map.
    pub memory_max_bytes: u64,
    /// Useful requests in flight as an earlier one found; 0: unknown.
    pub depth: u32,
    /// Blocked signals of the copied thread, bit `n - 1` for signal `n`.
    pub blocked_signals: u64,
    /// The program's last read that waited brought text ([`crate::is_text`]).
    pub reads_text: bool,
    /// Testing: predict other ranges than those read, and compute on other
    /// bytes than those that are there.
    pub always_wrong: bool,
    /// What an earlier one came to about giving back what lies behind the
    /// program (`Log::behind`); `None`: nothing is given back.
    pub release: Option<[u64; release::WORDS]>,
}

/// An offset that nobody has been asked for: it is looked up where it is needed.
/// Larger than any that the kernel gives.
pub const POSITION_UNKNOWN: u64 = u64::MAX;

/// A descriptor of the normal process at the synchronisation.
#[derive(Clone, Copy, Debug)]
pub struct Inherited {
    /// What it refers to; [`Kind::Regular`] and [`Kind::Directory`] are
    /// opened again when needed.
    pub kind: Kind,
    /// Device of the file.
    pub dev: u64,
    /// Its inode number.
    pub ino: u64,
    /// Offset of the description, or [`POSITION_UNKNOWN`].
    pub offset: u64,
    /// Size of the file in bytes.
    pub size: u64,
    /// Mode of the file (`st_mode`); 0: not known.
    pub mode: u32,
    /// `F_GETFL` of the description.
    pub status_flags: u32,
    /// Close-on-exec.
    pub cloexec: bool,
}

/// What a speculative process did, for the statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// System calls emulated.
    pub calls: u64,
    /// Reads of regular files predicted.
    pub reads: u64,
    /// Reads among them that were all in memory.
    pub reads_resident: u64,
    /// Reads among them that the normal process had made before.
    pub reads_behind: u64,
    /// Files opened for real.
    pub opens: u64,
    /// Inherited files that the normal process had closed before they could
    /// be opened again.
    pub files_lost: u64,
    /// Prefetch requests.
    pub prefetches: u64,
    /// Bytes of them.
    pub prefetched_bytes: u64,
    /// Waits at the prefetch horizon.
    pub horizon_waits: u64,
    /// Pauses because the device had enough to do.
    pub device_waits: u64,
    /// Directories come to that had been read ahead.
    pub directories_used: u64,
    /// Bytes written in appearance.
    pub swallowed_bytes: u64,
}

/// A half-open range of addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Range {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Attributes of the file opened last, for the `fstat` that most programs make
/// next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    /// [`crate::descriptors::FileId`] plus 1; 0: none, or answered already.
    pub(crate) file_plus1: u16,
    /// Its `struct stat`.
    pub(crate) attributes: [u8; stat::LEN],
}

impl Opened {
    pub(crate) const NONE: Opened = Opened { file_plus1: 0, attributes: [0; stat::LEN] };
}

/// Everything a speculative process knows. All-zero bytes are a valid state
/// to call [`Emulator::start`] on, so that it can live in fresh memory.
#[derive(Debug)]
pub struct Emulator {
    pub(crate) identity: Identity,
    pub(crate) table: Descriptors,
    pub(crate) names: Names,
    pub(crate) pipes: Pipes,
    pub(crate) walker: Walker,
    pub(crate) prefetcher: Prefetcher,
    pub(crate) release: Release,
    pub(crate) methods: Methods,
    /// The device of which it was asked last whether its directories may be opened.
    pub(crate) directories_dev: u64,
    pub(crate) protected: [Range; PROTECTED_MAX],
    pub(crate) memory_max_bytes: u64,
    pub(crate) mapped_bytes: u64,
    pub(crate) blocked_signals: u64,
    pub(crate) reads_text: bool,
    pub(crate) always_wrong: bool,
    /// Kernel `struct sigaction` of each signal: handler, flags, restorer,
    /// mask. Valid where the bit in `known_actions` is set.
    pub(crate) actions: [[u64; 4]; SIGNALS_MAX],
    pub(crate) known_actions: u64,
    /// `stack_t` as the program set it.
    pub(crate) altstack: [u64; 3],
    /// Real descriptor of `/proc/self/fd`, plus 1; 0: not opened, -1:
    /// cannot be.
    pub(crate) own_fds_plus1: i32,
    /// The same for the normal process.
    pub(crate) normal_fds_plus1: i32,
    /// What the last open learnt.
    pub(crate) opened: Opened,
    /// Misses in a row behind whose first missing page nothing was resident.
    pub(crate) misses_whole: u32,
    /// Files in a row of which nothing was there at their first read.
    pub(crate) files_cold: u32,
    /// Missing files that the program has read in one piece, and then found
    /// the end of by one more read.
    pub(crate) whole_files: u32,
    /// The same in several pieces.
    pub(crate) pieced_files: u32,
    /// A path of the program, or one for the kernel.
    pub(crate) path: [u8; PATH_MAX_BYTES],
    pub(crate) counters: Counters,
}

impl Default for Emulator {
    fn default() -> Emulator {
        Emulator {
            identity: Identity::default(),
            table: Descriptors::EMPTY,
            names: Names::EMPTY,
            pipes: Pipes::EMPTY,
            walker: Walker::default(),
            prefetcher: Prefetcher::empty(),
            release: Release::default(),
            methods: Methods::EMPTY,
            directories_dev: 0,
            protected: [Range::default(); PROTECTED_MAX],
            memory_max_bytes: 0,
            mapped_bytes: 0,
            blocked_signals: 0,
            reads_text: false,
            always_wrong: false,
            actions: [[0; 4]; SIGNALS_MAX],
            known_actions: 0,
            altstack: [0; 3],
            own_fds_plus1: 0,
            normal_fds_plus1: 0,
            opened: Opened::NONE,
            misses_whole: 0,
            files_cold: 0,
            whole_files: 0,
            pieced_files: 0,
            path: [0; PATH_MAX_BYTES],
            counters: Counters::default(),
        }
    }
}

impl Emulator {
    /// Begins a speculation. The state must be fresh.
    pub fn start(&mut self, start: &Start) {
        self.identity = start.identity;
        self.memory_max_bytes = start.memory_max_bytes;
        self.blocked_signals = start.blocked_signals;
        self.reads_text = start.reads_text;
        self.always_wrong = start.always_wrong;
        self.prefetcher.limit = DeviceLimit::new(start.depth);
        self.release.start(start.release);
        // stack_t: ss_flags SS_DISABLE until the program says otherwise.
        self.altstack = [0, 2, 0];
    }

    /// Keeps the program's calls from a range of memory (the agent's own
    /// text, data, gate, log). More than [`PROTECTED_MAX`] are refused:
    /// false.
    pub fn protect(&mut self, address: usize, len: usize) -> bool {
        match self.protected.iter_mut().find(|range| range.end == 0) {
            Some(free) => {
                *free = Range { start: address, end: address.saturating_add(len) };
                true
            }
            None => false,
        }
    }

    /// Adds a descriptor that the normal process has. Numbers beyond the
    /// table are left out: the program gets EBADF for them.
    pub fn inherit(&mut self, fd: i32, inherited: Inherited) {
        let Ok(number) = usize::try_from(fd) else { return };
        if number >= crate::descriptors::DESCRIPTORS_MAX || self.table.id(number).is_ok() {
            return;
        }
        let regular = inherited.kind == Kind::Regular;
        let write_only = inherited.status_flags as usize & O_ACCMODE == O_WRONLY;
        let file = File {
            kind: if regular && write_only { Kind::Sink } else { inherited.kind },
            direct: inherited.status_flags as usize & O_DIRECT != 0,
            inherited_plus1: fd.wrapping_add(1),
            status_flags: inherited.status_flags,
            mode: inherited.mode,
            offset: inherited.offset,
            size: inherited.size,
            dev: inherited.dev,
            ino: inherited.ino,
            stream_next: if inherited.offset == POSITION_UNKNOWN { 0 } else { inherited.offset },
            oracle: Oracle::keeping(self.identity.fsuid == 0),
            ..File::FREE
        };
        if file.kind == Kind::Free {
            return;
        }
        if let Ok(id) = self.table.add_file(file) {
            // Cannot fail: the number was checked.
            let _ = self.table.put(number, id, inherited.cloexec);
        }
    }

    /// Tells the action of a signal that the kernel would now answer
    /// wrongly, because the agent has put a handler of its own there: the
    /// kernel's `struct sigaction` as four words.
    pub fn inherit_action(&mut self, signal: u32, action: [u64; 4]) {
        let index = (signal as usize).wrapping_sub(1);
        if let Some(slot) = self.actions.get_mut(index) {
            *slot = action;
            self.known_actions |= 1 << index;
        }
    }

    /// Emulates one system call of the program.
    pub fn call<K: Kernel>(
        &mut self,
        k: &mut K,
        log: &Log,
        number: usize,
        args: [usize; 6],
    ) -> Outcome {
        self.counters.calls += 1;
        Context { e: self, k, log }.dispatch(number, args).into()
    }

    /// What it did so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
