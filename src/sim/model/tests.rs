//! The model against formulas that are known without it, and against what was measured of the engines it resembles.

use std::collections::BTreeMap;

use rand::RngExt;
use rand_distr::Exp;

use super::*;

/// An engine that does nothing but steps of 10 ms.
const PLAIN: Params = Params {
    max_running_requests: 64,
    max_prefill_tokens: 4096,
    prefill_rate: 1e12,
    step: Duration::from_millis(10),
    step_per_request: Duration::ZERO,
    step_per_kv_token: Duration::ZERO,
    kv_tokens: 1_000_000,
    prefix_cache: true,
    request_overhead: Duration::ZERO,
    jitter: 0.0,
    swing: 0.0,
    swing_period: Duration::from_mins(10),
};

const CHAT: Workload = Workload { prompt_tokens: 256, cached_tokens: 0, output_tokens: 100 };

fn job(id: u64, prompt_tokens: u32, output_tokens: u32) -> Job {
    Job { id, prompt_tokens, blocks: Arc::new([]), output_tokens }
}

fn prefix(group: u64, blocks: u64) -> Arc<[u64]> {
    (0..blocks).map(|block| group * 1000 + block).collect()
}

/// The times of one job.
#[derive(Debug, Clone, Default)]
struct Seen {
    submitted: Duration,
    tokens: Vec<Duration>,
    cached: Option<u32>,
    spent: Option<Spent>,
}

impl Seen {
    fn ttft(&self) -> f64 {
        (self.tokens[0] - self.submitted).as_secs_f64()
    }

    fn tpot(&self) -> f64 {
        (self.tokens[self.tokens.len() - 1] - self.tokens[0]).as_secs_f64() / (self.tokens.len() - 1) as f64
    }
}

/// An engine and all that it said.
struct Bench {
    engine: Engine,
    seen: BTreeMap<u64, Seen>,
}

impl Bench {
    fn new(params: Params) -> Self {
        Self { engine: Engine::new(params, 7), seen: BTreeMap::new() }
    }

    fn submit(&mut self, at: Duration, job: Job) {
        self.seen.insert(job.id, Seen { submitted: at, ..Seen::default() });
        self.engine.submit(at, job);
    }

    /// Everything up to `to`; the jobs that finished.
    fn advance(&mut self, to: Duration) -> Vec<u64> {
        let mut events = Vec::new();
        self.engine.advance(to, &mut events);
        let mut finished = Vec::new();
        for event in events {
            match event {
                Event::Admitted { id, cached_tokens, .. } => {
                    assert_eq!(self.seen.get_mut(&id).unwrap().cached.replace(cached_tokens), None);
                }
                Event::Token { id, at, made } => {
                    let tokens = &mut self.seen.get_mut(&id).unwrap().tokens;
                    assert!(tokens.last().is_none_or(|last| *last < at));
                    tokens.push(at);
                    assert_eq!(tokens.len(), made as usize);
                }
                Event::Finished { id, spent } => {
                    assert_eq!(self.seen.get_mut(&id).unwrap().spent.replace(spent), None);
                    finished.push(id);
                }
            }
        }
        finished
    }

    /// The step or arrival that comes next.
    fn go_on(&mut self) -> Option<(Duration, Vec<u64>)> {
        let at = self.engine.next()?;
        Some((at, self.advance(at)))
    }

    fn finish(&mut self) {
        while self.go_on().is_some() {}
    }
}

/// What a closed loop got, once it had settled.
struct Steady {
    /// Requests per second.
    throughput: f64,
    ttft: f64,
    tpot: f64,
}

