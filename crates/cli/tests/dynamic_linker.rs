//! What the dynamic linker loads, and from where: libraries that lie elsewhere than most, notes
//! that it does not load, an agent that it could not load any more, and what it tells of all
//! that.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use support::{Scratch, is_root, skip, stdout_of, text};

/// The sources of two libraries and of a program that uses both.
const LIBRARIES: [&str; 2] = ["int first(void) { return 42; }", "int second(void) { return 43; }"];
const USES_BOTH: &str = r#"
#include <stdio.h>
int first(void), second(void);
int main(void) { printf("%d %d\n", first(), second()); return 0; }
"#;

/// Runs with calls hooked at patched sites and by symbol, and says how many were patched.
fn runs_with_both(scratch: &Scratch, program: &Path, what: &str) -> [u64; 2] {
    [0, support::speculation::REFUSE_PATCHING].map(|test| {
        let command = [program.to_str().unwrap()];
        let run = support::speculation::run(scratch, test, &command, |_| {});
        assert_eq!((&*run.stdout, run.status), ("42 43\n", Some(0)), "{what}, {test}");
        run.count("/sites/patched")
    })
}

#[test]
fn libraries_that_are_linked_elsewhere_than_at_0_are_left_alone() {
    let scratch = Scratch::new();
    // Above where libraries lie the load bias wraps around.
    for at in ["0x1000", "0x2000", "0x400000", "0x555555554000", "0x7fffff000000"] {
        let place = format!("-Wl,-Ttext-segment={at}");
        let [first, second] = [("libfirst.so", 0), ("libsecond.so", 1)].map(|(name, index)| {
            let flags = ["-shared", "-fPIC", &place];
            scratch.compile(name, LIBRARIES[index], &flags).to_str().unwrap().to_owned()
        });
        let program = scratch.compile("uses", USES_BOTH, &["-Wl,--no-as-needed", &first, &second]);
        assert_eq!(stdout_of(&mut Command::new(&program)), "42 43\n");
        let [patched, _] = runs_with_both(&scratch, &program, at);
        assert!(patched > 0, "the C library still is");
    }
}

/// The build-id of what is in no segment has not been loaded.
#[test]
fn notes_that_are_not_loaded_are_not_looked_at() {
    let scratch = Scratch::new();
    let source = [USES_BOTH, LIBRARIES[0], LIBRARIES[1]].join("\n");
    let program = scratch.compile("noted", &source, &["-Wl,--build-id"]);
    let without = scratch.join("without");
    let mut objcopy = Command::new("objcopy");
    objcopy.args(["--set-section-flags", ".note.gnu.build-id=noload"]).arg(&program).arg(&without);
    stdout_of(&mut objcopy);
    let [patched, _] = runs_with_both(&scratch, &without, "without");
    assert!(patched > 0);
}

/// Where the dynamic linker could not load the agent any more it would say so, and its
/// variables would stay.
#[test]
fn what_is_executed_where_the_agent_cannot_be_loaded_any_more_runs_plainly() {
    if !is_root() {
        return skip("mounting needs root");
    }
    let scratch = Scratch::new();
    let memory = scratch.join("memory");
    fs::create_dir(&memory).unwrap();
    let mount = "mount -t tmpfs -o mode=700 none \"$XDG_RUNTIME_DIR\" && exec \"$0\" sh -c \"$1\"";
    for change in [
        "mount -o remount,noexec \"$XDG_RUNTIME_DIR\"",
        // It is what this shell has in itself.
        "for agent in \"$XDG_RUNTIME_DIR\"/runahead/agent-*; do rm \"$agent\"; : > \"$agent\"; done",
    ] {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation=private", "sh", "-c", mount]);
        command.arg(env!("CARGO_BIN_EXE_runahead"));
        command.arg(format!("env; {change}; echo changed; env; (env); exec env"));
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", scratch.path());
        let output = command.env("XDG_RUNTIME_DIR", &memory).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{change}: {output:?}");
        let printed = text(&output.stdout);
        let (before, after) = printed.split_once("changed\n").unwrap();
        assert_eq!(after, before.repeat(3), "{change}");
        assert!(!printed.contains("RUNAHEAD_SESSION"), "{printed}");
    }
}

#[test]
fn the_dynamic_linker_tells_nobody_of_the_agent() {
    let scratch = Scratch::new();
    let source = "#define _GNU_SOURCE
        #include <link.h>
        #include <stdio.h>
        unsigned la_version(unsigned version) { return LAV_CURRENT; }
        unsigned la_objopen(struct link_map *map, Lmid_t id, uintptr_t *cookie) {
            fprintf(stderr, \"%s\\n\", map->l_name);
            return 0;
        }";
    let auditor = scratch.compile("auditor.so", source, &["-shared", "-fPIC"]);
    let auditor = auditor.to_str().unwrap();
    // The first leaves a record of usual launches.
    assert_eq!(stdout_of(scratch.runahead().args(["sh", "-c", "exit 0"])), "");
    for (name, value) in [("LD_AUDIT", auditor), ("LD_DEBUG", "files")] {
        let shell = format!("{name}='{value}' /bin/true; exec env {name}='{value}' /bin/true");
        let mut inside = scratch.runahead();
        inside.args(["sh", "-c", &shell]);
        let mut before = scratch.runahead();
        before.arg("/bin/true").env(name, value);
        for mut command in [inside, before] {
            let told = text(&command.output().unwrap().stderr);
            assert!(told.contains("libc.so") && !told.contains("/agent-"), "{command:?}: {told}");
        }
    }
}

/// Nobody knows where another C library than the usual one makes its calls, whatever is known
/// of the dynamic linker.
#[test]
fn where_the_c_library_is_another_calls_are_hooked_by_symbol() {
    const NOTE: &[u8] = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
    let scratch = Scratch::new();
    let source = [USES_BOTH, LIBRARIES[0], LIBRARIES[1]].join("\n");
    let program = scratch.compile("uses", &source, &[]);
    let maps = stdout_of(Command::new("cat").arg("/proc/self/maps"));
    let usual = maps
        .lines()
        .find_map(|line| line.split(' ').next_back().filter(|path| path.ends_with("/libc.so.6")));
    let mut library = fs::read(usual.unwrap()).unwrap();
    let note = library.windows(NOTE.len()).position(|bytes| bytes == NOTE).unwrap();
    library[note + NOTE.len()] ^= 1;
    let directory = scratch.join("other");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("libc.so.6"), library).unwrap();
    let command = [program.to_str().unwrap()];
    let run = support::speculation::run(&scratch, 0, &command, |runahead| {
        runahead.env("LD_LIBRARY_PATH", &directory);
    });
    assert_eq!((&*run.stdout, run.status), ("42 43\n", Some(0)));
    assert_eq!(run.count("/sites/patched"), 0, "{}", run.stats);
    assert!(run.losses().contains("not in the site table"), "{}", run.losses());
}
