//! What to read, and in which order: short phases, each with its share of the
//! time and ended by whichever comes first, enough samples or the time.
//!
//! The load limit is a duty cycle: after each read or burst the device is left
//! alone for as long as it takes to keep the device's busy share below it.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::estimate::{self, Estimate, Jump, Mean, Point};
use crate::identity::Identity;
use crate::profile::{
    Competitive, Depth, DeviceProfile, Measurement, Parallelism, Place, Positions, RandomReads,
    Seek, SeekPoint, Sequential, SizeTime, VERSION,
};
use crate::random::Random;
use crate::reader::Reader;

/// Smallest device or file that can be measured, bytes.
pub const SIZE_MIN_BYTES: u64 = 8 << 20;
/// A page: the request whose latency and parallelism are measured.
const PAGE_BYTES: u64 = 4096;
/// Request of a sequential stream.
const STREAM_BYTES: u64 = 1 << 20;
/// And where the device is slow, at least.
const STREAM_BYTES_MIN: u64 = 64 << 10;
/// Places in a row of which memory knows something, before it is taken to know
/// all of them.
const RESIDENT_MAX: u32 = 64;
/// Request sizes of the fit.
const SIZES_BYTES: [u64; 10] = [
    4 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
];
/// A request is too large for this device where one takes this part of the time
/// for all sizes: at least four of each are made.
const SIZE_TIME_SHARE: f64 = 0.1;
/// And longer than this at least, ns.
const TRANSFER_MIN_NS: u64 = 50_000_000;
/// Sizes that are measured however long they take.
const SIZES_MIN: usize = 3;
/// Places of a stream's rate, at least and at most.
const PLACES: std::ops::RangeInclusive<u64> = 4..=32;
/// About how long, at full load, reads without a rest keep the device from others,
/// seconds: two at most.
const BURST_S: f64 = 1.6;
/// Depths at which throughput is measured.
const DEPTHS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// How many of them are measured however long they take.
const DEPTHS_MIN: usize = 4;
/// Share of the best throughput at which depth is called enough.
const KNEE_SHARE: f64 = 0.9;
/// Parallel random reads help or hurt from this factor on.
const HELPS_FROM: f64 = 1.1;
const HURTS_FROM: f64 = 0.95;

/// How to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// About how long, seconds.
    pub time_s: f64,
    /// Largest share of the time that the device is kept busy, above 0, at most 1.
    pub load: f64,
    /// Seed of the places that are read.
    pub seed: u64,
    /// Load average of the machine before, if known: kept with the profile.
    pub machine_load: Option<f64>,
}

impl Default for Options {
    fn default() -> Self {
        Self { time_s: 20.0, load: 0.8, seed: 1, machine_load: None }
    }
}

/// Measures a device. `say` is told what is being done, and how much of the
/// time is over (0 to 1).
///
/// # Errors
/// A read failed; memory answers all reads; too little time.
pub fn measure(
    reader: &mut dyn Reader,
    identity: Identity,
    positions: Positions,
    options: &Options,
    say: &mut dyn FnMut(&str, f64),
) -> Result<DeviceProfile> {
    let began_ns = reader.now_ns();
    let mut run = Run {
        reader,
        options,
        random: Random::new(options.seed),
        say,
        began_ns,
        spent: Spent::default(),
        request_max: PAGE_BYTES,
        ns_per_byte: 0.0,
    };
    let sizes = run.sizes()?;
    let jumps = run.jumps()?;
    let rereads = run.rereads()?;
    let sequential = run.sequential()?;
    let switch = run.switches()?;
    let depths = run.depths()?;
    let (spent, ended_ns) = (run.spent, run.reader.now_ns());
    let measured = Measurement {
        positions,
        unix_time_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs()),
        elapsed_s: (ended_ns - began_ns) as f64 / 1e9,
        load: options.load,
        machine_load: options.machine_load,
        reads: spent.reads,
        bytes: spent.bytes,
    };
    let samples = Samples { sizes, jumps, rereads, sequential, switch, depths };
    samples.profile(identity, measured)
}

