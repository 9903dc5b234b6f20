//! The launcher against programs of every kind: each is started as a shell
//! would start it, or fails as in a shell.

mod support;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use support::{Scratch, as_bash, is_root, skip, stdout_of, text};

/// The command fails with bash's status and words.
fn fails_as_in_bash(scratch: &Scratch, command: &OsStr) {
    let output = scratch.runahead().arg(command).output().unwrap();
    let (status, message) = as_bash(command).expect("bash");
    assert_eq!(output.status.code(), Some(status), "{command:?}");
    assert_eq!(text(&output.stderr).trim_end(), format!("runahead: {message}"));
    assert!(output.stdout.is_empty());
}

#[test]
fn what_cannot_be_run_fails_as_in_a_shell() {
    let scratch = Scratch::new();
    fails_as_in_bash(&scratch, OsStr::new("no-such-command"));
    fails_as_in_bash(&scratch, OsStr::new("/no/such/file"));
    fails_as_in_bash(&scratch, scratch.path().as_os_str());
    let not_executable = scratch.file("text", "#!/bin/sh\n", 0o644);
    fails_as_in_bash(&scratch, not_executable.as_os_str());
    let below_a_file = scratch.file("file", "", 0o755).join("below");
    fails_as_in_bash(&scratch, below_a_file.as_os_str());
    let binary = scratch.file("binary", b"\x01\x02\0\x03\n", 0o755);
    fails_as_in_bash(&scratch, binary.as_os_str());
    let no_interpreter = scratch.file("script", "#!/no/such/interpreter -x\n", 0o755);
    let output = scratch.runahead().arg(&no_interpreter).output().unwrap();
    // bash before 5.2 exits with 126.
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).contains("bad interpreter"), "{output:?}");
}

#[test]
fn the_search_path_is_followed() {
    let scratch = Scratch::new();
    for (directory, mode) in [("a", 0o644), ("b", 0o755), ("c", 0o755)] {
        fs::create_dir(scratch.join(directory)).unwrap();
        let script = format!("#!/bin/sh\necho {directory}\n");
        scratch.file(&format!("{directory}/tool"), script, mode);
    }
    fs::create_dir_all(scratch.join("a/other")).unwrap();
    let path = |directories: &[&str]| {
        let joined = directories.iter().map(|name| scratch.join(name));
        std::env::join_paths(joined).unwrap()
    };
    let run = |directories: &[&str], tool: &str| {
        scratch.runahead().arg(tool).env("PATH", path(directories)).output().unwrap()
    };
    assert_eq!(text(&run(&["a", "missing", "b", "c"], "tool").stdout), "b\n");
    assert_eq!(run(&["a"], "tool").status.code(), Some(126), "found, but not executable");
    assert_eq!(run(&["missing"], "tool").status.code(), Some(127));
    assert_eq!(run(&["a"], "other").status.code(), Some(127), "a directory is passed over");
    // An empty entry is the current directory.
    let mut here = scratch.runahead();
    here.arg("tool").env("PATH", "/nowhere::").current_dir(scratch.join("c"));
    assert_eq!(stdout_of(&mut here), "c\n");
    // Without PATH, the usual places.
    assert!(scratch.runahead().arg("true").env_remove("PATH").status().unwrap().success());
}

