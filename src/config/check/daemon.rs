//! What one daemon is besides its server: what it keeps, what it logs, and which shard of the loads it carries.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use super::reader::{Checker, Entry, Section};
use super::vocabulary;
use crate::config::fault::Finding;
use crate::config::origin::Literal;
use crate::config::read::resolved;
use crate::config::sections::{Load, Log, LogFormat, LogLevel, Pace, ShardOf, State};

/// What a state directory looks like, for corrections.
const DIR: &str = "/var/lib/steadyload";

/// The words for levels.
const LEVELS: [(&str, LogLevel); 5] = [
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];

/// The words for formats.
const FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];

/// Most shards. Each has a share of the rate, and a ten-thousandth of the highest one is ten requests a second.
const MAX_SHARDS: u64 = 10_000;

/// The `[state]`.
pub(super) fn state(checker: &mut Checker<'_>, root: &Section<'_>) -> Option<State> {
    let section = checker.inner(root, "state", &Literal::table("dir", Literal::text(DIR)))?;
    checker.close(&section, &vocabulary::STATE);
    let Some(entry) = checker.entry(&section, "dir") else { return Some(State::default()) };
    let named = checker.filled_text(&entry, DIR)?;
    let dir = resolved(named, &entry.origin);
    let refused = match std::fs::metadata(&dir) {
        Ok(found) if !found.is_dir() => Some("is a file, wants a folder"),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Some("lies below a file, wants a folder"),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Some("holds a character that no path can"),
        // It need not exist, and what else is wrong with it is only known when it is made.
        Ok(_) | Err(_) => None,
    };
    if let Some(what) = refused {
        let help = "name a folder that this user may write to; it is made if it does not exist";
        return checker.wrong(&entry, what, help);
    }
    checker.keep(&entry, format!("\"{}\"", named.escape_debug()));
    Some(State { dir: Some(dir) })
}

/// The `[log]`.
pub(super) fn log(checker: &mut Checker<'_>, root: &Section<'_>) -> Option<Log> {
    let default = Log::default();
    let section = checker.inner(root, "log", &Literal::table("level", Literal::text("info")))?;
    let level = checker.choice_or(&section, "level", &LEVELS, default.level);
    let format = checker.choice_or(&section, "format", &FORMATS, default.format);
    checker.close(&section, &vocabulary::LOG);
    Some(Log { level: level?, format: format? })
}

/// The `shard`. Half of one is refused: a shard that takes itself for another sends twice what is sent already.
pub(super) fn shard(checker: &mut Checker<'_>, root: &Section<'_>, loads: &BTreeMap<String, Load>) -> Option<ShardOf> {
    let Some(entry) = checker.entry(root, "shard") else {
        let default = ShardOf::default();
        let section = checker.inner(root, "shard", &Literal::bare(""))?;
        checker.keep_default(&section, "index", default.index.to_string());
        checker.keep_default(&section, "count", default.count.to_string());
        return Some(default);
    };
    let section = checker.table(&entry, &Literal::table("index", Literal::bare(0)).and("count", Literal::bare(4)))?;
    let index = half(checker, &section, "index", 0..=MAX_SHARDS - 1, 0);
    let count = half(checker, &section, "count", 1..=MAX_SHARDS, 4);
    checker.close(&section, &vocabulary::SHARD);
    let (index, count) = (index?, NonZeroU32::new(count?)?);
    if index >= count.get() {
        let (entry, of) = (checker.entry(&section, "index")?, checker.entry(&section, "count")?);
        let what = format!("is {index}, wants less than count {count} ({}): the first shard is 0", of.origin);
        let written = entry.written(&Literal::bare(count.get() - 1));
        return checker.wrong(&entry, what, format!("write `{written}` or less"));
    }
    if let Some(entry) = checker.entry(&section, "count") {
        idle(checker, &entry, count, loads);
    }
    Some(ShardOf { index, count })
}

/// One of the two settings, both of which a shard has.
fn half(
    checker: &mut Checker<'_>,
    shard: &Section<'_>,
    key: &'static str,
    range: RangeInclusive<u64>,
    example: u64,
) -> Option<u32> {
    if let Some(entry) = checker.entry(shard, key) {
        return u32::try_from(checker.whole(&entry, range, example)?).ok();
    }
    if !checker.is_misspelt(shard, &vocabulary::SHARD, key) {
        let path = shard.path.child(key);
        let written = shard.origin.written(&path, &Literal::bare(example));
        checker.absent(shard, &path, "is missing: a shard has index and count", format!("write `{written}`, say"));
    }
    None
}

/// Says which closed loops have fewer workers than there are shards.
fn idle(checker: &mut Checker<'_>, count: &Entry<'_>, shards: NonZeroU32, loads: &BTreeMap<String, Load>) {
    for (name, load) in loads {
        let Pace::Concurrency(workers) = load.pace else { continue };
        if workers < shards {
            let what = format!(
                "is more than the workers of loads.{name}: shards from index {workers} on have none of the {workers}"
            );
            let help = format!("give it a concurrency of {shards} or more, or a shard to each worker");
            checker.warn(Finding::at(&count.origin, &count.path, what, help));
        }
    }
}
