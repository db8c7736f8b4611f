//! What a load would send, without sending it.

use anyhow::Context;
use serde_json::{Value, json};

use crate::config::sections::{Config, Target};
use crate::load::client::body;
use crate::load::prompt::{Part, Source, Stream};
use crate::load::schedule::plan::Shard;

/// The prompts of one load of a configuration, as this shard sends them.
#[derive(Debug)]
pub struct Prompts {
    target: Target,
    source: Source,
    stream: Stream,
}

impl Prompts {
    /// Opens the data set of this load.
    ///
    /// # Errors
    /// When there is no such load, or when its data set cannot be used.
    pub fn open(config: &Config, name: &str) -> anyhow::Result<Self> {
        let known = || config.loads.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let load =
            config.loads.get(name).with_context(|| format!("there is no load {name:?}; there is {}", known()))?;
        let context = || format!("loads.{name} names what is not there");
        let target = config.targets.get(&load.target).with_context(context)?.clone();
        let workload = config.workloads.get(&load.workload).with_context(context)?;
        let shard = Shard::new(config.shard.index, config.shard.count)?;
        let source = Source::of(&load.workload, workload, target.api)?;
        Ok(Self { target, source, stream: Stream { load: name.to_owned(), shard, part: Part::Measured } })
    }

    /// What tells these prompts from others, and what was left out of them.
    #[must_use]
    pub fn heading(&self) -> String {
        let skipped = self.source.skipped();
        let left_out = match skipped.broken + skipped.short {
            0 => String::new(),
            _ => format!("; left out: {} broken, {} with fewer than two turns", skipped.broken, skipped.short),
        };
        format!("workload {}{left_out}\n", self.source.hash())
    }

    /// The prompt with this index, for people.
    ///
    /// # Errors
    /// When the data set cannot be read any more.
    pub fn text(&self, index: u64) -> anyhow::Result<String> {
        let prompt = self.source.prompt(&self.stream, index)?;
        let counted = match prompt.input_tokens {
            Some(tokens) if self.source.is_exact() => format!("{tokens} tokens"),
            Some(tokens) => format!("about {tokens} tokens, by words"),
            None => "nobody can say how many tokens".to_owned(),
        };
        let turn = if prompt.turn > 0 { format!(", turn {}", prompt.turn) } else { String::new() };
        let mut text = format!("\nindex {index}{turn}: {counted}, {} asked for\n", prompt.output_tokens);
        for message in &prompt.messages {
            text.push_str(&format!("{}: {}\n", message.role.name(), message.text));
        }
        Ok(text)
    }

    /// The prompt with this index as a JSON object on a line, with the body that is sent.
    ///
    /// # Errors
    /// When the data set cannot be read any more.
    pub fn json(&self, index: u64) -> anyhow::Result<String> {
        let prompt = self.source.prompt(&self.stream, index)?;
        let body: Value = serde_json::from_slice(&body::render(&self.target, &prompt))?;
        let line = json!({
            "index": index,
            "turn": prompt.turn,
            "input_tokens": prompt.input_tokens,
            "exact": self.source.is_exact(),
            "output_tokens": prompt.output_tokens,
            "workload": self.source.hash(),
            "body": body,
        });
        Ok(format!("{line}\n"))
    }
}
