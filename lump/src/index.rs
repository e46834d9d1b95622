//! Where each key's value lies: an ordered index in memory, in shards that are locked apart.
//!
//! A key belongs to one shard by a hash, so that neighbouring keys meet in no lock; an ordered walk
//! merges the shards. A shard is a sorted list of sorted leaves of at most [`LEAF_ENTRIES`]
//! entries of 32 bytes. Knows nothing of devices. Invariant: no leaf is empty.

use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::ops::RangeInclusive;

const SHARDS: usize = 16;
const LEAF_ENTRIES: usize = 256;
/// A leaf grows by this many entries, so that little of it is empty.
const LEAF_GROWTH: usize = 32;
/// Entries of a leaf that is read from a checkpoint: what was added to that seldom splits it, which
/// would take half as much memory again.
const LEAF_LOADED: usize = LEAF_ENTRIES / 8 * 7;
/// How many entries of each shard an ordered walk takes at a time.
const PAGE_ENTRIES: usize = 64;

/// An object: its key, and where and what its value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub key: u128,
    /// First unit of the extent.
    pub start: u64,
    /// Length of the value in bytes.
    pub length: u32,
    /// Of the other fields and the value, as `layout` says.
    pub checksum: u32,
}

const _: () = assert!(size_of::<Entry>() == 32);

/// A part of the index.
#[derive(Default)]
pub(crate) struct Shard {
    leaves: Vec<Vec<Entry>>,
    count: u64,
}

impl Shard {
    /// The leaf that holds `key` or would, and its place there.
    fn find(&self, key: u128) -> (usize, Result<usize, usize>) {
        let after = self.leaves.partition_point(|leaf| leaf[0].key <= key);
        let leaf = after.saturating_sub(1);
        let place = match self.leaves.get(leaf) {
            Some(entries) => entries.binary_search_by_key(&key, |entry| entry.key),
            None => Err(0),
        };
        (leaf, place)
    }

    pub fn get(&self, key: u128) -> Option<Entry> {
        let (leaf, place) = self.find(key);
        place.ok().map(|place| self.leaves[leaf][place])
    }

    /// Enters an object; returns the one of that key before.
    pub fn insert(&mut self, entry: Entry) -> Option<Entry> {
        let (leaf, place) = self.find(entry.key);
        let place = match place {
            Ok(place) => return Some(std::mem::replace(&mut self.leaves[leaf][place], entry)),
            Err(place) => place,
        };
        self.count += 1;
        let Some(entries) = self.leaves.get_mut(leaf) else {
            self.leaves.push(vec![entry]);
            return None;
        };
        if entries.len() < LEAF_ENTRIES {
            if entries.len() == entries.capacity() {
                entries.reserve_exact(LEAF_GROWTH);
            }
            entries.insert(place, entry);
        } else if place == LEAF_ENTRIES {
            // Ascending keys leave full leaves behind.
            self.leaves.insert(leaf + 1, vec![entry]);
        } else {
            let mut upper = entries.split_off(LEAF_ENTRIES / 2);
            upper.reserve_exact(LEAF_GROWTH);
            match place.checked_sub(LEAF_ENTRIES / 2) {
                Some(place) => upper.insert(place, entry),
                None => entries.insert(place, entry),
            }
            entries.shrink_to(LEAF_ENTRIES / 2 + LEAF_GROWTH);
            self.leaves.insert(leaf + 1, upper);
        }
        None
    }

    /// Enters an object behind all others; returns whether that is its place.
    fn append(&mut self, entry: Entry) -> bool {
        if self.leaves.last().and_then(|leaf| leaf.last()).is_some_and(|last| last.key >= entry.key)
        {
            return false;
        }
        match self.leaves.last_mut() {
            Some(leaf) if leaf.len() < LEAF_LOADED => leaf.push(entry),
            _ => {
                let mut leaf = Vec::with_capacity(LEAF_ENTRIES);
                leaf.push(entry);
                self.leaves.push(leaf);
            }
        }
        self.count += 1;
        true
    }

