//! The normal side: what the agent does in the program itself. Its first
//! duty is to do nothing measurable; its second, that every failure of ours
//! ends as if we were absent.

mod accounting;
mod areas;
mod asking;
pub mod bars;
pub mod cancellable;
mod capture;
mod cgroup;
mod control;
mod credit;
mod direct;
mod directories;
pub mod ending;
mod exec;
mod faults;
mod flushing;
pub mod group;
mod huge;
mod idle;
mod learnt;
mod loadable;
pub mod logs;
mod notice;
mod outstanding;
mod place;
mod processors;
mod quota;
mod reads;
mod record;
mod scratch;
mod sequence;
mod silence;
mod stall;
mod streams;
mod synchronise;
mod tracing;
mod waiting;
mod watch;
mod whole_files;

use crate::arch::{Frame, StubKind, nr};
use crate::config::CONFIG;
use crate::hook::plain;
use crate::import::handover;
use crate::state::{State, role};
use crate::sys;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use runahead_emulate::arch::nr as all_nr;
use runahead_protocol::stats::{Counter, Loss};

pub use areas::LARGE_BYTES;
pub use capture::hand_over;
pub use control::Control;
pub use credit::CREDIT;
pub use ending::end_speculation;
pub use exec::execute;
pub use flushing::Known;
pub use learnt::started;
use reads::OFFSET_NONE;
pub use reads::{Request, is_looked_at};
pub use scratch::Scratch;
pub use silence::is_silent;
pub use streams::Table as StreamTable;
use waiting::await_detached;
pub use watch::ra_waited;

/// What a normal process's calls of one number mean to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    /// Nothing: hooked for the speculative process's sake only.
    Nothing,
    /// Reads through a descriptor.
    Read,
    /// Reads one descriptor and writes another.
    Transfer,
    /// Reads a directory.
    List,
    /// Returns a new descriptor.
    Open,
    /// Returns its second argument, a descriptor that changes.
    Renumber,
    Close,
    CloseRange,
    Fcntl,
    /// Uses something that a second process would disturb.
    Delicate,
    /// Asks a device, perhaps for a userfaultfd.
    Ioctl,
    /// Watches files.
    Files,
    /// Sets up asynchronous I/O (io_setup(2)).
    Asynchronous,
    /// May restrict the system calls; `prctl` may do more.
    Restrict,
    /// Waits for children, with options in this argument.
    Wait(usize),
    /// No copy may live beside it.
    Alone,
    Namespaces,
    /// Gives the process another root directory.
    Root,
    /// Attaches System V shared memory.
    Attach,
    /// Locks a file by its description.
    Lock,
    /// Says how a file will be read.
    ReadAdvice,
    /// May say what children get of a region.
    Advise,
    /// Executes a program, with an environment in this argument.
    Execute(usize),
    Exit,
    /// Maps memory, perhaps of a file.
    Map,
    Unmap,
    /// Moves or resizes mapped memory.
    Remap,
    /// Moves the end of the heap.
    Heap,
    /// What a new thread does early on.
    Mask,
    ThreadEnds,
    /// Sets a limit, or asks what it is.
    Limit,
    /// Traces, or is traced.
    Trace,
    /// Locks all memory.
    LockAll,
}

