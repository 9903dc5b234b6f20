//! The engine with a page cache that always does as it is told, at once.

use super::issue::TICKS_MAX;
use super::*;
use crate::geometry::Geometry;
use crate::layout::Extent;

pub(super) const A: ClientId = ClientId(1);

pub(super) fn info(inode: u64, blocks: u64, disks: u16) -> FileInfo {
    let bytes = blocks * BLOCK_BYTES;
    FileInfo {
        device: 1,
        inode,
        born_ns: 0,
        bytes,
        extents: vec![Extent { logical: 0, physical: inode << 32, length: bytes }],
        geometry: Geometry { disks, stripe_unit: 65536, latency_us: 10_000 },
    }
}

fn engine(buffers: u32, blocks: u64) -> Engine {
    let mut engine = Engine::new(Options { buffers, ..Options::default() });
    engine.connect(A);
    engine.file(A, 0, &info(7, blocks, 1));
    engine
}

/// Time of the modelled disk for an I/O, and of the modelled program for a block.
const DISK_NS: u64 = 5_000_000;
const READ_NS: u64 = 10_000;

/// The page cache of file 0, one disk that serves one I/O after another, and the clock.
#[derive(Default)]
struct Cache {
    resident: std::collections::BTreeSet<u64>,
    flying: VecDeque<(ClientId, u64, std::ops::Range<u64>, u64)>,
    clock_ns: u64,
    disk_free_ns: u64,
    prefetched: u64,
    credit: i64,
}

impl Cache {
    /// Takes what is decided and completes what is due.
    fn act(&mut self, engine: &mut Engine) {
        loop {
            let actions = engine.take_actions();
            let idle = actions.is_empty();
            for (client, action) in actions {
                match action {
                    Action::Prefetch { tag, offset, length, .. } => {
                        let blocks = offset / BLOCK_BYTES..(offset + length) / BLOCK_BYTES;
                        self.prefetched += blocks.end - blocks.start;
                        self.disk_free_ns = self.disk_free_ns.max(self.clock_ns) + DISK_NS;
                        self.flying.push_back((client, tag, blocks, self.disk_free_ns));
                    }
                    Action::Release { offset, length, .. } => {
                        for block in offset / BLOCK_BYTES..(offset + length) / BLOCK_BYTES {
                            self.resident.remove(&block);
                        }
                    }
                    Action::Credit(n) => self.credit += i64::from(n),
                }
            }
            let due = self.flying.front().is_some_and(|flying| flying.3 <= self.clock_ns);
            if due {
                let (client, tag, blocks, ended_ns) = self.flying.pop_front().unwrap();
                self.resident.extend(blocks);
                let started_ns = ended_ns - DISK_NS;
                engine.done(client, tag, Report { ok: true, started_ns, ended_ns, cpu_ns: 40_000 });
            } else if idle {
                return;
            }
        }
    }

    /// Reads a block; true if it was there or on its way.
    fn read(&mut self, engine: &mut Engine, block: u64) -> bool {
        while !self.resident.contains(&block)
            && let Some(flying) = self.flying.iter().find(|flying| flying.2.contains(&block))
        {
            self.clock_ns = flying.3;
            self.act(engine);
        }
        let there = self.resident.contains(&block);
        if !there {
            self.disk_free_ns = self.disk_free_ns.max(self.clock_ns) + DISK_NS;
            self.clock_ns = self.disk_free_ns;
        }
        self.resident.insert(block);
        self.clock_ns += READ_NS;
        let note =
            ReadNote { file: 0, offset: block * BLOCK_BYTES, length: BLOCK_BYTES, t_app_us: 5 };
        engine.read(A, &[note]);
        self.act(engine);
        there
    }

    /// Lets the disk work to the end.
    fn rest(&mut self, engine: &mut Engine) {
        self.act(engine);
        while let Some(flying) = self.flying.front() {
            self.clock_ns = self.clock_ns.max(flying.3);
            self.act(engine);
        }
    }
}

