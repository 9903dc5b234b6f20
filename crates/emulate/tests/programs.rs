//! What whole programs do, in short: each must be followed past its writes
//! as far as it goes.

mod machine;

use machine::{Copy, TempDir, contents, raw};
use runahead_emulate::{Inherited, Kind, Outcome, Protecting, arch::nr};
use runahead_protocol::stats::Park;

fn size_of_path(copy: &mut Copy, path: &std::path::Path) -> Result<u64, isize> {
    let mut stat = vec![0u8; 144];
    let address = copy.machine.own(&mut stat);
    let path = copy.path(path);
    match copy.call(nr::STAT, &[path, address]) {
        0 => Ok(u64::from_ne_bytes(stat[48..56].try_into().unwrap())),
        error => Err(error),
    }
}

/// cp -r: make the directory, then for each file open both, copy, set the
/// attributes, close.
#[test]
fn a_copying_program_is_followed_to_its_end() {
    let dir = TempDir::new("cp");
    for file in 0..5 {
        dir.file(&format!("{file}"), 100_000 + file);
    }
    let mut copy = Copy::new();
    copy.machine.cold = true;
    let target = dir.0.join("target");
    let path = copy.path(&target);
    assert_eq!(copy.call(nr::MKDIR, &[path, 0o755]), 0);
    assert_eq!(copy.call(nr::MKDIR, &[path, 0o755]), -17, "EEXIST the second time");
    let target_fd =
        copy.open(&target, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) as usize;
    for file in 0..5 {
        let from = copy.open(dir.0.join(format!("{file}")), libc::O_RDONLY) as usize;
        let name = copy.path(format!("{file}"));
        let flags = (libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL) as usize;
        let to = copy.call(nr::OPENAT, &[target_fd, name, flags, 0o644]) as usize;
        assert_eq!(copy.call(nr::OPENAT, &[target_fd, name, flags, 0o644]), -17);
        let copied = copy.call(nr::COPY_FILE_RANGE, &[from, 0, to, 0, 0x7fff_f000, 0]);
        assert_eq!(copied, 100_000 + file as isize);
        assert_eq!(copy.call(nr::COPY_FILE_RANGE, &[from, 0, to, 0, 0x7fff_f000, 0]), 0);
        assert_eq!(copy.call(nr::FCHMOD, &[to, 0o600]), 0);
        assert_eq!(copy.call(nr::CLOSE, &[to]), 0);
        assert_eq!(copy.call(nr::CLOSE, &[from]), 0);
        let size = size_of_path(&mut copy, &target.join(format!("{file}")));
        assert_eq!(size, Ok(100_000 + file as u64), "by its whole path");
    }
    assert_eq!(copy.log.lead(), 10, "each read of a source is predicted");
    assert!(!target.exists(), "and nothing was made");
}

/// Between file systems the kernel refuses to copy ranges, and programs go
/// on with reads: so must the speculation, or it makes other calls than the
/// program.
#[test]
fn ranges_are_not_copied_between_file_systems() {
    use std::os::unix::fs::MetadataExt;
    let dir = TempDir::new("range");
    let path = dir.file("f", 5000);
    let mut copy = Copy::new();
    let from = copy.open(&path, libc::O_RDONLY) as usize;
    let other = Inherited {
        kind: Kind::Regular,
        dev: path.metadata().unwrap().dev() + 1,
        ino: 7,
        offset: 0,
        size: 0,
        mode: 0o100644,
        status_flags: libc::O_WRONLY as u32,
        cloexec: false,
    };
    copy.emulator.inherit(20, other);
    let made = dir.0.join("made");
    let here = copy.open(&made, libc::O_WRONLY | libc::O_CREAT) as usize;
    assert_eq!(copy.call(nr::COPY_FILE_RANGE, &[from, 0, 20, 0, 9000, 0]), -18, "EXDEV");
    assert_eq!(copy.log.lead(), 1, "the attempt counts");
    assert_eq!(copy.call(nr::COPY_FILE_RANGE, &[from, 0, here, 0, 9000, 0]), 5000);
    assert_eq!(copy.call(nr::COPY_FILE_RANGE, &[from, 0, from, 0, 9000, 0]), -9, "EBADF");
    let directory = copy.path(dir.0.join("new"));
    assert_eq!(copy.call(nr::MKDIR, &[directory, 0o755]), 0);
    let below = copy.open(dir.0.join("new/f"), libc::O_WRONLY | libc::O_CREAT) as usize;
    assert_eq!(copy.call(nr::LSEEK, &[from, 0, 0]), 0);
    assert_eq!(copy.call(nr::COPY_FILE_RANGE, &[from, 0, below, 0, 9000, 0]), 5000);
}

