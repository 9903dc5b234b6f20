//! What the agent remembers of one process: the kernel empties it in a forked
//! child (`MADV_WIPEONFORK`, Linux 4.14). So a child is told from its parent
//! without a system call and without hooking `fork`: its role reads
//! [`role::UNKNOWN`]. What children inherit is in [`crate::config`].
//!
//! A `vfork` child shares the memory of its parent and is told by its process
//! id, on the slow paths only; what it changes on the fast path (descriptor
//! classes) is a guess that is allowed to be wrong.

use crate::normal::bars::BARS_MAX;
use crate::normal::{Control, Scratch};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
use runahead_policy::asking::Asking;
use runahead_policy::competitive::WholeFiles;
use runahead_policy::ration::Ration;
use runahead_policy::readahead::Streams;
use runahead_policy::refork::Refork;
use runahead_protocol::learnt::Table;
use runahead_protocol::log::{Log, life};
use runahead_protocol::stats::{Counter, Loss, Slot};

/// Descriptors that the normal side classifies; higher ones are left alone.
pub const FDS_MAX: usize = 1024;

/// Ended speculative processes that may wait to be reaped.
pub const ZOMBIES_MAX: usize = 4;

/// Threads that get notice of their page faults; more do without.
pub const NOTICED_THREADS_MAX: usize = 64;

/// Large mappings of files that are kept track of; more do without.
pub const AREAS_MAX: usize = 64;

/// Mappings through which files are written that are kept track of; with more, each
/// munmap(2) is taken for the end of one.
pub const WRITTEN_MAX: usize = 16;

/// Children by vfork(2) that may execute programs with many variables in one and the
/// same moment; more do without the agent.
pub const SCRATCHES_MAX: usize = 8;

/// What this process is; [`State::role`].
pub mod role {
    /// Emptied by the kernel: a forked child that has not been looked at, or has done
    /// nothing but try to execute a program ([`super::State::forked`]).
    pub const UNKNOWN: u32 = 0;
    /// A normal process.
    pub const NORMAL: u32 = 1;
    /// A speculative process.
    pub const SPECULATIVE: u32 = 2;
    /// As if the agent were absent.
    pub const OFF: u32 = 3;
}

/// Who decides about or makes a speculative process; [`State::lock`].
pub mod lock {
    /// Nobody.
    pub const FREE: u32 = 0;
    /// A thread.
    pub const HELD: u32 = 1;
    /// The aide, for a thread (`import::handover`).
    pub const HANDED: u32 = 2;
}

/// Whether directories may be read ahead by threads.
pub mod readers {
    /// Not looked at yet.
    pub const UNKNOWN: u32 = 0;
    /// They may.
    pub const SOME: u32 = 1;
    /// Few processes or tasks are allowed.
    pub const NONE: u32 = 2;
}

/// Class of a descriptor: what a read of it can do. A guess that may be out
/// of date; every use of it is right for any file.
pub mod class {
    use runahead_emulate::residency::Method;

    /// Not looked at since it was opened.
    pub const UNKNOWN: u8 = 0;
    /// Not a regular file, or opened with O_DIRECT: left alone.
    pub const OTHER: u8 = 1;
    /// A regular file; `RWF_NOWAIT` answers for it (or has not been asked).
    pub const FILE: u8 = 2;
    /// The same, and all of it has been prefetched at a stall.
    pub const FILE_WHOLE: u8 = 3;
    /// The same, and runs of its streams have been prefetched.
    pub const FILE_STREAM: u8 = 4;
    /// The same, and other processes may read by the description's position:
    /// reads there are not asked about ([`crate::normal::asking`]).
    pub const FILE_SHARED: u8 = 5;
    /// Was open when this process was forked, and not looked at since.
    pub const INHERITED: u8 = 6;
    /// From here on: a regular file whose file system refuses it, plus the
    /// [`Method`] by which it is asked.
    const REFUSED: u8 = 16;

    /// Whether nobody knows yet what a descriptor of `class` is.
    pub fn is_unknown(class: u8) -> bool {
        matches!(class, UNKNOWN | INHERITED)
    }

    /// The class of a file that is asked by `method`.
    pub fn of(method: Method) -> u8 {
        match method {
            Method::MadeUp | Method::Sysfs | Method::Delicate => OTHER,
            method => REFUSED + method as u8,
        }
    }

    /// The method of a class made by [`of`].
    pub fn method(class: u8) -> Option<Method> {
        [Method::Cachestat, Method::Mincore, Method::Blind]
            .into_iter()
            .find(|&method| class == REFUSED + method as u8)
    }
}

