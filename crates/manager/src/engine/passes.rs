//! Ten passes over a file larger than the memory, on a modelled machine: a program, the
//! kernel's page cache with its readahead, one disk that positions, and a manager's thread
//! that gets a processor some time after it wants one. All on a simulated clock.

use std::collections::{BTreeSet, BinaryHeap};

use super::tests::{A, info};
use super::*;

/// One disk of `array-2003`: 12 ms to position, 20 MB/s.
const POSITION_NS: u64 = 12_000_000;
const BLOCK_NS: u64 = 8192 * 50;
/// The program's call: blocks, and time to copy and use them.
const CALL_BLOCKS: u64 = 8;
const CALL_NS: u64 = 60_000;
/// The kernel's readahead: 128 KiB.
const READAHEAD_BLOCKS: u64 = 16;
/// Between a note and the time when the manager's thread looks by itself.
const LOOK_NS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Program,
    Disk,
    Manager,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    first: u64,
    blocks: u64,
    tag: Option<u64>,
}

/// What is modelled.
pub(super) struct Bed {
    pub(super) engine: Option<Engine>,
    pub(super) clock_ns: u64,
    pub(super) positionings: u64,
    pub(super) fetched: u64,
    /// Longest time until a thread that is woken runs; each time is drawn below it.
    lag_ns: u64,
    seed: u64,
    blocks: u64,
    capacity: usize,
    events: BinaryHeap<std::cmp::Reverse<(u64, Event)>>,
    /// The page cache: oldest first, blocks that were read twice apart from the others.
    resident: HashMap<u64, (bool, u64)>,
    /// By whether they were read twice, and when they were used last.
    by_age: BTreeSet<(bool, u64, u64)>,
    inactive: usize,
    stamp: u64,
    stamps: HashMap<u64, u64>,
    flying: BTreeSet<u64>,
    queue: VecDeque<Request>,
    serving: Option<(Request, u64)>,
    head: u64,
    /// The readahead window that the program's own reads opened.
    window: (u64, u64),
    notes: Vec<ReadNote>,
    reports: Vec<(u64, Report)>,
    /// When the manager's thread runs next.
    manager_at: Option<u64>,
    program_waits: bool,
}

impl Bed {
    /// A file of `blocks` and memory for `memory` blocks, of which the manager knows all but
    /// a slack; without a manager if `lag_ns` is none.
    pub(super) fn new(blocks: u64, memory: u32, lag_ns: Option<u64>, seed: u64) -> Self {
        let engine = lag_ns.map(|_| {
            let slack = 1 << 20 >> 13;
            let mut engine = Engine::new(Options { buffers: memory - slack, ..Options::default() });
            engine.connect(A);
            engine.file(A, 0, &info(7, blocks, 1));
            engine
        });
        Self {
            engine,
            clock_ns: 0,
            positionings: 0,
            fetched: 0,
            lag_ns: lag_ns.unwrap_or(0),
            seed,
            blocks,
            capacity: memory as usize,
            events: BinaryHeap::new(),
            resident: HashMap::new(),
            by_age: BTreeSet::new(),
            inactive: 0,
            stamp: 0,
            stamps: HashMap::new(),
            flying: BTreeSet::new(),
            queue: VecDeque::new(),
            serving: None,
            head: u64::MAX,
            window: (0, 0),
            notes: Vec::new(),
            reports: Vec::new(),
            manager_at: None,
            program_waits: false,
        }
    }

