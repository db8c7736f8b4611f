//! What Prometheus' own tool says.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::*;

/// Its exit code and all it said. Missing it is a failure: a check that is skipped is not made.
fn promtool(arguments: &[&str], input: &str) -> (Option<i32>, String) {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool is missing: tests/run installs it, with the package prometheus");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code(), said.concat())
}

#[test]
fn promtool_finds_nothing_to_say() {
    let mut odd = traffic(2);
    odd_names(&mut odd);
    for view in [traffic(2), quiet(1), odd] {
        assert_eq!(promtool(&["check", "metrics"], &written_text(&view, Format::Text)), (Some(0), String::new()));
    }
    let (code, said) = promtool(&["check", "metrics"], "# TYPE a_minutes counter\na_minutes 1\n");
    assert!(code == Some(3) && said.contains("minutes"), "it does look: {code:?} {said}");
}

#[test]
fn every_query_of_the_documentation_is_one_and_names_what_there_is() {
    let mut rules = "groups:\n- name: all\n  rules:\n".to_owned();
    let mut queries = 0;
    for metric in catalogue::all() {
        for (at, (question, query)) in metric.queries().iter().enumerate() {
            assert!(!question.is_empty() && !question.ends_with('.'), "{}", metric.name);
            let quoted = serde_json::to_string(&**query).unwrap();
            rules.push_str(&format!("  - record: r_{}_{at}\n    expr: {quoted}\n", metric.name));
            assert!(query.contains(&*metric.full_name()), "{query} is not about {}", metric.name);
            names_what_there_is(query);
            queries += 1;
        }
    }
    let folder = std::env::temp_dir().join(format!("steadyload-queries-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("rules.yml");
    std::fs::write(&path, rules).unwrap();
    let (code, said) = promtool(&["check", "rules", path.to_str().unwrap()], "");
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(code, Some(0), "{said}");
    assert!(queries > 40 && said.contains(&format!("SUCCESS: {queries} rules found")), "{said}");
}

fn names_what_there_is(query: &str) {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for word in query.split(|c| !is_word(c)).filter(|word| word.starts_with("steadyload_")) {
        let known = |name: &str| catalogue::all().any(|metric| metric.full_name() == name);
        assert!(known(word) || word.strip_suffix("_bucket").is_some_and(known), "{word} in {query}");
    }
}
