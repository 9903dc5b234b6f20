//! What the process was started with and Rust's runtime changes before
//! `main`: the disposition of SIGPIPE (set to ignored), and standard
//! descriptors that were closed (opened on /dev/null). The program must get
//! them as they were, so they are noted before the runtime starts and put
//! back before the program is executed.

use std::sync::atomic::{AtomicU32, Ordering};

const SIGPIPE_WAS_IGNORED: u32 = 1 << 3;

/// Bits 0 to 2: this descriptor was closed; [`SIGPIPE_WAS_IGNORED`].
static NOTED: AtomicU32 = AtomicU32::new(0);

/// Runs before Rust's runtime: glibc calls the entries of `.init_array`, the
/// runtime starts in `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    let mut noted = 0;
    for fd in 0..3 {
        // SAFETY: F_GETFD takes no pointer; any number may be asked about.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            noted |= 1 << fd;
        }
    }
    // SAFETY: zero bytes are a valid sigaction, which the call fills in.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action);
        action
    };
    if action.sa_sigaction == libc::SIG_IGN {
        noted |= SIGPIPE_WAS_IGNORED;
    }
    NOTED.store(noted, Ordering::Relaxed);
}

/// Whether standard descriptor `fd` was open when the process was started.
pub fn was_open(fd: u32) -> bool {
    NOTED.load(Ordering::Relaxed) & 1 << fd == 0
}

/// Puts back what was found. Nothing may be printed afterwards.
pub fn restore() {
    if NOTED.load(Ordering::Relaxed) & SIGPIPE_WAS_IGNORED == 0 {
        // SAFETY: the default action runs no code of ours.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    for fd in 0..3 {
        if !was_open(fd) {
            // SAFETY: the runtime opened it on /dev/null, and nothing in this
            // process owns it.
            unsafe { libc::close(fd as i32) };
        }
    }
}
