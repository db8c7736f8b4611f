//! The form of a record: there and back, its size, and bytes that are none.

use rand::rngs::ChaCha8Rng;
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution, LogNormal};

use super::*;

#[expect(clippy::print_stdout, reason = "a failing test shows its seed")]
fn rng(seed: u64) -> ChaCha8Rng {
    println!("seed {seed}");
    ChaCha8Rng::seed_from_u64(seed)
}

fn tally(rng: &mut ChaCha8Rng, n: usize) -> Tally {
    let latency = LogNormal::new(-1.0, 0.5).unwrap();
    let mut tally = Tally::default();
    for metric in Metric::ALL {
        for _ in 0..n {
            tally.record(metric, Duration::from_secs_f64(latency.sample(rng)), 1);
        }
        tally.censor(metric, rng.random_range(0..4));
    }
    tally
}

#[test]
fn a_sub_window_holds_what_the_tally_counted() {
    let tally = tally(&mut rng(41), 500);
    let sub = SubWindow::new(1_800_000_000, Duration::from_millis(59_500), true, &tally);
    assert_eq!(
        (sub.start_unix(), sub.covered(), sub.is_tainted()),
        (1_800_000_000, Duration::from_millis(59_500), true)
    );
    for metric in Metric::ALL {
        let sparse = sub.metric(metric);
        let pairs: Vec<_> = sparse.pairs().map(|(bucket, n)| (bucket, u64::from(n))).collect();
        assert!(pairs.iter().copied().eq(tally.counts(metric).iter().rev()), "{metric:?}");
        assert_eq!((sparse.samples(), sparse.censored_high()), (500, tally.censored_high(metric)));
        for (bucket, _) in pairs.iter().step_by(17) {
            let above = tally.counts(metric).iter().filter(|(at, _)| at > bucket).map(|(_, n)| n).sum::<u64>();
            assert_eq!(sparse.above(*bucket), above + tally.censored_high(metric));
        }
    }
}

#[test]
fn what_is_written_is_read_back() {
    let mut rng = rng(42);
    for n in [0, 1, 10, 600] {
        let sub = SubWindow::new(rng.next_u64(), Duration::from_secs(60), n == 1, &tally(&mut rng, n));
        assert_eq!(SubWindow::decode(&sub.encode()), Ok(sub));
    }
    let uncovered = SubWindow::uncovered(7);
    assert_eq!(SubWindow::decode(&uncovered.encode()), Ok(uncovered));
}

#[test]
fn a_minute_is_as_small_as_the_header_says() {
    let sub = SubWindow::new(0, Duration::ZERO, false, &tally(&mut rng(43), 600));
    let (pairs, bytes) = (sub.metric(Metric::Ttft).pairs().count(), sub.metric(Metric::Ttft).pairs.len());
    assert!((520..560).contains(&pairs) && bytes < 1150, "{pairs} pairs, {bytes} bytes");
    assert!(size_of::<SubWindow>() <= 304, "{}", size_of::<SubWindow>());
    let mut full = Tally::default();
    for metric in Metric::ALL {
        for bucket in (0..BUCKETS as u64).filter_map(Bucket::from_number) {
            full.record(metric, bucket.lower(), u64::MAX / (2 * BUCKETS as u64));
        }
    }
    let full = SubWindow::new(u64::MAX, Duration::MAX, true, &full);
    assert!(full.encode().len() <= MAX_ENCODED && SubWindow::decode(&full.encode()) == Ok(full));
}

#[test]
fn a_torn_record_is_refused_at_every_length() {
    let bytes = SubWindow::new(1, Duration::from_secs(60), false, &tally(&mut rng(44), 50)).encode();
    for length in 0..bytes.len() {
        assert_eq!(SubWindow::decode(&bytes[..length]), Err(DecodeError::Torn), "{length}");
    }
    let more = [&bytes[..], &[0]].concat();
    assert_eq!(SubWindow::decode(&more), Err(DecodeError::LeftOver(1)));
}

#[test]
fn hostile_bytes_are_refused_or_are_a_sub_window() {
    let mut rng = rng(45);
    let good = SubWindow::new(1, Duration::from_secs(60), false, &tally(&mut rng, 50)).encode();
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = rng.random();
        }
        if let Ok(sub) = SubWindow::decode(&bytes) {
            accepted += 1;
            for metric in Metric::ALL {
                let sparse = sub.metric(metric);
                assert_eq!(sparse.pairs().map(|(_, n)| u64::from(n)).sum::<u64>(), sparse.samples());
            }
            assert!(sub.heap_bytes() <= bytes.len());
        }
    }
    assert!(accepted > 100, "{accepted}");
    for _ in 0..20_000 {
        let mut bytes = vec![0; rng.random_range(0..200)];
        rng.fill_bytes(&mut bytes);
        if let Some(first) = bytes.first_mut() {
            *first = VERSION;
        }
        let heap_bytes = SubWindow::decode(&bytes).map_or(0, |sub| sub.heap_bytes());
        assert!(heap_bytes <= bytes.len());
    }
}

#[test]
fn numbers_that_cannot_be_are_named() {
    let record = |section: &[u8]| SubWindow::decode(&[&[VERSION, 0, 0, 0], section].concat());
    assert_eq!(SubWindow::decode(&[2, 0, 0, 0]), Err(DecodeError::Version(2)));
    assert_eq!(SubWindow::decode(&vec![VERSION; MAX_ENCODED + 1]), Err(DecodeError::TooLong(MAX_ENCODED + 1)));
    assert_eq!(SubWindow::decode(&[VERSION, 0, 0, 2]), Err(DecodeError::OutOfRange("a flag")));
    assert_eq!(record(&[0, 1, 0, 1]), Err(DecodeError::OutOfRange("a bucket")));
    assert_eq!(record(&[0, 1, 1, 0]), Err(DecodeError::OutOfRange("a count")));
    assert_eq!(record(&[0xff; 12]), Err(DecodeError::OutOfRange("a number")));
    assert_eq!(record(&[0xff, 0xff, 0xff, 0xff, 0x7f]), Err(DecodeError::OutOfRange("a censored count")));
    // As many pairs as a u64 can say, and no bytes for them.
    assert_eq!(record(&[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]), Err(DecodeError::Torn));
}
