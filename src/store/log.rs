//! An append-only log: small records, one a minute, that are there after a SIGKILL.
//!
//! A directory holds one segment an hour, so that what is old goes by removing whole files and nothing is ever rewritten.
//! A database would do as much and bring its own format, threads and recovery; the order of the records and the end of
//! the last one is all there is to keep here.
//!
//! Invariants:
//!
//! - A segment is whole after every record: a record is one write, then a sync. If that fails, the file is cut back.
//! - A record that was reported as written is read again, or its damage is reported. No other bytes are ever returned.
//! - A record lies in the segment of its hour or in a later one, so a segment older than `keep` holds nothing younger.
//!   It is in a later one when the clock was put back: then the newest segment goes on, up to `keep` into the future.
//!   Beyond that the *earlier* time was the wrong one, and the segments of that future are left alone.
//! - At most one process has the log open; any number may read.
//!
//! The whole log is read at a start, to know that it is good: what is found damaged only weeks later, when a baseline is
//! built, cannot be explained any more.
//!
//! Known limit: age is counted by the wall clock. One that jumps ahead by more than `keep` while the log is open, or
//! before it is opened, expires everything.

mod hour;
mod read;
mod recover;
mod segment;
mod tail;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

pub use read::{Record, Records, read};
pub use recover::{SetAside, Torn};
pub use segment::{Damage, MAX_PAYLOAD};
pub use tail::Left;

use crate::store::Kind;
use crate::store::atomic;
use crate::store::lock::{Lock, LockError};
use hour::{Hour, unix_secs};
use recover::{Ending, inspect, mend};
use segment::Label;
use tail::{Medium, TailError};

/// What follows the hour in a segment's name.
const EXTENSION: &str = ".seg";
/// For the owner only.
const MODE: u32 = 0o600;

/// A log that this process may append to.
#[derive(Debug)]
pub struct Log {
    dir: PathBuf,
    label: Label,
    keep: Duration,
    /// Where the good records of each segment end.
    ends: BTreeMap<Hour, u64>,
    _lock: Lock,
}

/// What a start has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Intact records.
    pub records: u64,
    /// Last records that were never finished. Usually at most one, of the segment that was being written.
    pub torn: Vec<Torn>,
    /// Damaged segments, kept under other names.
    pub set_aside: Vec<SetAside>,
    /// Segments that were too old and have been removed.
    pub expired: u64,
}