/// A closed loop of `workers` that start one after another, until each has had `rounds` requests answered.
fn closed_loop(params: Params, workload: Workload, workers: u32, rounds: u64) -> Steady {
    let mut bench = Bench::new(params);
    let spread = Duration::from_secs_f64(params.throughput(workload, workers).recip());
    let new = |id| job(id, workload.prompt_tokens, workload.output_tokens);
    let (mut next_id, total, settled) = (0, rounds * u64::from(workers), 2 * u64::from(workers));
    let (mut ended, mut began, mut last) = (0, Duration::ZERO, Duration::ZERO);
    let mut starts: VecDeque<_> = (0..workers).map(|worker| spread * worker).collect();
    while ended < total {
        if let Some(at) = starts.pop_front_if(|at| bench.engine.next().is_none_or(|next| *at <= next)) {
            bench.submit(at, new(next_id));
            next_id += 1;
            continue;
        }
        let (at, finished) = bench.go_on().unwrap();
        for _ in finished {
            ended += 1;
            last = at;
            if ended == settled {
                began = at;
            }
            bench.submit(at, new(next_id));
            next_id += 1;
        }
    }
    let counted: Vec<_> = bench.seen.values().filter(|seen| seen.spent.is_some() && seen.submitted >= began).collect();
    let mean = |of: &dyn Fn(&Seen) -> f64| counted.iter().map(|seen| of(seen)).sum::<f64>() / counted.len() as f64;
    Steady {
        throughput: (total - settled) as f64 / (last - began).as_secs_f64(),
        ttft: mean(&Seen::ttft),
        tpot: mean(&Seen::tpot),
    }
}

/// Mean wait of a queue with Poisson arrivals at `rho` of what one server can do.
fn mean_wait(params: Params, rho: f64, jobs: u64) -> f64 {
    let service = params.step_time(Batch { decoding: 0, kv_tokens: 0, prefill_tokens: 100 }).as_secs_f64();
    let (mut bench, mut rng) = (Bench::new(params), StdRng::seed_from_u64(11));
    let gaps = Exp::new(rho / service).unwrap();
    let mut at = 0.0;
    for id in 0..jobs {
        at += gaps.sample(&mut rng);
        bench.submit(Duration::from_secs_f64(at), job(id, 100, 1));
    }
    bench.finish();
    bench.seen.values().map(|seen| seen.spent.unwrap().queue.as_secs_f64()).sum::<f64>() / jobs as f64 / service
}

fn assert_near(what: &str, value: f64, expected: f64, share: f64) {
    assert!((value / expected - 1.0).abs() <= share, "{what}: {value} instead of {expected}");
}

#[test]
fn without_batching_it_is_the_queue_of_pollaczek_and_khinchine() {
    let one = Params { max_running_requests: 1, prefill_rate: 1000.0, ..PLAIN };
    for rho in [0.3, 0.6, 0.8] {
        let expected = rho / (2.0 * (1.0 - rho));
        assert_near("M/D/1", mean_wait(one, rho, 200_000), expected, 0.04);
        // The square of a log-normal's coefficient of variation.
        let spread = (0.5_f64 * 0.5).exp_m1();
        let noisy = Params { jitter: 0.5, ..one };
        assert_near("M/G/1", mean_wait(noisy, rho, 200_000), expected * (1.0 + spread), 0.06);
    }
}

#[test]
fn a_lone_request_takes_what_the_parameters_add_up_to() {
    let params = presets::find("7b-rtx4090").unwrap().params;
    let mut bench = Bench::new(Params { jitter: 0.0, ..params });
    bench.submit(Duration::from_secs(1), job(0, 256, 100));
    bench.finish();
    let seen = &bench.seen[&0];
    assert_near("TTFT", seen.ttft(), 0.004 + 0.017_15 + 256.0 / 9000.0, 1e-6);
    // Contexts of 257 to 355 tokens: 306 on average.
    assert_near("TPOT", seen.tpot(), 0.017_15 + 160e-6 + 306.0 * 130e-9, 1e-6);
    let spent = seen.spent.unwrap();
    assert_eq!((spent.queue, spent.decode), (Duration::ZERO, seen.tokens[99] - seen.tokens[0]));
    assert_eq!(seen.submitted + params.request_overhead + spent.prefill + spent.decode, seen.tokens[99]);
    assert_near(
        "throughput",
        params.throughput(CHAT, 1),
        1.0 / (0.004 + (seen.tokens[99] - seen.submitted).as_secs_f64() - 0.004),
        1e-6,
    );
}

