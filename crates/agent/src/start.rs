//! The agent's start: the constructor of the injected library, and the first
//! hooked call of a forked child. Whatever is missing or refused ends with
//! the program running plainly.

use crate::arch::{nr, ticks};
use crate::arena::{self, LOG_STRIDE};
use crate::config::CONFIG;
use crate::import::DESK_LEN;
use crate::stat;
use crate::state::{STATE, STATE_LEN, State, role, state};
use crate::status::{self, Status};
use crate::symbols::Tables;
use crate::sys::{self, call};
use crate::{elf, interpose, patch};
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64};
use runahead_protocol::reads;
use runahead_protocol::session::{self, Mode, SESSION_VARIABLE, Session};
use runahead_protocol::stats::{self, Header, Loss, SLOTS_MAX, Slot};

/// `MADV_WIPEONFORK` (Linux 4.14).
const MADV_WIPEONFORK: usize = 18;
/// `PR_GET_DUMPABLE`.
const PR_GET_DUMPABLE: usize = 3;
/// Most environment variables that are looked through.
const VARIABLES_MAX: usize = 1 << 20;
/// How long the exit waits for the collector's report, in ns.
const COLLECT_NS: u64 = 500_000_000;
/// The same where reads have been recorded: the trace may be large.
const COLLECT_READS_NS: u64 = 5_000_000_000;

#[used]
#[cfg_attr(target_os = "none", unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: unsafe extern "C" fn(usize, usize, usize) = ra_start;

/// The constructor, called by the dynamic linker. glibc passes the program's
/// arguments and environment, musl nothing. With glibc it is the first of all
/// (`-z initfirst`), its own library's included, unless an object that is loaded
/// later wants to be: libpthread before 2.34.
unsafe extern "C" fn ra_start(argc: usize, argv: usize, envp: usize) {
    let argc = argc as u32 as usize;
    let word = size_of::<usize>();
    let passed = argv != 0
        && argv.is_multiple_of(word)
        && envp == argv.wrapping_add((argc + 1).wrapping_mul(word));
    let kept = if passed { Some((envp, argc)) } else { stat::environment() };
    let Some((envp, argc)) = kept else { return };
    // SAFETY: where the three values have the shape of the start-up stack,
    // envp is the process's NULL-terminated environment, and so is what the
    // kernel tells; only this thread uses it so far.
    let Some(environment) = (unsafe { Environment::at(envp) }) else { return };
    elf::AUXILIARY.store(environment.end(), Relaxed);
    start(environment, argc, passed);
    // The program may use this part of its stack for something else.
    elf::AUXILIARY.store(0, Relaxed);
}

/// The start itself, with what the kernel has left on the stack.
fn start(environment: Environment, argc: usize, passed: bool) {
    let Some(text) = environment.value(SESSION_VARIABLE.as_bytes()) else { return };
    let Some(session) = session::parse(text) else { return };
    let opted_out = environment.value(b"RUNAHEAD") == Some(b"off");
    let translated = environment.value(b"LD_PRELOAD").is_some_and(translates);
    let tier = if session.mode == Mode::Off || opted_out || translated {
        Tier::None
    } else {
        CONFIG.arguments.store(environment.arguments(argc), Relaxed);
        begin(&session, text, passed)
    };
    // The program finds the environment that it would have had, except in tier
    // T0, which puts nothing back at an exec: there its children need it.
    if tier != Tier::Symbols {
        let moved = environment.moved();
        environment.scrub(session.agent);
        if let Some(moved) = moved {
            moved.scrub(session.agent);
        }
    }
}

/// Whether a program with this list of preloaded objects is run by Valgrind,
/// which executes a translation of it and ends a program that makes a process
/// otherwise than the C library does.
fn translates(preload: &[u8]) -> bool {
    const VALGRIND: &[u8] = b"/vgpreload_";
    preload.windows(VALGRIND.len()).any(|name| name == VALGRIND)
}

