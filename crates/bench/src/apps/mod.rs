//! The applications: what each is, its data, its commands.

mod agrep;
mod faults;
mod gnuld;
mod postgresql;
mod server;

mod today;
mod xdataslice;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::launch::{Launch, Measured};
use crate::place::Place;
use crate::process::CommandSpec;
use crate::tools::Tool;

/// Whether names and inodes are in memory when a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metadata {
    /// They are; file contents are not.
    Warm,
    /// Nothing is.
    Cold,
}

impl Metadata {
    /// The word in tables and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Cold => "cold",
        }
    }
}

/// What an application's data and cases are made with.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Directory of its data, on the measured device.
    pub directory: PathBuf,
    /// Directory for what takes long to make, on the machine's disk.
    pub cache: PathBuf,
    /// Size of the data relative to the full one.
    pub scale: f64,
    /// Seed of the data.
    pub seed: u64,
}

/// A program, or several queries to one, measured with and without Runahead.
pub trait Application: Sync {
    /// Name on the command line and in results.
    fn name(&self) -> &'static str;

    /// What it does, in one line, with the size of its data at scale 1.
    fn about(&self) -> &'static str;

    /// Whether it is one of the paper's (section 3.1).
    fn is_papers(&self) -> bool {
        false
    }

    /// Programs that must be installed.
    fn tools(&self) -> &'static [Tool];

    /// Programs by which its data is another: whether they are there, and which.
    fn data_tools(&self) -> &'static [Tool] {
        &[]
    }

    /// Names of its cases, where it has several.
    fn case_names(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// States of the metadata to measure in.
    fn metadata(&self) -> &'static [Metadata] {
        &[Metadata::Cold]
    }

    /// Whether it reads data through mapped memory, too, which no recording
    /// shows.
    fn maps_data(&self) -> bool {
        false
    }

    /// Name of its data; applications with the same name share it.
    fn data(&self) -> &'static str {
        self.name()
    }

    /// Makes the data in the empty directory of `setup`.
    ///
    /// # Errors
    /// If something cannot be made.
    fn prepare(&self, setup: &Setup) -> Result<()>;

    /// What to run on the data.
    ///
    /// # Errors
    /// If the data is not as [`Application::prepare`] left it.
    fn cases(&self, setup: &Setup) -> Result<Vec<Box<dyn Case>>>;
}

/// One thing that is measured and reported by itself.
pub trait Case {
    /// Name within the application; empty when it is the only case.
    fn name(&self) -> &str {
        ""
    }

    /// What is run, for the reader.
    fn shown(&self) -> String;

    /// Runs it once on caches that are cold.
    ///
    /// # Errors
    /// If it cannot be run at all. A wrong exit status is no error here: it
    /// shows when outputs are compared, and that of the first by [`Case::is_good`].
    fn run(&self, launch: &Launch<'_>) -> Result<Measured>;

    /// Whether a run by itself did what it should: two that fail are alike, too.
    fn is_good(&self, run: &Digest) -> bool {
        run.ended_with(&[0])
    }

    /// Shares of the work that cannot overlap with each other, for the ideal.
    ///
    /// # Errors
    /// If the run did not tell.
    fn phases(&self, _run: &Measured) -> Result<Vec<f64>> {
        Ok(vec![1.0])
    }
}

/// A case that is one command.
#[derive(Clone, Debug)]
pub struct CommandCase {
    /// The command.
    pub spec: CommandSpec,
    /// What it writes.
    pub writes: Vec<PathBuf>,
    /// Exit statuses of one that did what it should.
    pub good: &'static [i32],
}

/// Of a program that looks for something: found, or not.
pub const FOUND_OR_NOT: &[i32] = &[0, 1];

impl Case for CommandCase {
    fn shown(&self) -> String {
        self.spec.display()
    }

    fn run(&self, launch: &Launch<'_>) -> Result<Measured> {
        launch.run(&self.spec, &self.writes)
    }

    fn is_good(&self, run: &Digest) -> bool {
        run.ended_with(self.good)
    }
}

/// Every application, the paper's first.
pub fn all() -> Vec<&'static dyn Application> {
    let mut all: Vec<&'static dyn Application> =
        vec![&agrep::Agrep, &gnuld::Gnuld, &postgresql::PostgreSql, &xdataslice::XDataSlice];
    all.extend(today::ALL.iter().map(|app| app as &dyn Application));
    all
}

/// Those that wait in page faults, for `bench faults`.
pub fn faults() -> Vec<&'static dyn Application> {
    faults::ALL.iter().map(|app| app as &dyn Application).collect()
}

/// The applications of these names; all of [`all`] for an empty list.
///
/// # Errors
/// For an unknown name; the message lists those there are.
pub fn by_names(names: &[String]) -> Result<Vec<&'static dyn Application>> {
    if names.is_empty() {
        return Ok(all());
    }
    let find = |name: &String| {
        all().into_iter().chain(faults()).find(|app| app.name() == name).with_context(|| {
            let known: Vec<_> = all().iter().chain(&faults()).map(|app| app.name()).collect();
            format!("no application {name:?}: give some of {}", known.join(", "))
        })
    };
    names.iter().map(find).collect()
}

