//! The TIP manager against a storage that completes I/Os when the test says so.

use std::collections::VecDeque;

use runahead_policy::tip::{
    Block, Config, Extensions, FileId, HintError, Io, Layout, Mode, Parameters, Priority,
    ProcessId, Read, ReadOutcome, Segment, Stats, Tip, Valuation,
};

const BLOCK: u64 = 8192;
const A: ProcessId = ProcessId(1);
const B: ProcessId = ProcessId(2);

/// Files of equal size, striped over disks in units of 8 blocks.
#[derive(Debug)]
struct Plain {
    blocks: u32,
    disks: u16,
    deleted: Vec<u32>,
}

impl Layout for Plain {
    fn file_bytes(&self, file: FileId) -> u64 {
        if self.deleted.contains(&file.0) { 0 } else { u64::from(self.blocks) * BLOCK }
    }
    fn next_is_contiguous(&self, block: Block) -> bool {
        block.number % 8 != 7
    }
    fn disk(&self, block: Block) -> u16 {
        ((block.number / 8 + block.file.0) % u32::from(self.disks)) as u16
    }
    fn disks(&self) -> u16 {
        self.disks
    }
}

struct Bed {
    tip: Tip<Plain>,
    queue: VecDeque<Io>,
}

impl Bed {
    fn new(config: Config, file_blocks: u32) -> Self {
        let layout = Plain { blocks: file_blocks, disks: 4, deleted: Vec::new() };
        Self { tip: Tip::new(config, layout), queue: VecDeque::new() }
    }

    fn disclose(&mut self, process: ProcessId, segments: &[(u32, u64, u64)]) {
        let segments: Vec<Segment> = segments
            .iter()
            .map(|&(file, first, blocks)| Segment {
                file: FileId(file),
                offset: first * BLOCK,
                length: blocks * BLOCK,
            })
            .collect();
        let mut ios = Vec::new();
        self.tip.disclose(process, &segments, &mut ios).unwrap();
        self.queue.extend(ios);
    }

    fn complete_one(&mut self) -> bool {
        let Some(io) = self.queue.pop_front() else { return false };
        let mut ios = Vec::new();
        self.tip.io_done(&io, Some(15_000), &mut ios);
        self.queue.extend(ios);
        true
    }

    /// Reads one block, completing I/Os until it is there.
    fn read(&mut self, process: ProcessId, file: u32, number: u32) -> ReadOutcome {
        let outcome = self.request(process, file, number);
        self.tip.release(Block { file: FileId(file), number });
        outcome
    }

    /// The same without releasing it.
    fn request(&mut self, process: ProcessId, file: u32, number: u32) -> ReadOutcome {
        let block = Block { file: FileId(file), number };
        let offset = u64::from(number) * BLOCK;
        let (call_start, call_end) = (offset, offset + BLOCK);
        let read = Read {
            process,
            file: block.file,
            offset,
            length: BLOCK,
            call_start,
            call_end,
            t_app_us: 100,
        };
        let mut ios = Vec::new();
        let outcome = self.tip.read(&read, &mut ios);
        self.queue.extend(ios);
        while !self.tip.is_cached(block) {
            assert!(self.complete_one(), "nothing under way brings {block:?}");
        }
        outcome
    }

    fn drain(&mut self) {
        while self.complete_one() {}
    }

    fn stats(&self) -> Stats {
        *self.tip.stats()
    }
}

fn small(buffers: u32) -> Config {
    Config {
        buffers,
        active_segment: buffers / 6 + 1,
        segment: buffers / 15 + 1,
        reserve: 2,
        readahead: None,
        ..Config::thesis()
    }
}

#[test]
fn without_hints_replacement_is_lru() {
    let mut bed = Bed::new(small(50), 200);
    let mut lru: VecDeque<u32> = VecDeque::new();
    let mut random = Random(7);
    for _ in 0..20_000 {
        let number = (random.below(70) * random.below(70) / 40) as u32;
        let cached = lru.iter().position(|&other| other == number);
        let outcome = bed.read(A, 0, number);
        assert_eq!(outcome == ReadOutcome::Hit, cached.is_some());
        if let Some(i) = cached {
            lru.remove(i);
        } else if lru.len() == 50 {
            lru.pop_front();
        }
        lru.push_back(number);
    }
    bed.tip.check_invariants();
}

