//! The file systems of interest: how each can be asked whether a read would
//! wait, and what the kernel's readahead is set to.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use runahead_device::identity::Identity;
use rustix::io::{Errno, ReadWriteFlags};

use super::trial::check;
use super::{Check, Standing};

const AREA: &str = "files";
const PAGE: usize = 4096;
/// Linux's default; the agent's prefetches are cut to it.
const READ_AHEAD_KIB: u32 = 128;

pub fn checks(paths: &[PathBuf]) -> Vec<Check> {
    let mut places: Vec<PathBuf> = vec!["/".into()];
    places.extend(std::env::var_os("HOME").map(PathBuf::from));
    places.extend(std::env::current_dir());
    places.push("/tmp".into());
    places.extend(paths.iter().cloned());
    let mut seen = Vec::new();
    let mut checks = Vec::new();
    for (index, place) in places.iter().enumerate() {
        let given = index >= places.len() - paths.len();
        match fs::metadata(place) {
            Ok(status) if given || !seen.contains(&status.dev()) => {
                seen.push(status.dev());
                checks.extend(file_system(place));
            }
            Err(error) if given => {
                let check = Check::new(
                    AREA,
                    &place.display().to_string(),
                    Standing::Missing,
                    error.to_string(),
                );
                checks.push(check.or_lost("give a path that exists and that you may enter"));
            }
            _ => {}
        }
    }
    checks
}

/// A file to ask about, on the file system of a path.
struct Sample {
    file: File,
    /// Ours, so that everything may be asked about it.
    own: bool,
}

fn sample(place: &Path) -> io::Result<Sample> {
    if place.is_file() {
        return Ok(Sample { file: File::open(place)?, own: false });
    }
    // Without a name: gone with its last descriptor.
    let flags =
        rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    if let Ok(fd) = rustix::fs::open(place, flags, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
    {
        let mut file = File::from(fd);
        file.write_all(&[7; 4 * PAGE])?;
        return Ok(Sample { file, own: true });
    }
    // A directory of somebody else: any file there that may be read.
    let device = fs::metadata(place)?.dev();
    let mut directories = vec![place.to_owned()];
    for _ in 0..200 {
        let Some(directory) = directories.pop() else { break };
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.filter_map(Result::ok).take(500) {
            let Ok(status) = entry.metadata() else { continue };
            if status.dev() != device {
                continue;
            }
            if status.is_dir() {
                directories.push(entry.path());
            } else if status.is_file()
                && status.len() > 0
                && let Ok(file) = File::open(entry.path())
            {
                return Ok(Sample { file, own: false });
            }
        }
    }
    Err(io::Error::other("no file there may be read"))
}

fn file_system(place: &Path) -> Vec<Check> {
    let identity = Identity::of(place);
    let device =
        identity.as_ref().map_or_else(|_| "?".to_owned(), |identity| identity.name.clone());
    let kind = kind(place);
    let name = format!("{} ({kind} on {device})", place.display());
    let mut checks = vec![match sample(place) {
        Ok(sample) => residency(&name, &sample),
        Err(error) => Check::new(AREA, &name, Standing::Missing, error.to_string())
            .or_lost("not tried: give a file there"),
    }];
    if let Some(kib) = identity.ok().and_then(|identity| identity.read_ahead_kib) {
        let standing = if kib < READ_AHEAD_KIB { Standing::Reduced } else { Standing::Works };
        checks.push(
            Check::new(AREA, &format!("  readahead of {device}"), standing, format!("{kib} KiB"))
                .or_lost(
                    "prefetches are cut into pieces of this size; as root: blockdev --setra 256",
                ),
        );
    }
    checks
}

fn kind(place: &Path) -> String {
    let Ok(status) = fs::metadata(place) else { return "?".into() };
    let number = format!("{}:{}", rustix::fs::major(status.dev()), rustix::fs::minor(status.dev()));
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let line = table.lines().rev().find(|line| line.split(' ').nth(2) == Some(&number));
    let kind = line.and_then(|line| line.split(" - ").nth(1)?.split(' ').next());
    kind.unwrap_or("?").to_owned()
}

/// Asks in the three ways that there are.
fn residency(name: &str, sample: &Sample) -> Check {
    // In memory now: each way must say so.
    let _ = sample.file.read_at(&mut [0; PAGE], 0);
    let nowait = no_wait(&sample.file);
    let cachestat = cache_statistics(&sample.file);
    let mincore = in_core(&sample.file);
    let word = |result: &Result<bool, Errno>| match result {
        Ok(true) => "works".to_owned(),
        Ok(false) => "misleading".to_owned(),
        Err(errno) => {
            let text = io::Error::from(*errno).to_string();
            text.split(" (os error").next().unwrap_or_default().to_owned()
        }
    };
    let whose = if sample.own { "" } else { " (a file of others)" };
    let found = format!(
        "RWF_NOWAIT {}; cachestat {}; mincore {}{whose}",
        word(&nowait),
        word(&cachestat),
        word(&mincore)
    );
    let standing = match (nowait, cachestat, mincore) {
        (Ok(true), _, _) => Standing::Works,
        (_, Ok(true), _) | (_, _, Ok(true)) => Standing::Reduced,
        _ => Standing::Missing,
    };
    Check::new(AREA, name, standing, found).or_lost(match standing {
        Standing::Missing => "stalls on files here are not noticed before they happen",
        _ => "one more call for each read that is looked at",
    })
}

fn no_wait(file: &File) -> Result<bool, Errno> {
    let mut buffer = [0; 512];
    let mut slices = [io::IoSliceMut::new(&mut buffer)];
    match rustix::io::preadv2(file, &mut slices, 0, ReadWriteFlags::NOWAIT) {
        Ok(read) => Ok(read > 0),
        // Evicted in the meantime: it has answered all the same.
        Err(Errno::AGAIN) => Ok(true),
        Err(errno) => Err(errno),
    }
}

/// cachestat(2), Linux 6.5: five counters for a range.
fn cache_statistics(file: &File) -> Result<bool, Errno> {
    const SYS_CACHESTAT: libc::c_long = 451;
    let (range, mut counters) = ([0u64, PAGE as u64], [0u64; 5]);
    // SAFETY: reads two and writes five 64-bit numbers.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), counters.as_mut_ptr(), 0u32)
    };
    errno(check(result)).map(|_| counters[0] > 0)
}

/// mincore(2) on a mapping: true where it tells pages in memory from others.
fn in_core(file: &File) -> Result<bool, Errno> {
    let fd = file.as_raw_fd();
    let mut there = 0u8;
    // SAFETY: a new mapping of the file; mincore writes one byte.
    let result = unsafe {
        let address =
            libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
        if address == libc::MAP_FAILED {
            return errno(Err(io::Error::last_os_error()));
        }
        let result = libc::mincore(address, PAGE, &raw mut there);
        libc::munmap(address, PAGE);
        result
    };
    errno(check(result.into()))?;
    // Where the rights are lacking, every page is said to be there.
    Ok(there & 1 == 1 && may_ask_about(file))
}

/// mincore tells the truth to owners and writers only (mm/mincore.c,
/// can_do_mincore).
fn may_ask_about(file: &File) -> bool {
    let Ok(status) = file.metadata() else { return false };
    let user = rustix::process::geteuid();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    user.is_root()
        || status.uid() == user.as_raw()
        || rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

fn errno<T>(result: io::Result<T>) -> Result<T, Errno> {
    result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
