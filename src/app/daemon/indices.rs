//! Which prompt indices each load may have used, so that none is used again: not after a reload, a restart or SIGKILL.
//!
//! A prompt that was sent before may be answered from the engine's prefix cache, and its latency says nothing. So before a load
//! uses an index, a bound above it is on disk ([`Indices::reached`]), far enough ahead that a write is rare; the next start begins
//! at that bound and skips what was not used, of which there is no want.
//!
//! A disk that does not take the bound stops no load: it shows in `state_saved` and in the log. A file that does not verify is
//! set aside, and the loads begin at an index that rises with the clock faster than requests can be sent, so that it is above whatever
//! the file had. Without a folder nothing is kept, and a restart begins at 0.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tokio::task::JoinSet;

use crate::clock;
use crate::store::Kind;
use crate::store::atomic::{self, FileError};

/// What the file holds.
const KIND: Kind = Kind(*b"indx");

/// The form of its content: a line a load, its name and its bound.
const SCHEMA: u32 = 1;

/// The file within the state's folder.
const FILE: &str = "indices";

/// More indices than a load can use between two looks at it, which are a second apart, or some in a stall.
const MARGIN: u64 = 200_000;

/// Loads that a file may tell of.
const MOST: usize = 100_000;

/// After a damaged file indices begin at the seconds since the Unix epoch, times 2 to this: a million a second.
const CLOCK_BITS: u32 = 20;

/// The indices of all loads, by name.
#[derive(Debug, Default)]
pub(super) struct Indices {
    file: Option<PathBuf>,
    /// Where a load of this name goes on.
    next: BTreeMap<String, u64>,
    /// No index at or above it has been used.
    reserved: BTreeMap<String, u64>,
    /// Where a load begins that nothing is known of.
    floor: u64,
    /// The bounds of `reserved` are on their way to the disk.
    writing: JoinSet<Result<(), FileError>>,
    /// There are bounds that the disk does not have.
    unsaved: bool,
    /// The last write failed.
    failing: bool,
}

impl Indices {
    /// What was kept in the state's folder. A file that does not verify is set aside and said.
    ///
    /// # Errors
    /// When the file is there and cannot be read, is of a later version, or cannot be set aside.
    pub(super) fn open(dir: Option<&Path>) -> Result<Self, FileError> {
        let Some(file) = dir.map(|dir| dir.join(FILE)) else { return Ok(Self::default()) };
        let content = match atomic::read(&file, KIND, SCHEMA) {
            Ok(content) => content.map(|bytes| parse(&bytes)),
            Err(FileError::Damaged { .. } | FileError::TooLarge { .. } | FileError::OtherKind { .. }) => Some(None),
            Err(error) => return Err(error),
        };
        let mut indices = Self { file: Some(file.clone()), ..Self::default() };
        match content {
            None => {}
            Some(Some(bounds)) => {
                indices.next.clone_from(&bounds);
                indices.reserved = bounds;
            }
            Some(None) => {
                let aside = atomic::set_aside(&file).map_err(|source| FileError::Write { path: file, source })?;
                indices.floor = clock::unix_now().as_secs() << CLOCK_BITS;
                tracing::warn!(
                    "the indices of prompts were damaged and are set aside as {}; loads go on at {}",
                    aside.display(),
                    indices.floor
                );
            }
        }
        Ok(indices)
    }

    /// Where a load begins, or began.
    pub(super) fn first(&self, name: &str) -> u64 {
        self.next.get(name).copied().unwrap_or(self.floor)
    }

    /// A load begins at [`first`](Self::first). Returns when its bound is on disk, or was refused by it.
    pub(super) async fn begins(&mut self, name: &str) {
        let first = self.first(name);
        self.next.insert(name.to_owned(), first);
        self.reached(name, first);
        // A write that is under way does not have it.
        self.settle().await;
        self.save();
        self.settle().await;
    }

    /// A load has ended, or is about to: another of its name begins behind what it can have used.
    pub(super) fn leaves(&mut self, name: &str, next_index: u64) {
        let next = self.next.entry(name.to_owned()).or_default();
        *next = (*next).max(next_index + MARGIN);
    }

    /// A load is at this index. To be called once a second; does not wait for the disk.
    pub(super) fn reached(&mut self, name: &str, next_index: u64) {
        let bound = self.reserved.entry(name.to_owned()).or_default();
        if next_index + MARGIN > *bound {
            *bound = next_index + 2 * MARGIN;
            self.unsaved = true;
        }
    }

    /// Takes in what the disk has done, and gives it what there is to do.
    pub(super) fn keep(&mut self) {
        while let Some(written) = self.writing.try_join_next() {
            self.written(written);
        }
        if self.writing.is_empty() {
            self.save();
        }
    }

    /// Whether every bound is on disk, or nothing is to be kept.
    pub(super) fn is_saved(&self) -> bool {
        !self.failing
    }

    /// Waits for the disk.
    async fn settle(&mut self) {
        while let Some(written) = self.writing.join_next().await {
            self.written(written);
        }
    }

    fn save(&mut self) {
        let Some(file) = self.file.clone().filter(|_| self.unsaved) else { return };
        self.unsaved = false;
        let content = render(&self.reserved);
        self.writing.spawn_blocking(move || atomic::write(&file, KIND, SCHEMA, content.as_bytes()));
    }

