//! What processes leave behind for the next of the same executable: the
//! table is `protocol::learnt`, what a record says `policy::learning`.
//!
//! Looked at at the first stall that could be synchronised at, at the end,
//! and before an execution. Forked children inherit the mapping, each of which
//! would have to make its own before it executes something or ends, by six calls.
//! A speculative process unmaps it first of all (`speculative::prologue`).

use super::accounting;
use super::processors::{are_busy, us_since};
use crate::arch::{import_nr, nr};
use crate::arena::Part;
use crate::config::{CONFIG, stalls_always};
use crate::elf;
use crate::opening;
use crate::procfs;
use crate::state::State;
use crate::sys::{self, call};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use runahead_policy::comparison::{Comparison, Lived};
use runahead_policy::learning::{
    BRIEF_NS, Ended, Lack, Other, Record, SAMPLE_NS, Start, WAITED_PART,
};
use runahead_policy::ration::{FIRST_STALLS, LONG_STALL_NS, SHORT_STALL_NS};
use runahead_protocol::learnt::{self, Entry, FILE_LEN, Table, key};
use runahead_protocol::session::Mode;

/// Most arguments that are counted: more are all many.
const ARGUMENTS_MAX: usize = 256;

/// How to begin with this process.
pub fn start(state: &State) -> Start {
    let Some(table) = table(state) else { return Start::Unknown };
    let Some(entry) = own_key().and_then(|key| table.find(key)) else { return Start::Unknown };
    let comparison = Comparison::from_bits(entry.comparison.load(Relaxed));
    if comparison.leaves_alone() && state.forked.load(Relaxed) == 0 && !stalls_always() {
        return Start::ALONE;
    }
    Record::from_bits(entry.record.load(Relaxed)).start()
}

/// The process ends.
pub fn ended(state: &State) {
    if CONFIG.mode.load(Relaxed) != Mode::Speculate as u32 {
        return;
    }
    let Some(table) = table(state) else { return };
    let lack = lacks(state);
    let (itself, below) = waits(state, table, lack.is_some());
    // A subshell that has done next to nothing: that the executable's processes
    // are short it does not say, and a shell makes hundreds of them.
    if state.forked.load(Relaxed) != 0 && !itself {
        return;
    }
    let Some(mut ended) = state.try_locked(|rations, _| {
        accounting::account(state, rations);
        rations.synchronisations.ended(state.stalls.load(Relaxed), state.stalls_ns.load(Relaxed))
    }) else {
        return;
    };
    (ended.below, ended.lack, ended.brief) = (below, lack, is_brief(state));
    ended.maps = state.notice.load(Relaxed) != 0 || state.notice_later.load(Relaxed) != 0;
    compare(state, table, &ended, lived_us(state).unwrap_or(0).saturating_mul(1000));
    change(table, |record| record.ended(&ended));
}

/// What the process, which has lived for so long (0: nobody knows), came to goes into the
/// comparison of those with copies and without.
fn compare(state: &State, table: &Table, ended: &Ended, life_ns: u64) {
    let &Ended { stalls, stalled_ns, copies, hits, .. } = ended;
    if state.forked.load(Relaxed) != 0 || life_ns == 0 {
        return;
    }
    let Some(entry) = own_key().and_then(|key| table.find_or_make(key)) else { return };
    let before = Comparison::from_bits(entry.comparison.load(Relaxed));
    let mut comparison = before;
    let mut lived = Lived { life_ns, stalls, stalled_ns, copies, hits, moved_bytes: 0 };
    if comparison.asks(&lived) {
        lived.moved_bytes = moved_bytes().unwrap_or(0);
    }
    comparison.ended(&lived);
    if comparison != before {
        entry.comparison.store(comparison.bits(), Relaxed);
    }
}

