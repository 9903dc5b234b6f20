//! The same sequence of system calls, once for real and once emulated, each
//! in a directory of its own: results, errors and descriptor numbers must be
//! the same where everything is resident.

mod machine;

use machine::{Copy, TempDir, raw};
use proptest::prelude::*;
use runahead_emulate::{Outcome, arch::nr};
use std::ffi::CString;
use std::path::Path;

/// Paths that a sequence may name, relative to its directory. The first is a
/// link: the shadow of names does not know its target, so it is left out
/// where there are writes.
const PATHS: [&str; 14] =
    ["link", "a", "d", "d/x", "n", "d/n", "e", "d/../a", "./big", "n/x", "a/x", "", "d/", "m"];

/// Those that may be written, created, removed and renamed: no links, whose
/// targets the shadow of names does not know.
const WRITABLE: [&str; 7] = ["a", "d/x", "n", "d/n", "d/../a", "m", "e/f"];

#[derive(Clone, Debug)]
enum Op {
    Open(usize, i32),
    OpenAt(usize, usize, i32),
    Create(usize, i32),
    Close(usize),
    CloseRange(usize, usize),
    Read(usize, usize),
    Pread(usize, usize, i64),
    ReadVector(usize, usize, usize),
    Write(usize, usize),
    Pwrite(usize, usize, i64),
    Lseek(usize, i64, usize),
    Dup(usize),
    Dup2(usize, usize),
    Dup3(usize, usize, i32),
    DupFrom(usize, usize),
    GetFd(usize),
    SetFd(usize, usize),
    GetFl(usize),
    Fstat(usize),
    FstatAt(usize),
    Stat(usize),
    Lstat(usize),
    StatAt(usize, usize),
    Access(usize),
    ReadLink(usize),
    Pipe,
    Sendfile(usize, usize, usize),
    Splice(usize, usize, usize, usize),
    Ftruncate(usize, i64),
    Mkdir(usize),
    Unlink(usize),
    Rename(usize, usize),
    SigProcMask(usize, u64),
    SigAltStack(u64),
    Flock(usize),
    Fsync(usize),
    Fadvise(usize, usize),
    Tty(usize),
}

/// What a call answered, as far as it must be the same.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Result(isize, Vec<u8>),
    Parked,
}

/// Either side of the comparison.
trait Side {
    fn call(&mut self, number: usize, args: &[usize]) -> Option<isize>;
    fn own(&mut self, memory: &mut [u8]) -> usize;
}

struct Real;

impl Side for Real {
    fn call(&mut self, number: usize, args: &[usize]) -> Option<isize> {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        Some(raw(number, all))
    }

    fn own(&mut self, memory: &mut [u8]) -> usize {
        memory.as_mut_ptr().expose_provenance()
    }
}

impl Side for Copy {
    fn call(&mut self, number: usize, args: &[usize]) -> Option<isize> {
        match self.outcome(number, args) {
            Outcome::Return(result) => Some(result),
            Outcome::Park(_) => None,
        }
    }

    fn own(&mut self, memory: &mut [u8]) -> usize {
        self.machine.own(memory)
    }
}

fn text(side: &mut dyn Side, path: &str) -> usize {
    let bytes: &'static mut [u8] = CString::new(path).unwrap().into_bytes_with_nul().leak();
    side.own(bytes)
}

/// Calls with a buffer, whose `compared` first bytes are part of the answer
/// where the call succeeds (or as many as it returned).
fn with_buffer(
    side: &mut dyn Side,
    len: usize,
    keep: impl Fn(isize, &[u8]) -> Vec<u8>,
    call: impl Fn(&mut dyn Side, usize) -> Option<isize>,
) -> Seen {
    let mut buffer = vec![0u8; len.max(1)];
    let address = side.own(&mut buffer);
    match call(side, address) {
        Some(result) => Seen::Result(result, keep(result, &buffer)),
        None => Seen::Parked,
    }
}

fn plain(result: Option<isize>) -> Seen {
    result.map_or(Seen::Parked, |result| Seen::Result(result, Vec::new()))
}

/// Type of the file, and the size of regular files.
fn stat_parts(result: isize, bytes: &[u8]) -> Vec<u8> {
    if result != 0 {
        return Vec::new();
    }
    let format = bytes[25] & 0xf0;
    let mut parts = vec![format];
    if format == 0x80 {
        parts.extend_from_slice(&bytes[48..56]);
    }
    parts
}

fn received(result: isize, bytes: &[u8]) -> Vec<u8> {
    bytes[..result.max(0) as usize].to_vec()
}

