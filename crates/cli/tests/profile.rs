//! `runahead profile` end to end. Nothing here depends on how fast the machine
//! is: an emulated device never answers before its model says so, and what a
//! busy machine adds is not bounded.

#[expect(dead_code, reason = "shared with tests that need more of it")]
mod bed;

use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bed::{RUNAHEAD, bed, ok, refused};
use runahead_protocol::session::{self, KnownDevice};
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
    refused(&missing, "no profile of the device of");
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
    // Another device at the same place is not taken for it.
    disk.down(false).unwrap();
    let stored_for = |options: UpOptions| {
        let disk = SlowDisk::up(&UpOptions { size_bytes: 1 << 30, ..options }).unwrap();
        profile(&cache, &["--stored"], disk.mountpoint())
    };
    ok(&stored_for(bed.options("cloud")));
    refused(&stored_for(bed.options("hdd")), "no profile of the device of");
    let slower = UpOptions { scale: 2.0, ..bed.options("cloud") };
    refused(&stored_for(slower), "no profile of the device of");
}

/// One mount whose name is not UTF-8, wherever it is, hid all that have no block device.
#[test]
fn names_of_mounts_need_not_be_utf_8() {
    use std::os::unix::ffi::OsStrExt;
    let bed = bed!();
    let place = bed.path("").join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
    std::fs::create_dir(&place).unwrap();
    let script = "mount -t tmpfs none \"$1\" && echo few > \"$1/file\" && \
                  exec \"$0\" profile \"$1/file\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, RUNAHEAD]).arg(&place);
    refused(&command.output().unwrap(), "too few to measure");
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

/// A disk with a mounted partition, which go with it.
struct Partitioned {
    disk: PathBuf,
    mountpoint: PathBuf,
}

const ADD_PARTITION: libc::c_int = 1;
const DELETE_PARTITION: libc::c_int = 2;

/// `struct blkpg_partition` (linux/blkpg.h); places and lengths in bytes.
#[repr(C)]
struct Partition {
    start: i64,
    length: i64,
    number: libc::c_int,
    names: [u8; 128],
}

/// `struct blkpg_ioctl_arg`.
#[repr(C)]
struct Change {
    operation: libc::c_int,
    flags: libc::c_int,
    len: libc::c_int,
    partition: *const Partition,
}

/// Where the partition lies on its disk, in sectors.
const START: u64 = 32_768;
const SECTORS: u64 = 65_536;

impl Partitioned {
    fn new(bed: &bed::Bed) -> Self {
        let (image, mountpoint) = (bed.path("image"), bed.path("part"));
        std::fs::File::create(&image).unwrap().set_len((START + SECTORS) * 512).unwrap();
        let offset = format!("offset={}", START * 512);
        run("mkfs.ext4", &["-q", "-F", "-E", &offset, image.to_str().unwrap(), "32M"]);
        let disk = run("losetup", &["--find", "--show", image.to_str().unwrap()]);
        let partitioned = Self { disk: disk.trim().into(), mountpoint };
        // Not every kernel reads the tables of loop devices, nor has every system addpart(8).
        partitioned.tell(ADD_PARTITION).unwrap();
        std::fs::create_dir(&partitioned.mountpoint).unwrap();
        let first = format!("{}p1", partitioned.disk.to_str().unwrap());
        run("mount", &[&first, partitioned.mountpoint.to_str().unwrap()]);
        partitioned
    }
}

impl Partitioned {
    /// Has the kernel add or forget the first partition.
    fn tell(&self, operation: libc::c_int) -> std::io::Result<()> {
        const BLKPG: libc::Ioctl = 0x1269;
        let (start, length) = (START as i64 * 512, SECTORS as i64 * 512);
        let partition = Partition { start, length, number: 1, names: [0; 128] };
        let len = size_of::<Partition>() as libc::c_int;
        let change = Change { operation, flags: 0, len, partition: &raw const partition };
        let disk = std::fs::File::options().read(true).write(true).open(&self.disk)?;
        // SAFETY: a structure that the kernel reads.
        let done = unsafe { libc::ioctl(disk.as_raw_fd(), BLKPG, &raw const change) };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }
}

impl Drop for Partitioned {
    fn drop(&mut self) {
        // What was never made is not there.
        let _ = Command::new("umount").arg(&self.mountpoint).output();
        let _ = self.tell(DELETE_PARTITION);
        let _ = Command::new("losetup").arg("--detach").arg(&self.disk).output();
    }
}

fn run(command: &str, arguments: &[&str]) -> String {
    ok(&Command::new(command).args(arguments).output().unwrap())
}

/// What a program under Runahead is told of the device of a path.
fn told(cache: &Path, path: &Path) -> Option<KnownDevice> {
    let mut command = Command::new(RUNAHEAD);
    command.env("XDG_CACHE_HOME", cache).args(["cat", "/proc/self/environ"]);
    let environment = ok(&command.output().unwrap());
    let text = environment.split('\0').find_map(|line| line.strip_prefix("RUNAHEAD_SESSION="));
    let session = session::parse(text.unwrap().as_bytes()).unwrap();
    let dev = std::fs::metadata(path).unwrap().dev();
    session::devices(session.devices).find(|known| known.dev == dev)
}

#[test]
fn a_partition_is_known_by_its_disk() {
    let bed = bed!();
    let partitioned = Partitioned::new(&bed);
    let cache = bed.path("cache");
    assert_eq!(told(&cache, &partitioned.mountpoint), None);
    ok(&profile(&cache, &["--time", "1"], &partitioned.disk));
    let stored = |path| ok(&profile(&cache, &["--stored", "--json"], path));
    assert!(stored(&partitioned.mountpoint) == stored(&partitioned.disk), "of the disk");
    assert!(told(&cache, &partitioned.mountpoint).is_some_and(|known| known.first_kb_s > 1));
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