/// Figure 4.7: on a cyclic hinted scan larger than the cache, blocks just read are the least
/// valuable, and a fixed part of the file stays.
#[test]
fn cyclic_hinted_scans_find_mru() {
    let passes = 10;
    let mut bed = Bed::new(Config { readahead: None, ..Config::thesis() }, 2089);
    bed.disclose(A, &[(0, 0, 0)]);
    let mut misses_of_pass = Vec::new();
    for _ in 0..passes {
        bed.disclose(A, &[(0, 0, 0)]);
        let before = bed.stats();
        for number in 0..2089 {
            bed.read(A, 0, number);
            bed.complete_one();
        }
        let stats = bed.stats();
        misses_of_pass.push(
            stats.prefetched_blocks + stats.misses - before.prefetched_blocks - before.misses,
        );
    }
    bed.tip.check_invariants();
    let fetched = misses_of_pass[9];
    // The ideal is 2089 − (1536 − P̂) = 626 blocks.
    assert!((553..720).contains(&fetched), "{misses_of_pass:?}");
}

#[test]
fn prefetching_goes_to_the_horizon_and_no_farther() {
    let mut bed = Bed::new(Config { cluster_blocks: 1, ..Config::thesis() }, 10_000);
    bed.disclose(A, &[(0, 0, 500)]);
    assert_eq!(bed.queue.len(), 73);
    assert!(bed.queue.iter().all(|io| io.priority == Priority::Prefetch));
    bed.read(A, 0, 0);
    bed.drain();
    assert_eq!(bed.stats().prefetched_blocks, 74);
}

#[test]
fn clusters_stay_within_a_stripe_unit_and_reach_past_the_horizon() {
    let mut bed = Bed::new(Config::thesis(), 10_000);
    // Block 10 now; its neighbours 9, 11 and 12 only after 400 others; 13 never.
    let mut segments = vec![(0, 10, 1)];
    segments.extend((0..400).map(|i| (1, i * 16, 1)));
    segments.extend([(0, 9, 1), (0, 11, 2)]);
    bed.disclose(A, &segments);
    let first = bed.queue[0];
    assert_eq!((first.first.number, first.blocks), (9, 4));
}

#[test]
fn a_demand_miss_takes_even_the_most_valuable_buffer() {
    let mut bed = Bed::new(small(16), 1000);
    bed.disclose(A, &[(0, 0, 14)]);
    bed.drain();
    for number in 100..140 {
        bed.read(B, 0, number);
        bed.tip.check_invariants();
    }
}

/// A block within the horizon that a demand miss took the buffer of is prefetched again.
#[test]
fn ejected_blocks_are_listed_for_the_prefetcher_again() {
    let mut bed = Bed::new(small(16), 1000);
    bed.disclose(A, &[(0, 0, 14)]);
    bed.drain();
    // Three blocks held at a time are one more than the buffers that A left free.
    for number in 100..103 {
        bed.request(B, 0, number);
    }
    let cached = |bed: &Bed, number| bed.tip.is_cached(Block { file: FileId(0), number });
    assert!(!cached(&bed, 13), "the farthest of A's blocks was to go");
    for number in 100..103 {
        bed.tip.release(Block { file: FileId(0), number });
    }
    bed.read(A, 0, 0);
    bed.drain();
    assert!(cached(&bed, 13), "not fetched again");
}

#[test]
fn blocks_shared_by_two_processes_are_valued_by_the_nearer_use() {
    let mut bed = Bed::new(small(100), 1000);
    bed.disclose(A, &[(0, 0, 40)]);
    bed.disclose(B, &[(0, 20, 20)]);
    bed.drain();
    assert_eq!(bed.stats().prefetched_blocks, 40, "each block is fetched once");
    for number in 0..40 {
        assert_eq!(bed.read(A, 0, number), ReadOutcome::Hit);
    }
    for number in 20..40 {
        assert_eq!(bed.read(B, 0, number), ReadOutcome::Hit);
    }
    bed.tip.check_invariants();
}

