//! `runahead slowdisk` end to end: real mounts, as root. None of these tests
//! measures time.

mod bed;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bed::{
    RUNAHEAD, bed, contents, eventually, kill, loop_backing, mounted, ok, refused, slowdisk,
    slowdisk_in, sysfs, write_cold_read,
};
use runahead_slowdisk::{FileSystem, SlowDisk, UpOptions};

#[test]
fn contents_survive_going_cold_on_every_profile() {
    let bed = bed!();
    for profile in ["array-2003", "hdd", "cloud", "object"] {
        let disk = SlowDisk::up(&bed.options(profile)).unwrap();
        let requests = write_cold_read(&disk, &bed.path("mnt"));
        assert!(requests >= 19, "{profile}: each file was fetched, {requests} requests");
        let stats = disk.stats().unwrap();
        assert!(stats.device.bytes_read >= 5000 * 190, "{profile}");
        assert_eq!(stats.device.latency.count(), stats.device.reads + stats.device.writes);
        let device = disk.device().map(Path::to_owned);
        disk.down(false).unwrap();
        assert!(!mounted(&bed.path("mnt")) && !bed.path("mnt").exists(), "{profile}");
        assert_eq!(device.and_then(|device| loop_backing(&device)), None, "{profile}");
    }
}

#[test]
fn the_block_device_is_what_linux_gives_by_default() {
    let bed = bed!();
    for (profile, rotational) in [("array-2003", "1"), ("cloud", "0"), ("nvme", "0")] {
        let disk = SlowDisk::up(&bed.options(profile)).unwrap();
        let device = disk.device().unwrap();
        assert_eq!(sysfs(device, "queue/read_ahead_kb"), "128", "{profile}");
        assert_eq!(sysfs(device, "queue/rotational"), rotational, "{profile}");
        if Path::new("/sys/block")
            .join(device.file_name().unwrap())
            .join("queue/wbt_lat_usec")
            .exists()
        {
            let aim_us = if rotational == "1" { "75000" } else { "2000" };
            assert_eq!(sysfs(device, "queue/wbt_lat_usec"), aim_us, "{profile}: write-back");
        }
        assert_eq!(sysfs(device, "loop/dio"), "1", "{profile}: cached twice");
        assert_eq!(sysfs(device, "size"), ((128 << 20) / 512).to_string());
    }
}

/// A loop device keeps what it was given, from one use to the next.
#[test]
fn no_scheduler_is_left_behind_on_the_block_device() {
    let bed = bed!();
    let scheduler = |device: &Path| sysfs(device, "queue/scheduler");
    let disk = SlowDisk::up(&bed.options("cloud")).unwrap();
    let device = disk.device().unwrap().to_owned();
    assert!(scheduler(&device).contains("[none]"), "{}", scheduler(&device));
    let file = Path::new("/sys/block").join(device.file_name().unwrap()).join("queue/scheduler");
    fs::write(file, "mq-deadline").unwrap();
    disk.down(false).unwrap();
    assert!(scheduler(&device).contains("[none]"), "{}", scheduler(&device));
}

#[test]
fn the_machines_own_disk_keeps_its_contents_and_leaves_no_image() {
    let bed = bed!();
    let mut options = bed.options("nvme");
    fs::create_dir(bed.path("images")).unwrap();
    options.backing = Some(bed.path("images"));
    let disk = SlowDisk::up(&options).unwrap();
    assert_eq!(fs::read_dir(bed.path("images")).unwrap().count(), 1);
    fs::write(bed.path("mnt/f"), contents(1, 100_000)).unwrap();
    disk.cold().unwrap();
    assert_eq!(fs::read(bed.path("mnt/f")).unwrap(), contents(1, 100_000));
    assert!(disk.stats().unwrap_err().to_string().contains("own disk"));
    disk.down(false).unwrap();
    assert_eq!(fs::read_dir(bed.path("images")).unwrap().count(), 0);
}

#[test]
fn a_backing_directory_keeps_the_contents_and_whatever_else_is_there() {
    let bed = bed!();
    let mut options = bed.options("cloud");
    fs::create_dir(bed.path("images")).unwrap();
    options.backing = Some(bed.path("images"));
    let disk = SlowDisk::up(&options).unwrap();
    fs::write(bed.path("mnt/f"), contents(1, 100_000)).unwrap();
    disk.down(false).unwrap();
    let disk = SlowDisk::up(&options).unwrap();
    assert_eq!(fs::read(bed.path("mnt/f")).unwrap(), contents(1, 100_000));
    disk.down(false).unwrap();

    // Somebody's image, of another size, or in the place of swap space.
    let image = bed.path("images/disk.img");
    let refused = |options: &UpOptions, why: &str| {
        let before = fs::read(&image).unwrap();
        let error = SlowDisk::up(options).unwrap_err().to_string();
        assert!(error.contains("disk.img") && error.contains(why), "{error}");
        assert_eq!(fs::read(&image).unwrap(), before);
        assert!(!bed.path("mnt").exists());
    };
    let swap = UpOptions { fs: FileSystem::Swap, ..options.clone() };
    refused(&swap, "overwrite");
    // What was swap space may be so again.
    fs::remove_file(&image).unwrap();
    for _ in 0..2 {
        SlowDisk::up(&swap).unwrap().down(false).unwrap();
    }
    fs::write(&image, contents(2, 70_000)).unwrap();
    refused(&options, "--size");
}