const CWD: usize = libc::AT_FDCWD as usize;

fn perform(side: &mut dyn Side, op: &Op) -> Seen {
    match *op {
        Op::Open(path, flags) => {
            let path = text(side, PATHS[path]);
            plain(side.call(nr::OPENAT, &[CWD, path, flags as usize, 0o644]))
        }
        Op::OpenAt(fd, path, flags) => {
            let path = text(side, PATHS[path]);
            plain(side.call(nr::OPENAT, &[fd, path, flags as usize, 0o644]))
        }
        Op::Create(path, flags) => {
            let path = text(side, WRITABLE[path]);
            plain(side.call(nr::OPEN, &[path, flags as usize, 0o644]))
        }
        Op::Close(fd) => plain(side.call(nr::CLOSE, &[fd])),
        Op::CloseRange(from, to) => plain(side.call(nr::CLOSE_RANGE, &[from, to, 0])),
        Op::Read(fd, len) => {
            with_buffer(side, len, received, |side, at| side.call(nr::READ, &[fd, at, len]))
        }
        Op::Pread(fd, len, offset) => with_buffer(side, len, received, |side, at| {
            side.call(nr::PREAD64, &[fd, at, len, offset as usize])
        }),
        Op::ReadVector(fd, one, two) => with_buffer(side, one + two, received, |side, at| {
            let vector = [[at, one], [at + one, two]].concat();
            let mut bytes: Vec<u8> = vector.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let vector = side.own(&mut bytes);
            side.call(nr::READV, &[fd, vector, 2])
        }),
        Op::Write(fd, len) => with_buffer(
            side,
            len,
            |_, _| Vec::new(),
            |side, at| side.call(nr::WRITE, &[fd, at, len]),
        ),
        Op::Pwrite(fd, len, offset) => with_buffer(
            side,
            len,
            |_, _| Vec::new(),
            |side, at| side.call(nr::PWRITE64, &[fd, at, len, offset as usize]),
        ),
        Op::Lseek(fd, offset, whence) => {
            // The largest offset is the file system's own affair.
            plain(side.call(nr::LSEEK, &[fd, offset.min(1 << 40) as usize, whence]))
        }
        Op::Dup(fd) => plain(side.call(nr::DUP, &[fd])),
        Op::Dup2(old, new) => plain(side.call(nr::DUP2, &[old, new])),
        Op::Dup3(old, new, flags) => plain(side.call(nr::DUP3, &[old, new, flags as usize])),
        Op::DupFrom(fd, from) => plain(side.call(nr::FCNTL, &[fd, 0, from])),
        Op::GetFd(fd) => plain(side.call(nr::FCNTL, &[fd, 1])),
        Op::SetFd(fd, flag) => plain(side.call(nr::FCNTL, &[fd, 2, flag])),
        Op::GetFl(fd) => plain(side.call(nr::FCNTL, &[fd, 3])),
        Op::Fstat(fd) => {
            with_buffer(side, 144, stat_parts, |side, at| side.call(nr::FSTAT, &[fd, at]))
        }
        Op::FstatAt(fd) => {
            let empty = text(side, "");
            with_buffer(side, 144, stat_parts, |side, at| {
                side.call(nr::NEWFSTATAT, &[fd, empty, at, libc::AT_EMPTY_PATH as usize])
            })
        }
        Op::Stat(path) => {
            let path = text(side, PATHS[path]);
            with_buffer(side, 144, stat_parts, |side, at| side.call(nr::STAT, &[path, at]))
        }
        Op::Lstat(path) => {
            let path = text(side, PATHS[path]);
            with_buffer(side, 144, stat_parts, |side, at| side.call(nr::LSTAT, &[path, at]))
        }
        Op::StatAt(fd, path) => {
            let path = text(side, PATHS[path]);
            with_buffer(side, 144, stat_parts, |side, at| {
                side.call(nr::NEWFSTATAT, &[fd, path, at, 0])
            })
        }
        Op::Access(path) => {
            let path = text(side, PATHS[path]);
            plain(side.call(nr::ACCESS, &[path, 0]))
        }
        Op::ReadLink(path) => {
            let path = text(side, PATHS[path]);
            with_buffer(side, 64, received, |side, at| side.call(nr::READLINK, &[path, at, 64]))
        }
        Op::Pipe => with_buffer(
            side,
            8,
            |_, bytes| bytes.to_vec(),
            |side, at| side.call(nr::PIPE2, &[at, libc::O_CLOEXEC as usize]),
        ),
        Op::Sendfile(out, input, len) => plain(side.call(nr::SENDFILE, &[out, input, 0, len])),
        // It would wait for whoever fills or drains a pipe.
        Op::Splice(input, out, len, flags) => {
            plain(side.call(
                nr::SPLICE,
                &[input, 0, out, 0, len, flags | libc::SPLICE_F_NONBLOCK as usize],
            ))
        }
        Op::Ftruncate(fd, len) => plain(side.call(nr::FTRUNCATE, &[fd, len as usize])),
        Op::Mkdir(path) => {
            let path = text(side, WRITABLE[path]);
            plain(side.call(nr::MKDIR, &[path, 0o755]))
        }
        Op::Unlink(path) => {
            let path = text(side, WRITABLE[path]);
            plain(side.call(nr::UNLINK, &[path]))
        }
        Op::Rename(from, to) => {
            let (from, to) = (text(side, WRITABLE[from]), text(side, WRITABLE[to]));
            plain(side.call(nr::RENAME, &[from, to]))
        }
        Op::SigProcMask(how, set) => {
            let mut bytes = set.to_ne_bytes();
            let set = side.own(&mut bytes);
            with_buffer(
                side,
                8,
                |_, bytes| bytes.to_vec(),
                |side, at| side.call(nr::RT_SIGPROCMASK, &[how, set, at, 8]),
            )
        }
        Op::SigAltStack(size) => {
            let mut bytes = [0x10000u64, 0, size].map(u64::to_ne_bytes).concat();
            let stack = side.own(&mut bytes);
            plain(side.call(nr::SIGALTSTACK, &[stack, 0]))
        }
        Op::Flock(fd) => plain(side.call(nr::FLOCK, &[fd, 1])),
        Op::Fsync(fd) => plain(side.call(nr::FSYNC, &[fd])),
        Op::Fadvise(fd, advice) => plain(side.call(nr::FADVISE64, &[fd, 0, 0, advice])),
        Op::Tty(fd) => with_buffer(
            side,
            64,
            |_, _| Vec::new(),
            |side, at| side.call(nr::IOCTL, &[fd, 0x5401, at]),
        ),
    }
}

