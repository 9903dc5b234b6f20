//! Reads: what is copied, what is left as it was, what is prefetched and
//! what is logged.

mod machine;

use machine::{Copy, FileSystem, TempDir, contents, raw};
use runahead_emulate::{Inherited, Kind, Outcome, POSITION_UNKNOWN, arch::nr};
use runahead_protocol::log::{FLAG_BEHIND, FLAG_END, FLAG_PREFETCHED};
use runahead_protocol::stats::Park;
use std::fs::Metadata;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::Relaxed;

/// A file that was open when the copy was made, at its beginning.
fn regular(meta: &Metadata, status_flags: i32) -> Inherited {
    Inherited {
        kind: Kind::Regular,
        dev: meta.dev(),
        ino: meta.ino(),
        offset: 0,
        size: meta.size(),
        mode: meta.mode(),
        status_flags: status_flags as u32,
        cloexec: true,
    }
}

const METHODS: [FileSystem; 3] = [FileSystem::NoWait, FileSystem::Cachestat, FileSystem::Foreign];

#[test]
fn a_resident_file_is_read_as_it_is() {
    let dir = TempDir::new("resident");
    let path = dir.file("f", 10_000);
    for fs in [FileSystem::NoWait, FileSystem::Cachestat] {
        let mut copy = Copy::new();
        copy.machine.fs = fs;
        let fd = copy.open(&path, libc::O_RDONLY);
        assert_eq!(fd, 0, "the lowest free number");
        let (result, bytes) = copy.read(fd, 6000);
        assert_eq!((result, &bytes[..]), (6000, &contents(10_000)[..6000]), "{fs:?}");
        let (result, bytes) = copy.read(fd, 6000);
        assert_eq!((result, &bytes[..4000]), (4000, &contents(10_000)[6000..]), "{fs:?}");
        assert_eq!(copy.read(fd, 6000).0, 0, "end of file");
        assert_eq!(copy.log.lead(), 3, "each of them is logged");
        assert_eq!(copy.log.get(1).unwrap().offset, 6000);
        assert_eq!(copy.log.get(1).unwrap().flags, 0);
        assert_eq!(copy.emulator.counters().prefetches, 0);
    }
}

#[test]
fn a_missing_file_leaves_the_buffer_and_is_prefetched() {
    let dir = TempDir::new("missing");
    let path = dir.file("f", 10_000);
    for fs in METHODS {
        let mut copy = Copy::cold(fs);
        let fd = copy.open(&path, libc::O_RDONLY);
        let (result, bytes) = copy.read(fd, 32768);
        assert_eq!(result, 10_000, "{fs:?}: as the normal process would get");
        assert!(bytes.iter().all(|byte| *byte == 0xee), "{fs:?}: stale, not zero");
        let entry = copy.log.get(0).unwrap();
        assert_eq!((entry.fd, entry.offset, entry.len), (0, 0, 32768));
        assert_eq!((entry.flags, entry.prefetched_len), (FLAG_PREFETCHED, 10_000), "{fs:?}");
        assert_eq!(copy.machine.in_flight_max, 3, "{fs:?}: three pages asked for");
        assert_eq!(copy.read(fd, 32768).0, 0, "{fs:?}: end of file");
        assert!(copy.emulator.counters().prefetches >= 1);
    }
}

#[test]
fn what_is_read_again_before_it_has_come_saves_no_second_stall() {
    let dir = TempDir::new("repeats");
    let path = dir.file("f", 1 << 20);
    for fs in METHODS {
        let mut copy = Copy::cold(fs);
        let fd = copy.open(&path, libc::O_RDONLY);
        let flags = |copy: &mut Copy, number, offset, len| {
            copy.pread(fd, len, offset);
            copy.log.get(number).unwrap().flags
        };
        assert_eq!(flags(&mut copy, 0, 500_000, 8192), FLAG_PREFETCHED, "{fs:?}");
        let prefetches = copy.emulator.counters().prefetches;
        assert_eq!(flags(&mut copy, 1, 500_000, 8192), 0, "{fs:?}: the same");
        assert_eq!(flags(&mut copy, 2, 501_000, 100), 0, "{fs:?}: a part of it");
        assert_eq!(copy.emulator.counters().prefetches, prefetches, "{fs:?}: asked for once");
        assert_eq!(flags(&mut copy, 3, 700_000, 8192), FLAG_PREFETCHED, "{fs:?}: another");
        assert_eq!(flags(&mut copy, 4, 500_000, 8192), 0, "{fs:?}: not the newest");
        assert_eq!(flags(&mut copy, 5, 500_000, 60_000), FLAG_PREFETCHED, "{fs:?}: more than that");
    }
}

