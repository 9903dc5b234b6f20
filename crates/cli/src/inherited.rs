//! What the process was started with and changes before it becomes the
//! program: Rust's runtime sets SIGPIPE to ignored and opens closed standard
//! descriptors on /dev/null, musl unblocks two signals of its own, and the
//! launcher must survive a file size limit (SIGXFSZ) and wait for its children
//! (SIGCHLD). The program must get all
//! of it as it was, so it is noted before the runtime starts and put back
//! before the program is executed.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use runahead_usual::words::{Given, Words};

/// Signals whose disposition changes.
const SIGNALS: [libc::c_int; 3] = [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGCHLD];
/// Bit of the first of [`SIGNALS`] in [`NOTED`], if it was ignored.
const FIRST_SIGNAL_BIT: usize = 3;

/// Signals that musl unblocks with the first handler that it installs, which is
/// Rust's runtime's: to it they are its own, to glibc's programs one is SIGRTMIN.
/// One that is pending would end this process.
const UNBLOCKED: [u32; 2] = [33, 34];
/// Signals that Rust's runtime handles where they have their default action.
const HANDLED: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// Bit of the first of [`HANDLED`] in [`NOTED`], if it is kept from being handled.
const FIRST_HANDLED_BIT: usize = FIRST_SIGNAL_BIT + SIGNALS.len();

/// Bits 0 to 2: this descriptor was closed; then one for each signal.
static NOTED: AtomicU32 = AtomicU32::new(0);

/// Which signals were blocked: signal n is bit n - 1.
static BLOCKED: AtomicU64 = AtomicU64::new(0);

/// Stack pointer at the process's entry; null before it.
static STACK: AtomicPtr<usize> = AtomicPtr::new(std::ptr::null_mut());

// The command's entry (`build.rs`), before the C library's: most launches end
// in [`enter`], and then nothing of the C library's start has run, whose data
// lie elsewhere in the file and would have to be waited for where it is not in
// memory. rsp and rdx are what `_start` is to find (System V ABI, AMD64
// supplement, section 3.4.1: a function to be registered with atexit), rbp
// marks the outermost frame.
std::arch::global_asm!(
    ".pushsection .text.runahead_entry, \"ax\", @progbits",
    ".globl runahead_entry",
    ".type runahead_entry, @function",
    "runahead_entry:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    "xor ebp, ebp",
    "mov rbx, rsp",
    "mov r12, rdx",
    "mov rdi, rsp",
    // A dynamic linker that was called by name may have moved it by a word.
    "and rsp, -16",
    "call {enter}",
    "mov rsp, rbx",
    "mov rdx, r12",
    "jmp _start",
    ".cfi_endproc",
    ".size runahead_entry, . - runahead_entry",
    ".popsection",
    enter = sym enter,
);

/// Notes where the stack begins, and is done if this is a usual launch.
unsafe extern "C" fn enter(stack: *mut usize) {
    STACK.store(stack, Ordering::Relaxed);
    // A test's own arguments name no program.
    if !cfg!(test) {
        // SAFETY: it is the stack pointer at the entry.
        crate::commands::run_usual(unsafe { Given::at(stack) });
    }
}

/// Runs before Rust's runtime, which starts in `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    let mut noted = 0;
    for fd in 0..3 {
        // SAFETY: F_GETFD takes no pointer; any number may be asked about.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            noted |= 1 << fd;
            occupy();
        }
    }
    for (index, signal) in SIGNALS.into_iter().enumerate() {
        if action_of(signal) == libc::SIG_IGN {
            noted |= 1 << (FIRST_SIGNAL_BIT + index);
        }
    }
    let blocked = swap_mask(None);
    BLOCKED.store(blocked, Ordering::Relaxed);
    if UNBLOCKED.iter().any(|signal| blocked & 1 << (signal - 1) != 0) {
        for (index, signal) in HANDLED.into_iter().enumerate() {
            if action_of(signal) == libc::SIG_DFL {
                noted |= 1 << (FIRST_HANDLED_BIT + index);
                // SAFETY: to ignore a signal runs no code of ours.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            }
        }
    }
    NOTED.store(noted, Ordering::Relaxed);
}

/// Opens something as the lowest descriptor: /dev/null, and where that is missing, as in
/// some containers, the root directory. Rust's runtime would end this process.
fn occupy() {
    // SAFETY: constant paths.
    unsafe {
        if libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) < 0 {
            libc::open(c"/".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY);
        }
    }
}

