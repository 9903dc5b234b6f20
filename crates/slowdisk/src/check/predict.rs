//! What the model says about the load that is measured: the same number of
//! requests in flight, each followed at once by the next.

use std::time::Duration;

use super::load::{Measured, shuffled};
use super::{BLOCK_BYTES, CHUNK_BYTES, parallel};
use crate::model::{Array, Completion, Request};
use crate::profile::{Medium, Profile};

/// One window of the kernel's readahead.
const READ_AHEAD_BYTES: u64 = 128 << 10;

/// Random reads, `depth` in flight: the first `requests` places of the order
/// that the measurement takes too.
pub fn random(
    profile: &Profile,
    size_bytes: u64,
    depth: usize,
    requests: u64,
    seed: u64,
) -> Measured {
    let blocks = size_bytes / BLOCK_BYTES;
    let mut place = 0;
    closed_loop(profile, size_bytes, depth, seed, Until::Requests(requests), || {
        let offset = shuffled(place % blocks, blocks, seed) * BLOCK_BYTES;
        place += 1;
        Request { offset, len: BLOCK_BYTES, write: false }
    })
}

/// One reader from the start onwards, for that long.
pub fn sequential(profile: &Profile, size_bytes: u64, seed: u64, each: Duration) -> Measured {
    let until = Until::Time(each.as_nanos() as u64);
    if profile.medium == Medium::Object {
        // The kernel reads ahead through FUSE: windows of 128 KiB, the next
        // one asked for when the reader comes to its marker.
        let chunks = next_chunk(READ_AHEAD_BYTES, size_bytes);
        let measured = closed_loop(profile, size_bytes, 2, seed, until, chunks);
        return Measured {
            requests: measured.requests * READ_AHEAD_BYTES / CHUNK_BYTES,
            ..measured
        };
    }
    closed_loop(profile, size_bytes, 1, seed, until, next_chunk(CHUNK_BYTES, size_bytes))
}

/// When a modelled load ends.
#[derive(Debug, Clone, Copy)]
enum Until {
    Requests(u64),
    /// Nanoseconds.
    Time(u64),
}

fn next_chunk(len: u64, size_bytes: u64) -> impl FnMut() -> Request {
    let mut offset = 0;
    move || {
        let request = Request { offset: offset % size_bytes, len, write: false };
        offset += len;
        request
    }
}

fn closed_loop(
    profile: &Profile,
    size_bytes: u64,
    depth: usize,
    seed: u64,
    until: Until,
    mut next: impl FnMut() -> Request,
) -> Measured {
    let profile = Profile { channels: parallel(profile), ..*profile };
    let mut array: Array<u64> = Array::new(&profile, size_bytes, seed);
    let mut done: Vec<Completion<u64>> = Vec::new();
    for _ in 0..depth {
        array.submit(0, next(), 0, &mut done);
    }
    let (mut completed, mut latency_ns_sum, mut now_ns) = (0, 0, 0);
    while match until {
        Until::Requests(requests) => completed < requests.max(1),
        Until::Time(end_ns) => now_ns < end_ns,
    } {
        now_ns = array.next_event_ns().expect("requests are in flight");
        array.advance(now_ns, &mut done);
        for completion in std::mem::take(&mut done) {
            completed += 1;
            latency_ns_sum += completion.finished_ns - completion.payload;
            array.submit(now_ns, next(), now_ns, &mut done);
        }
    }
    Measured { requests: completed, elapsed_ns: now_ns, latency_ns_sum, machine_cpu_ns: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE_BYTES: u64 = 1 << 30;

    fn rate(profile: &Profile, depth: usize) -> f64 {
        random(profile, SIZE_BYTES, depth, 500 * depth as u64, 3).per_s()
    }

    #[test]
    fn network_scales_to_its_channels_and_no_further() {
        let profile = Profile::by_name("cloud").unwrap();
        let one = 1e9 / profile.mean_random_ns(BLOCK_BYTES) as f64;
        for (depth, parallel) in [(1, 1.0), (8, 8.0), (32, 32.0), (64, 32.0)] {
            assert!((rate(&profile, depth) / one / parallel - 1.0).abs() < 0.01, "depth {depth}");
        }
    }

    #[test]
    fn fuse_limits_an_object_store() {
        let profile = Profile::by_name("object").unwrap();
        let (one, many) = (rate(&profile, 1), rate(&profile, 64));
        assert!((many / one - 12.0).abs() < 0.2, "{many} against {one}");
    }

    #[test]
    fn disks_stream_at_their_rates_together() {
        let array = Profile::by_name("array-2003").unwrap();
        let mb_s = sequential(&array, SIZE_BYTES, 3, Duration::from_secs(20)).mb_per_s(CHUNK_BYTES);
        assert!((78.0..=80.0).contains(&mb_s), "{mb_s}");
        let hdd = Profile::by_name("hdd").unwrap();
        let mb_s = sequential(&hdd, SIZE_BYTES, 3, Duration::from_secs(20)).mb_per_s(CHUNK_BYTES);
        assert!((50.0..=62.0).contains(&mb_s), "{mb_s}");
    }

    /// A longer queue is a shorter way from one place to the next.
    #[test]
    fn a_disk_that_sorts_is_the_faster_the_more_wait() {
        let hdd = Profile::by_name("hdd").unwrap();
        let rates = [1, 8, 32, 128].map(|depth| rate(&hdd, depth));
        assert!(rates.is_sorted(), "{rates:?}");
    }
}