fn whole() -> Segment {
    Segment { file: 0, offset: 0, length: 0 }
}

#[test]
fn ten_passes_keep_a_fixed_part_resident() {
    let (buffers, blocks, passes) = (1000, 1500, 10);
    let mut engine = engine(buffers, blocks);
    let mut cache = Cache::default();
    engine.disclose(A, &[whole(); 10]);
    cache.act(&mut engine);
    for _ in 0..passes {
        for block in 0..blocks {
            let _ = cache.read(&mut engine, block);
            assert!(cache.resident.len() as u64 <= u64::from(buffers) + 16, "beyond its buffers");
        }
    }
    // LRU would fetch 15,000 blocks; the ideal is 1500 + 9 × 500.
    assert!(cache.prefetched < 7_500, "{} blocks prefetched", cache.prefetched);
    let all_ns = passes * blocks / 8 * DISK_NS;
    assert!(cache.clock_ns < all_ns / 2, "{} of {all_ns} ns", cache.clock_ns);
    assert_eq!(cache.credit, i64::from(CREDIT) + passes as i64);
}

#[test]
fn random_hinted_reads_are_all_there_when_they_come() {
    let blocks = 5_000;
    let mut engine = engine(500, blocks);
    let mut cache = Cache::default();
    let order: Vec<u64> = (0..2_000).map(|i| i * 2_654_435_761 % blocks).collect();
    let segments: Vec<Segment> = order
        .iter()
        .map(|&b| Segment { file: 0, offset: b * BLOCK_BYTES, length: BLOCK_BYTES })
        .collect();
    engine.disclose(A, &segments);
    cache.act(&mut engine);
    let hits = order.iter().filter(|&&block| cache.read(&mut engine, block)).count();
    // Some are asked for while they wait for their turn at the disk.
    assert!(hits > order.len() / 2, "{hits}");
    assert_eq!(engine.stats().hinted, order.len() as u64);
    let t_disk_us = engine.stats().t_disk_us;
    assert!((4_900..5_500).contains(&t_disk_us), "{t_disk_us}");
}

#[test]
fn observed_bytes_move_the_window() {
    let mut engine = engine(200, 1_000);
    let mut cache = Cache::default();
    engine.disclose(A, &[whole()]);
    cache.rest(&mut engine);
    let ahead = cache.prefetched;
    assert!((1..=200).contains(&ahead), "{ahead}");
    for _ in 0..1_000 {
        engine.observed(A, BLOCK_BYTES / 2);
        cache.rest(&mut engine);
    }
    assert!((500..=710).contains(&cache.prefetched), "{}", cache.prefetched);
    engine.observed(A, 1 << 40);
    cache.rest(&mut engine);
    assert_eq!(cache.credit, i64::from(CREDIT) + 1);
}

/// A sparse file may be of any size: what is hinted of it is bounded, and passing over it takes
/// no time.
#[test]
fn the_end_of_a_file_of_exabytes_is_read_and_its_hints_are_gone() {
    let mut engine = engine(200, 100);
    engine.file(A, 1, &FileInfo { bytes: u64::MAX, ..info(8, 100, 1) });
    engine.disclose(A, &[Segment { file: 1, offset: 0, length: 0 }; 100]);
    for _ in 0..100 {
        let end = ReadNote { file: 1, offset: (BLOCK_BYTES << 31) - 1, length: 1, t_app_us: 0 };
        engine.read(A, &[ReadNote { offset: u64::MAX - 1, ..end }, end]);
    }
    let credit = engine.take_actions().iter().fold(0, |sum, (_, action)| match action {
        Action::Credit(credit) => sum + credit,
        _ => sum,
    });
    assert_eq!(credit, CREDIT + 100);
}

