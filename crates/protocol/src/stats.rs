//! Statistics: every process under one `runahead` adds its counters to a
//! memory file that the collector holds, so that nothing stays behind in any
//! file system.
//!
//! A [`Header`] page, then [`SLOTS_MAX`] [`Slot`]s. A process takes the next
//! slot; the last slot is shared by all that come later. All counters only
//! grow.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// First eight bytes of the file: "RASTATS" and the version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RASTATS\x01");

/// Slots in the file.
pub const SLOTS_MAX: usize = 4096;

/// Size of the file in bytes.
pub const FILE_LEN: usize = size_of::<Header>() + SLOTS_MAX * size_of::<Slot>();

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident),+ $(,)?) => {
        /// What is counted; the index into [`Slot::counters`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter { $($(#[$doc])* $variant),+ }

        impl Counter {
            /// Every counter, in order.
            pub const ALL: &'static [Counter] = &[$(Counter::$variant),+];
        }
    };
}

counters! {
    /// Reads of regular files seen while stalls were looked for.
    Reads,
    /// Reads that waited for storage.
    Stalls,
    /// Time of those waits, in ns.
    StallNs,
    /// Stalls that were not predicted.
    StallsUnpredicted,
    /// Prefetch requests issued by speculative processes.
    PrefetchesIssued,
    /// Bytes of them.
    PrefetchedBytes,
    /// Prefetched ranges that were complete when the program asked.
    PrefetchesFull,
    /// Prefetched ranges that were still in flight when the program asked.
    PrefetchesPartial,
    /// Prefetched ranges that the program never asked for.
    PrefetchesUnused,
    /// Synchronisations begun.
    SyncsAttempted,
    /// Synchronisations that made a speculative process.
    SyncsCompleted,
    /// Time of the normal process in synchronisations, in ns.
    SyncNs,
    /// Synchronisations that the policy declined.
    SyncsDeclined,
    /// Reads that speculative processes predicted and the program then made.
    ReadsPredicted,
    /// CPU time of speculative processes, in µs.
    SpeculativeCpuUs,
    /// Largest resident set of a speculative process, in KiB (a maximum).
    SpeculativePeakKib,
    /// Major faults of the program.
    MajorFaults,
    /// Minor faults of the program, copy-on-write faults among them.
    MinorFaults,
    /// `syscall` sites that were patched.
    SitesPatched,
    /// Sites that were known but whose bytes differed or could not be patched.
    SitesRefused,
    /// Latency of a prefetch as last smoothed, in ns (not a sum).
    DeviceLatencyNs,
    /// Throughput of prefetches as last smoothed, in bytes/s (not a sum).
    DeviceBytesPerS,
    /// Useful requests in flight as last found (not a sum).
    DeviceParallelism,
    /// Prefetch horizon as last worked out, in reads (not a sum).
    DeviceHorizon,
    /// Runs prefetched behind stalls of sequential streams.
    StreamRuns,
    /// Bytes of them.
    StreamBytes,
    /// Times that speculation was switched off by the policy.
    DisabledCount,
    /// Time for which it was off, in ns.
    DisabledNs,
    /// Major faults of which the program's threads were given notice.
    FaultNotices,
    /// Of those, by watching the program wait.
    FaultNoticesWatched,
    /// Synchronisations that made an importing copy.
    SyncsImporting,
    /// Pages that importing copies brought in.
    PagesImported,
    /// Swapped pages whose read a speculative process started.
    SwapPrefetches,
    /// Of those, pages that the program came to.
    SwapPrefetchesUsed,
    /// Pages of files that speculative processes gave back behind the program.
    PagesReleased,
    /// Of those, pages that were read again.
    PagesReturned,
}

/// Room for counters in a slot.
pub const COUNTERS_MAX: usize = 40;

