//! What cannot work is said before anything is sent, with the setting that is to be changed.

use std::net::TcpListener;
use std::process::Command;

use crate::rig::{base, behind, command, load, refused};
use crate::support::{Beside, Daemon, Folder};

#[test]
fn what_cannot_start_names_the_setting_ends_with_4_and_sends_nothing() {
    let (gateway, folder) = (Beside::start(&[]), Folder::new());
    let config = folder.write("c.toml", &(base(gateway.address, "") + &load("a", "rate = 100")));
    let run = |set: &str| command(&config, &["--set", set]);

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let elsewhere = Beside::start(&[]);
    let other = folder.write("other.toml", &(base(elsewhere.address, "") + &load("a", "rate = 1")));
    let state = format!("state.dir={}", folder.0.join("state").display());
    let holder = Daemon::start(&other, &["--set", &state]);
    // The taken port is held until here.
    let listener = TcpListener::bind(taken).or_else(|_| TcpListener::bind("127.0.0.1:0")).unwrap();
    let taken = format!("server.listen={}", listener.local_addr().unwrap());

    let mut cases = vec![
        ("port taken", run(&taken), vec!["server.listen", "something else"]),
        ("foreign address", run("server.listen=203.0.113.1:9877"), vec!["server.listen", "no such address"]),
        ("no such folder", run("state.dir=/proc/nowhere/state"), vec!["state.dir", "/proc/nowhere/state"]),
        ("second daemon", run(&state), vec!["state.dir", "in use by another process (pid "]),
        ("few descriptors", behind("ulimit -n 64", &run("log.level=info")), vec!["max_in_flight", "ulimit -n"]),
    ];
    // A user who may not have low ports, where there is the tool to become one.
    if Command::new("setpriv").arg("--version").output().is_ok() {
        let plain = run("server.listen=127.0.0.1:81");
        let mut low = Command::new("setpriv");
        low.args(["--inh-caps", "-net_bind_service", "--bounding-set", "-net_bind_service"]);
        low.arg(plain.get_program()).args(plain.get_args());
        cases.push(("low port", low, vec!["server.listen", "denied"]));
    }
    for (what, command, says) in cases {
        let (code, said) = refused(command);
        assert_eq!(code, Some(4), "{what}: {said}");
        assert!(says.iter().all(|part| said.contains(part)), "{what}: {said}");
        assert!(!said.contains("panicked"), "{what}: {said}");
    }
    assert!(gateway.truth.all().is_empty(), "something was sent");
    assert_eq!(holder.stop().0, Some(0), "the first daemon was disturbed");
}

#[test]
fn every_fault_of_a_configuration_is_said_and_is_code_2() {
    let (gateway, folder) = (Beside::start(&[]), Folder::new());
    let target = "api_key_file = \"no-such-key\"\ntimeouts = { idle = \"soon\" }";
    let text = base(gateway.address, target) + &load("a", "rate = -1") + "[sever]\nlisten = 1\n";
    let (code, said) = refused(command(&folder.write("c.toml", &text), &[]));
    assert_eq!(code, Some(2), "{said}");
    for part in ["targets.t.api_key_file", "targets.t.timeouts.idle", "loads.a.rate", "sever", "4 faults"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(gateway.truth.all().is_empty(), "something was sent");
}
