//! `runahead profile`: measure the device under a path.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use runahead_device::estimate::Estimate;
use runahead_device::profile::{DeviceProfile, RandomReads};
use runahead_device::reader::Reader;
use runahead_device::{Options, Target, plot, store, target};

use super::{print, say};
use crate::launch::cache;

/// How long the quick and the full measurement take, seconds.
const QUICK_S: f64 = 20.0;
const FULL_S: f64 = 100.0;

/// Measure the device under a path
///
/// Latency and bandwidth of a request, sequential rate by position, seek time
/// by distance, rotation, useful parallelism and the cost of switching between
/// streams, each with its 95% interval. The profile is kept in
/// $XDG_CACHE_HOME/runahead/devices for the policies that use it.
///
/// It only reads, past the page cache, with idle I/O priority and a limit on
/// the load. As root it reads the device itself; otherwise PATH, or the
/// largest file below it (then positions and distances are those inside the file).
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0 when measured, 1 when not (with the reason on standard error).

Examples:
  runahead profile /                            # the root file system's device
  runahead profile --full --plot disk.svg /dev/sda
  runahead profile --load 20 --time 60 /srv     # gently, on a busy machine
  runahead profile --json /data | jq .latency_us.value
  runahead profile --stored /data               # what was measured before")]
pub struct Profile {
    /// A block device, a file or a directory
    path: PathBuf,

    /// Take 100 seconds instead of 20, for narrower intervals
    #[arg(long, conflicts_with = "time")]
    full: bool,

    /// About how long to measure
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    time: Option<f64>,

    /// Largest share of the time that the device is kept busy, in percent
    #[arg(long, value_name = "PERCENT", default_value = "80", value_parser = percent)]
    load: f64,

    /// Draw the curves (the paper's Figure 2), SVG or PNG by the name's ending
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Print the profile for machines
    #[arg(long)]
    json: bool,

    /// Print what was measured before, measure nothing
    #[arg(long, conflicts_with_all = ["full", "time"])]
    stored: bool,

    /// Seed of the places that are read
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (1.0..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 1 to 3600".into()),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (1.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("a number from 1 to 100".into()),
    }
}

/// Keeps it below the cache directory if that is this user's own, as the launcher wants it:
/// not in that of a user whose HOME root has kept (`sudo -E`).
fn keep(profile: &DeviceProfile) -> anyhow::Result<PathBuf> {
    let places = runahead_device::store::directory();
    for directory in places.iter().flat_map(|place| [place.parent().unwrap_or(place), place]) {
        cache::make_own(directory)
            .map_err(|why| anyhow::anyhow!("{} was not used: {why}", directory.display()))?;
    }
    Ok(profile.store()?)
}

/// Measures, keeps, prints.
///
/// # Errors
/// The device cannot be measured or the result not be written.
pub fn run(arguments: &Profile) -> anyhow::Result<ExitCode> {
    if let Some(path) = &arguments.plot {
        // Said before the measurement, not after it.
        let ending = path.extension().and_then(|ending| ending.to_str());
        anyhow::ensure!(
            matches!(ending, Some("svg" | "png")),
            "--plot {}: give a name that ends in .svg or .png",
            path.display()
        );
    }
    let (profile, kept) = if arguments.stored {
        (stored(&arguments.path)?, None)
    } else {
        let profile = measure(arguments)?;
        // A full or read-only home takes nothing away from the result.
        let kept = keep(&profile);
        (profile, Some(kept))
    };
    // What could not be drawn is printed all the same, and what is not read drawn.
    let drawn = arguments.plot.as_ref().map_or(Ok(()), |path| plot::draw(&profile, path));
    if arguments.json {
        print(serde_json::to_string_pretty(&profile)?)?;
    } else {
        print(describe(&profile))?;
    }
    match kept {
        Some(Ok(path)) if !arguments.json => print(format_args!("kept in {}", path.display()))?,
        Some(Err(error)) => say(format_args!("the profile could not be kept: {error}")),
        _ => {}
    }
    drawn?;
    Ok(ExitCode::SUCCESS)
}

/// What this user has measured of the device of a path before.
///
/// # Errors
/// There is no profile, or no place for one.
pub fn stored(path: &Path) -> anyhow::Result<DeviceProfile> {
    let directory =
        store::directory().context("profiles have no place: set XDG_CACHE_HOME or HOME")?;
    DeviceProfile::load_from(&directory, path).with_context(|| {
        let (path, directory) = (path.display(), directory.display());
        format!(
            "no profile of the device of {path} in {directory}: run `runahead profile {path}` as \
             this user (with sudo here, sudo there)"
        )
    })
}

fn measure(arguments: &Profile) -> anyhow::Result<DeviceProfile> {
    let (mut reader, identity) = Target::open(&arguments.path)?;
    // Where it is refused, the load limit still holds.
    let _ = target::use_idle_io_priority();
    let quick_or_full = if arguments.full { FULL_S } else { QUICK_S };
    let options = Options {
        time_s: arguments.time.unwrap_or(quick_or_full),
        load: arguments.load,
        seed: arguments.seed,
        machine_load: load_average(),
    };
    let bar = progress();
    bar.println(format!("{}: reading {}", reader.path().display(), reader.positions().text()));
    let positions = reader.positions();
    let mut say = |what: &str, share: f64| {
        bar.set_position((share * 1000.0) as u64);
        bar.set_message(what.to_owned());
    };
    let profile = runahead_device::measure(&mut reader, identity, positions, &options, &mut say)?;
    bar.finish_and_clear();
    Ok(profile)
}