#[test]
fn who_comes_during_a_step_waits_for_its_end() {
    let mut bench = Bench::new(PLAIN);
    let mut rng = StdRng::seed_from_u64(5);
    bench.submit(Duration::ZERO, job(0, 10, 1_000_000));
    let mut ids: Vec<_> = (1..20_000).map(|id| (Duration::from_secs_f64(rng.random::<f64>() * 1000.0), id)).collect();
    ids.sort();
    for (at, id) in ids {
        bench.advance(at);
        bench.submit(at, job(id, 10, 3));
    }
    bench.advance(Duration::from_secs(1001));
    let others: Vec<_> = bench.seen.values().filter(|seen| seen.spent.is_some()).collect();
    assert_eq!(others.len(), 19_999);
    let ttft = others.iter().map(|seen| seen.ttft()).sum::<f64>() / others.len() as f64;
    assert_near("half a step and a step", ttft, 0.015, 0.01);
    assert!(others.iter().all(|seen| (seen.tpot() - 0.010).abs() < 1e-6));
}

#[test]
fn a_prompt_makes_the_step_longer_for_all_who_decode_in_it() {
    let params = Params { prefill_rate: 10_000.0, max_prefill_tokens: 500, ..PLAIN };
    let mut bench = Bench::new(params);
    bench.submit(Duration::ZERO, job(0, 1, 100));
    bench.advance(Duration::from_millis(200));
    bench.submit(Duration::from_millis(200), job(1, 1200, 2));
    bench.finish();
    let gaps: Vec<_> = bench.seen[&0].tokens.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    let long: Vec<_> = gaps.iter().copied().filter(|gap| *gap > 0.0101).collect();
    // 500, 500 and 200 tokens of the prompt, each in a step of its own.
    assert_eq!(long.len(), 3, "{gaps:?}");
    for (gap, expected) in long.into_iter().zip([0.060, 0.060, 0.030]) {
        assert_near("gap", gap, expected, 1e-6);
    }
}

#[test]
fn the_throughput_is_as_computed_and_the_knee_where_computed() {
    let small = Params {
        max_running_requests: 24,
        prefill_rate: 20_000.0,
        step_per_request: Duration::from_micros(200),
        request_overhead: Duration::from_millis(3),
        ..PLAIN
    };
    let moe = presets::find("35b-a3b-2xrtx3090").unwrap().params;
    let dense = presets::find("7b-rtx4090").unwrap().params;
    let long = Workload { prompt_tokens: 2000, cached_tokens: 0, output_tokens: 50 };
    for (name, params, workload) in
        [("small", small, CHAT), ("dense", dense, CHAT), ("moe", moe, CHAT), ("long prompts", dense, long)]
    {
        let knee = params.knee(workload);
        let (mut best, mut measured) = (0.0_f64, BTreeMap::new());
        for workers in [1, 2, 4, 8, 16, knee - 3, knee - 1, knee, knee + 1, knee + 3, 64, 96, 128] {
            let steady = closed_loop(params, workload, workers, 20);
            let expected = params.throughput(workload, workers);
            assert_near(&format!("{name}, {workers} workers"), steady.throughput, expected, 0.03);
            best = best.max(steady.throughput);
            measured.insert(workers, steady.throughput);
        }
        let seen =
            measured.iter().find(|(_, throughput)| **throughput >= KNEE_SHARE * best).map(|(workers, _)| *workers);
        let seen = seen.unwrap();
        assert!(seen.abs_diff(knee) <= 3, "{name}: the knee is seen at {seen} and computed for {knee}: {measured:?}");
    }
}

const KNEE_SHARE: f64 = 0.95;

