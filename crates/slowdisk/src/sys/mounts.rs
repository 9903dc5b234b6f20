//! Mounting, unmounting, and who is in the way.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;

use crate::error::{Context, Error, Result};

/// Retries while a just-ended process still lets go of its files.
const BUSY_RETRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// Processes named in a message.
const HOLDERS_NAMED_MAX: usize = 5;

/// A line of mountinfo (proc(5)).
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    device: (u32, u32),
    mountpoint: PathBuf,
    kind: String,
    source: String,
}

/// The topmost mount exactly there.
fn topmost(path: &Path) -> Option<Mount> {
    let table = fs::read("/proc/self/mountinfo").ok()?;
    let lines = table.split(|byte| *byte == b'\n');
    lines.filter_map(parse_mount).rfind(|mount| mount.mountpoint == path)
}

/// (file system type, source) of the topmost mount exactly there.
pub fn mounted_at(path: &Path) -> Option<(String, String)> {
    topmost(path).map(|mount| (mount.kind, mount.source))
}

/// Device number of the topmost mount exactly there.
pub fn device_at(path: &Path) -> Option<(u32, u32)> {
    topmost(path).map(|mount| mount.device)
}

fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let number = text(fields.nth(2)?);
    let (major, minor) = number.split_once(':')?;
    let mountpoint = PathBuf::from(std::ffi::OsString::from_vec(unescape(fields.nth(1)?)));
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    Some(Mount {
        device: (major.parse().ok()?, minor.parse().ok()?),
        mountpoint,
        kind: text(rest.next()?),
        source: text(rest.next()?),
    })
}

/// Octal escapes of mountinfo: space, tab, newline, backslash.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut at = 0;
    while let Some(byte) = field.get(at) {
        let octal = field.get(at + 1..at + 4).filter(|_| *byte == b'\\');
        let value = octal.and_then(|o| u8::from_str_radix(std::str::from_utf8(o).ok()?, 8).ok());
        out.push(value.unwrap_or(*byte));
        at += if value.is_some() { 4 } else { 1 };
    }
    out
}

/// Mounts.
pub fn mount(source: &str, target: &Path, kind: &str, data: &str) -> Result<()> {
    let data_c = CString::new(data).context(|| "mount: a zero byte in the options".into())?;
    rustix::mount::mount(source, target, kind, MountFlags::empty(), Some(data_c.as_c_str()))
        .context(|| format!("mount {kind} {source} at {} ({data})", target.display()))
}

/// Unmounts what is mounted there, if anything. `lazy` detaches it even when
/// in use.
///
/// # Errors
/// [`Error::Busy`] names who uses it.
pub fn unmount(target: &Path, lazy: bool) -> Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    for attempt in 0.. {
        match rustix::mount::unmount(target, flags) {
            Ok(()) => return Ok(()),
            Err(Errno::INVAL | Errno::NOENT) => return Ok(()), // Nothing is mounted there.
            Err(Errno::BUSY) if attempt < BUSY_RETRIES => std::thread::sleep(BUSY_PAUSE),
            Err(Errno::BUSY) => {
                return Err(Error::Busy { path: target.to_owned(), holders: holders(target) });
            }
            Err(error) => return Err(error).context(|| format!("unmount {}", target.display())),
        }
    }
    unreachable!("the loop ends by returning")
}

/// Leaves the caller's mounts to others: this thread, and those that it starts,
/// go on in a mount namespace of their own with nothing but the root. What is
/// open stays open.
///
/// The process that serves a file system must not be the last one to see it
/// mounted: the end of the namespace unmounts it, as a part of the process's
/// own end, before the kernel closes the process's end of FUSE (Linux 6.18,
/// `do_exit`). A file system on top then waits for ever for its last write.
///
/// # Errors
/// If there can be no namespace. A mount that cannot be left is only logged.
pub fn leave_all() -> Result<()> {
    // SAFETY: no descriptors are unshared; the file system's root and working
    // directory are found by this thread only.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }
        .context(|| "make a mount namespace".into())?;
    // From here on no mount is copied from the caller, and no unmount to it.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).context(|| "make the mounts private".into())?;
    let table = fs::read("/proc/self/mountinfo").context(|| "read the table of mounts".into())?;
    let mounts: Vec<Mount> = table.split(|byte| *byte == b'\n').filter_map(parse_mount).collect();
    // What is mounted below comes later: it goes with the first, and no name is
    // looked up in a file system that may not answer.
    for mount in mounts.iter().filter(|mount| mount.mountpoint != Path::new("/")) {
        match rustix::mount::unmount(&mount.mountpoint, UnmountFlags::DETACH) {
            // Gone with the one that it was mounted on.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(error) => log::warn!("cannot leave {}: {error}", mount.mountpoint.display()),
        }
    }
    Ok(())
}

/// " by NAME (PID), …": processes with files, directories or mappings below a
/// mount, or with that very file open.
pub fn holders(mountpoint: &Path) -> String {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        if holds(&entry.path(), mountpoint) {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push(format!("{} ({pid})", name.trim()));
        }
    }
    let more = found.len().saturating_sub(HOLDERS_NAMED_MAX);
    found.truncate(HOLDERS_NAMED_MAX);
    match (found.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => format!(" by {}", found.join(", ")),
        (false, more) => format!(" by {} and {more} more", found.join(", ")),
    }
}

fn holds(process: &Path, mountpoint: &Path) -> bool {
    let below = |link: PathBuf| fs::read_link(link).is_ok_and(|path| path.starts_with(mountpoint));
    let mut links = ["cwd", "root", "exe"].into_iter().map(|name| process.join(name));
    if links.any(below) {
        return true;
    }
    let listed = ["fd", "map_files"].into_iter().filter_map(|d| fs::read_dir(process.join(d)).ok());
    listed.flatten().flatten().any(|entry| below(entry.path()))
}

/// Pins the readahead of the device with that number, in KiB.
pub fn pin_readahead(major: u32, minor: u32, kib: u32) -> Result<()> {
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    fs::write(&path, kib.to_string()).context(|| format!("set {path} to {kib}"))
}

/// A path as a mount source.
pub fn source(path: &Path) -> Result<&str> {
    std::str::from_utf8(path.as_os_str().as_bytes())
        .map_err(|_| Error::Usage(format!("{}: the path is not UTF-8", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_mountinfo() {
        let line = b"36 35 98:0 /mnt1 /mnt/a\\040b\\134 rw,noatime master:1 - ext3 /dev/root rw";
        let mount = parse_mount(line).unwrap();
        assert_eq!(mount.device, (98, 0));
        assert_eq!(mount.mountpoint, Path::new("/mnt/a b\\"));
        assert_eq!((mount.kind.as_str(), mount.source.as_str()), ("ext3", "/dev/root"));
        assert_eq!(parse_mount(b"nonsense"), None);
    }

    #[test]
    fn proc_is_mounted_and_its_files_are_not() {
        assert_eq!(mounted_at(Path::new("/proc")).unwrap().0, "proc");
        assert_eq!(mounted_at(Path::new("/proc/self")), None);
    }
}
