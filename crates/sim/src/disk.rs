//! One disk drive: seek curve, rotation, media rate, on-drive cache with readahead.

/// Simulated time, in microseconds.
pub type Micros = u64;

/// What a drive is like. Lengths are in file-system blocks (8 KiB).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriveParameters {
    /// Blocks on the drive.
    pub blocks: u32,
    /// Blocks per cylinder.
    pub blocks_per_cylinder: u32,
    /// One revolution, µs.
    pub rotation_us: f64,
    /// Time for a block to pass under the heads, track and cylinder skew included, µs.
    pub block_us: f64,
    /// Seek over `d` cylinders: `seek_fixed_us` + `seek_root_us`·√d, µs.
    pub seek_fixed_us: f64,
    /// See `seek_fixed_us`.
    pub seek_root_us: f64,
    /// Command, selection and completion of a command that finds the drive idle, µs.
    pub command_us: f64,
    /// The same when the command was queued at the drive before.
    pub queued_command_us: f64,
    /// A block over the bus, µs.
    pub bus_block_us: f64,
    /// Segments of the on-drive cache.
    pub cache_segments: usize,
    /// Blocks that the drive reads on after a request, a segment's length.
    pub cache_readahead: u32,
}

impl DriveParameters {
    /// The HP C2247 of the thesis's testbed (section 6.1): 1.05 GB, 5400 rpm, 13 surfaces,
    /// 10 MB/s SCSI-2, 256 KB cache; with seek curve, media rate and overhead such that the
    /// service times of table 6.15 come out (docs/tip.md).
    pub const HP_C2247: Self = Self {
        blocks: 128_000,
        blocks_per_cylinder: 66,
        rotation_us: 11_111.0,
        block_us: 2_150.0,
        seek_fixed_us: 2_500.0,
        seek_root_us: 300.0,
        command_us: 1_500.0,
        queued_command_us: 700.0,
        bus_block_us: 820.0,
        cache_segments: 1,
        cache_readahead: 8,
    };
}

/// A range of blocks in the drive's cache.
#[derive(Clone, Copy, Debug)]
struct CacheSegment {
    first: u32,
    /// First block not (yet) in the cache.
    end: u32,
}

/// The drive reading on after a request: block `from` began to pass under the heads at `since`.
#[derive(Clone, Copy, Debug)]
struct Stream {
    from: u32,
    since: f64,
    limit: u32,
}

/// A drive's mechanical and cache state. Tracks are modelled as one spiral: block `b` begins
/// to pass under the heads at times congruent to b·`block_us` modulo a revolution, so that
/// rotational delay depends on time and address and sequential reading streams.
#[derive(Clone, Debug)]
pub struct Drive {
    parameters: DriveParameters,
    cylinder: u32,
    /// Most recently used last; the stream, if any, extends the last one.
    cache: Vec<CacheSegment>,
    stream: Option<Stream>,
}

impl Drive {
    /// A drive with an empty cache and its heads at the first cylinder.
    pub fn new(parameters: DriveParameters) -> Self {
        Self { parameters, cylinder: 0, cache: Vec::new(), stream: None }
    }

    /// Serves a command that the drive begins to look at at `now`; returns when it is done.
    /// `queued` tells whether it waited at the drive behind another one.
    pub fn serve(
        &mut self,
        now: Micros,
        first: u32,
        blocks: u32,
        write: bool,
        queued: bool,
    ) -> Micros {
        let p = self.parameters;
        let command = if queued { p.queued_command_us } else { p.command_us };
        let ready = now as f64 + command;
        self.advance_stream(ready);
        let end = first + blocks;
        let over_bus = ready + f64::from(blocks) * p.bus_block_us;
        // All but the last block has gone over the bus while the media was being read.
        let done = if write {
            self.position_and_transfer(ready, first, blocks)
        } else if let Some(i) = self.cache.iter().position(|s| s.first <= first && end <= s.end) {
            // The stream goes on only if the segment it fills is the one that was hit.
            if i + 1 == self.cache.len() {
                self.extend_stream(ready, end);
            }
            over_bus
        } else if let Some(at) = self.streaming_position(first) {
            let media = at.since + f64::from(end - at.from) * p.block_us;
            self.continue_stream(end);
            (media + p.bus_block_us).max(over_bus)
        } else {
            self.position_and_transfer(ready, first, blocks) + p.bus_block_us
        };
        done.ceil() as Micros
    }

    /// The stream, if the heads will come to `first` by reading on in the current segment.
    fn streaming_position(&self, first: u32) -> Option<Stream> {
        let stream = self.stream?;
        let segment = self.cache.last()?;
        (first >= segment.first && first <= stream.limit).then_some(stream)
    }

    /// What has passed under the heads by `time` is in the cache.
    fn advance_stream(&mut self, time: f64) {
        let Some(stream) = self.stream else { return };
        let passed = ((time - stream.since) / self.parameters.block_us).max(0.0) as u32;
        if let Some(segment) = self.cache.last_mut() {
            segment.end = segment.end.max((stream.from + passed).min(stream.limit));
            if segment.end >= stream.limit {
                self.stream = None;
            }
        }
    }

