//! Free units, and units that are on their way to be free.
//!
//! An extent that a record gave up passes through [`Space::retire`] and comes back only behind a
//! durable fence and after its readers ([`Space::release`]). Knows nothing of the medium.
//! Invariants: free extents neither overlap nor touch; both indexes hold the same extents.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::sync::{Mutex, MutexGuard, lock};

const PIN_SHARDS: usize = 16;
/// Most units that are away at a time to be trimmed: 1 GiB of 4096 bytes.
const TAKEN_UNITS_MAX: u64 = 1 << 18;

/// The units of a store that no object has.
#[derive(Default)]
pub(crate) struct Space {
    /// Free extents: first unit, number of units.
    free: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    /// Extents that a journal block gave up: its number, first unit, number of units.
    retired: VecDeque<(u64, u64, u64)>,
    free_units: u64,
    retired_units: u64,
}

impl Space {
    /// All that is free: first unit and number of units, which neither overlap nor touch.
    pub fn new(free: Vec<(u64, u64)>) -> Self {
        Self {
            free_units: free.iter().map(|(_, units)| units).sum(),
            by_length: free.iter().map(|&(start, units)| (units, start)).collect(),
            free: free.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Takes the shortest free extent that is long enough, of these the first.
    pub fn allocate(&mut self, units: u64) -> Option<u64> {
        let (length, start) = *self.by_length.range((units, 0)..).next()?;
        self.take(start, length);
        if length > units {
            self.put(start + units, length - units);
        }
        Some(start)
    }

    /// Takes one free extent of `most` units, or else the longest if it has at least `least`; returns first
    /// unit and number of units.
    pub fn allocate_some(&mut self, least: u64, most: u64) -> Option<(u64, u64)> {
        if let Some(start) = self.allocate(most) {
            return Some((start, most));
        }
        let (units, start) = *self.by_length.last().filter(|(units, _)| *units >= least)?;
        self.take(start, units);
        Some((start, units))
    }

    /// Takes free extents of at least `units_min`, the shortest first and of each no more than
    /// `each_max`, until there are `count_max` of them or they have `units_max` in all; returns first
    /// unit and number of units of each.
    pub fn take_some(
        &mut self,
        units_min: u64,
        each_max: u64,
        units_max: u64,
        count_max: usize,
    ) -> Vec<(u64, u64)> {
        let (mut taken, mut left) = (Vec::new(), units_max);
        while left >= units_min
            && taken.len() < count_max
            && let Some(&(length, start)) = self.by_length.range((units_min, 0)..).next()
        {
            self.take(start, length);
            // What a cut leaves would be too short for another one of these.
            let most = left.min(each_max);
            let units = if length > most { most - most % units_min } else { length };
            if length > units {
                self.put(start + units, length - units);
            }
            taken.push((start, units));
            left -= units;
        }
        taken
    }

    /// Takes the first free extent from unit `from` on that has at least `units_min`, but no more
    /// of it than [`TAKEN_UNITS_MAX`].
    pub fn take_from(&mut self, from: u64, units_min: u64) -> Option<(u64, u64)> {
        let (&start, &length) =
            self.free.range(from..).find(|(_, length)| **length >= units_min.max(1))?;
        self.take(start, length);
        if length > TAKEN_UNITS_MAX {
            self.put(start + TAKEN_UNITS_MAX, length - TAKEN_UNITS_MAX);
        }
        Some((start, length.min(TAKEN_UNITS_MAX)))
    }

    /// Makes units free that nothing speaks of.
    pub fn free(&mut self, start: u64, units: u64) {
        let (mut first, mut length) = (start, units);
        if let Some((&before, &count)) = self.free.range(..start).next_back() {
            assert!(before + count <= start, "units from {start} on are free already");
            if before + count == start {
                self.take(before, count);
                (first, length) = (before, count + length);
            }
        }
        if let Some((&after, &count)) = self.free.range(start..).next() {
            assert!(start + units <= after, "units from {after} on are free already");
            if start + units == after {
                self.take(after, count);
                length += count;
            }
        }
        self.put(first, length);
    }

    fn take(&mut self, start: u64, units: u64) {
        self.free.remove(&start);
        self.by_length.remove(&(units, start));
        self.free_units -= units;
    }

    fn put(&mut self, start: u64, units: u64) {
        self.free.insert(start, units);
        self.by_length.insert((units, start));
        self.free_units += units;
    }

    /// Notes that the journal block `block` gave these units up.
    pub fn retire(&mut self, block: u64, start: u64, units: u64) {
        self.retired.push_back((block, start, units));
        self.retired_units += units;
    }

    /// Makes free what blocks up to `fence` gave up and nobody reads.
    pub fn release(&mut self, fence: u64, pins: &Pins) {
        let due = self.retired.partition_point(|(block, ..)| *block <= fence);
        let due: Vec<_> = self.retired.drain(..due).collect();
        for &(block, start, units) in due.iter().rev() {
            if pins.is_pinned(start) {
                self.retired.push_front((block, start, units));
            } else {
                self.retired_units -= units;
                self.free(start, units);
            }
        }
    }

    /// Units that are free now.
    pub fn free_units(&self) -> u64 {
        self.free_units
    }

    /// Units that are given up but not yet free.
    pub fn retired_units(&self) -> u64 {
        self.retired_units
    }

    /// The journal blocks that gave up what is not yet free.
    #[cfg(test)]
    pub fn retired_blocks(&self) -> Vec<u64> {
        self.retired.iter().map(|(block, ..)| *block).collect()
    }

    /// Units of the longest free extent.
    pub fn longest_free_units(&self) -> u64 {
        self.by_length.last().map_or(0, |(units, _)| *units)
    }
}

/// The extents that are being read. A reader pins its extent while the index names it, so an
/// extent that was given up gets no new pins.
#[derive(Default)]
pub(crate) struct Pins {
    shards: [Mutex<HashMap<u64, u32>>; PIN_SHARDS],
}

/// An extent stays what it is while this lives.
pub(crate) struct Pin<'a> {
    pins: &'a Pins,
    start: u64,
}

impl Pins {
    fn shard(&self, start: u64) -> MutexGuard<'_, HashMap<u64, u32>> {
        lock(&self.shards[(start / 8) as usize % PIN_SHARDS])
    }

