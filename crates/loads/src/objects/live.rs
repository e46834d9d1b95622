//! The live objects of a run, from the oldest to the newest: what percent ranges count over.
//!
//! Three things must be fast at once, with millions of objects: appending the newest, finding the
//! k-th oldest, and deleting any. Objects lie in a vector in order of age; a deleted one leaves a
//! dead slot. A bit a slot says which are dead, and above the bits stands a tree of nodes with
//! sixteen children each that say how many slots are dead before each child: the k-th live slot is
//! found by one comparison of sixteen lanes a level, without a branch to mispredict, over one cache
//! line a level (four levels for a million objects). With no dead slot it is slot k itself. When
//! more than half of the slots are dead the vector is packed, which costs each deletion a constant
//! on average and keeps memory in proportion to the live objects.
//!
//! Deleting and packing are two calls, because a caller may hold slots that were found before:
//! [`LiveSet::bury`] leaves every slot and its object where they are, [`LiveSet::pack`] moves them.
//!
//! Must not know: statements, sizes, stores.

use std::ops::Range;

use crate::sys::lanes::{self, Lanes};

/// Children of a node.
const FANOUT: usize = 16;
const FANOUT_BITS: u32 = FANOUT.ilog2();

/// Slots that a word of bits describes.
const WORD_BITS: u32 = 64;

/// More slots than this would not fit into the lanes of a node. (They would take 16 GiB.)
const SLOTS_MAX: usize = 1 << 30;

/// A node: for each child, how many slots before it within the node are not dead. Slots that no
/// object has taken yet count as not dead, so that appending changes no node.
fn fresh_node(level: usize) -> Lanes {
    let child_slots = (WORD_BITS << (FANOUT_BITS * level as u32)) as i32;
    Lanes(std::array::from_fn(|child| child as i32 * child_slots))
}

