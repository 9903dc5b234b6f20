//! What a program has open is looked at for each copy, and where it executes another,
//! and nobody is asked about it or waited for: the server of another file may be slow
//! to answer, or have died. Nor is one told that it is closed, which may end the file there.

#[expect(dead_code, reason = "this test uses a part of it")]
mod bed;
mod report;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use bed::{Bed, RUNAHEAD, bed, ok};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyStatfs,
    ReplyWrite, Session, WriteFlags,
};

/// A directory with one file, about which the kernel asks each time. Counts the
/// questions about it, and those about the file system.
struct Asked {
    /// Of the file, in bytes: nothing or a page.
    size: u64,
    attributes: Arc<AtomicU32>,
    file_system: Arc<AtomicU32>,
}

const NAME: &str = "file";
const FILE: INodeNo = INodeNo(2);

fn attributes(ino: INodeNo, size: u64) -> FileAttr {
    let kind = if ino == FILE { FileType::RegularFile } else { FileType::Directory };
    FileAttr {
        ino,
        size,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Asked {
    fn lookup(&self, _: &fuser::Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == NAME {
            reply.entry(&Duration::ZERO, &attributes(FILE, self.size), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn read(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        reply.data(&vec![7; self.size as usize]);
    }

    fn getattr(&self, _: &fuser::Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if ino == FILE {
            self.attributes.fetch_add(1, Relaxed);
        }
        reply.attr(&Duration::ZERO, &attributes(ino, self.size));
    }

    fn statfs(&self, _: &fuser::Request, _: INodeNo, reply: ReplyStatfs) {
        self.file_system.fetch_add(1, Relaxed);
        reply.statfs(0, 0, 0, 1, 0, 4096, 255, 4096);
    }
}

/// Has the first file open and reads the second, and then executes what does nothing.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char byte;
    int other = open(argv[1], O_RDONLY), fd = open(argv[2], O_RDONLY);
    if (other < 0 || fd < 0) return 9;
    for (int i = 0; i < 20; i++) {
        if (pread(fd, &byte, 1, i * 4096) != 1) return 8;
        usleep(2000);
    }
    execl("/bin/true", "true", (char *)0);
    return 7;
}
"#;

fn compiled(bed: &Bed, text: &str) -> PathBuf {
    let (source, program) = (bed.path("program.c"), bed.path("program"));
    fs::write(&source, text).unwrap();
    let arguments = ["-O1", "-pthread", "-o"];
    ok(&Command::new("gcc").args(arguments).args([&program, &source]).output().unwrap());
    program
}

/// `runahead` with this test, such as [`STALLS`], and statistics.
fn testing(bed: &Bed, test: &str, statistics: &Path) -> Command {
    let mut runahead = Command::new(RUNAHEAD);
    runahead.env("XDG_CACHE_HOME", bed.path("cache"));
    runahead.arg(format!("--test={test}"));
    runahead.arg(format!("--stats={}", statistics.display())).arg("--");
    runahead
}

/// A stall at each read.
const STALLS: &str = "8";
/// The same, and no site is patched.
const STALLS_UNPATCHED: &str = "9";

fn copies(statistics: &Path) -> u64 {
    copies_of(&report::read(statistics))
}

fn copies_of(stats: &serde_json::Value) -> u64 {
    stats["speculation"]["synchronizations"]["completed"].as_u64().unwrap()
}

#[test]
fn nobody_is_asked_about_the_other_files_that_are_open() {
    let bed = bed!();
    let program = compiled(&bed, PROGRAM);
    let (mount, data, statistics) = (bed.path("mnt"), bed.path("data"), bed.path("stats.json"));
    fs::create_dir(&mount).unwrap();
    fs::write(&data, vec![7; 20 * 4096]).unwrap();
    let [asked, told] = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
    let server = Asked { size: 0, attributes: Arc::clone(&asked), file_system: told };
    let session = Session::new(server, &mount, &Config::default()).unwrap();
    let serving = session.spawn().unwrap();
    let questions = |command: &mut Command| {
        let before = asked.load(Relaxed);
        ok(&command.arg(&program).args([&mount.join(NAME), &data]).output().unwrap());
        asked.load(Relaxed) - before
    };
    let plain = questions(&mut Command::new("env"));
    let observed = questions(&mut testing(&bed, STALLS, &statistics));
    drop(serving);
    let copies = copies(&statistics);
    assert!(copies > 0);
    assert_eq!(observed, plain, "{copies} copies");
}

/// Copies the second file twenty times, as far as the file systems permit, to the third.
const COPIES: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int to = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < 20; i++) {
        int from = open(argv[1], O_RDONLY);
        if (from < 0 || to < 0) return 9;
        copy_file_range(from, 0, to, 0, 4096, 0);
        close(from);
    }
    return 0;
}
"#;

/// Whether a copy_file_range(2) is to be looked at, and how the files are asked, says
/// the file system: once, not for each of them.
#[test]
fn a_file_system_is_asked_once_what_it_is() {
    let bed = bed!();
    let program = compiled(&bed, COPIES);
    let (mount, statistics) = (bed.path("mnt"), bed.path("stats.json"));
    fs::create_dir(&mount).unwrap();
    let [asked, told] = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
    // Of a file with nothing in it nothing is found out that the next would not be asked again.
    let server = Asked { size: PAGE, attributes: asked, file_system: Arc::clone(&told) };
    let session = Session::new(server, &mount, &Config::default()).unwrap();
    let serving = session.spawn().unwrap();
    let questions = |command: &mut Command| {
        let before = told.load(Relaxed);
        let arguments = [&mount.join(NAME), &bed.path("copy")];
        ok(&command.arg(&program).args(arguments).output().unwrap());
        told.load(Relaxed) - before
    };
    let plain = questions(&mut Command::new("env"));
    let observed = questions(&mut testing(&bed, STALLS, &statistics));
    drop(serving);
    // By each process for two things: the program, and the copies that come so far, which
    // are more where the machine is busy. Asked for each file, the program alone asks forty
    // times.
    let copies = copies(&statistics);
    let most = u64::from(plain) + 2 * (1 + copies);
    assert!(u64::from(observed) <= most, "{observed} questions, plainly {plain}, {copies} copies");
}

/// An answer that is not given yet.
enum Reply {
    Data(ReplyData),
    Entries(ReplyDirectory),
}

impl Reply {
    fn give(self) {
        match self {
            Reply::Data(reply) => reply.data(&[7; PAGE as usize]),
            Reply::Entries(reply) => reply.ok(),
        }
    }
}

/// The same file with a page of data. Neither a read of it nor one of its directory
/// is answered before it is told to; from then on each is.
struct Held {
    held: Arc<Mutex<Option<Vec<Reply>>>>,
    read: Sender<()>,
}

impl Held {
    fn hold(&self, reply: Reply) {
        match &mut *self.held.lock().unwrap() {
            Some(held) => held.push(reply),
            None => reply.give(),
        }
        let _ = self.read.send(());
    }
}

const PAGE: u64 = 4096;

impl Filesystem for Held {
    fn lookup(&self, _: &fuser::Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == NAME {
            reply.entry(&Duration::MAX, &attributes(FILE, PAGE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &fuser::Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::MAX, &attributes(ino, PAGE));
    }

    fn read(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.hold(Reply::Data(reply));
    }

    fn readdir(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        reply: ReplyDirectory,
    ) {
        self.hold(Reply::Entries(reply));
    }
}

/// Waits in a read of the first file, or directory, by a thread or a child, and reads
/// the second meanwhile, when told that it does. What waits has no copy of its own: reads with
/// flags are left alone.
const WAITING: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
static int held;
static void *wait_for_it(void *nothing) {
    char byte = 0, entries[4096];
    struct stat status;
    if (fstat(held, &status) == 0 && S_ISDIR(status.st_mode))
        return syscall(SYS_getdents64, held, entries, sizeof entries) == 0 ? &held : nothing;
    struct iovec into = {&byte, 1};
    return preadv2(held, &into, 1, -1, RWF_HIPRI) == 1 && byte == 7 ? &held : nothing;
}
int main(int argc, char **argv) {
    char byte;
    int fd = open(argv[2], O_RDONLY), status = 1;
    held = open(argv[1], O_RDONLY);
    if (held < 0 || fd < 0) return 9;
    int threads = strcmp(argv[3], "process") != 0;
    pthread_t thread;
    void *result = 0;
    pid_t child = 0;
    if (threads) {
        if (pthread_create(&thread, 0, wait_for_it, 0) != 0) return 8;
    } else if ((child = fork()) == 0)
        _exit(wait_for_it(0) == 0);
    if (read(0, &byte, 1) != 1) return 7;
    for (int i = 0; i < 20; i++) {
        if (pread(fd, &byte, 1, i * 4096) != 1) return 6;
        usleep(2000);
    }
    if (write(1, "done\n", 5) != 5) return 5;
    if (threads) return pthread_join(thread, &result) != 0 || result == 0;
    return waitpid(child, &status, 0) != child || status != 0;
}
"#;

/// Waits in a read of the first file by a thread, and when told that it does restricts
/// all threads to what they still need.
const RESTRICTED: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define ALLOW(name) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), \
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
static int held;
static char byte;
/* What a thread of the library's does at its end is more than it needs. */
static void *wait_for_it(void *nothing) {
    for (int i = 0; i < 20; i++)
        if (pread(held, &byte, 1, 0) != 1) syscall(SYS_exit_group, 6);
    syscall(SYS_exit_group, byte != 7);
    return nothing;
}
int main(int argc, char **argv) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(pread64), ALLOW(write), ALLOW(futex), ALLOW(pause), ALLOW(exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    pthread_t thread;
    held = open(argv[1], O_RDONLY);
    if (held < 0 || pthread_create(&thread, 0, wait_for_it, 0) != 0) return 9;
    if (read(0, &byte, 1) != 1 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 8;
    usleep(atoi(argv[2]) * 1000);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter)) return 7;
    if (write(1, "done\n", 5) != 5) return 5;
    for (;;) pause();
}
"#;

/// How long a program may take that hangs, if nobody ends that.
const HUNG: Duration = Duration::from_secs(60);

#[test]
fn nobody_is_waited_for_who_reads_another_file() {
    let bed = bed!();
    let program = compiled(&bed, WAITING);
    let (mount, data, statistics) = (bed.path("mnt"), bed.path("data"), bed.path("stats.json"));
    fs::create_dir(&mount).unwrap();
    fs::write(&data, vec![7; 20 * 4096]).unwrap();
    let file = mount.join(NAME);
    for (reader, other) in [("thread", &file), ("process", &file), ("lister", &mount)] {
        let mut command = testing(&bed, STALLS, &statistics);
        command.arg(&program).args([other, &data]).arg(reader);
        let (said, status) = held(&mount, &mut command);
        assert!(said, "by a {reader}: it waits for the reader");
        assert!(status.success(), "by a {reader}: {status}");
        assert!(copies(&statistics) > 0, "by a {reader}");
    }
}

/// Runs a command of which something waits for the file below `mount`, tells it so, and
/// has that wait end when the command has said something; whether it has, and how it
/// ended.
fn held(mount: &Path, command: &mut Command) -> (bool, ExitStatus) {
    let held = Arc::new(Mutex::new(Some(Vec::new())));
    let (read, reads) = channel();
    let server = Held { held: Arc::clone(&held), read };
    let session = Session::new(server, mount, &Config::default()).unwrap();
    let serving = session.spawn().unwrap();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    reads.recv_timeout(HUNG).unwrap();
    child.stdin.take().unwrap().write_all(b"!").unwrap();
    let (line, lines) = channel();
    let output = child.stdout.take().unwrap();
    let listening = std::thread::spawn(move || {
        let _ = line.send(BufReader::new(output).lines().next());
    });
    let said = lines.recv_timeout(HUNG);
    // Now, so that whatever hangs ends.
    held.lock().unwrap().take().unwrap().into_iter().for_each(Reply::give);
    let status = child.wait().unwrap();
    listening.join().unwrap();
    drop(serving);
    (said.is_ok_and(|said| said.is_some()), status)
}

/// Nothing is done for a thread any more that another one has restricted while it waited.
/// Later, a copy of it waits for the same page where no signal ends that: it is killed,
/// and not waited for until the server has answered.
#[test]
fn a_thread_that_waits_is_left_alone_once_it_is_restricted() {
    let bed = bed!();
    let program = compiled(&bed, RESTRICTED);
    let (mount, statistics) = (bed.path("mnt"), bed.path("stats.json"));
    fs::create_dir(&mount).unwrap();
    for after_ms in ["0", "300"] {
        for mut command in [Command::new("env"), testing(&bed, STALLS, &statistics)] {
            command.arg(&program).arg(mount.join(NAME)).arg(after_ms);
            let (said, status) = held(&mount, &mut command);
            assert!(said && status.success(), "{command:?}: {status}");
        }
    }
}

/// Files of which the kernel forgets what it has in memory when one is opened again, as it
/// does where a server does not say otherwise. Counts the bytes that it is asked for.
struct Forgetting {
    bytes: Arc<AtomicU64>,
}

const FILES: u64 = 40;
const FILE_BYTES: u64 = 512 * 1024;
/// Time for an answer.
const ANSWER: Duration = Duration::from_millis(5);

impl Filesystem for Forgetting {
    fn lookup(&self, _: &fuser::Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name.to_str().and_then(|name| name.parse::<u64>().ok()) {
            Some(number) if number < FILES => {
                let attr = forgetting(INodeNo(number + 2));
                reply.entry(&Duration::MAX, &attr, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &fuser::Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::MAX, &forgetting(ino));
    }

    fn read(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.bytes.fetch_add(u64::from(size), Relaxed);
        std::thread::spawn(move || {
            std::thread::sleep(ANSWER);
            reply.data(&vec![7; size as usize]);
        });
    }
}

fn forgetting(ino: INodeNo) -> FileAttr {
    if ino == INodeNo::ROOT {
        return FileAttr { kind: FileType::Directory, ..attributes(ino, 0) };
    }
    FileAttr { kind: FileType::RegularFile, ..attributes(ino, FILE_BYTES) }
}

#[test]
fn what_would_be_forgotten_is_read_once() {
    let bed = bed!();
    let (mount, statistics) = (bed.path("mnt"), bed.path("stats.json"));
    fs::create_dir(&mount).unwrap();
    let asked = |command: &mut Command| {
        let bytes = Arc::new(AtomicU64::new(0));
        let server = Forgetting { bytes: Arc::clone(&bytes) };
        let session = Session::new(server, &mount, &Config::default()).unwrap();
        let serving = session.spawn().unwrap();
        let files = (0..FILES).map(|number| mount.join(number.to_string()));
        ok(&command.arg("cat").args(files).output().unwrap());
        drop(serving);
        bytes.load(Relaxed)
    };
    let plain = asked(&mut Command::new("env"));
    let observed = asked(&mut testing(&bed, STALLS, &statistics));
    let copies = copies(&statistics);
    assert!(copies > 0);
    // By a trial, and of what the kernel was reading ahead then.
    assert!(
        observed < plain + 4 * FILE_BYTES,
        "{observed} bytes, plainly {plain}; {copies} copies"
    );
}

/// A directory with one file that is written once: what comes after it was closed is refused,
/// as some servers of object stores do.
struct Once {
    closes: Arc<AtomicU32>,
}

impl Filesystem for Once {
    fn lookup(&self, _: &fuser::Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == NAME {
            reply.entry(&Duration::MAX, &attributes(FILE, 0), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &fuser::Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::MAX, &attributes(ino, 0));
    }

    fn read(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        reply.data(&[]);
    }

    fn write(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if self.closes.load(Relaxed) == 0 {
            reply.written(data.len() as u32);
        } else {
            reply.error(Errno::EBADF);
        }
    }

    fn flush(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.closes.fetch_add(1, Relaxed);
        reply.ok();
    }
}

/// Writes to the first file what it reads of the second, and closes it; then reads on.
const CLOSES: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char byte;
    int to = open(argv[1], O_WRONLY), from = open(argv[2], O_RDONLY);
    if (to < 0 || from < 0) return 9;
    for (int i = 0; i < 40; i++) {
        if (pread(from, &byte, 1, i * 4096) != 1) return 8;
        usleep(1000);
        if (i < 20 && write(to, &byte, 1) != 1) return 7;
        if (i == 20 && close(to) != 0) return 6;
    }
    printf("%d\n", byte);
    return 0;
}
"#;

#[test]
fn a_file_is_closed_by_the_program_alone() {
    let bed = bed!();
    let program = compiled(&bed, CLOSES);
    let (mount, data, statistics) = (bed.path("mnt"), bed.path("data"), bed.path("stats.json"));
    fs::create_dir(&mount).unwrap();
    fs::write(&data, vec![7; 40 * 4096]).unwrap();
    let closes = Arc::new(AtomicU32::new(0));
    let server = Once { closes: Arc::clone(&closes) };
    let session = Session::new(server, &mount, &Config::default()).unwrap();
    let serving = session.spawn().unwrap();
    let run = |command: &mut Command| {
        closes.store(0, Relaxed);
        ok(&command.arg(&program).args([&mount.join(NAME), &data]).output().unwrap());
        closes.load(Relaxed)
    };
    let plain = run(&mut Command::new("env"));
    assert_eq!(plain, 1);
    let mut made = 0;
    for test in [STALLS, STALLS_UNPATCHED] {
        assert_eq!(run(&mut testing(&bed, test, &statistics)), plain, "{test}");
        let stats = report::read(&statistics);
        assert!(stats["losses"].to_string().contains("told of each close"), "{stats:#}");
        made += copies_of(&stats);
    }
    drop(serving);
    assert!(made > 0, "there are some once it is closed");
}