/// How calls are hooked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tier {
    /// Not at all.
    None,
    /// Tier T1: at patched sites.
    Sites,
    /// Tier T0: by symbol.
    Symbols,
}

/// Hooks what can be hooked. `passed`: the constructor was given arguments,
/// so the libc is no musl.
fn begin(session: &Session<'_>, text: &[u8], passed: bool) -> Tier {
    let Some(status) = status::read_at_start() else { return Tier::None };
    if !unrestricted(session, &status) {
        return Tier::None;
    }
    // SAFETY: one thread, and nobody has read the texts yet.
    if !(unsafe {
        CONFIG.session.set(&[SESSION_VARIABLE.as_bytes(), b"=", text, b"\0"])
            && CONFIG.preload.set(&[b"LD_PRELOAD=", session.agent, b"\0"])
            && (session.learnt.is_empty() || CONFIG.learnt.set(&[session.learnt, b"\0"]))
    }) {
        return Tier::None;
    }
    if !configure(session) {
        return Tier::None;
    }
    CONFIG.filtered.store(u32::from(status.seccomp != 0), Relaxed);
    CONFIG.traces.store(u32::from(status.tracer != 0), Relaxed);
    CONFIG.first_thread.store(crate::arch::thread_pointer(), Relaxed);
    let Some(state) = state() else { return Tier::None };
    begin_process(state);
    if !session.reads.is_empty()
        && CONFIG.reads.load(Relaxed).is_null()
        && let Some(slot) = state.slot()
    {
        slot.lose(Loss::NotRecorded);
    }
    let tier = if patch::all(session, state, &status) {
        if !passed {
            // musl: its cancellation points share one site, which must not be
            // patched.
            interpose::cancellation_points();
            CONFIG.is_musl.store(1, Relaxed);
        }
        CONFIG.advised.store(0, Relaxed);
        Tier::Sites
    } else if status.threads == 1 && interpose::all() {
        CONFIG.unseen.store(1, Relaxed);
        Tier::Symbols
    } else {
        if let Some(slot) = state.slot() {
            slot.lose(Loss::NoHooks);
        }
        Tier::None
    };
    if tier != Tier::None {
        crate::normal::started();
    }
    state.role.store(if tier == Tier::None { role::OFF } else { role::NORMAL }, Release);
    tier
}

/// Whether the agent may make calls of its own: there is no seccomp filter, or
/// only those under which the launcher itself ran and tried our calls (a
/// container's). One more, and somebody has restricted this program since; not
/// even the statistics are touched then, because a filter may kill.
fn unrestricted(session: &Session<'_>, status: &Status) -> bool {
    const FILTERED: u64 = 2;
    match status.seccomp {
        0 => true,
        FILTERED => status.filters != 0 && status.filters == session.filters,
        _ => false,
    }
}

/// Takes over the session's settings and makes room for the state.
fn configure(session: &Session<'_>) -> bool {
    CONFIG.mode.store(session.mode as u32, Relaxed);
    CONFIG.test.store(session.test, Relaxed);
    let tsc_per_us = if reads_ticks() { session.tsc_per_us } else { 0 };
    CONFIG.ticks_per_us.store(tsc_per_us, Relaxed);
    CONFIG.horizon.store(session.horizon, Relaxed);
    CONFIG.depth.store(session.depth.min(1 << 16) as u32, Relaxed);
    let (start, end) = elf::own_image();
    CONFIG.image_start.store(start, Relaxed);
    CONFIG.image_end.store(end, Relaxed);
    CONFIG.agent_len.store(elf::own_file_len(), Relaxed);
    // Where huge pages are given unasked, the first touch of what lies beside other zero
    // memory would bring in 2 MiB of both.
    let (start, end) = elf::own_zeroed();
    sys::without_huge_pages(start, end);
    let address = sys::map_anonymous(STATE_LEN, sys::MAP_PRIVATE);
    if address == 0 || !arena::reserve() {
        return false;
    }
    // SAFETY: memory of ours. Without this advice a forked child could not be
    // told from its parent.
    if unsafe { call(nr::MADVISE, &[address, STATE_LEN, MADV_WIPEONFORK]) } != 0 {
        // SAFETY: as above.
        unsafe { call(nr::MUNMAP, &[address, STATE_LEN]) };
        return false;
    }
    STATE.store(address as *mut State, Relaxed);
    let statistics = map_held(session.stats, stats::FILE_LEN, stats::MAGIC).cast::<Header>();
    CONFIG.stats.store(statistics.cast_mut(), Relaxed);
    CONFIG.reads.store(map_reads(session).cast_mut(), Relaxed);
    true
}

