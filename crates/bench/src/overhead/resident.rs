//! What is measured with everything in memory: programs, and the data that they
//! read again and again.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::run_once;
use crate::generate::tree::{self, TreeSpec};
use crate::generate::{records, repository, scaled};
use crate::process::{self, CommandSpec, Output};
use crate::progress;
use crate::table::seconds;

/// Programs are given their data so often that they run for this long.
const PROGRAM_S: f64 = 1.2;
/// But at least this long, where their data allows.
const PROGRAM_S_MIN: f64 = 1.0;
/// Records of 16 KiB of the file that is mapped: 64 MiB.
const MAPPED_RECORDS: u64 = 4096;

/// A program whose last arguments are repeated until it runs long enough.
#[derive(Debug)]
pub struct Program {
    pub base: CommandSpec,
    /// Where what is measured throws its output away: the same with an output
    /// that can be compared. A gigabyte kept in memory would take the kernel
    /// longer than all else, and differently long each time.
    pub shown: Option<CommandSpec>,
    pub repeated: Vec<String>,
    pub times: usize,
}

impl Program {
    /// It, with its data as often as it needs.
    pub fn spec(&self) -> CommandSpec {
        let all = std::iter::repeat_n(&self.repeated, self.times).flatten();
        self.base.clone().args(all)
    }

    /// What shows its output, with its data once.
    pub fn shown(&self) -> Option<CommandSpec> {
        Some(self.shown.clone()?.args(&self.repeated))
    }
}

/// Finds out how often a program must be given its data.
pub fn calibrate(name: &str, program: &mut Program) -> Result<()> {
    // Longest argument list that is safe with the usual stack limit, bytes.
    const ARGUMENTS_BYTES_MAX: usize = 1 << 20;
    let output = Output::new()?;
    let argument_bytes: usize = program.repeated.iter().map(|word| word.len() + 9).sum();
    let times_max = ARGUMENTS_BYTES_MAX.checked_div(argument_bytes).unwrap_or(1).max(1);
    run_once(&program.spec(), &output)?;
    let mut elapsed_s = 0.0;
    // The start weighs less the longer it runs: a few steps lead there.
    for _ in 0..4 {
        elapsed_s = run_once(&program.spec(), &output)?.0;
        if elapsed_s >= PROGRAM_S_MIN || program.times == times_max {
            break;
        }
        let wanted = (program.times as f64 * PROGRAM_S / elapsed_s).ceil() as usize;
        program.times = wanted.clamp(1, times_max);
    }
    if elapsed_s < PROGRAM_S_MIN {
        let elapsed = seconds(elapsed_s);
        progress::say(format_args!("note: {name} runs for {elapsed} only: its ratio is coarse"));
    }
    Ok(())
}

/// Data that stays in memory: it is small and read again and again.
#[derive(Debug)]
pub struct Resident {
    pub directory: PathBuf,
    /// A file of records of 16 KiB.
    pub records: PathBuf,
}

impl Resident {
    /// Made, or found as it was made before.
    pub fn prepare(data: &Path, scale: f64) -> Result<Self> {
        let directory = data.join(format!("scale-{scale}"));
        let this = Self { records: directory.join("records"), directory };
        if this.directory.is_dir() {
            return Ok(this);
        }
        let partial = data.join("partial");
        let _ = fs::remove_dir_all(&partial);
        fs::create_dir_all(&partial).with_context(|| format!("create {}", partial.display()))?;
        let spec = |files, bytes| TreeSpec {
            name: "resident",
            files: scaled(files, scale, 8),
            bytes: scaled(bytes, scale, 1 << 16),
            spread: 6.0,
            needle: Some(("needle_in_memory_17", 50)),
        };
        tree::make(&partial.join("tree"), &spec(2500, 50_000_000), 1)?;
        repository::make(&partial.join("repository"), &spec(12_000, 200_000_000), 1)?;
        repository::forget_times(&partial.join("repository"))?;
        records::make(&partial.join("records"), 64)?;
        fs::rename(&partial, &this.directory)
            .with_context(|| format!("rename {}", partial.display()))?;
        Ok(this)
    }

    /// The same once more, times included, which archives contain.
    pub fn copy(&self) -> Result<Self> {
        let directory = self.directory.with_added_extension("second");
        let this = Self { records: directory.join("records"), directory };
        if !this.directory.is_dir() {
            let partial = this.directory.with_added_extension("partial");
            let _ = fs::remove_dir_all(&partial);
            process::copy_tree(&self.directory, &partial)?;
            fs::rename(&partial, &this.directory)
                .with_context(|| format!("rename {}", partial.display()))?;
        }
        Ok(this)
    }

    /// The file for programs that map one.
    pub fn mapped(&self, scale: f64) -> Result<PathBuf> {
        let (path, partial) = (self.directory.join("mapped"), self.directory.join("partial"));
        if !path.is_file() {
            records::make(&partial, scaled(MAPPED_RECORDS, scale, 64))?;
            fs::rename(&partial, &path).with_context(|| format!("rename {}", partial.display()))?;
        }
        Ok(path)
    }

    /// What reads them.
    pub fn programs(&self) -> Vec<(&'static str, Program)> {
        let program = |program: &str, arguments: &[&str], repeated: &[&str]| Program {
            base: CommandSpec::new(program, &self.directory).args(arguments),
            shown: None,
            repeated: repeated.iter().map(|word| (*word).to_owned()).collect(),
            times: 1,
        };
        let words = ["-C", "repository", "grep", "--threads=1", "-cF", "needle_in_memory_17"];
        let mut git_grep = program("git", &words, &["HEAD"]);
        for (name, value) in repository::ENVIRONMENT {
            git_grep.base = git_grep.base.env(name, value);
        }
        let files = walkdir::WalkDir::new(self.directory.join("tree")).sort_by_file_name();
        let files: Vec<String> = files
            .into_iter()
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_file())
            .filter_map(|entry| {
                let path = entry.path().strip_prefix(&self.directory).ok()?;
                Some(path.to_str()?.to_owned())
            })
            .collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        // The trees are hard links to one: each is to be read.
        let tar = |archive| program("tar", &["cf", archive, "--hard-dereference"], &["tree"]);
        // To /dev/null it would not read anything.
        let tar = Program { shown: Some(tar("-").base), ..tar("/dev/zero") };
        vec![
            ("grep", program("grep", &["-rF", "needle_in_memory_17"], &["tree"])),
            ("sha256sum", program("sha256sum", &[], &files)),
            ("tar", tar),
            ("git grep", git_grep),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_repeated() {
        let program = Program {
            base: CommandSpec::new("grep", "/").arg("x"),
            shown: Some(CommandSpec::new("grep", "/").arg("y")),
            repeated: vec!["a".into(), "b".into()],
            times: 2,
        };
        assert_eq!(program.spec().arguments, ["x", "a", "b", "a", "b"]);
        assert_eq!(program.shown().unwrap().arguments, ["y", "a", "b"]);
    }
}
