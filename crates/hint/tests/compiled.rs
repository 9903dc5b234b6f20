//! The run-time layer of compiled programs hints through the manager of the machine where there
//! is one (compiler/runtime, docs/hints.md).

mod support;

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use support::{library, root};

/// Copies a mapped file as compiled loops do that were recognized as copies, and prints a sum;
/// ends as it is told.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include "internal.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *never(void *unused) { (void)unused; usleep(300000); return 0; }

#ifdef LIBRARY
void library_copy(void *to, const void *from, size_t bytes);
#endif

/* From here on nobody gets a thread. */
static void refuse_threads(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof code / sizeof *code, code };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		exit(8);
}

int main(int argc, char **argv)
{
	struct stat status;
	int fd = argc == 3 ? open(argv[1], O_RDONLY) : -1;
	if (fd < 0 || fstat(fd, &status) != 0)
		return 9;
	if (strcmp(argv[2], "alone") == 0)
		refuse_threads();
	size_t bytes = status.st_size, piece = 1 << 20;
	unsigned char *file = mmap(0, bytes, PROT_READ, MAP_SHARED, fd, 0), *copy = malloc(piece);
	unsigned long sum = 0, told = 0;
	/* A helper that has no processor while the program reads finds nothing missing: again. */
	int most = getenv("UNTIL_DISCLOSED") ? 400 : 2;
	/* The kernel brings in nothing ahead: what the hints say is missing when their turn comes. */
	madvise(file, bytes, MADV_RANDOM);
	for (int pass = 0; pass < 2 || (pass < most && ra.count.disclosed == 0); pass++) {
		/* What is mapped stays in memory. */
		madvise(file, bytes, MADV_DONTNEED);
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		for (size_t at = 0; at < bytes; at += piece) {
			ra_memcpy(copy, file + at, piece);
			for (size_t i = 0; i < piece; i++)
				sum = sum * 31 + copy[i];
		}
		if (pass == 1)
			told = sum;
	}
#ifdef LIBRARY
	library_copy(copy, file, piece);
#endif
	/* Longer than the helper takes to see that nothing is missing any more, and until it
	 * has told of all that was consumed. */
	for (int i = 0; i < 3000 && (i < 60 || ra.count.consumed != ra.count.disclosed); i++)
		usleep(10000);
	printf("%lx\n", told); /* and flushed by exit alone */
	if (strcmp(argv[2], "thread") == 0) {
		pthread_t thread;
		pthread_create(&thread, 0, never, 0);
		pthread_exit(0);
	}
	return 3;
}
"#;

/// A library with a run-time layer of its own.
const LIBRARY: &str = r#"
#include "runahead_rt.h"
__attribute__((visibility("default"))) void library_copy(void *to, const void *from, size_t bytes);
void library_copy(void *to, const void *from, size_t bytes) { ra_memcpy(to, from, bytes); }
"#;

/// What a program may do that the run-time layer must leave as it was; returns 0 if it is.
const HOSTILE: &str = r#"
#define _GNU_SOURCE
#include "internal.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1 << 20 };
static char from[BYTES], to[BYTES];

static void hint(void) { ra_memcpy(to, from, BYTES); }

/* The memory that the program asks for itself is there. */
static int limit(int resource)
{
	struct rlimit most;
	getrlimit(resource, &most);
	most.rlim_cur = (rlim_t)9 << 30;
	if (setrlimit(resource, &most) != 0)
		return 8;
	hint();
	return malloc((size_t)2 << 30) == 0;
}

static int locked(void)
{
	if (mlockall(MCL_FUTURE) != 0)
		return 0; /* not permitted here */
	hint();
	char line[256];
	unsigned long kilobytes = 0;
	FILE *status = fopen("/proc/self/status", "r");
	while (status && fgets(line, sizeof line, status))
		sscanf(line, "VmLck: %lu", &kilobytes);
	return kilobytes > 1 << 20;
}

static int reached;