/// Bytes that the program has read and written by system calls, without what the agent has
/// read: how much that is depends on whether there are copies. `None` where the kernel
/// does not say.
fn moved_bytes() -> Option<u64> {
    let mut room = [0; 256];
    // Its first two lines are "rchar: 4711" and "wchar: 11".
    let mut lines = procfs::read(b"/proc/self/io\0", &mut room)?.split(|byte| *byte == b'\n');
    let mut number = |name: &[u8]| procfs::decimal(lines.next()?.strip_prefix(name)?);
    let moved = number(b"rchar: ")?.saturating_add(number(b"wchar: ")?);
    Some(moved.saturating_sub(sys::own_read_bytes()).max(1))
}

/// Changes the record of this process's executable.
fn change(table: &Table, change: impl FnOnce(&mut Record)) {
    let Some(entry) = own_key().and_then(|key| table.find_or_make(key)) else { return };
    let cell = &entry.record;
    let mut record = Record::from_bits(cell.load(Relaxed));
    let before = record;
    change(&mut record);
    // Others may be changing it.
    if record != before {
        cell.store(record.bits(), Relaxed);
    }
}

/// What this process, which has waited, lacked for a copy that pays: it ends so soon
/// that among busy processors none was idle, or that there was no occasion for one, its
/// memory has no room for one, or it has little to gain and its copies, or else those of
/// its like, have not paid, or those are given up. Nothing where a stall takes long.
fn lacks(state: &State) -> Option<Lack> {
    // Asked first: most children have not, when they execute something.
    if !has_waited(state) {
        return None;
    }
    lacks_after(state, lived_us(state), start(state))
}

fn has_waited(state: &State) -> bool {
    state.stalls.load(Relaxed) > FIRST_STALLS || state.epoch.load(Relaxed) != 0
}

fn lacks_after(state: &State, lived_us: Option<u64>, began: Start) -> Option<Lack> {
    let was_tried = state.epoch.load(Relaxed) != 0;
    let stall_ns = state.mean_stall_ns();
    // Of stalls that are none, no copy saves anything.
    if !has_waited(state) || stall_ns >= LONG_STALL_NS || stalls_always() {
        return None;
    }
    // Looked at now: at the first stall, after which there may have been no look, a
    // process has hardly any memory yet.
    let has_room = || state.try_locked(|rations, _| rations.control.has_room(state));
    if !was_tried && has_room() == Some(false) {
        return Some(Lack::Memory);
    }
    let is_brief = lived_us.is_some_and(is_within_brief);
    if !was_tried && is_brief && are_busy(state) {
        return Some(Lack::Processor);
    }
    let stalled_us = state.stalls_ns.load(Relaxed) / 1000;
    let waits_little = lived_us.is_some_and(|us| stalled_us < us / WAITED_PART);
    if !was_tried && began.is_given_up() && !is_aided(state) {
        return Some(Lack::Worth);
    }
    // Where one was not yet due again, the next is another matter.
    let could_be_tried = !was_tried && !began.is_later();
    if could_be_tried && (is_brief || waits_little) && !is_aided(state) {
        return Some(Lack::Occasion);
    }
    // Not by the last one alone: it may have been made just before the end.
    let failed = || {
        state.try_locked(|rations, _| {
            accounting::account(state, rations);
            let ration = &rations.synchronisations;
            let ended = ration.ended(state.stalls.load(Relaxed), state.stalls_ns.load(Relaxed));
            ration.unaided_ns() != 0 && !ended.pays()
        })
    };
    let gains_little = stall_ns < SHORT_STALL_NS && (is_brief || waits_little);
    let in_vain = || if was_tried { failed() == Some(true) } else { began.is_later() };
    (gains_little && in_vain()).then_some(Lack::Worth)
}

/// Whether something has been prefetched without a copy.
fn is_aided(state: &State) -> bool {
    let files = state.try_locked(|rations, _| rations.whole_files.have_begun());
    state.served_at_ns.load(Relaxed) != 0 || files != Some(false)
}

/// How long this process has run, in µs; `None` where nobody knows how fast the time-stamp
/// counter goes.
fn lived_us(state: &State) -> Option<u64> {
    us_since(&state.started_ticks)
}

