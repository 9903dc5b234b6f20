//! `bench explicit`: applications one after the other on one place.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, ensure};

use crate::apps::{self, Application, Case, Metadata};
use crate::busy::Busy;
use crate::harness::{self, Method, Subject};
use crate::place::{Place, PlaceOptions};
use crate::progress::{self, Progress};
use crate::results::{NotRun, Results};
use crate::stranger::Stranger;
use crate::table;
use crate::tools;

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct ExplicitOptions {
    /// Name in the results.
    pub benchmark: String,
    /// Names of applications; empty: all.
    pub apps: Vec<String>,
    /// Names of the cases to measure, of all the applications; empty: all.
    pub cases: Vec<String>,
    /// States of the metadata, instead of each application's own.
    pub metadata: Option<Vec<Metadata>>,
    /// Where.
    pub place: PlaceOptions,
    /// Runs of each side.
    pub runs: usize,
    /// Size of the data relative to the full one, above 0.
    pub scale: f64,
    /// Seed of the data.
    pub seed: u64,
    /// Keep every processor busy with other work meanwhile.
    pub busy: bool,
    /// As a user who owns nothing of the data.
    pub unprivileged: bool,
    /// Install what is missing.
    pub install: bool,
    /// Leave out, and name, applications whose programs cannot be had; otherwise that
    /// is an error.
    pub leaves_out: bool,
    /// The `runahead` executable.
    pub runahead: PathBuf,
    /// Further options of `runahead run`.
    pub run_options: Vec<String>,
    /// Where outputs that differ are kept.
    pub keep: PathBuf,
}

impl ExplicitOptions {
    /// A short selection on `cloud`: what the demonstration shows too.
    pub fn quick() -> Self {
        Self {
            benchmark: "quick".into(),
            apps: ["grep2000", "sha256sum", "xdataslice"].map(str::to_owned).to_vec(),
            cases: Vec::new(),
            metadata: Some(vec![Metadata::Warm]),
            place: PlaceOptions { profile: "cloud".into(), ..PlaceOptions::default() },
            runs: 3,
            scale: 0.25,
            seed: 1,
            busy: false,
            unprivileged: false,
            install: false,
            leaves_out: false,
            runahead: PathBuf::from("runahead"),
            run_options: Vec::new(),
            keep: PathBuf::from("bench-results"),
        }
    }
}

