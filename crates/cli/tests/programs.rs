//! Never a different result: every program of `tests/programs` in every
//! variant, compared with a plain run.

mod newer;
mod suite;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use suite::outcome::{Counts, Outcome};
use suite::program::{Program, build_all, build_threaded};
use suite::variant::{ALL, Must, PLAIN, PLAIN_NOBODY, User, Variant};
use suite::{RUNAHEAD, Scratch, furnish, is_root, run};

/// A cold, slow device for the cold variant; goes down at the end.
struct Device {
    mount: PathBuf,
    states: PathBuf,
}

impl Device {
    fn up(scratch: &Path) -> Device {
        let device = Device { mount: scratch.join("cold"), states: scratch.join("states") };
        let mount = device.mount.display().to_string();
        device.slowdisk(&["up", "--profile", "cloud", "--size", "512M", &mount]);
        device
    }

    fn slowdisk(&self, arguments: &[&str]) {
        let mut command = Command::new(RUNAHEAD);
        command.env("RUNAHEAD_SLOWDISK_STATE", &self.states).arg("slowdisk").args(arguments);
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
    }

    fn cold(&self) {
        self.slowdisk(&["cold", &self.mount.display().to_string()]);
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let mut command = Command::new(RUNAHEAD);
        command.env("RUNAHEAD_SLOWDISK_STATE", &self.states);
        let _ = command.args(["slowdisk", "down", "--all", "--force"]).output();
    }
}

/// A program's differences, and what its runs counted.
#[derive(Default)]
struct Findings {
    differences: Vec<String>,
    counts: Vec<(&'static str, Counts)>,
}

fn variant_can_run(program: &Program, variant: &Variant) -> bool {
    let root = is_root();
    !(program.needs("root") && (!root || variant.user == User::Nobody)
        || (variant.user == User::Nobody || variant.cold) && !root
        || variant.cold && program.needs("resident")
        || program.not.iter().any(|name| name == variant.name))
}

fn compare(program: &Program, variant: &Variant, plain: &Outcome, found: &Outcome) -> Vec<String> {
    let mut differences = Vec::new();
    if plain.hung() && found.hung() {
        differences.push(format!("{} [{}]: {}", program.name, variant.name, found.ended));
    }
    let mut compare = |what: &str, plain: &str, found: &str| {
        if plain != found {
            let at = plain.lines().zip(found.lines()).take_while(|(a, b)| a == b).count();
            let line = |text: &str| text.lines().nth(at).unwrap_or("(no line)").to_owned();
            differences.push(format!(
                "{} [{}]: {what} differs at line {}: plain {:?}, here {:?}",
                program.name,
                variant.name,
                at + 1,
                line(plain),
                line(found)
            ));
        }
    };
    compare("how it ended", &plain.ended, &found.ended);
    compare("standard output", &plain.stdout, &found.stdout);
    compare("standard error", &plain.stderr, &found.stderr);
    compare("the file tree", &format!("{:#?}", plain.tree), &format!("{:#?}", found.tree));
    differences
}

/// All variants of one program but the cold one, one after another.
fn examine(program: &Program, scratch: &Path, cold: Option<&Device>) -> Findings {
    let mut findings = Findings::default();
    let place = |variant: &Variant, round: u32| {
        if variant.cold
            && let Some(device) = cold
        {
            return device.mount.join(&program.name);
        }
        let directory = scratch.join(format!("run/{}-{}-{round}", program.name, variant.name));
        fs::create_dir_all(&directory).unwrap();
        furnish(&directory, variant.user);
        directory
    };
    let go = |variant: &Variant, round: u32| {
        let directory = place(variant, round);
        let cache = scratch.join(if variant.user == User::Nobody { "theirs" } else { "ours" });
        let outcome = run(program, variant, &directory, &cache);
        if !variant.cold {
            let _ = fs::remove_dir_all(&directory);
        }
        outcome
    };
    for (reference, user) in [(PLAIN, User::Own), (PLAIN_NOBODY, User::Nobody)] {
        let variants: Vec<_> = ALL
            .iter()
            .filter(|variant| variant.user == user && variant.cold == cold.is_some())
            .filter(|variant| variant_can_run(program, variant))
            .collect();
        if variants.is_empty() {
            continue;
        }
        let plain = go(&reference, 1);
        let again = go(&reference, 2);
        for difference in compare(program, &reference, &plain, &again) {
            findings.differences.push(format!("not even without Runahead: {difference}"));
        }
        for variant in variants {
            let found = go(variant, 1);
            findings.differences.extend(compare(program, variant, &plain, &found));
            // A copy that is made inside a handler, which interrupted the agent, may end so.
            let Counts { synchronizations, bugs, .. } = found.counts;
            if !program.needs("gate") && bugs > 4 && bugs > synchronizations / 2 {
                findings.differences.push(format!(
                    "{} [{}]: {bugs} of {synchronizations} copies ended by a defect",
                    program.name, variant.name
                ));
            }
            findings.counts.push((variant.name, found.counts));
        }
    }
    findings
}

/// Examines all programs, two at a time.
fn examine_all(programs: &[Program], scratch: &Path, cold: Option<&Device>) -> Findings {
    for name in ["ours", "theirs"] {
        fs::create_dir_all(scratch.join(name)).unwrap();
    }
    if is_root() {
        let nobody = Some(suite::variant::NOBODY);
        std::os::unix::fs::chown(scratch.join("theirs"), nobody, nobody).unwrap();
    }
    let waiting = Mutex::new(programs.iter());
    let all = Mutex::new(Findings::default());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(program) = waiting.lock().unwrap().next() else { break };
                    let findings = examine(program, scratch, cold);
                    let mut all = all.lock().unwrap();
                    for difference in &findings.differences {
                        eprintln!("{difference}");
                    }
                    all.differences.extend(findings.differences);
                    all.counts.extend(findings.counts);
                }
            });
        }
    });
    all.into_inner().unwrap()
}

