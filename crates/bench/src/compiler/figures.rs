//! What `bench compiler` measures, and what is derived from it.

use serde::{Deserialize, Serialize};

use crate::device_counts::Counts;
use crate::ideal::{Demand, Ideal};
use crate::neighbour::Beside;
use crate::process::ThreadTime;
use crate::results::Machine;
use crate::summary::{Ratio, quantile, sorted};

/// One run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KernelRun {
    /// Wall-clock time, seconds.
    pub elapsed_s: f64,
    /// User and system time, seconds.
    pub cpu_s: f64,
    /// System time alone, seconds.
    #[serde(default)]
    pub system_s: f64,
    /// What the program's own thread did with its time; none where the kernel
    /// does not say, or in results of before it was asked.
    #[serde(default)]
    pub first_thread: Option<ThreadTime>,
    /// Major faults.
    pub major_faults: u64,
    /// What the device did.
    pub device: Counts,
    /// Share of the memory that was free, mean over the run, 0 to 1; none where nobody
    /// looked.
    pub free: Option<f64>,
    /// What the plain program beside it saw, where there was one.
    #[serde(default)]
    pub beside: Option<Beside>,
    /// What the run-time layer counted; null where there is none.
    pub runtime: serde_json::Value,
}

impl KernelRun {
    /// Time that the processor waited for storage, seconds: elapsed minus user and
    /// system time (Figure 3(a)), those of all threads: what threads of the run-time layer
    /// compute while the program does, too, is taken off it twice.
    pub fn stall_s(&self) -> f64 {
        (self.elapsed_s - self.cpu_s).max(0.0)
    }

    /// Time that the program's own thread slept, seconds: elapsed minus its time on a
    /// processor and in the queue for one. As [`Self::stall_s`] where that is not known.
    pub fn asleep_s(&self) -> f64 {
        let awake = |thread: ThreadTime| thread.running_s + thread.queued_s;
        self.first_thread.map_or(self.stall_s(), |thread| (self.elapsed_s - awake(thread)).max(0.0))
    }

    /// The stall as a share of the elapsed time, 0 to 1: in plain runs, the ratio of
    /// compute to I/O.
    pub fn idle(&self) -> f64 {
        self.stall_s() / self.elapsed_s
    }
}

/// One kernel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KernelResult {
    /// Its name.
    pub name: String,
    /// Bytes of data.
    pub data_bytes: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Were outputs and files of all runs the same?
    pub equal: bool,
    /// Plain runs in limited memory that the kernel killed for want of it, and that were
    /// made again: all of the memory was being written.
    #[serde(default)]
    pub plain_killed: u32,
    /// Compiled as usual.
    pub plain: Vec<KernelRun>,
    /// With prefetches and releases.
    pub hinted: Vec<KernelRun>,
    /// Compiled as usual, under speculation; empty where not asked for.
    #[serde(default)]
    pub speculated: Vec<KernelRun>,
    /// With prefetches and releases, under speculation.
    #[serde(default)]
    pub both: Vec<KernelRun>,
    /// With memory for all, none of it read yet, compiled as usual.
    #[serde(default)]
    pub plain_cold: Vec<KernelRun>,
    /// The same with prefetches and releases.
    #[serde(default)]
    pub hinted_cold: Vec<KernelRun>,
    /// In memory and warm, compiled as usual.
    pub plain_warm: Vec<KernelRun>,
    /// In memory and warm, with prefetches and releases.
    pub hinted_warm: Vec<KernelRun>,
    /// The ideal of the plain run: what it read and wrote, positioned as it
    /// was, on all channels at a time.
    pub ideal: Option<Ideal>,
}

/// All kernels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KernelResults {
    /// Profile of the device.
    pub profile: String,
    /// Channels of the device, for its utilisation.
    pub channels: f64,
    /// Factor on the device's times.
    pub time_factor: f64,
    /// Cycles that every operation of the kernels took longer.
    #[serde(default)]
    pub slower_cycles: u32,
    /// Major version of LLVM.
    pub llvm: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// The kernels.
    pub kernels: Vec<KernelResult>,
}

