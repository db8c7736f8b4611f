//! The bytes of a segment. Pure but for reading from a file; who does what about damage is decided elsewhere.
//!
//! A header, then records until the end of the file; numbers are little-endian:
//!
//! | header | what | | record | what |
//! |---|---|---|---|---|
//! | 8 | magic `STLDLOG\0` | | 4 | length of the payload |
//! | 4 | format of this layout | | 4 | CRC32 of the rest of the record |
//! | 4 | [`Kind`] | | 8 | seconds since 1970, signed |
//! | 4 | schema of the payloads, the caller's number | | … | payload |
//! | 4 | CRC32 of the above | | | |
//!
//! There is no footer and no count: a segment is whole after every record.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use crc32fast::Hasher as Crc32;

use crate::store::{Kind, array};

/// Largest payload. A length beyond it is damage, so that a flipped bit does not ask for 4 GiB of memory.
pub const MAX_PAYLOAD: usize = 16 << 20;
/// Bytes of a record before its payload.
pub(super) const RECORD_HEAD: usize = 16;
/// Bytes of a segment before its first record.
pub(super) const HEADER: usize = 24;

const MAGIC: [u8; 8] = *b"STLDLOG\0";
const FORMAT: u32 = 1;
/// Where the timestamp of a record begins, and with it what its checksum covers.
const CHECKED_FROM: usize = 8;

/// What does not verify in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The first bytes are not those of a log.
    #[error("it is not a log of steadyload")]
    Magic,
    /// The header is cut short or does not match its checksum.
    #[error("its header is damaged")]
    Header,
    /// Written by another version, whose layout this one does not know.
    #[error("its layout has format {0}, not {FORMAT}")]
    Format(u32),
    /// A log of something else.
    #[error("it is a log of {0:?}")]
    Kind(Kind),
    /// Payloads of another schema, written by an earlier or later version.
    #[error("its records have schema {0}")]
    Schema(u32),
    /// A record that does not match its checksum, though more follows.
    #[error("the record at byte {0} is damaged")]
    Record(u64),
}

/// What a log is a log of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) kind: Kind,
    pub(super) schema: u32,
}

impl Label {
    pub(super) fn header(self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        let fields = MAGIC.into_iter().chain(FORMAT.to_le_bytes()).chain(self.kind.0).chain(self.schema.to_le_bytes());
        for (byte, field) in header.iter_mut().zip(fields) {
            *byte = field;
        }
        let (checked, checksum) = header.split_at_mut(HEADER - 4);
        checksum.copy_from_slice(&crc32fast::hash(checked).to_le_bytes());
        header
    }

    /// Whether these are the first bytes of one of our segments. Fewer than a header are, when its writer died on them:
    /// see [`Walk::start`].
    fn check(self, header: &[u8]) -> Result<(), Damage> {
        let number = |at| array(header, at).map(u32::from_le_bytes).ok_or(Damage::Header);
        if array(header, 0) != Some(MAGIC) {
            return Err(Damage::Magic);
        }
        let (format, kind, schema) = (number(8)?, array(header, 12).map(Kind), number(16)?);
        // The checksum is of this format; another may have put it elsewhere.
        if format != FORMAT {
            return Err(Damage::Format(format));
        }
        if header.get(..HEADER - 4).map(crc32fast::hash) != Some(number(20)?) {
            return Err(Damage::Header);
        }
        match kind {
            Some(kind) if kind != self.kind => Err(Damage::Kind(kind)),
            _ if schema != self.schema => Err(Damage::Schema(schema)),
            _ => Ok(()),
        }
    }
}

/// A record as it is written. The payload has at most [`MAX_PAYLOAD`] bytes.
pub(super) fn encode(secs: i64, payload: &[u8], into: &mut Vec<u8>) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    into.extend_from_slice(&length.to_le_bytes());
    into.extend_from_slice(&checksum(secs, payload).to_le_bytes());
    into.extend_from_slice(&secs.to_le_bytes());
    into.extend_from_slice(payload);
}

/// Size of a record with a payload of so many bytes.
fn size(payload: usize) -> u64 {
    (RECORD_HEAD + payload) as u64
}

fn checksum(secs: i64, payload: &[u8]) -> u32 {
    let mut crc = Crc32::new();
    crc.update(&secs.to_le_bytes());
    crc.update(payload);
    crc.finalize()
}

/// Length of the payload, checksum, seconds.
fn head(bytes: &[u8]) -> Option<(usize, u32, i64)> {
    let length = usize::try_from(u32::from_le_bytes(array(bytes, 0)?)).ok()?;
    Some((length, u32::from_le_bytes(array(bytes, 4)?), i64::from_le_bytes(array(bytes, CHECKED_FROM)?)))
}