#[test]
fn missing_files_that_are_read_to_their_end_end_at_once_after_two() {
    let dir = TempDir::new("ends");
    let paths = ["a", "b", "c", "d"].map(|name| dir.file(name, 10_000));
    for fs in METHODS {
        let mut copy = Copy::cold(fs);
        let mut fds = [-1; 4];
        for (path, fd) in paths.iter().zip(&mut fds).take(2) {
            *fd = copy.open(path, libc::O_RDONLY);
            assert_eq!(copy.read(*fd, 32768).0, 10_000, "{fs:?}: learning");
            assert_eq!(copy.read(*fd, 20_000).0, 0, "{fs:?}");
        }
        let fd = copy.open(&paths[2], libc::O_RDONLY);
        assert_eq!(copy.read(fd, 32768).0, 0, "{fs:?}: nothing to compute on");
        let (read, end) = (copy.log.get(4).unwrap(), copy.log.get(5).unwrap());
        assert_eq!((read.flags, read.prefetched_len), (FLAG_PREFETCHED, 10_000), "{fs:?}");
        assert_eq!((end.fd, end.offset, end.flags), (fd as i32, 10_000, FLAG_END), "{fs:?}");
        assert_eq!(copy.log.lead(), 6, "{fs:?}: as many as the normal process makes");
        assert_eq!(copy.read(fd, 32768).0, 0, "{fs:?}: it stands at the end");
        // Who asks for no more than there is, or for a place, is told all.
        let fd = copy.open(&paths[3], libc::O_RDONLY);
        assert_eq!(copy.pread(fd, 32768, 0).0, 10_000, "{fs:?}");
        assert_eq!(copy.read(fd, 10_000).0, 10_000, "{fs:?}");
    }
}

#[test]
fn missing_files_that_are_read_to_their_end_in_pieces_end_at_once_after_two() {
    let dir = TempDir::new("pieces");
    let paths = ["a", "b", "c", "d"].map(|name| dir.file(name, 36_834));
    let short = dir.file("short", 10_000);
    for fs in METHODS {
        let mut copy = Copy::cold(fs);
        for path in &paths[..2] {
            let fd = copy.open(path, libc::O_RDONLY);
            assert_eq!(copy.read(fd, 32768).0, 32768, "{fs:?}: learning");
            assert_eq!(copy.read(fd, 32768).0, 4066, "{fs:?}");
            assert_eq!(copy.read(fd, 28672).0, 0, "{fs:?}");
        }
        let fd = copy.open(&short, libc::O_RDONLY);
        assert_eq!(copy.read(fd, 32768).0, 10_000, "{fs:?}: files of one piece are another matter");
        let prefetches = copy.emulator.counters().prefetched_bytes;
        let fd = copy.open(&paths[2], libc::O_RDONLY);
        assert_eq!(copy.read(fd, 32768).0, 0, "{fs:?}: nothing to compute on");
        // The kernel's own window behind a miss covers the rest.
        let bytes = if fs == FileSystem::NoWait { 32_768 } else { 36_834 };
        assert_eq!(copy.emulator.counters().prefetched_bytes - prefetches, bytes, "{fs:?}");
        let entry = |number| {
            let entry = copy.log.get(number).unwrap();
            (entry.fd, entry.offset, entry.len, entry.flags)
        };
        assert_eq!(entry(7), (fd as i32, 0, 32768, FLAG_PREFETCHED), "{fs:?}");
        assert_eq!(entry(8), (fd as i32, 32768, 32768, FLAG_PREFETCHED), "{fs:?}");
        assert_eq!((entry(9).1, entry(9).3), (36_834, FLAG_END), "{fs:?}");
        assert_eq!(copy.log.lead(), 10, "{fs:?}: as many as the normal process makes");
        assert_eq!(copy.read(fd, 32768).0, 0, "{fs:?}: it stands at the end");
        // Of one that is read otherwise nothing is learnt.
        let mut copy = Copy::new();
        copy.machine.cold = true;
        for path in &paths {
            let fd = copy.open(path, libc::O_RDONLY);
            assert_eq!(copy.read(fd, 4096).0, 4096, "{fs:?}");
            assert_eq!(copy.read(fd, 36_000).0, 32_738, "{fs:?}");
            assert_eq!(copy.read(fd, 4096).0, 0, "{fs:?}");
        }
    }
}

#[test]
fn a_file_that_is_there_never_ends_early() {
    let dir = TempDir::new("ends-resident");
    let paths = ["a", "b", "c"].map(|name| dir.file(name, 10_000));
    let mut copy = Copy::new();
    copy.machine.cold = true;
    for path in &paths[..2] {
        let fd = copy.open(path, libc::O_RDONLY);
        copy.read(fd, 32768);
        copy.read(fd, 32768);
    }
    copy.machine.warm(&paths[2], 0);
    let fd = copy.open(&paths[2], libc::O_RDONLY);
    let (result, bytes) = copy.read(fd, 32768);
    assert_eq!((result, &bytes[..4096]), (10_000, &contents(10_000)[..4096]), "a part is there");
}

