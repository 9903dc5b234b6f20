//! What the process was started with and changes before it becomes the
//! program: Rust's runtime sets SIGPIPE to ignored and opens closed standard
//! descriptors on /dev/null, and the launcher must survive a file size limit
//! (SIGXFSZ). The program must get all of it as it was, so it is noted before
//! the runtime starts and put back before the program is executed.

use std::ffi::c_char;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use runahead_usual::words::{Words, variables};

/// Signals whose disposition changes.
const SIGNALS: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];
/// Bit of the first of [`SIGNALS`] in [`NOTED`], if it was ignored.
const FIRST_SIGNAL_BIT: usize = 3;

/// Bits 0 to 2: this descriptor was closed; then one for each signal.
static NOTED: AtomicU32 = AtomicU32::new(0);

/// The argument array and its length.
static ARGUMENTS: AtomicPtr<*const c_char> = AtomicPtr::new(std::ptr::null_mut());
static ARGUMENT_COUNT: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Runs before Rust's runtime, which starts in `main`. What `main` is given is
/// found on the stack: only glibc hands it to the entries of `.init_array`.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

/// Finds the argument array below the environment: the kernel puts the number
/// of arguments, pointers to them, a null pointer and then the environment's
/// pointers on the stack (System V ABI, AMD64 supplement, section 3.4.1).
fn find_arguments() -> (*mut *const c_char, usize) {
    // SAFETY: nothing has changed the environment yet, so `environ` still
    // points into that block; going down from it, only the number of arguments
    // equals the count of pointers passed, since none of them is that small.
    unsafe {
        let end = environ.sub(1);
        let mut count = 0;
        while (*end.sub(count + 1)).addr() != count {
            count += 1;
        }
        (end.sub(count).cast_mut(), count)
    }
}

extern "C" fn note() {
    let (arguments, count) = find_arguments();
    ARGUMENT_COUNT.store(count, Ordering::Relaxed);
    ARGUMENTS.store(arguments, Ordering::Relaxed);
    // A test's own arguments name no program.
    if !cfg!(test) {
        crate::commands::run_usual();
    }
    let mut noted = 0;
    for fd in 0..3 {
        // SAFETY: F_GETFD takes no pointer; any number may be asked about.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            noted |= 1 << fd;
        }
    }
    for (index, signal) in SIGNALS.into_iter().enumerate() {
        // SAFETY: zero bytes are a valid sigaction, which the call fills in.
        let action = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut action);
            action
        };
        if action.sa_sigaction == libc::SIG_IGN {
            noted |= 1 << (FIRST_SIGNAL_BIT + index);
        }
    }
    NOTED.store(noted, Ordering::Relaxed);
}

/// Writing more than the file size limit allows is an error from now on, not
/// the end.
pub fn survive_size_limit() {
    // SAFETY: to ignore a signal runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Puts back what was found. Nothing may be printed afterwards.
pub fn restore() {
    let noted = NOTED.load(Ordering::Relaxed);
    for (index, signal) in SIGNALS.into_iter().enumerate() {
        if noted & 1 << (FIRST_SIGNAL_BIT + index) == 0 {
            // SAFETY: the default action runs no code of ours.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
    for fd in 0..3 {
        if noted & 1 << fd != 0 {
            // SAFETY: the runtime opened it on /dev/null, and nothing in this
            // process owns it.
            unsafe { libc::close(fd) };
        }
    }
}

/// This process's arguments from number `first` on (0: this command's own name).
pub fn words(first: usize) -> Words {
    let array = ARGUMENTS.load(Ordering::Relaxed).cast_const();
    let count = ARGUMENT_COUNT.load(Ordering::Relaxed);
    // SAFETY: `count` pointers to C strings and a null one, as `main` is given
    // them; nothing changes them.
    let all = unsafe {
        let found = (!array.is_null()).then(|| std::slice::from_raw_parts(array, count + 1));
        Words::of(found.unwrap_or(const { &[std::ptr::null()] }))
    };
    all.after(first)
}

/// Copies of the environment's variables.
pub fn environment() -> Vec<Vec<u8>> {
    variables().map(|variable| variable.to_bytes().to_vec()).collect()
}
