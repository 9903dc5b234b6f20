//! Says on standard error what is being done.

use std::fmt::Display;
use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};

/// Says something that stays; nobody may read it, for which `eprintln!` would panic.
pub fn say(lines: impl Display) {
    let _ = writeln!(io::stderr(), "{lines}");
}

/// A line that changes on a terminal; nothing otherwise.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// For so many steps.
    pub fn new(steps: u64) -> Self {
        let bar = ProgressBar::new(steps);
        if let Ok(style) = ProgressStyle::with_template("[{pos}/{len} {elapsed}] {wide_msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Begins the next step.
    pub fn step(&self, what: &str) {
        self.0.inc(1);
        self.0.set_message(what.to_owned());
    }

    /// There are so many steps more than was said.
    pub fn extend(&self, steps: u64) {
        self.0.inc_length(steps);
    }

    /// Says something without being a step.
    pub fn note(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    /// Prints lines above the changing one.
    pub fn print(&self, lines: &str) {
        self.0.suspend(|| say(lines));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