/// The one list of what is watched.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
const fn watch(number: usize) -> Watch {
    match number {
        nr::READ | nr::PREAD64 | nr::READV | nr::PREADV | nr::PREADV2 => Watch::Read,
        number if reads::is_transfer(number) => Watch::Transfer,
        nr::GETDENTS | nr::GETDENTS64 => Watch::List,
        nr::OPEN | nr::OPENAT | nr::OPENAT2 | nr::CREAT | nr::DUP => Watch::Open,
        nr::DUP2 | nr::DUP3 => Watch::Renumber,
        nr::CLOSE => Watch::Close,
        nr::CLOSE_RANGE => Watch::CloseRange,
        nr::FCNTL => Watch::Fcntl,
        nr::INOTIFY_INIT | nr::INOTIFY_INIT1 | nr::FANOTIFY_INIT => Watch::Files,
        nr::IO_URING_SETUP | nr::USERFAULTFD => Watch::Delicate,
        nr::IOCTL => Watch::Ioctl,
        nr::IO_SETUP => Watch::Asynchronous,
        nr::PRCTL | nr::SECCOMP => Watch::Restrict,
        nr::WAIT4 => Watch::Wait(2),
        nr::WAITID => Watch::Wait(3),
        nr::UMOUNT2 | nr::SETSID => Watch::Alone,
        nr::PIVOT_ROOT | nr::CHROOT => Watch::Root,
        number if changes_rights(number) => Watch::Alone,
        nr::SHMAT => Watch::Attach,
        nr::FLOCK => Watch::Lock,
        nr::UNSHARE | nr::SETNS => Watch::Namespaces,
        nr::MADVISE => Watch::Advise,
        all_nr::FADVISE64 => Watch::ReadAdvice,
        nr::EXECVE => Watch::Execute(2),
        nr::EXECVEAT => Watch::Execute(3),
        nr::EXIT_GROUP => Watch::Exit,
        nr::MMAP => Watch::Map,
        nr::MUNMAP => Watch::Unmap,
        nr::MREMAP => Watch::Remap,
        nr::BRK => Watch::Heap,
        nr::RT_SIGPROCMASK => Watch::Mask,
        nr::EXIT => Watch::ThreadEnds,
        nr::PRLIMIT64 | nr::SETRLIMIT => Watch::Limit,
        all_nr::PTRACE => Watch::Trace,
        all_nr::MLOCKALL => Watch::LockAll,
        _ => Watch::Nothing,
    }
}

/// What the stub of a site with this number decides by itself, in a normal
/// process. What it lets through comes here in no other way, so that must be
/// what the hook does with it.
pub const fn stub_kind(number: usize) -> StubKind {
    match watch(number) {
        Watch::Nothing => StubKind::Through,
        Watch::Read | Watch::Transfer => StubKind::Read,
        Watch::Open => StubKind::Open,
        Watch::Close => StubKind::Close,
        Watch::Fcntl => StubKind::Fcntl,
        Watch::Ioctl => StubKind::Ioctl,
        _ => StubKind::Hook,
    }
}

/// One system call of the program.
#[inline]
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
pub fn call(state: &'static State, frame: &mut Frame) -> isize {
    let [first, second, third, ..] = frame.args;
    match watch(frame.number) {
        Watch::Nothing => plain(frame),
        Watch::Read | Watch::Transfer if record::wanted() => record::around(state, frame, read),
        Watch::Read | Watch::Transfer => read(state, frame),
        Watch::List => directories::list(state, frame),
        Watch::Open => {
            let fd = plain(frame);
            state.opened(fd);
            fd
        }
        Watch::Renumber => {
            state.opened(second as i32 as isize);
            closing(state, frame)
        }
        Watch::Close => {
            state.forget(first as u32 as usize);
            closing(state, frame)
        }
        Watch::CloseRange => {
            state.forget_range(first as u32 as usize, second as u32 as usize);
            if third as u32 & CLOSE_RANGE_UNSHARE != 0 {
                // Who is in the table would be left with the program's locks,
                // and drop them.
                return alone(state, frame);
            }
            closing(state, frame)
        }
        Watch::Fcntl => fcntl(state, frame, first, second),
        Watch::Ioctl => {
            before_ioctl(state, second);
            plain(frame)
        }
        rare => self::rare(state, frame, rare),
    }
}

/// A call that reads.
#[inline]
fn read(state: &'static State, frame: &mut Frame) -> isize {
    if reads::is_transfer(frame.number) {
        reads::transfer(state, frame)
    } else {
        reads::read(state, frame)
    }
}

