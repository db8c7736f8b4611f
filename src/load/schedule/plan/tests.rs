#![expect(clippy::print_stdout, reason = "a property that fails shows its seed")]

use super::*;

const SPACINGS: [Spacing; 5] = [
    Spacing::Constant,
    Spacing::Poisson,
    Spacing::Gamma { burstiness: 0.25 },
    Spacing::Gamma { burstiness: 1.0 },
    Spacing::Gamma { burstiness: 4.0 },
];

fn plan(seed: u64, rate: f64, spacing: Spacing) -> Plan {
    Plan::new(seed, rate, spacing, Shard::WHOLE).unwrap()
}

fn shards(count: u32) -> impl Iterator<Item = Shard> {
    let count = NonZeroU32::new(count).unwrap();
    (0..count.get()).map(move |index| Shard::new(index, count).unwrap())
}

fn nanos(plan: &Plan, n: usize) -> Vec<u128> {
    plan.arrivals().take(n).map(|planned| planned.offset.as_nanos()).collect()
}

#[test]
fn the_plans_of_a_seed_are_written_down() {
    // A change here is a change of every recorded load: it needs a line in the changelog that says so.
    let golden = |spacing| nanos(&plan(1000, 3.5, spacing), 6);
    assert_eq!(golden(Spacing::Constant), [0, 285_714_285, 571_428_571, 857_142_857, 1_142_857_142, 1_428_571_428]);
    let third = Shard::new(2, NonZeroU32::new(3).unwrap()).unwrap();
    let third = Plan::new(1000, 3.5, Spacing::Poisson, third).unwrap();
    let third: Vec<u64> = third.arrivals().take(6).map(|planned| planned.position).collect();
    assert_eq!(third, [2, 4, 11, 13, 15, 18]);
    assert_eq!(golden(Spacing::Poisson), [0, 235_831_271, 244_394_411, 384_270_837, 681_208_093, 932_682_178]);
    assert_eq!(
        golden(Spacing::Gamma { burstiness: 0.25 }),
        [0, 1_682_495_068, 1_682_506_794, 2_199_991_010, 2_331_394_557, 2_450_980_420]
    );
    assert_eq!(
        golden(Spacing::Gamma { burstiness: 4.0 }),
        [0, 394_594_036, 550_936_961, 885_972_271, 1_172_890_596, 1_395_656_914]
    );
}

#[test]
fn a_plan_is_a_function_of_seed_rate_spacing_and_shard() {
    for spacing in SPACINGS {
        assert_eq!(nanos(&plan(7, 20.0, spacing), 100), nanos(&plan(7, 20.0, spacing), 100));
        assert_ne!(nanos(&plan(7, 20.0, spacing), 100), nanos(&plan(7, 21.0, spacing), 100));
        let reseeded = nanos(&plan(8, 20.0, spacing), 100);
        assert_eq!(nanos(&plan(7, 20.0, spacing), 100) == reseeded, spacing == Spacing::Constant);
    }
    assert_eq!(
        nanos(&plan(7, 20.0, Spacing::Poisson), 100),
        nanos(&plan(7, 20.0, Spacing::Gamma { burstiness: 1.0 }), 100)
    );
}

#[test]
fn gaps_have_the_mean_and_the_spread_that_were_asked_for() {
    const DRAWS: usize = 100_000;
    let draws = 1e5;
    for spacing in SPACINGS {
        for (seed, rate) in [(1, 3.5), (2, 1000.0)] {
            println!("seed {seed}, rate {rate}, {spacing:?}");
            let at: Vec<f64> = plan(seed, rate, spacing)
                .arrivals()
                .take(DRAWS + 1)
                .map(|planned| planned.offset.as_secs_f64() * rate)
                .collect();
            let gaps: Vec<f64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let mean = gaps.iter().sum::<f64>() / draws;
            let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / draws;
            let wanted: f64 = match spacing {
                Spacing::Constant => 0.0,
                Spacing::Poisson => 1.0,
                Spacing::Gamma { burstiness } => 1.0 / burstiness.sqrt(),
            };
            let cv = variance.sqrt() / mean;
            // The mean of 1e5 gaps has a standard error of 0.3 % times the spread.
            assert!((mean - 1.0).abs() < 0.01 * wanted.max(1.0), "mean {mean}");
            assert!((cv - wanted).abs() < 0.02 * wanted.max(1e-4), "spread {cv}, wanted {wanted}");
        }
    }
}

#[test]
fn the_union_of_the_shards_is_the_whole_plan() {
    for spacing in SPACINGS {
        for count in [1, 2, 3, 7] {
            println!("seed 11, {spacing:?}, {count} shards");
            let whole: Vec<Planned> = plan(11, 50.0, spacing).arrivals().take(2000).collect();
            let end = whole.last().unwrap().position;
            let of = |shard| Plan::new(11, 50.0, spacing, shard).unwrap().arrivals();
            let mut union: Vec<Planned> =
                shards(count).flat_map(|shard| of(shard).take_while(|planned| planned.position <= end)).collect();
            union.sort_by_key(|planned| planned.position);
            assert_eq!(union, whole);
            let smallest = shards(count).map(|shard| of(shard).take_while(|planned| planned.position <= end).count());
            assert!(smallest.min().unwrap() > 2000 / count as usize * 8 / 10);
        }
    }
}

