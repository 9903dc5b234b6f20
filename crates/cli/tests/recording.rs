//! `--record` and `runahead sim --replay`: what a program reads, recorded and
//! simulated.

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use runahead_protocol::reads::RECORDS_MAX;
use runahead_sim::Op;
use runahead_sim::recording::{RecordedRead, Recording};
use serde_json::Value;
use support::speculation::noise;
use support::{Scratch, text};

/// Reads a file in every way that there is and prints each read: where, how
/// much.
const READER: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>
static char bytes[20000];
static long at;
static void did(long offset, long got) { if (got >= 0) printf("%ld %ld\n", offset, got); }
static void moved(long got) { did(at, got); if (got > 0) at += got; }
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDONLY), null = open("/dev/null", O_WRONLY), pipes[2];
    struct iovec two[2] = {{bytes, 100}, {bytes + 100, 5000}};
    if (fd < 0 || pipe(pipes)) return 9;
    moved(read(fd, bytes, 4096));
    moved(readv(fd, two, 2));
    did(40000, pread(fd, bytes, 12345, 40000));
    did(20000, preadv(fd, two, 2, 20000));
    did(1 << 30, pread(fd, bytes, 10, 1 << 30));
    if (read(fd, (char *)1, 10) != -1) return 8;
    did(3, preadv2(fd, two, 2, 3, 0));
    moved(preadv2(fd, two, 1, -1, 0));
    off_t here = 8192;
    did(8192, sendfile(null, fd, &here, 7000));
    moved(sendfile(null, fd, 0, 300));
    if (write(pipes[1], "pipe", 4) != 4 || read(pipes[0], bytes, 4) != 4) return 7;
    for (int i = 0; i < 200; i++) moved(read(fd, bytes, 10));
    lseek(fd, -5000, SEEK_END);
    at = lseek(fd, 0, SEEK_CUR);
    long got;
    do moved(got = read(fd, bytes, 4096)); while (got > 0);
    return 3;
}
"#;

/// Runs `runahead --record FILE` on a command, which must be told nothing of
/// it.
fn record(scratch: &Scratch, command: &[&str]) -> (Output, Recording) {
    let trace = scratch.join("trace");
    let _ = fs::remove_file(&trace);
    let mut runahead = scratch.runahead();
    let output = runahead.arg("--record").arg(&trace).arg("--").args(command).output().unwrap();
    (output, recording_in(&trace))
}

/// The trace, which is there when the program has ended; where no exit hook
/// could tell of the end, somewhat later.
fn recording_in(trace: &Path) -> Recording {
    let began = Instant::now();
    loop {
        if let Ok(bytes) = fs::read(trace) {
            return Recording::decode(&bytes).unwrap();
        }
        assert!(began.elapsed() < Duration::from_secs(60), "no trace");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The recorded reads of a file.
fn reads_of<'r>(recording: &'r Recording, path: &Path) -> Vec<&'r RecordedRead> {
    let metadata = fs::metadata(path).unwrap();
    let known = recording.files.iter().position(|file| file.inode == metadata.ino());
    let reads = recording.reads.iter();
    reads.filter(|read| known == Some(read.file as usize)).collect()
}

fn lines(reads: &[&RecordedRead]) -> String {
    reads.iter().map(|read| format!("{} {}\n", read.offset, read.length)).collect()
}

fn simulate(scratch: &Scratch, trace: &Path, arguments: &[&str]) -> Output {
    scratch.runahead().args(["sim", "--replay"]).arg(trace).args(arguments).output().unwrap()
}

