//! Whether the depth pays on the device as it is now.
//!
//! The model's switch is that of a device with nothing but one stream to
//! serve at a time. A device or a scheduler that sorts its queue makes
//! switches cheap where many streams wait, and then half of the depth, or the
//! kernel's own readahead, is as good or better. So the depth is tried: the
//! program's throughput is compared over short epochs under each [`Arm`], and
//! the best is kept and asked again, at intervals that double as long as it
//! is seen to win.
//!
//! Epochs differ by themselves: a server's streams are of different lengths,
//! some of what they read is in memory, and there is more to do now than then.
//! So an epoch under another arm is compared with those under the best just
//! before it, and the other arm must be better, over its last trials, by twice
//! the standard error of that. One that seems better is tried again soon, with
//! epochs of the best between.

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
const INTERVAL_MIN: u32 = 16;
const INTERVAL_MAX: u32 = 64;

/// Epochs of the best arm between two trials of one that seems better.
const AGAIN: u32 = 2;

/// How much better than the best another arm must be, in 1/16.
const BETTER_16: u64 = 17;

/// And by how many standard errors.
const ERRORS: u64 = 2;

/// Trials of an arm, at least, before it is taken.
const TRIED_MIN: u32 = 2;

/// Trials that an arm's gain is smoothed over: a sixteenth is told from chance
/// only by many.
const SMOOTHED_TRIALS: u32 = 32;

/// Epochs of the best arm that a trial is compared with.
const SMOOTHED_BEST: u32 = 4;

/// One, in shares of the best.
const ONE: u64 = 256;

/// How far trials of one arm are apart before that has been seen: a fifth.
const SPREAD_ASSUMED: u64 = ONE / 5;

/// A trial that is so many times further from the last ones than they are from
/// each other shows that the device or the program has changed.
const CHANGED: u64 = 3;

/// A mean over the last values. All-zero: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mean {
    value: u64,
    /// Values that it is smoothed over.
    count: u32,
}

impl Mean {
    const NONE: Mean = Mean { value: 0, count: 0 };

