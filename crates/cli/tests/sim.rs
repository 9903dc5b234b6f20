//! `runahead sim --replay` of what many threads read at a time.

mod support;

use runahead_sim::Random;
use runahead_sim::recording::{RecordedFile, RecordedRead, Recording, Stream};
use support::{Scratch, text};

const THREADS: u32 = 100;

#[test]
fn many_threads_are_simulated_where_each_has_a_buffer() {
    let scratch = Scratch::new();
    let mut random = Random::new(3);
    // Each takes so long that they all read at the same time.
    let read = |i: u32| RecordedRead {
        stream: i % THREADS,
        file: 0,
        offset: 8192 * random.below(1 << 14),
        length: 8192,
        start_us: u64::from(i),
        took_us: 1_000_000,
        cpu_us: 10,
        cpu_in_us: 1,
    };
    let recording = Recording {
        name: "many".into(),
        lost: 0,
        files: vec![RecordedFile { device: 1, inode: 2, bytes: 8192 << 14 }],
        streams: (0..THREADS).map(|i| Stream { process: 1, thread: 1 + i }).collect(),
        reads: (0..20 * THREADS).map(read).collect(),
    };
    let trace = scratch.file("trace", recording.encode(), 0o644);
    let simulate = |arguments: &[&str]| {
        let mut command = scratch.runahead();
        command.args(["sim", "--policy", "nh,tip", "--disks", "1", "--json", "--replay"]);
        command.arg(&trace).args(arguments).output().unwrap()
    };
    let output = simulate(&[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for run in found["runs"].as_array().unwrap() {
        assert_eq!(run["tasks_elapsed_s"].as_array().unwrap().len(), THREADS as usize);
    }
    assert_eq!(found["runs"].as_array().unwrap().len(), 2);
    let output = simulate(&["--buffers", "64"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("--buffers 64") && error.contains("102"), "{error}");
}