/// A bar on standard error where that is a terminal; nothing otherwise.
fn progress() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {elapsed} {wide_msg}");
    ProgressBar::new(1000).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn describe(profile: &DeviceProfile) -> String {
    let device = &profile.device;
    let model = device.model.as_deref().map_or_else(String::new, |model| format!(", {model}"));
    let measured = &profile.measured;
    let mut text = format!(
        "{} ({}{model}), {:.2} GB\nmeasured {} with {} reads ({:.1} MB) in {:.0} s\n",
        device.name,
        device.id,
        device.size_bytes as f64 / 1e9,
        measured.positions.text(),
        measured.reads,
        measured.bytes as f64 / 1e6,
        measured.elapsed_s,
    );
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for (name, value) in rows(profile) {
        table.add_row([name, value]);
    }
    text += &format!("{table}\n");
    text += &throughput(profile);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if let Some(load) = measured.machine_load.filter(|load| *load > processors as f64) {
        text += &format!(
            "\nthe machine was busy (load average {load:.1} on {processors} processors): times are too \
             long by more than the intervals say; measure again when it is quiet"
        );
    }
    text
}

/// Of the last minute (proc_loadavg(5)).
fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

fn rows(profile: &DeviceProfile) -> Vec<(String, String)> {
    let mut rows = vec![
        ("latency of a random request".to_owned(), time(profile.latency_us)),
        ("bandwidth of one request".to_owned(), with(profile.bandwidth_mb_s, "MB/s")),
        ("sequential stream".to_owned(), with(profile.sequential.mean_mb_s, "MB/s")),
    ];
    let places = &profile.sequential.by_position;
    if let (Some(first), Some(last)) = (places.first(), places.last()) {
        let value = format!("{:.1} to {:.1} MB/s", first.mb_s.value, last.mb_s.value);
        rows.push(("  from the first to the last zone".to_owned(), value));
    }
    if let Some(bytes) = profile.split_bytes {
        let value = format!("from {} KiB on", bytes >> 10);
        rows.push(("requests served in parallel parts".to_owned(), value));
    }
    if let Some(bytes) = profile.cut_bytes {
        let value = format!("from {} KiB on", bytes >> 10);
        rows.push(("requests cut into pieces, in turn".to_owned(), value));
    }
    match &profile.seek {
        Some(seek) => {
            rows.push(("seek, mean of random places".to_owned(), time(seek.mean_us)));
            rows.push(("  shortest".to_owned(), time(seek.shortest_us)));
            rows.push(("  full stroke adds".to_owned(), time(seek.stroke_us)));
        }
        None => rows.push(("seek".to_owned(), "none: distance makes no difference".to_owned())),
    }
    let revolution = profile.revolution_us.map_or_else(|| "none seen".to_owned(), time);
    rows.push(("one revolution".to_owned(), revolution));
    rows.push(("cost of a switch between streams".to_owned(), time(profile.switch_cost_us)));
    let depth = profile.competitive.depth_bytes.scaled(1.0 / 1024.0);
    rows.push(("competitive prefetching depth".to_owned(), with(depth, "KiB")));
    let parallelism = &profile.parallelism;
    let verdict = match parallelism.random_reads {
        RandomReads::Help => "help",
        RandomReads::Neither => "make no difference",
        RandomReads::Hurt => "hurt",
    };
    rows.push(("useful parallelism".to_owned(), with(parallelism.effective, "requests at once")));
    let knee = format!("{} at once; parallel random reads {verdict}", parallelism.knee_depth);
    rows.push(("  nine tenths of it with".to_owned(), knee));
    rows
}

fn throughput(profile: &DeviceProfile) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["at once", "random 4 KiB reads/s", "±"]);
    for depth in &profile.parallelism.depths {
        table.add_row([
            depth.depth.to_string(),
            format!("{:.0}", depth.reads_per_s.value),
            format!("{:.0}", depth.reads_per_s.half_width()),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn time(estimate_us: Estimate) -> String {
    if estimate_us.value < 1000.0 {
        with(estimate_us, "µs")
    } else {
        with(estimate_us.scaled(1e-3), "ms")
    }
}

fn with(estimate: Estimate, unit: &str) -> String {
    let digits = if estimate.value < 10.0 { 2 } else { 1 };
    format!("{:.digits$} ± {:.digits$} {unit}", estimate.value, estimate.half_width())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_choose_their_unit() {
        assert_eq!(time(Estimate::new(61.2, 1.0)), "61.2 ± 1.0 µs");
        assert_eq!(time(Estimate::new(10_500.0, 250.0)), "10.5 ± 0.2 ms");
    }

    #[test]
    fn limits_are_checked() {
        assert_eq!(percent("25"), Ok(0.25));
        assert!(percent("0").is_err() && percent("101").is_err() && percent("x").is_err());
        assert!(seconds("0.5").is_err() && seconds("30").is_ok());
    }
}