#[test]
fn what_has_arrived_is_copied() {
    let dir = TempDir::new("arrived");
    let path = dir.file("f", 8192);
    for fs in [FileSystem::NoWait, FileSystem::Cachestat] {
        let mut copy = Copy::cold(fs);
        let fd = copy.open(&path, libc::O_RDONLY);
        copy.pread(fd, 8192, 0);
        let (_, bytes) = copy.pread(fd, 8192, 0);
        assert!(bytes.iter().all(|byte| *byte == 0xee), "{fs:?}: on its way, not waited for");
        copy.machine.now_ns += 2_000_000;
        let (_, bytes) = copy.pread(fd, 8192, 0);
        assert_eq!(bytes, contents(8192), "{fs:?}");
        assert_eq!(copy.log.get(2).unwrap().flags, 0);
    }
}

#[test]
fn resident_pages_around_a_missing_one_are_copied() {
    let dir = TempDir::new("holes");
    let path = dir.file("f", 16384);
    for fs in [FileSystem::NoWait, FileSystem::Cachestat] {
        let mut copy = Copy::cold(fs);
        for page in [0, 2, 3] {
            copy.machine.warm(&path, page * 4096);
        }
        let fd = copy.open(&path, libc::O_RDONLY);
        let (result, bytes) = copy.pread(fd, 16000, 100);
        let whole = contents(16384);
        assert_eq!(result, 16000);
        assert_eq!(bytes[..3996], whole[100..4096], "{fs:?}: before");
        assert!(bytes[3996..8092].iter().all(|byte| *byte == 0xee), "{fs:?}: missing");
        assert_eq!(bytes[8092..], whole[8192..16100], "{fs:?}: behind");
    }
}

#[test]
fn a_read_that_the_program_has_passed_is_not_prefetched() {
    let dir = TempDir::new("behind");
    let path = dir.file("f", 4 << 20);
    let mut copy = Copy::new();
    copy.machine.cold = true;
    let fd = copy.open(&path, libc::O_RDONLY);
    copy.consume(5);
    copy.read(fd, 1 << 20);
    let entry = copy.log.get(0).unwrap();
    assert_eq!((entry.flags, entry.prefetched_len), (FLAG_BEHIND, 0));
    assert_eq!(copy.machine.count(nr::READAHEAD), 0);
    assert_eq!(copy.emulator.counters().reads_behind, 1);
}

#[test]
fn the_horizon_stops_it_until_half_is_consumed() {
    let dir = TempDir::new("horizon");
    let path = dir.file("f", 4096 * 300);
    let mut copy = Copy::new();
    copy.machine.cold = true;
    copy.log.horizon.store(40, std::sync::atomic::Ordering::Relaxed);
    let fd = copy.open(&path, libc::O_RDONLY);
    for read in 0..100 {
        // Backwards, so that no stream is seen.
        copy.pread(fd, 100, (299 - read) * 4096);
        let ahead = copy.log.lead();
        assert!(ahead <= 40, "{ahead} ahead at read {read}");
    }
    assert_eq!(copy.machine.horizon_waits, [20, 40, 60], "wakes at half");
}

#[test]
fn a_hopeless_wait_parks() {
    let dir = TempDir::new("hopeless");
    let path = dir.file("f", 4096 * 100);
    let mut copy = Copy::new();
    copy.machine.cold = true;
    copy.machine.hopeless = true;
    let fd = copy.open(&path, libc::O_RDONLY);
    let mut buffer = vec![0u8; 10];
    let address = copy.machine.own(&mut buffer);
    let parked = (0..100).find_map(|read| {
        match copy.outcome(nr::PREAD64, &[fd as usize, address, 10, (99 - read) * 4096]) {
            Outcome::Park(reason) => Some((read, reason)),
            Outcome::Return(_) => None,
        }
    });
    assert_eq!(parked, Some((32, Park::OffTrack)), "at the least horizon");
}

#[test]
fn the_device_limit_bounds_what_is_in_flight() {
    let dir = TempDir::new("device");
    let path = dir.file("f", 4096 * 400);
    for fs in METHODS {
        let mut copy = Copy::cold(fs);
        copy.machine.latency_ns = 10_000_000;
        copy.log.horizon.store(4000, std::sync::atomic::Ordering::Relaxed);
        let fd = copy.open(&path, libc::O_RDONLY);
        for read in 0..8 {
            copy.pread(fd, 100, (399 - 2 * read) * 4096);
        }
        assert_eq!(copy.emulator.counters().device_waits, 0, "{fs:?}");
        copy.pread(fd, 100, 4096);
        assert!(copy.emulator.counters().device_waits > 0, "{fs:?}: waited for one of eight");
        assert!(copy.log.latency_ns.load(std::sync::atomic::Ordering::Relaxed) > 0, "{fs:?}");
    }
}

