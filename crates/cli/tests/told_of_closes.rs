//! A file whose server is told of each close(2) is closed by the program alone: a server may
//! end the file with that, and tells of failed writes there.

#[expect(dead_code, reason = "this test uses a part of it")]
mod bed;
mod report;

use std::ffi::OsStr;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, UNIX_EPOCH};

use bed::{RUNAHEAD, bed, ok};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyWrite, Session, WriteFlags,
};

const NAME: &str = "file";
const FILE: INodeNo = INodeNo(2);

fn attributes(ino: INodeNo) -> FileAttr {
    let kind = if ino == FILE { FileType::RegularFile } else { FileType::Directory };
    FileAttr {
        ino,
        size: 0,
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

/// A directory with one file that is written once: what comes after it was closed is refused,
/// as some servers of object stores do.
struct Once {
    closes: Arc<AtomicU32>,
}

impl Filesystem for Once {
    fn lookup(&self, _: &fuser::Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == NAME {
            reply.entry(&Duration::MAX, &attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &fuser::Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::MAX, &attributes(ino));
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
const PROGRAM: &str = r#"
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
    let (source, program) = (bed.path("program.c"), bed.path("program"));
    fs::write(&source, PROGRAM).unwrap();
    let mut gcc = Command::new("gcc");
    ok(&gcc.args(["-O1", "-o"]).args([&program, &source]).output().unwrap());
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
    let mut copies = 0;
    for test in ["8", "9"] {
        let mut runahead = Command::new(RUNAHEAD);
        runahead.env("XDG_CACHE_HOME", bed.path("cache"));
        runahead.arg(format!("--test={test}"));
        runahead.arg(format!("--stats={}", statistics.display())).arg("--");
        assert_eq!(run(&mut runahead), plain, "{test}");
        let stats = report::read(&statistics);
        assert!(stats["losses"].to_string().contains("told of each close"), "{stats:#}");
        let made = &stats["speculation"]["synchronizations"]["completed"];
        copies += made.as_u64().unwrap();
    }
    drop(serving);
    assert!(copies > 0, "there are some once it is closed");
}
