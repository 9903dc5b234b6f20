//! `runahead cc`: what is not its own option is the compiler's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const RUNAHEAD: &str = env!("CARGO_BIN_EXE_runahead");

/// Of these tests and the next ones: the pass is built once.
fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled")
}

/// What `runahead cc` did, unless a compiler is missing.
fn run(command: &mut Command) -> Option<Output> {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("is installed: install") {
        eprintln!("skipped: {errors}");
        return None;
    }
    assert!(output.status.success(), "{errors}");
    Some(output)
}

/// Build systems recognise a compiler by it.
#[test]
fn the_version_is_the_compilers() {
    for arguments in [&["--version"][..], &["--llvm", "19", "--version"]] {
        let mut command = Command::new(RUNAHEAD);
        command.arg("cc").args(arguments).env("XDG_CACHE_HOME", cache());
        let Some(output) = run(&mut command) else { return };
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("clang version"), "{said}");
    }
}

/// Assembler has no loops to insert anything into, which is nothing to warn of.
#[test]
fn assembler_is_compiled_without_a_warning() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(directory.path().join("a.s"), ".globl f\nf: ret\n").unwrap();
    for version in ["14", "22"] {
        for explain in [&[][..], &["--explain"]] {
            let mut command = Command::new(RUNAHEAD);
            command.arg("cc").args(explain).args(["--llvm", version, "-Werror", "-c", "a.s"]);
            command.current_dir(directory.path()).env("XDG_CACHE_HOME", cache());
            run(&mut command);
        }
    }
}

/// Threads of the run-time layer do not make a program one that is compiled for threads.
/// The layer links where the program names its C library itself.
#[test]
fn what_is_linked_with_the_layer_is_compiled_and_linked_as_without() {
    const SOURCE: &str = "#ifdef _REENTRANT
#error _REENTRANT is defined
#endif
int main(void) { return 0; }
";
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(directory.path().join("a.c"), SOURCE).unwrap();
    let libc = ["-nodefaultlibs", "-l:libc.so.6"];
    let all = ["-static", "-nodefaultlibs", "-Wl,--start-group,-lc,-lgcc,-lgcc_eh,--end-group"];
    for libraries in [&[][..], &libc, &all] {
        let mut command = Command::new(RUNAHEAD);
        command.args(["cc", "-O2", "a.c", "-o", "a"]).args(libraries);
        command.current_dir(directory.path()).env("XDG_CACHE_HOME", cache());
        if run(&mut command).is_some() {
            assert!(Command::new(directory.path().join("a")).status().unwrap().success());
        }
    }
}

/// LLVM 14, where there is none, a g++ that only takes its time and notes in `runs` that it
/// ran, and a gcc that is set up to look for overflows, in a directory that comes first in the
/// command's PATH. The cache is beside them.
fn at_first_use(command: &mut Command, directory: &Path) {
    const FAKES: [(&str, &str); 4] = [
        ("clang-14", "exit 0"),
        ("llvm-config-14", r#"echo "${0%/*}/include""#),
        (
            "g++",
            r#"echo ran >>"${0%/*}/runs"
               sleep 1
               while [ "$1" != -o ]; do shift; done
               : >"$2""#,
        ),
        (
            "gcc",
            r#"PATH=${PATH#*:}
               exec gcc -D_FORTIFY_SOURCE=2 "$@""#,
        ),
    ];
    for (name, script) in FAKES {
        let path = directory.join(name);
        let text = format!("#!/bin/sh\n{script}\n");
        // By another process: while this one had it open to be written, a child that another
        // test forks would keep it open, and then nobody could execute it.
        let writes = r#"printf %s "$1" >"$0" && chmod 755 "$0""#;
        let written = Command::new("sh").args(["-c", writes]).arg(&path).arg(text).status();
        assert!(written.unwrap().success());
    }
    let headers = directory.join("include/llvm/IR");
    fs::create_dir_all(&headers).unwrap();
    fs::write(headers.join("PassManager.h"), "").unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let first = std::iter::once(directory.to_owned()).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(first).unwrap()).env("XDG_CACHE_HOME", directory);
    command.args(["cc", "--llvm", "14", "--version"]);
}

/// Compilers that begin together, as with `make -j`, build the pass once. What is left of a
/// build that was killed goes.
#[test]
fn the_first_of_many_builds_the_pass_for_all() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let left = directory.path().join("runahead/compiler/.tmpkilled");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("plan.c"), "").unwrap();
    let mut command = Command::new(RUNAHEAD);
    at_first_use(&mut command, directory.path());
    for mut job in [(); 3].map(|()| command.spawn().unwrap()) {
        assert!(job.wait().unwrap().success());
    }
    assert_eq!(fs::read_to_string(directory.path().join("runs")).unwrap(), "ran\n");
    assert!(!left.exists());
}

/// It links with any C library: of no names that headers of some put in the place of others.
#[test]
fn the_layer_wants_nothing_that_an_older_c_library_has_not() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = Command::new(RUNAHEAD);
    at_first_use(&mut command, directory.path());
    assert!(command.status().unwrap().success());
    let mut built = fs::read_dir(directory.path().join("runahead/compiler")).unwrap();
    let layer = built.find_map(|entry| {
        let layer = entry.unwrap().path().join("runahead_rt.o");
        layer.is_file().then_some(layer)
    });
    let output = Command::new("nm").arg("-u").arg(layer.unwrap()).output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    assert!(listed.contains(" pthread_create"), "{listed}");
    for name in listed.split_whitespace() {
        assert!(!name.starts_with("__isoc") && !name.ends_with("_chk"), "{name}");
    }
}
