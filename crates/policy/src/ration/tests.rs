use super::*;

/// A ration that has its first stalls behind it.
fn begun() -> Ration {
    Ration { first_stalls: FIRST_STALLS, ..Ration::default() }
}

/// Synchronisations at `stalls` stalls: what is told of each before it is decided
/// about, of each synchronisation, and after it.
fn synchronisations(
    stalls: u32,
    before: impl Fn(&mut Ration),
    synchronise: impl Fn(&mut Ration),
    after: impl Fn(&mut Ration),
) -> u32 {
    let mut ration = begun();
    let mut attempts = 0;
    for _ in 0..stalls {
        before(&mut ration);
        if ration.decide(Standing::None, Processors::Idle) == Decision::Synchronise {
            synchronise(&mut ration);
            attempts += 1;
        }
        after(&mut ration);
    }
    attempts
}

fn attempts(stalls: u32, hits: u64) -> u32 {
    synchronisations(
        stalls,
        |ration| ration.outcome(hits, 0, false),
        |ration| ration.synchronised(100_000, false),
        |ration| ration.stalled(1_000_000),
    )
}

#[test]
fn a_program_that_gains_is_synchronised_at_every_stall() {
    assert_eq!(attempts(1000, 40), 1000);
}

#[test]
fn a_program_that_does_not_is_left_alone() {
    assert!(attempts(100_000, 0) < 120, "{}", attempts(100_000, 0));
}

#[test]
fn a_copy_that_predicts_nothing_is_given_up_in_time() {
    let mut ration = begun();
    ration.stalled(100_000);
    assert!(!ration.is_hopeless(6_000_000, 0), "of stalls alone, fewer than its limit");
    assert!(ration.is_hopeless(20_000_000, 0), "between them the program computed");
    assert!(!ration.is_hopeless(6_000_000, 1000));
    assert!(ration.is_hopeless(6_000_000, 10_000), "all that it touches is imported");
    assert!(!ration.is_hopeless(500_000, 10_000), "a stall or two later it may be ahead");
}

/// Nobody tells of the waits of a program that goes through a mapped file.
#[test]
fn what_is_mapped_counts_as_waited_for() {
    let mut ration = Ration::default();
    let made = |ration: &mut Ration, hits: u64| {
        assert!(ration.may_expect(16 << 20));
        ration.synchronised(300_000, true);
        ration.expected();
        assert!(!ration.is_hopeless(1_000_000_000, 10_000), "how long stalls are is not known");
        ration.unseen(50_000);
        ration.outcome(hits, 0, false);
        assert_eq!(ration.unaided_ns(), 0, "it says nothing of other copies");
    };
    made(&mut ration, 0);
    made(&mut ration, 1000);
    made(&mut ration, 0);
    // Each page saves its part of a window.
    made(&mut ration, 10);
    assert!(!ration.may_expect(16 << 20), "two in a row");
    let mut waits = begun();
    waits.stalled(1_000_000);
    waits.synchronised(1_000_000, false);
    waits.outcome(0, 0, false);
    assert!(!waits.may_expect(16 << 20), "32 ms are to be waited unaided");
    assert!(waits.may_expect(64 << 20));
}

/// On a heap of 4 GiB, beside a copy that takes its part of the memory's time.
#[test]
fn what_a_copy_computed_in_vain_is_waited_for_too() {
    let passed_over = |cpu_ns: u64| {
        let mut ration = begun();
        ration.stalled(1_000_000);
        ration.synchronised(300_000, true);
        ration.took(cpu_ns);
        ration.outcome(0, 0, false);
        ration.passes_over()
    };
    assert_eq!(passed_over(0), 9, "32 times 0.3 ms");
    assert_eq!(passed_over(20_000_000), 89, "and an eighth of 20 ms");
    assert_eq!(passed_over(5_000_000_000), 1009, "a second of it at most");
}

/// As a program does that meets what its copy left out before what it predicted.
#[test]
fn predictions_that_come_true_later_end_the_passing_over() {
    let judged = || {
        let mut ration = begun();
        ration.stalled(1_000_000);
        ration.synchronised(300_000, true);
        assert!(!ration.came_true(20), "it is still to be judged");
        ration.outcome(1, 1, false);
        assert_ne!(ration.unaided_ns(), 0);
        ration
    };
    let mut ration = judged();
    assert!(!ration.came_true(1), "one is what a copy that came to nothing saves");
    assert_ne!(ration.unaided_ns(), 0);
    assert!(ration.came_true(3));
    assert_eq!(ration.decide(Standing::None, Processors::Idle), Decision::Synchronise);
    let mut dear = judged();
    dear.spent(10_000_000_000);
    assert!(!dear.came_true(20), "its kind takes too much processor time");
}

