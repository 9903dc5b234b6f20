//! Starts a program with the agent in it: finds it, makes the agent and the
//! site table available as files, and replaces this process by it.
//!
//! Whatever goes wrong on the way to the agent, the program still runs; only
//! what would keep it from running without Runahead too is an error.

pub mod cache;
mod clock;
mod collector;
mod confinement;
mod detached;
mod devices;
mod execute;
mod files;
mod learnt;
mod libraries;
mod recorder;
mod resolve;
mod session;
mod usual;

use std::convert::Infallible;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use runahead_policy::first;
use runahead_protocol::session::{
    Mode, OPT_OUT_VARIABLE, SESSION_VARIABLE, Session, TELLING_VARIABLES, TEST_WITH_TABLE,
    TEST_WITHOUT_MEMORY_CONTROL,
};

use crate::agent_image::Agent;
use runahead_usual::words::Words;

use crate::inherited;
use crate::stats::{Destination, Report};
pub use clock::is_invariant as is_tsc_invariant;
use collector::{Collector, Task};
pub use confinement::{Confinement, look as look_at_confinement};
pub use detached::fork_unseen;
use files::Provided;
pub use libraries::of as libraries_of;
use recorder::Recorder;
pub use recorder::Target;
use resolve::Kind;
pub use resolve::SHELL;

/// Beginning of the variable that names what is preloaded.
const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// What the user asked for.
#[derive(Debug, Default)]
pub struct Options {
    /// Where the statistics go; `None`: none are made.
    pub report: Option<Destination>,
    /// Where the trace of what is read goes; `None`: none is made.
    pub record: Option<Target>,
    /// What the agent does.
    pub mode: Mode,
    /// Prefetch horizon in reads; 0: worked out.
    pub horizon: u64,
    /// Prefetches in flight; 0: worked out.
    pub depth: u64,
    /// Testing switches ([`runahead_protocol::session`]).
    pub test: u64,
}

impl Options {
    /// Whether nothing was asked for.
    fn is_default(&self) -> bool {
        let Options { report, record, mode, horizon, depth, test } = self;
        report.is_none()
            && record.is_none()
            && *mode == Mode::default()
            && [*horizon, *depth, *test] == [0; 3]
    }
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
}

