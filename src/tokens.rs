//! Counting tokens as a server would, and making text of an exact number of them.
//!
//! [`Tokenizer`] counts with the files that the server has too; [`fit()`] makes a text of a given count, whatever counts;
//! [`calibrate`] stands in where there is no tokenizer, and learns from the server's own counts. All of it is a function of
//! its arguments: the same files give the same counts on any machine, on one thread, without network, environment or clock.
//!
//! The library is the one that most servers count with. Its regular expressions are run by `fancy-regex`, which is Rust,
//! and not by oniguruma, which is C; `tests/tokenizers` holds the counts to those of the Python package, which uses the latter.
//!
//! Absent: `tokenizer.model` (SentencePiece's own file) and tiktoken files, which have to be converted; tools, images and
//! documents in a conversation; content given as a list of parts, which some templates of vision models ask for.

pub mod calibrate;
mod files;
mod fit;
mod template;
mod tokenizer;

pub use fit::{Fitted, fit};
pub use template::TemplateError;
pub use tokenizer::{OpenError, Tokenizer};
