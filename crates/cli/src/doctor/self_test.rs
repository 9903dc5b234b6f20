//! The live test: a small reading program, the shell with a script, run ahead
//! of its reads, which are made to count as stalls. Not this command itself:
//! it may be linked statically.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use runahead_protocol::session::TEST_EVERY_READ_STALLS;
use serde_json::Value;

use super::{Check, Standing};

const AREA: &str = "self-test";
/// Files that the program reads, and their size.
const FILES: usize = 24;
const FILE_BYTES: usize = 16 << 10;
/// On a busy machine speculation declines; that is no finding.
const TRIES: usize = 5;
/// Who ends waits for its statistics half a second at most; on a busy machine or a slow disk
/// they come later.
const STATISTICS_WAIT: Duration = Duration::from_secs(10);

/// A line of each file, and some computing after it.
const SCRIPT: &str = "n=0
for f; do
    read -r line < \"$f\" || exit 1
    n=$((n + 1))
    i=0
    while [ $i -lt 2000 ]; do i=$((i + 1)); done
done
echo $n";

pub fn checks() -> Vec<Check> {
    let directory = match scratch() {
        Ok(directory) => directory,
        Err(error) => {
            let found = format!("no place for its files: {error}");
            return vec![
                Check::new(AREA, "speculation", Standing::Missing, found)
                    .or_lost("not tried: set TMPDIR to a directory that can be written"),
            ];
        }
    };
    let mut outcome = run(&directory);
    for _ in 1..TRIES {
        let made = |json: &Value| number(json, "/speculation/synchronizations/completed");
        // A better try may follow one in which the copy was not given time.
        match &outcome {
            Ok(json) if made(json) == 0 || number(json, "/reads_predicted") == 0 => {}
            _ => break,
        }
        match run(&directory) {
            Ok(json) if made(&json) == 0 => {}
            better => outcome = better,
        }
    }
    let _ = fs::remove_dir_all(&directory);
    match outcome {
        Ok(json) if number(&json, "/speculation/synchronizations/completed") > 0 => {
            vec![made(&json), predicted(&json)]
        }
        Ok(json) => vec![declined(&json)],
        Err(why) => vec![
            Check::new(AREA, "speculation", Standing::Fatal, why)
                .or_lost("runahead itself does not work here: see what is missing above"),
        ],
    }
}

/// A directory with the program's files, out of memory where that can be had.
fn scratch() -> std::io::Result<PathBuf> {
    let directory = std::env::temp_dir().join(format!("runahead-doctor-{}", std::process::id()));
    fs::create_dir(&directory)?;
    let write = |index: usize| {
        let mut file = File::create(directory.join(index.to_string()))?;
        let line = format!("file {index}\n");
        file.write_all(line.repeat(FILE_BYTES / line.len()).as_bytes())?;
        // Only clean pages can be given back.
        file.sync_data()?;
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        Ok(())
    };
    let written: std::io::Result<()> = (0..FILES).try_for_each(write);
    if let Err(error) = written {
        let _ = fs::remove_dir_all(&directory);
        return Err(error);
    }
    Ok(directory)
}

/// Runs the program under runahead: its statistics, or what went wrong.
fn run(directory: &Path) -> Result<Value, String> {
    let exe = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
    let report = directory.join("statistics.json");
    let mut statistics = std::ffi::OsString::from("--stats=");
    statistics.push(&report);
    for index in 0..FILES {
        // Of an earlier try.
        if let Ok(file) = File::open(directory.join(index.to_string())) {
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }
    let output = Command::new(&exe)
        .args(["run", "--test", &TEST_EVERY_READ_STALLS.to_string()])
        .arg(statistics)
        .arg("--")
        .args(["/bin/sh", "-c", SCRIPT, "sh"])
        .args((0..FILES).map(|index| directory.join(index.to_string())))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error}", exe.display()))?;
    if !output.status.success() || output.stdout != format!("{FILES}\n").as_bytes() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the program ended by {} {}", output.status, stderr.trim()));
    }
    let text = awaited(&report).map_err(|error| format!("no statistics: {error}"))?;
    serde_json::from_slice(&text).map_err(|error| format!("statistics: {error}"))
}

/// Reads a report, which may be about to be written, and removes it: the next try is not to
/// find this one's. (It is renamed to its place when it is complete.)
fn awaited(report: &Path) -> std::io::Result<Vec<u8>> {
    let deadline = Instant::now() + STATISTICS_WAIT;
    loop {
        match fs::read(report) {
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            text => return text.and_then(|text| fs::remove_file(report).map(|()| text)),
        }
    }
}

fn number(json: &Value, pointer: &str) -> u64 {
    json.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

fn made(json: &Value) -> Check {
    let parked = json.pointer("/speculation/parked").and_then(Value::as_object);
    let parked: Vec<String> = parked
        .map(|parked| parked.iter().map(|(reason, count)| format!("{reason} {count}")).collect())
        .unwrap_or_default();
    let found = format!(
        "{} speculative processes made; ended by: {}",
        number(json, "/speculation/synchronizations/completed"),
        if parked.is_empty() { "nothing told".to_owned() } else { parked.join(", ") },
    );
    let calls = json.pointer("/speculation/parked_calls").and_then(Value::as_object);
    let stopped_by: Vec<&str> =
        calls.map(|calls| calls.keys().map(String::as_str).collect()).unwrap_or_default();
    let bad = ["bug", "unknown_call", "unanswerable_call", "fault"];
    let stopped = parked.iter().any(|reason| bad.iter().any(|bad| reason.starts_with(bad)));
    let standing = if stopped { Standing::Reduced } else { Standing::Works };
    Check::new(AREA, "speculation", standing, found)
        .or_lost(&format!("copies stop early ({}): please report it", stopped_by.join(", ")))
}

fn predicted(json: &Value) -> Check {
    let predicted = number(json, "/reads_predicted");
    let found = format!(
        "{predicted} reads foreseen, {} prefetches, {} calls patched",
        number(json, "/speculation/prefetches/issued"),
        number(json, "/sites/patched"),
    );
    // Files that stay in memory need no prefetch, and a busy machine no copy.
    let standing = if predicted > 0 { Standing::Works } else { Standing::Reduced };
    Check::new(AREA, "predicted reads", standing, found).or_lost(
        "none here: the files were in memory (a memory file system), or the machine was busy; \
         set TMPDIR to a disk, or try again",
    )
}

/// Nothing was made, without an error.
fn declined(json: &Value) -> Check {
    let losses = json.get("losses").and_then(Value::as_array).into_iter().flatten();
    let losses: Vec<&str> = losses.filter_map(Value::as_str).collect();
    let hooked = number(json, "/reads") > 0;
    if losses.is_empty() && hooked {
        Check::new(AREA, "speculation", Standing::Reduced, "declined: the processors were busy")
            .or_lost("not tried: ask again when the machine is quiet")
    } else if losses.is_empty() {
        Check::new(AREA, "speculation", Standing::Fatal, "the agent did not get into the program")
            .or_lost("programs run plainly: see \"noticing\" above")
    } else {
        Check::new(AREA, "speculation", Standing::Fatal, losses.join("; "))
            .or_lost("programs run plainly: see what is missing above")
    }
}
