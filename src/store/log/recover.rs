//! What a start finds in a segment, and what it does about it.
//!
//! Two things are told apart. A **torn** end is what a killed writer leaves: bytes of one record that was never finished.
//! It is cut off and reported; nothing else was lost. **Damage** is everything else: a foreign header, or a record that
//! does not match its checksum although it was finished. Damage is set aside whole, for whoever wants to look, and what
//! was good before it stays in the log.
//!
//! In doubt it is damage. The length of a record can itself be damaged and make it seem to reach the end of the file, so
//! an end counts as torn only when no intact record is found within it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::store::atomic;
use crate::store::log::hour::Hour;
use crate::store::log::segment::{Damage, HEADER, Label, MAX_PAYLOAD, RECORD_HEAD, Step, Walk, finds_record};

/// Most bytes that one unfinished record can have left.
const MOST_TORN: u64 = (RECORD_HEAD + MAX_PAYLOAD + HEADER) as u64;

/// A last record that was never finished, and was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// The segment.
    pub path: PathBuf,
    /// Bytes that were cut off.
    pub bytes: u64,
}

/// A damaged segment that was kept for inspection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// Where it is now, whole.
    pub path: PathBuf,
    /// What is wrong with it.
    pub damage: Damage,
}

/// What a segment holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Intact records from its beginning.
    pub(super) records: u64,
    /// Where they end; 0 when there is not even a header.
    pub(super) end: u64,
    pub(super) ending: Ending,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Clean,
    /// So many bytes behind the end.
    Torn(u64),
    /// Behind the end.
    Damaged(Damage),
    /// In the header: nothing of it can be read.
    Foreign(Damage),
}

/// Reads a segment to its end.
pub(super) fn inspect(path: &Path, label: Label, hour: Hour) -> io::Result<Found> {
    let mut walk = match Walk::start(path, label)? {
        Ok(walk) => walk,
        Err(damage) => return Ok(Found { records: 0, end: 0, ending: Ending::Foreign(damage) }),
    };
    let mut records = 0;
    let mut step = walk.step()?;
    while matches!(step, Step::Record { .. }) {
        records += 1;
        step = walk.step()?;
    }
    let end = if walk.position() < HEADER as u64 { 0 } else { walk.position() };
    let reaches_end = match step {
        Step::End | Step::Record { .. } => return Ok(Found { records, end, ending: Ending::Clean }),
        Step::Unfinished => true,
        Step::Damaged => false,
    };
    let bytes = walk.len() - end;
    let ending = if bytes <= MOST_TORN && is_torn(&rest(path, end)?, reaches_end, hour) {
        Ending::Torn(bytes)
    } else {
        Ending::Damaged(Damage::Record(end))
    };
    Ok(Found { records, end, ending })
}

/// Brings a segment to the end of its good records. Damage is set aside first.
pub(super) fn mend(path: &Path, found: &Found) -> io::Result<Option<SetAside>> {
    let aside = match found.ending {
        Ending::Clean => return Ok(None),
        Ending::Foreign(damage) => return Ok(Some(SetAside { path: atomic::set_aside(path)?, damage })),
        Ending::Damaged(damage) => Some(SetAside { path: atomic::copy_aside(path)?, damage }),
        Ending::Torn(_) => None,
    };
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(found.end)?;
    file.sync_all()?;
    Ok(aside)
}

/// Whether these bytes are all of one unfinished record. `reaches_end`: its length says so. A power cut can also leave
/// zeros, where the file has grown and its data did not arrive.
fn is_torn(rest: &[u8], reaches_end: bool, hour: Hour) -> bool {
    let later = rest.get(1..).unwrap_or_default();
    (reaches_end && finds_record(later, hour.last_sec()) == Some(false)) || rest.iter().all(|byte| *byte == 0)
}

fn rest(path: &Path, from: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut rest = Vec::new();
    file.take(MOST_TORN).read_to_end(&mut rest)?;
    Ok(rest)
}
