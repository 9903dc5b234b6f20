//! Inside a container, where every process has the runtime's seccomp filter:
//! speculation works, and a program that restricts itself is left alone.

mod support;

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use support::Scratch;
use support::speculation::{self as speculation, EVERY_READ_STALLS, Run};

const RET_ALLOW: u32 = 0x7fff_0000;
const RET_ERRNO: u32 = 0x0005_0000;
const RET_KILL_PROCESS: u32 = 0x8000_0000;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

/// Calls up to here existed when the filter was written.
const KNOWN_MAX: u32 = 439;

/// What Docker's default profile leaves out for a process without
/// capabilities (moby, profiles/seccomp/default.json); newer calls than it
/// knows are ENOSYS.
const LEFT_OUT: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_get_mempolicy,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mbind,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_move_pages,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_set_mempolicy,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// Allows every call but those `left_out`, answered by `answer`, and those
/// that are newer than the filter.
fn filter(left_out: &[i64], answer: u32) -> Vec<libc::sock_filter> {
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const ABOVE: u16 = 0x25;
    const RETURN: u16 = 0x06;
    let mut code = vec![
        instruction(LOAD, 0, 0, 4),
        instruction(EQUAL, 1, 0, AUDIT_ARCH_X86_64),
        instruction(RETURN, 0, 0, RET_KILL_PROCESS),
        instruction(LOAD, 0, 0, 0),
        instruction(ABOVE, 0, 1, KNOWN_MAX),
        instruction(RETURN, 0, 0, RET_ERRNO | libc::ENOSYS as u32),
        // As the profile does, so that programs fall back to clone, whose
        // flags a filter can see.
        instruction(EQUAL, 0, 1, libc::SYS_clone3 as u32),
        instruction(RETURN, 0, 0, RET_ERRNO | libc::ENOSYS as u32),
    ];
    for &number in left_out {
        code.push(instruction(EQUAL, 0, 1, number as u32));
        code.push(instruction(RETURN, 0, 0, answer));
    }
    code.push(instruction(RETURN, 0, 0, RET_ALLOW));
    code
}

/// Puts the calling process under a filter.
fn restrict(code: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_ptr().cast_mut() };
    // SAFETY: a query-free prctl and a program that lives through the call.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Runs `command` under `code`, from before its execution.
fn confine(command: &mut Command, code: Vec<libc::sock_filter>) {
    // SAFETY: two prctl calls and no allocation between fork and exec.
    unsafe { command.pre_exec(move || restrict(&code)) };
}

fn refusing(number: i64) -> Vec<libc::sock_filter> {
    filter(&[LEFT_OUT, &[number]].concat(), RET_ERRNO | libc::EPERM as u32)
}

fn docker() -> Vec<libc::sock_filter> {
    filter(LEFT_OUT, RET_ERRNO | libc::EPERM as u32)
}

#[test]
fn speculation_works_under_a_container_filter() {
    let scratch = Scratch::new();
    let reader = speculation::reader(&scratch);
    let noise = speculation::noise(&scratch, 128);
    let command = [&*reader, noise.to_str().unwrap()];
    let expected = speculation::plainly(Command::new(&reader).arg(&noise));
    assert_eq!(expected.1, Some(3));
    let confined = |runahead: &mut Command| confine(runahead, docker());
    let run = speculation::run_until_predicted(
        &scratch,
        EVERY_READ_STALLS,
        &command,
        &expected,
        confined,
    );
    assert!(run.count("/sites/patched") > 0, "{}", run.stats);
    assert_eq!(run.losses(), "[]");

    // In a program that the program executes, too: it inherits the filter.
    let shell = format!("'{reader}' '{}'; exit $?", noise.display());
    let command = ["sh", "-c", &shell];
    speculation::run_until_predicted(&scratch, EVERY_READ_STALLS, &command, &expected, confined);
}

