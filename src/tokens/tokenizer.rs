//! A tokenizer as the folder of a model has it.
//!
//! Two ways of counting, because servers have two: a text alone gets the special tokens of the post-processor, a rendered
//! conversation does not, since its template wrote them. Sections of `tokenizer.json` that cut, pad or draw lots (truncation,
//! padding, the dropout of byte pairs) are switched off: they are left-overs of training and would make a count a lie.
//!
//! A tokenizer that cannot encode every text (one that has no unknown token) is found by probes when it is opened.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::str::Utf8Error;
use std::sync::OnceLock;
use std::{fs, io};

use ring::digest;
use tokenizers::models::ModelWrapper;

use super::files::{self, Chat, MAX_TOKENIZER};
use super::template::{Template, TemplateError};
use crate::domain::hex::hex;
use crate::domain::prompt::Message;

/// What every tokenizer has to encode: letters, signs, other scripts, what no vocabulary has.
const PROBES: [&str; 4] =
    ["The quick brown fox, 123.", "\u{6771}\u{4eac} \u{645}\u{631} e\u{301}", "\u{1f600}\u{10ffff}", "\0\u{1}\n"];

/// Why there is no tokenizer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The folder is not there, or is no folder.
    #[error("cannot list the folder {}: set `tokenizer` to a folder with the model's tokenizer.json", path.display())]
    Folder {
        /// The folder as it was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The folder has no `tokenizer.json`.
    #[error("{} has no tokenizer.json{}: set `tokenizer` to a folder that has one", path.display(), if *model { ", only a tokenizer.model, which has to be converted (transformers' AutoTokenizer saves one)" } else { "" })]
    NoTokenizer {
        /// The folder as it was given.
        path: PathBuf,
        /// Whether it has SentencePiece's own file.
        model: bool,
    },
    /// A file is there and cannot be read.
    #[error("cannot read {}: `tokenizer` needs a folder with readable files", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is larger than any of its kind.
    #[error("{} is larger than {limit} bytes: set `tokenizer` to the folder of a tokenizer", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What it may have.
        limit: u64,
    },
    /// A file is no text in UTF-8.
    #[error("{} is not UTF-8: use the model's own file in the folder that `tokenizer` names", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// Where it is not.
        source: Utf8Error,
    },
    /// A file is no JSON. The cause has line and column.
    #[error("{} is not JSON: use the model's own file in the folder that `tokenizer` names", path.display())]
    NotJson {
        /// The file.
        path: PathBuf,
        /// What was wrong, and where.
        source: serde_json::Error,
    },
    /// `tokenizer.json` describes no tokenizer that the library knows.
    #[error("{} is no tokenizer: use the model's own file in the folder that `tokenizer` names", path.display())]
    NoTokenizerInside {
        /// The file.
        path: PathBuf,
        /// What the library said.
        source: tokenizers::Error,
    },
    /// The tokenizer was read and cannot encode every text.
    #[error("the tokenizer of {} cannot encode {probe:?}: it needs an unknown token or bytes to fall back to", path.display())]
    CannotEncode {
        /// The file.
        path: PathBuf,
        /// What it cannot encode.
        probe: &'static str,
        /// What the library said.
        source: tokenizers::Error,
    },
    /// The chat template does not compile. The cause has the line.
    #[error("the chat template in {} cannot be compiled: use the model's own, or remove it", path.display())]
    Template {
        /// The folder.
        path: PathBuf,
        /// What was wrong, and where.
        source: minijinja::Error,
    },
}

/// Counts tokens as a server with the same files does. Shared in an `Arc`; counting takes no lock that another count waits for long.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    template: Option<Template>,
    hash: String,
    ordinary: OnceLock<Vec<String>>,
}