/// Its data came before the copy was there: that says nothing of what copies
/// save.
#[test]
fn a_copy_that_was_given_up_is_not_judged() {
    let given_up = synchronisations(
        1000,
        |ration| ration.outcome(0, 0, false),
        |ration| {
            ration.synchronised(100_000, false);
            ration.given_up();
        },
        |ration| ration.stalled(1_000_000),
    );
    assert_eq!(given_up, 1000);
}

#[test]
fn on_a_disk_a_program_is_asked_again_after_a_second() {
    let mut ration = begun();
    for _ in 0..20 {
        ration.stalled(11_000_000);
        ration.synchronised(1_000_000, false);
        ration.outcome(0, 0, false);
    }
    assert_eq!(ration.unaided_ns(), 1_024_000_000, "a thousandth of it is attempts");
    ration.synchronised(100_000, false);
    ration.outcome(0, 0, false);
    assert_eq!(ration.unaided_ns(), 1_000_000_000);
}

#[test]
fn attempts_that_cost_much_are_few_in_a_short_program() {
    // A merge join: 300 stalls of 0.7 ms, 2 ms to an attempt, half of them
    // waited for; one hit to a copy.
    let attempts = |cost_ns: u64| {
        let before = |ration: &mut Ration| {
            ration.stalled(700_000);
            ration.outcome(1, 0, false);
        };
        let synchronise = |ration: &mut Ration| {
            ration.synchronised(cost_ns / 2, true);
            ration.cost_more(cost_ns / 2);
        };
        synchronisations(300, before, synchronise, |_| {})
    };
    let lost_ns = u64::from(attempts(2_000_000)) * 1_300_000;
    assert!(lost_ns * WAITED_PER_LOSS <= 300 * 700_000 + 4 * 1_300_000 * WAITED_PER_LOSS);
    assert!(attempts(2_000_000) <= 3, "{}", attempts(2_000_000));
    assert_eq!(attempts(700_000), 9, "nothing lost: doubling alone");
}

#[test]
fn where_copies_have_paid_the_next_attempt_comes_sooner() {
    let stalls_passed_over = |hits| {
        let mut ration = begun();
        ration.stalled(1_000_000);
        ration.synchronised(2_000_000, false);
        ration.outcome(hits, 0, false);
        ration.synchronised(2_000_000, false);
        ration.outcome(0, 0, false);
        ration.unaided_ns / 1_000_000
    };
    assert_eq!(stalls_passed_over(100), 2 * WAITED_PER_LOSS_WHERE_PAID);
    assert!(stalls_passed_over(1) >= 2 * WAITED_PER_LOSS);
}

/// An object store through FUSE: the copy of a walk's first directories came
/// to nothing, and 270 of its 400 files were then waited for unaided.
#[test]
fn a_loss_at_short_stalls_is_soon_outweighed_by_long_ones() {
    let mut ration = begun();
    for _ in 0..3 {
        ration.stalled(60_000);
    }
    ration.synchronised(400_000, false);
    ration.outcome(0, 0, false);
    let mut passed_over = 0;
    while ration.decide(Standing::None, Processors::Idle) == Decision::PassOver {
        ration.stalled(30_000_000);
        passed_over += 1;
    }
    assert_eq!(passed_over, 1, "12.8 ms are one stall");
}

#[test]
fn what_an_attempt_loses_is_outweighed_however_short_stalls_are() {
    let mut ration = begun();
    ration.stalled(60_000);
    ration.synchronised(35_000_000, false);
    ration.outcome(0, 0, false);
    let mut waited_ns = 0;
    while ration.decide(Standing::None, Processors::Idle) == Decision::PassOver {
        ration.stalled(60_000);
        waited_ns += 60_000;
    }
    assert!(waited_ns >= 35_000_000 * WAITED_PER_LOSS, "{waited_ns}");
}

#[test]
fn stalls_that_nobody_asked_about_are_passed_over() {
    let mut ration = begun();
    ration.stalled(1_000_000);
    for _ in 0..4 {
        ration.synchronised(10_000, false);
        ration.outcome(0, 0, false);
    }
    ration.unnoticed(7, 1_000_000);
    let idle = Processors::Idle;
    assert_eq!(ration.decide(Standing::None, idle), Decision::PassOver, "8 ms were left");
    ration.stalled(1_000_000);
    assert_eq!(ration.decide(Standing::None, idle), Decision::Synchronise);
}

