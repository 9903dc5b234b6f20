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

/// The dynamic linker of programs that the distribution has built.
const USUAL_LINKER: &str = "/lib64/ld-linux-x86-64.so.2";

/// The dynamic linker and the C libraries that belong to it, and those of the
/// distribution, which the programs that this one starts may use.
pub fn of(interpreter: &Path) -> Vec<PathBuf> {
    let mut found = belonging_to(interpreter);
    let usual = Path::new(USUAL_LINKER);
    if interpreter != usual && usual.exists() {
        found.extend(belonging_to(usual));
    }
    found
}

fn belonging_to(linker: &Path) -> Vec<PathBuf> {
    let mut found = vec![linker.to_owned()];
    // musl's linker is its libc.
    if linker.as_os_str().to_string_lossy().contains("ld-musl") {
        return found;
    }
    // Every distribution, NixOS and Guix included, installs the two together;
    // the PT_INTERP path is often a link from elsewhere.
    let real = linker.canonicalize().unwrap_or_else(|_| linker.to_owned());
    let beside = real.parent().into_iter();
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
        let found = of(Path::new(USUAL_LINKER));
        assert_eq!(found[0], Path::new(USUAL_LINKER));
        assert!(found.iter().any(|path| path.ends_with("libc.so.6")), "{found:?}");
    }

    #[test]
    fn musl_is_its_own_linker() {
        let path = Path::new("/lib/ld-musl-x86_64.so.1");
        assert_eq!(belonging_to(path), [path]);
        // A shell of musl may start programs of glibc.
        assert!(of(path).iter().any(|path| path.ends_with("libc.so.6")));
    }
}