/// Whether the aide watches the first thread wait; [`State::watch`].
pub mod watched {
    /// Nobody has asked for it.
    pub const NO: u32 = 0;
    /// It does.
    pub const YES: u32 = 1;
    /// It cannot.
    pub const REFUSED: u32 = 2;
}

/// The process's state; null until the agent has started. By itself, because
/// the stubs of patched sites load it.
pub static STATE: AtomicPtr<State> = AtomicPtr::new(core::ptr::null_mut());

/// What is rationed by measured cost and benefit.
#[derive(Debug)]
pub struct Rations {
    /// Synchronisations.
    pub synchronisations: Ration,
    /// What the kernel's readahead serves.
    pub readahead: Streams,
    /// Prefetches of whole files.
    pub whole_files: WholeFiles,
    /// Memory that speculation may use.
    pub control: Control,
    /// The kind of copy.
    pub refork: Refork,
}

/// Descriptors whose reads are told from each other in [`State::ends`]: `cmp` and
/// `join` read two by turns.
pub const ENDS: usize = 4;

/// A thread that gets notice of its page faults ([`crate::normal`]).
#[derive(Debug)]
pub struct NoticedThread {
    /// [`crate::arch::thread_pointer`]; 0: free.
    pub thread: AtomicUsize,
    /// The mapping that keeps its event alive; 0: the event was refused.
    pub ring: AtomicUsize,
    /// Notices that the event still gives.
    pub left: AtomicU32,
    /// Faults to a notice.
    pub period: AtomicU32,
    /// Notices since the last that led to something.
    pub idle: AtomicU32,
}

/// A range of addresses; empty: free.
#[derive(Debug)]
pub struct Area {
    /// First address.
    pub start: AtomicUsize,
    /// Address after it.
    pub end: AtomicUsize,
    /// The device of the file that is mapped there; 0: none is.
    pub device: AtomicU64,
}