/// The calls after which a process is another.
#[cold]
fn rare(state: &'static State, frame: &mut Frame, watch: Watch) -> isize {
    let [first, second, ..] = frame.args;
    if matches!(watch, Watch::Map | Watch::Unmap | Watch::Heap) {
        notice::want_by_now(state);
    }
    match watch {
        Watch::Map => {
            areas::before_mapped(state, &frame.args);
            let result = plain(frame);
            if huge::may_be(&frame.args) {
                huge::mapped(state, frame, result);
            }
            return match areas::mapped(state, result, &frame.args) {
                Some(bytes) => sequence::before_sequence(state, result, bytes),
                None => result,
            };
        }
        Watch::Unmap => {
            areas::unmapped(state, first, second);
            if areas::lets_go_of_written(state, first, second) && own(state) {
                synchronise::judge(state);
                end_speculation(state);
            }
        }
        Watch::Remap => {
            // A mark would move along.
            handover::await_made(state);
            let result = plain(frame);
            areas::remapped(state, result, &frame.args);
            return result;
        }
        Watch::Heap => {
            let result = plain(frame);
            areas::heap_ends(state, result);
            return result;
        }
        Watch::Mask => {
            let result = plain(frame);
            notice::this_thread(state);
            return result;
        }
        Watch::ThreadEnds => {
            notice::thread_ends(state);
            let made = state.epoch.load(Relaxed) != 0 || state.aide.load(Relaxed) > 0;
            if made && own(state) && crate::import::regions::is_single_threaded() {
                ending(state, first as i32);
            }
        }
        Watch::Limit => notice::before_limit(state, frame),
        Watch::Trace => tracing::before_ptrace(state, first, second),
        Watch::LockAll => before_lock_all(state),
        Watch::Delicate => delicate(state),
        Watch::Files => watches(state),
        Watch::Asynchronous => before_asynchronous(state),
        Watch::Restrict if restricts(frame.number, first) => return filtered(state, frame),
        Watch::Restrict if dispatches(frame.number, first, second) => before_dispatch(state),
        Watch::Restrict if frame.number == nr::PRCTL => before_prctl(first),
        Watch::Wait(at) if frame.args.get(at).is_some_and(|&options| waits_for_all(options)) => {
            return alone(state, frame);
        }
        Watch::Advise if is_about_children(frame.args) => {
            CONFIG.advised.store(1, Relaxed);
            handover::await_made(state);
        }
        Watch::ReadAdvice => before_read_advice(frame.args),
        Watch::Alone => return alone(state, frame),
        Watch::Root => return change_root(state, frame),
        Watch::Attach => {
            CONFIG.attaches.store(1, Relaxed);
            handover::await_made(state);
        }
        Watch::Lock => before_lock(state, first as i32, second),
        Watch::Namespaces => before_namespaces(state),
        Watch::Execute(environment) => return exec::execute(state, frame, environment),
        Watch::Exit => ending(state, first as i32),
        _ => {}
    }
    plain(frame)
}

/// A call that closes a descriptor.
fn closing(state: &State, frame: &Frame) -> isize {
    let result = plain(frame);
    closed(state);
    result
}

/// After a close. Another thread's copy that is leaving the descriptor table, or looks at
/// what is in it, holds open files for moments: the close has its effect when it returns,
/// as it would alone.
pub fn closed(state: &State) {
    await_detached(state);
    waiting::await_looked(state);
}

/// Whether a call changes whose process this is. A copy of the old rights
/// could not be killed any more, nor would it die with the program.
pub const fn changes_rights(number: usize) -> bool {
    matches!(
        number,
        nr::SETUID
            | nr::SETGID
            | nr::SETREUID
            | nr::SETREGID
            | nr::SETRESUID
            | nr::SETRESGID
            | nr::SETFSUID
            | nr::SETFSGID
            | nr::SETGROUPS
            | nr::CAPSET
            | nr::KEYCTL
            | nr::LANDLOCK_RESTRICT_SELF
    )
}

/// Whether the options of a wait are `__WCLONE` or `__WALL`, which find
/// children without an exit signal, too.
pub fn waits_for_all(options: usize) -> bool {
    const WCLONE_WALL: usize = 0xc000_0000;
    options & WCLONE_WALL != 0
}

/// A call whose result a living copy would change: it waits for children of
/// every kind, unmounts what the copy has open, or counts the members of the
/// process group. Until it returns no thread makes a copy.
#[cold]
fn alone(state: &'static State, frame: &Frame) -> isize {
    if !own(state) {
        return plain(frame);
    }
    let result = bars::within(state, || {
        end_speculation(state);
        plain(frame)
    });
    watch::again(state);
    result
}

/// The same before a call that somebody else makes: by symbol, or where a thread is
/// cancelled. When that is over nobody hears; another thread makes no copy meanwhile in
/// tier T0, and else from here on.
#[cold]
pub fn before_alone(state: &'static State) {
    if !own(state) {
        return;
    }
    let by_symbol_alone = CONFIG.unseen.load(Relaxed) != 0 && CONFIG.is_musl.load(Relaxed) == 0;
    if !by_symbol_alone && !crate::import::regions::is_single_threaded() {
        bars::for_good(state);
    }
    end_speculation(state);
}

