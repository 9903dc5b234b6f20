//! The rate of the time-stamp counter, by which the agent measures stalls
//! without a system call. Measured once for each boot and kept in the cache
//! directory.

use std::arch::x86_64::{__cpuid, _rdtsc};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use runahead_sites::replace::replace;

/// How long the one measurement takes. The error of two clock readings, some
/// 50 ns, is then below a ten-thousandth.
const MEASUREMENT: Duration = Duration::from_millis(2);
/// Rates outside of this are mistakes, in ticks per µs.
const PLAUSIBLE: std::ops::RangeInclusive<u64> = 100..=20_000;

/// Ticks per microsecond, or 0 where they are unknown or not constant.
///
/// `directory`: where the rate may be kept; without one it is only told where
/// the processor states it.
pub fn tsc_per_us(directory: Option<&Path>) -> u64 {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let kept = directory.map(|directory| directory.join("tsc")).filter(|_| !boot.is_empty());
    if let Some(known) = kept.as_deref().and_then(|path| read_kept(path, &boot)) {
        return known;
    }
    let rate = if !is_invariant() {
        0
    } else if let Some(stated) = stated_rate() {
        stated
    } else if kept.is_some() {
        measure()
    } else {
        0
    };
    let rate = if PLAUSIBLE.contains(&rate) { rate } else { 0 };
    if let Some(path) = kept {
        let text = [boot.as_slice(), rate.to_string().as_bytes()].concat();
        // Where it cannot be kept, it is measured again.
        let _ = replace(&path, 0o600, |file| file.write_all(&text));
    }
    rate
}

/// The rate in the file if it is of this boot (boot id and newline first).
fn read_kept(path: &Path, boot: &[u8]) -> Option<u64> {
    let text = fs::read(path).ok()?;
    let rate = std::str::from_utf8(text.strip_prefix(boot)?).ok()?.parse().ok()?;
    (rate == 0 || PLAUSIBLE.contains(&rate)).then_some(rate)
}

/// Whether the counter runs at one rate in every power state (CPUID
/// 80000007H, EDX bit 8).
pub fn is_invariant() -> bool {
    __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & 1 << 8 != 0
}

/// What the processor says of itself (CPUID 15H: TSC per crystal clock, and
/// that clock's frequency in Hz). Many leave the frequency out.
fn stated_rate() -> Option<u64> {
    if __cpuid(0).eax < 0x15 {
        return None;
    }
    let leaf = __cpuid(0x15);
    if leaf.eax == 0 || leaf.ebx == 0 || leaf.ecx == 0 {
        return None;
    }
    let hz = u64::from(leaf.ecx) * u64::from(leaf.ebx) / u64::from(leaf.eax);
    Some((hz + 500_000) / 1_000_000)
}

fn measure() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    let ticks = || unsafe { _rdtsc() };
    let (start, first) = (Instant::now(), ticks());
    while start.elapsed() < MEASUREMENT {
        std::hint::spin_loop();
    }
    let (last, elapsed) = (ticks(), start.elapsed());
    let ns = elapsed.as_nanos() as u64;
    (last.wrapping_sub(first) * 1000 + ns / 2) / ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_rate_is_of_this_boot_and_plausible() {
        let path = std::env::temp_dir().join(format!("tsc-test-{}", std::process::id()));
        let keep = |text: &str| fs::write(&path, text).unwrap();
        keep("boot-1\n2900");
        assert_eq!(read_kept(&path, b"boot-1\n"), Some(2900));
        assert_eq!(read_kept(&path, b"boot-2\n"), None);
        for damaged in ["boot-1\n29000000", "boot-1\n-4", "boot-1\n", "", "boot-1\n2900\n"] {
            keep(damaged);
            assert_eq!(read_kept(&path, b"boot-1\n"), None, "{damaged:?}");
        }
        keep("boot-1\n0");
        assert_eq!(read_kept(&path, b"boot-1\n"), Some(0), "known not to be constant");
        fs::remove_file(&path).unwrap();
    }
}
