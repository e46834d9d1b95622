//! Changes of the metadata of a good volume, with checksums made right where the input says so.
#![no_main]

#[path = "../../minfs/tests/common/mutation.rs"]
mod mutation;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static BASE: LazyLock<Vec<u8>> = LazyLock::new(mutation::base_image);

fuzz_target!(|input: &[u8]| {
    let mut image = BASE.clone();
    mutation::mutate(&mut image, input);
    mutation::exercise(&image);
});
