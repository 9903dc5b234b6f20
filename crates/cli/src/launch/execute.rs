//! Becoming the program.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Failure;
use super::resolve::{self, SHELL};
use crate::inherited;

/// `execve(2)`; returns only to tell why it failed.
pub fn execute(path: &Path, command: &[OsString], environment: &[Vec<u8>]) -> Failure {
    let name = command[0].as_os_str();
    // Arguments and variables came as C strings, so none holds a NUL.
    let strings = |texts: &mut dyn Iterator<Item = Vec<u8>>| -> Vec<CString> {
        texts.filter_map(|text| CString::new(text).ok()).collect()
    };
    let file = strings(&mut std::iter::once(path.as_os_str().as_bytes().to_vec()));
    let arguments = strings(&mut command.iter().map(|word| word.as_bytes().to_vec()));
    let variables = strings(&mut environment.iter().cloned());
    let errno = execve(&file[0], &arguments, &variables);
    if errno == libc::ENOEXEC && resolve::is_text(path) {
        // As execvp(3) does: the shell runs what has no `#!`.
        let shell = CString::new(SHELL).unwrap_or_default();
        let words = [std::slice::from_ref(&shell), &file, &arguments[1..]].concat();
        execve(&shell, &words, &variables);
    }
    failure_of(name, path, errno)
}

fn failure_of(name: &OsStr, path: &Path, errno: i32) -> Failure {
    let text = super::error_text(&std::io::Error::from_raw_os_error(errno));
    match errno {
        libc::ENOENT => match resolve::script_interpreter(path) {
            Some(interpreter) => {
                let text = format!("{}: bad interpreter: {text}", interpreter.display());
                Failure::new(126, name, &text)
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
fn execve(path: &CString, arguments: &[CString], variables: &[CString]) -> i32 {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, variables) = (pointers(arguments), pointers(variables));
    inherited::restore();
    // SAFETY: three C strings or null-terminated arrays of them, alive until
    // the call returns.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), variables.as_ptr()) };
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)
}
