//! Adding to the end of a segment so that it ends either before or after a record, never within one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What is needed of a file; a test puts one in its place that fails.
pub(super) trait Medium {
    /// Size in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Cuts to a size.
    fn cut(&self, len: u64) -> io::Result<()>;
    /// Writes all of it at a position.
    fn put(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Waits until it would survive a power cut.
    fn sync(&self) -> io::Result<()>;
}

impl Medium for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn cut(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn put(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        // The size is needed to read the data back, so fdatasync writes it too.
        self.sync_data()
    }
}

/// What a failed append has left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Left {
    /// What was there before, and nothing else.
    #[error("the log ends with the record before")]
    Whole,
    /// Perhaps a part of the record. Readers stop before it; the next append, or the next start, cuts it off.
    #[error("a part of the record is left at its end and will be cut off by the next append")]
    Part,
}

/// Why nothing was added.
#[derive(Debug)]
pub(super) enum TailError {
    /// The file is shorter than what was written to it.
    Shrunk,
    Failed {
        left: Left,
        source: io::Error,
    },
}

/// Adds `bytes` at `good`, the end of what is known to be whole, and returns the new end. What a failed append has left
/// beyond `good` is cut off first.
pub(super) fn add(medium: &impl Medium, good: u64, bytes: &[u8]) -> Result<u64, TailError> {
    let left_before = |source| TailError::Failed { left: Left::Part, source };
    let len = medium.len().map_err(left_before)?;
    if len < good {
        return Err(TailError::Shrunk);
    }
    if len > good {
        medium.cut(good).map_err(left_before)?;
    }
    match medium.put(bytes, good).and_then(|()| medium.sync()) {
        Ok(()) => Ok(good + bytes.len() as u64),
        Err(source) => {
            // Also when only the sync failed: what the kernel then holds may never reach the disk.
            let left = if medium.cut(good).is_ok() { Left::Whole } else { Left::Part };
            Err(TailError::Failed { left, source })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// A file in memory with room for so many bytes, on which a call may fail.
    #[derive(Default)]
    struct Disk {
        bytes: RefCell<Vec<u8>>,
        room: Cell<usize>,
        no_cut: Cell<bool>,
        no_sync: Cell<bool>,
    }

    fn refuse(when: bool) -> io::Result<()> {
        if when { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    impl Medium for Disk {
        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.borrow().len() as u64)
        }

        fn cut(&self, len: u64) -> io::Result<()> {
            refuse(self.no_cut.get())?;
            self.bytes.borrow_mut().resize(usize::try_from(len).unwrap(), 0);
            Ok(())
        }

        fn put(&self, bytes: &[u8], at: u64) -> io::Result<()> {
            let at = usize::try_from(at).unwrap();
            let fits = bytes.len().min(self.room.get().saturating_sub(at));
            let mut held = self.bytes.borrow_mut();
            if held.len() < at + fits {
                held.resize(at + fits, 0);
            }
            held[at..at + fits].copy_from_slice(&bytes[..fits]);
            refuse(fits < bytes.len())
        }

        fn sync(&self) -> io::Result<()> {
            refuse(self.no_sync.get())
        }
    }

    fn left(result: Result<u64, TailError>) -> Left {
        match result.unwrap_err() {
            TailError::Failed { left, .. } => left,
            TailError::Shrunk => panic!("shrunk"),
        }
    }

    #[test]
    fn a_full_disk_leaves_what_was_there_and_takes_the_next_when_there_is_room() {
        let disk = Disk { room: Cell::new(12), ..Disk::default() };
        assert_eq!(add(&disk, 0, b"12345678").unwrap(), 8);
        assert_eq!(left(add(&disk, 8, b"abcdefgh")), Left::Whole);
        assert_eq!(*disk.bytes.borrow(), b"12345678");
        disk.room.set(16);
        assert_eq!(add(&disk, 8, b"ABCDEFGH").unwrap(), 16);
        assert_eq!(*disk.bytes.borrow(), b"12345678ABCDEFGH");
    }

    #[test]
    fn a_record_that_was_not_confirmed_is_taken_back() {
        let disk = Disk { room: Cell::new(99), no_sync: Cell::new(true), ..Disk::default() };
        assert_eq!(left(add(&disk, 0, b"12345678")), Left::Whole);
        assert!(disk.bytes.borrow().is_empty());
    }

    #[test]
    fn what_cannot_be_cut_off_now_is_cut_off_before_the_next() {
        let disk = Disk { room: Cell::new(6), no_cut: Cell::new(true), ..Disk::default() };
        assert_eq!(left(add(&disk, 0, b"12345678")), Left::Part);
        assert_eq!(*disk.bytes.borrow(), b"123456");
        assert_eq!(left(add(&disk, 0, b"ab")), Left::Part, "still cannot be cut");
        disk.no_cut.set(false);
        assert_eq!(add(&disk, 0, b"ab").unwrap(), 2);
        assert_eq!(*disk.bytes.borrow(), b"ab");
    }

    #[test]
    fn a_file_that_somebody_else_has_cut_is_not_filled_up_with_zeros() {
        let disk = Disk { room: Cell::new(99), bytes: RefCell::new(b"123".to_vec()), ..Disk::default() };
        assert!(matches!(add(&disk, 4, b"ab"), Err(TailError::Shrunk)));
        assert_eq!(*disk.bytes.borrow(), b"123");
    }
}