#[test]
fn more_workers_never_get_less_and_never_wait_shorter() {
    let params = Params { jitter: 0.0, ..presets::find("7b-rtx4090").unwrap().params };
    let mut last = Steady { throughput: 0.0, ttft: 0.0, tpot: 0.0 };
    for workers in [1, 2, 4, 8, 16, 24, 32, 48, 64] {
        let steady = closed_loop(params, CHAT, workers, 20);
        assert!(steady.throughput >= last.throughput * 0.995, "{workers}");
        assert!(steady.tpot >= last.tpot * 0.995, "{workers}");
        assert!(workers < 32 || steady.ttft >= last.ttft, "{workers}");
        assert!(workers > 32 || params.throughput(CHAT, workers) > params.throughput(CHAT, workers - 1));
        last = steady;
    }
}

#[test]
fn longer_prompts_and_contexts_take_longer() {
    let params = Params { jitter: 0.0, ..presets::find("35b-a3b-2xrtx3090").unwrap().params };
    let alone = |prompt_tokens| {
        let mut bench = Bench::new(params);
        bench.submit(Duration::ZERO, job(0, prompt_tokens, 50));
        bench.finish();
        (bench.seen[&0].ttft(), bench.seen[&0].tpot())
    };
    let all: Vec<_> = [1, 100, 1000, 2000, 3000, 20_000].map(alone).to_vec();
    assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1), "{all:?}");
}

/// The figures that the source of `7b-rtx4090` gives: concurrency and requests per second, of 100 output tokens each on average.
const PUBLISHED: [(u32, f64); 5] = [(4, 2.09), (8, 3.78), (16, 6.44), (32, 9.73), (48, 11.87)];

#[test]
fn the_dense_preset_answers_as_fast_as_its_model_did() {
    let params = Params { max_running_requests: 256, ..presets::find("7b-rtx4090").unwrap().params };
    for (workers, requests) in PUBLISHED {
        let steady = closed_loop(params, CHAT, workers, 20);
        assert_near(&format!("{workers} workers"), steady.throughput, requests, 0.05);
    }
}

#[test]
fn the_mixture_of_experts_streams_as_fast_as_its_model_did() {
    let params = presets::find("35b-a3b-2xrtx3090").unwrap().params;
    let workload = Workload { prompt_tokens: 1024, cached_tokens: 0, output_tokens: 2000 };
    for (workers, tokens) in [(1, 100.0), (4, 283.0)] {
        let steady = closed_loop(params, workload, workers, 6);
        assert_near(&format!("{workers} workers"), steady.throughput * 2000.0, tokens, 0.03);
    }
}

#[test]
fn a_prompt_that_was_seen_before_is_found_but_for_its_last_token() {
    let params = Params { prefill_rate: 10_000.0, ..PLAIN };
    let mut bench = Bench::new(params);
    let known = |id| Job { blocks: prefix(1, 20), ..job(id, 320, 2) };
    for (id, job) in [known(0), known(1), Job { blocks: prefix(2, 20), ..job(2, 320, 2) }].into_iter().enumerate() {
        bench.submit(Duration::from_secs(id as u64), job);
    }
    bench.finish();
    let cached: Vec<_> = bench.seen.values().map(|seen| seen.cached.unwrap()).collect();
    assert_eq!(cached, [0, 304, 0]);
    assert_near("all of it", bench.seen[&0].ttft(), 0.010 + 0.032, 1e-6);
    assert_near("the rest", bench.seen[&1].ttft(), 0.010 + 0.0016, 1e-6);
    let status = bench.engine.status();
    assert_eq!((status.prefix_queries, status.prefix_hits, status.kv_used_tokens), (960, 304, 0));
    let mut bench = Bench::new(Params { prefix_cache: false, ..params });
    bench.submit(Duration::ZERO, known(0));
    bench.submit(Duration::from_secs(1), known(1));
    bench.finish();
    assert_eq!(bench.seen[&1].cached, Some(0));
}