#[test]
fn speculation_copes_with_refusals_it_can_do_without() {
    let scratch = Scratch::new();
    let reader = speculation::reader(&scratch);
    let noise = speculation::noise(&scratch, 96);
    let expected = speculation::plainly(Command::new(&reader).arg(&noise));
    for refused in
        [libc::SYS_setpgid, libc::SYS_ioprio_set, libc::SYS_sched_setscheduler, libc::SYS_prlimit64]
    {
        let run = speculation::run_until_predicted(
            &scratch,
            EVERY_READ_STALLS,
            &[&*reader, noise.to_str().unwrap()],
            &expected,
            |runahead| confine(runahead, refusing(refused)),
        );
        assert_eq!(run.losses(), "[]", "call {refused} refused");
    }
}

#[test]
fn programs_are_found_where_the_rights_of_files_cannot_be_asked_for() {
    let scratch = Scratch::new();
    let text = scratch.file("text", "#!/bin/sh\n", 0o644);
    let old = &[libc::SYS_faccessat2][..];
    let both = &[libc::SYS_faccessat2, libc::SYS_faccessat][..];
    for (left_out, errno) in [(old, libc::EPERM), (old, libc::EACCES), (both, libc::EPERM)] {
        let status = |program: &Path| {
            let mut runahead = scratch.runahead();
            confine(&mut runahead, filter(left_out, RET_ERRNO | errno as u32));
            runahead.arg(program).status().unwrap().code()
        };
        for program in ["true", "/bin/true"] {
            assert_eq!(status(Path::new(program)), Some(0), "{program} {left_out:?} {errno}");
        }
        assert_eq!(status(&text), Some(126), "{left_out:?} {errno}");
    }
}

#[test]
fn what_makes_speculation_impossible_is_named() {
    let scratch = Scratch::new();
    let reader = speculation::reader(&scratch);
    let noise = speculation::noise(&scratch, 8);
    let expected = speculation::plainly(Command::new(&reader).arg(&noise));
    for (refused, name) in [
        (libc::SYS_close_range, "close_range"),
        (libc::SYS_preadv2, "preadv2"),
        (libc::SYS_seccomp, "refuses seccomp"),
    ] {
        let run = confined_run(&scratch, [&reader, noise.to_str().unwrap()], refusing(refused));
        assert_eq!((&run.stdout, run.status), (&expected.0, expected.1));
        assert_eq!(run.count("/speculation/synchronizations/attempted"), 0);
        assert!(run.count("/reads") > 0, "it is still watched: {}", run.stats);
        assert!(run.losses().contains(name), "{}", run.losses());
    }
}

#[test]
fn a_filter_that_kills_for_our_calls_keeps_us_out() {
    let scratch = Scratch::new();
    let reader = speculation::reader(&scratch);
    let noise = speculation::noise(&scratch, 8);
    let expected = speculation::plainly(Command::new(&reader).arg(&noise));
    let code = filter(&[libc::SYS_ioprio_set], RET_KILL_PROCESS);
    let run = confined_run(&scratch, [&reader, noise.to_str().unwrap()], code);
    assert_eq!((&run.stdout, run.status), (&expected.0, expected.1));
    assert_eq!(run.stats["programs"].as_array().map(Vec::len), Some(0), "{}", run.stats);
    assert!(run.losses().contains("kills"), "{}", run.losses());
}

/// Maps what is not in memory, and adds it up.
const MAPS: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int argc, char **argv) {
    struct stat stat;
    int fd = open(argv[1], O_RDONLY);
    fstat(fd, &stat);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    unsigned char *at = mmap(0, stat.st_size, PROT_READ, MAP_SHARED, fd, 0);
    unsigned long sum = 0;
    for (long i = 0; i < stat.st_size; i += 4096) sum = sum * 31 + at[i];
    printf("%lx\n", sum);
    return 3;
}
"#;