/// Of one process. All-zero is a valid value: what a forked child sees.
#[derive(Debug)]
#[repr(C)]
pub struct State {
    /// One of [`role`].
    pub role: AtomicU32,
    /// Process id for which the state holds.
    pub pid: AtomicU32,
    /// Reads that are still looked at before they are made; 0: the program
    /// finds everything in memory and is left alone until it waits once.
    pub credit: AtomicU32,
    /// Reads since one last waited, while none is asked about.
    pub calm: AtomicU32,
    /// What [`State::unasked`] is at least while reads rest.
    pub skips: AtomicU32,
    /// Since asking last served something: time spent on it, in ns (see
    /// [`runahead_policy::asking`]).
    pub asked_ns: AtomicU64,
    /// How long the ration passes over stalls, in ns, as last heard of it; 0: it
    /// does not, or a copy runs ahead.
    pub passes_over_ns: AtomicU64,
    /// A thread and how often it had slept when that was last looked at
    /// ([`crate::normal`]).
    pub slept: AtomicU64,
    /// Waits that were only timed and of which the ration has not been told, in
    /// ns.
    pub untold_ns: AtomicU64,
    /// What [`State::stalls_ns`] was then; 0: it has served nothing yet.
    pub served_at_ns: AtomicU64,
    /// Reads that the stubs make without telling the hook, before the next
    /// one does; 0 wherever the hook must see them all. Counted down without
    /// a lock: two threads may lose a count between them.
    pub unasked: AtomicU32,
    /// Highest descriptor seen plus one.
    pub fds_end: AtomicU32,
    /// From before the look at the descriptors until the copy, and the aide,
    /// have left the descriptor table: the number of that stay; 0:
    /// nobody is in it. The process's own word: the log's may be noise.
    pub detaching: AtomicU32,
    /// Process id of the speculative process; 0: none. The stubs load it together with
    /// the word before.
    pub speculative: AtomicI32,
    /// Calls beside which no copy may live, of those that are only counted
    /// ([`crate::normal::bars`]).
    pub barred: AtomicU32,
    /// Process id of the aide; 0: none, -1: it cannot be had.
    pub aide: AtomicI32,
    /// Thread that started it ([`crate::arch::thread_pointer`]).
    pub aide_owner: AtomicUsize,
    /// How far a copy has come that is handed over (`import::handover`).
    pub handing: AtomicU32,
    /// Process id of the copy that the aide has made and not noted yet; 0: none.
    pub handed_child: AtomicI32,
    /// 1 where a copy that the ration has been told of came to nothing before
    /// it was there.
    pub abandoned: AtomicU32,
    /// How long it took to make the copy that was handed over last, in ns; 0:
    /// none since that was told to `policy::refork`.
    pub handed_ns: AtomicU64,
    /// Thread whose copy it is ([`crate::arch::thread_pointer`]).
    pub owner: AtomicUsize,
    /// Its log.
    pub log: AtomicPtr<Log>,
    /// 1: it is a scout, which predicts no reads.
    pub scouts: AtomicU32,
    /// Whether directories may be read ahead by threads ([`readers`]).
    pub readers: AtomicU32,
    /// A device whose directories are known not to be made up as they are read;
    /// 0: none.
    pub directories_dev: AtomicU64,
    /// A device, shifted by eight bits, whose file system refuses `RWF_NOWAIT`, and the
    /// [`class`] of its files; 0: none is known.
    pub refused_dev: AtomicU64,
    /// A device, doubled, and whether copy_file_range(2) reads what it copies from
    /// there, or another does it (1, 0); 0: of none it is known.
    pub copies_dev: AtomicU64,
    /// Devices whose files are told of each close.
    pub told_devices: crate::normal::Known,
    /// Stalls that were waits for directories.
    pub directory_stalls: AtomicU32,
    /// Reads made by the owner since the synchronisation.
    pub consumed: AtomicU64,
    /// Entry of the log that belongs to read number `consumed`, minus
    /// `consumed`: moved when one side made a read more than the other.
    pub shift: AtomicU64,
    /// 1: the last read was not predicted, and no file has been found in the log
    /// since: what the number of a read says is not certain.
    pub adrift: AtomicU32,
    /// How often one has, less the stalls that were passed over for that.
    pub found_again: AtomicU32,
    /// Predictions that came true since the synchronisation.
    pub predicted: AtomicU64,
    /// Of those, ranges that had been prefetched.
    pub hits: AtomicU64,
    /// Of those, ranges still in flight.
    pub partial: AtomicU64,
    /// Of the hits, reads that went on where the last of their file had ended.
    pub streamed: AtomicU64,
    /// Hits and those of them that were streamed, when they were compared last.
    pub compared: [AtomicU64; 2],
    /// By descriptor: where its last predicted read ended, see `reads::goes_on`.
    pub ends: [AtomicU64; ENDS],
    /// Of those, pages whose wait was not shorter than any other's.
    pub late: AtomicU64,
    /// Unpredicted faults since that copy was judged, while none runs; the largest
    /// number once it is known to have paid.
    pub since_judged: AtomicU32,
    /// Of those, ones for pages that it had predicted.
    pub late_since_judged: AtomicU64,
    /// Pages that the program had come to when it was judged.
    pub used_when_judged: AtomicU64,
    /// Minor faults of this process when its last copy was made, plus one; 0:
    /// that one has been accounted for.
    pub faults_at_copy: AtomicU64,
    /// Processor time of the owner by then, plus one, in ns; 0: that copy has
    /// been accounted for.
    pub cpu_at_copy_ns: AtomicU64,
    /// 1: that copy was a full one.
    pub made_full: AtomicU32,
    /// Half removed stalls of speculative processes that have ended.
    pub removed_halves: AtomicU64,
    /// Time of the synchronisation, in ns.
    pub since_ns: AtomicU64,
    /// Time of stalls since then, in ns.
    pub stalled_ns: AtomicU64,
    /// One of [`lock`].
    pub lock: AtomicU32,
    /// Which of the stacks of [`crate::apart`] are taken: 1.
    pub apart: [AtomicU32; crate::apart::STACKS_MAX],
    /// Number of synchronisations.
    pub epoch: AtomicU32,
    /// Number of stays in the descriptor table, see [`State::detaching`].
    pub entered: AtomicU32,
    /// The look at a descriptor that is not waited for any more
    /// (`waiting::await_looked`); 0: none.
    pub look_left: AtomicU64,
    /// Processors that this process may use; 0: not asked yet.
    pub cpus: AtomicU32,
    /// Processors that are online, and one; 0: not asked yet.
    pub online_plus1: AtomicU32,
    /// Waits of newly opened files that were timed while one is looked at for
    /// several.
    pub sampled: AtomicU32,
    /// Short waits in a row, timed while reads rest and a processor is idle.
    pub row: AtomicU32,
    /// Stalls asked about in a row at which the kernel's readahead served a stream of
    /// flash.
    pub served_row: AtomicU32,
    /// Descriptors of these streams, a bit each, by their number's last six bits.
    pub served_files: AtomicU64,
    /// Waits that are still only timed after the last of these stalls.
    pub served_waits: AtomicU32,
    /// When idle time was last asked for, in ns; 0: never.
    pub idle_asked_ns: AtomicU64,
    /// The same in ticks of the time-stamp counter.
    pub idle_asked_ticks: AtomicU64,
    /// Idle time then, in 10 ms.
    pub idle_cs: AtomicU64,
    /// The most processor time that this process's copies were seen to have
    /// taken by then, in ns.
    pub idle_copies_ns: AtomicU64,
    /// When this process began, by the time-stamp counter.
    pub started_ticks: AtomicU64,
    /// When runnable threads were last counted, in ns; 0: never.
    pub idle_counted_ns: AtomicU64,
    /// The same in ticks of the time-stamp counter.
    pub idle_counted_ticks: AtomicU64,
    /// How many counts in a row have found more of them than processors.
    pub idle_counts: AtomicU32,
    /// 0: not known yet; 1: a processor was idle lately; 2: none was; 3: none
    /// is, by a count of the runnable threads.
    pub idle_verdict: AtomicU32,
    /// Why there is no speculation in this process: a [`Loss`] plus one; 0:
    /// there is.
    pub disabled: AtomicU32,
    /// What the next speculative process starts from: depth found.
    pub depth: AtomicU32,
    /// Latency found, in ns.
    pub latency_ns: AtomicU64,
    /// Throughput found, in bytes per second.
    pub bytes_per_s: AtomicU64,
    /// Time between two reads of the program, without stalls, in ns.
    pub think_ns: AtomicU64,
    /// Stalls of this process, and their time in ns.
    pub stalls: AtomicU32,
    /// See `stalls`.
    pub stalls_ns: AtomicU64,
    /// The table of executables ([`crate::normal`]), as far as this process may use
    /// it, or null: not asked for yet.
    pub learnt: AtomicPtr<Table>,
    /// 1: there is none to be had, or it is another user's.
    pub learnt_refused: AtomicU32,
    /// When it made its first child, in ns; 0: it has made none.
    pub begun_ns: AtomicU64,
    /// 1: it goes on with the program of the process that forked it.
    pub forked: AtomicU32,
    /// 1: it may have locked files for itself (fcntl(2), F_SETLK).
    pub locks: AtomicU32,
    /// 1: what is known of the executable has been asked.
    pub begun: AtomicU32,
    /// Processor time of speculative processes that have ended, in µs, as far
    /// as the ration has not been told.
    pub copies_cpu_us: AtomicU64,
    /// Processor time of the last one until it was ended, in ns; 0: it was not.
    pub copy_took_ns: AtomicU64,
    /// Scouts that keep the program's priority and have not been reaped; 0:
    /// free. Unlike a copy's, their processor time is no idle time.
    pub scouts_beside: [AtomicI32; ZOMBIES_MAX + 1],
    /// Processor time of all others that have ended, in µs.
    pub idle_cpu_us: AtomicU64,
    /// Device that the speculative process prefetches from, as stat(2) gives
    /// it; 0: not known.
    pub device: AtomicU64,
    /// When this process last said so to others, in ns; 0: it does not.
    pub shared_ns: AtomicU64,
    /// Statistics slot, or null.
    pub slot: AtomicPtr<Slot>,
    /// Ended speculative processes that have not been reaped yet.
    pub zombies: [AtomicI32; ZOMBIES_MAX],
    /// Rationing of synchronisations and of whole-file prefetches; touched
    /// under `lock` only.
    pub rations: UnsafeCell<Rations>,
    /// Whether notice of page faults is wanted: 0: no; 1: by every thread; 2:
    /// it was refused.
    pub notice: AtomicU32,
    /// It is wanted once this process is known to be no brief one.
    pub notice_later: AtomicU32,
    /// Questions whether a mapped page is there that are left.
    pub samples: AtomicU32,
    /// Large mappings made so far.
    pub large_mappings: AtomicU32,
    /// Calls so far that may have changed where the large anonymous regions
    /// are.
    pub large_changes: AtomicU32,
    /// Bytes of anonymous memory mapped so far, in mappings that are watched
    /// where there is swap space.
    pub anonymous_bytes: AtomicUsize,
    /// Start of the heap (brk(2)); 0: not known.
    pub heap_start: AtomicUsize,
    /// The other such calls that are being made; 0: free.
    pub bars: [AtomicU64; BARS_MAX],
    /// How many have been made.
    pub bars_raised: AtomicU32,
    /// What the last copy left of [`runahead_protocol::log::Log::without_files`].
    pub without_files: AtomicU64,
    /// What the last copy left of [`runahead_protocol::log::Log::opening`].
    pub opening: AtomicU64,
    /// The descriptor whose position was told slowly when it was last asked for,
    /// plus one; 0: none.
    pub slow_position: AtomicI32,
    /// 1: the program waits for the first prediction of the copy just made
    /// (`waiting::await_prediction`).
    pub awaits: AtomicU32,
    /// Where the registers of the thread lie whose fault is being looked at; 0:
    /// no fault's.
    pub fault_context: AtomicUsize,
    /// When this process last had notice of a fault, in ns.
    pub noticed_ns: AtomicU64,
    /// Processor time of the thread then, in ns.
    pub noticed_cpu_ns: AtomicU64,
    /// One of [`watched`].
    pub watch: AtomicU32,
    /// Of the watched thread, what the C library has registered by rseq(2); 0:
    /// not known.
    pub watch_area: AtomicUsize,
    /// When a look found it waiting, in ns.
    pub watch_seen_ns: AtomicU64,
    /// How long before that it was last looked at, in ns.
    pub watch_gap_ns: AtomicU64,
    /// Times that the aide was made for it.
    pub watch_starts: AtomicU32,
    /// How much rarer the looks are, as a power of two.
    pub watch_slower: AtomicU32,
    /// Waits seen since the last that led to something.
    pub watch_idle: AtomicU32,
    /// Major faults of the watched thread when it was last seen to wait.
    pub watch_majors: AtomicU64,
    /// Whether the window of the residency oracles is in use ([`crate::arena`]).
    pub window: AtomicU32,
    /// Whether the memory is in use with which one of this process's threads executes a
    /// program.
    pub executes: AtomicU32,
    /// Memory for what children by vfork(2) execute programs with.
    pub scratches: [Scratch; SCRATCHES_MAX],
    /// Threads that get notice.
    pub noticed: [NoticedThread; NOTICED_THREADS_MAX],
    /// Large mappings of files.
    pub areas: [Area; AREAS_MAX],
    /// Mappings through which files are written.
    pub written: [Area; WRITTEN_MAX],
    /// How many there have been.
    pub writings: AtomicUsize,
    /// Sequential streams.
    pub streams: crate::normal::StreamTable,
    /// Class of each descriptor.
    pub classes: [AtomicU8; FDS_MAX],
}

