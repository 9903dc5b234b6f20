//! What stands in a buffer whose data are missing.

mod machine;

use machine::{Copy, FileSystem, TempDir, contents, identity};
use runahead_emulate::{Inherited, Kind, Start};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

const METHODS: [FileSystem; 3] = [FileSystem::NoWait, FileSystem::Cachestat, FileSystem::Foreign];

#[test]
fn what_is_no_text_becomes_blank_for_a_program_that_reads_text() {
    let dir = TempDir::new("blank");
    let path = dir.file("f", 4096);
    let text: Vec<u8> =
        b"#ifndef X\n\tint x;\n#endif\n".iter().copied().cycle().take(8192).collect();
    let freed = [&[0xe0, 0x4c, 0x90, 0xb4, 0x7f, 0, 0, 0].repeat(2), &text[16..]].concat();
    let copy_of = |fs, reads_text| {
        let mut copy = Copy::cold(fs);
        copy.emulator.start(&Start { identity: identity(), reads_text, ..Start::default() });
        copy
    };
    for fs in METHODS {
        let over = |stale: &[u8], reads_text| {
            let mut copy = copy_of(fs, reads_text);
            let fd = copy.open(&path, libc::O_RDONLY);
            copy.read_over(fd, stale.to_vec())
        };
        for stale in [&freed[..], &[0; 8192]] {
            let (result, bytes) = over(stale, true);
            assert_eq!(result, 4096, "{fs:?}");
            assert!(bytes[..4096].iter().all(|byte| *byte == b' '), "{fs:?}: all that is missing");
            assert_eq!(bytes[4096..], stale[4096..], "{fs:?}: and no more");
            assert_eq!(over(stale, false).1, stale, "{fs:?}: it reads no text");
        }
        assert_eq!(over(&text, true).1, text, "{fs:?}: a plausible record stays");
        assert_eq!(over(&[0; 63], true).1, [0; 63], "{fs:?}: too little to tell");
    }
    // Real bytes stay that lie behind what is missing, and where nothing is.
    let pages = dir.file("pages", 8192);
    for fs in [FileSystem::NoWait, FileSystem::Cachestat] {
        let mut copy = copy_of(fs, true);
        copy.machine.warm(&pages, 4096);
        let fd = copy.open(&pages, libc::O_RDONLY);
        let (_, bytes) = copy.read_over(fd, freed.clone());
        assert!(bytes[..4096].iter().all(|byte| *byte == b' '), "{fs:?}");
        assert_eq!(bytes[4096..], contents(8192)[4096..], "{fs:?}");
        copy.machine.warm(&path, 0);
        let fd = copy.open(&path, libc::O_RDONLY);
        assert_eq!(copy.read_over(fd, freed[..4096].to_vec()).1, contents(4096), "{fs:?}");
    }
    let large = dir.file("large", 1 << 20);
    let mut copy = copy_of(FileSystem::NoWait, true);
    let fd = copy.open(&large, libc::O_RDONLY);
    assert!(copy.read_over(fd, vec![0; 1 << 20]).1 == vec![0; 1 << 20], "too much to be written");
}

/// The program has closed the file before the copy came to read it: it was faster.
#[test]
fn what_the_program_has_passed_becomes_blank_as_what_is_missing_does() {
    let dir = TempDir::new("passed");
    let file = std::fs::File::open(dir.file("f", 4096)).unwrap();
    let meta = file.metadata().unwrap();
    let another = Inherited {
        kind: Kind::Regular,
        dev: meta.dev(),
        ino: meta.ino() + 1,
        offset: 0,
        size: meta.size(),
        mode: meta.mode(),
        status_flags: 0,
        cloexec: true,
    };
    for (reads_text, byte) in [(true, b' '), (false, 0)] {
        let mut copy = Copy::new();
        copy.emulator.start(&Start { identity: identity(), reads_text, ..Start::default() });
        copy.emulator.inherit(file.as_raw_fd(), another);
        let (result, bytes) = copy.read_over(file.as_raw_fd() as isize, vec![0; 8192]);
        assert_eq!(result, 4096);
        assert!(bytes[..4096].iter().all(|found| *found == byte));
        assert!(bytes[4096..].iter().all(|found| *found == 0));
        assert_eq!(copy.emulator.counters().files_lost, 1);
    }
}