/// A device whose contents are kept in "images".
fn backed(bed: &bed::Bed) -> UpOptions {
    fs::create_dir(bed.path("images")).unwrap();
    UpOptions { backing: Some(bed.path("images")), ..bed.options("cloud") }
}

#[test]
fn a_backing_directory_is_one_device_s() {
    let bed = bed!();
    let options = backed(&bed);
    let disk = SlowDisk::up(&options).unwrap();
    fs::write(bed.path("mnt/f"), contents(1, 100_000)).unwrap();
    let second = UpOptions { mountpoint: bed.path("other"), ..options.clone() };
    let error = SlowDisk::up(&second).unwrap_err().to_string();
    assert!(error.contains("images") && error.contains(&disk.state().name()), "{error}");
    // Nor of one that is listed elsewhere.
    let up = ["up", "--profile", "cloud", "--size", "128M", "--backing"];
    let paths = [bed.path("images"), bed.path("other")];
    let output = slowdisk_in(&bed.path("states"), &up, &[&paths[0], &paths[1]]);
    refused(&output, "another device");
    disk.down(false).unwrap();
    let _disk = SlowDisk::up(&second).unwrap();
    assert!(fs::read(bed.path("other/f")).unwrap() == contents(1, 100_000));
}

#[test]
fn a_backing_directory_takes_no_locked_memory() {
    let bed = bed!();
    let disk = SlowDisk::up(&UpOptions { paused: true, ..backed(&bed) }).unwrap();
    fs::write(bed.path("mnt/f"), vec![7; 64 << 20]).unwrap();
    disk.cold().unwrap();
    assert!(fs::read(bed.path("mnt/f")).unwrap() == vec![7; 64 << 20]);
    let pid = disk.state().daemon.as_ref().unwrap().pid();
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let locked = maps.lines().filter_map(|line| line.strip_prefix("Locked:"));
    let locked_kib: u64 =
        locked.map(|size| size.trim().trim_end_matches(" kB").parse::<u64>().unwrap()).sum();
    assert!(locked_kib > 0, "the process itself is locked");
    assert!(locked_kib < 32 << 10, "{locked_kib} KiB");
}

#[test]
fn a_full_disk_behind_a_device_fails_the_writer_only() {
    let bed = bed!();
    let options =
        UpOptions { fs: FileSystem::None, size_bytes: 64 << 20, paused: true, ..backed(&bed) };
    let images = bed.path("images");
    let mount = ["-t", "tmpfs", "-o", "size=20M", "none"];
    ok(&Command::new("mount").args(mount).arg(&images).output().unwrap());
    let disk = SlowDisk::up(&options);
    // It lasts as long as the image is open.
    ok(&Command::new("umount").arg("--lazy").arg(&images).output().unwrap());
    let disk = disk.unwrap();
    let open = || fs::File::options().read(true).write(true).open(disk.device().unwrap()).unwrap();
    let device = open();
    let written = device.write_all_at(&vec![7; 40 << 20], 0).and_then(|()| device.sync_all());
    assert!(written.is_err(), "there is no room for it");
    drop(device);
    disk.cold().unwrap();
    let mut bytes = [1; 4096];
    open().read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == [7; 4096]);
    // To read what was never written takes no room.
    open().read_exact_at(&mut bytes, 60 << 20).unwrap();
    assert!(bytes == [0; 4096]);
    assert!(disk.state().is_alive());
}

#[test]
fn an_image_without_a_file_system_is_told_from_one_that_was_never_written() {
    let bed = bed!();
    let options = backed(&bed);
    let image = fs::File::create(bed.path("images/disk.img")).unwrap();
    // As a device leaves it that did not come up.
    image.set_len(64 << 20).unwrap();
    SlowDisk::up(&options).unwrap().down(false).unwrap();
    image.set_len(0).unwrap();
    image.write_all_at(&contents(2, 70_000), 0).unwrap();
    image.set_len(128 << 20).unwrap();
    let error = SlowDisk::up(&options).unwrap_err().to_string();
    assert!(error.contains("disk.img") && error.contains("no ext4"), "{error}");
    let mut left = vec![0; 70_000];
    fs::File::open(bed.path("images/disk.img")).unwrap().read_exact_at(&mut left, 0).unwrap();
    assert!(left == contents(2, 70_000));
}

/// A power failure may come later.
#[test]
fn what_a_backing_directory_keeps_is_on_its_disk_once_the_device_is_down() {
    let bed = bed!();
    let below = UpOptions { mountpoint: bed.path("other"), ..bed.options("nvme") };
    let below = SlowDisk::up(&UpOptions { size_bytes: 256 << 20, ..below }).unwrap();
    let images = bed.path("other/images");
    fs::create_dir(&images).unwrap();
    let written = || {
        let stat = sysfs(below.device().unwrap(), "stat");
        stat.split_whitespace().nth(6).unwrap().parse::<u64>().unwrap() * 512
    };
    let options = UpOptions { backing: Some(images), paused: true, ..bed.options("cloud") };
    let disk = SlowDisk::up(&options).unwrap();
    let before = written();
    fs::write(bed.path("mnt/f"), contents(1, 16 << 20)).unwrap();
    disk.down(false).unwrap();
    assert!(written() - before >= 16 << 20, "{before} before, {} now", written());
    below.down(false).unwrap();
}