/// Whether this process may read the time-stamp counter: what executed it may have
/// forbidden that (PR_SET_TSC), which an execution does not change.
fn reads_ticks() -> bool {
    const PR_GET_TSC: usize = 25;
    const PR_TSC_SIGSEGV: u32 = 2;
    let mut answer = 0u32;
    let at = core::ptr::from_mut(&mut answer) as usize;
    // SAFETY: the kernel writes one int.
    unsafe { call(nr::PRCTL, &[PR_GET_TSC, at]) };
    answer != PR_TSC_SIGSEGV
}

/// Fills in the state of this process.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
fn begin_process(state: &'static State) {
    state.pid.store(sys::getpid(), Relaxed);
    state.credit.store(crate::normal::CREDIT, Relaxed);
    state.started_ticks.store(ticks(), Relaxed);
    state.slot.store(take_slot(state).cast_mut(), Relaxed);
    // SAFETY: a query.
    if unsafe { call(nr::PRCTL, &[PR_GET_DUMPABLE]) } != 1 {
        state.disable(Loss::NotDumpable);
    }
    // What its parent uses, a forked child does, too.
    if CONFIG.delicate.load(Relaxed) != 0 {
        state.disable(Loss::Delicate);
    }
    if CONFIG.other_root.load(Relaxed) != 0 {
        state.disable(Loss::Namespace);
    }
}

/// Takes what a cell of [`CONFIG`] holds, once. Looked at first: a store to what
/// was inherited copies a page, and most children have nothing to take away.
fn take<T>(cell: &AtomicPtr<T>) -> *mut T {
    let none = core::ptr::null_mut();
    if cell.load(Relaxed).is_null() { none } else { cell.swap(none, Relaxed) }
}

/// Puts memory of this process's own in the place of what it shares with its parent:
/// a handler that has forked may return, in the child, into a call of the agent's
/// that looks at it.
fn replace(at: usize, len: usize) {
    arena::cover(at, len, sys::PROT_READ | sys::PROT_WRITE);
}

/// A forked child's first hooked call: the kernel has emptied its state. Or the first
/// after those of [`in_executing_child`].
#[cold]
pub fn in_child(state: &'static State) {
    if in_executing_child(state) {
        state.inherited();
        state.role.store(role::NORMAL, Release);
    }
}

/// The same as far as an execve(2) needs it, whose child's role stays
/// [`role::UNKNOWN`]: it may fail, and others follow. False where the child is left
/// alone.
#[cold]
pub fn in_executing_child(state: &'static State) -> bool {
    if crate::normal::is_silent() {
        CONFIG.forbidden.store(1, Relaxed);
    }
    if CONFIG.forbidden.load(Relaxed) != 0 {
        state.role.store(role::OFF, Release);
        return false;
    }
    if state.forked.load(Relaxed) != 0 {
        return true;
    }
    for cell in &CONFIG.logs {
        let log = take(cell);
        if !log.is_null() {
            replace(log as usize, LOG_STRIDE);
        }
    }
    let desk = take(&CONFIG.desk);
    if !desk.is_null() {
        replace(desk as usize, DESK_LEN);
    }
    arena::fill_rings();
    arena::leave_window();
    begin_process(state);
    // Last: a handler's calls come here, too.
    state.forked.store(1, Relaxed);
    true
}

