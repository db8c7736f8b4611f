use serde_json::{Value, json};

use super::*;
use crate::domain::prompt::Role;

/// A file by its name.
type Named = (&'static str, &'static [u8]);

const FAMILIES: [&str; 3] = ["byte-level-bpe", "unigram", "wordpiece"];

fn folder(family: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tokenizers").join(family)
}

fn expected(family: &str) -> Value {
    serde_json::from_slice(&fs::read(folder(family).join("expected.json")).unwrap()).unwrap()
}

/// A folder of the test's own with these files, beside what is copied from a family.
fn scratch(name: &str, from: Option<&str>, files: &[(&str, &[u8])]) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("steadyload-tokens-{}-{name}", std::process::id()));
    drop(fs::remove_dir_all(&dir));
    fs::create_dir_all(&dir).unwrap();
    if let Some(family) = from {
        fs::copy(folder(family).join("tokenizer.json"), dir.join("tokenizer.json")).unwrap();
    }
    for (name, bytes) in files {
        fs::write(dir.join(name), bytes).unwrap();
    }
    dir
}

fn open(name: &str, from: Option<&str>, files: &[(&str, &[u8])]) -> Result<Tokenizer, OpenError> {
    let dir = scratch(name, from, files);
    let opened = Tokenizer::open(&dir);
    fs::remove_dir_all(dir).unwrap();
    opened
}

fn user(text: &str) -> Vec<Message> {
    vec![Message { role: Role::User, text: text.to_owned() }]
}

