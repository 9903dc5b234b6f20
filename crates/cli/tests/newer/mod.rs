//! A C library of glibc 2.41 or later: the machine's own, or the one that `scripts/newer-libc
//! fetch` has put beside it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What compiles and links with it as `cc` does; `None` where there is none and tests may be
/// skipped.
pub fn compiler() -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/newer-libc");
    if Command::new(&script).arg("check").status().unwrap().success() {
        return Some(script);
    }
    let why = "no C library of glibc 2.41 or later: scripts/newer-libc fetch";
    assert!(std::env::var_os("RUNAHEAD_REQUIRE_ROOT_TESTS").is_none(), "{why}");
    eprintln!("skipped: {why}");
    None
}