/// The system's words for an error, as shells print them.
fn error_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Replaces this process by the program.
///
/// # Errors
/// [`Failure`] where the program cannot be executed.
pub fn launch(options: Options, agent: Agent<'_>, command: Words) -> Result<Infallible, Failure> {
    let started = Instant::now();
    inherited::survive_size_limit();
    let path = resolve::find(command.first())?;
    let mut losses = Vec::new();
    let (interpreter, provided) = agent_files(&options, agent, &path, &mut losses).unzip();
    let (mode, filters) = permitted(options.mode, provided.is_some(), &mut losses);
    let is_usual = options.is_default()
        && losses.is_empty()
        && filters == 0
        && matches!(provided, Some(Provided::Installed(_)));
    let recorder = options.record.and_then(|target| recorder(target, command, &losses));
    let reads = recorder.as_ref().map(Recorder::fd);
    let report = options.report.map(|destination| Report {
        destination,
        command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        mode: mode.name(),
        losses,
    });
    let task = Task { report, recorder };
    let reports = task.is_any();
    let held = match &provided {
        Some(Provided::InMemory(files)) => files.descriptors().to_vec(),
        _ => Vec::new(),
    };
    let collector = if reports || !held.is_empty() {
        collector::start(task, &held, started)
            .map_err(|error| without_collector(reports, &error))
            .ok()
    } else {
        None
    };
    let files = match provided {
        Some(Provided::Installed(files)) => Some(files),
        // Nobody holds them: the program runs plainly.
        Some(Provided::InMemory(ref files)) => collector.as_ref().map(|held| files.held_by(held)),
        None => None,
    };
    let mut environment = inherited::environment();
    if let Some(files) = files {
        let statistics = collector.as_ref().filter(|_| reports).map(Collector::statistics_path);
        let reads = collector.as_ref().zip(reads).map(|(held, fd)| held.path_of(fd));
        let devices = devices::known();
        // Tests are about what happens, not about whether it pays.
        let is_test = options.test & !TEST_WITHOUT_MEMORY_CONTROL != 0;
        let has_table = !is_test || options.test & TEST_WITH_TABLE != 0;
        let learnt = if has_table { learnt::provide() } else { None };
        let learnt = learnt.unwrap_or_default();
        let session = Session {
            mode,
            agent: files.agent.as_os_str().as_bytes(),
            sites: files.sites.as_os_str().as_bytes(),
            stats: statistics.as_deref().unwrap_or_default().as_bytes(),
            reads: reads.as_deref().unwrap_or_default().as_bytes(),
            tsc_per_us: files.tsc_per_us,
            horizon: options.horizon,
            depth: options.depth,
            filters,
            learnt: learnt.as_os_str().as_bytes(),
            devices: devices.as_bytes(),
            test: options.test,
        };
        if is_usual && !files.spare_memory && !session.learnt.is_empty() {
            let text = session::format(&session);
            if let Some((interpreter, text)) = interpreter.as_deref().zip(text.as_deref()) {
                usual::remember(&usual::Found {
                    fingerprint: agent.fingerprint,
                    interpreter,
                    agent: &files.agent,
                    sites: &files.sites,
                    cache: &files.cache,
                    learnt: &learnt,
                    session: text,
                });
            }
        }
        enlist(&mut environment, &session);
    }
    let failure = execute::execute(&path, command, environment);
    if let Some(collector) = collector {
        collector.dismiss();
    }
    Err(failure)
}

/// Room for a recording; what was asked for and cannot be had is worth a word.
fn recorder(target: Target, command: Words, losses: &[String]) -> Option<Recorder> {
    let name = Path::new(command.first()).file_name().unwrap_or_default().to_string_lossy();
    Recorder::new(target, name.into_owned(), losses.to_vec())
        .inspect_err(|error| {
            let _ = writeln!(std::io::stderr(), "runahead: nothing is recorded: {error}");
        })
        .ok()
}

/// The program's dynamic linker and the files that it needs, or why it has to
/// run plainly.
fn agent_files(
    options: &Options,
    agent: Agent<'_>,
    path: &Path,
    losses: &mut Vec<String>,
) -> Option<(PathBuf, Provided)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if options.mode == Mode::Off {
        return None;
    }
    if std::env::var_os(OPT_OUT_VARIABLE).is_some_and(|value| value == "off") {
        losses.push(format!("{name}: RUNAHEAD=off is set, so it ran plainly"));
        return None;
    }
    if let Some(variable) = TELLING_VARIABLES.iter().find(|name| std::env::var_os(name).is_some()) {
        losses.push(format!(
            "{name}: {variable} is set, which shows what is loaded, so it ran plainly"
        ));
        return None;
    }
    let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    if inherited::environment().iter().filter(|variable| variable.starts_with(PRELOAD)).count() > 1
    {
        losses.push(format!("{name}: LD_PRELOAD is set more than once, so it ran plainly"));
        return None;
    }
    if first::names_one(preloaded.as_bytes()) {
        losses.push(format!("{name}: {}; it ran plainly", resolve::Plain::Sanitized.text()));
        return None;
    }
    if agent.bytes.is_empty() {
        losses
            .push(format!("{name}: this runahead was built without the agent, so it ran plainly"));
        return None;
    }
    if runahead_usual::limits_are_low() {
        losses.push(format!(
            "{name}: addresses, data or the stack are limited to little (ulimit -v, -d, -s), \
             so it ran plainly"
        ));
        return None;
    }
    // Who asks for something is told of the program as it is.
    if options.is_default() && runahead_usual::is_tiny() {
        return None;
    }
    match resolve::classify(path) {
        Kind::Dynamic { interpreter } => {
            let provided = files::provide(agent, &interpreter, losses).map_err(|error| {
                losses.push(format!("{name}: no memory file ({error}), so it ran plainly"))
            });
            Some((interpreter, provided.ok()?))
        }
        Kind::Plain(why) => {
            losses.push(format!("{name}: {}; it ran plainly", why.text()));
            None
        }
    }
}

