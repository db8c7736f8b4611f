use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::store::tests::Folder;

const KIND: Kind = Kind(*b"ring");
const KEEP: Duration = Duration::from_hours(8 * 24);
/// 2026-12-01T14:00:00.
const START: u64 = 1_796_133_600;
const HOUR: u64 = 3600;
const FIRST: &str = "2026-12-01T14.seg";

fn at(secs: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(secs)
}

fn open(dir: &Path) -> (Log, Opened) {
    open_at(dir, START)
}

fn open_at(dir: &Path, now: u64) -> (Log, Opened) {
    Log::open(dir, KIND, 1, KEEP, at(now)).unwrap()
}

/// Every record from a time on; damage is a failure.
fn all(log: &Log, from: u64) -> Vec<Plain> {
    log.read(at(from)).unwrap().map(|record| plain(record.unwrap())).collect()
}

fn plain(record: Record) -> Plain {
    (u64::try_from(unix_secs(record.at)).unwrap(), record.payload)
}

fn payloads(log: &Log) -> Vec<String> {
    all(log, 0).into_iter().map(|(_, payload)| String::from_utf8(payload).unwrap()).collect()
}

fn segments_in(folder: &Folder) -> Vec<String> {
    folder.names().into_iter().filter(|name| name != "lock").collect()
}

/// Seconds and payload.
type Plain = (u64, Vec<u8>);

/// A segment of four records: its bytes, the records, and where each begins, with the end as the last.
fn sample(folder: &Folder) -> (Vec<u8>, Vec<Plain>, Vec<usize>) {
    let records: Vec<_> = [&b"the first"[..], b"", &[0; 40], b"the last"]
        .iter()
        .zip(0..)
        .map(|(payload, minute)| (START + 60 * minute, payload.to_vec()))
        .collect();
    let mut log = open(folder).0;
    let mut starts = vec![segment::HEADER];
    for (secs, payload) in &records {
        log.append(at(*secs), payload).unwrap();
        starts.push(starts.last().unwrap() + segment::RECORD_HEAD + payload.len());
    }
    let bytes = fs::read(folder.join(FIRST)).unwrap();
    assert_eq!(bytes.len(), *starts.last().unwrap());
    (bytes, records, starts)
}

/// Opens a directory whose only segment has these bytes, and sees that exactly `good` is read; that appending goes on
/// from there; and that the next start has nothing more to report.
fn opens_with(bytes: &[u8], good: &[Plain]) -> Opened {
    let folder = if bytes.len() < 100_000 { Folder::in_memory() } else { Folder::new() };
    fs::write(folder.join(FIRST), bytes).unwrap();
    // Whoever reads before the daemon has started may meet the damage, but nothing that was never written.
    let before = read(&folder, KIND, 1, at(0)).unwrap().filter_map(Result::ok).map(plain);
    assert_eq!(before.collect::<Vec<_>>(), good);
    let (mut log, opened) = open(&folder);
    assert_eq!(all(&log, 0), good);
    assert_eq!(opened.records, good.len() as u64);
    if let [aside] = &opened.set_aside[..] {
        assert_eq!(fs::read(&aside.path).unwrap(), bytes, "set aside whole");
    }
    let mut longer = good.to_vec();
    longer.push((START + 999, b"after".to_vec()));
    log.append(at(START + 999), b"after").unwrap();
    assert_eq!(all(&log, 0), longer);
    drop(log);
    let (log, again) = open(&folder);
    assert_eq!(all(&log, 0), longer);
    assert_eq!(again, Opened { records: longer.len() as u64, ..Opened::default() });
    opened
}

#[test]
fn records_are_read_in_order_after_a_restart() {
    let folder = Folder::new();
    let (_, records, _) = sample(&folder);
    let (log, opened) = open(&folder);
    assert_eq!(all(&log, 0), records);
    assert_eq!(opened, Opened { records: 4, ..Opened::default() });
    assert_eq!(all(&log, START + 60), records[1..]);
    assert_eq!(all(&log, START + 61), records[2..]);
    assert_eq!(all(&log, START + HOUR), []);
}

#[test]
fn cut_at_any_byte_it_keeps_every_record_before() {
    let (bytes, records, starts) = sample(&Folder::new());
    for cut in 0..bytes.len() {
        let whole = starts.iter().skip(1).filter(|end| **end <= cut).count();
        let opened = opens_with(&bytes[..cut], &records[..whole]);
        assert!(opened.set_aside.is_empty(), "{cut}: {opened:?}");
        let torn = if starts.contains(&cut) || cut == 0 { 0 } else { 1 };
        assert_eq!(opened.torn.len(), torn, "{cut}");
        let good = if cut < segment::HEADER { 0 } else { starts[whole] };
        assert!(opened.torn.iter().all(|torn| torn.bytes == (cut - good) as u64), "{cut}: {opened:?}");
    }
}