/// A directory with the files that [`PATHS`] names.
fn prepare(name: &str) -> TempDir {
    let dir = TempDir::new(name);
    std::fs::create_dir(dir.0.join("d")).unwrap();
    std::fs::create_dir(dir.0.join("e")).unwrap();
    dir.file("a", 10_000);
    dir.file("d/x", 5_000);
    dir.file("big", 200_000);
    std::os::unix::fs::symlink("a", dir.0.join("link")).unwrap();
    dir
}

/// Runs in a thread with a working directory and an empty descriptor table
/// of its own.
fn isolated<T: Send>(dir: &Path, run: impl FnOnce() -> T + Send) -> T {
    let dir = CString::new(dir.to_str().unwrap()).unwrap();
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            // SAFETY: concerns this thread alone from here on.
            unsafe {
                assert_eq!(libc::unshare(libc::CLONE_FILES | libc::CLONE_FS), 0);
                assert_eq!(libc::chdir(dir.as_ptr()), 0);
                assert_eq!(libc::close_range(0, u32::MAX, 0), 0);
            }
            run()
        });
        worker.join().unwrap()
    })
}

fn run_real(ops: &[Op]) -> Vec<Seen> {
    let dir = prepare("real");
    isolated(&dir.0, || ops.iter().map(|op| perform(&mut Real, op)).collect())
}

fn run_emulated(ops: &[Op]) -> Vec<Seen> {
    let dir = prepare("emulated");
    let before = tree(&dir.0);
    let seen = isolated(&dir.0, || {
        let mut copy = Copy::new();
        let mut seen = Vec::new();
        for op in ops {
            seen.push(perform(&mut copy, op));
            if seen.last() == Some(&Seen::Parked) {
                break;
            }
        }
        seen
    });
    assert_eq!(tree(&dir.0), before, "the emulated side changed a file");
    seen
}

/// The real side makes only the calls that the emulated side could answer:
/// others may wait for ever.
fn run_both(ops: &[Op]) -> (Vec<Seen>, Vec<Seen>) {
    let emulated = run_emulated(ops);
    let answered = emulated.iter().take_while(|seen| **seen != Seen::Parked).count();
    (run_real(&ops[..answered]), emulated)
}

/// Every name with its contents.
fn tree(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(tree(&path));
            all.push((path.display().to_string(), Vec::new()));
        } else {
            all.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
    all.sort();
    all
}

const FDS: usize = 8;

