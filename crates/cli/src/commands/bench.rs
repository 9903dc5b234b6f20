//! `runahead bench`: the paper's tables and today's programs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use runahead_bench::apps::{self, Metadata};
use runahead_bench::compiler::{self, CompilerOptions};
use runahead_bench::explicit::{self, ExplicitOptions};
use runahead_bench::harm::{self, Condition, HarmOptions};
use runahead_bench::interference::{self, InterferenceOptions};
use runahead_bench::overhead::{self, OverheadOptions};
use runahead_bench::place::PlaceOptions;
use runahead_bench::results::{self, Results};
use runahead_bench::sharing::{self, SharingOptions};
use runahead_bench::streams::{self, Order, Policy, StreamsOptions, Workload};
use runahead_bench::swap::{self, SwapOptions};
use runahead_bench::tip::live::{self, LiveOptions, Subject};
use runahead_bench::tip::{programs, report};
use runahead_bench::{plot, table};

use super::sim;

/// Where results go unless told otherwise.
const RESULTS: &str = "bench-results";

#[derive(Debug, Args)]
pub struct Bench {
    #[command(subcommand)]
    which: Which,
}

#[derive(Debug, Subcommand)]
enum Which {
    /// The paper's explicit-I/O applications and today's programs (Table 2)
    ///
    /// Each application runs alternately by itself and under runahead, with
    /// the caches emptied before each run and read_ahead_kb at 128. Printed
    /// are the columns of the paper's Table 2, elapsed times with their spread,
    /// the ratio, and the ideal: max(CPU time, bytes / bandwidth, reads ×
    /// latency / parallelism). Each run's output is compared with the plain
    /// run's; the exit status is 1 if one differs.
    Explicit(Explicit),
    /// Programs that wait in page faults of mapped files
    ///
    /// Random touches, LMDB, numpy.memmap, SQLite through a mapping, and
    /// MATVEC of the paper's Table 1. As `explicit` otherwise.
    ///
    /// With `--over swap`: FFTPDE, MGRID, MATVEC and Sphinx of Table 1, and
    /// random touches, in a memory cgroup of the paper's proportion over an
    /// emulated swap device (root; at scale 1 the device has up to 600 MB).
    /// Printed are the paper's Tables 2, 3 and 4.
    ///
    /// With `--sync`: what a synchronisation costs a program with 1 GiB of
    /// resident memory, by a full and by an importing copy.
    Faults(Faults),
    /// What speculation does to a program's own calls, processors busy
    ///
    /// Small programs time their own calls (mmap and munmap, fork, reads
    /// through a shared descriptor, exec while holding locks, page faults of a
    /// second thread) while their other reads stall, by themselves and under
    /// runahead, beside one spinning process per processor. It fails where a
    /// call is more than 5 ms slower than plain's slowest, a record is torn or
    /// a lock lost.
    Interference(Interference),
    /// What runahead costs where everything is in memory
    ///
    /// Resident reads of 4 KiB, the start of a thousand processes, touches of
    /// a mapped file, whole programs that run a second or longer, idle and
    /// busy processors; and a heap of 4 GiB with rare page faults.
    Overhead(Overhead),
    /// Whether anything becomes slower: everyday commands, unkind conditions
    ///
    /// Some sixty commands of Debian packages with cold and warm caches, busy
    /// processors, a memory cgroup of half, three quarters and all of the
    /// working set, and a plain reader on the same device. Plain runs and runs
    /// under runahead alternate, and a cell counts as harm where the lower 95%
    /// bound of its slowdown is above 1.03. The worst is printed on top; the
    /// exit status is 1 if one is harmed or the geometric mean is above 1.
    Harm(Harm),
    /// A plain reader beside four speculating programs on one device
    ///
    /// It may lose at most 3% of its throughput and at most 10% at the 99th
    /// percentile of its latency, against the same programs run plainly.
    Sharing(Sharing),
    /// TIP (Patterson 1997): simulated tables beside the thesis's
    ///
    /// Elapsed time as a fraction of not hinting: seven applications on five
    /// arrays with prefetching alone and with full TIP (table 6.25), and three
    /// pairs (table 6.26), with the mean and worst difference to the thesis.
    /// Needs no device and no root; `runahead sim` simulates other policies.
    ///
    /// With --live: hinting programs on the emulated array (root), in memory
    /// cgroups, the caches emptied before each run: ten passes over a file of
    /// 1.5 times the memory, oblique slices, a join, pairs of them, and a
    /// neighbour without hints; then what a hint costs. Exit status 1 if an
    /// output differs or a target is missed.
    Tip(Tip),
    // The programs that `tip --live` measures.
    #[command(hide = true)]
    TipProgram {
        #[arg(trailing_var_arg = true)]
        arguments: Vec<String>,
    },
    /// Many sequential streams at once (Li et al. 2004, figures 3 to 8)
    ///
    /// The paper's microbenchmarks, an index search server and a media server
    /// (nginx) on an emulated disk, under the kernel's default readahead, an
    /// aggressive one, the competitive depth set in the kernel (`runahead
    /// tune`) and under runahead; for each number of handlers the throughput,
    /// what the paper's model gives for the switch cost that the default
    /// shows, and the estimated optimum.
    Streams(Streams),
    /// Programs compiled with inserted prefetches (Mowry and others 1996)
    ///
    /// MATVEC and the eight kernels of the paper's Table 2, data in a mapped
    /// file, memory limited by a cgroup: compiled as usual and by `runahead
    /// cc`, alternately, the caches emptied before each run. Printed are
    /// elapsed times, the share of the time that an ideal prefetcher could
    /// remove (Figure 3), coverage (Figure 4), what the run-time layer drops,
    /// disk requests (Figure 5), memory kept free (Table 3), and both in memory,
    /// warm (Figure 6). Results are compared byte by byte; the exit status is 1
    /// where they differ.
    Compiler(Kernels),
    /// A short selection: three applications, smaller data, three runs
    Quick(Common),
}

