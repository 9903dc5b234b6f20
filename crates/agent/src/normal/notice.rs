//! Notice of page faults that waited for storage (Fraser and Chang, section
//! 4.1.2: a blocking fault that was not predicted is where the copy is made
//! anew). A software counter of major faults (perf_event_open(2)), period 1,
//! user mode only, per thread, tells the thread after each one by a signal.
//!
//! * Only processes that map large files get it, and only once a page of one
//!   was found missing ([`super::areas`]); where it came to nothing in brief ones of
//!   the executable before, once they are brief no more ([`super::learnt`]):
//!   arming costs 0.15 ms, and 10 ms
//!   where nobody else on the machine uses such counters at that moment
//!   (static keys).
//! * The signal is number 32, which glibc keeps for itself (for cancelling
//!   threads, sent by `tgkill`) and lets no program block, wait for or
//!   handle. Where somebody else handles it there is no notice. When glibc
//!   takes it back, at the first pthread_cancel(3), its handler ignores ours.
//!   musl has it for its timers: the first whose end a thread is told of
//!   (timer_create(3)) resets it, and the next notice would kill. So there is
//!   none with musl.
//! * A queued signal that finds the queue full is replaced by `SIGIO`, which
//!   may kill (fs/fcntl.c, send_sigio_to_task). So each event gives at most
//!   [`NOTICES_MAX`] notices before it is made anew by the handler, and none
//!   is made where the limit of queued signals is not far above that.
//! * The descriptor is closed at once: the mapping of the event's ring keeps
//!   it alive. The kernel takes the mapping from forked children, and exec
//!   ends it.
//! * Faults inside system calls are not noticed, so that no call is ever
//!   interrupted.
//! * A notice takes the program 20 µs, and there may be thousands of faults
//!   that each waited for little longer. Where [`IDLE_NOTICES`] in a row have
//!   led to no copy, and none runs, only every [`PERIOD_STEP`]th fault is
//!   noticed, and fewer still when that leads to nothing either; so, too, where
//!   the ration passes many over in any case ([`runahead_policy::ration`]).

use super::areas::{SWAPPED_BYTES, is_watched};
use super::{faults, learnt, own, watch};
use crate::arch::{
    Frame, SignalContext, nr, on_stack, restorer_address, stack_pointer, thread_pointer,
};
use crate::arena::{self, Part, RINGS_EACH};
use crate::config::{CONFIG, stalls_always};
use crate::maps;
use crate::opening;
use crate::state::{NoticedThread, State, role, state, watched};
use crate::sys::{self, PAGE_SIZE, call};
use core::cell::UnsafeCell;
use core::ptr::from_ref;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use runahead_protocol::notice::{NOTICES_MAX, QUEUED_SIGNALS_MIN, SIGNAL};
use runahead_protocol::session::TEST_WITHOUT_PERF;
use runahead_protocol::stats::{Counter, Loss};

/// [`State::notice`]: every thread shall have it.
pub const WANTED: u32 = 1;
const REFUSED: u32 = 2;
/// The aide watches for waits ([`watch`]).
const WATCHED: u32 = 3;

const RLIMIT_SIGPENDING: usize = 11;

/// The handler of an ignored signal (signal(2)).
const SIG_IGN: usize = 1;

/// Notices that lead to nothing before they become fewer.
const IDLE_NOTICES: u32 = 64;
/// By what factor.
const PERIOD_STEP: u32 = 8;
/// Most faults to a notice: 64 of them wait 64 ms at 1 ms each, which a copy
/// made then comes too late for.
const PERIOD_MAX: u32 = 64;

/// Faults that are passed over in any case to each of a period: what comes after
/// them is noticed a quarter later at most.
const PASSED_OVER_PER_PERIOD: u64 = 4;

/// The same where so many faults will be passed over in any case: what a
/// process leaves behind for the next tells one of a stall or two from others.
const IDLE_NOTICES_KNOWN: u32 = 8;

