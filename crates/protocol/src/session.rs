//! The session: what the launcher tells the agent, in one environment
//! variable, and how the agent hands it on at `execve`.
//!
//! The text is `key=value` pairs joined by `;`, for example
//! `v=1;mode=speculate;agent=/run/user/7/runahead/agent-1f.so;sites=/run/user/7/runahead/sites-1-a0;tsc=2900`.
//! Values contain neither `;` nor NUL. Unknown keys are skipped, so that an
//! older agent can read a newer session. The agent removes the variable, and
//! its own entry at the front of `LD_PRELOAD`, from the environment that the
//! program sees, and puts both back when the program executes another one.

/// The variable that carries the session.
pub const SESSION_VARIABLE: &str = "RUNAHEAD_SESSION";

/// The variable by which a user opts a program out (`RUNAHEAD=off`).
pub const OPT_OUT_VARIABLE: &str = "RUNAHEAD";

/// Where one of these is set the dynamic linker lists what it loads, or tells a library of
/// it (ld.so(8)): the agent does not belong there.
pub const TELLING_VARIABLES: [&str; 3] = ["LD_TRACE_LOADED_OBJECTS", "LD_AUDIT", "LD_DEBUG"];

/// Version of the session text; an agent ignores a session of another one.
pub const VERSION: u32 = 1;

/// Memory that must be left below a cgroup's limit, beside what cannot be
/// reclaimed, for a copy to be made, in bytes: its tables, the log, its own pages.
/// With less, the copy could be what the OOM killer is called for.
pub const ROOM_MIN_BYTES: u64 = 8 << 20;

/// The lowest memory limit of a cgroup with which programs get the agent, in bytes. It
/// takes 150 KiB in each process, a hundredth of this, which nothing gives back: of a
/// program that just fits into its memory the kernel then ends one that it would not
/// have ended.
pub const LIMIT_MIN_BYTES: u64 = 16 << 20;
const _: () = assert!(LIMIT_MIN_BYTES >= ROOM_MIN_BYTES);

/// The lowest limit on addresses or data (`RLIMIT_AS`, `RLIMIT_DATA`) with which programs
/// get the agent, in bytes. It takes 8 MiB of both, a hundredth of this: with little
/// more than a program needs the dynamic linker could load neither the agent nor then
/// the program's own libraries, and would say so.
pub const ADDRESSES_MIN_BYTES: u64 = 1 << 30;

/// The same of a limit on the stack (`RLIMIT_STACK`), in bytes: what arguments may take
/// of the smallest.
pub const STACK_MIN_BYTES: u64 = 128 << 10;

/// Longest session text that the agent accepts, in bytes.
pub const SESSION_LEN_MAX: usize = 2048;

/// What the agent does in a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    /// Run ahead of stalls.
    #[default]
    Speculate = 1,
    /// Intercept and measure stalls, never speculate.
    Observe = 2,
    /// Do nothing at all.
    Off = 3,
}

impl Mode {
    /// The word used in the session and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Speculate => "speculate",
            Mode::Observe => "observe",
            Mode::Off => "off",
        }
    }

    /// The mode that a word names.
    pub fn from_name(name: &[u8]) -> Option<Mode> {
        match name {
            b"speculate" => Some(Mode::Speculate),
            b"observe" => Some(Mode::Observe),
            b"off" => Some(Mode::Off),
            _ => None,
        }
    }
}

