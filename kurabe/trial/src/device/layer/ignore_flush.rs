//! The layer that takes flushes and does nothing.

use block::{Fault, FaultyDevice};

use super::{Layer, any_size, no_words, plain};

/// Its name, by which others put it under a control.
pub const NAME: &str = "ignore-flush";

pub(super) static LAYER: Layer = Layer {
    name: NAME,
    notation: "ignore-flush (answers flushes without carrying them out, as a disk that lies)",
    read: |words| {
        no_words(words)?;
        Ok(plain(|below| Box::new(FaultyDevice::new(below, vec![Fault::IgnoreFlushes]))))
    },
    fits: any_size,
    rotational: None,
};