macro_rules! parks {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// Why a speculative process stopped; the index into
        /// [`Slot::parked`] and the keys of `speculation.parked`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Park { $($(#[$doc])* $variant),+ }

        impl Park {
            /// Every reason, in order.
            pub const ALL: &'static [Park] = &[$(Park::$variant),+];

            /// The key in the statistics.
            pub const fn name(self) -> &'static str {
                match self { $(Park::$variant => $name),+ }
            }

            /// The reason with this index, or [`Park::Unknown`].
            pub fn from_index(index: u32) -> Park {
                Park::ALL.get(index as usize).copied().unwrap_or(Park::Unknown)
            }
        }
    };
}

parks! {
    /// No reason was recorded.
    Unknown = "unknown",
    /// The normal process was off its track and made a new one.
    OffTrack = "off_track",
    /// It ran behind the normal process for too long.
    Behind = "behind",
    /// It needs data of a pipe, socket, terminal or queue.
    NeedsInput = "needs_input",
    /// It waits for another thread or process.
    NeedsOther = "needs_other",
    /// It executes another program.
    Exec = "exec",
    /// It ends.
    Exit = "exit",
    /// It starts a thread or a process.
    Fork = "fork",
    /// A system call that is not in the table.
    UnknownCall = "unknown_call",
    /// A system call of the table that cannot be answered with these
    /// arguments.
    Unanswerable = "unanswerable_call",
    /// An invalid access or instruction: it computed on missing data.
    Fault = "fault",
    /// A wild pointer handed to a system call.
    BadPointer = "bad_pointer",
    /// One of its own fixed tables is full.
    TableFull = "table_full",
    /// It used up its processor time.
    CpuLimit = "cpu_limit",
    /// It used up its memory.
    MemoryLimit = "memory_limit",
    /// The descriptor could not be opened again, or is another file by now.
    Reopen = "reopen",
    /// It sends a signal or has one delivered.
    Signal = "signal",
    /// The program ended or executed another one.
    ProgramEnded = "program_ended",
    /// A broken assertion of our own.
    Bug = "bug",
    /// Far enough ahead in pages, and no aide to say how far the program has
    /// come.
    NoAide = "no_aide",
    /// It cost more than it was worth, in memory, processors or waits elsewhere.
    Disabled = "disabled",
    /// The stalled thread's stack is shared memory, or memory that children do not get.
    Stack = "stack",
}

/// Room for reasons in a slot.
pub const PARKS_MAX: usize = 32;

macro_rules! losses {
    ($($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)?) => {
        /// What a process could not do under Runahead; the bit in
        /// [`Slot::losses`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Loss { $($(#[$doc])* $variant),+ }

        impl Loss {
            /// Every loss, in order.
            pub const ALL: &'static [Loss] = &[$(Loss::$variant),+];

            /// One line: what was lost and why.
            pub const fn text(self) -> &'static str {
                match self { $(Loss::$variant => $text),+ }
            }
        }
    };
}

