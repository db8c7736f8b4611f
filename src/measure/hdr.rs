//! Exact counts of durations in HDR buckets: what quantiles and the drift test are computed from.
//!
//! The layout is HdrHistogram's for 1 µs to 10 min at 3 significant digits: one bucket a microsecond up to 2.048 ms, then
//! 1024 a doubling, so that a bucket is at most 1/1024 wide. A test holds it against the `hdrhistogram` crate. The crate
//! itself is not used to count, because a window has to do what it cannot: add and *subtract* sparse lists of
//! `(bucket, count)`, which need the bucket's number, and leave out what is empty. Its array is 86 kB in `u32` whatever it
//! holds; times nine metrics, four windows and an open minute that would be 3.9 MB a load, and as much again per worker.
//!
//! [`Counts`] therefore has pages of 64 buckets (512 B) that come into being when they are first counted in: a latency
//! spread over three octaves takes 27 kB, a second's delta with ten requests 5 kB, and nothing more than 166 kB. The
//! counts are `u64`. `u32` would halve that, but 24 h at 1000 requests/s of 100 tokens are 8.6 × 10⁹ gaps, and where a
//! proxy coalesces half of them are zero and in one bucket: more than 2³².

use std::time::Duration;

/// Durations of this length and above are in the last bucket.
pub const HIGHEST: Duration = Duration::from_secs(600);

const HIGHEST_MICROS: u64 = 600_000_000;
/// Buckets of 1 µs, and buckets per doubling after them.
const FINE: u64 = 2048;
const HALF_BITS: u32 = 10;
/// How many buckets there are. They fit a `u16`.
pub const BUCKETS: usize = 20_601;
const _: () = assert!(number(HIGHEST_MICROS) + 1 == BUCKETS as u64);

const PAGE_BITS: u32 = 6;
const PAGE: usize = 1 << PAGE_BITS;
const PAGES: usize = BUCKETS.div_ceil(PAGE);
/// Pages for which room is made at a time: 4 kB.
const GROWTH: usize = 8;
/// No page: never a position, since there are at most `PAGES` of them.
const ABSENT: u16 = u16::MAX;

/// The number of the bucket of so many microseconds.
const fn number(micros: u64) -> u64 {
    if micros < FINE {
        return micros;
    }
    let shift = micros.ilog2() - HALF_BITS;
    ((shift as u64) << HALF_BITS) + (micros >> shift)
}

/// One bucket: a half-open range of durations. Buckets order as durations do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(u16);

impl Bucket {
    /// The bucket of a duration. Above [`HIGHEST`] it is the last one.
    #[inline]
    #[must_use]
    pub fn of(duration: Duration) -> Self {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self(u16::try_from(number(micros.min(HIGHEST_MICROS))).unwrap_or(u16::MAX))
    }

    /// The bucket with this number; `None` when there is none.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        u16::try_from(number).ok().filter(|number| usize::from(*number) < BUCKETS).map(Self)
    }

    /// Its number, from 0.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }

    /// The shortest duration in it.
    #[must_use]
    pub fn lower(self) -> Duration {
        Duration::from_micros(self.lower_micros())
    }

    /// The middle of it: the value that stands for all in it, at most 0.05 % away from any of them (0.5 µs below 1 ms).
    #[must_use]
    pub fn middle(self) -> Duration {
        Duration::from_nanos(self.lower_micros() * 1000 + self.width_micros() * 500)
    }

    fn width_micros(self) -> u64 {
        1 << self.shift()
    }

    fn lower_micros(self) -> u64 {
        let shift = self.shift();
        (u64::from(self.0) - (u64::from(shift) << HALF_BITS)) << shift
    }

    fn shift(self) -> u32 {
        (u32::from(self.0) >> HALF_BITS).saturating_sub(1)
    }
}

/// Counts per bucket, in pages. Two of them are equal when they count the same, whatever their pages.
#[derive(Clone)]
pub struct Counts {
    /// For each 64 buckets, which page counts them.
    slots: [u16; PAGES],
    pages: Vec<[u64; PAGE]>,
    total: u64,
}

impl Default for Counts {
    fn default() -> Self {
        Self { slots: [ABSENT; PAGES], pages: Vec::new(), total: 0 }
    }
}

impl PartialEq for Counts {
    fn eq(&self, other: &Self) -> bool {
        self.total == other.total && self.iter().eq(other.iter())
    }
}

