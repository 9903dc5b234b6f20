//! Starting a program on one of the sides: plainly, observed, or under
//! Runahead.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use runahead_sim::recording::Recording;
use serde::{Deserialize, Serialize};

use crate::device_counts::Counts;
use crate::digest::{self, Digest};
use crate::place::Place;
use crate::process::{self, CommandSpec, Finished, Output, ThreadTime, Usage};
use crate::statistics::Statistics;
use crate::stranger::{Stranger, give};

/// How long after the program's end its statistics may still be written.
const STATISTICS_WAIT: Duration = Duration::from_secs(10);

/// What a program runs under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Nothing.
    Plain,
    /// `runahead run --mode observe`: its stalls are counted.
    Observe,
    /// `runahead run`.
    Runahead,
}

/// Everything that a case needs to run once.
#[derive(Debug)]
pub struct Launch<'a> {
    /// What to run under.
    pub side: Side,
    /// The `runahead` executable.
    pub runahead: &'a Path,
    /// Who runs the command, if not this process's user. Servers have a user
    /// of their own.
    pub stranger: Option<&'a Stranger>,
    /// Further options of `runahead run`.
    pub run_options: &'a [String],
    /// Whether statistics are asked for. A process beside the program collects
    /// them; where all processors are busy, to wait for it takes 10 to 20 ms,
    /// which no user has who does not ask.
    pub counts: bool,
    /// Whether reads are recorded; for [`Side::Observe`].
    pub records: bool,
    /// Where the data lies.
    pub place: &'a Place,
    /// Longest time that a run may take.
    pub limit: Duration,
}

/// What one run showed.
#[derive(Debug)]
pub struct Measured {
    /// Wall-clock time, seconds.
    pub elapsed_s: f64,
    /// What the program used.
    pub usage: Usage,
    /// What its first thread did with its time, where that is known.
    pub first_thread: Option<ThreadTime>,
    /// What the device did.
    pub counts: Counts,
    /// What Runahead counted; none on the plain side, and where nobody asked.
    pub statistics: Option<Statistics>,
    /// What it read, where that was recorded.
    pub recording: Option<Recording>,
    /// Fingerprint of everything that it printed and wrote.
    pub digest: Digest,
    /// What it printed, while this lives.
    pub output: Output,
}

/// The command for a side: itself, or under `runahead run` with further
/// options, which leaves its statistics in `statistics`, or as a user starts it,
/// who asks for none.
pub fn wrap(
    spec: &CommandSpec,
    side: Side,
    runahead: &Path,
    run_options: &[String],
    statistics: Option<&Path>,
) -> CommandSpec {
    if side == Side::Plain {
        return spec.clone();
    }
    let mut arguments = vec![OsString::from("run")];
    if let Some(file) = statistics {
        let mut word = OsString::from("--stats=");
        word.push(file);
        arguments.push(word);
    }
    if side == Side::Observe {
        arguments.push("--mode=observe".into());
    }
    arguments.extend(run_options.iter().map(OsString::from));
    arguments.push("--".into());
    arguments.push(spec.program.clone());
    arguments.extend(spec.arguments.iter().cloned());
    CommandSpec { program: runahead.into(), arguments, ..spec.clone() }
}