/// Whether an intact record of the year before `latest_secs` begins anywhere in these bytes. It tells a record that was
/// never finished from one that was damaged later: nothing is ever written behind an unfinished one.
///
/// `None` when looking would take too long; only bytes made to be mistaken for records need that.
pub(super) fn finds_record(bytes: &[u8], latest_secs: i64) -> Option<bool> {
    /// Twice what the largest unfinished record can hold.
    const MOST_CHECKED: usize = 2 * MAX_PAYLOAD;
    /// Without it, a payload of small numbers and zeros looks like the beginnings of a hundred thousand records.
    const YEAR_SECS: i64 = 366 * 24 * 3600;
    let mut checked = 0;
    for at in 0..bytes.len().saturating_sub(RECORD_HEAD - 1) {
        let Some(rest) = bytes.get(at..) else { break };
        let Some((length, written, secs)) = head(rest) else { break };
        // The time first: hardly any bytes but those of a record have one that is possible.
        if !(latest_secs.saturating_sub(YEAR_SECS)..=latest_secs).contains(&secs) {
            continue;
        }
        let Some(payload) = rest.get(RECORD_HEAD..).and_then(|rest| rest.get(..length)) else { continue };
        checked += length;
        if checked > MOST_CHECKED {
            return None;
        }
        if checksum(secs, payload) == written {
            return Some(true);
        }
    }
    Some(false)
}

/// Goes through a segment record by record, with one payload in memory.
#[derive(Debug)]
pub(super) struct Walk {
    file: BufReader<File>,
    /// Size of the file at the start: a record that is being appended meanwhile is not looked at.
    len: u64,
    /// Where the next record begins.
    at: u64,
}

/// What the walk came upon.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// An intact record.
    Record {
        secs: i64,
        payload: Vec<u8>,
    },
    End,
    /// A record that reaches the end of the file, or would reach further, and is not intact: what is left of a writer
    /// that was killed, or what one that is at work has not finished.
    Unfinished,
    /// A record that is not intact, with more behind it.
    Damaged,
}

impl Walk {
    /// Opens a segment and checks its header. An empty file is one whose first record was never finished, and so is the
    /// beginning of a header.
    pub(super) fn start(path: &Path, label: Label) -> io::Result<Result<Self, Damage>> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let mut file = BufReader::with_capacity(64 << 10, file);
        let mut header = Vec::with_capacity(HEADER);
        file.by_ref().take(HEADER as u64).read_to_end(&mut header)?;
        if label.header().starts_with(&header) {
            let at = header.len() as u64;
            return Ok(Ok(Self { file, len: len.max(at), at }));
        }
        Ok(label.check(&header).map(|()| Self { file, len, at: HEADER as u64 }))
    }

    /// Where the last step ended: after a record, behind it; otherwise, before what stopped the walk. Less than
    /// [`HEADER`] when that is incomplete.
    pub(super) fn position(&self) -> u64 {
        self.at
    }

    /// Size of the file at the start.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The next record. After anything else than a record the walk is over.
    pub(super) fn step(&mut self) -> io::Result<Step> {
        let left = self.len.saturating_sub(self.at);
        if left == 0 && (self.at == 0 || self.at >= HEADER as u64) {
            return Ok(Step::End);
        }
        if self.at < HEADER as u64 || left < RECORD_HEAD as u64 {
            return Ok(Step::Unfinished);
        }
        let mut bytes = [0; RECORD_HEAD];
        if let Some(stopped) = cut_short(self.file.read_exact(&mut bytes))? {
            return Ok(stopped);
        }
        let Some((length, written, secs)) = head(&bytes) else { return Ok(Step::Unfinished) };
        let reaches_end = size(length) >= left;
        if size(length) > left || length > MAX_PAYLOAD {
            return Ok(if reaches_end { Step::Unfinished } else { Step::Damaged });
        }
        let mut payload = vec![0; length];
        if let Some(stopped) = cut_short(self.file.read_exact(&mut payload))? {
            return Ok(stopped);
        }
        if checksum(secs, &payload) != written {
            return Ok(if reaches_end { Step::Unfinished } else { Step::Damaged });
        }
        self.at += size(length);
        Ok(Step::Record { secs, payload })
    }
}

/// The file became shorter while it was read: its writer took back what it could not finish.
fn cut_short(read: io::Result<()>) -> io::Result<Option<Step>> {
    match read {
        Ok(()) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Some(Step::Unfinished)),
        Err(error) => Err(error),
    }
}