/// Far longer than anybody holds the lock, in ns.
const LOCK_NS: u64 = 2_000_000_000;
/// Between two tries to get it, in ns.
const LOCK_PAUSE_NS: u64 = 20_000;

/// Bytes of memory that hold a [`State`]: whole pages.
pub const STATE_LEN: usize = size_of::<State>().next_multiple_of(crate::sys::PAGE_SIZE);

/// The state, or `None` before start.
#[inline]
pub fn state() -> Option<&'static State> {
    let state = STATE.load(Relaxed);
    // SAFETY: set once to STATE_LEN bytes of zeroed memory that is never
    // unmapped; all fields are atomics, or guarded by `lock`.
    unsafe { state.as_ref() }
}

impl State {
    /// The class of a descriptor, or `None` for one that is not classified.
    #[inline]
    pub fn class(&self, fd: usize) -> Option<&AtomicU8> {
        self.classes.get(fd)
    }

    /// This process has just been forked: its descriptions are its parent's.
    pub fn inherited(&self) {
        self.classes.iter().for_each(|class| class.store(class::INHERITED, Relaxed));
    }

    /// Forgets what is known of a descriptor.
    pub fn forget(&self, fd: usize) {
        if let Some(class) = self.class(fd) {
            class.store(class::UNKNOWN, Relaxed);
        }
    }

