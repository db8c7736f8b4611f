//! The routes by which a test or a person changes and watches the gateway while it runs.

use std::sync::Arc;

use axum::extract::{Query, State};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::clock;
use crate::sim::fault::rule::FaultRule;
use crate::sim::http::House;
use crate::sim::refusal::Refusal;
use crate::sim::reply::Reply;
use crate::sim::value::Value;

/// A rule as it is set; `fault` may hold all of it in its own text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    fault: String,
    share: Option<f64>,
    after: Option<String>,
    #[serde(rename = "for")]
    lasting: Option<String>,
    times: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum RuleFiles {
    Many(Vec<RuleFile>),
    One(RuleFile),
}

impl RuleFile {
    fn rule(&self) -> Result<FaultRule, String> {
        let given = [
            ("share", self.share.map(|share| share.to_string())),
            ("after", self.after.clone()),
            ("for", self.lasting.clone()),
            ("times", self.times.map(|times| times.to_string())),
        ];
        let given: Vec<_> = given.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        FaultRule::parse_with(&self.fault, &given).map_err(|error| error.to_string())
    }
}

fn list(house: &House) -> Reply {
    let rules = house.rules.states().into_iter().map(|state| {
        json!({
            "origin": state.origin.show(),
            "fault": state.rule.fault.to_string(),
            "share": state.rule.share,
            "after": state.rule.after.show(),
            "for": state.rule.lasting.show(),
            "times": state.rule.times,
            "hits": state.hits,
        })
    });
    Reply::refusal(Refusal::json(200, &Json::Array(rules.collect())))
}

/// `GET /admin/faults`: the rules in force and how often each struck.
pub(crate) async fn faults(State(house): State<Arc<House>>) -> Reply {
    list(&house)
}

/// `PUT /admin/faults`: one rule or a list of them, in place of those that were put before.
pub(crate) async fn put_faults(State(house): State<Arc<House>>, body: Bytes) -> Reply {
    let files: RuleFiles = match serde_json::from_slice(&body) {
        Ok(files) => files,
        Err(_) => {
            let usage = r#"send {"fault": "name:key=value", "share": 0.1, "after": "2s", "for": "30s", "times": 3} or a list of such"#;
            return Reply::refusal(Refusal::bad_fault(usage));
        }
    };
    let files = match files {
        RuleFiles::Many(files) => files,
        RuleFiles::One(file) => vec![file],
    };
    match files.iter().map(RuleFile::rule).collect() {
        Ok(rules) => {
            house.rules.replace_admin(rules, clock::now());
            list(&house)
        }
        Err(error) => Reply::refusal(Refusal::bad_fault(&error)),
    }
}

/// `DELETE /admin/faults`: takes back what was put. The rules of start-up stay.
pub(crate) async fn delete_faults(State(house): State<Arc<House>>) -> Reply {
    house.rules.replace_admin(Vec::new(), clock::now());
    list(&house)
}

/// Which truths are asked for.
#[derive(Debug, Deserialize)]
pub(crate) struct TruthQuery {
    request_id: Option<String>,
}

/// `GET /admin/truth`: the log, or with `?request_id=` what it says about one request.
pub(crate) async fn truth(State(house): State<Arc<House>>, Query(query): Query<TruthQuery>) -> Reply {
    let log = &house.truth;
    let truths = match &query.request_id {
        Some(id) => log.get(id).into_iter().collect(),
        None => log.all(),
    };
    let lines: Vec<_> = truths.iter().map(|truth| log.line(truth)).collect();
    let body = format!(
        r#"{{"dropped":{},"dropped_lines":{},"requests":[{}]}}"#,
        log.dropped(),
        log.dropped_lines(),
        lines.join(",")
    );
    Reply::plain(200, vec![("content-type", "application/json".to_owned())], body.into())
}
