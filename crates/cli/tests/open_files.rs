//! What a program has open is looked at for each copy, and nobody is asked about
//! it: the server of another file may be slow to answer, or have died.

#[expect(dead_code, reason = "this test uses a part of it")]
mod bed;

use std::ffi::OsStr;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, UNIX_EPOCH};

use bed::{RUNAHEAD, bed, ok};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, ReplyAttr,
    ReplyEntry, Session,
};

/// A directory with one empty file, about which the kernel asks each time. Counts
/// the questions.
struct Asked(Arc<AtomicU32>);

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

impl Filesystem for Asked {
    fn lookup(&self, _: &fuser::Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == NAME {
            reply.entry(&Duration::ZERO, &attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &fuser::Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if ino == FILE {
            self.0.fetch_add(1, Relaxed);
        }
        reply.attr(&Duration::ZERO, &attributes(ino));
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

#[test]
fn nobody_is_asked_about_the_other_files_that_are_open() {
    let bed = bed!();
    let (source, program) = (bed.path("program.c"), bed.path("program"));
    fs::write(&source, PROGRAM).unwrap();
    ok(&Command::new("gcc").args(["-O1", "-o"]).args([&program, &source]).output().unwrap());
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
    let mut runahead = Command::new(RUNAHEAD);
    runahead.env("XDG_CACHE_HOME", bed.path("cache"));
    runahead.arg("--test=8").arg(format!("--stats={}", statistics.display())).arg("--");
    let observed = questions(&mut runahead);
    drop(serving);
    let text = fs::read_to_string(&statistics).unwrap();
    let stats: serde_json::Value = serde_json::from_str(&text).unwrap();
    let copies = &stats["speculation"]["synchronizations"]["completed"];
    assert!(copies.as_u64().is_some_and(|copies| copies > 0), "{stats:#}");
    assert_eq!(observed, plain, "{copies} copies");
}
