//! The table and the gate, read as documents.

use runahead_emulate::table::{TABLE, Verdict};
use runahead_emulate::{abi, arch::nr, gate};

#[test]
fn every_row_says_why_and_no_number_comes_twice() {
    for (index, row) in TABLE.iter().enumerate() {
        assert!(row.why.len() > 3, "{} has no reason", row.name);
        let earlier = TABLE[..index].iter().find(|earlier| earlier.number == row.number);
        assert!(earlier.is_none(), "{} comes twice", row.name);
    }
}

#[test]
fn what_is_allowed_passes_the_gate() {
    for row in TABLE {
        if matches!(row.verdict, Verdict::Allow | Verdict::Fill(..)) {
            assert!(gate::permits(row.number, [0; 6]), "{} is allowed and gated", row.name);
        }
    }
}

#[test]
fn nothing_that_acts_passes_the_gate() {
    let openat = |flags| gate::permits(nr::OPENAT, [0, 0, flags, 0, 0, 0]);
    assert!(openat(abi::O_CLOEXEC | abi::O_NOATIME | abi::O_NONBLOCK));
    for flag in [abi::O_WRONLY, abi::O_RDWR, abi::O_CREAT, abi::O_TRUNC, abi::O_TMPFILE_BIT] {
        assert!(!openat(flag), "{flag:o}");
    }
    let mmap = |flags| gate::permits(nr::MMAP, [0, 0, 0, flags, 0, 0]);
    assert!(mmap(abi::MAP_PRIVATE | abi::MAP_FIXED));
    assert!(!mmap(abi::MAP_SHARED) && !mmap(abi::MAP_SHARED_VALIDATE) && !mmap(0));
    assert!(!mmap(abi::MAP_PRIVATE | abi::MAP_HUGETLB));
    let madvise = |advice| gate::permits(nr::MADVISE, [0, 0, advice, 0, 0, 0]);
    const MADV_REMOVE: usize = 9;
    const MADV_PAGEOUT: usize = 21;
    assert!(madvise(3) && !madvise(MADV_REMOVE) && !madvise(MADV_PAGEOUT));
    assert!(!gate::permits(nr::RT_SIGACTION, [1, 1, 0, 8, 0, 0]));
    assert!(!gate::permits(nr::PRLIMIT64, [0, 1, 1, 0, 0, 0]));
    for number in [
        nr::WRITE,
        nr::PWRITE64,
        nr::READ,
        nr::SENDTO,
        nr::KILL,
        nr::TGKILL,
        nr::UNLINKAT,
        nr::RENAMEAT2,
        nr::MKDIRAT,
        nr::CLONE,
        nr::EXECVE,
        nr::PTRACE,
        nr::IO_URING_ENTER,
        nr::FTRUNCATE,
        nr::FLOCK,
        nr::FCNTL,
        nr::IOCTL,
        nr::OPENAT2,
    ] {
        assert!(!gate::permits(number, [0; 6]), "{number}");
    }
}