/// Maps a file of the collector's; null where it is not there or begins with
/// another word than `magic`.
fn map_held(path: &[u8], len: usize, magic: u64) -> *const AtomicU64 {
    const O_RDWR_CLOEXEC: usize = 0o2_000_002;
    let mut name = [0u8; 128];
    let Some(room) = name.get_mut(..path.len()) else { return core::ptr::null() };
    if path.is_empty() || path.len() == 128 {
        return core::ptr::null();
    }
    room.copy_from_slice(path);
    // SAFETY: a NUL-terminated path of ours.
    let fd = unsafe { call(nr::OPENAT, &[sys::AT_FDCWD, name.as_ptr() as usize, O_RDWR_CLOEXEC]) };
    if fd < 0 {
        return core::ptr::null();
    }
    let mut stat = sys::Stat::default();
    let fits = sys::fstat(fd as i32, &mut stat) == 0 && stat.size as usize >= len;
    let mut address = -1;
    if fits {
        let prot = sys::PROT_READ | sys::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        address = unsafe { call(nr::MMAP, &[0, len, prot, sys::MAP_SHARED, fd as usize, 0]) };
    }
    sys::close(fd as i32);
    if address < 0 {
        return core::ptr::null();
    }
    let first = address as *const AtomicU64;
    // SAFETY: `len` bytes have been mapped, and the collector, which made the
    // file, does not shrink it.
    if unsafe { (*first).load(Relaxed) } == magic { first } else { core::ptr::null() }
}

/// The file that reads are recorded in; null where none are. Not in a program
/// whose addresses are limited: it may be about to use them all.
fn map_reads(session: &Session<'_>) -> *const reads::Header {
    const RLIMIT_AS: usize = 9;
    const MADV_DONTDUMP: usize = 16;
    if session.mode != Mode::Observe || sys::soft_limit(RLIMIT_AS) != Some(u64::MAX) {
        return core::ptr::null();
    }
    let header = map_held(session.reads, reads::FILE_LEN, reads::MAGIC);
    if !header.is_null() {
        // SAFETY: advice on a mapping of ours.
        unsafe { call(nr::MADVISE, &[header as usize, reads::FILE_LEN, MADV_DONTDUMP]) };
    }
    header.cast()
}

/// Takes a slot for this process; null where nobody collects.
fn take_slot(state: &State) -> *const Slot {
    let header = CONFIG.stats.load(Relaxed).cast_const();
    if header.is_null() {
        return core::ptr::null();
    }
    // SAFETY: mapped for good by map_held.
    let taken = unsafe { (*header).slots_taken.fetch_add(1, Relaxed) } as usize;
    let index = taken.min(SLOTS_MAX - 1);
    // SAFETY: the slots follow the header, and index is one of them.
    let slot = unsafe { header.add(1).cast::<Slot>().add(index) };
    // SAFETY: inside the mapping; all fields are atomics.
    let at = unsafe { &*slot };
    at.pid.store(state.pid.load(Relaxed), Relaxed);
    let mut name = [0u64; 2];
    const PR_GET_NAME: usize = 16;
    // SAFETY: the kernel writes 16 bytes.
    unsafe { call(nr::PRCTL, &[PR_GET_NAME, name.as_mut_ptr() as usize]) };
    for (cell, word) in at.name.iter().zip(name) {
        cell.store(word, Relaxed);
    }
    slot
}