#[test]
fn vectors_are_read_and_bad_pointers_park() {
    let dir = TempDir::new("vector");
    let path = dir.file("f", 5000);
    let mut copy = Copy::new();
    let fd = copy.open(&path, libc::O_RDONLY) as usize;
    let (mut one, mut two) = (vec![0u8; 1000], vec![0u8; 9000]);
    let mut vector = [[copy.machine.own(&mut one), 1000], [copy.machine.own(&mut two), 9000]];
    let address = copy.machine.own(&mut vector);
    assert_eq!(copy.call(nr::PREADV, &[fd, address, 2, 10]), 4990);
    assert_eq!(one, contents(5000)[10..1010]);
    assert_eq!(two[..3990], contents(5000)[1010..]);
    assert_eq!(copy.outcome(nr::READ, &[fd, 64, 10]), Outcome::Park(Park::BadPointer));
    assert_eq!(copy.outcome(nr::READ, &[99, 64, 10]), Outcome::Return(-9));
}

#[test]
fn inherited_files_are_opened_again_and_checked() {
    let dir = TempDir::new("inherited");
    let path = dir.file("f", 5000);
    let file = std::fs::File::open(&path).unwrap();
    let meta = file.metadata().unwrap();
    let inherited = Inherited { offset: 4000, ..regular(&meta, libc::O_RDONLY) };
    let mut copy = Copy::new();
    copy.emulator.inherit(file.as_raw_fd(), inherited);
    let fd = file.as_raw_fd() as isize;
    let (result, bytes) = copy.read(fd, 4096);
    assert_eq!((result, &bytes[..1000]), (1000, &contents(5000)[4000..]), "its offset");
    let position = raw(nr::LSEEK, [fd as usize, 0, 1, 0, 0, 0]);
    assert_eq!(position, 0, "the normal process's offset did not move");

    // Another file by now: the normal process has passed it. Its bytes are
    // given up, its size is known, and what comes after it is reached.
    let lost = Inherited { ino: meta.ino() + 1, ..inherited };
    let mut copy = Copy::new();
    copy.emulator.inherit(file.as_raw_fd(), lost);
    let (result, bytes) = copy.read(fd, 4096);
    assert_eq!((result, bytes), (1000, vec![0xee; 4096]));
    assert_eq!(copy.read(fd, 4096).0, 0);
    assert_eq!(copy.emulator.counters().files_lost, 1);
    assert!(copy.machine.open.len() <= 1, "at most /proc/PID/fd is open");

    let mut copy = Copy::new();
    copy.emulator.inherit(file.as_raw_fd(), Inherited { kind: Kind::Directory, ..lost });
    let mut buffer = [0u8; 64];
    let address = copy.machine.own(&mut buffer);
    let outcome = copy.outcome(nr::GETDENTS64, &[fd as usize, address, 64]);
    assert_eq!(outcome, Outcome::Park(Park::Reopen), "names cannot be done without");
}

/// The kernel's readahead for the program has left a mark somewhere ahead, from which a
/// read of the copy's own would begin a window with a hole before it.
#[test]
fn a_stream_that_the_program_had_begun_is_asked_for_before_its_marks_are_met() {
    const PAGE: u64 = 4096;
    let dir = TempDir::new("marks");
    let path = dir.file("f", 4 << 20);
    let file = std::fs::File::open(&path).unwrap();
    let meta = file.metadata().unwrap();
    let fd = file.as_raw_fd();
    let begin = || {
        let mut copy = Copy::new();
        copy.machine.cold = true;
        (0..64).for_each(|page| copy.machine.warm(&path, page * PAGE));
        copy.emulator
            .inherit(fd, Inherited { offset: 16 * PAGE, ..regular(&meta, libc::O_RDONLY) });
        copy
    };
    let asked = |copy: &Copy| {
        let readahead = copy.machine.calls.iter().filter(|(number, _)| *number == nr::READAHEAD);
        readahead.map(|(_, args)| (args[1] as u64, args[2] as u64)).collect::<Vec<_>>()
    };
    let mut stream = begin();
    stream.read(fd as isize, PAGE as usize);
    assert_eq!(asked(&stream), [], "one read is no stream");
    for _ in 1..40 {
        stream.read(fd as isize, PAGE as usize);
    }
    assert_eq!(asked(&stream), [(17 * PAGE, 97 * PAGE)], "once");
    let order = stream.machine.calls.iter().filter_map(|(number, args)| {
        let at = match *number {
            nr::READAHEAD => args[1],
            nr::PREADV2 => args[3],
            _ => return None,
        };
        Some((*number, at as u64 / PAGE))
    });
    let order: Vec<_> = order.collect();
    let first = order.iter().position(|(number, _)| *number == nr::READAHEAD).unwrap();
    assert_eq!(order[first + 1], (nr::PREADV2, 17), "before it is read: {order:?}");

    let mut apart = begin();
    for page in [16, 40, 20, 33] {
        apart.pread(fd as isize, PAGE as usize, page * PAGE as usize);
    }
    assert_eq!(asked(&apart), [], "none goes on");
    let mut own = begin();
    let fd = own.open(&path, libc::O_RDONLY);
    for _ in 0..40 {
        own.read(fd, PAGE as usize);
    }
    assert_eq!(asked(&own), [], "the program has read nothing of it");
}

