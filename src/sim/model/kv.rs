//! The KV cache in blocks: in use, or idle with the hash of what they hold, or free.
//!
//! A full block of a prompt has a hash; whoever asks for the same prefix shares it. A block that nobody uses stays findable
//! until its room is needed: the longest unused goes first, and of one sequence the end goes before the front.

use std::collections::{BTreeMap, HashMap};

/// All blocks. Invariant: used + idle ≤ capacity, unless a lone sequence was forced in.
#[derive(Debug)]
pub(super) struct Kv {
    capacity: u32,
    used: u32,
    /// Blocks with a hash, used or idle.
    known: HashMap<u64, Known>,
    /// The idle ones, the longest unused first.
    idle: BTreeMap<u64, u64>,
    age: u64,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    users: u32,
    /// Its key in `idle` while nobody uses it.
    age: u64,
}

/// The blocks of one sequence.
#[derive(Debug, Default)]
pub(super) struct Held {
    shared: Vec<u64>,
    private: u32,
}

impl Held {
    pub(super) fn blocks(&self) -> u32 {
        self.private + u32::try_from(self.shared.len()).unwrap_or(u32::MAX)
    }
}

impl Kv {
    pub(super) fn new(capacity: u32) -> Self {
        Self { capacity, used: 0, known: HashMap::new(), idle: BTreeMap::new(), age: 0 }
    }

    pub(super) const fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(super) const fn used(&self) -> u32 {
        self.used
    }

    /// `needed` blocks for a prompt whose full blocks have these `hashes`; of the first `findable` those are shared that are
    /// known. The blocks and how many of them were found; `None` when there is no room, unless it is forced.
    pub(super) fn admit(&mut self, hashes: &[u64], findable: u32, needed: u32, force: bool) -> Option<(Held, u32)> {
        let findable = hashes.get(..findable as usize).unwrap_or(hashes);
        let found: Vec<u64> = findable.iter().copied().take_while(|hash| self.known.contains_key(hash)).collect();
        let revived = found.iter().filter(|hash| self.known.get(hash).is_some_and(|known| known.users == 0)).count();
        let found_blocks = u32::try_from(found.len()).unwrap_or(u32::MAX);
        let new = needed.saturating_sub(found_blocks);
        let more = new.saturating_add(u32::try_from(revived).unwrap_or(u32::MAX));
        if !force && self.used.saturating_add(more) > self.capacity {
            return None;
        }
        for hash in &found {
            if let Some(known) = self.known.get_mut(hash) {
                if known.users == 0 {
                    self.idle.remove(&known.age);
                }
                known.users += 1;
            }
        }
        self.used = self.used.saturating_add(more);
        self.evict();
        let mut shared = found;
        for hash in hashes.iter().skip(shared.len()).take(new as usize) {
            // A block that is known behind one that is not would be there twice; the second copy has no name.
            if !self.known.contains_key(hash) {
                self.known.insert(*hash, Known { users: 1, age: 0 });
                shared.push(*hash);
            }
        }
        let private = needed - u32::try_from(shared.len()).unwrap_or(needed).min(needed);
        Some((Held { shared, private }, found_blocks))
    }

    /// One more block, if there is room or it is forced.
    pub(super) fn grow(&mut self, held: &mut Held, force: bool) -> bool {
        if !force && self.used >= self.capacity {
            return false;
        }
        self.used += 1;
        self.evict();
        held.private += 1;
        true
    }

    /// The sequence is over; what can be found again stays as long as there is room.
    pub(super) fn release(&mut self, held: &Held) {
        self.used -= held.private;
        for hash in held.shared.iter().rev() {
            let Some(known) = self.known.get_mut(hash) else { continue };
            known.users -= 1;
            if known.users == 0 {
                known.age = self.age;
                self.idle.insert(self.age, *hash);
                self.age += 1;
                self.used -= 1;
            }
        }
    }

    fn evict(&mut self) {
        while u64::from(self.used) + self.idle.len() as u64 > u64::from(self.capacity) {
            let Some((_, hash)) = self.idle.pop_first() else { return };
            self.known.remove(&hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: [u64; 3] = [1, 2, 3];

    fn admit(kv: &mut Kv, hashes: &[u64], needed: u32) -> Option<(Held, u32)> {
        kv.admit(hashes, u32::MAX, needed, false)
    }

    #[test]
    fn a_prefix_is_found_while_it_is_used_and_after() {
        let mut kv = Kv::new(10);
        let (first, found) = admit(&mut kv, &ABC, 4).unwrap();
        assert_eq!((found, first.blocks(), kv.used()), (0, 4, 4));
        let (second, found) = admit(&mut kv, &[1, 2, 9], 4).unwrap();
        assert_eq!((found, second.blocks(), kv.used()), (2, 4, 6));
        kv.release(&first);
        assert_eq!(kv.used(), 4);
        kv.release(&second);
        assert_eq!((kv.used(), kv.idle.len()), (0, 4));
        assert_eq!(admit(&mut kv, &ABC, 4).unwrap().1, 3);
        assert_eq!((kv.used(), kv.idle.len()), (4, 1));
    }

    #[test]
    fn only_so_much_is_found_as_may_be() {
        let mut kv = Kv::new(10);
        let (held, _) = admit(&mut kv, &ABC, 3).unwrap();
        kv.release(&held);
        assert_eq!(kv.admit(&ABC, 2, 3, false).unwrap().1, 2);
        assert_eq!(kv.used(), 3);
    }

    #[test]
    fn the_longest_unused_is_forgotten_first_and_the_end_of_a_prompt_before_its_front() {
        let mut kv = Kv::new(4);
        let (held, _) = admit(&mut kv, &ABC, 3).unwrap();
        kv.release(&held);
        let (other, _) = admit(&mut kv, &[7, 8], 2).unwrap();
        assert_eq!((kv.used(), kv.idle.len()), (2, 2));
        kv.release(&other);
        assert_eq!(admit(&mut kv, &ABC, 3).unwrap().1, 2);
    }

    #[test]
    fn what_does_not_fit_changes_nothing_unless_it_is_forced() {
        let mut kv = Kv::new(3);
        let (mut held, _) = admit(&mut kv, &ABC, 3).unwrap();
        assert!(admit(&mut kv, &[], 1).is_none() && !kv.grow(&mut held, false));
        assert_eq!(kv.used(), 3);
        assert!(kv.grow(&mut held, true));
        let (forced, _) = kv.admit(&[], 0, 5, true).unwrap();
        assert_eq!(kv.used(), 9);
        kv.release(&forced);
        kv.release(&held);
        assert_eq!(kv.used(), 0);
    }

    #[test]
    fn a_block_behind_a_forgotten_one_is_not_counted_twice() {
        let mut kv = Kv::new(10);
        let (held, _) = admit(&mut kv, &ABC, 3).unwrap();
        kv.known.remove(&1);
        let (second, found) = admit(&mut kv, &ABC, 3).unwrap();
        assert_eq!((found, second.blocks(), kv.used()), (0, 3, 6));
        kv.release(&second);
        assert_eq!(kv.used(), 3);
        drop(held);
    }
}
