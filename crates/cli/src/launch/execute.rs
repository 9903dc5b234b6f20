//! Becoming the program.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Failure;
use super::resolve::{self, SHELL};
use crate::inherited;
use runahead_usual::words::Words;

/// `execve(2)`; returns only to tell why it failed.
pub fn execute(path: &Path, command: Words, environment: Vec<Vec<u8>>) -> Failure {
    let mut errno = attempt(path, command, environment);
    if errno == libc::E2BIG {
        // What has been added may be what is too much.
        errno = attempt(path, command, inherited::environment());
    }
    failure_of(command.first(), path, errno)
}

/// The error number.
fn attempt(path: &Path, command: Words, environment: Vec<Vec<u8>>) -> i32 {
    // Both came as C strings, so none holds a NUL.
    let file = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    let variables: Vec<CString> =
        environment.into_iter().filter_map(|text| CString::new(text).ok()).collect();
    let errno = execve(&file, command.pointers(), &variables);
    if errno == libc::ENOEXEC && resolve::is_text(path) {
        // As execvp(3) does: the shell runs what has no `#!`.
        let shell = CString::new(SHELL).unwrap_or_default();
        let rest = &command.pointers()[1..];
        let words = [&[shell.as_ptr(), file.as_ptr()], rest].concat();
        if execve(&shell, &words, &variables) == libc::E2BIG {
            return libc::E2BIG;
        }
    }
    errno
}

fn failure_of(name: &OsStr, path: &Path, errno: i32) -> Failure {
    let text = super::error_text(&std::io::Error::from_raw_os_error(errno));
    match errno {
        libc::ENOENT => match resolve::script_interpreter(path) {
            Some(interpreter) => {
                let text = format!("{}: bad interpreter: {text}", interpreter.display());
                Failure::new(127, name, &text)
            }
            None if path.exists() => {
                Failure::new(127, name, "cannot execute: required file not found")
            }
            None => Failure::new(127, name, &text),
        },
        libc::ENOEXEC => Failure::new(126, name, &format!("cannot execute binary file: {text}")),
        _ => Failure::new(126, name, &text),
    }
}

/// Returns the error number; what was inherited is as it was found.
/// `arguments` end with a null pointer.
fn execve(path: &CStr, arguments: &[*const c_char], variables: &[CString]) -> i32 {
    let variables: Vec<*const c_char> =
        variables.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
    inherited::restore();
    // SAFETY: three C strings or null-terminated arrays of them, alive until
    // the call returns.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), variables.as_ptr()) };
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)
}
