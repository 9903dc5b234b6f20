//! The memory that a program shares with its launcher and its copies, written
//! by a hostile program: the report is valid JSON of bounded size, and the log
//! answers or does not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use runahead_protocol::log::Log;
use runahead_protocol::stats::{FILE_LEN, Header, Slot};
use std::alloc::{Layout, alloc_zeroed};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

#[path = "../../../../crates/cli/src/stats/mod.rs"]
#[allow(dead_code, unused_imports)]
mod stats;
use stats::shared::Shared;
use stats::{Destination, Ended, Report};

/// Longest report, in bytes: so much for each process.
const REPORT_LEN_MAX: usize = FILE_LEN;

fn fill_log(bytes: &[u8]) -> Box<Log> {
    // SAFETY: zero bytes are a valid Log, and the layout is the type's; then
    // other bytes, which are as valid in atomics.
    unsafe {
        let log: *mut Log = alloc_zeroed(Layout::new::<Log>()).cast();
        let len = bytes.len().min(size_of::<Log>());
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), log.cast(), len);
        Box::from_raw(log)
    }
}

fuzz_target!(|bytes: &[u8]| {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    let shared = SHARED.get_or_init(|| Shared::new(1).unwrap());
    // SAFETY: open for as long as the process lives.
    let file = unsafe { BorrowedFd::borrow_raw(shared.fd()) };
    let some = &bytes[..bytes.len().min(size_of::<Header>() + 4 * size_of::<Slot>())];
    rustix::io::pwrite(file, some, 0).unwrap();
    let path = PathBuf::from(format!("/dev/shm/runahead-fuzz-{}", std::process::id()));
    let command = vec![String::from_utf8_lossy(bytes.get(..40).unwrap_or(bytes)).into_owned()];
    let destination = Destination::File(path.clone());
    let report = Report { destination, command, mode: "speculate", losses: Vec::new() };
    report.write(shared, Duration::from_nanos(1 << 40), Some(Ended::Signal(9)));
    let text = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(text.len() <= REPORT_LEN_MAX, "{}", text.len());
    serde_json::from_slice::<serde_json::Value>(&text).expect("valid JSON");
    for slot in shared.slots() {
        assert!(slot.logged_intervals().count() <= size_of::<Slot>());
    }
    shared.mark_gone();

    let log = fill_log(bytes);
    let tail = log.tail.load(std::sync::atomic::Ordering::Relaxed);
    for n in [0, 1, tail, tail.wrapping_sub(1), tail.wrapping_sub(1 << 10), u64::MAX] {
        let _ = (log.get(n), log.pages.get(n), log.pages.contains(n), log.lead());
    }
    log.pages.push(3);
    let last = log.pages.tail.load(std::sync::atomic::Ordering::Relaxed).wrapping_sub(1);
    assert_eq!(log.pages.get(last), Some(3));
});