static void *cancelled(void *nothing)
{
	pthread_cancel(pthread_self());
	hint();
	reached = 1;
	pthread_testcancel();
	return nothing;
}

static int cancel(void)
{
	pthread_t thread;
	void *result;
	pthread_create(&thread, 0, cancelled, 0);
	pthread_join(thread, &result);
	return !(reached && result == PTHREAD_CANCELED);
}

/* Neither fork's nor the C library's: nobody tells the layer. */
static int child(void)
{
	hint();
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (pid == 0) {
		ra.active = 1; /* as it is while something is missing */
		hint();
		_exit(ra.state != 2 || ra.active);
	}
	int status;
	return waitpid(pid, &status, 0) != pid || status != 0 || ra.state != 1;
}

/* The program's own, in the end as the pass leaves it. */
static int is_compiled;

void *memcpy(void *restrict out, const void *restrict in, size_t bytes)
{
	static struct ra_site site = { .levels = 1, .streams = 2, .strip_mined = 1, .name = "memcpy" };
	struct { struct ra_frame frame; struct ra_stream streams[2]; } f;
	f.frame.count[0] = bytes;
	f.frame.streams[0] = (struct ra_stream){ .base = (uint64_t)(uintptr_t)out, .high = 1, .stride = { 1 } };
	f.frame.streams[1] = (struct ra_stream){ .base = (uint64_t)(uintptr_t)in, .high = 1, .stride = { 1 } };
	if (is_compiled)
		ra_begin_2(&site, &f.frame);
	for (volatile size_t i = 0; i < bytes; i++)
		((char *)out)[i] = ((const char *)in)[i];
	return out;
}

static int own_memcpy(void)
{
	from[BYTES - 1] = 3;
	is_compiled = 1;
	hint();
	return to[BYTES - 1] != 3;
}

int main(int argc, char **argv)
{
	const char *what = argc == 2 ? argv[1] : "";
	if (strcmp(what, "address space") == 0)
		return limit(RLIMIT_AS);
	if (strcmp(what, "data") == 0)
		return limit(RLIMIT_DATA);
	if (strcmp(what, "locked") == 0)
		return locked();
	if (strcmp(what, "cancel") == 0)
		return cancel();
	if (strcmp(what, "child") == 0)
		return child();
	return strcmp(what, "memcpy") == 0 ? own_memcpy() : 9;
}
"#;

/// Where no file lies in memory: releasing its pages must have an effect.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn build(directory: &Path) -> PathBuf {
    build_as(directory, "program", PROGRAM, &[])
}

/// The sources of the run-time layer.
fn sources() -> Vec<PathBuf> {
    let files = fs::read_dir(root().join("compiler/runtime")).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "c"));
    files
}

