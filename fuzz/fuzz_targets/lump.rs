//! Changes of a good lump store, with checksums made right where the input says so.
#![no_main]

#[path = "../../lump/tests/common/mutation.rs"]
mod mutation;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static BASES: LazyLock<[Vec<u8>; 2]> =
    LazyLock::new(|| [mutation::base_image(), mutation::window_image()]);

// The first byte says which of the stores is changed: one that was closed, or one that was cut off with a window.
fuzz_target!(|input: &[u8]| {
    let Some((which, input)) = input.split_first() else { return };
    let mut image = BASES[usize::from(which % 2)].clone();
    let is_sealed = mutation::mutate(&mut image, input);
    mutation::exercise(&image, !is_sealed);
});
