//! Reading a log from a point in time, one record in memory, also while another thread or process appends.

use std::io;
use std::iter::FusedIterator;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::vec;

use crate::store::Kind;
use crate::store::log::hour::{Hour, system_time, unix_secs};
use crate::store::log::segment::{Damage, Label, Step, Walk};
use crate::store::log::{LogError, segments};

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// When it was written, in whole seconds.
    pub at: SystemTime,
    /// What was written.
    pub payload: Vec<u8>,
}

/// The records from a point in time, in the order in which they were written (by hour, if the clock was ever put back
/// by more than a segment lives).
///
/// Damage is an `Err` in its place; after it comes what the next segment holds. A record that is being appended
/// meanwhile, or was never finished, is not there.
#[derive(Debug)]
pub struct Records {
    label: Label,
    from_secs: i64,
    segments: vec::IntoIter<PathBuf>,
    open: Option<(PathBuf, Walk)>,
}

/// Reads a log that may be in use by another process. It sees the segments that are there now.
///
/// # Errors
/// When there is no such directory, or it cannot be listed.
pub fn read(dir: &Path, kind: Kind, schema: u32, from: SystemTime) -> Result<Records, LogError> {
    let from_secs = unix_secs(from);
    // A segment holds nothing later than its hour; earlier it can be, when the clock was put back.
    let from_hour = Hour::of(from_secs);
    let segments: Vec<_> =
        segments(dir)?.into_iter().filter(|(hour, _)| *hour >= from_hour).map(|(_, path)| path).collect();
    Ok(Records { label: Label { kind, schema }, from_secs, segments: segments.into_iter(), open: None })
}

impl Records {
    /// What the next step into the open segment gives; `None` when it has no more.
    fn step(&mut self) -> Option<Result<Record, LogError>> {
        let (path, walk) = self.open.as_mut()?;
        let position = walk.position();
        let stopped = match walk.step() {
            Ok(Step::Record { secs, payload }) => match system_time(secs) {
                Some(at) => return Some(Ok(Record { at, payload })),
                None => Some(LogError::Damaged { path: path.clone(), damage: Damage::Record(position) }),
            },
            Ok(Step::End | Step::Unfinished) => None,
            Ok(Step::Damaged) => Some(LogError::Damaged { path: path.clone(), damage: Damage::Record(position) }),
            Err(source) => Some(LogError::Read { path: path.clone(), source }),
        };
        self.open = None;
        stopped.map(Err)
    }
}

impl Iterator for Records {
    type Item = Result<Record, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.step() {
                Some(Ok(record)) if unix_secs(record.at) < self.from_secs => continue,
                Some(step) => return Some(step),
                None => {}
            }
            let path = self.segments.next()?;
            match Walk::start(&path, self.label) {
                Ok(Ok(walk)) => self.open = Some((path, walk)),
                Ok(Err(damage)) => return Some(Err(LogError::Damaged { path, damage })),
                // Expired since the directory was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Some(Err(LogError::Read { path, source })),
            }
        }
    }
}

impl FusedIterator for Records {}