losses! {
    /// The libc is not in the site table.
    UnknownLibc = "its C library is not in the site table: calls were hooked by symbol only",
    /// Patching was refused.
    PatchRefused = "patching was refused (memory-deny-write-execute or SELinux): calls were hooked by symbol only",
    /// Neither tier worked.
    NoHooks = "no call could be hooked: it ran plainly",
    /// The program has a seccomp filter.
    Seccomp = "it runs under a seccomp filter: it ran plainly",
    /// The program is being traced.
    Traced = "it is being traced by a debugger: no speculation",
    /// Not dumpable: descriptors cannot be opened again.
    NotDumpable = "it is not dumpable, so its descriptors cannot be opened again: no speculation",
    /// /proc is not there.
    NoProc = "/proc is not mounted: no speculation",
    /// The program uses leases, inotify or io_uring, huge pages of its own, or direct I/O
    /// on an old kernel.
    Delicate = "it uses leases, inotify, io_uring, userfaultfd, huge pages (hugetlb) of its own or, before Linux 6.5, direct or asynchronous I/O, which a second process could disturb: no speculation",
    /// The program makes or enters namespaces.
    Namespace = "it makes or enters namespaces, whose first process must be its own: no speculation",
    /// No notice of page faults.
    NoNotice = "it gets no notice of page faults (perf events forbidden, or with musl, and it cannot be watched instead): no speculation from them",
    /// Too many processes allowed for the user.
    ProcessLimit = "a process could not be made (RLIMIT_NPROC, a pids cgroup or memory): no speculation",
    /// `--record` and a limit on addresses, or no memory.
    NotRecorded = "its reads are not recorded: its addresses are limited (RLIMIT_AS), or there was no memory",
    /// Hardly any memory is left to the program's cgroup.
    NoRoom = "its memory cgroup left less than 8 MiB for a copy: no speculation meanwhile; raise its limit (memory.max)",
    /// The OOM killer would not take a copy alone.
    EndedTogether = "its memory cgroup is ended as a whole, or waits, where memory runs out: no speculation; set memory.oom.group (version 1: memory.oom_control) to 0",
    /// The OOM killer might take the program before its copy.
    Outweighs = "it has mapped files that are charged to other memory cgroups, more of them than its own cgroup leaves room for: where memory runs out it might be ended before its copy; no speculation meanwhile; raise its limit (memory.max)",
    /// Files on a server are told of closes.
    Told = "it had a file open for writing whose server or driver is told of each close (FUSE, SMB, input devices), a copy's too: no speculation meanwhile",
    /// The kernel tells the program of its own calls.
    Dispatch = "the kernel tells it of system calls by where they are made (PR_SET_SYSCALL_USER_DISPATCH): it ran plainly from then on",
}

/// Intervals of memory control that are kept for each process: its first.
pub const INTERVALS_MAX: usize = 32;

/// What memory control was told of an interval, and its answer. Stalls are in
/// 1/1024 (`policy::memory_control::STALL`).
#[derive(Debug)]
#[repr(C)]
pub struct Interval {
    /// Stalls that this process's speculation added.
    pub added: AtomicU64,
    /// Stalls that it removed.
    pub removed: AtomicU64,
    /// The threshold of then.
    pub threshold: AtomicU64,
    /// A `policy::memory_control::Action` as a number.
    pub action: AtomicU64,
}

/// First part of the file.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// Process id of the program that the user started.
    pub root_pid: AtomicU32,
    /// Slots taken so far; may exceed [`SLOTS_MAX`].
    pub slots_taken: AtomicU32,
    /// Futex word, 1 when the root program is about to end by `exit_group`.
    pub root_exiting: AtomicU32,
    /// Its exit status; valid after `root_exiting`.
    pub root_exit_status: AtomicI32,
    /// Futex word, 1 when the collector has written its report.
    pub collected: AtomicU32,
}

/// Counters of one process.
#[derive(Debug)]
#[repr(C)]
pub struct Slot {
    /// Process id; 0: not taken.
    pub pid: AtomicU32,
    /// Set of bits of [`Loss`].
    pub losses: AtomicU32,
    /// Short name of the program (`comm`), zero-padded, as two words.
    pub name: [AtomicU64; 2],
    /// Indexed by [`Counter`].
    pub counters: [AtomicU64; COUNTERS_MAX],
    /// Indexed by [`Park`].
    pub parked: [AtomicU32; PARKS_MAX],
    /// How often each system call number was the last before
    /// [`Park::UnknownCall`], [`Park::Unanswerable`] or [`Park::Bug`]: the first eight
    /// distinct ones, as `number << 32 | count`.
    pub parked_calls: [AtomicU64; 8],
    /// Intervals logged so far; may exceed [`INTERVALS_MAX`].
    pub intervals_logged: AtomicU64,
    /// The first of them.
    pub intervals: [Interval; INTERVALS_MAX],
}

