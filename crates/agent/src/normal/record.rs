//! Records the program's reads of files (`--record`): where in which file, how
//! many bytes, and the thread's processor time, from which the simulator
//! replays them ([`runahead_protocol::reads`]). In observe mode only, where no
//! copy of the program comes back from a read a second time.

use super::reads::OFFSET_NONE;
use super::streams;
use crate::arch::{Frame, nr};
use crate::config::CONFIG;
use crate::state::State;
use crate::sys;
use core::sync::atomic::Ordering::Relaxed;
use runahead_protocol::reads::{Header, RECORDS_MAX, Read, Record};

/// `CLOCK_THREAD_CPUTIME_ID`.
const THREAD_CPU: usize = 3;

/// Whether reads are recorded.
#[inline]
pub fn wanted() -> bool {
    !CONFIG.reads.load(Relaxed).is_null()
}

/// Makes a read by `make` and records it if it is of a file and succeeds.
#[cold]
pub fn around(
    state: &'static State,
    frame: &mut Frame,
    make: fn(&'static State, &mut Frame) -> isize,
) -> isize {
    let fd = input(frame);
    let mut stat = sys::Stat::default();
    if !sys::known_fstat(fd, &mut stat) || stat.mode & sys::S_IFMT != sys::S_IFREG {
        return make(state, frame);
    }
    let offset = offset(frame, fd);
    let cpu_ns = sys::thread_cpu_ns();
    let start_ns = sys::now_ns();
    let result = make(state, frame);
    let took_ns = sys::now_ns().saturating_sub(start_ns);
    // What had no bytes and gives some is made by the kernel (/proc): nothing is
    // read for it.
    let made_up = stat.size == 0 && result > 0;
    if result >= 0 && offset != OFFSET_NONE && !made_up {
        append(Read {
            cpu_ns,
            thread: sys::gettid(),
            process: sys::getpid(),
            device: stat.dev as u32,
            cpu_in_us: 0,
            inode: stat.ino,
            offset,
            file_bytes: stat.size.max(0) as u64,
            length: u32::try_from(result).unwrap_or(u32::MAX),
            took_us: micros(took_ns),
            start_ns,
        });
    }
    result
}

/// The descriptor that is read.
fn input(frame: &Frame) -> i32 {
    let [first, second, ..] = frame.args;
    (if frame.number == nr::SENDFILE { second } else { first }) as i32
}

/// Where the read begins; [`OFFSET_NONE`] where nobody says.
fn offset(frame: &Frame, fd: i32) -> u64 {
    let [_, _, _, fourth, ..] = frame.args;
    let named = match frame.number {
        nr::PREAD64 | nr::PREADV | nr::PREADV2 if fourth as isize >= 0 => Some(fourth as u64),
        _ => streams::named_offset(frame),
    };
    // A negative errno is an offset that no file has.
    named.or_else(|| u64::try_from(sys::position(fd)).ok()).unwrap_or(OFFSET_NONE)
}

/// Adds a read; where there is no room or no memory it is only counted.
fn append(read: Read) {
    let header = CONFIG.reads.load(Relaxed).cast_const();
    if header.is_null() {
        return;
    }
    // SAFETY: mapped for good by start::map_held; atomics only.
    let index = unsafe { &(*header).count }.fetch_add(1, Relaxed);
    let Some(record) = record(header, index) else { return };
    // By the kernel first: it says so where there is no memory for the page,
    // and we would be sent a signal.
    let at = record.cpu_ns.as_ptr() as usize;
    // SAFETY: the kernel writes one struct timespec, the first two words of
    // the record, which nobody else has.
    if unsafe { sys::call(nr::CLOCK_GETTIME, &[THREAD_CPU, at]) } != 0 {
        return;
    }
    let cpu_in_us = micros(sys::thread_cpu_ns().saturating_sub(read.cpu_ns));
    record.put(&Read { cpu_in_us, ..read });
}

/// The record of read number `index`.
fn record(header: *const Header, index: u64) -> Option<&'static Record> {
    let index = usize::try_from(index).ok().filter(|&index| index < RECORDS_MAX)?;
    // SAFETY: RECORDS_MAX records follow the header in the mapping, which
    // stays; atomics only.
    Some(unsafe { &*header.add(1).cast::<Record>().add(index) })
}

fn micros(ns: u64) -> u32 {
    u32::try_from(ns / 1000).unwrap_or(u32::MAX)
}