/// Of the notices that one event gives, the last serve to make the next event in time.
const NOTICES_SPARE: u32 = 64;

/// Least stack below a thread's present place with which it gets notice, in
/// bytes: the kernel puts a frame of up to 11 KiB (AMX) there.
const STACK_MIN: usize = 64 * 1024;
/// Smallest stack set aside for signals with room for a notice, in bytes: SIGSTKSZ.
const OTHER_STACK_MIN: u64 = 8192;

/// Stack on which a notice is handled, in bytes: the thread's own may be
/// nearly used up.
const STACK_LEN: usize = 64 * 1024;

const SIGINFO_RESTART_ONSTACK_RESTORER: u64 = 4 | 0x1000_0000 | 0x0800_0000 | 0x0400_0000;

#[repr(C, align(4096))]
struct Memory<T>(UnsafeCell<T>);

// SAFETY: used by the thread that holds BUSY only.
unsafe impl<T> Sync for Memory<T> {}

static STACK: Memory<[u8; STACK_LEN]> = Memory(UnsafeCell::new([0; STACK_LEN]));
/// For reading /proc/self/maps.
static SCRATCH: Memory<[u8; 8192]> = Memory(UnsafeCell::new([0; 8192]));
/// The process id of whoever uses the memory above, so that a forked child
/// is not kept from it by a thread of its parent; 0: nobody.
static BUSY: AtomicU32 = AtomicU32::new(0);

/// Runs `action` with the memory of this module, unless it is in use.
fn exclusively<R>(state: &State, action: impl FnOnce() -> R) -> Option<R> {
    let pid = state.pid.load(Relaxed);
    let found = BUSY.load(Relaxed);
    if found == pid || BUSY.compare_exchange(found, pid, Acquire, Relaxed).is_err() {
        return None;
    }
    let result = action();
    BUSY.store(0, Release);
    Some(result)
}

/// The same where no signal is blocked yet: none of the program's handlers comes
/// to what it interrupts here, or leaves it by `longjmp`.
fn undisturbed<R>(state: &State, action: impl FnOnce() -> R) -> Option<R> {
    sys::undisturbed(|| exclusively(state, action))
}

/// Every thread of this process shall have notice; this one at once.
#[cold]
pub fn want(state: &'static State) {
    if state.notice.load(Relaxed) != 0 || state.disabled.load(Relaxed) != 0 || !own(state) {
        return;
    }
    let is_kept = CONFIG.is_musl.load(Relaxed) == 0;
    let has_room = !Part::Ring(0).is_lost();
    let ready = is_kept && has_room && queue_is_long() && install();
    state.notice.store(if ready { WANTED } else { REFUSED }, Relaxed);
    if ready {
        this_thread(state);
    } else {
        otherwise(state);
    }
}

/// The same where the notices of its like paid for themselves, or nobody knows; else
/// once this process has run for longer than these.
#[cold]
pub fn want_if_worth(state: &'static State) {
    if learnt::is_notice_worth(state) || !learnt::is_brief(state) {
        want(state);
    } else if own(state) {
        state.notice_later.store(1, Relaxed);
    }
}

/// At a call that may come long after the file was mapped.
#[inline]
pub fn want_by_now(state: &'static State) {
    let later = state.notice_later.load(Relaxed) != 0;
    if later && !learnt::is_brief(state) && own(state) {
        state.notice_later.store(0, Relaxed);
        want(state);
    }
}

/// Where the kernel gives no notice, the aide may.
#[cold]
fn otherwise(state: &'static State) {
    state.notice.store(WATCHED, Relaxed);
    if !watch::begin(state) {
        state.notice.store(REFUSED, Relaxed);
        refused(state);
    }
}

fn refused(state: &State) {
    if let Some(slot) = state.slot() {
        slot.lose(Loss::NoNotice);
    }
}

