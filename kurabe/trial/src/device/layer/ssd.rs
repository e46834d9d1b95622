//! The layer that answers when a flash disk would: `ssd:PROFILE`.

use disks::Kind;

use super::{Layer, modelled};

pub(super) static LAYER: Layer = Layer {
    name: "ssd",
    notation: "ssd:PROFILE (answers when a flash disk would; 'kurabe disk profiles' lists them)",
    read: |words| modelled::read(Kind::Flash, words),
    fits: |words, size_bytes| modelled::fits(Kind::Flash, words, size_bytes),
    rotational: Some(false),
};
