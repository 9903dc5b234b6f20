//! Many runs of one command in one launch: a shell makes one each time that it
//! is asked. What a run takes is then the command's own time and its start as a
//! child, without the start of `runahead`, which `bench overhead` measures.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::interrupt::Running;
use crate::process::{self, CommandSpec, Finished, Output, Usage};

/// For each line of its input one run; answers with the exit status, of a
/// signal 128 and its number. It stays out of the directory that the command
/// runs in, so that the file system can go cold.
const SCRIPT: &str = "d=$1 o=$2 e=$3; shift 3; echo ready; \
    while read -r _; do (cd \"$d\" && exec \"$@\") </dev/null >\"$o\" 2>\"$e\"; echo $?; done";

/// Longest time that the shell takes to be ready, and to end.
const SHELL_LIMIT: Duration = Duration::from_secs(60);

/// Longest answer of the shell, bytes.
const ANSWER_MAX: usize = 16;

/// Why a run has no result, which where memory is tight is nobody's mistake.
#[derive(Debug)]
pub enum Unfinished {
    /// Somebody has killed the shell: the OOM killer.
    Ended,
    /// It took longer than it may.
    Overdue(Duration),
}

impl std::fmt::Display for Unfinished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unfinished::Ended => f.write_str("the shell ended"),
            Unfinished::Overdue(limit) => write!(f, "no end within {} s", limit.as_secs()),
        }
    }
}

impl std::error::Error for Unfinished {}

/// The shell that waits to be asked.
#[derive(Debug)]
pub struct Series {
    shell: Child,
    /// None: it has been told to end.
    ask: Option<ChildStdin>,
    answers: ChildStdout,
    _running: Running,
}

impl Series {
    /// The command that becomes the shell for `spec`, whose runs' output goes
    /// into the files of `output`. To be wrapped, and given to
    /// [`Series::start`].
    pub fn command(spec: &CommandSpec, output: &Output) -> CommandSpec {
        let arguments = ["-c".into(), SCRIPT.into(), "sh".into(), spec.directory.clone().into()]
            .into_iter()
            .chain([output.path("stdout").into(), output.path("stderr").into()])
            .chain([spec.program.clone()])
            .chain(spec.arguments.iter().cloned())
            .collect();
        CommandSpec { program: "/bin/sh".into(), arguments, directory: "/".into(), ..spec.clone() }
    }

    /// Starts the shell, and waits until it is ready.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(spec: &CommandSpec) -> Result<Series> {
        let mut command = spec.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = command.spawn().context("start a shell")?;
        let running = Running::mark(shell.id() as libc::pid_t);
        let ask = shell.stdin.take();
        let answers = shell.stdout.take().context("the shell's output")?;
        let mut series = Series { shell, ask, answers, _running: running };
        let ready = series.answer(SHELL_LIMIT)?;
        ensure!(ready == "ready", "the shell says {ready:?}");
        Ok(series)
    }

    /// One run of the command.
    ///
    /// # Errors
    /// [`Unfinished`] if it does not end within `limit`, or the shell has ended.
    pub fn once(&mut self, limit: Duration) -> Result<Finished> {
        let ask = self.ask.as_mut().context("the shell has been told to end")?;
        let started = Instant::now();
        ask.write_all(b"\n").map_err(|_| Unfinished::Ended)?;
        let answer = self.answer(limit)?;
        let elapsed_s = started.elapsed().as_secs_f64();
        let code: i32 = answer.parse().with_context(|| format!("the shell says {answer:?}"))?;
        // As `wait` tells them (wait(2)): a signal in the low bits, or an exit
        // status above them.
        let raw = if code > 128 { code - 128 } else { code << 8 };
        Ok(Finished {
            elapsed_s,
            status: ExitStatus::from_raw(raw),
            usage: Usage::default(),
            first_thread: None,
        })
    }

    /// Lets the shell end.
    ///
    /// # Errors
    /// If it does not.
    pub fn end(mut self) -> Result<()> {
        self.ask = None;
        let pid = self.shell.id() as libc::pid_t;
        let (status, _) = process::reap_within(pid, SHELL_LIMIT)?;
        ensure!(status.success(), "the shell ended with {}", process::describe(status));
        Ok(())
    }

    fn answer(&mut self, limit: Duration) -> Result<String> {
        let deadline = Instant::now() + limit;
        let mut line = Vec::new();
        while line.len() < ANSWER_MAX {
            let left = deadline.saturating_duration_since(Instant::now());
            if !process::wait_readable(self.answers.as_raw_fd(), left)? {
                return Err(Unfinished::Overdue(limit).into());
            }
            let mut byte = [0u8];
            if self.answers.read(&mut byte).context("hear the shell")? != 1 {
                return Err(Unfinished::Ended.into());
            }
            if byte == *b"\n" {
                break;
            }
            line.extend(byte);
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        if self.ask.is_none() {
            return;
        }
        let group = self.shell.id() as libc::pid_t;
        // SAFETY: plain call; the group is the shell's own, which has not been
        // waited for.
        unsafe { libc::kill(-group, libc::SIGKILL) };
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(script: &str, output: &Output) -> Series {
        let spec = CommandSpec::new("/bin/sh", "/tmp").arg("-c").arg(script).env("X", "y");
        Series::start(&Series::command(&spec, output)).unwrap()
    }

    #[test]
    fn each_run_has_its_own_output_and_status() {
        let output = Output::new().unwrap();
        let limit = Duration::from_secs(60);
        let file = output.path("count");
        let script = format!("pwd; echo $X; echo x >>{0}; exit $(wc -l <{0})", file.display());
        let mut series = series(&script, &output);
        for run in 1..=3 {
            let finished = series.once(limit).unwrap();
            assert_eq!(process::describe(finished.status), format!("exit {run}"));
            assert_eq!(std::fs::read_to_string(output.path("stdout")).unwrap(), "/tmp\ny\n");
        }
        series.end().unwrap();
    }

    #[test]
    fn signals_are_told_apart_and_what_does_not_end_is_killed() {
        let output = Output::new().unwrap();
        let mut killed = series("kill -9 $$", &output);
        let finished = killed.once(Duration::from_secs(60)).unwrap();
        assert_eq!(process::describe(finished.status), "signal 9");
        let mut sleeps = series("sleep 1000", &output);
        let error = sleeps.once(Duration::from_millis(50)).unwrap_err();
        assert!(error.is::<Unfinished>(), "{error}");
        assert!(error.to_string().contains("no end"), "{error}");
        let mut dies = series("kill -9 $PPID", &output);
        assert!(dies.once(Duration::from_secs(60)).unwrap_err().is::<Unfinished>());
    }
}