/// Whatever times a client tells, nothing is counted wrong or panics.
#[test]
fn times_without_end_are_believed_to_a_bound() {
    let t_hit_us = u32::MAX;
    let mut engine = Engine::new(Options { t_hit_us, buffers: 200, ..Options::default() });
    engine.connect(A);
    let geometry = Geometry { disks: 32, stripe_unit: 65536, latency_us: u32::MAX };
    engine.file(A, 0, &FileInfo { geometry, ..info(7, 1_000, 32) });
    engine.disclose(A, &[whole()]);
    for block in 0..1_000 {
        for (_, action) in engine.take_actions() {
            if let Action::Prefetch { tag, .. } = action {
                let report =
                    Report { ok: true, started_ns: 0, ended_ns: u64::MAX, cpu_ns: u64::MAX };
                engine.done(A, tag, report);
            }
        }
        let (offset, length) = (block * BLOCK_BYTES, BLOCK_BYTES);
        engine.read(A, &[ReadNote { file: 0, offset, length, t_app_us: u32::MAX }]);
    }
    assert_eq!(engine.stats().reads, 1_000);
}

#[test]
fn what_cannot_be_read_is_passed_over() {
    let mut engine = engine(200, 100);
    engine.file(A, 1, &info(8, 100, 1));
    engine.disclose(A, &[whole(), Segment { file: 1, offset: 0, length: 0 }]);
    let mut good = 0;
    loop {
        let actions = engine.take_actions();
        if actions.is_empty() {
            break;
        }
        for (client, action) in actions {
            if let Action::Prefetch { tag, file, length, .. } = action {
                let ok = file == 1;
                good += if ok { length / BLOCK_BYTES } else { 0 };
                engine.done(client, tag, Report { ok, started_ns: 1, ended_ns: 2, cpu_ns: 1 });
            }
        }
    }
    assert!((1..=3).contains(&engine.stats().failed), "{:?}", engine.stats());
    let before = good;
    engine.cancel(A, 1);
    for (client, action) in engine.take_actions() {
        if let Action::Prefetch { tag, file, length, .. } = action {
            assert_eq!(file, 1);
            good += length / BLOCK_BYTES;
            let report = Report { ok: true, started_ns: 1, ended_ns: 2, cpu_ns: 1 };
            engine.done(client, tag, report);
        }
    }
    assert!(good > before, "the other file's turn has come");
}

#[test]
fn two_clients_share_the_buffers_and_one_may_die() {
    let b = ClientId(2);
    let mut engine = engine(256, 1_000);
    engine.connect(b);
    engine.file(b, 5, &info(9, 1_000, 1));
    engine.disclose(A, &[whole()]);
    engine.disclose(b, &[Segment { file: 5, offset: 0, length: 0 }]);
    let first = engine.take_actions();
    let clients: std::collections::BTreeSet<_> = first
        .iter()
        .filter(|(_, action)| matches!(action, Action::Prefetch { .. }))
        .map(|&(client, _)| client)
        .collect();
    assert!(!clients.is_empty());
    engine.disconnect(b);
    for (client, action) in first {
        if let Action::Prefetch { tag, .. } = action {
            let report = Report { ok: true, started_ns: 0, ended_ns: 1_000, cpu_ns: 1 };
            engine.done(client, tag, report);
        }
    }
    let mut cache = Cache::default();
    cache.act(&mut engine);
    for block in 0..1_000 {
        cache.read(&mut engine, block);
    }
    assert_eq!(engine.pending(), 0);
    engine.disconnect(A);
    engine.disconnect(A);
}

#[test]
fn nonsense_from_a_client_harms_nobody() {
    let mut engine = engine(64, 10);
    let far = Segment { file: 0, offset: u64::MAX - 3, length: u64::MAX };
    engine.disclose(A, &[Segment { file: 99, offset: 0, length: 1 }, far]);
    let read = |file, offset, length| ReadNote { file, offset, length, t_app_us: u32::MAX };
    engine.read(A, &[read(99, 0, 1), read(0, u64::MAX - 10, 100), read(0, 5, 0)]);
    engine.file(A, u32::MAX, &info(1, 1, 1));
    engine.cancel(A, u32::MAX);
    engine.done(A, 12_345, Report::default());
    engine.read(ClientId(77), &[read(0, 0, 1)]);
    engine.disclose(ClientId(77), &[whole()]);
    engine.observed(A, u64::MAX);
    engine.set_buffers(0);
    let mut cache = Cache::default();
    cache.act(&mut engine);
    assert_eq!(cache.credit, i64::from(CREDIT) + 2);
    for block in 0..10 {
        cache.read(&mut engine, block);
    }
}

