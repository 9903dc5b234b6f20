//! What the process was given: arguments and environment, where they stand.

use std::ffi::{CStr, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;

unsafe extern "C" {
    static environ: *const *const c_char;
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
        // SAFETY: all but the last are such C strings (`of`).
        self.0[..self.len()]
            .iter()
            .map(|word| OsStr::from_bytes(unsafe { CStr::from_ptr(*word) }.to_bytes()))
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

/// The environment as it was given: every string, in order, also those that
/// are no `NAME=value`.
pub fn variables() -> impl Iterator<Item = &'static CStr> {
    // SAFETY: a null-terminated array, which nothing changes: the launcher
    // sets no variable.
    let mut at = unsafe { environ };
    std::iter::from_fn(move || {
        // SAFETY: not yet past the null pointer; each is a C string.
        unsafe {
            if at.is_null() || (*at).is_null() {
                return None;
            }
            let variable = CStr::from_ptr(*at);
            at = at.add(1);
            Some(variable)
        }
    })
}
