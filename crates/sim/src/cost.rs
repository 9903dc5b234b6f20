//! CPU costs of the simulated kernel, from the thesis's profile (tables 6.27 to 6.31).

use crate::disk::Micros;

/// CPU time of what the kernel does, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuCosts {
    /// Of a read or write call.
    pub call_ns: u64,
    /// Of a request for a block within it.
    pub request_ns: u64,
    /// Of copying a byte out.
    pub copy_byte_ns: u64,
    /// Of an I/O, start and interrupt together.
    pub io_ns: u64,
    /// Of each block of an I/O.
    pub io_block_ns: u64,
    /// Share of an I/O's cost that is paid when it is started; the rest at its interrupt.
    pub io_start_percent: u64,
    /// TIP's, per block that enters the cache: profiling the LRU queue, finding the min-max
    /// buffer.
    pub tip_block_ns: u64,
    /// TIP's, per hinted request: matching, tracking, estimates.
    pub tip_hinted_ns: u64,
    /// Of a hint call.
    pub hint_call_ns: u64,
    /// Of each segment of it.
    pub hint_segment_ns: u64,
    /// Of switching to another process.
    pub switch_ns: u64,
}

impl CpuCosts {
    /// The DEC 3000/600 of the thesis. How each follows from its tables is in docs/tip.md.
    pub const THESIS: Self = Self {
        call_ns: 45_000,
        request_ns: 10_000,
        copy_byte_ns: 15,
        io_ns: 270_000,
        io_block_ns: 37_000,
        io_start_percent: 60,
        tip_block_ns: 35_000,
        tip_hinted_ns: 40_000,
        hint_call_ns: 30_000,
        hint_segment_ns: 15_000,
        switch_ns: 20_000,
    };

    /// The same machine without TIP.
    pub fn without_tip(self) -> Self {
        Self { tip_block_ns: 0, tip_hinted_ns: 0, ..self }
    }

    /// CPU time to start an I/O of so many blocks.
    pub fn io_start_us(&self, blocks: u32) -> Micros {
        let tip_ns = self.tip_block_ns * u64::from(blocks);
        (self.io_total_ns(blocks) * self.io_start_percent / 100 + tip_ns) / 1000
    }

    /// CPU time of its interrupt.
    pub fn io_end_us(&self, blocks: u32) -> Micros {
        self.io_total_ns(blocks) * (100 - self.io_start_percent) / 100 / 1000
    }

    fn io_total_ns(&self, blocks: u32) -> u64 {
        self.io_ns + self.io_block_ns * u64::from(blocks)
    }

    /// CPU time of a request for `bytes` of a block.
    pub fn request_us(&self, bytes: u64, hinted: bool) -> Micros {
        let hinted_ns = if hinted { self.tip_hinted_ns } else { 0 };
        (self.request_ns + self.copy_byte_ns * bytes + hinted_ns) / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 6.2: T_hit = 203 µs and T_driver = 366 µs for hinted single-block reads.
    #[test]
    fn costs_add_up_to_the_measured_parameters() {
        let costs = CpuCosts::THESIS;
        let hit = costs.call_ns / 1000 + costs.request_us(8192, true);
        let driver = costs.io_start_us(1) + costs.io_end_us(1);
        assert!((190..230).contains(&hit), "{hit}");
        assert!((330..400).contains(&driver), "{driver}");
    }
}
