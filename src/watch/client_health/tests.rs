//! What taints, when it begins and ends, and what a minute bears.

use super::*;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const NANO: Duration = Duration::from_nanos(1);

/// A second in which something is just what it may be, and then just more.
fn at_the_limits() -> [(TaintReason, Second, Second); 8] {
    let second = |change: &dyn Fn(&mut Second)| {
        let mut second = Second::default();
        change(&mut second);
        second
    };
    let pair =
        |reason, within: &dyn Fn(&mut Second), beyond: &dyn Fn(&mut Second)| (reason, second(within), second(beyond));
    let fds = |open, max| {
        move |second: &mut Second| {
            second.reading.process = Process { open_fds: Some(open), max_fds: Some(max), ..Process::default() };
        }
    };
    [
        pair(TaintReason::ScheduleLag, &|second| second.schedule_lag = Some(HARM), &|second| {
            second.schedule_lag = Some(HARM + NANO)
        }),
        pair(TaintReason::Late, &|_| {}, &|second| second.late = 1),
        pair(TaintReason::NoPrompt, &|_| {}, &|second| second.no_prompt = 1),
        pair(TaintReason::EventLoopDelay, &|second| second.event_loop_delay = STALL, &|second| {
            second.event_loop_delay = STALL + NANO
        }),
        pair(TaintReason::CpuShare, &|second| second.reading.cpu_share = Some(MAX_CPU_SHARE), &|second| {
            second.reading.cpu_share = Some(0.901)
        }),
        pair(TaintReason::CpuThrottled, &|second| second.reading.throttled = Some(STALL), &|second| {
            second.reading.throttled = Some(STALL + NANO)
        }),
        pair(TaintReason::Descriptors, &fds(900, 1000), &fds(901, 1000)),
        pair(TaintReason::Local, &|_| {}, &|second| second.local = 1),
    ]
}

#[test]
fn each_reason_taints_just_beyond_its_limit_and_no_other_second() {
    for (reason, within, beyond) in at_the_limits() {
        assert!(within.taint().is_empty(), "{reason:?}");
        assert_eq!(beyond.taint().iter().collect::<Vec<_>>(), [reason]);
    }
}

#[test]
fn what_the_system_does_not_say_taints_nothing() {
    let half = |open_fds, max_fds| Reading {
        cpu_share: Some(f64::NAN),
        process: Process { open_fds, max_fds, ..Process::default() },
        ..Reading::default()
    };
    for reading in [Reading::default(), half(Some(u64::MAX), None), half(None, Some(0))] {
        assert!(Second { reading, ..Second::default() }.taint().is_empty(), "{reading:?}");
    }
    let full = Second { reading: half(Some(u64::MAX), Some(u64::MAX)), ..Second::default() };
    assert!(full.taint().is_empty(), "where products overflow, not full is the safe answer");
}

#[test]
fn a_second_counts_for_each_of_its_reasons_and_once_as_tainted() {
    let mut health = Health::default();
    let mut minute = MinuteHealth::default();
    for second in [Second { late: 3, local: 1, ..Second::default() }, Second { late: 1, ..Second::default() }] {
        health.step(&second);
        minute.add(&second, &health, true);
    }
    assert_eq!([TaintReason::Late, TaintReason::Local, TaintReason::NoPrompt].map(|r| health.seconds(r)), [2, 1, 0]);
    assert!(health.is_tainted_by(TaintReason::Late) && !health.is_tainted_by(TaintReason::Local));
    assert_eq!(minute.tainted_seconds(), 2);
    health.step(&Second::default());
    assert!(!health.is_tainted());
}

#[test]
fn a_reason_that_comes_and_goes_begins_once_and_ends_when_it_stays_away() {
    let late = Second { late: 1, ..Second::default() };
    let mut health = Health::default();
    let reasons = |reason: Option<TaintReason>| reason.into_iter().collect::<Reasons>();
    let began = Changes { began: reasons(Some(TaintReason::Late)), ended: reasons(None) };
    assert_eq!(health.step(&late), began);
    for _ in 0..3 {
        for _ in 1..CALM_SECONDS {
            assert_eq!(health.step(&Second::default()), Changes::default());
        }
        assert_eq!(health.step(&late), Changes::default(), "one second short of calm");
    }
    for _ in 1..CALM_SECONDS {
        assert_eq!(health.step(&Second::default()), Changes::default());
    }
    let ended = Changes { began: reasons(None), ended: reasons(Some(TaintReason::Late)) };
    assert_eq!(health.step(&Second::default()), ended);
    assert_eq!(health.step(&Second::default()), Changes::default());
    assert_eq!(health.step(&late), began);
    assert_eq!(health.seconds(TaintReason::Late), 5);
}

