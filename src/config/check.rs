//! The strict pass: the merged tree into checked sections, with every fault that it has.
//!
//! `serde` would stop at the first fault, and the `config` crate would round `3.7` to 4 and take `"yes"` for true. So
//! the tree is read key by key: a reader answers with a value or reports and answers nothing, and only when everything
//! has been read is it asked whether all values are there. Every key that no reader asked for is unknown.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use config::{Map, Value};

use crate::config::effective::Effective;
use crate::config::environment::Environment;
use crate::config::fault::Finding;
use crate::config::origin::{KeyPath, Origin};
use crate::config::read::Notes;
use crate::config::sections::{Config, Target, Workload};

use self::reader::{Checker, Named, Section};

mod body;
mod budget;
mod daemon;
mod headers;
mod length;
mod loads;
mod pace;
mod reader;
mod secret;
mod server;
mod suggest;
mod target;
mod url;
mod value;
mod vocabulary;
mod workload;

/// What the strict pass made of the tree.
pub(super) struct Checked {
    /// The configuration; `None` when something is wrong.
    pub(super) config: Option<Config>,
    /// Every setting in force.
    pub(super) effective: Effective,
    /// Worth a second look, but no fault.
    pub(super) warnings: Vec<Finding>,
}

/// Reads the tree. `whole` is the place that is named when something is missing altogether.
pub(super) fn check(
    tree: &Map<String, Value>,
    whole: &Origin,
    environment: &Environment,
    notes: &mut Notes,
) -> Checked {
    let root = Section { path: KeyPath::default(), origin: whole.clone(), table: tree };
    let mut checker = Checker::new(environment, notes);
    let names = Names {
        targets: checker.section_names(&root, "targets"),
        workloads: checker.section_names(&root, "workloads"),
        loads: checker.section_names(&root, "loads"),
    };
    let targets = targets(&mut checker, &root);
    let workloads = workloads(&mut checker, &root);
    let loads = loads::loads(&mut checker, &root, &names);
    let budgets = budget::budgets(&mut checker, &root, &names.targets, &loads.good, &workloads.good);
    let server = server::server(&mut checker, &root);
    let state = daemon::state(&mut checker, &root);
    let log = daemon::log(&mut checker, &root);
    let shard = daemon::shard(&mut checker, &root, &loads.good);
    checker.close(&root, &vocabulary::ROOT);
    if names.targets.is_empty() && !tree.contains_key("targets") {
        let help = "add [targets.NAME] with base_url and model";
        checker.absent(&root, &root.path.child("targets"), "there is no target, wants at least one", help);
    }
    if checker.is_clean() && loads.good.is_empty() {
        let finding = Finding::at(whole, &root.path.child("loads"), "there is no load, so nothing will be sent", "");
        checker.warn(finding.with_help("add [loads.NAME] with target, workload and rate"));
    }
    let config = || {
        Some(Config {
            targets: targets.all()?,
            workloads: workloads.all()?,
            loads: loads.all()?,
            budgets: budgets?,
            server: server?,
            state: state?,
            log: log?,
            shard: shard?,
        })
    };
    let config = config();
    let (effective, warnings) = checker.finish();
    Checked { config, effective, warnings }
}

/// The configured names, right or wrong inside: a reference to a target with a fault is no second fault.
struct Names {
    targets: Vec<String>,
    workloads: Vec<String>,
    loads: Vec<String>,
}

/// The sections of one kind.
struct Sections<T> {
    /// Those without a fault.
    good: BTreeMap<String, T>,
    /// Whether that is all of them.
    whole: bool,
}

impl<T> Sections<T> {
    /// Reads each section of this kind.
    fn read<'t>(
        checker: &mut Checker<'_>,
        root: &Section<'t>,
        kind: &'static str,
        mut one: impl FnMut(&mut Checker<'_>, &str, &Section<'t>) -> Option<T>,
    ) -> Self {
        let (sections, mut whole) = checker.named(root, kind);
        let mut good = BTreeMap::new();
        for Named { name, sound, section } in sections {
            match one(checker, &name, &section).filter(|_| sound) {
                Some(value) => drop(good.insert(name, value)),
                None => whole = false,
            }
        }
        Self { good, whole }
    }

    /// All of them, if none has a fault.
    fn all(self) -> Option<BTreeMap<String, T>> {
        self.whole.then_some(self.good)
    }
}

fn targets(checker: &mut Checker<'_>, root: &Section<'_>) -> Sections<Target> {
    Sections::read(checker, root, "targets", target::target)
}

fn workloads(checker: &mut Checker<'_>, root: &Section<'_>) -> Sections<Workload> {
    Sections::read(checker, root, "workloads", |checker, _, section| workload::workload(checker, section))
}

/// A number that has been checked to be one.
fn nonzero(number: u64) -> Option<NonZeroU32> {
    u32::try_from(number).ok().and_then(NonZeroU32::new)
}
