//! What has to survive a restart, a SIGKILL and a power cut: an append-only log ([`log`]) and whole small files
//! ([`atomic`]).
//!
//! Everything on disk says what it is (magic, format, kind, schema) and carries a checksum that is verified on read. What
//! does not verify is set aside under another name, never overwritten, so that a bug of ours or a dying disk leaves
//! something to look at.
//!
//! All of it is synchronous `std::fs`: the caller decides which thread waits for the disk. Not here: what the bytes
//! mean, which is the business of the part that writes them.

pub mod atomic;
pub mod lock;
pub mod log;

use std::fmt;

/// What a file holds, as four letters in its header: a log of windows is not read as a log of anything else.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind(pub [u8; 4]);

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind({self})")
    }
}

/// The next `N` bytes of `bytes` at `at`; `None` when there are not as many.
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::ops::Deref;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Kind;

    /// A folder of its own for each test, gone afterwards.
    pub(super) struct Folder(PathBuf);

    impl Folder {
        pub(super) fn new() -> Self {
            Self::within(&std::env::temp_dir())
        }

        /// In memory where there is such a place, for what syncs thousands of times. It may have room for little.
        pub(super) fn in_memory() -> Self {
            let memory = Path::new("/dev/shm");
            if memory.is_dir() { Self::within(memory) } else { Self::new() }
        }

        fn within(dir: &Path) -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = dir.join(format!("steadyload-store-{}-{count}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        /// The names in it, sorted.
        pub(super) fn names(&self) -> Vec<String> {
            let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
            let mut names: Vec<_> = fs::read_dir(&self.0).unwrap().map(name).collect();
            names.sort();
            names
        }
    }

    impl Deref for Folder {
        type Target = Path;

        fn deref(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    #[test]
    fn a_kind_reads_as_its_letters() {
        assert_eq!((Kind(*b"ring").to_string(), Kind(*b"a\x00b\n").to_string()), ("ring".into(), "a\\x00b\\n".into()));
    }
}