/// git and many others: write a lock file, rename it over the old one, read
/// the new one; rename a file that exists and read it under its new name.
#[test]
fn renamed_files_are_found_under_their_new_names() {
    let dir = TempDir::new("rename");
    let old = dir.file("old", 5000);
    let mut copy = Copy::new();
    let lock = dir.0.join("index.lock");
    let fd = copy.open(&lock, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL) as usize;
    let mut bytes = vec![7u8; 3000];
    let address = copy.machine.own(&mut bytes);
    assert_eq!(copy.call(nr::WRITE, &[fd, address, 3000]), 3000);
    assert_eq!(copy.call(nr::CLOSE, &[fd]), 0);
    let (from, to) = (copy.path(&lock), copy.path(dir.0.join("index")));
    assert_eq!(copy.call(nr::RENAME, &[from, to]), 0);
    assert_eq!(copy.call(nr::ACCESS, &[from, 0]), -2);
    let fd = copy.open(dir.0.join("index"), libc::O_RDONLY);
    assert_eq!(copy.read(fd, 8192).0, 3000, "its size is known, its bytes are not");

    let (from, to) = (copy.path(&old), copy.path(dir.0.join("new")));
    assert_eq!(copy.call(nr::RENAME, &[from, to]), 0);
    assert_eq!(copy.open(&old, libc::O_RDONLY), -2);
    let fd = copy.open(dir.0.join("new"), libc::O_RDONLY);
    let (result, bytes) = copy.read(fd, 8192);
    assert_eq!((result, &bytes[..5000]), (5000, &contents(5000)[..]), "the real bytes");
    assert_eq!(size_of_path(&mut copy, &dir.0.join("new")), Ok(5000));
    assert_eq!(copy.call(nr::LINK, &[to, from]), 0, "back by a link");
    let fd = copy.open(&old, libc::O_RDONLY);
    assert_eq!(copy.read(fd, 10).1, contents(10));
    assert_eq!(copy.call(nr::UNLINK, &[to]), 0);
    assert_eq!(copy.open(dir.0.join("new"), libc::O_RDONLY), -2);
    assert!(old.exists());
}

/// A directory that was renamed is looked through.
#[test]
fn files_below_a_renamed_directory_are_found() {
    let dir = TempDir::new("below");
    std::fs::create_dir_all(dir.0.join("tree/sub")).unwrap();
    dir.file("tree/sub/leaf", 700);
    let mut copy = Copy::new();
    let (from, to) = (copy.path(dir.0.join("tree")), copy.path(dir.0.join("moved")));
    assert_eq!(copy.call(nr::RENAME, &[from, to]), 0);
    assert_eq!(copy.open(dir.0.join("tree/sub/leaf"), libc::O_RDONLY), -2);
    let fd = copy.open(dir.0.join("moved/sub/leaf"), libc::O_RDONLY);
    assert_eq!(copy.read(fd, 1000).0, 700);
}

/// A working directory that exists in appearance only.
#[test]
fn a_new_directory_can_be_worked_in() {
    let dir = TempDir::new("chdir");
    let mut copy = Copy::new();
    let path = copy.path(dir.0.join("work"));
    assert_eq!(copy.call(nr::MKDIR, &[path, 0o755]), 0);
    assert_eq!(copy.call(nr::CHDIR, &[path]), 0);
    let name = copy.path("inside");
    assert_eq!(copy.call(nr::OPEN, &[name, 0]), -2);
    let flags = (libc::O_WRONLY | libc::O_CREAT) as usize;
    assert_eq!(copy.call(nr::OPEN, &[name, flags, 0o644]), 0);
    assert_eq!(size_of_path(&mut copy, &dir.0.join("work/inside")), Ok(0), "by its whole path");
    assert_eq!(copy.machine.count(nr::CHDIR), 0);
}

