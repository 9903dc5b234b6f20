//! The subcommands, one file each.

mod bench;
mod compile;
mod completions;
mod doctor;
mod hint;
mod profile;
mod run;
mod sim;
mod slowdisk;
mod tune;

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};
use runahead_compile::Language;

use runahead_usual::words::Given;
use runahead_usual::{not_run, plain_command};

use crate::inherited;

/// Hides I/O latency from unmodified programs by speculative execution.
///
/// `runahead CMD` is short for `runahead run CMD`.
#[derive(Debug, Parser)]
#[command(
    name = "runahead",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    override_usage = "runahead [OPTIONS] CMD [ARGS]...\n       runahead <COMMAND>",
    after_help = "\
OPTIONS before CMD are those of `runahead run --help`.

Environment: RUNAHEAD=off runs a program, and what it starts, plainly.

Examples:
  runahead grep -rF needle /data
  runahead --stats sha256sum -- *.iso     # and say what it did
  RUNAHEAD=off runahead make"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    Doctor(doctor::Doctor),
    Profile(profile::Profile),
    Hint(hint::Hint),
    Manager(hint::Manager),
    /// Measure programs with and without runahead (root)
    Bench(bench::Bench),
    Sim(sim::Sim),
    #[command(name = "cc", about = "Compile C by clang with inserted prefetch and release")]
    C(compile::Compile),
    #[command(name = "c++", about = "Compile C++ by clang++ with inserted prefetch and release")]
    Cxx(compile::Compile),
    #[command(name = "fc", about = "Compile Fortran by flang with inserted prefetch and release")]
    Fortran(compile::Compile),
    /// Mount emulated disks, network volumes and object stores (root)
    Slowdisk(slowdisk::Slowdisk),
    Tune(tune::Tune),
    Completions(completions::Completions),
    // Not `man`: that is a program, and `runahead man` runs it.
    #[command(hide = true)]
    ManPages(completions::ManPages),
}

// `runahead run` by itself: a launch must not pay for the definitions of all the
// other subcommands. No doc comment, which would stand in its help.
#[derive(Debug, Parser)]
#[command(name = "runahead run", bin_name = "runahead run", version)]
struct RunAlone {
    #[command(flatten)]
    run: run::Run,
}

/// Words that are looked at for the options of `run`: all of those with their
/// values, the words `run` and `--` and the program are fewer.
const HEAD_WORDS: usize = 20;

/// Runs the program that the arguments name if that is a usual launch
/// ([`runahead_usual`]); before Rust's runtime has started.
pub fn run_usual(given: Given) {
    runahead_usual::attempt(crate::agent_image::AGENT.fingerprint, given);
}

/// Runs the subcommand that the arguments name.
pub fn run() -> anyhow::Result<ExitCode> {
    if let Some(command) = plain_command(inherited::words(0)) {
        return Ok(run::run(run::Run::plain(Vec::new()), command));
    }
    let head = inherited::words(0).head(HEAD_WORDS);
    if let Some(arguments) = arguments_of_run(&head) {
        return Ok(run_program(RunAlone::parse_from(arguments).run, head.len()));
    }
    let all = inherited::words(0).head(usize::MAX);
    let count = all.len();
    match Cli::parse_from(all).command {
        Command::Bench(command) => bench::run(command),
        Command::C(command) => compile::run(Language::C, &command),
        Command::Cxx(command) => compile::run(Language::Cxx, &command),
        Command::Fortran(command) => compile::run(Language::Fortran, &command),
        Command::Completions(command) => completions::complete(&command, Cli::command()),
        Command::ManPages(command) => completions::manual(&command, Cli::command()),
        Command::Doctor(command) => doctor::run(&command),
        Command::Hint(command) => hint::run(&command),
        Command::Manager(command) => hint::manage(&command),
        Command::Profile(command) => profile::run(&command),
        Command::Run(command) => Ok(run_program(command, count)),
        Command::Sim(command) => sim::run(command),
        Command::Slowdisk(command) => slowdisk::run(command),
        Command::Tune(command) => tune::run(&command),
    }
}

/// The context of an error by which something was not printed.
#[derive(Debug)]
pub struct NotPrinted;

impl Display for NotPrinted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("write to standard output")
    }
}

/// Prints a line.
///
/// # Errors
/// It cannot be written: nobody may read it any more or a disk may be full, for which
/// `println!` would panic.
pub fn print(line: impl Display) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{line}").context(NotPrinted)
}

/// Says something on standard error, which nobody may read either.
pub fn say(line: impl Display) {
    let _ = writeln!(io::stderr(), "runahead: {line}");
}

