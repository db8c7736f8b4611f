//! Workloads: where the text comes from, its lengths, and what two prompts have in common.
//!
//! A setting that would do nothing with this data set is refused rather than ignored: who wrote it wants something.

use std::num::NonZeroU32;
use std::path::PathBuf;

use config::ValueKind;

use super::length::{self, MAX_TOKENS};
use super::reader::{Checker, Section};
use super::{nonzero, vocabulary};
use crate::config::origin::Literal;
use crate::config::read::resolved;
use crate::config::sections::{BrokenLines, Cache, DataFile, Dataset, Length, Workload};

/// Most turns of a conversation: each holds all before it, so that this is 500 times the length of one.
const MAX_TURNS: u64 = 1000;

/// Most system prompts.
const MAX_GROUPS: u64 = 1_000_000;

/// System prompts unless told.
const GROUPS: u64 = 8;

/// Tokens of a prompt and of an answer unless told.
const INPUT: NonZeroU32 = NonZeroU32::new(256).unwrap();
const OUTPUT: NonZeroU32 = NonZeroU32::new(100).unwrap();

/// The words for data sets.
const DATASETS: [(&str, Kind); 5] = [
    ("random", Kind::Random),
    ("sonnet", Kind::Sonnet),
    ("sharegpt", Kind::ShareGpt),
    ("jsonl", Kind::Jsonl),
    ("shared-prefix", Kind::SharedPrefix),
];

/// The words for entries that cannot be used.
const BROKEN: [(&str, BrokenLines); 2] = [("refuse", BrokenLines::Refuse), ("skip", BrokenLines::Skip)];

/// A data set without what belongs to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Random,
    Sonnet,
    ShareGpt,
    Jsonl,
    SharedPrefix,
}

impl Kind {
    fn name(self) -> &'static str {
        DATASETS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Whether its entries are what others have written, and each has a length of its own.
    const fn is_written(self) -> bool {
        matches!(self, Self::ShareGpt | Self::Jsonl)
    }
}

/// One workload.
pub(super) fn workload(checker: &mut Checker<'_>, section: &Section<'_>) -> Option<Workload> {
    let kind = checker.choice_or(section, "dataset", &DATASETS, Kind::Random);
    let dataset = kind.and_then(|kind| dataset(checker, section, kind));
    let written = kind.is_some_and(Kind::is_written);
    let input_tokens = tokens(checker, section, "input_tokens", (!written).then_some(INPUT));
    let output = kind != Some(Kind::ShareGpt);
    let output_tokens = tokens(checker, section, "output_tokens", output.then_some(OUTPUT));
    let seed = checker.whole_or(section, "seed", 0..=u64::MAX, 1000);
    let cache = cache(checker, section, kind);
    let turns = turns(checker, section, kind, cache);
    let tokenizer = tokenizer(checker, section);
    checker.close(section, &vocabulary::WORKLOAD);
    let workload = Workload {
        dataset: dataset?,
        input_tokens: input_tokens?,
        output_tokens: output_tokens?,
        seed: seed?,
        cache: cache?,
        turns: turns?,
        tokenizer: tokenizer?,
    };
    room_for_prefix(checker, section, &workload)?;
    Some(workload)
}