#[derive(Debug, Args)]
struct Faults {
    #[command(flatten)]
    programs: Explicit,
    /// What the programs' memory is
    #[arg(long, value_name = "WHAT", default_value = "files")]
    over: Over,
    /// Directory on a disk for the contents of the swap device
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    backing: PathBuf,
    /// Measure synchronisations only
    #[arg(long)]
    sync: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Over {
    /// Mapped files.
    Files,
    /// Memory that is swapped out.
    Swap,
}

#[derive(Debug, Args)]
struct Explicit {
    /// Only these applications (see --list)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    app: Vec<String>,
    /// Only these cases of applications that have several
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    case: Vec<String>,
    /// List the applications and end
    #[arg(long)]
    list: bool,
    /// Names and inodes in memory at the start (warm), or not (cold), or both
    /// one after the other, instead of each application's own choice
    #[arg(long, value_name = "STATE")]
    metadata: Option<MetadataChoice>,
    /// Runs of each side
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Size of the data relative to the full one
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    /// One spinning process per processor beside the programs
    #[arg(long)]
    busy: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Interference {
    /// Only these programs: mmap, fork, shared_read, exec_locks, faults
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    app: Vec<String>,
    /// Leave the processors idle
    #[arg(long)]
    idle: bool,
    /// Runs of each side
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Number of reads relative to the full one
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Overhead {
    /// Keep the data in this directory [default: in the user's cache]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Runs of each side
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Size relative to the full one: data, calls, processes
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    /// Install packages that are missing (apt-get)
    #[arg(long)]
    install: bool,
    /// Write the results here
    #[arg(long, value_name = "FILE", default_value = "bench-results/overhead.json")]
    json: PathBuf,
    /// The runahead executable to measure [default: this one]
    #[arg(long, value_name = "FILE")]
    runahead: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Harm {
    /// A short selection: some fifteen commands, four conditions, smaller data,
    /// three pairs
    #[arg(long)]
    quick: bool,
    /// Only these commands
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these conditions: cold, warm, busy, memory50, memory75, memory100,
    /// shared
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = condition)]
    condition: Vec<Condition>,
    /// Pairs of runs [default: 5; quick: 3]
    #[arg(long, value_parser = clap::value_parser!(u16).range(2..))]
    runs: Option<u16>,
    /// Repeat a command within a run until it takes so long, in seconds
    /// [default: 1; quick: 0.1]
    #[arg(long, value_name = "S")]
    run_seconds: Option<f64>,
    /// Size of the data relative to the full one [default: 1; quick: 0.3]
    #[arg(long, value_name = "F")]
    scale: Option<f64>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Sharing {
    /// Pairs of runs
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(2..))]
    runs: u16,
    /// Size of the data relative to the full one
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    #[command(flatten)]
    common: Common,
}

fn condition(name: &str) -> Result<Condition> {
    Condition::from_name(name).with_context(|| {
        let known: Vec<_> = Condition::ALL.iter().map(|condition| condition.name()).collect();
        format!("no condition {name:?}: give some of {}", known.join(", "))
    })
}

#[derive(Debug, Args)]
struct Streams {
    /// Profile of the emulated device
    #[arg(long, value_name = "NAME", default_value = "hdd")]
    profile: String,
    /// Only these: one-whole, one-rand, two-rand, four-64kb, search, media
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    workload: Vec<String>,
    /// Who orders the requests that wait: fifo, cscan (the disk), mq-deadline,
    /// bfq (the kernel)
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "fifo,cscan,bfq")]
    order: Vec<String>,
    /// Only these beside the default: aggressive, tuned, runahead
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    policy: Vec<String>,
    /// Handlers at once
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "4,8,16,32,64",
          value_parser = clap::value_parser!(u32).range(1..=256))]
    at_once: Vec<u32>,
    /// Runs of each
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Time and data relative to the full ones (6 s, 2 GiB)
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    /// How much faster the disk's clock runs than the wall's
    #[arg(long, value_name = "F", default_value_t = 4.0)]
    speed: f64,
    /// Seed of data and requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Install packages that are missing (apt-get)
    #[arg(long)]
    install: bool,
    /// Write the results here [default: bench-results/streams-PROFILE.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The runahead executable to measure [default: this one]
    #[arg(long, value_name = "FILE")]
    runahead: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Kernels {
    /// Only these kernels: matvec, buk, cgm, embar, fftpde, mgrid, applu, appsp, appbt
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    kernel: Vec<String>,
    /// Data relative to memory
    #[arg(long, value_name = "F", default_value_t = 2.2)]
    ratio: f64,
    /// Run on small data, for a try
    #[arg(long)]
    small: bool,
    /// Problem size of the kernels chosen, instead of their own
    #[arg(long, value_name = "N", conflicts_with = "small")]
    size: Option<u32>,
    /// Memory, MB, instead of the ratio: for one memory and several sizes
    #[arg(long, value_name = "MB", conflicts_with = "ratio", value_parser = clap::value_parser!(u64).range(4..))]
    memory: Option<u64>,
    /// Measure both programs under speculation as well
    #[arg(long)]
    speculate: bool,
    /// Factor on every time of the device: at 0.05 to 0.1 today's processors have
    /// about the share of the elapsed time that the paper's had
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    /// Runs of each side
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Profile of the emulated device
    #[arg(long, value_name = "NAME", default_value = "array-2003")]
    profile: String,
    /// Spindles or channels [default: 7 on array-2003, else the profile's]
    #[arg(long, value_name = "N")]
    spindles: Option<u32>,
    /// Major version of LLVM [default: the newest that is there]
    #[arg(long, value_name = "VERSION")]
    llvm: Option<u32>,
    /// Write the results here [default: bench-results/compiler-PROFILE.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Tip {
    /// Which tables
    #[arg(long, value_name = "WHICH", default_value = "all")]
    table: sim::Which,
    /// Seeds of programs and placement; times are means over them
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,3")]
    seed: Vec<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Measure hinting programs instead of simulating
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    measured: TipLive,
}

