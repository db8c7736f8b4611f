//! Reads what the system says of this process: CPU of the load threads, throttling, descriptors, memory.
//!
//! Once a second, three small files of `/proc` and one a load thread and control group: 0.05 ms with one thread, 0.07 with four
//! (measured on a 2-core virtual machine; 10,000 open descriptors make no difference), without a lock and without waiting.
//! Everything is optional: what is missing, unreadable or no number is `None`, and off Linux that is all of it. Nothing is kept
//! open, so a `/proc` that comes or goes is seen.
//!
//! # Why not the `procfs` crate
//! It was tried, 0.18. Its parsers subtract and slice without looking: a `stat` of `(x)` or a `limits` of `Max` is a panic, and
//! one mount of an unknown form loses all the others. Its build refuses any system but Linux. What is needed here are nine
//! numbers from four files.

mod throttle;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::watch::client_health::{Process, Reading};

use throttle::Throttle;

/// The most that is read of a file. The longest is `mountinfo`, with some hundred bytes a mount; a node with thousands of
/// containers has as many mounts.
const MAX_FILE: u64 = 4 << 20;

/// Reads the system, and remembers the last reading for what is told as a difference.
#[derive(Debug)]
pub struct Probe {
    root: PathBuf,
    /// The size of `/proc/self/fd` is the count, since Linux 6.2. Of a copy of the folder it is not.
    fd_size_counts: bool,
    start_time_unix: Option<f64>,
    throttle: Throttle,
    before: Option<Marks>,
}

/// Counters that only rise, as they stood at one instant.
#[derive(Debug)]
struct Marks {
    at: Instant,
    /// CPU time of each thread that could be read.
    threads: Vec<(u32, Duration)>,
    throttled: Option<Duration>,
}

/// The system's id of the thread that calls, for [`Probe::read`]. 0 off Linux, of which nothing is read.
#[must_use]
pub fn current_thread_id() -> u32 {
    #[cfg(target_os = "linux")]
    return rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    #[cfg(not(target_os = "linux"))]
    0
}

impl Default for Probe {
    fn default() -> Self {
        Self::new()
    }
}

impl Probe {
    /// Reads this system. What does not change (the start, where the control group is mounted) is read here, once.
    #[must_use]
    pub fn new() -> Self {
        Self { fd_size_counts: true, ..Self::under(Path::new("/")) }
    }

    /// Reads a system whose files lie below a folder: a captured one.
    fn under(root: &Path) -> Self {
        Self {
            fd_size_counts: false,
            start_time_unix: start_time(root),
            throttle: Throttle::find(root),
            before: None,
            root: root.to_owned(),
        }
    }

    /// What the system says now. `threads`: the load threads, as they gave their [`current_thread_id`].
    ///
    /// CPU share and throttling are since the last reading, so the first has neither; nor has a thread that was not in the last.
    pub fn read(&mut self, now: Instant, threads: &[u32]) -> Reading {
        let cpu = |thread: &u32| Some((*thread, thread_cpu(&self.root, *thread)?));
        let marks = Marks {
            at: now,
            threads: threads.iter().filter_map(cpu).collect(),
            throttled: self.throttle.total(&self.root),
        };
        let before = self.before.as_ref();
        let reading = Reading {
            cpu_share: before.and_then(|before| marks.cpu_share(before)),
            throttled: before.and_then(|before| marks.throttled?.checked_sub(before.throttled?)),
            process: self.process(),
        };
        self.before = Some(marks);
        reading
    }

    fn process(&self) -> Process {
        let stat = text(&self.root, "proc/self/stat");
        let field = |number| stat.as_deref().and_then(|stat| stat_field(stat, number));
        Process {
            cpu_seconds: stat.as_deref().and_then(stat_cpu).map(|cpu| cpu.as_secs_f64()),
            open_fds: self.open_fds(),
            max_fds: text(&self.root, "proc/self/limits").as_deref().and_then(max_fds),
            resident_bytes: field(RSS_PAGES).and_then(|pages| pages.checked_mul(page_size())),
            virtual_bytes: field(VSIZE_BYTES),
            start_time_unix: self.start_time_unix,
            threads: field(THREADS),
        }
    }

