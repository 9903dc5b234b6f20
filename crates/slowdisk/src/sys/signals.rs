//! Signals that end a program, put off while something has to be undone first.

use std::mem::MaybeUninit;

/// What a terminal, a service manager or a hang-up sends.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Puts these signals off, as far as this thread is concerned, until the value is
/// dropped, by the same thread.
pub struct PutOff {
    /// Signals that were blocked before.
    before: libc::sigset_t,
}

impl PutOff {
    /// From now on; those that the program ignores stay ignored.
    pub fn begin() -> Self {
        let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: each call fills in what it is given; the set is made before it is
        // added to and used. A block of valid signals cannot fail.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in ENDING.into_iter().filter(|signal| !is_ignored(*signal)) {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
            Self { before: before.assume_init() }
        }
    }

    /// Whether one of them waits.
    pub fn has_come(&self) -> bool {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the first call fills the set in, the second looks at it.
        unsafe {
            libc::sigpending(set.as_mut_ptr());
            ENDING.into_iter().any(|signal| libc::sigismember(set.as_ptr(), signal) == 1)
        }
    }
}

impl Drop for PutOff {
    fn drop(&mut self) {
        // SAFETY: the set was filled in when they were blocked.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }
}

fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zero bytes are a valid sigaction, which the call fills in.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}
