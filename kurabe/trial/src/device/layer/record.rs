//! The layer that keeps every write in memory.

use crash::RequestRecorder;
use rustix::fs::{MemfdFlags, memfd_create};

use super::{Layer, any_size, no_words, plain};

pub(super) static LAYER: Layer = Layer {
    name: "record",
    notation: "record (keeps every write in memory, as the recorder of 'kurabe crash' does)",
    read: |words| {
        no_words(words)?;
        let data = memfd_create("recording", MemfdFlags::CLOEXEC)
            .map_err(|error| format!("there is no memory for it ({error})"))?;
        Ok(plain(|below| Box::new(RequestRecorder::new(below, data.into()))))
    },
    fits: any_size,
    rotational: None,
};