#[test]
fn an_unknown_position_is_looked_up_where_it_is_needed() {
    let dir = TempDir::new("positions");
    let path = dir.file("f", 5000);
    let file = std::fs::File::open(&path).unwrap();
    let fd = file.as_raw_fd();
    raw(nr::LSEEK, [fd as usize, 4000, 0, 0, 0, 0]);
    let meta = file.metadata().unwrap();
    let inherited = Inherited { offset: POSITION_UNKNOWN, ..regular(&meta, libc::O_RDWR) };
    let copy = || {
        let mut copy = Copy::new();
        copy.emulator.inherit(fd, inherited);
        copy
    };
    let mut explicit = copy();
    let (result, bytes) = explicit.pread(fd as isize, 100, 1000);
    assert_eq!((result, &bytes[..]), (100, &contents(5000)[1000..1100]));
    let (result, bytes) = explicit.read(fd as isize, 4096);
    assert_eq!((result, &bytes[..1000]), (1000, &contents(5000)[4000..]));
    assert_eq!(copy().call(nr::LSEEK, &[fd as usize, 5, 1]), 4005);
    let mut written = copy();
    let mut bytes = [0u8; 2000];
    let address = written.machine.own(&mut bytes);
    assert_eq!(written.call(nr::WRITE, &[fd as usize, address, 2000]), 2000);
    assert_eq!(written.call(nr::LSEEK, &[fd as usize, 0, 2]), 6000);
    let mut moved = copy();
    assert_eq!(moved.call(nr::LSEEK, &[fd as usize, 100, 0]), 100);
    assert_eq!(moved.read(fd as isize, 10).1, contents(5000)[100..110]);

    // Another file by now: nobody knows where the program was in this one.
    let mut lost = Copy::new();
    lost.emulator.inherit(fd, Inherited { ino: meta.ino() + 1, ..inherited });
    let mut bytes = [0u8; 8];
    let address = lost.machine.own(&mut bytes);
    let outcome = lost.outcome(nr::READ, &[fd as usize, address, 8]);
    assert_eq!(outcome, Outcome::Park(Park::Reopen));
}

/// Flags of what was opened for more than a look.
fn opened(copy: &Copy) -> Vec<usize> {
    let opens = copy.machine.calls.iter().filter(|call| call.0 == nr::OPENAT);
    opens.map(|call| call.1[2]).filter(|flags| flags & libc::O_PATH as usize == 0).collect()
}

#[test]
fn what_is_delicate_is_not_even_opened() {
    let dir = TempDir::new("delicate");
    let path = dir.file("trace_pipe", 0);
    for flags in [libc::O_RDONLY, libc::O_RDWR, libc::O_RDONLY | libc::O_NONBLOCK] {
        let mut copy = Copy::new();
        copy.machine.fs = FileSystem::Delicate;
        let name = copy.path(&path);
        let arguments = [libc::AT_FDCWD as usize, name, flags as usize, 0];
        let outcome = copy.outcome(nr::OPENAT, &arguments);
        assert_eq!(outcome, Outcome::Park(Park::Unanswerable));
        assert_eq!(opened(&copy), []);
    }
    let file = std::fs::File::open(&path).unwrap();
    let meta = file.metadata().unwrap();
    let mut copy = Copy::new();
    copy.machine.fs = FileSystem::Delicate;
    let inherited = Inherited { size: 0, ..regular(&meta, libc::O_RDONLY) };
    copy.emulator.inherit(file.as_raw_fd(), inherited);
    let mut bytes = [0u8; 8];
    let address = copy.machine.own(&mut bytes);
    let outcome = copy.outcome(nr::READ, &[file.as_raw_fd() as usize, address, 8]);
    assert_eq!(outcome, Outcome::Park(Park::Unanswerable));
    assert_eq!(opened(&copy), []);
}

#[test]
fn what_would_be_forgotten_is_opened_for_a_trial_only() {
    let dir = TempDir::new("forgetting");
    let [one, other] = ["one", "other"].map(|name| dir.file(name, 3 * 4096));
    let empty = dir.file("empty", 0);
    for (fs, forgets) in [(FileSystem::Forgetting, true), (FileSystem::Keeping, false)] {
        // Of the empty file nobody can tell.
        let mut opening = 0;
        for trials in [2, 0] {
            let mut copy = Copy::cold(fs);
            copy.log.opening.store(opening, Relaxed);
            let name = copy.path(&empty);
            copy.outcome(nr::OPENAT, &[libc::AT_FDCWD as usize, name, 0, 0]);
            let none = opened(&copy).len();
            for path in [&one, &other] {
                let name = copy.path(path);
                let outcome = copy.outcome(nr::OPENAT, &[libc::AT_FDCWD as usize, name, 0, 0]);
                let parks = outcome == Outcome::Park(Park::Unanswerable);
                assert_eq!(parks, forgets, "{fs:?}: {outcome:?}");
            }
            let each = if forgets { 0 } else { 2 };
            assert_eq!(opened(&copy).len() - none, trials + each, "{fs:?}");
            opening = copy.log.opening.load(Relaxed);
            assert_eq!(opening & 1 == 1, forgets, "{fs:?}");
            assert_eq!(opening >> 1, one.metadata().unwrap().dev());
        }
    }
}

