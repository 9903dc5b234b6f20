//! Runs one command and measures it: elapsed time, CPU time, page faults,
//! everything that it printed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::digest;
use crate::interrupt::{self, Running};
use crate::pipe::Pipe;

/// What to run, and where.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// Program, found in PATH or by path.
    pub program: OsString,
    /// Arguments without the program's name.
    pub arguments: Vec<OsString>,
    /// Working directory.
    pub directory: PathBuf,
    /// Variables beyond the fixed ones.
    pub environment: Vec<(OsString, OsString)>,
    /// User and group to run as; none: as this process.
    pub user: Option<(u32, u32)>,
}

impl CommandSpec {
    /// A command without arguments.
    pub fn new(program: impl Into<OsString>, directory: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            directory: directory.into(),
            environment: Vec::new(),
            user: None,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// The command with the environment of every measured program: the C
    /// locale and UTC, so that output does not depend on the user's settings,
    /// and nothing that switches Runahead off.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.directory);
        command.env("LC_ALL", "C").env("TZ", "UTC").env_remove("RUNAHEAD");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command.stdin(Stdio::null()).process_group(0);
        command
    }

    /// As a shell would show it, cut after a few arguments.
    pub fn display(&self) -> String {
        const ARGUMENTS_SHOWN_MAX: usize = 6;
        let mut words = vec![self.program.to_string_lossy().into_owned()];
        let shown = self.arguments.iter().take(ARGUMENTS_SHOWN_MAX);
        words.extend(shown.map(|argument| argument.to_string_lossy().into_owned()));
        if self.arguments.len() > ARGUMENTS_SHOWN_MAX {
            words.push(format!("… ({} arguments)", self.arguments.len()));
        }
        words.join(" ")
    }
}

/// What a process used, children that it waited for included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// User and system time, seconds.
    pub cpu_s: f64,
    /// System time alone, seconds.
    pub system_s: f64,
    /// Minor faults, copy-on-write faults among them.
    pub minor_faults: u64,
    /// Major faults.
    pub major_faults: u64,
}

/// What a thread did with its time while it was not asleep: `/proc/PID/schedstat`
/// (`Documentation/scheduler/sched-stats.rst`, Linux 2.6.9 and later).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadTime {
    /// On a processor, seconds.
    pub running_s: f64,
    /// Ready to run, but waiting for a processor, seconds.
    pub queued_s: f64,
}

impl ThreadTime {
    /// Of the first thread of a process that may have ended, but is not reaped yet.
    fn of_first(pid: libc::pid_t) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?)
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            running_s: self.running_s - before.running_s,
            queued_s: self.queued_s - before.queued_s,
        }
    }

    fn parse(schedstat: &str) -> Option<Self> {
        let mut seconds =
            schedstat.split_whitespace().map(|ns| Some(ns.parse::<u64>().ok()? as f64 / 1e9));
        Some(Self { running_s: seconds.next()??, queued_s: seconds.next()?? })
    }
}

/// A process that ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// From before it was started, or went on from its stop ([`run_stopped`]), until its
    /// end was seen, seconds.
    pub elapsed_s: f64,
    /// How it ended.
    pub status: ExitStatus,
    /// What it used, before such a stop, too (a shell that enters a cgroup: 1 to 2 ms).
    pub usage: Usage,
    /// What its first thread did with its time; none where the kernel does not say.
    pub first_thread: Option<ThreadTime>,
}

/// How it ended in words: `exit 1`, `signal 9`.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => format!("{status:?}"),
    }
}

/// The last line that says something; empty: none does.
pub fn last_line(text: &str) -> &str {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default()
}

/// The error of a plain run that did not do what it should: how it ended, and its
/// last words, if it had any.
pub fn failed(status: &str, last_words: &str) -> anyhow::Error {
    let colon = if last_words.is_empty() { "" } else { ": " };
    anyhow::anyhow!("by itself it ends with {status}{colon}{last_words}")
}

/// Runs a command to its end, its output going into the two files. Where that
/// takes longer than `limit`, its process group is killed.
///
/// # Errors
/// If it cannot be started, or is killed for the limit.
pub fn run(command: &mut Command, output: &Output, limit: Duration) -> Result<Finished> {
    run_measured(command, output, limit, false)
}

