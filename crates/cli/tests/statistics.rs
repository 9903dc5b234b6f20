//! `--stats`: what the collector reports, and that the program does not
//! notice it.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use support::{Scratch, stdout_of, text};

/// A library that counts as the agent does: one slot for each process, and
/// an exit hook that tells the collector.
const COUNTING_AGENT: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct header { uint64_t magic; uint32_t root_pid, slots_taken, root_exiting; int32_t status; uint32_t collected; };
struct slot { uint32_t pid, losses; char name[16]; uint64_t counters[40]; uint32_t parked[32]; uint64_t calls[8]; char rest[REST]; };
static struct header *header;

static void tell(int status, void *unused) {
    if (!header || header->root_pid != (uint32_t)getpid()) return;
    header->status = status;
    __atomic_store_n(&header->root_exiting, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &header->root_exiting, FUTEX_WAKE, 1 << 30, 0, 0, 0);
    while (!__atomic_load_n(&header->collected, __ATOMIC_ACQUIRE))
        syscall(SYS_futex, &header->collected, FUTEX_WAIT, 0, 0, 0, 0);
}

/* Shells end by this one, which runs no handler. */
void _exit(int status) {
    tell(status, 0);
    syscall(SYS_exit_group, status);
    __builtin_unreachable();
}