/// Why the log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Another process has it, or the directory cannot be written.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The directory cannot be listed: it is not there, or its rights are wrong.
    #[error("cannot list {}", dir.display())]
    List {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What was found at the start cannot be read, cut or set aside. Setting aside needs as much room as the segment.
    #[error("cannot check {}; it is as it was", path.display())]
    Recover {
        /// The segment, or the directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The record is not in the log: a full disk, rights, or a failing device. The next append may succeed.
    #[error("cannot append to {}: {left}", path.display())]
    Append {
        /// The segment.
        path: PathBuf,
        /// What the segment ends with now.
        left: Left,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else has written, cut or put the file there. The record is not in the log. A restart checks it anew.
    #[error("{} was changed by something else; nothing is written to it until a restart has checked it", path.display())]
    Changed {
        /// The segment.
        path: PathBuf,
    },
    /// More than [`MAX_PAYLOAD`]. The record is not in the log.
    #[error("a record of {bytes} bytes is larger than {MAX_PAYLOAD}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// A segment that is too old cannot be removed: rights of the directory. After an append, its record *is* written.
    #[error("cannot remove the expired {}; nothing else is affected", path.display())]
    Expire {
        /// The segment.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A segment is there but cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The segment.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What does not verify. The next start sets it aside.
    #[error("{} is damaged: {damage}", path.display())]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// What is wrong.
        damage: Damage,
    },
}

impl Log {
    /// Takes the directory, which is created when it is not there, removes what is older than `keep` and mends the rest.
    ///
    /// # Errors
    /// When another process has the log, or the system refuses.
    pub fn open(
        dir: &Path,
        kind: Kind,
        schema: u32,
        keep: Duration,
        now: SystemTime,
    ) -> Result<(Self, Opened), LogError> {
        let lock = Lock::take(dir)?;
        // As far as it can be done: the directory above may be readable to others only.
        atomic::sync_parent(dir).ok();
        atomic::remove_leftovers(dir).map_err(|source| LogError::Recover { path: dir.to_owned(), source })?;
        let label = Label { kind, schema };
        let ends = segments(dir)?.into_keys().map(|hour| (hour, 0)).collect();
        let mut log = Self { dir: dir.to_owned(), label, keep, ends, _lock: lock };
        let mut opened = Opened { expired: log.expire(now)?, ..Opened::default() };
        log.recover(&mut opened)?;
        Ok((log, opened))
    }

    /// Writes a record and waits until it is on the disk. The first of an hour begins a segment and removes those that
    /// are too old at `at`; they go first, because the disk may be full.
    ///
    /// # Errors
    /// When the record is not in the log; with [`LogError::Expire`] it is.
    pub fn append(&mut self, at: SystemTime, payload: &[u8]) -> Result<(), LogError> {
        if payload.len() > MAX_PAYLOAD {
            return Err(LogError::TooLarge { bytes: payload.len() });
        }
        let hour = self.hour_for(at);
        let expired = if self.ends.contains_key(&hour) { Ok(0) } else { self.expire(at) };
        self.write(hour, unix_secs(at), payload)?;
        expired.map(|_| ())
    }

    /// The records from a point in time. It does not hold the log: appending goes on meanwhile.
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub fn read(&self, from: SystemTime) -> Result<Records, LogError> {
        read(&self.dir, self.label.kind, self.label.schema, from)
    }

    /// The hour of `at`, or the newest there is, unless that is further ahead than a segment lives.
    fn hour_for(&self, at: SystemTime) -> Hour {
        let own = Hour::of(unix_secs(at));
        let horizon = at.checked_add(self.keep).map_or(Hour::LAST, |time| Hour::of(unix_secs(time)));
        self.ends.range(..=horizon).next_back().map_or(own, |(newest, _)| own.max(*newest))
    }

    fn write(&mut self, hour: Hour, secs: i64, payload: &[u8]) -> Result<(), LogError> {
        let path = segment_path(&self.dir, hour);
        let failed = |left, source| LogError::Append { path: path.clone(), left, source };
        let known = self.ends.get(&hour).copied();
        // Not truncated here: `tail::add` does that, to what is known to be good.
        let file = OpenOptions::new().write(true).create_new(known.is_none()).mode(MODE).open(&path).map_err(
            |source| match (source.kind(), known) {
                (io::ErrorKind::AlreadyExists, None) | (io::ErrorKind::NotFound, Some(_)) => {
                    LogError::Changed { path: path.clone() }
                }
                _ => failed(Left::Whole, source),
            },
        )?;
        let good = *self.ends.entry(hour).or_insert(0);
        let mut bytes = Vec::with_capacity(segment::HEADER + segment::RECORD_HEAD + payload.len());
        if good == 0 {
            bytes.extend_from_slice(&self.label.header());
        }
        segment::encode(secs, payload, &mut bytes);
        let end = tail::add(&file, good, &bytes).map_err(|error| match error {
            TailError::Shrunk => LogError::Changed { path: path.clone() },
            TailError::Failed { left, source } => failed(left, source),
        })?;
        if good == 0
            && let Err(source) = atomic::sync_parent(&path)
        {
            // The file may not be there after a power cut, so it does not count as written.
            return Err(failed(if file.cut(0).is_ok() { Left::Whole } else { Left::Part }, source));
        }
        self.ends.insert(hour, end);
        Ok(())
    }

    /// Removes the segments that ended more than `keep` before `now`, and says how many.
    fn expire(&mut self, now: SystemTime) -> Result<u64, LogError> {
        let Some(oldest) = now.checked_sub(self.keep).map(|time| Hour::of(unix_secs(time))) else { return Ok(0) };
        let mut expired = 0;
        while let Some(entry) = self.ends.first_entry().filter(|entry| *entry.key() < oldest) {
            let path = segment_path(&self.dir, *entry.key());
            match fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(LogError::Expire { path, source });
                }
                _ => entry.remove(),
            };
            expired += 1;
        }
        Ok(expired)
    }

    fn recover(&mut self, opened: &mut Opened) -> Result<(), LogError> {
        let mut foreign = Vec::new();
        for (hour, end) in &mut self.ends {
            let path = segment_path(&self.dir, *hour);
            let failed = |source| LogError::Recover { path: path.clone(), source };
            let found = inspect(&path, self.label, *hour).map_err(failed)?;
            opened.set_aside.extend(mend(&path, &found).map_err(failed)?);
            opened.records += found.records;
            *end = found.end;
            match found.ending {
                Ending::Torn(bytes) => opened.torn.push(Torn { path, bytes }),
                Ending::Foreign(_) => foreign.push(*hour),
                Ending::Clean | Ending::Damaged(_) => {}
            }
        }
        self.ends.retain(|hour, _| !foreign.contains(hour));
        Ok(())
    }
}

fn segment_path(dir: &Path, hour: Hour) -> PathBuf {
    dir.join(format!("{hour}{EXTENSION}"))
}

/// The segments of a directory, oldest first. Whatever else lies there is nobody's.
fn segments(dir: &Path) -> Result<BTreeMap<Hour, PathBuf>, LogError> {
    let failed = |source| LogError::List { dir: dir.to_owned(), source };
    let mut segments = BTreeMap::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if let Some(hour) = entry.file_name().to_str().and_then(|name| Hour::parse(name.strip_suffix(EXTENSION)?)) {
            segments.insert(hour, entry.path());
        }
    }
    Ok(segments)
}

#[cfg(test)]
mod tests;