    /// Reads the file so many times, hinting all of it first; the time that it takes.
    pub(super) fn passes(&mut self, passes: usize) -> u64 {
        let whole = Segment { file: 0, offset: 0, length: 0 };
        if let Some(engine) = &mut self.engine {
            engine.disclose(A, &vec![whole; passes]);
        }
        self.act();
        let calls = self.blocks.div_ceil(CALL_BLOCKS);
        let mut left = calls * passes as u64;
        self.events.push(std::cmp::Reverse((0, Event::Program)));
        while left > 0 {
            let std::cmp::Reverse((at, event)) = self.events.pop().expect("the program waits");
            self.clock_ns = self.clock_ns.max(at);
            match event {
                Event::Disk => self.complete(),
                Event::Manager => self.manage(),
                Event::Program => {
                    let first = (calls * passes as u64 - left) % calls * CALL_BLOCKS;
                    let end = (first + CALL_BLOCKS).min(self.blocks);
                    // It goes on when the disk has what it waits for.
                    self.program_waits = !self.read(first, end);
                    if !self.program_waits {
                        left -= 1;
                        self.clock_ns += CALL_NS;
                        let (offset, length) = (first * BLOCK_BYTES, (end - first) * BLOCK_BYTES);
                        self.notes.push(ReadNote { file: 0, offset, length, t_app_us: 30 });
                        self.wake_manager(LOOK_NS);
                        self.events.push(std::cmp::Reverse((self.clock_ns, Event::Program)));
                    }
                }
            }
        }
        self.clock_ns
    }

    /// True if all is there; else what is missing is on its way.
    fn read(&mut self, first: u64, end: u64) -> bool {
        for block in first..end {
            if block == self.window.0 && self.window.1 > block {
                self.read_ahead(self.window.1);
            }
            if !self.resident.contains_key(&block) {
                if !self.flying.contains(&block) {
                    self.read_ahead(block);
                }
                return false;
            }
        }
        for block in first..end {
            self.touch(block);
        }
        true
    }

    /// A block is used: brought in, read, or read again.
    fn touch(&mut self, block: u64) {
        self.stamp += 1;
        let before = self.forget(block);
        // Brought in, then read: a third use is the second read.
        let uses = before.map_or(0, |(_, uses)| uses + 1);
        let active = uses >= 2;
        self.inactive += usize::from(!active);
        self.resident.insert(block, (active, uses));
        self.by_age.insert((active, self.stamp, block));
        self.stamps.insert(block, self.stamp);
    }

    fn forget(&mut self, block: u64) -> Option<(bool, u64)> {
        let (active, uses) = self.resident.remove(&block)?;
        self.inactive -= usize::from(!active);
        let stamp = self.stamps.remove(&block).expect("it is resident");
        self.by_age.remove(&(active, stamp, block));
        Some((active, uses))
    }

    fn read_ahead(&mut self, first: u64) {
        let end = (first + READAHEAD_BLOCKS).min(self.blocks);
        self.window = (first, end);
        self.submit(first, end, None);
    }

    fn submit(&mut self, first: u64, end: u64, tag: Option<u64>) {
        let missing =
            |this: &Self, at| !this.resident.contains_key(&at) && !this.flying.contains(&at);
        let mut requests = Vec::new();
        let mut at = first;
        while at < end {
            let start = at;
            while at < end && missing(self, at) {
                self.flying.insert(at);
                at += 1;
            }
            if at > start {
                requests.push(Request { first: start, blocks: at - start, tag: None });
            } else {
                at += 1;
            }
        }
        match requests.last_mut() {
            Some(last) => last.tag = tag,
            None => self.reports.extend(tag.map(|tag| (tag, self.report(self.clock_ns)))),
        }
        self.queue.extend(requests);
        self.serve();
    }

    fn report(&self, started_ns: u64) -> Report {
        Report { ok: true, started_ns, ended_ns: self.clock_ns.max(1), cpu_ns: 10_000 }
    }

    fn serve(&mut self) {
        if self.serving.is_some() {
            return;
        }
        let Some(request) = self.queue.pop_front() else { return };
        let positions = request.first != self.head;
        self.positionings += u64::from(positions);
        let time_ns = request.blocks * BLOCK_NS + if positions { POSITION_NS } else { 0 };
        self.head = request.first + request.blocks;
        self.serving = Some((request, self.clock_ns));
        self.events.push(std::cmp::Reverse((self.clock_ns + time_ns, Event::Disk)));
    }

