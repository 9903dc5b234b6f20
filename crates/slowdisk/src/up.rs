//! Bringing a device up.

use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::control::Ask;
use crate::daemon;
use crate::down::{clear_orphans, tear_down};
use crate::error::{Context, Error, Result};
use crate::options::{FileSystem, UpOptions};
use crate::profile::{Medium, Profile};
use crate::state::{Lock, Owner, State, absolute, list};
use crate::store::IMAGE;
use crate::sys::{loop_device, mkfs, mounts, swap};

/// Where the nvme profile keeps its image by default: on the machine's disk,
/// while /tmp may be in memory.
const LOCAL_DIRECTORY: &str = "/var/tmp";

/// Brings a device up. What remains of a crashed one at the same place is
/// cleaned up first.
///
/// The device belongs to this process as long as it has the [`Owner`].
pub(crate) fn up(options: &UpOptions) -> Result<(State, Owner)> {
    let profile = options.resolve()?;
    preflight(options, &profile)?;
    let options = with_absolute_paths(options)?;
    let _lock = Lock::take()?;
    clear_orphans();
    clear_remains(&options)?;
    check_places(&options)?;
    check_backing(&options, &profile)?;
    let mut state = State::create(&options)?;
    let owner = state.own()?;
    match build(&mut state, &profile) {
        Ok(()) => Ok((state, owner)),
        Err(error) => {
            // The first error tells why; a second one would only hide it.
            let _ = tear_down(&state, true);
            Err(error)
        }
    }
}

fn preflight(options: &UpOptions, profile: &Profile) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    if profile.medium != Medium::Local {
        fs::File::options().read(true).write(true).open("/dev/fuse").map_err(Error::NoFuse)?;
        daemon::executable(options)?;
    }
    if profile.medium != Medium::Object {
        loop_device::preflight()?;
        if options.fs == FileSystem::Ext4 {
            mkfs::preflight()?;
        }
        if options.fs == FileSystem::Swap {
            swap::preflight(options.backing.as_deref())?;
        }
    }
    Ok(())
}

fn with_absolute_paths(options: &UpOptions) -> Result<UpOptions> {
    let mut options = options.clone();
    options.mountpoint = absolute(&options.mountpoint)?;
    options.overlay = options.overlay.as_deref().map(absolute).transpose()?;
    options.backing = options.backing.as_deref().map(absolute).transpose()?;
    Ok(options)
}

fn clear_remains(options: &UpOptions) -> Result<()> {
    for place in std::iter::once(&options.mountpoint).chain(&options.overlay) {
        let Some(state) = State::find(place)? else { continue };
        if state.ready && state.is_alive() {
            let why = format!(
                "profile {} is up there already: take it down first \
                 (runahead slowdisk down {})",
                state.options.profile,
                state.name()
            );
            return Err(Error::MountPoint { path: place.clone(), why });
        }
        tear_down(&state, true)?;
    }
    Ok(())
}

fn check_places(options: &UpOptions) -> Result<()> {
    for path in std::iter::once(&options.mountpoint).chain(&options.overlay) {
        let refuse = |why: &str| Err(Error::MountPoint { path: path.clone(), why: why.into() });
        if let Some((kind, source)) = mounts::mounted_at(path) {
            return refuse(&format!(
                "{kind} ({source}) is mounted there: unmount it, or choose another place"
            ));
        }
        match fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
            Ok(true) => {}
            Ok(false) => return refuse("the directory is not empty: choose an empty or a new one"),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return refuse(&format!("cannot be used: {error}")),
        }
    }
    Ok(())
}

fn check_backing(options: &UpOptions, profile: &Profile) -> Result<()> {
    let Some(backing) = &options.backing else { return Ok(()) };
    let refuse = |path: &Path, why: String| Err(Error::MountPoint { path: path.to_owned(), why });
    if !backing.is_dir() {
        return refuse(backing, "the backing directory does not exist: create it first".into());
    }
    let mut places = std::iter::once(&options.mountpoint).chain(&options.overlay);
    if profile.medium == Medium::Object
        && let Some(place) = places.find(|place| place.starts_with(backing))
    {
        let why = "it is in the backing directory, so that the device would wait for itself: \
                   choose a place outside";
        return refuse(place, why.into());
    }
    // Two file systems in one image destroy each other.
    let image = backing.join(IMAGE);
    let has_it = |state: &State| state.image().as_ref() == Some(&image) && state.is_alive();
    match list()?.iter().find(|state| keeps_image(profile) && has_it(state)) {
        Some(other) => refuse(
            backing,
            format!(
                "the device at {} has its contents there: take that one down first, or give \
                 another directory",
                other.name()
            ),
        ),
        None => Ok(()),
    }
}

/// Whether a backing directory keeps the contents as [`IMAGE`].
fn keeps_image(profile: &Profile) -> bool {
    matches!(profile.medium, Medium::Disks | Medium::Network)
}

/// Makes a directory if it is not there; true if it was made.
fn make_directory(path: &Path) -> Result<bool> {
    if path.is_dir() {
        return Ok(false);
    }
    fs::create_dir(path).context(|| format!("create {}", path.display()))?;
    Ok(true)
}