/// Whether notices of page faults are worth what they cost this process from its
/// beginning, as far as others of its executable tell.
pub fn is_notice_worth(state: &State) -> bool {
    if CONFIG.mode.load(Relaxed) != Mode::Speculate as u32 || stalls_always() {
        return true;
    }
    let Some(table) = table(state) else { return true };
    let Some(entry) = own_key().and_then(|key| table.find(key)) else { return true };
    sampled(&entry.record, Record::gives_notice)
}

/// Asks the record in `cell` whether to do what it may make a sample of now.
fn sampled(cell: &AtomicU64, ask: impl FnOnce(&mut Record, u64) -> bool) -> bool {
    let mut record = Record::from_bits(cell.load(Relaxed));
    let before = record;
    let answer = ask(&mut record, sys::now_ns());
    // Others may be changing it.
    if record != before {
        cell.store(record.bits(), Relaxed);
    }
    answer
}

/// Whether this process has run for less than [`BRIEF_NS`] so far.
pub fn is_brief(state: &State) -> bool {
    lived_us(state).is_some_and(is_within_brief)
}

fn is_within_brief(us: u64) -> bool {
    us < BRIEF_NS / 1000
}

/// Whether this process itself has waited for more than a stall or two (where there
/// was a copy, nobody says yet what it has saved); and whether one that it has made
/// has, or may have: one whose end nobody sees (static, killed, in a namespace of its
/// own) says nothing. Tells the parent, who is to hand the agent on the next time,
/// unless it was `in_vain`.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn waits(state: &State, table: &Table, in_vain: bool) -> (bool, bool) {
    let itself = has_waited(state) || state.mean_stall_ns() >= LONG_STALL_NS;
    let told = table.has_waiting_child(state.pid.load(Relaxed));
    let begun_ns = state.begun_ns.load(Relaxed);
    let below = told || begun_ns != 0 && sys::now_ns().saturating_sub(begun_ns) >= SAMPLE_NS;
    if itself && !in_vain || below {
        // SAFETY: a query.
        table.child_waited(unsafe { call(nr::GETPPID, &[]) } as u32);
    }
    (itself, below)
}

/// This process is about to execute `target`: what it has come to is all that will
/// be known of it. By itself: no child by vfork(2) needs room for it on its stack.
#[inline(never)]
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
pub fn executes(state: &State, target: Target) {
    if CONFIG.mode.load(Relaxed) != Mode::Speculate as u32 {
        return;
    }
    let Some(table) = table(state) else { return };
    let lack = lacks(state);
    let (itself, below) = waits(state, table, lack.is_some());
    let has_waited = below || itself && lack.is_none();
    if state.forked.load(Relaxed) == 0 {
        change(table, |record| record.went_on(has_waited, target.as_other()));
    }
}

const SECOND_NS: u64 = 1_000_000_000;

/// A program's file, as stat(2) tells it.
#[derive(Clone, Copy)]
pub struct File {
    /// What tells it from others ([`learnt::file`]).
    identity: u64,
    /// When its inode was last changed, in ns since 1970.
    changed_ns: u64,
}

impl File {
    /// Whether it has been as it is for a while, so that no other can have come to have
    /// the same times. Where they are whole seconds, its file system says nothing of that
    /// (sshfs; squashfs, where they are the image's).
    fn is_settled(&self) -> bool {
        /// As long as no file system's clock takes to go on.
        const SETTLED_NS: u64 = 2 * SECOND_NS;
        let age_ns = || sys::real_time_ns().saturating_sub(self.changed_ns);
        !self.changed_ns.is_multiple_of(SECOND_NS) && age_ns() > SETTLED_NS
    }
}

impl From<&sys::Stat> for File {
    fn from(stat: &sys::Stat) -> File {
        let &sys::Stat { dev, ino, mode, size, modified, changed, .. } = stat;
        let identity = learnt::file([dev, ino, mode.into(), size as u64], [modified, changed]);
        let [second, ns] = changed;
        File { identity, changed_ns: second.saturating_mul(SECOND_NS).saturating_add(ns) }
    }
}