#[test]
fn with_any_byte_flipped_it_keeps_every_record_before_and_what_is_damaged() {
    let (bytes, records, starts) = sample(&Folder::new());
    for flipped in 0..bytes.len() {
        for flip in (0..8).map(|bit| 1 << bit).chain([0xff]) {
            let mut bytes = bytes.clone();
            bytes[flipped] ^= flip;
            let whole = starts.iter().skip(1).filter(|end| **end <= flipped).count();
            let opened = opens_with(&bytes, &records[..whole]);
            let reports = (opened.torn.len(), opened.set_aside.len());
            // Only in the last record can it pass for a torn end.
            let last = flipped >= starts[records.len() - 1];
            assert!(reports == (0, 1) || last && reports == (1, 0), "{flipped} ^ {flip}: {opened:?}");
        }
    }
}

#[test]
fn zeros_where_data_never_arrived_are_a_torn_end() {
    let (mut bytes, records, _) = sample(&Folder::new());
    bytes.resize(bytes.len() + 5000, 0);
    assert_eq!(opens_with(&bytes, &records).torn.first().unwrap().bytes, 5000);
}

#[test]
fn bytes_that_cannot_be_one_record_are_set_aside() {
    let (mut bytes, records, _) = sample(&Folder::new());
    bytes.extend([0xff; 100]);
    assert_eq!(opens_with(&bytes, &records).torn.first().unwrap().bytes, 100, "could be a huge record");
    bytes.resize(bytes.len() + MAX_PAYLOAD, 0xff);
    let opened = opens_with(&bytes, &records);
    assert_eq!(opened.set_aside.first().unwrap().damage, Damage::Record(bytes.len() as u64 - 100 - MAX_PAYLOAD as u64));
}

#[test]
fn a_length_beyond_the_limit_is_damage_and_not_memory() {
    let (mut bytes, records, _) = sample(&Folder::new());
    // Intact but for its size: only the limit can refuse it.
    segment::encode(START.cast_signed(), &vec![7; MAX_PAYLOAD + 1], &mut bytes);
    bytes.push(7);
    let folder = Folder::new();
    fs::write(folder.join(FIRST), &bytes).unwrap();
    let read: Vec<_> = read(&folder, KIND, 1, at(0)).unwrap().collect();
    assert_eq!(read.len(), records.len() + 1);
    assert!(matches!(read.last(), Some(Err(LogError::Damaged { .. }))), "{:?}", read.last());
    assert_eq!(open(&folder).1.set_aside.len(), 1);
}

#[test]
fn the_largest_payload_goes_through_and_a_larger_one_does_not() {
    let folder = Folder::new();
    let mut log = open(&folder).0;
    let mut payload = vec![7; MAX_PAYLOAD];
    log.append(at(START), &payload).unwrap();
    payload.push(7);
    assert!(matches!(log.append(at(START), &payload), Err(LogError::TooLarge { .. })));
    payload.pop();
    assert_eq!(all(&log, 0), [(START, payload)]);
}

#[test]
fn damage_in_one_segment_leaves_the_others_alone() {
    let folder = Folder::new();
    let mut log = open(&folder).0;
    for hour in 0..3 {
        for minute in [0, 1, 2] {
            log.append(at(START + HOUR * hour + 60 * minute), format!("{hour}:{minute}").as_bytes()).unwrap();
        }
    }
    drop(log);
    let second = folder.join("2026-12-01T15.seg");
    let mut bytes = fs::read(&second).unwrap();
    let record = segment::RECORD_HEAD + 3;
    bytes[segment::HEADER + record + segment::RECORD_HEAD] ^= 1;
    fs::write(&second, &bytes).unwrap();

    let read: Vec<_> = read(&folder, KIND, 1, at(0)).unwrap().map(|record| record.map(plain)).collect();
    assert!(matches!(&read[4], Err(LogError::Damaged { path, .. }) if *path == second) && read.len() == 8);
    let (log, opened) = open(&folder);
    assert_eq!(payloads(&log), ["0:0", "0:1", "0:2", "1:0", "2:0", "2:1", "2:2"]);
    let damage = Damage::Record((segment::HEADER + record) as u64);
    assert_eq!(opened.set_aside, [SetAside { path: folder.join("2026-12-01T15.seg.bad"), damage }]);
    assert_eq!((opened.records, opened.torn.len()), (7, 0));
}

