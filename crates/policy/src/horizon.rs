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

#[cfg(test)]
mod tests {
    use super::*;

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
