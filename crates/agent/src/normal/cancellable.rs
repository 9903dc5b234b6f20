//! A thread's calls that may wait, of glibc 2.41 and later ([`crate::cancellable`]): what
//! the agent does itself, and what it does around what the library does.
//!
//! A thread that waits for somebody else is cancelled there only inside the library's
//! function. So no more is made by the agent than what waits for storage alone.

use super::reads;
use super::{
    Watch, before_alone, before_fcntl, before_ioctl, closed, makes_descriptor, waits_for_all, watch,
};
use crate::arch::nr;
use crate::import::regions::is_single_threaded;
use crate::interpose::Next;
use crate::state::State;

/// What is about to be called, and who is to make the call.
pub fn before(state: &'static State, number: usize, args: [usize; 6]) -> Next {
    let [first, second, ..] = args;
    match watch(number) {
        // It may wait for the reader of a pipe.
        Watch::Transfer if number == nr::SPLICE => Next::Original,
        // sendfile(2), whose input is its second argument, is no cancellation point.
        Watch::Read | Watch::Transfer => {
            if reads::is_looked_at(state, first as i32) {
                Next::Through
            } else {
                Next::Original
            }
        }
        Watch::Open => Next::After,
        Watch::Close => {
            state.forget(first as u32 as usize);
            Next::After
        }
        Watch::Fcntl => {
            before_fcntl(state, first, second);
            if makes_descriptor(second) { Next::After } else { Next::Original }
        }
        Watch::Ioctl => {
            before_ioctl(state, second);
            Next::Original
        }
        Watch::Wait(at) if args.get(at).is_some_and(|&options| waits_for_all(options)) => {
            if is_single_threaded() {
                // The library goes by whether there has ever been another: nobody is left
                // to cancel this one, and no copy is made until it has waited.
                return Next::Through;
            }
            before_alone(state);
            Next::Original
        }
        Watch::Wait(_) => Next::Original,
        Watch::Nothing => Next::Original,
        // None of these is a cancellation point; were one, the hook knows best.
        _ => Next::Through,
    }
}

/// After a call that the library has made.
pub fn after(state: &State, number: usize, result: isize) {
    match watch(number) {
        Watch::Close => closed(state),
        Watch::Open | Watch::Fcntl => state.opened(result),
        _ => {}
    }
}
