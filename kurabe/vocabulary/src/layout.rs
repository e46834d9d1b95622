//! How files lie on a device: the measures of a file system's age.
//!
//! Integers for bytes and counts. What could not be measured is absent, never zero.

use serde::{Deserialize, Serialize};

/// How files lie, read one after the other in the order of their paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Files that have blocks of their own.
    pub files: u64,
    /// Bytes of their blocks.
    pub bytes: u64,
    /// Pieces without a gap that they are in.
    pub pieces: u64,
    /// Files in more than one piece.
    pub split_files: u64,
    /// Pieces of the file that has the most.
    pub pieces_max: u64,
    /// Places at which the next block does not lie behind the one that was read before.
    pub jumps: u64,
    /// The median distance of those places, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jump_bytes: Option<u64>,
    /// The median difference between the inode numbers of files that follow each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode_step: Option<u64>,
    /// Free extents by size, where the file system's own tools say it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub free: Vec<FreeExtents>,
    /// Some pieces: the place in the order of reading, and on the device, in parts of [`WHOLE`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub map: Vec<(u16, u16)>,
}

/// The whole of the order and of the device in [`Layout::map`].
pub const WHOLE: u16 = 10_000;

/// Bytes of a block, as layouts count.
pub const BLOCK_BYTES: u64 = 4096;

/// Free extents of up to some size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeExtents {
    /// The size, and above the one before.
    pub up_to_bytes: u64,
    pub extents: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Layout {
    /// The share of the blocks that lie behind the block that is read before them: the layout score of Smith and
    /// Seltzer (SIGMETRICS 1997), over all files as Conway and others have it (FAST 2017).
    pub fn score(&self) -> Option<f64> {
        let blocks = self.bytes / BLOCK_BYTES;
        (blocks > 1).then(|| 1.0 - (self.jumps as f64 / (blocks - 1) as f64).min(1.0))
    }

    /// Pieces of a file on average.
    pub fn pieces_per_file(&self) -> Option<f64> {
        (self.files > 0).then(|| self.pieces as f64 / self.files as f64)
    }

    /// The share of the free bytes in extents of up to so many bytes.
    pub fn free_share_up_to(&self, bytes: u64) -> Option<f64> {
        let sum = |all: &dyn Fn(&&FreeExtents) -> bool| {
            self.free.iter().filter(all).map(|one| one.bytes).fold(0, u64::saturating_add) as f64
        };
        let whole = sum(&|_| true);
        (whole > 0.0).then(|| sum(&|one| one.up_to_bytes <= bytes) / whole)
    }

    /// Puts free extents, by their sizes, into intervals that end at powers of four blocks.
    pub fn free_of(extents: impl Iterator<Item = (u64, u64)>) -> Vec<FreeExtents> {
        let mut all: Vec<FreeExtents> = Vec::new();
        for (size_bytes, count) in extents.filter(|(size, count)| *size > 0 && *count > 0) {
            let mut up_to_bytes = BLOCK_BYTES;
            while up_to_bytes < size_bytes {
                up_to_bytes *= 4;
            }
            let bytes = size_bytes * count;
            match all.iter_mut().find(|one| one.up_to_bytes == up_to_bytes) {
                Some(one) => {
                    one.extents += count;
                    one.bytes += bytes;
                }
                None => all.push(FreeExtents { up_to_bytes, extents: count, bytes }),
            }
        }
        all.sort_by_key(|one| one.up_to_bytes);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_and_shares() {
        let layout = Layout {
            files: 4,
            bytes: 101 * BLOCK_BYTES,
            pieces: 6,
            jumps: 25,
            free: Layout::free_of([(4096, 3), (8192, 1), (1 << 20, 1)].into_iter()),
            ..Layout::default()
        };
        assert_eq!((layout.score(), layout.pieces_per_file()), (Some(0.75), Some(1.5)));
        let counts: Vec<(u64, u64)> =
            layout.free.iter().map(|one| (one.up_to_bytes, one.extents)).collect();
        assert_eq!(counts, [(4096, 3), (16384, 1), (1 << 20, 1)]);
        let share = layout.free_share_up_to(16384).unwrap();
        assert!((share - 5.0 / 261.0).abs() < 1e-12, "{share}");
        assert_eq!(Layout::default().score(), None);
        assert_eq!(Layout::default().free_share_up_to(1 << 30), None);
    }
}