/// As [`run`], for a command that stops itself when it is where it is to be measured: its
/// time begins when it goes on from there.
///
/// # Errors
/// As [`run`].
pub fn run_stopped(command: &mut Command, output: &Output, limit: Duration) -> Result<Finished> {
    run_measured(command, output, limit, true)
}

fn run_measured(
    command: &mut Command,
    output: &Output,
    limit: Duration,
    stops_first: bool,
) -> Result<Finished> {
    command.stdout(output.stdout()?).stderr(output.stderr()?);
    let mut started = Instant::now();
    let child = command
        .spawn()
        .with_context(|| format!("start {}", command.get_program().to_string_lossy()))?;
    let pid = child.id() as libc::pid_t;
    let running = Running::mark(pid);
    let mut before = ThreadTime::default();
    if stops_first {
        await_stop(pid)?;
        before = ThreadTime::of_first(pid).unwrap_or_default();
        started = Instant::now();
        // SAFETY: plain call; the child is not waited for yet.
        unsafe { libc::kill(pid, libc::SIGCONT) };
    }
    let in_time = wait_for_end(pid, limit)?;
    let elapsed_s = started.elapsed().as_secs_f64();
    if !in_time {
        // SAFETY: plain call; the group is the child's own (process_group(0))
        // and its number cannot have been reused while it is not waited for.
        unsafe { libc::kill(-pid, libc::SIGKILL) };
    }
    let first_thread = ThreadTime::of_first(pid).map(|at_end| at_end.since(&before));
    let (status, usage) = reap(pid)?;
    drop(running);
    if !in_time {
        let name = command.get_program().to_string_lossy().into_owned();
        bail!("{name} did not end within {} s and was killed", limit.as_secs());
    }
    Ok(Finished { elapsed_s, status, usage, first_thread })
}

/// Copies a directory as it is: owners, rights, times, links.
///
/// # Errors
/// If it cannot be copied.
pub fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").arg("-a").args([from, to]).status().context("start cp")?;
    ensure!(status.success(), "copy {} to {} failed", from.display(), to.display());
    Ok(())
}

/// Waits for a child's end and reaps it.
///
/// # Errors
/// If it does not end within `limit`: it is killed then.
pub fn reap_within(pid: libc::pid_t, limit: Duration) -> Result<(ExitStatus, Usage)> {
    let in_time = wait_for_end(pid, limit)?;
    if !in_time {
        // SAFETY: plain call; the child is not waited for yet.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    let ended = reap(pid)?;
    ensure!(in_time, "it did not end within {} s and was killed", limit.as_secs());
    Ok(ended)
}

/// Waits until the child has ended, leaving it to be reaped; false when that
/// takes longer than `limit`.
fn wait_for_end(pid: libc::pid_t, limit: Duration) -> Result<bool> {
    // SAFETY: plain call without pointers.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if raw < 0 {
        return Err(std::io::Error::last_os_error()).context("open a descriptor of the process");
    }
    // SAFETY: the call returned a new descriptor that nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(raw as i32) };
    wait_readable(pidfd.as_raw_fd(), limit)
}

/// Waits until the child has stopped, or ended, leaving either to be seen by others.
fn await_stop(pid: libc::pid_t) -> Result<()> {
    let what = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
    loop {
        // SAFETY: all zero bytes are a valid siginfo_t.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is valid for the call.
        if unsafe { libc::waitid(libc::P_PID, pid as libc::id_t, &raw mut info, what) } == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error).context("wait for the process to stop");
        }
    }
}

/// Waits until a descriptor can be read, or is at its end; false when that takes
/// longer than `limit`.
///
/// # Errors
/// If the kernel refuses to wait for it.
pub fn wait_readable(fd: RawFd, limit: Duration) -> Result<bool> {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let timeout_ms = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one valid pollfd.
        match unsafe { libc::poll(&raw mut poll, 1, timeout_ms) } {
            1.. => return Ok(true),
            0 if left.is_zero() => return Ok(false),
            0 => {}
            _ => {
                let error = std::io::Error::last_os_error();
                if error.kind() != std::io::ErrorKind::Interrupted {
                    return Err(error).context("wait for the process");
                }
            }
        }
    }
}