#[test]
fn a_full_cache_sends_the_youngest_away_and_every_token_is_made_once() {
    let params = Params { kv_tokens: 1600, prefill_rate: 10_000.0, ..PLAIN };
    let mut bench = Bench::new(params);
    for id in 0..8 {
        bench.submit(Duration::from_millis(id), job(id, 160, 400));
    }
    bench.finish();
    let status = bench.engine.status();
    assert!((1..=10).contains(&status.preemptions) && status.kv_used_tokens == 0, "{status:?}");
    assert!(bench.seen.values().all(|seen| seen.tokens.len() == 400 && seen.spent.is_some()));
    // The oldest is never sent away: its tokens come at every step but the long ones.
    assert!(bench.seen[&0].tpot() < bench.seen[&7].tpot());
    let long = Workload { prompt_tokens: 160, cached_tokens: 0, output_tokens: 400 };
    assert_near("no more than fit", params.throughput(long, 8), params.most_throughput(long), 1e-9);
}

#[test]
fn who_was_sent_away_waits_for_room_and_computes_everything_again() {
    let params = Params { kv_tokens: 320, prefill_rate: 1000.0, ..PLAIN };
    let mut bench = Bench::new(params);
    bench.submit(Duration::ZERO, job(0, 150, 130));
    bench.submit(Duration::from_millis(1), job(1, 100, 100));
    bench.finish();
    assert_eq!(bench.engine.status().preemptions, 1);
    let freed = *bench.seen[&0].tokens.last().unwrap();
    let tokens = &bench.seen[&1].tokens;
    let made = tokens.iter().filter(|at| **at <= freed).count();
    assert!((20..99).contains(&made), "{made}");
    // Nothing came between, and then the prompt and all that had been made went through a prefill, in one step.
    assert!(tokens[made - 1] + Duration::from_millis(100) < freed);
    assert_near("again", (tokens[made] - freed).as_secs_f64(), 0.010 + (100 + made) as f64 / 1000.0, 1e-6);
}

#[test]
fn who_leaves_makes_room_at_once() {
    let params = Params { max_running_requests: 1, ..PLAIN };
    let mut bench = Bench::new(Params { request_overhead: Duration::from_millis(1), ..params });
    for id in 0..4 {
        bench.submit(Duration::ZERO, job(id, 100, 1000));
    }
    bench.submit(Duration::from_secs(5), job(4, 100, 1));
    bench.advance(Duration::from_millis(55));
    for id in [4, 2, 0, 99] {
        bench.engine.cancel(id);
    }
    bench.finish();
    let made: Vec<_> = bench.seen.values().map(|seen| seen.tokens.len()).collect();
    assert_eq!(made, [5, 1000, 0, 1000, 0]);
    assert_eq!(bench.engine.status(), Status { kv_tokens: 1_000_000, prefix_queries: 300, ..Status::default() });
}

#[test]
fn the_same_seed_makes_the_same_tokens_however_often_it_is_asked() {
    let params = Params { swing: 0.3, jitter: 0.3, kv_tokens: 2000, ..presets::find("7b-rtx4090").unwrap().params };
    let run = |pieces: u64| {
        let mut bench = Bench::new(params);
        for id in 0..30 {
            let at = Duration::from_millis(id * 37);
            bench.advance(at);
            bench.submit(at, Job { blocks: prefix(id % 3, 10), ..job(id, 170, 30) });
        }
        for piece in 1..=pieces {
            bench.advance(Duration::from_secs(3600) / u32::try_from(pieces).unwrap() * u32::try_from(piece).unwrap());
        }
        bench.seen.into_values().map(|seen| seen.tokens).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(36_000));
    assert!(run(1).iter().all(|tokens| tokens.len() == 30));
}

