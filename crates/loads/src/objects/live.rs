//! The live objects of a run, from the oldest to the newest: what percent ranges count over.
//!
//! Three things must be fast at once, with millions of objects: appending the newest, finding the
//! k-th oldest, and deleting any. Objects lie in a vector in order of age; a deleted one leaves a
//! dead slot. A bit a slot says which are dead, and a Fenwick tree (Fenwick, 1994) counts the dead
//! of each leaf of [`LEAF_SLOTS`] slots, so that the k-th live slot is found in
//! O(log(slots / 512)) steps over a few cache lines; with no dead slot it is slot k itself. When
//! more than half of the slots are dead, the vector is packed again, which costs each deletion a
//! constant on average and keeps memory in proportion to the live objects.
//!
//! Must not know: statements, sizes, stores.

use std::ops::Range;

/// Slots a leaf of the tree counts: eight words of bits.
const LEAF_SLOTS: usize = LEAF_WORDS * 64;
const LEAF_WORDS: usize = 8;

/// Below this many slots the dead ones are not worth packing.
const PACK_SLOTS_MIN: usize = 4096;

/// What is remembered of a live object: 16 bytes. Its size follows from its class, or from key and
/// version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Keys are given out in order, so the order of age is the order of keys.
    pub key: u64,
    /// How often it was overwritten.
    pub version: u32,
    /// Which size of the program it was put with.
    pub class: u16,
    /// Whether it was put into the journal.
    pub embedded: bool,
}

/// The live objects in order of age.
#[derive(Clone, Debug, Default)]
pub struct LiveSet {
    slots: Vec<Object>,
    /// A set bit is a dead slot.
    dead_bits: Vec<u64>,
    /// `tree[i]` counts the dead of the leaves `i - lowest_bit(i) .. i`; its length less one is a
    /// power of two. Appending needs no update, because a new slot is not dead.
    tree: Vec<u32>,
    dead: usize,
}

impl LiveSet {
    /// Live objects.
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len() - self.dead
    }

    /// Whether no object is live.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the newest object. Its key must be greater than every key before.
    #[inline]
    pub fn push(&mut self, object: Object) {
        if self.slots.len().is_multiple_of(64) {
            self.grow();
        }
        self.slots.push(object);
    }

    /// Makes room for 64 more slots in the bits, and in the tree when a leaf is full.
    fn grow(&mut self) {
        self.dead_bits.push(0);
        let leaves = self.slots.len() / LEAF_SLOTS + 1;
        if self.tree.is_empty() {
            self.tree = vec![0; 2];
        }
        while leaves > self.tree.len() - 1 {
            // The node at the new power of two counts everything before it too.
            let capacity = self.tree.len() - 1;
            self.tree.resize(2 * capacity + 1, 0);
            self.tree[2 * capacity] = self.tree[capacity];
        }
    }

    /// The slot of the object that `older` live objects precede. `older` must be less than
    /// [`LiveSet::len`].
    #[inline]
    pub fn slot(&self, older: usize) -> usize {
        debug_assert!(older < self.len());
        if self.dead == 0 {
            return older;
        }
        // Descends to the last leaf before which at most `older` objects live.
        let mut left = older;
        let mut leaf = 0;
        let mut step = self.tree.len() - 1;
        while step > 0 {
            let next = leaf + step;
            if next < self.tree.len() {
                let live = step * LEAF_SLOTS - self.tree[next] as usize;
                if live <= left {
                    left -= live;
                    leaf = next;
                }
            }
            step /= 2;
        }
        let mut word = leaf * LEAF_WORDS;
        loop {
            // Bits beyond the last slot read as live; `older < len` keeps us from reaching them.
            let live_bits = !self.dead_bits[word];
            let live = live_bits.count_ones() as usize;
            if left < live {
                return word * 64 + select(live_bits, left as u32) as usize;
            }
            left -= live;
            word += 1;
        }
    }

    /// The object in a slot that [`LiveSet::slot`] returned.
    #[inline]
    pub fn at(&self, slot: usize) -> Object {
        self.slots[slot]
    }

    /// The object in a slot, to change all but its key.
    #[inline]
    pub fn at_mut(&mut self, slot: usize) -> &mut Object {
        &mut self.slots[slot]
    }

    /// Deletes the object in a slot. Slots found before are void after it.
    #[inline]
    pub fn remove(&mut self, slot: usize) -> Object {
        let object = self.slots[slot];
        self.bury(slot);
        self.pack_if_sparse();
        object
    }

    /// Deletes the objects that `range` counts from the oldest, calling `each` with every one.
    pub fn remove_range(&mut self, range: Range<usize>, mut each: impl FnMut(Object)) {
        debug_assert!(range.end <= self.len());
        if range.is_empty() {
            return;
        }
        let mut slot = self.slot(range.start);
        for _ in range {
            while self.is_dead(slot) {
                slot += 1;
            }
            each(self.slots[slot]);
            self.bury(slot);
        }
        self.pack_if_sparse();
    }

    /// The live objects from the oldest on.
    pub fn iter(&self) -> impl Iterator<Item = Object> {
        self.slots
            .iter()
            .enumerate()
            .filter(|(slot, _)| !self.is_dead(*slot))
            .map(|(_, object)| *object)
    }

    fn is_dead(&self, slot: usize) -> bool {
        self.dead_bits[slot / 64] >> (slot % 64) & 1 == 1
    }

    #[inline]
    fn bury(&mut self, slot: usize) {
        debug_assert!(!self.is_dead(slot));
        self.dead_bits[slot / 64] |= 1 << (slot % 64);
        self.dead += 1;
        let mut node = slot / LEAF_SLOTS + 1;
        while node < self.tree.len() {
            self.tree[node] += 1;
            node += node & node.wrapping_neg();
        }
    }

    #[inline]
    fn pack_if_sparse(&mut self) {
        if self.dead * 2 > self.slots.len() && self.slots.len() >= PACK_SLOTS_MIN
            || self.dead == self.slots.len()
        {
            self.pack();
        }
    }

    /// Drops the dead slots.
    #[cold]
    fn pack(&mut self) {
        let mut kept = 0;
        for slot in 0..self.slots.len() {
            if !self.is_dead(slot) {
                self.slots[kept] = self.slots[slot];
                kept += 1;
            }
        }
        self.slots.truncate(kept);
        self.slots.shrink_to(2 * kept);
        self.dead = 0;
        self.dead_bits.clear();
        self.dead_bits.resize(kept.div_ceil(64), 0);
        self.tree.clear();
        self.tree.resize(kept.div_ceil(LEAF_SLOTS).max(1).next_power_of_two() + 1, 0);
    }
}

