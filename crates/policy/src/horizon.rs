//! The prefetch horizon of TIP (Patterson 1997, Eq. 4.11 and 4.23): how many
//! reads ahead a prefetch must be started so that it is complete when its
//! read comes; prefetching further ahead hides nothing more.
//!
//! `P(T_app) = T_disk / (T_app + T_hit + T_driver)` (4.11). Patterson bounds
//! it system-wide by setting `T_app` and `T_driver` to 0 (4.23), for a
//! machine whose figures he had measured once. Here all are measured on the
//! program and device at hand, and the assumption of enough disks (section
//! 4.2) is replaced by a bound from below: the device's useful parallelism
//! must be filled.

/// Shallowest horizon, in reads: uneven reads need some slack.
pub const HORIZON_MIN: u64 = 32;

/// Deepest horizon, in reads: bounds the memory that a wrong prediction can
/// claim.
pub const HORIZON_MAX: u64 = 4096;

/// Unevenness of computation and of the device that the horizon covers, as a
/// factor on Eq. 4.11, which holds for mean values only.
const SLACK: u64 = 2;

/// The prefetch horizon in reads, [`HORIZON_MIN`] to [`HORIZON_MAX`].
///
/// * `disk_ns`: T_disk, the latency of a prefetch, queueing included; 0:
///   unknown, then the horizon is what fills the device.
/// * `read_ns`: T_app + T_hit + T_driver, the time from one read of the
///   program to the next where none stalls; 0: unknown, taken as 1 µs.
/// * `parallelism`: requests that the device can usefully have in flight.
pub fn horizon(disk_ns: u64, read_ns: u64, parallelism: u32) -> u64 {
    let eq_4_11 = disk_ns / if read_ns == 0 { 1_000 } else { read_ns };
    SLACK.saturating_mul(eq_4_11).clamp(fills_device(parallelism), HORIZON_MAX)
}

/// Requests ahead that keep a device busy which can usefully have
/// `parallelism` in flight, [`HORIZON_MIN`] to [`HORIZON_MAX`].
pub fn fills_device(parallelism: u32) -> u64 {
    SLACK.saturating_mul(u64::from(parallelism)).clamp(HORIZON_MIN, HORIZON_MAX)
}

/// What part of the time that a horizon has been waited at passes until the next look at
/// how far the program has come: as much lies ahead of it then as it went through in that
/// time, or more.
const WAITED_PER_PAUSE: u64 = 16;

/// Longest pause, in ns: a program may stand still for long, and then go on quickly.
const PAUSE_MAX_NS: u64 = 2_000_000;

/// Pause between two such looks after `waited_ns` of them, at least `least_ns`, both in ns.
pub fn pause_ns(least_ns: u64, waited_ns: u64) -> u64 {
    (waited_ns / WAITED_PER_PAUSE).clamp(least_ns, PAUSE_MAX_NS.max(least_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_stands_still_is_looked_at_ever_more_seldom() {
        let looks = |upto_ns: u64| {
            let (mut waited_ns, mut looks) = (0, 0);
            while waited_ns < upto_ns {
                waited_ns += pause_ns(60_000, waited_ns);
                looks += 1;
            }
            looks
        };
        assert_eq!(looks(960_000), 16, "as long as a page may take");
        assert!(looks(1_000_000_000) < 600 && looks(10_000_000_000) > 5000);
        assert_eq!(pause_ns(5_000_000, 0), 5_000_000);
    }

    #[test]
    fn reproduces_the_thesis_without_slack() {
        // Patterson's testbed: T_disk 15 ms, T_hit 206 us gives 73.
        assert_eq!(horizon(15_000_000, 206_000, 1), 2 * 72);
    }

    #[test]
    fn fills_the_device_and_keeps_its_bounds() {
        assert_eq!(horizon(1_000_000, 500_000, 64), 128);
        assert_eq!(horizon(0, 0, 0), HORIZON_MIN);
        assert_eq!(horizon(u64::MAX, 0, u32::MAX), HORIZON_MAX);
    }
}
