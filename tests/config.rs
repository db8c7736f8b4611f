//! What people write, what they are told.
//!
//! `config/bad` holds one configuration a rule, with the report that it must get; adding files adds a test:
//!
//! - `NAME.toml`, `.yaml` or `.json`, and `NAME.then.…` for a second file;
//! - `NAME.env` and `NAME.flags`: lines of `KEY=value`;
//! - `NAME.expected`: the report, with paths seen from `config/bad`.
//!
//! `config/held` holds what they refer to.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::string_slice,
    reason = "a test that cannot read its files has failed, and the files are ASCII where they are sliced"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, panic};

use steadyload::config::sections::Load;
use steadyload::config::{self, Environment, LoadRequest, Loaded};
use steadyload::domain::slo::Slo;

const BAD: &str = "tests/config/bad";
const GOOD: &str = "tests/config/good";
const EXAMPLE: &str = "examples/steadyload.toml";

/// Looks like a key, and can be found again however it was changed in case.
const PLANTED: &str = "sk-PLANTED0123456789";

/// One configuration with its surroundings.
#[derive(Default, Clone)]
struct Case {
    files: Vec<PathBuf>,
    env: Vec<(String, String)>,
    flags: Vec<(String, String)>,
    expected: Option<String>,
}

impl Case {
    fn load(&self) -> Result<Loaded, config::Faults> {
        let request = LoadRequest { files: self.files.clone(), overrides: self.flags.clone() };
        let environment: Environment = self.env.iter().cloned().collect();
        config::load(&request, &environment)
    }

    /// Everything that people could see of it.
    fn shown(&self) -> String {
        match self.load() {
            Ok(Loaded { config, effective, warnings }) => {
                let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
                format!("{effective}{}{config:?}", warnings.join("\n"))
            }
            Err(faults) => format!("{faults}\n{faults:?}"),
        }
    }
}

fn pairs(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once('=').expect("KEY=value")).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

fn cases(folder: &str) -> BTreeMap<String, Case> {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    // `NAME.then.toml` sorts before `NAME.toml`, but is the second file.
    paths.sort_by_key(|path| (path.to_string_lossy().contains(".then."), path.clone()));
    let mut cases: BTreeMap<String, Case> = BTreeMap::new();
    for path in paths {
        let name = path.file_name().unwrap().to_str().unwrap();
        let (stem, extension) = (name.split('.').next().unwrap(), name.rsplit('.').next().unwrap());
        let case = cases.entry(stem.to_owned()).or_default();
        match extension {
            "expected" => case.expected = Some(fs::read_to_string(&path).unwrap()),
            "env" => case.env = pairs(&fs::read_to_string(&path).unwrap()),
            "flags" => case.flags = pairs(&fs::read_to_string(&path).unwrap()),
            _ => case.files.push(path),
        }
    }
    cases
}

