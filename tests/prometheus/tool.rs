//! What promtool says of a scrape with traffic and of the configuration that our documents show.

use std::fs;
use std::path::{Path, PathBuf};

use crate::promtool::promtool;
use crate::scene::{alone, config};
use crate::server;
use crate::support::{Beside, Daemon, Folder};

#[test]
fn promtool_finds_nothing_to_say_of_a_daemon_with_traffic() {
    let _alone = alone();
    let gateway = Beside::start(&[("ttft", "20ms"), ("gap", "2ms")]);
    let folder = Folder::new();
    let loads = "[loads.open]\ntarget = \"t\"\nworkload = \"w\"\nrate = 50";
    let daemon = Daemon::start(&folder.write("c.toml", &config(&folder, &gateway, loads)), &[]);
    daemon.scrape_until("it has answers", |samples| samples.sum("requests_total", &[("outcome", "ok")]) > 20.0);
    let (_, text) = daemon.get("/metrics");
    assert_eq!(promtool(&["check", "metrics"], &text), (Some(0), String::new()));
    let (code, said) = promtool(&["check", "metrics"], &format!("{text}# TYPE a_minutes counter\na_minutes 1\n"));
    assert!(code == Some(3) && said.contains("minutes"), "it does look: {code:?} {said}");
}

/// YAML blocks with scrape configurations in a document.
fn shown_in(document: &Path) -> Vec<String> {
    let text = fs::read_to_string(document).unwrap();
    let blocks = text.split("```yaml\n").skip(1).map(|rest| rest.split("\n```").next().unwrap().to_owned());
    blocks.filter(|block| block.contains("scrape_configs:")).collect()
}

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut documents = vec![root.join("README.md")];
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    documents.extend(docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    documents
}

#[test]
fn promtool_takes_every_scrape_configuration_that_is_shown_and_the_one_of_these_tests() {
    let folder = Folder::new();
    let mut configs = vec![server::config(&[([127, 0, 0, 1], 9877).into()])];
    configs.extend(documents().iter().flat_map(|document| shown_in(document)));
    println!("{} of them are shown in documents", configs.len() - 1);
    for config in configs {
        // Of Prometheus 3, which 2.42 does not know.
        let known: Vec<_> = config.lines().filter(|line| !line.contains("scrape_native_histograms:")).collect();
        let path = folder.write("prometheus.yml", &known.join("\n"));
        let (code, said) = promtool(&["check", "config", path.to_str().unwrap()], "");
        assert!(code == Some(0) && said.contains("SUCCESS"), "{said}\n{config}");
    }
    let path = folder.write("prometheus.yml", "scrape_configs:\n- job_name: x\n  targets: []\n");
    assert_eq!(promtool(&["check", "config", path.to_str().unwrap()], "").0, Some(1), "it does look");
}
