//! What a program has open is looked at for each copy, and nobody is asked about
//! it or waited for: the server of another file may be slow to answer, or have
//! died.

#[expect(dead_code, reason = "this test uses a part of it")]
mod bed;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use bed::{Bed, RUNAHEAD, bed, ok};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, Session,
};

/// A directory with one empty file, about which the kernel asks each time. Counts
/// the questions.
struct Asked(Arc<AtomicU32>);

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
            reply.entry(&Duration::ZERO, &attributes(FILE, 0), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &fuser::Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if ino == FILE {
            self.0.fetch_add(1, Relaxed);
        }
        reply.attr(&Duration::ZERO, &attributes(ino, 0));
    }
}

/// Has the first file open and reads the second.
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
    return 0;
}
"#;

fn compiled(bed: &Bed, text: &str) -> PathBuf {
    let (source, program) = (bed.path("program.c"), bed.path("program"));
    fs::write(&source, text).unwrap();
    let arguments = ["-O1", "-pthread", "-o"];
    ok(&Command::new("gcc").args(arguments).args([&program, &source]).output().unwrap());
    program
}

/// `runahead` with a stall at each read, and statistics.
fn stalling(bed: &Bed, statistics: &Path) -> Command {
    let mut runahead = Command::new(RUNAHEAD);
    runahead.env("XDG_CACHE_HOME", bed.path("cache"));
    runahead.arg("--test=8").arg(format!("--stats={}", statistics.display())).arg("--");
    runahead
}

fn copies(statistics: &Path) -> u64 {
    let text = fs::read_to_string(statistics).unwrap();
    let stats: serde_json::Value = serde_json::from_str(&text).unwrap();
    stats["speculation"]["synchronizations"]["completed"].as_u64().unwrap()
}

#[test]
fn nobody_is_asked_about_the_other_files_that_are_open() {
    let bed = bed!();
    let program = compiled(&bed, PROGRAM);
    let (mount, data, statistics) = (bed.path("mnt"), bed.path("data"), bed.path("stats.json"));
    fs::create_dir(&mount).unwrap();
    fs::write(&data, vec![7; 20 * 4096]).unwrap();
    let asked = Arc::new(AtomicU32::new(0));
    let session = Session::new(Asked(Arc::clone(&asked)), &mount, &Config::default()).unwrap();
    let serving = session.spawn().unwrap();
    let questions = |command: &mut Command| {
        let before = asked.load(Relaxed);
        ok(&command.arg(&program).args([&mount.join(NAME), &data]).output().unwrap());
        asked.load(Relaxed) - before
    };
    let plain = questions(&mut Command::new("env"));
    let observed = questions(&mut stalling(&bed, &statistics));
    drop(serving);
    let copies = copies(&statistics);
    assert!(copies > 0);
    assert_eq!(observed, plain, "{copies} copies");
}

/// An answer that is not given yet.
enum Reply {
    Data(ReplyData),
    Entries(ReplyDirectory),
}

/// The same file with a page of data. Neither a read of it nor one of its directory
/// is answered before it is told to.
struct Held {
    held: Arc<Mutex<Vec<Reply>>>,
    read: Sender<()>,
}

impl Held {
    fn hold(&self, reply: Reply) {
        self.held.lock().unwrap().push(reply);
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
        let held = Arc::new(Mutex::new(Vec::new()));
        let (read, reads) = channel();
        let server = Held { held: Arc::clone(&held), read };
        let session = Session::new(server, &mount, &Config::default()).unwrap();
        let serving = session.spawn().unwrap();
        let mut command = stalling(&bed, &statistics);
        command.arg(&program).args([other, &data]).arg(reader);
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
        for reply in held.lock().unwrap().drain(..) {
            match reply {
                Reply::Data(reply) => reply.data(&[7; PAGE as usize]),
                Reply::Entries(reply) => reply.ok(),
            }
        }
        let status = child.wait().unwrap();
        listening.join().unwrap();
        drop(serving);
        assert!(said.is_ok_and(|said| said.is_some()), "by a {reader}: it waits for the reader");
        assert!(status.success(), "by a {reader}: {status}");
        assert!(copies(&statistics) > 0, "by a {reader}");
    }
}