#[derive(Debug, Args)]
struct TipLive {
    /// Only these: passes, slices, join, slices+join, passes+slices,
    /// passes+join, neighbour
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "live")]
    app: Vec<String>,
    /// Numbers of spindles
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,4,10", requires = "live",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    disks: Vec<u32>,
    /// Modes beside plain
    #[arg(
        long,
        value_name = "MODE",
        value_delimiter = ',',
        default_value = "full",
        requires = "live"
    )]
    mode: Vec<TipMode>,
    /// Only what has a target
    #[arg(long, requires = "live")]
    targets: bool,
    /// Profile of the emulated device
    #[arg(long, value_name = "NAME", default_value = "array-2003", requires = "live")]
    profile: String,
    /// Runs of each side
    #[arg(long, default_value_t = 5, requires = "live", value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Size of the data and of the memory relative to the full one
    #[arg(long, value_name = "F", default_value_t = 1.0, requires = "live")]
    scale: f64,
    /// Write the results here, and the plot beside it
    #[arg(
        long,
        value_name = "FILE",
        default_value = "bench-results/tip-live.json",
        requires = "live"
    )]
    out: PathBuf,
    /// The runahead executable whose programs are measured [default: this one]
    #[arg(long, value_name = "FILE", requires = "live")]
    runahead: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TipMode {
    Nohints,
    Prefetch,
    Full,
}

