//! A child by vfork(2) that restricts its own system calls: the agent makes none
//! for it any more, whereas its parent, whose memory it is in, goes on as before
//! ([`crate::lease`]).

use crate::arch::Frame;
use crate::config::CONFIG;
use crate::hook::plain;
use crate::lease::Lease;
use crate::state::{State, role};
use core::sync::atomic::Ordering::Relaxed;

/// Whether whoever calls is such a child, or was forked by one.
#[inline]
pub fn is_silent() -> bool {
    CONFIG.silenced.load(Relaxed) != 0 && has_silent()
}

#[cold]
fn has_silent() -> bool {
    CONFIG.silent.iter().any(Lease::is_mine)
}

/// From here on no call is made for this child.
#[cold]
pub fn begin(state: &State) -> Option<&'static Lease> {
    let taken = CONFIG.silent.iter().find(|lease| lease.take());
    CONFIG.silenced.store(1, Relaxed);
    if taken.is_none() {
        // Nobody would tell when it has left: the parent does without, too.
        CONFIG.forbidden.store(1, Relaxed);
        state.role.store(role::OFF, Relaxed);
    }
    taken
}

/// The same around the call itself.
#[cold]
pub fn around(state: &State, frame: &Frame) -> isize {
    let taken = begin(state);
    let result = plain(frame);
    if result < 0 {
        // It was refused: nothing has changed.
        match taken {
            Some(lease) => lease.give_back(),
            None => {
                CONFIG.forbidden.store(0, Relaxed);
                state.role.store(role::NORMAL, Relaxed);
            }
        }
    }
    result
}