impl Launch<'_> {
    /// [`wrap`] for this side and these options, with an executable that the
    /// program's user may run, as that user may write `statistics`.
    pub fn wrap(&self, spec: &CommandSpec, runahead: &Path, statistics: &Path) -> CommandSpec {
        let mut options = self.run_options.to_vec();
        if self.records {
            options.push(format!("--record={}", beside(statistics).display()));
        }
        wrap(spec, self.side, runahead, &options, self.counts.then_some(statistics))
    }

    /// Runs a command once. `writes` are the files and trees that it leaves
    /// behind: they are looked at and removed, off the clock.
    ///
    /// # Errors
    /// If it cannot be run, does not end, or leaves no statistics.
    pub fn run(&self, spec: &CommandSpec, writes: &[PathBuf]) -> Result<Measured> {
        let output = Output::new()?;
        let statistics_file = output.path("statistics.json");
        let wrapped = match self.stranger {
            None => self.wrap(spec, self.runahead, &statistics_file),
            Some(stranger) => {
                give(output.directory())?;
                let spec = stranger.adopt(spec)?;
                stranger.wrap(&self.wrap(&spec, self.runahead, &statistics_file))
            }
        };
        // A run that was interrupted has left its own.
        self.place.untimed(|| remove(writes))?;
        let before = self.place.counts()?;
        let finished = process::run(&mut wrapped.command(), &output, self.limit)?;
        let counts = self.place.counts()?.since(&before);
        let statistics = self.statistics(&statistics_file)?;
        let recording = self.recording(&statistics_file)?;
        let files = self.place.untimed(|| take_away(writes))?;
        let digest = fingerprint(&finished, &output, files)?;
        Ok(Measured {
            elapsed_s: finished.elapsed_s,
            usage: finished.usage,
            first_thread: finished.first_thread,
            counts,
            statistics,
            recording,
            digest,
            output,
        })
    }

    /// The statistics that a run left; none where nobody counts.
    ///
    /// # Errors
    /// If they are not there within a few seconds, or not of version 1.
    pub fn statistics(&self, file: &Path) -> Result<Option<Statistics>> {
        if self.side == Side::Plain || !self.counts {
            return Ok(None);
        }
        awaited(|| Statistics::read(file)).context("the run left no statistics").map(Some)
    }

    /// What a run recorded beside these statistics; none where nobody records.
    ///
    /// # Errors
    /// If it is not there within a few seconds, or no recording.
    pub fn recording(&self, statistics: &Path) -> Result<Option<Recording>> {
        if !self.records {
            return Ok(None);
        }
        let read = || Ok(Recording::decode(&std::fs::read(beside(statistics))?)?);
        awaited(read).context("the run left no recording").map(Some)
    }
}

/// Where reads are recorded whose statistics go to `statistics`.
fn beside(statistics: &Path) -> PathBuf {
    statistics.with_extension("reads")
}

/// What the collector may be about to write.
fn awaited<T>(read: impl Fn() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + STATISTICS_WAIT;
    loop {
        match read() {
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            result => return result,
        }
    }
}

/// Fingerprint of a run that ended.
///
/// # Errors
/// If its output cannot be read.
pub fn fingerprint(finished: &Finished, output: &Output, files: String) -> Result<Digest> {
    let [stdout, stderr] = output.digests()?;
    Ok(Digest { status: process::describe(finished.status), stdout, stderr, files })
}

/// Fingerprint of what a program wrote, which is removed then.
///
/// # Errors
/// If it cannot be read or removed.
pub fn take_away(writes: &[PathBuf]) -> Result<String> {
    let files = digest::of_trees(writes)?;
    remove(writes)?;
    Ok(files)
}

/// Removes what a program wrote, as far as it is there.
fn remove(writes: &[PathBuf]) -> Result<()> {
    for path in writes {
        let Ok(metadata) = std::fs::symlink_metadata(path) else { continue };
        let removed = if metadata.is_dir() {
            std::fs::remove_dir_all(path)
        } else {
            std::fs::remove_file(path)
        };
        removed.with_context(|| format!("remove {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_has_its_command() {
        let spec = CommandSpec::new("grep", "/d").arg("--").arg("x").env("A", "b");
        let with = |side, statistics| {
            let options = ["--depth=8".to_owned()];
            wrap(&spec, side, Path::new("/bin/ra"), &options, statistics)
        };
        let wrapped = |side| with(side, Some(Path::new("/tmp/s")));
        let words = |spec: &CommandSpec| {
            let mut words = vec![spec.program.clone()];
            words.extend(spec.arguments.clone());
            words.iter().map(|word| word.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(words(&wrapped(Side::Plain)), ["grep", "--", "x"]);
        assert_eq!(
            words(&wrapped(Side::Runahead)),
            ["/bin/ra", "run", "--stats=/tmp/s", "--depth=8", "--", "grep", "--", "x"]
        );
        assert_eq!(words(&wrapped(Side::Observe))[3], "--mode=observe");
        assert_eq!(
            words(&with(Side::Runahead, None)),
            ["/bin/ra", "run", "--depth=8", "--", "grep", "--", "x"]
        );
        let kept = wrapped(Side::Runahead);
        assert_eq!((kept.directory, kept.environment), (spec.directory, spec.environment));
    }

    #[test]
    fn what_was_written_is_fingerprinted_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("file"), "x").unwrap();
        let writes = [tree.clone(), directory.path().join("never-written")];
        let first = take_away(&writes).unwrap();
        assert!(!tree.exists());
        assert_ne!(take_away(&writes).unwrap(), first);
        std::fs::write(&tree, "of an interrupted run").unwrap();
        remove(&writes).unwrap();
        assert!(!tree.exists());
    }
}
