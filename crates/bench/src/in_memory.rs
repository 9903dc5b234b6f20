//! Pages that came into memory, and pages that the program has read: what is
//! left of the former was read for nothing (Fraser and Chang 2003, Table 2,
//! "unused prefetches").

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use runahead_sim::recording::Recording;
use walkdir::WalkDir;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// `cachestat(2)`, the same on every architecture (Linux 6.5).
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range`; nothing but zeros: the whole file.
#[repr(C)]
struct Range {
    offset: u64,
    len: u64,
}

/// `struct cachestat`.
#[repr(C)]
#[derive(Default)]
struct InCache {
    pages: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Pages in memory of the files below `directory`; none where the kernel does
/// not say.
///
/// # Errors
/// If the tree cannot be walked, or a file not opened.
pub fn pages_in_memory(directory: &Path) -> Result<Option<u64>> {
    let mut pages = 0;
    for (path, _) in files(directory)? {
        let file = File::open(&path).with_context(|| format!("open {}", path.display()))?;
        let Some(of_file) = pages_of(&file) else { return Ok(None) };
        pages += of_file;
    }
    Ok(Some(pages))
}

fn pages_of(file: &File) -> Option<u64> {
    let range = Range { offset: 0, len: 0 };
    let mut found = InCache::default();
    // SAFETY: the kernel reads one struct and writes the other.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut found, 0)
    };
    (result == 0).then_some(found.pages)
}

/// Pages of the files below `directory` that were read in a recorded run; none
/// where reads are missing in it.
///
/// # Errors
/// If the tree cannot be walked.
pub fn pages_read(directory: &Path, recording: &Recording) -> Result<Option<u64>> {
    if recording.lost > 0 {
        return Ok(None);
    }
    let mut of_file: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
    for read in recording.reads.iter().filter(|read| read.length > 0) {
        let last = (read.offset + read.length - 1) / PAGE_BYTES;
        of_file.entry(read.file).or_default().push((read.offset / PAGE_BYTES, last));
    }
    // The recorder keeps 32 bits of a device's number.
    let mut pages: HashMap<(u32, u64), u64> = HashMap::new();
    for (file, reads) in of_file {
        let file = recording.files.get(file as usize).context("a read of a file unheard of")?;
        *pages.entry((file.device as u32, file.inode)).or_default() += distinct(reads);
    }
    let here = files(directory)?.into_iter();
    Ok(Some(here.filter_map(|(_, identity)| pages.remove(&identity)).sum()))
}

/// Pages in at least one of some ranges, each from the first to the last.
fn distinct(mut ranges: Vec<(u64, u64)>) -> u64 {
    ranges.sort_unstable();
    let count = |(pages, next): (u64, u64), (first, last): (u64, u64)| {
        let first = first.max(next);
        let next = next.max(last + 1);
        (pages + next.saturating_sub(first), next)
    };
    ranges.into_iter().fold((0, 0), count).0
}

/// Regular files below `directory`, with device and inode.
fn files(directory: &Path) -> Result<Vec<(std::path::PathBuf, (u32, u64))>> {
    let mut files = Vec::new();
    for entry in WalkDir::new(directory) {
        let entry = entry.with_context(|| format!("walk {}", directory.display()))?;
        if entry.file_type().is_file() {
            let metadata = entry.metadata().context("look at a file")?;
            files.push((entry.into_path(), (metadata.dev() as u32, metadata.ino())));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use runahead_sim::recording::{RecordedFile, RecordedRead};

    #[test]
    fn a_page_that_was_read_twice_counts_once() {
        assert_eq!(distinct(vec![]), 0);
        assert_eq!(distinct(vec![(4, 4), (0, 2), (1, 1), (2, 3), (9, 9), (9, 9)]), 6);
    }

    #[test]
    fn what_was_written_is_in_memory() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("sub")).unwrap();
        std::fs::write(directory.path().join("sub/a"), [1; 5000]).unwrap();
        std::fs::write(directory.path().join("b"), [1; 1]).unwrap();
        std::os::unix::fs::symlink("b", directory.path().join("c")).unwrap();
        let pages = pages_in_memory(directory.path()).unwrap();
        assert!(pages.is_none_or(|pages| pages == 3), "{pages:?}");
        assert!(pages_in_memory(&directory.path().join("none")).is_err());
    }

    #[test]
    fn only_reads_of_the_tree_count_and_none_may_be_lost() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, [1; 10_000]).unwrap();
        let metadata = path.metadata().unwrap();
        let mut recording = Recording::default();
        for inode in [metadata.ino(), metadata.ino() + 1] {
            let device = u64::from(metadata.dev() as u32);
            recording.files.push(RecordedFile { device, inode, bytes: 10_000 });
        }
        for (file, offset, length) in [(0, 0, 1), (0, 4095, 2), (0, 100, 0), (1, 0, 10_000)] {
            recording.reads.push(RecordedRead {
                stream: 0,
                file,
                offset,
                length,
                start_us: 0,
                took_us: 0,
                cpu_us: 0,
                cpu_in_us: 0,
            });
        }
        assert_eq!(pages_read(directory.path(), &recording).unwrap(), Some(2));
        recording.lost = 1;
        assert_eq!(pages_read(directory.path(), &recording).unwrap(), None);
    }
}