/// A PostgreSQL backend between two queries: its descriptors are inherited,
/// relations are read at offsets, sizes asked by SEEK_END, semaphores are
/// futexes, other backends are signalled; it stops where the client must
/// speak.
#[test]
fn a_database_backend_goes_on_until_its_client_must_speak() {
    let dir = TempDir::new("postgres");
    let relation = dir.file("16384", 8192 * 50);
    let mut copy = Copy::new();
    copy.machine.cold = true;
    let socket = Inherited {
        kind: Kind::Socket,
        dev: 0,
        ino: 0,
        offset: 0,
        size: 0,
        mode: 0o140777,
        status_flags: 0o2,
        cloexec: true,
    };
    copy.emulator.inherit(9, socket);
    copy.emulator.inherit(4, Inherited { kind: Kind::Other, ..socket });
    let fd = copy.open(&relation, libc::O_RDWR | libc::O_CLOEXEC) as usize;
    assert_eq!(fd, 0);
    assert_eq!(copy.call(nr::LSEEK, &[fd, 0, 2]), 8192 * 50);
    for block in [40, 3, 17, 29, 8] {
        assert_eq!(copy.pread(fd as isize, 8192, block * 8192).0, 8192);
    }
    assert_eq!(copy.emulator.counters().prefetches, 5);
    let mut semaphore = [1u32, 0];
    let word = copy.machine.own(&mut semaphore);
    assert_eq!(copy.call(nr::FUTEX, &[word, 0x80, 0, 0]), -11, "its value has changed");
    assert_eq!(copy.call(nr::FUTEX, &[word, 0x81, 1]), 0);
    assert_eq!(copy.call(nr::KILL, &[1, libc::SIGUSR1 as usize]), 0, "swallowed");
    assert_eq!(copy.call(nr::PWRITE64, &[fd, word, 8192, 8192 * 50]), 8192, "extends");
    assert_eq!(copy.call(nr::LSEEK, &[fd, 0, 2]), 8192 * 51);
    assert_eq!(copy.call(nr::FDATASYNC, &[fd]), 0);
    assert_eq!(copy.call(nr::SETITIMER, &[0, 0, 0]), 0);
    assert_eq!(copy.call(nr::SENDTO, &[9, word, 8, 0, 0, 0]), 8);
    assert_eq!(copy.outcome(nr::RECVFROM, &[9, word, 8]), Outcome::Park(Park::NeedsInput));
    assert_eq!(
        copy.outcome(nr::EPOLL_WAIT, &[4, word, 1, usize::MAX]),
        Outcome::Park(Park::NeedsOther)
    );
    assert_eq!(std::fs::metadata(&relation).unwrap().len(), 8192 * 50);
}

#[test]
fn what_is_not_a_file_is_never_opened() {
    let dir = TempDir::new("special");
    let fifo = std::ffi::CString::new(dir.0.join("fifo").to_str().unwrap()).unwrap();
    assert_eq!(raw(nr::MKNOD, [fifo.as_ptr() as usize, 0o010644, 0, 0, 0, 0]), 0);
    let mut copy = Copy::new();
    let mut byte = [1u8; 8];
    let address = copy.machine.own(&mut byte);
    for path in [dir.0.join("fifo"), "/dev/tty".into()] {
        let Ok(()) = path.symlink_metadata().map(|_| ()) else { continue };
        let fd = copy.open(&path, libc::O_RDWR) as usize;
        let reads: Vec<_> = copy.machine.calls.iter().filter(|call| call.0 == nr::OPENAT).collect();
        assert!(reads.iter().all(|call| call.1[2] as i32 & libc::O_PATH != 0), "{reads:x?}");
        assert_eq!(copy.call(nr::WRITE, &[fd, address, 8]), 8);
        assert_eq!(copy.outcome(nr::READ, &[fd, address, 8]), Outcome::Park(Park::NeedsInput));
    }
    let null = copy.open("/dev/null", libc::O_RDWR);
    assert_eq!(copy.read(null, 8).0, 0);
    let zero = copy.open("/dev/zero", libc::O_RDONLY);
    assert_eq!(copy.read(zero, 600), (600, vec![0; 600]));
    let random = copy.open("/dev/urandom", libc::O_RDONLY);
    assert_eq!(copy.read(random, 8).0, 8);
}