/// A close writes what is dirty there, and takes the error of that.
#[test]
fn what_a_server_is_told_is_left_to_the_program() {
    let dir = TempDir::new("server");
    let path = dir.file("written", 5000);
    let mut copy = Copy::cold(FileSystem::Keeping);
    assert!(copy.open(&path, libc::O_RDONLY) >= 0);
    let before = opened(&copy).len();
    let name = copy.path(&path);
    let arguments = [libc::AT_FDCWD as usize, name, libc::O_RDWR as usize, 0];
    let outcome = copy.outcome(nr::OPENAT, &arguments);
    assert_eq!(outcome, Outcome::Park(Park::Unanswerable));
    assert_eq!(opened(&copy).len(), before);
    // What it has open already, too.
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let meta = file.metadata().unwrap();
    for (flags, reads) in [(libc::O_RDWR, false), (libc::O_RDONLY, true)] {
        let mut copy = Copy::cold(FileSystem::Keeping);
        let inherited = regular(&meta, flags);
        copy.emulator.inherit(file.as_raw_fd(), inherited);
        let mut bytes = [0u8; 8];
        let address = copy.machine.own(&mut bytes);
        let outcome = copy.outcome(nr::READ, &[file.as_raw_fd() as usize, address, 8]);
        assert_eq!(outcome != Outcome::Park(Park::Unanswerable), reads, "{flags:o}: {outcome:?}");
    }
}

/// Neither files nor directories: what is open there can be neither removed nor replaced.
/// A server that does not say what it is may be such a one.
#[test]
fn what_a_server_keeps_the_name_of_is_not_opened() {
    let dir = TempDir::new("smb");
    let path = dir.file("file", 5000);
    let servers = [FileSystem::Smb, FileSystem::Silent];
    for (path, server) in [&path, &dir.0].into_iter().flat_map(|path| servers.map(|fs| (path, fs)))
    {
        let mut copy = Copy::cold(server);
        let name = copy.path(path);
        let outcome = copy.outcome(nr::OPENAT, &[libc::AT_FDCWD as usize, name, 0, 0]);
        // The directories of the tests' own file system may be on a device.
        let device = path.metadata().unwrap().dev();
        if path.is_file() || device >> 8 & 0xfff == 0 {
            assert_eq!(outcome, Outcome::Park(Park::Unanswerable));
            assert_eq!(opened(&copy), []);
        }
    }
}

#[test]
fn what_a_driver_says_is_left_to_the_program() {
    let processors = "/sys/devices/system/cpu/online";
    let expected = std::fs::read(processors).unwrap();
    let mut copy = Copy::new();
    let fd = copy.open(processors, libc::O_RDONLY);
    let (result, bytes) = copy.read(fd, 4096);
    assert_eq!(&bytes[..result as usize], expected, "it says the same to everybody");
    let roundabout = "/sys/devices/system/cpu/../../../kernel/uevent_seqnum";
    for path in ["/sys/kernel/uevent_seqnum", roundabout] {
        let mut copy = Copy::new();
        let fd = copy.open(path, libc::O_RDONLY);
        let mut bytes = [0u8; 64];
        let address = copy.machine.own(&mut bytes);
        let outcome = copy.outcome(nr::READ, &[fd as usize, address, 64]);
        assert_eq!((outcome, bytes), (Outcome::Park(Park::Unanswerable), [0; 64]), "{path}");
        assert_eq!(copy.machine.count(nr::PREADV2), 0, "{path}");
    }
    // Its registers may be mapped (resource0 of PCI), which loads would read.
    let map = [0, 4096, libc::PROT_READ as usize, libc::MAP_SHARED as usize, fd as usize, 0];
    assert_eq!(copy.outcome(nr::MMAP, &map), Outcome::Park(Park::Unanswerable));
    assert_eq!(copy.machine.count(nr::MMAP), 0);
}