/// Reaps a child and says what it used.
///
/// # Errors
/// If it is no child of this process, or was reaped already.
pub fn reap(pid: libc::pid_t) -> Result<(ExitStatus, Usage)> {
    let mut raw_status = 0;
    // SAFETY: all zero bytes are a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call.
    while unsafe { libc::wait4(pid, &raw mut raw_status, 0, &raw mut usage) } < 0 {
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error).context("wait for the process");
        }
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let usage = Usage {
        cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        system_s: seconds(usage.ru_stime),
        minor_faults: usage.ru_minflt as u64,
        major_faults: usage.ru_majflt as u64,
    };
    Ok((ExitStatus::from_raw(raw_status), usage))
}

/// Where a run's output goes: files in memory where the system has such a
/// place, so that writing them disturbs no measured device, and looked at only
/// after the run.
#[derive(Debug)]
pub struct Output {
    directory: Scratch,
    /// In the place of the files.
    pipes: Option<[Pipe; 2]>,
}

impl Output {
    /// A new, empty place.
    ///
    /// # Errors
    /// If no directory can be made.
    pub fn new() -> Result<Self> {
        Ok(Self { directory: scratch_directory()?, pipes: None })
    }

    /// Pipes, of which only fingerprints are kept: what a program writes into files
    /// counts against its memory cgroup. In memory it stays there; on a disk it is
    /// dirty, and where the kernel, looking for what it can evict in a cgroup of version
    /// 1, comes upon such a page alone, the program sleeps for 0.1 s
    /// (`VMSCAN_THROTTLE_WRITEBACK`, Linux 6.18), which a page more or less decides.
    ///
    /// # Errors
    /// If no directory or pipe can be made.
    pub fn piped() -> Result<Self> {
        let directory = scratch_directory()?;
        let pipe = |name| Pipe::new(&directory.path().join(name));
        let pipes = Some([pipe("stdout")?, pipe("stderr")?]);
        Ok(Self { directory, pipes })
    }

    /// Fingerprints of what a run has written to its standard output and error. Those
    /// of pipes are there once.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn digests(&self) -> Result<[String; 2]> {
        match &self.pipes {
            Some(pipes) => Ok(pipes.each_ref().map(Pipe::take_digest)),
            None => {
                Ok([digest::of_file(&self.path("stdout"))?, digest::of_file(&self.path("stderr"))?])
            }
        }
    }

    /// The last line of a run's standard error; empty where it has none, or only
    /// fingerprints are kept.
    pub fn last_words(&self) -> String {
        if self.pipes.is_some() {
            return String::new();
        }
        let said = std::fs::read(self.path("stderr")).unwrap_or_default();
        last_line(&String::from_utf8_lossy(&said)).to_owned()
    }

    /// Path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Its own path.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn create(&self, name: &str) -> Result<File> {
        let path = self.path(name);
        File::create(&path).with_context(|| format!("create {}", path.display()))
    }

    fn stdout(&self) -> Result<File> {
        self.create("stdout")
    }

    fn stderr(&self) -> Result<File> {
        self.create("stderr")
    }
}

/// A directory of our own that is removed when it is dropped, or when this
/// process is interrupted.
#[derive(Debug)]
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        interrupt::forget_directory(self.path());
    }
}

/// A directory of our own in memory, or in the directory for temporary files.
///
/// # Errors
/// If it cannot be made.
pub fn scratch_directory() -> Result<Scratch> {
    let shared_memory = Path::new("/dev/shm");
    let base = if rustix::fs::access(shared_memory, rustix::fs::Access::WRITE_OK).is_ok() {
        shared_memory.to_owned()
    } else {
        std::env::temp_dir()
    };
    scratch_directory_in(&base)
}

