//! What is given back behind the program, and what is not.

mod machine;

use machine::{Copy, FileSystem, PAGE, TempDir, identity};
use runahead_emulate::{Start, arch::nr};
use runahead_policy::release::{Knowledge, Pressure};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

const S: u64 = 1_000_000_000;
const DONTNEED: usize = 4;

/// A copy of a program whose memory is tight, or not.
fn copy(fs: FileSystem, tight: bool) -> Copy {
    let mut copy = Copy::cold(fs);
    let mut pressure = Pressure::default();
    pressure.is_due(S);
    pressure.look(Some(0), 2 * S);
    if tight {
        pressure.look(Some(1 << 20), 3 * S);
    }
    copy.machine.now_ns = 4 * S;
    copy.machine.refaults = Some(if tight { 1 << 20 } else { 0 });
    copy.emulator.start(&Start {
        identity: identity(),
        release: Some(Knowledge { pressure, ..Knowledge::default() }.words()),
        ..Start::default()
    });
    // The file system is known.
    let dir = TempDir::new("known");
    let fd = copy.open(dir.file("f", 4096), libc::O_RDONLY);
    copy.read(fd, 4096);
    copy
}

/// Reads the next `reads` times 4 KiB; the program follows 32 reads behind.
fn stream(copy: &mut Copy, fd: isize, reads: u64) {
    for _ in 0..reads {
        assert_eq!(copy.read(fd, 4096).0, 4096);
        follow(copy, 32);
    }
}

/// The program is `behind` reads behind.
fn follow(copy: &mut Copy, behind: u64) {
    copy.machine.now_ns += 2_000_000;
    let tail = copy.log.tail.load(Relaxed);
    copy.consume(tail.saturating_sub(behind));
}

/// Ranges that were given back.
fn given_back(copy: &Copy) -> Vec<(usize, usize)> {
    let calls = copy.machine.calls.iter();
    calls
        .filter(|(number, args)| *number == nr::FADVISE64 && args[3] == DONTNEED)
        .map(|(_, args)| (args[1], args[2]))
        .collect()
}

fn is_there(copy: &mut Copy, path: &Path, page: u64) -> bool {
    let file = path.metadata().unwrap();
    copy.machine.is_resident((file.dev(), file.ino(), page))
}

#[test]
fn a_stream_is_given_back_behind_the_program_where_memory_is_tight() {
    let dir = TempDir::new("behind");
    let path = dir.file("f", 4096 * 2048);
    for fs in [FileSystem::NoWait, FileSystem::Cachestat] {
        let mut copy = copy(fs, true);
        let fd = copy.open(&path, libc::O_RDONLY);
        stream(&mut copy, fd, 1024);
        let ranges = given_back(&copy);
        assert!(!ranges.is_empty(), "{fs:?}");
        let end = ranges.iter().map(|(start, len)| start + len).max().unwrap() as u64;
        let consumed = copy.log.consumed.load(Relaxed) - 1;
        assert!(end <= (consumed - 1) * PAGE, "{fs:?}: {end} of {consumed} reads");
        assert!(end >= 64 * PAGE, "{fs:?}: only {end}");
        // All but what the kernel's own readahead may have begun.
        let released = copy.log.behind.released.load(Relaxed);
        assert!((end / PAGE - 1..=end / PAGE).contains(&released), "{fs:?}: {ranges:?}");
        assert!(!is_there(&mut copy, &path, 0) && is_there(&mut copy, &path, consumed), "{fs:?}");
        assert_eq!(copy.log.behind.returned.load(Relaxed), 0, "{fs:?}");
        // A little at first.
        assert!(end < 1024 * PAGE, "{fs:?}: {end}");
    }
}

