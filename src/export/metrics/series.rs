//! Writes the series of one family, and its descriptor before the first of them.
//!
//! A family without series has no descriptor either: what does not exist is absent, not announced.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NativeHistogram,
    NativeHistogramBuckets, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Unit;

use crate::export::metrics::catalogue::{Kind, Metric};
use crate::measure::histogram::{Histogram, MAX_NATIVE_BUCKETS};
use crate::measure::totals::{Quantity, Totals};

/// The value of a counter or gauge.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    Whole(u64),
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

/// True is 1.
impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

/// Names and values of the labels that all series of a load have.
pub(super) type LoadLabels<'a> = [(&'static str, &'a str)];

/// The labels of one series: those of the load, if it is of one, then its own.
#[derive(Debug)]
struct Labels<'a> {
    load: &'a LoadLabels<'a>,
    names: &'static [&'static str],
    values: &'a [&'a str],
}

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder) -> fmt::Result {
        for label in self.load {
            label.encode(encoder.encode_label())?;
        }
        for (name, value) in self.names.iter().zip(self.values) {
            (*name, *value).encode(encoder.encode_label())?;
        }
        Ok(())
    }
}

/// The family that is being written.
pub(super) struct Series<'e, 'd> {
    metric: &'static Metric,
    name: &'e str,
    unit: Option<&'static Unit>,
    coarse: bool,
    /// Taken when the descriptor is written.
    descriptors: Option<&'e mut DescriptorEncoder<'d>>,
    family: Option<MetricEncoder<'e>>,
}

impl<'e, 'd> Series<'e, 'd> {
    /// `name` and `unit` are [`Metric::registered`].
    pub(super) fn new(
        descriptors: &'e mut DescriptorEncoder<'d>,
        metric: &'static Metric,
        name: &'e str,
        unit: Option<&'static Unit>,
        coarse: bool,
    ) -> Self {
        Self { metric, name, unit, coarse, descriptors: Some(descriptors), family: None }
    }

    /// Writes a counter or gauge. `values` are those of the metric's own labels, in their order. What is no number is not
    /// written.
    pub(super) fn put(&mut self, load: &LoadLabels<'_>, values: &[&str], value: impl Into<Value>) -> fmt::Result {
        let value = value.into();
        if matches!(value, Value::Real(real) if !real.is_finite()) {
            return Ok(());
        }
        let labels = self.labels(load, values);
        let kind = self.metric.kind;
        let mut encoder = self.family()?.encode_family(&labels)?;
        match (kind, value) {
            (Kind::Counter, Value::Whole(n)) => encoder.encode_counter(&n, None::<&Exemplar<NoLabelSet, f64>>),
            (Kind::Counter, Value::Real(x)) => encoder.encode_counter(&x, None::<&Exemplar<NoLabelSet, f64>>),
            (_, Value::Whole(n)) => encoder.encode_gauge(&n),
            (_, Value::Real(x)) => encoder.encode_gauge(&x),
        }
    }

    /// Writes an info: labels, and a 1 that says nothing.
    pub(super) fn info(&mut self, values: &[&str]) -> fmt::Result {
        let labels = self.labels(&[], values);
        self.family()?.encode_info(&labels)
    }

    /// Writes a histogram, classic and native.
    pub(super) fn histogram(
        &mut self,
        load: &LoadLabels<'_>,
        values: &[&str],
        totals: &Totals,
        quantity: Quantity,
    ) -> fmt::Result {
        let histogram = totals.histogram(quantity);
        let buckets = classic(histogram, quantity, self.coarse);
        let native = histogram.native(MAX_NATIVE_BUCKETS);
        let spans: Vec<(i32, u32)> = native.spans.iter().map(|span| (span.offset, span.length)).collect();
        let labels = self.labels(load, values);
        let mut encoder = self.family()?.encode_family(&labels)?;
        encoder.encode_histogram_with_native::<NoLabelSet>(
            histogram.sum(),
            histogram.count(),
            &buckets,
            None,
            NativeHistogram {
                schema: native.schema.into(),
                zero_threshold: native.zero_threshold,
                zero_count: native.zero_count,
                negative: NativeHistogramBuckets { spans: &[], deltas: &[] },
                positive: NativeHistogramBuckets { spans: &spans, deltas: &native.deltas },
                created: None,
            },
        )
    }

    fn labels<'a>(&self, load: &'a LoadLabels<'a>, values: &'a [&'a str]) -> Labels<'a> {
        debug_assert_eq!(self.metric.labels.len(), values.len(), "{}", self.metric.name);
        Labels { load, names: self.metric.labels, values }
    }

    fn family(&mut self) -> Result<&mut MetricEncoder<'e>, fmt::Error> {
        if let Some(descriptors) = self.descriptors.take() {
            let kind = match self.metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
                Kind::Info => MetricType::Info,
            };
            self.family = Some(descriptors.encode_descriptor(self.name, self.metric.help, self.unit, kind)?);
        }
        self.family.as_mut().ok_or(fmt::Error)
    }
}

/// The classic buckets in the form that the crate adds up: each with its own count, the last one `+Inf`. Of the three
/// encoders the one for OpenMetrics writes no `+Inf` unless it is given one.
fn classic(histogram: &Histogram, quantity: Quantity, coarse: bool) -> Vec<(f64, u64)> {
    let bounds = quantity.classic_bounds(coarse);
    let cumulative = histogram.classic(&bounds);
    let mut below = 0;
    let mut own = |upto: u64| upto - std::mem::replace(&mut below, upto);
    let mut buckets: Vec<_> = bounds.upper_bounds().zip(cumulative).map(|(bound, upto)| (bound, own(upto))).collect();
    buckets.push((f64::INFINITY, own(histogram.count())));
    buckets
}
