//! Mutated images never panic, never leave the device, never loop. The fuzz targets in `fuzz/`
//! run the same harness under coverage guidance; this runs it from seeds on any toolchain.
//!
//! `MINFS_MUTATIONS` sets how many images.

#[path = "common/mutation.rs"]
mod mutation;

use std::fs;
use std::process::{Command, Output};

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

#[test]
fn numbers_at_the_ends_of_their_ranges_do_no_harm() {
    let (mut images, mut mounted) = (0, 0);
    for (title, image) in mutation::range_ends() {
        match std::panic::catch_unwind(|| mutation::exercise(&image)) {
            Ok(has_mounted) => mounted += u64::from(has_mounted),
            Err(_) => panic!("{title}"),
        }
        images += 1;
    }
    println!("{images} images, {mounted} of them mounted");
    assert!(mounted > images / 4 && mounted < images);
}

#[test]
fn a_volume_at_the_end_of_its_generations_is_read_only_and_says_so() {
    const MINFS: &str = env!("CARGO_BIN_EXE_minfs");
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let (image, source) = (path("image"), path("source"));
    fs::write(&source, b"content").unwrap();
    let minfs = |arguments: &[&str]| Command::new(MINFS).args(arguments).output().unwrap();
    let says = |output: &Output| {
        let said = [&output.stdout[..], &output.stderr].concat();
        String::from_utf8_lossy(&said).contains("generations")
    };
    // Two leaps of a repair from the end is where it stops.
    let last = (1 << 63) - (1 << 49);
    for generation in [last, last + 1, (1 << 63) - 2, (1 << 63) - 1] {
        let mut bytes = mutation::base_image();
        // The first slot of the file `a`, whose newest record is in the second.
        mutation::set_generation(&mut bytes, 1, generation);
        fs::write(&image, &bytes).unwrap();
        let put = minfs(&["put", &image, &source, "new"]);
        if generation == last {
            assert!(put.status.success(), "{put:?}");
            assert_eq!(minfs(&["get", &image, "new"]).stdout, b"content");
            continue;
        }
        assert_eq!(put.status.code(), Some(2), "{generation}: {put:?}");
        let check = minfs(&["fsck", "-n", &image]);
        assert_eq!(check.status.code(), Some(4), "{generation}: {check:?}");
        let repair = minfs(&["fsck", "--repair", &image]);
        assert_eq!(repair.status.code(), Some(8), "{generation}: {repair:?}");
        assert!(says(&put) && says(&check) && says(&repair), "{put:?} {check:?} {repair:?}");
        assert!(fs::read(&image).unwrap() == bytes, "{generation}: the image was changed");
        assert_eq!(minfs(&["get", &image, "d"]).stdout, [b'c'; 10_000]);
    }
}
