//! `runahead hint`: discloses what a command will read that cannot say so itself.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use runahead_hint::{Range, Stats};

use super::say;
use crate::{inherited, launch};

/// Disclose accesses for a command that cannot
///
/// Runs the command, and tells the manager of hints what it will read, in this
/// order: a list of files, or of segments of files. How far it is, is taken
/// from the bytes that it reads. Nothing about the command changes; wrong
/// hints cost little.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  find src -name '*.c' | sort > list
  runahead hint --files list -- cat $(cat list)
  printf '%s\\t%s\\t%s\\n' 4096 8192 data.bin | runahead hint --segments - -- ./read")]
pub struct Hint {
    /// Files that it reads from start to end, one name a line; `-`: standard input
    #[arg(long, value_name = "FILE", required_unless_present = "segments")]
    files: Option<PathBuf>,
    /// Segments: OFFSET, LENGTH (0: to the end) and a name, separated by tabs
    /// or blanks, one a line; `-`: standard input
    #[arg(long, value_name = "FILE", conflicts_with = "files")]
    segments: Option<PathBuf>,
    /// Names end with a zero byte, not with the line (`find -print0`)
    #[arg(short = '0', long)]
    null: bool,
    /// Say at the end what was prefetched
    #[arg(long)]
    stats: bool,
    /// The command
    #[arg(trailing_var_arg = true, required = true)]
    command: Vec<OsString>,
}

/// Hints given to the manager ahead of what it has consumed: the rest of a long list is read
/// when there is room.
const AHEAD_MAX: usize = 1 << 20;

/// Runs the command with the hints.
///
/// # Errors
/// If the list cannot be read or makes no sense, or the command cannot be started.
pub fn run(hint: &Hint) -> Result<ExitCode> {
    let path = hint.files.as_ref().or(hint.segments.as_ref()).context("give --files")?;
    let from_stdin = path.as_os_str() == "-";
    let list: Box<dyn BufRead> = if from_stdin {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::new(
            File::open(path).with_context(|| format!("open the list {}", path.display()))?,
        ))
    };
    let mut list = List { list, null: hint.null, segments: hint.segments.is_some(), line: 0 };
    // Read before the command starts, so that nonsense is an error before anything happens.
    let mut first = Vec::new();
    while first.len() < AHEAD_MAX {
        let Some(one) = list.next()? else { break };
        first.push(one);
    }
    let name = hint.command[0].to_string_lossy().into_owned();
    let mut child = match start(&hint.command, from_stdin) {
        Ok(child) => child,
        Err(error) => {
            say(format_args!("cannot run {name}: {error}"));
            let missing = error.kind() == io::ErrorKind::NotFound;
            return Ok(ExitCode::from(if missing { 127 } else { 126 }));
        }
    };
    // What the terminal sends goes to both, and the command decides.
    let forwarding = forward::to(child.id());
    runahead_hint::observe_process(child.id());
    disclose(first.drain(..));
    let status = feed(&mut child, &mut list)?;
    drop(forwarding);
    if hint.stats {
        match runahead_hint::session() {
            Some(session) => say(summary(&session.stats(), session.outstanding())),
            None => say("hints are switched off: see RUNAHEAD and RUNAHEAD_HINT"),
        }
    }
    if let Some(signal) = status.signal() {
        forward::die_of(signal);
    }
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)))
}

/// What was done, for `--stats`.
fn summary(stats: &Stats, left_over: usize) -> String {
    let done = format!(
        "{} blocks of 8 KiB prefetched in {} requests, {} given back, {} requests failed, \
         {left_over} hints left over",
        stats.prefetched_blocks, stats.prefetches, stats.released_blocks, stats.failed,
    );
    // Times and memory are the manager's, which tells nobody.
    if stats.buffers == 0 {
        return format!("{done}; as the manager of this machine decided");
    }
    format!(
        "{done}; T_disk {} us, T_driver {} us, horizon {}, {} buffers",
        stats.t_disk_us, stats.t_driver_us, stats.horizon, stats.buffers
    )
}

