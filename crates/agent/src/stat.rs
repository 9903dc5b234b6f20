//! Where the start-up stack is, from `/proc/self/stat` (proc_pid_stat(5)), for
//! dynamic linkers that do not pass the environment to constructors (musl).

use crate::{opening, procfs, sys};

/// Number of the field `startstack`: where the kernel put the argument count.
const START_STACK: usize = 28;
/// Longest text: 52 numbers and a name.
const LEN_MAX: usize = 1280;
/// Most arguments that are believed (their pages alone would be 32 MiB).
const ARGUMENTS_MAX: usize = 1 << 22;

/// Address of the environment's array of pointers, as the kernel left it, and how many
/// arguments lie before it.
pub fn environment() -> Option<(usize, usize)> {
    let mut text = [0u8; LEN_MAX];
    // Before anybody knows whether calls are filtered.
    let len = opening::undisturbed(b"/proc/self/stat\0", |fd| sys::read(fd, &mut text))?;
    let text = text.get(..usize::try_from(len).ok()?)?;
    let stack = usize::try_from(procfs::stat_field(text, START_STACK)?).ok()?;
    let word = size_of::<usize>();
    if stack == 0 || !stack.is_multiple_of(word) {
        return None;
    }
    // SAFETY: the kernel has put the count there, and pointers after it, and
    // start-up code does not give up this part of the stack.
    let arguments = unsafe { *(stack as *const usize) };
    if arguments > ARGUMENTS_MAX {
        return None;
    }
    let end = stack + (1 + arguments) * word;
    // SAFETY: as above; the arguments end with NULL.
    (unsafe { *(end as *const usize) } == 0).then_some((end + word, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_environment_is_there() {
        let (at, arguments) = environment().unwrap();
        assert_eq!(arguments, std::env::args().count());
        // SAFETY: an array of pointers to strings, or its end.
        let first = unsafe { *(at as *const *const core::ffi::c_char) };
        if !first.is_null() {
            // SAFETY: a string of the environment.
            let first = unsafe { core::ffi::CStr::from_ptr(first) };
            assert!(first.to_bytes().contains(&b'='), "{first:?}");
        }
    }
}