/// The data set with what belongs to it. Everything is read before anything is missed.
fn dataset(checker: &mut Checker<'_>, section: &Section<'_>, kind: Kind) -> Option<Dataset> {
    let mut refused = false;
    for (key, takes, why) in [
        ("path", kind.is_written() || kind == Kind::Sonnet, "is made up and reads no file"),
        ("broken_lines", kind.is_written(), "has no entries that could be broken"),
        ("groups", kind == Kind::SharedPrefix, "has no system prompts; dataset shared-prefix has"),
        (
            "prefix_tokens",
            matches!(kind, Kind::SharedPrefix | Kind::Sonnet),
            "has no prefix of its own; cache = { shared_prefix = N } may give it one",
        ),
    ] {
        refused |= !takes && needless(checker, section, key, &format!("dataset {} {why}", kind.name()));
    }
    let dataset = match kind {
        Kind::Random => Some(Dataset::Random),
        Kind::Sonnet => {
            let path = optional_path(checker, section, "path", "poems.txt");
            let prefix_tokens = optional_whole(checker, section, "prefix_tokens");
            path.zip(prefix_tokens).map(|(path, prefix_tokens)| Dataset::Sonnet { path, prefix_tokens })
        }
        Kind::ShareGpt => file(checker, section, kind, "sharegpt.json").map(Dataset::ShareGpt),
        Kind::Jsonl => file(checker, section, kind, "prompts.jsonl").map(Dataset::Jsonl),
        Kind::SharedPrefix => {
            let groups = checker.whole_or(section, "groups", 1..=MAX_GROUPS, GROUPS);
            let prefix_tokens = optional_whole(checker, section, "prefix_tokens");
            if prefix_tokens == Some(None) {
                missing(checker, section, "prefix_tokens", kind, &Literal::bare(1024));
            }
            let both = groups.and_then(nonzero).zip(prefix_tokens.flatten());
            both.map(|(groups, prefix_tokens)| Dataset::SharedPrefix { groups, prefix_tokens })
        }
    };
    dataset.filter(|_| !refused)
}

/// A file of entries.
fn file(checker: &mut Checker<'_>, section: &Section<'_>, kind: Kind, example: &'static str) -> Option<DataFile> {
    let path = optional_path(checker, section, "path", example);
    if path == Some(None) {
        missing(checker, section, "path", kind, &Literal::text(example));
    }
    let broken = checker.choice_or(section, "broken_lines", &BROKEN, BrokenLines::default());
    Some(DataFile { path: path??, broken: broken? })
}

/// A length, the default, or with no default the length of each entry.
fn tokens(
    checker: &mut Checker<'_>,
    section: &Section<'_>,
    key: &str,
    default: Option<NonZeroU32>,
) -> Option<Option<Length>> {
    if let Some(entry) = checker.entry(section, key) {
        return length::length(checker, &entry, default.unwrap_or(INPUT)).map(Some);
    }
    if let Some(tokens) = default {
        checker.keep_default(section, key, tokens.to_string());
    }
    Some(default.map(Length::Fixed))
}

/// `"unique"`, `"repeat"` or `{ shared_prefix = N }`.
fn cache(checker: &mut Checker<'_>, section: &Section<'_>, kind: Option<Kind>) -> Option<Cache> {
    let Some(entry) = checker.entry(section, "cache") else {
        checker.keep_default(section, "cache", "\"unique\"".to_owned());
        return Some(Cache::Unique);
    };
    if !matches!(entry.value.kind, ValueKind::Table(_)) {
        return checker.choice_or(
            section,
            "cache",
            &[("unique", Cache::Unique), ("repeat", Cache::Repeat)],
            Cache::Unique,
        );
    }
    let table = checker.table(&entry, &Literal::table("shared_prefix", Literal::bare(1024)))?;
    let tokens = checker.entry(&table, "shared_prefix").map(|entry| checker.whole(&entry, 1..=MAX_TOKENS, 1024));
    checker.close(&table, &vocabulary::CACHE);
    if tokens.is_none() && !checker.is_misspelt(&table, &vocabulary::CACHE, "shared_prefix") {
        let help = "write `cache = { shared_prefix = 1024 }`, or \"unique\" or \"repeat\"";
        return checker.wrong(&entry, "holds no shared_prefix", help);
    }
    let tokens = tokens??;
    let why = match kind {
        Some(Kind::SharedPrefix) => "dataset shared-prefix shares its system prompts: set prefix_tokens",
        Some(Kind::Sonnet) if section.table.contains_key("prefix_tokens") => {
            "prefix_tokens is the shared prefix already"
        }
        Some(Kind::ShareGpt | Kind::Jsonl) => "the entries of a file are sent as they are written",
        Some(Kind::Random | Kind::Sonnet) | None => return nonzero(tokens).map(Cache::SharedPrefix),
    };
    checker.wrong(
        &entry,
        "has no place for a shared prefix",
        format!("{why}; write `cache = \"unique\"`, or leave it out"),
    )
}