/// Where things that take long to make are kept between runs: XDG's cache
/// directory.
///
/// # Errors
/// If neither XDG_CACHE_HOME nor HOME is set, or it cannot be made.
pub fn cache_directory() -> Result<PathBuf> {
    let given = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = given("XDG_CACHE_HOME")
        .or_else(|| Some(given("HOME")?.join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME is set: set one")?;
    let cache = base.join("runahead/bench");
    // The launcher uses no cache directory that others may write.
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&cache)
        .with_context(|| format!("create {}", cache.display()))?;
    Ok(cache)
}

/// Measures applications. `so_far` is given the results after each case, so
/// that a run that is broken off leaves what it found. An application that
/// fails on the way is named in the results and does not keep the others from
/// being measured.
///
/// # Errors
/// If something is missing, nothing at all could be measured, or `so_far`
/// fails.
pub fn run(
    options: &ExplicitOptions,
    mut so_far: impl FnMut(&Results) -> Result<()>,
) -> Result<Results> {
    ensure!(options.runs > 0, "--runs 0: give at least 1");
    ensure!(
        options.scale.is_finite() && options.scale > 0.0,
        "--scale {}: give a factor above 0",
        options.scale
    );
    let apps = with_cases(apps::by_names(&options.apps)?, &options.cases)?;
    let (apps, not_run) = with_tools(apps, options)?;
    let place = Place::open(&options.place)?;
    let mut results = Results::begin(&options.benchmark, place.name(), options.scale, options.seed);
    results.device = Some(place.device());
    results.busy = options.busy;
    results.not_run = not_run;
    let cache = cache_directory()?;
    let is_only = apps.len() == 1;
    for app in apps {
        let measured = measure_app(app, options, &place, &cache, &mut results, &mut so_far)
            .with_context(|| format!("the application {} on {}", app.name(), place.name()));
        let Err(error) = measured else { continue };
        if is_only {
            return Err(error);
        }
        results.not_run.push(not_run_for(app, &error));
        so_far(&results)?;
    }
    ensure!(!results.cases.is_empty(), "nothing could be measured: the causes stand above");
    Ok(results)
}

/// Says why, too.
fn not_run_for(app: &dyn Application, error: &Error) -> NotRun {
    let why = format!("{error:#}");
    progress::say(format_args!("NOT RUN: {why}"));
    NotRun { app: app.name().into(), why }
}

type Applications = Vec<&'static dyn Application>;

/// Those that have one of these cases; all where none is named.
///
/// # Errors
/// If no application has a case of such a name.
fn with_cases(mut apps: Applications, cases: &[String]) -> Result<Applications> {
    let known: Vec<&str> = apps.iter().flat_map(|app| app.case_names()).collect();
    for case in cases {
        let there = match known.as_slice() {
            [] => "the applications have one each".to_owned(),
            known => format!("give some of {}", known.join(", ")),
        };
        ensure!(known.contains(&case.as_str()), "no case {case:?}: {there}");
    }
    let is_wanted = |name: &&str| cases.iter().any(|case| case == name);
    apps.retain(|app| cases.is_empty() || app.case_names().iter().any(is_wanted));
    Ok(apps)
}

/// Those whose programs are there, or are installed now, and those that are left out.
///
/// # Errors
/// If programs are missing, and nothing may be left out.
fn with_tools(
    apps: Applications,
    options: &ExplicitOptions,
) -> Result<(Applications, Vec<NotRun>)> {
    let (mut there, mut not_run) = (Vec::new(), Vec::new());
    for app in apps {
        let had = tools::ensure_installed(app.tools(), options.install)
            .with_context(|| format!("the application {} cannot run", app.name()));
        match had {
            Ok(()) => there.push(app),
            Err(error) if options.leaves_out => not_run.push(not_run_for(app, &error)),
            Err(error) => return Err(error),
        }
    }
    Ok((there, not_run))
}

fn measure_app(
    app: &dyn Application,
    options: &ExplicitOptions,
    place: &Place,
    cache: &Path,
    results: &mut Results,
    so_far: &mut impl FnMut(&Results) -> Result<()>,
) -> Result<()> {
    let preparing = Progress::new(0);
    preparing.note(&format!("preparing the data of {}", app.name()));
    let setup = apps::prepare(app, place, cache, options.scale, options.seed)?;
    // A new mount, so that an overlayfs sees what was prepared below it.
    place.cold()?;
    drop(preparing);
    let _busy = if options.busy { Some(Busy::start()?) } else { None };
    let stranger = options.unprivileged.then(|| Stranger::new(&options.runahead)).transpose()?;
    let method = Method {
        runahead: stranger.as_ref().map_or(&options.runahead, Stranger::runahead),
        stranger: stranger.as_ref(),
        run_options: &options.run_options,
        runs: options.runs,
        keep: &options.keep,
    };
    let metadata = options.metadata.as_deref().unwrap_or(app.metadata());
    let wanted = |case: &dyn Case| {
        options.cases.is_empty() || options.cases.iter().any(|name| name == case.name())
    };
    for case in app.cases(&setup)?.iter().filter(|case| wanted(case.as_ref())) {
        for metadata in metadata {
            let progress = Progress::new(2 * options.runs as u64 + 1);
            let subject = Subject {
                place,
                setup: &setup,
                app: app.name(),
                maps_data: app.maps_data(),
                metadata: *metadata,
            };
            let result = harness::measure(case.as_ref(), &subject, &method, &progress)?;
            progress.print(&table::line(&result));
            results.cases.push(result);
            so_far(results)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::tests::Lacking;

    #[test]
    fn an_application_without_its_programs_is_left_out_where_none_was_named() {
        let apps = || -> Applications { vec![&Lacking, apps::all()[0]] };
        let mut options = ExplicitOptions { leaves_out: true, ..ExplicitOptions::quick() };
        let (there, not_run) = with_tools(apps(), &options).unwrap();
        let names: Vec<&str> = there.iter().map(|app| app.name()).collect();
        assert_eq!(names, ["agrep"]);
        assert!(matches!(not_run.as_slice(), [one] if one.app == "lacking"), "{not_run:?}");
        assert!(not_run[0].why.contains("apt-get install some-package"), "{not_run:?}");
        options.leaves_out = false;
        assert!(with_tools(apps(), &options).is_err());
    }

    #[test]
    fn cases_are_of_the_applications() {
        let of = |apps: Applications, case: &str| with_cases(apps, &[case.to_owned()]);
        let found = of(apps::all(), "scan").unwrap();
        assert_eq!(found.iter().map(|app| app.name()).collect::<Vec<_>>(), ["postgresql"]);
        let said = |apps| of(apps, "scna").err().unwrap().to_string();
        assert!(said(apps::all()).contains("merge-join"), "{}", said(apps::all()));
        assert!(said(vec![apps::all()[0]]).contains("one each"));
        assert_eq!(with_cases(apps::all(), &[]).unwrap().len(), apps::all().len());
    }
}