/// A minute of so many seconds, the first of which are these.
fn minute(seconds: usize, first: &[Second]) -> MinuteHealth {
    let (mut health, mut minute) = (Health::default(), MinuteHealth::default());
    for second in first.iter().copied().chain(std::iter::repeat(Second::default())).take(seconds) {
        health.step(&second);
        minute.add(&second, &health, true);
    }
    minute
}

#[test]
fn a_minute_bears_a_tenth_of_its_seconds_and_no_more() {
    let late = Second { late: 1, ..Second::default() };
    for (seconds, bearable) in [(60, 6), (30, 3), (19, 1), (9, 0), (1, 0)] {
        let borne = minute(seconds, &vec![late; bearable]);
        assert!(!borne.is_tainted(), "{bearable} of {seconds}");
        assert_eq!(borne.covered(), Duration::from_secs((seconds - bearable) as u64));
        assert!(minute(seconds, &vec![late; bearable + 1]).is_tainted(), "{bearable} + 1 of {seconds}");
    }
    assert!(!MinuteHealth::default().is_tainted());
}

#[test]
fn one_long_stall_taints_a_minute_by_itself() {
    let stall = |delay| Second { event_loop_delay: delay, ..Second::default() };
    let is_tainted = |first: &[Second]| minute(60, first).is_tainted();
    assert!(!is_tainted(&[stall(ms(600))]));
    assert!(is_tainted(&[stall(ms(601))]));
    assert!(!is_tainted(&[stall(ms(100)); 6]));
    assert!(is_tainted(&[stall(ms(101)); 6]));
    assert!(!is_tainted(&[stall(STALL); 60]), "what taints no second adds up to nothing");
}

/// The limits are there so that this holds: simulated, requests at even distances that all take 200 ms.
#[test]
fn what_a_minute_bears_leaves_its_p99_within_five_percent() {
    let ttft = ms(200);
    let late_by_harm = |stalls: &[Duration]| {
        let delays = (0..60_000_u64).filter_map(|at| {
            // Each stall begins with its second, and what would have come within it comes at its end.
            let (second, into) = (usize::try_from(at / 1000).ok()?, ms(at % 1000));
            let delay = stalls.get(second)?.saturating_sub(into);
            (ttft + delay > ttft.mul_f64(1.05)).then_some(())
        });
        delays.count()
    };
    let bearable = [ms(100); 6];
    assert!(
        !minute(60, &bearable.map(|event_loop_delay| Second { event_loop_delay, ..Second::default() })).is_tainted()
    );
    assert!(late_by_harm(&bearable) < 600);
    assert!(late_by_harm(&[ms(600)]) < 600);
    assert!(late_by_harm(&[STALL; 60]) <= 600, "the limit of a second");
    assert!(late_by_harm(&[STALL + ms(1); 60]) > 600);
}

#[test]
fn only_seconds_under_load_and_well_are_covered() {
    let (mut health, mut minute) = (Health::default(), MinuteHealth::default());
    for (local, under_load) in [(0, true), (0, false), (1, true), (1, false), (0, true)] {
        let second = Second { local, ..Second::default() };
        health.step(&second);
        minute.add(&second, &health, under_load);
    }
    assert_eq!((minute.covered(), minute.tainted_seconds()), (Duration::from_secs(2), 2));
}

#[test]
fn every_reason_has_a_name_and_a_place_of_its_own() {
    let names: std::collections::BTreeSet<_> = TaintReason::ALL.into_iter().map(TaintReason::name).collect();
    assert_eq!(names.len(), TaintReason::ALL.len());
    for (place, reason) in TaintReason::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, place);
    }
}

#[test]
fn a_second_that_lasted_for_five_counts_as_five() {
    let second = |lasted: Duration, late: u64| Second { lasted, late, ..Second::default() };
    let (mut health, mut minute) = (Health::default(), MinuteHealth::default());
    for (lasted, late) in [(ms(1000), 0), (ms(1400), 0), (ms(4990), 7), (ms(6), 0), (ms(1000), 0)] {
        let second = second(lasted, late);
        health.step(&second);
        minute.add(&second, &health, true);
    }
    assert_eq!(health.seconds(TaintReason::Late), 5);
    assert_eq!((minute.tainted_seconds(), minute.covered()), (5, Duration::from_secs(4)));
}