    fn complete(&mut self) {
        let (request, started_ns) = self.serving.take().expect("it was served");
        self.fetched += request.blocks;
        for block in request.first..request.first + request.blocks {
            self.flying.remove(&block);
            self.touch(block);
        }
        while self.resident.len() > self.capacity {
            let active = self.inactive <= (self.resident.len() - self.inactive) / 2;
            let oldest = self.by_age.range((active, 0, 0)..).next();
            let block = oldest.expect("the cache is full").2;
            self.forget(block);
        }
        if let Some(tag) = request.tag {
            self.reports.push((tag, self.report(started_ns)));
            self.wake_manager(0);
        }
        if std::mem::take(&mut self.program_waits) {
            self.events.push(std::cmp::Reverse((self.clock_ns, Event::Program)));
        }
        self.serve();
    }

    fn wake_manager(&mut self, after_ns: u64) {
        if self.engine.is_none() {
            return;
        }
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let lag_ns = if self.lag_ns == 0 { 0 } else { (self.seed >> 20) % self.lag_ns };
        let at = self.clock_ns + after_ns + lag_ns;
        if self.manager_at.is_none_or(|before| at < before) {
            self.manager_at = Some(at);
            self.events.push(std::cmp::Reverse((at, Event::Manager)));
        }
    }

    fn manage(&mut self) {
        self.manager_at = None;
        let Some(engine) = &mut self.engine else { return };
        engine.read(A, &std::mem::take(&mut self.notes));
        for (tag, report) in std::mem::take(&mut self.reports) {
            engine.done(A, tag, report);
        }
        self.act();
        if !self.reports.is_empty() {
            self.wake_manager(0);
        }
    }

    fn act(&mut self) {
        let Some(engine) = &mut self.engine else { return };
        for (_, action) in engine.take_actions() {
            match action {
                Action::Prefetch { tag, offset, length, .. } => {
                    let first = offset / BLOCK_BYTES;
                    let end = ((offset + length) / BLOCK_BYTES).min(self.blocks);
                    self.submit(first, end, Some(tag));
                }
                Action::Release { offset, length, .. } => {
                    for block in offset / BLOCK_BYTES..(offset + length) / BLOCK_BYTES {
                        self.forget(block);
                    }
                }
                Action::Credit(_) => {}
            }
        }
    }
}

/// Blocks of the file, 36 MiB, and of the memory, 24 MiB.
const FILE_BLOCKS: u64 = 4608;
const MEMORY_BLOCKS: u32 = 3072;
const PASSES: usize = 10;

/// Ten passes over one and a half times the memory.
fn ten_passes(lag_ns: Option<u64>) -> Bed {
    let mut bed = Bed::new(FILE_BLOCKS, MEMORY_BLOCKS, lag_ns, 1);
    bed.passes(PASSES);
    bed
}

#[test]
fn ten_passes_take_half_the_time_though_the_manager_gets_its_processor_late() {
    let plain = ten_passes(None);
    // LRU keeps nothing of a circle that is larger than it.
    assert_eq!(plain.fetched, FILE_BLOCKS * PASSES as u64);
    for lag_us in [0, 1_000, 30_000] {
        let hinted = ten_passes(Some(lag_us * 1000));
        let ratio = hinted.clock_ns as f64 / plain.clock_ns as f64;
        assert!(ratio <= 0.5, "{lag_us} µs late: {ratio:.3}");
        // What is missing lies together, so the disk positions a few times in each pass.
        let positionings = hinted.positionings;
        assert!(positionings <= 8 * PASSES as u64, "{lag_us} µs late: {positionings}");
        assert_eq!(hinted.engine.as_ref().expect("it hints").pending(), 0);
    }
}

#[test]
fn a_manager_that_hardly_runs_costs_nothing() {
    let plain = ten_passes(None);
    for lag_s in [2, 60] {
        let hinted = ten_passes(Some(lag_s * 1_000_000_000));
        let ratio = hinted.clock_ns as f64 / plain.clock_ns as f64;
        assert!(ratio <= 1.02, "{lag_s} s late: {ratio:.3}");
    }
}