/// The mode that the seccomp filters here permit, and how many there are.
fn permitted(mode: Mode, enlisted: bool, losses: &mut Vec<String>) -> (Mode, u64) {
    if !enlisted {
        return (mode, 0);
    }
    match confinement::look() {
        Confinement::Free => (mode, 0),
        Confinement::Filtered(filters) => (mode, filters),
        Confinement::NoSpeculation(filters, why) => {
            losses.push(format!("{why}: stalls are measured, without speculation"));
            (Mode::Observe, filters)
        }
        Confinement::StayOut(why) => {
            losses.push(format!("{why}: it ran plainly"));
            (mode, 0)
        }
    }
}

/// A report that was asked for and cannot be had is worth a word.
fn without_collector(was_asked_for: bool, error: &std::io::Error) {
    if was_asked_for {
        let _ = writeln!(
            std::io::stderr(),
            "runahead: no statistics and no trace: the process that collects them could not be started ({error})"
        );
    }
}

/// Puts the agent and its session into the environment: the agent in front of
/// the list that the dynamic linker uses, everything else where and as it was,
/// so that the agent can take both out again without a trace.
fn enlist(environment: &mut Vec<Vec<u8>>, session: &Session<'_>) {
    let Some(text) = session::format(session) else { return };
    let name = SESSION_VARIABLE.as_bytes();
    environment
        .retain(|variable| !variable.strip_prefix(name).is_some_and(|rest| rest.starts_with(b"=")));
    match environment.iter_mut().find(|variable| variable.starts_with(PRELOAD)) {
        Some(variable) => {
            let others = variable.split_off(PRELOAD.len());
            // Inherited from a program under another runahead.
            let ours = [session.agent, b":"].concat();
            let others = others.strip_prefix(ours.as_slice()).unwrap_or(&others);
            variable.extend(&ours);
            variable.extend(others);
        }
        None => environment.push([PRELOAD, session.agent].concat()),
    }
    environment.push([name, b"=", text.as_bytes()].concat());
}

/// The file that a word names where the kernel does not know it, and the shell runs it: text
/// without `#!` (execvp(3)).
pub fn script_for_the_shell(name: &OsStr) -> Option<PathBuf> {
    resolve::find(name).ok().filter(|file| resolve::is_text(file))
}

/// The directories in which the agent cannot be installed, best first and each
/// with the reason, and then the one in which it is; none where each run has a
/// memory file of its own.
pub fn agent_directory() -> (Option<PathBuf>, Vec<String>) {
    let mut unusable = Vec::new();
    let mut usable = |directory: PathBuf, prepared: Result<(), cache::Unusable>| match prepared {
        Ok(()) => Some(directory),
        Err(why) => {
            unusable.push(format!("{}: {why}", directory.display()));
            None
        }
    };
    let memory = cache::in_memory();
    let prepared = cache::prepare_in_memory(&memory);
    let found = usable(memory, prepared).or_else(|| {
        cache::candidates().into_iter().find_map(|directory| {
            let prepared = cache::prepare(&directory);
            usable(directory, prepared)
        })
    });
    (found, unusable)
}

/// The dynamic linker of a program into which the agent can be loaded.
pub fn interpreter_of(program: &Path) -> Option<PathBuf> {
    match resolve::classify(program) {
        Kind::Dynamic { interpreter } => Some(interpreter),
        Kind::Plain(_) => None,
    }
}
