//! Emptying the caches of a device, as after a restart of the machine.

use std::path::Path;

use crate::control::Ask;
use crate::error::Result;
use crate::options::FileSystem;
use crate::state::{Lock, State, Untimed};
use crate::sys::{loop_device, mounts};
use crate::up::{mount_device, mount_overlay};

/// Unmounts and mounts the file system at a mount point (and its overlay), so
/// that its page cache, directory entries and inodes are gone, and empties the
/// block device's own cache. Writing back and mounting take no modelled time,
/// and the counters start from zero.
///
/// # Errors
/// [`Error::NotUp`](crate::Error::NotUp); [`Error::Busy`](crate::Error::Busy) names who uses it,
/// be it another mount namespace, in which it stays mounted.
pub fn cold(mountpoint: &Path) -> Result<()> {
    let _lock = Lock::take()?;
    let state = State::expect(mountpoint)?;
    let _untimed = Untimed::begin(&state)?;
    remount(&state)
}

fn remount(state: &State) -> Result<()> {
    let Some(device) = &state.device else { return remount_object(state) };
    if state.options.fs != FileSystem::Ext4 {
        return loop_device::flush_cache(device);
    }
    if let Some(overlay) = &state.options.overlay {
        mounts::unmount(overlay, false)?;
    }
    let mut emptied = mounts::unmount(&state.options.mountpoint, false);
    if emptied.is_ok() {
        emptied = loop_device::await_unmounted(device);
        loop_device::flush_cache(device)?;
        mount_device(state)?;
    }
    // Also when the emptying failed: leave it as it was.
    mount_overlay(state)?;
    emptied
}

/// The serving process itself mounts a FUSE file system again.
fn remount_object(state: &State) -> Result<()> {
    if let Some(overlay) = &state.options.overlay {
        mounts::unmount(overlay, false)?;
    }
    let remounted = state.ask(Ask::Remount).map(drop);
    mount_overlay(state)?;
    remounted
}