/// A parsed session. Borrowed from the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session<'a> {
    /// What the agent does.
    pub mode: Mode,
    /// Path of the agent library, exactly as it stands in `LD_PRELOAD`.
    pub agent: &'a [u8],
    /// Path of the site table ([`crate::sites`]); empty: none.
    pub sites: &'a [u8],
    /// Path of the collector's statistics file ([`crate::stats`]); empty: none.
    pub stats: &'a [u8],
    /// Path of the file that reads are recorded in ([`crate::reads`]); empty:
    /// none are.
    pub reads: &'a [u8],
    /// Time-stamp counter ticks per microsecond; 0: unknown or not invariant,
    /// and the agent reads the clock instead.
    pub tsc_per_us: u64,
    /// Prefetch horizon in reads that the user asked for; 0: worked out.
    pub horizon: u64,
    /// Prefetches in flight that the user asked for; 0: worked out.
    pub depth: u64,
    /// Seccomp filters under which the launcher ran and found our calls to
    /// work, a container's (Linux 5.9); 0: none.
    pub filters: u64,
    /// Path of the table of executables ([`crate::learnt`]); empty: none.
    pub learnt: &'a [u8],
    /// Devices that have been measured ([`devices`]); empty: none.
    pub devices: &'a [u8],
    /// Testing switches, a set of the `TEST_*` bits.
    pub test: u64,
}

/// Testing: refuse to patch any site, so that tier T0 is used.
pub const TEST_REFUSE_PATCHING: u64 = 1 << 0;
/// Testing: the speculative process predicts ranges that are all wrong.
pub const TEST_ALWAYS_WRONG: u64 = 1 << 1;
/// Testing: the speculative process dies at a pseudo-random system call.
pub const TEST_DIE_AT_RANDOM: u64 = 1 << 2;
/// Testing: every read counts as a stall, and every processor as idle, so that
/// speculation is exercised on resident data and busy machines too.
pub const TEST_EVERY_READ_STALLS: u64 = 1 << 3;

/// Testing: speculate although a debugger traces the program.
pub const TEST_ALLOW_TRACER: u64 = 1 << 4;

/// Testing: every copy is an importing one where that is possible at all, and
/// small regions are left out of it, too.
pub const TEST_IMPORTING: u64 = 1 << 5;

/// Testing: every copy is a full one, the paper's basic design.
pub const TEST_FULL_COPIES: u64 = 1 << 6;

/// Testing: a copy keeps what the program has open for 200 µs before it leaves
/// the descriptor table, as one does that loses its processor just then.
pub const TEST_LEAVES_LATE: u64 = 1 << 7;

/// Testing: memory control (Fraser and Chang 2003, section 6.1) estimates and
/// reports, but stops nothing: the paper's design without it.
pub const TEST_WITHOUT_MEMORY_CONTROL: u64 = 1 << 8;

/// Testing: perf events are refused, as in containers: page faults are noticed
/// by watching.
pub const TEST_WITHOUT_PERF: u64 = 1 << 9;

/// Testing: nothing is given back behind the program.
pub const TEST_WITHOUT_RELEASE: u64 = 1 << 10;

/// Testing: the aide makes every importing copy that it can make; the program
/// waits for every second one even where the aide has not begun.
pub const TEST_HANDS_OVER: u64 = 1 << 11;

/// Testing: the table of executables is there all the same.
pub const TEST_WITH_TABLE: u64 = 1 << 12;

/// Testing: direct I/O is as endangered by copies as before Linux 6.5.
pub const TEST_LOSES_DIRECT_READS: u64 = 1 << 13;

/// Reads a session text.
///
/// Returns `None` where the version is missing or another one, or where the
/// text is longer than [`SESSION_LEN_MAX`]. Numbers that do not parse read
/// as 0.
pub fn parse(text: &[u8]) -> Option<Session<'_>> {
    if text.len() > SESSION_LEN_MAX {
        return None;
    }
    let mut session = Session::default();
    let mut version = 0;
    for pair in text.split(|&byte| byte == b';') {
        let Some(equals) = pair.iter().position(|&byte| byte == b'=') else { continue };
        let (key, value) = pair.split_at(equals);
        let value = value.get(1..).unwrap_or(&[]);
        match key {
            b"v" => version = number(value),
            b"mode" => session.mode = Mode::from_name(value)?,
            b"agent" => session.agent = value,
            b"sites" => session.sites = value,
            b"stats" => session.stats = value,
            b"reads" => session.reads = value,
            b"tsc" => session.tsc_per_us = number(value),
            b"horizon" => session.horizon = number(value),
            b"depth" => session.depth = number(value),
            b"filters" => session.filters = number(value),
            b"learnt" => session.learnt = value,
            b"devices" => session.devices = value,
            b"test" => session.test = number(value),
            _ => {}
        }
    }
    (version == u64::from(VERSION)).then_some(session)
}

