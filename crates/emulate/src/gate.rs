//! The real system calls that a speculative process ever makes, as the
//! agent's seccomp filter enforces them inside its gate. Whatever garbage the
//! program computes, nothing else reaches the kernel.

use crate::abi::*;
use crate::arch::nr;
use crate::memory::{ADVICE_ALLOWED, MAP_ALLOWED};

/// What an argument must be: `argument & mask == value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// Index of the argument, 0 to 5.
    pub argument: u8,
    /// Bits looked at.
    pub mask: u64,
    /// Their value.
    pub value: u64,
}

/// A call is let through where its number is that of a rule and all of the
/// rule's checks hold. Several rules with one number are alternatives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateRule {
    /// System call number.
    pub number: usize,
    /// What must hold.
    pub checks: &'static [Check],
}

/// Whether a call passes [`GATE`]: what the agent's filter decides, for
/// tests.
pub fn permits(number: usize, args: [usize; 6]) -> bool {
    let holds = |check: &Check| {
        let argument = args.get(check.argument as usize).copied().unwrap_or(0) as u64;
        argument & check.mask == check.value
    };
    GATE.iter().any(|rule| rule.number == number && rule.checks.iter().all(holds))
}

const fn any(number: usize) -> GateRule {
    GateRule { number, checks: &[] }
}

/// The only bits of an argument that may be set.
macro_rules! only {
    ($number:expr, $argument:literal, $bits:expr) => {
        GateRule {
            number: $number,
            checks: &[Check { argument: $argument, mask: !($bits as u64), value: 0 }],
        }
    };
}

/// An argument's low 32 bits, which are all that the kernel reads of an int.
macro_rules! int {
    ($number:expr, $argument:literal, $value:expr) => {
        GateRule {
            number: $number,
            checks: &[Check {
                argument: $argument,
                mask: 0xffff_ffff,
                value: $value as u64 & 0xffff_ffff,
            }],
        }
    };
}

/// Flags of `openat`: nothing that writes, creates or truncates; always
/// close-on-exec.
const OPEN_ALLOWED: usize =
    O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOATIME | O_PATH | O_DIRECTORY | O_NOFOLLOW;

/// The rules, hottest first.
pub const GATE: &[GateRule] = &[
    // Reads: at explicit offsets, plain or without waiting.
    only!(nr::PREADV2, 5, RWF_NOWAIT),
    only!(nr::OPENAT, 2, OPEN_ALLOWED),
    any(nr::FSTAT),
    any(nr::CLOSE),
    any(nr::NEWFSTATAT),
    any(nr::READAHEAD),
    any(nr::LSEEK),
    any(nr::GETDENTS64),
    any(nr::STATX),
    GateRule {
        number: nr::MMAP,
        checks: &[
            Check { argument: 3, mask: !(MAP_ALLOWED as u64), value: 0 },
            Check { argument: 3, mask: MAP_TYPE as u64, value: MAP_PRIVATE as u64 },
        ],
    },
    any(nr::MUNMAP),
    any(nr::MINCORE),
    any(nr::CACHESTAT),
    any(nr::BRK),
    any(nr::MPROTECT),
    any(nr::MREMAP),
    int!(nr::MADVISE, 2, ADVICE_ALLOWED[0]),
    int!(nr::MADVISE, 2, ADVICE_ALLOWED[1]),
    int!(nr::MADVISE, 2, ADVICE_ALLOWED[2]),
    int!(nr::MADVISE, 2, ADVICE_ALLOWED[3]),
    int!(nr::MADVISE, 2, ADVICE_ALLOWED[4]),
    int!(nr::MADVISE, 2, ADVICE_ALLOWED[5]),
    int!(nr::MADVISE, 2, ADVICE_ALLOWED[6]),
    int!(nr::MADVISE, 2, ADVICE_ALLOWED[7]),
    int!(nr::MADVISE, 2, ADVICE_ALLOWED[8]),
    int!(nr::MADVISE, 2, ADVICE_ALLOWED[9]),
    // NORMAL, RANDOM, SEQUENTIAL: of descriptions of our own.
    int!(nr::FADVISE64, 3, 0),
    int!(nr::FADVISE64, 3, 1),
    int!(nr::FADVISE64, 3, 2),
    // DONTNEED: drops clean pages.
    int!(nr::FADVISE64, 3, 4),
    // Looking.
    any(nr::GETDENTS),
    any(nr::FACCESSAT),
    any(nr::FACCESSAT2),
    any(nr::READLINKAT),
    any(nr::STATFS),
    any(nr::FSTATFS),
    any(nr::GETXATTR),
    any(nr::LGETXATTR),
    any(nr::FGETXATTR),
    any(nr::LISTXATTR),
    any(nr::LLISTXATTR),
    any(nr::FLISTXATTR),
    any(nr::GETCWD),
    // The copy has a working directory and a mask of its own.
    any(nr::CHDIR),
    any(nr::FCHDIR),
    any(nr::UMASK),
    // Looking at itself and the machine.
    any(nr::CLOCK_GETTIME),
    any(nr::CLOCK_GETRES),
    any(nr::GETTIMEOFDAY),
    any(nr::TIME),
    any(nr::TIMES),
    any(nr::UNAME),
    any(nr::SYSINFO),
    any(nr::GETRUSAGE),
    any(nr::GETRLIMIT),
    any(nr::GETRANDOM),
    any(nr::GETCPU),
    any(nr::GETUID),
    any(nr::GETEUID),
    any(nr::GETGID),
    any(nr::GETEGID),
    any(nr::GETRESUID),
    any(nr::GETRESGID),
    any(nr::GETGROUPS),
    any(nr::CAPGET),
    any(nr::SCHED_GET_PRIORITY_MAX),
    any(nr::SCHED_GET_PRIORITY_MIN),
    // Of itself only.
    int!(nr::SCHED_GETAFFINITY, 0, 0),
    // Of itself only, and without a new limit.
    GateRule {
        number: nr::PRLIMIT64,
        checks: &[
            Check { argument: 0, mask: 0xffff_ffff, value: 0 },
            Check { argument: 2, mask: !0, value: 0 },
        ],
    },
    // Without a new action.
    GateRule { number: nr::RT_SIGACTION, checks: &[Check { argument: 1, mask: !0, value: 0 }] },
    // Segment bases: ARCH_SET_GS, ARCH_SET_FS, ARCH_GET_FS, ARCH_GET_GS.
    int!(nr::ARCH_PRCTL, 0, 0x1001),
    int!(nr::ARCH_PRCTL, 0, 0x1002),
    int!(nr::ARCH_PRCTL, 0, 0x1003),
    int!(nr::ARCH_PRCTL, 0, 0x1004),
    int!(nr::PERSONALITY, 0, u32::MAX),
];
