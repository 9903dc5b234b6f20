//! Whether the depth pays on the device as it is now.
//!
//! The model's switch is that of a device with nothing but one stream to
//! serve at a time. A device or a scheduler that sorts its queue makes
//! switches cheap where many streams wait, and then half of the depth, or the
//! kernel's own readahead, is as good or better. So the depth is tried: the
//! program's throughput is compared over short epochs under each [`Arm`], and
//! the best is kept and asked again, at intervals that double as long as it
//! wins.
//!
//! Epochs differ by themselves: a server's streams are of different lengths,
//! and some of what they read is in memory. So another arm must be better by
//! twice the standard error of the difference, and one that seems better is
//! tried again soon, with epochs of the best between.

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

/// Epochs of the best arm between two trials of one that seems better.
const AGAIN: u32 = 2;

/// How much better than the best another arm must be, in 1/16.
const BETTER_16: u64 = 17;

/// And by how many standard errors.
const ERRORS: u64 = 2;

/// Epochs of each arm, at least, before they are compared.
const TRIED_MIN: u32 = 2;

/// Epochs that an arm's mean is smoothed over: the best, and another one,
/// which may last have been tried under other conditions.
const SMOOTHED_BEST: u32 = 8;
const SMOOTHED_TRIAL: u32 = 4;

/// One, in shares of a mean.
const ONE: u64 = 256;

/// How far epochs of one arm are apart before that has been seen: a fifth.
const SPREAD_ASSUMED: u64 = ONE / 5;

/// Throughput of an arm. All-zero: not tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rate {
    /// Smoothed over the last epochs, in bytes/s.
    bytes_per_s: u64,
    /// Epochs that it is smoothed over.
    epochs: u32,
}

impl Rate {
    const NONE: Rate = Rate { bytes_per_s: 0, epochs: 0 };

    /// How far a value is from the mean, in 1/[`ONE`] of that.
    fn share(self, bytes_per_s: u64) -> u64 {
        let apart = bytes_per_s.abs_diff(self.bytes_per_s).saturating_mul(ONE);
        (apart / self.bytes_per_s.max(1)).min(16 * ONE)
    }

    fn add(&mut self, bytes_per_s: u64, over: u32) {
        self.epochs = (self.epochs + 1).min(over);
        let weight = u64::from(self.epochs).max(1);
        self.bytes_per_s = self.bytes_per_s / weight * (weight - 1) + bytes_per_s / weight;
    }

    fn exceeds(self, other: Rate) -> bool {
        u128::from(self.bytes_per_s) * 16 > u128::from(other.bytes_per_s) * u128::from(BETTER_16)
    }
}

/// The choice. All-zero is a valid start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adapt {
    best: Arm,
    /// Whether `trial` is being tried instead.
    trying: bool,
    trial: Arm,
    /// The arm that was tried last.
    last_trial: Arm,
    /// Whether it is tried again next.
    again: bool,
    rates: [Rate; 3],
    /// Mean square of how far epochs of the best arm are from their mean, in
    /// 1/[`ONE`]² of that; 0: not seen.
    spread: u64,
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
        last_trial: Arm::Full,
        again: false,
        rates: [Rate::NONE; 3],
        spread: 0,
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
        if self.rates == [Rate::NONE; 3] {
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

    fn rate(&mut self, arm: Arm) -> &mut Rate {
        let [full, half, kernel] = &mut self.rates;
        match arm {
            Arm::Full => full,
            Arm::Half => half,
            Arm::Kernel => kernel,
        }
    }

    /// The kernel's readahead first, which says most: half of the depth is
    /// worth a trial only where the two are close.
    fn next_trial(&self) -> Arm {
        if self.again {
            return self.last_trial;
        }
        let [full, _, kernel] = self.rates.map(|rate| rate.bytes_per_s);
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
        if core::mem::take(&mut self.trying) {
            self.tried(bytes_per_s);
            return;
        }
        let before = *self.rate(self.best);
        self.spread = match (before.epochs, self.spread) {
            (0, _) => SPREAD_ASSUMED * SPREAD_ASSUMED,
            (_, old) => old - old / 8 + before.share(bytes_per_s).pow(2) / 8,
        };
        self.rate(self.best).add(bytes_per_s, SMOOTHED_BEST);
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

    /// An epoch of a trial came to `bytes_per_s`.
    fn tried(&mut self, bytes_per_s: u64) {
        let trial = self.trial;
        self.rate(trial).add(bytes_per_s, SMOOTHED_TRIAL);
        let (tried, best) = (*self.rate(trial), *self.rate(self.best));
        if tried.exceeds(best) && self.is_significant(tried, best) {
            self.best = trial;
            self.again = false;
            self.interval = INTERVAL_MIN;
            self.wait = self.interval;
            return;
        }
        let this = Rate { bytes_per_s, epochs: 1 };
        self.again = this.exceeds(best) && best.epochs != 0;
        if self.again {
            self.wait = AGAIN;
        } else {
            self.interval = (self.interval * 2).clamp(INTERVAL_MIN, INTERVAL_MAX);
            self.wait = self.interval;
        }
    }

    /// Whether the difference of two means is more than chance: of epochs that
    /// are `spread` apart, so many each.
    fn is_significant(&self, tried: Rate, best: Rate) -> bool {
        if tried.epochs < TRIED_MIN || best.epochs < TRIED_MIN {
            return false;
        }
        let (n, m) = (u64::from(tried.epochs), u64::from(best.epochs));
        let difference = best.share(tried.bytes_per_s);
        difference.pow(2) * n * m >= ERRORS.pow(2) * self.spread * (n + m)
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
        let tried = Rate { bytes_per_s: 1, epochs: 1 };
        let mut found = Adapt { rates: [tried, Rate::NONE, Rate::NONE], ..Adapt::NEW };
        found.doubt();
        assert_eq!(found.arm(), Arm::Full);
    }

    #[test]
    fn equal_arms_change_nothing() {
        let (best, _) =
            run([(4_000_000, 400_000), (2_000_000, 200_000), (1_000_000, 100_000)], 5000);
        assert_eq!(best, Arm::Full);
    }

    /// Epochs of a server whose lists are partly in memory: a third apart, and
    /// not in the order of the arms. The depth is 1.3 times as good.
    #[test]
    fn noise_does_not_pass_for_a_difference() {
        let mut lost = 0;
        for seed in 0..200u64 {
            let (mut adapt, mut random) = (Adapt::NEW, seed);
            let mut elsewhere = 0;
            for _ in 0..400 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let noise = 60 + (random >> 33) % 81 + (random >> 48) % 41;
                let rate = if adapt.arm() == Arm::Kernel { 100 } else { 130 };
                elsewhere += u32::from(adapt.arm() == Arm::Kernel);
                adapt.ended(rate * noise * 10_000);
            }
            lost += u32::from(elsewhere > 100);
        }
        assert!(lost <= 10, "{lost} of 200 were with the kernel for a quarter of the time");
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