#[test]
fn stalls_that_were_only_timed_end_the_passing_over() {
    let mut ration = begun();
    ration.stalled(80_000);
    assert_eq!(ration.unaided_ns(), 0);
    for _ in 0..2 {
        ration.synchronised(100_000, false);
        ration.outcome(0, 0, false);
    }
    let left_ns = ration.unaided_ns;
    assert!(left_ns > 80_000);
    ration.timed(left_ns - 1);
    assert_eq!(ration.unaided_ns(), 1);
    ration.timed(80_000);
    assert_eq!(ration.unaided_ns(), 0);
    // A long wait among many short ones counts, as they do.
    ration.begin(Start::Later(20_000_000));
    ration.timed(300 * 30_000 + 10_000_000);
    assert_eq!(ration.unaided_ns(), 1_000_000);
}

#[test]
fn copies_that_save_one_fault_each_are_soon_left() {
    let attempts = |after_fault| {
        synchronisations(
            2000,
            |ration| ration.outcome(1, 0, false),
            |ration| ration.synchronised(100_000, after_fault),
            |ration| ration.stalled(2_000_000),
        )
    };
    assert_eq!(attempts(false), 2000);
    assert!(attempts(true) < 20, "{}", attempts(true));
}

#[test]
fn a_slow_copy_is_not_chased() {
    let mut ration = begun();
    assert_eq!(ration.decide(Standing::None, Processors::Idle), Decision::Synchronise);
    ration.synchronised(50_000, false);
    for _ in 1..BEHIND_STALLS_MAX {
        assert_eq!(ration.decide(Standing::Behind, Processors::Idle), Decision::PassOver);
    }
    assert_eq!(ration.decide(Standing::Behind, Processors::Idle), Decision::GiveUp);
}

#[test]
fn a_copy_that_saves_as_many_stalls_as_it_misses_is_kept() {
    let mut ration = begun();
    ration.synchronised(50_000, false);
    for hits in 0..10 * u64::from(BEHIND_STALLS_MAX) {
        ration.stands(hits, 1);
        assert_eq!(ration.decide(Standing::Behind, Processors::Idle), Decision::PassOver);
    }
    // From here on it saves nothing more; what it once saved is no credit.
    let left = (0..).take_while(|_| {
        ration.stands(10 * u64::from(BEHIND_STALLS_MAX), 1);
        ration.decide(Standing::Behind, Processors::Idle) == Decision::PassOver
    });
    assert_eq!(left.count() as u32, BEHIND_STALLS_MAX - 1);
}

#[test]
fn a_copy_that_catches_up_is_given_longer() {
    let passed_over = |lag: fn(u64) -> u64| {
        let mut ration = begun();
        ration.synchronised(50_000, false);
        let passed = (0..).take_while(|stall| {
            ration.stands(0, lag(*stall));
            ration.decide(Standing::Behind, Processors::Idle) == Decision::PassOver
        });
        passed.count() as u32 + 1
    };
    assert_eq!(passed_over(|_| 20), BEHIND_STALLS_MAX, "as far behind as ever");
    assert_eq!(passed_over(|stall| stall + 1), BEHIND_STALLS_MAX, "ever farther");
    assert_eq!(passed_over(|stall| 40u64.saturating_sub(stall)), CATCHING_UP_STALLS_MAX);
}

#[test]
fn a_process_of_a_stall_or_two_is_left_alone() {
    let mut ration = Ration::default();
    for _ in 0..FIRST_STALLS {
        assert_eq!(ration.decide(Standing::None, Processors::Idle), Decision::PassOver);
        ration.stalled(100_000);
    }
    assert_eq!(ration.decide(Standing::None, Processors::Idle), Decision::Synchronise);
}

#[test]
fn long_stalls_are_worth_a_copy_at_once() {
    let mut ration = Ration::default();
    assert_eq!(ration.decide(Standing::None, Processors::Idle), Decision::PassOver);
    ration.stalled(30_000_000);
    assert_eq!(ration.decide(Standing::None, Processors::Idle), Decision::Synchronise);
}

#[test]
fn copies_that_compute_too_long_are_rationed() {
    let attempts = |cpu_ns: u64| {
        let synchronise = |ration: &mut Ration| {
            ration.synchronised(100_000, false);
            ration.spent(cpu_ns);
        };
        let before = |ration: &mut Ration| ration.outcome(40, 0, false);
        synchronisations(1000, before, synchronise, |ration| ration.stalled(1_000_000))
    };
    // 40 stalls of 1 ms are 40 ms saved.
    assert_eq!(attempts(40_000_000 * (CPU_PER_BENEFIT - 1)), 1000);
    assert!(attempts(40_000_000 * (CPU_PER_BENEFIT + 1)) < 100);
}

