//! From inside a speculative process nothing reaches the world: it is fuzzed
//! with system calls (`tests/fuzz/inside.c`), and killed at random points
//! (`tests/fuzz/killed.c`), each from a seed.
//!
//! Short by default. The whole of it, a million calls and 100,000 kills:
//! `cargo test --package runahead --test fuzz_inside -- --ignored`.
//! `RUNAHEAD_SEED` chooses another seed than 1.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::Value;
use support::speculation::EVERY_READ_STALLS;
use support::{Scratch, is_root, skip, text};

fn compile(scratch: &Scratch, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/fuzz/{name}.c"));
    let code = fs::read_to_string(source).unwrap();
    scratch.compile(name, &code, &["-O1", "-w", "-pthread"])
}

fn seed() -> String {
    std::env::var("RUNAHEAD_SEED").unwrap_or_else(|_| "1".into())
}

/// The number behind a word of a program's report.
fn number(report: &str, word: &str) -> u64 {
    let mut words = report.split_whitespace();
    words.find(|found| *found == word);
    words.next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Runs `program ARGUMENTS...` under Runahead where every read stalls, in
/// namespaces of its own, where a call that should not have been made can do
/// the least harm; `timeout` ends what hangs. The world there is taken down
/// before and after by `tests/fuzz/world`.
fn run(scratch: &Scratch, limit_s: u64, program: &Path, arguments: &[&str]) -> (Output, Value) {
    // Mounts of others vanish with the directories that they stand on: not here.
    const SCRIPT: &str = r#"mount -t tmpfs none /dev/shm
        awk '{ print $5 }' /proc/self/mountinfo | sort -r | while read -r at; do
            case $PWD/ in "${at%/}"/*) continue; esac
            case $at in /dev*|/proc*|/sys*) continue; esac
            umount --lazy "$at"
        done
        sh "$WORLD" "$PWD/world" >before; "$@"; status=$?
        sleep 0.2; sh "$WORLD" "$PWD/world" >after; exit $status"#;
    let statistics = scratch.join("stats.json");
    let world = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/world");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--ipc", "--net"]);
    command.args(["--uts", "sh", "-c", SCRIPT, "sh", "timeout", "-k", "5", &limit_s.to_string()]);
    command.arg(env!("CARGO_BIN_EXE_runahead")).arg(format!("--test={EVERY_READ_STALLS}"));
    command.arg(format!("--stats={}", statistics.display())).arg("--").arg(program);
    // What launches keep in memory lies there, too, and not in what is compared.
    command.args(arguments).env("HOME", scratch.path()).env_remove("XDG_CACHE_HOME");
    command.env("XDG_RUNTIME_DIR", scratch.path());
    command.env("WORLD", world);
    let output = command.current_dir(scratch.path()).output().unwrap();
    assert_ne!(output.status.code(), Some(124), "hangs: {}", text(&output.stderr));
    let json = fs::read_to_string(&statistics).unwrap_or_default();
    (output, serde_json::from_str(&json).unwrap_or_default())
}

fn differences(what: &str, before: &str, after: &str) {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (before, after) = (lines(before), lines(after));
    let only = |some: &[String], others: &[String]| {
        some.iter().filter(|line| !others.contains(line)).take(20).cloned().collect::<Vec<_>>()
    };
    let (gone, new) = (only(&before, &after), only(&after, &before));
    assert!(gone.is_empty() && new.is_empty(), "{what}: gone {gone:#?}, new {new:#?}");
}

/// At least `calls_min` calls, and `calls` where `seconds` suffice.
fn fuzz(calls: u64, calls_min: u64, seconds: u64) {
    if !is_root() {
        return skip("namespaces need root");
    }
    let scratch = Scratch::new();
    let program = compile(&scratch, "inside");
    let tree = scratch.join("world");
    fs::create_dir_all(tree.join("dir")).unwrap();
    fs::write(tree.join("file"), "kept").unwrap();
    fs::write(tree.join("dir/x"), vec![7; 10_000]).unwrap();
    std::os::unix::fs::symlink("file", tree.join("link")).unwrap();
    assert!(Command::new("mkfifo").arg(tree.join("fifo")).status().unwrap().success());
    let data = scratch.file("data", vec![3u8; 600_000], 0o644);
    let arguments = [&seed(), &calls.to_string(), &seconds.to_string(), data.to_str().unwrap()];
    let (output, statistics) = run(&scratch, seconds + 60, &program, &arguments);
    let report = text(&output.stderr);
    eprintln!("seed {}: {report}{}", seed(), statistics["speculation"]["parked"]);
    assert!(output.status.success(), "{:?}: {report}", output.status);
    let world = |name: &str| fs::read_to_string(scratch.join(name)).unwrap();
    assert!(world("before").lines().count() > 500, "the world is large");
    differences("the world", &world("before"), &world("after"));
    // What the program sees of itself: twice the same text, and a line.
    let seen = text(&output.stdout);
    let (own, kept) = seen.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(kept, "kept kept", "{seen}");
    let second = own.rfind("-- /proc/self/status").unwrap();
    differences("the program itself", &own[..second], &own[second..]);
    assert!(number(&report, "calls") >= calls_min, "{report}");
}

/// At least `kills_min` kills, and `kills` where `seconds` suffice, in
/// processes of a few thousand each, with seeds one after the other: one whose
/// copies are always killed is soon given fewer.
fn kill(kills: u64, kills_min: u64, seconds: u64) {
    const KILLS_EACH: u64 = 4000;
    if !is_root() {
        return skip("namespaces need root");
    }
    let scratch = Scratch::new();
    let program = compile(&scratch, "killed");
    let place = scratch.path().to_str().unwrap();
    let first: u64 = seed().parse().unwrap();
    let (mut made, begun) = (0, Instant::now());
    for seed in first.. {
        let left_s = seconds.saturating_sub(begun.elapsed().as_secs());
        if made >= kills || left_s == 0 {
            break;
        }
        let wanted = KILLS_EACH.min(kills - made).to_string();
        let limit_s = left_s.min(60).to_string();
        let arguments = [&seed.to_string(), &wanted, &limit_s, place];
        let (output, _) = run(&scratch, seconds + 60, &program, &arguments);
        let report = text(&output.stderr);
        eprintln!("seed {seed}: {report}");
        assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("end\n", Some(0)));
        made += number(&report, "kills");
    }
    assert!(made >= kills_min, "{made} kills");
}

/// Each keeps all processors busy, and copies run on idle cycles only.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn no_call_of_a_copy_has_an_effect_outside() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    fuzz(100_000, 1_000, 30);
}

#[test]
fn kills_make_no_difference() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    kill(5_000, 200, 15);
}

#[test]
#[ignore = "a million calls take minutes"]
fn no_call_of_a_million_has_an_effect_outside() {
    fuzz(1_000_000, 1_000_000, 3600);
}

#[test]
#[ignore = "100,000 kills take minutes"]
fn a_hundred_thousand_kills_make_no_difference() {
    kill(100_000, 100_000, 1800);
}
