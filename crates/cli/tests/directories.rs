//! Where the agent and the site table are put, and what happens where they
//! cannot be put anywhere.

#[expect(dead_code, unused_macros, unused_imports, reason = "these tests use a part of it")]
mod bed;
mod cgroup;
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use cgroup::Cgroup;
use support::{Scratch, is_root, skip, stdout_of, text};

/// The agent's path as a program sees it.
fn agent_path(command: &mut Command) -> String {
    stdout_of(command.args(["sh", "-c", "echo $LD_PRELOAD"])).trim().to_owned()
}

/// Whether what lies there lies in memory and can be loaded.
fn is_in_memory(directory: &Path) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    let flags = rustix::fs::statvfs(directory).unwrap().f_flag;
    rustix::fs::statfs(directory).unwrap().f_type == TMPFS
        && !flags.contains(rustix::fs::StatVfsMountFlags::NOEXEC)
}

#[test]
fn what_programs_load_lies_in_memory() {
    let scratch = Scratch::new();
    let agent = scratch.idle_agent();
    let memory = Path::new("/dev/shm");
    if !is_in_memory(memory) {
        return eprintln!("/dev/shm is not in memory: nothing to run");
    }
    let in_memory = Path::new("/dev/shm").join(format!("runahead-{}", rustix::process::geteuid()));
    let mut command = scratch.runahead_with(&agent);
    let path = agent_path(command.env_remove("XDG_RUNTIME_DIR"));
    assert!(path.starts_with(in_memory.join("agent-").to_str().unwrap()), "{path}");
    assert_eq!(fs::metadata(&in_memory).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o555);

    let mut command = scratch.runahead_with(&agent);
    command.env_remove("XDG_RUNTIME_DIR").args(["sh", "-c", "echo $RUNAHEAD_SESSION"]);
    let said = stdout_of(&mut command);
    let sites = said.split(';').find_map(|field| field.trim().strip_prefix("sites=")).unwrap();
    assert!(sites.starts_with(in_memory.to_str().unwrap()), "{said}");
    let (kept, _) = sites.rsplit_once('-').unwrap();
    let kept = scratch.join(".cache/runahead").join(Path::new(kept).file_name().unwrap());
    assert_eq!(fs::read(sites).unwrap(), fs::read(kept).unwrap(), "the one made once");
    fs::remove_file(path).unwrap();
}

/// One such launch spoiled the directory for all later ones.
#[test]
fn a_directory_can_be_entered_whatever_the_umask() {
    use std::os::unix::process::CommandExt;
    let scratch = Scratch::new();
    let cache = scratch.join("new");
    let mut command = scratch.runahead();
    command.env("XDG_CACHE_HOME", &cache).env("XDG_RUNTIME_DIR", scratch.join("runtime"));
    // SAFETY: a call on the child alone, without pointers.
    unsafe {
        command.pre_exec(|| {
            libc::umask(0o177);
            Ok(())
        });
    }
    stdout_of(command.arg("true"));
    for directory in [cache.clone(), cache.join("runahead")] {
        let mode = fs::metadata(&directory).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "{}", directory.display());
    }
}

/// They would be charged to it, for good.
#[test]
fn where_a_memory_cgroup_is_tight_nothing_is_put_into_memory() {
    if !is_root() {
        return skip("a memory cgroup needs root");
    }
    let memory = Path::new("/dev/shm");
    if !is_in_memory(memory) {
        return skip("/dev/shm is not in memory");
    }
    let runtime = tempfile::tempdir_in(memory).unwrap();
    let in_memory = runtime.path().join("runahead/agent-");
    let scratch = Scratch::new();
    let launch = |limit_bytes: Option<u64>| {
        let cgroup = limit_bytes.map(Cgroup::new);
        let mut command = scratch.runahead();
        command.env("XDG_RUNTIME_DIR", runtime.path());
        if let Some(cgroup) = &cgroup {
            cgroup.enter(&mut command);
        }
        let maps = stdout_of(command.args(["cat", "/proc/self/maps"]));
        let path = maps.split_whitespace().find(|word| word.contains("/agent-")).unwrap();
        (path.starts_with(in_memory.to_str().unwrap()), fs::metadata(path).unwrap().len())
    };
    let (is_in_memory, len) = launch(None);
    assert!(is_in_memory);
    let launch = |limit_bytes| launch(limit_bytes).0;
    let forget = || fs::remove_dir_all(runtime.path().join("runahead")).unwrap();
    forget();
    let (tight, roomy) = (255 * len, 257 * len);
    assert!(!launch(Some(tight)), "in {tight} bytes");
    assert!(launch(Some(roomy)), "in {roomy} bytes");
    assert!(launch(Some(tight)), "it is there and charged to others");
    // What has been found out where it was tight is not gone by elsewhere.
    forget();
    assert!(!launch(Some(tight)));
    assert!(launch(None));
}

