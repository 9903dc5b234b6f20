//! `runahead bench` end to end, very small, on a real mount, as root. Nothing
//! here asserts how long anything took.

#[allow(dead_code, reason = "the tests of slowdisk use the rest")]
mod bed;

use std::fs;
use std::process::{Child, Command, ExitStatus, Output};

use bed::{Bed, RUNAHEAD, bed};
use runahead_slowdisk::{SlowDisk, UpOptions};
use serde_json::Value;

/// Runs `runahead bench` in the test's own directory, with a cache of its own.
fn bench(bed: &Bed, arguments: &[&str]) -> Output {
    Command::new(RUNAHEAD)
        .arg("bench")
        .args(arguments)
        .current_dir(bed.path(""))
        .env("XDG_CACHE_HOME", bed.path("cache"))
        .env("TMPDIR", bed.path(""))
        .output()
        .unwrap()
}

fn succeeds(output: &Output) -> String {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    out.into_owned()
}

fn json(bed: &Bed, name: &str) -> Value {
    let path = bed.path("bench-results").join(name);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn applications_run_on_both_sides_with_the_same_output() {
    let bed = bed!();
    let arguments = [
        "explicit",
        "--profile=cloud",
        "--app=grep2000,gnuld,xdataslice,cp",
        "--scale=0.005",
        "--runs=1",
        "--metadata=cold",
    ];
    let said = succeeds(&bench(&bed, &arguments));
    assert!(said.contains("Every run's output equals the first plain run's."), "{said}");
    let results = json(&bed, "explicit-cloud.json");
    let cases = results["cases"].as_array().unwrap();
    let apps: Vec<&str> = cases.iter().map(|case| case["app"].as_str().unwrap()).collect();
    assert_eq!(apps, ["grep2000", "gnuld", "xdataslice", "cp"]);
    for case in cases {
        assert_eq!(case["mismatches"].as_array().unwrap().len(), 0, "{case}");
        let plain = &case["plain"][0];
        assert!(plain["device"]["reads"].as_u64().unwrap() > 0, "not cold: {case}");
        assert!(plain["statistics"].is_null(), "{case}");
        for side in ["observed", "runahead"] {
            let statistics = &case[side][0]["statistics"];
            assert!(statistics["io_stalls"]["count"].as_f64().is_some(), "{side}: {case}");
        }
        assert!(case["ideal"]["seconds"].as_f64().unwrap() > 0.0, "{case}");
        for of in ["value", "low", "high"] {
            assert!(case["ratio"][of].as_f64().unwrap() > 0.0, "{of}: {case}");
        }
    }
    for ending in ["svg", "png"] {
        let plot = bed.path("bench-results").join(format!("explicit-cloud.{ending}"));
        assert!(fs::metadata(plot).unwrap().len() > 1000);
    }
}

#[test]
fn data_stays_on_a_device_that_is_up() {
    let bed = bed!();
    let disk = SlowDisk::up(&bed.options("cloud")).unwrap();
    let data = format!("--data={}", disk.mountpoint().display());
    let arguments = ["explicit", &data, "--app=diff", "--scale=0.005", "--runs=1"];
    succeeds(&bench(&bed, &arguments));
    let marker = disk.mountpoint().join("runahead-bench/pair.json");
    let made = fs::metadata(&marker).unwrap().modified().unwrap();
    succeeds(&bench(&bed, &arguments));
    assert_eq!(fs::metadata(&marker).unwrap().modified().unwrap(), made, "made anew");
    succeeds(&bench(&bed, &["explicit", &data, "--app=diff", "--scale=0.01", "--runs=1"]));
    assert_ne!(fs::metadata(&marker).unwrap().modified().unwrap(), made, "another scale");
}

/// Two runs that fail have the same output, too.
#[test]
fn a_program_that_fails_by_itself_is_not_measured() {
    let bed = bed!();
    let disk = SlowDisk::up(&bed.options("cloud")).unwrap();
    let data = format!("--data={}", disk.mountpoint().display());
    let arguments = ["explicit", &data, "--app=diff", "--scale=0.005", "--runs=1"];
    succeeds(&bench(&bed, &arguments));
    fs::remove_dir_all(disk.mountpoint().join("runahead-bench/pair/new")).unwrap();
    let output = bench(&bed, &arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("by itself it ends with exit 2: diff: "), "{said}");
}

#[test]
fn calls_beside_busy_processors_lose_nothing() {
    let bed = bed!();
    let arguments = ["interference", "--scale=0.02", "--runs=1", "--runs-max=1"];
    // Whether a call took too long is a matter of the machine, so the exit
    // status is not looked at.
    let output = bench(&bed, &arguments);
    let results = json(&bed, "interference-cloud.json");
    let cases = results["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 6, "{}", String::from_utf8_lossy(&output.stderr));
    for case in cases {
        assert_eq!(case["outputs_equal"], true, "{case}");
        for side in ["plain", "control", "runahead"] {
            assert!(case[side]["latencies"]["count"].as_u64().unwrap() > 0, "{side}: {case}");
        }
        assert_eq!(case["slower"]["rounds"], 1, "{case}");
        for (what, count) in case["runahead"]["wrong"].as_object().unwrap() {
            assert_eq!(count, 0, "{what}: {case}");
        }
    }
}

#[test]
fn a_wrong_name_is_answered_with_the_right_ones() {
    let bed = bed!();
    let output = bench(&bed, &["explicit", "--app=agrepp"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("agrepp") && said.contains("xdataslice"), "{said}");
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    let bed = bed!();
    let refused: [(&[&str], &str); 12] = [
        (&["explicit", "--case=scna"], "merge-join"),
        (&["explicit", "--profile=nvme", "--fuse-limit=12"], "no model to change"),
        (&["harm", "--plot=x.svg"], "--plot"),
        (&["interference", "--plot=x.svg"], "--plot"),
        (&["interference", "--seed=1"], "--seed does nothing in interference"),
        (&["sharing", "--install"], "--install does nothing in sharing"),
        (&["faults", "--backing=/var/tmp"], "--backing does nothing"),
        (&["faults", "--sync", "--busy"], "--busy does nothing in faults --sync"),
        (&["faults", "--sync", "--app=lmdb"], "--app does nothing in faults --sync"),
        (&["faults", "--over=swap", "--plot=x"], "--plot does nothing in faults --over swap"),
        (&["faults", "--over=swap", "--overlay"], "--overlay does nothing in faults --over swap"),
        (&["tip", "--live", "--json"], "--json"),
    ];
    for (arguments, why) in refused {
        let output = bench(&bed, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{arguments:?}: {said}");
        assert!(!bed.path("bench-results").exists(), "{arguments:?}");
    }
}

/// Begins a benchmark that is to be interrupted.
fn begun(bed: &Bed, arguments: &[&str]) -> Child {
    Command::new(RUNAHEAD)
        .arg("bench")
        .args(arguments)
        .current_dir(bed.path(""))
        .env("XDG_CACHE_HOME", bed.path("cache"))
        .env("TMPDIR", bed.path(""))
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

fn interrupted(mut child: Child) -> ExitStatus {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    child.wait().unwrap()
}

#[test]
fn a_device_that_stays_up_gets_its_timing_back() {
    let bed = bed!();
    let options = UpOptions { size_bytes: 2 << 30, ..bed.options("cloud") };
    let disk = SlowDisk::up(&options).unwrap();
    let data = format!("--data={}", disk.mountpoint().display());
    // Half a gigabyte is prepared.
    let child = begun(&bed, &["explicit", &data, "--app=xdataslice"]);
    let is_paused = || disk.stats().unwrap().paused;
    assert!(bed::eventually(is_paused), "it never began");
    let status = interrupted(child);
    assert_eq!(status.code(), Some(128 + libc::SIGINT), "{status}");
    let made = disk.mountpoint().join("runahead-bench/xdataslice.json");
    assert!(!made.exists(), "interrupted too late");
    assert!(!is_paused());
}

#[test]
fn an_interrupted_benchmark_leaves_nothing_mounted() {
    let bed = bed!();
    // Slow enough that it cannot end before it is interrupted.
    let arguments = ["explicit", "--profile=object", "--app=xdataslice", "--scale=0.1"];
    let child = begun(&bed, &arguments);
    let mounts = || fs::read_to_string("/proc/self/mounts").unwrap();
    let here = bed.path("runahead-bench-").to_str().unwrap().to_owned();
    let is_running = || {
        fs::read_dir("/proc").unwrap().flatten().any(|process| {
            let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let cwd = fs::read_link(process.path().join("cwd")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).into_owned();
            command.contains("xdataslice") && cwd.to_str().is_some_and(|cwd| cwd.starts_with(&here))
        })
    };
    assert!(bed::eventually(is_running), "it never began");
    assert!(mounts().contains(&here));
    let status = interrupted(child);
    assert_eq!(status.code(), Some(128 + libc::SIGINT), "{status}");
    assert!(!mounts().contains(&here), "{}", mounts());
    assert!(bed::eventually(|| !is_running()), "the program is still there");
}

/// Commands under every condition: outputs equal, every cell with its pairs.
#[test]
fn everyday_commands_run_under_every_condition() {
    let bed = bed!();
    let arguments = [
        "harm",
        "--profile=cloud",
        "--only=sha256sum,cp -r",
        "--condition=cold,warm,busy,memory100,shared",
        "--scale=0.005",
        "--runs=2",
        "--run-seconds=0.0001",
    ];
    let output = bench(&bed, &arguments);
    let said = String::from_utf8_lossy(&output.stdout);
    // The exit status is about time: 0 or 1, whatever the machine does.
    assert!(output.status.code().is_some_and(|code| code <= 1), "{output:?}");
    assert!(said.contains("geometric mean"), "{output:?}");
    let results = json(&bed, "harm-cloud.json");
    let cells = results["cells"].as_array().unwrap();
    let impossible = results["impossible"].as_array().unwrap();
    assert_eq!(cells.len() + impossible.len(), 2 * 5, "{results}");
    assert_eq!(results["not_run"].as_array().unwrap().len(), 0, "{results}");
    for cell in cells {
        assert_eq!(cell["failures"].as_array().unwrap().len(), 0, "{cell}");
        // Three times as many where two say that it is harmed.
        let pairs = ["plain_s", "runahead_s"].map(|side| cell[side].as_array().unwrap().len());
        assert!(pairs[0] == pairs[1] && (2..=6).contains(&pairs[0]), "{cell}");
        let limited = cell["condition"].as_str().unwrap().starts_with("memory");
        assert_eq!(cell["memory_bytes"].is_null(), !limited, "{cell}");
    }
}

#[test]
fn hinting_programs_are_measured_with_the_same_output() {
    let bed = bed!();
    let arguments = [
        "tip",
        "--live",
        "--app=passes,slices,join,slices+join,neighbour",
        "--disks=4",
        "--mode=nohints,prefetch,full",
        "--runs=1",
        "--scale=0.03",
    ];
    // Whether a target is met is a matter of the machine: the exit status is not looked at.
    let output = bench(&bed, &arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    let results = json(&bed, "tip-live.json");
    let cells = results["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 15, "{said}");
    for cell in cells {
        assert_eq!(cell["outputs_equal"], true, "{cell}");
        assert!(cell["plain_s"][0].as_f64().unwrap() > 0.0, "{cell}");
        let prefetched = !cell["said"].as_str().unwrap().contains("prefetched_blocks: 0,");
        assert_eq!(prefetched, cell["mode"] != "no_hints", "{cell}");
    }
    assert!(results["cost"]["million_bytes"].as_u64().unwrap() <= 64 << 20, "{results}");
    for ending in ["svg", "png"] {
        let plot = bed.path("bench-results").join(format!("tip-live.{ending}"));
        assert!(fs::metadata(plot).unwrap().len() > 1000);
    }
}

#[test]
fn a_plain_reader_is_measured_beside_speculating_programs() {
    let bed = bed!();
    let output = bench(&bed, &["sharing", "--profile=cloud", "--scale=0.01", "--runs=2"]);
    // The exit status is about time: 0 or 1, whatever the machine does.
    assert!(output.status.code().is_some_and(|code| code <= 1), "{output:?}");
    let results = json(&bed, "sharing-cloud.json");
    assert_eq!(results["outputs_equal"], true, "{results}");
    assert!(results["synchronizations"].is_number(), "{results}");
    for side in ["plain", "runahead"] {
        let throughput = results[side]["reader_bytes_per_s"].as_array().unwrap();
        assert_eq!(throughput.len(), 2, "{results}");
        assert!(throughput.iter().all(|value| value.as_f64().unwrap() > 0.0), "{results}");
    }
}
