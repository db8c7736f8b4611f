//! No prompt is sent twice: not after a kill, a restart, or a reload to another kind of loop.

use std::collections::BTreeSet;

use crate::rig::{base, command, goes_on, load, quick};
use crate::support::{Beside, Daemon, Folder};

/// The load and index of each request that the gateway has seen, of ids such as `a-17-5f0c…`.
fn indices(gateway: &Beside) -> Vec<(String, u64)> {
    let ids = gateway.truth.all().into_iter().map(|truth| truth.request_id.unwrap());
    let parts = ids.map(|id| {
        let mut parts = id.rsplitn(3, '-');
        let index = parts.nth(1).unwrap().parse().unwrap();
        (parts.next().unwrap().to_owned(), index)
    });
    parts.collect()
}

#[test]
fn no_index_is_sent_twice_after_kills_and_restarts_and_another_kind_of_loop() {
    let (gateway, folder) = (quick(), Folder::new());
    let loads = |of_b: &str| base(gateway.address, "") + &load("a", "rate = 50") + &load("b", of_b);
    let config = folder.write("c.toml", &loads("concurrency = 2"));
    let state = format!("state.dir={}", folder.0.join("state").display());
    for life in 0..4 {
        let mut daemon = Daemon::spawn(command(&config, &["--set", &state]));
        goes_on(&daemon, "a", 5.0);
        goes_on(&daemon, "b", 5.0);
        if life == 2 {
            folder.write("c.toml", &loads("rate = 50"));
            daemon.signal("HUP");
            daemon.scrape_until("b has a rate", |s| s.get("target_requests_per_second", &[("load", "b")]).is_some());
            goes_on(&daemon, "b", 5.0);
        }
        if life % 2 == 0 {
            daemon.signal("KILL");
            daemon.ended();
        } else {
            assert_eq!(daemon.stop().0, Some(0));
        }
    }
    let all = indices(&gateway);
    let distinct: BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len(), "{all:?}");
    assert!(all.len() >= 45, "{}", all.len());
}

#[test]
fn without_a_folder_a_restart_begins_anew_and_that_is_said() {
    let (gateway, folder) = (quick(), Folder::new());
    let config = folder.write("c.toml", &(base(gateway.address, "") + &load("a", "rate = 50")));
    for _ in 0..2 {
        let daemon = Daemon::start(&config, &[]);
        goes_on(&daemon, "a", 5.0);
        let (code, _, log) = daemon.stop();
        assert!(code == Some(0) && log.contains("the same prompts are sent again"), "{log}");
    }
    let all = indices(&gateway);
    assert_eq!(all.iter().filter(|(load, index)| load == "a" && *index == 0).count(), 2, "{all:?}");
}