impl Eq for Counts {}

impl std::fmt::Debug for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter().map(|(bucket, n)| (bucket.lower(), n))).finish()
    }
}

impl Counts {
    /// Counts a duration `n` times.
    #[inline]
    pub fn record(&mut self, duration: Duration, n: u64) {
        self.add(Bucket::of(duration), n);
    }

    /// Adds `n` to a bucket.
    #[inline]
    pub fn add(&mut self, bucket: Bucket, n: u64) {
        let at = usize::from(bucket.0);
        let mut slot = self.slots[at >> PAGE_BITS];
        if slot == ABSENT {
            slot = self.open(at >> PAGE_BITS);
        }
        self.pages[usize::from(slot)][at & (PAGE - 1)] += n;
        self.total += n;
    }

    #[cold]
    fn open(&mut self, page: usize) -> u16 {
        let slot = u16::try_from(self.pages.len()).unwrap_or(ABSENT);
        if self.pages.len() == self.pages.capacity() {
            // Not by doubling: there are dozens of these per load, and they live for ever.
            self.pages.reserve_exact(GROWTH);
        }
        self.pages.push([0; PAGE]);
        self.slots[page] = slot;
        slot
    }

    /// Takes `n` from a bucket that was added before.
    ///
    /// Only what was added may be taken; more than that would be a fault of the caller, and stops at zero.
    pub fn subtract(&mut self, bucket: Bucket, n: u64) {
        let at = usize::from(bucket.0);
        let page = self.pages.get_mut(usize::from(self.slots[at >> PAGE_BITS]));
        let taken = page.map_or(0, |page| {
            let cell = &mut page[at & (PAGE - 1)];
            let taken = n.min(*cell);
            *cell -= taken;
            taken
        });
        debug_assert_eq!(taken, n, "more was taken from bucket {at} than it held");
        self.total -= taken;
    }

    /// Adds all that the other one counted.
    pub fn merge(&mut self, other: &Self) {
        for (page, slot) in other.slots.iter().enumerate().filter(|(_, slot)| **slot != ABSENT) {
            let ours = match self.slots[page] {
                ABSENT => self.open(page),
                slot => slot,
            };
            let cells = self.pages[usize::from(ours)].iter_mut();
            cells.zip(&other.pages[usize::from(*slot)]).for_each(|(cell, n)| *cell += n);
        }
        self.total += other.total;
    }

    /// Forgets all counts and keeps the memory.
    pub fn clear(&mut self) {
        if !self.pages.is_empty() {
            self.pages.clear();
            self.slots.fill(ABSENT);
            self.total = 0;
        }
    }

    /// How many durations were counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The non-empty buckets and their counts, from the shortest duration.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Bucket, u64)> {
        let pages = self.slots.iter().enumerate().filter(|(_, slot)| **slot != ABSENT);
        pages.flat_map(|(page, slot)| {
            let cells = self.pages[usize::from(*slot)].iter().enumerate().filter(|(_, n)| **n > 0);
            cells.filter_map(move |(at, n)| {
                Some((Bucket::from_number(u64::try_from(page * PAGE + at).unwrap_or(u64::MAX))?, *n))
            })
        })
    }

    /// The bucket of the `rank`-th shortest duration, from 1; `None` when there are not so many, and for rank 0.
    #[must_use]
    pub fn at_rank(&self, rank: u64) -> Option<Bucket> {
        let [bucket] = self.at_ranks([rank]);
        bucket
    }

    /// [`Self::at_rank`] for several ranks in one pass over the counts.
    #[must_use]
    pub fn at_ranks<const N: usize>(&self, ranks: [u64; N]) -> [Option<Bucket>; N] {
        let mut order: [usize; N] = std::array::from_fn(|at| at);
        order.sort_unstable_by_key(|at| ranks[*at]);
        let mut found = [None; N];
        let mut wanted = order.into_iter().filter(|at| ranks[*at] > 0).peekable();
        let mut below = 0;
        for (bucket, n) in self.iter() {
            below += n;
            while let Some(at) = wanted.next_if(|at| ranks[*at] <= below) {
                found[at] = Some(bucket);
            }
            if wanted.peek().is_none() {
                break;
            }
        }
        found
    }

    /// Bytes on the heap, all pages included.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.pages.capacity() * size_of::<[u64; PAGE]>()
    }
}

#[cfg(test)]
mod tests;
