//! Mutated images never panic, never leave the device, never loop. The fuzz targets in `fuzz/`
//! run the same harness under coverage guidance; this runs it from seeds on any toolchain.
//!
//! `MINFS_MUTATIONS` sets how many images.

#[path = "common/mutation.rs"]
mod mutation;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

#[test]
fn mutated_images_do_no_harm() {
    let wanted = std::env::var("MINFS_MUTATIONS").ok().and_then(|text| text.parse().ok());
    let wanted: u64 = wanted.unwrap_or(3000);
    let base = mutation::base_image();
    assert!(mutation::exercise(&base));
    let mut mounted = 0;
    for seed in 0..wanted {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut input = vec![0; 5 * random.random_range(1..12)];
        random.fill(&mut input[..]);
        // Most changes are sealed, or hardly any would get past the checksums.
        for change in input.chunks_mut(5) {
            if random.random_range(0..4) > 0 {
                change[0] |= 0x80;
            }
        }
        let mut image = base.clone();
        mutation::mutate(&mut image, &input);
        let outcome = std::panic::catch_unwind(|| mutation::exercise(&image));
        match outcome {
            Ok(has_mounted) => mounted += u64::from(has_mounted),
            Err(_) => panic!("seed {seed}, input {input:?}"),
        }
    }
    println!("{wanted} images, {mounted} of them mounted");
    // If nearly none mounted, the test would prove little about what comes after the mount.
    assert!(mounted > wanted / 4 && mounted < wanted);
}
