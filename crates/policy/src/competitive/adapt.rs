//! Whether the depth pays on the device as it is now.
//!
//! The model's switch is that of a device with nothing but one stream to
//! serve at a time. A device or a scheduler that sorts its queue makes
//! switches cheap where many streams wait, and then half of the depth, or the
//! kernel's own readahead, is as good or better. So the depth is tried: the
//! program's throughput is compared over short epochs under each [`Arm`], and
//! the best is kept and asked again, at intervals that double as long as it
//! wins.

/// How deep to prefetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Arm {
    /// The competitive depth.
    #[default]
    Full,
    /// Half of it.
    Half,
    /// The kernel's readahead alone.
    Kernel,
}

/// Stalls of an epoch that are compared.
const EPOCH_STALLS: u32 = 48;

/// Stalls, at least, for which an arm is in force before it is measured: what
/// the last one had prefetched is used up by then.
const SETTLE_STALLS: u32 = 16;

/// Epochs between two trials of other arms, at least and at most.
const INTERVAL_MIN: u32 = 8;
const INTERVAL_MAX: u32 = 64;

/// How much better than the best another arm must be, in 1/16.
const BETTER_16: u64 = 17;

/// The choice. All-zero is a valid start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adapt {
    best: Arm,
    /// Whether `trial` is being tried instead.
    trying: bool,
    trial: Arm,
    /// Whether its last epoch was better than the best arm's: the streams of
    /// one epoch are few and differ in length, so another one must confirm it.
    won: bool,
    /// The arm that was tried last.
    last_trial: Arm,
    /// Throughput of each arm as last smoothed, in bytes/s; 0: not tried.
    bytes_per_s: [u64; 3],
    /// Epochs until the next trial.
    wait: u32,
    /// Epochs between trials.
    interval: u32,
    /// Stalls left of settling or measuring.
    left: u32,
    /// Settled: the epoch is being measured since then, from this count.
    measured: bool,
    since_ns: u64,
    since_bytes: u64,
}

impl Adapt {
    /// Nothing tried: the competitive depth.
    pub const NEW: Adapt = Adapt {
        best: Arm::Full,
        trying: false,
        trial: Arm::Full,
        won: false,
        last_trial: Arm::Full,
        bytes_per_s: [0; 3],
        wait: 0,
        interval: 0,
        left: 0,
        measured: false,
        since_ns: 0,
        since_bytes: 0,
    };

    /// The device has not been measured: what is taken for the wait of a
    /// switch may be what every read of it takes, and then the kernel's two
    /// windows in flight are better than runs one after the other. So the
    /// kernel's readahead is in force until a trial, late as a lost one is
    /// dear, has shown the depth to be better.
    pub fn doubt(&mut self) {
        if self.bytes_per_s == [0; 3] {
            (self.best, self.last_trial) = (Arm::Kernel, Arm::Kernel);
            (self.interval, self.wait) = (INTERVAL_MAX, INTERVAL_MAX);
        }
    }

    /// The arm in force.
    pub fn arm(&self) -> Arm {
        if self.trying { self.trial } else { self.best }
    }