    fn open_fds(&self) -> Option<u64> {
        let folder = self.root.join("proc/self/fd");
        let size = fs::metadata(&folder).ok()?.len();
        if self.fd_size_counts && size > 0 {
            return Some(size);
        }
        // The listing is itself an open descriptor.
        u64::try_from(fs::read_dir(folder).ok()?.count()).ok()?.checked_sub(1)
    }
}

impl Marks {
    /// The largest share of a core that one thread used since then. `None` when there is no thread in both, or no time between.
    fn cpu_share(&self, before: &Self) -> Option<f64> {
        let elapsed = self.at.saturating_duration_since(before.at).as_secs_f64();
        let share = |(thread, cpu): &(u32, Duration)| {
            let (_, earlier) = before.threads.iter().find(|(same, _)| same == thread)?;
            // Less than before: another thread has been given the id.
            Some(cpu.checked_sub(*earlier)?.as_secs_f64() / elapsed)
        };
        // The kernel counts a running thread's time in ticks, so a share can come out a little above 1.
        let shares = self.threads.iter().filter_map(share).filter(|share| share.is_finite());
        shares.reduce(f64::max).map(|share| share.min(1.0))
    }
}

/// A file below the root, at most [`MAX_FILE`] of it. Names in `/proc` may be any bytes, so they are not insisted upon.
fn text(root: &Path, path: impl AsRef<Path>) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(root.join(path)).ok()?.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

// Numbers of fields of `/proc/PID/stat`, from 1 as in proc(5).
const FIRST_AFTER_NAME: usize = 3;
const UTIME_TICKS: usize = 14;
const STIME_TICKS: usize = 15;
const THREADS: usize = 20;
const START_TICKS: usize = 22;
const VSIZE_BYTES: usize = 23;
const RSS_PAGES: usize = 24;

/// A field after the name. The name is in brackets and may hold brackets and spaces, so the last bracket ends it.
fn stat_field(stat: &str, number: usize) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(number - FIRST_AFTER_NAME)?.parse().ok()
}

/// User and system time.
fn stat_cpu(stat: &str) -> Option<Duration> {
    let ticks = stat_field(stat, UTIME_TICKS)?.checked_add(stat_field(stat, STIME_TICKS)?)?;
    Some(of_ticks(ticks))
}

/// CPU time of one of our threads: to the nanosecond from `schedstat`, which says 0 where the kernel was built without it; else
/// to the tick, 10 ms.
fn thread_cpu(root: &Path, thread: u32) -> Option<Duration> {
    let folder = Path::new("proc/self/task").join(thread.to_string());
    let schedstat = text(root, folder.join("schedstat"));
    let nanos = schedstat.and_then(|text| text.split_ascii_whitespace().next()?.parse().ok());
    match nanos {
        Some(nanos) if nanos > 0 => Some(Duration::from_nanos(nanos)),
        _ => stat_cpu(&text(root, folder.join("stat"))?),
    }
}

/// The soft limit. `None` when there is none.
fn max_fds(limits: &str) -> Option<u64> {
    let values = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    values.split_ascii_whitespace().next()?.parse().ok()
}

/// When this process started, in Unix seconds: the start of the system and the ticks from then on.
fn start_time(root: &Path) -> Option<f64> {
    let ticks = stat_field(&text(root, "proc/self/stat")?, START_TICKS)?;
    let system = text(root, "proc/stat")?;
    let booted: u64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(Duration::from_secs(booted).checked_add(of_ticks(ticks))?.as_secs_f64())
}

fn of_ticks(ticks: u64) -> Duration {
    let per_second = ticks_per_second().max(1);
    let rest = (ticks % per_second).saturating_mul(1_000_000_000) / per_second;
    Duration::from_secs(ticks / per_second) + Duration::from_nanos(rest)
}

fn ticks_per_second() -> u64 {
    #[cfg(target_os = "linux")]
    return rustix::param::clock_ticks_per_second();
    #[cfg(not(target_os = "linux"))]
    100
}

fn page_size() -> u64 {
    #[cfg(target_os = "linux")]
    return u64::try_from(rustix::param::page_size()).unwrap_or(0);
    #[cfg(not(target_os = "linux"))]
    4096
}

#[cfg(test)]
mod tests;
