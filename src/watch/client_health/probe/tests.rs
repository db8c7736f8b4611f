//! Captured systems below a folder, and this one.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::clock;

/// A system's files, gone when dropped.
struct System(PathBuf);

static NEXT: AtomicU32 = AtomicU32::new(0);

impl System {
    fn new(files: &[(&str, &str)]) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("steadyload-probe-{}-{number}", std::process::id()));
        let system = Self(root);
        fs::create_dir_all(&system.0).unwrap();
        files.iter().for_each(|(path, text)| system.write(path, text));
        system
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn probe(&self) -> Probe {
        Probe::under(&self.0)
    }

    /// What two readings a second apart say of the time between, `change` happening there.
    fn second(&self, threads: &[u32], change: impl FnOnce()) -> Reading {
        let (now, mut probe) = (clock::now(), self.probe());
        let first = probe.read(now, threads);
        assert_eq!((first.cpu_share, first.throttled), (None, None), "there is nothing to compare with");
        change();
        probe.read(now + Duration::from_secs(1), threads)
    }
}

impl Drop for System {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// A line of `stat` as Linux 6.18 writes it: user 150 and system 50 ticks, 9 threads, begun 2000 ticks after the system.
const STAT: &str = "5508 (a) b (c) S 5498 5498 4281 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 9 0 2000 31334400 412 \
    18446744073709551615 94146564677632 94146564697513 140729494466720 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 94146564713520 \
    94146564715136 94147508695040 140729494469331 140729494469351 140729494469351 140729494470635 0\n";

const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max processes             96365                96365                processes 
Max open files            20000                524288               files     
Max nice priority         0                    0                    
";

#[test]
fn the_process_is_read_from_its_files() {
    let system = System::new(&[
        ("proc/self/stat", STAT),
        ("proc/self/limits", LIMITS),
        ("proc/stat", "cpu  1 2 3\nintr 5\nctxt 7\nbtime 1796000000\nprocesses 3\n"),
        ("proc/self/fd/0", ""),
        ("proc/self/fd/1", ""),
        ("proc/self/fd/2", ""),
        ("proc/self/fd/4", ""),
    ]);
    let expected = Process {
        cpu_seconds: Some(2.0),
        open_fds: Some(3),
        max_fds: Some(20_000),
        resident_bytes: Some(412 * page_size()),
        virtual_bytes: Some(31_334_400),
        start_time_unix: Some(1_796_000_020.0),
        threads: Some(9),
    };
    assert_eq!(system.probe().read(clock::now(), &[]).process, expected);
}

#[test]
fn a_system_without_files_has_nothing_to_say() {
    let reading = System::new(&[]).second(&[0, 1, u32::MAX], || {});
    assert_eq!(reading, Reading::default());
}

#[test]
fn damaged_files_are_absent_values_and_nothing_else() {
    let garbage: [&[u8]; 12] = [
        b"",
        b"\n\n\n",
        b")(",
        b"(x)",
        b"1 (a)",
        b"Max",
        b"Max open files",
        b"Max open files  -1 many files\nbtime\nbtime -3\nthrottled_usec\nthrottled_usec x\n",
        b"0:: - \n0::/\n1:cpu:\n:::\n - cgroup2 - -\n1 2 3 / / - cgroup2 x y\n1 2 3 / /x - cgroup x\n",
        b"\xff\xfe (\xff) \xff",
        b"1 (a) R -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1",
        &[b'('; 70_000],
    ];
    for bytes in garbage {
        let system = System::new(&[]);
        for file in ["stat", "self/stat", "self/limits", "self/cgroup", "self/mountinfo", "self/fd", "self/task"] {
            system.write(&format!("proc/{file}"), bytes);
        }
        let reading = system.second(&[1], || {});
        assert_eq!(reading, Reading::default(), "{:?}", String::from_utf8_lossy(bytes));
    }
    let most = u64::MAX;
    let huge = format!("1 (a) R 0 0 0 0 0 0 0 0 0 0 {most} {most} 0 0 0 0 1 0 {most} {most} {most}");
    let system = System::new(&[("proc/self/stat", &huge), ("proc/stat", &format!("btime {most}\n"))]);
    let process = system.probe().read(clock::now(), &[]).process;
    assert_eq!((process.cpu_seconds, process.resident_bytes, process.start_time_unix), (None, None, None));
    assert_eq!(process.virtual_bytes, Some(most), "it is a number");
}

fn share_of(first: [&str; 2], second: [&str; 2]) -> Option<f64> {
    let system = System::new(&[]);
    let write = |texts: [&str; 2]| {
        for (thread, text) in texts.into_iter().enumerate() {
            if text.contains('(') {
                system.write(&format!("proc/self/task/{thread}/stat"), text);
                system.write(&format!("proc/self/task/{thread}/schedstat"), "0 0 0\n");
            } else {
                system.write(&format!("proc/self/task/{thread}/schedstat"), text);
            }
        }
    };
    write(first);
    system.second(&[0, 1], || write(second)).cpu_share
}

#[test]
fn the_share_is_that_of_the_busiest_thread() {
    assert_eq!(share_of(["1000 5 1", "7000000000 5 1"], ["500001000 6 1", "7250000000 6 9"]), Some(0.5));
    assert_eq!(share_of(["1000 5 1", "2000 5 1"], ["1000 5 1", "2000 5 1"]), Some(0.0), "idle is a share");
    assert_eq!(share_of(["1000 5 1", "2000 5 1"], ["1004001000 5 1", "x"]), Some(1.0), "a tick too many");
}

#[test]
fn without_schedstat_the_ticks_count() {
    let later = STAT.replace(" 150 50 ", " 180 60 ");
    assert_eq!(share_of([STAT, "x"], [&later, "x"]), Some(0.4));
}

#[test]
fn a_thread_that_is_new_or_gone_has_no_share() {
    assert_eq!(share_of(["x", "x"], ["500 5 1", "x"]), None, "new");
    assert_eq!(share_of(["900 5 1", "x"], ["500 5 1", "x"]), None, "another thread with the same id");
    assert_eq!(share_of(["900 5 1", "x"], ["x", "x"]), None, "gone");
}

#[test]
fn two_readings_at_one_instant_have_no_share() {
    let system = System::new(&[("proc/self/task/1/schedstat", "500 5 1")]);
    let (now, mut probe) = (clock::now(), system.probe());
    probe.read(now, &[1]);
    assert_eq!(probe.read(now, &[1]).cpu_share, None);
}

/// How long a system held us back while a file changed.
fn throttled(cgroup: &str, mountinfo: &str, files: &[(&str, &str)], changes: &[(&str, &str)]) -> Option<Duration> {
    let system = System::new(&[("proc/self/cgroup", cgroup), ("proc/self/mountinfo", mountinfo)]);
    files.iter().for_each(|(path, text)| system.write(path, text));
    system.second(&[], || changes.iter().for_each(|(path, text)| system.write(path, text))).throttled
}

// Mounts as four systems show them; the lines between are left out.
const V2: &str = "24 1 0:22 / /proc rw,nosuid - proc proc rw\n\
    30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
const V1: &str = "31 23 0:28 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755\n\
    32 31 0:29 / /sys/fs/cgroup/cpuset rw,nosuid shared:10 - cgroup cgroup rw,cpuset\n\
    33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:11 - cgroup cgroup rw,cpu,cpuacct\n";
const HYBRID: &str = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
    41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
/// Docker under version 1 without a namespace of groups: the mount shows the container's part only.
const V1_CONTAINER: &str =
    "612 611 0:30 /docker/4f6e /sys/fs/cgroup/cpu,cpuacct ro,nosuid master:11 - cgroup cgroup rw,cpu,cpuacct\n";

fn v2(usec: u64) -> String {
    format!(
        "usage_usec 70\nuser_usec 50\nsystem_usec 20\nnr_periods 9\nnr_throttled 3\nthrottled_usec {usec}\nnr_bursts 0\n"
    )
}

fn v1(nanos: u64) -> String {
    format!("nr_periods 9\nnr_throttled 3\nthrottled_time {nanos}\n")
}

#[test]
fn throttling_is_read_from_our_group_of_either_version() {
    let service = "0::/system.slice/steadyload.service\n";
    let file = "sys/fs/cgroup/system.slice/steadyload.service/cpu.stat";
    let both = |file, before: &str, after: &str, cgroup, mounts| {
        throttled(cgroup, mounts, &[(file, before)], &[(file, after)])
    };
    let expected = Some(Duration::from_millis(30));
    assert_eq!(both(file, &v2(1000), &v2(31_000), service, V2), expected);

    let groups = "12:cpuset:/\n5:cpu,cpuacct:/a b\n1:name=systemd:/init.scope\n0::/init.scope\n";
    let file = "sys/fs/cgroup/cpu,cpuacct/a b/cpu.stat";
    assert_eq!(both(file, &v1(1_000), &v1(30_001_000), groups, V1), expected);

    let file = "sys/fs/cgroup/cpu/cpu.stat";
    assert_eq!(both(file, &v1(0), &v1(30_000_000), "2:cpuacct:/\n1:cpu:/\n0::/\n", HYBRID), expected);

    let (groups, file) = ("5:cpu,cpuacct:/docker/4f6e\n", "sys/fs/cgroup/cpu,cpuacct/cpu.stat");
    assert_eq!(both(file, &v1(5), &v1(30_000_005), groups, V1_CONTAINER), expected);

    // In a namespace of its own a container is at the top.
    assert_eq!(both("sys/fs/cgroup/cpu.stat", &v2(0), &v2(30_000), "0::/\n", V2), expected);
    let blank = V2.replace("/sys/fs/cgroup", "/sys/fs/c\\040g");
    assert_eq!(both("sys/fs/c g/cpu.stat", &v2(0), &v2(30_000), "0::/\n", &blank), expected);
}

#[test]
fn a_quota_of_a_group_above_holds_us_back_too() {
    let [pod, container] = ["sys/fs/cgroup/pod/cpu.stat", "sys/fs/cgroup/pod/container/cpu.stat"];
    let root = ("sys/fs/cgroup/cpu.stat", "usage_usec 70\n");
    let files = [(pod, v2(100)), (container, v2(7))];
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).chain([root]).collect();
    let sum = throttled("0::/pod/container\n", V2, &files, &[(pod, &v2(20_100)), (container, &v2(5_007))]);
    assert_eq!(sum, Some(Duration::from_millis(25)));
}