/// With as many arguments as the command itself can be given, the program has room for
/// them but not for the agent's variables beside them.
#[test]
fn arguments_that_only_just_fit_are_handed_on() {
    let scratch = Scratch::new();
    let script = scratch.file("script", "exit 5\n", 0o755);
    for (program, options, status) in [
        (Path::new("/bin/true"), &[][..], 0),
        (Path::new("/bin/true"), &["--mode=observe"], 0),
        (script.as_path(), &[], 5),
    ] {
        let run = |len: usize| {
            let mut command = scratch.runahead();
            command.arg("run").args(options).arg("--").arg(program).arg("x".repeat(len));
            // The least that is allowed: 128 KiB.
            let limit = libc::rlimit { rlim_cur: 256 << 10, rlim_max: 256 << 10 };
            let lower = move || {
                // SAFETY: reads one struct rlimit.
                match unsafe { libc::setrlimit(libc::RLIMIT_STACK, &limit) } {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            };
            // SAFETY: one system call.
            unsafe { command.pre_exec(lower) };
            command.output().ok()
        };
        assert!(run(0).is_some());
        let (mut fits, mut too_much) = (0, 128 << 10);
        while too_much - fits > 1 {
            let middle = (fits + too_much) / 2;
            if run(middle).is_some() { fits = middle } else { too_much = middle }
        }
        // A few bytes less: of a script the shell is given the path twice.
        let output = run(fits - 100).unwrap();
        assert_eq!(output.status.code(), Some(status), "{program:?} {options:?}: {output:?}");
    }
}

#[test]
fn scripts_run_with_and_without_a_first_line() {
    let scratch = Scratch::new();
    let agent = scratch.idle_agent();
    let named = scratch.file("named", "#!/bin/sh\necho \"$0:$1:$LD_PRELOAD\"\n", 0o755);
    let bare = scratch.file("bare", "echo \"$0:$1:$LD_PRELOAD\"\n", 0o755);
    for script in [named, bare] {
        let output = stdout_of(scratch.runahead_with(&agent).arg(&script).arg("x y"));
        assert!(output.starts_with(&format!("{}:x y:", script.display())), "{output}");
        assert!(output.contains("/agent-"), "the interpreter has the agent: {output}");
    }
}

#[test]
fn the_agent_and_its_session_reach_the_program() {
    let scratch = Scratch::new();
    let agent = scratch.idle_agent();
    let mut command = scratch.runahead_with(&agent);
    command.args(["--mode=observe", "--horizon=12", "--depth", "3", "--test", "5", "env"]);
    command.env("LD_PRELOAD", "libutil.so.1 libdl.so.2:").env("KEPT", "a=b;c");
    let output = stdout_of(&mut command);
    let value = |name: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        line.unwrap_or_else(|| panic!("no {name} in {output}")).to_owned()
    };
    let preload = value("LD_PRELOAD");
    let (first, rest) = preload.split_once(':').unwrap();
    assert_eq!(rest, "libutil.so.1 libdl.so.2:", "as it was given");
    assert_eq!(fs::read(first).unwrap(), fs::read(&agent).unwrap());
    assert_eq!(value("KEPT"), "a=b;c");

    let text = value("RUNAHEAD_SESSION");
    let session = runahead_protocol::session::parse(text.as_bytes()).unwrap();
    assert_eq!(session.mode, runahead_protocol::session::Mode::Observe);
    assert_eq!((session.horizon, session.depth, session.test), (12, 3, 5));
    assert_eq!(session.agent, first.as_bytes());
    assert!(session.stats.is_empty());
    let sites = Path::new(OsStr::from_bytes(session.sites));
    let table = runahead_sites::SiteTable::load(sites).unwrap();
    assert!(table.libraries().iter().any(|library| library.sites.len() > 100));
}

/// The record of usual launches in a scratch directory, and its bytes.
fn record_of_usual(scratch: &Scratch) -> Option<(std::path::PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(scratch.join("runahead")).ok()?;
    let path = entries
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().unwrap().as_bytes().starts_with(b"usual-"))?;
    let bytes = fs::read(&path).unwrap();
    Some((path, bytes))
}

/// Rate of the time-stamp counter that a program was told: the launch that
/// believed a record told what stands there.
fn rate_told(command: &mut Command) -> Option<String> {
    let environment = stdout_of(command.args(["cat", "/proc/self/environ"]));
    let (_, rest) = environment.split_once(";tsc=")?;
    Some(rest.split([';', '\0']).next().unwrap().to_owned())
}

/// A record of a launch with `scratch`'s directories, with another rate in it;
/// `None` where the processor's counter has none.
fn marked_record(scratch: &Scratch) -> Option<(std::path::PathBuf, Vec<u8>, String)> {
    let rate = rate_told(&mut scratch.runahead())?;
    let (path, bytes) = record_of_usual(scratch).expect("the first launch leaves a record");
    let at = bytes.windows(5).position(|window| window == b";tsc=").unwrap() + 5;
    let mut marked = bytes.clone();
    marked[at] = if marked[at] == b'9' { b'8' } else { b'9' };
    let marked_rate = format!("{}{}", char::from(marked[at]), &rate[1..]);
    fs::write(&path, &marked).unwrap();
    assert_eq!(rate_told(&mut scratch.runahead()), Some(marked_rate), "a record is believed");
    Some((path, marked, rate))
}

#[test]
fn a_usual_launch_is_like_any_other() {
    let scratch = Scratch::new();
    // The first launch of `env` leaves a record, the second goes by it, and
    // an option makes a third go the whole way.
    let seen: Vec<String> = [&["env"][..], &["run", "--", "env"], &["--mode=speculate", "env"]]
        .map(|words| stdout_of(scratch.runahead().args(words)))
        .into();
    assert!(record_of_usual(&scratch).is_some());
    assert!(seen.iter().all(|environment| *environment == seen[0]), "{seen:?}");
    let loaded = stdout_of(scratch.runahead().args(["cat", "/proc/self/maps"]));
    assert!(loaded.contains("/runahead/agent-"), "{loaded}");
    let status = scratch.runahead().args(["sh", "-c", "exit 7"]).status().unwrap();
    assert_eq!(status.code(), Some(7));
    fails_as_in_bash(&scratch, OsStr::new("no-such-command"));
    fails_as_in_bash(&scratch, scratch.path().as_os_str());
    let output = stdout_of(scratch.runahead().arg("env").env("RUNAHEAD", "off").env("A", "b"));
    assert!(output.contains("RUNAHEAD=off\n") && !output.contains("SESSION"), "{output}");
}

