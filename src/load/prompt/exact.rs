//! Lengths counted with the model's own tokenizer, as its server counts them.

use std::path::Path;

use super::{Count, SourceError};
use crate::config::sections::{Dataset, Workload};
use crate::domain::api::Api;
use crate::domain::prompt::{Message, Role, joined};
use crate::tokens::Tokenizer;

/// A tokenizer that can count what the workload sends.
#[derive(Debug)]
pub(super) struct Exact {
    tokenizer: Tokenizer,
    /// What is counted is what the server counts.
    is_exact: bool,
}

impl Exact {
    /// Opens the folder, and tries the template on a conversation of the kind that will be sent: one that the model's template
    /// refuses, its server refuses too.
    ///
    /// # Errors
    /// When the folder has no tokenizer that can be used.
    pub(super) fn open(name: &str, workload: &Workload, dir: &Path, api: Api) -> Result<Self, SourceError> {
        let of = || name.to_owned();
        let tokenizer = Tokenizer::open(dir)
            .map_err(|source| SourceError::Tokenizer { workload: of(), source: Box::new(source) })?;
        let rendered = api == Api::OpenAiChat && tokenizer.has_template();
        if rendered {
            tokenizer
                .count_chat(&kind(workload))
                .map_err(|source| SourceError::Template { workload: of(), source: Box::new(source) })?;
        }
        if tokenizer.ordinary().is_empty() {
            return Err(SourceError::NoPieces { workload: of(), path: dir.to_owned() });
        }
        Ok(Self { is_exact: rendered || api != Api::OpenAiChat, tokenizer })
    }
}

/// A conversation with the roles of this workload's.
fn kind(workload: &Workload) -> Vec<Message> {
    let say = |role| Message { role, text: "so".to_owned() };
    let system = matches!(workload.dataset, Dataset::SharedPrefix { .. }).then(|| say(Role::System));
    let later = if workload.turns.get() > 1 { vec![say(Role::Assistant), say(Role::User)] } else { Vec::new() };
    system.into_iter().chain([say(Role::User)]).chain(later).collect()
}

impl Count for Exact {
    /// Without a template the messages alone: what the server's adds is not known here.
    fn chat(&self, messages: &[Message]) -> u32 {
        if self.tokenizer.has_template() {
            // A conversation of a file that the template refuses has no length.
            return self.tokenizer.count_chat(messages).unwrap_or(u32::MAX);
        }
        self.tokenizer.count_text(&joined(messages))
    }

    fn completion(&self, text: &str) -> u32 {
        self.tokenizer.count_text(text)
    }

    fn plain(&self, text: &str) -> u32 {
        self.tokenizer.count_plain(text)
    }

    fn pieces(&self) -> &[String] {
        self.tokenizer.ordinary()
    }

    fn identity(&self) -> String {
        format!("tokenizer {}", self.tokenizer.hash())
    }

    fn is_exact(&self) -> bool {
        self.is_exact
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::path::PathBuf;

    use super::*;
    use crate::config::sections::{Bounds, Length};
    use crate::load::prompt::{Part, Source, Stream};
    use crate::load::schedule::plan::Shard;

    const FAMILIES: [&str; 3] = ["byte-level-bpe", "unigram", "wordpiece"];

    fn tokens(n: u32) -> NonZeroU32 {
        NonZeroU32::new(n).unwrap()
    }

    fn dir(family: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tokenizers").join(family)
    }

    fn workload(family: &str, dataset: Dataset, input: u32) -> Workload {
        let mut workload = Workload::random(tokens(input), tokens(20), 1);
        workload.dataset = dataset;
        workload.tokenizer = Some(dir(family));
        workload
    }

    fn stream() -> Stream {
        Stream { load: "a".to_owned(), shard: Shard::WHOLE, part: Part::Measured }
    }

    #[test]
    fn every_made_up_data_set_has_exactly_the_length_asked_for_in_every_family() {
        for family in FAMILIES {
            let counter = Tokenizer::open(&dir(family)).unwrap();
            for dataset in [
                Dataset::Random,
                Dataset::Sonnet { path: None, prefix_tokens: Some(tokens(64)) },
                Dataset::SharedPrefix { groups: tokens(8), prefix_tokens: tokens(64) },
            ] {
                for asked in [200_u32, 256, 1000] {
                    for api in [Api::OpenAiChat, Api::OpenAiCompletions] {
                        let source = Source::of("w", &workload(family, dataset.clone(), asked), api).unwrap();
                        assert!(source.is_exact());
                        for index in 0..4 {
                            let prompt = source.prompt(&stream(), index).unwrap();
                            let counted = match api {
                                Api::OpenAiChat => counter.count_chat(&prompt.messages).unwrap(),
                                Api::OpenAiCompletions | Api::SglangGenerate => {
                                    counter.count_text(&joined(&prompt.messages))
                                }
                            };
                            // This template writes a lone message twice, so not every length exists.
                            let spare = u32::from(family == "wordpiece" && api == Api::OpenAiChat);
                            assert!(
                                counted.abs_diff(asked) <= spare,
                                "{family} {dataset} {api} {asked}: {counted} tokens"
                            );
                            assert_eq!(prompt.input_tokens, Some(counted), "what is said is what is sent");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn lengths_that_are_drawn_are_met_too() {
        let mut drawn = workload("byte-level-bpe", Dataset::Random, 1);
        drawn.input_tokens = Some(Length::Uniform(Bounds { min: tokens(40), max: tokens(400) }));
        let source = Source::of("w", &drawn, Api::OpenAiChat).unwrap();
        let lengths: Vec<_> = (0..50).filter_map(|n| source.prompt(&stream(), n).unwrap().input_tokens).collect();
        assert_eq!(lengths.len(), 50);
        assert!(lengths.iter().all(|length| (40..=400).contains(length)), "{lengths:?}");
        assert!(lengths.iter().max().unwrap() - lengths.iter().min().unwrap() > 200, "{lengths:?}");
    }

    #[test]
    fn another_tokenizer_makes_another_workload() {
        let hash = |family| {
            Source::of("w", &workload(family, Dataset::Random, 64), Api::OpenAiChat).unwrap().hash().to_owned()
        };
        let hashes = FAMILIES.map(hash);
        assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[0] != hashes[2]);
        let without = Source::of("w", &Workload::random(tokens(64), tokens(20), 1), Api::OpenAiChat).unwrap();
        assert!(!hashes.contains(&without.hash().to_owned()));
    }

    #[test]
    fn a_folder_without_a_tokenizer_is_named_with_its_setting() {
        let mut missing = workload("byte-level-bpe", Dataset::Random, 64);
        for (path, part) in [(dir("nowhere"), "nowhere"), (PathBuf::from(env!("CARGO_MANIFEST_DIR")), "tokenizer.json")]
        {
            missing.tokenizer = Some(path);
            let error = Source::of("w", &missing, Api::OpenAiChat).unwrap_err();
            let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
            assert!(text.starts_with("workloads.w.tokenizer") && text.contains(part), "{text}");
        }
    }
}