/// What the data in a directory was made with.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Prepared {
    version: String,
    scale: f64,
    seed: u64,
    /// The programs found that it depends on.
    #[serde(default)]
    tools: Vec<PathBuf>,
}

impl Prepared {
    fn wanted(app: &dyn Application, scale: f64, seed: u64) -> Self {
        let tools = app.data_tools().iter().filter_map(Tool::find).collect();
        Self { version: env!("CARGO_PKG_VERSION").into(), scale, seed, tools }
    }
}

/// Makes sure that an application's data is on the device: it stays there
/// between runs as long as the device is up, and is made with timing off.
/// Returns the setup to run with, which is that through the overlayfs where
/// there is one; empty the caches first.
///
/// # Errors
/// If it cannot be made.
pub fn prepare(
    app: &dyn Application,
    place: &Place,
    cache: &Path,
    scale: f64,
    seed: u64,
) -> Result<Setup> {
    let home = place.store().join("runahead-bench");
    let directory = home.join(app.data());
    let setup = Setup { directory, cache: cache.to_owned(), scale, seed };
    let wanted = Prepared::wanted(app, scale, seed);
    // Beside the data, so that programs that walk it do not meet it.
    let marker = home.join(format!("{}.json", app.data()));
    place.untimed(|| {
        let found = fs::read(&marker).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if found.as_ref() == Some(&wanted) {
            return Ok(());
        }
        let _ = fs::remove_file(&marker);
        if setup.directory.exists() {
            fs::remove_dir_all(&setup.directory)
                .with_context(|| format!("remove {}", setup.directory.display()))?;
        }
        fs::create_dir_all(&setup.directory)
            .with_context(|| format!("create {}", setup.directory.display()))?;
        app.prepare(&setup)?;
        fs::write(&marker, serde_json::to_vec(&wanted)?)
            .with_context(|| format!("write {}", marker.display()))
    })?;
    let directory = place.root().join("runahead-bench").join(app.data());
    Ok(Setup { directory, ..setup })
}

/// Keeps a list of files beside the data.
fn save_list(path: &Path, files: &[PathBuf]) -> Result<()> {
    let lines: Vec<&str> = files.iter().filter_map(|file| file.to_str()).collect();
    fs::write(path, lines.join("\n")).with_context(|| format!("write {}", path.display()))
}

/// The list of files that [`save_list`] kept.
fn load_list(path: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    if text.is_empty() {
        bail!("{} lists no files: remove it and run again", path.display());
    }
    Ok(text.lines().map(str::to_owned).collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::tools::tool;

    /// One that needs, and whose data is made by, a program that is not there.
    #[derive(Debug)]
    pub struct Lacking;

    impl Application for Lacking {
        fn name(&self) -> &'static str {
            "lacking"
        }

        fn about(&self) -> &'static str {
            "nothing"
        }

        fn tools(&self) -> &'static [Tool] {
            const { &[tool("sh", "dash"), tool("no-such-program-41", "some-package")] }
        }

        fn data_tools(&self) -> &'static [Tool] {
            self.tools()
        }

        fn prepare(&self, _setup: &Setup) -> Result<()> {
            Ok(())
        }

        fn cases(&self, _setup: &Setup) -> Result<Vec<Box<dyn Case>>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn names_are_unique_and_found() {
        let mut names: Vec<_> = all().iter().map(|app| app.name()).collect();
        assert_eq!(by_names(&[]).unwrap().len(), names.len());
        names.extend(faults().iter().map(|app| app.name()));
        assert_eq!(by_names(&["agrep".into()]).unwrap()[0].name(), "agrep");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().len() + faults().len());
        let error = by_names(&["nonesuch".into()]).err().unwrap().to_string();
        assert!(error.contains("nonesuch") && error.contains("xdataslice"), "{error}");
        assert_eq!(all().iter().filter(|app| app.is_papers()).count(), 4);
    }

    #[test]
    fn applications_that_share_data_are_told_apart() {
        let shared = all().iter().filter(|app| app.data() == "tree2000").count();
        assert!(shared >= 3, "{shared}");
    }

    #[test]
    fn data_that_lacks_what_a_program_makes_is_made_anew() {
        let of = |app: &dyn Application| Prepared::wanted(app, 1.0, 1);
        let before = r#"{"version": "VERSION", "scale": 1.0, "seed": 1}"#;
        let before = before.replace("VERSION", env!("CARGO_PKG_VERSION"));
        let before: Prepared = serde_json::from_str(&before).unwrap();
        assert_eq!(of(&agrep::Agrep), before, "no program makes a difference");
        let lacking = of(&Lacking);
        assert_eq!(lacking.tools, [tool("sh", "dash").find().unwrap()]);
        assert_ne!(lacking, before, "sh was not there");
        let harm = crate::harm::HarmData.data_tools().iter().map(|tool| tool.program);
        assert_eq!(harm.collect::<Vec<_>>(), ["bzip2", "zip", "sqlite3", "h5mkgrp"]);
    }

    #[test]
    fn lists_survive() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        save_list(&path, &["a/b".into(), "c".into()]).unwrap();
        assert_eq!(load_list(&path).unwrap(), ["a/b", "c"]);
        save_list(&path, &[]).unwrap();
        assert!(load_list(&path).is_err());
    }
}
