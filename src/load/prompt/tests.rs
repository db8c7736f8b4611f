use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::PathBuf;

use super::*;
use crate::config::sections::{Bounds, BrokenLines, DataFile};

fn tokens(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).unwrap()
}

fn workload(input: u32) -> Workload {
    Workload::random(tokens(input), tokens(9), 1000)
}

fn stream() -> Stream {
    Stream { load: "canary".to_owned(), shard: Shard::WHOLE, part: Part::Measured }
}

fn source(workload: &Workload) -> Source {
    Source::open("chat", workload, Api::OpenAiChat, Arc::new(Words::default())).unwrap()
}

fn text(source: &Source, stream: &Stream, index: u64) -> String {
    joined(&source.prompt(stream, index).unwrap().messages)
}

fn sonnet(prefix_tokens: Option<u32>) -> Dataset {
    Dataset::Sonnet { path: None, prefix_tokens: prefix_tokens.map(tokens) }
}

fn shared_prefix(groups: u32, prefix: u32) -> Dataset {
    Dataset::SharedPrefix { groups: tokens(groups), prefix_tokens: tokens(prefix) }
}

/// A file that is gone with the test.
struct Data(PathBuf);

impl Data {
    fn new(name: &str, bytes: &str) -> Self {
        let path = std::env::temp_dir().join(format!("steadyload-data-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }

    fn file(&self) -> DataFile {
        DataFile { path: self.0.clone(), broken: BrokenLines::Refuse }
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

/// Every kind of workload that makes its text up.
fn made_up() -> Vec<Workload> {
    let kinds = [
        (Dataset::Random, Cache::Unique),
        (Dataset::Random, Cache::SharedPrefix(tokens(40))),
        (sonnet(None), Cache::Unique),
        (sonnet(Some(40)), Cache::Unique),
        (shared_prefix(4, 40), Cache::Unique),
    ];
    kinds.map(|(dataset, cache)| Workload { dataset, cache, ..workload(100) }).into()
}

// ---- the same bytes ----

#[test]
fn the_bytes_of_prompts_are_the_same_on_every_machine() {
    // Written down once: a change here is a change of every baseline.
    let mut golden = String::new();
    for workload in made_up().into_iter().chain([Workload { turns: tokens(3), ..workload(30) }]) {
        let source = source(&workload);
        let mut hash = Context::new(&SHA256);
        for index in [0, 1, 40, u64::MAX] {
            hash.update(text(&source, &stream(), index).as_bytes());
        }
        let hex: String = hash.finish().as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let short: String = source.hash().chars().take(16).collect();
        golden.push_str(&format!("{} {} {hex} {short}\n", workload.dataset, workload.cache));
    }
    let want = "\
        random unique f56a84e459409b7e fa336dc46e2a95e4
random shared_prefix(40) 1a524974bae6b589 ae8188ca61d1fb8f
sonnet unique 68a06957571e21cf bcbe7ecccb9d2ebe
sonnet(40) unique 61eaa9a331d7dc21 bf147c734750f76b
shared-prefix(4,40) unique 86df29949a6d3437 e3ede54b0d1d80e7
random unique 4261f9c8520b406d 6f909e5155d0daf2
";
    assert_eq!(golden, want);
    // Worked out apart from this code as well, from SHA-256 and ChaCha8.
    assert_eq!(
        text(&source(&workload(24)), &stream(), 0),
        "long move animal hand river paper paper back change move main day mother end place idea house land\n\n\
         Reply with the single word: yes."
    );
}

#[test]
fn a_prompt_is_a_function_of_its_place_alone() {
    for workload in made_up() {
        let (one, other) = (source(&workload), source(&workload));
        let backwards: Vec<_> = (0..20).rev().map(|index| one.prompt(&stream(), index).unwrap()).collect();
        let forwards: Vec<_> = (0..20).map(|index| other.prompt(&stream(), index).unwrap()).collect();
        assert!(backwards.iter().rev().eq(&forwards), "{}", workload.dataset);
    }
}

#[test]
fn the_text_does_not_depend_on_the_shape_of_the_lengths() {
    let fixed = workload(60);
    let bounds = Bounds { min: tokens(60), max: tokens(60) };
    let drawn = Workload { input_tokens: Some(Length::Uniform(bounds)), ..fixed.clone() };
    assert_eq!(text(&source(&fixed), &stream(), 3), text(&source(&drawn), &stream(), 3));
    // A longer one begins alike.
    let (short, long) = (text(&source(&fixed), &stream(), 3), text(&source(&workload(80)), &stream(), 3));
    assert!(long.starts_with(short.strip_suffix(CLOSING).unwrap()));
}

#[test]
fn whatever_changes_a_prompt_changes_the_hash() {
    let base = workload(100);
    let mut all = vec![
        base.clone(),
        Workload { seed: 1001, ..base.clone() },
        Workload { cache: Cache::Repeat, ..base.clone() },
        Workload { turns: tokens(2), ..base.clone() },
        Workload { output_tokens: Some(Length::Fixed(tokens(10))), ..base.clone() },
        workload(101),
    ];
    all.extend(made_up().into_iter().skip(1));
    let hashes: BTreeSet<_> = all.iter().map(|workload| source(workload).hash().to_owned()).collect();
    assert_eq!(hashes.len(), all.len());
    let counted = Source::open("chat", &base, Api::OpenAiChat, Arc::new(Words::new(8.0, 1.5))).unwrap();
    let other_api = Source::open("chat", &base, Api::OpenAiCompletions, Arc::new(Words::default())).unwrap();
    assert!(!hashes.contains(counted.hash()) && !hashes.contains(other_api.hash()));
    // The same bytes under another name are the same data set.
    let data = |name: &str, prompt: &str| {
        let data = Data::new(name, &format!("{{\"prompt\":\"{prompt}\"}}\n"));
        source(&Workload { dataset: Dataset::Jsonl(data.file()), ..base.clone() }).hash().to_owned()
    };
    assert_eq!(data("hash-a", "q"), data("hash-b", "q"));
    assert_ne!(data("hash-a", "q"), data("hash-b", "r"));
}

// ---- lengths ----

#[test]
fn every_prompt_has_the_length_that_was_asked_for() {
    for (overhead, ratio) in [(0.0, 1.0), (11.0, 0.8)] {
        let words = Words::new(overhead, ratio);
        for workload in made_up() {
            for api in Api::ALL {
                let source = Source::open("chat", &workload, api, Arc::new(words)).unwrap();
                for index in 0..10 {
                    let prompt = source.prompt(&stream(), index).unwrap();
                    assert_eq!((prompt.input_tokens, prompt.output_tokens), (Some(100), 9), "{}", workload.dataset);
                }
            }
        }
    }
}

#[test]
fn short_prompts_lose_their_closing_and_then_salt() {
    for length in 1..=19 {
        let source = source(&workload(length));
        let text = text(&source, &stream(), 0);
        assert_eq!(text.split_whitespace().count(), usize::try_from(length).unwrap(), "{text}");
        assert_eq!(text.ends_with(CLOSING), length == 19, "{text}");
    }
}

#[test]
fn lengths_that_are_drawn_are_kept() {
    let bounds = Bounds { min: tokens(30), max: tokens(200) };
    let workload = Workload {
        input_tokens: Some(Length::Uniform(bounds)),
        output_tokens: Some(Length::Uniform(bounds)),
        ..workload(1)
    };
    let source = source(&workload);
    let prompts: Vec<_> = (0..200).map(|index| source.prompt(&stream(), index).unwrap()).collect();
    let inputs: BTreeSet<_> = prompts.iter().filter_map(|prompt| prompt.input_tokens).collect();
    assert!(inputs.len() > 90 && inputs.first() >= Some(&30) && inputs.last() <= Some(&200), "{inputs:?}");
    // The one says nothing of the other.
    assert!(prompts.iter().any(|prompt| prompt.input_tokens != Some(prompt.output_tokens)));
}

// ---- what prompts share ----

#[test]
fn unique_prompts_differ_from_their_first_words_on() {
    for dataset in [Dataset::Random, sonnet(None)] {
        let source = source(&Workload { dataset, ..workload(64) });
        let shard = |index| Stream { shard: Shard::new(index, tokens(2)).unwrap(), ..stream() };
        let streams = [
            stream(),
            Stream { load: "other".to_owned(), ..stream() },
            Stream { part: Part::WarmUp, ..stream() },
            Stream { part: Part::Level(1), ..stream() },
            Stream { part: Part::Level(2), ..stream() },
            shard(0),
            shard(1),
        ];
        let mut fronts = BTreeSet::new();
        for stream in &streams {
            for index in 0..300 {
                let text = text(&source, stream, index);
                fronts.insert(text.split_whitespace().take(6).collect::<Vec<_>>().join(" "));
            }
        }
        // 36 bits of 2100: that two agree in six words is one chance in thirty thousand.
        assert_eq!(fronts.len(), streams.len() * 300);
    }
}

#[test]
fn repeated_prompts_are_the_first_one() {
    let source = source(&Workload { cache: Cache::Repeat, ..workload(50) });
    let first = source.prompt(&stream(), 0).unwrap();
    assert!((1..20).all(|index| source.prompt(&stream(), index).unwrap() == first));
}

/// Words that all these begin with, and whether all differ in the one after the next six.
fn common(texts: &[String]) -> usize {
    let words: Vec<Vec<_>> = texts.iter().map(|text| text.split_whitespace().collect()).collect();
    (0..)
        .take_while(|at| words.iter().all(|text| text.get(*at).is_some() && text.get(*at) == words[0].get(*at)))
        .count()
}

#[test]
fn a_shared_prefix_is_as_long_as_declared_and_nothing_after_it_is_shared() {
    for (dataset, cache) in [(Dataset::Random, Cache::SharedPrefix(tokens(40))), (sonnet(Some(40)), Cache::Unique)] {
        let source = source(&Workload { dataset, cache, ..workload(100) });
        let texts: Vec<_> = (0..100).map(|index| text(&source, &stream(), index)).collect();
        assert_eq!(common(&texts), 40);
        // A warm-up warms it up, another load does not.
        let warm = text(&source, &Stream { part: Part::WarmUp, ..stream() }, 0);
        assert_eq!(common(&[warm, texts[0].clone()]), 40);
    }
}

#[test]
fn groups_share_their_system_prompt_and_no_question() {
    let source = source(&Workload { dataset: shared_prefix(3, 40), ..workload(100) });
    let mut groups: BTreeMap<String, u32> = BTreeMap::new();
    let mut questions = BTreeSet::new();
    for index in 0..30 {
        let Prompt { messages, .. } = source.prompt(&stream(), index).unwrap();
        let [system, user] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!((system.role, user.role, system.text.split_whitespace().count()), (Role::System, Role::User, 40));
        *groups.entry(system.text.clone()).or_default() += 1;
        questions.insert(user.text.split_whitespace().take(6).map(str::to_owned).collect::<Vec<_>>());
    }
    assert_eq!((groups.values().copied().collect::<Vec<_>>(), questions.len()), (vec![10, 10, 10], 30));
}

// ---- conversations ----

#[test]
fn a_turn_repeats_the_one_before_and_asks_on() {
    let source = source(&Workload { turns: tokens(3), ..workload(30) });
    let mut conversations: BTreeMap<String, Vec<Prompt>> = BTreeMap::new();
    for index in 0..INTERLEAVED * 3 * 2 {
        let prompt = source.prompt(&stream(), index).unwrap();
        conversations.entry(prompt.messages[0].text.clone()).or_default().push(prompt);
    }
    assert_eq!(conversations.len(), usize::try_from(INTERLEAVED * 2).unwrap());
    for turns in conversations.values() {
        assert_eq!(turns.iter().map(|prompt| prompt.turn).collect::<Vec<_>>(), [0, 1, 2]);
        for pair in turns.windows(2) {
            let (before, after) = (&pair[0].messages, &pair[1].messages);
            assert!(after.starts_with(before) && after.len() == before.len() + 2);
            let length = |message: &Message| message.text.split_whitespace().count();
            let (answer, question) = (&after[before.len()], &after[before.len() + 1]);
            assert_eq!((answer.role, length(answer)), (Role::Assistant, 9));
            assert_eq!((question.role, length(question)), (Role::User, 30));
        }
    }
}

#[test]
fn one_index_and_the_next_are_of_different_conversations_in_every_shard() {
    for count in [1, 2, 5, 16] {
        for shard in 0..count {
            let shard = Shard::new(shard, tokens(count)).unwrap();
            let mut turns: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
            let places: Vec<_> = (0..INTERLEAVED * 4 * 3).map(|n| place(shard, 4, shard.position(n))).collect();
            assert!(places.windows(2).all(|pair| pair[0].0 != pair[1].0));
            for (conversation, turn) in places {
                turns.entry(conversation).or_default().push(turn);
            }
            // A shard has whole conversations, each in its order.
            assert!(turns.values().all(|turns| *turns == [0, 1, 2, 3]), "{turns:?}");
        }
    }
    assert_eq!(place(Shard::WHOLE, 1, u64::MAX), (u64::MAX, 0));
}

// ---- written by others ----

#[test]
fn every_entry_is_sent_once_in_a_pass() {
    for n in [1, 2, 7, 12] {
        let lines: String = (0..n).map(|n| format!("{{\"prompt\":\"question {n}\"}}\n")).collect();
        let data = Data::new(&format!("pass-{n}"), &lines);
        let workload = Workload { dataset: Dataset::Jsonl(data.file()), input_tokens: None, ..workload(1) };
        let source = source(&workload);
        let sent = |pass: u64| -> BTreeSet<String> {
            let all = (pass * n..(pass + 1) * n).map(|index| text(&source, &stream(), index));
            all.map(|text| text.split_once("\n\n").unwrap().1.to_owned()).collect()
        };
        for pass in 0..4 {
            assert_eq!(sent(pass).len(), usize::try_from(n).unwrap(), "{n} {pass}");
        }
    }
}

#[test]
fn an_entry_has_its_own_length_or_the_one_that_is_asked_for() {
    let line =
        r#"{"conversations":[{"from":"human","value":"how  are\nyou"},{"from":"gpt","value":"well thank you all"}]}"#;
    let data = Data::new("lengths", &format!("[{line}]"));
    let own = Workload {
        dataset: Dataset::ShareGpt(data.file()),
        input_tokens: None,
        output_tokens: None,
        cache: Cache::Repeat,
        ..workload(1)
    };
    let prompt = source(&own).prompt(&stream(), 5).unwrap();
    assert_eq!(prompt.messages, [Message::user("how  are\nyou")]);
    assert_eq!((prompt.input_tokens, prompt.output_tokens), (None, 4));
    for length in [1, 2, 40] {
        let asked = Length::Fixed(tokens(length));
        let fitted = Workload { input_tokens: Some(asked.clone()), output_tokens: Some(asked), ..own.clone() };
        let prompt = source(&fitted).prompt(&stream(), 5).unwrap();
        assert_eq!((Words::default().chat(&prompt.messages), prompt.output_tokens), (length, length));
        assert!("how  are\nyou how  are\nyou".starts_with(&prompt.messages[0].text) || length == 40);
    }
    let unique = source(&Workload { cache: Cache::Unique, ..own });
    let [one, other] = [0, 1].map(|index| text(&unique, &stream(), index));
    assert!(one != other && one.ends_with("\n\nhow  are\nyou"));
}

#[test]
fn a_line_says_how_long_its_answer_is() {
    let data = Data::new("answers", "{\"prompt\":\"q\",\"max_tokens\":3}\n");
    let workload = Workload { dataset: Dataset::Jsonl(data.file()), input_tokens: None, ..workload(1) };
    assert_eq!(source(&workload).prompt(&stream(), 0).unwrap().output_tokens, 3);
    let data = Data::new("answers", "{\"prompt\":\"q\"}\n");
    let workload = Workload { dataset: Dataset::Jsonl(data.file()), ..workload };
    assert_eq!(source(&workload).prompt(&stream(), 0).unwrap().output_tokens, 9);
}

#[test]
fn a_text_that_is_none_is_told_with_its_setting() {
    let told = |bytes: &[u8]| {
        let data = Data::new("verse", "");
        std::fs::write(&data.0, bytes).unwrap();
        let dataset = Dataset::Sonnet { path: Some(data.0.clone()), prefix_tokens: None };
        let opened =
            Source::open("chat", &Workload { dataset, ..workload(50) }, Api::OpenAiChat, Arc::new(Words::default()));
        opened.map(|source| text(&source, &stream(), 0)).map_err(|error| error.to_string())
    };
    assert!(told(b"one\ntwo\xff\n").unwrap_err().contains("verse:2 is not UTF-8"));
    assert!(told(b"\n  \n").unwrap_err().contains("no line of text"));
    assert!(told(b"").unwrap_err().starts_with("workloads.chat.path: "));
    assert!(told("żółw\n\n  jeden\n".as_bytes()).unwrap().contains("żółw"));
}