/// How a program is to be executed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// With the agent, as its like have been, which have waited ([`Record::waited`]).
    Enlisted(u8),
    /// With the agent, as its like have been, of which none has shown lately that it waits.
    Undecided,
    /// With the agent, where it can have it: nothing is known of its like.
    Unknown,
    /// With the agent, though its like wait for nothing.
    Sampled,
    /// Without.
    LeftAlone,
}

impl Target {
    /// What it says of the one that executes it.
    fn as_other(self) -> Other {
        match self {
            Target::LeftAlone => Other::LeftAlone,
            Target::Enlisted(waited) => Other::Waits(waited),
            Target::Unknown => Other::Unknown,
            Target::Sampled | Target::Undecided => Other::Undecided,
        }
    }
}

/// What is known of a program that is about to be executed.
#[derive(Clone, Copy)]
pub struct Like {
    /// How it is to be executed.
    pub target: Target,
    /// Its record, and the key.
    known: Option<(&'static Entry, u64)>,
}

impl Like {
    /// Nothing is.
    pub const UNKNOWN: Like = Like { target: Target::Unknown, known: None };

    /// Whether the agent is known to load into it.
    pub fn loads(&self) -> bool {
        self.known.is_some_and(|(entry, key)| entry.loads(key))
    }

    /// The agent loads into it, as its file says.
    pub fn has_loaded(&self) {
        if let Some((entry, key)) = self.known {
            entry.has_loaded(key);
        }
    }
}

/// What is known of the program that is about to be executed with these arguments. It is
/// never left without the agent where somebody counts. By itself: the stack of a child by
/// vfork(2) may be small.
#[inline(never)]
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
pub fn like(state: &State, file: File, arguments: usize) -> Like {
    if CONFIG.mode.load(Relaxed) != Mode::Speculate as u32 || !CONFIG.stats.load(Relaxed).is_null()
    {
        return Like::UNKNOWN;
    }
    let Some(table) = table(state) else { return Like::UNKNOWN };
    // Of what cannot be read the kernel makes none.
    let count = super::exec::count(arguments, ARGUMENTS_MAX).unwrap_or(0);
    let key = key(file.identity, count);
    let Some(entry) = table.find(key) else { return Like::UNKNOWN };
    let record = Record::from_bits(entry.record.load(Relaxed));
    let target = match sampled(&entry.record, Record::enlists) {
        false => Target::LeftAlone,
        true if record.is_known_short() => Target::Sampled,
        true if record.waited() == 0 => Target::Undecided,
        true => Target::Enlisted(record.waited()),
    };
    Like { target, known: file.is_settled().then_some((entry, key)) }
}

/// The program is about to make a child, which will need the table before it
/// executes anything.
pub fn before_child(state: &State) {
    if CONFIG.mode.load(Relaxed) != Mode::Speculate as u32 {
        return;
    }
    if table(state).is_some() && state.begun_ns.load(Relaxed) == 0 {
        state.begun_ns.store(sys::now_ns(), Relaxed);
    }
}

/// The program starts: whoever looks at the table at its end asks for the key, and
/// children that are forked meanwhile need not.
pub fn started() {
    let is_asked = CONFIG.mode.load(Relaxed) == Mode::Speculate as u32;
    if is_asked && !CONFIG.learnt.get().is_empty() {
        // A script is another executable than its interpreter: that is what whoever
        // executes it asks for.
        let of_path = elf::executed().and_then(key_of);
        of_path.or_else(own_key);
    }
}

/// The key of this process's executable.
fn own_key() -> Option<u64> {
    let known = CONFIG.executable.load(Relaxed);
    if known != 0 {
        return Some(known);
    }
    if CONFIG.other_root.load(Relaxed) != 0 {
        return None;
    }
    let path = b"/proc/self/exe\0";
    key_of(path.as_ptr() as usize)
}

/// Keeps the key of the executable at the path at this address.
fn key_of(path: usize) -> Option<u64> {
    let mut stat = sys::Stat::default();
    let at = core::ptr::from_mut(&mut stat) as usize;
    let asked = [sys::AT_FDCWD, path, at, 0];
    // SAFETY: the kernel reads the path and writes one struct stat.
    if unsafe { call(import_nr::NEWFSTATAT, &asked) } != 0 {
        return None;
    }
    let key = key(File::from(&stat).identity, CONFIG.arguments.load(Relaxed));
    CONFIG.executable.store(key, Relaxed);
    Some(key)
}

/// The table, mapped where it is not yet; `None` where there is none.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
pub fn table(state: &State) -> Option<&'static Table> {
    let mapped = state.learnt.load(Acquire);
    // SAFETY: null, or mapped below for as long as this memory lives.
    if let Some(table) = unsafe { mapped.as_ref() } {
        return Some(table);
    }
    if state.learnt_refused.load(Relaxed) != 0 {
        return None;
    }
    let inherited = CONFIG.table.load(Acquire);
    let found = if inherited.is_null() { map_for_all() } else { inherited };
    if found.is_null() || CONFIG.table_user.load(Relaxed) != sys::file_system_user() {
        state.learnt_refused.store(1, Relaxed);
        return None;
    }
    state.learnt.store(found, Release);
    // SAFETY: mapped for as long as this memory lives, by this process or the one
    // that forked it; zeroed memory and anything else are valid atomics.
    unsafe { found.as_ref() }
}

