//! Loop devices with direct I/O, through their ioctls (loop(4)).

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Context, Error, Result};
use crate::sys::mounts::{holders, pin_readahead};

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LOOP_CLR_FD: libc::Ioctl = 0x4C01;
const BLKFLSBUF: libc::Ioctl = 0x1261;
const LO_FLAGS_DIRECT_IO: u32 = 16;
/// Others may take the free device first; then ask again.
const ATTEMPTS: u32 = 32;
/// How long another mount namespace may keep a file system mounted before that
/// is an error: it may just be ending. And the pause between two looks.
const ELSEWHERE_LONGEST: Duration = Duration::from_secs(5);
const ELSEWHERE_PAUSE: Duration = Duration::from_millis(2);
/// Linux's default, which a loop device does not have by itself.
pub const READ_AHEAD_KIB: u32 = 128;
/// What the kernel gives a loop device that is new.
const SCHEDULER: &str = "none";

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of linux/loop.h.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

/// Checks that loop devices can be had.
pub fn preflight() -> Result<()> {
    File::options().read(true).write(true).open("/dev/loop-control").map_err(Error::NoLoop)?;
    Ok(())
}

/// Makes a file a block device with direct I/O and readahead pinned to 128 KiB.
pub fn attach(file: &Path, rotational: bool) -> Result<PathBuf> {
    let backing = File::options()
        .read(true)
        .write(true)
        .open(file)
        .context(|| format!("open {}", file.display()))?;
    let device = configure_free(&backing)?;
    let pinned = pin(&device, rotational);
    if pinned.is_err() {
        let _ = detach(&device);
    }
    pinned.map(|()| device)
}

fn configure_free(backing: &File) -> Result<PathBuf> {
    let control =
        File::options().read(true).write(true).open("/dev/loop-control").map_err(Error::NoLoop)?;
    let mut last = io::Error::from(io::ErrorKind::ResourceBusy);
    for _ in 0..ATTEMPTS {
        // SAFETY: this ioctl takes no argument.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
        if number < 0 {
            return Err(Error::NoLoop(io::Error::last_os_error()));
        }
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = File::options().read(true).write(true).open(&path).map_err(Error::NoLoop)?;
        match configure(&device, backing) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => last = error,
            Err(error) => {
                return Err(error).context(|| format!("set up {}", path.display()));
            }
        }
    }
    Err(Error::NoLoop(last))
}

fn configure(device: &File, backing: &File) -> io::Result<()> {
    // SAFETY: every field is an integer or an array of integers: zero is valid.
    let mut config: LoopConfig = unsafe { std::mem::zeroed() };
    config.fd = backing.as_raw_fd() as u32;
    config.info.flags = LO_FLAGS_DIRECT_IO;
    // SAFETY: the kernel reads one `struct loop_config` from the pointer.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Directory of the device in /sys.
fn sysfs(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default())
}

/// Sets what decides about readahead, order, write-back and cache, and checks that
/// it took.
fn pin(device: &Path, rotational: bool) -> Result<()> {
    let sysfs = sysfs(device);
    let set = |name: &str, value: &str| {
        let path = sysfs.join("queue").join(name);
        fs::write(&path, value).context(|| format!("set {} to {value}", path.display()))
    };
    set("read_ahead_kb", &READ_AHEAD_KIB.to_string())?;
    set("rotational", if rotational { "1" } else { "0" })?;
    // A loop device keeps the scheduler that somebody once gave it: with BFQ a
    // prefetch waited until the program's own read was over.
    set("scheduler", SCHEDULER)?;
    // The aim of write-back throttling was chosen when the queue was made: again,
    // by what the device is now (2 ms; 75 ms where it rotates). Some kernels
    // have none.
    if sysfs.join("queue/wbt_lat_usec").exists() {
        set("wbt_lat_usec", "-1")?;
    }
    let direct = fs::read_to_string(sysfs.join("loop/dio")).unwrap_or_default();
    if direct.trim() != "1" {
        return Err(Error::Usage(format!(
            "{} refuses direct I/O: its backing file would be cached a second time and every \
             result would be wrong",
            device.display()
        )));
    }
    Ok(())
}

/// Pins readahead once more (mounting does not change it; others might).
pub fn pin_again(device: &Path) -> Result<()> {
    let text = fs::read_to_string(sysfs(device).join("dev")).unwrap_or_default();
    let numbers: Vec<u32> = text.trim().split(':').flat_map(str::parse).collect();
    match numbers[..] {
        [major, minor] => pin_readahead(major, minor, READ_AHEAD_KIB),
        _ => Err(Error::Usage(format!("{} has no device number", device.display()))),
    }
}

/// The file behind a loop device, as /sys tells it; none when it is free.
pub fn backing_file(device: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(sysfs(device).join("loop/backing_file")).ok()?;
    Some(PathBuf::from(text.trim_end_matches('\n')))
}

/// Checks that nobody uses a block device: as swap, mounted elsewhere, or open.
///
/// # Errors
/// [`Error::Busy`].
pub fn check_unused(device: &Path) -> Result<()> {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let name = device.to_string_lossy();
    if swaps.lines().any(|line| line.split_whitespace().next() == Some(&name)) {
        let holders = format!(" as swap (swapoff {name})");
        return Err(Error::Busy { path: device.to_owned(), holders });
    }
    let holders = holders(device);
    if is_claimed(device) || !holders.is_empty() {
        return Err(Error::Busy { path: device.to_owned(), holders });
    }
    Ok(())
}

/// Whether a mount, wherever it is, has the device: an exclusive open fails.
fn is_claimed(device: &Path) -> bool {
    let opened = File::options().read(true).custom_flags(libc::O_EXCL).open(device);
    opened.is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
}

/// Waits until the file system on a device is unmounted everywhere. A mount
/// namespace that was made meanwhile has a mount of its own, and with it lives
/// the file system's cache.
///
/// # Errors
/// [`Error::Busy`] when that lasts.
pub fn await_unmounted(device: &Path) -> Result<()> {
    let begun = Instant::now();
    while is_claimed(device) {
        if begun.elapsed() > ELSEWHERE_LONGEST {
            let holders = " in another mount namespace (`lsns -t mnt` lists them)".to_owned();
            return Err(Error::Busy { path: device.to_owned(), holders });
        }
        std::thread::sleep(ELSEWHERE_PAUSE);
    }
    Ok(())
}

/// Frees a loop device (at its last close, when it is in use).
pub fn detach(device: &Path) -> Result<()> {
    let file = File::open(device).context(|| format!("open {}", device.display()))?;
    // Whoever gets the device next finds it as it was; where that fails, `pin`
    // does it for us.
    let _ = fs::write(sysfs(device).join("queue/scheduler"), SCHEDULER);
    // SAFETY: this ioctl takes no argument.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), LOOP_CLR_FD) };
    let error = io::Error::last_os_error();
    if done < 0 && error.raw_os_error() != Some(libc::ENXIO) {
        return Err(error).context(|| format!("free {}", device.display()));
    }
    Ok(())
}

/// Empties the block device's own page cache (BLKFLSBUF writes back first).
pub fn flush_cache(device: &Path) -> Result<()> {
    let file = File::open(device).context(|| format!("open {}", device.display()))?;
    // SAFETY: this ioctl ignores its argument.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), BLKFLSBUF, 0) };
    if done < 0 {
        return Err(io::Error::last_os_error())
            .context(|| format!("empty the cache of {}", device.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernel_sizes() {
        assert_eq!(size_of::<LoopInfo64>(), 232);
        assert_eq!(size_of::<LoopConfig>(), 304);
    }
}
