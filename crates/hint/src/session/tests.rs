use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use runahead_manager::actor::Actor;
use runahead_manager::memory::Memory;

use super::server::Server;
use super::thread::BUSY_SLEEP;
use super::*;
use crate::backend::{Backend, HintMode};
use crate::status::{State, Status, identity};

/// What is to be looked up anew since the last call.
fn again(session: &Session) -> Vec<(u32, Source)> {
    let events = std::mem::take(&mut locked(&session.inbox).events);
    let again = events.into_iter().filter_map(|event| match event {
        Event::Again(number, source) => Some((number, source)),
        _ => None,
    });
    again.collect()
}

#[test]
fn a_file_that_is_hinted_again_is_found_by_a_descriptor_that_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    std::fs::write(&path, [7; 100]).unwrap();
    let session = Session::idle(None);
    let first = File::open(&path).unwrap();
    let second = File::open(&path).unwrap();
    for file in [&first, &second, &first] {
        assert_eq!(session.fd_number(file.as_raw_fd()), Ok(0));
        assert_eq!(again(&session), [], "the first one is open");
    }
    drop(first);
    let by = |file: &File| {
        let identity = identity(file.as_raw_fd()).unwrap();
        Source::Descriptor { pid: std::process::id(), fd: file.as_raw_fd(), identity }
    };
    assert_eq!(session.fd_number(second.as_raw_fd()), Ok(0));
    assert_eq!(again(&session), [(0, by(&second))]);
    assert_eq!(session.fd_number(second.as_raw_fd()), Ok(0));
    assert_eq!(again(&session), [], "once");
    // Grown.
    File::options().append(true).open(&path).unwrap().write_all(&[8; 100]).unwrap();
    assert_eq!(session.fd_number(second.as_raw_fd()), Ok(0));
    assert_eq!(again(&session), [(0, by(&second))]);
    assert_eq!(session.fd_number(second.as_raw_fd()), Ok(0));
    assert_eq!(again(&session), [], "once");
    // Another file was given the inode.
    let identity = identity(second.as_raw_fd()).unwrap();
    let state = State { born_ns: 1, bytes: 200 };
    locked(&session.inbox).by_identity.insert(identity, Hinted { number: 0, state });
    assert_eq!(session.fd_number(second.as_raw_fd()), Ok(1));
    assert_eq!((session.known(identity), again(&session)), (Some(1), vec![]));
}

/// A session and the two that serve it, as its thread would.
fn served() -> (Session, Server, Backend) {
    let mut memory = Memory::of_self();
    let backend = Backend::open(None, HintMode::Full, "test", &mut memory, 1).unwrap();
    (Session::idle(None), Server::new(Actor::default()), backend)
}

/// Serves until so many segments are outstanding, at most half a minute.
fn serve_until(outstanding: usize, (session, server, backend): &mut (Session, Server, Backend)) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while session.outstanding() != outstanding {
        assert!(Instant::now() < deadline, "{} are outstanding", session.outstanding());
        let news = server.take(session, backend);
        if !(news | server.act(session, backend)) {
            std::thread::park_timeout(BUSY_SLEEP);
        }
    }
}

const BLOCK: u64 = runahead_manager::BLOCK_BYTES;

fn blocks_of(file: u32, blocks: u64) -> impl ExactSizeIterator<Item = Segment> {
    let offsets: Vec<u64> = (0..blocks).map(|block| block * BLOCK).collect();
    offsets.into_iter().map(move |offset| Segment { file, offset, length: BLOCK })
}

fn note(session: &Session, file: u32, blocks: std::ops::Range<u64>) {
    for block in blocks {
        let (offset, length) = (block * BLOCK, BLOCK);
        session.note_read(ReadNote { file, offset, length, t_app_us: 0 });
    }
}

fn file_of(blocks: u64) -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(blocks * BLOCK).unwrap();
    file
}