    fn add(&mut self, value: u64, over: u32) {
        self.count = (self.count + 1).min(over);
        let weight = u64::from(self.count).max(1);
        // Rounded, so that small numbers do not creep down.
        let rest = u128::from(self.value) * u128::from(weight - 1) + u128::from(value);
        self.value = ((rest + u128::from(weight / 2)) / u128::from(weight)) as u64;
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
    /// Throughput of the best arm over its last epochs, in bytes/s.
    rate: Mean,
    /// That of each arm in its last trials, in 1/[`ONE`] of the best's then.
    gains: [Mean; 3],
    /// Mean square of how far trials are from their mean, in 1/[`ONE`]²; 0: not
    /// seen.
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
        rate: Mean::NONE,
        gains: [Mean::NONE; 3],
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
        if self.rate == Mean::NONE {
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

    /// Nothing was read for a while: the epoch begins anew.
    pub fn paused(&mut self) {
        self.measured = false;
        self.left = self.left.max(SETTLE_STALLS);
    }

    fn gain(&mut self, arm: Arm) -> &mut Mean {
        let [full, half, kernel] = &mut self.gains;
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
        // That of the best arm has not been tried against itself.
        let [full, _, kernel] = self.gains;
        let other = if self.best == Arm::Kernel { full } else { kernel };
        let close = other.count != 0 && other.value * 4 > ONE * 3 && other.value * 3 < ONE * 4;
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
        self.rate.add(bytes_per_s, SMOOTHED_BEST);
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
        let ratio = u128::from(bytes_per_s) * u128::from(ONE) / u128::from(self.rate.value.max(1));
        // Beyond that it is not the arm that makes the difference.
        let ratio = u64::try_from(ratio).unwrap_or(u64::MAX).clamp(ONE / 2, 2 * ONE);
        let trial = self.trial;
        let mut gain = *self.gain(trial);
        let mut spread = if self.spread == 0 { SPREAD_ASSUMED.pow(2) } else { self.spread };
        if gain.count != 0 {
            let apart = ratio.abs_diff(gain.value).pow(2);
            if gain.count >= TRIED_MIN && apart > CHANGED.pow(2) * spread {
                gain = Mean::NONE;
            }
            spread = (spread - spread / 8 + apart / 8).max(1);
        }
        gain.add(ratio, SMOOTHED_TRIALS);
        (*self.gain(trial), self.spread) = (gain, spread);
        let better = gain.value * 16 > ONE * BETTER_16;
        if better && is_significant(gain, spread) {
            self.best = trial;
            self.rate = Mean { value: bytes_per_s, count: 1 };
            // Against the new best nothing has been tried.
            self.gains = [Mean::NONE; 3];
            self.again = false;
            self.interval = INTERVAL_MIN;
            self.wait = self.interval;
            return;
        }
        self.again = better;
        if better {
            self.wait = AGAIN;
            return;
        }
        if is_no_better(gain, spread) {
            self.interval = (self.interval * 2).clamp(INTERVAL_MIN, INTERVAL_MAX);
        }
        self.wait = self.interval;
    }
}

/// Whether a gain is more than chance: the mean of trials that are `spread`
/// apart.
fn is_significant(gain: Mean, spread: u64) -> bool {
    gain.count >= TRIED_MIN && is_beyond(gain.value.saturating_sub(ONE), gain.count, spread)
}

/// Whether it is by chance alone that the arm would be as much better as it has
/// to be.
fn is_no_better(gain: Mean, spread: u64) -> bool {
    is_beyond((ONE * BETTER_16 / 16).saturating_sub(gain.value), gain.count, spread)
}

/// Whether a mean of so many trials is so far from something by more than
/// [`ERRORS`] standard errors.
fn is_beyond(distance: u64, trials: u32, spread: u64) -> bool {
    distance.pow(2) * u64::from(trials) >= ERRORS.pow(2) * spread
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
        let mut found = Adapt { rate: Mean { value: 1, count: 1 }, ..Adapt::NEW };
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

    /// A disk that sorts its queue: the kernel's windows are a twelfth better, in
    /// epochs that are a seventh apart, while what there is to do comes and goes.
    #[test]
    fn a_small_difference_is_found_out_in_time() {
        let mut found = 0;
        for seed in 0..100u64 {
            let (mut adapt, mut random) = (Adapt::NEW, seed);
            let mut last = 0;
            for epoch in 0..600u64 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let noise = 75 + (random >> 33) % 51;
                let load = 100 + 60 * (epoch / 40 % 2);
                let rate = if adapt.arm() == Arm::Kernel { 108 } else { 100 };
                last = if adapt.best == Arm::Kernel { last + 1 } else { 0 };
                adapt.ended(rate * noise * load * 100);
            }
            found += u32::from(last > 100);
        }
        assert!(found >= 60, "{found} of 100 ended with the kernel");
    }

    /// A server that is asked little for a while, in the middle of every fifth epoch.
    #[test]
    fn pauses_do_not_pass_for_a_difference() {
        let mut adapt = Adapt::NEW;
        let (mut now_ns, mut bytes) = (0u64, 0u64);
        let mut elsewhere = 0;
        for turn in 0..40_000u64 {
            let kernel = adapt.arm() == Arm::Kernel;
            elsewhere += u64::from(kernel);
            now_ns += if kernel { 13_000_000 } else { 21_000_000 };
            bytes += if kernel { 131_072 } else { 540_000 };
            if turn % 320 == 170 {
                now_ns += 60_000_000_000;
                adapt.paused();
            }
            if adapt.stalled() {
                adapt.account(now_ns, bytes, 4);
            }
        }
        assert!(adapt.best == Arm::Full && elsewhere < 2500, "{elsewhere}");
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
