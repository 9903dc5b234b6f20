//! The C and Python examples of docs/hints.md, as they stand there, and a hostile caller.
//! (The Rust example is run as a documentation test.)

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use support::{library, root};

const DOCS: &str = include_str!("../../../docs/hints.md");

/// The block of the documentation in a language.
fn example(language: &str) -> &'static str {
    let (_, rest) = DOCS.split_once(&format!("```{language}\n")).expect("an example");
    rest.split_once("```").expect("its end").0
}

fn run(command: &mut Command) -> Output {
    // Bounded: a program that hangs must not hang the tests.
    let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
    let mut bounded = Command::new("timeout");
    bounded.args(["-k", "5", "60"]).args(words);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bounded.env(name, value),
            None => bounded.env_remove(name),
        };
    }
    let output = bounded.env("RUNAHEAD_MANAGER", "embedded").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", output.status);
    output
}

fn compile(source: &str, directory: &Path) -> PathBuf {
    let (file, program) = (directory.join("example.c"), directory.join("example"));
    fs::write(&file, source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-O2", "-I"]).arg(root().join("include"));
    cc.arg(&file).arg("-o").arg(&program).args(["-ldl", "-lpthread"]);
    run(&mut cc);
    program
}

fn data(directory: &Path, bytes: usize) -> (PathBuf, Vec<u8>) {
    let data: Vec<u8> =
        (0..bytes as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let path = directory.join("data");
    fs::write(&path, &data).unwrap();
    (path, data)
}

#[test]
fn the_c_example_runs_with_and_without_the_library() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(example("c"), directory.path());
    let (path, data) = data(directory.path(), 2 << 20);
    let expected: u32 = data
        .chunks(8192)
        .step_by(10)
        .take((2 << 20) / 8192 / 10)
        .flat_map(|block| block.chunks(4))
        .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
        .fold(0, u32::wrapping_add);
    for library in [library(), "/no/such/library.so".into()] {
        for switch in ["on", "off"] {
            let output = run(Command::new(&program)
                .arg(&path)
                .env("RUNAHEAD_HINT_LIBRARY", &library)
                .env("RUNAHEAD", switch));
            assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{expected}\n"));
            assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        }
    }
}

/// Its users choose the language and the warnings.
#[test]
fn the_header_is_strict_c_and_cpp() {
    let directory = tempfile::tempdir().unwrap();
    let source = "\
#include \"runahead.h\"
int main(void)
{
	struct runahead_segment whole = { 0, 0 };
	char byte;
	runahead_hint_consumed(0, 0, 1);
	return runahead_hint_fd(0, &whole, 1) < 0 || runahead_pread(0, &byte, 1, 0) < 0;
}
";
    for (compiler, name, standards) in [
        ("cc", "strict.c", &["c99", "c11", "c17"][..]),
        ("c++", "strict.cc", &["c++98", "c++11", "c++20"]),
    ] {
        let file = directory.path().join(name);
        fs::write(&file, source).unwrap();
        for standard in standards {
            for linked in [&[][..], &["-DRUNAHEAD_LINKED"]] {
                let mut command = Command::new(compiler);
                command.arg(format!("-std={standard}")).args(linked).arg("-fsyntax-only");
                command.args(["-Wall", "-Wextra", "-Wpedantic", "-Wno-long-long", "-Werror"]);
                run(command.arg("-I").arg(root().join("include")).arg(&file));
            }
        }
    }
}

#[test]
fn the_python_example_runs_with_and_without_the_library() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("example.py");
    fs::write(&script, example("python")).unwrap();
    // Small whole numbers: sums are exact whatever their order.
    let values: Vec<f32> = (0..32 * 32 * 64).map(|i: i32| (i % 97) as f32).collect();
    let path = directory.path().join("data");
    fs::write(&path, values.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<u8>>()).unwrap();
    let plane = |y: usize| -> f32 {
        (0..32).flat_map(|x| &values[(x * 32 + y) * 64..(x * 32 + y + 1) * 64]).sum()
    };
    let expected: String = (0..32).step_by(8).map(|y| format!("{:.1}\n", plane(y))).collect();
    for library in [library(), "/no/such/library.so".into()] {
        let output = run(Command::new("python3")
            .arg(&script)
            .arg(&path)
            .env("PYTHONPATH", root().join("bindings/python/src"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("RUNAHEAD_HINT_LIBRARY", library));
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }
}

#[test]
fn array_slices_become_segments() {
    let check = "\
import resource, runahead
s = runahead.array_segments
# One run, however many elements it has.
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
row = 10 ** 8
assert s((2, row), 4, (1, slice(1, None))) == [(4 * (row + 1), 4 * (row - 1))]
assert s((2, 3, row), 4, (slice(None), 1, slice(2, 5))) == [(4 * (row + 2), 12), (4 * (4 * row + 2), 12)]
assert s((4, 6), 8, (slice(0, 2), slice(5, 3))) == []
assert s((3, 5, 7), 2, (slice(1, 3), slice(2, 4))) == [(98, 28), (168, 28)]
assert s((4, 6), 8, (1, slice(2, 4))) == [(64, 16)]
assert s((4, 6), 8, slice(None)) == [(0, 192)]
assert s((4, 6), 8, (slice(0, 4, 2),)) == [(0, 48), (96, 48)]
assert s((4, 6), 8, (slice(1, 3), -1), 100) == [(188, 8), (236, 8)]
assert s((2, 3, 4), 1, (slice(None), 0)) == [(0, 4), (12, 4)]
assert s((4,), 8, slice(2, 2)) == []
for wrong in [(4,), (1, 2, 3), (slice(3, 0, -1),)]:
    try:
        s((4, 6), 8, wrong)
        raise SystemExit('%r was taken' % (wrong,))
    except (IndexError, ValueError):
        pass
try:
    runahead.hint('/x', [(-1, 0)])
    raise SystemExit('a negative offset was taken')
except ValueError:
    pass
";
    run(Command::new("python3")
        .args(["-c", check])
        .env("PYTHONPATH", root().join("bindings/python/src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("RUNAHEAD_HINT_LIBRARY", library()));
}

/// Numbers that C has no room for, or that it takes for others.
#[test]
fn python_refuses_numbers_that_make_no_sense() {
    let directory = tempfile::tempdir().unwrap();
    let (path, _) = data(directory.path(), 1 << 20);
    let check = "\
import os, sys, runahead
assert runahead.available()
fd = os.open(sys.argv[1], os.O_RDONLY)
def refused(what, *arguments):
    try:
        return 'nothing: %r' % (what(*arguments),)
    except (OSError, OverflowError, ValueError) as error:
        return type(error), getattr(error, 'errno', None)
for count, offset in [(-1, 0), (-1 << 63, 0), (4, -1), (4, 1 << 63), (4, 1 << 64), (4, -1 << 64)]:
    ours, plain = [refused(read, fd, count, offset) for read in (runahead.pread, os.pread)]
    assert ours == plain, (count, offset, ours, plain)
huge = 1 << 64
for offset, length in [(-1, 1), (1, -1), (huge, 1), (1, huge)]:
    for what, *arguments in [
        (runahead.hint, fd, [(offset, length)]),
        (runahead.hint_across, [(fd, offset, length)]),
        (runahead.consumed, fd, offset, length),
    ]:
        assert refused(what, *arguments)[0] is ValueError, (what, offset, length)
runahead.hint(fd)
runahead.cancel(huge)
assert runahead.pread(fd, 5, 3) == os.pread(fd, 5, 3)
assert runahead.pread(fd, 0, 0) == b''
";
    run(Command::new("python3")
        .args(["-c", check])
        .arg(&path)
        .env("PYTHONPATH", root().join("bindings/python/src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("RUNAHEAD_HINT_LIBRARY", library()));
}

/// Everything that a caller can do wrong: answers, and a program that goes on; its locks,
/// descriptors and children are what they would be.
const HOSTILE: &str = r#"
#include "runahead.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

static int lock_is_held(const char *path)
{
	pid_t child = fork();
	if (child == 0) {
		struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
		int fd = open(path, O_RDWR);
		fcntl(fd, F_GETLK, &lock);
		_exit(lock.l_type == F_UNLCK ? 1 : 0);
	}
	int status;
	assert(waitpid(child, &status, 0) == child);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
	struct runahead_segment whole = { 0, 0 };
	struct runahead_segment odd[] = { { UINT64_MAX, UINT64_MAX }, { 1ull << 62, 0 },
					  { 5, UINT64_MAX }, { 0, 1 } };
	char buffer[4096], gone[4096];
	assert(argc == 2);
	/* What whoever runs the test left open. */
	for (int left = 3; left < 1024; left++)
		close(left);
	assert(runahead_hint_available());
	int fd = open(argv[1], O_RDWR);
	assert(fd == 3);
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	assert(fcntl(fd, F_SETLK, &lock) == 0);

	int ends[2];
	assert(pipe(ends) == 0);
	assert(runahead_hint_fd(-1, &whole, 1) == -1 && errno == EBADF);
	assert(runahead_hint_fd(99, &whole, 1) == -1 && errno == EBADF);
	assert(runahead_hint_fd(ends[0], &whole, 1) == -1 && errno == EBADF);
	assert(runahead_hint_fd(fd, NULL, 1) == -1 && errno == EFAULT);
	assert(runahead_hint_path(NULL, &whole, 1) == -1 && errno == EFAULT);
	assert(runahead_hint_fd(fd, NULL, 0) == 0);
	assert(runahead_hint_fd(fd, &whole, (size_t)-1) == -1 && errno == EFAULT);
	assert(runahead_hint_path(argv[1], &whole, SIZE_MAX / 2) == -1 && errno == EFAULT);
	struct runahead_fd_segment one = { fd, 0, 0 };
	assert(runahead_hint_fds(&one, (size_t)INT64_MIN) == -1 && errno == EFAULT);
	assert(runahead_hint_fds(NULL, 0) == 0);
	assert(runahead_hint_path("/no/such/file", &whole, 1) == 0);
	assert(runahead_hint_path("/dev/zero", &whole, 1) == 0);
	assert(runahead_hint_path("/proc/self/mem", &whole, 1) == 0);
	assert(runahead_hint_path("", &whole, 1) == -1 && errno == EBADF);
	assert(runahead_hint_fd(fd, odd, 4) == 0);
	struct runahead_fd_segment across[] = { { fd, 0, 10 }, { ends[1], 0, 1 } };
	assert(runahead_hint_fds(across, 2) == -1 && errno == EBADF);

	/* A file that vanishes with its hints outstanding. */
	snprintf(gone, sizeof gone, "%s.gone", argv[1]);
	int other = open(gone, O_CREAT | O_RDWR, 0600);
	assert(write(other, buffer, sizeof buffer) == sizeof buffer);
	assert(runahead_hint_fd(other, &whole, 1) == 0);
	assert(ftruncate(other, 0) == 0 && unlink(gone) == 0 && close(other) == 0);

	assert(runahead_hint_cancel(SIZE_MAX) == 0);
	assert(runahead_hint_fd(fd, &whole, 1) == 0);
	for (off_t at = 0; at < 1 << 20; at += 4096)
		assert(runahead_pread(fd, buffer, 4096, at) == 4096);
	assert(runahead_pread(fd, buffer, 4096, -5) == -1 && errno == EINVAL);
	assert(runahead_pread(fd, NULL, 4096, 0) == -1 && errno == EFAULT);
	assert(runahead_pread(fd, buffer, 4096, 1ll << 40) == 0);
	runahead_hint_consumed(fd, UINT64_MAX, UINT64_MAX);

	/* A note of more than there is, or of what no read returns. */
	assert(runahead_hint_cancel(SIZE_MAX) == 0);
	for (int i = 0; i < 3000 && runahead_hint_outstanding() > 0; i++)
		usleep(10000);
	assert(runahead_hint_fd(fd, &whole, 1) == 0);
	runahead_hint_consumed(fd, 0, UINT64_MAX);
	usleep(100000);
	assert(runahead_hint_outstanding() == 1);
	runahead_hint_consumed(fd, 0, INT64_MAX);
	for (int i = 0; i < 3000 && runahead_hint_outstanding() > 0; i++)
		usleep(10000);
	assert(runahead_hint_outstanding() == 0);

	/* As many hints as are taken, and one more. */
	static struct runahead_segment many[1 << 16];
	for (size_t i = 0; i < 1 << 16; i++)
		many[i] = (struct runahead_segment){ 8192, 4096 };
	int full = 0;
	for (int i = 0; i < 80 && !full; i++)
		full = runahead_hint_fd(fd, many, 1 << 16) == -1 && errno == ENOSPC;
	assert(full && runahead_hint_outstanding() > 4000000);

	/* A child begins anew, and may hint. */
	pid_t child = fork();
	if (child == 0) {
		assert(runahead_hint_outstanding() == 0);
		assert(runahead_hint_fd(fd, &whole, 1) == 0);
		assert(runahead_pread(fd, buffer, 4096, 0) == 4096);
		_exit(0);
	}
	int status;
	assert(waitpid(child, &status, 0) == child && status == 0);
	assert(waitpid(-1, &status, 0) == -1 && errno == ECHILD);

	assert(lock_is_held(argv[1]));
	int next = open("/dev/null", O_RDONLY);
	assert(next == 6); /* 4 and 5 are the pipe: nothing of ours in between */
	/* The pipe's write end is nowhere else. */
	close(ends[1]);
	assert(read(ends[0], buffer, 1) == 0);
	return 0;
}
"#;

#[test]
fn a_hostile_caller_gets_answers_and_keeps_what_is_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(&format!("#include <stdio.h>\n{HOSTILE}"), directory.path());
    let (path, _) = data(directory.path(), 2 << 20);
    run(Command::new(&program).arg(&path).env("RUNAHEAD_HINT_LIBRARY", library()));
}