/// At the end of the program that the user started: the collector reports
/// before anybody is told of the end.
pub fn tell_collector(state: &State, status: i32) {
    // SAFETY: null, or mapped for good by map_held.
    let Some(header) = (unsafe { CONFIG.stats.load(Relaxed).as_ref() }) else { return };
    if header.root_pid.load(Relaxed) != state.pid.load(Relaxed) {
        return;
    }
    header.root_exit_status.store(status & 0xff, Relaxed);
    header.root_exiting.store(1, Release);
    sys::futex_wake(&header.root_exiting);
    let records = !CONFIG.reads.load(Relaxed).is_null();
    let most_ns = if records { COLLECT_READS_NS } else { COLLECT_NS };
    let start_ns = sys::now_ns();
    while header.collected.load(Relaxed) == 0 {
        let passed_ns = sys::now_ns().saturating_sub(start_ns);
        if passed_ns >= most_ns {
            return;
        }
        sys::futex_wait(&header.collected, 0, most_ns - passed_ns);
    }
}

/// Bytes before the NUL.
///
/// # Safety
/// `address` must be a NUL-terminated string's.
unsafe fn len_of(address: usize) -> usize {
    let mut len = 0;
    // SAFETY: up to the NUL, as the caller promises.
    while unsafe { *((address + len) as *const u8) } != 0 {
        len += 1;
    }
    len
}

/// The process's environment: on the start-up stack, or where it has been moved to.
struct Environment {
    array: usize,
    len: usize,
}

impl Environment {
    /// The array at `envp`; `None` where it is unreasonably long.
    ///
    /// # Safety
    /// `envp` must be a NULL-terminated array of NUL-terminated strings that
    /// live as long as the process and that nobody else uses now.
    unsafe fn at(envp: usize) -> Option<Environment> {
        let mut environment = Environment { array: envp, len: 0 };
        while environment.len < VARIABLES_MAX {
            // SAFETY: not yet past the NULL.
            if unsafe { *environment.slot(environment.len) } == 0 {
                return Some(environment);
            }
            environment.len += 1;
        }
        None
    }

    /// How many of the `argc` arguments before the array were given to execve(2): of a
    /// script the kernel puts the interpreter's before its path, in the place of the
    /// first (`binfmt_script`).
    fn arguments(&self, argc: usize) -> usize {
        /// An interpreter and its argument, and those of an interpreter that is a
        /// script itself.
        const BEFORE_MAX: usize = 4;
        let Some(executed) = elf::executed() else { return argc };
        let begin = self.array.wrapping_sub((argc + 1) * size_of::<usize>());
        let before = (1..=BEFORE_MAX.min(argc.saturating_sub(1))).find(|index| {
            // SAFETY: argument number `index`, unless an earlier constructor has taken
            // it out, and the executed path, as the kernel left them: both arrays lie one
            // behind the other, as the constructor was passed them, or as the kernel tells.
            unsafe {
                let argument = *((begin + index * size_of::<usize>()) as *const usize);
                let text = |at| core::slice::from_raw_parts(at as *const u8, len_of(at));
                argument != 0 && text(argument) == text(executed)
            }
        });
        argc - before.unwrap_or(0)
    }

    /// Address behind the array, where the kernel puts the auxiliary vector.
    fn end(&self) -> usize {
        self.slot(self.len + 1) as usize
    }

    /// Where pointer number `index` stands.
    fn slot(&self, index: usize) -> *mut usize {
        (self.array + index * size_of::<usize>()) as *mut usize
    }

