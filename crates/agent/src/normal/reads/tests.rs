use super::*;
use std::boxed::Box;
use std::fs::File;
use std::os::fd::AsRawFd;

/// Of a copy that runs and has predicted nothing yet.
fn running_log() -> &'static Log {
    // SAFETY: zeroed memory is a valid log.
    let log: &Log = Box::leak(unsafe { Box::new_zeroed().assume_init() });
    log.life.store(life::RUNNING, Relaxed);
    log
}

/// Reads of one descriptor number: of one file after another, or of one.
#[test]
fn the_end_of_a_file_is_not_taken_for_the_beginning_of_the_next() {
    let state = crate::state::zeroed();
    let log = running_log();
    const LEN: u64 = 98304;
    let sizes = [11_531, 2040, 7842];
    for size in sizes {
        let flags = FLAG_PREFETCHED;
        log.push(Prediction { offset: 0, len: LEN, fd: 3, flags, prefetched_len: size, file: 0 });
        let flags = FLAG_END;
        log.push(Prediction { offset: size, len: LEN, fd: 3, flags, prefetched_len: 0, file: 0 });
    }
    let mut number = 0;
    let mut finds = |offset, len| {
        let request = Request { fd: 3, offset, len, explicit: false, started: false, file: 0 };
        let (standing, found) = standing(&state, log, &request, number);
        number += 1;
        assert!(standing == Standing::None || found.is_none());
        found.map(|found| found.offset)
    };
    assert_eq!(finds(0, LEN), Some(0));
    // One read that the copy has not made (it is told the end at once).
    assert_eq!(finds(4096, 65536), None);
    // What is left of the buffer is less than the copy's.
    assert_eq!(finds(11_531, LEN - 12288), Some(11_531));
    for size in [2040, 7842] {
        assert_eq!(finds(0, LEN), Some(0));
        assert_eq!(finds(size, LEN - 4096), Some(size));
    }
    assert_eq!(state.shift.load(Relaxed), 1u64.wrapping_neg());
    assert_eq!(log.unpredicted.load(Relaxed), 2);
}

/// diff compares two files, and a copy leaves both at their first block: the
/// program makes six reads where it made two.
#[test]
fn a_copy_that_leaves_reads_out_is_found_again_at_each_file() {
    let state = crate::state::zeroed();
    let log = running_log();
    const FILES: u64 = 100;
    let push = |fd: i32, file: u64| {
        let flags = FLAG_PREFETCHED;
        log.push(Prediction { offset: 0, len: 4096, fd, flags, prefetched_len: 4096, file });
    };
    for file in 1..=FILES {
        push(3, file);
        push(4, file + 1000);
    }
    let mut number = 0;
    let mut reads = |fd, file, offset, len| {
        let request = Request { fd, offset, len, explicit: false, started: false, file };
        let (standing, found) = standing(&state, log, &request, number);
        number += 1;
        (standing, found.map(|found| found.file))
    };
    let known = |file| if state.adrift.load(Relaxed) != 0 { file } else { 0 };
    for file in 1..=FILES {
        // The first read of each is known after one that was not predicted.
        assert_eq!(reads(3, known(file), 0, 4096).1, Some(file));
        assert_eq!(reads(4, known(file + 1000), 0, 4096).1, Some(file + 1000));
        for (fd, offset, len) in [(3, 4096, 2000), (3, 6095, 1), (4, 4096, 2000), (4, 6095, 1)] {
            let (standing, found) = reads(fd, 0, offset, len);
            assert_eq!(found, None);
            assert!(standing != Standing::None, "the copy lives");
        }
    }
    assert_eq!(state.found_again.load(Relaxed), FOUND_AGAIN_MAX);
    assert_eq!(state.shift.load(Relaxed), (4 * (FILES - 1)).wrapping_neg());
    // One that the log has not come to is behind; one that it has passed by
    // is not in it.
    assert!(reads(3, FILES + 1, 0, 4096) == (Standing::Behind, None));
    (FILES + 2..FILES + 20).for_each(|file| push(3, file));
    state.shift.store((4 * FILES).wrapping_neg(), Relaxed);
    assert!(reads(3, FILES + 1, 0, 4096) == (Standing::OffTrack, None));
}