    /// Takes an object out.
    pub fn remove(&mut self, key: u128) -> Option<Entry> {
        let (leaf, place) = self.find(key);
        let entry = self.leaves[leaf..].first_mut()?.remove(place.ok()?);
        self.count -= 1;
        if self.leaves[leaf].is_empty() {
            self.leaves.remove(leaf);
        }
        Some(entry)
    }

    /// Takes all objects of a range out.
    fn remove_range(&mut self, keys: &RangeInclusive<u128>, taken: &mut Vec<Entry>) {
        let (first, last) = (self.find(*keys.start()).0, self.find(*keys.end()).0);
        let before = taken.len();
        for leaf in self.leaves.iter_mut().take(last + 1).skip(first) {
            taken.extend(leaf.extract_if(.., |entry| keys.contains(&entry.key)));
        }
        self.leaves.retain(|leaf| !leaf.is_empty());
        self.count -= (taken.len() - before) as u64;
    }

    /// All objects with keys from `key` on, ascending.
    fn from(&self, key: u128) -> impl Iterator<Item = Entry> {
        let (leaf, place) = self.find(key);
        let skipped = place.unwrap_or_else(|place| place);
        self.leaves[leaf.min(self.leaves.len())..].iter().flatten().copied().skip(skipped)
    }

    /// All objects, ascending.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.leaves.iter().flatten().copied()
    }
}

/// The objects of a store.
#[derive(Default)]
pub(crate) struct Index {
    shards: [RwLock<Shard>; SHARDS],
}

/// Where a walk through all objects stands that goes from shard to shard.
#[derive(Default)]
pub(crate) struct Walk {
    shard: usize,
    key: u128,
}

/// The shard that a key belongs to.
fn place(key: u128) -> usize {
    // Fibonacci hashing spreads counting keys as well as random ones.
    let folded = (key as u64 ^ (key >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (folded >> 60) as usize
}

impl Index {
    fn lock(&self, key: u128) -> &RwLock<Shard> {
        &self.shards[place(key)]
    }

    /// Enters an object. Returns whether its key is new; quick where it belongs behind all others
    /// of its shard.
    pub fn add(&mut self, entry: Entry) -> bool {
        let shard = self.shards[place(entry.key)].get_mut();
        let shard = shard.expect("no thread panics while it holds a shard");
        shard.append(entry) || shard.insert(entry).is_none()
    }

    /// Fills `entries` up to `count` with the objects that a walk comes to; it gets fewer at the
    /// end only. Nobody waits for longer than their copying. An object that is there all the time
    /// comes once.
    pub fn fill(&self, walk: &mut Walk, entries: &mut Vec<Entry>, count: usize) {
        while let Some(shard) = self.shards.get(walk.shard)
            && entries.len() < count
        {
            let wanted = count - entries.len();
            entries.extend(read_lock(shard).from(walk.key).take(wanted));
            let next = entries.last().filter(|_| entries.len() == count);
            *walk = match next.and_then(|last| last.key.checked_add(1)) {
                Some(key) => Walk { key, ..*walk },
                None => Walk { shard: walk.shard + 1, key: 0 },
            };
        }
    }

    /// The shard of a key, for reading.
    pub fn shard(&self, key: u128) -> RwLockReadGuard<'_, Shard> {
        read_lock(self.lock(key))
    }

    /// The shard of a key, for a change.
    pub fn shard_mut(&self, key: u128) -> RwLockWriteGuard<'_, Shard> {
        write_lock(self.lock(key))
    }

    /// Each shard in turn.
    pub fn shards(&self) -> impl Iterator<Item = RwLockReadGuard<'_, Shard>> {
        self.shards.iter().map(read_lock)
    }

    /// How many objects there are.
    pub fn count(&self) -> u64 {
        self.shards().map(|shard| shard.count).sum()
    }

    /// Takes all objects of a range out.
    pub fn remove_range(&self, keys: &RangeInclusive<u128>) -> Vec<Entry> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            write_lock(shard).remove_range(keys, &mut taken);
        }
        taken
    }

    /// Some objects of a range, the first ones, ascending; none when there are none.
    pub fn page(&self, keys: &RangeInclusive<u128>) -> Vec<Entry> {
        let mut page = Vec::new();
        // Beyond this key a shard may have entries that were not taken.
        let mut complete = *keys.end();
        for shard in self.shards() {
            let before = page.len();
            let entries = shard.from(*keys.start()).take_while(|entry| entry.key <= *keys.end());
            page.extend(entries.take(PAGE_ENTRIES));
            if page.len() - before == PAGE_ENTRIES {
                complete = complete.min(page[page.len() - 1].key);
            }
        }
        page.retain(|entry| entry.key <= complete);
        page.sort_unstable_by_key(|entry| entry.key);
        page
    }

    /// Bytes of memory that the entries take.
    pub fn memory_bytes(&self) -> u64 {
        let leaf = |leaf: &Vec<Entry>| leaf.capacity() * size_of::<Entry>();
        let shard = |shard: &Shard| {
            shard.leaves.capacity() * size_of::<Vec<Entry>>()
                + shard.leaves.iter().map(leaf).sum::<usize>()
        };
        self.shards().map(|guard| shard(&guard) as u64).sum()
    }
}