__attribute__((constructor)) static void start(void) {
    const char *session = getenv("RUNAHEAD_SESSION");
    const char *at = session ? strstr(session, ";stats=") : 0;
    if (!at) return;
    char path[64] = {0};
    for (int i = 0; i < 63 && at[7 + i] && at[7 + i] != ';'; i++) path[i] = at[7 + i];
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    header = mmap(0, FILE_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (header == MAP_FAILED) { header = 0; return; }
    const char *each = getenv("SLOTS_EACH");
    uint32_t nth = __atomic_fetch_add(&header->slots_taken, each ? atoi(each) : 1, __ATOMIC_RELAXED);
    nth = nth < SLOTS_MAX ? nth : SLOTS_MAX - 1;
    struct slot *slot = (struct slot *)((char *)header + 4096) + nth;
    slot->pid = getpid();
    prctl(PR_GET_NAME, slot->name);
    slot->counters[READS] = 10;
    slot->counters[STALLS] = 2;
    slot->counters[STALL_NS] = 1500000000;
    slot->counters[SYNCS] = 2;
    slot->counters[PREDICTED] = 7;
    slot->counters[PEAK] = 100 * (nth + 1);
    slot->parked[EXIT] = 1;
    slot->calls[0] = 16ull << 32 | 3;
    slot->losses = 1 << TRACED;
    on_exit(tell, 0);
}
"#;

fn counting_agent(scratch: &Scratch) -> PathBuf {
    use runahead_protocol::stats::{Counter, FILE_LEN, Header, Loss, Park, SLOTS_MAX, Slot};
    assert_eq!(size_of::<Header>(), 4096);
    let define = |name: &str, value: usize| format!("-D{name}={value}");
    let flags = [
        define("FILE_LEN", FILE_LEN),
        define("READS", Counter::Reads as usize),
        define("STALLS", Counter::Stalls as usize),
        define("STALL_NS", Counter::StallNs as usize),
        define("SYNCS", Counter::SyncsCompleted as usize),
        define("PREDICTED", Counter::ReadsPredicted as usize),
        define("PEAK", Counter::SpeculativePeakKib as usize),
        define("EXIT", Park::Exit as usize),
        define("TRACED", Loss::Traced as usize),
        define("REST", size_of::<Slot>() - 536),
        define("SLOTS_MAX", SLOTS_MAX),
    ];
    let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    flags.extend(["-shared", "-fPIC"]);
    scratch.compile("counting.so", COUNTING_AGENT, &flags)
}

/// The JSON report in a file; waits until it is there, because without an
/// exit hook it comes after the program's end.
fn report_in(path: &Path) -> Value {
    loop {
        match fs::read(path) {
            Ok(bytes) => return serde_json::from_slice(&bytes).unwrap(),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn at<'v>(report: &'v Value, path: &str) -> &'v Value {
    path.split('.').fold(report, |value, key| {
        value.get(key).unwrap_or_else(|| panic!("no {path} in {report:#}"))
    })
}

#[test]
fn json_has_every_key_of_version_1() {
    let scratch = Scratch::new();
    let agent = counting_agent(&scratch);
    let file = scratch.join("run.json");
    let stats = format!("--stats={}", file.display());
    let script = "ls / >/dev/null; exit 3";
    let status = scratch.runahead_with(&agent).args([&stats, "sh", "-c", script]).status().unwrap();
    assert_eq!(status.code(), Some(3));
    // The exit hook has waited for the report: it is there.
    let report: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(report["version"], 1);
    assert_eq!(report["exit_status"], 3);
    assert!(report["elapsed_s"].as_f64().unwrap() > 0.0);
    assert_eq!(report["command"][0], "sh");
    // Two processes: the shell and `ls`.
    for (path, expected) in [
        ("reads", 20.0),
        ("reads_predicted", 14.0),
        ("io_stalls.count", 4.0),
        ("io_stalls.time_s", 3.0),
        ("speculation.parked.exit", 2.0),
        ("speculation.parked_calls.ioctl", 6.0),
        ("speculation.prefetches.issued", 0.0),
        ("speculation.synchronizations.completed", 4.0),
        ("memory.speculative_peak_kib", 200.0),
    ] {
        assert_eq!(at(&report, path).as_f64(), Some(expected), "{path}");
    }
    for path in [
        "speculation.prefetches.full",
        "speculation.prefetches.partial",
        "speculation.prefetches.unused",
        "speculation.synchronizations.attempted",
        "speculation.synchronizations.time_s",
        "speculation.cpu_s",
        "faults.major",
        "control.disabled_count",
        "control.disabled_s",
    ] {
        assert!(at(&report, path).is_number(), "{path}");
    }
    for unmeasured in [
        "faults.cow",
        "readahead.unused",
        "memory.fork_kib",
        "device.latency_us",
        "device.bandwidth_mb_s",
        "device.parallelism",
        "device.horizon",
    ] {
        assert!(at(&report, unmeasured).is_null(), "{unmeasured}");
    }
    let programs = report["programs"].as_array().unwrap();
    assert_eq!(programs.len(), 2);
    assert_eq!(programs[1]["name"], "ls");
    assert_eq!(programs[1]["reads_predicted_per_synchronization"], 3.5);
    assert!(text(report["losses"][0].as_str().unwrap().as_bytes()).contains("traced"));
}

#[test]
fn what_nobody_measured_is_null() {
    let scratch = Scratch::new();
    let agent = scratch.idle_agent();
    let file = scratch.join("run.json");
    let stats = format!("--stats={}", file.display());
    let status =
        scratch.runahead_with(&agent).args([&stats, "--mode=off", "true"]).status().unwrap();
    assert!(status.success());
    let report = report_in(&file);
    for path in ["reads", "io_stalls.count", "speculation.parked", "speculation.cpu_s"] {
        assert!(at(&report, path).is_null(), "{path}");
    }
    assert_eq!(report["programs"], Value::Array(Vec::new()));
    // Known from Linux 6.15 on, where the parent has fetched it in time.
    assert!(report["exit_status"].is_null() || report["exit_status"] == 0);
}

/// What a `make` of something large has more processes than there are places for is said,
/// and put down to no program.
#[test]
fn processes_without_a_place_are_counted_as_others() {
    let scratch = Scratch::new();
    let agent = counting_agent(&scratch);
    let file = scratch.join("run.json");
    let mut command = scratch.runahead_with(&agent);
    command.arg(format!("--stats={}", file.display())).env("SLOTS_EACH", "4100");
    assert!(command.args(["sh", "-c", "ls / >/dev/null; exit 0"]).status().unwrap().success());
    let report = report_in(&file);
    let names: Vec<_> = report["programs"].as_array().unwrap().iter().collect();
    assert_eq!((&names[0]["name"], &names[1]["name"]), (&"sh".into(), &"(others)".into()));
    let losses = report["losses"].to_string();
    assert!(losses.contains("4104 processes more"), "{losses}");
}

/// The collector of a program whose environment holds `mark`, once it has settled down.
fn collector(mark: &str) -> u32 {
    let is_it = |pid: u32| {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let status = text(&read("status"));
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        text(&read("environ")).contains(mark)
            && status.starts_with("Name:\trunahead-stats")
            && ignored.is_some_and(|mask| mask & 1 << (libc::SIGTERM - 1) != 0)
    };
    for _ in 0..6000 {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        if let Some(pid) = pids.into_iter().find(|&pid| is_it(pid)) {
            return pid;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("no collector that outlives a SIGTERM");
}

/// systemd ends all processes of a unit together (KillMode): what the program does then
/// belongs to its statistics.
#[test]
fn what_ends_a_whole_unit_leaves_the_report() {
    let scratch = Scratch::new();
    let agent = counting_agent(&scratch);
    let file = scratch.join("run.json");
    let mut command = scratch.runahead_with(&agent);
    command.arg(format!("--stats={}", file.display()));
    let script = "trap 'exit 9' TERM; echo; read line";
    let mut child = command
        .args(["sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    for pid in [collector(scratch.path().to_str().unwrap()), child.id()] {
        // SAFETY: signals a process that this test has started.
        assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGTERM) }, 0);
    }
    assert_eq!(child.wait().unwrap().code(), Some(9));
    assert_eq!(report_in(&file)["exit_status"], 9);
}

#[test]
fn the_summary_is_for_people_and_comes_before_the_end() {
    let scratch = Scratch::new();
    let agent = counting_agent(&scratch);
    let mut command = scratch.runahead_with(&agent);
    let output = command.args(["--stats", "sh", "-c", "echo out; exit 5"]).output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(text(&output.stdout), "out\n");
    let summary = text(&output.stderr);
    assert!(summary.starts_with("runahead: sh ended with status 5 after "), "{summary}");
    for line in ["reads", "2 waited for storage", "stopped by", "exit 1", "ioctl 3", "lost: sh: "] {
        assert!(summary.contains(line), "{line}: {summary}");
    }
}

#[test]
fn a_death_by_signal_is_reported_where_the_kernel_tells() {
    let scratch = Scratch::new();
    let agent = counting_agent(&scratch);
    let file = scratch.join("run.json");
    let stats = format!("--stats={}", file.display());
    let _ = scratch.runahead_with(&agent).args([&stats, "sh", "-c", "kill -9 $$"]).status();
    let report = report_in(&file);
    assert_eq!(report["reads"], 10, "counted until then");
    let told = (&report["exit_status"], &report["signal"]);
    assert!(told == (&137.into(), &9.into()) || told == (&Value::Null, &Value::Null), "{told:?}");
}

#[test]
fn a_report_goes_into_a_pipe_too() {
    let scratch = Scratch::new();
    let agent = counting_agent(&scratch);
    let output =
        stdout_of(scratch.runahead_with(&agent).args(["--stats=/dev/stdout", "echo", "first"]));
    let (first, report) = output.split_once('\n').unwrap();
    assert_eq!(first, "first");
    assert_eq!(serde_json::from_str::<Value>(report).unwrap()["exit_status"], 0);
}

/// The shell keeps the stream open and writes behind the report.
#[test]
fn a_report_goes_behind_the_output_that_is_a_file() {
    let scratch = Scratch::new();
    let agent = counting_agent(&scratch);
    let file = scratch.file("out", "", 0o644);
    let alias = scratch.join("alias");
    std::os::unix::fs::symlink("/dev/stdout", &alias).unwrap();
    let inode = fs::metadata(&file).unwrap().ino();
    let name = file.to_str().unwrap();
    for (stream, to, place) in [
        (">", "", "/dev/stdout"),
        (">", "", "/proc/self/fd/1"),
        (">", "", alias.to_str().unwrap()),
        (">", "", name),
        ("2>", ">&2", "/dev/stderr"),
        ("7>", ">&7", "/dev/fd/7"),
    ] {
        fs::write(&file, "").unwrap();
        let script = format!("{{ \"$@\" {to}; echo last {to}; }} {stream}'{name}'");
        let runahead = scratch.runahead_with(&agent);
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, "sh"]).arg(runahead.get_program()).args(runahead.get_args());
        shell.args([&format!("--stats={place}"), "echo", "first"]);
        for (variable, value) in runahead.get_envs() {
            match value {
                Some(value) => shell.env(variable, value),
                None => shell.env_remove(variable),
            };
        }
        assert!(shell.status().unwrap().success(), "{place}");
        let output = fs::read_to_string(&file).unwrap();
        let parts = output.strip_prefix("first\n").and_then(|rest| rest.strip_suffix("last\n"));
        let report = parts.unwrap_or_else(|| panic!("{place}: {output}"));
        assert_eq!(serde_json::from_str::<Value>(report).unwrap()["exit_status"], 0, "{place}");
        assert_eq!(fs::metadata(&file).unwrap().ino(), inode, "{place}: the same file");
    }
}

