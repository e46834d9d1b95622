//! Raw bytes over the start of a good volume: the geometry and the slots as they come.
#![no_main]

#[path = "../../minfs/tests/common/mutation.rs"]
#[allow(dead_code)]
mod mutation;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static BASE: LazyLock<Vec<u8>> = LazyLock::new(mutation::base_image);

fuzz_target!(|input: &[u8]| {
    let mut image = BASE.clone();
    let length = input.len().min(image.len());
    image[..length].copy_from_slice(&input[..length]);
    mutation::exercise(&image);
});
