//! What a copy does before it runs the program's code: gives up the
//! program's descriptors, goes out of everybody's way, makes shared memory
//! private, and puts itself under its filter. The order matters and is
//! explained step by step.

use super::{Parent, aside, exit, filter, imports, pages, protected, shared, signals};
use crate::arch::nr;
use crate::arena::{self, Part};
use crate::config::{ALLOCATORS, CONFIG, READ_MIN};
use crate::normal::hand_over;
use crate::sys::{self, call};
use core::ptr::from_ref;
use core::sync::atomic::Ordering::{Relaxed, Release};
use runahead_emulate::{Emulator, Identity, Start, is_text};
use runahead_protocol::log::{Log, life};
use runahead_protocol::session::{TEST_ALWAYS_WRONG, TEST_LEAVES_LATE, TEST_WITHOUT_RELEASE};
use runahead_protocol::stats;

/// `PR_SET_PDEATHSIG`, `PR_SET_DUMPABLE`, `PR_SET_NO_NEW_PRIVS`.
const PR_SET_PDEATHSIG: usize = 1;
const PR_SET_DUMPABLE: usize = 4;
const PR_SET_NO_NEW_PRIVS: usize = 38;
const PR_SET_TIMERSLACK: usize = 29;
/// What the kernel gives everybody.
const TIMER_SLACK_NS: usize = 50_000;
const SIGKILL: usize = 9;
/// `CLOSE_RANGE_UNSHARE`.
const CLOSE_RANGE_UNSHARE: usize = 2;
/// `CLONE_FILES`.
const CLONE_FILES: usize = 0x400;
/// `SCHED_IDLE`.
const SCHED_IDLE: usize = 5;
/// `SCHED_RESET_ON_FORK`, a bit beside the policy.
const SCHED_RESET_ON_FORK: isize = 0x4000_0000;
/// `RLIMIT_CPU`, `RLIMIT_CORE`.
const RLIMIT_CPU: usize = 0;
const RLIMIT_CORE: usize = 4;
/// Processor time of one speculative process, in s.
const CPU_LIMIT_S: u64 = 5;
/// Memory that one may map, in bytes.
const MEMORY_MAX_BYTES: u64 = 1 << 30;
/// `ioprio_set`: this process, best effort, lowest level. Not the idle class:
/// the program waits for a prefetch that is still in flight, and a scheduler
/// may starve the idle class meanwhile.
const IOPRIO_LOWEST: usize = 2 << 13 | 7;
const IOPRIO_WHO_PROCESS: usize = 1;

/// The first step, before anything else that could fault: a program that closes
/// something meanwhile waits for its end (`normal::waiting::await_detached`).
pub fn leave_table(log: &'static Log, parent: &Parent) {
    // Whatever becomes of it, it leaves nothing in the program's directory, nor does it
    // wait for who takes crashes by a pipe, which a limit of 0 does not keep from that
    // (core(5)).
    limit(RLIMIT_CORE, [1, 1]);
    // The child of a thread that has died meanwhile gets no death signal.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // SAFETY: a query.
    if unsafe { call(nr::GETPPID, &[]) } != parent.pid as isize {
        exit();
    }
    if CONFIG.test.load(Relaxed) & TEST_LEAVES_LATE != 0 {
        hold_descriptors();
    }
    // Leaves the program's descriptor table. Inside this call the kernel holds
    // the files of the first 64 numbers: whoever closes one waits for its end.
    // SAFETY: from here on this process has an empty table of its own.
    if unsafe { call(nr::CLOSE_RANGE, &[0, u32::MAX as usize, CLOSE_RANGE_UNSHARE]) } != 0 {
        exit();
    }
    if !shared::counts() {
        detached(log);
    }
}

/// Whether the program's last read that it waited for brought text, as far as that is
/// still there: behind what an allocator may have written over it. Not where a copy that
/// imports has not got it.
fn reads_text() -> bool {
    let mut bytes = [0u8; READ_MIN - ALLOCATORS];
    let at = CONFIG.read_to.load(Relaxed).wrapping_add(ALLOCATORS);
    // SAFETY: into an array of ours.
    at != ALLOCATORS
        && unsafe { sys::copy_own(at, bytes.as_mut_ptr(), bytes.len()) }
        && is_text(&bytes)
}

fn detached(log: &Log) {
    log.life.store(life::DETACHED, Release);
    sys::futex_wake(&log.life);
}