impl Tokenizer {
    /// Reads `tokenizer.json` and what there is of `chat_template.jinja`, `chat_template.json` and `tokenizer_config.json`.
    ///
    /// # Errors
    ///
    /// When a file is missing, unreadable, too large or not what its name says. See [`OpenError`].
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        fs::read_dir(dir).map_err(|source| OpenError::Folder { path: dir.to_owned(), source })?;
        let Some(bytes) = files::read(dir, "tokenizer.json", MAX_TOKENIZER)? else {
            let model = dir.join("tokenizer.model").exists();
            return Err(OpenError::NoTokenizer { path: dir.to_owned(), model });
        };
        let Chat { template, special } = files::chat(dir)?;
        let path = dir.join("tokenizer.json");
        let inner = load(&bytes).map_err(|source| OpenError::NoTokenizerInside { path: path.clone(), source })?;
        for probe in PROBES {
            let encoded = guarded(|| inner.encode_fast(probe, true));
            encoded.map_err(|source| OpenError::CannotEncode { path: path.clone(), probe, source })?;
        }
        let hash = hash(&bytes, template.as_deref(), special.iter());
        let template = template
            .map(|text| Template::compile(text, special))
            .transpose()
            .map_err(|source| OpenError::Template { path: dir.to_owned(), source })?;
        Ok(Self { inner, template, hash, ordinary: OnceLock::new() })
    }

    /// SHA-256 in hexadecimal digits over all that a count depends on: `tokenizer.json` as it is, the chat template and the special
    /// tokens that it may write.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Whether the folder has a chat template.
    #[must_use]
    pub fn has_template(&self) -> bool {
        self.template.is_some()
    }

    /// Tokens of a text that is sent as a prompt of its own, special tokens of the post-processor included, as
    /// `/v1/completions` counts. `u32::MAX` if the tokenizer cannot encode it, so that no length is ever fitted by it.
    #[must_use]
    pub fn count_text(&self, text: &str) -> u32 {
        self.count(text, true).unwrap_or(u32::MAX)
    }

    /// Tokens of a text inside of another: no special tokens are added. `u32::MAX` as for [`Self::count_text`].
    #[must_use]
    pub fn count_plain(&self, text: &str) -> u32 {
        self.count(text, false).unwrap_or(u32::MAX)
    }

    /// Tokens of a conversation up to where the model is to begin: rendered with `add_generation_prompt` and encoded without
    /// adding special tokens, as vLLM and SGLang count `/v1/chat/completions`.
    ///
    /// # Errors
    ///
    /// Without a template, and when the template refuses the conversation. See [`TemplateError`].
    pub fn count_chat(&self, messages: &[Message]) -> Result<u32, TemplateError> {
        let text = self.template.as_ref().ok_or(TemplateError::Missing)?.render(messages)?;
        self.count(&text, false).ok_or(TemplateError::Encode)
    }

    /// Pieces for random text, in the order of their ids: entries of the vocabulary as they look inside a text (most begin with a
    /// blank), without special and added tokens, without control characters and what cannot be seen, and only those that
    /// are encoded, alone, as the one token they come from. Worked out at the first call, which takes about a second for 150,000 entries.
    #[must_use]
    pub fn ordinary(&self) -> &[String] {
        self.ordinary.get_or_init(|| self.find_ordinary())
    }

    fn count(&self, text: &str, special: bool) -> Option<u32> {
        u32::try_from(self.inner.encode_fast(text, special).ok()?.len()).ok()
    }

    fn find_ordinary(&self) -> Vec<String> {
        let added = self.inner.get_added_tokens_decoder();
        let mut ids: Vec<u32> =
            self.inner.get_vocab(false).into_values().filter(|id| !added.contains_key(id)).collect();
        ids.sort_unstable();
        ids.dedup();
        // Behind another token, because a decoder drops the blank at the beginning of a text.
        let anchor = self.inner.encode_fast("a", false).map(|encoding| encoding.get_ids().to_vec()).unwrap_or_default();
        let before = self.inner.decode(&anchor, false).unwrap_or_default();
        let piece = |id: u32| {
            let text = self.inner.decode(&[anchor.as_slice(), &[id]].concat(), false).ok()?;
            let piece = text.strip_prefix(&before)?.to_owned();
            let alone = is_visible(&piece) && self.inner.encode_fast(piece.as_str(), false).ok()?.get_ids() == [id];
            alone.then_some(piece)
        };
        ids.into_iter().filter_map(piece).collect()
    }
}

/// The tokenizer with everything switched off that cuts, pads or draws lots.
///
/// The library panics on some files that are no tokenizers (`expect` in the reading of its decoders); here that is an error.
fn load(bytes: &[u8]) -> Result<tokenizers::Tokenizer, tokenizers::Error> {
    guarded(|| {
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes)?;
        inner.with_truncation(None)?;
        inner.with_padding(None);
        if let ModelWrapper::BPE(model) = inner.get_model()
            && model.dropout.is_some()
        {
            let mut model = model.clone();
            model.dropout = None;
            inner.with_model(model);
        }
        Ok(inner)
    })
}

/// What `call` returns, or an error if the library panicked in it. Nothing that `call` changed is used after a panic.
fn guarded<T>(call: impl FnOnce() -> Result<T, tokenizers::Error>) -> Result<T, tokenizers::Error> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err("the library gave up on it".into()))
}

/// Every part with its length before it, so that no two folders run together into the same bytes.
fn hash<'a>(
    tokenizer: &[u8],
    template: Option<&str>,
    special: impl Iterator<Item = (&'a String, &'a String)>,
) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    let mut part = |bytes: &[u8]| {
        context.update(bytes.len().to_string().as_bytes());
        context.update(b":");
        context.update(bytes);
    };
    part(tokenizer);
    if let Some(template) = template {
        part(template.as_bytes());
        for (name, text) in special {
            part(name.as_bytes());
            part(text.as_bytes());
        }
    }
    hex(context.finish().as_ref())
}

/// Whether a person would see something, and nothing that acts on its surroundings.
fn is_visible(piece: &str) -> bool {
    let acts = |c: char| matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff0}'..='\u{ffff}' | '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..='\u{10ffff}');
    !piece.trim().is_empty() && !piece.chars().any(|c| c.is_control() || acts(c))
}

#[cfg(test)]
mod tests;