/// getpwuid asks a daemon that is not there, then reads a file.
#[test]
fn a_socket_that_does_not_exist_is_not_waited_for() {
    let dir = TempDir::new("connect");
    let there = dir.file("socket", 1);
    let mut copy = Copy::new();
    let fd = copy.call(nr::SOCKET, &[1, 1, 0]) as usize;
    for (path, outcome) in [
        (dir.0.join("nscd"), Outcome::Return(-2)),
        (there.join("below"), Outcome::Return(-20)),
        (there.clone(), Outcome::Park(Park::NeedsInput)),
        ("".into(), Outcome::Park(Park::NeedsInput)),
    ] {
        let mut address = vec![1u8, 0];
        address.extend_from_slice(path.to_str().unwrap().as_bytes());
        address.resize(110, 0);
        let pointer = copy.machine.own(&mut address);
        assert_eq!(copy.outcome(nr::CONNECT, &[fd, pointer, 110]), outcome, "{path:?}");
    }
}

#[test]
fn it_is_the_normal_process() {
    let mut copy = Copy::new();
    let who = machine::identity();
    assert_eq!(copy.call(nr::GETPID, &[]), who.pid as isize);
    assert_eq!(copy.call(nr::GETTID, &[]), who.tid as isize);
    assert_eq!(copy.call(nr::GETPPID, &[]), who.ppid as isize);
    assert_eq!(copy.outcome(nr::KILL, &[who.pid as usize, 15]), Outcome::Park(Park::Signal));
    assert_eq!(copy.call(nr::KILL, &[who.pid as usize, 0]), 0);
    for (number, reason) in [
        (nr::CLONE3, Park::Fork),
        (nr::EXECVE, Park::Exec),
        (nr::EXIT_GROUP, Park::Exit),
        (nr::IO_URING_SETUP, Park::Unanswerable),
        (999, Park::UnknownCall),
    ] {
        assert_eq!(copy.outcome(number, &[]), Outcome::Park(reason));
    }
    assert!(copy.machine.calls.is_empty(), "none of it reached the kernel");
}

#[test]
fn memory_is_private_bounded_and_not_the_agents() {
    let dir = TempDir::new("memory");
    let path = dir.file("f", 20_000);
    let mut copy = Copy::new();
    copy.machine.pretend_memory = true;
    copy.machine.cold = true;
    assert!(copy.emulator.protect(0x10_0000, 0x1000));
    let protected = Outcome::Park(Park::BadPointer);
    assert_eq!(copy.outcome(nr::MUNMAP, &[0xf_0000, 0x10_001]), protected);
    assert_eq!(copy.outcome(nr::MPROTECT, &[0x10_0fff, 1, 7]), protected);
    for (becomes, outcome, calls) in [
        (Protecting::Done, Outcome::Return(0), 0),
        (Protecting::Refused, Outcome::Park(Park::TableFull), 0),
        (Protecting::Real, Outcome::Return(0), 1),
    ] {
        copy.machine.protecting = becomes;
        assert_eq!(copy.outcome(nr::MPROTECT, &[0x20_0000, 4096, 3]), outcome);
        assert_eq!(copy.machine.count(nr::MPROTECT), calls);
    }
    let fixed = libc::MAP_FIXED as usize;
    assert_eq!(copy.outcome(nr::MMAP, &[0x10_0000, 4096, 3, fixed | 0x22, 0, 0]), protected);
    assert_eq!(copy.call(nr::MUNMAP, &[0xf_0000, 0x1_0000]), 0);
    let limit = 64 << 20;
    let anonymous = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    assert_eq!(copy.call(nr::MMAP, &[0, limit - 4096, 3, anonymous, usize::MAX, 0]), 0);
    let over = copy.outcome(nr::MMAP, &[0, 8192, 3, anonymous, usize::MAX, 0]);
    assert_eq!(over, Outcome::Park(Park::MemoryLimit));
    // Shared becomes private, and the mapped range is prefetched.
    let fd = copy.open(&path, libc::O_RDWR) as usize;
    assert_eq!(copy.call(nr::MMAP, &[0, 20_000, 3, libc::MAP_SHARED as usize, fd, 0]), 0);
    let mapping = copy.machine.calls.iter().rfind(|call| call.0 == nr::MMAP).unwrap();
    assert_eq!(mapping.1[3], libc::MAP_PRIVATE as usize);
    assert_eq!(copy.machine.in_flight_max, 5);
    let remove = libc::MADV_REMOVE as usize;
    assert_eq!(copy.outcome(nr::MADVISE, &[0, 4096, remove]), Outcome::Park(Park::Unanswerable));
}

