//! The statistics that a run leaves.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Reads and removes the report of a program that has ended. It is mostly there by then:
/// who ends waits for it, but no longer than half a second.
pub fn read(file: &Path) -> Value {
    const LONGEST: Duration = Duration::from_secs(60);
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < LONGEST, "no statistics after {LONGEST:?}");
        if let Ok(text) = fs::read_to_string(file)
            && let Ok(stats) = serde_json::from_str(&text)
        {
            // The next run is not to find this one's.
            fs::remove_file(file).unwrap();
            return stats;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
