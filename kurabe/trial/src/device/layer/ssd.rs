//! The layer that answers when a flash disk would: `ssd:PROFILE`.

use disks::DiskKind;

use super::{Layer, modelled};

pub(super) static LAYER: Layer = Layer {
    name: "ssd",
    notation: "ssd:PROFILE (answers when a flash disk would; 'kurabe disk profiles' lists them)",
    read: |words| modelled::read(DiskKind::Flash, words),
    fits: |words, size_bytes| modelled::fits(DiskKind::Flash, words, size_bytes),
    rotational: Some(false),
};
