//! What an interrupted benchmark leaves behind: nothing. On SIGINT, SIGTERM
//! or SIGHUP the running program is killed and the test bed taken down; one that
//! stays up gets its timing back, the machine's own disk its readahead.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use runahead_slowdisk::SlowDisk;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::device_counts::DeviceNumber;

/// Process groups of the programs that run.
static GROUPS: Mutex<BTreeSet<libc::pid_t>> = Mutex::new(BTreeSet::new());
/// An interrupt has come.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Mount point of the test bed that is ours, and the directory that holds it.
static BED: Mutex<Option<(PathBuf, PathBuf)>> = Mutex::new(None);
/// Directories to remove.
static DIRECTORIES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// The machine's own disk and the readahead that it had, in KiB.
static READ_AHEAD: Mutex<Option<(DeviceNumber, u64)>> = Mutex::new(None);
/// Mount point of a test bed that stays up, while its timing is off.
static PAUSED: Mutex<Option<PathBuf>> = Mutex::new(None);
/// Memory cgroups to remove.
static CGROUPS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
static WATCH: Once = Once::new();

/// Marks a program, the leader of its process group, as the one that runs,
/// until it is dropped.
#[derive(Debug)]
pub struct Running(libc::pid_t);

impl Running {
    /// From now on.
    pub fn mark(group: libc::pid_t) -> Self {
        groups().insert(group);
        if INTERRUPTED.load(SeqCst) {
            end_groups();
            halt();
        }
        Self(group)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        groups().remove(&self.0);
        if INTERRUPTED.load(SeqCst) {
            halt();
        }
    }
}

fn groups() -> MutexGuard<'static, BTreeSet<libc::pid_t>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts nothing more: the other thread is about to end this process.
fn halt() -> ! {
    loop {
        std::thread::park();
    }
}

/// Takes the bed at `mountpoint` down, and removes `directory`, should this
/// process be interrupted.
pub fn guard(mountpoint: &Path, directory: &Path) {
    *BED.lock().unwrap_or_else(PoisonError::into_inner) =
        Some((mountpoint.to_owned(), directory.to_owned()));
}

/// From now on an interrupt ends what this process started. Programs run in
/// process groups of their own, so the terminal's interrupt misses them.
pub fn watch() {
    WATCH.call_once(|| {
        // Without the handler an interrupt ends this process at once, as it
        // would anyway: nothing to report.
        if let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) {
            std::thread::spawn(move || {
                if let Some(signal) = signals.forever().next() {
                    clean_up();
                    std::process::exit(128 + signal);
                }
            });
        }
    });
}

/// Removes a directory should this process be interrupted.
pub fn remember_directory(directory: &Path) {
    DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner).insert(directory.to_owned());
}

/// It is about to be removed anyway.
pub fn forget_directory(directory: &Path) {
    DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner).remove(directory);
}

/// Gives a device its readahead back, in KiB, should this process be
/// interrupted.
pub fn remember_read_ahead(device: DeviceNumber, kib: u64) {
    *READ_AHEAD.lock().unwrap_or_else(PoisonError::into_inner) = Some((device, kib));
}

/// It has got it back.
pub fn forget_read_ahead() {
    *READ_AHEAD.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Has `pause` switch the timing of a test bed off, and gives it its timing back
/// should this process be interrupted.
pub fn pause<T>(mountpoint: &Path, pause: impl FnOnce() -> T) -> T {
    let mut paused = PAUSED.lock().unwrap_or_else(PoisonError::into_inner);
    if INTERRUPTED.load(SeqCst) {
        drop(paused);
        halt();
    }
    *paused = Some(mountpoint.to_owned());
    // While nobody else can believe that it is off already.
    pause()
}

/// It has got it back.
pub fn forget_pause() {
    *PAUSED.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Removes a cgroup, and ends whoever is in it, should this process be
/// interrupted.
pub fn remember_cgroup(cgroup: &Path) {
    CGROUPS.lock().unwrap_or_else(PoisonError::into_inner).insert(cgroup.to_owned());
}

/// It is about to be removed anyway.
pub fn forget_cgroup(cgroup: &Path) {
    CGROUPS.lock().unwrap_or_else(PoisonError::into_inner).remove(cgroup);
}

/// The bed is down: nothing to do for it any more.
pub fn release() {
    *BED.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// How long a program may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// Ends the programs that run: asks them first, since a database server has
/// shared memory to remove.
fn end_groups() {
    let deadline = Instant::now() + PATIENCE;
    let mut signal = libc::SIGINT;
    loop {
        {
            // None once a program is reaped: its number may be another's then.
            let groups = groups();
            if groups.is_empty() {
                return;
            }
            for group in &*groups {
                // SAFETY: plain call; the group is that of a child not yet reaped.
                unsafe { libc::kill(-group, signal) };
            }
        }
        if signal == libc::SIGKILL {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
        signal = if Instant::now() < deadline { 0 } else { libc::SIGKILL };
    }
}

fn clean_up() {
    INTERRUPTED.store(true, SeqCst);
    end_groups();
    let cgroups = CGROUPS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for cgroup in cgroups {
        crate::cgroup::clear(&cgroup);
    }
    let bed = BED.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((mountpoint, directory)) = bed {
        if let Err(error) = runahead_slowdisk::down(&mountpoint, true) {
            crate::progress::say(error);
        }
        let _ = std::fs::remove_dir(mountpoint);
        let _ = std::fs::remove_dir_all(directory);
    }
    let paused = PAUSED.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(bed) = paused.and_then(|mountpoint| SlowDisk::at(&mountpoint).ok()) {
        let _ = crate::place::resume(&bed);
    }
    let read_ahead = READ_AHEAD.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((device, kib)) = read_ahead {
        let _ = device.set_read_ahead_kb(kib);
    }
    let directories = DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for directory in directories {
        let _ = std::fs::remove_dir_all(directory);
    }
}
