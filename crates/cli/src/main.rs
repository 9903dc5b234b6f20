//! The `runahead` command.

mod agent_image;
mod arena;
mod commands;
mod doctor;
mod fingerprint;
mod inherited;
mod launch;
mod stats;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: arena::Arena = arena::Arena;

fn main() -> ExitCode {
    match commands::run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("runahead: {error:#}");
            ExitCode::FAILURE
        }
    }
}
