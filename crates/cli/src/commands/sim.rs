//! `runahead sim`: TIP on a simulated disk array.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, ContentArrangement, Table, TableComponent, presets};
use runahead_sim::recording::Recording;
use runahead_sim::scenario::{Policy, Scenario};
use runahead_sim::tables::{self, Comparison, SWEEP_DEPTHS};
use runahead_sim::workload::App;
use runahead_sim::{FileSpec, Program, Report, Task, thesis, trace};
use serde_json::{Value, json};

use super::{print, say};

const EXAMPLES: &str = "\
Examples:
  runahead sim                                       every application, unhinted and under TIP
  runahead sim --app davidson --disks 1,4 --policy nh,nc,tip,extended
  runahead sim --app gnuld+agrep                     two at once, both hinting
  runahead sim --app sphinx:plain+davidson           only the second hints
  runahead sim --app xds --disks 4 --sweep           stall by prefetch depth
  runahead sim --table all                           tables 6.25 and 6.26 beside the thesis's
  runahead sim --trace reads.jsonl --disclose        what perfect hints would do for a trace
  runahead --mode observe --record t ld -o a *.o     what a program reads, into the file t
  runahead sim --replay t --policy du,nh,nc,tip      and what hints would do for it

Applications: davidson, xds, sphinx, agrep, gnuld, postgres20, postgres80.

Policies:
  du             LRU and sequential readahead, without TIP and its CPU cost
  nh             TIP, the applications not hinting
  np             hints only switch readahead off
  nc, nc:DEPTH   prefetch to a fixed depth (73), no caching
  tip            the thesis's system: prefetching, clustering, caching by cost and benefit
  fixed-horizon, aggressive, forestall    what it is compared with in section 7.3
  tiptoe         tip with deep prefetching from constrained disks
  finite         tip with the finite-disk model of equation 7.5
  post-hint      tip with a queue of its own for consumed hinted blocks
  own-horizon    tip with each process's own prefetch horizon (equation 4.11)
  extended       tiptoe, finite and post-hint together

A seed gives the same run on every machine. The model is described in docs/tip.md.";

/// Simulate informed prefetching and caching on a disk array
///
/// Runs the thesis's applications (Patterson 1997), or a trace, on a modelled machine: drives
/// with seek curve, rotation and cache, striped in 64 KB units; a buffer cache of 12 MB; CPU
/// costs measured in 1997. The policy is the code that manages live hints.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, verbatim_doc_comment)]
pub struct Sim {
    /// Applications; joined by `+` they start together, with `:plain` one does not hint
    #[arg(long, value_name = "APP[+APP]", value_delimiter = ',', default_value = "all")]
    app: Vec<String>,
    /// Policies to compare
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "nh,tip")]
    policy: Vec<Policy>,
    /// Disks in the array
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,4,10",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    disks: Vec<u16>,
    /// Seeds of programs and placement; times are means over them
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1")]
    seed: Vec<u64>,
    /// Sweep the prefetch depth without caching, over these depths [default: 0 to 256]
    #[arg(long, value_name = "DEPTH", value_delimiter = ',', num_args = 0..,
          conflicts_with = "policy")]
    sweep: Option<Vec<u64>>,
    /// Print simulated fractions beside the thesis's, with mean and worst difference
    #[arg(long, value_name = "WHICH", conflicts_with_all = ["app", "sweep", "trace"])]
    table: Option<Which>,
    /// Replay a program from a file of JSON lines in place of an application
    #[arg(long, value_name = "FILE", conflicts_with_all = ["app", "sweep"])]
    trace: Option<PathBuf>,
    /// Let the trace disclose all that it reads at its start
    #[arg(long, requires = "trace")]
    disclose: bool,
    /// Replay reads recorded by `runahead --mode observe --record FILE`, with hints that name
    /// them all for policies that take hints
    #[arg(long, value_name = "FILE", conflicts_with_all = ["app", "sweep", "table", "trace"])]
    replay: Option<PathBuf>,
    /// Cache, in buffers of 8 KB, at least two more than threads read at a time [default: 1286,
    /// the thesis's]
    #[arg(long, value_name = "N", requires = "replay",
          value_parser = clap::value_parser!(u32).range(64..=1 << 24))]
    buffers: Option<u32>,
    /// Write the application's program as a trace and end
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sweep", "table", "trace", "replay"])]
    export: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The thesis's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// Table 6.25: each application alone
    Singles,
    /// Table 6.26: pairs
    Pairs,
    /// Both
    All,
}