fn read_lock(shard: &RwLock<Shard>) -> RwLockReadGuard<'_, Shard> {
    shard.read().expect("no thread panics while it holds a shard")
}

fn write_lock(shard: &RwLock<Shard>) -> RwLockWriteGuard<'_, Shard> {
    shard.write().expect("no thread panics while it holds a shard")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn walk(index: &Index, keys: RangeInclusive<u128>) -> Vec<u128> {
        let (mut found, mut next) = (Vec::new(), Some(*keys.start()));
        while let Some(start) = next {
            let page = index.page(&(start..=*keys.end()));
            found.extend(page.iter().map(|entry| entry.key));
            next = page.last().and_then(|entry| entry.key.checked_add(1));
        }
        found
    }

    #[test]
    fn it_does_what_a_map_does() {
        let (index, mut model) = (Index::default(), BTreeMap::new());
        let mut random = ChaCha8Rng::seed_from_u64(16);
        for step in 0..60_000_u64 {
            let key = u128::from(random.random_range(0..9000_u32)) * 7;
            let entry = Entry { key, start: step, length: 0, checksum: 0 };
            match random.random_range(0..100) {
                0..60 => {
                    assert_eq!(index.shard_mut(key).insert(entry), model.insert(key, entry));
                }
                60..98 => assert_eq!(index.shard_mut(key).remove(key), model.remove(&key)),
                98 => assert_eq!(index.shard(key).get(key), model.get(&key).copied()),
                _ => {
                    let keys = key..=key + u128::from(random.random_range(0..3000_u32));
                    let expected: Vec<_> = model.range(keys.clone()).map(|(key, _)| *key).collect();
                    assert_eq!(walk(&index, keys.clone()), expected);
                    let mut taken: Vec<_> =
                        index.remove_range(&keys).iter().map(|entry| entry.key).collect();
                    taken.sort_unstable();
                    assert_eq!(taken, expected);
                    model.retain(|key, _| !keys.contains(key));
                }
            }
            assert_eq!(index.count(), model.len() as u64);
        }
        assert_eq!(walk(&index, 0..=u128::MAX), model.keys().copied().collect::<Vec<_>>());
    }

    #[test]
    fn an_object_takes_little_more_than_its_entry() {
        let (ascending, scattered) = (Index::default(), Index::default());
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let count = 200_000;
        for number in 0..count {
            let entry = |key| Entry { key, start: 0, length: 0, checksum: 0 };
            ascending.shard_mut(number).insert(entry(number));
            let key = random.random();
            scattered.shard_mut(key).insert(entry(key));
        }
        let per_object = |index: &Index| index.memory_bytes() as f64 / count as f64;
        let (ascending, scattered) = (per_object(&ascending), per_object(&scattered));
        println!("{ascending:.1} bytes ascending, {scattered:.1} scattered");
        assert!(ascending < 33.0 && scattered < 38.0, "{ascending} and {scattered}");
    }
}
