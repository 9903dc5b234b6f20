//! `runahead bench explicit`, and what `faults` and `quick` share with it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use runahead_bench::apps::{self, Application, Metadata};
use runahead_bench::explicit::{self, ExplicitOptions};
use runahead_bench::promised::{self, Promised};
use runahead_bench::results::{self, Results};
use runahead_bench::{plot, table};

use super::common::{Common, RESULTS, executable, file_names, place};
use crate::commands::print;

#[derive(Debug, Args)]
pub struct Explicit {
    /// Only these applications (see --list)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub app: Vec<String>,
    /// Only these cases of applications that have several
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub case: Vec<String>,
    /// List the applications and end
    #[arg(long)]
    pub list: bool,
    /// Names and inodes in memory at the start (warm), or not (cold), or both
    /// one after the other, instead of each application's own choice
    #[arg(long, value_name = "STATE")]
    pub metadata: Option<MetadataChoice>,
    /// Runs of each side
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub runs: u16,
    /// Size of the data relative to the full one
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    pub scale: f64,
    /// One spinning process per processor beside the programs
    #[arg(long)]
    pub busy: bool,
    /// Run the programs as a user who owns nothing of the data and has no
    /// privilege
    #[arg(long)]
    pub unprivileged: bool,
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub drawn: Drawn,
}

#[derive(Debug, Args)]
pub struct Drawn {
    /// Draw the elapsed times here: .svg or .png, both without an ending
    /// [default: beside the JSON file]
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Quick {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    drawn: Drawn,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum MetadataChoice {
    Warm,
    Cold,
    Both,
}

impl MetadataChoice {
    fn states(self) -> Vec<Metadata> {
        match self {
            Self::Warm => vec![Metadata::Warm],
            Self::Cold => vec![Metadata::Cold],
            Self::Both => vec![Metadata::Warm, Metadata::Cold],
        }
    }
}

/// Runs it, or lists its applications.
pub fn run(arguments: Explicit) -> Result<ExitCode> {
    if arguments.list {
        return list(&apps::all());
    }
    waiting("explicit", arguments, &apps::all())
}

/// The short selection.
pub fn quick(arguments: &Quick) -> Result<ExitCode> {
    let Quick { common, drawn } = arguments;
    explicit_io(&base("quick", common)?, common, drawn)
}

/// Applications one after the other, alternating the two sides: those that are named,
/// or those of `all` that can be run.
pub fn waiting(benchmark: &str, arguments: Explicit, all: &[&dyn Application]) -> Result<ExitCode> {
    let common = &arguments.common;
    let leaves_out = arguments.app.is_empty();
    let names = || all.iter().map(|app| app.name().to_owned()).collect();
    let options = ExplicitOptions {
        apps: if leaves_out { names() } else { arguments.app },
        leaves_out,
        cases: arguments.case,
        metadata: arguments.metadata.map(MetadataChoice::states),
        runs: usize::from(arguments.runs),
        scale: arguments.scale,
        busy: arguments.busy,
        unprivileged: arguments.unprivileged,
        ..base(benchmark, common)?
    };
    explicit_io(&options, common, &arguments.drawn)
}

/// Options of a benchmark with the quick selection.
fn base(benchmark: &str, common: &Common) -> Result<ExplicitOptions> {
    Ok(ExplicitOptions {
        benchmark: benchmark.into(),
        place: place(common),
        seed: common.seed(),
        install: common.install,
        runahead: executable(common.runahead.as_deref())?,
        run_options: common.run_option.clone(),
        keep: RESULTS.into(),
        ..ExplicitOptions::quick()
    })
}

fn explicit_io(options: &ExplicitOptions, common: &Common, drawn: &Drawn) -> Result<ExitCode> {
    let mut written = None;
    let results = explicit::run(options, |results| {
        let json = json_path(results, common);
        results::write_json(&json, results)?;
        written = Some(json);
        Ok(())
    })?;
    // Drawn before anything is printed, which may find no reader; where it cannot be
    // drawn, the results are printed all the same.
    let drawn = written.map(|json| {
        let plot_path = drawn.plot.clone().unwrap_or_else(|| json.with_extension(""));
        (plot::draw(&results, &plot_path), json)
    });
    print(table::table2(&results))?;
    print(table::verdict(&results))?;
    if let Some((plots, json)) = drawn {
        print(format_args!("Written: {}", file_names(&json, &plots?)))?;
    }
    // Of a part of the data, as the demonstration has, nothing is promised.
    let kept = promised::of(&results).iter().all(Promised::is_kept)
        && promised::slowed(&results).is_empty();
    Ok(if results.is_whole() && kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn json_path(results: &Results, common: &Common) -> PathBuf {
    common.json.clone().unwrap_or_else(|| {
        let name = format!("{}-{}", results.benchmark, results.profile).replace(' ', "-");
        Path::new(RESULTS).join(name + ".json")
    })
}

/// Names applications and says what they are.
pub fn list(apps: &[&dyn Application]) -> Result<ExitCode> {
    for app in apps {
        let papers = if app.is_papers() { " [the paper's]" } else { "" };
        print(format_args!("{:16} {}{papers}", app.name(), app.about()))?;
    }
    Ok(ExitCode::SUCCESS)
}
