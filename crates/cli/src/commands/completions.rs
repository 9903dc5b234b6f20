//! `runahead completions` and `runahead man-pages`: made from the same definitions
//! as `--help`, so that they cannot drift from it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use clap_complete::Shell;

/// Print shell completions
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  runahead completions bash > ~/.local/share/bash-completion/completions/runahead
  runahead completions zsh > \"${fpath[1]}/_runahead\"
  runahead completions fish > ~/.config/fish/completions/runahead.fish")]
pub struct Completions {
    /// For which shell
    shell: Shell,
}

/// Write the man pages
#[derive(Debug, Args)]
pub struct ManPages {
    /// Directory for the pages (section 1); made if it does not exist
    directory: PathBuf,
}

/// Prints the completions of `command`.
///
/// # Errors
/// They cannot be written.
pub fn complete(arguments: &Completions, mut command: clap::Command) -> anyhow::Result<ExitCode> {
    // It panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "runahead", &mut script);
    let mut to = io::stdout();
    to.write_all(&script).and_then(|()| to.flush()).context(super::NotPrinted)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes one page for the command and one for each subcommand.
///
/// # Errors
/// They cannot be written.
pub fn manual(arguments: &ManPages, command: clap::Command) -> anyhow::Result<ExitCode> {
    let directory: &Path = &arguments.directory;
    fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command, directory))
        .with_context(|| format!("write man pages into {}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}
