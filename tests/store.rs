//! The store across processes: killed writers, full disks, locks and directories that cannot be written.
//!
//! The children are this same program, started with a filter for one of the tests named `child_…` and the directory in
//! a variable. Without the variable those tests do nothing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use steadyload::store::log::{self, Left, Log, LogError, Opened};
use steadyload::store::{Kind, atomic, lock};

const DIR: &str = "STEADYLOAD_TEST_DIR";
const KIND: Kind = Kind(*b"test");
const KEEP: Duration = Duration::from_hours(8 * 24);
/// The shell's `exit` when a file system cannot be mounted here.
const CANNOT_MOUNT: i32 = 77;

fn start() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_796_133_600)
}

fn open(dir: &Path) -> Result<(Log, Opened), LogError> {
    Log::open(dir, KIND, 1, KEEP, start())
}

/// Held by each test that starts a child: between fork and exec a child has the locks of all the others' logs.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A folder that is gone afterwards, and the turn to start children.
struct Folder(PathBuf, #[expect(dead_code, reason = "held until the end of the test")] MutexGuard<'static, ()>);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("steadyload-store-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path, ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// The command line that runs one of the tests below as a child.
fn program(test: &str) -> Vec<OsString> {
    vec![std::env::current_exe().unwrap().into(), "--exact".into(), test.into(), "--nocapture".into()]
}

/// The same within a shell that does something first.
fn after(shell: &str, test: &str, dir: &Path) -> Output {
    let script = format!("{shell} && exec \"$0\" \"$@\"");
    Command::new("bash").arg("-c").arg(script).args(program(test)).env(DIR, dir).output().unwrap()
}

/// Within a file system of its own, mounted on the directory. `None` where that is not allowed.
fn mounted(options: &str, test: &str, dir: &Path) -> Option<Output> {
    let mount = format!("{{ mount -t tmpfs -o {options} none \"${DIR}\" || exit {CANNOT_MOUNT}; }}");
    let script = format!("{mount} && exec \"$0\" \"$@\"");
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "bash", "-c"]).arg(script).args(program(test)).env(DIR, dir);
    let output = unshare.output().ok()?;
    let refused = output.status.code() == Some(CANNOT_MOUNT) || output.stderr.starts_with(b"unshare:");
    (!refused).then_some(output)
}

#[track_caller]
fn succeeded(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed") && out.contains("did its part"), "{out}{err}");
}

/// What a child was started for; `None` when it was not.
fn errand() -> Option<PathBuf> {
    std::env::var_os(DIR).map(PathBuf::from)
}

/// Past the test harness, which would hold it back.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

/// Starts a child that says when it begins and when it has ended each of its steps, kills it when it has said so many
/// lines, and returns the last step that it has ended.
fn killed_after(lines: usize, test: &str, dir: &Path) -> Option<u64> {
    let line = program(test);
    let mut child: Child =
        Command::new(&line[0]).args(&line[1..]).env(DIR, dir).stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let steps = said.filter(|line| line.starts_with("begins ") || line.starts_with("ended "));
    let mut last = None;
    for (seen, line) in (1..).zip(steps) {
        if let Some(number) = line.strip_prefix("ended ") {
            last = Some(number.parse().unwrap());
        }
        if seen == lines {
            child.kill().unwrap();
        }
    }
    assert!(!child.wait().unwrap().success());
    last
}

/// Large enough that a kill falls within the write now and then.
fn payload(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(250_000)
}

#[test]
fn a_killed_writer_loses_at_most_the_record_it_was_writing() {
    let folder = Folder::new("kill");
    let (mut torn, mut unsaid, mut before) = (0, 0, 0);
    // An odd line is the beginning of a write, an even one its end.
    for round in 1..=20 {
        let said = killed_after(round % 4 + 1, "child_that_appends_until_it_is_killed", &folder.0).unwrap_or(before);
        let (log, opened) = open(&folder.0).unwrap();
        let read: Vec<_> = log.read(UNIX_EPOCH).unwrap().map(Result::unwrap).collect();
        let count = read.len() as u64;
        assert!(count == said || count == said + 1, "round {round}: {said} said, {count} read");
        for (number, record) in (1..).zip(&read) {
            assert!(record.payload == payload(number), "round {round}: record {number}");
        }
        assert!(opened.set_aside.is_empty() && opened.torn.len() <= 1, "{opened:?}");
        torn += opened.torn.len();
        unsaid += count - said;
        before = count;
    }
    say(&format!("of 20 kills {torn} left a torn record and {unsaid} fell between the write and its confirmation"));
}

#[test]
fn child_that_appends_until_it_is_killed() {
    let Some(dir) = errand() else { return };
    let (mut log, opened) = open(&dir).unwrap();
    for number in opened.records + 1.. {
        say(&format!("begins {number}"));
        log.append(start() + Duration::from_secs(60 * (number % 60)), &payload(number)).unwrap();
        say(&format!("ended {number}"));
    }
}

#[test]
fn a_killed_writer_leaves_the_old_file_or_the_new_one() {
    let folder = Folder::new("kill-file");
    let path = folder.0.join("file");
    let mut leftovers = 0;
    for round in 1..=20 {
        let said = killed_after(round % 4 + 2, "child_that_writes_a_file_until_it_is_killed", &folder.0).unwrap();
        let content = atomic::read(&path, KIND, 1).unwrap().unwrap();
        assert!(content == payload(said) || content == payload(said + 1), "round {round}");
        leftovers += atomic::remove_leftovers(&folder.0).unwrap().len();
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    }
    say(&format!("of 20 kills {leftovers} left a temporary file"));
}