/// Before `unshare` and `setns`: the next child may be the first process of a
/// new namespace, which no copy of ours must become.
#[cold]
pub fn before_namespaces(state: &'static State) {
    if own(state) {
        state.disable(Loss::Namespace);
        end_speculation(state);
    }
}

/// Before `chroot` and `pivot_root`: from here on the paths of ours may lead to anything,
/// a FIFO, too, on which whoever opens it waits for ever. None of them is opened any
/// more, and nothing is speculated, here and in children that are forked.
#[cold]
pub fn before_other_root(state: &'static State) {
    if own(state) {
        state.disable(Loss::Namespace);
        // Which looks into /proc.
        end_speculation(state);
        CONFIG.other_root.store(1, Relaxed);
    }
}

/// The same around the call itself.
#[cold]
fn change_root(state: &'static State, frame: &Frame) -> isize {
    let other_root = CONFIG.other_root.load(Relaxed);
    let disabled = state.disabled.load(SeqCst);
    before_other_root(state);
    let result = plain(frame);
    if result < 0 && own(state) {
        // It was refused: nothing has changed.
        CONFIG.other_root.store(other_root, Relaxed);
        state.disabled.store(disabled, SeqCst);
        watch::again(state);
    }
    result
}

/// Before a process or a thread is made. A copy counts as one of the user's
/// processes: where few are allowed, none of them is one of ours.
#[cold]
pub fn before_process(state: &'static State, frame: &Frame) {
    handover::await_made(state);
    if !makes_thread(frame) {
        learnt::before_child(state);
    }
    let helped = state.aide.load(Relaxed) > 0 || ending::unreaped(state) != 0;
    if state.speculative.load(Relaxed) == 0 && !helped || !own(state) {
        return;
    }
    let few = few_processes();
    if few {
        state.disable(Loss::ProcessLimit);
    }
    // A copy parks where the program makes a process; but one that computes on
    // what it does not have, or is behind, or is about to end, keeps open what it
    // has mapped, and a file that was written cannot be executed meanwhile. A
    // scout knows nothing of it and would keep directories open beside the child,
    // which may unmount.
    let stays = state.speculative.load(Relaxed) != 0 || ending::unreaped(state) != 0;
    let unseen = CONFIG.unseen.load(Relaxed) != 0 && makes_thread(frame);
    if few || unseen || stays && !makes_thread(frame) || state.scouts.load(Relaxed) != 0 {
        synchronise::judge(state);
        end_speculation(state);
    }
}

/// Whether a clone(2) or clone3(2) makes a thread. A wild pointer is the kernel's
/// to find.
fn makes_thread(frame: &Frame) -> bool {
    const CLONE_THREAD: u64 = 0x1_0000;
    let [first, ..] = frame.args;
    let flags = match frame.number {
        nr::CLONE => first as u64,
        nr::CLONE3 => streams::word_at(first).unwrap_or(0),
        _ => 0,
    };
    flags & CLONE_THREAD != 0
}

/// Whether the limit on processes (RLIMIT_NPROC) is so low that a program may
/// be about to reach it.
pub fn few_processes() -> bool {
    has_fewer_processes(PROCESSES_FEW)
}

/// The same for a copy with readers, which counts as 33.
pub fn few_for_readers() -> bool {
    has_fewer_processes(4 * PROCESSES_FEW)
}

fn has_fewer_processes(than: u64) -> bool {
    const RLIMIT_NPROC: usize = 6;
    sys::soft_limit(RLIMIT_NPROC).is_some_and(|soft| soft < than)
}

/// Fewer processes than this are few: by default a limit is in the ten
/// thousands.
const PROCESSES_FEW: u64 = 4096;

/// Before posix_fadvise(2): one advice about a description takes the place of another.
pub fn before_read_advice([_, _, _, advice, ..]: [usize; 6]) {
    const POSIX_FADV_RANDOM: u32 = 1;
    if advice as u32 == POSIX_FADV_RANDOM {
        CONFIG.reads_at_random.store(1, Relaxed);
    }
}

/// Whether a madvise(2) says what children get of a region: MADV_DONTFORK,
/// MADV_DOFORK, MADV_WIPEONFORK, MADV_KEEPONFORK.
fn is_about_children([_, _, advice, ..]: [usize; 6]) -> bool {
    matches!(advice, 10 | 11 | 18 | 19)
}