/// Applications that start together, each hinting or not.
type Group = Vec<(App, bool)>;

/// Runs `runahead sim`.
pub fn run(command: Sim) -> Result<ExitCode> {
    if let Some(which) = command.table {
        print_tables(which, &command.disks_of_thesis(), &command.seed, command.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &command.trace {
        let program = load(path, command.disclose)?;
        ensure_they_fit(&command, &program.files)?;
        let runs = command.runs(std::slice::from_ref(&program.name), |_, policy, disks, seed| {
            let scenario = Scenario::of(Vec::new(), policy, disks, seed);
            let task = Task { program: program.clone(), hints: policy.hints() };
            let bound = scenario.bounds_of(&program).elapsed_us;
            (scenario.run_tasks(vec![task], policy.config()), Some(bound))
        });
        command.print_runs(&runs)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &command.replay {
        replay(&command, path)?;
        return Ok(ExitCode::SUCCESS);
    }
    let groups = parse_groups(&command.app)?;
    if let Some(path) = &command.export {
        let [group] = &groups[..] else {
            bail!("--export takes one application: name it by --app")
        };
        let [(app, _)] = group[..] else { bail!("--export takes one application, not a pair") };
        let file =
            File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        trace::write_trace(&app.program(command.seed[0], 0), BufWriter::new(file))
            .with_context(|| format!("cannot write {}", path.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    match &command.sweep {
        Some(depths) => command.print_sweep(&groups, depths)?,
        None => {
            let names: Vec<String> = groups.iter().map(title).collect();
            let runs = command.runs(&names, |i, policy, disks, seed| {
                let group = groups[i].iter().map(|&(app, hints)| (app, hints && policy.hints()));
                let scenario = Scenario::of(group.collect(), policy, disks, seed);
                let bound = (groups[i].len() == 1).then(|| scenario.bounds().elapsed_us);
                (scenario.run(), bound)
            });
            command.print_runs(&runs)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Simulates recorded reads.
fn replay(command: &Sim, path: &Path) -> Result<()> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let recording = Recording::decode(&bytes)
        .with_context(|| format!("{} is no recorded trace (see docs/tip.md)", path.display()))?;
    if recording.lost > 0 {
        say(format_args!(
            "the recording was full: the last {} reads are missing in {}",
            recording.lost,
            path.display()
        ));
    }
    if recording.reads.is_empty() {
        bail!(
            "{} holds no reads: the program made none, or ran plainly (static, set-user-ID): \
             `--stats` says which",
            path.display()
        );
    }
    let files = recording.files();
    let array = |disks, policy, seed| {
        let scenario = Scenario::of(Vec::new(), policy, disks, seed);
        let mut config = policy.config();
        config.buffers = command.buffers.unwrap_or(config.buffers);
        (scenario, config)
    };
    ensure_they_fit(command, &files)?;
    let programs =
        recording.programs().with_context(|| format!("{} cannot be simulated", path.display()))?;
    // Each may hold one while it waits for another.
    let (least, given) = (programs.len() + 2, command.buffers);
    if let Some(buffers) = given.filter(|buffers| (*buffers as usize) < least) {
        bail!(
            "--buffers {buffers} are too few for {} threads that read at a time: give {least} at \
             least",
            programs.len()
        );
    }
    if !command.json {
        let [reads, files] = [recording.reads.len(), recording.files.len()];
        let [threads, programs] = [recording.streams.len(), programs.len()];
        print(format_args!(
            "{reads} reads of {files} files by {threads} threads, {programs} at a time at most\n"
        ))?;
    }
    let runs = command.runs(std::slice::from_ref(&recording.name), |_, policy, disks, seed| {
        let (scenario, config) = array(disks, policy, seed);
        let tasks: Vec<Task> = programs
            .iter()
            .map(|program| Task { program: program.clone(), hints: policy.hints() })
            .collect();
        let bound = match &programs[..] {
            [program] => Some(scenario.bounds_with(program, config.buffers).elapsed_us),
            _ => None,
        };
        (scenario.run_sharing(tasks, config).expect("the files fit, as just seen"), bound)
    });
    command.print_runs(&runs)
}

/// Looks before anything is simulated whether all files lie on each of the arrays.
///
/// # Errors
/// They do not.
fn ensure_they_fit(command: &Sim, files: &[FileSpec]) -> Result<()> {
    for &disks in &command.disks {
        let fits = |&seed| Scenario::of(Vec::new(), Policy::Nh, disks, seed).fits(files);
        if !command.seed.iter().all(fits) {
            let bytes = files.iter().fold(0u64, |sum, file| sum.saturating_add(file.bytes));
            bail!(
                "the files, {} MiB, do not fit on {disks} simulated disks of 1 GB: see --disks",
                bytes >> 20
            );
        }
    }
    Ok(())
}

/// One configuration, over all seeds.
struct Run {
    name: String,
    policy: Policy,
    disks: u16,
    /// One for each seed.
    reports: Vec<Report>,
    /// Mean of the offline bounds on elapsed time, if there are any.
    bound_s: Option<f64>,
    /// Elapsed time relative to the first policy given.
    ratio: f64,
}

impl Run {
    fn mean(&self, value: impl Fn(&Report) -> u64) -> f64 {
        self.reports.iter().map(value).sum::<u64>() as f64 / self.reports.len() as f64
    }

    fn elapsed_s(&self) -> f64 {
        self.mean(|report| report.elapsed_us) / 1e6
    }

    fn json(&self) -> Value {
        let seconds = |value: fn(&Report) -> u64| self.mean(value) / 1e6;
        json!({
            "program": self.name,
            "policy": self.policy.to_string(),
            "disks": self.disks,
            "elapsed_s": self.elapsed_s(),
            "ratio": self.ratio,
            "cpu_s": seconds(|report| report.cpu_us),
            "stall_s": seconds(Report::stall_us),
            "bound_s": self.bound_s,
            "disk": {
                "busy_s": seconds(|report| report.disk_total().busy_us),
                "ios": self.mean(|report| report.disk_total().ios),
                "blocks": self.mean(|report| report.disk_total().blocks),
            },
            "cache": {
                "requests": self.mean(|report| report.stats.requests),
                "reuse_hits": self.mean(|report| report.stats.reuse_hits),
                "prefetch_hits": self.mean(|report| report.stats.prefetch_hits),
                "misses": self.mean(|report| report.stats.misses),
                "prefetched_blocks": self.mean(|report| report.stats.prefetched_blocks),
                "prefetch_ios": self.mean(|report| report.stats.prefetch_ios),
                "unused_prefetches": self.mean(|report| report.stats.unused_prefetches),
            },
            "tasks_elapsed_s": (0..self.reports[0].tasks.len())
                .map(|i| self.mean(|report| report.tasks[i].elapsed_us) / 1e6)
                .collect::<Vec<f64>>(),
        })
    }

    fn row(&self) -> Vec<String> {
        let count = |value: fn(&Report) -> u64| format!("{:.0}", self.mean(value));
        let seconds = |us: f64| format!("{:.1}", us / 1e6);
        let blocks = self.mean(|report| report.disk_total().blocks);
        let busy_us = self.mean(|report| report.disk_total().busy_us);
        vec![
            self.name.clone(),
            self.disks.to_string(),
            self.policy.to_string(),
            format!("{:.1}", self.elapsed_s()),
            format!("{:.2}", self.ratio),
            self.bound_s.map_or("–".into(), |bound| format!("{bound:.1}")),
            seconds(self.mean(|report| report.cpu_us)),
            seconds(self.mean(Report::stall_us)),
            count(|report| report.stats.reuse_hits),
            count(|report| report.stats.prefetch_hits),
            count(|report| report.stats.misses),
            count(|report| report.stats.prefetched_blocks),
            count(|report| report.stats.unused_prefetches),
            format!("{:.2}", busy_us / 1e3 / blocks.max(1.0)),
        ]
    }
}

/// One time relative to another; a program that does nothing takes no time, and as long as it.
fn ratio(time_s: f64, base_s: f64) -> f64 {
    if time_s == base_s { 1.0 } else { time_s / base_s }
}

const RUN_HEADER: [&str; 14] = [
    "program",
    "disks",
    "policy",
    "elapsed",
    "ratio",
    "bound",
    "cpu",
    "stall",
    "reuse",
    "pf hits",
    "misses",
    "prefetched",
    "unused",
    "ms/block",
];

impl Sim {
    fn disks_of_thesis(&self) -> Vec<u16> {
        // The thesis has figures for these only.
        let chosen: Vec<u16> =
            thesis::DISKS.into_iter().filter(|disks| self.disks.contains(disks)).collect();
        // The default shows three sizes; a table shows all five.
        if self.disks == [1, 4, 10] || chosen.is_empty() { thesis::DISKS.to_vec() } else { chosen }
    }

    fn runs(
        &self,
        names: &[String],
        simulate: impl Fn(usize, Policy, u16, u64) -> (Report, Option<u64>),
    ) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (i, name) in names.iter().enumerate() {
            for &disks in &self.disks {
                let first = runs.len();
                for &policy in &self.policy {
                    let (reports, bounds): (Vec<Report>, Vec<Option<u64>>) =
                        self.seed.iter().map(|&seed| simulate(i, policy, disks, seed)).unzip();
                    let sum: Option<u64> = bounds.into_iter().sum();
                    let bound_s = sum.map(|us| us as f64 / 1e6 / self.seed.len() as f64);
                    let name = name.clone();
                    let mut run = Run { name, policy, disks, reports, bound_s, ratio: 1.0 };
                    if let Some(base) = runs.get(first) {
                        run.ratio = ratio(run.elapsed_s(), base.elapsed_s());
                    }
                    runs.push(run);
                }
            }
        }
        runs
    }

    fn print_runs(&self, runs: &[Run]) -> Result<()> {
        if self.json {
            let runs: Vec<Value> = runs.iter().map(Run::json).collect();
            return print_json(&json!({ "seeds": self.seed, "runs": runs }));
        }
        let mut table = plain_table(&RUN_HEADER);
        for run in runs {
            table.add_row(run.row());
        }
        print(&table)?;
        print(format_args!(
            "\nTimes in seconds; ratio: to {}; bound: offline, no policy is faster; reuse to unused: \
             blocks; ms/block: disk service.",
            self.policy[0]
        ))?;
        Ok(())
    }

    fn print_sweep(&self, groups: &[Group], depths: &[u64]) -> Result<()> {
        let depths = if depths.is_empty() { &SWEEP_DEPTHS[..] } else { depths };
        let mut header = vec!["program".to_string(), "disks".to_string()];
        header.extend(depths.iter().map(u64::to_string));
        let mut table = plain_table(&header);
        let mut all = Vec::new();
        for group in groups {
            let [(app, _)] = group[..] else { bail!("--sweep takes applications one at a time") };
            for &disks in &self.disks {
                let points = tables::sweep(app, disks, depths, self.seed[0]);
                let mut row = vec![app.to_string(), disks.to_string()];
                row.extend(points.iter().map(|point| format!("{:.1}", point.stall_s)));
                table.add_row(row);
                all.push(json!({ "program": app, "disks": disks, "points": points }));
            }
        }
        if self.json {
            return print_json(&json!({ "seed": self.seed[0], "sweeps": all }));
        }
        print(&table)?;
        print(format_args!(
            "\nStall in seconds by prefetch depth, without caching; the thesis prefetches to 73."
        ))?;
        Ok(())
    }
}

/// Prints the thesis's tables beside the simulator's.
pub fn print_tables(which: Which, disks: &[u16], seeds: &[u64], as_json: bool) -> Result<()> {
    let policies = [Policy::Nc { depth: 73 }, Policy::Tip];
    let singles = (which != Which::Pairs)
        .then(|| tables::singles(&App::ALL, &policies, disks, seeds, |_, _| {}));
    let pairs =
        (which != Which::Singles).then(|| tables::pairs(Policy::Tip, disks, seeds, |_, _| {}));
    if as_json {
        return print_json(&json!({ "seeds": seeds, "table_6_25": singles, "table_6_26": pairs }));
    }
    if let Some(comparison) = &singles {
        print_comparison("Table 6.25: elapsed time as a fraction of NH", comparison, disks)?;
    }
    if let Some(comparison) = &pairs {
        if singles.is_some() {
            print("")?;
        }
        let title = "Table 6.26: time until both have ended as a fraction of neither hinting";
        print_comparison(title, comparison, disks)?;
    }
    Ok(())
}

fn print_comparison(title: &str, comparison: &Comparison, disks: &[u16]) -> Result<()> {
    print(format_args!("{title}; simulated / thesis\n"))?;
    let mut header = vec!["program".to_string(), "system".to_string()];
    header
        .extend(disks.iter().map(|&n| if n == 1 { "1 disk".into() } else { format!("{n} disks") }));
    let mut table = plain_table(&header);
    // The cells of one row are those with the same programs and system, by array size.
    let mut rows: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for cell in &comparison.cells {
        let names: Vec<&str> = cell.apps.iter().map(|app| app.name()).collect();
        let key = vec![names.join("+"), cell.what.clone()];
        let text = match cell.thesis {
            Some(thesis) => format!("{:.2} / {thesis:.2}", cell.fraction),
            None => format!("{:.2}", cell.fraction),
        };
        match rows.iter_mut().find(|(known, _)| *known == key) {
            Some((_, cells)) => cells.push(text),
            None => rows.push((key, vec![text])),
        }
    }
    for (key, cells) in rows {
        table.add_row([key, cells].concat());
    }
    print(&table)?;
    print(format_args!(
        "\n{} cells: mean absolute difference {:.3}, worst {:.3}",
        comparison.cells.len(),
        comparison.mean_difference,
        comparison.worst_difference
    ))
}

fn parse_groups(specs: &[String]) -> Result<Vec<Group>> {
    let mut groups = Vec::new();
    for spec in specs {
        if spec == "all" {
            groups.extend(App::ALL.map(|app| vec![(app, true)]));
            continue;
        }
        let group: Result<Group> = spec
            .split('+')
            .map(|name| match name.strip_suffix(":plain") {
                Some(name) => Ok((name.parse()?, false)),
                None => Ok((name.parse()?, true)),
            })
            .collect();
        groups.push(group?);
    }
    Ok(groups)
}

fn title(group: &Group) -> String {
    let name =
        |&(app, hints): &(App, bool)| if hints { app.to_string() } else { format!("{app}:plain") };
    group.iter().map(name).collect::<Vec<String>>().join("+")
}

fn load(path: &Path, disclose: bool) -> Result<Program> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let program = trace::read_trace(BufReader::new(file))
        .with_context(|| format!("{} is no trace (see docs/tip.md)", path.display()))?;
    Ok(if disclose { trace::with_full_disclosure(&program) } else { program })
}

fn plain_table<T: ToString>(header: &[T]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_style(TableComponent::HeaderLines, '─');
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().map(T::to_string));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn print_json(value: &Value) -> Result<()> {
    print(serde_json::to_string_pretty(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_does_nothing_takes_as_long_under_every_policy() {
        assert_eq!([ratio(0.0, 0.0), ratio(3.0, 2.0)], [1.0, 1.5]);
    }

    #[test]
    fn applications_join_and_may_keep_their_hints_to_themselves() {
        let parse = |spec: &str| parse_groups(&[spec.to_string()]).unwrap();
        assert_eq!(parse("all").len(), 7);
        assert_eq!(parse("sphinx:plain+davidson"), [[(App::Sphinx, false), (App::Davidson, true)]]);
        assert_eq!(title(&parse("sphinx:plain+davidson")[0]), "sphinx:plain+davidson");
        assert!(parse_groups(&["gnuld+vi".into()]).unwrap_err().to_string().contains("'vi'"));
    }
}
