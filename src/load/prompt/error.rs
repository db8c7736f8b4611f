//! Why there are no prompts.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::file::MAX_ENTRIES;
use super::lines::MAX_BYTES;
use crate::tokens::{OpenError, TemplateError};

/// Why a workload's data set cannot be used.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The file is not there, or may not be read.
    #[error("workloads.{workload}.path: {} cannot be read; name a file that this user may read", path.display())]
    Unreadable {
        /// The workload.
        workload: String,
        /// Its file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A folder, a pipe or a device: only a file can be read at a place.
    #[error("workloads.{workload}.path: {} is {what}, wants a file", path.display())]
    NotAFile {
        /// The workload.
        workload: String,
        /// What was named.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// There is nothing to send.
    #[error("workloads.{workload}.path: {} has {what}, wants at least one", path.display())]
    Empty {
        /// The workload.
        workload: String,
        /// Its file.
        path: PathBuf,
        /// What there is none of.
        what: &'static str,
    },
    /// Entries that cannot be used, under `broken_lines = "refuse"`.
    #[error(
        "workloads.{workload}.path: {} has {count} broken: {listed}; mend them, or set \
         workloads.{workload}.broken_lines = \"skip\"",
        path.display()
    )]
    Broken {
        /// The workload.
        workload: String,
        /// Its file.
        path: PathBuf,
        /// How many there are, in words.
        count: String,
        /// The first of them.
        listed: String,
    },
    /// `dataset = "sharegpt"` is one JSON list, and this is none.
    #[error("workloads.{workload}.path: {}:{line}: {what}; dataset sharegpt wants one JSON list", path.display())]
    NotAList {
        /// The workload.
        workload: String,
        /// Its file.
        path: PathBuf,
        /// Where it ceases to be one, from 1.
        line: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// The file has more entries than are indexed.
    #[error("workloads.{workload}.path: {} has more than {MAX_ENTRIES} entries; split it", path.display())]
    TooMany {
        /// The workload.
        workload: String,
        /// Its file.
        path: PathBuf,
    },
    /// The text of `dataset = "sonnet"` is larger than is kept in memory.
    #[error("workloads.{workload}.path: {} is larger than {MAX_BYTES} bytes; name a shorter text", path.display())]
    TextTooLarge {
        /// The workload.
        workload: String,
        /// Its file.
        path: PathBuf,
    },
    /// There is no tokenizer that can be used.
    #[error("workloads.{workload}.tokenizer cannot be used")]
    Tokenizer {
        /// The workload.
        workload: String,
        /// Why.
        source: Box<OpenError>,
    },
    /// The model's template refuses conversations of this kind.
    #[error("workloads.{workload}.tokenizer: its chat template refuses what the workload sends")]
    Template {
        /// The workload.
        workload: String,
        /// Why.
        source: Box<TemplateError>,
    },
    /// The tokenizer has no piece of text that stands for itself.
    #[error("workloads.{workload}.tokenizer: {} has no ordinary tokens to make text of", path.display())]
    NoPieces {
        /// The workload.
        workload: String,
        /// The folder.
        path: PathBuf,
    },
    /// The text of `dataset = "sonnet"` is not UTF-8.
    #[error("workloads.{workload}.path: {}:{line} is not UTF-8; convert the file", path.display())]
    NotText {
        /// The workload.
        workload: String,
        /// Its file.
        path: PathBuf,
        /// Where, from 1.
        line: usize,
    },
}

/// Why one prompt cannot be made.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file is not the one that was indexed.
    #[error(
        "workloads.{workload}.path: {} was changed while it was in use; reload the configuration to read it anew",
        path.display()
    )]
    Changed {
        /// The workload.
        workload: String,
        /// Its file.
        path: PathBuf,
    },
    /// It cannot be read any more.
    #[error("workloads.{workload}.path: {} cannot be read any more", path.display())]
    Unreadable {
        /// The workload.
        workload: String,
        /// Its file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}