    /// Forgets descriptors `first` to `last`.
    pub fn forget_range(&self, first: usize, last: usize) {
        for fd in first..=last.min(FDS_MAX - 1) {
            self.forget(fd);
        }
    }

    /// A descriptor came into being.
    pub fn opened(&self, fd: isize) {
        if let Ok(fd) = u32::try_from(fd) {
            self.forget(fd as usize);
            if fd >= self.fds_end.load(Relaxed) {
                self.fds_end.store(fd + 1, Relaxed);
            }
        }
    }

    /// The statistics slot, if anybody collects.
    #[inline]
    pub fn slot(&self) -> Option<&Slot> {
        // SAFETY: null, or inside the mapped statistics file.
        unsafe { self.slot.load(Relaxed).as_ref() }
    }

    /// The program has waited `ns` for storage.
    pub fn stalled(&self, count: u32, ns: u64) {
        self.stalls.store(self.stalls.load(Relaxed).saturating_add(count), Relaxed);
        self.stalls_ns.store(self.stalls_ns.load(Relaxed).saturating_add(ns), Relaxed);
    }

    /// What asking has come to since it last served something.
    pub fn asking(&self) -> Asking {
        let waited_ns =
            self.stalls_ns.load(Relaxed).saturating_sub(self.served_at_ns.load(Relaxed));
        Asking { asked_ns: self.asked_ns.load(Relaxed), waited_ns }
    }