/// Devices that a session names, at most.
pub const DEVICES_MAX: usize = 8;

/// A measured device: what the policies need of its profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownDevice {
    /// Device number as stat(2) gives it for files on it.
    pub dev: u64,
    /// What every switch costs besides seeking, in µs.
    pub latency_us: u64,
    /// Shortest seek, in µs.
    pub seek_shortest_us: u64,
    /// What a seek over the whole device takes more, in µs.
    pub seek_stroke_us: u64,
    /// Transfer rate at the beginning, in 1000 bytes/s.
    pub first_kb_s: u64,
    /// Transfer rate at the end, in 1000 bytes/s.
    pub last_kb_s: u64,
    /// Size in MiB.
    pub size_mib: u64,
    /// Requests served beside each other at most; 0 or 1: one after the other.
    pub parallelism: u64,
}

/// The devices of a session's text: numbers joined by `:`, in the order of
/// [`KnownDevice`], devices joined by `,`.
pub fn devices(text: &[u8]) -> impl Iterator<Item = KnownDevice> {
    let devices = text.split(|&byte| byte == b',').filter(|device| !device.is_empty());
    devices.take(DEVICES_MAX).map(|device| {
        let mut numbers = device.split(|&byte| byte == b':').map(number);
        let mut next = || numbers.next().unwrap_or(0);
        KnownDevice {
            dev: next(),
            latency_us: next(),
            seek_shortest_us: next(),
            seek_stroke_us: next(),
            first_kb_s: next(),
            last_kb_s: next(),
            size_mib: next(),
            parallelism: next(),
        }
    })
}

/// Decimal digits to a number; anything else is 0, overflow saturates.
fn number(digits: &[u8]) -> u64 {
    let mut value = 0u64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return 0;
        }
        value = value.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_launcher_writes() {
        let session =
            parse(b"v=1;mode=observe;agent=/a b/x.so;sites=/s;stats=/proc/7/fd/3;tsc=2900;new=1")
                .unwrap();
        assert_eq!(session.mode, Mode::Observe);
        assert_eq!(session.agent, b"/a b/x.so");
        assert_eq!(session.stats, b"/proc/7/fd/3");
        assert_eq!(session.tsc_per_us, 2900);
        assert_eq!(session.horizon, 0);
    }

    #[test]
    fn devices_are_listed() {
        let session =
            parse(b"v=1;mode=observe;devices=1792:3000:800:12562:61000:41000:8192:1,66:1000")
                .unwrap();
        let known: [KnownDevice; 2] = {
            let mut devices = devices(session.devices);
            [devices.next().unwrap(), devices.next().unwrap()]
        };
        assert_eq!((known[0].dev, known[0].seek_stroke_us), (1792, 12562));
        assert_eq!((known[0].size_mib, known[0].parallelism), (8192, 1));
        assert_eq!(known[1], KnownDevice { dev: 66, latency_us: 1000, ..KnownDevice::default() });
        assert_eq!(devices(b"").count(), 0);
    }

    #[test]
    fn refuses_other_versions_and_modes() {
        assert_eq!(parse(b"v=2;mode=observe"), None);
        assert_eq!(parse(b"mode=observe"), None);
        assert_eq!(parse(b"v=1;mode=maybe"), None);
        assert_eq!(parse(&[b'x'; SESSION_LEN_MAX + 1]), None);
    }

    #[test]
    fn wild_numbers_are_harmless() {
        assert_eq!(parse(b"v=1;tsc=99999999999999999999999").unwrap().tsc_per_us, u64::MAX);
        assert_eq!(parse(b"v=1;tsc=-4;depth=x").unwrap().tsc_per_us, 0);
    }
}