const PR_SET_SECCOMP: usize = 22;
const PR_SET_TSC: usize = 26;
const SECCOMP_SET_MODE_STRICT: usize = 0;
const SECCOMP_SET_MODE_FILTER: usize = 1;
const CLOSE_RANGE_UNSHARE: u32 = 2;
const F_DUPFD: usize = 0;
const F_SETFL: usize = 4;
const F_SETLK: usize = 6;
const F_SETLKW: usize = 7;
const F_OFD_SETLK: usize = 37;
const F_OFD_SETLKW: usize = 38;
const F_SETLEASE: usize = 1024;
const SECCOMP_FILTER_FLAG_TSYNC: usize = 1;
const F_NOTIFY: usize = 1026;
const F_DUPFD_CLOEXEC: usize = 1030;
const F_ADD_SEALS: usize = 1033;

/// A description is about to be locked (flock(2), F_OFD_SETLK). The lock lasts
/// as long as the description, which every mapping of it holds, a copy's too:
/// a copy that has one is ended, and later ones give theirs up before the
/// program goes on (`speculative::shared`).
#[cold]
pub fn before_lock(state: &'static State, fd: i32, operation: usize) {
    const LOCK_UN: usize = 8;
    if operation & LOCK_UN != 0 || !own(state) {
        return;
    }
    let Some((_, ino)) = sys::identity(fd) else { return };
    for cell in &CONFIG.locked {
        match cell.compare_exchange(0, ino, SeqCst, SeqCst) {
            Ok(_) => return end_speculation(state),
            Err(locked) if locked == ino => return,
            Err(_) => {}
        }
    }
    delicate(state);
}

#[inline(never)]
fn fcntl(state: &'static State, frame: &Frame, fd: usize, command: usize) -> isize {
    if command & 0xffff_ffff == F_ADD_SEALS {
        return alone(state, frame);
    }
    before_fcntl(state, fd, command);
    let result = plain(frame);
    if makes_descriptor(command) {
        state.opened(result);
    }
    result
}

/// What an fcntl(2) is about to change.
pub fn before_fcntl(state: &'static State, fd: usize, command: usize) {
    match command & 0xffff_ffff {
        // O_DIRECT may change.
        F_SETFL => state.forget(fd as u32 as usize),
        // Opening the file once more would break the lease or be notified.
        F_SETLEASE => delicate(state),
        F_NOTIFY => watches(state),
        F_OFD_SETLK | F_OFD_SETLKW => before_lock(state, fd as i32, 0),
        F_SETLK | F_SETLKW => state.locks.store(1, Relaxed),
        // Refused while anybody has it mapped for writing.
        F_ADD_SEALS => before_alone(state),
        _ => {}
    }
}

/// Whether an fcntl(2) returns a new descriptor.
pub fn makes_descriptor(command: usize) -> bool {
    matches!(command & 0xffff_ffff, F_DUPFD | F_DUPFD_CLOEXEC)
}

/// The program uses something that a second process would disturb.
#[cold]
pub fn delicate(state: &'static State) {
    if own(state) {
        is_delicate(state);
        end_speculation(state);
        // Their rings count in what the user may lock, with what io_uring and others pin.
        notice::disarm(state);
    }
}

/// Before mlockall(2): all that is mapped counts in the limit of what a program may lock,
/// and what is mapped later may be locked, too.
#[cold]
pub fn before_lock_all(state: &'static State) {
    if own(state) {
        delicate(state);
        if crate::import::regions::is_single_threaded() {
            learnt::leave(state);
            crate::arena::leave();
        }
    }
}

/// `USERFAULTFD_IOC_NEW`, which /dev/userfaultfd answers (Linux 6.1).
pub const USERFAULTFD_IOC_NEW: u32 = 0xaa00;

/// Before an ioctl(2): a descriptor like that of userfaultfd(2) comes from a device, too.
pub fn before_ioctl(state: &'static State, request: usize) {
    if request as u32 == USERFAULTFD_IOC_NEW {
        delicate(state);
    }
}

/// Before io_setup(2): reads that nobody waits for may be direct ones.
#[cold]
pub fn before_asynchronous(state: &'static State) {
    if direct::is_lost() {
        delicate(state);
    }
}

/// The program is told of what is done to files: of what we do, too.
#[cold]
pub fn watches(state: &'static State) {
    if own(state) {
        CONFIG.watches.store(1, Relaxed);
    }
    delicate(state);
}