    /// Asking has served something.
    pub fn served(&self) {
        self.asked_ns.store(0, Relaxed);
        self.served_at_ns.store(self.stalls_ns.load(Relaxed).max(1), Relaxed);
    }

    /// How long a wait for storage takes on average, in ns; 0: none yet.
    pub fn mean_stall_ns(&self) -> u64 {
        self.stalls_ns.load(Relaxed).checked_div(u64::from(self.stalls.load(Relaxed))).unwrap_or(0)
    }

    /// Adds to a counter, if anybody collects.
    pub fn count(&self, counter: Counter, amount: u64) {
        if let Some(slot) = self.slot() {
            slot.add(counter, amount);
        }
    }

    /// The log of the speculative process, if there is one.
    pub fn log(&self) -> Option<&'static Log> {
        // SAFETY: null, or one of CONFIG.logs, which stay mapped in the
        // process that mapped them; a forked child has a null here.
        unsafe { self.log.load(Relaxed).as_ref() }
    }

    /// Whether there is a speculative process that has not parked.
    pub fn copy_lives(&self) -> bool {
        self.speculative.load(Relaxed) != 0
            && self.log().is_some_and(|log| log.life.load(Relaxed) != life::PARKED)
    }

    /// No more speculation in this process.
    pub fn disable(&self, loss: Loss) {
        self.disabled.store(loss as u32 + 1, SeqCst);
        if let Some(slot) = self.slot() {
            slot.lose(loss);
        }
    }

    /// [`State::try_locked`], waiting for another thread that is at it, as long
    /// as copying a large process takes. `None` after [`LOCK_NS`].
    pub fn locked<R>(&self, mut action: impl FnMut(&mut Rations) -> R) -> Option<R> {
        let begun_ns = crate::sys::now_ns();
        loop {
            let result = self.try_locked(|rations, _| action(rations));
            if result.is_some() || crate::sys::now_ns().saturating_sub(begun_ns) > LOCK_NS {
                return result;
            }
            crate::import::handover::await_made(self);
            crate::sys::sleep_exactly(LOCK_PAUSE_NS);
        }
    }

    /// Runs `action` unless another thread is at it; never waits. No signal
    /// interrupts it: one whose handler leaves by `longjmp`, or a
    /// cancellation, would leave the lock held for good. `action` is given
    /// the thread's signal mask.
    pub fn try_locked<R>(&self, action: impl FnOnce(&mut Rations, u64) -> R) -> Option<R> {
        use core::sync::atomic::Ordering::{Acquire, Release};
        if self.lock.load(Relaxed) != lock::FREE {
            return None;
        }
        let apart = crate::apart::mask();
        let mask = apart.unwrap_or_else(|| crate::sys::set_signal_mask(u64::MAX));
        let mut result = None;
        if self.lock.compare_exchange(lock::FREE, lock::HELD, Acquire, Relaxed).is_ok() {
            // SAFETY: `lock` is held, so this is the only reference.
            result = Some(action(unsafe { &mut *self.rations.get() }, mask));
            // Unless it has been handed over.
            _ = self.lock.compare_exchange(lock::HELD, lock::FREE, Release, Relaxed);
        }
        // A speculative process made meanwhile keeps its own mask.
        if apart.is_none() && self.role.load(Relaxed) != role::SPECULATIVE {
            crate::sys::set_signal_mask(mask);
        }
        result
    }
}

/// A state as it is at the start, for tests.
#[cfg(test)]
pub fn zeroed() -> std::boxed::Box<State> {
    // SAFETY: all-zero is a valid state.
    unsafe { std::boxed::Box::new_zeroed().assume_init() }
}