/// So few dead slots are not worth packing.
const SPARSE_DEAD_MIN: usize = 2048;

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
    /// The nodes of each level; the children of the lowest are words of bits, and the highest has
    /// one node. Appending changes no node, because a new slot is not dead.
    levels: Vec<Vec<Lanes>>,
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

    /// Appends the newest object and returns its slot. Its key must be greater than every key before.
    #[inline]
    pub fn push(&mut self, object: Object) -> usize {
        if self.slots.len().is_multiple_of(64) {
            self.grow();
        }
        self.slots.push(object);
        self.slots.len() - 1
    }

    /// Makes room for 64 more slots in the bits, and in the tree where a node is full.
    fn grow(&mut self) {
        assert!(self.slots.len() < SLOTS_MAX, "more than 2^30 objects are live");
        self.dead_bits.push(0);
        let mut children = self.dead_bits.len();
        for (level, nodes) in self.levels.iter_mut().enumerate() {
            children = children.div_ceil(FANOUT);
            nodes.resize(children, fresh_node(level));
        }
        if children > 1 || self.levels.is_empty() {
            // The tree so far becomes the first child of a new root.
            let mut root = fresh_node(self.levels.len());
            root.0[1..].iter_mut().for_each(|live_before| *live_before -= self.dead as i32);
            self.levels.push(vec![root]);
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
        let mut left = older as i32;
        let mut place = 0;
        for nodes in self.levels.iter().rev() {
            let node = &nodes[place];
            // The first child begins at 0, so at least one begins at or before the slot; the
            // remainder tells the compiler what it is anyway.
            let child = (node.count_at_most(left) - 1) % FANOUT;
            left -= node.0[child];
            place = place * FANOUT + child;
        }
        place * WORD_BITS as usize + select(!self.dead_bits[place], left as u32) as usize
    }

    /// Asks the processor to fetch the object in a slot, because it will be wanted soon.
    #[inline(always)]
    pub fn prefetch(&self, slot: usize) {
        lanes::prefetch(&self.slots[slot]);
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

    /// Deletes the objects that `range` counts from the oldest, calling `each` with every one.
    pub fn bury_range(&mut self, range: Range<usize>, mut each: impl FnMut(Object)) {
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

    /// Deletes the object in a slot that [`LiveSet::slot`] returned. The slot can still be read
    /// until the set is packed.
    #[inline]
    pub fn bury(&mut self, slot: usize) {
        debug_assert!(!self.is_dead(slot));
        self.dead_bits[slot / 64] |= 1 << (slot % 64);
        self.dead += 1;
        let mut child = slot >> WORD_BITS.ilog2();
        for nodes in &mut self.levels {
            nodes[child / FANOUT].decrement_after(child % FANOUT);
            child /= FANOUT;
        }
    }

    /// Finds the slot that `older` live objects precede and buries it: both in one descent.
    #[inline]
    pub fn take(&mut self, older: usize) -> usize {
        debug_assert!(older < self.len());
        if self.dead == 0 {
            self.bury(older);
            return older;
        }
        let mut left = older as i32;
        let mut place = 0;
        for nodes in self.levels.iter_mut().rev() {
            let node = &mut nodes[place];
            // What is not counted is what lies behind the slot, and loses one live slot before it.
            let child = (node.count_and_decrement(left) - 1) % FANOUT;
            left -= node.0[child];
            place = place * FANOUT + child;
        }
        let bit = select(!self.dead_bits[place], left as u32);
        self.dead_bits[place] |= 1 << bit;
        self.dead += 1;
        place * WORD_BITS as usize + bit as usize
    }

    /// Whether so many slots are dead that [`LiveSet::pack`] should be called.
    #[inline]
    pub fn is_sparse(&self) -> bool {
        self.dead > SPARSE_DEAD_MIN && self.dead * 2 > self.slots.len()
    }

    /// Drops the dead slots. Slots found before are void after it.
    #[cold]
    pub fn pack(&mut self) {
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
        self.levels.clear();
        let words = kept.div_ceil(WORD_BITS as usize);
        self.dead_bits.resize(words, 0);
        let mut children = words;
        while children > 1 || self.levels.is_empty() {
            children = children.div_ceil(FANOUT).max(1);
            self.levels.push(vec![fresh_node(self.levels.len()); children]);
        }
    }
}

/// The place of the set bit of `bits` that `rank` set bits precede; there must be one.
#[inline]
fn select(bits: u64, rank: u32) -> u32 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // The number of set bits in each byte, then in each byte and all below it.
    let pairs = bits - ((bits >> 1) & 0x5555_5555_5555_5555);
    let nibbles = (pairs & 0x3333_3333_3333_3333) + ((pairs >> 2) & 0x3333_3333_3333_3333);
    let bytes = (nibbles + (nibbles >> 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    let up_to = bytes.wrapping_mul(EACH);
    // In how many bytes the count does not exceed `rank`: a byte's high bit survives where so.
    let passed = (((u64::from(rank) * EACH) | HIGH) - up_to) & HIGH;
    let shift = passed.count_ones() * 8;
    let before = ((up_to << 8) >> shift) as u32 & 0xff;
    let byte = (bits >> shift) as u8;
    shift + u32::from(SELECT_IN_BYTE[(rank - before) as usize][byte as usize])
}

/// The place of the set bit of a byte that so many set bits precede.
static SELECT_IN_BYTE: [[u8; 256]; 8] = {
    let mut table = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut rank = 0;
        let mut place = 0;
        while place < 8 {
            if byte >> place & 1 == 1 {
                table[rank][byte] = place as u8;
                rank += 1;
            }
            place += 1;
        }
        byte += 1;
    }
    table
};

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
                live.bury_range(one.min(other)..end, |object| removed.push(object.key));
                let expected: Vec<u64> = plain.drain(one.min(other)..end).collect();
                assert_eq!(removed, expected);
            } else {
                let older = random.below(plain.len() as u64) as usize;
                let found = live.slot(older);
                let slot = live.take(older);
                assert_eq!(slot, found);
                assert_eq!(live.at(slot).key, plain.remove(older));
            }
            if live.is_sparse() {
                live.pack();
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
        for (seed, delete_percent) in [(1, 10), (2, 40), (3, 49), (4, 60), (5, 0), (6, 20)] {
            compare_with_vector(seed, 60_000, delete_percent);
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
                live.bury(slot);
            }
            if live.is_sparse() {
                live.pack();
            }
        }
        assert_eq!(live.len(), 1000);
        assert!(live.slots.capacity() <= 8 * SPARSE_DEAD_MIN);
        let nodes: usize = live.levels.iter().map(Vec::len).sum();
        assert!(nodes <= 8 * SPARSE_DEAD_MIN / 64);
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
