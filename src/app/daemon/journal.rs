//! The minutes of all loads on disk: eight days of them, for windows after a restart and for baselines.
//!
//! One record a minute holds the closed sub-windows of every load, each under its [`Series`]: a minute of another workload or
//! another model must not come back as this one's. A thread of its own waits for the disk. What cannot be written is kept and
//! tried again with the next minute, up to an hour of it; meanwhile the load goes on, and `state_saved` is 0.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::clock;
use crate::export::view::StateView;
use crate::measure::window::sub::{MAX_ENCODED, SubWindow};
use crate::store::Kind;
use crate::store::log::{Log, LogError, Opened};

/// What the log holds.
const KIND: Kind = Kind(*b"mins");
/// The form of a record.
const SCHEMA: u32 = 1;
/// As long as the longest baseline, and a day more.
const KEEP: Duration = Duration::from_secs(8 * 86_400);
/// The folder within the state's.
const FOLDER: &str = "minutes";
/// Minutes that may wait for a disk that does not take them.
const WAITING: usize = 60;
/// Minutes on their way to the thread.
const QUEUE: usize = 4;
/// Longest name of a series.
const MAX_SERIES: usize = 4096;

/// What must be the same for two minutes to belong together: load, target, model, and what is sent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Series(pub(super) String);

/// The minutes of all loads that end together.
pub(super) type Minute = Vec<(Series, Arc<SubWindow>)>;

/// The thread that writes.
pub(super) struct Journal {
    queue: SyncSender<(SystemTime, Vec<u8>)>,
    standing: Arc<Mutex<StateView>>,
    dropped: u64,
    thread: thread::JoinHandle<()>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("dropped", &self.dropped).finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens the log in the state's folder and reads what it has of the last 24 h, the oldest first.
    pub(super) fn open(dir: &Path) -> Result<(Log, Opened, Vec<Minute>), LogError> {
        let now = clock::wall_now();
        let (log, opened) = Log::open(&dir.join(FOLDER), KIND, SCHEMA, KEEP, now)?;
        let since = now.checked_sub(Duration::from_secs(86_400)).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut minutes = Vec::new();
        for record in log.read(since)? {
            match record {
                Ok(record) => match decode(&record.payload) {
                    Some(minute) => minutes.push(minute),
                    None => tracing::warn!("a saved minute cannot be read and is left out"),
                },
                Err(error) => tracing::warn!(%error, "saved minutes are left out"),
            }
        }
        Ok((log, opened, minutes))
    }

    /// Starts the thread.
    pub(super) fn start(log: Log, dir: &Path) -> io::Result<Self> {
        let dir = dir.join(FOLDER);
        let (queue, received) = sync_channel(QUEUE);
        let standing = Arc::new(Mutex::new(StateView { saved: true, saved_unix: None }));
        let shown = Arc::clone(&standing);
        let thread =
            thread::Builder::new().name("state".to_owned()).spawn(move || write_all(log, dir, &received, &shown))?;
        Ok(Self { queue, standing, dropped: 0, thread })
    }

    /// Hands a minute over. It never waits: when the thread is stuck, the minute is dropped and counted.
    pub(super) fn save(&mut self, at: SystemTime, minute: &Minute) {
        match self.queue.try_send((at, encode(minute))) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => self.dropped += 1,
            // The thread ends only with us, or by a panic, which the owner sees.
            Err(TrySendError::Disconnected(_)) => {}
        }
    }

    /// How the last write went.
    pub(super) fn standing(&self) -> StateView {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Minutes dropped because the disk was stuck.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether the thread has ended.
    pub(super) fn is_gone(&self) -> bool {
        self.thread.is_finished()
    }

    /// Writes what is left, and ends.
    pub(super) fn finish(self) {
        drop(self.queue);
        self.thread.join().ok();
    }
}

/// The log, anew if its folder was taken away: what was in it is gone, what comes need not be.
fn reopened(log: Log, dir: &Path) -> Log {
    if dir.exists() {
        return log;
    }
    match Log::open(dir, KIND, SCHEMA, KEEP, clock::wall_now()) {
        Ok((new, _)) => {
            tracing::warn!("the folder of the saved minutes had been removed; {} is there again", dir.display());
            new
        }
        Err(_) => log,
    }
}

