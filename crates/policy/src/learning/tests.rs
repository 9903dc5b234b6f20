use super::*;

const SHORT: Ended = Ended {
    stalls: 1,
    stalled_ns: 100_000,
    copies: 0,
    hits: 0,
    benefit_ns: 0,
    cost_ns: 0,
    unaided_ns: 0,
    hasty: false,
    below: false,
    maps: false,
    brief: false,
    lack: None,
};
const GOOD: Ended = Ended {
    stalls: 700,
    stalled_ns: 70_000_000,
    copies: 1,
    hits: 700,
    benefit_ns: 90_000_000,
    cost_ns: 300_000,
    unaided_ns: 0,
    hasty: false,
    below: false,
    maps: false,
    brief: false,
    lack: None,
};
const BAD: Ended = Ended { copies: 8, benefit_ns: 0, cost_ns: 2_000_000, ..GOOD };

fn after(processes: &[Ended]) -> Record {
    let mut record = Record::default();
    processes.iter().for_each(|ended| record.ended(ended));
    record
}

#[test]
fn short_processes_are_left_alone_but_for_a_sample() {
    let enlisted_of_1000 = |apart_ns: u64| {
        let mut record = Record::default();
        let enlists = |number: &u64| {
            let enlists = record.enlists(number * apart_ns);
            if enlists {
                record.ended(&SHORT);
            }
            enlists
        };
        (0..1000).filter(enlists).count()
    };
    let first = usize::from(SHORT_MIN);
    let second = 1_000_000_000;
    assert_eq!(enlisted_of_1000(second / 1000), first, "1000 in a second");
    assert_eq!(enlisted_of_1000(second / 10), first + 24, "1000 in a hundred seconds");
    assert_eq!(enlisted_of_1000(SAMPLE_NS), 1000, "all that run for longer");
}

#[test]
fn one_that_waits_brings_the_agent_back() {
    let mut record = after(&[SHORT; 100]);
    assert!(!record.enlists(0));
    assert!(record.enlists(SAMPLE_NS));
    record.ended(&Ended { stalls: 100, ..SHORT });
    assert!((0..100).all(|_| record.enlists(0)));
}

#[test]
fn brief_processes_among_busy_processors_are_left_alone_until_one_is_idle() {
    let vain = Ended { stalls: 40, stalled_ns: 4_000_000, lack: Some(Lack::Processor), ..SHORT };
    let mut record = after(&[vain; 4]);
    assert!(!record.enlists(1));
    assert!(record.enlists(SAMPLE_NS));
    record.ended(&Ended { lack: None, ..vain });
    assert!((0..100).all(|_| record.enlists(0)));
    let mut makes_others = after(&[Ended { below: true, ..vain }; 100]);
    assert!(makes_others.enlists(1));
}

#[test]
fn where_memory_has_no_room_samples_become_ever_fewer() {
    let vain = Ended { stalls: 40, stalled_ns: 4_000_000, lack: Some(Lack::Memory), ..SHORT };
    let mut record = Record::default();
    let sampled = |seconds: &u64| {
        let enlists = record.enlists(seconds * 1_000_000_000);
        if enlists {
            record.ended(&vain);
        }
        enlists
    };
    // The first four and a sample; after 8 s and a little the next, after 16, and
    // each 32 from then on.
    let expected = [100, 101, 102, 103, 104, 112, 129, 162, 195, 228];
    assert!((100..240).filter(sampled).eq(expected));
    record.ended(&Ended { lack: None, ..vain });
    assert!((0..100).all(|_| record.enlists(0)));
    let other = Ended { lack: Some(Lack::Processor), ..vain };
    (0..SHORT_MIN).for_each(|_| record.ended(&other));
    assert_eq!(record.crowded, 0);
}

#[test]
fn brief_processes_of_flash_whose_notices_come_to_nothing_get_none_but_for_a_sample() {
    let log = Ended { stalls: 20, maps: true, brief: true, ..SHORT };
    let mut record = after(&[log]);
    let noticed = |number: &u64| record.gives_notice(number * 100_000_000);
    assert_eq!((1000..2000).filter(noticed).count(), 25, "1000 in a hundred seconds");
    let next = |ended: Ended| after(&[log, ended]).gives_notice(0);
    assert!(!next(log) && !next(Ended { maps: false, brief: false, ..log }));
    assert!(next(Ended { brief: false, ..log }));
    assert!(next(Ended { stalled_ns: 20 * SHORT_STALL_NS, ..log }));
    assert!(next(Ended { maps: true, brief: true, ..GOOD }));
    let little = Ended { benefit_ns: NOTICES_NS, ..GOOD };
    assert!(!next(Ended { maps: true, brief: true, ..little }));
    assert!(after(&[]).gives_notice(0));
    // Nor is one left alone for good that is both.
    let mut short = after(&[Ended { stalls: 0, ..log }; 4]);
    assert!(!short.enlists(0) && short.enlists(SAMPLE_NS) && short.gives_notice(SAMPLE_NS));
    // Nor do those have them for good that somebody starts who does not ask: half a
    // second after each sample.
    let noticed = |number: &u64| short.gives_notice(number * 100_000_000);
    assert!((25..=150).contains(&(1000..2000).filter(noticed).count()));
}