/// Told before, they match nothing, and after 256 of them no hint is ever matched again.
#[test]
fn reads_wait_for_the_hints_that_they_are_of() {
    let mut all = served();
    let (first, second) = (file_of(1000), file_of(1000));
    let number = all.0.fd_number(first.as_raw_fd()).unwrap();
    all.0.disclose(blocks_of(number, 1000)).unwrap();
    note(&all.0, number, 0..600);
    serve_until(400, &mut all);
    // Again with a manager that takes hints, and a file that is not found yet.
    let other = all.0.fd_number(second.as_raw_fd()).unwrap();
    all.0.disclose(blocks_of(other, 1000)).unwrap();
    note(&all.0, number, 600..1000);
    note(&all.0, other, 0..700);
    serve_until(300, &mut all);
    note(&all.0, other, 700..1000);
    serve_until(0, &mut all);
}

/// Forgotten, the hints would stay for ever: a program that hints a file and reads it at once is
/// through before it is found.
#[test]
fn what_is_observed_waits_for_the_first_hint() {
    let mut all = served();
    for read in [4, 10] {
        let file = file_of(10);
        let number = all.0.fd_number(file.as_raw_fd()).unwrap();
        all.0.disclose(blocks_of(number, 10)).unwrap();
        all.1.take(&all.0, &mut all.2);
        all.1.observe(BLOCK, &mut all.2);
        all.1.observe((read - 1) * BLOCK, &mut all.2);
        serve_until(10 - read as usize, &mut all);
        all.0.cancel(usize::MAX);
        serve_until(0, &mut all);
    }
}

/// A piece of the queue for each hint, were they not small and joined.
#[test]
fn hints_between_reads_take_as_little_as_others() {
    const HINTS: u64 = 20_000;
    let mut all = served();
    let file = file_of(HINTS);
    let number = all.0.fd_number(file.as_raw_fd()).unwrap();
    for block in 0..HINTS {
        let hint = Segment { file: number, offset: block * BLOCK, length: BLOCK };
        all.0.disclose([hint].into_iter()).unwrap();
        if block % 2 == 1 {
            note(&all.0, number, block / 2..block / 2 + 1);
        }
    }
    let bytes = |inbox: &Inbox| -> usize {
        let pieces = inbox.events.iter().map(|event| match event {
            Event::Segments(piece) => piece.capacity(),
            _ => 0,
        });
        pieces.sum()
    };
    assert!(bytes(&locked(&all.0.inbox)) <= 64 * HINTS as usize);
    // Until the file is found.
    all.1.take(&all.0, &mut all.2);
    let waiting = all.1.hints.waiting_bytes();
    assert!(waiting <= 22 * HINTS as usize, "{waiting}");
    serve_until(HINTS as usize / 2, &mut all);
    note(&all.0, number, HINTS / 2..HINTS);
    serve_until(0, &mut all);
}

#[test]
fn what_is_cancelled_before_the_manager_has_it_is_cancelled() {
    let mut all = served();
    let file = file_of(10);
    let number = all.0.fd_number(file.as_raw_fd()).unwrap();
    all.0.disclose(blocks_of(number, 10)).unwrap();
    all.0.cancel(3);
    all.1.take(&all.0, &mut all.2);
    assert_eq!(all.0.outstanding(), 7, "there was no credit yet");
    // Behind a read, which consumes one more.
    note(&all.0, number, 3..4);
    all.0.cancel(2);
    all.1.take(&all.0, &mut all.2);
    assert_eq!(all.0.outstanding(), 7, "not before the read");
    serve_until(4, &mut all);
    note(&all.0, number, 6..7);
    serve_until(3, &mut all);
    all.0.cancel(usize::MAX);
    serve_until(0, &mut all);
}

/// A copy of a descriptor, with a number that nobody else is given.
fn numbered(file: &File, number: i32) -> OwnedFd {
    // SAFETY: plain call; the new descriptor is owned by who is given it.
    unsafe {
        assert_eq!(libc::dup2(file.as_raw_fd(), number), number);
        OwnedFd::from_raw_fd(number)
    }
}

/// Else no hint of it would ever be taken again: the descriptor has the number it had.
#[test]
fn a_file_that_was_closed_before_it_was_looked_up_is_looked_for_again() {
    const NUMBER: i32 = 901;
    let mut all = served();
    let file = file_of(10);
    let hint = |all: &(Session, Server, Backend)| {
        let open = numbered(&file, NUMBER);
        let number = all.0.fd_number(open.as_raw_fd()).unwrap();
        all.0.disclose(blocks_of(number, 10)).unwrap();
        open
    };
    drop(hint(&all));
    serve_until(0, &mut all);
    let _open = hint(&all);
    let (pid, identity) = (std::process::id(), identity(NUMBER).unwrap());
    assert_eq!(again(&all.0), [(0, Source::Descriptor { pid, fd: NUMBER, identity })]);
}