#[test]
fn a_log_of_something_else_is_set_aside_and_never_overwritten() {
    let folder = Folder::new();
    let (bytes, ..) = sample(&folder);
    let reopen = |kind, schema| Log::open(&folder, kind, schema, KEEP, at(START)).unwrap();
    for (kind, schema, damage) in
        [(Kind(*b"else"), 1, Damage::Kind(KIND)), (KIND, 2, Damage::Schema(1)), (KIND, 0, Damage::Schema(1))]
    {
        fs::write(folder.join(FIRST), &bytes).unwrap();
        let (mut log, opened) = reopen(kind, schema);
        assert_eq!(opened.set_aside.first().unwrap().damage, damage);
        assert_eq!(fs::read(&opened.set_aside.first().unwrap().path).unwrap(), bytes);
        log.append(at(START), b"new").unwrap();
        assert_eq!(payloads(&log), ["new"]);
    }
    fs::write(folder.join(FIRST), "something that was never ours").unwrap();
    assert_eq!(open(&folder).1.set_aside.first().unwrap().damage, Damage::Magic);
    let bad = |count| format!("{FIRST}.bad{count}");
    assert_eq!(segments_in(&folder), [bad(""), bad(".1"), bad(".2"), bad(".3")]);
}

#[test]
fn each_hour_has_its_segment_and_old_ones_go() {
    let folder = Folder::new();
    let mut log = open(&folder).0;
    let hours = KEEP.as_secs() / HOUR;
    for hour in 0..hours + 2 {
        log.append(at(START + hour * HOUR), b"x").unwrap();
    }
    let names = segments_in(&folder);
    // The segment of an hour holds what is up to an hour younger than its name says.
    assert_eq!((names.len() as u64, names.first().unwrap().as_str()), (hours + 1, "2026-12-01T15.seg"));
    assert_eq!(names.last().unwrap(), "2026-12-09T15.seg");
    log.append(at(START + (hours + 2) * HOUR), b"x").unwrap();
    assert_eq!(segments_in(&folder).first().unwrap(), "2026-12-01T16.seg");
    drop(log);
    let (log, opened) = open_at(&folder, START + (hours + 5) * HOUR + 1);
    assert_eq!((opened.expired, opened.records), (3, hours - 2));
    drop(log);
    let (mut log, opened) = open_at(&folder, START + 100 * hours * HOUR);
    assert_eq!((opened.expired, opened.records, segments_in(&folder).len()), (hours - 2, 0, 0));
    log.append(at(START + 100 * hours * HOUR), b"x").unwrap();
    assert_eq!(payloads(&log), ["x"]);
}

#[test]
fn a_clock_that_is_put_back_goes_on_in_the_newest_segment() {
    let folder = Folder::new();
    let mut log = open(&folder).0;
    for (secs, payload) in
        [(START, "a"), (START + HOUR, "b"), (START - 5, "c"), (START - 7 * 24 * HOUR, "d"), (START + HOUR + 1, "e")]
    {
        log.append(at(secs), payload.as_bytes()).unwrap();
    }
    assert_eq!(payloads(&log), ["a", "b", "c", "d", "e"]);
    assert_eq!(segments_in(&folder), [FIRST, "2026-12-01T15.seg"]);
    let from_then = all(&log, START + 1).into_iter().map(|(_, payload)| payload);
    assert_eq!(from_then.collect::<Vec<_>>(), [b"b", b"e"]);
    drop(log);
    let (mut log, opened) = open_at(&folder, START - 5);
    assert_eq!((opened.records, opened.expired), (5, 0));
    log.append(at(START - 5), b"f").unwrap();
    assert_eq!(segments_in(&folder), [FIRST, "2026-12-01T15.seg"]);
    assert_eq!(payloads(&log), ["a", "b", "c", "d", "e", "f"]);
}

#[test]
fn a_clock_that_was_years_ahead_does_not_hold_up_expiry_for_years() {
    let folder = Folder::new();
    let mut log = open(&folder).0;
    let ahead = START + 50 * 365 * 24 * HOUR;
    log.append(at(ahead), b"from the future").unwrap();
    log.append(at(START), b"a").unwrap();
    log.append(at(START + HOUR), b"b").unwrap();
    assert_eq!(segments_in(&folder), [FIRST, "2026-12-01T15.seg", "2076-11-18T14.seg"]);
    drop(log);
    let (mut log, opened) = open_at(&folder, START + HOUR);
    assert_eq!(opened.records, 3);
    log.append(at(START + HOUR), b"c").unwrap();
    assert_eq!(payloads(&log), ["a", "b", "c", "from the future"]);
}

