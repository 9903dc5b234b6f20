//! `runahead tune`: the kernel's readahead at the competitive depth.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use runahead_device::tune::{self, MAX_KIB, Readahead, wanted_kib};

use super::{print, profile};

/// Set the kernel's readahead of a device to the competitive depth (root)
///
/// For servers that read many sequential streams at once and are not run
/// under runahead. The depth is latency × transfer rate of the device's profile,
/// the latency of a random read standing for the cost of a switch (Li,
/// Papathanasiou and Shen 2004): throughput is then at least half of the best
/// possible, whatever the streams do. What was set before is kept; --undo sets
/// it back. A restart of the machine undoes it too.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0 when set (or already so), 1 when not.

Examples:
  sudo runahead profile /srv && sudo runahead tune /srv
  sudo runahead tune --dry-run /dev/sda   # only say what would be set
  sudo runahead tune --kib 512 /srv
  sudo runahead tune --undo /srv

Profiles are kept by user: the one that is used is that of who runs this.")]
pub struct Tune {
    /// A block device, or a file or directory on it
    path: PathBuf,

    /// Set so many KiB instead of the competitive depth
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u64).range(4..=MAX_KIB))]
    kib: Option<u64>,

    /// Say what would be set, set nothing
    #[arg(long)]
    dry_run: bool,

    /// Set back what was there before
    #[arg(long, conflicts_with_all = ["kib", "dry_run"])]
    undo: bool,
}

/// Sets, or sets back, the readahead.
///
/// # Errors
/// The device was not measured, has no readahead, or may not be changed.
pub fn run(arguments: &Tune) -> anyhow::Result<ExitCode> {
    let directory = Path::new(tune::DIRECTORY);
    let readahead = Readahead::of(&arguments.path, directory)?;
    if arguments.undo {
        let undone = readahead.undo().with_context(|| {
            format!("set back the readahead of {} (this needs root)", arguments.path.display())
        })?;
        match undone {
            Some(tuned) => print(format_args!(
                "{}: readahead {} KiB, as before ({} KiB until now)",
                readahead.device(),
                tuned.before_kib,
                tuned.set_kib
            ))?,
            None => {
                print(format_args!(
                    "{}: readahead {} KiB; nothing was changed here since the machine started",
                    readahead.device(),
                    readahead.kib()?
                ))?;
                // What was mounted at the path may be elsewhere by now.
                for tuned in tune::all(directory) {
                    print(format_args!(
                        "Changed: {} to {} KiB ({} KiB before)",
                        tuned.device, tuned.set_kib, tuned.before_kib
                    ))?;
                }
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let kib = match arguments.kib {
        Some(kib) => kib,
        None => wanted_kib(&profile::stored(&arguments.path)?),
    };
    let before = readahead.kib()?;
    if arguments.dry_run {
        let device = readahead.device();
        print(format_args!("{device}: readahead {before} KiB, would be {kib} KiB"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let tuned = readahead.set(kib).with_context(|| {
        format!("set the readahead of {} (this needs root)", arguments.path.display())
    })?;
    print(format_args!(
        "{}: readahead {} KiB ({before} KiB until now); `runahead tune --undo {}` sets it back",
        readahead.device(),
        tuned.set_kib,
        arguments.path.display()
    ))?;
    let file = readahead.file().display();
    print(format_args!("To keep it across restarts, set {file} in a udev rule."))?;
    Ok(ExitCode::SUCCESS)
}
