//! How long the CPU quota of our control group has held us back.
//!
//! A quota may be set on our own group (a container) or on one above it (a pod, a systemd slice), and each group counts only what
//! its own quota did. So the sum is taken over our group and all above it that can be seen from here; in a container that is
//! often just one, because the namespace ends there.
//!
//! Where the files are follows from two others: `/proc/self/cgroup` names the group, `mountinfo` says which part of the tree
//! is mounted where. Version 1 and 2 differ in the names and in the unit. On a hybrid system, which has both, the version that
//! holds the `cpu` controller counts.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::text;

/// Groups that are looked at, our own and those above: more are not nested by anybody, and each costs a read a second.
const MAX_DEPTH: usize = 16;

/// The files that count it: of our group first, then of those above.
#[derive(Debug)]
pub(super) struct Throttle {
    files: Vec<PathBuf>,
}

impl Throttle {
    /// Looks for the files. A process is not moved between groups in its life, as a rule; one that is has no figures any more.
    pub(super) fn find(root: &Path) -> Self {
        let groups = text(root, "proc/self/cgroup").unwrap_or_default();
        let mounts = text(root, "proc/self/mountinfo").unwrap_or_default();
        let mounts: Vec<_> = mounts.lines().filter_map(Mount::read).collect();
        let found = [Version::One, Version::Two].into_iter().find_map(|version| {
            let group = groups.lines().find_map(|line| version.group(line))?;
            let ours = mounts.iter().filter(|mount| mount.version == version);
            ours.filter_map(|mount| mount.files(root, group)).find(|files| !files.is_empty())
        });
        Self { files: found.unwrap_or_default() }
    }

    /// The sum since these groups were made, over all cores: two threads that wait for 10 ms each make 20. `None` when no group
    /// counts it, or one of them cannot be read any more: a sum of fewer would later be taken for a jump.
    pub(super) fn total(&self, root: &Path) -> Option<Duration> {
        if self.files.is_empty() {
            return None;
        }
        self.files.iter().map(|file| throttled(root, file)).sum()
    }
}

fn throttled(root: &Path, file: &Path) -> Option<Duration> {
    text(root, file)?.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        let value = value.trim().parse().ok();
        match name {
            "throttled_usec" => value.map(Duration::from_micros),
            "throttled_time" => value.map(Duration::from_nanos),
            _ => None,
        }
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// The group that a line of `/proc/self/cgroup` (`id:controllers:path`) names, if it is the one with our CPU.
    fn group(self, line: &str) -> Option<&Path> {
        let mut parts = line.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_ours = match self {
            Self::One => controllers.split(',').any(|controller| controller == "cpu"),
            Self::Two => id == "0" && controllers.is_empty(),
        };
        is_ours.then_some(Path::new(path))
    }
}

/// A part of a tree of groups, and where it is mounted.
#[derive(Debug)]
struct Mount {
    version: Version,
    /// The topmost group of the part.
    top: PathBuf,
    /// Where it is, without the leading `/`.
    at: PathBuf,
}

impl Mount {
    /// A line of `mountinfo`, if it is a mount of groups with our CPU. The fields after the options are separated by a lone `-`.
    fn read(line: &str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (top, at) = (unescape(left.next()?), unescape(left.next()?));
        let mut right = right.split(' ');
        let version = match right.next()? {
            "cgroup2" => Version::Two,
            "cgroup" if right.nth(1)?.split(',').any(|option| option == "cpu") => Version::One,
            _ => return None,
        };
        Some(Self { version, top: top.into(), at: at.trim_start_matches('/').into() })
    }

    /// The files of a group and of all above it in this part, as far as they count. `None` when the group is not in it.
    fn files(&self, root: &Path, group: &Path) -> Option<Vec<PathBuf>> {
        let below = group.strip_prefix(&self.top).ok()?;
        // A group outside of our namespace is shown as `/../other`.
        if !below.components().all(|part| matches!(part, Component::Normal(_))) {
            return None;
        }
        let folders = below.ancestors().take(MAX_DEPTH).map(|group| self.at.join(group).join("cpu.stat"));
        Some(folders.filter(|file| throttled(root, file).is_some()).collect())
    }
}

/// `mountinfo` writes blanks, tabs, line ends and backslashes as three octal digits.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, plain)| text.replace(code, plain))
}
