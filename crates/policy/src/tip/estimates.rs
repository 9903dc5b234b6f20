//! The model's parameters and every value estimate, in fixed point.

/// Estimates are microseconds per buffer-access shifted left by this many bits, so that
/// division by large distances keeps its precision (section 5.3.2).
pub const FIXED_POINT_SHIFT: u32 = 10;

/// A value in the common currency: |change in I/O service time| per buffer-access, µs << 10.
pub(super) type Value = u64;

/// The longest time that is believed, microseconds: four minutes. What is measured comes from
/// programs, which may be stopped meanwhile or tell anything; sums of a few do not pass 32 bits.
pub(super) const TIME_MAX_US: u32 = 1 << 28;

/// What the system model needs to know of the machine (section 4.2.1), measured by
/// micro-benchmark as in section 6.2; in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// T_hit: to read a block from the cache. At least 1.
    pub t_hit_us: u32,
    /// T_driver: CPU time to fetch a block from a disk.
    pub t_driver_us: u32,
    /// T_disk: to read a block at a random place of a disk. At least 1.
    pub t_disk_us: u32,
}

impl Parameters {
    /// Measured on the thesis's machine (section 6.2): 203, 366 and 15000 µs, P̂ = 73.
    pub const THESIS: Self = Self { t_hit_us: 203, t_driver_us: 366, t_disk_us: 15_000 };

    /// These, with each time within what the model counts with.
    pub(super) fn bounded(self) -> Self {
        Self {
            t_hit_us: self.t_hit_us.clamp(1, TIME_MAX_US),
            t_driver_us: self.t_driver_us.min(TIME_MAX_US),
            t_disk_us: self.t_disk_us.clamp(1, TIME_MAX_US),
        }
    }

    /// T_miss = T_hit + T_driver + T_disk (Eq 4.2), in microseconds.
    pub fn t_miss_us(&self) -> u32 {
        self.t_hit_us + self.t_driver_us + self.t_disk_us
    }

    /// P̂ = T_disk / T_hit (Eq 4.23): the upper bound on the prefetch horizon, in accesses,
    /// at least 1. It takes T_app as 0 and leaves T_driver out.
    pub fn prefetch_horizon(&self) -> u64 {
        u64::from(self.t_disk_us / self.t_hit_us.max(1)).max(1)
    }

    /// P(T_app) = T_disk / (T_app + T_hit + T_driver) (Eq 4.11), at least 1: the horizon of a
    /// process that computes `t_app_us` between accesses (section 7.2).
    pub fn prefetch_horizon_of(&self, t_app_us: u32) -> u64 {
        let interaccess = u64::from(t_app_us) + u64::from(self.t_hit_us + self.t_driver_us);
        (u64::from(self.t_disk_us) / interaccess.max(1)).max(1)
    }

    /// Benefit_pf (Eq 4.24): of a buffer to prefetch the access `x` ahead, `x` at least 1.
    pub fn benefit_prefetch(&self, x: u64, horizon: u64) -> u64 {
        debug_assert!(x >= 1);
        let t_disk = shifted(self.t_disk_us);
        match x {
            1 => t_disk,
            _ if x <= horizon => t_disk / (x * x - x),
            _ => 0,
        }
    }

    /// Cost_eject (Eq 4.31): of ejecting a block whose next hinted access is `y` ahead, `y`
    /// at least 1. Also the benefit of adding the block to a cluster (Eq 4.18).
    pub fn cost_eject(&self, y: u64, horizon: u64) -> u64 {
        debug_assert!(y >= 1);
        let (t_driver, t_disk) = (shifted(self.t_driver_us), shifted(self.t_disk_us));
        match y {
            1 => t_driver + t_disk,
            _ if y <= horizon => t_driver + t_disk / (y - 1),
            // One past the horizon, Eq 4.26 alone would break the hysteresis of Eq 4.29
            // where T_hit² > T_driver·T_disk; on the thesis's machine it never does.
            _ if y == horizon + 1 => t_driver.max(self.benefit_prefetch(horizon, horizon) + 1),
            _ => t_driver / (y - horizon),
        }
    }

    /// T_stall(x, d) = T_disk / min(x, d) − (T_app + T_hit + T_driver) (Eq 7.5), in µs and
    /// never negative: the mean stall per access with `x` prefetches under way on `d` disks.
    pub fn t_stall_finite_us(&self, x: u64, disks: u32, t_disk_us: u32, t_app_us: u32) -> u32 {
        if x == 0 {
            return t_disk_us;
        }
        let parallelism = x.min(u64::from(disks.max(1))) as u32;
        (t_disk_us / parallelism).saturating_sub(t_app_us + self.t_hit_us + self.t_driver_us)
    }

