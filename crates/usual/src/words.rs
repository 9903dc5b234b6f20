//! What the process was given: arguments and environment, where they stand.

use std::ffi::{CStr, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;

/// What a process is given to start with.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// Its own name and its arguments.
    pub arguments: Words,
    /// Every string of the environment, in order, also those that are no
    /// `NAME=value`.
    pub environment: Words,
}

impl Given {
    /// Where the kernel puts it: the number of arguments, pointers to them, a
    /// null pointer, the environment's pointers and a null pointer (System V
    /// ABI, AMD64 supplement, section 3.4.1).
    ///
    /// # Safety
    /// `stack` is the stack pointer at the process's entry, and nothing
    /// changes what lies there.
    pub unsafe fn at(stack: *const usize) -> Given {
        // SAFETY: as the ABI has it; each slice goes up to its null pointer.
        unsafe {
            let count = *stack;
            let first = stack.add(1).cast::<*const c_char>();
            let variables = first.add(count + 1);
            let mut end = 0;
            while !(*variables.add(end)).is_null() {
                end += 1;
            }
            Given {
                arguments: Words(std::slice::from_raw_parts(first, count + 1)),
                environment: Words(std::slice::from_raw_parts(variables, end + 1)),
            }
        }
    }
}

/// Words from one of this process's arguments on to the last, where they
/// stand: a program may be given a hundred thousand, and each copy of them
/// is time that it starts later.
#[derive(Clone, Copy, Debug)]
pub struct Words(&'static [*const c_char]);

impl Words {
    /// Those of an array.
    ///
    /// # Safety
    /// It ends with a null pointer; all others are C strings that live as long
    /// as the process.
    pub unsafe fn of(array: &'static [*const c_char]) -> Words {
        Words(array)
    }

    /// None.
    pub fn none() -> Words {
        Words(const { &[std::ptr::null()] })
    }

    /// All but the first `count`.
    pub fn after(self, count: usize) -> Words {
        Words(&self.0[count.min(self.len())..])
    }

    /// How many there are.
    pub fn len(self) -> usize {
        self.0.len() - 1
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = &'static OsStr> {
        self.strings().map(|word| OsStr::from_bytes(word.to_bytes()))
    }

    /// Each of them.
    pub fn strings(self) -> impl Iterator<Item = &'static CStr> {
        // SAFETY: all but the last are such C strings (`of`).
        self.0[..self.len()].iter().map(|word| unsafe { CStr::from_ptr(*word) })
    }

    /// The first; empty where there is none.
    pub fn first(self) -> &'static OsStr {
        self.iter().next().unwrap_or_default()
    }

    /// Copies of at most `count` of them.
    pub fn head(self, count: usize) -> Vec<OsString> {
        self.iter().take(count).map(OsStr::to_owned).collect()
    }

    /// Pointers to them, and a null pointer.
    pub fn pointers(self) -> &'static [*const c_char] {
        self.0
    }
}