/// Whether the reader of what was to be printed has gone.
pub fn is_unread(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<io::Error>();
    error.is::<NotPrinted>() && cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// Runs the program whose words begin where those that `parsed` was made of,
/// the first `seen` of all, leave off being options.
fn run_program(parsed: run::Run, seen: usize) -> ExitCode {
    let first = seen - parsed.command().len();
    run::run(parsed, inherited::words(first))
}

/// The arguments of `run`, which is the default: without the word `run`
/// where that is the first. So options before CMD are those of `run`, and a
/// program that has a subcommand's name is run by `runahead run NAME`.
fn arguments_of_run(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let first = arguments.get(1)?;
    if not_run().any(|word| first.as_encoded_bytes() == word) {
        return None;
    }
    let skipped = if first == "run" { 2 } else { 1 };
    Some([&arguments[..1], &arguments[skipped..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use runahead_usual::words::Words;
    use std::ffi::{CString, OsStr};

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    fn pointers(words: &[&str]) -> Words {
        let strings = words.iter().map(|word| CString::new(*word).unwrap().into_raw());
        let array = strings.map(|word| word.cast_const()).chain([std::ptr::null()]);
        // SAFETY: C strings that are never freed, and a null pointer.
        unsafe { Words::of(Vec::leak(array.collect())) }
    }

    #[test]
    fn run_is_the_default() {
        for (given, expected) in [
            (&["runahead", "grep", "run"][..], &["runahead", "grep", "run"][..]),
            (&["runahead", "--depth", "4", "ls"], &["runahead", "--depth", "4", "ls"]),
            (&["runahead", "--", "run"], &["runahead", "--", "run"]),
            (&["runahead", "run", "bench"], &["runahead", "bench"]),
        ] {
            assert_eq!(arguments_of_run(&words(given)), Some(words(expected)));
        }
        for given in [&["runahead", "slowdisk", "check"][..], &["runahead", "-h"], &["runahead"]] {
            assert_eq!(arguments_of_run(&words(given)), None);
        }
    }

    #[test]
    fn every_subcommand_is_known_before_parsing() {
        Cli::command().debug_assert();
        let defined: Vec<String> =
            Cli::command().get_subcommands().map(|known| known.get_name().to_owned()).collect();
        for name in defined.iter().filter(|name| *name != "run") {
            assert!(not_run().any(|word| word == name.as_bytes()), "{name} is missing in NOT_RUN");
        }
        for word in not_run().filter(|word| !word.starts_with(b"-") && *word != b"help") {
            let known = defined.iter().any(|known| known.as_bytes() == word);
            assert!(known, "{} is not a subcommand", String::from_utf8_lossy(word));
        }
    }

    #[test]
    fn everything_after_the_program_belongs_to_it() {
        for (given, expected) in [
            (&["runahead", "ls", "--mode", "x", "-h"][..], &["ls", "--mode", "x", "-h"][..]),
            (&["runahead", "--mode=observe", "--", "--odd", "--"], &["--odd", "--"]),
            (&["runahead", "run", "a", "--", "b"], &["a", "--", "b"]),
        ] {
            let arguments = arguments_of_run(&words(given)).unwrap();
            assert_eq!(RunAlone::parse_from(arguments).run.command(), expected);
        }
    }

    #[test]
    fn a_command_without_options_is_what_parsing_makes_of_it() {
        for given in [
            &["runahead", "ls"][..],
            &["runahead", "run", "ls", "-l", "--", "--stats"],
            &["runahead", "run", "--", "--odd", "--", "-x"],
            &["runahead", "--", "--"],
        ] {
            let command = plain_command(pointers(given)).unwrap();
            let command = command.iter().map(OsStr::to_owned).collect();
            let arguments = arguments_of_run(&words(given)).unwrap();
            assert_eq!(run::Run::plain(command), RunAlone::parse_from(arguments).run);
        }
        for given in [
            &["runahead"][..],
            &["runahead", "run"],
            &["runahead", "--"],
            &["runahead", "doctor"],
            &["runahead", "--stats", "ls"],
            &["runahead", "run", "-h"],
        ] {
            assert!(plain_command(pointers(given)).is_none(), "{given:?}");
        }
    }

    #[test]
    fn the_options_of_run_end_within_the_words_looked_at() {
        let run = RunAlone::command();
        let words: usize = run
            .get_arguments()
            .filter(|argument| !argument.is_positional())
            .map(|argument| 1 + argument.get_num_args().map_or(1, |range| range.max_values()))
            .sum();
        assert!(3 + words < HEAD_WORDS, "{words}");
    }
}