#[test]
fn cancelled_and_exited_processes_leave_orphans_that_go_first() {
    let mut bed = Bed::new(small(40), 1000);
    for number in 900..910 {
        bed.read(B, 0, number);
    }
    bed.disclose(A, &[(0, 0, 8), (0, 8, 16)]);
    bed.drain();
    let mut ios = Vec::new();
    bed.tip.cancel(A, &mut ios).unwrap();
    assert_eq!(bed.tip.outstanding(A), 16);
    bed.tip.exit(A, &mut ios);
    bed.tip.check_invariants();
    assert_eq!(bed.tip.cancel(A, &mut ios), Err(HintError::NoSuchProcess));
    // 34 of 40 buffers are in use; 30 misses need 24 of the orphans and none of B's blocks.
    for number in 500..530 {
        bed.read(B, 0, number);
    }
    for number in 900..910 {
        assert_eq!(bed.read(B, 0, number), ReadOutcome::Hit, "block {number}");
    }
}

#[test]
fn a_deleted_file_leaves_nothing_and_is_not_prefetched() {
    let mut bed = Bed::new(small(64), 1000);
    bed.disclose(A, &[(0, 0, 200)]);
    bed.drain();
    bed.tip.layout_mut().deleted.push(0);
    bed.tip.invalidate(FileId(0));
    bed.tip.check_invariants();
    assert!(!bed.tip.is_cached(Block { file: FileId(0), number: 0 }));
    let mut ios = Vec::new();
    bed.tip.cancel(A, &mut ios).unwrap();
    bed.disclose(A, &[(1, 0, 4)]);
    assert!(bed.queue.iter().all(|io| io.first.file == FileId(1)));
}

#[test]
fn hints_beyond_the_cap_are_refused_with_an_error() {
    let mut bed = Bed::new(Config { segments_max: 3, ..small(64) }, 1000);
    let segment = |i: u64| Segment { file: FileId(0), offset: i * BLOCK, length: 1 };
    let segments: Vec<Segment> = (0..5).map(segment).collect();
    let mut ios = Vec::new();
    let refused = bed.tip.disclose(A, &segments, &mut ios);
    assert_eq!(refused, Err(HintError::TooMany { stored: 3 }));
    assert_eq!(bed.tip.outstanding(A), 3);
}

/// Valuable unhinted blocks withstand prefetching deep ahead, but not the next access.
#[test]
fn reused_unhinted_blocks_hold_their_buffers_against_hinted_caching() {
    let mut bed = Bed::new(Config { readahead: None, ..Config::thesis() }, 5000);
    bed.disclose(A, &[(0, 0, 0)]);
    let mut next = 0;
    let mut hits = 0;
    for round in 0..20 {
        for number in 0..300 {
            let outcome = bed.read(B, 1, number);
            hits += u32::from(round >= 5 && outcome == ReadOutcome::Hit);
            bed.read(A, 0, next);
            next = (next + 1) % 5000;
            if next == 0 {
                bed.disclose(A, &[(0, 0, 0)]);
            }
        }
    }
    assert!(hits > 15 * 300 * 9 / 10, "{hits} of 4500");
}

#[test]
fn a_demand_miss_without_a_buffer_is_read_past_the_cache() {
    let mut bed = Bed::new(Config { reserve: 1, ..small(4) }, 1000);
    bed.disclose(A, &[(0, 0, 10)]);
    let read = |number: u32| {
        let offset = u64::from(number) * BLOCK;
        let (call_start, call_end) = (offset, offset + BLOCK);
        Read {
            process: B,
            file: FileId(1),
            offset,
            length: BLOCK,
            call_start,
            call_end,
            t_app_us: 1,
        }
    };
    let mut ios = Vec::new();
    let outcomes: Vec<ReadOutcome> =
        (0..20).map(|number| bed.tip.read(&read(number), &mut ios)).collect();
    // Three are being prefetched for A.
    assert_eq!(outcomes[0], ReadOutcome::Miss);
    assert!(outcomes[1..].iter().all(|&outcome| outcome == ReadOutcome::Uncached), "{outcomes:?}");
    assert_eq!((ios.len(), bed.stats().misses), (1, 20));
    bed.tip.check_invariants();
    bed.queue.extend(ios);
    bed.drain();
    for number in 0..20 {
        bed.tip.release(Block { file: FileId(1), number });
        bed.tip.check_invariants();
    }
    assert_eq!(bed.read(B, 1, 10), ReadOutcome::Miss, "there is room again");
    for number in 0..10 {
        bed.read(A, 0, number);
    }
    bed.tip.check_invariants();
}

