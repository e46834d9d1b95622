//! The layer that takes flushes and does nothing.

use block::{Fault, FaultyDevice};

use super::{Layer, no_words};

/// Its name, by which others put it under a control.
pub const NAME: &str = "ignore-flush";

pub(super) static LAYER: Layer = Layer {
    name: NAME,
    notation: "ignore-flush (answers flushes without carrying them out, as a disk that lies)",
    read: |words| {
        no_words(words)?;
        Ok(Box::new(|below| Box::new(FaultyDevice::new(below, vec![Fault::IgnoreFlushes]))))
    },
};
