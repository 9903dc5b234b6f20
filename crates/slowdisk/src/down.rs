//! Taking a device down, also when its process is dead.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use crate::control::Ask;
use crate::error::{Context, Error, Result};
use crate::options::FileSystem;
use crate::profile::{Medium, Profile};
use crate::serve::FUSE_SOURCE;
use crate::state::{Lock, State, Untimed, list};
use crate::sys::{loop_device, mounts, swap};

/// How long the process may take to end after it was told to.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Takes down the device at a mount point. Its contents are lost, unless they
/// are in a backing directory. With `force`, mounts in use are detached.
///
/// # Errors
/// [`Error::NotUp`]; [`Error::Busy`] if it is in use and not forced.
pub fn down(mountpoint: &Path, force: bool) -> Result<()> {
    let _lock = Lock::take()?;
    let state = State::expect(mountpoint)?;
    let done = tear_down(&state, force);
    clear_orphans();
    done
}

/// Takes down every device; returns how many.
///
/// # Errors
/// The first failure, after all were tried.
pub fn down_all(force: bool) -> Result<usize> {
    let _lock = Lock::take()?;
    let states = list()?;
    let outcomes: Vec<Result<()>> = states.iter().map(|state| tear_down(state, force)).collect();
    outcomes.into_iter().collect::<Result<Vec<()>>>()?;
    Ok(states.len())
}

/// Takes down what belonged to processes that have ended without doing so.
/// What cannot be taken down stays listed; [`down`] says why.
pub(crate) fn clear_orphans() {
    for state in list().unwrap_or_default().iter().filter(|state| state.is_orphan()) {
        if let Err(error) = tear_down(state, true) {
            log::warn!("{}, left by a process that has ended: {error}", state.name());
        }
    }
}

/// Undoes whatever of a device is there, in the reverse order of `up`.
pub(crate) fn tear_down(state: &State, force: bool) -> Result<()> {
    let alive = state.daemon.is_some() && state.is_alive();
    // What is still dirty is thrown away anyway: write it at full speed. If it
    // is in use and stays up, it takes its time again.
    let _untimed = match alive.then(|| Untimed::begin(state)) {
        // It hangs, and so would the unmounting, until its requests fail.
        Some(Err(_)) if force => {
            stop_process(state, false);
            None
        }
        other => other.transpose()?,
    };
    let lazy = force || !state.is_alive();
    if let (Some(device), FileSystem::Swap) = (&state.device, state.options.fs) {
        // Never taken from under the kernel, not by force either: whatever is
        // swapped out there would be lost.
        if loop_is_ours(state, device) {
            swap::off(device)?;
        }
    }
    if let Some(overlay) = &state.options.overlay {
        mounts::unmount(overlay, false).or_else(|error| detach_if(lazy, overlay, error))?;
        mounts::unmount(&state.upper_directory(), lazy)?;
    }
    let mountpoint = &state.options.mountpoint;
    if is_ours(state) {
        mounts::unmount(mountpoint, false).or_else(|error| detach_if(lazy, mountpoint, error))?;
    }
    free_loop_device(state, lazy)?;
    stop_process(state, alive);
    mounts::unmount(&state.fuse_directory(), true)?;
    if state.options.backing.is_none() {
        mounts::unmount(&state.object_directory(), true)?;
    }
    let synced = sync_contents(state);
    remove_traces(state);
    synced
}

/// Writes what a backing directory keeps to its disk, as a device does that is told
/// to; nobody finds again what was swapped out.
fn sync_contents(state: &State) -> Result<()> {
    let Some(image) = state.image().filter(|_| state.options.fs != FileSystem::Swap) else {
        return Ok(());
    };
    // Where it is gone, there is nothing to lose.
    let Ok(file) = File::open(&image) else { return Ok(()) };
    file.sync_all().context(|| format!("write {} to its disk", image.display()))
}

fn detach_if(lazy: bool, path: &Path, error: Error) -> Result<()> {
    if lazy { mounts::unmount(path, true) } else { Err(error) }
}

/// Whether what is mounted at the mount point is this device, and not
/// something that was mounted there since.
fn is_ours(state: &State) -> bool {
    let Some((kind, source)) = mounts::mounted_at(&state.options.mountpoint) else { return false };
    match &state.device {
        Some(device) => Path::new(&source) == device,
        None => kind.starts_with("fuse") && source.starts_with(FUSE_SOURCE),
    }
}

/// Frees the loop device if it is still ours.
fn free_loop_device(state: &State, lazy: bool) -> Result<()> {
    let (Some(device), Some(file)) = (&state.device, &state.backing_file) else { return Ok(()) };
    if is_behind(device, file) {
        if !lazy {
            loop_device::check_unused(device)?;
        }
        loop_device::detach(device)?;
    }
    Ok(())
}

fn is_behind(device: &Path, file: &Path) -> bool {
    let Some(behind) = loop_device::backing_file(device) else { return false };
    // A detached FUSE mount shows its file without the directories above.
    let orphaned = file.file_name().map(|name| Path::new("/").join(name));
    behind == file || Some(behind) == orphaned
}

fn loop_is_ours(state: &State, device: &Path) -> bool {
    state.backing_file.as_ref().is_some_and(|file| is_behind(device, file))
}

fn stop_process(state: &State, alive: bool) {
    let Some(daemon) = &state.daemon else { return };
    if alive {
        let _ = state.ask(Ask::Stop);
        daemon.wait_gone(END_PATIENCE);
    }
    // Also one that hangs: with it goes the FUSE connection.
    daemon.kill();
    daemon.wait_gone(END_PATIENCE);
}

fn remove_traces(state: &State) {
    // Empty directories of ours; anything else there is not ours to remove.
    if state.made_overlay
        && let Some(overlay) = &state.options.overlay
    {
        let _ = fs::remove_dir(overlay);
    }
    if state.made_mountpoint {
        let _ = fs::remove_dir(&state.options.mountpoint);
    }
    let local = Profile::by_name(&state.options.profile).is_ok_and(|p| p.medium == Medium::Local);
    if let (true, Some(image)) = (local, &state.backing_file) {
        let _ = fs::remove_file(image);
    }
    let _ = fs::remove_dir_all(&state.directory);
}
