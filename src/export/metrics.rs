//! `/metrics`: one picture of the daemon in the three forms that Prometheus reads.
//!
//! There is one collector over one [`View`], so that all numbers of a scrape belong to one instant and
//! `planned = shed + in_flight + sum(outcomes)` holds in what is read. The crate's own `Family<Histogram>` is not used:
//! it locks and searches at every observation, and its counters are read one after another.
//!
//! Every family is a row of the [`catalogue`], which holds its name, type, labels and words and the function that makes
//! its series. The collector walks the rows, `steadyload metrics` prints them; a series without a row cannot be written,
//! nor a row be without its series.
//!
//! Histograms are always classic **and** native: the text formats cannot carry a native one, and a native-only one makes
//! the OpenMetrics encoder fail the whole scrape. Where a Prometheus takes the native form it drops `_bucket`, `_sum` and
//! `_count`, which is why everything that is counted has a counter of its own beside the histogram.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_protobuf, prometheus_text, text};
use prometheus_client::registry::Registry;

use crate::export::view::View;

pub mod catalogue;
pub mod document;

mod series;

use series::Series;

/// A form of the exposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Length-delimited `io.prometheus.client.MetricFamily`: the only one with native histograms.
    Protobuf,
    /// OpenMetrics text 1.0.
    OpenMetrics,
    /// Prometheus text 0.0.4, which everything and everybody can read.
    Text,
}

impl Format {
    /// Every form.
    pub const ALL: [Self; 3] = [Self::Protobuf, Self::OpenMetrics, Self::Text];

    /// Its `Content-Type`.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// Writes every metric. `coarse`: classic buckets in powers of two for all histograms.
///
/// # Errors
///
/// What `to` answers. The encoders themselves have nothing to fail at: each histogram has classic buckets.
pub fn write(view: &Arc<View>, coarse: bool, format: Format, to: &mut dyn Write) -> io::Result<()> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Picture { view: Arc::clone(view), coarse }));
    if format == Format::Protobuf {
        let families = prometheus_protobuf::encode_to_vec(&registry).map_err(io::Error::other)?;
        return to.write_all(&families);
    }
    let mut out = Out { to, failure: None };
    let encoded = match format {
        Format::OpenMetrics => text::encode(&mut out, &registry),
        Format::Text | Format::Protobuf => prometheus_text::encode(&mut out, &registry),
    };
    match out.failure {
        Some(failure) => Err(failure),
        None => encoded.map_err(io::Error::other),
    }
}

/// A view as the crate wants to collect it.
#[derive(Debug)]
struct Picture {
    view: Arc<View>,
    coarse: bool,
}

impl Collector for Picture {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for metric in catalogue::all() {
            let (name, unit) = metric.registered();
            let mut series = Series::new(&mut encoder, metric, &name, unit, self.coarse);
            metric.collect(&self.view, &mut series)?;
        }
        Ok(())
    }
}

/// Where text goes: bytes, with the error that [`fmt::Error`] has no room for.
struct Out<'a> {
    to: &'a mut dyn Write,
    failure: Option<io::Error>,
}

impl fmt::Write for Out<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.to.write_all(text.as_bytes()).map_err(|error| {
            self.failure = Some(error);
            fmt::Error
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
