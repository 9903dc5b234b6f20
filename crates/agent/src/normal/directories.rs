//! Directories that the program reads (getdents64(2)). Whether one would wait
//! nobody says beforehand: it is timed. A directory that is read counts as a
//! read in the log, so that a copy which runs ahead through names is told from
//! one that is off track, and kept within the horizon.

use super::credit::{earn, rests};
use super::reads::{self, Request};
use super::stall::{count_stall, is_hopeless};
use super::synchronise::{self, Stall};
use super::{OFFSET_NONE, waiting};
use crate::Gate;
use crate::arch::{Frame, nr, thread_pointer};
use crate::config::stalls_always;
use crate::procfs;
use crate::speculative;
use crate::state::{State, readers};
use crate::sys::{self, call};
use core::sync::atomic::Ordering::{Relaxed, Release};
use runahead_emulate::is_made_up;
use runahead_policy::ration::Standing;
use runahead_protocol::log::{Directory, PATH_MAX, life};
use runahead_protocol::stats::Counter;

/// What entries that are in memory take at most, in ns for each byte of them:
/// an entry has 24 bytes or more and takes 50 to 100 ns.
const NS_PER_BYTE: u64 = 8;

/// Waits for directories to one for a file, from which on a program is one that
/// reads directories. Programs read a file or two at their start.
const STALLS_PER_FILE: u32 = 2;

/// `getdents`, `getdents64`.
pub fn list(state: &'static State, frame: &Frame) -> isize {
    let [fd, _, len, ..] = frame.args;
    let (result, ns) = reads::timed_call(frame);
    if result < 0 {
        return result;
    }
    let entries_ns = reads::WAIT_US * 1000 + result as u64 * NS_PER_BYTE;
    let waited =
        ns > entries_ns && reads::slept(state) && can_wait(state, fd as i32) || stalls_always();
    let waited_ns = if waited { ns.max(1) } else { 0 };
    let mut standing = Standing::None;
    if state.speculative.load(Relaxed) != 0 && state.owner.load(Relaxed) == thread_pointer() {
        let (dev, ino) = identity(fd as i32);
        if tell(state, fd as i32, &Directory { dev, ino, waited_ns }) {
            if waited_ns != 0 {
                count(state, waited_ns);
                synchronise::at_unread_directory(state);
            }
            return result;
        }
        let request = Request {
            fd: fd as i32,
            offset: ino,
            len: len as u64,
            explicit: false,
            started: false,
            file: 0,
        };
        standing = match reads::follow(state, &request) {
            Some((_, Some(prediction))) => {
                reads::came_true(state, &prediction, waited_ns);
                return result;
            }
            Some((standing, None)) => standing,
            None => return result,
        };
    }
    if waited_ns == 0 {
        return result;
    }
    stalled(state, fd as i32, result, standing, waited_ns)
}

/// Whether a directory's entries come from storage. Asked once as long as it is
/// of the same device: over a network that takes as long as a read.
fn can_wait(state: &State, fd: i32) -> bool {
    let (dev, _) = identity(fd);
    if dev != 0 && state.directories_dev.load(Relaxed) == dev {
        return true;
    }
    let waits = !is_made_up(&mut Gate, fd as usize);
    if waits {
        state.directories_dev.store(dev, Relaxed);
    }
    waits
}

/// Device and inode number of a directory; where a read has an offset, the
/// latter says which it is.
fn identity(fd: i32) -> (u64, u64) {
    sys::identity(fd).unwrap_or((0, OFFSET_NONE))
}

/// Tells the scout of a directory; false: there is none.
fn tell(state: &State, fd: i32, directory: &Directory) -> bool {
    let Some(log) = state.log().filter(|_| state.scouts.load(Relaxed) != 0) else { return false };
    if log.life.load(Relaxed) == life::PARKED {
        return false;
    }
    if directory.waited_ns == 0 {
        log.directories.push(directory, None);
        return true;
    }
    // The program closes it in moments.
    let mut path = [0; PATH_MAX];
    log.directories.push(directory, path_of(fd, &mut path));
    log.directories.word.fetch_add(1, Release);
    sys::futex_wake(&log.directories.word);
    true
}

