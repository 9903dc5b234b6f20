//! Streams: how many requests they become, and that no page is left out.

mod machine;

use machine::{Copy, FileSystem, TempDir};
use runahead_emulate::arch::nr;

const METHODS: [FileSystem; 3] = [FileSystem::NoWait, FileSystem::Cachestat, FileSystem::Foreign];

#[test]
fn long_reads_are_prefetched_in_chunks_that_the_kernel_does_not_cut() {
    let dir = TempDir::new("long");
    let path = dir.file("f", 4 << 20);
    for fs in METHODS {
        let mut copy = Copy::cold(fs);
        let fd = copy.open(&path, libc::O_RDONLY);
        assert_eq!(copy.read(fd, 8 << 20).0, 4 << 20);
        assert_eq!(copy.machine.in_flight_max, 1024, "{fs:?}: every page of the file");
    }
}

#[test]
fn a_sequential_stream_is_few_requests() {
    let dir = TempDir::new("stream");
    let path = dir.file("f", 1 << 20);
    for fs in METHODS {
        let mut copy = Copy::cold(fs);
        let fd = copy.open(&path, libc::O_RDONLY);
        for _ in 0..32 {
            copy.read(fd, 32768);
        }
        let prefetches = copy.emulator.counters().prefetches;
        assert!((1..=10).contains(&prefetches), "{fs:?}: {prefetches} requests for 32 reads");
    }
}

#[test]
fn a_stream_leaves_no_page_out_whatever_the_pieces() {
    const PIECE: usize = 28 << 10;
    let dir = TempDir::new("pieces-of-pages");
    let path = dir.file("f", 4 << 20);
    for fs in METHODS {
        let mut copy = Copy::cold(fs);
        // What the kernel's readahead has begun for the normal process ends in a piece.
        (0..33).for_each(|page| copy.machine.begin(&path, page * 4096));
        let fd = copy.open(&path, libc::O_RDONLY);
        let mut requests = Vec::new();
        for read in 1..=100 {
            copy.read(fd, PIECE);
            let holes = copy.machine.holes(&path, (read * PIECE) as u64);
            assert_eq!(holes, [0; 0], "{fs:?}: read {read}");
            requests.push(copy.machine.count(nr::READAHEAD));
        }
        assert!(requests[99] <= 16, "{fs:?}: {requests:?}");
    }
}

#[test]
fn a_stream_that_skips_a_little_is_few_requests_too() {
    let dir = TempDir::new("skips");
    let path = dir.file("f", 4 << 20);
    for fs in METHODS {
        let mut copy = Copy::cold(fs);
        let fd = copy.open(&path, libc::O_RDONLY);
        let mut requests = Vec::new();
        for read in 1..60usize {
            copy.pread(fd, 10_240, read * 40_960);
            requests.push(copy.emulator.counters().prefetches);
        }
        assert!(requests[3] >= 4, "{fs:?}: three skips are needed: {requests:?}");
        assert!(requests[58] <= 25, "{fs:?}: {requests:?}");
        // Once they are seen, what is skipped is brought in with the rest.
        let holes = copy.machine.holes(&path, 59 * 40_960);
        assert!(holes.iter().all(|page| *page < 5 * 10), "{fs:?}: {holes:?}");
        // What lies farther is read by itself, and undoes what was learnt.
        let before = copy.emulator.counters().prefetched_bytes;
        for page in [900, 904, 950, 954] {
            copy.pread(fd, 4096, page * 4096);
        }
        assert_eq!(copy.emulator.counters().prefetched_bytes - before, 4 * 4096, "{fs:?}");
    }
}

#[test]
fn small_reads_of_one_stream_do_not_use_the_horizon_up() {
    let dir = TempDir::new("pieces");
    let path = dir.file("f", 4 << 20);
    for fs in METHODS {
        let mut copy = Copy::cold(fs);
        let fd = copy.open(&path, libc::O_RDONLY);
        for _ in 0..512 {
            copy.read(fd, 4096);
        }
        let counters = copy.emulator.counters();
        assert_eq!(counters.horizon_waits, 0, "{fs:?}: {} requests", counters.prefetches);
    }
}

#[test]
fn random_reads_prefetch_no_more_than_they_read() {
    let dir = TempDir::new("random");
    let path = dir.file("f", 4 << 20);
    for fs in METHODS {
        let mut copy = Copy::cold(fs);
        let fd = copy.open(&path, libc::O_RDONLY);
        for read in 1..20usize {
            copy.pread(fd, 8192, (read * 37 % 500) * 8192);
        }
        assert_eq!(copy.emulator.counters().prefetched_bytes, 19 * 8192, "{fs:?}");
    }
}
