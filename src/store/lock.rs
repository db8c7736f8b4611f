//! One process per directory.
//!
//! The lock is the kernel's (`flock` on a file named `lock`), so it ends with the process, however that ends. A file
//! whose mere existence means "locked" would outlive a SIGKILL. The file itself is never removed: between the removal and
//! the next lock two processes could each hold one.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Name of the lock file within the directory.
const LOCK_FILE: &str = "lock";
/// Longest process id that is read back: the file may hold anything.
const MAX_PID_BYTES: u64 = 20;

/// Holds a directory until it is dropped, or the process ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why the directory could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it: a second daemon on the same state directory. Stop one, or give each its own directory.
    #[error("{} is in use by another process{}", dir.display(), holder.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Held {
        /// The directory.
        dir: PathBuf,
        /// Who says so in the lock file; `None` when nothing legible is in it.
        holder: Option<u32>,
    },
    /// The directory cannot be created, written or locked: its rights, a full disk, or a file system without locks.
    #[error("cannot lock {}", path.display())]
    Io {
        /// The directory or its lock file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Lock {
    /// Creates the directory when it is not there, for the owner only, and takes it.
    ///
    /// # Errors
    /// When another process has it, or the system refuses.
    pub fn take(dir: &Path) -> Result<Self, LockError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|source| LockError::Io { path: dir.to_owned(), source })?;
        let path = dir.join(LOCK_FILE);
        let refused = |source| LockError::Io { path: path.clone(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(refused)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Held { dir: dir.to_owned(), holder: holder(&mut file) });
            }
            Err(TryLockError::Error(source)) => return Err(refused(source)),
        }
        // Only for the message of whoever comes second: a full disk must not keep the first one from its directory.
        if file.set_len(0).is_ok() {
            file.write_all(std::process::id().to_string().as_bytes()).ok();
        }
        Ok(Self { _file: file })
    }
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(MAX_PID_BYTES).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::store::tests::Folder;

    #[test]
    fn a_directory_is_taken_once_and_free_again_when_dropped() {
        let folder = Folder::new();
        let dir = folder.join("a/b");
        let first = Lock::take(&dir).unwrap();
        let refusal = Lock::take(&dir).unwrap_err().to_string();
        assert_eq!(refusal, format!("{} is in use by another process (pid {})", dir.display(), std::process::id()));
        drop(first);
        assert!(Lock::take(&dir).is_ok());
    }

    #[test]
    fn a_lock_file_full_of_anything_is_no_hindrance() {
        let folder = Folder::new();
        fs::write(folder.join(LOCK_FILE), [0xff; 100]).unwrap();
        let first = Lock::take(&folder).unwrap();
        fs::write(folder.join(LOCK_FILE), [0xff; 100]).unwrap();
        assert!(matches!(Lock::take(&folder), Err(LockError::Held { holder: None, .. })));
        drop(first);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let folder = Folder::new();
        fs::write(folder.join("file"), "").unwrap();
        let dir = folder.join("file/state");
        let refusal = Lock::take(&dir).unwrap_err();
        assert_eq!(refusal.to_string(), format!("cannot lock {}", dir.display()));
    }
}
