//! What the tests on real mounts share.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use runahead_slowdisk::model::SplitMix;
use runahead_slowdisk::{SlowDisk, UpOptions};

/// The command under test.
pub const RUNAHEAD: &str = env!("CARGO_BIN_EXE_runahead");
/// Set to 1 where the tests must run: a machine that cannot run them fails.
const REQUIRE: &str = "RUNAHEAD_REQUIRE_ROOT_TESTS";

/// A place for one test; where it cannot run it is skipped, or fails if it must.
macro_rules! bed {
    () => {
        match $crate::bed::Bed::new() {
            Some(bed) => bed,
            None => return,
        }
    };
}
pub(crate) use bed;

/// Names what is missing to run these tests, if anything.
fn missing() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let uids = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
    if uids.split_whitespace().nth(2) != Some("0") {
        return Some("not root".into());
    }
    ["/dev/fuse", "/dev/loop-control"].into_iter().find_map(|device| {
        let opened = fs::File::options().read(true).write(true).open(device);
        opened.err().map(|error| format!("{device}: {error}"))
    })
}

/// One test at a time: each has its mounts and its share of two CPUs.
static ALONE: Mutex<()> = Mutex::new(());
static BEDS: AtomicU32 = AtomicU32::new(0);

/// A directory of its own for one test; devices in it go down with it.
pub struct Bed {
    directory: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Bed {
    pub fn new() -> Option<Self> {
        if let Some(what) = missing() {
            assert!(std::env::var_os(REQUIRE).is_none_or(|v| v != "1"), "cannot run: {what}");
            eprintln!("skipped, needs root, FUSE and loop devices: {what}");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let number = BEDS.fetch_add(1, Ordering::Relaxed);
        let name = format!("slowdisk-test-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        Some(Self { directory, _alone: alone })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A small device at "mnt".
    pub fn options(&self, profile: &str) -> UpOptions {
        UpOptions {
            size_bytes: 128 << 20,
            daemon: Some(RUNAHEAD.into()),
            ..UpOptions::new(profile, self.path("mnt"))
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for name in ["mnt", "other"] {
            // Only what a failed test left is still up.
            let _ = runahead_slowdisk::down(&self.path(name), true);
        }
        let _ = slowdisk_in(&self.path("states"), &["down", "--all", "--force"], &[]);
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            eprintln!("{}: {error}", self.directory.display());
        }
    }
}

/// Runs `runahead slowdisk ARGUMENTS PATHS`.
pub fn slowdisk(arguments: &[&str], paths: &[&Path]) -> Output {
    Command::new(RUNAHEAD).arg("slowdisk").args(arguments).args(paths).output().unwrap()
}

/// The same with states of its own.
pub fn slowdisk_in(states: &Path, arguments: &[&str], paths: &[&Path]) -> Output {
    Command::new(RUNAHEAD)
        .env("RUNAHEAD_SLOWDISK_STATE", states)
        .arg("slowdisk")
        .args(arguments)
        .args(paths)
        .output()
        .unwrap()
}

/// What a command printed; it must have succeeded.
#[track_caller]
pub fn ok(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {stderr}", output.status);
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A command must have failed and said why.
#[track_caller]
pub fn refused(output: &Output, because: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "must fail");
    assert!(stderr.contains(because), "{stderr:?} does not say {because:?}");
}

/// Bytes that differ from file to file and from place to place.
pub fn contents(seed: u64, len: usize) -> Vec<u8> {
    let mut random = SplitMix::new(seed);
    (0..len).map(|_| random.next_u64() as u8).collect()
}

/// Whether something is mounted exactly there.
pub fn mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}

/// File behind a loop device, none when it is free.
pub fn loop_backing(device: &Path) -> Option<String> {
    let name = device.file_name().unwrap().to_str().unwrap();
    fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()
}

/// An attribute of a block device.
pub fn sysfs(device: &Path, name: &str) -> String {
    let device = device.file_name().unwrap().to_str().unwrap();
    let text = fs::read_to_string(format!("/sys/block/{device}/{name}")).unwrap();
    text.trim().to_owned()
}

/// A file all of whose pages are in memory and stay there.
struct Locked(*mut std::ffi::c_void, usize);

impl Locked {
    fn new(path: &Path) -> Locked {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let file = fs::File::open(path).unwrap();
        let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
        if len == 0 {
            return Locked(std::ptr::null_mut(), 0);
        }
        let flags = MapFlags::SHARED | MapFlags::LOCKED;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, flags, &file, 0) };
        Locked(at.unwrap(), len)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if self.1 > 0 {
            // SAFETY: the mapping made above, to which there are no references.
            unsafe { rustix::mm::munmap(self.0, self.1) }.unwrap();
        }
    }
}

/// Writes files, goes cold, reads them back; returns the read requests that
/// the device saw.
pub fn write_cold_read(disk: &SlowDisk, through: &Path) -> u64 {
    let files: Vec<_> =
        (0..20).map(|i| (format!("f{i}"), contents(i, 5000 * i as usize))).collect();
    disk.pause().unwrap();
    for (name, bytes) in &files {
        fs::write(disk.mountpoint().join(name), bytes).unwrap();
    }
    disk.resume().unwrap();
    disk.cold().unwrap();
    assert_eq!(disk.stats().unwrap().device.reads, 0, "counters restart");
    for (name, bytes) in &files {
        assert!(&fs::read(through.join(name)).unwrap() == bytes, "{name}");
    }
    let cold = disk.stats().unwrap().device.reads;
    // Machines may take pages away that nobody maps (a DAMON scheme that pages
    // out does, minutes after a boot): these stay.
    let stay: Vec<_> = files.iter().map(|(name, _)| Locked::new(&through.join(name))).collect();
    for (name, bytes) in &files {
        let before = disk.stats().unwrap().device.reads;
        assert!(&fs::read(through.join(name)).unwrap() == bytes, "{name} again");
        let requests = disk.stats().unwrap().device.reads - before;
        assert_eq!(requests, 0, "{name}: a resident file needs no request");
    }
    drop(stay);
    cold
}

/// Kills a process as a crash would.
pub fn kill(pid: i32) {
    ok(&Command::new("kill").args(["-9", &pid.to_string()]).output().unwrap());
    let stat = PathBuf::from(format!("/proc/{pid}/stat"));
    let dead = |text: String| text.contains(") Z ");
    assert!(eventually(|| fs::read_to_string(&stat).map_or(true, dead)));
}

/// Waits for what happens in its own time; only a hang fails.
pub fn eventually(happened: impl Fn() -> bool) -> bool {
    let give_up = Instant::now() + Duration::from_secs(60);
    while !happened() {
        if Instant::now() > give_up {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}
