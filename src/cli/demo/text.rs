//! What the demo prints: pure functions from figures to text, for people who have never seen the tool.
//!
//! Nothing is wider than a usual terminal with some room. What does not exist is `-`, never 0.

use std::time::Duration;

use crate::app::demo::figures::{Figures, Latency, LoadFigures, RECENT, Unwell};
use crate::app::demo::{GATEWAY_PORT, GRACE, LOAD, Places, page_port};
use crate::config::sections::Pace;

/// No line of figures is wider than this.
const WIDTH: usize = 110;

/// A screen of lines: then the heading comes again.
pub(super) const LINES_PER_HEADING: usize = 20;

/// Where what did not fit into a line goes on.
const INDENT: &str = "        ";

/// What runs, what its words mean and where everything is.
pub(super) fn opening(pace: &Pace, length: Option<Duration>, every: Duration, places: &Places) -> String {
    let Places { daemon, gateway, configuration, token } = places;
    let load = match pace {
        Pace::Rate(rate) => format!(
            "sends an LLM gateway {} requests a second on average, at random moments, as users do,",
            rate.per_second
        ),
        Pace::Concurrency(workers) => format!("keeps {workers} requests under way at an LLM gateway"),
    };
    let end = match length {
        None => "until Ctrl-C".to_owned(),
        Some(length) => format!("for {length:?}, or until Ctrl-C"),
    };
    let taken = taken(daemon.port(), page_port(), "page") + &taken(gateway.port(), GATEWAY_PORT, "gateway");
    let (configuration, token, pid) = (configuration.display(), token.display(), std::process::id());
    format!(
        "steadyload {load}\n\
         and measures what its users would feel; {end}.\n\
         Gateway and engine are simulated, in this process: nothing leaves this machine.\n\n\
         {taken}\
         page      http://{daemon}/\n\
         metrics   http://{daemon}/metrics   for Prometheus\n\
         status    http://{daemon}/api/v1/status\n\
         gateway   http://{gateway}   speaks the OpenAI API\n\
         settings  {configuration}   to change them: edit, then kill -HUP {pid}\n\
         pause     curl -X POST -H \"Authorization: Bearer $(cat {token})\" http://{daemon}/api/v1/loads/{LOAD}/pause\n\
         resume    the same with /resume at the end\n\n\
         TTFT  time to first token: from sending a request to the first piece of its answer\n\
         TPOT  time per output token: the mean time from each token to the next, after the first\n\
         P50   half of the requests were at most this slow;  P99  99 in 100 were;  n  so many were measured\n\n\
         Rates and outcomes are of the last {every:?}, TTFT and TPOT of the last {} s.\n",
        RECENT.as_secs()
    )
}

/// Where the usual port could not be had.
fn taken(port: u16, usual: u16, what: &str) -> String {
    if port == usual { String::new() } else { format!("port {usual} is taken, so the {what} is on {port}\n") }
}

/// What the columns of [`line()`] are.
pub(super) fn heading() -> String {
    let [one, two] = [
        ["", "", "", "", "in", "TTFT", "", "", "TPOT", "", ""],
        ["time", "planned", "sent", "answered", "flight", "P50", "P99", "n", "P50", "P99", "n"],
    ]
    .map(columns);
    format!("\n{}\n{two}  how they ended\n", one.trim_end())
}

fn columns(cells: [&str; 11]) -> String {
    let [time, planned, sent, answered, flight, ttft50, ttft99, ttft_n, tpot50, tpot99, tpot_n] = cells;
    format!(
        "{time:>6} {planned:>11} {sent:>7} {answered:>8} {flight:>6}  {ttft50:>7} {ttft99:>7} {ttft_n:>5}  {tpot50:>7} {tpot99:>7} {tpot_n:>5}"
    )
}

/// One stretch of the load.
pub(super) fn line(figures: &Figures) -> String {
    let time = clock(figures.elapsed);
    let Some(load) = &figures.load else {
        return format!("{time:>6}  the load {LOAD} is not in the settings any more\n");
    };
    let per_second = |n: u64| rate(n, figures.lasted);
    let planned = match load.pace {
        Some(Pace::Concurrency(workers)) => format!("{workers} under way"),
        Some(Pace::Rate(_)) | None => per_second(load.planned),
    };
    let (ttft, tpot) = (cells(&load.ttft), cells(&load.tpot));
    let row = columns([
        &time,
        &planned,
        &per_second(load.sent()),
        &per_second(load.answered()),
        &load.in_flight.to_string(),
        &ttft[0],
        &ttft[1],
        &ttft[2],
        &tpot[0],
        &tpot[1],
        &tpot[2],
    ]);
    fitted(row, &remarks(load, figures.unwell.as_ref()))
}