#[test]
fn child_that_writes_a_file_until_it_is_killed() {
    let Some(dir) = errand() else { return };
    for number in 1.. {
        say(&format!("begins {number}"));
        atomic::write(&dir.join("file"), KIND, 1, &payload(number)).unwrap();
        say(&format!("ended {number}"));
    }
}

#[test]
fn a_second_process_is_told_who_has_the_directory() {
    let folder = Folder::new("lock");
    let _log = open(&folder.0).unwrap();
    succeeded(&after("true", "child_that_is_refused_the_log", &folder.0));
}

#[test]
fn child_that_is_refused_the_log() {
    let Some(dir) = errand() else { return };
    let refused = open(&dir).unwrap_err();
    assert!(
        matches!(&refused, LogError::Lock(lock::LockError::Held { holder: Some(pid), .. }) if *pid == std::os::unix::process::parent_id()),
        "{refused}"
    );
    assert_eq!(log::read(&dir, KIND, 1, UNIX_EPOCH).unwrap().count(), 0);
    say("did its part");
}

/// The limit is one of the process and not of the disk, so this works everywhere.
#[test]
fn a_file_that_may_not_grow_keeps_its_records_and_takes_more_when_it_may() {
    let folder = Folder::new("limit");
    // Without the trap the signal would end the child.
    succeeded(&after("trap '' XFSZ && ulimit -f 64", "child_whose_files_may_not_grow", &folder.0));
    let (mut log, opened) = open(&folder.0).unwrap();
    assert_eq!(opened, Opened { records: 2, ..Opened::default() });
    log.append(start(), &[3; 40_000]).unwrap();
    assert_eq!(first_bytes(&log), [1, 2, 3]);
}

#[test]
fn child_whose_files_may_not_grow() {
    let Some(dir) = errand() else { return };
    let file = dir.join("file");
    atomic::write(&file, KIND, 1, b"old").unwrap();
    let mut log = open(&dir).unwrap().0;
    log.append(start(), &[1; 40_000]).unwrap();
    assert_eq!(left(log.append(start(), &[9; 40_000])), Left::Whole);
    log.append(start(), &[2; 1000]).unwrap();
    assert_eq!(first_bytes(&log), [1, 2]);

    let refused = atomic::write(&file, KIND, 1, &[9; 100_000]).unwrap_err();
    assert!(matches!(refused, atomic::FileError::Write { .. }), "{refused}");
    assert_eq!(atomic::read(&file, KIND, 1).unwrap().unwrap(), b"old");
    assert!(atomic::remove_leftovers(&dir).unwrap().is_empty());
    say("did its part");
}

#[test]
fn a_full_disk_keeps_the_records_and_takes_more_when_there_is_room() {
    let folder = Folder::new("full");
    match mounted("size=512k", "child_on_a_small_disk", &folder.0) {
        Some(output) => succeeded(&output),
        None => say("no file system can be mounted here, so this was not tested"),
    }
}

#[test]
fn child_on_a_small_disk() {
    let Some(dir) = errand() else { return };
    let (state, filler) = (dir.join("state"), dir.join("filler"));
    let mut log = open(&state).unwrap().0;
    log.append(start(), &[1; 5000]).unwrap();
    // What does not fit is refused, but as much as fits is written: the disk is full to the last byte.
    fs::write(&filler, vec![0; 600_000]).unwrap_err();
    for hours in [0, 0, 1, 2] {
        let at = start() + Duration::from_hours(hours);
        assert_eq!(left(log.append(at, &[9; 20_000])), Left::Whole, "{hours}");
    }
    let file = state.join("file");
    assert!(matches!(atomic::write(&file, KIND, 1, b"new"), Err(atomic::FileError::Write { .. })));
    assert_eq!(first_bytes(&log), [1]);

    // A start on a full disk finds a log, too.
    drop(log);
    let (mut log, opened) = open(&state).unwrap();
    assert_eq!(opened, Opened { records: 1, ..Opened::default() });

    fs::remove_file(&filler).unwrap();
    log.append(start(), &[2; 20_000]).unwrap();
    log.append(start() + Duration::from_hours(2), &[3; 20_000]).unwrap();
    atomic::write(&file, KIND, 1, b"new").unwrap();
    drop(log);
    let (log, opened) = open(&state).unwrap();
    assert_eq!(opened, Opened { records: 3, ..Opened::default() });
    assert_eq!(first_bytes(&log), [1, 2, 3]);
    say("did its part");
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let folder = Folder::new("read-only");
    match mounted("ro", "child_on_a_read_only_disk", &folder.0) {
        Some(output) => succeeded(&output),
        None => say("no file system can be mounted here, so this was not tested"),
    }
}

#[test]
fn child_on_a_read_only_disk() {
    let Some(dir) = errand() else { return };
    let lock_file = dir.join("lock").display().to_string();
    assert_eq!(open(&dir).unwrap_err().to_string(), format!("cannot lock {lock_file}"));
    let state = dir.join("state");
    assert_eq!(open(&state).unwrap_err().to_string(), format!("cannot lock {}", state.display()));
    let refused = atomic::write(&dir.join("file"), KIND, 1, b"new").unwrap_err();
    let file = dir.join("file").display().to_string();
    assert_eq!(refused.to_string(), format!("cannot write {file}; what was there before is unchanged"));
    say("did its part");
}

fn left(result: Result<(), LogError>) -> Left {
    match result {
        Err(LogError::Append { left, .. }) => left,
        other => unexpected(&format!("{other:?}")),
    }
}

#[expect(clippy::panic, reason = "a test fails by panicking")]
fn unexpected(what: &str) -> ! {
    panic!("{what}")
}

fn first_bytes(log: &Log) -> Vec<u8> {
    log.read(UNIX_EPOCH).unwrap().map(|record| record.unwrap().payload[0]).collect()
}