/// Which nobody has tried: the agent does without notices of faults.
#[test]
fn a_filter_that_kills_for_perf_events_kills_nobody() {
    let scratch = Scratch::new();
    let maps = scratch.compile("maps", MAPS, &["-O1", "-w"]);
    let maps = maps.to_str().unwrap();
    let noise = speculation::noise(&scratch, 1024);
    let expected = speculation::plainly(Command::new(maps).arg(&noise));
    assert_eq!(expected.1, Some(3));
    let code = || filter(&[libc::SYS_perf_event_open], RET_KILL_PROCESS);
    for test in [0, EVERY_READ_STALLS] {
        let command = [maps, noise.to_str().unwrap()];
        let run = speculation::run(&scratch, test, &command, |runahead| confine(runahead, code()));
        assert_eq!((&run.stdout, run.status), (&expected.0, expected.1), "{}", run.stats);
    }
}

/// Installs a filter that kills for what the agent would do, then executes.
const RESTRICTS_ITSELF: &str = r#"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define REFUSE(nr) BPF_JUMP(BPF_JMP | BPF_JEQ, nr, 0, 1), BPF_STMT(BPF_RET, SECCOMP_RET_KILL_PROCESS)
int main(int argc, char **argv) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        REFUSE(SYS_prctl), REFUSE(SYS_preadv2), REFUSE(SYS_close_range), REFUSE(SYS_seccomp),
        REFUSE(SYS_lseek), REFUSE(SYS_setpgid),
        BPF_STMT(BPF_RET, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof code / sizeof *code, code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program)) return 8;
    execv(argv[1], argv + 1);
    return 7;
}
"#;

#[test]
fn a_program_that_restricts_itself_is_left_alone_in_a_container_too() {
    let scratch = Scratch::new();
    let reader = speculation::reader(&scratch);
    let noise = speculation::noise(&scratch, 16);
    let expected = speculation::plainly(Command::new(&reader).arg(&noise));
    // Dynamic, so that the agent sees it happen; and static, so that only the
    // number of filters in the program that it executes tells.
    for flags in [&["-O1"][..], &["-O1", "-static"]] {
        let Some(restricts) = scratch.try_compile("restricts", RESTRICTS_ITSELF, flags) else {
            continue;
        };
        let shell = format!("'{}' '{reader}' '{}'; exit $?", restricts.display(), noise.display());
        for confined in [false, true] {
            let run =
                speculation::run(&scratch, EVERY_READ_STALLS, &["sh", "-c", &shell], |runahead| {
                    if confined {
                        confine(runahead, docker());
                    }
                });
            assert_eq!(
                (&run.stdout, run.status),
                (&expected.0, expected.1),
                "{flags:?} {confined}"
            );
            let watched = run.stats["programs"].to_string();
            assert!(!watched.contains("\"reader\""), "{watched}");
        }
    }
}

fn confined_run(scratch: &Scratch, command: [&str; 2], code: Vec<libc::sock_filter>) -> Run {
    speculation::run(scratch, EVERY_READ_STALLS, &command, |runahead| {
        confine(runahead, code.clone());
    })
}

/// Rust's runtime ends a process that it finds so.
#[test]
fn a_closed_descriptor_stays_closed_where_there_is_no_dev_null() {
    if !support::is_root() {
        return support::skip("mounting needs root");
    }
    let scratch = Scratch::new();
    const SCRIPT: &str = "mount -t tmpfs none /dev && exec \"$@\" <&-";
    let run = |wrapper: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", SCRIPT, "sh"]).args(wrapper);
        command.args(["ls", "-l", "/proc/self/fd/"]).env("XDG_CACHE_HOME", scratch.join("cache"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{wrapper:?}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        // The numbers alone: what stands behind them differs.
        text.lines()
            .filter_map(|line| Some(line.split(" -> ").next()?.rsplit(' ').next()?.to_owned()))
            .collect::<Vec<_>>()
    };
    let plain = run(&["env"]);
    for option in ["--mode=off", "--mode=observe"] {
        assert_eq!(run(&[env!("CARGO_BIN_EXE_runahead"), option]), plain, "{option}");
    }
}
