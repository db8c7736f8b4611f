//! What a service manager is told, over a socket of the test.

use std::os::unix::net::UnixDatagram;

use crate::rig::{base, command, goes_on, load, quick};
use crate::support::{Daemon, Folder, PATIENCE};

#[test]
fn a_service_manager_hears_of_every_step() {
    let (gateway, folder) = (quick(), Folder::new());
    let config = folder.write("c.toml", &(base(gateway.address, "") + &load("a", "rate = 50")));
    let path = folder.0.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = || {
        let mut bytes = [0; 4096];
        let length = socket.recv(&mut bytes).expect("nothing is told");
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let next = |what: &str| {
        let told = std::iter::repeat_with(heard).find(|told| !told.starts_with("WATCHDOG=1")).unwrap();
        assert!(told.lines().any(|line| line == what), "{what} was awaited: {told}");
        told
    };
    let mut command = command(&config, &[]);
    // The manager names the process that it means, which is not known here: none is named.
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "1000000").env_remove("WATCHDOG_PID");
    let mut daemon = Daemon::spawn(command);
    next("READY=1");
    assert_eq!(daemon.get("/-/ready").0, 200, "it was said to be ready");
    assert!(std::iter::repeat_with(heard).take(3).all(|told| told == "WATCHDOG=1\n" || told == "WATCHDOG=1"));
    daemon.signal("HUP");
    let told = next("RELOADING=1");
    let at = told.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).unwrap();
    assert!(at.parse::<u64>().unwrap() > 0, "{told}");
    next("READY=1");
    std::fs::write(&config, "broken").unwrap();
    daemon.signal("HUP");
    next("RELOADING=1");
    next("READY=1");
    daemon.signal("TERM");
    next("STOPPING=1");
    assert_eq!(daemon.ended().code(), Some(0));
}

#[test]
fn a_service_manager_that_is_deaf_stops_nothing() {
    let (gateway, folder) = (quick(), Folder::new());
    let config = folder.write("c.toml", &(base(gateway.address, "") + &load("a", "rate = 50")));
    let mut command = command(&config, &[]);
    command.env("NOTIFY_SOCKET", folder.0.join("nobody")).env("WATCHDOG_USEC", "1000000");
    let daemon = Daemon::spawn(command);
    goes_on(&daemon, "a", 60.0);
    let (code, _, log) = daemon.stop();
    assert_eq!(code, Some(0), "{log}");
}