#[test]
fn a_file_that_has_lost_its_name_is_found_by_its_descriptor() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    std::fs::write(&path, [7; 10 * BLOCK as usize]).unwrap();
    let file = File::open(&path).unwrap();
    let mut all = served();
    let number = all.0.path_number(&path).unwrap();
    all.0.disclose(blocks_of(number, 10)).unwrap();
    note(&all.0, number, 0..10);
    serve_until(0, &mut all);
    std::fs::remove_file(&path).unwrap();
    // As where a prefetch finds that out.
    all.1.files.lost(number);
    all.0.disclose(blocks_of(number, 10)).unwrap();
    while locked(&all.0.inbox).missing.is_empty() {
        serve_until(10, &mut all);
        all.1.take(&all.0, &mut all.2);
        all.1.act(&all.0, &mut all.2);
    }
    assert_eq!(all.0.fd_number(file.as_raw_fd()), Ok(number));
    assert_eq!(again(&all.0).len(), 1);
    // What comes to have the name is another file.
    assert_ne!(all.0.path_number(&path), Ok(number));
}

/// Hinted by both, it is one file to the manager, which has it read by its name.
#[test]
fn a_file_that_has_lost_its_name_is_still_read_by_its_descriptor() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    std::fs::write(&path, [7; 10 * BLOCK as usize]).unwrap();
    let file = File::open(&path).unwrap();
    let mut all = served();
    let deadline = Instant::now() + Duration::from_secs(30);
    type Served = (Session, Server, Backend);
    let serve_while = |all: &mut Served, is_so: &dyn Fn(&Server, &Stats) -> bool| {
        while is_so(&all.1, &all.2.stats()) {
            assert!(Instant::now() < deadline, "{:?}", all.2.stats());
            if !(all.1.take(&all.0, &mut all.2) | all.1.act(&all.0, &mut all.2)) {
                std::thread::park_timeout(BUSY_SLEEP);
            }
        }
    };
    // The manager has it read by the way in which it was found last.
    let by_descriptor = all.0.fd_number(file.as_raw_fd()).unwrap();
    serve_while(&mut all, &|server, _| server.files.is_finding(by_descriptor));
    let by_name = all.0.path_number(&path).unwrap();
    assert_ne!(by_name, by_descriptor);
    serve_while(&mut all, &|server, _| server.files.is_finding(by_name));
    std::fs::remove_file(&path).unwrap();
    // Until whoever has found it has closed it, it can be read all the same.
    let gone = PathBuf::from(format!("{} (deleted)", path.display()));
    let is_gone = |entry: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_link(entry.unwrap().path()).is_ok_and(|name| name == gone)
    };
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().map(is_gone).filter(|&is| is).count();
    serve_while(&mut all, &|_, _| open() > 1);
    all.0.disclose(blocks_of(by_name, 10)).unwrap();
    serve_while(&mut all, &|_, stats| stats.failed == 0);
    all.0.cancel(usize::MAX);
    serve_until(0, &mut all);
    let before = all.2.stats().prefetches;
    all.0.disclose(blocks_of(by_descriptor, 10)).unwrap();
    serve_while(&mut all, &|_, stats| stats.prefetches == before);
}

/// However often a program cancels while the manager's thread does not come to look.
#[test]
fn cancelling_takes_no_memory() {
    let mut all = served();
    let file = file_of(10);
    let number = all.0.fd_number(file.as_raw_fd()).unwrap();
    all.0.disclose(blocks_of(number, 10)).unwrap();
    all.1.take(&all.0, &mut all.2);
    note(&all.0, number, 0..1);
    for _ in 0..2 {
        all.0.cancel(1);
        all.0.cancel(2);
        assert_eq!(locked(&all.0.inbox).events.len(), 2 - usize::from(!all.1.held.is_empty()));
        all.1.take(&all.0, &mut all.2);
        assert_eq!(all.1.held.len(), 2, "the read, and what is cancelled behind it");
    }
    serve_until(3, &mut all);
    all.0.cancel(usize::MAX);
    all.0.cancel(1);
    serve_until(0, &mut all);
}