/// The turns of a conversation.
fn turns(
    checker: &mut Checker<'_>,
    section: &Section<'_>,
    kind: Option<Kind>,
    cache: Option<Cache>,
) -> Option<NonZeroU32> {
    let turns = checker.whole_or(section, "turns", 1..=MAX_TURNS, 1)?;
    let why = match (kind, cache) {
        _ if turns == 1 => return nonzero(turns),
        (Some(kind), _) if kind.is_written() => "the entries of a file are not continued",
        (_, Some(Cache::Repeat)) => "with cache \"repeat\" every request is the first one",
        _ => return nonzero(turns),
    };
    let entry = checker.entry(section, "turns")?;
    checker.wrong(&entry, format!("is {turns}, but {why}"), "remove it")
}

/// The folder of a tokenizer. What is in it is looked at when it is opened.
fn tokenizer(checker: &mut Checker<'_>, section: &Section<'_>) -> Option<Option<PathBuf>> {
    optional_path(checker, section, "tokenizer", "/models/sim-model")
}

/// A prefix leaves room for the rest of the shortest prompt.
fn room_for_prefix(checker: &mut Checker<'_>, section: &Section<'_>, workload: &Workload) -> Option<()> {
    let (key, prefix) = match (&workload.dataset, workload.cache) {
        (Dataset::Sonnet { prefix_tokens: Some(tokens), .. }, _)
        | (Dataset::SharedPrefix { prefix_tokens: tokens, .. }, _) => ("prefix_tokens", *tokens),
        (_, Cache::SharedPrefix(tokens)) => ("cache", tokens),
        _ => return Some(()),
    };
    let least = workload.input_tokens.as_ref()?.bounds().min;
    if prefix < least {
        return Some(());
    }
    let entry = checker.entry(section, key)?;
    let what = format!("the shared prefix is {prefix} tokens, and the shortest prompt with it is {least}");
    checker.wrong(&entry, what, "make input_tokens longer than the prefix: it is the length of the whole prompt")
}

fn optional_path(
    checker: &mut Checker<'_>,
    section: &Section<'_>,
    key: &str,
    example: &str,
) -> Option<Option<PathBuf>> {
    let Some(entry) = checker.entry(section, key) else { return Some(None) };
    let named = checker.filled_text(&entry, example)?;
    if named.contains('\0') {
        return checker.wrong(
            &entry,
            "holds a character that no path can",
            format!("name it as in `{key} = \"{example}\"`"),
        );
    }
    checker.keep(&entry, format!("\"{}\"", named.escape_debug()));
    Some(Some(resolved(named, &entry.origin)))
}

fn optional_whole(checker: &mut Checker<'_>, section: &Section<'_>, key: &str) -> Option<Option<NonZeroU32>> {
    let Some(entry) = checker.entry(section, key) else { return Some(None) };
    nonzero(checker.whole(&entry, 1..=MAX_TOKENS, 1024)?).map(Some)
}

/// Reports a key that would do nothing, and whether it is there.
fn needless(checker: &mut Checker<'_>, section: &Section<'_>, key: &str, why: &str) -> bool {
    let Some(entry) = checker.entry(section, key) else { return false };
    checker.wrong::<()>(&entry, why, "remove it, or set another dataset");
    true
}

/// Reports a key that this data set cannot do without.
fn missing(checker: &mut Checker<'_>, section: &Section<'_>, key: &'static str, kind: Kind, example: &Literal) {
    if checker.is_misspelt(section, &vocabulary::WORKLOAD, key) {
        return;
    }
    let path = section.path.child(key);
    let written = section.origin.written(&path, example);
    checker.absent(
        section,
        &path,
        format!("is missing: dataset {} needs it", kind.name()),
        format!("write `{written}`"),
    );
}