#[test]
fn what_is_waited_for_elsewhere_instead_is_not_saved() {
    let attempts = |stall_ns: u64, elsewhere_ns: u64| {
        let before = |ration: &mut Ration| {
            ration.stalled(stall_ns);
            ration.waited_elsewhere(elsewhere_ns);
            assert!(ration.gains(40, 0, 0));
            ration.outcome(40, 0, false);
        };
        let synchronise = |ration: &mut Ration| ration.synchronised(200_000, false);
        synchronisations(2000, before, synchronise, |_| {})
    };
    let flash_ns = SHORT_STALL_NS / 4;
    assert_eq!(attempts(flash_ns, 0), 2000);
    assert_eq!(attempts(flash_ns, 10 * flash_ns), 2000, "half of it is left");
    assert!(attempts(flash_ns, 20 * flash_ns) < 20);
    // On a disk a program also waits for names.
    let mut ration = begun();
    ration.stalled(SHORT_STALL_NS);
    ration.synchronised(200_000, false);
    ration.waited_elsewhere(u64::MAX);
    assert!(ration.gains(1, 0, 0));
    // Nor soon after flash, of which there was much.
    let mut ration = begun();
    (0..1000).for_each(|_| ration.stalled(50_000));
    ration.stalled(10_000_000);
    ration.synchronised(200_000, false);
    ration.waited_elsewhere(u64::MAX);
    assert!(ration.gains(1, 0, 0));
}

#[test]
fn a_copy_is_not_ended_for_a_little_nor_for_what_others_owe() {
    let mut ration = begun();
    ration.stalled(50_000);
    for _ in 0..2 {
        ration.synchronised(200_000, false);
        ration.waited_elsewhere(5_000_000);
        assert!(!ration.gains(100, 0, 16_000_000), "5 of 10 ms, and 1 is tolerated");
        assert!(ration.gains(180, 0, 16_000_000));
        assert!(!ration.gains(179, 0, 16_000_000));
        ration.outcome(0, 0, false);
    }
    ration.synchronised(200_000, false);
    ration.waited_elsewhere(0);
    assert!(ration.gains(0, 0, 5_000_000), "its predecessors owe 20 ms");
}

#[test]
fn what_is_waited_for_elsewhere_counts_beside_the_copies_to_come() {
    let mut ration = begun();
    let benefit_ns = |ration: &mut Ration, elsewhere_ns| {
        let before_ns = ration.benefits_ns;
        ration.stalled(50_000);
        ration.synchronised(10_000, false);
        ration.waited_elsewhere(elsewhere_ns);
        ration.outcome(100, 0, false);
        ration.benefits_ns - before_ns
    };
    assert_eq!(benefit_ns(&mut ration, 4_500_000), 0);
    assert_eq!(benefit_ns(&mut ration, 0), 1_000_000, "4 of 5 ms are owed");
    assert_eq!(benefit_ns(&mut ration, 0), 5_000_000);
    assert_eq!(benefit_ns(&mut ration, u64::MAX), 0);
    let owed = (0..100).take_while(|_| benefit_ns(&mut ration, 0) == 0).count() as u64;
    assert_eq!(owed, OWED_NS_MAX / 5_000_000, "not for ever");
}

#[test]
fn a_long_stall_among_many_does_not_make_the_saving_longer() {
    let mut ration = begun();
    ration.stalled(50_000);
    ration.stalled(5_000_000);
    ration.synchronised(10_000, false);
    ration.waited_elsewhere(65_000_000);
    assert!(!ration.gains(1000, 0, 1_000_000), "at most 127 ms of 130");
}

#[test]
fn a_process_begins_as_its_like_ended() {
    let decide = |start, stalls_before: u32| {
        let mut ration = Ration::default();
        ration.begin(start);
        for _ in 0..stalls_before {
            assert_eq!(ration.decide(Standing::None, Processors::Idle), Decision::PassOver);
            ration.stalled(100_000);
        }
        ration.decide(Standing::None, Processors::Idle)
    };
    assert_eq!(decide(Start::AtOnce, 0), Decision::Synchronise);
    assert_eq!(decide(Start::Second, 1), Decision::Synchronise);
    assert_eq!(decide(Start::Later(1_000_000), 10), Decision::Synchronise);
    assert_eq!(decide(Start::Unknown, FIRST_STALLS), Decision::Synchronise);
}