/// With the run-time layer.
fn build_as(directory: &Path, name: &str, text: &str, more: &[&str]) -> PathBuf {
    let (source, program) = (directory.join(format!("{name}.c")), directory.join(name));
    fs::write(&source, text).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-I"]).arg(root().join("compiler/runtime"));
    cc.arg(&source).args(sources()).args(more).arg("-o").arg(&program).args(["-pthread", "-ldl"]);
    let output = cc.current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Runs it, at most a minute: what it said and its counters.
fn run(program: &Path, manager: &str, end: &str) -> (Output, serde_json::Value) {
    run_with(program, manager, end, None)
}

/// The same with a manager that serves it.
fn run_served(program: &Path, manager: &Path, end: &str) -> (Output, serde_json::Value) {
    run_with(program, manager.to_str().unwrap(), end, Some(("UNTIL_DISCLOSED", "1")))
}

fn run_with(
    program: &Path,
    manager: &str,
    end: &str,
    variable: Option<(&str, &str)>,
) -> (Output, serde_json::Value) {
    let directory = program.parent().unwrap();
    let statistics = directory.join("statistics");
    let _ = fs::remove_file(&statistics);
    let output = Command::new("timeout")
        .args(["-k", "5", "60"])
        .arg(program)
        .arg(directory.join("data"))
        .arg(end)
        .env_remove("RUNAHEAD")
        .env("RUNAHEAD_HINT_LIBRARY", library())
        .env("RUNAHEAD_MANAGER", manager)
        .env("RUNAHEAD_CC_STATS", &statistics)
        .envs(variable)
        .output()
        .unwrap();
    let said = fs::read(&statistics).expect("it ended without its exit handlers");
    (output, serde_json::from_slice(&said).unwrap())
}

fn data(directory: &Path) {
    let data: Vec<u8> =
        (0..24_u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(directory.join("data"), data).unwrap();
    // What is dirty cannot be released.
    fs::File::open(directory.join("data")).unwrap().sync_all().unwrap();
}

fn pages(counters: &serde_json::Value, name: &str) -> u64 {
    counters[name].as_u64().unwrap()
}

#[test]
fn prefetches_go_through_the_managers_hands_and_results_stay() {
    let directory = directory();
    data(directory.path());
    let program = build(directory.path());
    let (alone, counters) = run(&program, "embedded", "return");
    assert_eq!(alone.status.code(), Some(3), "{alone:?}");
    assert_eq!(pages(&counters, "disclosed"), 0, "{counters}");

    let socket = directory.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || runahead_manager::server::serve(&listener));
    let (managed, counters) = run_served(&program, &socket, "return");
    assert_eq!((managed.status.code(), &managed.stdout), (Some(3), &alone.stdout));
    // How much is missing when its turn comes depends on the kernel's own readahead.
    let disclosed = pages(&counters, "disclosed");
    assert!(disclosed > 0, "{counters}");
    assert_eq!(pages(&counters, "consumed"), disclosed, "{counters}");
    assert!(pages(&counters["pages"], "issued") >= disclosed, "{counters}");

    // The threads of the library do not keep a program alive whose own have all ended.
    let (ended, counters) = run_served(&program, &socket, "thread");
    assert_eq!((ended.status.code(), &ended.stdout), (Some(0), &alone.stdout));
    assert!(pages(&counters, "disclosed") > 0, "{counters}");
}

#[test]
fn a_manager_that_is_gone_or_rude_is_done_without() {
    let directory = directory();
    data(directory.path());
    let program = build(directory.path());
    let (alone, _) = run(&program, "/no/such/socket", "return");
    // Nobody listens there.
    let dead = directory.path().join("dead");
    drop(UnixListener::bind(&dead).unwrap());
    let (orphan, _) = run(&program, dead.to_str().unwrap(), "return");
    assert_eq!((orphan.status.code(), &orphan.stdout), (Some(3), &alone.stdout));
    // It accepts and says nothing that makes sense.
    let rude = directory.path().join("rude");
    let listener = UnixListener::bind(&rude).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = std::io::Write::write_all(&mut stream.unwrap(), &[0xa5; 4096]);
        }
    });
    let (rude, _) = run(&program, rude.to_str().unwrap(), "return");
    assert_eq!((rude.status.code(), &rude.stdout), (Some(3), &alone.stdout));
}

#[test]
fn a_program_that_gets_no_threads_does_without_hints() {
    let directory = directory();
    data(directory.path());
    let program = build(directory.path());
    let (hinted, _) = run(&program, "/no/such/socket", "return");
    let (alone, counters) = run(&program, "/no/such/socket", "alone");
    assert_eq!((alone.status.code(), &alone.stdout), (Some(3), &hinted.stdout));
    assert_eq!(counters["active_at_end"], 0, "{counters}");
}

#[test]
fn a_program_with_two_layers_ends_once_and_says_all() {
    let directory = directory();
    data(directory.path());
    let alone = run(&build(directory.path()), "embedded", "return").0;
    build_as(
        directory.path(),
        "liblayer.so",
        LIBRARY,
        &["-shared", "-fPIC", "-fvisibility=hidden"],
    );
    let arguments = ["-DLIBRARY", "-L.", "-l:liblayer.so", "-Wl,-rpath,$ORIGIN"];
    let program = build_as(directory.path(), "both", PROGRAM, &arguments);
    let (ended, _) = run(&program, "embedded", "thread");
    assert_eq!((ended.status.code(), &ended.stdout), (Some(0), &alone.stdout), "{ended:?}");
}