#[test]
fn times_at_which_no_clock_should_be_are_stored_all_the_same() {
    let folder = Folder::new();
    let mut log = Log::open(&folder, KIND, 1, Duration::MAX, at(0)).unwrap().0;
    let times = [UNIX_EPOCH - Duration::from_secs(7), at(1 << 40), at(0)];
    for time in times {
        log.append(time, b"x").unwrap();
    }
    let long_ago = UNIX_EPOCH - Duration::from_secs(1 << 40);
    let mut read: Vec<_> = log.read(long_ago).unwrap().map(|record| record.unwrap().at).collect();
    read.sort();
    assert_eq!(read, [times[0], times[2], times[1]]);
}

#[test]
fn a_second_daemon_is_told_who_has_the_log_and_readers_are_not_kept_out() {
    let folder = Folder::new();
    let (_, records, _) = sample(&folder);
    let log = open(&folder).0;
    let refused = Log::open(&folder, KIND, 1, KEEP, at(START)).unwrap_err();
    assert!(matches!(refused, LogError::Lock(LockError::Held { .. })), "{refused}");
    let read = read(&folder, KIND, 1, at(0)).unwrap();
    assert_eq!(read.map(|record| plain(record.unwrap())).collect::<Vec<_>>(), records);
    drop(log);
    assert!(Log::open(&folder, KIND, 1, KEEP, at(START)).is_ok());
}

#[test]
fn a_log_that_is_not_there_cannot_be_read() {
    let folder = Folder::new();
    assert!(matches!(read(&folder.join("none"), KIND, 1, at(0)), Err(LogError::List { .. })));
}

#[test]
fn what_something_else_did_to_a_segment_is_said_and_not_built_upon() {
    let folder = Folder::new();
    let (bytes, ..) = sample(&folder);
    let path = folder.join(FIRST);
    let mut log = open(&folder).0;
    let mut changed = |time| match log.append(at(time), b"x") {
        Err(LogError::Changed { path }) => path,
        other => panic!("{other:?}"),
    };
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(changed(START), path);
    fs::remove_file(&path).unwrap();
    assert_eq!(changed(START), path);
    let next = folder.join("2026-12-01T15.seg");
    fs::write(&next, "whose is this?").unwrap();
    assert_eq!(changed(START + HOUR), next);
    assert_eq!(fs::read(&next).unwrap(), b"whose is this?");
    log.append(at(START + 2 * HOUR), b"x").unwrap();
    drop(log);
    assert_eq!(payloads(&open(&folder).0), ["x"]);
}

#[test]
fn an_expired_segment_that_cannot_be_removed_does_not_cost_the_record() {
    let folder = Folder::new();
    let mut log = open(&folder).0;
    log.append(at(START), b"old").unwrap();
    fs::remove_file(folder.join(FIRST)).unwrap();
    fs::create_dir(folder.join(FIRST)).unwrap();
    let later = START + KEEP.as_secs() + 2 * HOUR;
    let refused = log.append(at(later), b"new").unwrap_err();
    assert!(matches!(&refused, LogError::Expire { path, .. } if *path == folder.join(FIRST)), "{refused}");
    assert_eq!(all(&log, later), [(later, b"new".to_vec())]);
    fs::remove_dir(folder.join(FIRST)).unwrap();
    log.append(at(later + HOUR), b"newer").unwrap();
    assert_eq!(payloads(&log), ["new", "newer"]);
}

#[test]
fn what_a_killed_start_has_left_is_gone_after_the_next() {
    let folder = Folder::new();
    let left = format!(".{FIRST}.0123456789abcdef.tmp");
    fs::write(folder.join(&left), "half a copy").unwrap();
    drop(open(&folder));
    assert_eq!(folder.names(), ["lock"]);
}

#[test]
fn a_reader_sees_whole_records_while_they_are_appended() {
    let folder = Folder::new();
    let mut log = open(&folder).0;
    let done = Arc::new(AtomicBool::new(false));
    let reader = std::thread::spawn({
        let (dir, done) = (folder.to_path_buf(), Arc::clone(&done));
        move || {
            let mut rounds = 0;
            let mut before = 0;
            while !done.load(Ordering::Relaxed) {
                let records = read(&dir, KIND, 1, at(0)).unwrap().map(|record| plain(record.unwrap()));
                let count = records.enumerate().map(|(index, record)| assert_eq!(record, numbered(index))).count();
                assert!(count >= before, "{before} records, then {count}");
                before = count;
                rounds += 1;
            }
            rounds
        }
    });
    for index in 0..200 {
        let (secs, payload) = numbered(index);
        log.append(at(secs), &payload).unwrap();
    }
    done.store(true, Ordering::Relaxed);
    assert!(reader.join().unwrap() > 0);
}