#[test]
fn huge_pages_are_left_to_the_program() {
    // SAFETY: makes a descriptor.
    let fd = unsafe { libc::memfd_create(c"huge".as_ptr(), libc::MFD_HUGETLB) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: nobody else's.
    let file = unsafe { std::fs::File::from_raw_fd(fd) };
    file.set_len(2 << 20).unwrap();
    let meta = file.metadata().unwrap();
    let inherited = regular(&meta, libc::O_RDWR);
    let mut copy = Copy::new();
    copy.emulator.inherit(fd, inherited);
    let map = [0, 2 << 20, libc::PROT_READ as usize, libc::MAP_SHARED as usize, fd as usize, 0];
    assert_eq!(copy.outcome(nr::MMAP, &map), Outcome::Park(Park::Unanswerable));
    assert_eq!(copy.machine.count(nr::MMAP), 0, "mapping it reserves some");
}

#[test]
fn a_device_is_asked_once_what_opening_its_files_does() {
    let dir = TempDir::new("asked");
    // Files without blocks may be delicate, those with may be forgotten.
    for len in [0, 5000] {
        let mut copy = Copy::new();
        for name in ["a", "b", "c"] {
            let path = dir.file(name, len);
            std::fs::File::open(&path).unwrap().sync_all().unwrap();
            let fd = copy.open(&path, libc::O_RDONLY);
            let (read, bytes) = copy.read(fd, 100);
            assert_eq!(bytes[..read as usize], contents(len)[..len.min(100)]);
        }
        assert_eq!(copy.machine.count(nr::FSTATFS), 1);
    }
}

#[test]
fn a_directory_is_read_on_where_the_normal_process_stands() {
    let dir = TempDir::new("listing");
    (0..40).for_each(|nth| drop(dir.file(&format!("a file with a long name {nth}"), 1)));
    let directory = std::fs::File::open(&dir.0).unwrap();
    let fd = directory.as_raw_fd() as usize;
    let mut entries = [0u8; 512];
    let address = entries.as_mut_ptr().expose_provenance();
    assert!(raw(nr::GETDENTS64, [fd, address, 512, 0, 0, 0]) > 0);
    let meta = directory.metadata().unwrap();
    let inherited = Inherited {
        kind: Kind::Directory,
        dev: meta.dev(),
        ino: meta.ino(),
        offset: POSITION_UNKNOWN,
        size: meta.size(),
        mode: meta.mode(),
        status_flags: 0,
        cloexec: true,
    };
    let mut copy = Copy::new();
    copy.emulator.inherit(fd as i32, inherited);
    let mut foreseen = [0u8; 512];
    let address = copy.machine.own(&mut foreseen);
    assert!(copy.call(nr::GETDENTS64, &[fd, address, 512]) > 0);
    assert!(raw(nr::GETDENTS64, [fd, entries.as_mut_ptr().expose_provenance(), 512, 0, 0, 0]) > 0);
    // d_off of the first entry, and the rest of it with its name.
    assert_eq!(foreseen[..32], entries[..32]);
}

#[test]
fn reads_with_flags_and_direct_ones_are_not_counted() {
    let dir = TempDir::new("uncounted");
    let path = dir.file("f", 8192);
    let mut copy = Copy::new();
    let fd = copy.open(&path, libc::O_RDONLY | libc::O_DIRECT);
    assert_eq!(copy.read(fd, 4096).0, 4096);
    let fd = copy.open(&path, libc::O_RDONLY) as usize;
    let mut buffer = vec![0u8; 4096];
    let mut vector = [copy.machine.own(&mut buffer), 4096];
    let vector = copy.machine.own(&mut vector);
    const RWF_HIPRI: usize = 1;
    assert_eq!(copy.call(nr::PREADV2, &[fd, vector, 1, 0, 0, RWF_HIPRI]), 4096);
    const RWF_NOWAIT: usize = 8;
    assert_eq!(copy.call(nr::PREADV2, &[fd, vector, 1, 0, 0, RWF_NOWAIT]), 4096);
    assert_eq!(copy.log.lead(), 0, "as the normal process counts");
}

#[test]
fn real_descriptors_are_closed_when_nothing_needs_them() {
    let dir = TempDir::new("closing");
    let path = dir.file("f", 40_000);
    let mut copy = Copy::new();
    copy.machine.cold = true;
    for _ in 0..50 {
        let fd = copy.open(&path, libc::O_RDONLY);
        assert_eq!(fd, 0);
        copy.read(fd, 4096);
        assert_eq!(copy.call(nr::CLOSE, &[fd as usize]), 0);
        copy.machine.now_ns += 2_000_000;
    }
    let opened = copy.machine.count(nr::OPENAT);
    let closed = copy.machine.count(nr::CLOSE);
    // /proc/self/fd stays, and the last file while its prefetch is watched.
    assert!(opened - closed <= 3, "{opened} opened, {closed} closed");
}

#[test]
fn what_pages_are_asked_about_through_is_mapped_once_and_given_back() {
    let dir = TempDir::new("window");
    let path = dir.file("f", 40_000);
    let mut copy = Copy::new();
    copy.machine.fs = FileSystem::Cachestat;
    copy.machine.cold = true;
    copy.machine.warm(&path, 0);
    let fd = copy.open(&path, libc::O_RDONLY);
    for _ in 0..3 {
        copy.pread(fd, 10_000, 0);
    }
    assert_eq!(copy.machine.count(nr::MMAP), 1);
    assert!(copy.machine.count(nr::MINCORE) >= 3);
    // Its prefetches are complete, and seen to be, before the file is closed.
    for other in ["g", "h", "i"] {
        copy.machine.now_ns += 20_000_000;
        let other = copy.open(dir.file(other, 40_000), libc::O_RDONLY);
        copy.read(other, 40_000);
    }
    assert_eq!(copy.machine.count(nr::MUNMAP), 0);
    assert_eq!(copy.call(nr::CLOSE, &[fd as usize]), 0);
    assert_eq!(copy.machine.count(nr::MUNMAP), 1);
}

#[test]
fn a_small_cold_file_takes_few_calls() {
    const FILES: usize = 200;
    let dir = TempDir::new("few");
    let mut copy = Copy::new();
    copy.machine.cold = true;
    let mut stat = [0u8; 144];
    let stat_at = copy.machine.own(&mut stat);
    for number in 0..FILES {
        let path = dir.file(&number.to_string(), 10_000);
        let fd = copy.open(&path, libc::O_RDONLY) as usize;
        assert_eq!(copy.call(nr::FSTAT, &[fd, stat_at]), 0);
        assert_eq!(stat[48..56], 10_000u64.to_ne_bytes(), "st_size");
        // From the third one on, the first read is told the end.
        if number < 2 {
            assert_eq!(copy.read(fd as isize, 32768).0, 10_000);
        }
        assert_eq!(copy.read(fd as isize, 32768).0, 0);
        assert_eq!(copy.call(nr::CLOSE, &[fd]), 0);
        copy.machine.now_ns += 20_000;
        copy.consume(copy.log.tail.load(Relaxed));
    }
    // By name, what it is, for reading, its name's descriptor closed; the
    // read; whether it is there; the close. The rest: one more look now and
    // then at what is not there yet.
    let calls = copy.machine.calls.len() / FILES;
    assert!(calls <= 8, "{calls} calls for each file");
}

/// On overlayfs a question takes a mapping: cold files are not asked about one
/// by one, and prefetches in flight not either.
#[test]
fn cold_files_are_hardly_asked_about_where_that_takes_a_mapping() {
    const FILES: usize = 200;
    let dir = TempDir::new("unasked");
    let mut copy = Copy::new();
    copy.machine.fs = FileSystem::Overlay;
    copy.machine.cold = true;
    copy.log.horizon.store(4000, Relaxed);
    let small = |copy: &mut Copy, number: usize| {
        let path = dir.file(&number.to_string(), 10_000);
        if number >= FILES {
            [0, 4096, 8192].iter().for_each(|offset| copy.machine.warm(&path, *offset));
        }
        let fd = copy.open(&path, libc::O_RDONLY) as usize;
        let read = copy.pread(fd as isize, 32768, 0);
        assert_eq!(read.0, 10_000);
        assert_eq!(copy.call(nr::CLOSE, &[fd]), 0);
        copy.machine.now_ns += 20_000;
        read.1
    };
    for number in 0..FILES {
        small(&mut copy, number);
    }
    assert_eq!(copy.emulator.counters().prefetches, FILES as u64);
    let mapped = copy.machine.count(nr::MMAP);
    assert!((FILES / 4..FILES * 2 / 3).contains(&mapped), "{mapped} mappings for {FILES} files");
    // The first that is there is not seen, one of the next is, and from then
    // on all are.
    let there = (FILES..FILES + 16)
        .map(|number| small(&mut copy, number)[..10_000] == contents(10_000))
        .collect::<Vec<_>>();
    let first = there.iter().position(|there| *there).unwrap();
    assert!(first < 4 && there[first..].iter().all(|there| *there), "{there:?}");
}

#[test]
fn what_an_open_learnt_is_told_once() {
    let dir = TempDir::new("told");
    let path = dir.file("f", 5000);
    let mut copy = Copy::new();
    let fd = copy.open(&path, libc::O_RDONLY) as usize;
    let mut stat = [0u8; 144];
    let stat_at = copy.machine.own(&mut stat);
    copy.call(nr::FSTAT, &[fd, stat_at]);
    assert_eq!(copy.read(fd as isize, 8192).0, 5000);
    assert_eq!(copy.read(fd as isize, 8192).0, 0);
    std::fs::write(&path, contents(6000)).unwrap();
    let (result, bytes) = copy.read(fd as isize, 8192);
    assert_eq!((result, &bytes[..1000]), (1000, &contents(6000)[5000..]), "it has grown");
    copy.call(nr::FSTAT, &[fd, stat_at]);
    assert_eq!(stat[48..56], 6000u64.to_ne_bytes());

    // Another file under the same number has attributes of its own.
    let other = dir.file("g", 7);
    let fd = copy.open(&path, libc::O_RDONLY) as usize;
    copy.call(nr::CLOSE, &[fd]);
    assert_eq!(copy.open(&other, libc::O_RDONLY), fd as isize);
    copy.call(nr::FSTAT, &[fd, stat_at]);
    assert_eq!(stat[48..56], 7u64.to_ne_bytes());
}