#[test]
fn signals_are_shadowed() {
    let mut copy = Copy::new();
    copy.emulator.inherit_action(31, [0xabc, 1, 2, 3]);
    let mut words = [0x1000u64, 4, 5, 6, 0, 0, 0, 0];
    let new = copy.machine.own(&mut words);
    let old = new + 32;
    assert_eq!(copy.call(nr::RT_SIGACTION, &[31, new, old, 8]), 0);
    assert_eq!(words[4..], [0xabc, 1, 2, 3], "what the program had set");
    assert_eq!(copy.call(nr::RT_SIGACTION, &[31, 0, old, 8]), 0);
    assert_eq!(words[4..], [0x1000, 4, 5, 6], "what it has set now");
    assert_eq!(copy.call(nr::RT_SIGACTION, &[9, new, 0, 8]), -22);
    assert!(copy.machine.calls.is_empty(), "the kernel's action stays the agent's");
}

#[test]
fn polling_answers_only_what_is_certain() {
    let mut copy = Copy::new();
    let mut pair = [0u32; 2];
    let address = copy.machine.own(&mut pair);
    assert_eq!(copy.call(nr::PIPE2, &[address, 0]), 0);
    assert_eq!(pair, [0, 1]);
    const POLLIN: u64 = 1 << 32;
    const POLLOUT: u64 = 4 << 32;
    let mut polled = vec![POLLOUT | 1];
    let address = copy.machine.own(&mut polled);
    assert_eq!(copy.call(nr::POLL, &[address, 1, usize::MAX]), 1, "writable");
    polled[0] = POLLIN;
    let outcome = copy.outcome(nr::POLL, &[address, 1, usize::MAX]);
    assert_eq!(outcome, Outcome::Park(Park::NeedsInput));
    assert_eq!(copy.call(nr::POLL, &[address, 1, 0]), 0, "nothing yet");
}

/// Nothing keeps the kernel from noting that a link was read, which it does where that has not
/// happened since the link was made, or for a day.
#[test]
fn reading_a_link_is_not_seen_in_its_access_time() {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    let dir = TempDir::new("links");
    let link = dir.0.join("link");
    std::os::unix::fs::symlink("where it leads", &link).unwrap();
    let times = |link: &std::path::Path| {
        let found = link.symlink_metadata().unwrap();
        (found.atime(), found.atime_nsec())
    };
    let mut copy = Copy::new();
    let mut buffer = vec![b'-'; 64];
    let at = copy.machine.own(&mut buffer);
    let cwd = libc::AT_FDCWD as usize;
    let before = times(&link);
    // Later than the link was made, by the clock that file systems have.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let path = copy.path(&link);
    assert_eq!(copy.call(nr::READLINKAT, &[cwd, path, at, 64]), 14, "its length is known");
    assert_eq!(copy.call(nr::READLINKAT, &[cwd, path, at, 5]), 5);
    assert_eq!(copy.machine.count(nr::READLINKAT), 0);
    assert_eq!(times(&link), before);
    // One that the program has read since: the kernel notes nothing more.
    let name = std::ffi::CString::new(link.as_os_str().as_bytes()).unwrap();
    let hour = libc::timespec { tv_sec: before.0 + 3600, tv_nsec: 0 };
    let keep = libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT };
    let both = [hour, keep];
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: a NUL-terminated path and two times.
    let done = unsafe { libc::utimensat(libc::AT_FDCWD, name.as_ptr(), both.as_ptr(), flags) };
    assert_eq!(done, 0);
    assert_eq!(copy.call(nr::READLINKAT, &[cwd, path, at, 64]), 14);
    assert_eq!(&buffer[..14], b"where it leads");
    assert_eq!(times(&link), (before.0 + 3600, 0));
}
