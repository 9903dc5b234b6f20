//! Signals of a speculative process. All are blocked but those that its own
//! execution raises, and those have handlers of ours, on a stack of ours:
//! none of the program's handlers ever runs.

use super::pages::{self, Touch};
use super::{Own, emulate, imports, log, park, shared};
use crate::arch::{SignalContext, gate_address, nr, restorer_address};
use crate::config::CONFIG;
use crate::sys::{call, set_signal_mask};
use core::cell::UnsafeCell;
use core::ptr::from_ref;
use core::sync::atomic::Ordering::Relaxed;
use runahead_emulate::Emulator;
use runahead_protocol::stats::Park;

const SIGILL: i32 = 4;
const SIGTRAP: i32 = 5;
const SIGABRT: i32 = 6;
const SIGBUS: i32 = 7;
const SIGFPE: i32 = 8;
const SIGSEGV: i32 = 11;
const SIGXCPU: i32 = 24;
const SIGSYS: i32 = 31;

const HANDLED: [i32; 8] = [SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGXCPU, SIGSYS];

const SA_SIGINFO: u64 = 4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_NODEFER: u64 = 0x4000_0000;

/// Stack of the handlers, in bytes: a signal frame (3.5 KiB with AVX-512) and
/// the emulator.
const STACK_LEN: usize = 96 * 1024;
static STACK: Own<[u8; STACK_LEN]> = Own(UnsafeCell::new([0; STACK_LEN]));

/// `struct sigaction` as the kernel has it.
#[repr(C)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// The handlers' stack, as `stack_t`: start, flags, length.
pub fn stack() -> [usize; 3] {
    [STACK.0.get() as usize, 0, STACK_LEN]
}

/// The signals that are blocked: all but the handled ones.
pub fn mask() -> u64 {
    !HANDLED.iter().fold(0u64, |set, &signal| set | 1 << (signal - 1))
}

/// Installs the handlers; false where that fails.
pub fn install() -> bool {
    let stack = stack();
    // SAFETY: memory of ours that nothing else uses. Where the thread stood
    // on an alternate stack of its own, EPERM: then there is no speculation.
    if unsafe { call(nr::SIGALTSTACK, &[from_ref(&stack) as usize, 0]) } != 0 {
        return false;
    }
    let action = Action {
        handler: on_signal as *const () as usize,
        flags: SA_SIGINFO | SA_RESTORER | SA_ONSTACK | SA_NODEFER,
        restorer: restorer_address(),
        mask: 0,
    };
    HANDLED.iter().all(|&signal| {
        let at = from_ref(&action) as usize;
        // SAFETY: the handler follows the kernel's calling convention.
        (unsafe { call(nr::RT_SIGACTION, &[signal as usize, at, 0, 8]) }) == 0
    })
}

/// Hands the program's own actions for the handled signals to the emulator,
/// before they are replaced.
pub fn keep_actions(emulator: &mut Emulator) {
    for signal in HANDLED {
        let mut action = [0u64; 4];
        let at = action.as_mut_ptr() as usize;
        // SAFETY: the kernel writes one struct sigaction, four words.
        if unsafe { call(nr::RT_SIGACTION, &[signal as usize, 0, at, 8]) } == 0 {
            emulator.inherit_action(signal as u32, action);
        }
    }
}

/// Lets the handled signals through, and no other.
pub fn unblock() {
    set_signal_mask(mask());
}

/// `siginfo_t`, as far as it is looked at: three words of header, then the
/// fault's address.
#[repr(C)]
struct Info {
    signal: i32,
    errno: i32,
    code: i32,
    pad: i32,
    address: usize,
}

extern "C" fn on_signal(signal: i32, info: *const Info, ucontext: usize) {
    // SAFETY: the kernel's arguments of a running handler.
    let context = unsafe { SignalContext::of(ucontext) };
    let in_agent = {
        let at = context.instruction();
        at >= CONFIG.image_start.load(Relaxed) && at < CONFIG.image_end.load(Relaxed)
    };
    match signal {
        SIGSYS => {
            if context.instruction() == gate_address() {
                // The filter refused a call of the gate: a defect of ours, or
                // the program's code jumped there.
                park(Park::Bug, context.call().0 as i32);
            }
            let (number, args) = context.call();
            context.set_result(emulate(number, args));
        }
        // SAFETY: the kernel has filled in the address of the fault.
        SIGBUS if imports::resolve(unsafe { (*info).address }) => {}
        SIGSEGV => {
            // SAFETY: the kernel has filled in the address of the fault.
            let address = unsafe { (*info).address };
            let write = context.is_write_fault();
            let touch = log().map_or(Touch::NotOurs, |log| pages::touch(log, address, write));
            match touch {
                Touch::Done => {}
                Touch::NotOurs if write && shared::make_private_on_fault(address) => {}
                Touch::Full => park(Park::TableFull, -1),
                Touch::NotOurs | Touch::Beyond if in_agent => park(Park::BadPointer, -1),
                Touch::NotOurs | Touch::Beyond => park(Park::Fault, -1),
            }
        }
        SIGXCPU => park(Park::CpuLimit, -1),
        _ if in_agent => park(Park::BadPointer, -1),
        _ => park(Park::Fault, -1),
    }
}