#[test]
fn an_object_store_is_not_mounted_within_what_it_passes_through() {
    let bed = bed!();
    let backing = bed.path("objects");
    fs::create_dir(&backing).unwrap();
    let up = |mountpoint: &Path, overlay: Option<PathBuf>| {
        let options = bed.options("object");
        let mountpoint = mountpoint.to_owned();
        UpOptions { mountpoint, overlay, backing: Some(backing.clone()), ..options }
    };
    for options in [
        up(&backing, None),
        up(&backing.join("new"), None),
        up(&bed.path("mnt"), Some(backing.join("new"))),
    ] {
        let error = SlowDisk::up(&options).unwrap_err().to_string();
        assert!(error.contains("wait for itself"), "{error}");
    }
    SlowDisk::up(&up(&bed.path("mnt"), None)).unwrap().down(false).unwrap();
}

#[test]
fn the_machines_own_disk_follows_no_link_to_its_image() {
    let bed = bed!();
    let mut options = bed.options("nvme");
    fs::create_dir(bed.path("images")).unwrap();
    options.backing = Some(bed.path("images"));
    let disk = SlowDisk::up(&options).unwrap();
    let image = fs::read_dir(bed.path("images")).unwrap().next().unwrap().unwrap().path();
    disk.down(false).unwrap();
    let others = bed.path("others");
    fs::write(&others, "others").unwrap();
    symlink(&others, &image).unwrap();
    let error = SlowDisk::up(&options).unwrap_err().to_string();
    assert!(error.contains("create"), "{error}");
    assert_eq!(fs::read(&others).unwrap(), b"others");
    // What a machine left that went down is nobody's.
    fs::remove_file(&image).unwrap();
    fs::write(&image, "left").unwrap();
    SlowDisk::up(&options).unwrap().down(false).unwrap();
}

#[test]
fn an_overlay_over_the_device_goes_cold_with_it() {
    let bed = bed!();
    for profile in ["cloud", "object"] {
        let mut options = bed.options(profile);
        options.overlay = Some(bed.path("over"));
        let disk = SlowDisk::up(&options).unwrap();
        write_cold_read(&disk, &bed.path("over"));
        fs::write(bed.path("over/new"), "above").unwrap();
        disk.cold().unwrap();
        assert_eq!(fs::read(bed.path("over/new")).unwrap(), b"above", "upper layer is kept");
        assert!(!bed.path("mnt/new").exists(), "and is not the device");
        // Also by the overlay's own name.
        ok(&slowdisk(&["stats", "--json"], &[&bed.path("over")]));
        disk.down(false).unwrap();
        assert!(!bed.path("over").exists() && !bed.path("mnt").exists());
    }
}

#[test]
fn a_bare_device_has_no_file_system() {
    let bed = bed!();
    let mut options = bed.options("array-2003");
    options.fs = FileSystem::None;
    options.spindles = Some(7);
    let disk = SlowDisk::up(&options).unwrap();
    assert!(!mounted(&bed.path("mnt")));
    let device = fs::File::options().read(true).write(true).open(disk.device().unwrap()).unwrap();
    // Half a stripe unit before the end of a row: the last spindle and the first.
    let offset = 7 * 65536 - 32768;
    disk.pause().unwrap();
    device.write_all_at(&contents(3, 65536), offset).unwrap();
    device.sync_all().unwrap();
    disk.resume().unwrap();
    disk.cold().unwrap();
    let mut bytes = vec![0; 65536];
    device.read_exact_at(&mut bytes, offset).unwrap();
    assert!(bytes == contents(3, 65536));
    let stats = disk.stats().unwrap();
    assert_eq!(stats.device.servers.len(), 7);
    assert!(stats.device.servers[6].requests > 0 && stats.device.servers[0].requests > 0);
    refused(&slowdisk(&["down"], &[&bed.path("mnt")]), "in use by");
    drop(device);
    ok(&slowdisk(&["down"], &[&bed.path("mnt")]));
}

#[test]
fn swap_on_the_device_keeps_it_up() {
    let bed = bed!();
    let disk =
        SlowDisk::up(&UpOptions { fs: FileSystem::None, ..bed.options("array-2003") }).unwrap();
    let run = |program: &str| {
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap());
        let device = disk.device().unwrap();
        ok(&Command::new(program).env("PATH", path).arg(device).output().unwrap());
    };
    run("mkswap");
    run("swapon");
    let refusal = slowdisk(&["down"], &[&bed.path("mnt")]);
    run("swapoff");
    refused(&refusal, "swapoff");
    disk.down(false).unwrap();
}