    /// String number `index`, below `len`.
    fn string(&self, index: usize) -> &'static mut [u8] {
        // SAFETY: below len, so a NUL-terminated string (see `at`).
        unsafe {
            let start = *self.slot(index);
            core::slice::from_raw_parts_mut(start as *mut u8, len_of(start))
        }
    }

    /// The value of a variable.
    fn value(&self, name: &[u8]) -> Option<&'static [u8]> {
        (0..self.len).find_map(|index| {
            self.string(index).strip_prefix(name).and_then(|rest| rest.strip_prefix(b"="))
        })
    }

    /// The C library's, where it has another array by now: a constructor of a library
    /// of the program's has set a variable (setenv(3)) before ours has run. The strings
    /// are the same.
    fn moved(&self) -> Option<Environment> {
        let mut found = None;
        elf::for_each(|object| {
            if found.is_none() {
                let defined = Tables::of(&object).variable(b"__environ");
                found = defined.filter(|&at| object.is_data(at, size_of::<usize>()));
            }
        });
        // SAFETY: a variable of the C library's, or the program's copy of it, which the
        // dynamic linker has found in this order, too.
        let array = unsafe { *(found? as *const usize) };
        let is_other = array != 0 && array.is_multiple_of(size_of::<usize>());
        // SAFETY: what getenv(3) would look through; only this thread uses it so far.
        unsafe { if is_other && array != self.array { Environment::at(array) } else { None } }
    }

    /// Takes out what the launcher put in, so that the program finds the
    /// environment that it would have had.
    fn scrub(self, agent: &[u8]) {
        let mut kept = 0;
        for index in 0..self.len {
            if keep(self.string(index), agent) {
                // SAFETY: kept <= index < len: inside the array.
                unsafe { *self.slot(kept) = *self.slot(index) };
                kept += 1;
            }
        }
        for index in kept..self.len {
            // SAFETY: inside the array.
            unsafe { *self.slot(index) = 0 };
        }
    }
}

/// Whether a variable stays; `LD_PRELOAD` may lose its first entry in place.
fn keep(variable: &mut [u8], agent: &[u8]) -> bool {
    const PRELOAD: &[u8] = b"LD_PRELOAD=";
    if variable.strip_prefix(SESSION_VARIABLE.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
    {
        return false;
    }
    let Some(ours) = variable.strip_prefix(PRELOAD).and_then(|list| list.strip_prefix(agent))
    else {
        return true;
    };
    if ours.is_empty() {
        return false;
    }
    if ours.first() != Some(&b':') {
        return true;
    }
    // "LD_PRELOAD=agent:rest" becomes "LD_PRELOAD=rest" and a new NUL.
    let shift = agent.len() + 1;
    for at in PRELOAD.len()..variable.len() {
        let byte = variable.get(at + shift).copied().unwrap_or(0);
        if let Some(slot) = variable.get_mut(at) {
            *slot = byte;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{keep, translates, unrestricted};
    use crate::status::Status;
    use runahead_protocol::session::Session;

    #[test]
    fn a_filter_of_the_program_itself_keeps_the_agent_out() {
        let session = |filters| Session { filters, ..Session::default() };
        let status = |seccomp, filters| Status { seccomp, filters, ..Status::default() };
        assert!(unrestricted(&session(0), &status(0, 0)));
        assert!(unrestricted(&session(2), &status(0, 0)));
        assert!(unrestricted(&session(2), &status(2, 2)));
        assert!(!unrestricted(&session(2), &status(2, 3)));
        assert!(!unrestricted(&session(0), &status(2, 1)));
        assert!(!unrestricted(&session(0), &status(2, 0)), "a kernel that does not count");
        assert!(!unrestricted(&session(1), &status(1, 1)));
    }

    #[test]
    fn programs_under_valgrind_are_left_alone() {
        assert!(translates(b"/usr/libexec/valgrind/vgpreload_core-amd64-linux.so:/a.so"));
        assert!(!translates(b"/a.so:/usr/lib/valgrind.so"));
    }

    #[test]
    fn the_environment_loses_what_the_launcher_added() {
        assert!(!keep(&mut b"RUNAHEAD_SESSION=v=1".to_vec(), b"/a.so"));
        assert!(keep(&mut b"RUNAHEAD_SESSIONS=1".to_vec(), b"/a.so"));
        assert!(!keep(&mut b"LD_PRELOAD=/a.so".to_vec(), b"/a.so"));
        assert!(keep(&mut b"LD_PRELOAD=/a.soX".to_vec(), b"/a.so"));
        let mut joined = b"LD_PRELOAD=/a.so:/b.so".to_vec();
        assert!(keep(&mut joined, b"/a.so"));
        assert_eq!(joined.split(|&b| b == 0).next().unwrap(), b"LD_PRELOAD=/b.so");
    }
}
