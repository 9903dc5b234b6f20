//! What was hinted does not stay open: its space comes free when the program removes it.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use runahead_hint::Range;

const WHOLE: Range = Range { offset: 0, length: 0 };

/// At most half a minute.
fn wait_until(is_so: impl Fn() -> bool, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a thread of this process has a file of that name open, removed or not: those of
/// the library have a table of descriptors of their own.
fn is_open(path: &Path) -> bool {
    let name = path.to_str().unwrap();
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let tables = threads.filter_map(|thread| fs::read_dir(thread.ok()?.path().join("fd")).ok());
    let links = tables.flatten().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.into_iter().any(|link| link.to_string_lossy().starts_with(name))
}

#[test]
fn what_was_hinted_and_closed_is_nowhere_open() {
    // SAFETY: nobody else reads or writes the environment: it is the only test.
    unsafe { std::env::set_var("RUNAHEAD_MANAGER", "embedded") };
    let directory = tempfile::tempdir().unwrap();
    let stats = || runahead_hint::session().unwrap().stats();
    let mut prefetches = 0;
    // Hinted by a descriptor or by name, read or not.
    for (by_name, is_read) in [(false, true), (true, true), (false, false), (true, false)] {
        let path = directory.path().join(format!("{by_name} {is_read}"));
        fs::write(&path, vec![7; 100_000]).unwrap();
        let file = File::open(&path).unwrap();
        if by_name {
            runahead_hint::disclose_path(&path, &[WHOLE]).unwrap();
        } else {
            runahead_hint::disclose(&file, &[WHOLE]).unwrap();
        }
        wait_until(|| stats().prefetches > prefetches, "nothing was prefetched");
        assert!(is_open(&path));
        prefetches = stats().prefetches;
        if is_read {
            for block in 0..13 {
                let mut bytes = [0; 8192];
                assert!(runahead_hint::read_at(&file, &mut bytes, block * 8192).unwrap() > 0);
            }
            wait_until(|| runahead_hint::outstanding() == 0, "it was not consumed");
        } else {
            wait_until(|| runahead_hint::outstanding() == 1, "nothing is outstanding");
        }
        drop(file);
        fs::remove_file(&path).unwrap();
        wait_until(|| !is_open(&path), "it is still open");
        runahead_hint::cancel(usize::MAX);
        wait_until(|| runahead_hint::outstanding() == 0, "it was not cancelled");
    }
}
