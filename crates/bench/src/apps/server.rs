//! A PostgreSQL server and one session with it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::interrupt::Running;
use crate::process::{self, CommandSpec, Usage};
use crate::stranger::reachable;
use crate::tools::{POSTGRES, PSQL};

/// The user that Debian's package makes: the server refuses to run as root.
const USER: &str = "postgres";
/// Longest wait for the server's start or end.
const WAIT: Duration = Duration::from_secs(300);

/// Settings of the measured server. Buffers are small, so that it is the page
/// cache that holds the data; nothing runs beside the query, and a scan begins
/// where it always does, so that output is the same in each run.
const SETTINGS: &[&str] = &[
    "listen_addresses=",
    "max_connections=10",
    "shared_buffers=8MB",
    "work_mem=64MB",
    "max_parallel_workers_per_gather=0",
    "jit=off",
    "synchronize_seqscans=off",
    "autovacuum=off",
    "track_counts=off",
    "bgwriter_lru_maxpages=0",
    "checkpoint_timeout=1h",
    "fsync=off",
    "full_page_writes=off",
    "wal_level=minimal",
    "max_wal_senders=0",
];

/// User and group of the server.
///
/// # Errors
/// If there is no such user: the package makes it.
pub fn user() -> Result<(u32, u32)> {
    let passwd = fs::read_to_string("/etc/passwd").context("read /etc/passwd")?;
    find_user(&passwd, USER).with_context(|| {
        format!("there is no user {USER}: install the package {}", POSTGRES.package)
    })
}

fn find_user(passwd: &str, name: &str) -> Option<(u32, u32)> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then_some(())?;
        let (user, group) = (fields.nth(1)?, fields.next()?);
        Some((user.parse().ok()?, group.parse().ok()?))
    })
}

/// A program of the server's package, beside the server itself.
pub fn program(name: &str) -> Result<PathBuf> {
    let server = POSTGRES.find().context("the PostgreSQL server is not installed")?;
    Ok(server.with_file_name(name))
}

/// Major version of the server.
///
/// # Errors
/// If it is not installed, or does not tell.
pub fn version() -> Result<String> {
    let done = Command::new(program("postgres")?).arg("--version").output();
    let done = done.context("ask the PostgreSQL server for its version")?;
    let said = String::from_utf8_lossy(&done.stdout);
    major(&said).map(str::to_owned).with_context(|| format!("the PostgreSQL server says {said:?}"))
}

/// `15` of `postgres (PostgreSQL) 15.8 (Debian 15.8-0+deb12u1)`.
fn major(said: &str) -> Option<&str> {
    let (_, version) = said.split_once("(PostgreSQL) ")?;
    version.split(|c: char| !c.is_ascii_digit()).next().filter(|major| !major.is_empty())
}

/// A directory of the server's user, in memory: sockets, statistics.
#[derive(Debug)]
pub struct Home {
    directory: process::Scratch,
    user: (u32, u32),
}

impl Home {
    /// A new one.
    ///
    /// # Errors
    /// If it cannot be made, or without the server's user.
    pub fn new() -> Result<Self> {
        let (user, group) = user()?;
        let directory = process::scratch_directory()?;
        chown(directory.path(), Some(user), Some(group)).context("give away a directory")?;
        Ok(Self { directory, user: (user, group) })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A command of the server's user with this as its home.
    pub fn command(&self, program: impl Into<PathBuf>) -> CommandSpec {
        let mut spec = CommandSpec::new(program.into(), self.path()).env("HOME", self.path());
        spec.user = Some(self.user);
        spec.env("XDG_CACHE_HOME", self.path().join("cache"))
    }

    /// The executable itself where the server's user may run it, else a copy.
    ///
    /// # Errors
    /// If it cannot be copied.
    pub fn reachable(&self, executable: &Path) -> Result<PathBuf> {
        reachable(executable, self.path())
    }
}

/// A server that is up. It is killed when it is dropped without being stopped.
#[derive(Debug)]
pub struct Server<'a> {
    home: &'a Home,
    child: Child,
    stopped: bool,
    _running: Running,
}

impl<'a> Server<'a> {
    /// The command of a server on a data directory.
    ///
    /// # Errors
    /// If it is not installed.
    pub fn command(home: &Home, data: &Path) -> Result<CommandSpec> {
        let mut spec = home.command(program("postgres")?).arg("-D").arg(data);
        spec = spec.arg("-k").arg(home.path());
        for setting in SETTINGS {
            spec = spec.args(["-c", setting]);
        }
        Ok(spec)
    }

