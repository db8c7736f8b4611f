//! Where chance comes from: a generator of its own for every question that is asked.
//!
//! Each is seeded with the SHA-256 of everything that it may depend on, so that a prompt is a function of its place and of
//! nothing that was drawn before it, and so that the length of one text moves no word of another. Bounded draws are made
//! here rather than by `rand`, whose way of making them may change with its version.

use rand::rngs::ChaCha8Rng;
use rand::{Rng, SeedableRng};
use ring::digest::{Context, SHA256};

use super::{Part, Stream};
use crate::config::sections::{Bounds, Length};

/// What is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    Salt,
    Question,
    Answer,
    InputLength,
    OutputLength,
    Order,
    Prefix,
}

/// What is drawn for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scope<'a> {
    /// The load as a whole: alike for all of its shards and parts.
    Load(&'a str),
    /// One stream of it.
    Stream(&'a Stream),
}

/// A place in a stream: a conversation, or whatever else is numbered, and the turn in it.
pub(super) type Place = (u64, u32);

/// Draws.
#[derive(Debug)]
pub(super) struct Draw(ChaCha8Rng);

/// SHA-256 over everything that a draw may depend on.
pub(super) fn digest(seed: u64, scope: Scope<'_>, purpose: Purpose, (number, turn): Place) -> [u8; 32] {
    let mut hash = Context::new(&SHA256);
    hash.update(b"steadyload prompt 1\0");
    hash.update(&seed.to_le_bytes());
    let load = match scope {
        Scope::Load(load) => load,
        Scope::Stream(stream) => stream.load.as_str(),
    };
    // With its length, so that no two names run into what follows alike.
    hash.update(&u64::try_from(load.len()).unwrap_or(u64::MAX).to_le_bytes());
    hash.update(load.as_bytes());
    match scope {
        Scope::Load(_) => hash.update(&[0]),
        Scope::Stream(stream) => {
            let (kind, level) = match stream.part {
                Part::Measured => (1, 0),
                Part::WarmUp => (2, 0),
                Part::Level(level) => (3, level),
            };
            hash.update(&[kind]);
            hash.update(&level.to_le_bytes());
            hash.update(&stream.shard.position(0).to_le_bytes());
            hash.update(&stream.shard.count().to_le_bytes());
        }
    }
    hash.update(&[purpose.number()]);
    hash.update(&number.to_le_bytes());
    hash.update(&turn.to_le_bytes());
    <[u8; 32]>::try_from(hash.finish().as_ref()).unwrap_or_default()
}

/// The words that tell prompts apart: 13 of 64 words are 78 bits of the digest.
pub(super) fn salt(digest: [u8; 32]) -> impl Iterator<Item = usize> {
    const WORDS: usize = 13;
    let bits = digest.iter().take(16).fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
    (0..WORDS).map(move |at| usize::try_from(bits >> (6 * at) & 63).unwrap_or_default())
}

impl Purpose {
    /// A part of the seed: it never changes.
    const fn number(self) -> u8 {
        match self {
            Self::Salt => 0,
            Self::Question => 1,
            Self::Answer => 2,
            Self::InputLength => 3,
            Self::OutputLength => 4,
            Self::Order => 5,
            Self::Prefix => 6,
        }
    }
}

impl Draw {
    /// Draws that depend on these and on nothing else.
    pub(super) fn new(seed: u64, scope: Scope<'_>, purpose: Purpose, place: Place) -> Self {
        Self(ChaCha8Rng::from_seed(digest(seed, scope, purpose, place)))
    }

    /// A whole number below `n`, each as often as any other to within 2^-64 of n; 0 when there is none.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        let product = u128::from(self.0.next_u64()) * u128::from(n);
        u64::try_from(product >> 64).unwrap_or_default()
    }

    /// One of these.
    pub(super) fn one<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let at = self.below(u64::try_from(of.len()).unwrap_or(u64::MAX));
        of.get(usize::try_from(at).unwrap_or(usize::MAX))
    }

    /// A number above 0 and at most 1, in steps of 2^-53.
    fn unit(&mut self) -> f64 {
        const STEP: f64 = 1.0 / 9_007_199_254_740_992.0;
        let steps = (self.0.next_u64() >> 11) + 1;
        // Both halves are exact, and so is their sum.
        let (high, low) = (u32::try_from(steps >> 32), u32::try_from(steps & u64::from(u32::MAX)));
        4_294_967_296.0_f64.mul_add(f64::from(high.unwrap_or(0)), f64::from(low.unwrap_or(0))) * STEP
    }

    /// A standard normal number (Box and Muller). By `libm`: the system's functions may differ in their last bit.
    fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.unit(), self.unit());
        (-2.0 * libm::log(radius)).sqrt() * libm::cos(2.0 * std::f64::consts::PI * angle)
    }

    /// A number of tokens, drawn as is declared.
    pub(super) fn length(&mut self, length: &Length) -> u32 {
        match length {
            Length::Fixed(tokens) => tokens.get(),
            Length::Uniform(Bounds { min, max }) => {
                let above = self.below(u64::from(max.get().saturating_sub(min.get())) + 1);
                min.get().saturating_add(u32::try_from(above).unwrap_or_default())
            }
            Length::Normal { mean, sd, bounds } => rounded(sd * self.normal() + mean, *bounds),
            Length::LogNormal { median, sigma, bounds } => rounded(median * libm::exp(sigma * self.normal()), *bounds),
            Length::Mixture(shares) => {
                let mut left = self.unit() * shares.iter().map(|share| share.weight).sum::<f64>();
                let share = shares.iter().find(|share| {
                    left -= share.weight;
                    left <= 0.0
                });
                // Weights that do not add up exactly leave the last one.
                share.or(shares.last()).map_or(1, |share| self.length(&share.length))
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "within bounds that are whole and positive"
)]
fn rounded(number: f64, Bounds { min, max }: Bounds) -> u32 {
    number.round().clamp(min.get().into(), max.get().into()) as u32
}

#[cfg(test)]
mod tests;
