//! `runahead cc`: what is not its own option is the compiler's.

use std::process::Command;

const RUNAHEAD: &str = env!("CARGO_BIN_EXE_runahead");

/// Build systems recognise a compiler by it.
#[test]
fn the_version_is_the_compilers() {
    let cache = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for arguments in [&["--version"][..], &["--llvm", "19", "--version"]] {
        let mut command = Command::new(RUNAHEAD);
        command.arg("cc").args(arguments).env("XDG_CACHE_HOME", cache.path());
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains("is installed: install") {
            eprintln!("skipped: {errors}");
            return;
        }
        assert!(output.status.success(), "{errors}");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("clang version"), "{said}");
    }
}
