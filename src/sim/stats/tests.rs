use super::*;
use crate::clock;

const ORDER: Order = Order {
    prompt_tokens: 10,
    cached_tokens: 4,
    hidden_tokens: 2,
    tokens: 3,
    reason: FinishReason::Length,
    is_stream: true,
};

fn stats(kind: ServerKind) -> (Arc<Stats>, Instant) {
    let start = clock::now();
    (Arc::new(Stats::new(kind, 1000, start, Duration::ZERO)), start)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Three tokens at 200, 220 and 260 ms, 1 ms late each.
fn answer(stats: &Arc<Stats>, start: Instant, end: End) {
    let mut meter = stats.meter(Some(ORDER), start);
    for at in [200, 220, 260] {
        meter.write(start + ms(at + 1), Some(start + ms(at)), 1);
    }
    meter.close(Some(start + ms(261)), end);
}

fn reasons(stats: &Stats) -> [u64; 4] {
    [FinishReason::Stop, FinishReason::Length, FinishReason::Abort, FinishReason::Error].map(|why| stats.finished(why))
}

#[test]
fn an_answer_is_counted_with_all_its_times() {
    let (stats, start) = stats(ServerKind::Vllm);
    answer(&stats, start, End::Whole);
    assert_eq!((reasons(&stats), stats.open(), stats.refused()), ([0, 1, 0, 0], 0, 0));
    assert_eq!((stats.prompt_tokens(), stats.cached_tokens()), (10, 4));
    assert_eq!((stats.written_tokens(), stats.generation_tokens()), (3, 5), "two were hidden");
    assert_eq!((stats.event_lag.read().count(), stats.event_lag.read().sum), (3, 0.003));
    assert_eq!((stats.ttft.streams.read().sum, stats.itl.read().count()), (0.201, 2));
    assert_eq!((stats.tpot.streams.read().sum, stats.e2e.streams.read().sum), (0.03, 0.261));
    let times = [&stats.times.queue, &stats.times.prefill, &stats.times.decode, &stats.times.inference];
    assert_eq!(format!("{:?}", times.map(|time| time.read().sum)), "[0.0, 0.201, 0.06, 0.261]");
    assert_eq!((stats.prompt_lengths.read().sum, stats.generation_lengths.read().sum), (10.0, 5.0));
    assert_eq!(stats.ttft.wholes.read().count(), 0);
}

#[test]
fn what_did_not_end_well_enters_no_time_of_whole_answers() {
    let (stats, start) = stats(ServerKind::Vllm);
    answer(&stats, start, End::Cut);
    answer(&stats, start, End::Left);
    stats.meter(Some(ORDER), start).close(Some(start), End::Whole);
    stats.meter(None, start).close(Some(start), End::Whole);
    assert_eq!((reasons(&stats), stats.refused()), ([0, 0, 1, 2], 1), "no token is an error, a refusal is neither");
    assert_eq!((stats.e2e.streams.read().count(), stats.ttft.streams.read().count()), (0, 2));
}

#[test]
fn a_request_is_open_until_it_is_over() {
    let (stats, start) = stats(ServerKind::Vllm);
    let (one, two) = (stats.meter(Some(ORDER), start), stats.meter(None, start));
    assert_eq!((stats.open(), EngineStats::drawn(&stats).running), (2, 2));
    one.close(None, End::Left);
    two.close(None, End::Left);
    assert_eq!(stats.open(), 0);
}

#[test]
fn sglang_counts_a_gap_once_for_each_token() {
    for (kind, count) in [(ServerKind::Vllm, 1), (ServerKind::Sglang, 4)] {
        let (stats, start) = stats(kind);
        let mut meter = stats.meter(Some(ORDER), start);
        meter.write(start, None, 1);
        meter.write(start + ms(80), None, 4);
        assert_eq!((stats.itl.read().count(), stats.itl.read().sum), (count, 0.08));
    }
}

#[test]
fn one_token_has_no_time_per_token_but_vllm_counts_it() {
    for (kind, count) in [(ServerKind::Vllm, 1), (ServerKind::Sglang, 0)] {
        let (stats, start) = stats(kind);
        let mut meter = stats.meter(Some(Order { tokens: 1, ..ORDER }), start);
        meter.write(start, None, 1);
        meter.close(Some(start), End::Whole);
        assert_eq!(stats.tpot.streams.read().count(), count);
    }
}

#[test]
fn the_rate_is_of_the_last_whole_second() {
    let (stats, start) = stats(ServerKind::Sglang);
    let mut meter = stats.meter(Some(ORDER), start);
    for at in [100, 1100, 1900, 2100] {
        meter.write(start + ms(at), None, 5);
    }
    let rates = [0, 1, 2, 3, 4, 6].map(|second| stats.tokens_per_second(start + Duration::from_secs(second)));
    assert_eq!(rates, [0, 7, 10, 5, 0, 0], "the two hidden tokens are in the first second");
}

#[test]
fn lengths_have_bounds_up_to_the_context() {
    assert_eq!(one_two_five(1000), [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]);
    assert_eq!(one_two_five(0), [0; 0]);
}
