//! Memory control in the simulator (Fraser and Chang 2003, section 6): the eviction list
//! against what speculation really did, and what disabling it is worth.

use runahead_policy::memory_control::{Action, Parameters};
use runahead_sim::Random;
use runahead_sim::memory::{Memory, MemoryReport, Speculation, Subject, simulate_memory};

const INTERVAL: usize = 1000;
const CONTROL: Option<Parameters> = Some(Parameters { alpha: 0, threshold: 0 });

fn right(_: usize) -> f64 {
    0.0
}

fn wrong(_: usize) -> f64 {
    1.0
}

/// Right but for steps 30,000 to 60,000.
fn by_phases(step: usize) -> f64 {
    if (30_000..60_000).contains(&step) { 1.0 } else { 0.0 }
}

fn speculation(wrong: fn(usize) -> f64) -> Speculation {
    Speculation { lead: 20, own_pages_per_interval: 10, own_pages: 50, wrong }
}

/// Asks for pages of a working set at random, the first ones more often.
fn working_set(steps: usize, pages: u32, seed: u64) -> Vec<u32> {
    let mut random = Random::new(seed);
    (0..steps)
        .map(|_| {
            let (a, b) = (random.below(u64::from(pages)), random.below(u64::from(pages)));
            a.min(b) as u32
        })
        .collect()
}

fn run(pages: usize, control: Option<Parameters>, subjects: &[Subject]) -> MemoryReport {
    simulate_memory(&Memory { pages, interval: INTERVAL, control }, subjects)
}

fn program(pages: Vec<u32>, speculation: Option<Speculation>) -> Subject {
    Subject { pages, speculation }
}

#[test]
fn the_eviction_list_counts_what_speculation_really_added() {
    let pages = working_set(60_000, 1200, 1);
    for memory in [500, 700, 900, 1100] {
        let plain = run(memory, None, &[program(pages.clone(), None)]);
        let with = run(memory, None, &[program(pages.clone(), Some(speculation(wrong)))]);
        let really = with.stalls() as f64 - plain.stalls() as f64;
        let counted = with.added as f64;
        let off = counted / really;
        println!("{memory} pages: {counted} added stalls counted, {really} really");
        assert!((0.75..1.35).contains(&off), "{memory} pages: {counted} of {really}");
    }
}

#[test]
fn removed_stalls_are_counted_net_of_what_speculation_had_evicted() {
    let pages = working_set(60_000, 1200, 2);
    for memory in [500, 700, 900] {
        let plain = run(memory, None, &[program(pages.clone(), None)]);
        let with = run(memory, None, &[program(pages.clone(), Some(speculation(right)))]);
        let really = plain.stalls() as f64 - with.stalls() as f64;
        let counted = with.outcomes[0].removed as f64 - with.added as f64;
        assert!((0.9..1.1).contains(&(counted / really)), "{memory}: {counted} of {really}");
    }
}

#[test]
fn good_speculation_keeps_its_gain() {
    let pages = working_set(90_000, 1200, 3);
    for memory in [300, 500, 700, 900, 1100] {
        let subjects = [program(pages.clone(), Some(speculation(right)))];
        let (free, controlled) = (run(memory, None, &subjects), run(memory, CONTROL, &subjects));
        let plain = run(memory, None, &[program(pages.clone(), None)]);
        let gain = |report: &MemoryReport| plain.stalls() as f64 - report.stalls() as f64;
        assert!(gain(&controlled) >= 0.95 * gain(&free), "{memory}: {controlled:?}");
    }
}

#[test]
fn useless_speculation_costs_a_hundredth_or_less_than_the_threshold() {
    let pages = working_set(200_000, 1200, 4);
    for memory in [400, 600, 800, 1000] {
        let plain = run(memory, None, &[program(pages.clone(), None)]);
        let subjects = [program(pages.clone(), Some(speculation(wrong)))];
        let (free, controlled) = (run(memory, None, &subjects), run(memory, CONTROL, &subjects));
        let intervals = (pages.len() / INTERVAL) as f64;
        let more = |report: &MemoryReport| report.stalls() as f64 - plain.stalls() as f64;
        let [free_more, controlled_more] =
            [&free, &controlled].map(|report| more(report) / intervals);
        println!(
            "{memory} pages: {free_more:.2} stalls per interval more, {controlled_more:.2} controlled"
        );
        assert!(free_more > 30.0, "{memory}: {free_more}");
        let slower = controlled.stalls() as f64 / plain.stalls() as f64;
        assert!(slower < 1.01 || controlled_more < 2.0, "{memory}: {slower} {controlled_more}");
        assert!(controlled.outcomes[0].disabled > 0);
    }
}

#[test]
fn speculation_comes_back_when_it_is_good_again() {
    let pages = working_set(600_000, 1200, 5);
    let report = run(700, CONTROL, &[program(pages, Some(speculation(by_phases)))]);
    let actions = &report.outcomes[0].actions;
    let share_running = |from: usize, to: usize| {
        let running =
            actions[from..to].iter().filter(|a| matches!(a, Action::Run | Action::Enable));
        running.count() as f64 / (to - from) as f64
    };
    assert!(share_running(0, 30) > 0.95, "stopped for nothing");
    assert!(share_running(30, 60) < 0.3, "not stopped");
    assert!(share_running(500, 600) > 0.95, "never again");
}

#[test]
fn the_one_that_wastes_memory_pays_for_it() {
    let subjects = [
        program(working_set(90_000, 800, 6), Some(speculation(right))),
        program(working_set(90_000, 800, 7), Some(speculation(wrong))),
    ];
    let report = run(900, CONTROL, &subjects);
    let [good, bad] = &report.outcomes[..] else { panic!("two programs") };
    assert!(bad.disabled_intervals > 45, "{}", bad.disabled_intervals);
    assert!(good.disabled_intervals < 9, "{}", good.disabled_intervals);
}

#[test]
fn a_plain_program_beside_speculating_ones_is_spared() {
    let plain_pages = working_set(90_000, 700, 8);
    let other = working_set(90_000, 700, 9);
    let beside = |speculation, control| {
        let subjects = [program(plain_pages.clone(), None), program(other.clone(), speculation)];
        run(900, control, &subjects).outcomes[0].stalls as f64
    };
    let alone = beside(None, None);
    assert!(beside(Some(speculation(wrong)), None) > 1.03 * alone, "otherwise nothing is shown");
    assert!(beside(Some(speculation(wrong)), CONTROL) < 1.03 * alone);
}

#[test]
fn no_pressure_no_cost() {
    let report =
        run(5000, CONTROL, &[program(working_set(30_000, 1200, 10), Some(speculation(right)))]);
    assert_eq!((report.added, report.outcomes[0].disabled), (0, 0));
}