fn build(state: &mut State, profile: &Profile) -> Result<()> {
    let is_kept = keeps_image(profile) && has_contents(&state.options)?;
    state.made_mountpoint = make_directory(&state.options.mountpoint)?;
    state.save()?;
    match profile.medium {
        Medium::Disks | Medium::Network => {
            make_directory(&state.fuse_directory())?;
            state.daemon = Some(daemon::start(state)?);
            attach(state, state.disk_file(), profile.medium == Medium::Disks)?;
        }
        Medium::Object => {
            if state.options.backing.is_none() {
                let objects = state.object_directory();
                make_directory(&objects)?;
                let size = format!("mode=755,size={}", state.options.size_bytes);
                mounts::mount("runahead-slowdisk", &objects, "tmpfs", &size)?;
            }
            state.daemon = Some(daemon::start(state)?);
        }
        Medium::Local => {
            let image = local_image(state)?;
            attach(state, image, false)?;
        }
    }
    state.save()?;
    if let (Some(device), FileSystem::Ext4) = (&state.device, state.options.fs) {
        if !is_kept {
            mkfs::ext4(device, state.options.size_bytes, state.options.seed)?;
        }
        mount_device(state)?;
    }
    if let (Some(device), FileSystem::Swap) = (&state.device, state.options.fs) {
        swap::on(device)?;
    }
    if let Some(overlay) = state.options.overlay.clone() {
        state.made_overlay = make_directory(&overlay)?;
        prepare_upper(state)?;
        mount_overlay(state)?;
    }
    if state.daemon.is_some() {
        if !state.options.paused {
            state.ask(Ask::Resume)?;
        }
        state.ask(Ask::Reset)?;
    }
    state.ready = true;
    state.save()
}

/// Whether the backing directory holds the contents of an earlier device.
///
/// # Errors
/// If what is there cannot be this device's.
fn has_contents(options: &UpOptions) -> Result<bool> {
    let Some(backing) = &options.backing else { return Ok(false) };
    let image = backing.join(IMAGE);
    let refuse = |why| Err(Error::MountPoint { path: image.clone(), why });
    match fs::symlink_metadata(&image) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).context(|| format!("look at {}", image.display())),
        // Of a device that did not come up: nothing was ever written.
        Ok(found) if found.is_file() && found.blocks() == 0 => Ok(false),
        Ok(found) if !found.is_file() || found.len() != options.size_bytes => refuse(format!(
            "it is there, {} bytes long, and not the contents of a device of {}: \
             give the --size that it had, or another directory",
            found.len(),
            options.size_bytes
        )),
        // Nobody finds again what was swapped out to an earlier one.
        Ok(_) if options.fs == FileSystem::Swap && swap::is_space(&image) => Ok(false),
        Ok(_) if options.fs == FileSystem::Swap => {
            refuse("it is there, and swap would overwrite it: give another directory".into())
        }
        Ok(_) if options.fs == FileSystem::Ext4 && !mkfs::is_ext4(&image) => refuse(
            "it is there and holds no ext4: remove it if nobody needs it, or give another \
             directory"
                .into(),
        ),
        Ok(_) => Ok(true),
    }
}

/// Makes the loop device, remembering it at once for the cleaning up.
fn attach(state: &mut State, file: PathBuf, rotational: bool) -> Result<()> {
    state.backing_file = Some(file.clone());
    state.save()?;
    state.device = Some(loop_device::attach(&file, rotational)?);
    state.save()
}

/// A fully allocated image: a sparse one would answer from its extent map.
fn local_image(state: &State) -> Result<PathBuf> {
    let directory = state.options.backing.clone().unwrap_or_else(|| LOCAL_DIRECTORY.into());
    let name = state.directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let path = directory.join(format!("runahead-slowdisk-{name}.img"));
    let bytes = state.options.size_bytes;
    // Of an earlier device whose machine went down; a link is not followed, in a
    // directory that is everybody's.
    if fs::symlink_metadata(&path).is_ok_and(|left| left.is_file()) {
        fs::remove_file(&path).context(|| format!("remove {}", path.display()))?;
    }
    let mut open = fs::File::options();
    let file = open.write(true).create_new(true).mode(0o600).open(&path);
    let file = file.context(|| format!("create {}", path.display()))?;
    let made = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes);
    if made.is_err() {
        let _ = fs::remove_file(&path);
    }
    made.context(|| format!("allocate {bytes} bytes for {}", path.display()))?;
    Ok(path)
}

/// Mounts the ext4 of a device at its mount point.
pub(crate) fn mount_device(state: &State) -> Result<()> {
    let Some(device) = &state.device else { return Ok(()) };
    loop_device::pin_again(device)?;
    let (source, target) = (mounts::source(device)?, &state.options.mountpoint);
    // Else a thread of the kernel reads block bitmaps at some moment of the first five
    // seconds (ext4_init_fs()'s lazy initialisation, Linux 5.13 on): requests that nobody
    // who uses the device has made. Before that there is no such option, nor that thread.
    mounts::mount(source, target, "ext4", "no_prefetch_block_bitmaps")
        .or_else(|_| mounts::mount(source, target, "ext4", ""))
}

fn prepare_upper(state: &State) -> Result<()> {
    let upper = state.upper_directory();
    make_directory(&upper)?;
    mounts::mount("runahead-slowdisk", &upper, "tmpfs", "mode=755")?;
    make_directory(&upper.join("upper"))?;
    make_directory(&upper.join("work"))?;
    Ok(())
}

/// Mounts the overlay, if there is one: the device below, tmpfs above.
pub(crate) fn mount_overlay(state: &State) -> Result<()> {
    let Some(overlay) = &state.options.overlay else { return Ok(()) };
    let upper = state.upper_directory();
    let lower = mounts::source(&state.options.mountpoint)?;
    if lower.contains([',', ':', '\\']) {
        return Err(Error::Usage(format!("{lower}: overlayfs takes no , : or \\ in this path")));
    }
    let upper = mounts::source(&upper)?;
    let data = format!("lowerdir={lower},upperdir={upper}/upper,workdir={upper}/work");
    mounts::mount("overlay", overlay, "overlay", &data)
}