/// What the phases have read.
struct Samples {
    sizes: Vec<Point>,
    jumps: Vec<Jump>,
    rereads: Vec<f64>,
    sequential: Vec<(f64, Mean)>,
    switch: (Mean, Mean),
    depths: Vec<(u32, Estimate)>,
}

impl Samples {
    fn profile(self, device: Identity, measured: Measurement) -> Result<DeviceProfile> {
        let fit = estimate::requests(&self.sizes).ok_or(Error::TooFew)?;
        let larger = |how| {
            let first = self.sizes.get(fit.fitted).filter(|_| fit.larger == Some(how));
            first.map(|(bytes, _)| *bytes as u64)
        };
        let latency = fit.line.intercept.at_least_zero();
        let bandwidth = fit.line.slope.inverse().scaled(1e3);
        let revolution = estimate::revolution(&self.rereads, &self.jumps);
        let transfer = fit.line.slope.scaled(PAGE_BYTES as f64);
        let fixed = revolution.unwrap_or_default().scaled(0.5);
        let fixed = Estimate::new(
            fixed.value + transfer.value,
            fixed.half_width().hypot(transfer.half_width()),
        );
        let seek = estimate::seek(&self.jumps, fixed).map(|fit| Seek {
            shortest_us: fit.shortest_ns.scaled(1e-3),
            stroke_us: fit.stroke_ns.scaled(1e-3),
            mean_us: fit.mean_ns.scaled(1e-3),
            by_distance: curve(&self.jumps, fixed),
        });
        let sequential = streams(&self.sequential)?;
        let switch_cost = self.switch.0.estimate().minus(self.switch.1.estimate());
        let page = self.sizes.first().map(|(_, mean)| mean.estimate()).ok_or(Error::TooFew)?;
        let parallelism = parallelism(&self.depths, page)?;
        let rate = sequential.mean_mb_s;
        let competitive = competitive(latency, rate, bandwidth, seek.is_some());
        Ok(DeviceProfile {
            version: VERSION,
            device,
            measured,
            latency_us: latency.scaled(1e-3),
            bandwidth_mb_s: bandwidth,
            split_bytes: larger(estimate::Larger::InParallel),
            cut_bytes: larger(estimate::Larger::InTurn),
            requests: self.sizes.iter().map(size_time).collect(),
            sequential,
            seek,
            revolution_us: revolution.map(|time| time.scaled(1e-3)),
            switch_cost_us: switch_cost.at_least_zero().scaled(1e-3),
            parallelism,
            competitive,
        })
    }
}

/// The least that a byte of any size took beyond a page's time, ns; 0: nothing is
/// known.
fn fastest(sizes: &[u64], samples: &[Vec<f64>]) -> f64 {
    let least = |samples: &Vec<f64>| samples.iter().copied().min_by(f64::total_cmp);
    let Some(page_ns) = samples.first().and_then(least) else { return 0.0 };
    let rest = sizes.iter().zip(samples).skip(1);
    let of = |(size, samples): (&u64, _)| Some((least(samples)? - page_ns) / *size as f64);
    let per_byte = rest.filter_map(of).filter(|ns| *ns > 0.0);
    per_byte.min_by(f64::total_cmp).unwrap_or(0.0)
}

fn size_time((bytes, mean): &Point) -> SizeTime {
    let time_us = mean.estimate().scaled(1e-3);
    SizeTime { bytes: *bytes as u64, time_us, samples: mean.count }
}

fn curve(jumps: &[Jump], fixed_ns: Estimate) -> Vec<SeekPoint> {
    let groups = estimate::by_distance(jumps, 16);
    let point = |(root, mean): &Point| SeekPoint {
        distance: root * root,
        time_us: mean.estimate().minus(fixed_ns).scaled(1e-3),
        samples: mean.count,
    };
    groups.iter().map(point).collect()
}

