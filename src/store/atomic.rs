//! Whole small files that are either the old one or the new one, whenever the power fails.
//!
//! Written to a temporary file in the same directory, synced, renamed over the old one, and the directory synced.
//! Layout, all numbers little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | magic `STLDFIL\0` |
//! | 4 | format of this header |
//! | 4 | [`Kind`] |
//! | 4 | schema of the content, the caller's number |
//! | 8 | length of the content |
//! | 4 | CRC32 of all of the above and of the content |
//! | … | content |
//!
//! The checksum covers the header, so a flipped bit in the schema is damage and not "written by a newer version".
//! [`replace`] is the same without a header, for files that people read and diff.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crc32fast::Hasher as Crc32;

use crate::store::{Kind, array};

/// Largest content: these files are read whole. A baseline is some hundred kilobytes.
pub const MAX_CONTENT: usize = 64 << 20;

const MAGIC: [u8; 8] = *b"STLDFIL\0";
const FORMAT: u32 = 1;
/// Bytes before the checksum.
const CHECKED_HEADER: usize = 28;
const HEADER: usize = CHECKED_HEADER + 4;
/// For the owner only: prompts and addresses are nobody else's business.
const MODE: u32 = 0o600;

/// Why a file could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be written: rights, a full disk, no such directory. The file that was there is as it was.
    #[error("cannot write {}; what was there before is unchanged", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The new file is in place, but the system did not confirm it: a power cut may bring the old one back.
    #[error("{} is written, but may not survive a power cut", path.display())]
    Unconfirmed {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is there but cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// More than [`MAX_CONTENT`].
    #[error("{} holds {bytes} bytes, more than the {MAX_CONTENT} that are read", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size, or that of what was to be written.
        bytes: u64,
    },
    /// Not a file of this program, cut short, or changed since. [`set_aside`] keeps it for inspection.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not verify.
        what: FileDamage,
    },
    /// A file of this program, intact, but of something else: two files were mixed up.
    #[error("{} holds {found:?}, not {wanted:?}", path.display())]
    OtherKind {
        /// The file.
        path: PathBuf,
        /// What it says it is.
        found: Kind,
        /// What was asked for.
        wanted: Kind,
    },
    /// Written by an earlier version. Reading it with the schema `found` gives its content, to be migrated.
    #[error("{} has schema {found}, older than {known}", path.display())]
    Older {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// The one that was asked for.
        known: u32,
    },
    /// Written by a later version, so it must not be overwritten by this one: go back to that version, or move it.
    #[error("{} has schema {found}; this version knows up to {known}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// The one that was asked for.
        known: u32,
    },
}

/// What does not verify in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FileDamage {
    /// The first bytes are not ours.
    #[error("it is not a file of steadyload")]
    Magic,
    /// A header that this version does not know.
    #[error("its header has format {0}, not {FORMAT}")]
    Format(u32),
    /// Cut short, or with something behind its end.
    #[error("its header promises another length")]
    Length,
    /// Some byte is not the one that was written.
    #[error("its checksum does not match")]
    Checksum,
}

/// Puts `content` in place of the file, with a header that [`read`] verifies.
///
/// # Errors
/// When it is too large or the system refuses.
pub fn write(path: &Path, kind: Kind, schema: u32, content: &[u8]) -> Result<(), FileError> {
    if content.len() > MAX_CONTENT {
        return Err(FileError::TooLarge { path: path.to_owned(), bytes: content.len() as u64 });
    }
    let mut bytes = Vec::with_capacity(HEADER + content.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&kind.0);
    bytes.extend_from_slice(&schema.to_le_bytes());
    bytes.extend_from_slice(&(content.len() as u64).to_le_bytes());
    let checksum = checksum(&bytes, content);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(content);
    replace(path, &bytes)
}

/// Puts `bytes` in place of the file as they are.
///
/// # Errors
/// When the system refuses.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let failed = |source| FileError::Write { path: path.to_owned(), source };
    let mut temporary = Temporary::beside(path).map_err(failed)?;
    temporary.file.write_all(bytes).map_err(failed)?;
    temporary.rename_over(path).map_err(failed)?;
    sync_parent(path).map_err(|source| FileError::Unconfirmed { path: path.to_owned(), source })
}