fn offset() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(0),
        Just(-1),
        0..12_000i64,
        190_000..210_000i64,
        Just(i64::MAX),
        Just(i64::MIN),
        -5000..0i64
    ]
}

fn reading(paths: std::ops::Range<usize>) -> impl Strategy<Value = Op> {
    let fd = 0..FDS;
    let path = paths;
    let flags = prop::sample::select(vec![
        libc::O_RDONLY,
        libc::O_RDONLY | libc::O_CLOEXEC,
        libc::O_RDONLY | libc::O_NOFOLLOW,
        libc::O_RDONLY | libc::O_DIRECTORY,
        libc::O_RDONLY | libc::O_NONBLOCK,
        libc::O_PATH,
        libc::O_PATH | libc::O_NOFOLLOW,
    ]);
    let len = prop_oneof![Just(0usize), 1..100usize, 4000..5000usize, 10_000..70_000usize];
    prop_oneof![
        4 => (path.clone(), flags.clone()).prop_map(|(path, flags)| Op::Open(path, flags)),
        2 => (fd.clone(), path.clone(), flags)
            .prop_map(|(fd, path, flags)| Op::OpenAt(fd, path, flags)),
        2 => fd.clone().prop_map(Op::Close),
        1 => (fd.clone(), fd.clone()).prop_map(|(from, to)| Op::CloseRange(from, to)),
        5 => (fd.clone(), len.clone()).prop_map(|(fd, len)| Op::Read(fd, len)),
        3 => (fd.clone(), len.clone(), offset()).prop_map(|(fd, len, at)| Op::Pread(fd, len, at)),
        1 => (fd.clone(), len.clone(), len.clone())
            .prop_map(|(fd, one, two)| Op::ReadVector(fd, one, two)),
        3 => (fd.clone(), offset(), 0..6usize)
            .prop_map(|(fd, at, whence)| Op::Lseek(fd, at, whence)),
        1 => fd.clone().prop_map(Op::Dup),
        1 => (fd.clone(), fd.clone()).prop_map(|(old, new)| Op::Dup2(old, new)),
        1 => (fd.clone(), fd.clone(), prop::sample::select(vec![0, libc::O_CLOEXEC, 1]))
            .prop_map(|(old, new, flags)| Op::Dup3(old, new, flags)),
        1 => (fd.clone(), fd.clone()).prop_map(|(fd, from)| Op::DupFrom(fd, from)),
        1 => fd.clone().prop_map(Op::GetFd),
        1 => (fd.clone(), 0..2usize).prop_map(|(fd, flag)| Op::SetFd(fd, flag)),
        1 => fd.clone().prop_map(Op::GetFl),
        1 => fd.clone().prop_map(Op::Fstat),
        1 => fd.clone().prop_map(Op::FstatAt),
        1 => path.clone().prop_map(Op::Stat),
        1 => path.clone().prop_map(Op::Lstat),
        1 => (fd.clone(), path.clone()).prop_map(|(fd, path)| Op::StatAt(fd, path)),
        1 => path.clone().prop_map(Op::Access),
        1 => path.prop_map(Op::ReadLink),
        1 => (0..4usize, any::<u64>()).prop_map(|(how, set)| Op::SigProcMask(how, set)),
        1 => (0..10_000u64).prop_map(Op::SigAltStack),
        1 => fd.clone().prop_map(Op::Flock),
        1 => fd.clone().prop_map(Op::Fsync),
        1 => (fd.clone(), 0..7usize).prop_map(|(fd, advice)| Op::Fadvise(fd, advice)),
        1 => fd.prop_map(Op::Tty),
    ]
}

fn writing() -> impl Strategy<Value = Op> {
    let fd = 0..FDS;
    let path = 0..WRITABLE.len();
    let flags = prop::sample::select(vec![
        libc::O_WRONLY | libc::O_CREAT,
        libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC,
        libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC,
        libc::O_RDWR | libc::O_CREAT,
        libc::O_RDWR,
        libc::O_WRONLY | libc::O_APPEND,
    ]);
    prop_oneof![
        4 => (path.clone(), flags).prop_map(|(path, flags)| Op::Create(path, flags)),
        3 => (fd.clone(), 0..5000usize).prop_map(|(fd, len)| Op::Write(fd, len)),
        1 => (fd.clone(), 0..5000usize, offset())
            .prop_map(|(fd, len, at)| Op::Pwrite(fd, len, at.min(100_000))),
        1 => (fd.clone(), fd.clone(), 0..20_000usize)
            .prop_map(|(out, input, len)| Op::Sendfile(out, input, len)),
        3 => (fd.clone(), fd.clone(), 0..90_000usize, 0..0x12usize)
            .prop_map(|(input, out, len, flags)| Op::Splice(input, out, len, flags)),
        1 => (fd, 0..20_000i64).prop_map(|(fd, len)| Op::Ftruncate(fd, len)),
        1 => path.clone().prop_map(Op::Mkdir),
        2 => path.clone().prop_map(Op::Unlink),
        2 => (path.clone(), path).prop_map(|(from, to)| Op::Rename(from, to)),
    ]
}