#[test]
fn a_record_is_believed_only_while_nothing_has_changed() {
    let scratch = Scratch::new();
    let cache = scratch.join(".cache/runahead");
    // Where the runtime directory is in memory the files are used that lie there.
    let places = [scratch.join("runahead"), cache.clone()];
    let file = |start: &str| {
        let entries = places.iter().flat_map(|place| fs::read_dir(place).unwrap());
        entries
            .map(|entry| entry.unwrap().path())
            .find(|path| path.file_name().unwrap().as_bytes().starts_with(start.as_bytes()))
            .unwrap()
    };
    let changes: &[(&str, &dyn Fn())] = &[
        ("the agent was touched", &|| {
            let agent = fs::File::open(file("agent-")).unwrap();
            agent.set_modified(agent.metadata().unwrap().modified().unwrap()).unwrap();
        }),
        ("the site table was removed", &|| fs::remove_file(file("sites-")).unwrap()),
        ("the directory's rights were changed", &|| {
            fs::set_permissions(&cache, fs::Permissions::from_mode(0o750)).unwrap();
        }),
        ("the table of executables is another", &|| {
            fs::remove_file(scratch.join("runahead").join(runahead_protocol::learnt::FILE_NAME))
                .unwrap();
        }),
        ("a device was measured", &|| fs::create_dir(cache.join("devices")).unwrap()),
        ("another device was measured", &|| {
            fs::write(cache.join("devices/other.json"), "{}").unwrap();
        }),
    ];
    for (what, change) in changes {
        let Some((path, _, rate)) = marked_record(&scratch) else { return };
        change();
        assert_eq!(rate_told(&mut scratch.runahead()), Some(rate), "{what}");
        fs::remove_file(path).unwrap();
    }
    // Where devices were measured, other mounts may be other devices.
    let Some((path, _, rate)) = marked_record(&scratch) else { return };
    let mut elsewhere = Command::new("unshare");
    elsewhere.args(["-m", env!("CARGO_BIN_EXE_runahead")]);
    for (name, value) in scratch.runahead().get_envs() {
        match value {
            Some(value) => elsewhere.env(name, value),
            None => elsewhere.env_remove(name),
        };
    }
    if stdout_of(Command::new("id").arg("-u")) == "0\n" {
        assert_eq!(rate_told(&mut elsewhere), Some(rate), "mounted anew");
    } else {
        let required = std::env::var_os("RUNAHEAD_REQUIRE_ROOT_TESTS");
        assert!(required.is_none(), "it takes root to mount");
    }
    fs::remove_file(path).unwrap();
    fs::remove_dir_all(cache.join("devices")).unwrap();
    let (path, marked, rate) = marked_record(&scratch).unwrap();
    for damaged in [&marked[..marked.len() - 8], &marked[..9], &[], &[0xff; 4096]] {
        fs::write(&path, damaged).unwrap();
        assert_eq!(rate_told(&mut scratch.runahead()), Some(rate.clone()));
    }
    // Nor is one for another home.
    fs::write(&path, &marked).unwrap();
    let other = Scratch::new();
    let mut elsewhere = scratch.runahead();
    elsewhere.env("HOME", other.path());
    // There it is measured once more, to within a thousandth or two.
    let told = rate_told(&mut elsewhere).unwrap();
    let at = marked.windows(5).position(|window| window == b";tsc=").unwrap() + 5;
    assert_ne!(told.as_bytes()[0], marked[at], "{told}, {rate} before");
    let [told, rate]: [f64; 2] = [&told, &rate].map(|rate| rate.parse().unwrap());
    assert!((told / rate - 1.0).abs() < 1.0 / 16.0, "{told}, {rate} before");
}

#[test]
fn opting_out_leaves_the_environment_alone() {
    let scratch = Scratch::new();
    let agent = scratch.idle_agent();
    for mut command in [scratch.runahead_with(&agent), scratch.runahead_with(&agent)] {
        command.env("RUNAHEAD", "off").arg("env");
        let output = stdout_of(&mut command);
        assert!(!output.contains("LD_PRELOAD") && !output.contains("SESSION"), "{output}");
    }
    let output = stdout_of(scratch.runahead_with(&agent).args(["--mode", "off", "env"]));
    assert!(!output.contains("LD_PRELOAD"), "{output}");
    assert!(!scratch.join(".cache").exists(), "nothing was installed for it");
}