#[test]
fn nothing_is_given_back_where_memory_is_not_tight_or_nobody_says() {
    let dir = TempDir::new("roomy");
    let path = dir.file("f", 4096 * 2048);
    let cases =
        [(FileSystem::NoWait, false), (FileSystem::Overlay, true), (FileSystem::Foreign, true)];
    for (fs, tight) in cases {
        let mut copy = copy(fs, tight);
        let fd = copy.open(&path, libc::O_RDONLY);
        stream(&mut copy, fd, 1000);
        assert_eq!(given_back(&copy), [], "{fs:?}");
    }
    // Nor in a copy that is not to.
    let mut copy = Copy::cold(FileSystem::NoWait);
    let fd = copy.open(&path, libc::O_RDONLY);
    for second in 0..10 {
        copy.machine.refaults = Some(second << 20);
        copy.machine.now_ns += S;
        stream(&mut copy, fd, 100);
    }
    assert_eq!(given_back(&copy), []);
}

#[test]
fn memory_is_found_to_be_tight_and_not_to_be_any_more() {
    let dir = TempDir::new("refaults");
    let path = dir.file("f", 4096 * 2048);
    let mut copy = copy(FileSystem::NoWait, false);
    let fd = copy.open(&path, libc::O_RDONLY);
    stream(&mut copy, fd, 16);
    copy.machine.now_ns += S;
    copy.machine.refaults = Some(2 << 20);
    stream(&mut copy, fd, 800);
    let before = given_back(&copy).len();
    assert!(before > 0);
    copy.machine.now_ns += 20 * S;
    stream(&mut copy, fd, 800);
    // The first reads until the next look.
    assert!(given_back(&copy).len() <= before + 1);
}

#[test]
fn what_was_in_memory_before_is_not_ours_to_give_back() {
    let dir = TempDir::new("others");
    let path = dir.file("f", 4096 * 1024);
    let mut copy = copy(FileSystem::NoWait, true);
    // A page in each run that is prefetched.
    for page in (0..1024).step_by(16) {
        copy.machine.warm(&path, page * PAGE + 8 * PAGE);
    }
    let fd = copy.open(&path, libc::O_RDONLY);
    stream(&mut copy, fd, 1000);
    assert_eq!(given_back(&copy), []);
    assert!(is_there(&mut copy, &path, 8) && is_there(&mut copy, &path, 24));
    // One page of a file: what is looked at with it is kept, what is not is not.
    let path = dir.file("g", 4096 * 1024);
    copy.machine.warm(&path, 900 * PAGE);
    let fd = copy.open(&path, libc::O_RDONLY);
    stream(&mut copy, fd, 1000);
    let given_back = given_back(&copy);
    assert!(!given_back.is_empty());
    assert!(given_back.iter().all(|(start, len)| start + len <= 512 * PAGE as usize));
}

#[test]
fn what_is_dirty_or_may_be_written_is_left_alone() {
    let dir = TempDir::new("dirty");
    let path = dir.file("f", 4096 * 1024);
    let file = path.metadata().unwrap();
    let mut dirty = copy(FileSystem::NoWait, true);
    let fd = dirty.open(&path, libc::O_RDONLY);
    stream(&mut dirty, fd, 32);
    dirty.machine.dirty = (0..1024).map(|page| (file.dev(), file.ino(), page)).collect();
    stream(&mut dirty, fd, 900);
    assert_eq!(given_back(&dirty), []);
    let mut written = copy(FileSystem::NoWait, true);
    let fd = written.open(&path, libc::O_RDWR);
    stream(&mut written, fd, 1000);
    assert_eq!(given_back(&written), []);
}

#[test]
fn what_the_program_may_not_have_read_is_kept() {
    let dir = TempDir::new("unpredicted");
    let path = dir.file("f", 4096 * 1024);
    let mut copy = copy(FileSystem::NoWait, true);
    let fd = copy.open(&path, libc::O_RDONLY);
    for _ in 0..1000 {
        assert_eq!(copy.read(fd, 4096).0, 4096);
        copy.log.unpredicted.fetch_add(1, Relaxed);
        follow(&mut copy, 32);
    }
    assert_eq!(given_back(&copy), []);
}