/// Else one small frame with a large number took 32 MiB, in a manager that anybody may call.
#[test]
fn a_number_takes_no_room_for_those_below_it() {
    let mut engine = engine(64, 10);
    let before = engine.files_bytes();
    engine.file(A, FILES_MAX, &info(8, 10, 1));
    engine.file(A, u32::MAX, &info(8, 10, 1));
    assert!(engine.clients[&A].files.capacity() < 100);
    // One file more, of one extent, and two numbers.
    let grown = FILE_BYTES + 2 * NUMBER_BYTES + size_of::<Extent>();
    assert_eq!(engine.files_bytes(), before + grown);
    engine.disclose(A, &[Segment { file: u32::MAX, offset: 0, length: 0 }]);
    let told = engine.take_actions();
    let is_prefetch = |action: &Action| matches!(action, Action::Prefetch { file: u32::MAX, .. });
    assert!(told.iter().any(|(_, action)| is_prefetch(action)), "{told:?}");
}

#[test]
fn a_file_that_is_registered_again_has_one_owner() {
    let b = ClientId(2);
    let mut engine = engine(64, 10);
    engine.connect(b);
    engine.file(b, 3, &info(7, 10, 1));
    let before = engine.files_bytes();
    for _ in 0..1_000 {
        engine.file(A, 0, &info(7, 10, 1));
    }
    assert_eq!(engine.owners[0].0, [(b, 3), (A, 0)]);
    assert_eq!(engine.files_bytes(), before);
    // Another number of the same client's, and the old one for another file.
    engine.file(A, 1, &info(7, 10, 1));
    engine.file(A, 0, &info(8, 10, 1));
    assert_eq!(
        (&engine.owners[0].0[..], &engine.owners[1].0[..]),
        (&[(b, 3), (A, 1)][..], &[(A, 0)][..])
    );
    engine.file(b, 3, &info(8, 10, 1));
    assert_eq!(
        (&engine.owners[0].0[..], &engine.owners[1].0[..]),
        (&[(A, 1)][..], &[(A, 0), (b, 3)][..])
    );
    engine.disconnect(A);
    engine.disconnect(b);
    assert!(engine.owners.iter().all(|owners| owners.0.is_empty()));
    let extents = 2 * size_of::<Extent>();
    assert_eq!(engine.files_bytes(), 2 * FILE_BYTES + extents, "no numbers are left");
}

/// What was read of a file that is gone is not in memory for the one that has its inode now.
#[test]
fn a_file_with_the_inode_of_another_is_prefetched() {
    let mut engine = engine(64, 10);
    let mut cache = Cache::default();
    let mut is_prefetched = |engine: &mut Engine| {
        let before = cache.prefetched;
        engine.disclose(A, &[whole()]);
        cache.rest(engine);
        engine.cancel(A, 1);
        cache.prefetched > before
    };
    assert!(is_prefetched(&mut engine));
    assert!(!is_prefetched(&mut engine), "it is in memory");
    engine.file(A, 0, &FileInfo { born_ns: 1, ..info(7, 10, 1) });
    assert!(is_prefetched(&mut engine));
}

#[test]
fn fewer_buffers_give_memory_back() {
    let mut engine = engine(1_000, 2_000);
    let mut cache = Cache::default();
    engine.disclose(A, &[whole(); 3]);
    cache.act(&mut engine);
    for block in 0..1_500 {
        cache.read(&mut engine, block);
    }
    let before = cache.resident.len();
    engine.set_buffers(300);
    cache.act(&mut engine);
    assert!(before > 900 && cache.resident.len() <= 330, "{before} {}", cache.resident.len());
    assert!(engine.bytes_in_use() <= 330 * BLOCK_BYTES);
}