#[test]
fn a_second_mount_of_the_device_keeps_it_up() {
    let bed = bed!();
    let disk = SlowDisk::up(&bed.options("cloud")).unwrap();
    fs::create_dir(bed.path("second")).unwrap();
    let mount = |arguments: &[&Path]| {
        ok(&Command::new(arguments[0]).args(&arguments[1..]).output().unwrap());
    };
    mount(&[Path::new("mount"), disk.device().unwrap(), &bed.path("second")]);
    let refusal = slowdisk(&["down"], &[&bed.path("mnt")]);
    mount(&[Path::new("umount"), &bed.path("second")]);
    refused(&refusal, "in use");
    disk.down(false).unwrap();
}

#[test]
fn deleting_files_gives_memory_back() {
    let bed = bed!();
    let disk = SlowDisk::up(&bed.options("cloud")).unwrap();
    let pid = disk.state().daemon.as_ref().unwrap().pid();
    let memory_kib = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssShmem:")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    disk.pause().unwrap();
    fs::write(bed.path("mnt/f"), contents(1, 64 << 20)).unwrap();
    disk.cold().unwrap();
    let full_kib = memory_kib();
    fs::remove_file(bed.path("mnt/f")).unwrap();
    disk.cold().unwrap(); // Blocks are free once the journal says so.
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap());
    ok(&Command::new("fstrim").env("PATH", path).arg(bed.path("mnt")).output().unwrap());
    let trimmed_kib = memory_kib();
    assert!(full_kib >= 64 << 10 && trimmed_kib < full_kib / 2, "{full_kib} to {trimmed_kib}");
}

#[test]
fn the_device_holds_nothing_that_its_caller_had_open() {
    let bed = bed!();
    let script = "exec 9>\"$2\"; flock 9; \"$0\" slowdisk up --size 64M --profile cloud \"$1\"";
    let output = Command::new("sh")
        .args(["-c", script, RUNAHEAD])
        .args([bed.path("mnt"), bed.path("lock")])
        .output()
        .unwrap();
    ok(&output);
    ok(&Command::new("flock")
        .args(["--nonblock"])
        .arg(bed.path("lock"))
        .arg("true")
        .output()
        .unwrap());
}

#[test]
fn check_reports_every_depth() {
    let bed = bed!();
    // How it turns out depends on what else the machine does: both are fine here.
    let states = bed.path("states");
    let output = slowdisk_in(
        &states,
        &["check", "--json", "--seconds", "0.02", "--profile", "cloud", "--profile", "object"],
        &[],
    );
    let reports: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let failures: usize = reports
        .as_array()
        .unwrap()
        .iter()
        .map(|report| report["failures"].as_array().unwrap().len())
        .sum();
    assert_eq!(output.status.code(), Some(i32::from(failures > 0)));
    for (report, parallel) in [(&reports[0], 32), (&reports[1], 12)] {
        assert_eq!(report["parallel"], parallel);
        let depths = report["depths"].as_array().unwrap();
        assert!(depths.iter().map(|d| d["depth"].as_u64().unwrap()).eq([1, 2, 4, 8, 16, 32, 64]));
        let alone = &depths[0];
        // A machine that is busy enough ends no request in so short a time.
        if alone["requests"] == 0 {
            assert_eq!(alone["pass"], false, "{alone}");
            continue;
        }
        assert!(alone["latency_us"].as_f64() >= alone["model_latency_us"].as_f64(), "{alone}");
    }
    assert!(ok(&slowdisk_in(&states, &["list"], &[])).is_empty(), "nothing is left up");
    refused(&slowdisk(&["check", "--profile", "floppy"], &[]), "array-2003");
}