/// Runs all other steps; ends the process where one that safety rests on
/// fails.
pub fn run(emulator: &mut Emulator, log: &'static Log, parent: &Parent) {
    // The program may wait for what sleeps here, with the slack that it gives its own timers.
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    let early = let_go_of_what_counts(log);
    if parent.handed {
        take_processors_of(parent.pid as usize);
    }
    emulator.start(&Start {
        identity: identity(parent),
        memory_max_bytes: MEMORY_MAX_BYTES,
        depth: log.depth.load(Relaxed),
        blocked_signals: parent.signal_mask,
        reads_text: reads_text(),
        always_wrong: CONFIG.test.load(Relaxed) & TEST_ALWAYS_WRONG != 0,
        release: (CONFIG.test.load(Relaxed) & TEST_WITHOUT_RELEASE == 0)
            .then(|| log.behind.words.each_ref().map(|word| word.load(Relaxed))),
    });
    // A mapping of the program's that came into a hole there would be refused later.
    if !(arena::bar_rings() && arena::bar_window()) {
        exit();
    }
    for (start, end) in protected() {
        emulator.protect(start, end - start);
    }
    signals::keep_actions(emulator);
    // SAFETY: in the copy, before the program's code runs.
    unsafe { hand_over(emulator) };
    stand_apart();
    leave_ports();
    if !imports::set_up() {
        exit();
    }
    // Before it is not dumpable: then its own /proc files refuse it.
    first_for_the_oom_killer();
    pages::prepare(log);
    if !early && !shared::make_private_on_touch(log) {
        exit();
    }
    if !signals::install() {
        exit();
    }
    aside::prepare();
    go_out_of_the_way();
    signals::unblock();
    if !filter::install(false) {
        exit();
    }
}

/// The same for a scout, which runs no code but the agent's: what is for the
/// program's code is left out. All signals stay blocked.
pub fn run_scout(log: &'static Log, shares_time: bool) {
    let_go_of_what_counts(log);
    stand_apart();
    first_for_the_oom_killer();
    restrict();
    let scheduled = if shares_time { leave_real_time() } else { go_idle() };
    if !scheduled || !filter::install(true) {
        exit();
    }
}

/// Gives up what is the agents' in common, and, before the program goes on, what
/// the kernel still counts as the program's, where it is known to have any; whether
/// it has.
fn let_go_of_what_counts(log: &'static Log) -> bool {
    drop_files();
    let early = shared::counts();
    if early {
        if !shared::make_private_on_touch(log) {
            exit();
        }
        detached(log);
    }
    early
}

/// A child of the aide's has the processors that the program had when it made
/// the aide.
fn take_processors_of(program: usize) {
    const PROCESSORS: usize = 8192;
    let mut set = [0u64; PROCESSORS / 64];
    let at = set.as_mut_ptr() as usize;
    // SAFETY: the kernel writes at most the array.
    let len = unsafe { call(nr::SCHED_GETAFFINITY, &[program, size_of_val(&set), at]) };
    if let Ok(len) = usize::try_from(len) {
        // SAFETY: reads as much; concerns this process only.
        unsafe { call(nr::SCHED_SETAFFINITY, &[0, len, at]) };
    }
}

/// Gives up the right to port I/O (iopl(2), ioperm(2)), which a copy has as the
/// program has it: no filter sees those instructions. Not under somebody else's
/// filter, which may kill: whoever has the right there has got it before.
fn leave_ports() {
    /// All that there are.
    const PORTS: usize = 65536;
    if CONFIG.filtered.load(Relaxed) == 0 {
        // SAFETY: concern this process only. Where the kernel has neither, there is
        // no such right.
        unsafe {
            call(nr::IOPL, &[0]);
            call(nr::IOPERM, &[0, PORTS, 0]);
        }
    }
}

fn stand_apart() {
    // A group of its own, so that no signal to the program's group comes
    // here. Not a session: autogroup would give it full weight.
    // SAFETY: concerns this process only.
    unsafe { call(nr::SETPGID, &[0, 0]) };
}

/// Restricted, and at idle priority.
fn go_out_of_the_way() {
    restrict();
    // Last but for the filter: it cannot be left again without privilege.
    if !go_idle() {
        exit();
    }
}

