//! What Prometheus' own tool says.

use super::*;
use tool::promtool;

#[path = "../../../../tests/support/promtool.rs"]
mod tool;

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
