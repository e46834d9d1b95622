//! The harness of the fuzzer, from seeds.

#[path = "common/mutation.rs"]
mod mutation;

use std::collections::BTreeMap;
use std::sync::Arc;

use block::MemoryDevice;
use lump::{OpenOptions, Store, check};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// `LUMP_FUZZ_SEEDS` sets how many.
#[test]
fn changed_images_neither_panic_nor_lie() {
    let wanted = std::env::var("LUMP_FUZZ_SEEDS").ok().and_then(|text| text.parse().ok());
    let base = mutation::base_image();
    // Of puts that no journal names a damaged one looks like one that did not arrive.
    let least = contents(&base);
    for base in [base, mutation::window_image()] {
        mutation::exercise(&base, true);
        change(&base, &least, wanted.unwrap_or(100));
    }
}

fn is_clean(image: &[u8]) -> bool {
    let device = Arc::new(MemoryDevice::from_image(image, 512));
    check(device).is_ok_and(|report| report.findings.is_empty())
}

/// Keys and values.
fn contents(image: &[u8]) -> BTreeMap<u128, Vec<u8>> {
    let device = Arc::new(MemoryDevice::from_image(image, 512));
    let store = Store::open(device, &OpenOptions::default()).unwrap();
    let keys = store.list(..).unwrap().map(|object| object.key);
    keys.map(|key| (key, store.get(key).unwrap().unwrap().to_vec())).collect()
}

/// `least` must be there, if the image is clean.
fn change(base: &[u8], least: &BTreeMap<u128, Vec<u8>>, wanted: u64) {
    let most = contents(base);
    for seed in 0..wanted {
        println!("seed {seed}");
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut input = vec![0; 5 * (1 + seed as usize % 6)];
        random.fill_bytes(&mut input);
        for change in input.chunks_mut(5) {
            // Metadata lie at the start; most of what changes shall be there.
            change[2] %= 4;
        }
        let mut image = base.to_vec();
        let is_sealed = mutation::mutate(&mut image, &input);
        mutation::exercise(&image, !is_sealed);
        // One change is always told. Of several that hit the last block and the one before nothing is
        // left that could tell them from a power cut.
        if input.len() == 5 && !is_sealed && is_clean(&image) {
            let found = contents(&image);
            let is_whole = least.keys().all(|key| found.contains_key(key));
            assert!(is_whole, "seed {seed}: a loss without a finding");
            assert!(found.iter().all(|object| most.get(object.0) == Some(object.1)), "seed {seed}");
        }
    }
}