/// Nothing differs, and each variant did what it is there for.
fn judge(findings: &Findings, whole: bool) {
    assert!(findings.differences.is_empty(), "{}", findings.differences.join("\n"));
    for variant in ALL {
        let counts = findings.counts.iter().filter(|(name, _)| *name == variant.name);
        let (mut runs, mut total) = (0, Counts::default());
        for (_, count) in counts {
            runs += 1;
            total.synchronizations = total.synchronizations.saturating_add(count.synchronizations);
            total.prefetches = total.prefetches.saturating_add(count.prefetches);
        }
        eprintln!(
            "{}: {runs} programs, {} synchronisations, {} prefetches",
            variant.name, total.synchronizations, total.prefetches
        );
        if whole && runs > 0 && variant.must != Must::Nothing {
            assert!(total.synchronizations > 0, "{}: no speculation", variant.name);
        }
        if whole && runs > 0 && variant.must == Must::Prefetch {
            assert!(total.prefetches > 0, "{}: nothing was prefetched", variant.name);
        }
    }
}

/// The runs are bounded: a program that waits for ever, and one whose child
/// has left its session and keeps the output open, are killed and named.
#[test]
fn a_program_that_hangs_is_killed_and_named() {
    use suite::outcome::observe;
    let scratch = Scratch::new("hang");
    let run = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        let none = scratch.path().join("none");
        observe(&mut shell, &scratch.path().join("."), &none, Duration::from_secs(5))
    };
    let hung = run("echo begun; sleep 1000 & setsid sleep 1000");
    assert!(hung.hung() && hung.ended.contains("sleep ("), "{}", hung.ended);
    assert_eq!(hung.stdout, "begun\n", "{}", hung.ended);
    let left = run("setsid sleep 1000 & exit 3");
    assert!(left.hung() && left.ended.contains("exit status 3"), "{}", left.ended);
    let calm = run("exit 3");
    assert_eq!(calm.ended, "exit status 3");
}

fn whole() -> bool {
    std::env::var_os("RUNAHEAD_TEST_PROGRAM").is_none()
}

#[test]
fn no_program_can_tell_that_it_runs_ahead() {
    let scratch = Scratch::new("programs");
    let programs = build_all(scratch.path());
    judge(&examine_all(&programs, scratch.path(), None), whole());
}

/// glibc 2.41 and later, where threads wait in another way.
#[test]
fn nor_one_with_threads_of_a_newer_c_library() {
    let Some(compiler) = newer::compiler() else { return };
    let scratch = Scratch::new("programs-newer");
    let programs = build_threaded(scratch.path(), &compiler);
    assert!(programs.len() >= 20 || !whole(), "{}", programs.len());
    judge(&examine_all(&programs, scratch.path(), None), whole());
}

#[test]
fn nor_on_storage_that_is_slow_and_cold() {
    if !is_root() {
        let required = std::env::var_os("RUNAHEAD_REQUIRE_ROOT_TESTS");
        assert!(required.is_none_or(|value| value != "1"), "needs root");
        eprintln!("skipped: mounting a slow device needs root");
        return;
    }
    let scratch = Scratch::new("programs-cold");
    let programs = build_all(scratch.path());
    let device = Device::up(scratch.path());
    for program in &programs {
        let directory = device.mount.join(&program.name);
        fs::create_dir(&directory).unwrap();
        furnish(&directory, User::Own);
    }
    device.cold();
    judge(&examine_all(&programs, scratch.path(), Some(&device)), whole());
}