#[test]
fn who_is_too_far_ahead_has_lost_the_hints_and_takes_no_more_memory() {
    let mut all = served();
    let file = file_of(10);
    let number = all.0.fd_number(file.as_raw_fd()).unwrap();
    all.0.disclose(blocks_of(number, 10)).unwrap();
    note(&all.0, number, 0..READS_MAX as u64 + 100);
    assert_eq!(locked(&all.0.inbox).reads, READS_MAX);
    all.1.take(&all.0, &mut all.2);
    assert_eq!((all.0.outstanding(), all.1.held.len()), (0, 0));
    // What is disclosed from now on counts.
    all.0.disclose(blocks_of(number, 5)).unwrap();
    note(&all.0, number, 0..3);
    serve_until(2, &mut all);
}

#[test]
fn nothing_is_kept_where_there_is_no_manager() {
    let session = Session::idle(None);
    let file = file_of(10);
    session.disclose(blocks_of(session.fd_number(file.as_raw_fd()).unwrap(), 10)).unwrap();
    session.forget();
    for blocks in 11..20 {
        // It grows.
        file.set_len(blocks * BLOCK).unwrap();
        let number = session.fd_number(file.as_raw_fd()).unwrap();
        session.disclose(blocks_of(number, 10)).unwrap();
        session.path_number(Path::new("/no/such")).unwrap();
        note(&session, number, 0..10);
        session.cancel(1);
    }
    let inbox = locked(&session.inbox);
    assert!(inbox.events.is_empty() && inbox.sources.is_empty() && inbox.by_path.is_empty());
    assert_eq!((session.outstanding(), session.fd_number(-1)), (0, Err(Error::NotAFile)));
}

/// Were it for each segment, one would cost thousands of nanoseconds.
#[test]
fn files_are_looked_at_once_for_all_their_segments() {
    let session = Session::idle(None);
    let files = [file_of(1), file_of(1)];
    let ranges = (0..10_u64).map(|i| {
        let file = &files[i as usize % 2];
        // It grows, which is seen where it is looked at.
        file.set_len((i + 1) * BLOCK).unwrap();
        (file.as_raw_fd(), Range { offset: i, length: 1 })
    });
    let segments = session.across(ranges).unwrap();
    assert!(
        segments.iter().zip(0..).all(|(segment, i)| {
            *segment == Segment { file: i as u32 % 2, offset: i, length: 1 }
        })
    );
    assert_eq!(again(&session), []);
    let closed = [
        (files[0].as_raw_fd(), Range { offset: 0, length: 0 }),
        (-1, Range { offset: 0, length: 0 }),
    ];
    assert_eq!(session.across(closed.into_iter()), Err(Error::NotAFile));
}

#[test]
fn a_file_that_grows_with_each_hint_is_looked_at_once() {
    let session = Session::idle(None);
    let file = file_of(1);
    let number = session.fd_number(file.as_raw_fd()).unwrap();
    for blocks in 2..50 {
        file.set_len(blocks * BLOCK).unwrap();
        assert_eq!(session.fd_number(file.as_raw_fd()), Ok(number));
        session.disclose(blocks_of(number, 1)).unwrap();
    }
    assert_eq!(again(&session).len(), 1);
}

#[test]
fn a_note_is_of_no_more_than_there_is() {
    let file = file_of(3);
    let status = Status::of(file.as_raw_fd()).unwrap();
    assert_eq!(status.bytes_from(BLOCK), 2 * BLOCK);
    assert_eq!(status.bytes_from(u64::MAX), 0);
    let session = Session::idle(None);
    session.note_read(ReadNote { file: 0, offset: 0, length: u64::MAX, t_app_us: 0 });
    let inbox = locked(&session.inbox);
    let Some(Event::Reads(notes)) = inbox.events.front() else { panic!("no note") };
    assert_eq!(notes[0].length, NOTE_BYTES_MAX);
}