/// From here on nothing is speculated, nor in children that are forked: they have
/// what this process has (the descriptor that watches, the rings, the lock).
fn is_delicate(state: &State) {
    CONFIG.delicate.store(1, Relaxed);
    state.disable(Loss::Delicate);
}

/// Before a prctl(2) that has this first argument.
pub fn before_prctl(option: usize) {
    match option {
        // From here on rdtsc may fault: use the clock.
        PR_SET_TSC => CONFIG.ticks_per_us.store(0, Relaxed),
        watch::PR_SET_PTRACER => CONFIG.says_tracer.store(1, Relaxed),
        _ => {}
    }
}

/// Whether a call (`number` with first argument `first`) installs a seccomp
/// filter.
pub fn restricts(number: usize, first: usize) -> bool {
    match number {
        nr::PRCTL => first == PR_SET_SECCOMP,
        nr::SECCOMP => first == SECCOMP_SET_MODE_STRICT || first == SECCOMP_SET_MODE_FILTER,
        _ => false,
    }
}

/// The program is about to restrict its own system calls: from here on the
/// agent makes none of its own, here and in every child.
#[cold]
pub fn restricted(state: &'static State) {
    if !own(state) {
        silence::begin(state);
        return;
    }
    leave_alone(state, Loss::Seccomp);
}

/// From here on the agent does nothing any more, here and in every child.
fn leave_alone(state: &'static State, loss: Loss) {
    state.disable(loss);
    end_speculation(state);
    notice::disarm(state);
    CONFIG.forbidden.store(1, Relaxed);
    state.role.store(role::OFF, Relaxed);
}

/// Whether a call (`number` with these first arguments) has the kernel tell the program of
/// calls by where they are made.
pub fn dispatches(number: usize, option: usize, operation: usize) -> bool {
    const PR_SET_SYSCALL_USER_DISPATCH: u32 = 59;
    number == nr::PRCTL && option as u32 == PR_SET_SYSCALL_USER_DISPATCH && operation != 0
}

/// Before such a call: what the C library calls is to be made there again, and by nobody
/// else. In a child by vfork(2) too much is its parent's.
#[cold]
pub fn before_dispatch(state: &'static State) {
    if own(state) {
        leave_alone(state, Loss::Dispatch);
        crate::patch::undo();
    }
}

/// How long a filter for all threads is held back, in ns: more than a stall takes us
/// beside its wait.
const RESTRICTING_NS: u64 = 2_000_000;

/// The same around the call itself.
#[cold]
fn filtered(state: &'static State, frame: &Frame) -> isize {
    if !own(state) {
        return silence::around(state, frame);
    }
    let (forbidden, disabled) = (CONFIG.forbidden.load(Relaxed), state.disabled.load(SeqCst));
    restricted(state);
    let [_, _, program, ..] = frame.args;
    let by_place = place::is_asked_by(program);
    if by_place {
        crate::patch::undo();
    }
    // Other threads are to have come out of what they are doing for us: the filter
    // may kill them for it.
    let [_, flags, ..] = frame.args;
    if frame.number == nr::SECCOMP && flags & SECCOMP_FILTER_FLAG_TSYNC != 0 {
        sys::sleep_exactly(RESTRICTING_NS);
    }
    let result = plain(frame);
    if result < 0 && !by_place {
        // It was refused: nothing has changed, neither why there was no
        // speculation before.
        CONFIG.forbidden.store(forbidden, Relaxed);
        state.disabled.store(disabled, SeqCst);
        state.role.store(role::NORMAL, Relaxed);
    }
    result
}

/// Whether the state is this process's, not that of the parent whose memory
/// a `vfork` child shares.
pub fn own(state: &State) -> bool {
    sys::getpid() == state.pid.load(Relaxed)
}

/// The program ends: the speculative process must be gone before anybody can
/// be told, so that a file system can be unmounted at once.
#[cold]
pub fn ending(state: &'static State, status: i32) {
    if !own(state) {
        return;
    }
    handover::await_made(state);
    learnt::ended(state);
    bars::for_good(state);
    end_speculation(state);
    if let Some(slot) = state.slot() {
        let usage = crate::usage::of_self();
        slot.add(Counter::MajorFaults, usage.major_faults);
        slot.add(Counter::MinorFaults, usage.minor_faults);
        crate::start::tell_collector(state, status);
    }
}