#[test]
fn every_read_is_recorded_and_replayed() {
    let scratch = Scratch::new();
    let file = noise(&scratch, 40);
    let reader = scratch.compile("reader", READER, &["-O1"]);
    let command = [reader.to_str().unwrap(), file.to_str().unwrap()];
    let plain = Command::new(command[0]).arg(command[1]).output().unwrap();
    assert_eq!(plain.status.code(), Some(3), "{plain:?}");
    for options in [&[][..], &["--test", "1"]] {
        let trace = scratch.join("trace");
        let mut runahead = scratch.runahead();
        runahead.args(["--mode", "observe", "--record"]).arg(&trace).args(options);
        let output = runahead.arg("--").args(command).output().unwrap();
        assert_eq!((output.status.code(), &output.stdout), (Some(3), &plain.stdout));
        let recording = recording_in(&trace);
        let reads = reads_of(&recording, &file);
        assert_eq!(lines(&reads), text(&plain.stdout), "{options:?}");
        assert_eq!((recording.name.as_str(), recording.lost), ("reader", 0));
        let said = text(&output.stderr);
        let count = recording.reads.len();
        assert!(
            said.starts_with("runahead: recorded in ")
                && said.contains(&format!(": {count} reads"))
        );
        let file = &recording.files[reads[0].file as usize];
        assert_eq!(file.bytes, 40 * 4096);
        fs::remove_file(trace).unwrap();
    }
    // Through the simulator, under every policy.
    let (_, recording) = record(&scratch, &command);
    let trace = scratch.join("trace");
    let policies = "du,nh,np,nc,tip,fixed-horizon,aggressive,forestall,extended";
    let output = simulate(&scratch, &trace, &["--policy", policies, "--disks", "1,4", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 18);
    let blocks: u64 = recording
        .reads
        .iter()
        .filter(|read| read.length > 0)
        .map(|read| (read.offset + read.length).div_ceil(8192) - read.offset / 8192)
        .sum();
    for run in runs {
        assert_eq!(run["program"], "reader");
        assert_eq!(run["cache"]["requests"].as_f64(), Some(blocks as f64), "{run}");
        let [elapsed, bound] = ["elapsed_s", "bound_s"].map(|key| run[key].as_f64().unwrap());
        assert!(elapsed >= bound && bound > 0.0, "{run}");
    }
    let prefetched = |run: &Value| run["cache"]["prefetched_blocks"].as_f64().unwrap();
    assert!(prefetched(&runs[4]) > 0.0, "TIP makes no use of the hints: {}", runs[4]);
    let table =
        simulate(&scratch, &trace, &["--policy", "nh,tip", "--disks", "4", "--buffers", "64"]);
    let table = text(&table.stdout);
    let count = recording.reads.len();
    assert!(table.starts_with(&format!("{count} reads of ")) && table.contains("tip"), "{table}");
}

#[test]
fn children_and_executed_programs_are_streams_of_their_own() {
    let scratch = Scratch::new();
    let file = noise(&scratch, 8);
    let reader = scratch.compile("reader", READER, &["-O1"]);
    let copies = ["a", "b", "c", "d"].map(|name| {
        let copy = scratch.join(name);
        fs::copy(&file, &copy).unwrap();
        copy
    });
    let [a, b, c, d] = copies.each_ref().map(|path| path.to_str().unwrap());
    let script = r#""$0" "$1" >/dev/null & "$0" "$2" >/dev/null; wait; ("$0" "$3" >/dev/null)
        exec "$0" "$4""#;
    let (output, recording) =
        record(&scratch, &["sh", "-c", script, reader.to_str().unwrap(), a, b, c, d]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let mut streams = Vec::new();
    for copy in &copies {
        let reads = reads_of(&recording, copy);
        assert_eq!(lines(&reads), text(&output.stdout), "{}", copy.display());
        streams.extend(reads.iter().map(|read| read.stream));
        assert!(reads.iter().all(|read| read.stream == reads[0].stream));
    }
    streams.sort_unstable();
    streams.dedup();
    assert_eq!(streams.len(), 4, "{streams:?}");
    assert_eq!(recording.name, "sh");
    // The last two ran one after the other and after the first two.
    let programs = recording.programs().unwrap();
    assert!(programs.len() < recording.streams.len());
    let is_read = |op: &&Op| matches!(op, Op::Read(_));
    let simulated: usize = programs.iter().map(|one| one.ops.iter().filter(is_read).count()).sum();
    assert_eq!(simulated, recording.reads.len());
    let table = simulate(&scratch, &scratch.join("trace"), &["--disks", "2"]);
    assert!(table.status.success(), "{table:?}");
}

#[test]
fn threads_are_streams() {
    const THREADS: &str = r#"
        #include <fcntl.h>
        #include <pthread.h>
        #include <unistd.h>
        static int fd;
        static void *reads(void *of) {
            char bytes[512];
            for (long i = 0; i < 500; i++) if (pread(fd, bytes, 512, i * 8 + (long)of) != 512) _exit(9);
            return 0;
        }
        int main(int argc, char **argv) {
            pthread_t threads[4];
            fd = open(argv[1], O_RDONLY);
            for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, reads, (void *)i);
            for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
            return 0;
        }
    "#;
    let scratch = Scratch::new();
    let file = noise(&scratch, 8);
    let program = scratch.compile("threads", THREADS, &["-O1", "-pthread"]);
    let (output, recording) =
        record(&scratch, &[program.to_str().unwrap(), file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let reads = reads_of(&recording, &file);
    assert_eq!((reads.len(), recording.lost), (2000, 0));
    for thread in 0..4 {
        let of_thread: Vec<_> = reads.iter().filter(|read| read.offset % 8 == thread).collect();
        assert_eq!(of_thread.len(), 500);
        let stream = of_thread[0].stream;
        let in_order = of_thread.iter().enumerate();
        assert!(
            in_order
                .into_iter()
                .all(|(i, read)| { read.stream == stream && read.offset == i as u64 * 8 + thread })
        );
    }
}

/// Finds the file that it is recorded in and does what it is told to it: fills
/// it with noise from a thread while it reads, or says that it is nearly full.
const SCRIBBLER: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static volatile uint64_t *words;
static volatile int stop;
static size_t count;
static void *scribble(void *unused) {
    uint64_t state = 88172645463325252ull;
    while (!stop) {
        for (size_t i = 0; i < 4096 && i < count; i++) {
            state ^= state << 13; state ^= state >> 7; state ^= state << 17;
            words[state & 1 ? i : (state >> 1) % count] = state;
        }
    }
    return 0;
}
int main(int argc, char **argv) {
    unsigned long start, end, sum = 0;
    char line[512], path[64];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "memfd:runahead-reads") && sscanf(line, "%lx-%lx", &start, &end) == 2) {
            words = (void *)start;
            count = (end - start) / 8;
        }
    fclose(maps);
    int fd = open(argv[1], O_RDONLY);
    if (!words || fd < 0) return 9;
    /* It cannot be made smaller below the agent's feet. */
    snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", start, end);
    int held = open(path, O_RDWR);
    if (held >= 0 && !ftruncate(held, 4096)) return 8;
    pthread_t thread;
    long nearly = atol(argv[2]);
    if (nearly) words[1] = nearly;
    else pthread_create(&thread, 0, scribble, 0);
    unsigned char bytes[64];
    long reads = nearly ? 10 : 20000;
    for (long i = 0; i < reads; i++) {
        if (pread(fd, bytes, 64, i % 100 * 64) != 64) return 7;
        for (int j = 0; j < 64; j++) sum = sum * 31 + bytes[j];
    }
    if (!nearly) { stop = 1; pthread_join(thread, 0); }
    printf("%lx\n", sum);
    return 3;
}
"#;

#[test]
fn noise_in_the_recording_reaches_neither_the_program_nor_the_simulator() {
    let scratch = Scratch::new();
    let file = noise(&scratch, 8);
    let program = scratch.compile("scribbler", SCRIBBLER, &["-O1", "-pthread"]);
    let file = file.to_str().unwrap();
    let mut outputs = Vec::new();
    for _ in 0..2 {
        let (output, recording) = record(&scratch, &[program.to_str().unwrap(), file, "0"]);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        outputs.push(output.stdout);
        assert!(recording.reads.len() <= RECORDS_MAX);
        // Whatever it says now, the simulator answers: times, or that the files are too large.
        let simulated = simulate(&scratch, &scratch.join("trace"), &["--disks", "1"]);
        let said = text(&simulated.stderr);
        match simulated.status.code() {
            Some(0) => {}
            Some(1) => {
                assert!(said.contains("do not fit") || said.contains("holds no reads"), "{said}");
            }
            other => panic!("{other:?}: {said}"),
        }
    }
    assert!(outputs.iter().all(|output| *output == outputs[0]));
}

#[test]
fn what_does_not_fit_is_counted() {
    let scratch = Scratch::new();
    let file = noise(&scratch, 8);
    let program = scratch.compile("scribbler", SCRIBBLER, &["-O1", "-pthread"]);
    let nearly = (RECORDS_MAX - 3).to_string();
    let command = [program.to_str().unwrap(), file.to_str().unwrap(), &nearly];
    let (output, recording) = record(&scratch, &command);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let kept = reads_of(&recording, &file).len();
    assert_eq!(kept, 3);
    assert_eq!(recording.lost as usize, RECORDS_MAX - 3 + 10 - recording.reads.len());
    let lost = format!("{} more reads are not in it", recording.lost);
    assert!(text(&output.stderr).contains(&lost), "{output:?}");
    let simulated = simulate(&scratch, &scratch.join("trace"), &["--disks", "1"]);
    assert!(text(&simulated.stderr).contains(" reads are missing in "), "{simulated:?}");
}

#[test]
fn a_program_with_few_addresses_keeps_them() {
    let scratch = Scratch::new();
    let file = noise(&scratch, 8);
    let reader = scratch.compile("reader", READER, &["-O1"]);
    let script = r#"ulimit -v 4000000; exec "$0" "$1""#;
    let (command, stats) = ([reader.to_str().unwrap(), file.to_str().unwrap()], scratch.join("s"));
    let mut runahead = scratch.runahead();
    runahead.arg(format!("--stats={}", stats.display())).arg("--record").arg(scratch.join("trace"));
    let output = runahead.args(["--", "sh", "-c", script]).args(command).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let recording = recording_in(&scratch.join("trace"));
    assert!(reads_of(&recording, &file).is_empty());
    assert!(support::report::read(&stats).to_string().contains("its reads are not recorded"));
}

#[test]
fn what_is_no_trace_is_an_error_that_says_so() {
    let scratch = Scratch::new();
    let file = noise(&scratch, 8);
    let (_, recording) = record(&scratch, &["grep", "-c", "x", file.to_str().unwrap()]);
    assert!(!reads_of(&recording, &file).is_empty());
    let whole = fs::read(scratch.join("trace")).unwrap();
    let mut newer = whole.clone();
    newer[7] += 1;
    let mut changed = whole.clone();
    changed[20] ^= 1;
    let empty = Recording { name: "x".into(), ..Recording::default() }.encode();
    let mut huge = recording.clone();
    huge.files[0].bytes = 1 << 50;
    for (bytes, expected) in [
        (&whole[..whole.len() - 1], "cut off or changed"),
        (&changed, "cut off or changed"),
        (&newer, "version 2"),
        (&b"{\"name\":\"x\",\"files\":[]}\n"[..], "does not begin as a recorded trace"),
        (b"", "too short"),
        (&empty, "holds no reads"),
        (&huge.encode(), "do not fit on 1 simulated disks"),
    ] {
        let path = scratch.file("bad", bytes, 0o644);
        let output = simulate(&scratch, &path, &["--disks", "1"]);
        assert_eq!(output.status.code(), Some(1), "{expected}");
        let said = text(&output.stderr);
        assert!(said.contains("bad") || said.contains("do not fit"), "{said}");
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let output = simulate(&scratch, &scratch.join("nowhere"), &[]);
    assert!(text(&output.stderr).contains("cannot read"), "{output:?}");
}

#[test]
fn a_trace_of_lines_may_hold_any_numbers() {
    let scratch = Scratch::new();
    let sim = |files: &str, steps: &str| {
        let trace = format!("{{\"name\":\"x\",\"files\":[{files}]}}\n{steps}\n");
        let path = scratch.file("lines", trace, 0o644);
        let mut runahead = scratch.runahead();
        runahead.args(["sim", "--disks", "1,4", "--policy", "nh,tip,extended", "--trace"]);
        runahead.arg(path).output().unwrap()
    };
    for (files, steps, expected) in [
        (r#"{"bytes":2000000000000,"directory":0}"#, "", "do not fit on 1 simulated disks"),
        (r#"{"bytes":18446744073709551615,"directory":0}"#, "", "do not fit on 1 simulated disks"),
        (
            r#"{"bytes":8192,"directory":0}"#,
            r#"{"write":{"file":0,"offset":0,"length":18446744073709551615}}"#,
            "line 2: in the header the file ends before that",
        ),
    ] {
        let output = sim(files, steps);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(expected) && !said.contains("panicked"), "{said}");
    }
    // These mean something.
    for directory in [4_294_967_294_u32, u32::MAX] {
        let files =
            format!(r#"{{"bytes":90000,"directory":{directory}}},{{"bytes":1,"directory":0}}"#);
        let to_the_end = r#"{"file":0,"offset":8192,"length":18446744073709551615}"#;
        let steps = format!("{{\"hint\":[{to_the_end}]}}\n{{\"read\":{to_the_end}}}");
        let output = sim(&files, &steps);
        assert!(output.status.success(), "{output:?}");
        assert!(text(&output.stdout).contains("tip"), "{output:?}");
    }
}

#[test]
fn recording_goes_with_observing_only() {
    let scratch = Scratch::new();
    let run = |arguments: &[&str]| scratch.runahead().args(arguments).output().unwrap();
    let trace = scratch.join("trace");
    let trace = trace.to_str().unwrap();
    for mode in ["speculate", "off"] {
        let output = run(&["--mode", mode, "--record", trace, "true"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains("--mode observe"));
    }
    let output = run(&["--record", "/nowhere/at/all", "true"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot be written"));
    // What runs plainly has nothing to record, and that is said. Nobody waits for the
    // collector there: its end of the pipe says when it is done.
    let mut runahead = scratch.runahead();
    let output =
        runahead.env("RUNAHEAD", "off").args(["--record", trace, "true"]).output().unwrap();
    assert!(output.status.success());
    assert_eq!(recording_in(Path::new(trace)).reads, []);
    let said = text(&output.stderr);
    assert!(said.contains(": 0 reads") && said.contains("RUNAHEAD=off"), "{said}");
}