#[test]
fn a_process_tells_what_its_copies_came_to() {
    let mut ration = begun();
    for hits in [10, 0] {
        ration.stalled(1_000_000);
        ration.synchronised(100_000, false);
        ration.outcome(hits, 0, false);
        ration.outcome(hits, 0, false);
    }
    let ended = ration.ended(7, 9_000_000);
    assert_eq!((ended.copies, ended.benefit_ns, ended.cost_ns), (2, 10_000_000, 200_000));
    assert_eq!((ended.stalls, ended.stalled_ns), (7, 9_000_000));
    assert_eq!(ended.unaided_ns, ration.unaided_ns, "the last one did not pay");
    assert!(ended.unaided_ns > 0);
}

#[test]
fn copies_that_make_the_program_fault_are_left_alone() {
    let before = |ration: &mut Ration| {
        ration.cost_more(3_000_000);
        ration.outcome(1, 0, false);
    };
    let synchronise = |ration: &mut Ration| ration.synchronised(100_000, false);
    let attempts =
        synchronisations(10_000, before, synchronise, |ration| ration.stalled(1_000_000));
    assert!(attempts < 40, "{attempts}");
}

#[test]
fn busy_processors_make_no_copies() {
    let mut ration = begun();
    assert_eq!(ration.decide(Standing::None, Processors::Busy), Decision::PassOver);
    assert_eq!(ration.decide(Standing::OffTrack, Processors::Idle), Decision::Synchronise);
}

#[test]
fn copies_that_share_memory_and_fail_are_waited_for_and_must_bring_more() {
    let mut ration = Ration::default();
    ration.begin(Start::AtOnce);
    ration.stalled(1_000_000);
    ration.synchronised(100_000, false);
    ration.outcome(0, 0, true);
    assert!(ration.awaits());
    let next = ration.decide(Standing::None, Processors::Idle);
    assert_eq!(next, Decision::Synchronise, "the failure has a known cure");
    ration.synchronised(100_000, false);
    ration.outcome(HITS_AWAITED_MIN - 1, 0, true);
    let next = ration.decide(Standing::None, Processors::Idle);
    assert_eq!(next, Decision::PassOver);
    ration.synchronised(100_000, false);
    ration.outcome(HITS_AWAITED_MIN, 0, true);
    let next = ration.decide(Standing::None, Processors::Idle);
    assert_eq!(next, Decision::Synchronise);
    assert!(ration.awaits());
}

#[test]
fn a_first_copy_at_the_first_stall_that_comes_to_nothing_was_hasty() {
    let run = |start: Start, stalls: &[(Processors, u64)]| {
        let mut ration = Ration::default();
        ration.begin(start);
        for &(processors, hits) in stalls {
            let decision = ration.decide(Standing::None, processors);
            if decision == Decision::Synchronise {
                ration.synchronised(100_000, false);
            }
            ration.stalled(1_000_000);
            if decision == Decision::Synchronise {
                ration.outcome(hits, 0, false);
            }
        }
        ration
    };
    let hasty = |start, stalls: &[_]| run(start, stalls).ended(9, 9_000_000).hasty;
    let (idle, busy) = (Processors::Idle, Processors::BusyNow);
    assert!(hasty(Start::AtOnce, &[(idle, 0)]));
    assert!(!hasty(Start::AtOnce, &[(idle, 50), (idle, 0)]));
    assert!(!hasty(Start::AtOnce, &[(busy, 0), (idle, 0)]), "it was not the first stall");
    // Nor where the ration was not asked at that.
    let mut ration = Ration::default();
    ration.begin(Start::AtOnce);
    ration.stalled(1_000_000);
    assert_eq!(ration.decide(Standing::None, idle), Decision::Synchronise);
    ration.synchronised(100_000, false);
    ration.outcome(0, 0, false);
    assert!(!ration.ended(9, 9_000_000).hasty);
    assert!(!hasty(Start::Unknown, &[(idle, 0); 3]) && !hasty(Start::AtOnce, &[]));
    let mut late = run(Start::AtOnce, &[(idle, 0)]);
    assert!(late.came_true(50) && !late.ended(9, 9_000_000).hasty);
}

#[test]
fn a_dear_copy_is_made_only_beside_what_was_waited_for() {
    let mut ration = Ration::default();
    assert!(ration.bears(COST_FREE_NS, 0));
    // 16 GiB, by 17 µs for each MiB.
    let dear_ns = 280_000_000;
    assert!(!ration.bears(dear_ns, 0) && !ration.bears(dear_ns, 2_000_000_000));
    assert!(ration.bears(dear_ns, 2_240_000_000));
    // Once copies have paid, they may be made at once.
    ration.stalled(1_000_000);
    ration.synchronised(1_000_000, false);
    ration.outcome(100, 0, false);
    assert!(ration.bears(dear_ns, 0));
}