    /// Pins the extent that begins with this unit.
    pub fn pin(&self, start: u64) -> Pin<'_> {
        *self.shard(start).entry(start).or_default() += 1;
        Pin { pins: self, start }
    }

    fn is_pinned(&self, start: u64) -> bool {
        self.shard(start).contains_key(&start)
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut shard = self.pins.shard(self.start);
        match shard.get_mut(&self.start) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(shard.remove(&self.start)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_taken_in_pieces_that_are_not_too_long() {
        let mut space = Space::new(vec![(0, 100), (200, 8), (300, 20)]);
        assert_eq!(space.take_some(10, 30, 90, 9), [(300, 20), (0, 30), (30, 30), (60, 10)]);
        assert_eq!(space.take_some(10, 30, 90, 1), [(70, 30)]);
        assert_eq!((space.free_units(), space.longest_free_units()), (8, 8));
        // A cut falls where the next one of that length may begin.
        let mut space = Space::new(vec![(0, 100)]);
        assert_eq!(space.take_some(8, 30, 90, 9), [(0, 24), (24, 24), (48, 24), (72, 16)]);
    }

    #[test]
    fn units_come_back_behind_the_fence_and_after_their_readers() {
        let (mut space, pins) = (Space::default(), Pins::default());
        space.free(0, 100);
        assert_eq!(space.allocate(10), Some(0));
        assert_eq!(space.allocate(20), Some(10));
        assert_eq!(space.allocate(71), None);
        space.retire(5, 0, 10);
        space.retire(6, 10, 20);
        let readers = (pins.pin(0), pins.pin(0));
        space.release(4, &pins);
        assert_eq!((space.free_units(), space.retired_units()), (70, 30));
        // Block 5 is behind the fence and read, block 6 is not behind it.
        space.release(5, &pins);
        assert_eq!((space.free_units(), space.retired_units()), (70, 30));
        space.release(6, &pins);
        assert_eq!((space.free_units(), space.retired_units()), (90, 10));
        drop(readers.0);
        space.release(6, &pins);
        assert_eq!(space.retired_units(), 10);
        drop(readers.1);
        space.release(6, &pins);
        assert_eq!((space.longest_free_units(), space.retired_units()), (100, 0));
    }

    #[test]
    fn the_shortest_extent_that_is_enough_is_taken() {
        let mut space = Space::default();
        space.free(0, 50);
        space.free(60, 5);
        space.free(70, 8);
        assert_eq!(space.allocate(5), Some(60));
        assert_eq!(space.allocate(6), Some(70));
        space.free(60, 10);
        assert_eq!(space.free.iter().collect::<Vec<_>>(), [(&0, &50), (&60, &10), (&76, &2)]);
    }
}
