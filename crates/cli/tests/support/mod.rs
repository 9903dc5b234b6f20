//! What the tests of the launcher share.

#![allow(dead_code)]

#[path = "../report/mod.rs"]
pub mod report;
pub mod speculation;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of one test's own, removed when it ends. It doubles as the
/// home of the programs it runs, so that nothing of the user's is touched.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let nth = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("launcher-{}-{nth}", std::process::id()));
        fs::create_dir(&path).unwrap();
        // Tests that change the user look into it.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file with a mode. What is to be executed another process writes: what this
    /// one has open to be written, a child that some other test forks meanwhile keeps open,
    /// and no file that is being written can be executed.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let path = self.join(name);
        if mode & 0o111 == 0 {
            fs::write(&path, content).unwrap();
        } else {
            let mut writing = Command::new("sh")
                .args(["-c", r#"cat > "$0""#])
                .arg(&path)
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            writing.stdin.take().unwrap().write_all(content.as_ref()).unwrap();
            assert!(writing.wait().unwrap().success());
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// Compiles a C program or library; `None` where that cannot be done
    /// here (no static libc, say).
    pub fn try_compile(&self, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
        let path = self.join(name);
        let code = self.file(&format!("{name}.c"), source, 0o644);
        let cc = Command::new("cc").args(flags).arg("-o").arg(&path).arg(code).output().unwrap();
        cc.status.success().then_some(path)
    }

    pub fn compile(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        self.try_compile(name, source, flags).expect("cc")
    }

    /// A library that stands in for the agent: it does nothing.
    pub fn idle_agent(&self) -> PathBuf {
        self.compile("agent.so", "int nothing;", &["-shared", "-fPIC", "-nostdlib"])
    }

    /// `runahead` with this directory as its home.
    pub fn runahead(&self) -> Command {
        self.runahead_at(Path::new(env!("CARGO_BIN_EXE_runahead")))
    }

    /// The same, of a copy in this directory: another user may not reach the
    /// one that was built (below a home, say).
    pub fn runahead_for_all(&self) -> Command {
        let path = self.join("runahead");
        // By another process: what this one had open to be written, a child that some
        // other test forks meanwhile would keep open, and no file that is being written
        // can be executed (ETXTBSY).
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_runahead")).arg(&path).status();
        assert!(copied.unwrap().success());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        self.runahead_at(&path)
    }

    fn runahead_at(&self, path: &Path) -> Command {
        let mut command = Command::new(path);
        command.env_remove("XDG_CACHE_HOME").env("XDG_RUNTIME_DIR", &self.0).env("HOME", &self.0);
        command.env_remove("RUNAHEAD").env_remove("RUNAHEAD_SESSION").env_remove("LD_PRELOAD");
        command
    }

    /// `runahead --agent AGENT`.
    pub fn runahead_with(&self, agent: &Path) -> Command {
        let mut command = self.runahead();
        command.arg("--agent").arg(agent);
        command
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command and returns its standard output, which must have succeeded.
pub fn stdout_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    text(&output.stdout)
}

/// What a shell makes of a command: status, and the message without the
/// shell's own prefix.
pub fn as_bash(command: &OsStr) -> Option<(i32, String)> {
    let output: Output =
        Command::new("bash").arg("-c").arg(r#""$0""#).arg(command).output().ok()?;
    let message = text(&output.stderr);
    let message = message.split_once(": line 1: ").map_or(&*message, |(_, rest)| rest);
    Some((output.status.code()?, message.trim_end().to_owned()))
}

/// Says that a test cannot run here; where nothing may be skipped, it fails.
pub fn skip(why: &str) {
    assert!(std::env::var_os("RUNAHEAD_REQUIRE_ROOT_TESTS").is_none(), "{why}");
    eprintln!("{why}: nothing to run");
}

pub fn is_root() -> bool {
    // SAFETY: a query.
    unsafe { libc::geteuid() == 0 }
}
