//! `runahead hint` and `runahead manager`: commands with disclosed accesses.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const RUNAHEAD: &str = env!("CARGO_BIN_EXE_runahead");

/// Runs it, at most a minute.
fn hint(directory: &Path, arguments: &[&str], list: &str, manager: &str) -> Output {
    let mut child = Command::new("timeout")
        .args(["-k", "5", "60", RUNAHEAD, "hint"])
        .args(arguments)
        .current_dir(directory)
        .env("RUNAHEAD_MANAGER", manager)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // It may end without having read everything.
    let _ = input.write_all(list.as_bytes());
    drop(input);
    child.wait_with_output().unwrap()
}

fn files(directory: &Path) -> (String, Vec<u8>) {
    let mut list = String::new();
    let mut all = Vec::new();
    for i in 0..40_u8 {
        let name = format!("file {i}");
        let bytes = vec![i; 5_000 + usize::from(i) * 700];
        fs::write(directory.join(&name), &bytes).unwrap();
        all.extend(bytes);
        list += &name;
        list.push('\n');
    }
    (list, all)
}

/// As a daemon may leave it to what it starts.
#[test]
fn the_status_comes_back_where_ends_of_children_are_ignored() {
    use std::os::unix::process::CommandExt;
    let ignoring = |words: &[&str], more: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(more);
        // SAFETY: to ignore a signal runs no code of ours.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
                Ok(())
            });
        }
        command.output().unwrap()
    };
    let hint = [RUNAHEAD, "hint", "--files", "/dev/null", "--"];
    for (command, status) in [("exit 3", 3), ("trap - CHLD; kill -TERM $$", 128 + 15)] {
        let output = ignoring(&hint, &["sh", "-c", command]);
        let ended = output.status.signal().map_or(output.status.code(), |nth| Some(128 + nth));
        assert_eq!(ended, Some(status), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
    }
    let ignored =
        |wrapper: &[&str]| ignoring(wrapper, &["grep", "^SigIgn", "/proc/self/status"]).stdout;
    let plain = ignored(&["env"]);
    assert!(plain.starts_with(b"SigIgn"));
    assert_eq!(ignored(&hint), plain);
    assert_eq!(ignored(&[RUNAHEAD, "--mode=off"]), plain);
}

#[test]
fn a_command_reads_what_it_would() {
    let directory = tempfile::tempdir().unwrap();
    let (list, all) = files(directory.path());
    // Names that are not there, and no files, cost nothing.
    let list = format!("no such file\n/dev/null\n.\n{list}");
    let script = "for i in $(seq 0 39); do cat \"file $i\"; done; cat";
    let output = hint(
        directory.path(),
        &["--files", "-", "--stats", "--", "sh", "-c", script],
        &list,
        "embedded",
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(output.stdout == all, "another output");
    assert!(said.contains("blocks of 8 KiB prefetched"), "{said}");
}

#[test]
fn segments_are_parsed_and_nonsense_is_named() {
    let directory = tempfile::tempdir().unwrap();
    files(directory.path());
    let run = |list: &str| {
        hint(directory.path(), &["--segments", "-", "--", "echo", "ran"], list, "embedded")
    };
    let good = run("0\t4096\tfile 3\n4096 0 file 4\n\n");
    assert_eq!(String::from_utf8_lossy(&good.stdout), "ran\n");
    for (wrong, why) in [
        ("0 4096 file 3\nx 1 file\n", "entry 2"),
        ("1 2\n", "entry 1"),
        ("-1 2 f\n", "no number of bytes"),
        ("1 2 \n", "the name is missing"),
    ] {
        let output = run(wrong);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty(), "{wrong}");
        assert!(said.contains(why), "{wrong}: {said}");
    }
}

#[test]
fn status_and_signals_are_the_commands_own() {
    let directory = tempfile::tempdir().unwrap();
    let run = |script: &str| {
        hint(directory.path(), &["--files", "-", "--", "sh", "-c", script], "x\n", "embedded")
    };
    assert_eq!(run("exit 7").status.code(), Some(7));
    // `timeout` passes on how its command ended.
    let killed = run("kill -9 $$").status;
    assert!(killed.signal() == Some(9) || killed.code() == Some(137), "{killed}");
    let missing =
        hint(directory.path(), &["--files", "-", "--", "/no/such/command"], "", "embedded");
    assert_eq!(missing.status.code(), Some(127));
}