/// Prints its environment, and whether the agent is in it.
const PRINT_ENVIRONMENT: &str = r#"
#define _GNU_SOURCE
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int is_agent(struct dl_phdr_info *object, size_t size, void *found) {
    *(int *)found |= strstr(object->dlpi_name, "/agent-") != NULL;
    return 0;
}
int main(int argc, char **argv) {
    int agent = 0;
    dl_iterate_phdr(is_agent, &agent);
    for (char **variable = environ; *variable; variable++) puts(*variable);
    puts(getenv("RUNAHEAD_SESSION") ? "session" : "no session");
    puts(agent ? "agent" : "no agent");
    fflush(stdout);
    if (argc > 1) execl(argv[0], argv[0], (char *)0);
    return 0;
}
"#;

/// Where another library is to be initialised before all others, constructors of the
/// program's libraries run before the agent's: by then the C library has an environment of
/// its own making.
#[test]
fn an_environment_that_has_been_moved_is_the_one_that_was_given() {
    let scratch = Scratch::new();
    let source = "#include <stdlib.h>
        __attribute__((constructor)) static void set(void) { setenv(\"ADDED\", \"1\", 1); }";
    let library = scratch.compile("libsets.so", source, &["-shared", "-fPIC"]);
    let library = library.to_str().unwrap();
    let flags = ["-shared", "-fPIC", "-Wl,-z,initfirst"];
    let first = scratch.compile("libfirst.so", "int first;", &flags);
    let first = first.to_str().unwrap();
    let run = |mut command: Command, program: &Path, preloaded: Option<&str>| {
        command.env_clear().env("HOME", scratch.path()).env("XDG_RUNTIME_DIR", scratch.path());
        command.env("A", "1").envs(preloaded.map(|library| ("LD_PRELOAD", library)));
        stdout_of(command.arg(program).arg("again"))
    };
    // The last has the C library's variable in itself.
    for (name, flags, preloaded) in [
        ("preloading", &["-Wl,--no-as-needed", first][..], Some(library)),
        ("behind", &[], Some(library)),
        ("linked", &["-Wl,--no-as-needed", library, first], None),
        ("both", &["-Wl,--no-as-needed", library, first], Some("/nonexistent.so")),
        ("fixed", &["-no-pie", "-fno-pic", "-Wl,--no-as-needed", library, first], None),
    ] {
        let program = scratch.compile(name, PRINT_ENVIRONMENT, flags);
        // glibc's loader says that the other is not there.
        let env = || Command::new("/usr/bin/env");
        let expected = run(env(), &program, preloaded).replace("no agent", "agent");
        assert_eq!(expected.matches("ADDED=1").count(), 2, "{expected}");
        let mut command = scratch.runahead();
        command.arg("--");
        assert_eq!(run(command, &program, preloaded), expected, "{name}");
    }
}

/// A constructor of a library that is linked or preloaded runs behind the agent's.
#[test]
fn constructors_find_the_environment_that_was_given() {
    let scratch = Scratch::new();
    let source = "#include <stdio.h>
        extern char **environ;
        __attribute__((constructor)) static void print(void) {
            puts(\"constructor\");
            for (char **variable = environ; *variable; variable++) puts(*variable);
        }";
    let library = scratch.compile("libprints.so", source, &["-shared", "-fPIC"]);
    let library = library.to_str().unwrap();
    for (name, flags, preloaded) in
        [("preloading", &[][..], Some(library)), ("linked", &["-Wl,--no-as-needed", library], None)]
    {
        let program = scratch.compile(name, PRINT_ENVIRONMENT, flags);
        let run = |mut command: Command| {
            command.env_clear().env("HOME", scratch.path()).env("XDG_RUNTIME_DIR", scratch.path());
            command.envs(preloaded.map(|library| ("LD_PRELOAD", library)));
            stdout_of(command.arg(&program).arg("again"))
        };
        let expected = run(Command::new("/usr/bin/env")).replace("no agent", "agent");
        assert!(expected.matches("constructor\n").count() >= 2, "{expected}");
        let launched = run(scratch.runahead());
        // Not what is preloaded into `env` and the launcher says before.
        let from = |output: &str| output.rsplitn(3, "constructor\n").take(2).collect::<String>();
        assert_eq!(from(&launched), from(&expected), "{name}");
    }
}

const PRINT_PRELOAD: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(void) { puts(getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "plain"); return 0; }
"#;

/// What a program did under `--stats`, and the report.
fn reported(mut command: Command, program: &Path) -> (Output, String) {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let child = command.arg("--stats").arg(program).stdout(Stdio::piped()).stderr(writer);
    let child = child.spawn().unwrap();
    drop(command);
    let output = child.wait_with_output().unwrap();
    // The report comes from beside; its end is the end of the pipe.
    let mut report = String::new();
    std::io::Read::read_to_string(&mut reader, &mut report).unwrap();
    (output, report)
}

/// Runs plainly, and `--stats` says why.
fn runs_plainly(scratch: &Scratch, program: &Path, why: &str) {
    let (output, report) = reported(scratch.runahead_with(&scratch.idle_agent()), program);
    assert_eq!(text(&output.stdout), "plain\n");
    assert!(report.contains(why), "{report}");
}

#[test]
fn static_programs_run_plainly() {
    let scratch = Scratch::new();
    let Some(program) = scratch.try_compile("static", PRINT_PRELOAD, &["-static"]) else {
        skip("no static C library");
        return;
    };
    runs_plainly(&scratch, &program, "static: it is statically linked");
}

/// Executed as a dynamic linker; prints the environment, and knows no variable in it.
const PRINT_AS_LINKER: &str = r#"
static long call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c)
        : "rcx", "r11", "memory");
    return result;
}
__attribute__((used)) static void print(long *stack) {
    for (char **variable = (char **)(stack + *stack + 2); *variable; variable++) {
        long len = 0;
        while ((*variable)[len]) len++;
        call(1, 1, (long)*variable, len);
        call(1, 1, (long)"\n", 1);
    }
    call(231, 7, 0, 0);
}
__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call print\n");
"#;

