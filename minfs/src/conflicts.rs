//! Which files claim one name, or the same space, and which of them gives way.
//!
//! The younger record wins: it could take what it has only because the other one had given it up,
//! by a record that is lost. Pure: knows neither the device nor what becomes of the losers.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use crate::layout::NAME_BYTES_MAX;
use crate::record::Extent;

/// What a file claims.
#[derive(Clone, Copy)]
pub(crate) struct Claim<'a> {
    pub(crate) inode: u32,
    pub(crate) generation: u64,
    pub(crate) name: &'a [u8],
    pub(crate) extents: &'a [Extent],
}

impl<'a> Claim<'a> {
    /// Its extents, each with the inode.
    pub(crate) fn owned_extents(self) -> impl Iterator<Item = (Extent, u32)> + 'a {
        self.extents.iter().map(move |extent| (*extent, self.inode))
    }

    fn age(&self) -> (u64, u32) {
        (self.generation, self.inode)
    }
}

/// Pairs of files with one name: each of all but the youngest, and the youngest.
pub(crate) fn over_names<'a>(claims: impl Iterator<Item = Claim<'a>>) -> Vec<(u32, u32)> {
    let mut owners: HashMap<&[u8], Claim> = HashMap::new();
    let mut losers = Vec::new();
    for claim in claims {
        match owners.entry(claim.name) {
            Entry::Vacant(place) => drop(place.insert(claim)),
            Entry::Occupied(mut owner) if owner.get().age() < claim.age() => {
                losers.push(owner.insert(claim));
            }
            Entry::Occupied(_) => losers.push(claim),
        }
    }
    losers.iter().map(|loser| (loser.inode, owners[loser.name].inode)).collect()
}

/// Pairs of files that hold the same units: each that has to give way, and a younger file that
/// keeps them. A file that gives way to a younger one takes nothing from an older.
pub(crate) fn over_space<'a>(claims: impl Iterator<Item = Claim<'a>>) -> Vec<(u32, u32)> {
    let mut claims: Vec<_> = claims.collect();
    claims.sort_by_key(|claim| std::cmp::Reverse(claim.age()));
    // The extents that are kept, by start, with their end and their file.
    let mut kept: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    let mut losers = Vec::new();
    for claim in claims {
        let winner = claim.extents.iter().find_map(|extent| {
            let (_, (end, owner)) = kept.range(..extent.end()).next_back()?;
            (*end > extent.start).then_some(*owner)
        });
        match winner {
            Some(winner) => losers.push((claim.inode, winner)),
            None => kept.extend(
                claim.extents.iter().map(|extent| (extent.start, (extent.end(), claim.inode))),
            ),
        }
    }
    losers
}

/// A name for `inode` that tells what it was and that nobody has.
pub(crate) fn spare_name(name: &[u8], inode: u32, taken: &HashSet<Vec<u8>>) -> Vec<u8> {
    let named = |suffix: String| {
        let kept = name.len().min(NAME_BYTES_MAX - suffix.len());
        [&name[..kept], suffix.as_bytes()].concat()
    };
    let first = named(format!(".inode-{inode}"));
    let others = (2_u32..).map(|number| named(format!(".inode-{inode}-{number}")));
    std::iter::once(first)
        .chain(others)
        .find(|candidate| !taken.contains(candidate))
        .expect("a volume holds fewer files than there are numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim<'a>(inode: u32, name: &'a [u8], extents: &'a [Extent]) -> Claim<'a> {
        Claim { inode, generation: u64::from(inode), name, extents }
    }

    fn extent(start: u32, count: u32) -> Extent {
        Extent { start, count }
    }

    #[test]
    fn of_one_name_the_youngest_keeps_it_in_whatever_order() {
        let claims =
            [2, 4, 1, 3].map(|inode| claim(inode, if inode == 3 { b"b" } else { b"a" }, &[]));
        let mut pairs = over_names(claims.into_iter());
        pairs.sort_unstable();
        assert_eq!(pairs, [(1, 4), (2, 4)]);
    }

    #[test]
    fn overlaps_are_found_also_when_nested_and_a_loser_takes_nothing() {
        let extents =
            [[extent(0, 100)], [extent(10, 5)], [extent(50, 1)], [extent(100, 1)], [extent(14, 9)]];
        // From the youngest: 14..23 and 100..101 stay, 50..51 too; 10..15 and 0..100 give way.
        let claims = (1..).zip(&extents).map(|(inode, extents)| claim(inode, b"", extents));
        assert_eq!(over_space(claims), [(2, 5), (1, 3)]);
        // The file in the middle loses to the youngest, so the oldest may stay.
        let chain = [[extent(0, 10)], [extent(5, 10)], [extent(12, 10)]];
        let claims = (1..).zip(&chain).map(|(inode, extents)| claim(inode, b"", extents));
        assert_eq!(over_space(claims), [(2, 3)]);
    }

    #[test]
    fn files_that_only_touch_both_stay_in_whatever_order() {
        for extents in [[[extent(0, 10)], [extent(10, 10)]], [[extent(10, 10)], [extent(0, 10)]]] {
            let claims = (1..).zip(&extents).map(|(inode, extents)| claim(inode, b"", extents));
            assert_eq!(over_space(claims), []);
        }
    }

    #[test]
    fn a_spare_name_is_free_and_no_longer_than_a_name_may_be() {
        let taken = HashSet::from([b"a.inode-7".to_vec()]);
        assert_eq!(spare_name(b"a", 7, &taken), b"a.inode-7-2");
        assert_eq!(spare_name(b"b", 7, &taken), b"b.inode-7");
        let long = spare_name(&[b'n'; 255], 65_535, &taken);
        assert!(long.len() == 255 && long.ends_with(b"nn.inode-65535"));
    }
}