#[test]
fn short_processes_of_a_slow_device_are_not_short() {
    let slow = Ended { stalls: 2, stalled_ns: 60_000_000, ..SHORT };
    let mut record = after(&[slow; 100]);
    assert!((0..100).all(|_| record.enlists(0)));
}

#[test]
fn what_depends_on_its_first_read_has_no_copy_at_that() {
    let hasty = Ended { copies: 1, hits: 0, benefit_ns: 0, hasty: true, ..GOOD };
    let mut record = after(&[GOOD, hasty]);
    assert_eq!(record.start(), Start::Second);
    record = Record::from_bits(record.bits());
    record.ended(&GOOD);
    assert_eq!((record.start(), record.patience), (Start::Second, 0));
    // Once in a while it is tried again, and at once where later copies do not pay either.
    (0..HASTY_MAX).for_each(|_| record.ended(&GOOD));
    assert_eq!(record.start(), Start::AtOnce);
    record.ended(&hasty);
    (0..4).for_each(|_| record.ended(&BAD));
    (0..8).for_each(|_| record.ended(&GOOD));
    assert_eq!(record.start(), Start::AtOnce);
    let last = Ended { stalls: FIRST_STALLS, ..hasty };
    assert_eq!(after(&[GOOD, last]).start(), Start::AtOnce, "nothing was left to predict");
}

#[test]
fn what_executes_others_that_wait_hands_the_agent_on() {
    let mut record = after(&[Ended { below: true, ..SHORT }; 100]);
    assert!((0..1000).all(|_| record.enlists(0)));
    (0..SHORT_MIN).for_each(|_| record.ended(&SHORT));
    assert!(!record.enlists(0));
    record.went_on(false, Other::Unknown);
    assert!(record.enlists(0) && record.waited() == 0);
    (0..SHORT_MIN).for_each(|_| record.went_on(false, Other::LeftAlone));
    assert!(!record.enlists(0));
    record.went_on(false, Other::Undecided);
    assert!(!record.enlists(0) && record.waited() == 0);
    record.went_on(true, Other::Undecided);
    assert!(record.enlists(0) && record.waited() == WAITED_MAX);
    let mut record = after(&[GOOD, Ended { below: true, ..SHORT }]);
    assert_eq!(record.start(), Start::Unknown, "it had nothing left to predict itself");
    record.ended(&GOOD);
    assert_eq!(record.start(), Start::AtOnce);
}

#[test]
fn what_goes_on_as_others_that_wait_hands_the_agent_on_by_way_of_a_few() {
    let waits = after(&[Ended { below: true, ..SHORT }]);
    let mut row = [after(&[SHORT; SHORT_MIN as usize]); 2];
    let mut next = waits.waited();
    for record in &mut row {
        record.went_on(false, Other::Waits(next));
        assert!(record.enlists(0));
        next = record.waited();
    }
    assert_eq!(next, 1);
    // Those that go on as one another do not keep it.
    let [mut one, mut other] = [waits; 2];
    for _ in 0..WAITED_MAX {
        other.went_on(false, Other::Waits(one.waited()));
        one.went_on(false, Other::Waits(other.waited()));
    }
    assert_eq!([one.waited(), other.waited()], [0; 2]);
}

#[test]
fn one_whose_copies_have_paid_is_sampled_more_often() {
    let mut record = after(&[GOOD, SHORT, SHORT, SHORT, SHORT]);
    assert!(record.enlists(1000 * SAMPLE_NS), "the first");
    assert!(!record.enlists(1000 * SAMPLE_NS + STAMP_NS));
    assert!(record.enlists(1000 * SAMPLE_NS + SAMPLE_NS / SAMPLE_PAID_PART + STAMP_NS));
}

#[test]
fn the_next_process_begins_where_the_last_ended() {
    assert_eq!(after(&[]).start(), Start::Unknown);
    assert_eq!(after(&[GOOD]).start(), Start::AtOnce);
    assert_eq!(after(&[GOOD, SHORT]).start(), Start::Unknown);
    assert_eq!(after(&[BAD]).start(), Start::Later(1_000_000));
    assert_eq!(after(&[BAD; 100]).start(), Start::Later(512_000_000));
    assert_eq!(after(&[BAD, BAD, BAD, GOOD]).start(), Start::AtOnce);
    let long = Ended { unaided_ns: 130_000_000, ..BAD };
    assert_eq!(after(&[long]).start(), Start::Later(4_000_000), "one is no proof");
    assert_eq!(after(&[long; 3]).start(), Start::Later(128_000_000));
    assert_eq!(after(&[long, long, long, BAD]).start(), Start::Later(256_000_000));
}

