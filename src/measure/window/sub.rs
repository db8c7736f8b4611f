//! One closed minute of a load: immutable, sparse, and the same bytes in memory and in a log.
//!
//! Per metric: `censored_high`, how many pairs, and the pairs `(bucket, count)` from the *slowest* bucket down. The
//! detector asks how many values lie above a bucket, and at the P99 that is answered by the first few pairs.
//! A bucket is written as its distance from the one before and all numbers as LEB128, so that most pairs take 2 bytes
//! instead of the 8 of two `u32`; this is what makes 24 h of one-minute resolution affordable for nine metrics
//! (600 log-normal latencies with s = 0.5 are 540 pairs and 1.1 kB).
//!
//! Counts are `u32` here and saturate: a minute would need 71 million values a second in one bucket.
//!
//! Form, version 1: version `1`; start in Unix seconds; covered milliseconds; flags (1: tainted); then for each of
//! [`Metric::ALL`] its section. Length and checksum of a record are the log's business. [`SubWindow::decode`] reads bytes that may be
//! anything: it takes no more memory than their length, and what it accepts can be summed over 24 h without overflow.

use std::time::Duration;

use crate::measure::hdr::{BUCKETS, Bucket};
use crate::measure::window::{Metric, Tally};

/// The form that is written, and the only one that is read.
pub const VERSION: u8 = 1;

/// The longest record that is read: all buckets of all metrics with counts of five bytes, and as much again for the rest.
pub const MAX_ENCODED: usize = 2 * Metric::COUNT * BUCKETS * 6;

const TAINTED: u64 = 1;

/// One closed minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubWindow {
    start_unix: u64,
    covered_millis: u32,
    tainted: bool,
    metrics: [Sparse; Metric::COUNT],
}

/// The values of one metric in one minute.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sparse {
    censored_high: u32,
    samples: u64,
    /// The section as it is stored. Written by [`Sparse::new`] or checked by `decode`, so that reading it cannot fail.
    pairs: Box<[u8]>,
}

/// Why bytes are no sub-window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Written by another version of this program.
    #[error("version {0} is not the version {VERSION} that can be read")]
    Version(u8),
    /// More bytes than any sub-window has.
    #[error("{0} bytes are more than a sub-window has")]
    TooLong(usize),
    /// The bytes end in the middle.
    #[error("the bytes end in the middle")]
    Torn,
    /// There are bytes after the end.
    #[error("{0} bytes are left over")]
    LeftOver(usize),
    /// A number that cannot be.
    #[error("{0} is out of range")]
    OutOfRange(&'static str),
}

impl SubWindow {
    /// A minute that holds what the tally counted.
    #[must_use]
    pub fn new(start_unix: u64, covered: Duration, tainted: bool, tally: &Tally) -> Self {
        Self {
            start_unix,
            covered_millis: u32::try_from(covered.as_millis()).unwrap_or(u32::MAX),
            tainted,
            metrics: Metric::ALL.map(|metric| Sparse::new(tally, metric)),
        }
    }

    /// A minute of which nothing is known.
    #[must_use]
    pub fn uncovered(start_unix: u64) -> Self {
        Self { start_unix, covered_millis: 0, tainted: false, metrics: Default::default() }
    }

    /// When it began, in Unix seconds: for the hour of the day and for files.
    #[must_use]
    pub fn start_unix(&self) -> u64 {
        self.start_unix
    }

    /// Time under load: the daemon ran, the load was neither paused nor resting, the client was well.
    #[must_use]
    pub fn covered(&self) -> Duration {
        Duration::from_millis(self.covered_millis.into())
    }

    /// Whether the client was unwell or the minute was cut short: it feeds no baseline and no verdict.
    #[must_use]
    pub fn is_tainted(&self) -> bool {
        self.tainted
    }

    /// The values of one metric.
    #[must_use]
    pub fn metric(&self, metric: Metric) -> &Sparse {
        &self.metrics[metric as usize]
    }