/// A dynamic linker of another kind leaves the agent out, and its variables in sight.
#[test]
fn programs_with_another_dynamic_linker_run_plainly() {
    let scratch = Scratch::new();
    let flags = ["-nostdlib", "-static-pie", "-fPIE", "-O1", "-fno-stack-protector"];
    let linker = scratch.compile("linker.so", PRINT_AS_LINKER, &flags);
    let linked = format!("-Wl,--dynamic-linker={}", linker.display());
    let program = scratch.compile("other", PRINT_PRELOAD, &[&linked]);
    let program = program.to_str().unwrap();
    // From here on launches are usual ones.
    stdout_of(scratch.runahead().arg("true"));
    assert!(record_of_usual(&scratch).is_some());
    for command in [&[program][..], &["sh", "-c", "$0; exit $?", program]] {
        let run = |mut launched: Command| {
            launched.env_clear().env("HOME", scratch.path()).env("PATH", "/usr/bin:/bin");
            launched.env("XDG_RUNTIME_DIR", scratch.path()).args(command).output().unwrap()
        };
        let plain = run(Command::new("env"));
        assert!(text(&plain.stdout).contains("HOME="), "{plain:?}");
        assert_eq!(plain.status.code(), Some(7), "{plain:?}");
        let here = run(scratch.runahead());
        assert_eq!(text(&here.stdout), text(&plain.stdout), "{command:?}");
        assert_eq!(here.status, plain.status, "{command:?}: {}", text(&here.stderr));
    }
    let (_, report) = reported(scratch.runahead_with(&scratch.idle_agent()), Path::new(program));
    assert!(report.contains("other: its dynamic linker is neither"), "{report}");
}

#[test]
fn set_user_id_programs_run_plainly() {
    let scratch = Scratch::new();
    let program = scratch.compile("setuid", PRINT_PRELOAD, &[]);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    runs_plainly(&scratch, &program, "setuid: it is set-user-ID");
}

#[test]
fn programs_with_capabilities_run_plainly() {
    let scratch = Scratch::new();
    let program = scratch.compile("capable", PRINT_PRELOAD, &[]);
    // VFS_CAP_REVISION_2 with CAP_NET_BIND_SERVICE permitted.
    let mut value = [0u8; 20];
    value[3] = 2;
    value[4..8].copy_from_slice(&(1u32 << 10).to_le_bytes());
    let path = std::ffi::CString::new(program.as_os_str().as_bytes()).unwrap();
    let name = c"security.capability";
    // SAFETY: two C strings, and a buffer of the length given.
    let set = unsafe {
        libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    if set != 0 {
        skip("capabilities cannot be set here");
        return;
    }
    runs_plainly(&scratch, &program, "capable: it has file capabilities");
}

#[test]
fn unreadable_programs_run_plainly() {
    let scratch = Scratch::new();
    let program = scratch.compile("unreadable", PRINT_PRELOAD, &[]);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o111)).unwrap();
    let agent = scratch.idle_agent();
    let mut command = scratch.runahead_for_all();
    command.arg("--agent").arg(&agent);
    if is_root() {
        // Root reads everything.
        command.uid(65534).gid(65534).env("HOME", "/nonexistent");
    }
    let (output, report) = reported(command, &program);
    assert_eq!(text(&output.stdout), "plain\n");
    assert!(report.contains("unreadable: it cannot be read"), "{report}");
}

const RESTRICT_ITSELF: &str = r#"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
int main(void) {
    struct sock_filter code[] = { BPF_STMT(BPF_RET, SECCOMP_RET_ALLOW) };
    struct sock_fprog filter = { 1, code };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    puts(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) ? "refused" : "plain");
    return 0;
}
"#;

