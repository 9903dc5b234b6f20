//! `runahead slowdisk`: emulated disks, network volumes and object stores.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use runahead_slowdisk::profile::{Discipline, Medium, PROFILES, Profile};
use runahead_slowdisk::{
    CheckOptions, FileSystem, ProfileReport, SlowDisk, Snapshot, State, UpOptions, parse_size,
};

use super::{print, say};

#[derive(Debug, Args)]
#[command(after_help = "EXAMPLE
  runahead slowdisk up --profile cloud --paused /mnt/slow   # a new, empty ext4
  cp -r data /mnt/slow                                      # at full speed
  runahead slowdisk resume /mnt/slow                        # now it takes its time
  runahead slowdisk cold /mnt/slow                          # nothing is cached
  runahead grep -rF needle /mnt/slow
  runahead slowdisk down /mnt/slow                          # and is gone")]
pub struct Slowdisk {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make an emulated device and mount it
    #[command(after_help = profiles_help())]
    Up(Up),
    /// Unmount it and undo everything, also after a crash; contents are lost
    Down {
        /// Where it is mounted
        #[arg(required_unless_present = "all")]
        mountpoint: Option<PathBuf>,
        /// Every device there is
        #[arg(long, conflicts_with = "mountpoint")]
        all: bool,
        /// Detach it even when files on it are in use
        #[arg(long)]
        force: bool,
    },
    /// Empty its caches: unmount and mount, in no modelled time; counters restart
    Cold {
        /// Where it is mounted
        mountpoint: PathBuf,
    },
    /// Bring directories, inodes and extents into memory, no data; counters restart
    WarmMetadata {
        /// A directory on it, or on its overlay
        directory: PathBuf,
    },
    /// Answer every request at once, to prepare data at full speed
    Pause {
        /// Where it is mounted
        mountpoint: PathBuf,
    },
    /// Take the modelled time again
    Resume {
        /// Where it is mounted
        mountpoint: PathBuf,
    },
    /// Make reads of a part of a file fail (EIO), as bad blocks do, once it is not in memory
    Lose {
        /// A file on it
        file: PathBuf,
        /// First byte
        #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
        offset: u64,
        /// How much, in whole blocks of 4 KiB; else all
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        length: Option<u64>,
    },
    /// Make every block readable again
    Mend {
        /// Where it is mounted
        mountpoint: PathBuf,
    },
    /// What the device did since it came up or went cold
    Stats {
        /// Where it is mounted
        mountpoint: PathBuf,
        /// For machines
        #[arg(long)]
        json: bool,
        /// Start from zero afterwards
        #[arg(long)]
        reset: bool,
    },
    /// The devices that are up, and those left by a crash
    List {
        /// For machines
        #[arg(long)]
        json: bool,
    },
    /// Prove the bed: bring profiles up, measure them, compare with their model
    ///
    /// Random 4 KiB reads past the page cache, 1 to 64 at a time. Fails (exit status 1) when
    /// less than 75% of the model's rate is reached at a depth up to 32 or more than 110% at
    /// any, when an isolated request is off by more than +25% or -10%, or when sequential
    /// reads are below 75%.
    /// It measures: let nothing else run meanwhile.
    Check {
        /// Only this profile (may be given again)
        #[arg(long, value_name = "NAME")]
        profile: Vec<String>,
        /// How long each depth is measured (disks: three times as long)
        #[arg(long, value_name = "S", default_value_t = 1.0)]
        seconds: f64,
        /// FUSE's max_background, instead of the profiles' (the machine's own disk has none)
        #[arg(long, value_name = "N")]
        fuse_limit: Option<u16>,
        /// Seed of the device and of the reads
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
        /// For machines
        #[arg(long)]
        json: bool,
    },
    /// Serve a device (started by `up`)
    #[command(hide = true)]
    Serve {
        /// Its state
        directory: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Up {
    /// Which storage to emulate
    #[arg(long, value_name = "NAME")]
    profile: String,
    /// Size of the device; sparse
    #[arg(long, default_value = "8G", value_parser = parse_size)]
    size: u64,
    /// Spindles or channels, instead of the profile's
    #[arg(long, value_name = "N")]
    spindles: Option<u32>,
    /// Seed: places of heads and platters, order of directories
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// ext4; swap, in use before any other (with --backing); none for the bare block device
    #[arg(long, default_value = "ext4")]
    fs: FileSystem,
    /// Keep the contents in this directory instead of memory: the next device of that size finds
    /// them there (not on the machine's own disk, whose image goes with it)
    #[arg(long, value_name = "DIR")]
    backing: Option<PathBuf>,
    /// Multiply every modelled time
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    /// Requests that FUSE lets be in flight in the background (the kernel's default is 12)
    #[arg(long, value_name = "N")]
    fuse_limit: Option<u16>,
    /// Order of service at each spindle: fifo or cscan
    #[arg(long)]
    queue: Option<Discipline>,
    /// Writes take no time
    #[arg(long)]
    free_writes: bool,
    /// Start with timing off, until `resume`
    #[arg(long)]
    paused: bool,
    /// Mount an overlayfs there too: lower layer the device, upper in memory
    #[arg(long, value_name = "DIR")]
    overlay: Option<PathBuf>,
    /// Where to mount it; made if it does not exist
    mountpoint: PathBuf,
}

fn profiles_help() -> String {
    let lines = PROFILES.map(|profile| format!("  {:<11} {}", profile.name, profile.stands_for));
    format!("PROFILES\n{}", lines.join("\n"))
}

pub fn run(command: Slowdisk) -> anyhow::Result<ExitCode> {
    match command.action {
        Action::Up(up) => bring_up(up)?,
        Action::Down { all: true, force, .. } => {
            print(format_args!("{} taken down", runahead_slowdisk::down_all(force)?))?;
        }
        Action::Down { mountpoint, force, .. } => {
            runahead_slowdisk::down(&mountpoint.unwrap_or_default(), force)?;
        }
        Action::Cold { mountpoint } => runahead_slowdisk::cold(&mountpoint)?,
        Action::WarmMetadata { directory } => {
            let warmed = runahead_slowdisk::warm_metadata(&directory)?;
            print(format_args!("{} files in {} directories", warmed.files, warmed.directories))?;
        }
        Action::Pause { mountpoint } => SlowDisk::at(&mountpoint)?.pause()?,
        Action::Resume { mountpoint } => SlowDisk::at(&mountpoint)?.resume()?,
        Action::Lose { file, offset, length } => {
            let end = length.map_or(u64::MAX, |length| offset.saturating_add(length));
            print(format_args!("{} bytes lost", runahead_slowdisk::lose(&file, offset..end)?))?;
        }
        Action::Mend { mountpoint } => SlowDisk::at(&mountpoint)?.mend()?,
        Action::Stats { mountpoint, json, reset } => stats(&mountpoint, json, reset)?,
        Action::List { json } => list(json)?,
        Action::Check { profile, seconds, fuse_limit, seed, json } => {
            let each = Duration::try_from_secs_f64(seconds).ok().filter(|each| !each.is_zero());
            let each =
                each.with_context(|| format!("--seconds {seconds}: give a number above 0"))?;
            let options = CheckOptions { profiles: profile, each, fuse_limit, seed, daemon: None };
            return check(&options, json);
        }
        Action::Serve { directory } => {
            runahead_slowdisk::serve(&directory)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn bring_up(up: Up) -> anyhow::Result<()> {
    let options = UpOptions {
        size_bytes: up.size,
        spindles: up.spindles,
        seed: up.seed,
        fs: up.fs,
        backing: up.backing,
        scale: up.scale,
        fuse_limit: up.fuse_limit,
        queue: up.queue,
        free_writes: up.free_writes,
        paused: up.paused,
        overlay: up.overlay,
        ..UpOptions::new(up.profile, up.mountpoint)
    };
    let state = SlowDisk::up(&options)?.leave_up();
    let device = state.device.as_deref().map(Path::display);
    let device = device.map_or_else(String::new, |device| format!(" on {device}"));
    let profile = Profile::by_name(&state.options.profile)?;
    // It is up, whether or not anybody reads so.
    let _ = print(format_args!("{} is up: {}{device}", state.name(), profile.name));
    if profile.medium == Medium::Object {
        let _ = print(format_args!("objects are in {}", state.object_directory().display()));
    }
    Ok(())
}

fn stats(mountpoint: &Path, json: bool, reset: bool) -> anyhow::Result<()> {
    let disk = SlowDisk::at(mountpoint)?;
    let snapshot = disk.stats()?;
    if reset {
        disk.reset_stats()?;
    }
    if json {
        return print(serde_json::to_string_pretty(&snapshot)?);
    }
    let profile = Profile::by_name(&disk.state().options.profile)?;
    print(describe(&snapshot, profile.medium))
}

fn ms(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e6)
}

fn describe(snapshot: &Snapshot, medium: Medium) -> String {
    let device = &snapshot.device;
    let requests = device.reads + device.writes;
    let cpu_us = snapshot.cpu_ns as f64 / 1e3 / (requests + device.untimed).max(1) as f64;
    let mut text = format!(
        "{} reads ({:.1} MB), {} writes ({:.1} MB), {} untimed, in {:.3} s{}\n\
         latency: median {} ms, 99% {} ms; in flight: now {}, most {}\n\
         replies late by: median {} ms, 99% {} ms; {cpu_us:.1} µs of CPU each\n",
        device.reads,
        device.bytes_read as f64 / 1e6,
        device.writes,
        device.bytes_written as f64 / 1e6,
        device.untimed,
        snapshot.elapsed_ns as f64 / 1e9,
        if snapshot.paused { "; timing is paused" } else { "" },
        ms(device.latency.quantile_ns(0.5)),
        ms(device.latency.quantile_ns(0.99)),
        snapshot.in_flight,
        device.in_flight_max,
        ms(snapshot.late.quantile_ns(0.5)),
        ms(snapshot.late.quantile_ns(0.99)),
    );
    let elapsed_ns = snapshot.elapsed_ns.max(1) as f64;
    let mut table = Table::new();
    let server = if medium == Medium::Disks { "spindle" } else { "channel" };
    table.load_preset(presets::NOTHING).set_header([
        server,
        "requests",
        "sequential",
        "MB",
        "busy",
        "queue mean",
        "queue max",
        "median ms",
        "99% ms",
    ]);
    for (number, server) in device.servers.iter().enumerate() {
        table.add_row([
            number.to_string(),
            server.requests.to_string(),
            server.sequential.to_string(),
            format!("{:.1}", (server.bytes_read + server.bytes_written) as f64 / 1e6),
            format!("{:.0}%", server.busy_ns as f64 / elapsed_ns * 100.0),
            format!("{:.2}", server.waited_ns as f64 / elapsed_ns),
            server.queue_max.to_string(),
            ms(server.latency.quantile_ns(0.5)),
            ms(server.latency.quantile_ns(0.99)),
        ]);
    }
    text.push_str(&table.to_string());
    text
}

fn list(json: bool) -> anyhow::Result<()> {
    let states = runahead_slowdisk::list()?;
    if json {
        return print(serde_json::to_string_pretty(&states)?);
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["mount point", "profile", "device", "state"]);
    for state in &states {
        let device = state.device.as_deref().unwrap_or(Path::new("-"));
        let row = [
            state.name(),
            state.options.profile.clone(),
            device.display().to_string(),
            health(state).into(),
        ];
        table.add_row(row);
    }
    if states.is_empty() {
        // Not on standard output, where a line is a device.
        say("no device is up");
        return Ok(());
    }
    print(table)
}

fn health(state: &State) -> &'static str {
    let stats = || SlowDisk::at(&state.options.mountpoint).and_then(|disk| disk.stats());
    match (state.is_alive(), state.ready) {
        (true, _) if state.is_orphan() => "left behind: clean up with down --force",
        (true, true) if state.daemon.is_some() => match stats() {
            Ok(stats) if stats.paused => "up, timing is paused",
            Ok(_) => "up",
            Err(_) => "does not answer: end it with down --force",
        },
        (true, true) => "up",
        (true, false) => "coming up",
        (false, _) => "dead: clean up with down",
    }
}

fn check(options: &CheckOptions, json: bool) -> anyhow::Result<ExitCode> {
    let mut reports = Vec::new();
    let checked = runahead_slowdisk::check(options, |report| {
        if !json {
            // What is measured goes on: the exit status tells of all.
            let _ = print(describe_check(report));
        }
        reports.push(report.clone());
    });
    // Also what was found before an error.
    if json && (checked.is_ok() || !reports.is_empty()) {
        print(serde_json::to_string_pretty(&reports)?)?;
    }
    checked?;
    let failed = reports.iter().any(|report| !report.pass());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn describe_check(report: &ProfileReport) -> String {
    let optional = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "depth",
        "requests/s",
        "model",
        "share",
        "latency µs",
        "model",
        "CPU µs: bed",
        "machine",
        "",
    ]);
    for depth in &report.depths {
        let share = depth.model_requests_per_s.map(|model| depth.requests_per_s / model * 100.0);
        table.add_row([
            depth.depth.to_string(),
            format!("{:.0}", depth.requests_per_s),
            optional(depth.model_requests_per_s, 0),
            share.map_or_else(|| "-".into(), |share| format!("{share:.0}%")),
            format!("{:.0}", depth.latency_us),
            optional(depth.model_latency_us, 0),
            optional(depth.server_cpu_us, 1),
            format!("{:.1}", depth.machine_cpu_us),
            if depth.pass { "ok" } else { "FAIL" }.into(),
        ]);
    }
    let excess = report.latency_excess.map(|excess| format!(", {:+.1}%", excess * 100.0));
    let at_once = match report.parallel {
        0 => ": the machine's own disk, nothing demanded".to_owned(),
        parallel => format!(": {parallel} at once"),
    };
    let verdict = match report.failures.is_empty() {
        true => "PASS".to_owned(),
        false => format!(
            "FAIL: {}\n (load average before: {:.2}; above 0.5 something else ran: check again \
             on a quiet machine)",
            report.failures.join("; "),
            report.load_before
        ),
    };
    format!(
        "{}{}\n{table}\n one at a time{}; sequential {:.0} MB/s (model {})\n {verdict}\n",
        report.profile,
        at_once,
        excess.unwrap_or_default(),
        report.sequential_mb_s,
        optional(report.model_sequential_mb_s, 0),
    )
}
