//! The layer that answers when a volume across a network would: `cloud:PROFILE`.

use disks::DiskKind;

use super::{Layer, modelled};

pub(super) static LAYER: Layer = Layer {
    name: "cloud",
    notation: "cloud:PROFILE (answers when a volume across a network would; 'kurabe disk profiles' lists them)",
    read: |words| modelled::read(DiskKind::Cloud, words),
    fits: |words, size_bytes| modelled::fits(DiskKind::Cloud, words, size_bytes),
    rotational: Some(false),
};