    /// Bytes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.metrics.iter().map(|sparse| sparse.pairs.len()).sum()
    }

    /// The bytes of the record.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32 + 8 * Metric::COUNT + self.heap_bytes());
        bytes.push(VERSION);
        write(&mut bytes, self.start_unix);
        write(&mut bytes, self.covered_millis.into());
        write(&mut bytes, if self.tainted { TAINTED } else { 0 });
        for sparse in &self.metrics {
            write(&mut bytes, sparse.censored_high.into());
            write(&mut bytes, sparse.pairs().count() as u64);
            bytes.extend_from_slice(&sparse.pairs);
        }
        bytes
    }

    /// Reads a record.
    ///
    /// # Errors
    /// When the bytes are not what [`SubWindow::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > MAX_ENCODED {
            return Err(DecodeError::TooLong(bytes.len()));
        }
        let (version, mut rest) = bytes.split_first().ok_or(DecodeError::Torn)?;
        if *version != VERSION {
            return Err(DecodeError::Version(*version));
        }
        let start_unix = read(&mut rest)?;
        let covered_millis = read_u32(&mut rest, "the covered time")?;
        let flags = read(&mut rest)?;
        if flags > TAINTED {
            return Err(DecodeError::OutOfRange("a flag"));
        }
        let mut metrics: [Sparse; Metric::COUNT] = Default::default();
        for sparse in &mut metrics {
            *sparse = Sparse::decode(&mut rest)?;
        }
        if !rest.is_empty() {
            return Err(DecodeError::LeftOver(rest.len()));
        }
        Ok(Self { start_unix, covered_millis, tainted: flags == TAINTED, metrics })
    }
}

impl Sparse {
    fn new(tally: &Tally, metric: Metric) -> Self {
        let mut pairs = Vec::new();
        let (mut above, mut samples) = (BUCKETS as u64, 0);
        for (bucket, n) in tally.counts(metric).iter().rev() {
            let n = u32::try_from(n).unwrap_or(u32::MAX);
            write(&mut pairs, above - u64::from(bucket.number()));
            write(&mut pairs, n.into());
            above = bucket.number().into();
            samples += u64::from(n);
        }
        let censored_high = u32::try_from(tally.censored_high(metric)).unwrap_or(u32::MAX);
        Self { censored_high, samples, pairs: pairs.into_boxed_slice() }
    }

    /// Values counted.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Requests too slow to have a value: they lie above every bucket.
    #[must_use]
    pub fn censored_high(&self) -> u64 {
        self.censored_high.into()
    }

    /// The non-empty buckets and their counts, from the slowest.
    #[must_use]
    pub fn pairs(&self) -> Pairs<'_> {
        Pairs { rest: &self.pairs, above: BUCKETS as u64 }
    }

    /// Values in buckets strictly above this one, the censored requests among them.
    #[must_use]
    pub fn above(&self, bucket: Bucket) -> u64 {
        let slower = self.pairs().take_while(|(at, _)| *at > bucket);
        self.censored_high() + slower.map(|(_, n)| u64::from(n)).sum::<u64>()
    }

    fn decode(rest: &mut &[u8]) -> Result<Self, DecodeError> {
        let censored_high = read_u32(rest, "a censored count")?;
        let pairs = read(rest)?;
        let whole = *rest;
        let (mut above, mut samples) = (BUCKETS as u64, 0);
        // Each pair moves down by at least one bucket, so there are at most `BUCKETS` rounds whatever `pairs` says.
        for _ in 0..pairs {
            let gap = read(rest)?;
            above = above.checked_sub(gap).filter(|_| gap > 0).ok_or(DecodeError::OutOfRange("a bucket"))?;
            let n = read_u32(rest, "a count")?;
            if n == 0 {
                return Err(DecodeError::OutOfRange("a count"));
            }
            samples += u64::from(n);
        }
        let (section, _) = whole.split_at(whole.len() - rest.len());
        Ok(Self { censored_high, samples, pairs: section.into() })
    }
}

/// See [`Sparse::pairs`].
#[derive(Debug, Clone)]
pub struct Pairs<'a> {
    rest: &'a [u8],
    above: u64,
}

impl Iterator for Pairs<'_> {
    type Item = (Bucket, u32);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let gap = read(&mut self.rest).ok()?;
        let n = read(&mut self.rest).ok()?;
        self.above = self.above.checked_sub(gap)?;
        Some((Bucket::from_number(self.above)?, u32::try_from(n).ok()?))
    }
}

fn write(bytes: &mut Vec<u8>, mut number: u64) {
    loop {
        let low = u8::try_from(number & 0x7f).unwrap_or(0);
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return;
        }
        bytes.push(low | 0x80);
    }
}

#[inline]
fn read(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (byte, rest) = bytes.split_first().ok_or(DecodeError::Torn)?;
        *bytes = rest;
        let low = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit.
        if shift == 63 && low > 1 || shift > 63 {
            return Err(DecodeError::OutOfRange("a number"));
        }
        number |= low << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
        shift += 7;
    }
}

fn read_u32(bytes: &mut &[u8], what: &'static str) -> Result<u32, DecodeError> {
    u32::try_from(read(bytes)?).map_err(|_| DecodeError::OutOfRange(what))
}

#[cfg(test)]
mod tests;
