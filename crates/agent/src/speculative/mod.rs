//! The speculative process: a copy of a stalled thread that runs ahead on
//! idle cycles. Its prologue takes everything away from it that it could do
//! harm with, before one instruction of the program runs again
//! (interception notes, section 2.4); from then on each of its system calls
//! goes to the state machine of crate `emulate`.

mod aside;
mod filter;
mod imports;
mod kernel;
mod pages;
pub use pages::STREAM_MAX;
mod prologue;
mod readers;
mod regions;
mod reopen;
pub mod scout;
pub mod shared;
mod signals;

use crate::apart::Left;
use crate::arch::{Frame, SignalContext, nr, on_stack};
use crate::arena::{self, ROOM_LEN};
use crate::import::handover;
use crate::state::{State, role};
use crate::sys::{self, call as system_call};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};
use kernel::Inside;
use runahead_emulate::{Emulator, Outcome};
use runahead_protocol::log::{Log, life};
use runahead_protocol::session::TEST_DIE_AT_RANDOM;
use runahead_protocol::stats::Park;

/// Stack of the emulator, in bytes: the program's may be a few KiB deep.
const STACK_LEN: usize = 64 * 1024;

/// What the normal process hands over besides its memory and registers.
#[derive(Clone, Copy, Debug)]
pub struct Parent {
    /// Its process id.
    pub pid: u32,
    /// Its thread's id.
    pub tid: u32,
    /// Its parent's process id.
    pub parent: u32,
    /// Signal mask of the thread.
    pub signal_mask: u64,
    /// Whether the aide has made this process, not the thread itself.
    pub handed: bool,
    /// The stack that the thread has left, on which the copy goes on.
    pub left: Left,
    /// The word at [`Left::returns_at`].
    pub returns: usize,
    /// A place on the stack on which it has a fault's registers; 0: none.
    pub faulted: usize,
}

/// Memory that only the speculative process uses: its first thread, without
/// re-entry. Readers have memory of their own.
#[repr(C, align(4096))]
struct Own<T>(UnsafeCell<T>);

// SAFETY: used in a speculative process only, and there by the first thread: no
// reader emulates anything. See `emulate` for why it is not re-entered.
unsafe impl<T> Sync for Own<T> {}

static STACK: Own<[u8; STACK_LEN]> = Own(UnsafeCell::new([0; STACK_LEN]));
// Zero bytes are a valid emulator to start.
static EMULATOR: Own<MaybeUninit<Emulator>> = Own(UnsafeCell::new(MaybeUninit::zeroed()));
static LOG: AtomicPtr<Log> = AtomicPtr::new(core::ptr::null_mut());
static CALLS: AtomicU32 = AtomicU32::new(0);

/// First of all in the child of the clone, on a stack of the agent's: leaves what is the
/// program's, and sees to it that the stacks which it goes on with are its own. Nothing of
/// them may be touched before: they may be memory that the program shares with its
/// children, or does not leave to them. Does not return where a step fails.
pub fn stand_alone(log: &'static Log, parent: &Parent) {
    // Where this thread was led when it stood still last is not for a copy.
    crate::arch::allow(false);
    LOG.store(core::ptr::from_ref(log).cast_mut(), Relaxed);
    prologue::leave_table(log, parent);
    let is_own = |at| at == 0 || shared::is_private(at) && word(at).is_some();
    let own = is_own(parent.left.at) && is_own(parent.faulted);
    // What the program has written there meanwhile is not of this moment.
    let restored = own && (!parent.handed || handover::take_up_stack());
    // A child may find it empty (MADV_WIPEONFORK).
    if !restored || word(parent.left.returns_at()) != Some(parent.returns) {
        park(Park::Stack, -1);
    }
}

/// A word of this process's memory, if it is there.
fn word(at: usize) -> Option<usize> {
    let mut word = 0usize;
    let into = core::ptr::from_mut(&mut word).cast();
    // SAFETY: into a word of ours.
    unsafe { sys::copy_own(at, into, size_of::<usize>()) }.then_some(word)
}

/// In the child of the clone: becomes the speculative process and returns
/// what the stalled read comes to there. Does not return where a step fails.
pub fn begin(state: &'static State, log: &'static Log, frame: &mut Frame, parent: Parent) -> isize {
    enter(state, log, parent);
    call(frame)
}

/// The same after a call that is over, with this result.
pub fn begin_after(
    state: &'static State,
    log: &'static Log,
    parent: Parent,
    result: isize,
) -> isize {
    enter(state, log, parent);
    result
}

