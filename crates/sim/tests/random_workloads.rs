//! A thousand random small workloads, with the manager's invariants checked at every event.

use runahead_policy::tip::{Config, Extensions, Mode, Parameters, Valuation};
use runahead_sim::{
    Array, CpuCosts, DriveParameters, FileSpec, FileSystem, Machine, Op, PlacementParameters,
    Program, Random, Range, Report, Task, simulate,
};

const BLOCK: u64 = 8192;

#[test]
fn invariants_hold_on_random_workloads() {
    for seed in 0..1000 {
        let outcome = std::panic::catch_unwind(|| {
            let report = run(seed);
            check(&report);
            report
        });
        assert!(outcome.is_ok(), "failed with seed {seed}: see `run` in this file");
    }
}

#[test]
fn a_seed_gives_the_same_run() {
    for seed in [3, 141, 592] {
        assert_eq!(run(seed), run(seed));
    }
}

/// What must hold of any run, whatever the policy.
fn check(report: &Report) {
    let stats = &report.stats;
    // Conservation: every request is exactly one of hit and miss, every fetched block was
    // asked for, every I/O that was issued was served or is still under way at the end.
    assert_eq!(stats.requests, stats.reuse_hits + stats.prefetch_hits + stats.misses);
    let disks = report.disk_total();
    assert!(disks.ios <= stats.miss_ios + stats.prefetch_ios + stats.write_ios);
    assert!(stats.prefetch_hits + stats.unused_prefetches <= stats.prefetched_blocks);
    assert!(stats.hinted_requests <= stats.requests);
    // The CPU and each disk do one thing at a time.
    assert!(report.cpu_us <= report.elapsed_us + 1_000_000);
    for disk in &report.disks {
        assert!(disk.busy_us <= report.elapsed_us + 1_000_000);
    }
    for task in &report.tasks {
        assert!(task.cpu_us + task.stall_us <= task.elapsed_us);
    }
}

fn run(seed: u64) -> Report {
    let mut random = Random::new(seed);
    let processes = random.between(1, 3) as usize;
    let tasks: Vec<Task> = (0..processes)
        .map(|_| Task { program: program(&mut random), hints: random.below(4) > 0 })
        .collect();
    let mut files: Vec<FileSpec> = Vec::new();
    for task in &tasks {
        files.extend(&task.program.files);
    }
    let disks = random.between(1, 10) as u16;
    let drive = DriveParameters { blocks: 20_000, ..DriveParameters::HP_C2247 };
    let placement = PlacementParameters::default();
    let layout = FileSystem::place(&files, disks, drive.blocks, placement, &mut random);
    let config = config(&mut random, processes as u32);
    let machine = Machine { config, costs: CpuCosts::THESIS, shares_files: false, check: true };
    simulate(machine, tasks, layout, Array::new(disks, drive))
}

/// A program that hints in order, forgets some hints, cancels some, and reads what it likes.
fn program(random: &mut Random) -> Program {
    let mut program = Program::new("random");
    for _ in 0..random.between(1, 6) {
        let bytes = random.between(1, 40 * BLOCK);
        program.file(bytes, random.below(3) as u32);
    }
    let output = program.file(20 * BLOCK, 4);
    let files = u64::from(output);
    for _ in 0..random.between(1, 12) {
        let ranges: Vec<Range> = (0..random.between(1, 8)).map(|_| range(random, files)).collect();
        program.hint(ranges.clone());
        let deviant = random.below(4) == 0;
        for planned in ranges {
            program.compute(random.exponential(1_500.0));
            match random.below(10) {
                0 if deviant => program.ops.push(Op::Cancel),
                1 if deviant => program.read(range(random, files)),
                2 => {
                    let offset = random.below(19 * BLOCK);
                    program.ops.push(Op::Write(Range { file: output, offset, length: BLOCK }));
                    program.read(planned);
                }
                _ => program.read(planned),
            }
        }
    }
    program
}

fn range(random: &mut Random, files: u64) -> Range {
    let file = random.below(files) as u32;
    match random.below(5) {
        0 => Range { file, offset: 0, length: 64 * BLOCK },
        _ => Range { file, offset: random.below(40 * BLOCK), length: random.between(1, 5 * BLOCK) },
    }
}

fn config(random: &mut Random, processes: u32) -> Config {
    let valuations = [
        Valuation::Tip,
        Valuation::Tiptoe,
        Valuation::FixedHorizon,
        Valuation::Aggressive,
        Valuation::Forestall,
    ];
    let mode = match random.below(6) {
        0 => Mode::NoPrefetch,
        1 => Mode::Static { depth: random.below(30), cluster_slack: 16 },
        _ => Mode::CostBenefit,
    };
    let buffers = random.between(8, 120) as u32;
    let mut coin = || random.below(2) == 1;
    let extensions =
        Extensions { finite_disks: coin(), post_hint: coin(), process_horizon: coin() };
    Config {
        parameters: Parameters {
            t_hit_us: random.between(1, 2_000) as u32,
            t_driver_us: random.between(1, 2_000) as u32,
            t_disk_us: random.between(1, 40_000) as u32,
        },
        buffers,
        active_segment: 1 + buffers / 6,
        segment: 1 + buffers / 12,
        mode,
        valuation: valuations[random.below(5) as usize],
        extensions,
        reserve: processes + random.below(4) as u32,
        rate_period: random.between(16, 200) as u32,
        resolved_max: random.between(10, 400),
        island_blocks: random.below(6) as u32,
        match_window: random.between(1, 3) as usize,
        ..Config::thesis()
    }
}