#[test]
fn a_client_that_never_reports_does_not_keep_the_disk() {
    let b = ClientId(2);
    let mut engine = engine(256, 1_000);
    engine.disclose(A, &[whole()]);
    let first = engine.take_actions();
    assert!(first.iter().any(|(_, action)| matches!(action, Action::Prefetch { .. })));
    engine.connect(b);
    engine.file(b, 5, &info(9, 1_000, 1));
    engine.disclose(b, &[Segment { file: 5, offset: 0, length: 0 }]);
    for _ in 0..20 * TICKS_MAX {
        engine.tick();
    }
    let told = engine.take_actions();
    assert!(
        told.iter()
            .any(|&(client, action)| client == b && matches!(action, Action::Prefetch { .. }))
    );
}

/// Reports on the prefetches that are outstanding to the clients that do; their blocks, by
/// client. At most so many, as what fails may be asked for again.
fn report(engine: &mut Engine, reports: impl Fn(ClientId) -> Option<bool>) -> Vec<(ClientId, u64)> {
    let mut told = Vec::new();
    for _ in 0..1_000 {
        let actions = engine.take_actions();
        if actions.is_empty() {
            return told;
        }
        for (client, action) in actions {
            if let Action::Prefetch { tag, length, .. } = action {
                told.push((client, length / BLOCK_BYTES));
                if let Some(ok) = reports(client) {
                    engine.done(client, tag, Report { ok, started_ns: 1, ended_ns: 2, cpu_ns: 1 });
                }
            }
        }
    }
    panic!("no end: {} prefetches", told.len());
}

fn tick_till_late(engine: &mut Engine) {
    for _ in 0..=TICKS_MAX {
        engine.tick();
    }
}

/// More of them than there are buffers in reserve: each holds a block.
#[test]
fn a_small_memory_serves_all_clients_that_there_may_be() {
    let mut engine = Engine::new(Options { buffers: 64, ..Options::default() });
    for client in 1..=32 {
        engine.connect(ClientId(client));
        engine.file(ClientId(client), 0, &info(u64::from(client), 1_000, 1));
    }
    // As many as may be are being prefetched, and nobody reports.
    for client in 1..=3 {
        engine.disclose(ClientId(client), &[whole()]);
    }
    for block in 0..20 {
        for client in 1..=32 {
            let (offset, length) = (block * BLOCK_BYTES, BLOCK_BYTES);
            engine.read(ClientId(client), &[ReadNote { file: 0, offset, length, t_app_us: 1 }]);
            engine.tip.as_ref().unwrap().check_invariants();
        }
    }
    assert_eq!(engine.stats().reads, 20 * 32);
    report(&mut engine, |_| Some(true));
    for client in 2..=32 {
        engine.disconnect(ClientId(client));
    }
    let mut cache = Cache::default();
    for block in 20..1_000 {
        cache.read(&mut engine, block);
    }
    assert!(cache.prefetched > 900, "{}", cache.prefetched);
    engine.tip.as_ref().unwrap().check_invariants();
}

/// Whole sparse files of 16 TiB: each has more blocks than may be resolved.
fn engine_with_huge_hints(segments: usize) -> Engine {
    let mut engine = Engine::new(Options { buffers: BUFFERS_MAX, ..Options::default() });
    engine.connect(A);
    engine.file(A, 0, &FileInfo { bytes: u64::MAX, ..info(7, 1, 1) });
    engine.disclose(A, &vec![whole(); segments]);
    engine
}