impl Slot {
    /// Adds to a counter.
    pub fn add(&self, counter: Counter, amount: u64) {
        if let Some(cell) = self.counters.get(counter as usize) {
            cell.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Sets a counter that is not a sum.
    pub fn set(&self, counter: Counter, value: u64) {
        if let Some(cell) = self.counters.get(counter as usize) {
            cell.store(value, Ordering::Relaxed);
        }
    }

    /// Raises a counter that is a maximum.
    pub fn raise(&self, counter: Counter, value: u64) {
        if let Some(cell) = self.counters.get(counter as usize) {
            cell.fetch_max(value, Ordering::Relaxed);
        }
    }

    /// Reads a counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters.get(counter as usize).map_or(0, |cell| cell.load(Ordering::Relaxed))
    }

    /// Counts a parked speculative process; `call` is the number of the
    /// system call that it could not go past, or negative.
    pub fn park(&self, reason: Park, call: i32) {
        if let Some(cell) = self.parked.get(reason as usize) {
            cell.fetch_add(1, Ordering::Relaxed);
        }
        if !matches!(reason, Park::UnknownCall | Park::Unanswerable | Park::Bug) || call < 0 {
            return;
        }
        let key = (call as u64) << 32;
        for cell in &self.parked_calls {
            let seen = cell.load(Ordering::Relaxed);
            if seen == 0 {
                cell.store(key | 1, Ordering::Relaxed);
                return;
            }
            if seen & !0xffff_ffff == key {
                cell.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Logs an interval of memory control.
    pub fn log_interval(&self, added: u64, removed: u64, threshold: u64, action: u64) {
        let number = self.intervals_logged.fetch_add(1, Ordering::Relaxed);
        let Some(cell) = usize::try_from(number).ok().and_then(|n| self.intervals.get(n)) else {
            return;
        };
        cell.added.store(added, Ordering::Relaxed);
        cell.removed.store(removed, Ordering::Relaxed);
        cell.threshold.store(threshold, Ordering::Relaxed);
        cell.action.store(action, Ordering::Relaxed);
    }

    /// The logged intervals: added, removed, threshold, action.
    pub fn logged_intervals(&self) -> impl Iterator<Item = [u64; 4]> {
        let logged = self.intervals_logged.load(Ordering::Relaxed).min(INTERVALS_MAX as u64);
        self.intervals.iter().take(logged as usize).map(|interval| {
            [&interval.added, &interval.removed, &interval.threshold, &interval.action]
                .map(|cell| cell.load(Ordering::Relaxed))
        })
    }

    /// Records a loss.
    pub fn lose(&self, loss: Loss) {
        self.losses.fetch_or(1 << loss as u32, Ordering::Relaxed);
    }
}

const _: () = assert!(Counter::ALL.len() <= COUNTERS_MAX);
const _: () = assert!(Park::ALL.len() <= PARKS_MAX);
const _: () = assert!(Loss::ALL.len() <= 32);
const _: () = assert!(size_of::<Slot>() == 536 + 8 + 32 * INTERVALS_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_distinct_names() {
        for (index, park) in Park::ALL.iter().enumerate() {
            assert_eq!(Park::from_index(index as u32), *park);
            assert!(Park::ALL[..index].iter().all(|other| other.name() != park.name()));
        }
        assert_eq!(Park::from_index(99), Park::Unknown);
    }

    #[test]
    fn parked_calls_keep_the_first_eight() {
        // SAFETY: zero bytes are a valid Slot (all atomics).
        let slot: Slot = unsafe { core::mem::zeroed() };
        for call in 1..20 {
            slot.park(Park::UnknownCall, call);
        }
        slot.park(Park::UnknownCall, 3);
        slot.park(Park::Exit, 231);
        assert_eq!(slot.parked[Park::UnknownCall as usize].load(Ordering::Relaxed), 20);
        assert_eq!(slot.parked_calls[2].load(Ordering::Relaxed), 3 << 32 | 2);
        assert_eq!(slot.parked_calls[7].load(Ordering::Relaxed), 8 << 32 | 1);
    }
}