/// The content of a file that [`write()`] made; `None` when there is no such file.
///
/// # Errors
/// When it cannot be read or does not verify in every byte.
pub fn read(path: &Path, kind: Kind, schema: u32) -> Result<Option<Vec<u8>>, FileError> {
    let failed = |source| FileError::Read { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let most = (HEADER + MAX_CONTENT) as u64;
    let bytes = file.metadata().map_err(failed)?.len();
    if bytes > most {
        return Err(FileError::TooLarge { path: path.to_owned(), bytes });
    }
    let mut held = Vec::new();
    // The limit again: the file may grow, or be no regular one.
    file.take(most + 1).read_to_end(&mut held).map_err(failed)?;
    let (found, found_schema) = verify(&held).map_err(|what| FileError::Damaged { path: path.to_owned(), what })?;
    let path = || path.to_owned();
    if found != kind {
        return Err(FileError::OtherKind { path: path(), found, wanted: kind });
    }
    match found_schema {
        found if found < schema => Err(FileError::Older { path: path(), found, known: schema }),
        found if found > schema => Err(FileError::Newer { path: path(), found, known: schema }),
        _ => {
            held.drain(..HEADER);
            Ok(Some(held))
        }
    }
}

/// Moves a file out of the way, to `NAME.bad`, or `.bad.1`, `.bad.2`, … when that is taken. Returns where it is.
///
/// # Errors
/// When there is no such file, or the system refuses.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = reserve_aside(path)?;
    if let Err(error) = fs::rename(path, &aside) {
        fs::remove_file(&aside).ok();
        return Err(error);
    }
    sync_parent(path)?;
    Ok(aside)
}

/// [`set_aside`] for a file of which a part is to stay in use: the copy is whole.
pub(in crate::store) fn copy_aside(path: &Path) -> io::Result<PathBuf> {
    let mut temporary = Temporary::beside(path)?;
    io::copy(&mut File::open(path)?, &mut temporary.file)?;
    let aside = reserve_aside(path)?;
    if let Err(error) = temporary.rename_over(&aside) {
        fs::remove_file(&aside).ok();
        return Err(error);
    }
    sync_parent(path)?;
    Ok(aside)
}

/// Removes what writers that were killed have left in a directory, and returns it. Only for who holds the directory
/// (see [`super::lock`]): a writer that is still at work would lose its file.
///
/// # Errors
/// When the directory cannot be read or a file not be removed.
pub fn remove_leftovers(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if is_temporary(&entry.file_name().to_string_lossy()) && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
            removed.push(entry.path());
        }
    }
    Ok(removed)
}

/// Makes a change of names in the directory of `path` durable.
pub(in crate::store) fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// A file under a name that nobody else has, gone when it is dropped before it was renamed.
struct Temporary {
    file: File,
    path: Option<PathBuf>,
}

impl Temporary {
    fn beside(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
        // `RandomState` is seeded by the system and differs at every call. The name need not be secret: `create_new`
        // refuses one that is taken.
        let random = RandomState::new().build_hasher().finish();
        let path = path.with_file_name(format!(".{name}.{random:016x}.tmp"));
        let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&path)?;
        Ok(Self { file, path: Some(path) })
    }

    fn rename_over(mut self, path: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        if let Some(temporary) = &self.path {
            fs::rename(temporary, path)?;
        }
        self.path = None;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            fs::remove_file(path).ok();
        }
    }
}

/// `.NAME.` and sixteen hexadecimal digits and `.tmp`, as [`Temporary`] names them.
fn is_temporary(name: &str) -> bool {
    let random =
        name.strip_prefix('.').and_then(|name| name.strip_suffix(".tmp")).and_then(|name| name.rsplit_once('.'));
    random.is_some_and(|(name, random)| {
        !name.is_empty() && random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// An empty file under the first free name. It holds the name, so that the rename over it overwrites nothing.
fn reserve_aside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    for count in 0..u32::MAX {
        let mut name = name.to_owned();
        name.push(".bad");
        if count > 0 {
            name.push(format!(".{count}"));
        }
        let aside = path.with_file_name(name);
        match OpenOptions::new().write(true).create_new(true).mode(MODE).open(&aside) {
            Ok(_) => return Ok(aside),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Kind and schema of an intact file.
fn verify(held: &[u8]) -> Result<(Kind, u32), FileDamage> {
    let number = |at| array(held, at).map(u32::from_le_bytes).ok_or(FileDamage::Length);
    match array(held, 0) {
        Some(MAGIC) => {}
        _ => return Err(FileDamage::Magic),
    }
    match number(8)? {
        FORMAT => {}
        other => return Err(FileDamage::Format(other)),
    }
    let kind = array(held, 12).map(Kind).ok_or(FileDamage::Length)?;
    let schema = number(16)?;
    let length = array(held, 20).map(u64::from_le_bytes).ok_or(FileDamage::Length)?;
    let written = number(CHECKED_HEADER)?;
    let (Some(header), Some(content)) = (held.get(..CHECKED_HEADER), held.get(HEADER..)) else {
        return Err(FileDamage::Length);
    };
    if content.len() as u64 != length {
        return Err(FileDamage::Length);
    }
    if checksum(header, content) != written {
        return Err(FileDamage::Checksum);
    }
    Ok((kind, schema))
}

fn checksum(header: &[u8], content: &[u8]) -> u32 {
    let mut crc = Crc32::new();
    crc.update(header);
    crc.update(content);
    crc.finalize()
}

#[cfg(test)]
mod tests;