#[test]
fn a_frame_that_passes_over_huge_hints_is_bounded_work() {
    let resolved = |engine: &Engine| engine.tip.as_ref().unwrap().stats().resolved;
    let mut engine = engine_with_huge_hints(40);
    assert_eq!(resolved(&engine), RESOLVED_PER_FRAME);
    engine.cancel(A, 20);
    assert!(resolved(&engine) <= 2 * RESOLVED_PER_FRAME, "{}", resolved(&engine));
    let (offset, length) = ((BLOCKS_MAX - 1) * BLOCK_BYTES, BLOCK_BYTES);
    engine.read(A, &[ReadNote { file: 0, offset, length, t_app_us: 1 }; 10]);
    assert!(resolved(&engine) <= 3 * RESOLVED_PER_FRAME, "{}", resolved(&engine));
    engine.observed(A, BLOCK_BYTES);
    assert!(resolved(&engine) <= 4 * RESOLVED_PER_FRAME, "{}", resolved(&engine));
    let credit = engine.take_actions().iter().fold(0, |sum, (_, action)| match action {
        Action::Credit(credit) => sum + credit,
        _ => sum,
    });
    assert_eq!(credit, CREDIT + 30);
    // As many as there may be.
    let mut engine = engine_with_huge_hints(CREDIT as usize);
    engine.cancel(A, CREDIT - 1);
    engine.cancel(A, u32::MAX);
    assert!(resolved(&engine) <= 2 * RESOLVED_PER_FRAME, "{}", resolved(&engine));
}

/// Else the block behind it had the number 0, and all between were looked up when it was
/// ejected.
#[test]
fn reads_behind_what_can_be_hinted_are_not_counted() {
    let mut engine = engine(64, 1_000);
    engine.file(A, 1, &FileInfo { bytes: u64::MAX, ..info(8, 1, 1) });
    for number in [u64::from(u32::MAX), BLOCKS_MAX, BLOCKS_MAX - 1] {
        let (offset, length) = (number * BLOCK_BYTES, BLOCK_BYTES);
        engine.read(A, &[ReadNote { file: 1, offset, length, t_app_us: 1 }]);
    }
    assert_eq!(engine.stats().reads, 1);
    let mut cache = Cache::default();
    for block in 0..1_000 {
        cache.read(&mut engine, block);
    }
    assert!(engine.bytes_in_use() <= 64 * BLOCK_BYTES);
}

/// The headers of 32 programs' hints took 3 GB.
#[test]
fn what_is_resolved_for_all_clients_is_bounded() {
    let mut engine = Engine::new(Options { buffers: BUFFERS_MAX, ..Options::default() });
    for client in 1..=32 {
        engine.connect(ClientId(client));
        engine.file(ClientId(client), 0, &info(u64::from(client), 1 << 19, 1));
        for _ in 0..4 {
            engine.disclose(ClientId(client), &[whole()]);
        }
        let resolved = engine.tip.as_ref().unwrap().resolved();
        assert!(resolved <= setup::RESOLVED_MAX, "{resolved} of {client} clients");
    }
    let resolved = engine.tip.as_ref().unwrap().resolved();
    assert!(resolved >= setup::RESOLVED_MAX / 2, "{resolved}: each has its part");
    engine.tip.as_ref().unwrap().check_invariants();
}

#[test]
fn a_client_that_is_stopped_is_told_of_nothing_until_it_reports() {
    let b = ClientId(2);
    let mut engine = engine(256, 1_000);
    engine.connect(b);
    engine.file(b, 5, &info(9, 1_000, 1));
    engine.disclose(A, &[whole()]);
    let before = report(&mut engine, |client| (client == b).then_some(true));
    assert!(before.iter().all(|&(client, _)| client == A) && before.len() == 2, "{before:?}");
    engine.disclose(b, &[Segment { file: 5, offset: 0, length: 0 }]);
    tick_till_late(&mut engine);
    let mut fetched = 0;
    for number in 0..1_000 {
        let told = report(&mut engine, |client| (client == b).then_some(true));
        assert!(told.iter().all(|&(client, _)| client == b), "{told:?}");
        fetched += told.iter().map(|&(_, blocks)| blocks).sum::<u64>();
        let (offset, length) = (number * BLOCK_BYTES, BLOCK_BYTES);
        engine.read(b, &[ReadNote { file: 5, offset, length, t_app_us: 1 }]);
        engine.tick();
    }
    assert!(fetched > 900, "{fetched}");
    // It goes on: its last hints were not forgotten.
    engine.done(A, 1, Report { ok: true, started_ns: 1, ended_ns: 2, cpu_ns: 1 });
    let told = report(&mut engine, |_| Some(true));
    assert!(told.iter().any(|&(client, _)| client == A), "{told:?}");
    engine.tip.as_ref().unwrap().check_invariants();
}

