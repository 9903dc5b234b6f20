//! How a system call ends.

use runahead_protocol::stats::Park;

/// What the program gets to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call returns this to the program: a result or -errno.
    Return(isize),
    /// The speculative process cannot go on.
    Park(Park),
}

/// Why a call has no plain result: the error side of [`Answer`], so that `?`
/// ends a call early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The call fails with this errno.
    Errno(i32),
    /// The speculative process cannot go on.
    Park(Park),
}

/// Result of emulating one call.
pub type Answer = Result<usize, Stop>;

/// Fails with an errno.
pub fn errno<T>(code: i32) -> Result<T, Stop> {
    Err(Stop::Errno(code))
}

/// Parks.
pub fn park<T>(reason: Park) -> Result<T, Stop> {
    Err(Stop::Park(reason))
}

/// Turns the result of a real call on the program's pointers into an answer.
/// EFAULT parks: the pointer is wild, so the program computes on missing
/// data.
pub fn from_kernel(result: isize) -> Answer {
    const EFAULT: isize = -(crate::abi::EFAULT as isize);
    match result {
        EFAULT => park(Park::BadPointer),
        -4095..0 => errno(-result as i32),
        _ => Ok(result as usize),
    }
}

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Outcome {
        match answer {
            Ok(value) => Outcome::Return(value as isize),
            Err(Stop::Errno(code)) => Outcome::Return(-(code as isize)),
            Err(Stop::Park(reason)) => Outcome::Park(reason),
        }
    }
}