/// `su` keeps the variable: whose directory it is could put another agent there.
#[test]
fn a_runtime_directory_of_another_user_is_not_used() {
    if !is_root() {
        return skip("another user's directory needs root");
    }
    let scratch = Scratch::new();
    let agent = scratch.idle_agent();
    let theirs = scratch.join("theirs");
    fs::create_dir(&theirs).unwrap();
    std::os::unix::fs::chown(&theirs, Some(1), Some(1)).unwrap();
    let missing = scratch.join("missing");
    for directory in [&theirs, &missing] {
        for launch in ["first", "second"] {
            let mut command = scratch.runahead_with(&agent);
            let path = agent_path(command.env("XDG_RUNTIME_DIR", directory));
            assert!(!path.starts_with(directory.to_str().unwrap()), "{launch}: {path}");
        }
        assert!(!directory.join("runahead").exists(), "nothing is left there");
    }
    assert!(!missing.exists());

    let mut command = scratch.runahead_with(&agent);
    command.env("HOME", &theirs).env("XDG_RUNTIME_DIR", &theirs);
    let path = agent_path(&mut command);
    assert!(!path.starts_with(theirs.to_str().unwrap()), "nor a home of theirs: {path}");
    assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0, "nor is anything left there");
}

#[test]
fn without_a_directory_in_memory_the_cache_directory_of_the_user_comes_first() {
    let scratch = Scratch::new();
    let agent = scratch.idle_agent();
    if is_in_memory(&scratch.join("")) {
        return eprintln!("the tests' runtime directory is in memory: nothing to run");
    }
    let path = agent_path(&mut scratch.runahead_with(&agent));
    assert!(path.starts_with(scratch.join(".cache/runahead/agent-").to_str().unwrap()), "{path}");
    let directory = scratch.join(".cache/runahead");
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o555);

    let elsewhere = scratch.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let mut command = scratch.runahead_with(&agent);
    let path = agent_path(command.env("XDG_CACHE_HOME", &elsewhere));
    assert!(path.starts_with(elsewhere.join("runahead/agent-").to_str().unwrap()), "{path}");
}

#[test]
fn unusable_directories_are_passed_over() {
    let scratch = Scratch::new();
    let agent = scratch.idle_agent();
    let usable = scratch.join("run");
    fs::create_dir(&usable).unwrap();
    let writable_by_all = scratch.join("open");
    fs::create_dir_all(writable_by_all.join("runahead")).unwrap();
    fs::set_permissions(writable_by_all.join("runahead"), fs::Permissions::from_mode(0o777))
        .unwrap();
    let with_blank = scratch.join("a b");
    fs::create_dir(&with_blank).unwrap();
    let file = scratch.file("file", "", 0o600);
    for unusable in [writable_by_all, with_blank, file, scratch.join("no/such/place")] {
        let mut command = scratch.runahead_with(&agent);
        command.env("XDG_CACHE_HOME", &unusable).env("XDG_RUNTIME_DIR", &usable);
        let path = agent_path(&mut command);
        assert!(path.starts_with(usable.to_str().unwrap()), "{}: {path}", unusable.display());
        fs::remove_dir_all(usable.join("runahead")).unwrap();
    }
}