#[test]
fn noise_spreads_and_swing_moves_but_neither_makes_it_slower_on_average() {
    let steps = |params: Params| {
        let mut bench = Bench::new(params);
        bench.submit(Duration::ZERO, job(0, 1, 60_000));
        bench.finish();
        let tokens = &bench.seen[&0].tokens;
        tokens.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect::<Vec<_>>()
    };
    let mean = |steps: &[f64]| steps.iter().sum::<f64>() / steps.len() as f64;
    let noisy = steps(Params { jitter: 0.3, ..PLAIN });
    assert_near("mean", mean(&noisy), 0.010, 0.01);
    let spread = (noisy.iter().map(|step| (step / 0.010 - 1.0).powi(2)).sum::<f64>() / noisy.len() as f64).sqrt();
    assert_near("spread", spread, (0.3_f64 * 0.3).exp_m1().sqrt(), 0.02);
    let swinging = steps(Params { swing: 0.2, ..PLAIN });
    let most = swinging.iter().copied().fold(0.0, f64::max);
    let least = swinging.iter().copied().fold(1.0, f64::min);
    assert_near("longest", most, 0.012, 0.001);
    assert_near("shortest", least, 0.008, 0.001);
}

#[test]
fn what_cannot_be_an_engine_is_refused_with_its_name() {
    assert_eq!(PLAIN.check(32_768), Ok(()));
    for preset in presets::PRESETS {
        assert_eq!(preset.params.check(preset.max_model_len), Ok(()), "{}", preset.name);
    }
    for (params, part) in [
        (Params { max_running_requests: 0, ..PLAIN }, "max_running_requests"),
        (Params { max_prefill_tokens: 0, ..PLAIN }, "max_prefill_tokens"),
        (Params { prefill_rate: 0.0, ..PLAIN }, "prefill_rate"),
        (Params { step: Duration::ZERO, ..PLAIN }, "step"),
        (Params { swing: 0.1, swing_period: Duration::ZERO, ..PLAIN }, "swing_period"),
        (Params { swing: 1.0, ..PLAIN }, "swing=1"),
        (Params { kv_tokens: 32_767, ..PLAIN }, "kv_tokens=32767 has no room for one request of max_model_len=32768"),
    ] {
        assert!(params.check(32_768).unwrap_err().to_string().contains(part), "{part}");
    }
}

#[test]
fn nothing_is_lost_whatever_comes_and_goes() {
    let mut rng = StdRng::seed_from_u64(1);
    for round in 0..200 {
        let params = Params {
            max_running_requests: rng.random_range(1..20),
            max_prefill_tokens: rng.random_range(1..600),
            kv_tokens: rng.random_range(500..3000),
            step_per_kv_token: Duration::from_nanos(rng.random_range(0..1000)),
            request_overhead: Duration::from_millis(rng.random_range(0..20)),
            jitter: 0.2,
            ..PLAIN
        };
        let (mut bench, mut left, mut at) = (Bench::new(params), Vec::new(), Duration::ZERO);
        for id in 0..60 {
            at += Duration::from_millis(rng.random_range(0..60));
            bench.advance(at);
            let (prompt_tokens, output_tokens) = (rng.random_range(1..300), rng.random_range(1..200));
            let blocks = prefix(rng.random_range(0..4), u64::from(prompt_tokens / BLOCK_TOKENS));
            bench.submit(at, Job { blocks, ..job(id, prompt_tokens, output_tokens) });
            if rng.random_bool(0.1) {
                let id = rng.random_range(0..=id);
                bench.engine.cancel(id);
                left.push(id);
            }
            let status = bench.engine.status();
            assert!(status.running <= params.max_running_requests, "{round}");
            assert!(status.kv_used_tokens <= status.kv_tokens, "{round}: {status:?}");
        }
        bench.finish();
        for (id, seen) in &bench.seen {
            assert!(seen.spent.is_some() || left.contains(id), "{round}: {id}");
        }
        let status = bench.engine.status();
        assert_eq!((status.running, status.waiting, status.kv_used_tokens), (0, 0, 0), "{round}");
    }
}