/// Starts the command, as a shell would: one that is text without `#!` is the shell's.
fn start(command: &[OsString], from_stdin: bool) -> io::Result<Child> {
    let (name, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let started = spawn(Command::new(name).args(arguments), from_stdin);
    match started {
        Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => {
            let Some(file) = launch::script_for_the_shell(name) else { return Err(error) };
            spawn(Command::new(launch::SHELL).arg(file).args(arguments), from_stdin)
        }
        started => started,
    }
}

/// Starts it with the signals and standard descriptors that this process was given:
/// [`Command`] and the runtime have their own.
fn spawn(command: &mut Command, from_stdin: bool) -> io::Result<Child> {
    if from_stdin {
        command.stdin(Stdio::null());
    }
    let as_given = || {
        inherited::restore();
        Ok(())
    };
    // SAFETY: it makes system calls only, and allocates nothing.
    unsafe { command.pre_exec(as_given) };
    command.spawn()
}

/// Gives the rest of the list as there is room, until the command has ended.
fn feed(child: &mut Child, list: &mut List) -> Result<std::process::ExitStatus> {
    let mut more = true;
    while more {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if runahead_hint::outstanding() < AHEAD_MAX / 2 {
            let mut batch = Vec::new();
            while batch.len() < AHEAD_MAX / 4 {
                match list.next() {
                    Ok(Some(one)) => batch.push(one),
                    Ok(None) => {
                        more = false;
                        break;
                    }
                    Err(error) => {
                        say(format_args!("{error:#}; the hints behind are left out"));
                        more = false;
                        break;
                    }
                }
            }
            disclose(batch.drain(..));
        } else {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(child.wait()?)
}

fn disclose(hints: impl Iterator<Item = (PathBuf, Range)>) {
    for (path, range) in hints {
        // Too many files: the rest goes unhinted.
        if runahead_hint::disclose_path(&path, &[range]).is_err() {
            return;
        }
    }
}

struct List {
    list: Box<dyn BufRead>,
    null: bool,
    segments: bool,
    line: u64,
}

impl List {
    fn next(&mut self) -> Result<Option<(PathBuf, Range)>> {
        loop {
            let end = if self.null { 0 } else { b'\n' };
            let mut bytes = Vec::new();
            if self.list.read_until(end, &mut bytes).context("read the list")? == 0 {
                return Ok(None);
            }
            self.line += 1;
            if bytes.last() == Some(&end) {
                bytes.pop();
            }
            if bytes.is_empty() {
                continue;
            }
            let one = if self.segments { segment(&bytes) } else { Ok((bytes, whole())) };
            let (name, range) = one.with_context(|| format!("entry {} of the list", self.line))?;
            return Ok(Some((OsString::from_vec(name).into(), range)));
        }
    }
}

fn whole() -> Range {
    Range { offset: 0, length: 0 }
}

/// `OFFSET LENGTH NAME`.
fn segment(entry: &[u8]) -> Result<(Vec<u8>, Range)> {
    let is_gap = |byte: &u8| *byte == b'\t' || *byte == b' ';
    let mut rest = entry;
    let mut numbers = [0; 2];
    for number in &mut numbers {
        let end = rest.iter().position(is_gap);
        let Some(end) = end else { bail!("give OFFSET, LENGTH and a name") };
        let digits = std::str::from_utf8(&rest[..end]).unwrap_or("?");
        *number = digits.parse().with_context(|| format!("{digits:?} is no number of bytes"))?;
        let gap = rest[end..].iter().take_while(|byte| is_gap(byte)).count();
        rest = &rest[end + gap..];
    }
    ensure!(!rest.is_empty(), "the name is missing");
    Ok((rest.to_vec(), Range { offset: numbers[0], length: numbers[1] }))
}

/// Signals while the command runs.
mod forward {
    use std::sync::atomic::{AtomicI32, Ordering};

    static CHILD: AtomicI32 = AtomicI32::new(0);
    /// Sent to this process alone: passed on.
    const FORWARDED: [i32; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];
    /// Sent by the terminal to both.
    const IGNORED: [i32; 2] = [libc::SIGINT, libc::SIGQUIT];

    extern "C" fn pass_on(signal: i32) {
        let child = CHILD.load(Ordering::Acquire);
        if child > 0 {
            // SAFETY: kill may be called in a handler; the child is not reaped before this
            // process ends its wait, and then nothing is passed on any more.
            unsafe { libc::kill(child, signal) };
        }
    }

    /// Signals are passed on until this is dropped.
    pub struct Forwarding(());

    /// From now on signals go to the child; set after it was started, as it would inherit
    /// what is ignored.
    pub fn to(pid: u32) -> Forwarding {
        CHILD.store(pid as i32, Ordering::Release);
        for signal in FORWARDED {
            // SAFETY: the handler only makes calls that handlers may make.
            unsafe { libc::signal(signal, pass_on as *const () as libc::sighandler_t) };
        }
        for signal in IGNORED {
            // SAFETY: plain call.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        Forwarding(())
    }

    impl Drop for Forwarding {
        fn drop(&mut self) {
            CHILD.store(0, Ordering::Release);
        }
    }

    /// Ends as the command did.
    pub fn die_of(signal: i32) {
        // SAFETY: plain calls; no core of this process beside the command's.
        unsafe {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
            libc::signal(signal, libc::SIG_DFL);
            libc::kill(libc::getpid(), signal);
        }
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

/// One manager of hints for all programs of this machine or user
///
/// Programs that hint find it by its socket and share their memory through
/// it; without one, each has a manager of its own. It needs no privilege:
/// the programs read ahead and give back themselves.
#[derive(Debug, Args)]
pub struct Manager {
    /// Listen here [default: runahead/manager.sock in XDG_RUNTIME_DIR, as root in /run]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Serves until it is ended.
///
/// # Errors
/// If it cannot listen.
pub fn manage(manager: &Manager) -> Result<ExitCode> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    let root = rustix::process::geteuid().is_root();
    let path = match &manager.socket {
        Some(path) => path.clone(),
        None if root => PathBuf::from("/run").join(runahead_manager::wire::SOCKET),
        None => std::env::var_os("XDG_RUNTIME_DIR")
            .map(PathBuf::from)
            .context(
                "XDG_RUNTIME_DIR is not set: give --socket, and RUNAHEAD_MANAGER=PATH to the \
                 programs",
            )?
            .join(runahead_manager::wire::SOCKET),
    };
    if let Some(directory) = path.parent() {
        // A user's own is where the launcher keeps the agent, if others may not write there.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(if root { 0o755 } else { 0o700 })
            .create(directory)
            .with_context(|| format!("make {}", directory.display()))?;
    }
    let _place = take_place(&path)?;
    let listener =
        UnixListener::bind(&path).with_context(|| format!("listen at {}", path.display()))?;
    if root {
        // Everybody may hint: a client can only be told to read what it has open itself.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))
            .with_context(|| format!("let everybody use {}", path.display()))?;
    }
    runahead_manager::server::serve(&listener)?;
    Ok(ExitCode::SUCCESS)
}

/// Makes sure that nothing is at `path`, where a manager that was killed may have left its
/// socket. As long as the file that is returned is open, no other manager gets there: of two
/// that start at once, the second would take away the first one's socket.
///
/// # Errors
/// A manager serves it, or something else is there.
fn take_place(path: &Path) -> Result<File> {
    // Nothing is made beside what is not ours.
    has_socket(path)?;
    let lock = lock_beside(path)?;
    if !has_socket(path)? {
        return Ok(lock);
    }
    match UnixStream::connect(path) {
        Ok(_) => bail!(served(path)),
        // Nobody listens there any more.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).with_context(|| format!("remove the old {}", path.display()))?;
            Ok(lock)
        }
        Err(error) => Err(error).with_context(|| {
            format!("{} is there and does not tell who serves it: give another", path.display())
        }),
    }
}

fn served(path: &Path) -> String {
    let path = path.display();
    format!("a manager serves {path} already: use it, stop it, or give another --socket")
}

/// Whether a socket is there, and not nothing.
///
/// # Errors
/// Something else is.
fn has_socket(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => Ok(true),
        Ok(_) => bail!("{} is there and is no socket: give another", path.display()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("look at {}", path.display())),
    }
}

/// Locks the file beside a socket that tells that a manager has the place, be it in use yet
/// or not. The kernel unlocks it when the manager has ended, however that was.
fn lock_beside(path: &Path) -> Result<File> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    let beside = Path::new(&beside);
    // For its owner only: whoever can open it can lock it.
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let lock = options.open(beside).with_context(|| format!("open {}", beside.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => bail!(served(path)),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("lock {}", beside.display()))
        }
    }
}
