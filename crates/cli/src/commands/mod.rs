//! The subcommands, one file each.

mod bench;
mod run;
mod slowdisk;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Hides I/O latency from unmodified programs by speculative execution.
///
/// `runahead CMD` is short for `runahead run CMD`.
#[derive(Debug, Parser)]
#[command(name = "runahead", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    /// Measure programs with and without runahead (root)
    Bench(bench::Bench),
    /// Mount an emulated disk array, for tests, benchmarks and demos (root)
    Slowdisk(slowdisk::Slowdisk),
}

/// Runs the subcommand that the arguments name.
pub fn run() -> anyhow::Result<ExitCode> {
    match Cli::parse_from(with_default_command(std::env::args_os())).command {
        Command::Bench(command) => bench::run(command),
        Command::Run(command) => Ok(run::run(command)),
        Command::Slowdisk(command) => slowdisk::run(command),
    }
}

/// Puts `run` before the first argument unless that names a subcommand or
/// asks about the command itself. So options before CMD are those of `run`,
/// and a program that has a subcommand's name is run by `runahead run NAME`.
fn with_default_command(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let is_our_own = |first: &OsString| {
        let word = first.to_string_lossy();
        matches!(&*word, "-h" | "--help" | "-V" | "--version" | "help")
            || Cli::command().get_subcommands().any(|known| known.get_name() == word)
    };
    if arguments.get(1).is_some_and(|first| !is_our_own(first)) {
        arguments.insert(1, "run".into());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(words: &[&str]) -> String {
        let words = words.iter().map(OsString::from);
        with_default_command(words).join(std::ffi::OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn run_is_the_default() {
        assert_eq!(completed(&["runahead", "grep", "run"]), "runahead run grep run");
        assert_eq!(completed(&["runahead", "--depth", "4", "ls"]), "runahead run --depth 4 ls");
        assert_eq!(completed(&["runahead", "--", "run"]), "runahead run -- run");
        assert_eq!(completed(&["runahead", "run", "ls"]), "runahead run ls");
        assert_eq!(completed(&["runahead", "slowdisk", "check"]), "runahead slowdisk check");
        assert_eq!(completed(&["runahead", "--help"]), "runahead --help");
        assert_eq!(completed(&["runahead"]), "runahead");
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn everything_after_the_program_belongs_to_it() {
        for (words, expected) in [
            (&["runahead", "ls", "--mode", "x", "-h"][..], &["ls", "--mode", "x", "-h"][..]),
            (&["runahead", "--mode=observe", "--", "--odd", "--"], &["--odd", "--"]),
            (&["runahead", "run", "a", "--", "b"], &["a", "--", "b"]),
        ] {
            let parsed = Cli::parse_from(with_default_command(words.iter().map(OsString::from)));
            let Command::Run(run) = parsed.command else { panic!("not run: {words:?}") };
            assert_eq!(run.command(), expected);
        }
    }
}