/// The same after a page fault, inside the handler of its notice (with this
/// `ucontext`) or on the way back from it: with the return from there, this
/// process goes on at the very instruction with all of the thread's registers,
/// vector state included.
pub fn begin_at_fault(
    state: &'static State,
    log: &'static Log,
    parent: Parent,
    ucontext: Option<usize>,
) {
    enter(state, log, parent);
    if let Some(ucontext) = ucontext {
        // SAFETY: the argument of the handler that runs now. With the program's
        // own mask and alternate stack, our handlers would not be reached.
        unsafe { SignalContext::resume_with(ucontext, signals::mask(), &signals::stack()) };
    }
}

fn enter(state: &'static State, log: &'static Log, parent: Parent) {
    let mut start = Start { log, parent };
    let at = core::ptr::from_mut(&mut start) as usize;
    // SAFETY: the stack of the emulator, which nothing uses yet.
    unsafe { on_stack(stack_top(), prologue_on_stack, at) };
    state.role.store(role::SPECULATIVE, Relaxed);
    log.life.store(life::RUNNING, Release);
}

struct Start {
    log: &'static Log,
    parent: Parent,
}

extern "C" fn prologue_on_stack(start: usize) -> isize {
    // SAFETY: `begin` passes a Start that lives through the call.
    let start = unsafe { &*(start as *const Start) };
    // SAFETY: before the program runs again nobody else uses the emulator.
    let emulator = unsafe { (*EMULATOR.0.get()).assume_init_mut() };
    prologue::run(emulator, start.log, &start.parent);
    0
}

fn stack_top() -> usize {
    (STACK.0.get() as usize) + STACK_LEN
}

/// A system call from a patched site.
pub fn call(frame: &mut Frame) -> isize {
    // SAFETY: the emulator's stack; it is not in use, because the program's
    // code runs now and the emulator never calls back into it.
    unsafe { on_stack(stack_top(), call_on_stack, core::ptr::from_mut(frame) as usize) }
}

extern "C" fn call_on_stack(frame: usize) -> isize {
    // SAFETY: `call` passes its frame, which lives through the call.
    let frame = unsafe { &*(frame as *const Frame) };
    emulate(frame.number, frame.args)
}

/// One system call of the speculative process, from a patched site or from
/// the filter's trap. Not re-entered: a trap from inside the emulator parks
/// (see `signals`), and no handler but that of SIGSYS comes here.
fn emulate(number: usize, args: [usize; 6]) -> isize {
    let Some(log) = log() else { exit() };
    die_at_random(number);
    aside::step(log);
    // SAFETY: one thread, not re-entered.
    let emulator = unsafe { (*EMULATOR.0.get()).assume_init_mut() };
    let outcome = emulator.call(&mut Inside { log }, log, number, args);
    match outcome {
        Outcome::Return(value) => value,
        Outcome::Park(reason) => park(reason, number as i32),
    }
}

/// Testing: dies as if somebody had killed it.
fn die_at_random(number: usize) {
    if crate::config::CONFIG.test.load(Relaxed) & TEST_DIE_AT_RANDOM == 0 {
        return;
    }
    let calls = CALLS.fetch_add(1, Relaxed).wrapping_add(1);
    let mixed = (calls.wrapping_mul(0x9e37_79b9) ^ number as u32 ^ crate::arch::ticks() as u32)
        .wrapping_mul(0x85eb_ca6b);
    if mixed >> 26 == 0 {
        exit();
    }
}

fn log() -> Option<&'static Log> {
    // SAFETY: set in `begin` to a mapping that stays.
    unsafe { LOG.load(Relaxed).as_ref() }
}

/// Ends the speculative process and says why. Its memory goes back at once;
/// the next synchronisation makes another.
fn park(reason: Park, number: i32) -> ! {
    if let Some(log) = log() {
        log.park_reason.store(reason as u32, Relaxed);
        log.park_call.store(number, Relaxed);
        log.life.store(life::PARKED, Release);
    }
    exit()
}

fn exit() -> ! {
    loop {
        // SAFETY: ends this process, which nobody waits for.
        unsafe { system_call(nr::EXIT_GROUP, &[0]) };
    }
}

/// Addresses that the program's memory calls must not touch, the first and the one after
/// the last of each: the agent's image, and its room with the log and the desk.
fn protected() -> [(usize, usize); 2] {
    let config = &crate::config::CONFIG;
    let room = arena::room();
    [(config.image_start.load(Relaxed), config.image_end.load(Relaxed)), (room, room + ROOM_LEN)]
}
