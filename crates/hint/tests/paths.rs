//! Files that are hinted by their names: where the program is, and before they are there.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use runahead_hint::Range;

const WHOLE: Range = Range { offset: 0, length: 0 };

/// At most half a minute.
fn wait_until(mut is_so: impl FnMut() -> bool, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_name_means_what_it_means_when_it_is_hinted() {
    // SAFETY: nobody else reads or writes the environment: it is the only test.
    unsafe { std::env::set_var("RUNAHEAD_MANAGER", "embedded") };
    let directory = tempfile::tempdir().unwrap();
    let session = runahead_hint::session().unwrap();

    // The same name in two directories is of two files.
    let mut numbers = Vec::new();
    for name in ["one", "other", "one"] {
        let place = directory.path().join(name);
        fs::create_dir_all(&place).unwrap();
        std::env::set_current_dir(&place).unwrap();
        numbers.push(session.path_number(Path::new("data")).unwrap());
    }
    assert!(numbers[0] != numbers[1] && numbers[0] == numbers[2], "{numbers:?}");
    let absolute = session.path_number(&directory.path().join("one/data"));
    assert_eq!(absolute, Ok(numbers[0]));

    // What was not there is passed over, and looked for again when it is hinted once more.
    runahead_hint::disclose_path("data", &[WHOLE]).unwrap();
    wait_until(|| runahead_hint::outstanding() == 0, "it was not passed over");
    assert_eq!(session.stats().prefetches, 0);
    fs::write("data", vec![7; 100_000]).unwrap();
    let hinted_again = || {
        runahead_hint::disclose_path("data", &[WHOLE]).unwrap();
        session.stats().prefetches > 0
    };
    wait_until(hinted_again, "it was never found");
}
