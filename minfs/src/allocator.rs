//! The free space of a volume: which allocation units nobody holds.
//!
//! Derived at mount from the extents of the records; nothing of it is on disk, so nothing can
//! disagree. Keeps free runs by start and by length. Invariant: runs are disjoint and never
//! adjacent. Knows nothing of files; the caller frees units only once the record that gave them
//! up is durable.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::Extent;

/// The free units.
#[derive(Debug)]
pub(crate) struct Allocator {
    by_start: BTreeMap<u32, u32>,
    by_length: BTreeSet<(u32, u32)>,
    free_units: u64,
}

impl Allocator {
    /// All of `unit_count` units but those of `used`, which must be sorted by start; overlapping
    /// extents count once.
    pub(crate) fn new(unit_count: u32, used: &[(Extent, u32)]) -> Self {
        let mut allocator =
            Self { by_start: BTreeMap::new(), by_length: BTreeSet::new(), free_units: 0 };
        let mut position = 0;
        for (extent, _) in used {
            if extent.start > position {
                allocator.insert(position, extent.start - position);
            }
            position = position.max(extent.end());
        }
        if unit_count > position {
            allocator.insert(position, unit_count - position);
        }
        allocator
    }

    pub(crate) fn free_units(&self) -> u64 {
        self.free_units
    }

    /// Length of the longest free run in units.
    pub(crate) fn longest_run(&self) -> u32 {
        self.by_length.last().map_or(0, |(length, _)| *length)
    }

    /// Takes `wanted` units: first those right after `behind`, then the shortest run that holds
    /// the rest, else the longest runs. `None`, and nothing taken, when too few are free.
    pub(crate) fn allocate(&mut self, wanted: u64, behind: Option<u32>) -> Option<Vec<Extent>> {
        if wanted > self.free_units {
            return None;
        }
        let mut taken = Vec::new();
        let mut rest = wanted;
        if let Some(start) = behind
            && let Some(length) = self.by_start.get(&start)
        {
            let count = rest.min(u64::from(*length)) as u32;
            if count > 0 {
                taken.push(self.take(start, count));
                rest -= u64::from(count);
            }
        }
        while rest > 0 {
            let fitting = u32::try_from(rest)
                .ok()
                .and_then(|rest| self.by_length.range((rest, 0)..).next().copied());
            let (length, start) =
                fitting.or_else(|| self.by_length.last().copied()).expect("enough units are free");
            let count = rest.min(u64::from(length)) as u32;
            taken.push(self.take(start, count));
            rest -= u64::from(count);
        }
        Some(taken)
    }

    /// Gives units back.
    pub(crate) fn free(&mut self, extent: Extent) {
        if extent.count == 0 {
            return;
        }
        let (mut start, mut end) = (extent.start, extent.end());
        let before = self.by_start.range(..=start).next_back().map(|(at, length)| (*at, *length));
        if let Some((at, length)) = before {
            assert!(at + length <= start, "unit {start} is freed twice");
            if at + length == start {
                self.remove(at, length);
                start = at;
            }
        }
        let after = self.by_start.range(extent.start..).next().map(|(at, length)| (*at, *length));
        if let Some((at, length)) = after {
            assert!(at >= end, "unit {at} is freed twice");
            if at == end {
                self.remove(at, length);
                end += length;
            }
        }
        self.insert(start, end - start);
    }

    fn take(&mut self, start: u32, count: u32) -> Extent {
        let length = self.by_start[&start];
        self.remove(start, length);
        if length > count {
            self.insert(start + count, length - count);
        }
        Extent { start, count }
    }

    fn insert(&mut self, start: u32, length: u32) {
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
        self.free_units += u64::from(length);
    }

    fn remove(&mut self, start: u32, length: u32) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
        self.free_units -= u64::from(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u32, count: u32) -> Extent {
        Extent { start, count }
    }

    #[test]
    fn prefers_to_extend_then_the_best_fit_then_the_longest() {
        let used = [(extent(10, 2), 0), (extent(15, 5), 0), (extent(40, 1), 0)];
        // Free: 0..10, 12..15, 20..40, 41..50.
        let mut allocator = Allocator::new(50, &used);
        assert_eq!(allocator.free_units(), 42);
        assert_eq!(allocator.allocate(2, Some(12)), Some(vec![extent(12, 2)]));
        assert_eq!(allocator.allocate(9, None), Some(vec![extent(41, 9)]));
        assert_eq!(allocator.allocate(22, Some(15)), Some(vec![extent(20, 20), extent(0, 2)]));
        assert_eq!(allocator.allocate(10, None), None);
        assert_eq!(allocator.free_units(), 9);
        assert_eq!(allocator.allocate(9, None), Some(vec![extent(2, 8), extent(14, 1)]));
        assert_eq!(allocator.longest_run(), 0);
    }

    #[test]
    fn freed_neighbours_become_one_run() {
        let mut allocator = Allocator::new(30, &[(extent(0, 30), 0)]);
        for freed in [extent(10, 5), extent(20, 5), extent(15, 5), extent(0, 1)] {
            allocator.free(freed);
        }
        assert_eq!(allocator.longest_run(), 15);
        assert_eq!(allocator.free_units(), 16);
        assert_eq!(allocator.allocate(15, None), Some(vec![extent(10, 15)]));
    }

    #[test]
    fn units_that_two_extents_hold_count_once() {
        let used = [(extent(0, 100), 1), (extent(10, 5), 2), (extent(100, 1), 4)];
        assert_eq!(Allocator::new(200, &used).free_units(), 99);
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn freeing_free_units_is_a_mistake_of_the_program() {
        Allocator::new(10, &[]).free(extent(3, 1));
    }
}