pub(super) fn median(runs: &[KernelRun], quantity: impl Fn(&KernelRun) -> f64) -> f64 {
    let values: Vec<f64> = runs.iter().map(quantity).collect();
    quantile(&sorted(&values), 0.5).unwrap_or(f64::NAN)
}

impl KernelResult {
    /// How many times faster with prefetches.
    pub fn speedup(&self) -> f64 {
        median(&self.plain, |run| run.elapsed_s) / median(&self.hinted, |run| run.elapsed_s)
    }

    /// (plain − hinted) / (plain − ideal): the share of the time that an ideal
    /// prefetcher could remove, which asks for the same in time. Above 1 where
    /// larger requests, or fewer, need less positioning than plain's.
    pub fn removed(&self) -> f64 {
        self.removed_of(self.ideal.map_or(f64::NAN, |ideal| ideal.seconds))
    }

    /// The same where nothing had to be positioned: of what the bandwidth and
    /// the CPU leave.
    pub fn removed_at_full_rate(&self) -> f64 {
        self.removed_of(self.ideal.map_or(f64::NAN, |ideal| ideal.cpu_s.max(ideal.bandwidth_s)))
    }

    fn removed_of(&self, ideal_s: f64) -> f64 {
        let plain = median(&self.plain, |run| run.elapsed_s);
        (plain - median(&self.hinted, |run| run.elapsed_s)) / (plain - ideal_s)
    }

    /// Share of the bytes read that were prefetched (Figure 4(a)'s coverage).
    pub fn coverage(&self) -> f64 {
        const PAGE: f64 = 4096.0;
        let share =
            |run: &KernelRun| pages(run, "issued") * PAGE / run.device.bytes_read.max(1) as f64;
        median(&self.hinted, share).min(1.0)
    }

    /// Share of the prefetches inserted that the run-time layer dropped as
    /// unnecessary (Figure 4(b)).
    pub fn dropped(&self) -> f64 {
        median(&self.hinted, |run| pages(run, "filtered") / pages(run, "hinted").max(1.0))
    }

    /// Share of the time that would be left of the plain run's waiting that is
    /// gone: (stall of plain − stall of hinted) / stall of plain, where the
    /// stall is elapsed minus user and system time (Figure 3(b)).
    pub fn stall_removed(&self) -> f64 {
        self.gone(KernelRun::stall_s)
    }

    /// The same of the time that the program's own thread slept.
    pub fn sleep_removed(&self) -> f64 {
        self.gone(KernelRun::asleep_s)
    }

    fn gone(&self, quantity: fn(&KernelRun) -> f64) -> f64 {
        let plain = median(&self.plain, quantity);
        (plain - median(&self.hinted, quantity)) / plain
    }

    /// User time relative to plain.
    pub fn user(&self) -> f64 {
        let user = |run: &KernelRun| run.cpu_s - run.system_s;
        median(&self.hinted, user) / median(&self.plain, user)
    }

    /// How many times faster with memory for all, none of it read yet.
    pub fn cold(&self) -> f64 {
        median(&self.plain_cold, |run| run.elapsed_s)
            / median(&self.hinted_cold, |run| run.elapsed_s)
    }

    /// Elapsed time in memory, warm, relative to plain's of the run before or after it:
    /// the median, and where 95% of such medians lie.
    pub fn warm(&self) -> Option<Ratio> {
        let elapsed =
            |runs: &[KernelRun]| -> Vec<f64> { runs.iter().map(|run| run.elapsed_s).collect() };
        Ratio::of_pairs(&elapsed(&self.hinted_warm), &elapsed(&self.plain_warm))
    }
}

/// Mean time of a read of the plain program beside these runs, seconds.
pub(super) fn beside(runs: &[KernelRun]) -> f64 {
    median(runs, |run| run.beside.map_or(f64::NAN, |beside| beside.mean_s))
}

pub(super) fn pages(run: &KernelRun, name: &str) -> f64 {
    run.runtime["pages"][name].as_f64().unwrap_or(0.0)
}

