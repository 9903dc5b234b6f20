//! Tier T0: where nothing may be patched, calls are hooked by symbol, and the
//! program does not notice that either.

mod support;

use std::os::unix::process::CommandExt;
use std::process::Command;

use support::Scratch;
use support::speculation::{self as speculation, EVERY_READ_STALLS, REFUSE_PATCHING};

/// Memory-deny-write-execute for the program and its children (Linux 6.3).
fn deny_write_execute(command: &mut Command) {
    const PR_SET_MDWE: i32 = 65;
    const PR_MDWE_REFUSE_EXEC_GAIN: libc::c_ulong = 1;
    let none: libc::c_ulong = 0;
    // SAFETY: one prctl between fork and exec. On older kernels it fails, and
    // patching is then refused by the testing switch alone.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, none, none, none);
            Ok(())
        });
    }
}

fn knows_mdwe() -> bool {
    const PR_GET_MDWE: i32 = 66;
    // SAFETY: a query.
    unsafe { libc::prctl(PR_GET_MDWE, 0, 0, 0, 0) >= 0 }
}

#[test]
fn programs_that_call_read_are_run_ahead_of() {
    let scratch = Scratch::new();
    let noise = speculation::noise(&scratch, 96);
    for flags in [
        &["-O1"][..],
        &["-O1", "-Wl,-z,lazy"],
        &["-O1", "-Wl,-z,now", "-Wl,-z,relro"],
        &["-O1", "-no-pie"],
        &["-O1", "-fno-plt"],
        &["-O2", "-D_FORTIFY_SOURCE=2"],
    ] {
        let reader = scratch.compile("reader", speculation::READER, flags);
        let command = [reader.to_str().unwrap(), noise.to_str().unwrap()];
        let expected = speculation::plainly(Command::new(&reader).arg(&noise));
        let test = EVERY_READ_STALLS | REFUSE_PATCHING;
        let run = speculation::run_until_predicted(&scratch, test, &command, &expected, |_| {});
        assert_eq!(run.count("/sites/patched"), 0);
        assert!(run.losses().contains("by symbol only"), "{}", run.losses());
        assert_eq!(run.count("/exit_status"), 3, "{flags:?}: the end was told: {}", run.stats);
    }
}

#[test]
fn memory_that_must_not_be_patched_is_not() {
    if !knows_mdwe() {
        eprintln!("skipped: PR_SET_MDWE needs Linux 6.3");
        return;
    }
    let scratch = Scratch::new();
    let noise = speculation::noise(&scratch, 96);
    let reader = speculation::reader(&scratch);
    let expected = speculation::plainly(Command::new(&reader).arg(&noise));
    // In a child of the program, too.
    let shell = format!("'{reader}' '{}'; exit $?", noise.display());
    for command in [&[&*reader, noise.to_str().unwrap()][..], &["sh", "-c", &shell]] {
        let test = EVERY_READ_STALLS;
        let run = speculation::run_until_predicted(
            &scratch,
            test,
            command,
            &expected,
            deny_write_execute,
        );
        assert_eq!(run.count("/sites/patched"), 0);
        assert!(run.losses().contains("patching was refused"), "{}", run.losses());
    }
}

#[test]
fn results_errors_and_cancellation_are_the_librarys() {
    let scratch = Scratch::new();
    let noise = speculation::noise(&scratch, 4);
    for flags in [&["-O1", "-pthread"][..], &["-O2", "-D_FORTIFY_SOURCE=2", "-pthread"]] {
        let manners = scratch.compile("manners", speculation::MANNERS, flags);
        let expected = speculation::plainly(Command::new(&manners).arg(&noise));
        assert_eq!(expected.1, Some(6), "{}", expected.0);
        assert!(expected.0.contains("cleaned file"), "{}", expected.0);
        let command = [manners.to_str().unwrap(), noise.to_str().unwrap()];
        for test in [REFUSE_PATCHING, REFUSE_PATCHING | EVERY_READ_STALLS, EVERY_READ_STALLS, 0] {
            let run = speculation::run(&scratch, test, &command, |_| {});
            assert_eq!(run.stdout, expected.0, "{flags:?} {test}");
            assert_eq!(run.status, expected.1, "{flags:?} {test}");
            assert_eq!(run.count("/exit_status"), 6, "{flags:?} {test}: {}", run.stats);
        }
    }
}

#[test]
fn a_library_that_stands_before_libc_is_respected() {
    let scratch = Scratch::new();
    let noise = speculation::noise(&scratch, 4);
    let reader = speculation::reader(&scratch);
    let source = r#"
        #include <sys/types.h>
        ssize_t read(int fd, void *into, size_t len) { *(char *)into = 7; return 0; }
    "#;
    let other = scratch.compile("other.so", source, &["-shared", "-fPIC"]);
    let expected =
        speculation::plainly(Command::new(&reader).arg(&noise).env("LD_PRELOAD", &other));
    assert_eq!(expected.0, "0 0\n");
    // Behind the agent, as the launcher would put it.
    let shell =
        format!("LD_PRELOAD=$LD_PRELOAD:'{}' '{reader}' '{}'", other.display(), noise.display());
    let command = ["sh", "-c", &shell];
    let run = speculation::run(&scratch, REFUSE_PATCHING, &command, |_| {});
    assert_eq!((&run.stdout, run.status), (&expected.0, expected.1));
    assert!(run.stats["programs"].to_string().contains("\"reader\""), "{}", run.stats);
}