/// Path of what a descriptor refers to, ended by NUL, as proc_pid_fd(5) has it.
fn path_of(fd: i32, path: &mut [u8; PATH_MAX]) -> Option<&[u8]> {
    let (mut room, mut link) = ([0u8; 20], [0u8; 40]);
    let number = procfs::digits(fd.max(0) as usize, &mut room);
    let link = procfs::path(&[b"/proc/self/fd/", number, b"\0"], &mut link)?;
    let (link, to) = (link.as_ptr() as usize, path.as_mut_ptr() as usize);
    // SAFETY: a NUL-terminated path; the kernel writes at most that many bytes,
    // and the last one stays 0.
    let len = unsafe { call(nr::READLINKAT, &[sys::AT_FDCWD, link, to, PATH_MAX - 1]) };
    path.get(..=usize::try_from(len).ok().filter(|len| *len < PATH_MAX - 1)?)
}

/// Counts a wait that nobody predicted.
fn count(state: &State, waited_ns: u64) {
    count_stall(state, waited_ns, true);
    state.directory_stalls.store(state.directory_stalls.load(Relaxed).saturating_add(1), Relaxed);
}

/// Whether the program waits for directories and hardly for files: what comes
/// next is then better read by a scout than run into by a copy.
pub(super) fn wants_scout(state: &State) -> bool {
    let directories = state.directory_stalls.load(Relaxed);
    let others = state.stalls.load(Relaxed).saturating_sub(directories);
    state.readers.load(Relaxed) != readers::NONE
        && others.saturating_mul(STALLS_PER_FILE) <= directories
}

/// It waited, and nobody predicted it. The wait is over, so a copy made now is
/// not hidden by it: it pays through what it reads next. Returns in the copy,
/// too, which goes on with the same entries.
#[cold]
fn stalled(
    state: &'static State,
    fd: i32,
    result: isize,
    standing: Standing,
    waited_ns: u64,
) -> isize {
    count(state, waited_ns);
    // What lies in it is as cold.
    if !rests(state) {
        earn(state, waited_ns);
    }
    state.try_locked(|rations, _| rations.synchronisations.stalled(waited_ns));
    let now_ns = sys::now_ns();
    if is_hopeless(state, standing, now_ns) {
        state.count(Counter::SyncsDeclined, 1);
        return result;
    }
    let scouts = wants_scout(state);
    let stall = if scouts { Stall::Names(fd) } else { Stall::Directory(fd) };
    let copy = synchronise::attempt(state, &stall, standing, now_ns, &mut |log, parent| {
        if scouts {
            speculative::scout::begin(log);
        }
        speculative::begin_after(state, log, parent, result)
    });
    if copy.is_none() {
        waiting::await_before_unseen(state);
        let (dev, ino) = identity(fd);
        tell(state, fd, &Directory { dev, ino, waited_ns });
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_system_is_asked_once_what_it_is() {
        let state = crate::state::zeroed();
        let (disk, made_up) = (File::open(".").unwrap(), File::open("/proc").unwrap());
        let known = || state.directories_dev.load(Relaxed);
        assert!(!can_wait(&state, made_up.as_raw_fd()));
        assert_eq!(known(), 0);
        assert!(can_wait(&state, disk.as_raw_fd()));
        let stat = disk.metadata().unwrap();
        assert_eq!(identity(disk.as_raw_fd()), (stat.dev(), stat.ino()));
        assert_eq!(known(), stat.dev());
        assert!(!can_wait(&state, made_up.as_raw_fd()), "of another device");
        // What is known is believed.
        state.directories_dev.store(made_up.metadata().unwrap().dev(), Relaxed);
        assert!(can_wait(&state, made_up.as_raw_fd()));
    }
}