/// The same in `base`.
///
/// # Errors
/// If it cannot be made.
pub(crate) fn scratch_directory_in(base: &Path) -> Result<Scratch> {
    let made = tempfile::Builder::new().prefix("runahead-bench-").tempdir_in(base);
    let made = made.with_context(|| format!("make a directory in {}", base.display()))?;
    interrupt::remember_directory(made.path());
    Ok(Scratch(made))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> CommandSpec {
        CommandSpec::new("/bin/sh", "/").arg("-c").arg(script)
    }

    #[test]
    fn output_status_and_environment() {
        let output = Output::new().unwrap();
        let spec = shell("echo $LC_ALL $X; echo bad >&2; exit 3").env("X", "y");
        let finished = run(&mut spec.command(), &output, Duration::from_secs(60)).unwrap();
        assert_eq!(describe(finished.status), "exit 3");
        assert_eq!(std::fs::read_to_string(output.path("stdout")).unwrap(), "C y\n");
        assert_eq!(std::fs::read_to_string(output.path("stderr")).unwrap(), "bad\n");
        assert_eq!(output.last_words(), "bad");
        assert_eq!(Output::piped().unwrap().last_words(), "", "and does not wait");
        assert!(finished.usage.minor_faults > 0);
        assert!(finished.elapsed_s > 0.0);
    }

    #[test]
    fn what_stops_itself_goes_on_and_is_measured_from_there() {
        let output = Output::new().unwrap();
        let spec = shell("i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; kill -STOP $$; exit 3");
        let limit = Duration::from_secs(60);
        let finished = run_stopped(&mut spec.command(), &output, limit).unwrap();
        assert_eq!(describe(finished.status), "exit 3");
        let counted = finished.first_thread.map_or(0.0, |thread| thread.running_s);
        assert!(counted < finished.usage.cpu_s / 2.0, "{counted} s of {}", finished.usage.cpu_s);
        let ended = run_stopped(&mut shell("exit 4").command(), &output, limit).unwrap();
        assert_eq!(describe(ended.status), "exit 4", "it did not stop");
    }

    #[test]
    fn the_first_thread_s_time_is_understood() {
        let before = ThreadTime::parse("1000000000 250000000 7\n").unwrap();
        assert_eq!(before, ThreadTime { running_s: 1.0, queued_s: 0.25 });
        let after = ThreadTime { running_s: 3.0, queued_s: 0.5 };
        assert_eq!(after.since(&before), ThreadTime { running_s: 2.0, queued_s: 0.25 });
        assert_eq!(ThreadTime::parse("1000000000"), None);
        let own = ThreadTime::of_first(std::process::id() as libc::pid_t);
        assert!(own.is_none_or(|own| own.running_s > 0.0), "{own:?}");
    }

    #[test]
    fn signals_are_told_apart() {
        let output = Output::new().unwrap();
        let finished =
            run(&mut shell("kill -9 $$").command(), &output, Duration::from_secs(60)).unwrap();
        assert_eq!(describe(finished.status), "signal 9");
    }

    #[test]
    fn what_does_not_end_is_killed_with_its_children() {
        let output = Output::new().unwrap();
        let mut command = shell("sleep 1000 & echo $!; wait").command();
        let error = run(&mut command, &output, Duration::from_millis(500)).unwrap_err();
        assert!(error.to_string().contains("did not end"), "{error}");
        let child = std::fs::read_to_string(output.path("stdout")).unwrap();
        // The child may not have been forked yet on a busy machine.
        if let Ok(child) = child.trim().parse::<i32>() {
            let state = || std::fs::read_to_string(format!("/proc/{child}/stat"));
            while state().is_ok_and(|stat| !stat.contains(") Z ")) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    #[test]
    fn a_missing_program_is_named() {
        let output = Output::new().unwrap();
        let mut command = CommandSpec::new("/nonexistent/program", "/").command();
        let error = run(&mut command, &output, Duration::from_secs(1)).unwrap_err();
        assert!(format!("{error:#}").contains("/nonexistent/program"));
    }

    #[test]
    fn long_commands_are_shown_short() {
        let spec = CommandSpec::new("grep", "/").args((0..9).map(|i| i.to_string()));
        assert_eq!(spec.display(), "grep 0 1 2 3 4 5 … (9 arguments)");
    }
}