fn streams(places: &[(f64, Mean)]) -> Result<Sequential> {
    let places = undisturbed(places);
    // ns per byte, so that the mean is that of the time a whole pass takes.
    let count = places.len() as f64;
    if places.is_empty() {
        return Err(Error::TooFew);
    }
    let value = places.iter().map(|(_, mean)| mean.value).sum::<f64>() / count;
    let variance = places.iter().map(|(_, mean)| mean.variance).sum::<f64>() / count.powi(2);
    let samples = places.iter().map(|(_, mean)| mean.count).sum();
    let per_byte = Mean { value, variance, count: samples }.estimate();
    let by_position = places.iter().map(|(position, mean)| Place {
        position: *position,
        mb_s: mean.estimate().inverse().scaled(1e3),
    });
    Ok(Sequential { mean_mb_s: per_byte.inverse().scaled(1e3), by_position: by_position.collect() })
}

/// Places on each side by which one is judged, and how much slower than most of
/// them it may be.
const NEIGHBOURS: usize = 2;
const SLOWER_MAX: f64 = 1.25;

/// Rates change little from place to place. Where one is far slower than most
/// of its neighbours, somebody else came in between: theirs stands for it.
fn undisturbed(places: &[(f64, Mean)]) -> Vec<(f64, Mean)> {
    let usual = |index: usize| {
        let first = index.saturating_sub(NEIGHBOURS);
        let end = (index + NEIGHBOURS + 1).min(places.len());
        let mut near: Vec<Mean> = places.get(first..end)?.iter().map(|(_, mean)| *mean).collect();
        near.sort_by(|a, b| a.value.total_cmp(&b.value));
        near.get((near.len() - 1) / 2).copied()
    };
    let judge = |(index, (position, mean)): (usize, &(f64, Mean))| {
        let usual = usual(index).filter(|usual| mean.value > SLOWER_MAX * usual.value);
        (*position, usual.unwrap_or(*mean))
    };
    places.iter().enumerate().map(judge).collect()
}

/// Requests being served at the best throughput, by Little's law: throughput
/// times the time of one request alone (many more samples than depth 1 has).
fn parallelism(depths: &[(u32, Estimate)], page_ns: Estimate) -> Result<Parallelism> {
    let single = depths.first().ok_or(Error::TooFew)?.1;
    let (best_depth, best) = depths
        .iter()
        .max_by(|a, b| a.1.value.total_cmp(&b.1.value))
        .copied()
        .ok_or(Error::TooFew)?;
    let last = depths.last().ok_or(Error::TooFew)?.1;
    let gain = best.over(single);
    let end = last.over(single);
    let random_reads = if gain.value >= HELPS_FROM && gain.low > 1.0 {
        RandomReads::Help
    } else if end.value <= HURTS_FROM && end.high < 1.0 {
        RandomReads::Hurt
    } else {
        RandomReads::Neither
    };
    Ok(Parallelism {
        effective: best.times(page_ns).scaled(1e-9),
        knee_depth: estimate::knee(depths, KNEE_SHARE).unwrap_or(best_depth),
        best_depth,
        random_reads,
        depths: depths
            .iter()
            .map(|(depth, per_s)| Depth { depth: *depth, reads_per_s: *per_s })
            .collect(),
    })
}

/// S_p = C_switch · R_tr (Li et al. 2004, equation 5), in bytes. The latency of a
/// random read stands for C_switch: on a disk it is a seek and half a revolution,
/// as a switch is. On a disk the rate is that of the stream. Where nothing seeks, a
/// stream has one request's latency and that request's share of the bandwidth.
fn competitive(
    latency_ns: Estimate,
    stream_mb_s: Estimate,
    request_mb_s: Estimate,
    seeks: bool,
) -> Competitive {
    let rate =
        if seeks || stream_mb_s.value > request_mb_s.value { stream_mb_s } else { request_mb_s };
    Competitive { depth_bytes: latency_ns.times(rate.scaled(1e-3)) }
}

