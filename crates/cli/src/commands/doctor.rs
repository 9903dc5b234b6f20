//! `runahead doctor`: what this machine permits.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use indicatif::ProgressBar;

use super::print;
use crate::doctor::{Check, Diagnosis, Standing};

/// Say what this machine permits, and what is lost without it
///
/// Each mechanism is tried in a process of its own; version numbers are not
/// trusted, and nothing lasting remains. At last a small program is run with
/// speculation.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0 when programs can be run ahead here, 1 when not.

Examples:
  runahead doctor
  runahead doctor /data /mnt/objects     # these file systems too
  runahead doctor --json | jq '.checks[] | select(.lost)'")]
pub struct Doctor {
    /// Files or directories whose file systems are looked at besides /, $HOME,
    /// the working directory and /tmp
    paths: Vec<PathBuf>,

    /// For machines
    #[arg(long)]
    json: bool,
}

/// Looks and prints.
///
/// # Errors
/// The findings cannot be written.
pub fn run(arguments: &Doctor) -> anyhow::Result<ExitCode> {
    let line =
        if io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    let say = |what: &str| {
        line.set_message(what.to_owned());
        line.tick();
    };
    let diagnosis = Diagnosis::make(&arguments.paths, &say);
    line.finish_and_clear();
    if arguments.json {
        print(format_args!("{:#}", diagnosis.to_json()))?;
    } else {
        print(table(&diagnosis.checks, io::stdout().is_terminal()))?;
        print(verdict(&diagnosis))?;
    }
    Ok(if diagnosis.fatal().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn table(checks: &[Check], is_terminal: bool) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if !is_terminal {
        table.set_width(160);
    }
    table.set_header(["", "mechanism", "", "found", "lost without it, and the next step"]);
    let mut area = "";
    for check in checks {
        let shown = if check.area == area { "" } else { check.area };
        area = check.area;
        let mut standing = Cell::new(check.standing.word()).set_alignment(CellAlignment::Left);
        if is_terminal {
            standing = match check.standing {
                Standing::Works => standing.fg(Color::Green),
                Standing::Reduced | Standing::Missing => standing.fg(Color::Yellow),
                Standing::Fatal => standing.fg(Color::Red),
                Standing::Fact => standing,
            };
        }
        table.add_row([
            Cell::new(shown),
            Cell::new(&check.name),
            standing,
            Cell::new(&check.found),
            Cell::new(&check.lost),
        ]);
    }
    table
}

fn verdict(diagnosis: &Diagnosis) -> String {
    let fatal = diagnosis.fatal();
    if fatal.is_empty() {
        return "\nPrograms can be run ahead here.".into();
    }
    let causes = fatal
        .iter()
        .map(|check| format!("\n  {}: {}\n    {}", check.name, check.found, check.lost));
    format!("\nPrograms cannot be run ahead here:{}", causes.collect::<String>())
}