/// Whether [`NOTICES_MAX`] signals are few among those that may be queued.
fn queue_is_long() -> bool {
    let mut limit = [0u64; 2];
    // SAFETY: the kernel writes one struct rlimit64.
    let result =
        unsafe { call(nr::PRLIMIT64, &[0, RLIMIT_SIGPENDING, 0, limit.as_mut_ptr() as usize]) };
    result == 0 && limit.first().is_some_and(|&soft| soft >= QUEUED_SIGNALS_MIN)
}

/// `struct sigaction` as the kernel has it.
#[derive(Default)]
#[repr(C)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// Installs the handler, unless the signal is somebody's. What glibc's
/// posix_spawn(3) starts has it ignored (it resets all signals so that no
/// handler of its own runs in between); what it executes finds that again
/// ([`before_exec`]).
fn install() -> bool {
    let ours = on_notice as *const () as usize;
    let mut old = Action::default();
    let at = core::ptr::from_mut(&mut old) as usize;
    // SAFETY: the kernel writes one struct sigaction.
    if unsafe { call(nr::RT_SIGACTION, &[SIGNAL as usize, 0, at, 8]) } != 0
        || ![0, SIG_IGN, ours].contains(&old.handler)
    {
        return false;
    }
    if old.handler == SIG_IGN {
        CONFIG.notice_ignored.store(1, Relaxed);
    }
    let action = Action {
        handler: ours,
        flags: SIGINFO_RESTART_ONSTACK_RESTORER,
        restorer: restorer_address(),
        // No handler of the program's runs on our stack.
        mask: u64::MAX,
    };
    // SAFETY: the handler follows the kernel's calling convention.
    (unsafe { call(nr::RT_SIGACTION, &[SIGNAL as usize, from_ref(&action) as usize, 0, 8]) }) == 0
}

/// The signal is as it was, unless its handler is not ours any more: glibc takes it
/// once, when a thread is cancelled first.
fn uninstall() {
    if !is_ours() {
        return;
    }
    let ignored = CONFIG.notice_ignored.load(Relaxed) != 0;
    let action = Action { handler: if ignored { SIG_IGN } else { 0 }, ..Action::default() };
    // SAFETY: nothing sends the signal any more.
    unsafe { call(nr::RT_SIGACTION, &[SIGNAL as usize, from_ref(&action) as usize, 0, 8]) };
}

/// Whether the signal's handler is ours.
fn is_ours() -> bool {
    let mut action = Action::default();
    let at = core::ptr::from_mut(&mut action) as usize;
    // SAFETY: the kernel writes one struct sigaction.
    let asked = unsafe { call(nr::RT_SIGACTION, &[SIGNAL as usize, 0, at, 8]) };
    asked == 0 && action.handler == on_notice as *const () as usize
}