/// How requests ended, and whatever else is worth a word.
fn remarks(load: &LoadFigures, unwell: Option<&Unwell>) -> Vec<String> {
    let ended = match load.ended.as_slice() {
        [] => "none ended".to_owned(),
        [_] if load.answered() > 0 => "all ok".to_owned(),
        ended => listed(ended.iter().map(|(outcome, n)| (outcome.name(), *n)), ", "),
    };
    let mut remarks = vec![ended];
    let shed: u64 = load.shed.iter().map(|(_, n)| n).sum();
    if shed > 0 {
        remarks.push(format!("{shed} not sent ({})", reasons(load)));
    }
    if load.paused {
        remarks.push("paused".to_owned());
    }
    if load.not_kept {
        remarks.push("the gateway does not take all of the load".to_owned());
    }
    remarks.extend(unwell.map(too_slow));
    remarks
}

fn too_slow(unwell: &Unwell) -> String {
    let reasons: Vec<_> = unwell.reasons.iter().map(|reason| reason.name()).collect();
    format!("this machine was too slow or too full for {} s of it ({})", unwell.seconds, reasons.join(", "))
}

/// The remarks behind the row, as far as they fit; the others below it.
fn fitted(row: String, remarks: &[String]) -> String {
    let (mut text, mut line) = (String::new(), row);
    let mut gap = "  ";
    for remark in remarks {
        if line.chars().count() + gap.len() + remark.chars().count() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line.clear();
            gap = INDENT;
        }
        line.push_str(gap);
        line.push_str(remark);
        gap = "; ";
    }
    text + &line + "\n"
}

/// What is said when the end begins.
pub(super) fn ending(places: &Places) -> String {
    let folder = places.configuration.parent().unwrap_or(&places.configuration).display();
    format!(
        "\nstopping: requests under way may go on for {} s; another Ctrl-C ends it at once and leaves\n{folder} behind\n",
        GRACE.as_secs()
    )
}

/// What became of everything.
pub(super) fn summary(figures: &Figures) -> String {
    let elapsed = figures.elapsed;
    let Some(load) = &figures.load else {
        return format!("ran for {}; the load {LOAD} was taken out of the settings\n", clock(elapsed));
    };
    let shed: u64 = load.shed.iter().map(|(_, n)| n).sum();
    let why = if shed > 0 { format!(" ({})", reasons(load)) } else { String::new() };
    let ended: String = load.ended.iter().map(|(outcome, n)| format!(" + {n} {}", outcome.name())).collect();
    let in_flight = if load.in_flight > 0 { format!(" + {} in flight", load.in_flight) } else { String::new() };
    let mut text = format!(
        "ran for {}\n  requests  {} planned = {shed} shed{why}{ended}{in_flight}\n",
        clock(elapsed),
        load.planned
    );
    for (name, latency, meaning) in [
        ("TTFT", &load.ttft, ""),
        ("TPOT", &load.tpot, ""),
        ("E2EL", &load.e2el, "   end to end: to the last token of the answer"),
    ] {
        let [p50, p99, n] = cells(latency);
        text.push_str(&format!("  {name}      P50 {p50:>7}   P99 {p99:>7}   n {n}{meaning}\n"));
    }
    text.push_str(&format!("  output    {} tokens/s\n", rate(load.output_tokens, elapsed).trim_end_matches("/s")));
    if load.canceled() > load.answered() {
        text.push_str(
            "  most requests were still under way at the end: the gateway does not keep up with this load,\n",
        );
        text.push_str("  and the latencies are those of the few that it answered\n");
    }
    if let Some(unwell) = &figures.unwell {
        text.push_str(&format!("  {}: the latencies hold what that delayed\n", too_slow(unwell)));
    }
    text
}

/// Why requests were not sent.
fn reasons(load: &LoadFigures) -> String {
    match load.shed.as_slice() {
        [(reason, _)] => reason.name().to_owned(),
        shed => listed(shed.iter().map(|(reason, n)| (reason.name(), *n)), ", "),
    }
}

fn listed(counts: impl Iterator<Item = (&'static str, u64)>, between: &str) -> String {
    counts.map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(between)
}

/// P50, P99 and n.
fn cells(latency: &Latency) -> [String; 3] {
    [
        latency.p50.map_or("-".to_owned(), self::latency),
        latency.p99.map_or("-".to_owned(), self::latency),
        latency.n.to_string(),
    ]
}

/// Three digits, as far as there are any.
fn latency(latency: Duration) -> String {
    let secs = latency.as_secs_f64();
    match secs * 1000.0 {
        ms if ms < 9.995 => format!("{ms:.2} ms"),
        ms if ms < 99.95 => format!("{ms:.1} ms"),
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        _ if secs < 9.995 => format!("{secs:.2} s"),
        _ => format!("{secs:.1} s"),
    }
}

/// `-` for a stretch of no length.
fn rate(count: u64, lasted: Duration) -> String {
    if lasted.is_zero() {
        return "-".to_owned();
    }
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let rate = count as f64 / lasted.as_secs_f64();
    if rate < 99.95 { format!("{rate:.1}/s") } else { format!("{rate:.0}/s") }
}

/// `0:05`, `1:02:03`, to the nearest second.
fn clock(elapsed: Duration) -> String {
    let secs = elapsed.saturating_add(Duration::from_millis(500)).as_secs();
    let (hours, minutes, secs) = (secs / 3600, secs / 60 % 60, secs % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{secs:02}") } else { format!("{minutes}:{secs:02}") }
}

#[cfg(test)]
mod tests;