/// Else many programs with long hints took gigabytes of headers.
#[test]
fn processes_share_what_may_be_resolved() {
    let config = |resolved_total| Config { resolved_max: 300, resolved_total, ..small(64) };
    // Two are within the bound.
    let resolved_by_two = |resolved_total| {
        let mut bed = Bed::new(config(resolved_total), 1000);
        bed.disclose(A, &[(0, 0, 1000)]);
        bed.disclose(B, &[(1, 0, 1000)]);
        bed.tip.resolved()
    };
    assert_eq!((resolved_by_two(600), resolved_by_two(u64::MAX)), (600, 600));
    let mut bed = Bed::new(config(600), 1000);
    for process in 0..8 {
        bed.disclose(ProcessId(process), &[(process, 0, 1000)]);
        bed.tip.check_invariants();
        assert!(bed.tip.resolved() <= 600, "{} by {process}", bed.tip.resolved());
    }
    // What was given up is resolved again in time: all is prefetched.
    let before = bed.stats().misses;
    for number in 0..1000 {
        bed.read(ProcessId(0), 0, number);
        bed.complete_one();
    }
    bed.tip.check_invariants();
    assert!(bed.stats().misses - before < 100, "{:?}", bed.stats());
    // Who stays when another has ended has that one's part, too.
    let mut bed = Bed::new(config(300), 1000);
    for process in [A, B] {
        bed.disclose(process, &[(0, 0, 1000)]);
    }
    bed.tip.exit(A, &mut Vec::new());
    assert_eq!(bed.tip.resolved(), 150);
    bed.disclose(B, &[(1, 0, 1)]);
    assert_eq!(bed.tip.resolved(), 300);
    bed.tip.check_invariants();
}

#[test]
fn an_event_resolves_no_more_than_it_may() {
    let mut bed = Bed::new(Config { match_window: 1000, ..Config::thesis() }, 20_000);
    bed.tip.bound_resolving(500);
    bed.disclose(A, &vec![(0, 0, 20_000); 100]);
    assert_eq!(bed.tip.resolved(), 500);
    bed.tip.bound_resolving(500);
    bed.read(A, 0, 0);
    assert_eq!(bed.tip.resolved(), 999, "the rest comes with what follows");
    let before = bed.stats().resolved;
    bed.tip.bound_resolving(u64::MAX);
    let mut ios = Vec::new();
    bed.tip.cancel_first(A, 90, &mut ios).unwrap();
    // Not after each of them.
    assert_eq!((bed.tip.resolved(), bed.stats().resolved - before), (10_000, 10_000));
    assert_eq!(bed.tip.outstanding_segments(A), 10);
    bed.tip.cancel_first(A, u32::MAX, &mut ios).unwrap();
    assert_eq!((bed.tip.resolved(), bed.tip.outstanding_segments(A)), (0, 0));
    assert_eq!(bed.tip.cancel_first(A, 1, &mut ios), Err(HintError::NoSuchProcess));
    bed.tip.check_invariants();
}

#[test]
fn nothing_is_prefetched_for_a_process_that_is_paused() {
    let mut bed = Bed::new(small(64), 1000);
    bed.tip.pause(A);
    bed.disclose(A, &[(0, 0, 50)]);
    assert!(bed.queue.is_empty());
    bed.disclose(B, &[(1, 0, 10)]);
    bed.drain();
    assert_eq!(bed.stats().prefetched_blocks, 10);
    let mut ios = Vec::new();
    bed.tip.resume(A, &mut ios);
    assert!(!ios.is_empty());
    bed.queue.extend(ios);
    bed.drain();
    assert_eq!(bed.stats().prefetched_blocks, 60);
    bed.tip.check_invariants();
}