fn write_all(mut log: Log, dir: PathBuf, received: &Receiver<(SystemTime, Vec<u8>)>, standing: &Mutex<StateView>) {
    let mut waiting: VecDeque<(SystemTime, Vec<u8>)> = VecDeque::new();
    let mut failing = false;
    while let Ok(minute) = received.recv() {
        if failing {
            log = reopened(log, &dir);
        }
        if waiting.len() == WAITING {
            waiting.pop_front();
            tracing::error!("an hour could not be saved; its oldest minute is lost");
        }
        waiting.push_back(minute);
        while let Some((at, payload)) = waiting.front() {
            match log.append(*at, payload) {
                Ok(()) => {}
                Err(error @ LogError::Expire { .. }) => {
                    tracing::warn!(error = in_words(error), "state is kept too long");
                }
                Err(error) => {
                    if !failing {
                        tracing::error!(
                            error = in_words(error),
                            "the last minute cannot be saved (state.dir); the load goes on"
                        );
                    }
                    failing = true;
                    break;
                }
            }
            waiting.pop_front();
        }
        let mut standing = standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.saved = waiting.is_empty();
        if standing.saved {
            if failing {
                tracing::info!("state is saved again");
            }
            failing = false;
            standing.saved_unix = Some(clock::unix_now());
        }
    }
}

/// With its causes, in one line.
fn in_words(error: LogError) -> String {
    format!("{:#}", anyhow::Error::new(error))
}

/// For each series: length and bytes of its name, length and bytes of its minute; lengths in four bytes, little-endian.
fn encode(minute: &Minute) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (Series(name), window) in minute {
        for part in [name.as_bytes(), &window.encode()] {
            // A name comes from the configuration, a window has at most 2 MB: neither is near 4 GB.
            bytes.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend_from_slice(part);
        }
    }
    bytes
}

/// Undoes [`encode`]; `None` for what it did not write.
fn decode(bytes: &[u8]) -> Option<Minute> {
    let mut rest = bytes;
    let mut minute = Vec::new();
    while !rest.is_empty() {
        let name = part(&mut rest, MAX_SERIES)?;
        let window = part(&mut rest, MAX_ENCODED)?;
        let name = String::from_utf8(name.to_vec()).ok()?;
        minute.push((Series(name), Arc::new(SubWindow::decode(window).ok()?)));
    }
    Some(minute)
}

fn part<'a>(rest: &mut &'a [u8], longest: usize) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok().filter(|length| *length <= longest)?;
    let (part, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::window::{Metric, Tally};

    fn minute() -> Minute {
        let mut tally = Tally::default();
        tally.record(Metric::Ttft, Duration::from_millis(7), 3);
        let window = |start| Arc::new(SubWindow::new(start, Duration::from_secs(60), false, &tally));
        vec![(Series("a\nb".to_owned()), window(60)), (Series(String::new()), window(120))]
    }

    #[test]
    fn a_minute_comes_back_as_it_was() {
        assert_eq!(decode(&encode(&minute())), Some(minute()));
        assert_eq!(decode(&[]), Some(Vec::new()));
    }

    #[test]
    fn what_is_no_minute_is_refused() {
        let bytes = encode(&minute());
        let mut whole = 0;
        for end in 0..bytes.len() {
            whole += usize::from(decode(&bytes[..end]).is_some());
        }
        // Nothing, and the first series alone: the checksum of the record is what tells a cut.
        assert_eq!(whole, 2);
        assert_eq!(decode(&[0xff; 64]), None);
        assert_eq!(decode(&[1, 0, 0, 0, 0xff, 0, 0, 0, 0]), None, "no UTF-8");
    }
    #[test]
    #[expect(clippy::disallowed_methods, reason = "it waits for the thread that writes")]
    fn a_folder_that_is_taken_away_is_made_again() {
        let dir = std::env::temp_dir().join(format!("steadyload-journal-{}", std::process::id()));
        let (log, _, _) = Journal::open(&dir).unwrap();
        let mut journal = Journal::start(log, &dir).unwrap();
        let now = clock::wall_now();
        let until = |journal: &Journal, holds: fn(StateView) -> bool| {
            (0..2000).any(|_| {
                holds(journal.standing()) || {
                    thread::sleep(Duration::from_millis(5));
                    false
                }
            })
        };
        journal.save(now, &minute());
        assert!(until(&journal, |standing| standing.saved_unix.is_some()));
        std::fs::remove_dir_all(&dir).unwrap();
        journal.save(now, &minute());
        assert!(until(&journal, |standing| !standing.saved));
        journal.save(now, &minute());
        assert!(until(&journal, |standing| standing.saved));
        journal.finish();
        let (_, _, saved) = Journal::open(&dir).unwrap();
        assert_eq!(saved.len(), 2, "the one that could not be saved, and the one after it");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
