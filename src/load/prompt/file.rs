//! A data set in a file: indexed once, never loaded, read at a place when an entry is wanted.
//!
//! The index has 16 bytes an entry, so memory is bounded by [`MAX_ENTRIES`], not by the file. Every entry is parsed when it is
//! indexed, so that what is broken is known, with its line, before anything is sent. A file that changes afterwards would give
//! prompts that nobody can make again: it is noticed by its length and its time, and refused.

use std::fmt::Write;
use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ring::digest::{Context, SHA256};

use super::entry::{self, Entry, Form, Unfit};
use super::error::{ReadError, SourceError};
use super::scan::{self, At, Found, MAX_BYTES, Stop};
use crate::config::sections::{BrokenLines, DataFile};

/// Most entries: their index has 64 MB.
pub(super) const MAX_ENTRIES: usize = 4_000_000;

/// So many broken entries are named before the rest is only counted.
const NAMED: u64 = 10;

/// How much is read at once while indexing.
const CHUNK: usize = 256 << 10;

/// Entries that were left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Skipped {
    /// Broken ones, under `broken_lines = "skip"`.
    pub broken: u64,
    /// Conversations with fewer than two turns.
    pub short: u64,
}

/// A file whose entries can be read.
#[derive(Debug)]
pub(super) struct Entries {
    workload: String,
    path: PathBuf,
    form: Form,
    file: File,
    state: (u64, Option<SystemTime>),
    index: Vec<(u64, u32)>,
    skipped: Skipped,
    digest: Vec<u8>,
}

/// The length of what is a plain file.
pub(super) fn plain(workload: &str, path: &Path) -> Result<u64, SourceError> {
    let (workload, path) = (workload.to_owned(), path.to_owned());
    // Before it is opened: opening a pipe waits for somebody to write.
    let found = match fs::metadata(&path) {
        Ok(found) => found,
        Err(source) => return Err(SourceError::Unreadable { workload, path, source }),
    };
    let kind = found.file_type();
    let what = match () {
        () if kind.is_file() && found.len() > 0 => return Ok(found.len()),
        () if kind.is_file() => return Err(SourceError::Empty { workload, path, what: "no byte" }),
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a pipe",
        () => "a device or a socket",
    };
    Err(SourceError::NotAFile { workload, path, what })
}

/// What tells one state of a file from another.
fn state(found: &Metadata) -> (u64, Option<SystemTime>) {
    (found.len(), found.modified().ok())
}

impl Entries {
    /// Indexes a file.
    pub(super) fn open(workload: &str, form: Form, file: &DataFile) -> Result<Self, SourceError> {
        let DataFile { path, broken } = file;
        plain(workload, path)?;
        let place = || (workload.to_owned(), path.clone());
        let unreadable = |source| {
            let (workload, path) = place();
            SourceError::Unreadable { workload, path, source }
        };
        let file = File::open(path).map_err(unreadable)?;
        let state = state(&file.metadata().map_err(unreadable)?);
        let mut index = Index::new(form, *broken == BrokenLines::Refuse);
        let mut hash = Context::new(&SHA256);
        let reader = BufReader::with_capacity(CHUNK, Hashed { file: &file, hash: &mut hash });
        let scanned = match form {
            Form::ShareGpt => scan::list(reader, |found| index.take(found)),
            Form::Jsonl => scan::lines(reader, |found| index.take(found)),
        };
        let (workload, path) = place();
        match scanned {
            Err(Stop::Io(source)) => return Err(SourceError::Unreadable { workload, path, source }),
            Err(Stop::Enough(Full::Entries)) => return Err(SourceError::TooMany { workload, path }),
            // The end of a file that is cut off is one more that is broken.
            Err(Stop::NotAList(line, what)) if index.strict || index.at.is_empty() => {
                return Err(SourceError::NotAList { workload, path, line, what });
            }
            Err(Stop::Enough(Full::Broken) | Stop::NotAList(..)) | Ok(()) => {}
        }
        if index.strict && index.skipped.broken > 0 {
            return Err(index.refusal(workload, path));
        }
        if index.at.is_empty() {
            return Err(SourceError::Empty { workload, path, what: "no entry that can be used" });
        }
        let Index { at, skipped, .. } = index;
        let digest = hash.finish().as_ref().to_vec();
        Ok(Self { workload, path, form, file, state, index: at, skipped, digest })
    }