#[test]
fn a_programs_limits_locks_cancellations_children_and_names_stay_its_own() {
    let directory = directory();
    let program = build_as(directory.path(), "hostile", HOSTILE, &["-fno-builtin"]);
    for what in ["address space", "data", "locked", "cancel", "child", "memcpy"] {
        let statistics = directory.path().join("statistics");
        let _ = fs::remove_file(&statistics);
        let output = Command::new("timeout")
            .args(["-k", "5", "20"])
            .arg(&program)
            .arg(what)
            .env_remove("RUNAHEAD")
            .env("RUNAHEAD_MANAGER", "embedded")
            .env("RUNAHEAD_CC_STATS", &statistics)
            .output()
            .unwrap();
        assert!(output.status.success(), "{what}: {output:?}");
        let said = fs::read(&statistics).unwrap();
        let counters: serde_json::Value = serde_json::from_slice(&said).unwrap();
        let is_limited = ["address space", "data"].contains(&what);
        assert_eq!(counters["off"].is_string(), is_limited, "{what}: {counters}");
    }
}

/// A program with more rights than whoever starts it does not obey their environment.
#[test]
fn the_environment_is_asked_for_securely() {
    let header = root().join("include/runahead.h");
    for file in sources().into_iter().chain([header]) {
        let text = fs::read_to_string(&file).unwrap();
        let plain = text.replace("secure_getenv(", "").replace("runahead_getenv_(", "");
        assert!(!plain.contains("getenv("), "{}", file.display());
    }
    // In the crates one place reads it, in the program's own thread: any other may be in one of
    // ours, while the program changes it.
    for directory in [
        "crates/hint/src",
        "crates/hint/src/session",
        "crates/manager/src",
        "crates/manager/src/engine",
    ] {
        for entry in fs::read_dir(root().join(directory)).unwrap() {
            let file = entry.unwrap().path();
            if file.is_dir() || file.ends_with("hint/src/environment.rs") {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            let served = text.split("#[cfg(test)]").next().unwrap();
            for asks in ["env::var", "getenv", "load_for("] {
                assert!(!served.contains(asks), "{asks} in {}", file.display());
            }
        }
    }
}

/// Says whether it has more rights than whoever starts it, and hints.
const SET_USER_ID: &str = r#"
#include "runahead.h"
#include <stdio.h>
#include <sys/auxv.h>

int main(void)
{
	runahead_hint_available();
	printf("%lu\n", getauxval(AT_SECURE));
	return 0;
}
"#;

/// Says that it was loaded.
const LOADED: &str = r#"
#include <stdio.h>
__attribute__((constructor)) static void loaded(void) { puts("loaded"); }
"#;

/// Needs root, to make such a program; elsewhere only the other half is checked.
#[test]
fn a_set_user_id_program_does_not_load_what_the_environment_names() {
    use std::os::unix::fs::PermissionsExt;
    // Where every user may look.
    let directory = tempfile::tempdir().unwrap();
    let open = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    open(directory.path(), 0o755);
    let include = format!("-I{}", root().join("include").display());
    let program = build_as(directory.path(), "program", SET_USER_ID, &[&include]);
    let library = build_as(directory.path(), "liblayer.so", LOADED, &["-shared", "-fPIC"]);
    let say = || {
        let mut command = Command::new(&program);
        let command = command.env_remove("RUNAHEAD").env("RUNAHEAD_HINT_LIBRARY", &library);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert_eq!(say(), "loaded\n0\n");
    if std::os::unix::fs::chown(&program, Some(65_534), None).is_err() {
        return;
    }
    open(&program, 0o4755);
    let said = say();
    // A file system may take no notice of such bits.
    if said.ends_with("1\n") {
        assert_eq!(said, "1\n");
    }
}