    /// Cost_eject under the finite-disk model: as Eq 4.31, and beyond the horizon the stall
    /// of Eq 7.5, which no depth of prefetching hides on `disks` disks, is added to T_driver
    /// in Eq 4.26.
    pub fn cost_eject_finite(&self, y: u64, horizon: u64, t_stall_us: u32) -> u64 {
        match y {
            _ if y <= horizon => self.cost_eject(y, horizon),
            _ => (shifted(self.t_driver_us + t_stall_us) / (y - horizon))
                .max(self.cost_eject(y, horizon)),
        }
    }

    /// Benefit_deep_pf = T_disk / x (Eq 7.6): of prefetching from a constrained disk.
    pub fn benefit_deep(&self, x: u64, t_disk_us: u32) -> u64 {
        shifted(t_disk_us) / x.max(1)
    }

    /// Cost_eject_constrained = (T_driver + T_disk) / y (Eq 7.8): of a block that a
    /// constrained disk would have to deliver again.
    pub fn cost_eject_constrained(&self, y: u64, t_disk_us: u32) -> u64 {
        shifted(self.t_driver_us + t_disk_us) / y.max(1)
    }

    /// The marginal cost of one segment of the LRU queue, h_j/(A·|s_j|)·(T_miss − T_hit)
    /// (Eqs 4.20 and 5.3), with the division by A left out because normalisation would
    /// multiply by it (section 5.3.2). `hits` is the moving average per 1024 accesses.
    pub fn cost_segment(&self, hits: u64, target: u32) -> u64 {
        hits * shifted(self.t_miss_us() - self.t_hit_us) / u64::from(target.max(1))
    }
}

fn shifted(us: u32) -> u64 {
    u64::from(us) << FIXED_POINT_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: Parameters = Parameters::THESIS;

    fn us(value: u64) -> f64 {
        value as f64 / 1024.0
    }

    #[test]
    fn the_horizon_of_the_thesis_machine_is_73() {
        assert_eq!(P.prefetch_horizon(), 73);
    }

    #[test]
    fn values_at_the_thesis_parameters() {
        let h = P.prefetch_horizon();
        for (x, expected) in [(1, 15000.0), (2, 7500.0), (10, 166.7), (73, 2.85), (74, 0.0)] {
            assert!((us(P.benefit_prefetch(x, h)) - expected).abs() < 0.05, "x = {x}");
        }
        for (y, expected) in [
            (1, 15366.0),
            (2, 15366.0),
            (10, 2032.7),
            (73, 574.3),
            (74, 366.0),
            (173, 3.66),
            (1073, 0.366),
        ] {
            assert!((us(P.cost_eject(y, h)) - expected).abs() < 0.05, "y = {y}");
        }
        assert!((us(P.cost_segment(1024, 100)) - 153.66 * 1024.0).abs() < 0.01);
    }

    /// Eqs 4.29 and 4.30: never eject a block only to prefetch it back at the next access.
    #[test]
    fn hysteresis_holds_for_all_positive_parameters() {
        for t_hit_us in [1, 7, 203, 5_000] {
            for t_driver_us in [1, 30, 366, 20_000] {
                for t_disk_us in [1, 60, 1_000, 15_000, 900_000] {
                    let p = Parameters { t_hit_us, t_driver_us, t_disk_us };
                    let h = p.prefetch_horizon();
                    for y in 2..=(h + 2).min(4_000) {
                        assert!(p.cost_eject(y, h) > p.benefit_prefetch(y - 1, h), "{p:?} y={y}");
                    }
                }
            }
        }
    }

    #[test]
    fn finite_disks_leave_stall_that_depth_cannot_hide() {
        assert_eq!(P.t_stall_finite_us(0, 4, 15_000, 0), 15_000);
        assert_eq!(P.t_stall_finite_us(73, 1, 15_000, 0), 15_000 - 569);
        assert_eq!(P.t_stall_finite_us(73, 10, 15_000, 0), 1_500 - 569);
        assert_eq!(P.t_stall_finite_us(73, 10, 15_000, 4_000), 0);
        assert_eq!(P.t_stall_finite_us(2, 10, 15_000, 0), 7_500 - 569);
    }
}
