//! What has no place in a folder of small files: sizes, depths, absent files and the order of layers.

use super::*;
use crate::config::sections::{ArrivalProcess, LogLevel, Pace, Rate};
use crate::domain::slo::Slo;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const MINIMAL: &str = "[targets.a]\nbase_url = 'http://127.0.0.1:1'\nmodel = 'm'\n[workloads.w]\n[loads.l]\n\
                       target = 'a'\nworkload = 'w'\nrate = 2\n";

fn scratch(name: &str, bytes: &[u8]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("steadyload-config-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn load_file(path: &Path) -> Result<Loaded, Faults> {
    load(&LoadRequest { files: vec![path.to_owned()], overrides: Vec::new() }, &Environment::default())
}

fn load_layers(text: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Loaded, Faults> {
    // A file of its own for each call: tests run at once.
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let name = format!("layers-{}.toml", CALLS.fetch_add(1, Ordering::Relaxed));
    let overrides = flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let request = LoadRequest { files: vec![scratch(&name, text.as_bytes())], overrides };
    load(&request, &env.iter().copied().collect())
}

fn first_fault(result: Result<Loaded, Faults>) -> String {
    result.unwrap_err().findings()[0].to_string()
}

#[test]
fn files_that_cannot_be_used_say_why_and_are_named() {
    let long = scratch("long.toml", &vec![b'#'; 1024 * 1024 + 1]);
    let folder = long.parent().unwrap().join("folder.toml");
    fs::create_dir_all(&folder).unwrap();
    for (path, says) in [
        (long.as_path(), "longer than 1 MiB"),
        (folder.as_path(), "is a directory"),
        (Path::new("no/such.toml"), "there is no such file"),
        (Path::new("no-extension"), "there is no such file"),
        (Path::new("LICENSE"), "tells no format"),
    ] {
        let fault = first_fault(load_file(path));
        assert!(fault.starts_with(&path.display().to_string()) && fault.contains(says), "{fault}");
    }
}

#[test]
fn a_missing_relative_file_says_from_where_it_was_looked_for() {
    let fault = first_fault(load_file(Path::new("no/such.toml")));
    assert!(fault.contains("looked for in /"), "{fault}");
}

#[test]
fn a_file_that_nests_without_end_is_refused_before_the_stack_is() {
    let many = 100_000;
    for (extension, text) in [
        ("toml", format!("a = {}", "[".repeat(many))),
        ("toml", format!("a = {}", "{a=".repeat(many))),
        ("toml", "[".repeat(many)),
        ("toml", format!("{}a = 1", "a.".repeat(many))),
        ("toml", format!("[{}a]", "a.".repeat(many))),
        ("json", "[".repeat(many)),
        ("json", "{\"a\":".repeat(many)),
        ("yaml", "[".repeat(many)),
        ("yaml", "{a: ".repeat(many)),
        ("yaml", "- ".repeat(many)),
        ("yaml", "? ".repeat(many)),
        ("yaml", format!("a: {}", "*b".repeat(many))),
    ] {
        let path = scratch(&format!("deep-{}.{extension}", text.len()), text.as_bytes());
        let fault = first_fault(load_file(&path));
        let start: String = text.chars().take(10).collect();
        assert!(fault.contains(": syntax: "), "{start}: {fault}");
    }
}

#[test]
fn dotted_keys_in_nested_tables_stay_off_the_stack() {
    // As deep as the parser itself allows: 32 brackets of 79 keys each, which fit no setting but must not crash.
    let level = format!("{{ {}a = ", "a.".repeat(78));
    let text = format!("x = {}1{}", level.repeat(31), " }".repeat(31));
    let fault = first_fault(load_file(&scratch("dotted.toml", text.as_bytes())));
    assert!(fault.contains("nested more than 32"), "{fault}");
}

#[test]
fn aliases_do_not_unfold() {
    let mut text = "a0: &a0 [x, x]\n".to_owned();
    for level in 1..1000 {
        text.push_str(&format!("a{level}: &a{level} [*a{0}, *a{0}]\n", level - 1));
    }
    let faults = load_file(&scratch("bomb.yaml", text.as_bytes())).unwrap_err();
    assert!(faults.to_string().contains("is an alias"), "{faults}");
}

#[test]
fn a_variable_beats_the_file_and_a_flag_beats_both() {
    let rate = |loaded: &Loaded| loaded.config.loads["l"].pace;
    let variable = [("STEADYLOAD__LOADS__L__RATE", "9")];
    let loaded = load_layers(MINIMAL, &variable, &[]).unwrap();
    assert_eq!(rate(&loaded), Pace::Rate(Rate::of(9.0)));
    assert!(loaded.effective.to_string().contains("# environment STEADYLOAD__LOADS__L__RATE\n"));
    let loaded = load_layers(MINIMAL, &variable, &[("loads.l.rate", "2.5")]).unwrap();
    assert_eq!(rate(&loaded), Pace::Rate(Rate::of(2.5)));
    assert!(loaded.effective.to_string().contains("# flag --set\n"));
    let loaded = load_layers(MINIMAL, &[], &[]).unwrap();
    assert_eq!(rate(&loaded), Pace::Rate(Rate::of(2.0)));
    assert!(loaded.effective.to_string().contains(".toml:8\n"));
}

#[test]
fn text_from_outside_is_read_as_the_wanted_type_and_no_other() {
    let env = [
        ("STEADYLOAD__TARGETS__A__MODEL", "7"),
        ("STEADYLOAD__TARGETS__A__SEND__IGNORE_EOS", "false"),
        ("STEADYLOAD__TARGETS__A__SEND__TEMPERATURE", "false"),
        ("STEADYLOAD__TARGETS__A__TIMEOUTS__IDLE", "5s"),
        ("STEADYLOAD__TARGETS__A__BODY", r#"{"topK":5}"#),
        ("STEADYLOAD__WORKLOADS__W__SEED", "18446744073709551615"),
    ];
    let loaded = load_layers(MINIMAL, &env, &[("targets.a.headers.X-Team", "true")]).unwrap();
    let target = &loaded.config.targets["a"];
    assert_eq!(target.model, "7");
    assert!(!target.send.ignore_eos);
    assert_eq!(target.send.temperature, None);
    assert_eq!(target.timeouts.idle.as_secs(), 5);
    assert_eq!(target.body["topK"], 5);
    assert_eq!(target.headers["X-Team"], sections::HeaderSource::Text("true".to_owned()));
    assert_eq!(loaded.config.workloads["w"].seed, u64::MAX);
}

#[test]
fn a_configuration_can_come_from_variables_alone() {
    let env = [
        ("STEADYLOAD__TARGETS__A__BASE_URL", "http://127.0.0.1:1"),
        ("STEADYLOAD__TARGETS__A__MODEL", "m"),
        ("STEADYLOAD__WORKLOADS__W__SEED", "1"),
        ("STEADYLOAD__LOADS__L__TARGET", "a"),
        ("STEADYLOAD__LOADS__L__WORKLOAD", "w"),
        ("STEADYLOAD__LOADS__L__CONCURRENCY", "8"),
    ];
    let loaded = load(&LoadRequest::default(), &env.into_iter().collect()).unwrap();
    assert!(matches!(loaded.config.loads["l"].pace, Pace::Concurrency(workers) if workers.get() == 8));
}

#[test]
fn what_a_broken_file_may_hold_is_not_called_missing() {
    let broken = scratch("broken.toml", b"[targets.a\n");
    let good = scratch("refers.toml", b"[loads.l]\ntarget = 'a'\nworkload = 'w'\nrate = '2'\n");
    let request = LoadRequest { files: vec![broken, good], overrides: Vec::new() };
    let faults = load(&request, &Environment::default()).unwrap_err();
    let whats: Vec<_> = faults.findings().iter().map(|finding| finding.what.as_str()).collect();
    assert!(whats.len() == 2 && whats[0].starts_with("syntax") && whats[1].contains("wants a number"), "{faults}");
}

#[test]
fn what_is_allowed_but_odd_is_a_warning() {
    let text =
        MINIMAL.replace("http://127.0.0.1:1", "https://gateway.example/v1").replace("rate = 2", "concurrency = 8");
    let text = format!("{text}[budget]\noutput_tokens_per_day = 1\n");
    let loaded = load_layers(&text, &[], &[]).unwrap();
    let warnings: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
    for says in ["the gateway may answer 401", "does not bound loads.l"] {
        assert!(warnings.iter().any(|warning| warning.contains(says)), "{says}: {warnings:#?}");
    }
    assert_eq!(warnings.len(), 2, "{warnings:#?}");
}

#[test]
fn a_plan_that_just_fits_is_accepted_although_its_rate_has_no_exact_binary_form() {
    let text = MINIMAL.replace("rate = 2", "rate = 3.3");
    // 3.3 * 86_400 * 100
    assert!(load_layers(&format!("{text}[budget]\noutput_tokens_per_day = 28_512_000\n"), &[], &[]).is_ok());
    assert!(load_layers(&format!("{text}[budget]\noutput_tokens_per_day = 28_511_999\n"), &[], &[]).is_err());
}

#[test]
fn debug_of_a_request_shows_no_value_of_a_flag() {
    let overrides = vec![("targets.a.api_key".to_owned(), "sk-hidden".to_owned())];
    let shown = format!("{:?}", LoadRequest { files: Vec::new(), overrides });
    assert!(shown.contains("targets.a.api_key") && !shown.contains("hidden"), "{shown}");
}

#[test]
fn what_a_daemon_needs_can_come_from_variables_and_flags() {
    let env = [
        ("STEADYLOAD__SERVER__LISTEN", "0.0.0.0:0"),
        ("STEADYLOAD__SERVER__ADMIN_TOKEN_ENV", "ADMIN"),
        ("ADMIN", "hidden\n"),
        ("STEADYLOAD__LOG__LEVEL", "trace"),
        ("STEADYLOAD__SHARD__INDEX", "1"),
        ("STEADYLOAD__SHARD__COUNT", "4"),
        ("STEADYLOAD__LOADS__L__BURSTINESS", "0.25"),
        ("STEADYLOAD__LOADS__L__SLO__TTFT", "500ms"),
        ("STEADYLOAD__LOADS__L__GRACE", "0s"),
    ];
    let flags = [("loads.l.arrival", "gamma"), ("state.dir", "no/such/folder"), ("loads.l.warmup_requests", "7")];
    let loaded = load_layers(MINIMAL, &env, &flags).unwrap();
    let Config { server, state, log, shard, loads, .. } = &loaded.config;
    assert_eq!(server.listen.to_string(), "0.0.0.0:0");
    assert_eq!(state.dir.as_deref(), Some(Path::new("no/such/folder")), "a flag's path is the shell's");
    assert_eq!(log.level, LogLevel::Trace);
    assert_eq!((shard.index, shard.count.get()), (1, 4));
    let load = &loads["l"];
    let expected = Rate { arrival: ArrivalProcess::Gamma { burstiness: 0.25 }, ..Rate::of(2.0) };
    assert_eq!(load.pace, Pace::Rate(expected));
    assert_eq!((load.warmup_requests, load.grace), (7, Duration::ZERO));
    assert_eq!(load.slo, Slo { ttft: Some(Duration::from_millis(500)), tpot: None, e2el: None });
    let token = server.admin_token.as_ref().unwrap().read(&env.into_iter().collect()).unwrap();
    assert_eq!(token.expose(), "hidden");
    let shown = loaded.effective.to_string();
    assert!(shown.contains("server.admin_token_env = \"ADMIN\"") && !shown.contains("hidden"), "{shown}");
}

#[test]
fn the_folder_of_the_state_is_seen_from_the_file() {
    let path = scratch("state.toml", format!("{MINIMAL}[state]\ndir = 'kept'\n").as_bytes());
    let dir = load_file(&path).unwrap().config.state.dir.unwrap();
    assert_eq!(dir, path.parent().unwrap().join("kept"));
}

#[test]
fn every_default_of_a_daemon_is_shown() {
    let shown = load_layers(MINIMAL, &[], &[]).unwrap().effective.to_string();
    for setting in [
        "loads.l.arrival = \"poisson\"",
        "loads.l.max_in_flight = 64",
        "loads.l.late_cap = \"100ms\"",
        "loads.l.warmup_requests = 0",
        "loads.l.grace = \"30s\"",
        "server.listen = \"127.0.0.1:9877\"",
        "server.buckets = \"fine\"",
        "log.level = \"info\"",
        "log.format = \"text\"",
        "shard.index = 0",
        "shard.count = 1",
    ] {
        let line = shown.lines().find(|line| line.starts_with(setting));
        assert!(line.is_some_and(|line| line.ends_with("# default")), "{setting} is not in\n{shown}");
    }
}

#[test]
fn the_cap_unless_told_follows_the_rate_up_to_the_ports_there_are() {
    for (per_second, cap) in [(0.1, 64), (6.4, 64), (6.41, 65), (200.0, 2000), (100_000.0, 65_536)] {
        assert_eq!(Rate::default_max_in_flight(per_second).get(), cap, "{per_second}");
    }
}

#[test]
fn shards_without_a_worker_are_a_warning() {
    let text = MINIMAL.replace("rate = 2", "concurrency = 3");
    let warnings = |count| {
        let loaded = load_layers(&text, &[], &[("shard.index", "0"), ("shard.count", count)]).unwrap();
        loaded.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(warnings("3"), Vec::<String>::new());
    let odd = warnings("4");
    assert!(odd.len() == 1 && odd[0].contains("shards from index 3 on have none of the 3"), "{odd:#?}");
}

#[test]
fn only_what_is_taken_at_the_start_needs_a_restart() {
    let config = |flags: &[(&str, &str)]| load_layers(MINIMAL, &[("ADMIN", "x")], flags).unwrap().config;
    let old = config(&[]);
    type Flags = &'static [(&'static str, &'static str)];
    let cases: [(Flags, &[&str]); 7] = [
        (&[("server.listen", "127.0.0.1:1")], &["server.listen"]),
        (&[("server.buckets", "coarse")], &["server.buckets"]),
        (&[("state.dir", "kept")], &["state.dir"]),
        (&[("log.format", "json")], &["log.format"]),
        (&[("shard.index", "0"), ("shard.count", "2")], &["shard"]),
        (&[("log.format", "json"), ("server.listen", "127.0.0.1:1")], &["server.listen", "log.format"]),
        (&[("log.level", "debug"), ("server.admin_token_env", "ADMIN"), ("loads.l.rate", "9")], &[]),
    ];
    for (flags, keys) in cases {
        assert_eq!(restart_keys(&old, &config(flags)), keys, "{flags:?}");
        assert_eq!(restart_keys(&config(flags), &old), keys, "back from {flags:?}");
    }
}