/// A record that can be told from every other, of up to 60 kB, in one of three hours.
fn numbered(index: usize) -> Plain {
    (START + 50 * index as u64, index.to_le_bytes().repeat(index % 100 * 75))
}

#[test]
fn looking_for_a_record_among_other_bytes_does_not_take_for_ever() {
    const LATEST: i64 = 1_796_137_199;
    let record = |payload: &[u8]| {
        let mut bytes = Vec::new();
        segment::encode(LATEST, payload, &mut bytes);
        bytes
    };
    let random = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    let random: Vec<u8> = (0..MAX_PAYLOAD as u64).map(random).collect();
    assert_eq!(segment::finds_record(&random, LATEST), Some(false));
    assert_eq!(segment::finds_record(&[&random, &record(b"x")[..]].concat(), LATEST), Some(true));
    // The counts of a histogram.
    for count in [0_u64, 1, 31, 255, 7_936, 1 << 20] {
        let counts = count.to_le_bytes().repeat(MAX_PAYLOAD / 8);
        assert_eq!(segment::finds_record(&counts, LATEST), Some(false), "{count}");
    }
    // Made to be mistaken: a head that promises 8 MiB, again and again.
    let mut head = record(&vec![0; MAX_PAYLOAD / 2]);
    head.truncate(segment::RECORD_HEAD);
    assert_eq!(segment::finds_record(&head.repeat(MAX_PAYLOAD / 16), LATEST), None);
}

/// Random appends under a clock that jumps, restarts and writers that die, against a list of what was written.
#[test]
fn whatever_happens_nothing_young_is_lost_and_nothing_is_made_up() {
    const KEEP: Duration = Duration::from_hours(6);
    for seed in 0..40 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let folder = Folder::in_memory();
        let mut now = START;
        let mut log = Log::open(&folder, KIND, 1, KEEP, at(now)).unwrap().0;
        let mut written: Vec<Plain> = Vec::new();
        let mut latest = now;
        for step in 0_u32..120 {
            now = match random.random_range(0..10) {
                0 => now.max(latest - HOUR) - random.random_range(0..HOUR * 4),
                1 => now + random.random_range(0..HOUR * 2),
                _ => now + random.random_range(0..HOUR / 4),
            };
            latest = latest.max(now);
            match random.random_range(0..8) {
                0 => {
                    drop(log);
                    (log, _) = Log::open(&folder, KIND, 1, KEEP, at(now)).unwrap();
                }
                1 => {
                    drop(log);
                    let torn = die_in_the_last_segment(&folder, &mut random);
                    let opened;
                    (log, opened) = Log::open(&folder, KIND, 1, KEEP, at(now)).unwrap();
                    assert_eq!((opened.torn.len(), opened.set_aside.len()), (usize::from(torn), 0), "seed {seed}");
                }
                _ => {
                    let payload = [&step.to_le_bytes()[..], &vec![1; random.random_range(0..300)]].concat();
                    log.append(at(now), &payload).unwrap();
                    written.push((now, payload));
                }
            }
            let read = all(&log, 0);
            let mut rest = written.iter();
            assert!(
                read.iter().all(|record| rest.any(|other| other == record)),
                "seed {seed}: made up or out of order"
            );
            let young = |record: &&Plain| record.0 >= latest - KEEP.as_secs();
            assert!(read.iter().filter(young).eq(written.iter().filter(young)), "seed {seed}: lost");
        }
    }
}

/// Puts the beginning of a record behind the newest segment, if there is one.
fn die_in_the_last_segment(folder: &Folder, random: &mut ChaCha8Rng) -> bool {
    let Some((_, path)) = segments(folder).unwrap().pop_last() else { return false };
    let mut bytes = fs::read(&path).unwrap();
    let mut record = Vec::new();
    segment::encode(START.cast_signed(), &[9; 200], &mut record);
    bytes.extend(&record[..random.random_range(1..record.len())]);
    fs::write(&path, bytes).unwrap();
    true
}

/// Empty segments, whose first record was never finished, are no damage.
#[test]
fn a_start_reads_every_record() {
    let folder = Folder::new();
    let (bytes, records, _) = sample(&folder);
    for hour in 15..20 {
        File::create(folder.join(format!("2026-12-01T{hour}.seg"))).unwrap();
        fs::write(folder.join(format!("2026-12-02T{hour}.seg")), &bytes).unwrap();
    }
    assert_eq!(open(&folder).1, Opened { records: 6 * records.len() as u64, ..Opened::default() });
}