#[test]
fn random_work_keeps_the_invariants() {
    for seed in 0..1000 {
        let outcome = std::panic::catch_unwind(|| random_work(seed, u64::MAX));
        assert!(outcome.is_ok(), "failed with seed {seed}");
        let outcome = std::panic::catch_unwind(|| random_work(seed, 30));
        assert!(outcome.is_ok(), "failed with seed {seed}, little resolved");
    }
}

fn random_work(seed: u64, resolved_total: u64) {
    let mut random = Random(seed * 2 + 1);
    let config = Config { resolved_total, ..random_config(&mut random) };
    let file_blocks = 4 + random.below(120) as u32;
    let mut bed = Bed::new(config, file_blocks);
    let processes = 3;
    let mut planned: Vec<VecDeque<(u32, u32)>> = vec![VecDeque::new(); processes];
    for _ in 0..150 {
        let p = random.below(processes as u64) as usize;
        let process = ProcessId(p as u32);
        match random.below(10) {
            0..2 => {
                let file = random.below(3) as u32;
                let first = random.below(u64::from(file_blocks)) as u32;
                let blocks = 1 + random.below(u64::from((file_blocks - first).min(30))) as u32;
                bed.disclose(process, &[(file, u64::from(first), u64::from(blocks))]);
                planned[p].extend((first..first + blocks).map(|number| (file, number)));
            }
            2..7 => {
                let (file, number) = planned[p].pop_front().unwrap_or_else(|| {
                    (random.below(3) as u32, random.below(u64::from(file_blocks)) as u32)
                });
                bed.read(process, file, number);
            }
            7 => {
                let block =
                    Block { file: FileId(3), number: random.below(u64::from(file_blocks)) as u32 };
                let mut ios = Vec::new();
                bed.tip.write(process, block, &mut ios);
                bed.queue.extend(ios);
            }
            8 => {
                bed.complete_one();
            }
            _ => random_event(&mut bed, &mut random, process, &mut planned[p]),
        }
        bed.tip.check_invariants();
    }
    bed.drain();
    bed.tip.check_invariants();
}

fn random_event(
    bed: &mut Bed,
    random: &mut Random,
    process: ProcessId,
    planned: &mut VecDeque<(u32, u32)>,
) {
    let mut ios = Vec::new();
    match random.below(4) {
        0 => {
            bed.tip.exit(process, &mut ios);
            planned.clear();
        }
        1 => bed.tip.invalidate(FileId(random.below(4) as u32)),
        2 => {
            let _ = bed.tip.cancel(process, &mut ios);
        }
        _ => bed.drain(),
    }
    bed.queue.extend(ios);
}

fn random_config(random: &mut Random) -> Config {
    let buffers = 6 + random.below(60) as u32;
    let parameters = Parameters {
        t_hit_us: 1 + random.below(500) as u32,
        t_driver_us: 1 + random.below(1000) as u32,
        t_disk_us: 1 + random.below(20_000) as u32,
    };
    let modes = [
        Mode::CostBenefit,
        Mode::CostBenefit,
        Mode::Static { depth: random.below(20), cluster_slack: random.below(16) },
        Mode::NoPrefetch,
    ];
    let valuations = [
        Valuation::Tip,
        Valuation::Tiptoe,
        Valuation::FixedHorizon,
        Valuation::Aggressive,
        Valuation::Forestall,
    ];
    let mut coin = || random.below(2) == 1;
    let extensions =
        Extensions { finite_disks: coin(), post_hint: coin(), process_horizon: coin() };
    let readahead = coin().then(Default::default);
    Config {
        parameters,
        mode: modes[random.below(4) as usize],
        valuation: valuations[random.below(5) as usize],
        extensions,
        readahead,
        reserve: 3 + random.below(3) as u32,
        rate_period: 8 + random.below(64) as u32,
        match_window: 1 + random.below(4) as usize,
        resolved_max: 20 + random.below(100),
        island_blocks: random.below(4) as u32,
        ..small(buffers)
    }
}

/// Xorshift: seeds must mean the same for ever.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound.max(1)
    }
}