#[test]
fn hits_of_streams_are_told_from_others() {
    let state = crate::state::zeroed();
    let came_true = |fd, offset, prefetched| {
        let flags = if prefetched { FLAG_PREFETCHED } else { 0 };
        let read = Prediction { offset, len: 4096, fd, flags, prefetched_len: 4096, file: 0 };
        super::came_true(&state, &read, 0);
        (state.hits.swap(0, Relaxed), state.streamed.swap(0, Relaxed))
    };
    assert_eq!(came_true(3, 0, true), (1, 0), "a file begins");
    assert_eq!(came_true(4, 0, true), (1, 0));
    assert_eq!(came_true(3, 4096, true), (1, 1));
    assert_eq!(came_true(4, 4096, true), (1, 1), "by turns");
    assert_eq!(came_true(3, 12_288, true), (1, 0), "one is left out");
    assert_eq!(came_true(3, 16_384, false), (0, 0));
    assert_eq!(came_true(3, 20_480, true), (1, 1));
    assert_eq!(came_true(7, 24_576, true), (1, 0), "another descriptor");
    assert_eq!(came_true(3, 0, true), (1, 0), "the next file of that number");
}

#[test]
fn while_reads_rest_on_busy_processors_few_are_looked_at() {
    let state = crate::state::zeroed();
    state.skips.store(skips(&state, true), Relaxed);
    leave_unasked(&state);
    assert_eq!(state.unasked.load(Relaxed), UNASKED_MAX, "after one that waited");
    state.unasked.store(0, Relaxed);
    stays_calm(&state);
    assert_eq!(state.unasked.load(Relaxed), UNASKED_MAX, "after one that did not");
    state.skips.store(skips(&state, false), Relaxed);
    leave_unasked(&state);
    assert_eq!(state.unasked.load(Relaxed), 0);
    // Beside a copy all of its thread's reads are seen.
    state.skips.store(UNASKED_MAX, Relaxed);
    state.speculative.store(i32::MAX, Relaxed);
    leave_unasked(&state);
    assert_eq!(state.unasked.load(Relaxed), 0);
}

/// The pages of an index, on flash, by a program that is left alone for now.
#[test]
fn of_waits_in_a_row_one_stands_for_several() {
    let state = crate::state::zeroed();
    let waits = |in_row| {
        let waits = stands_for(&state, in_row);
        state.skips.store(skips(&state, false), Relaxed);
        leave_unasked(&state);
        (waits, state.unasked.swap(0, Relaxed))
    };
    for _ in 0..3 {
        (1..ROW_MIN).for_each(|_| assert_eq!(waits(true), (1, 0)));
        assert_eq!(waits(true), (1, SAMPLE - 1));
        (0..100).for_each(|_| assert_eq!(waits(true), (SAMPLE, SAMPLE - 1)));
        // One that does not wait, then one that waits for long.
        stays_calm(&state);
        assert_eq!(state.unasked.swap(0, Relaxed), 0);
        (1..ROW_MIN).for_each(|_| assert_eq!(waits(true), (1, 0)));
        assert_eq!(waits(false), (1, 0));
    }
}

/// On busy processors a copy may never come to run.
#[test]
fn reads_beside_a_copy_that_does_not_run_are_asked_about_as_long_as_they_wait() {
    let state: &'static State = Box::leak(Box::new(crate::state::zeroed()));
    let log = running_log();
    state.log.store(core::ptr::from_ref(log).cast_mut(), Relaxed);
    state.speculative.store(i32::MAX, Relaxed);
    state.credit.store(CREDIT, Relaxed);
    let file = File::open(std::env::current_exe().unwrap()).unwrap();
    let (fd, mut page) = (file.as_raw_fd(), [0u8; 4096]);
    let mut read = || {
        let args = [fd as usize, page.as_mut_ptr() as usize, page.len(), 0, 0, 0];
        let request = Request { fd, offset: 0, len: 4096, explicit: true, started: false, file: 0 };
        let mut frame = Frame { number: nr::PREAD64, args, resume: 0 };
        tracked(state, &mut frame, request, class::UNKNOWN)
    };
    let mut reads = 0;
    // All are in memory; one that loses its processor may look as if not.
    while state.credit.load(Relaxed) != 0 {
        assert_eq!(read(), 4096);
        reads += 1;
    }
    let asked_ns = state.asked_ns.load(Relaxed);
    assert!(reads >= CREDIT && asked_ns > 0);
    assert_eq!(read(), 4096);
    assert_eq!(state.asked_ns.load(Relaxed), asked_ns);
    assert_eq!(state.consumed.load(Relaxed), u64::from(reads) + 1, "all are counted");
}