#[test]
fn check_limits_what_has_a_limit_and_keeps_what_it_found() {
    let bed = bed!();
    let check =
        "slowdisk check --json --seconds 0.02 --fuse-limit 64 --profile object --profile nvme";
    let profiles = |output: &std::process::Output| {
        let reports: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let names = reports.as_array().unwrap().iter().map(|report| report["profile"].to_string());
        names.collect::<Vec<_>>()
    };
    let run = |before: &str| {
        Command::new("unshare")
            .args(["--mount", "sh", "-c", &format!("{before} exec \"$0\" {check}"), RUNAHEAD])
            .env("RUNAHEAD_SLOWDISK_STATE", bed.path("states"))
            .output()
            .unwrap()
    };
    assert_eq!(profiles(&run("")), [r#""object""#, r#""nvme""#]);
    // No room for an image of the machine's own disk.
    let output = run("mount -t tmpfs -o size=1M none /var/tmp &&");
    refused(&output, "allocate");
    assert_eq!(profiles(&output), [r#""object""#]);
}

#[test]
fn warm_metadata_reads_no_data() {
    let bed = bed!();
    let disk = SlowDisk::up(&bed.options("cloud")).unwrap();
    fs::create_dir(bed.path("mnt/d")).unwrap();
    for i in 0..50 {
        fs::write(bed.path("mnt/d").join(i.to_string()), contents(i, 10_000)).unwrap();
    }
    symlink("d/1", bed.path("mnt/link")).unwrap();
    disk.cold().unwrap();
    let warmed = disk.warm_metadata().unwrap();
    assert_eq!(warmed.files, 50);
    for i in 0..50 {
        assert_eq!(fs::metadata(bed.path("mnt/d").join(i.to_string())).unwrap().len(), 10_000);
    }
    assert_eq!(disk.stats().unwrap().device.reads, 0, "metadata is in memory");
    fs::read(bed.path("mnt/d/7")).unwrap();
    assert_eq!(disk.stats().unwrap().device.bytes_read, 12288, "data was not");
}

#[test]
fn an_interrupt_leaves_no_timing_off() {
    let bed = bed!();
    let disk = SlowDisk::up(&UpOptions { paused: true, ..bed.options("cloud") }).unwrap();
    for i in 0..5000 {
        fs::write(bed.path("mnt").join(i.to_string()), "").unwrap();
    }
    ok(&slowdisk(&["resume"], &[&bed.path("mnt")]));
    let list = || {
        let listed = ok(&slowdisk(&["list"], &[]));
        let name = disk.state().name();
        listed.lines().find(|line| line.contains(&name)).unwrap().to_owned()
    };
    assert!(!list().contains("paused"), "{}", list());
    // It may have ended by itself before the signal came.
    let interrupted = eventually(|| {
        disk.cold().unwrap();
        let mut warming = Command::new(RUNAHEAD)
            .args(["slowdisk", "warm-metadata"])
            .arg(bed.path("mnt"))
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        while warming.try_wait().unwrap().is_none() {
            if disk.stats().unwrap().paused {
                let pid = warming.id().to_string();
                ok(&Command::new("kill").args(["-INT", &pid]).output().unwrap());
                break;
            }
        }
        let status = warming.wait().unwrap();
        assert!(!disk.stats().unwrap().paused, "{status}");
        status.signal() == Some(libc::SIGINT)
    });
    assert!(interrupted);
    disk.pause().unwrap();
    assert!(list().contains("paused"), "{}", list());
}

#[test]
fn killing_the_process_is_undone_by_down_and_by_up() {
    let bed = bed!();
    for profile in ["cloud", "object"] {
        for way in ["down", "up"] {
            let state = SlowDisk::up(&bed.options(profile)).unwrap().leave_up();
            // Dirty pages, and a file that stays open.
            fs::write(bed.path("mnt/f"), contents(1, 1 << 20)).unwrap();
            let open = fs::File::open(bed.path("mnt/f")).unwrap();
            kill(state.daemon.as_ref().unwrap().pid());
            let listed = ok(&slowdisk(&["list"], &[]));
            assert!(listed.contains("dead"), "{listed}");
            refused(&slowdisk(&["stats"], &[&bed.path("mnt")]), "has died");
            match way {
                "up" => drop(SlowDisk::up(&bed.options(profile)).unwrap()),
                _ => _ = ok(&slowdisk(&["down"], &[&bed.path("mnt")])),
            }
            drop(open);
            assert!(!mounted(&bed.path("mnt")), "{profile}, {way}");
            assert!(!state.directory.exists(), "{profile}, {way}");
            if let Some(device) = &state.device {
                let gone = eventually(|| loop_backing(device).is_none());
                assert!(gone, "{profile}, {way}: {device:?} is still taken");
            }
        }
    }
}

#[test]
fn a_process_that_hangs_is_ended_by_force() {
    let bed = bed!();
    for profile in ["cloud", "object"] {
        let state = SlowDisk::up(&bed.options(profile)).unwrap().leave_up();
        fs::write(bed.path("mnt/f"), contents(1, 1 << 20)).unwrap();
        let pid = state.daemon.as_ref().unwrap().pid();
        ok(&Command::new("kill").args(["-STOP", &pid.to_string()]).output().unwrap());
        let mut down = Command::new("timeout");
        down.args(["--signal=KILL", "60", RUNAHEAD, "slowdisk", "down", "--force"]);
        let downed = down.arg(bed.path("mnt")).output().unwrap();
        if !downed.status.success() {
            // Whoever looks at the place waits for it.
            kill(pid);
        }
        ok(&downed);
        assert!(!mounted(&bed.path("mnt")) && !state.directory.exists(), "{profile}");
        assert!(!state.is_alive(), "{profile}");
        if let Some(device) = &state.device {
            assert!(eventually(|| loop_backing(device).is_none()));
        }
    }
}

/// With its own file system among its mounts, its end would wait for itself.
#[test]
fn the_process_has_no_mounts_and_ends_where_it_is_the_last() {
    let bed = bed!();
    let states = bed.path("states");
    // The namespace ends with this shell: the process alone goes on.
    let script = "\"$0\" slowdisk up --size 64M --profile cloud \"$1\" && echo dirty > \"$1/f\"";
    let output = Command::new("timeout")
        .args(["--kill-after=5", "60", "unshare", "--mount", "sh", "-c", script, RUNAHEAD])
        .arg(bed.path("mnt"))
        .env("RUNAHEAD_SLOWDISK_STATE", &states)
        .output()
        .unwrap();
    ok(&output);
    let listed: serde_json::Value =
        serde_json::from_str(&ok(&slowdisk_in(&states, &["list", "--json"], &[]))).unwrap();
    let pid = listed[0]["daemon"]["pid"].as_i64().unwrap() as i32;
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    let places: Vec<_> = mounts.lines().map(|line| line.split(' ').nth(4).unwrap()).collect();
    // Before it is killed: one that cannot end keeps the whole machine from syncing.
    assert_eq!(places, ["/"]);
    kill(pid);
    ok(&slowdisk_in(&states, &["down"], &[&bed.path("mnt")]));
    let device = PathBuf::from(listed[0]["device"].as_str().unwrap());
    assert!(eventually(|| loop_backing(&device).is_none()));
}

#[test]
fn what_a_killed_check_leaves_is_named_and_cleaned() {
    let bed = bed!();
    let states = bed.path("states");
    let mut check = Command::new(RUNAHEAD)
        .args(["slowdisk", "check", "--profile", "cloud", "--seconds", "60"])
        .env("RUNAHEAD_SLOWDISK_STATE", &states)
        .env("TMPDIR", bed.path(""))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let list = || ok(&slowdisk_in(&states, &["list"], &[]));
    let up = eventually(|| list().contains("/dev/loop"));
    assert!(!list().contains("left behind"), "{}", list());
    kill(check.id() as i32);
    check.wait().unwrap();
    assert!(up);
    assert!(list().contains("left behind"), "{}", list());
    // Whatever comes next: another device, or another check.
    let up = ["up", "--profile", "cloud", "--size", "64M"];
    ok(&slowdisk_in(&states, &up, &[&bed.path("mnt")]));
    let listed = list();
    assert!(listed.contains("mnt") && !listed.contains("slowdisk-check"), "{listed}");
    ok(&slowdisk_in(&states, &["down"], &[&bed.path("mnt")]));
    let output = Command::new(RUNAHEAD)
        .args(["slowdisk", "check", "--profile", "cloud", "--seconds", "0.01", "--json"])
        .env("RUNAHEAD_SLOWDISK_STATE", &states)
        .env("TMPDIR", bed.path(""))
        .output()
        .unwrap();
    assert!(serde_json::from_slice::<serde_json::Value>(&output.stdout).is_ok());
    let remains = fs::read_dir(bed.path("")).unwrap().flatten().map(|entry| entry.file_name());
    let remains: Vec<_> = remains.filter(|name| name != "states").collect();
    assert!(remains.is_empty(), "{remains:?}");
}

#[test]
fn all_go_down_dead_or_alive() {
    let bed = bed!();
    // Not among the devices of others on this machine.
    let states = bed.path("states");
    let run = |arguments: &[&str], paths: &[&Path]| ok(&slowdisk_in(&states, arguments, paths));
    for name in ["mnt", "other"] {
        run(&["up", "--profile", "cloud", "--size", "64M"], &[&bed.path(name)]);
    }
    let listed: serde_json::Value = serde_json::from_str(&run(&["list", "--json"], &[])).unwrap();
    kill(listed[0]["daemon"]["pid"].as_i64().unwrap() as i32);
    assert_eq!(run(&["down", "--all"], &[]), "2 taken down\n");
    assert!(!bed.path("mnt").exists() && !bed.path("other").exists());
    let none = slowdisk_in(&states, &["list"], &[]);
    assert_eq!(ok(&none), "", "a line for each device");
    assert_eq!(String::from_utf8_lossy(&none.stderr), "runahead: no device is up\n");
}

#[test]
fn what_cannot_be_done_says_why() {
    let bed = bed!();
    let mnt = bed.path("mnt");
    let up = |arguments: &[&str]| slowdisk(&[&["up"], arguments].concat(), &[&mnt]);
    refused(&up(&["--profile", "floppy"]), "array-2003");
    refused(&up(&["--profile", "cloud", "--size", "1"]), "16M");
    refused(&up(&["--profile", "cloud", "--backing", "/none/such"]), "create it first");
    refused(&slowdisk(&["down"], &[&mnt]), "no slowdisk is up");
    refused(&slowdisk(&["cold"], &[&mnt]), "list");
    refused(&slowdisk(&["check", "--seconds", "0"], &[]), "--seconds 0: give a number above 0");
    fs::create_dir(&mnt).unwrap();
    fs::write(mnt.join("file"), "").unwrap();
    refused(&up(&["--profile", "cloud"]), "not empty");
    fs::remove_file(mnt.join("file")).unwrap();

    ok(&up(&["--profile", "cloud", "--size", "64M"]));
    refused(&up(&["--profile", "hdd"]), "cloud is up there already");
    let busy = fs::File::create(mnt.join("busy")).unwrap();
    refused(&slowdisk(&["cold"], &[&mnt]), &format!("({})", std::process::id()));
    refused(&slowdisk(&["down"], &[&mnt]), "--force");
    // A failed cold leaves it up and timed.
    assert!(!SlowDisk::at(&mnt).unwrap().stats().unwrap().paused);
    drop(busy);
    ok(&slowdisk(&["cold"], &[&mnt]));
    ok(&slowdisk(&["down"], &[&mnt]));
    assert!(mnt.is_dir(), "a mount point that was there stays");
}

#[test]
fn a_missing_mkfs_is_named_with_its_package() {
    let bed = bed!();
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c"])
        .arg("mount -t tmpfs none /usr/sbin && PATH=/none exec \"$0\" slowdisk up --profile cloud \"$1\"")
        .arg(RUNAHEAD)
        .arg(bed.path("mnt"))
        .output()
        .unwrap();
    refused(&output, "e2fsprogs");
    assert!(!bed.path("mnt").exists());
}

#[test]
fn missing_devices_are_named() {
    let bed = bed!();
    // The machine's own disk needs no FUSE: the loop device is what it misses.
    for (profile, because) in [("cloud", "modprobe fuse"), ("nvme", "modprobe loop")] {
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c"])
            .arg("mount -t tmpfs none /dev && exec \"$0\" slowdisk up --profile \"$1\" \"$2\"")
            .args([RUNAHEAD, profile])
            .arg(bed.path("mnt"))
            .output()
            .unwrap();
        refused(&output, because);
        assert!(!bed.path("mnt").exists(), "{profile}");
    }
}

#[test]
fn others_are_told_to_become_root() {
    let bed = bed!();
    let binary = bed.path("runahead");
    fs::copy(RUNAHEAD, &binary).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--clear-groups"])
        .arg(&binary)
        .args(["slowdisk", "up", "--profile", "cloud"])
        .arg(bed.path("mnt"))
        .output()
        .unwrap();
    refused(&output, "sudo");
}

#[test]
fn pausing_takes_requests_out_of_the_model() {
    let bed = bed!();
    let mut options = bed.options("hdd");
    options.paused = true;
    let disk = SlowDisk::up(&options).unwrap();
    fs::write(bed.path("mnt/f"), contents(1, 100_000)).unwrap();
    disk.cold().unwrap();
    assert!(disk.stats().unwrap().paused, "cold does not resume");
    fs::read(bed.path("mnt/f")).unwrap();
    let paused = disk.stats().unwrap();
    assert!(paused.device.untimed > 0 && paused.device.reads == 0);
    ok(&slowdisk(&["resume"], &[&bed.path("mnt")]));
    disk.cold().unwrap();
    fs::read(bed.path("mnt/f")).unwrap();
    assert!(disk.stats().unwrap().device.reads > 0);
}

#[test]
fn free_writes_cost_nothing_and_others_do() {
    let bed = bed!();
    for free_writes in [false, true] {
        let disk = SlowDisk::up(&UpOptions { free_writes, ..bed.options("cloud") }).unwrap();
        let file = fs::File::create(bed.path("mnt/f")).unwrap();
        file.write_all_at(&contents(1, 100_000), 0).unwrap();
        file.sync_all().unwrap();
        drop(file);
        assert_eq!(disk.stats().unwrap().device.writes == 0, free_writes);
    }
}

#[test]
fn the_same_seed_gives_the_same_file_system() {
    let bed = bed!();
    let order = |seed| {
        let disk = SlowDisk::up(&UpOptions { seed, ..bed.options("cloud") }).unwrap();
        disk.pause().unwrap();
        for i in 0..200 {
            fs::write(bed.path("mnt").join(format!("name-{i}")), "").unwrap();
        }
        let names = fs::read_dir(bed.path("mnt")).unwrap();
        names.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
}

#[test]
fn two_devices_at_once() {
    let bed = bed!();
    let first = SlowDisk::up(&bed.options("cloud")).unwrap();
    let other = UpOptions { mountpoint: bed.path("other"), ..bed.options("array-2003") };
    let second = SlowDisk::up(&other).unwrap();
    assert_ne!(first.device(), second.device());
    let mounts: Vec<PathBuf> =
        runahead_slowdisk::list().unwrap().into_iter().map(|s| s.options.mountpoint).collect();
    assert!(mounts.contains(&bed.path("mnt")) && mounts.contains(&bed.path("other")));
    drop(first);
    fs::write(bed.path("other/f"), "still there").unwrap();
}

#[test]
fn the_object_store_is_a_whole_file_system() {
    let bed = bed!();
    let disk = SlowDisk::up(&bed.options("object")).unwrap();
    disk.pause().unwrap();
    let mnt = bed.path("mnt");
    fs::create_dir_all(mnt.join("a/b")).unwrap();
    fs::write(mnt.join("a/b/f"), "one").unwrap();
    fs::hard_link(mnt.join("a/b/f"), mnt.join("g")).unwrap();
    assert_eq!(fs::metadata(mnt.join("g")).unwrap().nlink(), 2);
    symlink("a/b/f", mnt.join("link")).unwrap();
    assert_eq!(fs::read(mnt.join("link")).unwrap(), b"one");
    fs::rename(mnt.join("a"), mnt.join("c")).unwrap();
    assert_eq!(fs::read(mnt.join("c/b/f")).unwrap(), b"one");
    let open = fs::File::open(mnt.join("c/b/f")).unwrap();
    fs::remove_file(mnt.join("c/b/f")).unwrap();
    fs::remove_file(mnt.join("g")).unwrap();
    let mut bytes = [0; 3];
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"one", "an open file outlives its name");
    assert_eq!(open.metadata().unwrap().len(), 3);
    fs::set_permissions(mnt.join("c"), fs::Permissions::from_mode(0o750)).unwrap();
    assert_eq!(fs::metadata(mnt.join("c")).unwrap().mode() & 0o7777, 0o750);
    let file = fs::File::create(mnt.join("t")).unwrap();
    file.write_all_at(&contents(1, 300_000), 0).unwrap();
    file.set_len(123_456).unwrap();
    drop(file);
    assert!(fs::remove_dir(mnt.join("c")).is_err(), "not empty");
    drop(open);
    disk.cold().unwrap();
    assert!(fs::read(mnt.join("t")).unwrap() == contents(1, 300_000)[..123_456]);
    let entries = fs::read_dir(&mnt).unwrap();
    let mut names: Vec<_> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["c", "link", "t"]);
    let minor = fs::metadata(mnt.join("t")).unwrap().dev() & 0xFF;
    let kib = fs::read_to_string(format!("/sys/class/bdi/0:{minor}/read_ahead_kb"));
    assert_eq!(kib.unwrap().trim(), "128");
}

#[test]
fn other_users_see_the_object_store_with_its_permissions() {
    let bed = bed!();
    fs::create_dir(bed.path("objects")).unwrap();
    for (name, mode) in [("open", 0o644), ("secret", 0o600)] {
        fs::write(bed.path("objects").join(name), name).unwrap();
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(bed.path("objects").join(name), permissions).unwrap();
    }
    let options = UpOptions { backing: Some(bed.path("objects")), ..bed.options("object") };
    let _disk = SlowDisk::up(&options).unwrap();
    let read_as_nobody = |name: &str| {
        Command::new("setpriv")
            .args(["--reuid=65534", "--clear-groups", "cat"])
            .arg(bed.path("mnt").join(name))
            .output()
            .unwrap()
    };
    assert_eq!(ok(&read_as_nobody("open")), "open");
    refused(&read_as_nobody("secret"), "Permission denied");
}

#[test]
fn statistics_for_people_and_for_machines() {
    let bed = bed!();
    let _disk = SlowDisk::up(&bed.options("array-2003")).unwrap();
    fs::write(bed.path("mnt/f"), contents(1, 1 << 20)).unwrap();
    ok(&slowdisk(&["cold"], &[&bed.path("mnt")]));
    fs::read(bed.path("mnt/f")).unwrap();
    let text = ok(&slowdisk(&["stats", "--json"], &[&bed.path("mnt")]));
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["device"]["servers"].as_array().unwrap().len(), 4);
    assert!(json["device"]["bytes_read"].as_u64().unwrap() >= 1 << 20);
    let text = ok(&slowdisk(&["stats", "--reset"], &[&bed.path("mnt")]));
    assert!(text.contains("spindle"), "{text}");
    let text = ok(&slowdisk(&["stats"], &[&bed.path("mnt")]));
    assert!(text.starts_with("0 reads"), "{text}");
}

#[test]
fn a_mount_in_another_namespace_is_said_to_keep_the_cache() {
    let bed = bed!();
    let disk = SlowDisk::up(&bed.options("cloud")).unwrap();
    let mut elsewhere = Command::new("unshare").args(["-m", "sleep", "60"]).spawn().unwrap();
    let own = fs::read_link("/proc/self/ns/mnt").unwrap();
    let theirs = format!("/proc/{}/ns/mnt", elsewhere.id());
    assert!(eventually(|| fs::read_link(&theirs).is_ok_and(|theirs| theirs != own)));
    let error = disk.cold().unwrap_err().to_string();
    assert!(error.contains("in another mount namespace"), "{error}");
    elsewhere.kill().unwrap();
    elsewhere.wait().unwrap();
    assert!(mounted(&bed.path("mnt")));
    disk.cold().unwrap();
}

#[test]
fn lost_blocks_cannot_be_read_until_they_are_mended() {
    const BLOCK: usize = 128 << 10;
    let bed = bed!();
    let disk = SlowDisk::up(&bed.options("cloud")).unwrap();
    let (file, mount) = (bed.path("mnt/file"), bed.path("mnt"));
    let bytes = contents(1, 4 * BLOCK);
    fs::write(&file, &bytes).unwrap();
    let options = ["lose", "--offset", "128K", "--length", "128K"];
    assert_eq!(ok(&slowdisk(&options, &[&file])), "131072 bytes lost\n");
    disk.cold().unwrap();
    let read = |at: usize| {
        let mut found = vec![0; BLOCK];
        fs::File::open(&file).unwrap().read_exact_at(&mut found, at as u64).map(|()| found)
    };
    assert_eq!(read(BLOCK).unwrap_err().raw_os_error(), Some(libc::EIO));
    for at in [0, 2 * BLOCK, 3 * BLOCK] {
        assert!(read(at).unwrap() == bytes[at..at + BLOCK], "{at}");
    }
    ok(&slowdisk(&["mend"], &[&mount]));
    assert!(read(BLOCK).unwrap() == bytes[BLOCK..2 * BLOCK]);
    refused(&slowdisk(&["lose", "--offset", "1M"], &[&file]), "beyond its end");
    refused(&slowdisk(&["lose"], &[&bed.path("mnt/none")]), "No such file");
    refused(&slowdisk(&["lose"], &[Path::new(RUNAHEAD)]), "no slowdisk is up");
}
