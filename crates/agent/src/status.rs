//! What `/proc/PID/status` says of this process (proc(5)). Reading it is
//! what the dynamic linker has just done with other files, so no seccomp
//! filter that let the program start is offended, as it may be by prctl(2).

use crate::opening;
use crate::procfs::{self, Line};

const STATUS: &[u8] = b"/proc/self/status\0";

/// The lines that the agent looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Threads of the process.
    pub threads: u64,
    /// Process id of a tracer; 0: none.
    pub tracer: u64,
    /// Seccomp mode: 0 none, 1 strict, 2 filters.
    pub seccomp: u64,
    /// Seccomp filters (Linux 5.9); 0 where the kernel does not say.
    pub filters: u64,
    /// Huge pages of the process (hugetlb), shared ones counted, in KiB (Linux 4.4).
    pub huge_kib: u64,
    /// Signals that have a handler: a bit each, from 1 on.
    pub caught: u64,
}

impl Status {
    /// Whether there is a handler for accesses to memory that fail: SIGBUS, which says too
    /// that the storage behind it did, or SIGSEGV.
    pub fn catches_bad_accesses(&self) -> bool {
        const SIGBUS_SIGSEGV: u64 = 1 << (7 - 1) | 1 << (11 - 1);
        self.caught & SIGBUS_SIGSEGV != 0
    }
}

/// Bytes read at once where the program calls.
pub const AT_STALL: usize = 256;
/// Bytes read at once at the start: the text, mostly. The kernel writes all of
/// it anew for each read, some 6 us.
const AT_START: usize = 2048;
/// Longest line that is looked at, in bytes.
const LINE_LEN: usize = 40;

/// Reads it, so many bytes at once; `None` where /proc is not there.
pub fn read<const CHUNK_LEN: usize>() -> Option<Status> {
    opening::with(STATUS, read_from::<CHUNK_LEN>)
}

/// The same of another process, read in the descriptor table of the caller's own.
pub fn read_of(pid: usize) -> Option<Status> {
    let (mut room, mut path) = ([0u8; 20], [0u8; 64]);
    let number = procfs::digits(pid, &mut room);
    let path = procfs::path(&[b"/proc/", number, b"/status\0"], &mut path)?;
    opening::undisturbed(path, read_from::<AT_START>)
}

/// The same before anybody knows whether calls are filtered.
pub fn read_at_start() -> Option<Status> {
    opening::undisturbed(STATUS, read_from::<AT_START>)
}

fn read_from<const CHUNK_LEN: usize>(fd: i32) -> Status {
    let mut status = Status::default();
    let mut line = Line::<LINE_LEN>::EMPTY;
    let mut chunk = [0u8; CHUNK_LEN];
    opening::read_all(fd, &mut chunk, |text| {
        line.add(text, |line| status.take(line));
        // Less than there is room for: that was the end.
        text.len() == CHUNK_LEN
    });
    status
}

impl Status {
    fn take(&mut self, line: &[u8]) {
        let fields: [(&[u8], &mut u64); 5] = [
            (b"Threads:\t", &mut self.threads),
            (b"TracerPid:\t", &mut self.tracer),
            (b"Seccomp:\t", &mut self.seccomp),
            (b"Seccomp_filters:\t", &mut self.filters),
            (b"HugetlbPages:\t", &mut self.huge_kib),
        ];
        for (name, field) in fields {
            if let Some(digits) = line.strip_prefix(name) {
                // "       0 kB".
                let digits = digits.iter().filter(|byte| byte.is_ascii_digit());
                *field = digits.fold(0, |value: u64, digit| {
                    value.wrapping_mul(10).wrapping_add(u64::from(digit.wrapping_sub(b'0')))
                });
            }
        }
        if let Some(caught) = line.strip_prefix(b"SigCgt:\t").and_then(procfs::hexadecimal) {
            self.caught = caught as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_wherever_the_text_is_cut() {
        let groups = format!("Groups:\t{}", "1000 ".repeat(900));
        let text = format!(
            "Name:\tx\nTracerPid:\t12\n{groups}\nThreads:\t3\nSigCgt:\t00000001800004c8\n\
             Seccomp:\t2\nSeccomp_filters:\t17\nHugetlbPages:\t    2048 kB\n"
        );
        let expected = Status {
            threads: 3,
            tracer: 12,
            seccomp: 2,
            filters: 17,
            huge_kib: 2048,
            caught: 0x1_8000_04c8,
        };
        for cut in 0..text.len() {
            let mut status = Status::default();
            let mut line = Line::<LINE_LEN>::EMPTY;
            line.add(&text.as_bytes()[..cut], |line| status.take(line));
            line.add(&text.as_bytes()[cut..], |line| status.take(line));
            assert_eq!(status, expected, "cut at {cut}");
        }
    }

    #[test]
    fn the_real_one_is_understood() {
        let status = read::<AT_STALL>().unwrap();
        assert!(status.threads >= 1);
        let again = read_of(std::process::id() as usize).unwrap();
        assert_eq!(again.caught, status.caught);
        // The tests' own library has handlers for both.
        assert!(status.catches_bad_accesses());
        let without = |signal: u64| Status { caught: !(1 << (signal - 1)), ..status };
        assert!(without(7).catches_bad_accesses() && without(11).catches_bad_accesses());
        assert!(!Status { caught: !(1 << 6 | 1 << 10), ..status }.catches_bad_accesses());
    }
}
