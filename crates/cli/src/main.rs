//! The `runahead` command.

mod commands;

use std::process::ExitCode;

fn main() -> ExitCode {
    match commands::run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("runahead: {error:#}");
            ExitCode::FAILURE
        }
    }
}