/// The place of the set bit of `bits` that `rank` set bits precede; there must be one.
#[inline]
fn select(bits: u64, mut rank: u32) -> u32 {
    let mut place = 0;
    let mut rest = bits;
    for half in [32, 16, 8] {
        let low = (rest & ((1 << half) - 1)).count_ones();
        if rank >= low {
            rank -= low;
            rest >>= half;
            place += half;
        }
    }
    for _ in 0..rank {
        rest &= rest - 1;
    }
    place + rest.trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::random::Random;

    fn object(key: u64) -> Object {
        Object { key, version: 0, class: 0, embedded: false }
    }

    /// Does the same to a live set and to a plain vector, and compares them all the way.
    fn compare_with_vector(seed: u64, operations: usize, delete_percent: u64) {
        let mut random = Random::new(seed);
        let mut live = LiveSet::default();
        let mut plain: Vec<u64> = Vec::new();
        let mut next_key = 1;
        for _ in 0..operations {
            let draw = random.below(1000);
            if plain.is_empty() || draw >= delete_percent * 10 + 3 {
                live.push(object(next_key));
                plain.push(next_key);
                next_key += 1;
            } else if draw < 3 {
                let one = random.below(plain.len() as u64 + 1) as usize;
                let other = random.below(plain.len() as u64 + 1) as usize;
                // Mostly short ranges, or nothing would ever grow.
                let end = one.max(other).min(one.min(other) + 200);
                let mut removed = Vec::new();
                live.remove_range(one.min(other)..end, |object| removed.push(object.key));
                let expected: Vec<u64> = plain.drain(one.min(other)..end).collect();
                assert_eq!(removed, expected);
            } else {
                let older = random.below(plain.len() as u64) as usize;
                let slot = live.slot(older);
                assert_eq!(live.remove(slot).key, plain.remove(older));
            }
            assert_eq!(live.len(), plain.len());
            if !plain.is_empty() {
                let older = random.below(plain.len() as u64) as usize;
                assert_eq!(live.at(live.slot(older)).key, plain[older]);
            }
        }
        assert!(live.iter().map(|object| object.key).eq(plain));
    }

    #[test]
    fn behaves_as_a_vector_does() {
        for (seed, delete_percent) in [(1, 10), (2, 40), (3, 49), (4, 60), (5, 0)] {
            compare_with_vector(seed, 30_000, delete_percent);
        }
    }

    #[test]
    fn memory_stays_in_proportion_to_the_live_objects() {
        let mut live = LiveSet::default();
        let mut random = Random::new(7);
        for key in 1..=2_000_000 {
            live.push(object(key));
            if key > 1000 {
                let older = random.below(live.len() as u64) as usize;
                let slot = live.slot(older);
                live.remove(slot);
            }
        }
        assert_eq!(live.len(), 1000);
        assert!(live.slots.capacity() <= 4 * PACK_SLOTS_MIN);
        assert!(live.tree.len() <= 4 * PACK_SLOTS_MIN / LEAF_SLOTS + 1);
    }

    #[test]
    fn select_finds_every_set_bit() {
        for bits in [1, u64::MAX, 1 << 63, 0x8000_0000_0000_0001, 0xdead_beef_0042_1111] {
            let places: Vec<u32> = (0..64).filter(|place| bits >> place & 1 == 1).collect();
            for (rank, place) in places.into_iter().enumerate() {
                assert_eq!(select(bits, rank as u32), place);
            }
        }
    }
}
