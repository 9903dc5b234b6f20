//! Agrep: text search.

use anyhow::Result;

use super::{Application, Case, CommandCase, FOUND_OR_NOT, Setup, load_list, save_list};
use crate::generate::scaled;
use crate::generate::tree::{self, TreeSpec};
use crate::process::CommandSpec;
use crate::tools::{GREP, Tool};

/// Section 3.1: 8971 files, 105 MB, searched for a string that is in none.
#[derive(Debug)]
pub struct Agrep;

const FILES: u64 = 8971;
const BYTES: u64 = 105_000_000;
/// No word of the generated trees; short enough for the fast path of grep.
const ABSENT: &str = "no_such_string_q7";

impl Application for Agrep {
    fn name(&self) -> &'static str {
        "agrep"
    }

    fn about(&self) -> &'static str {
        "grep -F for an absent string in 8971 source-like files, 105 MB"
    }

    fn is_papers(&self) -> bool {
        true
    }

    fn tools(&self) -> &'static [Tool] {
        &[GREP]
    }

    fn prepare(&self, setup: &Setup) -> Result<()> {
        let spec = TreeSpec {
            name: "agrep",
            files: scaled(FILES, setup.scale, 8),
            bytes: scaled(BYTES, setup.scale, 1 << 16),
            spread: 8.0,
            needle: None,
        };
        let files = tree::make(&setup.directory.join("src"), &spec, setup.seed)?;
        save_list(&setup.directory.join("files.list"), &files)
    }

    fn cases(&self, setup: &Setup) -> Result<Vec<Box<dyn Case>>> {
        let files = load_list(&setup.directory.join("files.list"))?;
        let spec = CommandSpec::new("grep", setup.directory.join("src"));
        let spec = spec.args(["-F", "-e", ABSENT, "--"]).args(files);
        Ok(vec![Box::new(CommandCase { spec, writes: Vec::new(), good: FOUND_OR_NOT })])
    }
}