/// A file that is only read from is no stream that a report goes into.
#[test]
fn a_report_replaces_a_file_that_is_read() {
    let scratch = Scratch::new();
    let agent = counting_agent(&scratch);
    let file = scratch.file("run.json", "earlier\n", 0o644);
    let stats = format!("--stats={}", file.display());
    let mut command = scratch.runahead_with(&agent);
    command.args([&stats, "cat"]).stdin(fs::File::open(&file).unwrap());
    assert_eq!(stdout_of(&mut command), "earlier\n");
    assert_eq!(report_in(&file)["exit_status"], 0);
}

#[test]
fn a_report_that_cannot_be_written_is_told_at_once() {
    let scratch = Scratch::new();
    let agent = scratch.idle_agent();
    for place in ["/no/such/directory/file", scratch.path().to_str().unwrap()] {
        let stats = format!("--stats={place}");
        let output = scratch.runahead_with(&agent).args([&stats, "echo", "x"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty(), "the program did not run");
        assert!(text(&output.stderr).contains("cannot be written"), "{output:?}");
    }
}

/// Nobody but its owner can replace it there.
#[test]
fn a_report_in_the_place_of_anothers_file_in_tmp_is_told_at_once() {
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::process::CommandExt;
    if !support::is_root() {
        return support::skip("another user's file needs root");
    }
    const NOBODY: u32 = 65534;
    let scratch = Scratch::new();
    let place = scratch.join("tmp");
    fs::create_dir(&place).unwrap();
    for (path, mode) in [(scratch.path(), 0o755), (place.as_path(), 0o1777)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let file = place.join("run.json");
    let run = |owner| {
        fs::write(&file, "earlier").unwrap();
        chown(&file, Some(owner), Some(owner)).unwrap();
        let mut command = scratch.runahead_for_all();
        command.uid(NOBODY).gid(NOBODY).arg(format!("--stats={}", file.display()));
        command.args(["--mode=off", "echo", "x"]).output().unwrap()
    };
    let refused = run(0);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(refused.stdout.is_empty(), "the program did not run");
    assert_eq!(fs::read(&file).unwrap(), b"earlier");
    let replaced = run(NOBODY);
    assert!(replaced.status.success() && replaced.stdout == b"x\n", "{replaced:?}");
}

#[test]
fn a_program_that_does_not_start_makes_no_report() {
    let scratch = Scratch::new();
    let agent = scratch.idle_agent();
    let script = scratch.file("script", "#!/no/such/interpreter\n", 0o755);
    let output = scratch.runahead_with(&agent).arg("--stats").arg(script).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert_eq!(text(&output.stderr).lines().count(), 1, "{output:?}");
}

const LONELY: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
int main(void) {
    int subreaper = 0;
    prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
    int plain = waitpid(-1, 0, WNOHANG) < 0 && errno == ECHILD;
    int all = waitpid(-1, 0, WNOHANG | __WALL) < 0 && errno == ECHILD;
    int clones = waitpid(-1, 0, WNOHANG | __WCLONE) < 0 && errno == ECHILD;
    printf("%d %d %d, %d\n", plain, all, clones, subreaper);
    return 0;
}
"#;

#[test]
fn the_collector_is_nobodys_child() {
    let scratch = Scratch::new();
    let agent = scratch.idle_agent();
    let program = scratch.compile("lonely", LONELY, &[]);
    let mut command = scratch.runahead_with(&agent);
    assert_eq!(stdout_of(command.arg("--stats").arg(&program)), "1 1 1, 0\n");
    // Nor that of a program to which orphans come.
    let mut command = scratch.runahead_with(&agent);
    // SAFETY: one prctl between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
            Ok(())
        });
    }
    assert_eq!(stdout_of(command.arg("--stats").arg(&program)), "1 1 1, 1\n");
}

#[test]
fn the_collector_keeps_no_pipe_open() {
    let scratch = Scratch::new();
    let agent = counting_agent(&scratch);
    let file = scratch.join("run.json");
    let mut command: Command = scratch.runahead_with(&agent);
    command.arg(format!("--stats={}", file.display()));
    command.args(["sh", "-c", "exec 1>&- 2>&-; read line; exit 4"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Ends only if nobody but the program, which closes them, has them open.
    let mut rest = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut rest).unwrap();
    child.stderr.take().unwrap().read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "{}", text(&rest));
    child.stdin.take().unwrap().write_all(b"now\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(4));
    assert_eq!(report_in(&file)["exit_status"], 4);
}
