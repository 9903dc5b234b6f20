//! How long processors have been idle: all of a large machine's, or those that this process
//! may run on (taskset(1), a container's cpuset).

use crate::opening;
use crate::procfs::{self, Line};

/// Most processors that are told apart: those of higher numbers are none of this
/// process's.
const PROCESSORS_MAX: usize = 2048;

/// Of which processors, by their numbers.
pub type Mask = [u64; PROCESSORS_MAX / 64];

/// What is looked at of one processor's line: its name and five numbers of twelve digits.
const LINE_LEN: usize = 80;

/// A handler may run on a stack that is small, and all that this needs lies on it.
const CHUNK_LEN: usize = 128;

/// Idle time of all processors since boot, in 10 ms, but for theirs in which somebody waited
/// for storage (proc_uptime(5)).
pub fn of_all_cs() -> Option<u64> {
    let mut text = [0u8; 64];
    // "5529.15 8971.02\n", both with two decimals.
    let text = procfs::read(b"/proc/uptime\0", &mut text)?.trim_ascii_end();
    let idle = text.split(|&byte| byte == b' ').nth(1)?;
    let mut parts = idle.split(|&byte| byte == b'.').map(procfs::decimal);
    let (seconds, hundredths) = (parts.next()??, parts.next()??);
    seconds.checked_mul(100)?.checked_add(hundredths)
}

/// Idle time of the processors in `mask` since boot, in 10 ms: theirs in which somebody
/// waited for storage, too (proc_stat(5); USER_HZ is 100).
#[inline(never)]
pub fn of_cs(mask: &Mask) -> Option<u64> {
    let mut sum = Sum { mask, idle_cs: 0, is_over: false };
    let mut line = Line::<LINE_LEN>::EMPTY;
    let mut chunk = [0u8; CHUNK_LEN];
    opening::with(b"/proc/stat\0", |fd| {
        opening::read_all(fd, &mut chunk, |text| {
            line.add(text, |line| sum.take(line));
            !sum.is_over
        });
    })?;
    sum.is_over.then_some(sum.idle_cs)
}

/// How many processors are online, whoever may use them (cpu(7) of sysfs); `None` where
/// that is a long list.
#[inline(never)]
pub fn online() -> Option<u32> {
    let mut text = [0u8; 64];
    let text = procfs::read(b"/sys/devices/system/cpu/online\0", &mut text)?;
    count(text.strip_suffix(b"\n")?)
}

/// Of a list such as `0-3,8`.
fn count(list: &[u8]) -> Option<u32> {
    list.split(|&byte| byte == b',').try_fold(0u32, |sum, range| {
        let mut ends = range.split(|&byte| byte == b'-').map(procfs::decimal);
        let first = ends.next()??;
        let last = ends.next().unwrap_or(Some(first))?;
        sum.checked_add(u32::try_from(last.checked_sub(first)?.checked_add(1)?).ok()?)
    })
}

struct Sum<'m> {
    mask: &'m Mask,
    idle_cs: u64,
    /// The processors' lines, which come first, have ended.
    is_over: bool,
}

impl Sum<'_> {
    fn take(&mut self, line: &[u8]) {
        if self.is_over {
            return;
        }
        let Some(line) = line.strip_prefix(b"cpu") else {
            self.is_over = true;
            return;
        };
        let mut fields = line.split(|&byte| byte == b' ');
        // The first line is the sum, and has no number.
        let number = fields.next().and_then(procfs::decimal).map(|number| number as usize);
        let of_mask = |number: usize| self.mask.get(number / 64).map(|word| word >> (number % 64));
        if number.and_then(of_mask).is_none_or(|word| word & 1 == 0) {
            return;
        }
        // user, nice, system; idle, iowait.
        let idle_cs: u64 = fields.skip(3).take(2).filter_map(procfs::decimal).sum();
        self.idle_cs = self.idle_cs.wrapping_add(idle_cs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_processs_processors_count() {
        let text = b"cpu  99 9 9 999 99 0 0 0 0 0\ncpu0 1 1 1 10 2 0 0 0 0 0\n\
                     cpu1 1 1 1 300 40 0 0 0 0 0\ncpu65 1 1 1 5000 600 7 7 7 7 7\n\
                     intr 5 cpu0 1 1 1 7 7\ncpu0 1 1 1 70000 7\n";
        let mut mask = [0; PROCESSORS_MAX / 64];
        mask[0] = 0b10;
        mask[1] = 0b10;
        for cut in 0..text.len() {
            let mut sum = Sum { mask: &mask, idle_cs: 0, is_over: false };
            let mut line = Line::<LINE_LEN>::EMPTY;
            line.add(&text[..cut], |line| sum.take(line));
            line.add(&text[cut..], |line| sum.take(line));
            assert!(sum.is_over);
            assert_eq!(sum.idle_cs, 340 + 5600, "cut at {cut}");
        }
    }

    #[test]
    fn the_machines_own_is_understood() {
        let all = [u64::MAX; PROCESSORS_MAX / 64];
        let (sum, total) = (of_cs(&all).unwrap(), of_all_cs().unwrap());
        assert!(sum > 0 && total > 0);
        assert_eq!(of_cs(&[0; PROCESSORS_MAX / 64]), Some(0));
        assert!(online().is_some_and(|count| count > 0));
    }

    #[test]
    fn lists_are_counted() {
        let counts =
            ["0", "0-3", "0-3,8", "2,4-5,7", "", "3-1", "x"].map(|list| count(list.as_bytes()));
        assert_eq!(counts, [Some(1), Some(4), Some(5), Some(4), None, None, None]);
    }
}
