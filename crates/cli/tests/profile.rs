//! `runahead profile` end to end. Nothing here depends on how fast the machine
//! is: an emulated device never answers before its model says so, and what a
//! busy machine adds is not bounded.

#[expect(dead_code, reason = "shared with tests that need more of it")]
mod bed;

use std::path::Path;
use std::process::{Command, Output};

use bed::{RUNAHEAD, bed, ok, refused};
use runahead_slowdisk::{SlowDisk, UpOptions};
use serde_json::Value;

fn profile(cache: &Path, arguments: &[&str], path: &Path) -> Output {
    Command::new(RUNAHEAD)
        .env("XDG_CACHE_HOME", cache)
        .arg("profile")
        .args(arguments)
        .arg(path)
        .output()
        .unwrap()
}

fn number(json: &Value, pointer: &str) -> f64 {
    json.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} in {json}"))
}

#[test]
fn an_emulated_volume_is_measured_kept_and_drawn() {
    let bed = bed!();
    let disk = SlowDisk::up(&UpOptions { size_bytes: 1 << 30, ..bed.options("cloud") }).unwrap();
    let (cache, plot) = (bed.path("cache"), bed.path("curves.svg"));
    let missing = profile(&cache, &["--stored"], disk.mountpoint());
    refused(&missing, "not measured yet");
    let arguments = ["--json", "--time", "2", "--plot", plot.to_str().unwrap()];
    let text = ok(&profile(&cache, &arguments, disk.mountpoint()));
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["measured"]["positions"], "device");
    assert_eq!(number(&found, "/device/size_bytes"), f64::from(1u32 << 30));
    let smallest = number(&found, "/requests/0/time_us/value");
    assert!(smallest >= 1000.0, "{smallest} µs is below what the model takes");
    assert!(number(&found, "/latency_us/low") <= number(&found, "/latency_us/high"));
    let single = number(&found, "/parallelism/depths/0/reads_per_s/value");
    assert!(single <= 1000.0, "{single} reads/s one at a time are more than the model allows");
    assert!(number(&found, "/measured/bytes") > 0.0);
    assert!(std::fs::read_to_string(plot).unwrap().contains("<svg"));
    let stored = ok(&profile(&cache, &["--stored", "--json"], disk.mountpoint()));
    assert_eq!(serde_json::from_str::<Value>(&stored).unwrap(), found);
    let text = ok(&profile(&cache, &["--stored"], disk.mountpoint()));
    assert!(text.contains("competitive prefetching depth"), "{text}");
    let stats = disk.stats().unwrap().device;
    assert_eq!(stats.bytes_written, 0, "profile only reads");
}

#[test]
fn a_file_of_an_object_store_is_measured_through_its_mount() {
    let bed = bed!();
    let options = UpOptions { scale: 0.1, ..bed.options("object") };
    let disk = SlowDisk::up(&options).unwrap();
    disk.pause().unwrap();
    std::fs::write(disk.mountpoint().join("data"), bed::contents(1, 16 << 20)).unwrap();
    disk.resume().unwrap();
    let arguments = ["--json", "--time", "2"];
    let text = ok(&profile(&bed.path("cache"), &arguments, disk.mountpoint()));
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(number(&found, "/device/major"), 0.0);
    assert_ne!(found["measured"]["positions"], "device");
    let smallest = number(&found, "/requests/0/time_us/value");
    assert!(smallest >= 3000.0, "{smallest} µs is below what the model takes");
}

#[test]
fn what_cannot_be_measured_is_said_with_the_next_step() {
    let directory = std::env::temp_dir().join(format!("profile-test-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let file = directory.join("small");
    std::fs::write(&file, "few").unwrap();
    for (arguments, path, because) in [
        (&[][..], Path::new("/dev/null"), "neither a file"),
        (&[], Path::new("/nonexistent"), "No such file"),
        (&["--plot", "x.txt"], &file, ".svg or .png"),
        (&["--load", "0"], &file, "from 1 to 100"),
        (&["--time", "0"], &file, "from 1 to 3600"),
    ] {
        refused(&profile(&directory, arguments, path), because);
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn completions_and_man_pages_know_the_subcommands() {
    let completions = |shell| {
        let output = Command::new(RUNAHEAD).args(["completions", shell]).output().unwrap();
        ok(&output)
    };
    for shell in ["bash", "zsh", "fish"] {
        let text = completions(shell);
        assert!(text.contains("slowdisk") && text.contains("profile"), "{shell}");
    }
    let directory = std::env::temp_dir().join(format!("man-test-{}", std::process::id()));
    ok(&Command::new(RUNAHEAD).arg("man-pages").arg(&directory).output().unwrap());
    let page = std::fs::read_to_string(directory.join("runahead-run.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("horizon"), "{page}");
    assert!(directory.join("runahead.1").exists());
    std::fs::remove_dir_all(directory).unwrap();
}