/// The table is about to be unmapped, and never looked at again here.
pub fn leave(state: &State) {
    state.learnt_refused.store(1, Relaxed);
    state.learnt.store(core::ptr::null_mut(), Relaxed);
}

/// Maps the file for this process and the children that it will fork; null where
/// that cannot be. A thread that comes second maps the same file over it.
#[cold]
#[inline(never)]
fn map_for_all() -> *mut Table {
    // No handler leaves it by `longjmp`, with the file open.
    if !sys::undisturbed(|| opening::has_room() && map()) {
        return core::ptr::null_mut();
    }
    CONFIG.table_user.store(sys::file_system_user(), Relaxed);
    let table = Part::Table.start() as *mut Table;
    CONFIG.table.store(table, Release);
    table
}

/// Maps the file; false where that cannot be, or somebody else's file is there.
fn map() -> bool {
    const O_RDWR: usize = 2;
    const O_NONBLOCK: usize = 0o4_000;
    const O_NOFOLLOW: usize = 0o400_000;
    let path = CONFIG.learnt.get();
    if path.is_empty() || CONFIG.other_root.load(Relaxed) != 0 {
        return false;
    }
    let flags = O_RDWR | O_NONBLOCK | O_NOFOLLOW | sys::O_RDONLY_CLOEXEC;
    // SAFETY: a NUL-terminated path of ours.
    let fd = unsafe { call(nr::OPENAT, &[sys::AT_FDCWD, path.as_ptr() as usize, flags]) };
    if fd < 0 {
        return false;
    }
    let mut stat = sys::Stat::default();
    let fits = sys::fstat(fd as i32, &mut stat) == 0
        && stat.mode & sys::S_IFMT == sys::S_IFREG
        && stat.uid == sys::file_system_user()
        && stat.size as usize >= FILE_LEN;
    let protection = sys::PROT_READ | sys::PROT_WRITE;
    let mapped = fits && Part::Table.map(FILE_LEN, protection, sys::MAP_SHARED, fd as usize, 0);
    sys::close(fd as i32);
    mapped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normal::control::Control;

    #[test]
    fn a_process_that_has_waited_lacked_memory_where_there_is_no_room_at_its_end() {
        let state = crate::state::zeroed();
        let lacks_within = |bytes| {
            state.try_locked(|rations, _| rations.control = Control::limited(bytes, true)).unwrap();
            lacks_after(&state, None, Start::Unknown)
        };
        assert_eq!(lacks_within(1), None, "it has not waited");
        state.stalled(FIRST_STALLS + 1, 1_000_000);
        assert_eq!(lacks_within(1), Some(Lack::Memory));
        assert_eq!(lacks_within(0), None);
        state.try_locked(|rations, _| rations.control = Control::limited(1, false)).unwrap();
        assert_eq!(lacks_after(&state, None, Start::Unknown), None, "nobody has asked for a copy");
        assert_eq!(lacks_within(1), Some(Lack::Memory));
        state.stalled(1, 100 * LONG_STALL_NS);
        assert_eq!(lacks_within(1), None, "for long");
    }

    #[test]
    fn one_for_which_nothing_could_be_done_lacked_an_occasion() {
        let state = crate::state::zeroed();
        let lacks_after = |ms: u64, began| super::lacks_after(&state, Some(ms * 1000), began);
        assert_eq!(lacks_after(10, Start::Unknown), None, "it has not waited");
        state.stalled(FIRST_STALLS + 1, 3_000_000);
        assert_eq!(lacks_after(10, Start::Unknown), Some(Lack::Occasion));
        assert_eq!(lacks_after(100, Start::Unknown), Some(Lack::Occasion), "it waits little");
        state.stalled(4, 27_000_000);
        assert_eq!(lacks_after(100, Start::Unknown), None, "and was there for long");
        // Those of its like may have paid on another device.
        for began in [Start::AtOnce, Start::Second] {
            assert_eq!(lacks_after(10, began), Some(Lack::Occasion));
        }
        assert_eq!(lacks_after(10, Start::Later(4_000_000)), None, "it was not due");
        state.try_locked(|rations, _| rations.whole_files.decide(1 << 20, 0, 4096, 1 << 20));
        assert_eq!(lacks_after(10, Start::Unknown), None, "a file was prefetched");
        state.try_locked(|rations, _| rations.whole_files = Default::default());
        // At its first stall, when it had not waited yet.
        let waited_ns = state.stalls_ns.swap(0, Relaxed);
        state.served();
        state.stalls_ns.store(waited_ns, Relaxed);
        assert_eq!(lacks_after(10, Start::Unknown), None, "a stream was");
        state.served_at_ns.store(0, Relaxed);
        state.epoch.store(1, Relaxed);
        assert_eq!(lacks_after(10, Start::Unknown), None, "a copy was made");
    }

    #[test]
    fn one_whose_copies_are_given_up_lacked_worth_on_a_slow_device_too() {
        let state = crate::state::zeroed();
        let lacks_after = |began| super::lacks_after(&state, Some(400_000), began);
        let [soon, given_up] = [1_000_000, 32_000_000].map(Start::Later);
        assert_eq!(lacks_after(given_up), None, "it has not waited");
        state.stalled(30, 30_000_000);
        assert_eq!([soon, given_up].map(lacks_after), [None, Some(Lack::Worth)]);
        state.served();
        assert_eq!(lacks_after(given_up), None, "a stream was prefetched");
        state.served_at_ns.store(0, Relaxed);
        state.epoch.store(1, Relaxed);
        assert_eq!(lacks_after(given_up), None, "a copy was made after all");
    }

    #[test]
    fn only_a_file_whose_times_have_settled_is_told_by_them() {
        let now_ns = sys::real_time_ns();
        let settled = |changed_ns| File { identity: 1, changed_ns }.is_settled();
        let whole = now_ns / SECOND_NS * SECOND_NS;
        assert!(settled(whole - 100 * SECOND_NS + 1));
        assert!(!settled(whole - 100 * SECOND_NS), "whole seconds");
        assert!(!settled(now_ns | 1), "just now");
        assert!(!settled(whole + 100 * SECOND_NS + 1) && !settled(u64::MAX), "in the future");
    }

    #[test]
    fn what_a_process_has_moved_is_known() {
        let before = moved_bytes().unwrap();
        std::fs::read("/proc/self/exe").unwrap();
        let len = std::fs::metadata("/proc/self/exe").unwrap().len();
        let moved = moved_bytes().unwrap() - before;
        assert!(moved >= len);
        // Other tests move bytes meanwhile, but not many times as much.
        const TIMES: u64 = 32;
        let mut buffer = std::vec![0; len as usize];
        for _ in 0..TIMES {
            let fd = sys::open_read(b"/proc/self/exe\0");
            assert_eq!(sys::read(fd as i32, &mut buffer), len as isize);
            sys::close(fd as i32);
        }
        let after = moved_bytes().unwrap() - before;
        assert!(after < moved + TIMES / 2 * len, "what the agent reads is not counted: {after}");
    }

    #[test]
    fn one_that_copies_made_slower_gets_none_the_next_time() {
        let state = crate::state::zeroed();
        // SAFETY: zero bytes are a valid table.
        let table: &mut Table = Box::leak(unsafe { Box::new_zeroed().assume_init() });
        state.learnt.store(table, Relaxed);
        state.learnt_refused.store(0, Relaxed);
        let table = super::table(&state).unwrap();
        let ends = |copies, hits, ms: u64| {
            let ended = Ended { stalls: 30, copies, hits, stalled_ns: 200_000_000, ..no_end() };
            compare(&state, table, &ended, ms * 1_000_000);
            start(&state)
        };
        let alone = Start::Later(u64::MAX);
        assert_eq!(ends(1, 1000, 400), Start::Unknown, "they have found much");
        assert_eq!(ends(1, 50, 0), Start::Unknown, "nobody knows how long it lived");
        assert_eq!(ends(1, 50, 400), alone, "it is compared");
        assert_eq!(ends(0, 0, 250), alone);
        state.forked.store(1, Relaxed);
        assert_eq!(start(&state), Start::Unknown, "it goes on as its parent does");
        (0..10).for_each(|_| assert_eq!(ends(0, 0, 250), Start::Unknown));
        state.forked.store(0, Relaxed);
        (0..3).for_each(|_| assert_eq!(ends(0, 0, 250), alone));
        assert_eq!(ends(0, 0, 250), Start::Unknown, "it is tried again");
    }

    fn no_end() -> Ended {
        runahead_policy::ration::Ration::default().ended(0, 0)
    }

    #[test]
    fn one_whose_copies_do_not_pay_lacks_worth_where_it_could_gain_little() {
        let state = crate::state::zeroed();
        state.stalled(80, 8_000_000);
        let lacks_after =
            |ms: Option<u64>, began| super::lacks_after(&state, ms.map(|ms| ms * 1000), began);
        let later = Start::Later(4_000_000);
        assert_eq!(lacks_after(Some(120), Start::Unknown), None, "its like have not been tried");
        assert_eq!(lacks_after(Some(1), later), Some(Lack::Worth));
        let after = [None, Some(99), Some(120), Some(200)].map(|ms| lacks_after(ms, later));
        assert_eq!(after, [None, Some(Lack::Worth), None, Some(Lack::Worth)]);
        // It has been tried itself.
        state.epoch.store(1, Relaxed);
        assert_eq!(lacks_after(Some(1), later), None, "that has paid");
        state.try_locked(|rations, _| rations.synchronisations.begin(later));
        assert_eq!(lacks_after(Some(1), Start::AtOnce), Some(Lack::Worth));
        let one_that = |hits| {
            state.try_locked(|rations, _| {
                let ration = &mut rations.synchronisations;
                ration.stalled(100_000);
                ration.synchronised(300_000, false);
                ration.outcome(hits, 0, false);
            });
        };
        one_that(100);
        one_that(0);
        assert_eq!(lacks_after(Some(1), later), None, "only the last has not paid");
        (0..50).for_each(|_| one_that(0));
        assert_eq!(lacks_after(Some(1), later), Some(Lack::Worth));
        state.stalled(80, 160 * SHORT_STALL_NS);
        assert_eq!(lacks_after(Some(1), later), None, "it is not flash");
    }
}
