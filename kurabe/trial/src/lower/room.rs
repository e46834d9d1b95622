//! What is left of a device for the file systems of a stack.

use lab::contender::{Contender, Layer};

use super::{by_name, has_cache};
use crate::filesystem::{self, FileSystem};

/// Each file system of a contender, the lowest first, with the layer that it lies on and how much that leaves it of a
/// device of so many bytes at most.
pub fn room(
    contender: &Contender,
    devices: usize,
    mut size_bytes: u64,
) -> Vec<(&'static FileSystem, Option<&Layer>, u64)> {
    let mut all = Vec::new();
    let mut below = None;
    for layer in contender.below().iter().rev().chain([contender.base()]) {
        if let Some(file_system) = filesystem::by_name(&layer.name) {
            all.push((file_system, below, size_bytes));
        } else if let Some(lower) = by_name(&layer.name) {
            let has_own_cache = devices > 1 && below.is_none() && has_cache(layer);
            size_bytes = if has_own_cache { size_bytes } else { (lower.leaves)(layer, size_bytes) };
            below = Some(layer);
        }
    }
    all
}
