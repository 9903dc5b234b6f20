//! The time that a run could take at best: max(CPU time, bytes / bandwidth,
//! reads × latency / parallelism).

use serde::{Deserialize, Serialize};

/// What the ideal assumes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Time of one small request that has to be positioned, seconds.
    pub latency_s: f64,
    /// Bytes per second of all channels together.
    pub bandwidth_bytes_per_s: f64,
    /// Requests that it serves at the same time.
    pub parallelism: f64,
}

/// What the block layer and the scheduler saw of a plain run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// CPU time of the program and its children, seconds.
    pub cpu_s: f64,
    /// That of its first thread alone, beside which all others can run, seconds;
    /// none: nothing is known to run beside anything else.
    pub first_thread_s: Option<f64>,
    /// What the run took, seconds; none: nobody asked.
    pub elapsed_s: Option<f64>,
    /// CPU time that an emulated device spent on the requests, seconds: 0 on
    /// a real one. It is taken from the same processors.
    pub device_cpu_s: f64,
    /// Read requests.
    pub reads: f64,
    /// Bytes read.
    pub bytes: f64,
    /// Time that the channels of the device were busy, summed, seconds, where
    /// the device tells: exact where continuing requests pay no positioning.
    pub busy_s: Option<f64>,
}

/// What bounds a run from below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The processor.
    Cpu,
    /// Bytes per second.
    Bandwidth,
    /// Requests, each with its latency, as many at a time as the device takes.
    Latency,
}

/// The ideal and what it is made of, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ideal {
    /// The largest of the three, summed over phases.
    pub seconds: f64,
    /// CPU time: the larger of the first thread's, and of all that the program and an
    /// emulated device need over all processors.
    pub cpu_s: f64,
    /// Bytes / bandwidth.
    pub bandwidth_s: f64,
    /// Reads × latency / parallelism.
    pub latency_s: f64,
    /// Which one is the largest.
    pub bound: Bound,
}

impl Ideal {
    /// The ideal of a demand on a device, with `cpus` processors for the
    /// program and an emulated device together.
    pub fn of(demand: &Demand, device: &Device, cpus: usize) -> Self {
        Self::in_phases(demand, device, cpus, &[1.0])
    }

    /// The same for a program whose work falls into phases that cannot
    /// overlap (the slices of `XDataSlice`: the user asks for the next one
    /// when this one is shown). `shares` are the phases' shares of the
    /// demand; they need not sum to 1.
    pub fn in_phases(demand: &Demand, device: &Device, cpus: usize, shares: &[f64]) -> Self {
        // A thread is serial; other processes need not wait for it, nor the emulated device.
        let serial_s = demand.first_thread_s.unwrap_or(demand.cpu_s);
        let cpu_s = serial_s.max((demand.cpu_s + demand.device_cpu_s) / cpus.max(1) as f64);
        // What a run did in its time can be done in that.
        let cpu_s = cpu_s.min(demand.elapsed_s.unwrap_or(f64::INFINITY));
        let bandwidth_s = demand.bytes / device.bandwidth_bytes_per_s;
        let per_read_s = match demand.busy_s {
            Some(busy_s) if demand.reads > 0.0 => busy_s / demand.reads,
            _ => device.latency_s,
        };
        let total: f64 = shares.iter().sum();
        let mut seconds = 0.0;
        let mut latency_s = 0.0;
        for share in shares.iter().map(|share| share / total) {
            let reads = demand.reads * share;
            // A phase that reads at all waits at least once.
            let rounds = if reads > 0.0 { (reads / device.parallelism).max(1.0) } else { 0.0 };
            let wait_s = rounds * per_read_s;
            latency_s += wait_s;
            seconds += (cpu_s * share).max(bandwidth_s * share).max(wait_s);
        }
        let bound = if cpu_s >= bandwidth_s && cpu_s >= latency_s {
            Bound::Cpu
        } else if bandwidth_s >= latency_s {
            Bound::Bandwidth
        } else {
            Bound::Latency
        };
        Self { seconds, cpu_s, bandwidth_s, latency_s, bound }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOUD: Device =
        Device { latency_s: 0.001, bandwidth_bytes_per_s: 6.4e9, parallelism: 32.0 };

    fn reads(reads: f64) -> Demand {
        Demand { cpu_s: 0.02, reads, bytes: reads * 4096.0, ..Demand::default() }
    }

    #[test]
    fn the_largest_of_three_bounds_it() {
        let ideal = Ideal::of(&reads(3200.0), &CLOUD, 2);
        assert!((ideal.seconds - 0.1).abs() < 1e-9, "{ideal:?}");
        assert_eq!(ideal.bound, Bound::Latency);
        let slow_cpu = Demand { cpu_s: 5.0, ..reads(3200.0) };
        assert_eq!(Ideal::of(&slow_cpu, &CLOUD, 2).bound, Bound::Cpu);
        let large = Demand { bytes: 64e9, ..reads(3200.0) };
        let ideal = Ideal::of(&large, &CLOUD, 2);
        assert_eq!((ideal.seconds, ideal.bound), (10.0, Bound::Bandwidth));
    }

    #[test]
    fn a_single_read_takes_its_whole_latency() {
        assert_eq!(Ideal::of(&reads(1.0), &CLOUD, 2).latency_s, 0.001);
        assert_eq!(Ideal::of(&reads(0.0), &CLOUD, 2).latency_s, 0.0);
    }

    #[test]
    fn busy_time_counts_instead_of_latency_where_known() {
        // 100 requests of which most continue the last one: 0.2 s in all.
        let demand = Demand { busy_s: Some(0.2), ..reads(100.0) };
        let disks = Device { latency_s: 0.012, bandwidth_bytes_per_s: 80e6, parallelism: 4.0 };
        assert!((Ideal::of(&demand, &disks, 2).latency_s - 0.05).abs() < 1e-9);
    }

    #[test]
    fn phases_cannot_overlap() {
        let demand = reads(320.0);
        let whole = Ideal::of(&demand, &CLOUD, 2);
        let shares = vec![1.0; 20];
        let phased = Ideal::in_phases(&demand, &CLOUD, 2, &shares);
        // 16 reads a phase do not fill 32 channels: one latency each.
        assert!((phased.latency_s - 0.02).abs() < 1e-9, "{phased:?}");
        assert!(phased.seconds >= whole.seconds);
        let empty = Ideal::in_phases(&demand, &CLOUD, 2, &[1.0, 0.0]);
        assert!((empty.seconds - whole.seconds).abs() < 1e-9);
    }

    #[test]
    fn an_emulated_device_shares_the_processors() {
        let demand = Demand { cpu_s: 1.0, device_cpu_s: 3.0, ..reads(1.0) };
        assert_eq!(Ideal::of(&demand, &CLOUD, 2).cpu_s, 2.0);
        assert_eq!(Ideal::of(&demand, &CLOUD, 8).cpu_s, 1.0);
    }

    #[test]
    fn processes_compute_beside_each_other() {
        let demand = Demand { cpu_s: 1.2, first_thread_s: Some(0.5), ..reads(1.0) };
        assert_eq!(Ideal::of(&demand, &CLOUD, 2).cpu_s, 0.6);
        assert_eq!(Ideal::of(&demand, &CLOUD, 8).cpu_s, 0.5);
        let quick = Demand { elapsed_s: Some(0.4), ..demand };
        assert_eq!(Ideal::of(&quick, &CLOUD, 2).cpu_s, 0.4, "longer than the run itself");
    }
}