    /// A stall that asked for a new run or window; true when
    /// [`Adapt::account`] wants to know how far the streams have come.
    pub fn stalled(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// When [`Adapt::stalled`] said so: streams have come `bytes` further
    /// since the process began, and it is `now_ns`. `streams`: streams being
    /// read.
    pub fn account(&mut self, now_ns: u64, bytes: u64, streams: u32) {
        if !self.measured {
            self.measured = true;
            self.since_ns = now_ns;
            self.since_bytes = bytes;
            self.left = EPOCH_STALLS.max(streams);
            return;
        }
        let passed_ns = now_ns.saturating_sub(self.since_ns).max(1);
        let read = bytes.saturating_sub(self.since_bytes);
        let rate = u128::from(read) * 1_000_000_000 / u128::from(passed_ns);
        self.ended(u64::try_from(rate).unwrap_or(u64::MAX).max(1));
        // The same arm goes on: nothing has to settle.
        self.measured = false;
        self.left = SETTLE_STALLS.max(streams.saturating_mul(2));
    }

    fn rate(&mut self, arm: Arm) -> &mut u64 {
        let [full, half, kernel] = &mut self.bytes_per_s;
        match arm {
            Arm::Full => full,
            Arm::Half => half,
            Arm::Kernel => kernel,
        }
    }

    /// The kernel's readahead first, which says most: half of the depth is
    /// worth a trial only where the two are close.
    fn next_trial(&self) -> Arm {
        let [full, _, kernel] = self.bytes_per_s;
        let close = u128::from(full.min(kernel)) * 4 > u128::from(full.max(kernel)) * 3;
        match (self.best, self.last_trial) {
            (Arm::Full, Arm::Kernel) if close => Arm::Half,
            (Arm::Full, _) => Arm::Kernel,
            (Arm::Kernel, Arm::Full) if close => Arm::Half,
            (Arm::Kernel, _) => Arm::Full,
            (Arm::Half, Arm::Full) => Arm::Kernel,
            (Arm::Half, _) => Arm::Full,
        }
    }

    /// An epoch of the present arm came to `bytes_per_s`.
    fn ended(&mut self, bytes_per_s: u64) {
        let smoothed = self.rate(self.arm());
        *smoothed = match *smoothed {
            0 => bytes_per_s,
            old => old / 2 + bytes_per_s / 2,
        };
        if core::mem::take(&mut self.trying) {
            let trial = self.trial;
            let (tried, best) = (*self.rate(trial), *self.rate(self.best));
            let better = u128::from(tried) * 16 > u128::from(best) * u128::from(BETTER_16);
            if better && !core::mem::replace(&mut self.won, better) {
                self.trying = true;
                return;
            }
            self.won = false;
            if better {
                self.best = trial;
                self.interval = INTERVAL_MIN;
            } else {
                self.interval = (self.interval * 2).clamp(INTERVAL_MIN, INTERVAL_MAX);
            }
            self.wait = self.interval;
            return;
        }
        if self.interval == 0 {
            self.interval = INTERVAL_MIN;
            self.wait = INTERVAL_MIN;
        }
        self.wait = self.wait.saturating_sub(1);
        if self.wait == 0 {
            self.trial = self.next_trial();
            self.last_trial = self.trial;
            self.trying = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time that a program of one stream needs, in each arm, for a stall.
    fn run(per_stall: [(u64, u64); 3], stalls: u32) -> (Arm, [u32; 3]) {
        run_from(Adapt::default(), per_stall, stalls)
    }

    fn run_from(mut adapt: Adapt, per_stall: [(u64, u64); 3], stalls: u32) -> (Arm, [u32; 3]) {
        let (mut now_ns, mut bytes, mut spent) = (0, 0, [0; 3]);
        for turn in 0..stalls {
            let arm = adapt.arm() as usize;
            let (ns, read) = per_stall[arm];
            // A fifth of noise, of the kind that seeks make.
            now_ns += ns - ns / 5 + u64::from(turn * 7919 % 101) * ns / 250;
            bytes += read;
            spent[arm] += 1;
            if adapt.stalled() {
                adapt.account(now_ns, bytes, 1);
            }
        }
        (adapt.best, spent)
    }

    #[test]
    fn a_depth_that_pays_is_kept() {
        // FIFO: 10.5 ms and 51 MB/s.
        let (best, spent) =
            run([(21_000_000, 540_000), (15_800_000, 270_000), (13_000_000, 131_072)], 20_000);
        assert_eq!(best, Arm::Full);
        assert!(spent[0] > 18_000, "{spent:?}");
    }

    #[test]
    fn a_depth_that_does_not_is_given_up() {
        // Switches cost next to nothing, and a sixth of each run is wasted.
        let (best, spent) =
            run([(11_000_000, 450_000), (5_700_000, 250_000), (2_800_000, 131_072)], 20_000);
        assert_eq!(best, Arm::Kernel);
        assert!(spent[2] > 17_000, "{spent:?}");
    }

    #[test]
    fn in_doubt_the_kernel_has_it_until_the_depth_is_shown_to_pay() {
        let mut doubting = Adapt::NEW;
        doubting.doubt();
        // A network volume: two windows in flight, or runs one after the other.
        let (best, spent) = run_from(
            doubting,
            [(1_200_000, 250_000), (1_100_000, 131_072), (600_000, 131_072)],
            20_000,
        );
        assert_eq!(best, Arm::Kernel);
        assert!(spent[2] > 19_000, "{spent:?}");
        // A disk that nobody has measured.
        let disk = [(21_000_000, 540_000), (15_800_000, 270_000), (13_000_000, 131_072)];
        let (best, spent) = run_from(doubting, disk, 20_000);
        assert_eq!(best, Arm::Full);
        assert!(spent[0] > 14_000, "{spent:?}");
        // What has been found out stays.
        let mut found = Adapt { bytes_per_s: [1, 0, 0], ..Adapt::NEW };
        found.doubt();
        assert_eq!(found.arm(), Arm::Full);
    }

    #[test]
    fn equal_arms_change_nothing() {
        let (best, _) =
            run([(4_000_000, 400_000), (2_000_000, 200_000), (1_000_000, 100_000)], 5000);
        assert_eq!(best, Arm::Full);
    }

    #[test]
    fn a_change_of_the_device_is_noticed() {
        let mut adapt = Adapt::default();
        let (mut now_ns, mut bytes) = (0u64, 0u64);
        for turn in 0..60_000 {
            let kernel = adapt.arm() == Arm::Kernel;
            now_ns += match (kernel, turn < 2000) {
                (true, true) => 13_000_000,
                (true, false) => 2_800_000,
                (false, true) => 21_000_000,
                (false, false) => 14_000_000,
            };
            bytes += if kernel { 131_072 } else { 540_000 };
            if adapt.stalled() {
                adapt.account(now_ns, bytes, 4);
            }
        }
        assert_eq!(adapt.best, Arm::Kernel);
    }
}