/// With the agent, which is in it before it restricts itself.
#[test]
fn programs_that_restrict_themselves_run_plainly_from_then_on() {
    let scratch = Scratch::new();
    let program = scratch.compile("restricted", RESTRICT_ITSELF, &[]);
    let (output, report) = reported(scratch.runahead(), &program);
    assert_eq!(text(&output.stdout), "plain\n");
    assert!(report.contains("restricted: it runs under a seccomp filter"), "{report}");
}

/// An ELF32 program for i386 that exits with status 7.
fn program_of_32_bits() -> Vec<u8> {
    let code = [0xb8, 1, 0, 0, 0, 0xbb, 7, 0, 0, 0, 0xcd, 0x80];
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend([2, 0, 3, 0]);
    for word in [1u32, 0x0804_8054, 52, 0, 0] {
        file.extend(word.to_le_bytes());
    }
    for half in [52u16, 32, 1, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    let len = 84 + code.len() as u32;
    for word in [1, 0, 0x0804_8000, 0x0804_8000, len, len, 5, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    assert_eq!(file.len(), 84);
    file.extend(code);
    file
}

#[test]
fn programs_of_32_bits_run_plainly() {
    let scratch = Scratch::new();
    let agent = scratch.idle_agent();
    let program = scratch.file("i386", program_of_32_bits(), 0o755);
    let output = scratch.runahead_with(&agent).arg(&program).output().unwrap();
    match Command::new(&program).status() {
        Ok(plain) => {
            assert_eq!(output.status, plain);
            let (output, report) = reported(scratch.runahead_with(&agent), &program);
            assert_eq!(output.status, plain);
            assert!(report.contains("i386: it is not a 64-bit x86 program"), "{report}");
        }
        // A kernel without 32-bit support.
        Err(_) => {
            assert_eq!(output.status.code(), Some(126));
            assert!(text(&output.stderr).contains("cannot execute binary file"), "{output:?}");
        }
    }
}

#[test]
fn status_signals_and_arguments_are_the_programs_own() {
    let scratch = Scratch::new();
    let agent = scratch.idle_agent();
    for status in [0, 1, 2, 42, 126, 127, 255] {
        let script = format!("exit {status}");
        let ended = scratch.runahead_with(&agent).args(["sh", "-c", &script]).status().unwrap();
        assert_eq!(ended.code(), Some(status));
    }
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGINT, libc::SIGPIPE] {
        let script = format!("kill -{signal} $$");
        let mut command = scratch.runahead_with(&agent);
        // A job in the background of a shell without job control ignores SIGINT, and
        // so what it starts.
        let heeded = move || {
            // SAFETY: no handler is set.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
            Ok(())
        };
        // SAFETY: one system call.
        unsafe { command.pre_exec(heeded) };
        let ended = command.args(["sh", "-c", &script]).status().unwrap();
        assert_eq!(ended.signal(), Some(signal));
    }
    let odd: Vec<OsString> = [&b"a b"[..], b"", b"--stats", b"-h", b"\xff\x80", b"*", b"--"]
        .iter()
        .map(|bytes| OsStr::from_bytes(bytes).to_owned())
        .collect();
    let mut printf = Command::new("printf");
    let plain = printf.arg("<%s>\n").args(&odd).output().unwrap();
    let run = scratch.runahead_with(&agent).args(["printf", "<%s>\n"]).args(&odd).output().unwrap();
    assert_eq!(run.stdout, plain.stdout);
    assert_eq!(text(&run.stderr), "");
}

/// What a program finds when it starts, with and without the launcher.
#[test]
fn the_process_is_as_the_program_would_have_found_it() {
    let scratch = Scratch::new();
    let agent = scratch.idle_agent();
    let look = "echo $$; ls /proc/self/fd | wc -l; \
                grep -E '^(Sig[PBIC]|Shd|Seccomp|NoNewPrivs|Threads)' /proc/self/status; echo $PPID; \
                cat /proc/$$/oom_score_adj; ulimit -a; umask; pwd; ps -o sid= -o pgid= -p $$";
    // `$$` stays the same through both executions; closed descriptors stay
    // closed, and an ignored SIGPIPE stays ignored.
    for set_up in ["", "exec <&-;", "exec 2>&-;", "trap '' PIPE;", "trap '' INT HUP;"] {
        let shell = |launcher: &str| {
            let script = format!("{set_up} echo $$; exec {launcher} sh -c \"$LOOK\"");
            let mut command = Command::new("sh");
            command.args(["-c", &script]).env("LOOK", look).env("HOME", scratch.path());
            let output = text(&command.output().unwrap().stdout);
            let (outer, rest) = output.split_once('\n').unwrap();
            let (inner, rest) = rest.split_once('\n').unwrap();
            assert_eq!(outer, inner, "another process id");
            rest.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let runahead = env!("CARGO_BIN_EXE_runahead");
        let plain = shell("");
        assert!(plain.contains("SigIgn"), "{plain}");
        assert_eq!(shell(&format!("{runahead} --agent {}", agent.display())), plain, "{set_up}");
    }
}

/// Limits that forbid to write files and to hold more than one open.
#[test]
fn limits_do_not_keep_a_program_from_running() {
    let scratch = Scratch::new();
    let agent = scratch.idle_agent();
    for limit in ["ulimit -f 0", "ulimit -n 4"] {
        for stats in ["", "--stats"] {
            let runahead = env!("CARGO_BIN_EXE_runahead");
            let script = format!(
                // The fourth descriptor, which whoever runs this may have left open, is wanted.
                "exec 3>&-; {limit}; exec {runahead} {stats} --agent {} /bin/echo started",
                agent.display()
            );
            let mut shell = Command::new("bash");
            let output = shell.args(["-c", &script]).env("HOME", scratch.path()).output().unwrap();
            assert_eq!(text(&output.stdout), "started\n", "{limit} {stats}: {output:?}");
        }
    }
}

/// Prints whether the agent is in it.
const SAYS_WHETHER_IT_IS_THERE: &str = r#"
#define _GNU_SOURCE
#include <link.h>
#include <stdio.h>
#include <string.h>
static int is_agent(struct dl_phdr_info *object, size_t size, void *found) {
    *(int *)found |= strstr(object->dlpi_name, "/agent-") != NULL;
    return 0;
}
int main(void) {
    int agent = 0;
    dl_iterate_phdr(is_agent, &agent);
    puts(agent ? "agent" : "plain");
    return 3;
}
"#;

/// Limits on addresses, data and the stack that leave no room for the agent beside the
/// program, set before the launch or by what executes the program.
#[test]
fn programs_that_have_little_room_run_plainly() {
    let scratch = Scratch::new();
    let program = scratch.compile("says", SAYS_WHETHER_IT_IS_THERE, &["-w"]);
    let below = |limits: &str, command: Command| {
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!(r#"{limits}; exec "$0" "$@""#)]);
        shell.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell
    };
    let launched = |limits: &str, program: &Path| {
        let mut command = scratch.runahead();
        command.arg(program);
        below(limits, command)
    };
    let executed = |shell: &str, program: &Path| {
        let mut command = scratch.runahead();
        command.args(["bash", "-c", shell]).arg(program);
        command
    };
    let says = |mut command: Command, said: &str| {
        let output = command.output().unwrap();
        let told = (text(&output.stdout), text(&output.stderr), output.status.code());
        assert_eq!(told, (format!("{said}\n"), String::new(), Some(3)), "{command:?}");
    };
    let enough = "ulimit -S -v 4000000; ulimit -S -d 4000000; ulimit -S -s 256";
    says(launched(enough, &program), "agent");
    says(executed(&format!(r#"{enough}; exec "$0""#), &program), "agent");
    for little in ["-v 1000000", "-d 1000000", "-d 7000", "-d 3000", "-s 100", "-s 64"] {
        let limit = format!("ulimit -S {little}");
        says(launched(&limit, &program), "plain");
        says(executed(&format!(r#"{limit}; exec "$0""#), &program), "plain");
        says(executed(&format!(r#"({limit}; exec "$0"); exit $?"#), &program), "plain");
    }
    for little in ["-v 8000", "-v 5000"] {
        let shell = format!(r#"(ulimit -S {little}; exec "$0"); exit $?"#);
        says(executed(&shell, &program), "plain");
    }
    let report = |limits: &str| {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut command = scratch.runahead();
        command.arg("--stats").arg(&program);
        let mut command = below(limits, command);
        assert_eq!(command.stderr(writer).output().unwrap().status.code(), Some(3));
        drop(command);
        std::io::read_to_string(reader).unwrap()
    };
    let why = "says: addresses, data or the stack are limited to little";
    assert!(report("ulimit -S -v 1000000").contains(why));
    assert!(!report(enough).contains(why));
}

#[test]
fn wrong_options_are_explained() {
    let scratch = Scratch::new();
    for wrong in ["--mode=fast", "--horizon=0", "--depth=x", "--no-such-option"] {
        let output = scratch.runahead().args([wrong, "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        assert!(text(&output.stderr).contains("error: "), "{output:?}");
    }
    let help = stdout_of(scratch.runahead().args(["run", "--help"]));
    assert!(help.starts_with("Run a program, running ahead of its reads\n"), "{help}");
    assert!(help.contains("--stats") && help.contains("RUNAHEAD=off"), "{help}");
    let help = stdout_of(scratch.runahead().arg("--help"));
    assert!(help.contains("Usage: runahead [OPTIONS] CMD [ARGS]...\n"), "{help}");
}

/// What is printed may find no reader, or no room.
#[test]
fn what_cannot_be_printed_is_no_panic() {
    let scratch = Scratch::new();
    for arguments in [
        &["completions", "bash"][..],
        &["sim", "--app", "agrep", "--disks", "1"],
        &["sim", "--app", "agrep", "--disks", "1", "--json"],
        &["slowdisk", "list", "--json"],
        &["bench", "explicit", "--list"],
        &["doctor"],
    ] {
        let run = |stdout: Stdio, is_ignored: bool| {
            let mut command = scratch.runahead();
            let as_started = move || {
                let action = if is_ignored { libc::SIG_IGN } else { libc::SIG_DFL };
                // SAFETY: no handler is set.
                unsafe { libc::signal(libc::SIGPIPE, action) };
                Ok(())
            };
            // SAFETY: one system call.
            unsafe { command.pre_exec(as_started) };
            command.args(arguments).stdout(stdout).output().unwrap()
        };
        // Not what `bench` warns of on some machines.
        let said = |output: &Output| {
            let said = text(&output.stderr);
            let lines = said.lines().filter(|line| !line.starts_with("runahead: warning: "));
            lines.collect::<Vec<_>>().join("\n")
        };
        let unread = || std::io::pipe().unwrap().1;
        let output = run(unread().into(), false);
        assert_eq!(output.status.signal(), Some(libc::SIGPIPE), "{output:?}");
        assert_eq!(said(&output), "", "{arguments:?}");
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        for output in [run(full.into(), false), run(unread().into(), true)] {
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let said = said(&output);
            assert!(said.starts_with("runahead: write to standard output: "), "{said}");
        }
    }
}

/// Nor does it matter that nobody reads what goes wrong.
#[test]
fn what_cannot_be_said_is_no_panic() {
    let scratch = Scratch::new();
    for (arguments, status) in [
        (&["sim", "--replay", "/no/such/file"][..], 1),
        (&["hint", "--files", "/dev/null", "--", "/no/such/file"], 127),
    ] {
        let unread = std::io::pipe().unwrap().1;
        let output = scratch.runahead().args(arguments).stderr(unread).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {output:?}");
    }
}

/// AddressSanitizer's run time ends a program in which another library is before it,
/// as the agent would be: launched, executed by another, or where it is preloaded.
#[test]
fn what_must_be_loaded_first_runs_plainly() {
    let scratch = Scratch::new();
    let source = scratch.file("own.c", "int main(void) { return 7; }\n", 0o644);
    let program = scratch.join("own");
    let mut gcc = Command::new("gcc");
    let made = gcc.arg("-fsanitize=address").arg("-o").arg(&program).arg(source).status().unwrap();
    assert!(made.success());
    let library = Command::new("gcc").arg("-print-file-name=libasan.so").output().unwrap();
    let preload = format!("LD_PRELOAD={}", text(&library.stdout).trim());
    let program = program.to_str().unwrap();
    // From here on launches are usual ones.
    stdout_of(scratch.runahead().arg("true"));
    assert!(record_of_usual(&scratch).is_some());
    for command in [
        &[program][..],
        &["sh", "-c", "$0; exit $?", program],
        &["env", &preload, "ASAN_OPTIONS=detect_leaks=0", "/bin/true"],
    ] {
        let plain = Command::new("env").args(command).output().unwrap();
        let here = scratch.runahead().args(command).output().unwrap();
        assert_eq!(here.status, plain.status, "{command:?}: {}", text(&here.stderr));
        assert_eq!(text(&here.stderr), text(&plain.stderr), "{command:?}");
    }
}

/// The same of a script's interpreter that has been built otherwise since the script was
/// executed with the agent.
#[test]
fn an_interpreter_that_must_be_first_by_now_runs_plainly() {
    let scratch = Scratch::new();
    let source = scratch.file("own.c", "int main(void) { return 7; }\n", 0o644);
    let interpreter = scratch.join("interpreter");
    let script = scratch.join("script").display().to_string();
    scratch.file("script", format!("#!{}\n", interpreter.display()), 0o755);
    for flags in [&[][..], &["-fsanitize=address"]] {
        let mut gcc = Command::new("gcc");
        assert!(
            gcc.args(flags).arg("-o").arg(&interpreter).arg(&source).status().unwrap().success()
        );
        let command = ["sh", "-c", "$0; exit $?", &script];
        for _ in 0..2 {
            let here = scratch.runahead().args(command).output().unwrap();
            assert_eq!(here.status.code(), Some(7), "{flags:?}: {}", text(&here.stderr));
            assert_eq!(text(&here.stderr), "", "{flags:?}");
        }
    }
}