    fn written(&mut self, written: Result<Result<(), FileError>, tokio::task::JoinError>) {
        match written {
            Ok(Ok(())) => {
                if self.failing {
                    tracing::info!("the indices of prompts are saved again");
                }
                self.failing = false;
            }
            Ok(Err(error)) => {
                self.unsaved = true;
                if !self.failing {
                    let error = format!("{:#}", anyhow::Error::new(error));
                    tracing::error!(
                        error,
                        "the indices of prompts cannot be saved (state.dir): the load goes on, but after a restart prompts may be sent again"
                    );
                }
                self.failing = true;
            }
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }
}

fn render(bounds: &BTreeMap<String, u64>) -> String {
    bounds.iter().map(|(name, bound)| format!("{name} {bound}\n")).collect()
}

/// `None` for what [`render`] did not write.
fn parse(bytes: &[u8]) -> Option<BTreeMap<String, u64>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let lines = text.lines().take(MOST).map(|line| {
        let (name, bound) = line.split_once(' ')?;
        let bound: u64 = bound.parse().ok()?;
        // An index stands in sums: it has to have room above it.
        (!name.is_empty() && bound < u64::MAX / 4).then(|| (name.to_owned(), bound))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("steadyload-indices-{name}-{}", std::process::id()));
            fs::remove_dir_all(&dir).ok();
            fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    /// Waits for the disk, as a second's end does not.
    async fn settled(indices: &mut Indices) {
        indices.keep();
        indices.settle().await;
    }

    #[tokio::test]
    async fn no_index_is_used_twice_whatever_happens_between() {
        for seed in 0..50 {
            let folder = Folder::new(&format!("fuzz-{seed}"));
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut used = 0;
            let mut indices = Indices::open(Some(&folder.0)).unwrap();
            for life in 0..6 {
                indices.begins("a").await;
                let mut at = indices.first("a");
                assert!(at >= used, "seed {seed}, life {life}: {at} was used, {used} is the first that was not");
                for _ in 0..rng.random_range(0..8) {
                    // What a second can take at most; what the one before gave to the disk is there by its end.
                    settled(&mut indices).await;
                    at += rng.random_range(0..=MARGIN);
                    used = at;
                    indices.reached("a", at);
                }
                if rng.random_bool(0.3) {
                    // A reload.
                    indices.leaves("a", at);
                    continue;
                }
                // A kill: the bound of the last second never gets to the disk.
                indices = Indices::open(Some(&folder.0)).unwrap();
            }
        }
    }

    #[tokio::test]
    async fn a_load_has_indices_of_its_own_and_a_new_one_begins_at_none() {
        let folder = Folder::new("two");
        let mut indices = Indices::open(Some(&folder.0)).unwrap();
        indices.begins("a").await;
        assert_eq!((indices.first("a"), indices.first("b")), (0, 0));
        let mut again = Indices::open(Some(&folder.0)).unwrap();
        assert_eq!((again.first("a"), again.first("b")), (2 * MARGIN, 0));
        again.begins("b").await;
        let third = Indices::open(Some(&folder.0)).unwrap();
        assert_eq!((third.first("a"), third.first("b")), (2 * MARGIN, 2 * MARGIN));
    }

    #[tokio::test]
    async fn a_damaged_file_is_set_aside_and_what_follows_is_above_it() {
        let damages: [fn(&mut Vec<u8>); 4] =
            [|b| b.truncate(3), Vec::clear, |b| b[40] ^= 1, |b| b.extend_from_slice(b"a 9\n")];
        for (number, damage) in damages.into_iter().enumerate() {
            let folder = Folder::new(&format!("damaged-{number}"));
            let mut indices = Indices::open(Some(&folder.0)).unwrap();
            indices.begins("a").await;
            indices.reached("a", 1 << 32);
            settled(&mut indices).await;
            let mut bytes = fs::read(folder.0.join(FILE)).unwrap();
            damage(&mut bytes);
            fs::write(folder.0.join(FILE), bytes).unwrap();
            let mut again = Indices::open(Some(&folder.0)).unwrap();
            assert!(again.first("a") > (1 << 32) + 2 * MARGIN, "{number}: {}", again.first("a"));
            assert!(folder.0.join("indices.bad").exists());
            again.begins("a").await;
            let began = again.first("a");
            assert!(Indices::open(Some(&folder.0)).unwrap().first("a") > began);
        }
    }

    #[tokio::test]
    async fn a_disk_that_takes_nothing_shows_and_is_tried_again() {
        let folder = Folder::new("gone");
        let mut indices = Indices::open(Some(&folder.0)).unwrap();
        fs::remove_dir(&folder.0).unwrap();
        indices.begins("a").await;
        assert!(!indices.is_saved());
        fs::create_dir(&folder.0).unwrap();
        settled(&mut indices).await;
        assert!(indices.is_saved());
        assert_eq!(Indices::open(Some(&folder.0)).unwrap().first("a"), 2 * MARGIN);
    }

    #[test]
    fn only_what_was_written_is_read() {
        let bounds = BTreeMap::from([("a".to_owned(), 7), ("b-2".to_owned(), 400_000)]);
        assert_eq!(parse(render(&bounds).as_bytes()), Some(bounds));
        for text in ["a", "a b", "a -1", " 5", "a 18446744073709551615", "a 99999999999999999999"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(b"a \xff"), None);
    }

    #[tokio::test]
    async fn without_a_folder_nothing_is_kept_and_nothing_fails() {
        let mut indices = Indices::open(None).unwrap();
        indices.begins("a").await;
        indices.reached("a", 5_000_000);
        indices.keep();
        assert!(indices.is_saved());
        indices.leaves("a", 7);
        assert_eq!(indices.first("a"), 7 + MARGIN);
    }
}
