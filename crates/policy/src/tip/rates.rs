//! Moving averages of access rates, for normalisation (sections 4.2.6 and 5.3.2).

use super::estimates::TIME_MAX_US;

/// A count within the current period and its moving average over the past ones.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MovingAverage {
    current: u64,
    average: u64,
}

impl MovingAverage {
    pub(super) fn starting_at(average: u64) -> Self {
        Self { current: 0, average }
    }

    pub(super) fn count(&mut self) {
        self.current += 1;
    }

    /// new_average = (old_average + 3·current_count)/4 at the end of a period.
    pub(super) fn end_period(&mut self) {
        self.average = (self.average + 3 * self.current) / 4;
        self.current = 0;
    }

    pub(super) fn average(&self) -> u64 {
        self.average
    }
}

/// An average of a measured time, of at most [`TIME_MAX_US`], that follows it slowly: 1/16 of
/// each new value.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeanTime {
    us_times_16: u64,
}

impl MeanTime {
    pub(super) fn starting_at(us: u32) -> Self {
        Self { us_times_16: u64::from(us) * 16 }
    }

    pub(super) fn add(&mut self, us: u32) {
        self.us_times_16 =
            self.us_times_16 - self.us_times_16 / 16 + u64::from(us.min(TIME_MAX_US));
    }

    pub(super) fn us(&self) -> u32 {
        u32::try_from(self.us_times_16 / 16).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_quarters_of_the_average_is_the_last_period() {
        let mut average = MovingAverage::starting_at(400);
        for _ in 0..800 {
            average.count();
        }
        average.end_period();
        assert_eq!(average.average(), 700);
        average.end_period();
        assert_eq!(average.average(), 175);
    }

    #[test]
    fn a_mean_time_approaches_what_it_is_fed() {
        let mut mean = MeanTime::starting_at(15_000);
        for _ in 0..200 {
            mean.add(3_000);
        }
        assert!((3_000..3_030).contains(&mean.us()), "{}", mean.us());
        (0..1_000).for_each(|_| mean.add(u32::MAX));
        assert!(mean.us() <= TIME_MAX_US, "{}", mean.us());
    }
}