    /// A hit in the segment being filled moves the limit up; a stream that had reached its
    /// limit starts again there, when that block comes round.
    fn extend_stream(&mut self, time: f64, end: u32) {
        let p = self.parameters;
        let limit = (end + p.cache_readahead).min(p.blocks);
        let Some(segment) = self.cache.last().copied() else { return };
        match &mut self.stream {
            Some(stream) => stream.limit = stream.limit.max(limit),
            None if limit > segment.end => {
                let since = time + self.rotation_to(time, segment.end);
                self.stream = Some(Stream { from: segment.end, since, limit });
            }
            None => {}
        }
    }

    fn continue_stream(&mut self, end: u32) {
        let p = self.parameters;
        if let (Some(segment), Some(stream)) = (self.cache.last_mut(), &mut self.stream) {
            segment.end = segment.end.max(end);
            // The cache segment is a ring: old blocks make room.
            segment.first = segment.first.max(end.saturating_sub(p.cache_readahead));
            stream.limit = (end + p.cache_readahead).min(p.blocks);
            self.cylinder = end / p.blocks_per_cylinder;
        }
    }

    fn position_and_transfer(&mut self, ready: f64, first: u32, blocks: u32) -> f64 {
        let p = self.parameters;
        let cylinder = first / p.blocks_per_cylinder;
        let settled = ready + self.seek_us(cylinder);
        let start = settled + self.rotation_to(settled, first);
        let end = first + blocks;
        let done = start + f64::from(blocks) * p.block_us;
        self.cylinder = (end - 1) / p.blocks_per_cylinder;
        if self.cache.len() == p.cache_segments {
            self.cache.remove(0);
        }
        self.cache.push(CacheSegment { first, end });
        let limit = (end + p.cache_readahead).min(p.blocks);
        self.stream = Some(Stream { from: end, since: done, limit });
        done
    }

    fn seek_us(&self, cylinder: u32) -> f64 {
        let p = self.parameters;
        match f64::from(self.cylinder.abs_diff(cylinder)) {
            0.0 => 0.0,
            distance => p.seek_fixed_us + p.seek_root_us * distance.sqrt(),
        }
    }

    /// From `time` until block `first` begins to pass under the heads.
    fn rotation_to(&self, time: f64, first: u32) -> f64 {
        let p = self.parameters;
        (f64::from(first) * p.block_us - time).rem_euclid(p.rotation_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const P: DriveParameters = DriveParameters::HP_C2247;

    fn mean_random_us(span: u32) -> f64 {
        let mut drive = Drive::new(P);
        let mut random = Random::new(5);
        let (mut now, count) = (0, 4000);
        for _ in 0..count {
            let first = random.below(u64::from(span)) as u32;
            // Idle for a random while, so that the phase of the rotation is random.
            now += random.below(20_000);
            let begun = now;
            now = drive.serve(now, first, 1, false, false);
            assert!(now > begun);
        }
        let idle = 10_000 * count;
        (now - idle) as f64 / count as f64
    }

    #[test]
    fn random_service_is_near_the_thesis_value() {
        // Section 6.2: 15 ms, with a file on a part of the disk; more over all of it.
        let half = mean_random_us(P.blocks / 2);
        assert!((14_000.0..19_000.0).contains(&half), "{half}");
        assert!(mean_random_us(P.blocks / 16) < half);
    }

    #[test]
    fn sequential_reading_streams_at_media_rate() {
        let mut drive = Drive::new(P);
        let mut now = 0;
        for unit in 0..500 {
            now = drive.serve(now, unit * 8, 8, false, true);
        }
        let per_block = now as f64 / 4000.0;
        assert!((per_block - P.block_us).abs() < 30.0, "{per_block}");
    }

    #[test]
    fn readahead_makes_the_next_block_a_cache_hit() {
        let mut drive = Drive::new(P);
        let done = drive.serve(0, 1000, 1, false, false);
        let later = done + 30_000;
        let hit = drive.serve(later, 1001, 1, false, false) - later;
        assert_eq!(hit as f64, (P.command_us + P.bus_block_us).ceil());
        let now = later + hit + 1;
        assert!(drive.serve(now, 90_000, 1, false, false) - now > 5_000);
    }

    #[test]
    fn a_pause_within_the_segment_costs_no_revolution_but_one_after_it_does() {
        let mut drive = Drive::new(P);
        let done = drive.serve(0, 1000, 8, false, false);
        // The drive has read 1008..1016 on its own; then it waited.
        let later = done + 200_000;
        let next = drive.serve(later, 1008, 8, false, false);
        let after = drive.serve(next, 1016, 8, false, false);
        assert!(next - later < 10_000 && after - next > 8 * 2_000 / 2);
    }
}
