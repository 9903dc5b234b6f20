//! Which files a program's C library and dynamic linker are, without running
//! either.

use std::path::{Path, PathBuf};

/// C libraries by name: since glibc 2.34 all of it is in the first, before
/// that the second had its own system calls.
const NAMES: &[&str] = &["libc.so.6", "libpthread.so.0"];
/// Where distributions keep 64-bit libraries, for a dynamic linker that does
/// not lie beside its libc.
const DIRECTORIES: &[&str] =
    &["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib"];

/// The dynamic linker and the C libraries that belong to it. musl's linker is
/// its libc.
pub fn of(interpreter: &Path) -> Vec<PathBuf> {
    let mut found = vec![interpreter.to_owned()];
    // Every distribution, NixOS and Guix included, installs the two together;
    // the PT_INTERP path is often a link from elsewhere.
    let real = interpreter.canonicalize().unwrap_or_else(|_| interpreter.to_owned());
    let beside = real.parent().into_iter();
    let is_musl = interpreter.as_os_str().to_string_lossy().contains("ld-musl");
    if is_musl {
        return found;
    }
    for directory in beside.chain(DIRECTORIES.iter().map(Path::new)) {
        let here = NAMES.iter().map(|name| directory.join(name)).filter(|path| path.exists());
        found.extend(here);
        if found.len() > 1 {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libc_is_found_beside_its_linker() {
        let found = of(Path::new("/lib64/ld-linux-x86-64.so.2"));
        assert!(found.iter().any(|path| path.ends_with("libc.so.6")), "{found:?}");
    }

    #[test]
    fn musl_is_its_own_linker() {
        let path = Path::new("/lib/ld-musl-x86_64.so.1");
        assert_eq!(of(path), [path]);
    }
}