/// It is started as a shell would start it: text without `#!` is the shell's, and the signals
/// that its parent ignores or blocks stay so.
#[test]
fn a_command_begins_as_it_would() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    fs::write(&script, "echo \"ran $1\"; exit 5\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let arguments = ["--files", "-", "--", "./script", "x"];
    let output = hint(directory.path(), &arguments, "", "embedded");
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(5), &b"ran x\n"[..]));

    let begun = |launcher: &[&str]| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' PIPE HUP; exec \"$@\"", "sh"]).args(launcher);
        let output = shell.args(["grep", "^Sig[BI]", "/proc/self/status"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let plain = begun(&[]);
    // Whoever runs this may have more of them ignored.
    let ignored = plain.split_whitespace().next_back().unwrap();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    assert_eq!(ignored & 0x1001, 0x1001, "HUP and PIPE: {plain}");
    assert_eq!(begun(&[RUNAHEAD, "hint", "--files", "/dev/null", "--"]), plain);
}

/// A manager at a socket, which must not come to serve there: what it says.
fn is_refused(socket: &Path) -> String {
    let output = Command::new("timeout")
        .args(["-k", "5", "60", RUNAHEAD, "manager", "--socket"])
        .arg(socket)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_manager_takes_no_place_that_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "precious").unwrap();
    let said = is_refused(&file);
    assert!(said.contains("file is there and is no socket: give another"), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing beside it");
    // Nor through a link, be there anything or not.
    for target in [file.as_path(), Path::new("nothing")] {
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(target, &link).unwrap();
        assert!(is_refused(&link).contains("no socket"));
        fs::remove_file(link).unwrap();
    }
    // A socket that answers something else than that nobody is there.
    let datagrams = directory.path().join("datagrams");
    let other = std::os::unix::net::UnixDatagram::bind(&datagrams).unwrap();
    assert!(is_refused(&datagrams).contains("does not tell who serves it"));
    assert!(datagrams.exists());
    drop(other);
    // A manager that is about to serve.
    let socket = directory.path().join("socket");
    let lock = fs::File::create(directory.path().join("socket.lock")).unwrap();
    lock.lock().unwrap();
    assert!(is_refused(&socket).contains("already"));
}

/// A hinted file that stayed open would keep its file system busy until the command has ended.
#[test]
fn a_command_unmounts_what_it_has_read() {
    let directory = tempfile::tempdir().unwrap();
    let script = r#"
        mount -t tmpfs none . && cd . && mkdir data || exit 77
        mount -t tmpfs none data || exit 77
        for i in 1 2 3 4 5 6 7 8; do
            head -c 100000 /dev/zero > data/$i && echo data/$i || exit 1
        done > list
        export RUNAHEAD_MANAGER=embedded
        exec timeout -k 5 60 "$RUNAHEAD" hint --files list --stats -- sh -c '
            cat data/* > /dev/null
            # What is in flight may take a moment; what is kept would stay.
            until umount data; do sleep 0.1; done'
    "#;
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .current_dir(directory.path())
        .env("RUNAHEAD", RUNAHEAD)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if matches!(output.status.code(), Some(1 | 77)) && !said.contains("runahead:") {
        let required = std::env::var_os("RUNAHEAD_REQUIRE_ROOT_TESTS");
        assert!(required.is_none(), "it takes root to mount: {said}");
        return;
    }
    assert!(output.status.success(), "{}: {said}", output.status);
    assert!(said.contains("blocks of 8 KiB prefetched"), "{said}");
}

struct Manager(Child);

impl Manager {
    /// One that listens there.
    fn at(socket: &Path) -> Manager {
        let mut command = Command::new(RUNAHEAD);
        command.args(["manager", "--socket"]).arg(socket).stdin(Stdio::null());
        let manager = Manager(command.spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        while UnixStream::connect(socket).is_err() {
            assert!(Instant::now() < deadline, "it does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        manager
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_manager_serves_commands_and_may_die() {
    let directory = tempfile::tempdir().unwrap();
    let (list, all) = files(directory.path());
    let socket = directory.path().join("socket");
    let mut manager = Manager::at(&socket);
    assert!(is_refused(&socket).contains("already"), "two managers");
    let at = socket.to_str().unwrap();
    let script = "for i in $(seq 0 39); do cat \"file $i\"; done";
    // It waits until something was prefetched.
    let waiting = format!("sleep 1; {script}");
    let arguments = ["--files", "-", "--stats", "--", "sh", "-c", &waiting];
    // A manager that has no processor for a second is done without, and a client that has
    // none meanwhile is told nothing: then once more.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let served = hint(directory.path(), &arguments, &list, at);
        assert!(served.status.success() && served.stdout == all);
        let said = String::from_utf8_lossy(&served.stderr);
        let decided = said.contains("as the manager of this machine decided");
        if decided && !said.contains("prefetched in 0 requests") {
            break;
        }
        assert!(Instant::now() < deadline, "{said}");
    }
    // It dies in the middle of a command.
    let killer = format!("cat 'file 0'; kill -9 {}; sleep 0.2; cat 'file 1'", manager.0.id());
    let arguments = ["--files", "-", "--", "sh", "-c", &killer];
    let orphaned = hint(directory.path(), &arguments, &list, at);
    assert!(orphaned.status.success(), "{}", String::from_utf8_lossy(&orphaned.stderr));
    assert_eq!(orphaned.stdout, all[..5_000 + 5_700]);
    manager.0.wait().unwrap();
    // Its socket is left: programs have a manager of their own again.
    let arguments = ["--files", "-", "--", "sh", "-c", script];
    let alone = hint(directory.path(), &arguments, &list, at);
    assert!(alone.status.success() && alone.stdout == all);
    // And another manager takes its place.
    let _next = Manager::at(&socket);
    let served = hint(directory.path(), &arguments, &list, at);
    assert!(served.status.success() && served.stdout == all);
}