/// What is done with the big file (0), a pipe (1 and 2) and an empty file (3, and 4
/// for appending).
fn splicing() -> impl Strategy<Value = Op> {
    let len = prop_oneof![3 => 0..20_000usize, 1 => 0..90_000usize];
    let flags = prop_oneof![9 => Just(0), 1 => 0..0x12usize];
    prop_oneof![
        8 => (len.clone(), flags.clone()).prop_map(|(len, flags)| Op::Splice(0, 2, len, flags)),
        8 => (len, flags).prop_map(|(len, flags)| Op::Splice(1, 3, len, flags)),
        1 => (0..5usize, 0..5usize).prop_map(|(input, out)| Op::Splice(input, out, 100, 0)),
        1 => (1..3000usize).prop_map(|len| Op::Write(2, len)),
        1 => (0..500_000i64).prop_map(|at| Op::Lseek(0, at, 0)),
        2 => (0..5usize).prop_map(|fd| Op::Lseek(fd, 0, 1)),
        1 => Just(Op::Fstat(3)),
    ]
}

/// Cases per property: bounded, and set to more by `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 96 };
    // The same cases in every run, so that a change is judged by what it
    // changes; PROPTEST_RNG_SEED and PROPTEST_CASES look further.
    let rng_seed = match std::env::var_os("PROPTEST_RNG_SEED") {
        Some(_) => default.rng_seed,
        None => proptest::test_runner::RngSeed::Fixed(2003),
    };
    ProptestConfig { failure_persistence: None, cases, rng_seed, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn reading_sequences_answer_as_the_kernel_does(
        ops in prop::collection::vec(
            prop_oneof![30 => reading(0..PATHS.len()), 1 => Just(Op::Pipe)], 1..40)
    ) {
        let (real, emulated) = run_both(&ops);
        for (index, (real, emulated)) in real.iter().zip(&emulated).enumerate() {
            if *emulated == Seen::Parked {
                break;
            }
            prop_assert_eq!(real, emulated, "call {} of {:?}", index, ops);
        }
    }

    /// From files into a pipe, and from there into another file.
    #[test]
    fn pieces_go_through_pipes_as_the_kernel_moves_them(
        steps in prop::collection::vec(splicing(), 1..40)
    ) {
        let big = PATHS.iter().position(|path| *path == "./big").unwrap();
        let mut ops = vec![
            Op::Open(big, libc::O_RDONLY),
            Op::Pipe,
            Op::Create(2, libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC),
            Op::Create(2, libc::O_WRONLY | libc::O_APPEND),
        ];
        ops.extend(steps);
        let (real, emulated) = run_both(&ops);
        prop_assert_eq!(&real[..], &emulated[..real.len()], "{:?}", ops);
    }

    /// Pipes are left out: they fill up, and end with their other side.
    ///
    /// With writes among them, sizes and contents of files that were written
    /// through another descriptor or name may differ; descriptor numbers and
    /// errors may not.
    #[test]
    fn writing_sequences_fail_and_succeed_as_the_kernel_does(
        ops in prop::collection::vec(prop_oneof![writing(), reading(1..PATHS.len())], 1..40)
    ) {
        let (real, emulated) = run_both(&ops);
        for (index, (real, emulated)) in real.iter().zip(&emulated).enumerate() {
            let (Seen::Result(real, _), Seen::Result(emulated, _)) = (real, emulated) else { break };
            let gives_descriptor = matches!(
                ops[index],
                Op::Open(..) | Op::OpenAt(..) | Op::Create(..) | Op::Dup(..) | Op::DupFrom(..)
            );
            // Whether there is data at an offset is a matter of size.
            let of_size = matches!(ops[index], Op::Lseek(_, _, 3 | 4));
            let agree = if of_size {
                true
            } else if gives_descriptor || *real < 0 || *emulated < 0 {
                real == emulated
            } else {
                true
            };
            prop_assert!(agree, "call {index}, {real} for real, {emulated}: {:?}", &ops[..=index]);
        }
    }
}