#[test]
fn no_throttling_is_zero_and_not_knowing_is_absent() {
    let file = "sys/fs/cgroup/a/cpu.stat";
    let (files, usage_only) = ([(file, &*v2(500))], [(file, "usage_usec 70\n")]);
    assert_eq!(throttled("0::/a\n", V2, &files, &[]), Some(Duration::ZERO));
    assert_eq!(throttled("0::/a\n", V2, &usage_only, &[]), None, "the controller is not on");
    assert_eq!(throttled("0::/b\n", V2, &files, &[]), None, "not our group");
    let outside = [files[0], ("sys/fs/a/cpu.stat", &v2(500))];
    assert_eq!(throttled("0::/../a\n", V2, &outside, &[]), None, "outside of the namespace");
    assert_eq!(throttled("", V2, &files, &[]), None);
    assert_eq!(throttled("0::/a\n", "", &files, &[]), None);
    assert_eq!(throttled("0::/a\n", V2, &files, &usage_only), None, "it went away");
    assert_eq!(throttled("0::/a\n", V2, &files, &[(file, &v2(499))]), None, "another group of the same name");
    assert_eq!(throttled("5:cpu,cpuacct:/docker/aaaa\n", V1_CONTAINER, &[], &[]), None, "another container's mount");
}

#[test]
#[cfg(target_os = "linux")]
fn this_process_is_read() {
    let (now, mut probe) = (clock::now(), Probe::new());
    let thread = current_thread_id();
    assert!(thread > 0);
    probe.read(now, &[thread]);
    let cpu = || thread_cpu(Path::new("/"), thread).unwrap();
    let before = cpu();
    while cpu() < before + Duration::from_millis(20) {}
    let held: Vec<_> = (0..200).map(|_| File::open("/dev/null").unwrap()).collect();
    let reading = probe.read(clock::now(), &[thread]);
    let process = reading.process;
    assert!(reading.cpu_share.is_some_and(|share| share > 0.0), "{reading:?}");
    let counted = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let open = process.open_fds.unwrap();
    assert!(open >= held.len() as u64 && open.abs_diff(counted) < 100, "{open}, counted {counted}");
    assert!(process.max_fds.is_none_or(|max| max >= open));
    assert!(process.resident_bytes.unwrap() > 1 << 20 && process.virtual_bytes > process.resident_bytes);
    assert!(process.threads.unwrap() >= 1 && process.cpu_seconds.is_some());
    let wall = clock::wall_now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let age = wall - process.start_time_unix.unwrap();
    assert!((-2.0..24.0 * 3600.0).contains(&age), "begun {age} s ago");
}