/// An error with all its causes.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[test]
fn texts_have_the_tokens_that_the_python_library_gives_them() {
    for family in FAMILIES {
        let tokenizer = Tokenizer::open(&folder(family)).unwrap();
        let expected = expected(family);
        let texts = expected["texts"].as_array().unwrap();
        assert!(texts.len() > 25);
        for entry in texts {
            let text = entry["text"].as_str().unwrap();
            let ids: Vec<u64> = entry["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
            let ours = tokenizer.inner.encode_fast(text, false).unwrap();
            let ours: Vec<u64> = ours.get_ids().iter().copied().map(u64::from).collect();
            assert_eq!(ours, ids, "{family}: {text:?}");
            assert_eq!(u64::from(tokenizer.count_plain(text)), ids.len() as u64, "{family}: {text:?}");
            let special = entry["with_special"].as_u64().unwrap();
            assert_eq!(u64::from(tokenizer.count_text(text)), special, "{family}: {text:?}");
        }
    }
}

#[test]
fn conversations_are_rendered_and_counted_as_jinja2_and_the_python_library_do() {
    let mut refused = 0;
    for family in FAMILIES {
        let tokenizer = Tokenizer::open(&folder(family)).unwrap();
        assert!(tokenizer.has_template());
        for chat in expected(family)["chats"].as_array().unwrap() {
            let message = |message: &Value| Message {
                role: match message["role"].as_str().unwrap() {
                    "system" => Role::System,
                    "user" => Role::User,
                    _ => Role::Assistant,
                },
                text: message["content"].as_str().unwrap().to_owned(),
            };
            let messages: Vec<_> = chat["messages"].as_array().unwrap().iter().map(message).collect();
            let rendered = tokenizer.template.as_ref().unwrap().render(&messages).ok();
            assert_eq!(rendered.as_deref(), chat["rendered"].as_str(), "{family}: {messages:?}");
            let count = tokenizer.count_chat(&messages).ok().map(u64::from);
            assert_eq!(count, chat["count"].as_u64(), "{family}: {messages:?}");
            refused += usize::from(count.is_none());
        }
    }
    assert_eq!(refused, 0, "every conversation of the list is one that the templates take");
}

#[test]
fn a_template_that_raises_says_why() {
    let tokenizer = Tokenizer::open(&folder("unigram")).unwrap();
    let twice = [user("one"), user("two")].concat();
    let error = tokenizer.count_chat(&twice).unwrap_err();
    assert!(whole(&error).contains("conversation roles must alternate"), "{}", whole(&error));
}

#[test]
fn truncation_and_padding_do_not_touch_a_count() {
    let tokenizer = Tokenizer::open(&folder("wordpiece")).unwrap();
    let raw = tokenizers::Tokenizer::from_file(folder("wordpiece").join("tokenizer.json")).unwrap();
    assert_eq!(raw.encode_fast("a", true).unwrap().len(), 128, "the file pads");
    assert_eq!(raw.encode_fast("a ".repeat(1000), true).unwrap().len(), 128, "the file cuts");
    assert_eq!(tokenizer.count_text("a"), 3);
    assert_eq!(tokenizer.count_text(&"a ".repeat(1000)), 1002);
}

#[test]
fn dropout_is_switched_off() {
    let mut file: Value =
        serde_json::from_slice(&fs::read(folder("byte-level-bpe").join("tokenizer.json")).unwrap()).unwrap();
    file["model"]["dropout"] = json!(0.9);
    let dropping = open("dropout", None, &[("tokenizer.json", file.to_string().as_bytes())]).unwrap();
    let plain = Tokenizer::open(&folder("byte-level-bpe")).unwrap();
    let text = "a different example of the same family ".repeat(20);
    assert_eq!(dropping.count_plain(&text), plain.count_plain(&text));
    assert_ne!(dropping.hash(), plain.hash());
}

#[test]
fn every_ordinary_piece_is_one_token_alone_and_behind_another() {
    for family in FAMILIES {
        let tokenizer = Tokenizer::open(&folder(family)).unwrap();
        let pieces = tokenizer.ordinary();
        assert!(pieces.len() > 300, "{family}: {}", pieces.len());
        let raw = tokenizers::Tokenizer::from_file(folder(family).join("tokenizer.json")).unwrap();
        let special: Vec<String> = raw.get_added_tokens_decoder().into_values().map(|token| token.content).collect();
        let mut last = None;
        for piece in pieces {
            let ids = tokenizer.inner.encode_fast(piece.as_str(), false).unwrap().get_ids().to_vec();
            assert_eq!(ids.len(), 1, "{family}: {piece:?}");
            assert!(last < Some(ids[0]), "{family}: {piece:?} is out of order");
            last = Some(ids[0]);
            assert!(!special.contains(piece) && !piece.chars().any(char::is_control), "{family}: {piece:?}");
            assert!(!piece.contains('\u{fffd}') && !piece.trim().is_empty(), "{family}: {piece:?}");
        }
        assert!(pieces.iter().any(|piece| piece.starts_with(' ')), "{family}: words keep their blank");
    }
}

#[test]
fn the_hash_changes_with_tokenizer_template_and_special_tokens() {
    let config = br#"{"chat_template": "{{ bos_token }}", "bos_token": "<s>"}"#.as_slice();
    let one = |name: &str, family, config| {
        open(name, Some(family), &[("tokenizer_config.json", config)]).unwrap().hash().to_owned()
    };
    let hashes = [
        one("hash-1", "unigram", config),
        one("hash-2", "wordpiece", config),
        one("hash-3", "unigram", br#"{"chat_template": "{{ bos_token }} ", "bos_token": "<s>"}"#),
        one("hash-4", "unigram", br#"{"chat_template": "{{ bos_token }}", "bos_token": "</s>"}"#),
        one("hash-5", "unigram", b"{}"),
    ];
    assert_eq!(hashes[0], one("hash-6", "unigram", config));
    assert!(hashes.iter().all(|hash| hash.len() == 64 && hash.chars().all(|c| c.is_ascii_hexdigit())));
    for (index, hash) in hashes.iter().enumerate() {
        assert!(!hashes[index + 1..].contains(hash), "{index}");
    }
}

#[test]
fn the_template_is_found_where_servers_look_and_in_their_order() {
    let count =
        |name, files: &[(&str, &[u8])]| open(name, Some("byte-level-bpe"), files).unwrap().count_chat(&user("x"));
    let jinja = ("chat_template.jinja", b"a".as_slice());
    let json = ("chat_template.json", br#"{"chat_template": "a b"}"#.as_slice());
    let config = ("tokenizer_config.json", br#"{"chat_template": "a b a"}"#.as_slice());
    let list = (
        "tokenizer_config.json",
        br#"{"chat_template": [{"name": "rag", "template": "a"}, {"name": "default", "template": "a b a b"}]}"#
            .as_slice(),
    );
    assert_eq!(count("where-1", &[jinja, json, config]).unwrap(), 1);
    assert_eq!(count("where-2", &[json, config]).unwrap(), 2);
    assert_eq!(count("where-3", &[config]).unwrap(), 3);
    assert_eq!(count("where-4", &[list]).unwrap(), 4);
    assert!(matches!(count("where-5", &[]), Err(TemplateError::Missing)));
    assert!(matches!(count("where-6", &[("tokenizer_config.json", b"[1, {}]")]), Err(TemplateError::Missing)));
}

#[test]
fn a_template_that_loops_or_writes_without_end_is_ended() {
    for (name, template) in [
        ("loop-1", "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"),
        ("loop-2", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
        ("loop-3", "{% for a in range(100000) %}{{ 'xxxxxxxxxx' * 1000 }}{% endfor %}"),
        ("loop-4", "{{ nothing.of.this }}"),
        ("loop-5", "{{ strftime_now('%Q') }}"),
        ("loop-6", "{{ 'a'.no_such_method() }}"),
    ] {
        let tokenizer = open(name, Some("byte-level-bpe"), &[("chat_template.jinja", template.as_bytes())]).unwrap();
        let error = tokenizer.count_chat(&user("x")).unwrap_err();
        assert!(matches!(error, TemplateError::Render(_)), "{name}: {error:?}");
    }
}

#[test]
fn the_day_is_always_the_same() {
    let template =
        b"{{ strftime_now('%A %a %d %B %b %Y %y %m %j %H:%M:%S %F %T 100%%') }}{{ [1, {'a': 'b<'}] | tojson }}";
    let tokenizer = open("day", Some("byte-level-bpe"), &[("chat_template.jinja", template)]).unwrap();
    let text = tokenizer.template.as_ref().unwrap().render(&user("x")).unwrap();
    assert_eq!(text, "Friday Fri 26 July Jul 2024 24 07 208 00:00:00 2024-07-26 00:00:00 100%[1, {\"a\": \"b<\"}]");
}

#[test]
fn what_is_no_tokenizer_is_refused_with_the_file_and_the_reason() {
    let missing = Tokenizer::open(Path::new("/nowhere/at/all")).unwrap_err();
    assert!(matches!(missing, OpenError::Folder { .. }) && whole(&missing).contains("/nowhere/at/all"));
    let words = br#"{"version":"1.0","model":{"type":"WordLevel","vocab":{"a":0},"unk_token":"none"}}"#.as_slice();
    let cases: [(&str, &[Named], &str); 8] = [
        ("bad-1", &[], "has no tokenizer.json: set"),
        ("bad-2", &[("tokenizer.model", b"x")], "has to be converted"),
        ("bad-3", &[("tokenizer.json", b"")], "is no tokenizer"),
        ("bad-4", &[("tokenizer.json", b"{\"version\": \"1.0\"}")], "is no tokenizer"),
        ("bad-5", &[("tokenizer.json", &[0xff, 0xfe, 0])], "is no tokenizer"),
        ("bad-6", &[("tokenizer.json", words)], "cannot encode"),
        ("bad-7", &[("tokenizer.json", b"[[[[")], "is no tokenizer"),
        ("bad-8", &[("tokenizer.json", b"version https://git-lfs.github.com/spec/v1")], "is no tokenizer"),
    ];
    for (name, files, reason) in cases {
        let error = open(name, None, files).unwrap_err();
        assert!(whole(&error).contains(reason), "{name}: {}", whole(&error));
    }
    let cases: [(&str, Named, &str); 5] = [
        ("bad-11", ("tokenizer_config.json", b"{"), "is not JSON"),
        ("bad-12", ("chat_template.json", b"x"), "is not JSON"),
        ("bad-13", ("chat_template.jinja", b"\xff"), "is not UTF-8"),
        ("bad-14", ("chat_template.jinja", b"\n{% for %}"), "chat_template:2"),
        ("bad-15", ("chat_template.jinja", b"{% generation %}"), "cannot be compiled"),
    ];
    for (name, file, reason) in cases {
        let error = open(name, Some("unigram"), &[file]).unwrap_err();
        assert!(whole(&error).contains(reason), "{name}: {}", whole(&error));
    }
}

#[test]
fn a_file_that_is_too_large_or_no_file_is_not_read() {
    let dir = scratch("large", None, &[]);
    fs::File::create(dir.join("tokenizer.json")).unwrap().set_len(MAX_TOKENIZER + 1).unwrap();
    let error = Tokenizer::open(&dir).unwrap_err();
    assert!(matches!(error, OpenError::TooLarge { limit: MAX_TOKENIZER, .. }), "{error:?}");
    fs::remove_file(dir.join("tokenizer.json")).unwrap();
    fs::create_dir(dir.join("tokenizer.json")).unwrap();
    let error = Tokenizer::open(&dir).unwrap_err();
    assert!(matches!(error, OpenError::Read { .. }), "{error:?}");
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_damaged_tokenizer_is_an_error_or_a_tokenizer_and_never_a_panic() {
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let (mut opened, mut refused) = (0, 0);
    for family in FAMILIES {
        let whole = fs::read(folder(family).join("tokenizer.json")).unwrap();
        for round in 0..60 {
            let mut bytes = whole.clone();
            for _ in 0..random.random_range(1..4) {
                // The beginning and the end hold all but the vocabulary.
                let span = if round % 2 == 0 { 2000 } else { bytes.len() };
                let at = random.random_range(0..span);
                bytes[at] = b"0123456789-[]{}\":,ax\0"[random.random_range(0..21)];
            }
            match load(&bytes) {
                Err(_) => refused += 1,
                Ok(tokenizer) => {
                    opened += 1;
                    for probe in PROBES {
                        drop(guarded(|| tokenizer.encode_fast(probe, true)));
                    }
                }
            }
        }
    }
    assert!(opened > 10 && refused > 10, "{opened} opened, {refused} refused");
}

#[test]
fn a_tokenizer_is_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    let tokenizer = Tokenizer::open(&folder("unigram")).unwrap();
    shared(&tokenizer);
    let alone = tokenizer.count_plain("shared between threads");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(tokenizer.count_plain("shared between threads"), alone));
        }
    });
}