#[test]
fn a_shard_of_a_poisson_load_is_a_poisson_load() {
    let shard = shards(4).nth(1).unwrap();
    let at: Vec<f64> = Plan::new(5, 4.0, Spacing::Poisson, shard)
        .unwrap()
        .arrivals()
        .take(50_001)
        .map(|planned| planned.offset.as_secs_f64())
        .collect();
    let gaps: Vec<f64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mean = gaps.iter().sum::<f64>() / 5e4;
    let cv = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / 5e4).sqrt() / mean;
    assert!((mean - 1.0).abs() < 0.015 && (cv - 1.0).abs() < 0.02, "seed 5: mean {mean}, spread {cv}");
}

#[test]
fn ten_million_arrivals_do_not_drift() {
    // 1e9 / 3 ns has no end in binary: the sum may be off by 1e7 * 2^-33 ns, and is cut to a whole nanosecond.
    let mut arrivals = plan(1, 3.0, Spacing::Constant).arrivals();
    assert_eq!(arrivals.nth(10_000_000).unwrap().offset.as_nanos(), 10_000_000 * 1_000_000_000 / 3);
    // Whatever the gaps: the sum is that of the gaps in exact arithmetic.
    let Gaps::Poisson { mut rng, mean } = plan(1, 1000.0, Spacing::Poisson).arrivals().gaps else { unreachable!() };
    let (mut exact, mut compensation) = (0.0_f64, 0.0_f64);
    for _ in 0..10_000_000 {
        // Kahan's sum, good to 1e-16 of the whole.
        let unit: f64 = Exp1.sample(&mut rng);
        let gap = unit * mean - compensation;
        let sum = exact + gap;
        compensation = (sum - exact) - gap;
        exact = sum;
    }
    let planned = plan(1, 1000.0, Spacing::Poisson).arrivals().nth(10_000_000).unwrap().offset.as_nanos();
    assert!((exact - planned as f64).abs() <= 2.0, "{exact} {planned}");
}

#[test]
fn skipping_is_taking_one_by_one() {
    for spacing in SPACINGS {
        for shard in shards(3).chain([Shard::WHOLE]) {
            let plan = Plan::new(3, 100.0, spacing, shard).unwrap();
            let (mut skipping, mut stepping) = (plan.arrivals(), plan.arrivals());
            for millis in [0, 1, 500, 500, 501, 499, 5000, 60_000] {
                let offset = Duration::from_millis(millis);
                let mut stepped = 0;
                while stepping.peek().offset < offset {
                    stepping.next();
                    stepped += 1;
                }
                assert_eq!((skipping.skip_before(offset), skipping.peek()), (stepped, stepping.peek()), "{plan:?}");
            }
        }
    }
}

#[test]
fn a_constant_plan_skips_ages_in_one_step() {
    let mut arrivals = plan(0, 1e9, Spacing::Constant).arrivals();
    let century = Duration::from_secs(100 * 365 * 86_400);
    assert_eq!(u128::from(arrivals.skip_before(century)), century.as_nanos());
    assert_eq!(arrivals.peek().offset, century);
}

#[test]
fn what_is_no_plan_is_refused() {
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1.1e9] {
        assert!(matches!(Plan::new(0, rate, Spacing::Poisson, Shard::WHOLE), Err(PlanError::Rate { .. })), "{rate}");
    }
    for burstiness in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let plan = Plan::new(0, 1.0, Spacing::Gamma { burstiness }, Shard::WHOLE);
        assert!(matches!(plan, Err(PlanError::Burstiness { .. })), "{burstiness}");
    }
    let count = NonZeroU32::new(3).unwrap();
    assert_eq!(Shard::new(3, count), Err(PlanError::Shard { index: 3, count }));
}

#[test]
fn the_slowest_rate_ends_in_no_overflow() {
    for spacing in SPACINGS {
        let offset = plan(0, f64::MIN_POSITIVE, spacing).arrivals().nth(5).unwrap().offset;
        assert!(offset >= Duration::from_secs(1), "{spacing:?}");
    }
}

#[test]
fn parts_add_up_and_the_remainder_goes_to_the_low_indices() {
    assert_eq!(shards(4).map(|shard| shard.part_of(10)).collect::<Vec<_>>(), [3, 3, 2, 2]);
    for (count, total) in [(1, 0), (3, 2), (7, 100), (8, 64)] {
        assert_eq!(shards(count).map(|shard| shard.part_of(total)).sum::<u32>(), total);
    }
}
