//! Byte ranges that do not overlap, each with the number of the write that is its oldest.

use std::collections::BTreeMap;
use std::ops::Range;

/// The ranges. Neighbours are joined.
#[derive(Debug, Default)]
pub struct Extents {
    /// Start, and end with number.
    by_start: BTreeMap<u64, (u64, u64)>,
    /// Number and start: the oldest first.
    by_age: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Extents {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Adds a range. `number` is greater than all before.
    pub fn insert(&mut self, range: Range<u64>, number: u64) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end, mut oldest) = (range.start, range.end, number);
        // The last one that begins before the end of the new one, as long as it reaches its start.
        while let Some((&one_start, &(one_end, one_number))) =
            self.by_start.range(..=end).next_back()
            && one_end >= start
        {
            self.take(one_start);
            start = start.min(one_start);
            end = end.max(one_end);
            oldest = oldest.min(one_number);
        }
        self.put(start..end, oldest);
    }

    /// Removes what lies in a range, and says how many bytes that was. `number` is greater than all
    /// before; a remainder behind the range gets it.
    pub fn remove(&mut self, range: Range<u64>, number: u64) -> u64 {
        let before = self.bytes;
        while let Some((&start, &(end, oldest))) = self.by_start.range(..range.end).next_back()
            && end > range.start
        {
            self.take(start);
            // Behind first: it is what this loop does not look at again.
            if end > range.end {
                let free = start >= range.start;
                self.put(range.end..end, if free { oldest } else { number });
            }
            if start < range.start {
                self.put(start..range.start, oldest);
            }
        }
        before - self.bytes
    }

    /// Whether all of a range is there.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        self.by_start
            .range(..=range.start)
            .next_back()
            .is_some_and(|(_, &(end, _))| end >= range.end)
    }

    /// The one that begins there.
    pub fn at(&self, start: u64) -> Option<Range<u64>> {
        self.by_start.get(&start).map(|&(end, _)| start..end)
    }

    pub fn oldest(&self) -> impl Iterator<Item = Range<u64>> {
        self.by_age.values().map(|&start| start..self.by_start[&start].0)
    }

    fn put(&mut self, range: Range<u64>, number: u64) {
        self.bytes += range.end - range.start;
        self.by_age.insert(number, range.start);
        self.by_start.insert(range.start, (range.end, number));
    }

    fn take(&mut self, start: u64) {
        let (end, number) = self.by_start.remove(&start).expect("it was found");
        self.by_age.remove(&number);
        self.bytes -= end - start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Against a plain table of bytes.
    #[test]
    fn extents_agree_with_a_bitmap() {
        const SIZE: u64 = 256;
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let (mut extents, mut bitmap) = (Extents::default(), [false; SIZE as usize]);
            for number in 0..200 {
                let start = random.bits() % SIZE;
                let end = (start + 1 + random.bits() % 40).min(SIZE);
                let part = &mut bitmap[start as usize..end as usize];
                if random.happens(0.6) {
                    extents.insert(start..end, number);
                    part.fill(true);
                } else {
                    let there = part.iter().filter(|there| **there).count() as u64;
                    assert_eq!(extents.remove(start..end, number), there, "seed {seed}");
                    part.fill(false);
                }
                let bytes = bitmap.iter().filter(|there| **there).count() as u64;
                assert_eq!(extents.bytes(), bytes, "seed {seed}, step {number}");
                let all: Vec<_> = extents.oldest().collect();
                assert_eq!(all.iter().map(|one| one.end - one.start).sum::<u64>(), bytes);
                let probe = random.bits() % (SIZE - 8);
                let covered = bitmap[probe as usize..probe as usize + 8].iter().all(|there| *there);
                assert_eq!(extents.covers(&(probe..probe + 8)), covered, "seed {seed}");
            }
        }
    }
}
