//! The thesis's micro-benchmarks (sections 6.2 and 7.1.2) on the simulated machine.

use runahead_sim::scenario::{Policy, Scenario};
use runahead_sim::{BLOCK_BYTES, Program, Random, Range, Report, Task};

/// Reads a sequence of random unique blocks of a file again and again, disclosing each
/// iteration before the one before it.
fn synthetic(blocks: usize, file_blocks: u32, iterations: usize, t_app_us: f64) -> Program {
    let mut random = Random::new(11);
    let mut program = Program::new("synthetic");
    let file = program.file(u64::from(file_blocks) * BLOCK_BYTES, 0);
    let mut numbers: Vec<u32> = (0..file_blocks).collect();
    random.shuffle(&mut numbers);
    let sequence: Vec<Range> =
        numbers[..blocks].iter().map(|&number| Range::blocks(file, number, 1)).collect();
    program.hint(sequence.clone());
    for iteration in 0..iterations {
        if iteration + 1 < iterations {
            program.hint(sequence.clone());
        }
        for &range in &sequence {
            program.read(range);
            program.compute(t_app_us);
        }
    }
    program
}

fn run(program: Program, policy: Policy, disks: u16) -> Report {
    let scenario = Scenario::of(Vec::new(), policy, disks, 1);
    scenario.run_tasks(vec![Task { program, hints: true }], policy.config())
}

#[test]
fn measured_parameters_are_those_of_section_6_2() {
    let file_blocks = 65_536;
    let nc = Policy::Nc { depth: 73 };
    let cpu_us = |blocks, iterations, policy| {
        let report = run(synthetic(blocks, file_blocks, iterations, 0.0), policy, 10);
        report.cpu_us as f64
    };
    // 1000 blocks stay in the cache: what ten passes cost more than one is hits.
    let hit_us = (cpu_us(1000, 11, nc) - cpu_us(1000, 1, nc)) / 10_000.0;
    assert!((hit_us / 203.0 - 1.0).abs() < 0.15, "T_hit {hit_us}");
    // 2000 do not, without caching: every read is a prefetch.
    let driver_us = (cpu_us(2000, 5, nc) - cpu_us(2000, 1, nc)) / 8_000.0 - hit_us;
    assert!((driver_us / 366.0 - 1.0).abs() < 0.15, "T_driver {driver_us}");
    let unscheduled = run(synthetic(2000, file_blocks, 1, 0.0), Policy::Nc { depth: 0 }, 1);
    let disk = unscheduled.disk_total();
    let disk_ms = disk.busy_us as f64 / 1e3 / disk.ios as f64;
    // "About 15 milliseconds" over the applications; a file over half a disk is the upper end.
    assert!((13.0..20.0).contains(&disk_ms), "T_disk {disk_ms} ms");
}

/// Section 7.1.3: for parallelism two prefetches saturate one disk and about twelve ten disks;
/// where a single disk gains beyond, it is by scheduling.
#[test]
fn stall_falls_with_depth_until_the_disks_are_busy() {
    let stall_s = |disks: u16, depth: u64| {
        let program = synthetic(2000, 4096 * u32::from(disks), 2, 1_000.0);
        run(program, Policy::Nc { depth }, disks).stall_us() as f64 / 1e6
    };
    let one: Vec<f64> = [0, 2, 64].iter().map(|&depth| stall_s(1, depth)).collect();
    assert!(one[1] > 0.75 * one[0] && one[2] < 0.85 * one[1], "{one:?}");
    let ten: Vec<f64> = [0, 2, 12, 73, 256].iter().map(|&depth| stall_s(10, depth)).collect();
    assert!(ten[1] < 0.65 * ten[0] && ten[2] < 0.35 * ten[0] && ten[3] < 0.12 * ten[0], "{ten:?}");
    assert!(ten[3] - ten[4] < 0.1 * ten[0], "{ten:?}");
}

/// Eq 7.5 predicts the stall per access within the two effects that the thesis names: random
/// collisions at small depths, scheduling at large ones.
#[test]
fn the_finite_disk_model_has_the_right_shape() {
    let parameters = Policy::Tip.config().parameters;
    let service_us = 14_000;
    for disks in [2_u16, 4, 10] {
        for depth in [1_u64, 4, 16] {
            let program = synthetic(2000, 4096 * u32::from(disks), 2, 1_000.0);
            let report = run(program, Policy::Nc { depth }, disks);
            let measured = report.stall_us() as f64 / 4000.0;
            // The access being waited for counts as consumed: one more is under way.
            let predicted = f64::from(parameters.t_stall_finite_us(
                depth + 1,
                u32::from(disks),
                service_us,
                1_000,
            ));
            let error = measured - predicted;
            assert!(
                (-1_500.0..5_000.0).contains(&error),
                "{disks} disks, depth {depth}: {measured:.0} µs, Eq 7.5 says {predicted:.0}"
            );
        }
    }
}