#[test]
fn a_file_that_a_stopped_client_has_open_is_prefetched_by_others() {
    let (stopped, b) = (ClientId(2), A);
    let mut engine = engine(256, 1_000);
    engine.connect(stopped);
    engine.file(stopped, 3, &info(7, 1_000, 1));
    engine.disclose(b, &[whole()]);
    let reports = |client| (client == b).then_some(true);
    let told = report(&mut engine, reports);
    assert!(told.iter().all(|&(client, _)| client == stopped) && told.len() == 2, "{told:?}");
    tick_till_late(&mut engine);
    let told = report(&mut engine, reports);
    assert!(told.iter().all(|&(client, _)| client == b) && !told.is_empty(), "{told:?}");
    // What was given up is among it.
    let mut cache = Cache::default();
    cache.resident.extend(0..told.iter().map(|&(_, blocks)| blocks).sum());
    for block in 0..1_000 {
        cache.read(&mut engine, block);
    }
    assert_eq!(engine.stats().hinted, 1_000);
}

#[test]
fn what_one_client_cannot_read_another_prefetches() {
    let b = ClientId(2);
    let mut engine = engine(256, 1_000);
    engine.connect(b);
    engine.file(b, 3, &info(7, 1_000, 1));
    engine.disclose(A, &[whole()]);
    let told = report(&mut engine, |client| Some(client == A));
    let of_b = told.iter().filter(|&&(client, _)| client == b).count();
    assert!((1..=2).contains(&of_b), "{told:?}");
    let fetched: u64 =
        told.iter().filter(|&&(client, _)| client == A).map(|&(_, blocks)| blocks).sum();
    assert!(fetched >= 64, "{told:?}");
    // Hints of the one that could not read it count, too, and it may register it again.
    engine.cancel(A, 1);
    engine.disclose(b, &[Segment { file: 3, offset: 500 * BLOCK_BYTES, length: 1 }]);
    assert_eq!(report(&mut engine, |_| Some(true)), [(A, 1)]);
    engine.file(b, 3, &info(7, 1_000, 1));
    engine.disclose(b, &[Segment { file: 3, offset: 600 * BLOCK_BYTES, length: 1 }]);
    assert_eq!(report(&mut engine, |_| Some(true)), [(b, 1)]);
    // Where nobody can, the hints are passed over.
    engine.disclose(A, &[Segment { file: 0, offset: 700 * BLOCK_BYTES, length: 0 }]);
    let failed = report(&mut engine, |_| Some(false));
    assert!((2..=4).contains(&failed.len()), "{failed:?}");
    engine.tip.as_ref().unwrap().check_invariants();
}

/// Its hints stay, and nobody can be told of them; they were asked for again for ever.
#[test]
fn hints_for_a_file_that_nobody_has_open_any_more_are_passed_over() {
    let mut engine = engine(256, 1_000);
    let apart = |i: u64| Segment { file: 0, offset: i * 20 * BLOCK_BYTES, length: BLOCK_BYTES };
    let hints: Vec<Segment> = (0..50).map(apart).collect();
    engine.disclose(A, &hints);
    assert!(engine.pending() > 2);
    engine.file(A, 0, &info(8, 1_000, 1));
    let told = report(&mut engine, |_| Some(true));
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(engine.pending(), 0);
    engine.disclose(A, &[whole()]);
    assert!(!report(&mut engine, |_| Some(true)).is_empty(), "the other one's turn has come");
}
