//! The `runahead` command.

mod agent_image;
mod arena;
mod commands;
mod doctor;
mod fingerprint;
mod inherited;
mod launch;
mod stats;

use std::io::{self, Write};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: arena::Arena = arena::Arena;

fn main() -> ExitCode {
    inherited::started();
    match commands::run() {
        Ok(code) => code,
        Err(error) => {
            if commands::is_unread(&error) {
                inherited::end_without_readers();
            }
            // Standard error may be closed; the status says it all the same.
            let _ = writeln!(io::stderr(), "runahead: {error:#}");
            ExitCode::FAILURE
        }
    }
}
