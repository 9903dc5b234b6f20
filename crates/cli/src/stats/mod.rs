//! What `--stats` reports: counters of every process under one `runahead`,
//! as a summary for people or as JSON for machines.

mod destination;
mod json;
pub mod shared;
mod text;
mod totals;

use std::time::Duration;

pub use destination::Destination;
use runahead_protocol::stats::SLOTS_MAX;
use shared::Shared;
pub use totals::{Program, Totals};

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this status.
    Status(i32),
    /// By this signal.
    Signal(i32),
}

impl Ended {
    /// The status that a shell shows: 128 and the signal's number for a
    /// signal.
    pub fn shell_status(self) -> i32 {
        match self {
            Ended::Status(status) => status,
            Ended::Signal(signal) => 128 + signal,
        }
    }
}

/// A report to be written when the program has ended.
#[derive(Debug)]
pub struct Report {
    /// Where it goes.
    pub destination: Destination,
    /// The command, for the heading.
    pub command: Vec<String>,
    /// The mode's word.
    pub mode: &'static str,
    /// What the launcher could not do, a line each.
    pub losses: Vec<String>,
}

impl Report {
    /// Writes it. A destination that fails now is past telling anybody.
    pub fn write(&self, shared: &Shared, elapsed: Duration, ended: Option<Ended>) {
        let totals = Totals::gather(shared.slots(), shared.taken());
        let text = if self.destination.wants_json() {
            json::report(self, &totals, elapsed, ended)
        } else {
            text::report(self, &totals, elapsed, ended)
        };
        let _ = self.destination.write(text.as_bytes());
    }

    /// Every loss: the launcher's own and those of the processes.
    fn all_losses(&self, totals: &Totals) -> Vec<String> {
        let of_programs = totals.programs.iter().flat_map(|program| {
            program.losses.iter().map(|loss| format!("{}: {}", program.name, loss.text()))
        });
        let crowded = (totals.crowded > 0).then(|| {
            format!(
                "{} processes more than statistics have places for ({SLOTS_MAX}): the last \
                 are counted together, as one",
                totals.crowded
            )
        });
        self.losses.iter().cloned().chain(of_programs).chain(crowded).collect()
    }
}