#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    reads: u64,
    bytes: u64,
}

/// A measurement going on.
struct Run<'a> {
    reader: &'a mut dyn Reader,
    options: &'a Options,
    random: Random,
    say: &'a mut dyn FnMut(&str, f64),
    began_ns: u64,
    spent: Spent,
    /// Largest request that this device serves in time, bytes, and what it takes
    /// for each byte of one, ns.
    request_max: u64,
    ns_per_byte: f64,
}

impl Run<'_> {
    /// End of a phase that may take this share of the time from now on.
    fn phase(&mut self, name: &str, share: f64) -> u64 {
        self.report(name);
        self.reader.now_ns() + (self.options.time_s * share * 1e9) as u64
    }

    fn report(&mut self, name: &str) {
        let elapsed_s = (self.reader.now_ns() - self.began_ns) as f64 / 1e9;
        (self.say)(name, (elapsed_s / self.options.time_s).min(1.0));
    }

    fn rest(&mut self, busy_ns: u64) {
        let idle = (1.0 / self.options.load.clamp(0.01, 1.0) - 1.0) * busy_ns as f64;
        if idle >= 1.0 {
            self.reader.pause(idle as u64);
        }
    }

    /// A read, without the rest after it.
    fn read(&mut self, offset: u64, len: u64) -> Result<Option<crate::reader::Timed>> {
        self.spent.reads += 1;
        self.spent.bytes += len;
        self.reader.read(offset, len)
    }

    /// A random place for a read of `len`, a multiple of it where that fits,
    /// else of a page.
    fn place(&mut self, len: u64) -> u64 {
        let size = self.reader.size_bytes();
        self.random.below((size - size.min(len)) / len + 1) * len
    }

    /// Time over size, random places, the sizes in turn.
    fn sizes(&mut self) -> Result<Vec<Point>> {
        const ROUNDS: usize = 40;
        let end_ns = self.phase("request sizes", 0.27);
        let max = self.reader.request_bytes_max().min(self.reader.size_bytes() / 4);
        let mut sizes: Vec<u64> = SIZES_BYTES.iter().copied().filter(|size| *size <= max).collect();
        let long_ns = self.options.time_s * 0.27 * SIZE_TIME_SHARE * self.options.load * 1e9;
        let long_ns = (long_ns as u64).max(TRANSFER_MIN_NS);
        let burst_ns = BURST_S * self.options.load * 1e9;
        let mut samples: Vec<Vec<f64>> = vec![Vec::new(); sizes.len()];
        let mut resident = 0;
        for round in 0..ROUNDS {
            for index in 0..sizes.len() {
                let (size, is_new) = (sizes[index], samples[index].is_empty());
                if is_new
                    && index >= SIZES_MIN
                    && fastest(&sizes, &samples) * size as f64 > burst_ns
                {
                    sizes.truncate(index);
                    samples.truncate(index);
                    break;
                }
                let Some(ns) = self.sample(size)? else {
                    resident += 1;
                    continue;
                };
                samples[index].push(ns as f64);
                // What it takes beyond a page is its transfer; twice, since
                // anybody may come in between once.
                let page_ns = samples[0].iter().copied().fold(f64::INFINITY, f64::min);
                let is_long = |ns: u64| ns as f64 > page_ns + long_ns as f64;
                if is_new
                    && index >= SIZES_MIN
                    && is_long(ns)
                    && let Some(again_ns) = self.sample(size)?
                {
                    samples[index].push(again_ns as f64);
                    if is_long(again_ns) {
                        sizes.truncate(index);
                        samples.truncate(index);
                        break;
                    }
                }
            }
            self.report("request sizes");
            if round >= 3 && self.reader.now_ns() > end_ns {
                break;
            }
        }
        // Where others use a part of a file, few large requests find nothing of it
        // in memory.
        let enough = samples.iter().take_while(|samples| samples.len() >= 3).count();
        if enough < SIZES_MIN.min(sizes.len()) {
            return Err(if resident > 0 { self.resident() } else { Error::TooFew });
        }
        sizes.truncate(enough);
        let points: Vec<Point> = sizes
            .iter()
            .zip(&samples)
            .filter_map(|(size, samples)| Some((*size as f64, Mean::trimmed(samples)?)))
            .collect();
        if let Some((bytes, mean)) = points.last() {
            (self.request_max, self.ns_per_byte) = (*bytes as u64, mean.value / bytes);
        }
        Ok(points)
    }

    /// Time of a read at a random place, ns, and the rest after it; `None` where
    /// memory answered.
    fn sample(&mut self, size: u64) -> Result<Option<u64>> {
        let offset = self.place(size);
        let timed = self.read(offset, size)?;
        if let Some(timed) = timed {
            self.rest(timed.latency_ns());
        }
        Ok(timed.map(|timed| timed.latency_ns()))
    }

    fn resident(&self) -> Error {
        Error::Resident { path: self.reader.path().to_owned() }
    }

    /// Random reads of a page with their distance from the last one: every
    /// other at a distance of its own choice, so that short ones occur too.
    fn jumps(&mut self) -> Result<Vec<Jump>> {
        const COUNT_MAX: usize = 1200;
        let end_ns = self.phase("seek time by distance", 0.18);
        let size = self.reader.size_bytes();
        let (mut jumps, mut head) = (Vec::new(), 0);
        let mut turn = 0u32;
        while jumps.len() < COUNT_MAX && (jumps.len() < 40 || self.reader.now_ns() < end_ns) {
            turn += 1;
            let offset = if turn.is_multiple_of(2) {
                self.place(PAGE_BYTES)
            } else {
                self.step_from(head, size)
            };
            let Some(timed) = self.read(offset, PAGE_BYTES)? else {
                if turn as usize > 8 * COUNT_MAX {
                    return Err(self.resident());
                }
                continue;
            };
            // The first one starts from an unknown place.
            if head != 0 && offset != head {
                let distance = offset.abs_diff(head) as f64 / size as f64;
                jumps.push((distance, timed.latency_ns() as f64));
            }
            head = offset + PAGE_BYTES;
            self.rest(timed.latency_ns());
            if turn.is_multiple_of(32) {
                self.report("seek time by distance");
            }
        }
        Ok(jumps)
    }

    /// A place at a distance whose root is uniform below √½, forwards where
    /// that stays inside.
    fn step_from(&mut self, head: u64, size: u64) -> u64 {
        let share = self.random.share() * 0.5f64.sqrt();
        let distance = (share * share * size as f64) as u64 / PAGE_BYTES * PAGE_BYTES;
        let distance = distance.max(PAGE_BYTES);
        let forwards = head + distance + PAGE_BYTES <= size;
        if forwards { head + distance } else { head.saturating_sub(distance) }
    }

    /// Times between completions of reads of one place.
    fn rereads(&mut self) -> Result<Vec<f64>> {
        let end_ns = self.phase("rotation", 0.03);
        let (mut periods, mut resident) = (Vec::new(), 0);
        while periods.len() < 80 && (periods.len() < 16 || self.reader.now_ns() < end_ns) {
            let offset = self.place(PAGE_BYTES);
            let (mut last, began_ns) = (None, self.reader.now_ns());
            let before = periods.len();
            for _ in 0..9 {
                let Some(timed) = self.read(offset, PAGE_BYTES)? else { continue };
                if let Some(last) = last.replace(timed.end_ns) {
                    periods.push((timed.end_ns - last) as f64);
                }
            }
            if periods.len() == before {
                resident += 1;
                if resident == RESIDENT_MAX {
                    break;
                }
                continue;
            }
            resident = 0;
            self.rest(self.reader.now_ns() - began_ns);
        }
        Ok(periods)
    }

    /// ns per byte of a stream, at places from the first to the last byte.
    fn sequential(&mut self) -> Result<Vec<(f64, Mean)>> {
        let end_ns = self.phase("sequential rate by position", 0.2);
        let size = self.reader.size_bytes();
        // Read without a rest, they keep the device as long as a burst may.
        let burst = BURST_S * self.options.load * 1e9 / self.ns_per_byte.max(1e-3) / 5.0;
        let burst = (burst as u64 / PAGE_BYTES * PAGE_BYTES).max(STREAM_BYTES_MIN);
        let chunk = STREAM_BYTES.min(self.request_max).min(size / 8).min(burst);
        let chunks: u64 = 5.min(size / chunk);
        // As many as can be read once in this phase.
        let place_ns = self.ns_per_byte * (chunk * chunks) as f64 / self.options.load;
        let in_time = self.options.time_s * 0.2e9 / place_ns.max(1.0);
        let count = (in_time as u64).clamp(*PLACES.start(), *PLACES.end());
        let count = (size / (chunk * chunks)).clamp(1, count);
        let mut samples = vec![Vec::new(); count as usize];
        // Round by round over all places, so that time running out leaves none bare.
        for round in 0..8 {
            for (index, samples) in (0..count).zip(&mut samples) {
                let last = size - chunk * chunks;
                let start = (last / count.max(2) * index + last / count.max(2) / 8 * (round % 8))
                    .min(last)
                    / PAGE_BYTES
                    * PAGE_BYTES;
                let began_ns = self.reader.now_ns();
                let mut continues = false;
                for number in 0..chunks {
                    let timed = self.read(start + number * chunk, chunk)?;
                    // The first one has the seek in it.
                    if let Some(timed) = timed.filter(|_| continues) {
                        samples.push(timed.latency_ns() as f64 / chunk as f64);
                    }
                    continues = timed.is_some();
                }
                self.rest(self.reader.now_ns() - began_ns);
            }
            self.report("sequential rate by position");
            if self.reader.now_ns() > end_ns {
                break;
            }
        }
        let places = (0..count).zip(&samples).filter_map(|(index, samples)| {
            Some((index as f64 / count as f64, Mean::trimmed(samples)?))
        });
        Ok(places.collect())
    }

    /// A request that switches to another stream, and one that continues its
    /// own. A request spans a row of stripe units, so that every spindle of an
    /// array has its part in the first one.
    fn switches(&mut self) -> Result<(Mean, Mean)> {
        const BYTES_MAX: u64 = 256 << 10;
        const REQUESTS: u64 = 3;
        let bytes = BYTES_MAX.min(self.request_max);
        let end_ns = self.phase("switch cost", 0.12);
        let size = self.reader.size_bytes();
        let (mut switched, mut continued) = (Vec::new(), Vec::new());
        let mut resident = 0;
        while switched.len() < 200 && (switched.len() < 12 || self.reader.now_ns() < end_ns) {
            // Independent random places, as in the paper's mean switching time.
            let start = self.random.below((size - REQUESTS * bytes) / bytes) * bytes;
            let (mut busy_ns, before) = (0, switched.len());
            let mut continues = false;
            for number in 0..REQUESTS {
                let timed = self.read(start + number * bytes, bytes)?;
                if let Some(timed) = timed {
                    match (number, continues) {
                        (0, _) => switched.push(timed.latency_ns() as f64),
                        (_, true) => continued.push(timed.latency_ns() as f64),
                        // It went there, but not from the last one.
                        (_, false) => {}
                    }
                    busy_ns += timed.latency_ns();
                }
                continues = timed.is_some();
            }
            resident = if switched.len() == before { resident + 1 } else { 0 };
            if resident == RESIDENT_MAX {
                return Err(self.resident());
            }
            self.rest(busy_ns);
        }
        let both = Mean::trimmed(&switched).zip(Mean::trimmed(&continued));
        both.ok_or(Error::TooFew)
    }

    /// Random reads of a page per second, at each depth.
    fn depths(&mut self) -> Result<Vec<(u32, Estimate)>> {
        let end_ns = self.phase("parallelism", 0.2);
        let each_ns = (self.options.time_s * 0.2 * 1e9) / DEPTHS.len() as f64;
        let mut rates: Vec<(u32, Estimate)> = Vec::new();
        for depth in DEPTHS {
            let now_ns = self.reader.now_ns();
            self.report(&format!("parallelism: {depth} at once"));
            let per_s = match rates.last() {
                Some((_, rate)) => rate.value,
                None => self.probe_rate()?,
            };
            let least = f64::from(depth * 3).max(24.0);
            let burst = per_s * BURST_S * self.options.load;
            // A device that slow has shown by then what depth brings it.
            let late = now_ns as f64 > end_ns as f64 + each_ns * DEPTHS.len() as f64;
            if rates.len() >= DEPTHS_MIN && (late || least > burst) {
                break;
            }
            // Of the time that this depth may take, the busy part.
            let wanted = (per_s * each_ns / 1e9 * self.options.load).min(burst);
            let count = wanted.clamp(least, 50_000.0) as usize;
            let offsets: Vec<u64> = (0..count).map(|_| self.place(PAGE_BYTES)).collect();
            let completions = match self.reader.parallel(&offsets, PAGE_BYTES, depth as usize) {
                // The smaller depths have to do.
                Err(Error::Threads { .. }) if rates.len() >= DEPTHS_MIN => break,
                other => other?,
            };
            self.spent.reads += count as u64;
            self.spent.bytes += count as u64 * PAGE_BYTES;
            self.rest(self.reader.now_ns() - now_ns);
            let rate = estimate::rate(&completions, depth as usize);
            let is_partly_resident = completions.len() < count;
            let too_few = rate.is_none() && rates.len() < DEPTHS_MIN;
            if completions.len() * 2 < count || too_few && is_partly_resident {
                return Err(self.resident());
            }
            match rate {
                Some(rate) => rates.push((depth, rate)),
                // The smaller depths have to do.
                None if rates.len() >= DEPTHS_MIN => break,
                None => return Err(Error::TooFew),
            }
        }
        Ok(rates)
    }

    /// About how many random reads a second one reader makes.
    fn probe_rate(&mut self) -> Result<f64> {
        let mut times = Vec::new();
        for _ in 0..64 {
            times.extend(self.sample(PAGE_BYTES)?.map(|ns| ns as f64));
            if times.len() >= 8 {
                break;
            }
        }
        let latency_ns = estimate::median(&times).ok_or_else(|| self.resident())?;
        Ok(1e9 / latency_ns.max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_place_is_as_fast_as_its_neighbours() {
        // From 61 to 41 MB/s; somebody else read beside two of the places.
        let ns_per_byte = |index: u32| 1e3 / (61.0 - 20.0 * f64::from(index) / 31.0);
        let mean = |index: u32| {
            let slower = match index {
                16 => 6.0,
                17 => 1.5,
                _ => 1.0,
            };
            Mean { value: ns_per_byte(index) * slower, variance: 0.01, count: 16 }
        };
        let places: Vec<_> = (0..32).map(|index| (f64::from(index) / 32.0, mean(index))).collect();
        let found = streams(&places).unwrap();
        let ideal = (0..32).map(ns_per_byte).sum::<f64>() / 32.0;
        assert!((found.mean_mb_s.value * ideal / 1e3 - 1.0).abs() < 0.01, "{:?}", found.mean_mb_s);
        let rates = found.by_position.iter().map(|place| place.mb_s.value);
        assert!(rates.clone().is_sorted_by(|a, b| a > &(b * 0.95)), "{:?}", found.by_position);
    }
}