#[test]
fn every_bad_configuration_gets_its_report() {
    let mut wrong = Vec::new();
    for (name, case) in cases(BAD) {
        let report = match case.load() {
            Ok(_) => "it was accepted".to_owned(),
            Err(faults) => faults.to_string().replace(&format!("{BAD}/"), ""),
        };
        match &case.expected {
            None => wrong.push(format!("{name}: has no {name}.expected; the report is\n{report}")),
            Some(expected) if expected.trim_end() != report => {
                wrong.push(format!("{name}: the report is\n{report}\n-- but expected is\n{expected}"));
            }
            Some(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_report_keeps_its_form() {
    for (name, case) in cases(BAD) {
        let Some(report) = case.expected else { continue };
        let lines: Vec<_> = report.lines().collect();
        let (count, lines) = lines.split_last().unwrap();
        let faults = lines.iter().filter(|line| !line.starts_with("    ")).count();
        assert_eq!(*count, if faults == 1 { "1 fault".to_owned() } else { format!("{faults} faults") }, "{name}");
        for line in lines {
            assert!(!line.ends_with('.'), "{name}: full stop: {line}");
        }
    }
}

#[test]
fn twins_in_every_format_are_the_same_configuration() {
    let mut twins: BTreeMap<String, Vec<(PathBuf, String)>> = BTreeMap::new();
    for (name, case) in cases(GOOD) {
        for file in &case.files {
            let one = Case { files: vec![file.clone()], ..case.clone() };
            let loaded = one.load().unwrap_or_else(|faults| panic!("{}:\n{faults}", file.display()));
            twins.entry(name.clone()).or_default().push((file.clone(), format!("{:#?}", loaded.config)));
        }
    }
    assert!(twins.values().any(|files| files.len() == 3), "no twins");
    for files in twins.values() {
        for (file, config) in files {
            assert_eq!(config, &files[0].1, "{} and {}", file.display(), files[0].0.display());
        }
    }
}

fn example() -> Case {
    Case { files: vec![EXAMPLE.into()], ..Case::default() }
}

#[test]
fn the_example_passes_without_a_warning_and_is_complete() {
    let loaded = example().load().unwrap_or_else(|faults| panic!("{faults}"));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    // Every setting that has a default is written out, so that the file shows what there is.
    let left: Vec<_> =
        loaded.effective.to_string().lines().filter(|line| line.ends_with("# default")).map(str::to_owned).collect();
    assert!(left.len() == 1 && left[0].contains("endpoint"), "{left:#?}");
}

#[test]
fn the_example_documents_the_defaults() {
    let bare = scratch(
        "bare.toml",
        b"targets.staging = { base_url = 'http://127.0.0.1:9878', model = 'sim-7b' }\nworkloads.chat = {}\n\
          loads.canary = { target = 'staging', workload = 'chat', rate = 2 }\n",
    );
    let bare = Case { files: vec![bare], ..Case::default() }.load().unwrap().config;
    let full = example().load().unwrap().config;
    let (bare_target, full_target) = (&bare.targets["staging"], &full.targets["staging"]);
    assert_eq!(bare_target.timeouts, full_target.timeouts);
    assert_eq!(bare_target.send, full_target.send);
    assert_eq!(bare_target.api, full_target.api);
    assert_eq!(bare.workloads, full.workloads);
    // The example has objectives, so that it shows what they look like.
    let without_slo = |load: &Load| Load { slo: Slo::default(), ..load.clone() };
    assert_eq!(bare.loads["canary"].slo, Slo::default());
    assert_eq!(bare.loads["canary"], without_slo(&full.loads["canary"]));
    assert_eq!((bare.server, bare.state), (full.server, full.state));
    assert_eq!((bare.log, bare.shard), (full.log, full.shard));
}

fn scratch(name: &str, bytes: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// Each byte removed, and replaced by those that mean something to the parser.
fn assert_survives_mutation(name: &str, bytes: &[u8], replacements: &[&[u8]]) {
    for at in 0..bytes.len() {
        for with in replacements {
            let mutated = [&bytes[..at], with, &bytes[at + 1..]].concat();
            let case = Case { files: vec![scratch(name, &mutated)], ..Case::default() };
            let told = || format!("byte {at} of {name} replaced by {with:?}");
            let result = panic::catch_unwind(|| case.load()).unwrap_or_else(|_| panic!("{}", told()));
            let report = result.map_or_else(|faults| faults.to_string(), |loaded| loaded.effective.to_string());
            assert!(!report.contains("refused without a reason"), "{}", told());
        }
    }
}

#[test]
fn no_mutation_of_the_example_panics_or_is_refused_without_a_reason() {
    let full = fs::read_to_string(EXAMPLE).unwrap();
    // Comments make up most of the example, and mutating them tests nothing more.
    let lines = full.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let bare: Vec<_> = lines.map(|line| line.split(" # ").next().unwrap().trim_end()).collect();
    let bare = bare.join("\n");
    assert_survives_mutation("mutation.toml", bare.as_bytes(), &[b"", b"\"", b"[", b"{", b"=", b"\n", b"\xff"]);
}

#[test]
fn no_mutation_of_yaml_panics_or_is_refused_without_a_reason() {
    let bytes = fs::read(format!("{GOOD}/small.yaml")).unwrap();
    assert_survives_mutation("mutation.yaml", &bytes, &[b"", b"\"", b"[", b"\n", b"*", b"\xff"]);
}

#[test]
fn no_mutation_of_json_panics_or_is_refused_without_a_reason() {
    let bytes = fs::read(format!("{GOOD}/small.json")).unwrap();
    assert_survives_mutation("mutation.json", &bytes, &[b"", b"\"", b"[", b"0", b"\xff"]);
}

/// The text with each quoted part, and what stands behind each `=` or `:`, in turn replaced by a key.
fn plantings(text: &str) -> Vec<String> {
    let mut planted = Vec::new();
    let quotes: Vec<_> = text.char_indices().filter(|(_, c)| *c == '"').map(|(at, _)| at).collect();
    for pair in quotes.windows(2) {
        planted.push(format!("{}\"{PLANTED}\"{}", &text[..pair[0]], &text[pair[1] + 1..]));
        planted.push(format!("{}\"user {PLANTED}@x\"{}", &text[..pair[0]], &text[pair[1] + 1..]));
    }
    for (at, _) in text.char_indices().filter(|(_, c)| matches!(c, '=' | ':')) {
        let end = text[at..].find(['\n', ',', '}']).map_or(text.len(), |end| at + end);
        planted.push(format!("{} \"{PLANTED}\"{}", &text[..=at], &text[end..]));
        planted.push(format!("{} {PLANTED}{}", &text[..=at], &text[end..]));
    }
    // As a name: of a section, of a setting.
    for (at, _) in text.match_indices('.') {
        let end = text[at..].find([']', ' ', '\n']).map_or(text.len(), |end| at + end);
        planted.push(format!("{}{PLANTED}{}", &text[..=at], &text[end..]));
    }
    planted
}

fn assert_hidden(case: &Case, told: &str) {
    let shown = case.shown();
    assert!(!shown.to_uppercase().contains("PLANTED"), "{told}\nshows\n{shown}");
}

#[test]
fn a_key_in_a_file_is_never_shown() {
    let mut texts: Vec<(String, PathBuf)> = Vec::new();
    for folder in [BAD, GOOD] {
        for (_, case) in cases(folder) {
            texts.extend(
                case.files.iter().map(|file| (file.extension().unwrap().to_str().unwrap().to_owned(), file.clone())),
            );
        }
    }
    texts.push(("toml".to_owned(), EXAMPLE.into()));
    for (extension, file) in texts {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        if text.len() > 10_000 {
            continue;
        }
        for planted in plantings(&text) {
            let case =
                Case { files: vec![scratch(&format!("seed.{extension}"), planted.as_bytes())], ..Case::default() };
            assert_hidden(&case, &planted);
        }
    }
}

#[test]
fn a_key_in_the_environment_or_in_a_flag_is_never_shown() {
    let settings = [
        "targets.staging.api_key",
        "targets.staging.api_key_env",
        "targets.staging.api_key_file",
        "targets.staging.model",
        "targets.staging.base_url",
        "targets.staging.endpoint",
        "targets.staging.headers.x-note",
        "targets.staging.body",
        "targets.staging.body.note",
        "targets.staging.timeouts.idle",
        "targets.staging.ca_file",
        "targets.sk-planted0123456789.model",
        "loads.canary.rate",
        "loads.canary.target",
        "loads.canary.arrival",
        "loads.canary.burstiness",
        "loads.canary.max_in_flight",
        "loads.canary.slo",
        "loads.canary.slo.ttft",
        "loads.canary.grace",
        "server",
        "server.listen",
        "server.admin_token",
        "server.admin_token_env",
        "server.admin_token_file",
        "server.buckets",
        "server.web_config",
        "state.dir",
        "log.level",
        "log.format",
        "shard",
        "shard.index",
        "loads.canary.sk-planted0123456789",
        "workloads.chat.seed",
        "sk-planted0123456789",
    ];
    for setting in settings {
        for value in [PLANTED.to_owned(), format!("https://u:{PLANTED}@host"), format!("{{\"x\":\"{PLANTED}\"}}")] {
            let flag = Case { flags: vec![(setting.to_owned(), value.clone())], ..example() };
            assert_hidden(&flag, setting);
            let variable = format!("STEADYLOAD__{}", setting.replace('.', "__").to_uppercase());
            let env = Case { env: vec![(variable, value)], ..example() };
            assert_hidden(&env, setting);
        }
    }
}

#[test]
fn a_key_that_is_read_from_where_it_belongs_is_not_shown() {
    let key = scratch("key", format!("{PLANTED}\n").as_bytes());
    for (setting, value) in [
        ("targets.staging.api_key_env", "GATEWAY_API_KEY"),
        ("targets.staging.api_key_file", key.to_str().unwrap()),
        ("server.admin_token_env", "GATEWAY_API_KEY"),
        ("server.admin_token_file", key.to_str().unwrap()),
    ] {
        let case = Case {
            env: vec![("GATEWAY_API_KEY".to_owned(), PLANTED.to_owned())],
            flags: vec![(setting.to_owned(), value.to_owned())],
            ..example()
        };
        assert!(case.load().is_ok());
        assert_hidden(&case, setting);
    }
}