/// What this process does with a signal.
fn action_of(signal: libc::c_int) -> libc::sighandler_t {
    // SAFETY: zero bytes are a valid sigaction, which the call fills in.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action);
        action
    };
    action.sa_sigaction
}

/// The signals that are blocked; from now on `mask` are. The C library's own call
/// conceals its own signals.
fn swap_mask(mask: Option<u64>) -> u64 {
    let mut before = 0u64;
    let mask = mask.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the kernel reads one mask of its own length and writes another.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, mask, &raw mut before, 8usize);
    }
    before
}

/// Rust's runtime has started: what was to keep it from handling signals is over. Children
/// can be waited for from now on, whoever ignored their ends before.
pub fn started() {
    // SAFETY: the default action runs no code of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let noted = NOTED.load(Ordering::Relaxed);
    for (index, signal) in HANDLED.into_iter().enumerate() {
        if noted & 1 << (FIRST_HANDLED_BIT + index) != 0 {
            // SAFETY: the default action runs no code of ours.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

/// Writing more than the file size limit allows is an error from now on, not
/// the end.
pub fn survive_size_limit() {
    // SAFETY: to ignore a signal runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Ends this process as other commands end that write to a pipe which nobody reads;
/// returns where it was started with that signal ignored. Not done at the write itself:
/// a device may be up then, and be left behind.
pub fn end_without_readers() {
    restore_signal(0);
    // SAFETY: there is no handler: it ends this process or does nothing.
    unsafe { libc::raise(libc::SIGPIPE) };
}

/// Puts back what was found. Nothing may be printed afterwards.
pub fn restore() {
    (0..SIGNALS.len()).for_each(restore_signal);
    let noted = NOTED.load(Ordering::Relaxed);
    for fd in 0..3 {
        if noted & 1 << fd != 0 {
            // SAFETY: [`occupy`] has opened it, and nothing in this process owns it.
            unsafe { libc::close(fd) };
        }
    }
    swap_mask(Some(BLOCKED.load(Ordering::Relaxed)));
}

/// Puts back what was found of one of [`SIGNALS`].
fn restore_signal(index: usize) {
    let was_ignored = NOTED.load(Ordering::Relaxed) & 1 << (FIRST_SIGNAL_BIT + index) != 0;
    let action = if was_ignored { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: neither action runs code of ours.
    unsafe { libc::signal(SIGNALS[index], action) };
}

/// This process's arguments from number `first` on (0: this command's own name).
pub fn words(first: usize) -> Words {
    given().arguments.after(first)
}

/// Copies of the environment's variables.
pub fn environment() -> Vec<Vec<u8>> {
    given().environment.strings().map(|variable| variable.to_bytes().to_vec()).collect()
}

fn given() -> Given {
    let stack = STACK.load(Ordering::Relaxed).cast_const();
    if stack.is_null() {
        return Given { arguments: Words::none(), environment: Words::none() };
    }
    // SAFETY: it is the stack pointer at the entry, and the launcher changes
    // no argument and sets no variable.
    unsafe { Given::at(stack) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a process of its own, as any of them is started in.
    fn is_true_in_a_child(check: fn() -> bool) -> bool {
        // SAFETY: the child calls the kernel and no more, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let status = i32::from(!check());
            // SAFETY: ends the child.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: waits for the child above.
        unsafe { libc::waitpid(child, &mut status, 0) == child && status == 0 }
    }

    #[test]
    fn blocked_signals_stay_blocked() {
        const BLOCKED_THEN: u64 = 1 << (34 - 1) | 1 << (libc::SIGUSR1 - 1);
        assert!(is_true_in_a_child(|| {
            swap_mask(Some(BLOCKED_THEN));
            note();
            swap_mask(Some(0));
            restore();
            swap_mask(None) == BLOCKED_THEN
        }));
    }

    /// The handler of Rust's runtime has musl unblock them.
    #[test]
    fn the_runtime_handles_nothing_beside_blocked_signals() {
        assert!(is_true_in_a_child(|| {
            let actions = || HANDLED.map(action_of);
            for signal in HANDLED {
                // SAFETY: no handler is set.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            swap_mask(Some(0));
            note();
            let free = actions();
            swap_mask(Some(1 << (34 - 1)));
            note();
            let beside = actions();
            started();
            free == [libc::SIG_DFL; 2]
                && beside == [libc::SIG_IGN; 2]
                && actions() == [libc::SIG_DFL; 2]
        }));
    }
}
