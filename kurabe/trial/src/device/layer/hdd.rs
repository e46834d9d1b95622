//! The layer that answers when a hard disk would: `hdd:PROFILE`.

use disks::DiskKind;

use super::{Layer, modelled};

pub(super) static LAYER: Layer = Layer {
    name: "hdd",
    notation: "hdd:PROFILE (answers when a hard disk would; 'kurabe disk profiles' lists them)",
    read: |words| modelled::read(DiskKind::Hard, words),
    fits: |words, size_bytes| modelled::fits(DiskKind::Hard, words, size_bytes),
    rotational: Some(true),
};