/// There whoever owns the root directory is nobody.
#[test]
fn in_a_user_namespace_directories_are_used_as_outside() {
    if !is_root() {
        return skip("becoming another user needs root");
    }
    let scratch = Scratch::new();
    let agent = scratch.idle_agent();
    let mut runahead = scratch.runahead_for_all();
    runahead.arg("--agent").arg(&agent);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65533", "--regid=65533", "--clear-groups", "unshare", "--user"]);
    command.arg("--map-current-user").arg(runahead.get_program()).args(runahead.get_args());
    command.env("HOME", "/nonexistent").env_remove("XDG_RUNTIME_DIR").env_remove("XDG_CACHE_HOME");
    command.args(["sh", "-c", "echo $LD_PRELOAD; stat -c %u /"]);
    let output = command.output().unwrap();
    if text(&output.stderr).contains("unshare") {
        return eprintln!("no user namespace: nothing to run");
    }
    let said = text(&output.stdout);
    let (path, owner) = said.trim_end().split_once('\n').unwrap_or_else(|| panic!("{output:?}"));
    assert_ne!(owner, "0", "this proves nothing");
    assert!(path.contains("/runahead-65533/agent-"), "{path}");
    let _ = fs::remove_file(path);
}

/// Runs a script in which /tmp, /var/tmp, /dev/shm and the home are mounted
/// with `options`; `None` where mounts of one's own are refused.
fn with_all_places_mounted(scratch: &Scratch, options: &str, script: &str) -> Option<String> {
    if !is_root() {
        skip("mounts need root");
        return None;
    }
    let home = scratch.join("home");
    fs::create_dir_all(&home).unwrap();
    let agent = scratch.idle_agent();
    // The command and the agent may themselves lie below /tmp.
    let (binary, library) = ("/mnt/runahead", "/mnt/agent.so");
    let set_up = format!(
        "set -e; mount -t tmpfs tmpfs /mnt; cp {} {binary}; cp {} {library}; \
         for place in /tmp /var/tmp /dev/shm; do mount -t tmpfs -o {options} tmpfs $place; done; \
         export HOME=/tmp/home XDG_CACHE_HOME=/tmp; \
         R='{binary} --agent {library}'; {script}",
        env!("CARGO_BIN_EXE_runahead"),
        agent.display(),
    );
    let mut command = Command::new("unshare");
    let output = command.args(["--mount", "sh", "-c", &set_up]).output().ok()?;
    if text(&output.stderr).contains("unshare") {
        skip("no mount namespace");
        return None;
    }
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stderr), "", "the dynamic linker found everything");
    Some(text(&output.stdout))
}

#[test]
fn with_every_directory_read_only_the_files_are_in_memory() {
    let scratch = Scratch::new();
    let script = "$R sh -c 'echo $LD_PRELOAD; head -c 7 $(echo $RUNAHEAD_SESSION | \
                  sed \"s/.*;sites=\\([^;]*\\).*/\\1/\")'";
    let Some(output) = with_all_places_mounted(&scratch, "ro", script) else { return };
    assert!(output.starts_with("/proc/") && output.contains("/fd/"), "{output}");
    assert!(output.ends_with("RASITES"), "{output}");
}

#[test]
fn with_every_directory_full_the_files_are_in_memory() {
    let scratch = Scratch::new();
    let script = "for place in /tmp /var/tmp /dev/shm; do \
                  cat /dev/zero > $place/full 2>/dev/null || :; done; \
                  $R sh -c 'echo $LD_PRELOAD'; ls -A /tmp/runahead | wc -l";
    let Some(output) = with_all_places_mounted(&scratch, "size=16k", script) else { return };
    assert!(output.starts_with("/proc/"), "{output}");
    assert!(output.ends_with("\n0\n"), "nothing half-written is left: {output}");
}

#[test]
fn directories_that_forbid_execution_are_not_used() {
    let scratch = Scratch::new();
    let script = "$R sh -c 'echo $LD_PRELOAD'";
    let Some(output) = with_all_places_mounted(&scratch, "noexec", script) else { return };
    assert!(output.starts_with("/proc/"), "{output}");
}