/// Bounded processor time, the device's lowest priority, nobody's to trace, and
/// no privilege to gain.
fn restrict() {
    prctl(PR_SET_DUMPABLE, 0);
    limit(RLIMIT_CPU, [CPU_LIMIT_S, CPU_LIMIT_S + 1]);
    // SAFETY: concerns this process only.
    unsafe { call(nr::IOPRIO_SET, &[IOPRIO_WHO_PROCESS, 0, IOPRIO_LOWEST]) };
    if prctl(PR_SET_NO_NEW_PRIVS, 1) != 0 {
        exit();
    }
}

/// A real-time program's scout is none; false where it would be.
fn leave_real_time() -> bool {
    const SCHED_OTHER: isize = 0;
    const SCHED_BATCH: isize = 3;
    let priority = 0u32;
    // SAFETY: a query.
    let policy = unsafe { call(nr::SCHED_GETSCHEDULER, &[0]) } & !SCHED_RESET_ON_FORK;
    if [SCHED_OTHER, SCHED_BATCH, SCHED_IDLE as isize].contains(&policy) {
        return true;
    }
    let other = SCHED_OTHER as usize;
    // SAFETY: reads one struct sched_param; concerns this process only.
    unsafe { call(nr::SCHED_SETSCHEDULER, &[0, other, from_ref(&priority) as usize]) == 0 }
}

/// Testing: holds all that the program has open for a while.
#[cold]
fn hold_descriptors() {
    const HELD_NS: u64 = 200_000;
    // SAFETY: a copy of the table for this process only.
    unsafe { call(nr::UNSHARE, &[CLONE_FILES]) };
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    sys::sleep(HELD_NS);
}

/// Out of the way of everybody; false where a container's filter refuses
/// both ways (at normal priority a copy would be in the way).
fn go_idle() -> bool {
    const PRIO_PROCESS: usize = 0;
    const NICE_MAX: usize = 19;
    let priority = 0u32;
    // SAFETY: reads one struct sched_param; concerns this process only.
    let scheduled =
        unsafe { call(nr::SCHED_SETSCHEDULER, &[0, SCHED_IDLE, from_ref(&priority) as usize]) };
    // SAFETY: concerns this process only.
    scheduled == 0 || unsafe { call(nr::SETPRIORITY, &[PRIO_PROCESS, 0, NICE_MAX]) } == 0
}

fn prctl(option: usize, value: usize) -> isize {
    // SAFETY: options that concern this process only.
    unsafe { call(nr::PRCTL, &[option, value, 0, 0, 0]) }
}

fn identity(parent: &Parent) -> Identity {
    const GETSID: usize = 124;
    let program = parent.pid as usize;
    // SAFETY: queries.
    let (group, session) = unsafe { (call(nr::GETPGID, &[program]), call(GETSID, &[program])) };
    Identity {
        pid: parent.pid as i32,
        tid: parent.tid as i32,
        ppid: parent.parent as i32,
        pgid: group.max(0) as i32,
        sid: session.max(0) as i32,
        fsuid: sys::file_system_user(),
        fsgid: sys::file_system_group(),
    }
}

/// The collector's memory, and the table of executables, are not the copy's to
/// write. Nothing in it refers to them: its state was emptied by the kernel.
fn drop_files() {
    let statistics = CONFIG.stats.load(Relaxed) as usize;
    // SAFETY: see above.
    if statistics != 0 && unsafe { call(nr::MUNMAP, &[statistics, stats::FILE_LEN]) } != 0 {
        exit();
    }
    let table = CONFIG.table.load(Relaxed) as usize;
    if table != 0 && !arena::cover(table, Part::Table.bytes(), 0) {
        exit();
    }
}

fn first_for_the_oom_killer() {
    const O_WRONLY_CLOEXEC: usize = 0o2_000_001;
    let path = b"/proc/self/oom_score_adj\0";
    // SAFETY: a NUL-terminated path.
    let fd =
        unsafe { call(nr::OPENAT, &[sys::AT_FDCWD, path.as_ptr() as usize, O_WRONLY_CLOEXEC]) };
    if fd >= 0 {
        // SAFETY: writes four bytes of ours.
        unsafe { call(nr::WRITE, &[fd as usize, b"1000".as_ptr() as usize, 4]) };
        sys::close(fd as i32);
    }
}

fn limit(resource: usize, limit: [u64; 2]) {
    // SAFETY: reads one struct rlimit64; concerns this process only.
    unsafe { call(nr::PRLIMIT64, &[0, resource, limit.as_ptr() as usize, 0]) };
}