#[test]
fn a_loop_is_found_out_and_left_alone_by_later_copies_too() {
    let dir = TempDir::new("loop");
    let path = dir.file("f", 4096 * 768);
    let mut first = copy(FileSystem::NoWait, true);
    let fd = first.open(&path, libc::O_RDONLY);
    stream(&mut first, fd, 768);
    let released = first.log.behind.released.load(Relaxed);
    assert!(released >= 64);
    // Another copy meets the same reads.
    let mut second = copy(FileSystem::NoWait, true);
    second.log.behind.carry(&first.log.behind);
    let carried = second.log.behind.words.each_ref().map(|word| word.load(Relaxed));
    second.machine.now_ns = first.machine.now_ns;
    second.emulator = Copy::new().emulator;
    second.emulator.start(&Start {
        identity: identity(),
        release: Some(carried),
        ..Start::default()
    });
    let fd = second.open(&path, libc::O_RDONLY);
    stream(&mut second, fd, 768);
    assert_eq!(second.log.behind.returned.load(Relaxed), released);
    assert_eq!(given_back(&second), []);
    // Others are not.
    let fd = second.open(dir.file("g", 4096 * 2048), libc::O_RDONLY);
    second.machine.now_ns += 2 * S;
    stream(&mut second, fd, 1024);
    assert!(!given_back(&second).is_empty());
}

#[test]
fn what_somebody_else_brings_back_is_left_alone() {
    let dir = TempDir::new("wanted");
    let path = dir.file("f", 4096 * 2048);
    let released = [false, true].map(|wanted| {
        let mut copy = copy(FileSystem::NoWait, true);
        let fd = copy.open(&path, libc::O_RDONLY);
        for _ in 0..2000 {
            stream(&mut copy, fd, 1);
            // Another program reads all that the program has read.
            for page in 0..if wanted { copy.log.consumed.load(Relaxed) } else { 0 } {
                copy.machine.warm(&path, page * PAGE);
            }
        }
        assert_eq!(copy.log.behind.returned.load(Relaxed) > 0, wanted);
        copy.log.behind.released.load(Relaxed)
    });
    assert!(released[1] > 0 && released[1] < released[0] / 2, "{released:?}");
}

#[test]
fn a_file_that_was_closed_is_open_until_it_is_given_back_and_no_longer() {
    let dir = TempDir::new("closed");
    let paths: Vec<_> = (0..200).map(|name| dir.file(&name.to_string(), 10_000)).collect();
    let mut copy = copy(FileSystem::NoWait, true);
    let mut open_max = 0;
    let before = copy.machine.open.len();
    for path in &paths {
        let fd = copy.open(path, libc::O_RDONLY);
        copy.read(fd, 32768);
        copy.read(fd, 32768);
        copy.call(nr::CLOSE, &[fd as usize]);
        follow(&mut copy, 32);
        open_max = open_max.max(copy.machine.open.len() - before);
    }
    assert!(!given_back(&copy).is_empty());
    assert!(!is_there(&mut copy, &paths[0], 0) && !is_there(&mut copy, &paths[0], 2));
    assert!(is_there(&mut copy, &paths[199], 2));
    assert!((8..=130).contains(&open_max), "{open_max}");
    // Nor where the program removes something, or memory is not tight any more.
    let removed = std::ffi::CString::new(paths[0].to_str().unwrap()).unwrap();
    for removes in [true, false] {
        for name in 0..8 {
            let fd = copy.open(dir.file(&format!("{removes}{name}"), 10_000), libc::O_RDONLY);
            copy.read(fd, 32768);
            copy.read(fd, 32768);
            copy.call(nr::CLOSE, &[fd as usize]);
            follow(&mut copy, 32);
        }
        let open_before = copy.machine.open.len() - before;
        if removes {
            follow(&mut copy, 0);
            copy.call(nr::UNLINK, &[removed.as_ptr().expose_provenance()]);
        } else {
            copy.machine.now_ns += 20 * S;
        }
        let fd = copy.open(dir.file("last", 4096 * 32), libc::O_RDONLY);
        stream(&mut copy, fd, 32);
        copy.call(nr::CLOSE, &[fd as usize]);
        let open = copy.machine.open.len() - before;
        assert!(open_before > 4 && open <= 3, "{removes}: {open_before}, then {open}");
    }
}