#[derive(Debug, Args)]
struct Common {
    /// Profile of the emulated device; `nvme`: the machine's own disk
    #[arg(long, value_name = "NAME", default_value = "cloud")]
    profile: String,
    /// Work in this directory: a mounted `runahead slowdisk`, which keeps the
    /// data from run to run, or any directory of the machine's own disk
    #[arg(long, value_name = "DIR", conflicts_with_all = ["profile", "overlay", "fuse_limit"])]
    data: Option<PathBuf>,
    /// Measure through an overlayfs mount of the device, as in a container
    #[arg(long)]
    overlay: bool,
    /// FUSE's limit of requests in flight, instead of the profile's
    #[arg(long, value_name = "N")]
    fuse_limit: Option<u16>,
    /// Seed of the data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Install packages that are missing (apt-get)
    #[arg(long)]
    install: bool,
    /// Write the results here [default: bench-results/BENCHMARK-PROFILE.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the elapsed times here: .svg or .png, both without an ending
    /// [default: beside the JSON file]
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// The runahead executable to measure [default: this one]
    #[arg(long, value_name = "FILE")]
    runahead: Option<PathBuf>,
    /// Pass an option on to `runahead run`, for example --run-option=--depth=8
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    run_option: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MetadataChoice {
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

/// Runs the benchmark that the arguments name.
///
/// # Errors
/// If something is missing or a run cannot be made.
pub fn run(bench: Bench) -> Result<ExitCode> {
    match bench.which {
        Which::Explicit(explicit) if explicit.list => {
            list(&apps::all());
            Ok(ExitCode::SUCCESS)
        }
        Which::Faults(faults) if faults.sync => synchronisations(&faults),
        Which::Faults(faults) if faults.over == Over::Swap => over_swap(faults),
        Which::Faults(faults) if faults.programs.list => {
            list(&apps::faults());
            Ok(ExitCode::SUCCESS)
        }
        Which::Faults(faults) => {
            let mut arguments = faults.programs;
            if arguments.app.is_empty() {
                arguments.app = apps::faults().iter().map(|app| app.name().to_owned()).collect();
            }
            waiting("faults", arguments)
        }
        Which::Explicit(arguments) => waiting("explicit", arguments),
        Which::Interference(arguments) => interfere(arguments),
        Which::Overhead(arguments) => weigh(arguments),
        Which::Harm(arguments) => harm(arguments),
        Which::TipProgram { arguments } => {
            programs::run(&arguments)?;
            Ok(ExitCode::SUCCESS)
        }
        Which::Tip(tip) if tip.live => tip_live(&tip.measured),
        Which::Sharing(arguments) => share(arguments),
        Which::Compiler(arguments) => compiled(arguments),
        Which::Tip(tip) => {
            sim::print_tables(tip.table, &runahead_sim::thesis::DISKS, &tip.seed, tip.json)?;
            Ok(ExitCode::SUCCESS)
        }
        Which::Streams(arguments) => stream(arguments),
        Which::Quick(common) => explicit_io(&base("quick", &common)?, &common),
    }
}

/// Applications one after the other, alternating the two sides.
fn waiting(benchmark: &str, arguments: Explicit) -> Result<ExitCode> {
    let common = &arguments.common;
    let options = ExplicitOptions {
        apps: arguments.app,
        cases: arguments.case,
        metadata: arguments.metadata.map(MetadataChoice::states),
        runs: usize::from(arguments.runs),
        scale: arguments.scale,
        busy: arguments.busy,
        ..base(benchmark, common)?
    };
    explicit_io(&options, common)
}

/// Options of a benchmark with the quick selection.
fn base(benchmark: &str, common: &Common) -> Result<ExplicitOptions> {
    Ok(ExplicitOptions {
        benchmark: benchmark.into(),
        place: place(common),
        seed: common.seed,
        install: common.install,
        runahead: executable(common.runahead.as_deref())?,
        run_options: common.run_option.clone(),
        keep: RESULTS.into(),
        ..ExplicitOptions::quick()
    })
}

fn place(common: &Common) -> PlaceOptions {
    PlaceOptions {
        profile: common.profile.clone(),
        data: common.data.clone(),
        overlay: common.overlay,
        fuse_limit: common.fuse_limit,
        ..PlaceOptions::default()
    }
}

/// The executable to measure: the one given, or this one.
fn executable(given: Option<&Path>) -> Result<PathBuf> {
    match given {
        Some(path) => std::fs::canonicalize(path)
            .with_context(|| format!("find the executable {}", path.display())),
        None => std::env::current_exe().context("find this executable"),
    }
}

fn interfere(arguments: Interference) -> Result<ExitCode> {
    let common = &arguments.common;
    let results = interference::run(&InterferenceOptions {
        programs: arguments.app,
        place: place(common),
        runs: usize::from(arguments.runs),
        scale: arguments.scale,
        install: common.install,
        runahead: executable(common.runahead.as_deref())?,
        run_options: common.run_option.clone(),
        idle: arguments.idle,
    })?;
    let json = common.json.clone().unwrap_or_else(|| {
        let name = format!("interference-{}.json", results.profile.replace(' ', "-"));
        Path::new(RESULTS).join(name)
    });
    results::write_json(&json, &results)?;
    println!("{}\nWritten: {}", interference::table(&results), json.display());
    Ok(if results.pass() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn harm(arguments: Harm) -> Result<ExitCode> {
    let common = &arguments.common;
    let or = |given: Option<f64>, quick, full| {
        given.unwrap_or(if arguments.quick { quick } else { full })
    };
    let options = HarmOptions {
        commands: arguments.only.clone(),
        conditions: arguments.condition.clone(),
        quick: arguments.quick,
        place: place(common),
        runs: usize::from(arguments.runs.unwrap_or(if arguments.quick { 3 } else { 5 })),
        run_s: or(arguments.run_seconds, 0.1, 1.0),
        scale: or(arguments.scale, 0.3, 1.0),
        seed: common.seed,
        install: common.install,
        runahead: executable(common.runahead.as_deref())?,
        run_options: common.run_option.clone(),
    };
    let mut written = PathBuf::new();
    let results = harm::run(&options, |results| {
        written = common.json.clone().unwrap_or_else(|| {
            let name = format!("harm-{}.json", results.profile.replace(' ', "-"));
            Path::new(RESULTS).join(name)
        });
        results::write_json(&written, results)
    })?;
    println!("{}\nWritten: {}", harm::table(&results), written.display());
    Ok(if results.pass() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tip_live(arguments: &TipLive) -> Result<ExitCode> {
    let mut subjects = Vec::new();
    for name in &arguments.app {
        let found = Subject::ALL.iter().find(|subject| subject.name() == name);
        let names: Vec<_> = Subject::ALL.iter().map(|subject| subject.name()).collect();
        let known = names.join(", ");
        subjects
            .push(*found.with_context(|| format!("no program {name:?}: give some of {known}"))?);
    }
    if subjects.is_empty() {
        subjects = Subject::ALL.to_vec();
    }
    let mode = |mode: &TipMode| match mode {
        TipMode::Nohints => live::Mode::NoHints,
        TipMode::Prefetch => live::Mode::Prefetch,
        TipMode::Full => live::Mode::Full,
    };
    let options = LiveOptions {
        profile: arguments.profile.clone(),
        disks: arguments.disks.clone(),
        subjects,
        modes: arguments.mode.iter().map(mode).collect(),
        targets_only: arguments.targets,
        runs: usize::from(arguments.runs),
        scale: arguments.scale,
        runahead: executable(arguments.runahead.as_deref())?,
    };
    let out = &arguments.out;
    let results = live::run(&options, |results| results::write_json(out, results))?;
    println!("{}", report::table(&results));
    let plots = report::draw(&results, &out.with_extension(""))?;
    let files: Vec<String> =
        std::iter::once(out).chain(&plots).map(|path| path.display().to_string()).collect();
    println!("Written: {}", files.join(", "));
    Ok(if results.pass() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn share(arguments: Sharing) -> Result<ExitCode> {
    let common = &arguments.common;
    let results = sharing::run(&SharingOptions {
        place: place(common),
        runs: usize::from(arguments.runs),
        scale: arguments.scale,
        seed: common.seed,
        runahead: executable(common.runahead.as_deref())?,
        run_options: common.run_option.clone(),
    })?;
    let json = common.json.clone().unwrap_or_else(|| {
        Path::new(RESULTS).join(format!("sharing-{}.json", results.profile.replace(' ', "-")))
    });
    results::write_json(&json, &results)?;
    println!("{}\nWritten: {}", sharing::table(&results), json.display());
    Ok(if results.pass() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Those of `all` that are named; all where none is.
fn named<T: Copy>(all: &[T], name: fn(T) -> &'static str, names: &[String]) -> Result<Vec<T>> {
    if names.is_empty() {
        return Ok(all.to_vec());
    }
    let find = |wanted: &String| {
        all.iter().copied().find(|one| name(*one) == wanted).with_context(|| {
            let known: Vec<&str> = all.iter().map(|one| name(*one)).collect();
            format!("{wanted:?} is not known: give some of {}", known.join(", "))
        })
    };
    names.iter().map(find).collect()
}

fn stream(arguments: Streams) -> Result<ExitCode> {
    let orders = [Order::Fifo, Order::Cscan, Order::MqDeadline, Order::Bfq];
    let json = arguments
        .json
        .clone()
        .unwrap_or_else(|| Path::new(RESULTS).join(format!("streams-{}.json", arguments.profile)));
    let options = StreamsOptions {
        profile: arguments.profile,
        workloads: named(&Workload::ALL, Workload::name, &arguments.workload)?,
        orders: named(&orders, Order::name, &arguments.order)?,
        policies: named(&Policy::ALL, Policy::name, &arguments.policy)?,
        handlers: arguments.at_once,
        runs: usize::from(arguments.runs),
        scale: arguments.scale,
        speed: arguments.speed,
        seed: arguments.seed,
        install: arguments.install,
        runahead: executable(arguments.runahead.as_deref())?,
    };
    let results = streams::run(&options, |results| results::write_json(&json, results))?;
    let plots = streams::draw(&results, &json.with_extension(""))?;
    let files: Vec<String> =
        std::iter::once(&json).chain(&plots).map(|path| path.display().to_string()).collect();
    println!("{}\nWritten: {}", streams::table(&results), files.join(", "));
    Ok(ExitCode::SUCCESS)
}

fn compiled(arguments: Kernels) -> Result<ExitCode> {
    let is_array = arguments.profile == "array-2003";
    let json = arguments
        .json
        .unwrap_or_else(|| Path::new(RESULTS).join(format!("compiler-{}.json", arguments.profile)));
    let options = CompilerOptions {
        kernels: arguments.kernel,
        ratio: arguments.ratio,
        small: arguments.small,
        size: arguments.size,
        memory_bytes: arguments.memory.map(|megabytes| megabytes * 1_000_000),
        speculate: if arguments.speculate { Some(executable(None)?) } else { None },
        runs: usize::from(arguments.runs),
        place: PlaceOptions {
            profile: arguments.profile,
            spindles: arguments.spindles.or(is_array.then_some(7)),
            time_factor: Some(arguments.scale),
            ..PlaceOptions::default()
        },
        llvm: arguments.llvm,
    };
    let results = compiler::run(&options, |results| results::write_json(&json, results))?;
    println!("{}\nWritten: {}", compiler::table(&results), json.display());
    let equal = results.kernels.iter().all(|kernel| kernel.equal);
    Ok(if equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Resident memory of the program that synchronises, in MiB, and how often.
const SYNC_MIB: u64 = 1024;
const SYNC_READS: u64 = 300;

fn synchronisations(arguments: &Faults) -> Result<ExitCode> {
    let common = &arguments.programs.common;
    let runahead = executable(common.runahead.as_deref())?;
    let costs = swap::synchronisations(&runahead, SYNC_MIB, SYNC_READS)?;
    let json = common.json.clone().unwrap_or_else(|| Path::new(RESULTS).join("faults-sync.json"));
    results::write_json(&json, &costs)?;
    println!("{}\nWritten: {}", swap::sync_table(&costs, SYNC_MIB), json.display());
    Ok(ExitCode::SUCCESS)
}

fn over_swap(arguments: Faults) -> Result<ExitCode> {
    let programs = arguments.programs;
    let common = programs.common;
    let is_array = common.profile == "array-2003";
    let name = format!("faults-swap-{}.json", common.profile);
    let json = common.json.unwrap_or_else(|| Path::new(RESULTS).join(name));
    let options = SwapOptions {
        kernels: programs.app,
        spindles: is_array.then_some(7),
        profile: common.profile,
        runs: usize::from(programs.runs),
        scale: programs.scale,
        backing: arguments.backing,
        runahead: executable(common.runahead.as_deref())?,
        run_options: common.run_option,
    };
    let results = swap::run(&options, |results| results::write_json(&json, results))?;
    println!("{}\nWritten: {}", swap::tables(&results), json.display());
    Ok(if results.equal() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn weigh(arguments: Overhead) -> Result<ExitCode> {
    let results = overhead::run(&OverheadOptions {
        data: arguments.data,
        runs: usize::from(arguments.runs),
        scale: arguments.scale,
        install: arguments.install,
        runahead: executable(arguments.runahead.as_deref())?,
    })?;
    results::write_json(&arguments.json, &results)?;
    println!("{}\nWritten: {}", overhead::table(&results), arguments.json.display());
    let kept = results.comparisons.iter().all(|comparison| comparison.keeps_promise());
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn explicit_io(options: &ExplicitOptions, common: &Common) -> Result<ExitCode> {
    let mut written = None;
    let results = explicit::run(options, |results| {
        let json = json_path(results, common);
        results::write_json(&json, results)?;
        written = Some(json);
        Ok(())
    })?;
    println!("{}", table::table2(&results));
    println!("{}", table::verdict(&results));
    if let Some(json) = written {
        let plot_path = common.plot.clone().unwrap_or_else(|| json.with_extension(""));
        let plots = plot::draw(&results, &plot_path)?;
        let files: Vec<String> =
            std::iter::once(&json).chain(&plots).map(|path| path.display().to_string()).collect();
        println!("Written: {}", files.join(", "));
    }
    Ok(if results.outputs_equal() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn json_path(results: &Results, common: &Common) -> PathBuf {
    common.json.clone().unwrap_or_else(|| {
        let name = format!("{}-{}", results.benchmark, results.profile).replace(' ', "-");
        Path::new(RESULTS).join(name + ".json")
    })
}

fn list(apps: &[&dyn apps::Application]) {
    for app in apps {
        let papers = if app.is_papers() { " [the paper's]" } else { "" };
        println!("{:16} {}{papers}", app.name(), app.about());
    }
}
