//! `runahead run`: run a program with speculation.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use runahead_protocol::session::Mode;

use crate::agent_image::{AGENT, Agent};
use crate::launch::{self, Options, Target};
use crate::stats::Destination;
use runahead_usual::words::Words;

/// Run a program, running ahead of its reads
///
/// The program is started as it would be without runahead: same process id,
/// standard streams, signals and exit status. While it waits for storage, a
/// copy of it computes ahead and brings what it will read into memory.
///
/// What cannot have the agent in it (statically linked, set-user-ID and
/// 32-bit programs) runs plainly.
#[derive(Debug, PartialEq, clap::Args)]
#[command(after_help = "\
Exit status: the program's own; 127 where it is not found, 126 where it cannot
be executed, 2 where the options are wrong.

Environment: RUNAHEAD=off runs the program plainly.

Examples:
  runahead grep -rF needle /data
  runahead --stats ld -o program *.o
  runahead --mode observe --stats=run.json -- grep -rF needle /data
  runahead --record trace grep -rF needle /data; runahead sim --replay trace")]
pub struct Run {
    /// Print a summary on standard error at the end, or write JSON into FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    stats: Option<Option<PathBuf>>,

    /// What to do: speculate, measure stalls only, or nothing [default: speculate]
    #[arg(long, value_parser = mode())]
    mode: Option<Mode>,

    /// Record where in which file the program and its children read, for
    /// `runahead sim --replay FILE`; implies --mode observe
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Reads to run ahead by; auto: from measured times
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = count)]
    horizon: u64,

    /// Prefetches in flight; auto: what the device is found to use
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = count)]
    depth: u64,

    /// Testing switches, a set of bits
    #[arg(long, hide = true, value_name = "BITS", default_value = "0")]
    test: u64,

    /// Another agent library than the one carried inside
    #[arg(long, hide = true, value_name = "FILE")]
    agent: Option<PathBuf>,

    /// The program and its arguments
    // Only the first of them, where there are many: see `commands::run`.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Run {
    /// A command without any option.
    pub fn plain(command: Vec<OsString>) -> Run {
        let (stats, mode, record, agent) = (None, None, None, None);
        Run { stats, mode, record, horizon: 0, depth: 0, test: 0, agent, command }
    }

    /// The program and its arguments, as far as they were parsed.
    pub fn command(&self) -> &[OsString] {
        &self.command
    }
}

fn mode() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new([Mode::Speculate, Mode::Observe, Mode::Off].map(Mode::name))
        .map(|name| Mode::from_name(name.as_bytes()).unwrap_or_default())
}

/// `auto` (0) or a number from 1 on.
fn count(text: &str) -> Result<u64, String> {
    match text {
        "auto" => Ok(0),
        _ => match text.parse() {
            Ok(0) | Err(_) => Err("a number from 1 on, or auto".into()),
            Ok(number) => Ok(number),
        },
    }
}

/// Replaces this process by the program, whose words are `command`; returns
/// only where that failed.
pub fn run(arguments: Run, command: Words) -> ExitCode {
    let report = match &arguments.stats {
        None => None,
        Some(None) => Some(Destination::Stderr),
        Some(Some(path)) => match Destination::for_path(path) {
            Ok(destination) => Some(destination),
            Err(error) => {
                return fail(1, &format!("--stats={}: cannot be written: {error}", path.display()));
            }
        },
    };
    let mode = match (arguments.mode, &arguments.record) {
        (None | Some(Mode::Observe), Some(_)) => Mode::Observe,
        (Some(mode), Some(_)) => {
            return fail(2, &format!("--record goes with --mode observe, not {}", mode.name()));
        }
        (mode, None) => mode.unwrap_or_default(),
    };
    let record = match arguments.record.as_deref().map(|path| (path, Target::new(path))) {
        Some((path, Err(error))) => {
            return fail(1, &format!("--record {}: cannot be written: {error}", path.display()));
        }
        Some((_, Ok(target))) => Some(target),
        None => None,
    };
    let options = Options {
        report,
        record,
        mode,
        horizon: arguments.horizon,
        depth: arguments.depth,
        test: arguments.test,
    };
    let other = match arguments.agent.as_deref().map(|path| (path, std::fs::read(path))) {
        Some((path, Err(error))) => {
            return fail(1, &format!("--agent {}: cannot be read: {error}", path.display()));
        }
        Some((_, Ok(other))) => Some(other),
        None => None,
    };
    let agent = other.as_deref().map_or(AGENT, Agent::other);
    let Err(failure) = launch::launch(options, agent, command);
    fail(failure.status, &failure.message)
}

fn fail(status: u8, message: &str) -> ExitCode {
    // The status says it all the same where nobody reads that.
    super::say(message);
    ExitCode::from(status)
}
