//! What Prometheus' own tool says.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Its exit code and all it said. Missing it is a failure: a check that is skipped is not made.
pub(crate) fn promtool(arguments: &[&str], input: &str) -> (Option<i32>, String) {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool is missing: tests/run installs it, with the package prometheus");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code(), said.concat())
}