/// The sender of rsync on flash: of its copies one saved twenty stalls.
#[test]
fn what_saves_next_to_nothing_has_not_paid() {
    let ended = |benefit_ns| Ended { stalled_ns: 128_000_000, benefit_ns, ..GOOD };
    assert_eq!(after(&[ended(7_999_999)]).start(), Start::Later(1_000_000));
    assert_eq!(after(&[ended(8_000_000)]).start(), Start::AtOnce);
    let disk = Ended { stalls: 640, ..ended(2_000_000) };
    assert_eq!(after(&[disk]).start(), Start::AtOnce, "stalls of 0.2 ms");
}

/// A linker that gains on a disk and is then run on flash, where it cannot.
#[test]
fn what_has_paid_for_long_is_forgotten_in_a_few_processes() {
    let mut record = after(&[GOOD; 100]);
    let bad = Ended { unaided_ns: 100_000_000, ..BAD };
    let mut at_once = 0;
    while record.start() == Start::AtOnce {
        record.ended(&bad);
        at_once += 1;
    }
    assert!((2..=4).contains(&at_once), "{at_once}");
    assert_eq!(record.start(), Start::Unknown);
}

/// A scan of 0.25 s, after many searches by the same program that did not
/// pay.
#[test]
fn what_ends_before_it_is_tried_is_tried_sooner_the_next_time() {
    let mut record = after(&[BAD; 100]);
    let scan = Ended { stalls: 250, stalled_ns: 250_000_000, ..SHORT };
    let mut untried = 0;
    while matches!(record.start(), Start::Later(ns) if ns >= scan.stalled_ns) {
        record.ended(&scan);
        untried += 1;
    }
    assert!(untried <= 3, "{untried}");
    // Processes that wait for next to nothing say nothing about it.
    let before = record.start();
    (0..100).for_each(|_| record.ended(&Ended { stalls: 8, stalled_ns: 800_000, ..SHORT }));
    assert_eq!(record.start(), before);
    assert_eq!(after(&[SHORT; 3]).start(), Start::Unknown);
}

/// Searches of 10 ms, after scans by the same program that did not pay.
#[test]
fn short_ones_are_tried_as_well_once_they_have_waited_for_long_together() {
    let mut record = after(&[BAD; 100]);
    let search = Ended { stalls: 100, stalled_ns: 10_000_000, ..SHORT };
    let mut untried = 0;
    while matches!(record.start(), Start::Later(ns) if ns >= search.stalled_ns) {
        record.ended(&search);
        untried += 1;
        assert!(untried < 1000, "never");
    }
    assert!((60..100).contains(&untried), "{untried}");
    assert_eq!(record.start(), Start::Later(8_000_000));
}

/// A linker on flash: its copies never pay, and each of its processes waits
/// longer than it is to wait unaided, once that has become a little less.
#[test]
fn what_never_pays_is_tried_ever_more_seldom() {
    const STALLED_NS: u64 = 300_000_000;
    let mut record = Record::default();
    let (mut tried, mut last, mut widest) = (0, 0, 0);
    for run in 0..200 {
        let unaided_ns = match record.start() {
            Start::Later(ns) => ns,
            _ => 0,
        };
        let is_tried = unaided_ns < STALLED_NS;
        if is_tried {
            (tried, widest, last) = (tried + 1, widest.max(run - last), run);
        }
        let copies = if is_tried { 2 } else { 0 };
        record.ended(&Ended { stalled_ns: STALLED_NS, copies, unaided_ns, ..BAD });
    }
    assert_eq!(widest, u32::from(PATIENCE_MAX) + 1);
    assert!(tried < 35, "{tried}");
    // What pays once is believed at once.
    record.ended(&GOOD);
    assert_eq!(record.start(), Start::AtOnce);
    assert_eq!(record.patience, 0);
}

#[test]
fn records_are_kept_and_noise_is_bounded() {
    let mut record = after(&[BAD, SHORT, SHORT, SHORT, SHORT]);
    assert!(record.enlists(1000 * SAMPLE_NS));
    (record.untried_ms, record.crowded) = (31, SAMPLE_DOUBLINGS_MAX);
    (record.unnoticed, record.waited) = (true, WAITED_MAX);
    assert_eq!(Record::from_bits(record.bits()), record);
    let mut noise = Record::from_bits(u64::MAX);
    assert_eq!(noise.short, SHORT_MIN);
    assert!((0..1000).any(|number| noise.enlists(number * STAMP_NS)));
    noise.ended(&SHORT);
    noise.ended(&BAD);
    noise.ended(&GOOD);
    assert_eq!(Record::from_bits(0), Record::default());
}