    /// How many entries can be read.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// What was left out.
    pub(super) const fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// SHA-256 of the file's bytes.
    pub(super) fn digest(&self) -> &[u8] {
        &self.digest
    }

    /// The entry at this position, from 0; positions go round.
    pub(super) fn get(&self, position: usize) -> Result<Entry, ReadError> {
        let unreadable = |source| {
            let (workload, path) = (self.workload.clone(), self.path.clone());
            ReadError::Unreadable { workload, path, source }
        };
        let changed = || ReadError::Changed { workload: self.workload.clone(), path: self.path.clone() };
        let position = position.checked_rem(self.index.len()).unwrap_or_default();
        let Some((offset, length)) = self.index.get(position) else { return Err(changed()) };
        let mut bytes = vec![0; usize::try_from(*length).unwrap_or_default()];
        match self.file.read_exact_at(&mut bytes, *offset) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(changed()),
            read => read.map_err(unreadable)?,
        }
        // After reading: what was written before it is seen.
        if state(&self.file.metadata().map_err(unreadable)?) != self.state {
            return Err(changed());
        }
        entry::read(self.form, &bytes).map_err(|_| changed())
    }
}

/// Why indexing ends early.
enum Full {
    /// There are too many entries.
    Entries,
    /// One that is broken is so long that what follows is not worth reading.
    Broken,
}

/// An index that is being made.
struct Index {
    form: Form,
    strict: bool,
    at: Vec<(u64, u32)>,
    skipped: Skipped,
    /// The first broken ones.
    named: String,
}

impl Index {
    fn new(form: Form, strict: bool) -> Self {
        Self { form, strict, at: Vec::new(), skipped: Skipped::default(), named: String::new() }
    }

    fn take(&mut self, found: Found<'_>) -> Result<(), Full> {
        match found {
            Found::Entry(At { offset, line }, bytes) => match entry::read(self.form, bytes) {
                Ok(_) if self.at.len() >= MAX_ENTRIES => Err(Full::Entries),
                Ok(_) => {
                    self.at.push((offset, u32::try_from(bytes.len()).unwrap_or(u32::MAX)));
                    Ok(())
                }
                Err(Unfit::Short) => {
                    self.skipped.short += 1;
                    Ok(())
                }
                Err(Unfit::Broken(what)) => {
                    self.broken(line, &what);
                    Ok(())
                }
            },
            Found::TooLong(At { line, .. }) => {
                self.broken(line, &format!("is longer than {MAX_BYTES} bytes"));
                if self.strict { Err(Full::Broken) } else { Ok(()) }
            }
        }
    }

    fn broken(&mut self, line: u64, what: &str) {
        if self.skipped.broken < NAMED {
            let separator = if self.named.is_empty() { "" } else { ", " };
            write!(self.named, "{separator}line {line}: {what}").ok();
        }
        self.skipped.broken += 1;
    }

    fn refusal(self, workload: String, path: PathBuf) -> SourceError {
        let one = if self.form == Form::Jsonl { ("line", "lines") } else { ("entry", "entries") };
        let count = match self.skipped.broken {
            1 => format!("one {}", one.0),
            n => format!("{n} {}", one.1),
        };
        let more = if self.skipped.broken > NAMED { ", …" } else { "" };
        SourceError::Broken { workload, path, count, listed: format!("{}{more}", self.named) }
    }
}

/// A file whose bytes are hashed as they are read.
struct Hashed<'a> {
    file: &'a File,
    hash: &'a mut Context,
}

impl Read for Hashed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.hash.update(buffer.get(..read).unwrap_or_default());
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
