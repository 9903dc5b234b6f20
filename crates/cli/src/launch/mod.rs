//! Starts a program with the agent in it: finds it, makes the agent and the
//! site table available as files, and replaces this process by it.
//!
//! Whatever goes wrong on the way to the agent, the program still runs; only
//! what would keep it from running without Runahead too is an error.

mod cache;
mod clock;
mod libraries;
mod resolve;
mod session;

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use runahead_protocol::session::{Mode, OPT_OUT_VARIABLE, SESSION_VARIABLE, Session};
use runahead_sites::SiteTable;

use crate::inherited;
use resolve::{Kind, SHELL};

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What the agent does.
    pub mode: Mode,
    /// Prefetch horizon in reads; 0: worked out.
    pub horizon: u64,
    /// Prefetches in flight; 0: worked out.
    pub depth: u64,
    /// Testing switches ([`runahead_protocol::session`]).
    pub test: u64,
}

/// Why a program was not started: what to print and to exit with.
#[derive(Debug)]
pub struct Failure {
    /// Exit status: 127 not found, 126 found but not executable.
    pub status: u8,
    /// The message, in the shell's words.
    pub message: String,
}

impl Failure {
    fn new(status: u8, name: &OsStr, text: &str) -> Failure {
        Failure { status, message: format!("{}: {text}", name.to_string_lossy()) }
    }

    /// The system's words for an error number, as shells print them.
    fn error_text(errno: i32) -> String {
        let text = std::io::Error::from_raw_os_error(errno).to_string();
        text.split(" (os error").next().unwrap_or_default().to_owned()
    }
}

/// The agent and the site table as files that the program can open.
#[derive(Debug)]
struct Files {
    agent: PathBuf,
    sites: PathBuf,
    tsc_per_us: u64,
}

/// Replaces this process by the program.
///
/// # Errors
/// [`Failure`] where the program cannot be executed.
pub fn launch(
    options: &Options,
    agent: &[u8],
    command: &[OsString],
) -> Result<Infallible, Failure> {
    let path = resolve::find(&command[0])?;
    let opted_out = std::env::var_os(OPT_OUT_VARIABLE).is_some_and(|value| value == "off");
    let mut environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    if options.mode != Mode::Off && !opted_out && !agent.is_empty() {
        match resolve::classify(&path) {
            Kind::Dynamic { interpreter } => {
                if let Some(files) = provide(agent, &interpreter) {
                    enlist(&mut environment, options, &files);
                }
            }
            Kind::Plain(_) => {}
        }
    }
    Err(execute(&path, command, &environment))
}

/// Makes agent and site table available in the first place that allows it.
fn provide(agent: &[u8], interpreter: &Path) -> Option<Files> {
    let libraries = libraries::of(interpreter);
    cache::candidates().iter().find_map(|directory| {
        cache::prepare(directory).ok()?;
        let sites = directory.join(runahead_sites::file_name());
        let agent = cache::install_agent(directory, agent).ok()?;
        SiteTable::load_or_update(&sites, &libraries).ok()?;
        Some(Files { agent, sites, tsc_per_us: clock::tsc_per_us(Some(directory)) })
    })
}

/// Puts the agent and its session into the environment.
fn enlist(environment: &mut Vec<(OsString, OsString)>, options: &Options, files: &Files) {
    let session = Session {
        mode: options.mode,
        agent: files.agent.as_os_str().as_bytes(),
        sites: files.sites.as_os_str().as_bytes(),
        stats: b"",
        tsc_per_us: files.tsc_per_us,
        horizon: options.horizon,
        depth: options.depth,
        test: options.test,
    };
    let Some(text) = session::format(&session) else { return };
    let preload = environment.iter().find(|(name, _)| name == "LD_PRELOAD");
    let mut value = files.agent.clone().into_os_string().into_vec();
    for entry in
        preload.iter().flat_map(|(_, old)| old.as_bytes().split(|byte| b": ".contains(byte)))
    {
        if !entry.is_empty() && entry != files.agent.as_os_str().as_bytes() {
            value.push(b':');
            value.extend(entry);
        }
    }
    environment.retain(|(name, _)| name != "LD_PRELOAD" && name != SESSION_VARIABLE);
    environment.push(("LD_PRELOAD".into(), OsString::from_vec(value)));
    environment.push((SESSION_VARIABLE.into(), text));
}

/// `execve(2)`; returns only to tell why it failed.
fn execute(path: &Path, command: &[OsString], environment: &[(OsString, OsString)]) -> Failure {
    let name = command[0].as_os_str();
    let variables =
        environment.iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
    // Arguments and variables came as C strings, so none holds a NUL.
    let strings = |texts: &mut dyn Iterator<Item = Vec<u8>>| -> Vec<CString> {
        texts.filter_map(|text| CString::new(text).ok()).collect()
    };
    let file = strings(&mut std::iter::once(path.as_os_str().as_bytes().to_vec()));
    let arguments = strings(&mut command.iter().map(|word| word.as_bytes().to_vec()));
    let variables = strings(&mut variables.into_iter());
    let errno = execve(&file[0], &arguments, &variables);
    if errno == libc::ENOEXEC && resolve::is_text(path) {
        // As execvp(3) does: the shell runs what has no `#!`.
        let shell = CString::new(SHELL).unwrap_or_default();
        let words = [std::slice::from_ref(&shell), &file, &arguments[1..]].concat();
        execve(&shell, &words, &variables);
    }
    failure_of(name, path, errno)
}

fn failure_of(name: &OsStr, path: &Path, errno: i32) -> Failure {
    let text = Failure::error_text(errno);
    match errno {
        libc::ENOENT => match resolve::script_interpreter(path) {
            Some(interpreter) => {
                let text = format!("{}: bad interpreter: {text}", interpreter.display());
                Failure::new(126, name, &text)
            }
            None if path.exists() => {
                Failure::new(127, name, "cannot execute: required file not found")
            }
            None => Failure::new(127, name, &text),
        },
        libc::ENOEXEC => Failure::new(126, name, &format!("cannot execute binary file: {text}")),
        _ => Failure::new(126, name, &text),
    }
}

/// Returns the error number; what was inherited is as it was found.
fn execve(path: &CString, arguments: &[CString], variables: &[CString]) -> i32 {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, variables) = (pointers(arguments), pointers(variables));
    inherited::restore();
    // SAFETY: three C strings or null-terminated arrays of them, alive until
    // the call returns.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), variables.as_ptr()) };
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)
}
