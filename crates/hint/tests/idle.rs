//! A program that hints and reads nothing is left alone: its hints stay, and nothing is kept busy.

use std::fs::{self, File};
use std::io::Read;
use std::time::{Duration, Instant};

use runahead_hint::Range;

/// Looks in the time that is waited here, were none of them rare: 500 in a second.
const LOOKS_MAX: usize = 1000;

#[test]
fn looks_at_a_program_that_reads_nothing_do_not_count_and_become_rare() {
    // SAFETY: nobody else reads or writes the environment: it is the only test.
    unsafe { std::env::set_var("RUNAHEAD_MANAGER", "embedded") };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    let mut file = File::open(&path).unwrap();
    let session = runahead_hint::session().unwrap();
    runahead_hint::disclose(&file, &[Range { offset: 0, length: 0 }]).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while session.looks() < 2 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    // So much that what comes next counts at once.
    let mut bytes = vec![0; 128 << 10];
    file.read_exact(&mut bytes).unwrap();
    while session.stats().reads == 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (reads, looks) = (session.stats().reads, session.looks());
    assert!(reads > 0, "it was not followed");
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(runahead_hint::outstanding(), 1);
    // The kernel counts the byte by which it is seen that a prefetch is done.
    let read = session.stats().reads - reads;
    assert!(read <= 2, "{read} blocks were taken for read");
    let looks = session.looks() - looks;
    assert!(looks < LOOKS_MAX, "{looks} looks");
}