    /// Starts a server by its command, wrapped or not, and waits until it
    /// answers.
    ///
    /// # Errors
    /// If it does not; the message has its last words.
    pub fn start(home: &'a Home, spec: &CommandSpec) -> Result<Self> {
        let log = home.path().join("log");
        let file = fs::File::create(&log).context("create the server's log")?;
        let mut command = spec.command();
        // Should this process be killed, it must not stay, busy with a mount.
        // SAFETY: prctl is async-signal-safe and touches no memory.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGQUIT) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let child = command
            .stdout(file.try_clone().context("share the server's log")?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("start {}", spec.display()))?;
        let _running = Running::mark(child.id() as libc::pid_t);
        let mut server = Self { home, child, stopped: false, _running };
        let deadline = Instant::now() + WAIT;
        let socket = home.path().join(".s.PGSQL.5432");
        loop {
            if std::os::unix::net::UnixStream::connect(&socket).is_ok() {
                return Ok(server);
            }
            let ended = server.child.try_wait().context("look at the server")?;
            if ended.is_some() || Instant::now() > deadline {
                server.stopped = ended.is_some();
                let words = fs::read_to_string(&log).unwrap_or_default();
                bail!("the PostgreSQL server does not come up; its last words:\n{words}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops it: sessions are ended, data is written (`SIGINT`, "fast").
    ///
    /// # Errors
    /// If it does not end.
    pub fn stop(mut self) -> Result<(ExitStatus, Usage)> {
        self.stopped = true;
        let pid = self.child.id() as libc::pid_t;
        // SAFETY: plain call; the child is ours and not waited for yet.
        unsafe { libc::kill(pid, libc::SIGINT) };
        process::reap_within(pid, WAIT).context("stop the PostgreSQL server")
    }

    /// Opens a session; its results go to a file.
    ///
    /// # Errors
    /// If the client cannot connect.
    pub fn session(&self, results: &Path) -> Result<Session> {
        let deadline = Instant::now() + WAIT;
        loop {
            match Session::open(self.home.path(), results) {
                // It listens before it lets clients in.
                Err(error)
                    if error.to_string().contains("starting up") && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                opened => return opened,
            }
        }
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        if !self.stopped {
            // SIGQUIT: its children end with it, nothing is written.
            // SAFETY: plain call; the child is ours and not waited for yet.
            unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGQUIT) };
            let _ = self.child.wait();
        }
    }
}

/// A client's session: `psql`, told what to do line by line.
#[derive(Debug)]
pub struct Session {
    child: Child,
    stdin: ChildStdin,
    stderr: BufReader<ChildStderr>,
    /// The server's process for this session.
    pub backend: u32,
}

/// What the client prints on standard error after each statement.
const MARK: &str = "=== done";

impl Session {
    fn open(sockets: &Path, results: &Path) -> Result<Self> {
        let file =
            fs::File::create(results).with_context(|| format!("create {}", results.display()))?;
        let mut child = Command::new(PSQL.find().context("psql is not installed")?)
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", USER, "-d", USER, "-h"])
            .arg(sockets)
            .env("LC_ALL", "C")
            .env("PGTZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(file)
            .stderr(Stdio::piped())
            .spawn()
            .context("start psql")?;
        let (Some(stdin), Some(stderr)) = (child.stdin.take(), child.stderr.take()) else {
            bail!("psql has no standard streams");
        };
        let mut session = Self { child, stdin, stderr: BufReader::new(stderr), backend: 0 };
        let said =
            session.execute("SELECT pg_backend_pid() AS backend \\gset\n\\warn :backend\n")?;
        session.backend = said.trim().parse().with_context(|| format!("psql says {said:?}"))?;
        Ok(session)
    }

    /// Lets the server do something and waits until it is done; returns what
    /// the client printed on standard error. Results go to the file.
    ///
    /// # Errors
    /// If the server refuses it; the message has its reason.
    pub fn execute(&mut self, statements: &str) -> Result<String> {
        let sent = writeln!(self.stdin, "{statements}\n\\warn '{MARK}'");
        let mut said = String::new();
        loop {
            let mut line = String::new();
            let len = self.stderr.read_line(&mut line).context("listen to psql")?;
            ensure!(len > 0, "the server refuses {statements:?}: {said}");
            if line.trim_end() == MARK {
                sent.context("talk to psql")?;
                return Ok(said);
            }
            said += &line;
        }
    }

    /// Ends it; the results are all in their file then.
    ///
    /// # Errors
    /// If the client failed.
    pub fn close(mut self) -> Result<ExitStatus> {
        drop(self.stdin);
        self.child.wait().context("wait for psql")
    }
}

/// What a process of the server has used so far.
///
/// # Errors
/// If it has ended.
pub fn usage_of(process: u32) -> Result<Usage> {
    let read = |name: &str| {
        let path = format!("/proc/{process}/{name}");
        fs::read_to_string(&path).with_context(|| format!("read {path}"))
    };
    let usage = parse_usage(&read("stat")?, &read("schedstat")?);
    usage.with_context(|| format!("/proc/{process}/stat is not what it should be"))
}

/// Faults from `stat`, nanoseconds on a processor from `schedstat`
/// (Documentation/scheduler/sched-stats.rst).
fn parse_usage(stat: &str, schedstat: &str) -> Option<Usage> {
    // The name in parentheses may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let cpu_ns: u64 = schedstat.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Usage {
        cpu_s: cpu_ns as f64 / 1e9,
        system_s: 0.0, // schedstat does not tell
        minor_faults: fields.get(7)?.parse().ok()?,
        major_faults: fields.get(9)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\npostgres:x:101:104::/var/lib/p:/bin/bash\n";
        assert_eq!(find_user(passwd, "postgres"), Some((101, 104)));
        assert_eq!(find_user(passwd, "post"), None);
        assert_eq!(find_user("broken\n", "broken"), None);
    }

    #[test]
    fn versions_are_understood() {
        let said = "postgres (PostgreSQL) 15.8 (Debian 15.8-0+deb12u1)\n";
        assert_eq!(major(said), Some("15"));
        assert_eq!(major("postgres (PostgreSQL) 17rc1\n"), Some("17"));
        assert_eq!(major("postgres (PostgreSQL) devel"), None);
    }

    #[test]
    fn usage_is_parsed_whatever_the_name() {
        let stat = "12 (a) b) S 1 2 3 4 5 6 700 8 9 10 11 12 13 14";
        let usage = parse_usage(stat, "1500000000 20 3\n").unwrap();
        assert_eq!((usage.cpu_s, usage.minor_faults, usage.major_faults), (1.5, 700, 9));
        assert_eq!(parse_usage("", ""), None);
        assert!(usage_of(std::process::id()).unwrap().minor_faults > 0);
    }
}
