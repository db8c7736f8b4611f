//! The landing page: what this is, how it stands, and where everything is. No scripts; whatever it shows is escaped.

use std::fmt::{self, Display, Formatter, Write};

use crate::config::sections::Pace;
use crate::domain::outcome::Outcome;
use crate::export::api;
use crate::export::view::{LoadView, View};
use crate::measure::snapshot::LoadSnapshot;
use crate::measure::window::gauge::Quantile;
use crate::measure::window::{Length, Metric};

const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width\">
<title>steadyload</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; }
table { border-collapse: collapse; }
th, td { padding: .2em .8em; text-align: left; border-bottom: 1px solid #ccc; }
td.n, th.n { text-align: right; }
</style>
</head>
<body>
<h1>steadyload</h1>
<p>A steady load on an LLM inference gateway, and what its users would feel.</p>
";

const LINKS: [(&str, &str); 6] = [
    ("/metrics", "for Prometheus"),
    ("/api/v1/status", "everything about loads and client, as JSON"),
    ("/api/v1/requests", "the slowest requests and the last that failed"),
    ("/api/v1/events", "what has happened"),
    ("/-/healthy", "whether the daemon is alive"),
    ("/-/ready", "whether it is at work"),
];

/// `GET /`.
#[must_use]
pub(super) fn landing(view: &View) -> String {
    let mut html = HEAD.to_owned();
    // Writing into a string does not fail.
    body(&mut html, view).ok();
    html
}

fn body(html: &mut String, view: &View) -> fmt::Result {
    write!(html, "<p>Version {}, {}", env!("CARGO_PKG_VERSION"), view.phase.name())?;
    if let Some(uptime) = api::uptime(view) {
        write!(html, ", up for {} s", uptime.as_secs())?;
    }
    writeln!(html, ".</p>")?;
    if view.client.health.is_tainted() {
        writeln!(
            html,
            "<p><strong>This client is unwell: what it measures now says nothing of the gateway.</strong></p>"
        )?;
    }
    if let Some(failure) = &view.reload.failure {
        writeln!(
            html,
            "<p><strong>The last reload failed; the old configuration stays in force.</strong></p>\n<pre>{}</pre>",
            Escaped(failure)
        )?;
    }
    loads(html, view)?;
    html.push_str("<ul>\n");
    for (path, about) in LINKS {
        writeln!(html, "<li><a href=\"{path}\">{path}</a>: {about}</li>")?;
    }
    html.push_str("</ul>\n</body>\n</html>\n");
    Ok(())
}

fn loads(html: &mut String, view: &View) -> fmt::Result {
    html.push_str(
        "<table>\n<tr><th>load</th><th>target</th><th>model</th><th>pace</th><th>state</th><th class=\"n\">planned</th>\
         <th class=\"n\">in flight</th><th class=\"n\">ok</th><th class=\"n\">failed</th><th class=\"n\">TTFT P99, 5 min</th><th class=\"n\">n</th></tr>\n",
    );
    for (load, counts) in view.loads() {
        row(html, load, counts)?;
    }
    html.push_str("</table>\n");
    Ok(())
}

fn row(html: &mut String, load: &LoadView, counts: &LoadSnapshot) -> fmt::Result {
    let pace = match load.pace {
        None => "none here".to_owned(),
        Some(Pace::Rate(rate)) => format!("{} requests/s", rate.per_second),
        Some(Pace::Concurrency(workers)) => format!("{workers} at a time"),
    };
    let state = match (load.paused, load.not_kept) {
        (Some(_), _) => "paused".to_owned(),
        (None, true) => "not kept by the gateway".to_owned(),
        (None, false) => "kept".to_owned(),
    };
    let failing: Vec<_> = load.failing.iter().map(|outcome| outcome.name()).collect();
    let state = if failing.is_empty() { state } else { format!("{state}, failing: {}", failing.join(", ")) };
    let failed = |outcome: &Outcome| !outcome.is_answered() && *outcome != Outcome::Canceled;
    let failed: u64 = Outcome::ALL.into_iter().filter(failed).map(|outcome| counts.totals.outcome(outcome)).sum();
    let ttft = counts.windows.window(Length::FiveMinutes).metric(Metric::Ttft);
    let p99 = ttft.quantile(Quantile::P99);
    let p99 = p99.map_or("–".to_owned(), |p99| format!("{:.1} ms", p99.value.as_secs_f64() * 1000.0));
    writeln!(
        html,
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{pace}</td><td>{state}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td class=\"n\">{}</td><td class=\"n\">{failed}</td><td class=\"n\">{p99}</td><td class=\"n\">{}</td></tr>",
        Escaped(&load.name),
        Escaped(&load.target),
        Escaped(&load.model),
        counts.totals.planned(),
        counts.in_flight(),
        counts.totals.outcome(Outcome::Ok),
        ttft.samples
    )
}

/// Text that HTML does not take for its own, in elements and in quoted attributes.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            _ => f.write_char(c),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::metrics::tests::{odd_names, traffic};

    #[test]
    fn names_and_reports_cannot_become_markup() {
        let mut view = traffic(2);
        odd_names(&mut view);
        view.reload.failure = Some("<script>alert('x')</script>".to_owned());
        let html = landing(&view);
        assert!(html.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"));
        assert!(html.contains("&lt;b&gt;&quot;模型&quot; \\ &amp;amp;"), "{html}");
        assert!(!html.contains("<script") && !html.contains("<b>"));
    }

    #[test]
    fn the_page_says_how_the_daemon_stands_and_links_to_everything_that_can_be_read() {
        let html = landing(&traffic(1));
        assert!(html.contains(", running, up for 100 s."), "{html}");
        assert!(LINKS.iter().all(|(path, _)| html.contains(&format!("<a href=\"{path}\">"))));
        assert!(!html.contains("unwell") && !html.contains("reload failed"));
    }
}
