//! `--record`: holds the memory file that reads are recorded in
//! ([`runahead_protocol::reads`]) and makes the trace of it
//! ([`runahead_sim::recording`]) when the program has ended.

use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use runahead_protocol::reads::{FILE_LEN, Header, MAGIC, RECORDS_MAX, Read, Record};
use runahead_sim::recording::{RecordedFile, RecordedRead, Recording, Stream};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::stats::Destination;

/// Most bytes that one read returns (read(2)).
const READ_LEN_MAX: u32 = 0x7fff_f000;

/// Where a recording goes.
#[derive(Debug)]
pub struct Target {
    /// The path as it was given, for messages.
    path: PathBuf,
    destination: Destination,
}

impl Target {
    /// The file at `path`, which is replaced.
    ///
    /// # Errors
    /// Nothing could be written there.
    pub fn new(path: &Path) -> io::Result<Target> {
        Ok(Target { path: path.to_owned(), destination: Destination::for_path(path)? })
    }

    /// The descriptor that must stay open for it.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.destination.descriptor()
    }
}

/// A recording under way.
#[derive(Debug)]
pub struct Recorder {
    target: Target,
    /// What was run.
    name: String,
    /// What the launcher could not do, a line each.
    losses: Vec<String>,
    file: OwnedFd,
    start: NonNull<Header>,
    /// When it began (`CLOCK_MONOTONIC`), in ns.
    began_ns: u64,
}

impl Recorder {
    /// An empty recording. Its file keeps its size, whoever opens it: a program
    /// that wrote beyond its end would be sent a signal.
    ///
    /// # Errors
    /// No descriptor or memory.
    pub fn new(target: Target, name: String, losses: Vec<String>) -> io::Result<Recorder> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("runahead-reads", flags)?;
        rustix::fs::ftruncate(&file, FILE_LEN as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), FILE_LEN, prot, MapFlags::SHARED, &file, 0)?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let recorder = Recorder { target, name, losses, file, start, began_ns: now_ns() };
        recorder.header().magic.store(MAGIC, Ordering::Release);
        Ok(recorder)
    }

    /// The memory file's descriptor.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// The descriptor that must stay open for the trace.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.target.descriptor()
    }

    /// Writes the trace, and on standard error what is in it.
    pub fn write(&self) {
        let recording = self.recording();
        let path = self.target.path.display();
        let mut lines = String::new();
        match self.target.destination.write(&recording.encode()) {
            Ok(()) => {
                let [reads, files, threads] =
                    [recording.reads.len(), recording.files.len(), recording.streams.len()];
                lines += &format!(
                    "runahead: recorded in {path}: {reads} reads of {files} files by {threads} threads\n"
                );
                if recording.lost > 0 {
                    let lost = recording.lost;
                    lines += &format!(
                        "runahead: {lost} more reads are not in it: there is room for {RECORDS_MAX}\n"
                    );
                }
                if reads == 0 {
                    self.losses.iter().for_each(|loss| lines += &format!("runahead: {loss}\n"));
                }
            }
            Err(error) => lines += &format!("runahead: --record={path}: {error}\n"),
        }
        let _ = io::stderr().write_all(lines.as_bytes());
    }

    fn header(&self) -> &Header {
        // SAFETY: mapped until the process ends, page-aligned, atomics only.
        unsafe { self.start.as_ref() }
    }

    fn records(&self) -> &[Record] {
        let count = self.header().count.load(Ordering::Acquire);
        let count = usize::try_from(count).unwrap_or(RECORDS_MAX).min(RECORDS_MAX);
        // SAFETY: RECORDS_MAX records follow the header in the mapping; atomics
        // only.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(1).cast::<Record>(), count) }
    }

    /// What was recorded; what a program has scribbled there is left out as
    /// far as it can be told.
    fn recording(&self) -> Recording {
        let now_ns = now_ns();
        let is_possible = |read: &Read| is_possible(read, self.began_ns, now_ns);
        let mut reads: Vec<Read> =
            self.records().iter().filter_map(Record::get).filter(is_possible).collect();
        reads.sort_unstable_by_key(|read| read.start_ns);
        let made = self.header().count.load(Ordering::Acquire);
        let mut recording = Recording {
            name: self.name.clone(),
            lost: made.saturating_sub(reads.len() as u64),
            ..Recording::default()
        };
        let first_ns = reads.first().map_or(0, |read| read.start_ns);
        let mut files = HashMap::new();
        let mut streams = HashMap::new();
        // Processor time of each stream at the end of its last read.
        let mut cpu_ns: Vec<u64> = Vec::new();
        for read in reads {
            let file = *files.entry((read.device, read.inode)).or_insert_with(|| {
                let device = u64::from(read.device);
                recording.files.push(RecordedFile { device, inode: read.inode, bytes: 0 });
                recording.files.len() - 1
            });
            let bytes = &mut recording.files[file].bytes;
            *bytes = (*bytes).max(read.file_bytes);
            if read.length > 0 {
                *bytes = (*bytes).max(read.offset + u64::from(read.length));
            }
            let Read { process, thread, .. } = read;
            let stream = *streams.entry((process, thread)).or_insert_with(|| {
                recording.streams.push(Stream { process, thread });
                cpu_ns.push(0);
                recording.streams.len() - 1
            });
            let cpu_us = read.cpu_ns.saturating_sub(cpu_ns[stream]) / 1000;
            cpu_ns[stream] = read.cpu_ns.saturating_add(u64::from(read.cpu_in_us) * 1000);
            recording.reads.push(RecordedRead {
                stream: stream as u32,
                file: file as u32,
                offset: read.offset,
                length: u64::from(read.length),
                start_us: (read.start_ns - first_ns) / 1000,
                took_us: u64::from(read.took_us),
                cpu_us,
                cpu_in_us: u64::from(read.cpu_in_us),
            });
        }
        recording
    }
}

/// Whether a read can have been made: between these times, and not past the
/// largest file that Linux has.
fn is_possible(read: &Read, began_ns: u64, now_ns: u64) -> bool {
    let end_ns = read.start_ns.saturating_add(u64::from(read.took_us) * 1000);
    (began_ns..=now_ns).contains(&read.start_ns)
        && end_ns <= now_ns
        && read.cpu_ns <= now_ns
        && read.length <= READ_LEN_MAX
        && read.offset <= i64::MAX as u64 - u64::from(READ_LEN_MAX)
        && read.file_bytes <= i64::MAX as u64
}

/// `CLOCK_MONOTONIC` in ns.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