/// What plain runs asked of the device: what they wrote too, since the disks
/// position themselves for that as well.
pub(super) fn demand(plain: &[KernelRun]) -> Demand {
    let busy_s = |run: &KernelRun| run.device.busy_ns.map_or(f64::NAN, |ns| ns as f64 / 1e9);
    let busy_s = median(plain, busy_s);
    Demand {
        cpu_s: median(plain, |run| run.cpu_s),
        elapsed_s: Some(median(plain, |run| run.elapsed_s)),
        device_cpu_s: median(plain, |run| run.device.device_cpu_ns as f64 / 1e9),
        reads: median(plain, |run| (run.device.reads + run.device.writes) as f64),
        bytes: median(plain, |run| (run.device.bytes_read + run.device.bytes_written) as f64),
        busy_s: (!busy_s.is_nan()).then_some(busy_s),
        ..Demand::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ideal::Bound;

    fn run(elapsed_s: f64, issued: u64, bytes_read: u64) -> KernelRun {
        KernelRun {
            elapsed_s,
            cpu_s: 1.0,
            device: Counts { bytes_read, ..Counts::default() },
            runtime: serde_json::json!({"pages": {"issued": issued, "hinted": 100, "filtered": 90}}),
            ..KernelRun::default()
        }
    }

    #[test]
    fn what_is_derived_from_the_runs() {
        let kernel = KernelResult {
            plain: vec![run(10.0, 0, 0); 3],
            hinted: vec![run(4.0, 3, 4 * 4096); 3],
            plain_cold: vec![run(6.0, 0, 0)],
            hinted_cold: vec![run(3.0, 0, 0)],
            plain_warm: vec![run(1.0, 0, 0)],
            hinted_warm: vec![run(1.02, 0, 0)],
            ideal: Some(Ideal {
                seconds: 2.0,
                cpu_s: 0.5,
                bandwidth_s: 1.0,
                latency_s: 2.0,
                bound: Bound::Latency,
            }),
            ..KernelResult::default()
        };
        assert_eq!(kernel.speedup(), 2.5);
        assert_eq!(kernel.removed(), 0.75);
        assert!((kernel.removed_at_full_rate() - 6.0 / 9.0).abs() < 1e-9);
        assert_eq!(kernel.coverage(), 0.75);
        assert_eq!(kernel.dropped(), 0.9);
        assert_eq!((kernel.cold(), kernel.warm().map(|ratio| ratio.value)), (2.0, Some(1.02)));
        assert_eq!((kernel.plain[0].stall_s(), kernel.plain[0].idle()), (9.0, 0.9));
        assert!((kernel.stall_removed() - 6.0 / 9.0).abs() < 1e-9);
        assert_eq!(kernel.sleep_removed(), kernel.stall_removed(), "it is not known");
        assert!(super::super::report::line(&kernel).contains("2.50×"));
    }

    #[test]
    fn what_other_threads_compute_meanwhile_is_no_less_of_a_wait() {
        let mut plain = run(10.0, 0, 0);
        plain.first_thread = Some(ThreadTime { running_s: 1.0, queued_s: 1.0 });
        let mut hinted = run(4.0, 0, 0);
        hinted.cpu_s = 3.0;
        hinted.first_thread = Some(ThreadTime { running_s: 1.5, queued_s: 0.5 });
        let kernel =
            KernelResult { plain: vec![plain], hinted: vec![hinted], ..KernelResult::default() };
        assert!((kernel.stall_removed() - 8.0 / 9.0).abs() < 1e-9);
        assert!((kernel.sleep_removed() - 6.0 / 8.0).abs() < 1e-9);
    }

    #[test]
    fn writes_are_positioned_too() {
        let mut run = run(10.0, 0, 4096);
        run.device = Counts {
            reads: 1,
            bytes_read: 4096,
            writes: 3,
            bytes_written: 3 * 4096,
            busy_ns: Some(48_000_000),
            ..Counts::default()
        };
        let demand = demand(&[run]);
        assert_eq!((demand.reads, demand.bytes), (4.0, 4.0 * 4096.0));
        assert_eq!(demand.busy_s, Some(0.048));
    }
}
