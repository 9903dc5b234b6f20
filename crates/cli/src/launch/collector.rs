//! The collector: a process beside the program that holds what must not be a
//! file (the statistics, and where no directory can be written the agent and
//! the site table), and writes the report when the program ends.
//!
//! It is never a child that the program could wait for, keeps nothing of the
//! program open but the stream it reports to, and sleeps until the program
//! ends.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::detached;
use super::recorder::Recorder;
use crate::stats::shared::Shared;
use crate::stats::{Ended, Report};

/// How long to wait for the program's parent to fetch its exit status, where
/// the program itself could not tell it.
const REAP_WAIT: Duration = Duration::from_millis(200);

/// What the collector does when the program has ended.
#[derive(Debug, Default)]
pub struct Task {
    /// Write a report.
    pub report: Option<Report>,
    /// Write a trace of what was read.
    pub recorder: Option<Recorder>,
}

impl Task {
    /// Whether there is anything to do: else it only holds memory files.
    pub fn is_any(&self) -> bool {
        self.report.is_some() || self.recorder.is_some()
    }
}

/// A collector under way, as its launcher sees it.
#[derive(Debug)]
pub struct Collector {
    /// Its process id.
    pub pid: u32,
    shared: Shared,
}

impl Collector {
    /// Path by which other processes open a descriptor that it holds.
    pub fn path_of(&self, fd: RawFd) -> String {
        format!("/proc/{}/fd/{fd}", self.pid)
    }

    /// Path of the statistics.
    pub fn statistics_path(&self) -> String {
        self.path_of(self.shared.fd())
    }

    /// Ends it without a report: the program was never executed.
    pub fn dismiss(&self) {
        let header = self.shared.header();
        header.collected.store(1, Ordering::Release);
        header.root_exiting.store(1, Ordering::Release);
        self.shared.wake_exiting();
    }
}

/// Starts a collector for this process, which is about to become the program.
///
/// `held` are descriptors that it keeps open under their numbers.
///
/// # Errors
/// A process or a descriptor could not be made.
pub fn start(task: Task, held: &[RawFd], started: Instant) -> io::Result<Collector> {
    let shared = Shared::new(std::process::id())?;
    let myself = Pid::from_raw(std::process::id() as i32);
    let program = pidfd_open(myself.ok_or(io::ErrorKind::NotFound)?, PidfdFlags::empty())?;
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let mut kept = held.to_vec();
    kept.extend([shared.fd(), program.as_raw_fd(), writer.as_raw_fd()]);
    if let Some(report) = &task.report {
        kept.extend(report.destination.descriptor());
    }
    if let Some(recorder) = &task.recorder {
        kept.extend([recorder.fd(), libc::STDERR_FILENO]);
        kept.extend(recorder.descriptor());
    }
    let child = move |shared: Shared| {
        detached::settle(&kept);
        let mut writer = File::from(writer);
        let _ = writer.write_all(&std::process::id().to_ne_bytes());
        drop(writer);
        collect(&shared, program, task, started);
    };
    detached::spawn(|| child(shared.share()))?;
    // The collector and its forerunner have the other ends; the word comes
    // once it has settled.
    let mut pid = [0; 4];
    read_from(reader, &mut pid)?;
    Ok(Collector { pid: u32::from_ne_bytes(pid), shared })
}

fn read_from(reader: OwnedFd, bytes: &mut [u8]) -> io::Result<()> {
    File::from(reader).read_exact(bytes)
}

/// How often the end of the program is told again.
const SAY_AGAIN: Duration = Duration::from_millis(100);

/// The collector's life.
fn collect(shared: &Shared, program: OwnedFd, task: Task, started: Instant) {
    // A thread turns the end of the program into the same wake-up that its
    // exit hook gives. It ends with the process.
    let watched = shared.share();
    let watcher = program.try_clone().and_then(|program| {
        std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
            wait_for(&program, PollFlags::IN, None);
            // Again and again: the program's children may scribble, too.
            loop {
                watched.mark_gone();
                std::thread::sleep(SAY_AGAIN);
            }
        })
    });
    if watcher.is_err() {
        wait_for(&program, PollFlags::IN, None);
        shared.mark_gone();
    }
    shared.wait_exiting();
    let elapsed = started.elapsed();
    let header = shared.header();
    if header.collected.load(Ordering::Acquire) != 0 {
        return;
    }
    if let Some(recorder) = task.recorder {
        recorder.write();
    }
    if let Some(report) = task.report {
        let ended = if shared.is_gone() {
            status_of(&program)
        } else {
            Some(Ended::Status(header.root_exit_status.load(Ordering::Acquire)))
        };
        report.write(shared, elapsed, ended);
    }
    header.collected.store(1, Ordering::Release);
    shared.wake_collected();
}

/// Waits until `events` or a hang-up is seen on a pidfd, or the time is over.
fn wait_for(fd: impl std::os::fd::AsFd, events: PollFlags, limit: Option<Duration>) {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let mut polled = [PollFd::new(&fd, events)];
    while let Err(rustix::io::Errno::INTR) = poll(&mut polled, limit.as_ref()) {}
}

/// How a program ended (`PIDFD_GET_INFO`, Linux 6.15); it is told only after
/// the program's parent has fetched it. `None`: not to be had.
fn status_of(program: &OwnedFd) -> Option<Ended> {
    /// `struct pidfd_info` of `linux/pidfd.h`, version 0.
    #[repr(C)]
    #[derive(Default)]
    struct PidfdInfo {
        mask: u64,
        cgroup_id: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    const PIDFD_INFO_EXIT: u64 = 1 << 3;
    const PIDFD_GET_INFO: libc::Ioctl = 0xc040_ff0b_u32 as libc::Ioctl;
    const _: () = assert!(size_of::<PidfdInfo>() == 64);

    wait_for(program, PollFlags::empty(), Some(REAP_WAIT));
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
    // SAFETY: the request's number carries the size of the structure.
    let result = unsafe { libc::ioctl(program.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) };
    if result < 0 || info.mask & PIDFD_INFO_EXIT == 0 {
        return None;
    }
    Some(if libc::WIFSIGNALED(info.exit_code) {
        Ended::Signal(libc::WTERMSIG(info.exit_code))
    } else {
        Ended::Status(libc::WEXITSTATUS(info.exit_code))
    })
}
