//! The live objects of a run, from the oldest to the newest: what percent ranges count over.
//!
//! Objects lie in order of age in chunks of at most [`CHUNK_OBJECTS`], and a Fenwick tree (Fenwick,
//! "A new data structure for cumulative frequency tables", 1994) over the lengths of the chunks
//! finds the k-th oldest, among a million in a dozen steps. When less than half of the chunks'
//! places are taken, the objects are packed into fewer chunks, which costs each deletion a constant
//! on average and keeps memory in proportion to the live objects.
//!
//! Must not know: statements, sizes, stores.

/// Objects of a chunk, at the most: 2 KiB, of which a deletion moves half.
const CHUNK_OBJECTS: usize = 128;

/// So few chunks are not worth packing.
const SPARSE_CHUNKS_MIN: usize = 16;

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
    chunks: Vec<Vec<Object>>,
    /// The Fenwick tree: place `i` holds how many objects are in the chunks up to and with `i`, of
    /// which there are as many as the lowest set bit of `i + 1` says.
    counts: Vec<usize>,
    length: usize,
}

impl LiveSet {
    /// Live objects.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no object is live.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Appends the newest object. Its key must be greater than every key before.
    pub fn push(&mut self, object: Object) {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK_OBJECTS) {
            self.add_chunk();
        }
        let last = self.chunks.len() - 1;
        self.chunks[last].push(object);
        // No other node counts the last chunk.
        self.counts[last] += 1;
        self.length += 1;
    }

    fn add_chunk(&mut self) {
        self.chunks.push(Vec::with_capacity(CHUNK_OBJECTS));
        let number = self.chunks.len();
        let first = number - lowest_bit(number);
        let mut count = 0;
        let mut child = number - 1;
        while child > first {
            count += self.counts[child - 1];
            child -= lowest_bit(child);
        }
        self.counts.push(count);
    }

    /// The chunk of the object that `older` live objects precede, and its place there.
    fn find(&self, older: usize) -> (usize, usize) {
        assert!(older < self.length, "object {older} of {}", self.length);
        let last = self.chunks.len() - 1;
        if self.length - self.chunks[last].len() == last * CHUNK_OBJECTS {
            // Every chunk before the last is full: of a program that has deleted nothing yet.
            return (older / CHUNK_OBJECTS, older % CHUNK_OBJECTS);
        }
        let mut chunk = 0;
        let mut left = older;
        let mut step = self.counts.len().next_power_of_two();
        while step > 0 {
            if let Some(count) = self.counts.get(chunk + step - 1).filter(|count| **count <= left) {
                chunk += step;
                left -= count;
            }
            step /= 2;
        }
        (chunk, left)
    }

    /// The object that `older` live objects precede; there must be one.
    pub fn get(&self, older: usize) -> Object {
        let (chunk, place) = self.find(older);
        self.chunks[chunk][place]
    }

    /// The object that `older` live objects precede, to change all but its key.
    pub fn get_mut(&mut self, older: usize) -> &mut Object {
        let (chunk, place) = self.find(older);
        &mut self.chunks[chunk][place]
    }

    /// Deletes the object that `older` live objects precede, and returns it.
    pub fn remove(&mut self, older: usize) -> Object {
        let (chunk, place) = self.find(older);
        let object = self.chunks[chunk].remove(place);
        let mut number = chunk + 1;
        while let Some(count) = self.counts.get_mut(number - 1) {
            *count -= 1;
            number += lowest_bit(number);
        }
        self.length -= 1;
        let full_chunks = self.length.div_ceil(CHUNK_OBJECTS);
        if self.chunks.len() > 2 * full_chunks + SPARSE_CHUNKS_MIN {
            self.pack();
        }
        object
    }

    fn pack(&mut self) {
        let sparse = std::mem::take(self);
        sparse.iter().for_each(|object| self.push(object));
    }

    /// The live objects from the oldest on.
    pub fn iter(&self) -> impl Iterator<Item = Object> {
        self.chunks.iter().flatten().copied()
    }
}

/// The lowest set bit of a number that is not zero.
fn lowest_bit(number: usize) -> usize {
    number & number.wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn object(key: u64) -> Object {
        Object { key, version: 0, class: 0, embedded: false }
    }

    /// Does the same to a live set and to a plain vector, and compares them all the way.
    fn compare_with_vector(seed: u64, operations: usize, delete_percent: u64) {
        let mut random = Random::new(seed);
        let mut live = LiveSet::default();
        let mut plain: Vec<u64> = Vec::new();
        for key in 1..=operations as u64 {
            if plain.is_empty() || random.below(100) >= delete_percent {
                live.push(object(key));
                plain.push(key);
            } else {
                let older = random.below(plain.len() as u64) as usize;
                assert_eq!(live.remove(older).key, plain.remove(older));
            }
            assert_eq!(live.len(), plain.len());
            if !plain.is_empty() {
                let older = random.below(plain.len() as u64) as usize;
                assert_eq!(live.get(older).key, plain[older]);
                assert_eq!(live.get_mut(older).key, plain[older]);
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
                live.remove(random.below(live.len() as u64) as usize);
            }
        }
        assert_eq!(live.len(), 1000);
        assert!(live.chunks.len() <= 2 * 8 + SPARSE_CHUNKS_MIN);
        assert!(live.chunks.iter().all(|chunk| chunk.capacity() == CHUNK_OBJECTS));
    }
}