fn entry(state: &'static State, thread: usize) -> Option<&'static NoticedThread> {
    state.noticed.iter().find(|entry| entry.thread.load(Relaxed) == thread)
}

/// Gives this thread notice, unless it has it.
#[inline]
pub fn this_thread(state: &'static State) {
    match state.notice.load(Relaxed) {
        WANTED if entry(state, thread_pointer()).is_none() => arm(state),
        WATCHED if state.watch.load(Relaxed) == watched::NO && own(state) => otherwise(state),
        _ => {}
    }
}

#[cold]
fn arm(state: &'static State) {
    // A vfork child shares the state, but not the thread.
    if !own(state) {
        return;
    }
    let armed = undisturbed(state, || {
        // Another thread may have disarmed all of them just now.
        if state.notice.load(Relaxed) != WANTED {
            return true;
        }
        let Some(entry) = entry(state, 0) else { return true };
        // Taken even where it is refused: it is not tried again.
        entry.ring.store(0, Relaxed);
        entry.left.store(0, Relaxed);
        entry.period.store(1, Relaxed);
        entry.idle.store(0, Relaxed);
        entry.thread.store(thread_pointer(), Relaxed);
        let stack_is_large = stack_is_large(state) && other_stack_is_large();
        if stack_is_large {
            renew(state, entry);
        }
        state.noticed_ns.store(sys::now_ns(), Relaxed);
        state.noticed_cpu_ns.store(sys::thread_cpu_ns(), Relaxed);
        entry.ring.load(Relaxed) != 0 || !stack_is_large
    });
    if armed == Some(false) {
        if state.noticed.iter().all(|entry| entry.ring.load(Relaxed) == 0) {
            uninstall();
            otherwise(state);
        } else {
            refused(state);
        }
    }
}

/// Whether a signal's frame can be put on this thread's stack whatever the
/// thread is about. The first thread's grows.
fn stack_is_large(state: &State) -> bool {
    // SAFETY: a query.
    let tid = unsafe { call(nr::GETTID, &[]) };
    if tid == state.pid.load(Relaxed) as isize {
        return true;
    }
    let here = stack_pointer();
    let mut large = false;
    // SAFETY: BUSY is held.
    let scratch = unsafe { &mut *SCRATCH.0.get() };
    maps::for_each(scratch, |line| {
        let found = line.start <= here && here < line.end;
        large |= found && here - line.start >= STACK_MIN;
        !found
    });
    large
}

/// Whether the frame can be put on the stack that this thread has set aside for signals, if
/// it has: with vector registers it takes 3.5 KiB, and one of `MINSIGSTKSZ`, 2 KiB, is
/// allowed (sigaltstack(2)).
fn other_stack_is_large() -> bool {
    const SS_DISABLE: u64 = 2;
    // struct sigaltstack: an address, flags, a size.
    let mut other = [0u64; 3];
    // SAFETY: a query, which writes 24 bytes.
    let asked = unsafe { call(nr::SIGALTSTACK, &[0, other.as_mut_ptr() as usize]) };
    let [_, flags, len] = other;
    asked == 0 && (flags & SS_DISABLE != 0 || len >= OTHER_STACK_MIN)
}

/// Makes an event for this thread, in place of the one that it has.
fn renew(state: &State, entry: &NoticedThread) {
    let old = entry.ring.load(Relaxed);
    let ring = other_ring(state, entry, old);
    let ring = ring.and_then(|ring| open_event(state, entry.period.load(Relaxed), ring));
    let ring = ring.unwrap_or(0);
    entry.ring.store(ring, Relaxed);
    entry.left.store(if ring == 0 { 0 } else { NOTICES_MAX }, Relaxed);
    close_event(old);
}

/// Which of a thread's rings is not the `old` one.
fn other_ring(state: &State, entry: &NoticedThread, old: usize) -> Option<usize> {
    let number = state.noticed.iter().position(|one| core::ptr::eq(one, entry))?;
    let first = number * RINGS_EACH;
    Some(if old == Part::Ring(first).start() { first + 1 } else { first })
}

fn close_event(ring: usize) {
    if ring != 0 {
        arena::close_ring(ring);
    }
}

/// Makes an event for this thread that gives notice of one in `period` faults, with ring
/// number `ring`; the mapping that keeps it alive.
fn open_event(state: &State, period: u32, ring: usize) -> Option<usize> {
    // A filter may kill for this call, and nobody has tried it.
    let is_tried = CONFIG.filtered.load(Relaxed) == 0;
    let without = CONFIG.test.load(Relaxed) & TEST_WITHOUT_PERF != 0;
    if without || !is_tried || !opening::has_room() {
        return None;
    }
    const TYPE_SOFTWARE: u64 = 1;
    const ATTRIBUTES_LEN: u64 = 64;
    const PAGE_FAULTS_MINOR: u64 = 5;
    const PAGE_FAULTS_MAJOR: u64 = 6;
    const SAMPLE_TID_ADDRESS: u64 = 1 << 1 | 1 << 3;
    const DISABLED_USER_ONLY: u64 = 1 | 1 << 5 | 1 << 6;
    const CLOSE_ON_EXEC: usize = 8;
    const F_SETSIG: usize = 10;
    const F_SETOWN_EX: usize = 15;
    const F_SETFL: usize = 4;
    const O_ASYNC_NONBLOCK: usize = 0o24_000;
    const REFRESH: usize = 0x2402;
    // While testing, the faults of mapped files that did not wait count, as
    // such reads do. Not the counter of both kinds: it is raised before the
    // fault is handled, and a fault that has to start anew (of the vDSO's data,
    // for one) is given up by the kernel while a signal is pending: for ever.
    let testing = stalls_always();
    let files_only = state.anonymous_bytes.load(Relaxed) < SWAPPED_BYTES;
    let counted = if testing && files_only { PAGE_FAULTS_MINOR } else { PAGE_FAULTS_MAJOR };
    // struct perf_event_attr, its first version.
    let attributes = [
        TYPE_SOFTWARE | ATTRIBUTES_LEN << 32,
        counted,
        u64::from(period.max(1)),
        SAMPLE_TID_ADDRESS,
        0,
        DISABLED_USER_ONLY,
        1,
        0u64,
    ];
    let at = attributes.as_ptr() as usize;
    let anywhere = usize::MAX;
    // SAFETY: the kernel reads the attributes; counts events of this thread.
    let fd = unsafe { call(nr::PERF_EVENT_OPEN, &[at, 0, anywhere, usize::MAX, CLOSE_ON_EXEC]) };
    let Ok(fd) = usize::try_from(fd) else { return None };
    let mapped = arena::open_ring(ring, fd);
    let mut armed = mapped;
    if armed {
        // SAFETY: a query.
        let tid = unsafe { call(nr::GETTID, &[]) };
        // struct f_owner_ex: F_OWNER_TID and the thread.
        let owner = (tid as u64) << 32;
        let steps = [
            [nr::FCNTL, F_SETSIG, SIGNAL as usize],
            [nr::FCNTL, F_SETOWN_EX, from_ref(&owner) as usize],
            [nr::FCNTL, F_SETFL, O_ASYNC_NONBLOCK],
            [nr::IOCTL, REFRESH, NOTICES_MAX as usize],
        ];
        for [number, command, argument] in steps {
            // SAFETY: concerns the event only; `owner` lives long enough.
            armed = armed && unsafe { call(number, &[fd, command, argument]) } >= 0;
        }
    }
    sys::close(fd as i32);
    let at = Part::Ring(ring).start();
    if mapped && !armed {
        close_event(at);
    }
    armed.then_some(at)
}

/// Far longer than a handler takes, in ns.
const HANDLER_NS: u64 = 2_000_000_000;
/// Between two tries to find none at work, in ns.
const HANDLER_PAUSE_NS: u64 = 20_000;

/// No more notices in this process. Another thread's handler may be reading its
/// ring, or about to replace it: that is waited for. Where it does not end, the
/// events stay, and give no more notices than are left to them.
#[cold]
pub fn disarm(state: &'static State) {
    watch::end(state);
    if state.notice.swap(REFUSED, Relaxed) != WANTED {
        return;
    }
    let close = || state.noticed.iter().for_each(|entry| close_event(entry.ring.swap(0, Relaxed)));
    let begun_ns = sys::now_ns();
    let is_late = || sys::now_ns().saturating_sub(begun_ns) > HANDLER_NS;
    while undisturbed(state, close).is_none() && !is_late() {
        sys::sleep_exactly(HANDLER_PAUSE_NS);
    }
}

/// A thread is about to end. Nobody but its own handler reads its ring.
pub fn thread_ends(state: &'static State) {
    if state.notice.load(Relaxed) != WANTED || !own(state) {
        return;
    }
    if let Some(entry) = entry(state, thread_pointer()) {
        close_event(entry.ring.swap(0, Relaxed));
        entry.thread.store(0, Release);
    }
}

/// Before an exec: a notice that is still queued would kill the new program,
/// which has no handler, and what was ignored before stays so across an exec.
/// Where the exec fails, the next call arms again; where the signal was
/// ignored, notices are over then.
///
/// Other threads' events, and what is queued for them, end with these threads.
/// Their rings stay: they may be reading them.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot.child"))]
pub fn before_exec(state: &'static State) {
    if CONFIG.notice_ignored.load(Relaxed) != 0 {
        // From now on the signal, where it is ours, has no effect.
        uninstall();
    }
    if state.notice.load(Relaxed) != WANTED {
        return;
    }
    thread_ends(state);
    let old = sys::set_signal_mask(u64::MAX);
    let (set, timeout) = (1u64 << (SIGNAL - 1), [0u64; 2]);
    let args = [from_ref(&set) as usize, 0, timeout.as_ptr() as usize, 8];
    // SAFETY: takes signals of this number out of the queue, without waiting.
    while unsafe { call(nr::RT_SIGTIMEDWAIT, &args) } == SIGNAL as isize {}
    sys::set_signal_mask(old);
}

/// The same in a child by vfork(2), whose handlers are its own; its memory is not.
pub fn before_childs_exec() {
    if CONFIG.notice_ignored.load(Relaxed) != 0 {
        uninstall();
    }
}

/// Before prlimit64(2) or setrlimit(2): the queue may become short.
pub fn before_limit(state: &'static State, frame: &Frame) {
    let concerns = state.notice.load(Relaxed) == WANTED;
    if concerns && limited(frame) == Some(RLIMIT_SIGPENDING as u32) && own(state) {
        disarm(state);
    }
}

/// What a call limits; `None`: it only asks (getrlimit(3)).
fn limited(frame: &Frame) -> Option<u32> {
    let [first, second, limit, ..] = frame.args;
    match frame.number {
        nr::SETRLIMIT => Some(first as u32),
        nr::PRLIMIT64 if limit != 0 => Some(second as u32),
        _ => None,
    }
}

/// `siginfo_t`, as far as it is looked at.
#[repr(C)]
struct Info {
    signal: i32,
    errno: i32,
    code: i32,
}

/// A notice to be handled.
struct Notice {
    state: &'static State,
    entry: &'static NoticedThread,
    ucontext: usize,
}

/// The handler: on the thread's stack, or its alternate one.
extern "C" fn on_notice(_signal: i32, info: *const Info, ucontext: usize) {
    const POLL_IN: i32 = 1;
    const POLL_HUP: i32 = 6;
    let Some(state) = state().filter(|state| state.role.load(Relaxed) == role::NORMAL) else {
        return;
    };
    // SAFETY: the kernel's argument of a running handler.
    if !(POLL_IN..=POLL_HUP).contains(&unsafe { (*info).code }) {
        return;
    }
    let Some(entry) = entry(state, thread_pointer()) else { return };
    entry.left.store(entry.left.load(Relaxed).saturating_sub(1), Relaxed);
    let mut notice = Notice { state, entry, ucontext };
    let at = core::ptr::from_mut(&mut notice) as usize;
    let top = STACK.0.get() as usize + STACK_LEN;
    // Another thread is at it: that one's stall is enough for now.
    exclusively(state, || {
        // SAFETY: the stack is this thread's while BUSY is held.
        unsafe { on_stack(top, on_notice_stack, at) }
    });
}

extern "C" fn on_notice_stack(notice: usize) -> isize {
    // SAFETY: `on_notice` passes a Notice that lives through the call.
    let notice = unsafe { &*(notice as *const Notice) };
    let state = notice.state;
    let entry = notice.entry;
    let ring = entry.ring.load(Relaxed);
    if ring == 0 || state.notice.load(Relaxed) != WANTED {
        return 0;
    }
    // SAFETY: a ring of this thread's event, mapped by open_event; only the
    // thread itself unmaps it, or `disarm` while BUSY is held, as it is here.
    let address = unsafe { last_address(ring) };
    if entry.left.load(Relaxed) < NOTICES_SPARE {
        renew(state, entry);
    }
    let Some(address) = address else { return 0 };
    let period = entry.period.load(Relaxed).clamp(1, PERIOD_MAX);
    state.count(Counter::FaultNotices, 1);
    // SAFETY: the kernel's argument of a running handler.
    let context = unsafe { SignalContext::of(notice.ucontext) };
    let at = context.instruction();
    let in_agent = at >= CONFIG.image_start.load(Relaxed) && at < CONFIG.image_end.load(Relaxed);
    let mut passes_over = 0;
    if !in_agent && is_watched(state, address) {
        let waited = faults::Waited {
            address: Some(address),
            faults: period,
            // Beside a copy that runs each is noticed: there were more only before it.
            blamed: if state.copy_lives() { 1 } else { period },
            // SAFETY: the kernel's argument of a running handler.
            mask: unsafe { SignalContext::mask(notice.ucontext) },
            live: notice.ucontext,
            ucontext: Some(notice.ucontext),
            longest_ns: u64::MAX,
        };
        passes_over = faults::at_fault(state, &waited);
    }
    if state.role.load(Relaxed) == role::NORMAL {
        pace(state, entry, period, passes_over);
    }
    0
}

/// How many faults the next notice is to be of: each, while a copy runs; less
/// where notices lead to nothing, or will, because so many faults are passed
/// over.
fn pace(state: &State, entry: &NoticedThread, period: u32, passes_over: u64) {
    let idle = entry.idle.load(Relaxed) + 1;
    let bearable = match passes_over / PASSED_OVER_PER_PERIOD {
        _ if idle < IDLE_NOTICES_KNOWN => 1,
        faults if faults >= u64::from(PERIOD_MAX) => PERIOD_MAX,
        faults if faults >= u64::from(PERIOD_STEP) => PERIOD_STEP,
        _ => 1,
    };
    let next = if state.copy_lives() {
        entry.idle.store(0, Relaxed);
        1
    } else if bearable > period {
        bearable
    } else {
        let is_enough = idle >= IDLE_NOTICES;
        entry.idle.store(if is_enough { 0 } else { idle }, Relaxed);
        if is_enough { (period * PERIOD_STEP).min(PERIOD_MAX) } else { period }
    };
    if next != period && !stalls_always() {
        entry.period.store(next, Relaxed);
        renew(state, entry);
    }
}

/// Takes all records out of a ring; the address in the last of them.
///
/// # Safety
/// `ring` must be a mapped ring of an event of [`open_event`].
unsafe fn last_address(ring: usize) -> Option<usize> {
    const HEAD_AT: usize = 1024;
    const TAIL_AT: usize = 1032;
    const RECORD_LEN: u64 = 24;
    const RECORD_SAMPLE: u32 = 9;
    // SAFETY: data_head and data_tail of struct perf_event_mmap_page.
    let (head, tail) = unsafe {
        (&*((ring + HEAD_AT) as *const AtomicU64), &*((ring + TAIL_AT) as *const AtomicU64))
    };
    let end = head.load(Acquire);
    let records = end.wrapping_sub(tail.load(Relaxed)) / RECORD_LEN;
    let word = |back: u64| {
        let at = end.wrapping_sub(back) as usize % PAGE_SIZE;
        // SAFETY: records are 8-byte aligned, and the ring is one page.
        unsafe { ((ring + PAGE_SIZE + at) as *const u64).read_volatile() }
    };
    let (kind, address) = (word(24) as u32, word(8) as usize);
    tail.store(end, Release);
    (records > 0 && kind == RECORD_SAMPLE).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_a_limit_sets_none() {
        let limits = |number, args| limited(&Frame { number, args, resume: 0 });
        let (resource, limit) = (RLIMIT_SIGPENDING, 4096);
        assert_eq!(limits(nr::PRLIMIT64, [0, resource, 0, limit, 0, 0]), None, "getrlimit(3)");
        assert_eq!(limits(nr::PRLIMIT64, [0, resource, limit, 0, 0, 0]), Some(11));
        assert_eq!(limits(nr::SETRLIMIT, [resource, limit, 0, 0, 0, 0]), Some(11));
    }
}
