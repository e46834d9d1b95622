//! `vm`: sparse images of virtual machines, overwritten at random places.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::{AgeProfile, AgeingDirectory, History};

pub(super) static VM: AgeProfile = AgeProfile {
    name: "vm",
    notation: "vm[:fill=PERCENT][,times=N][,images=M][,copied]",
    summary: "M sparse images written at random places, 4 KiB to 256 KiB each (fill=60%, times=2, images=4)",
    read: |keys| {
        let (fill, times) = (keys.fill(0.6)?, keys.times(2.0)?);
        Ok(Box::new(Vm { fill, times, images: keys.number("images", 4, 1, 1000)? }))
    },
};

struct Vm {
    fill: f64,
    times: f64,
    images: u64,
}

const BLOCK_BYTES: u64 = 4096;
/// A write has 1 to 64 blocks.
const LENGTHS: u32 = 7;
/// Bytes of an image at least.
const IMAGE_BYTES_MIN: u64 = 1 << 20;

impl Vm {
    fn image_bytes(&self, capacity_bytes: u64) -> u64 {
        let all = (capacity_bytes as f64 * self.fill) as u64;
        all / self.images / BLOCK_BYTES * BLOCK_BYTES
    }
}

impl History for Vm {
    fn check(&self, capacity_bytes: u64) -> Result<(), String> {
        let bytes = self.image_bytes(capacity_bytes);
        if bytes >= IMAGE_BYTES_MIN {
            return Ok(());
        }
        let most = (capacity_bytes as f64 * self.fill) as u64 / IMAGE_BYTES_MIN;
        Err(format!(
            "an image would have {bytes} bytes; take at most {most} images, or a larger device"
        ))
    }

    fn live(&self, place: &mut AgeingDirectory<'_>) -> Result<(), String> {
        let image_bytes = self.image_bytes(place.capacity_bytes);
        let images: Vec<String> =
            (0..self.images).map(|image| format!("disk{image}.img")).collect();
        let mut files = Vec::new();
        for image in &images {
            files.push(place.sparse(image, image_bytes)?);
        }
        let mut random = ChaCha8Rng::seed_from_u64(place.seed);
        let goal_bytes = (place.capacity_bytes as f64 * self.times) as u64;
        let mut written_bytes = 0;
        let mut number = 0;
        while written_bytes < goal_bytes {
            let image = random.random_range(0..files.len() as u64) as usize;
            let length = BLOCK_BYTES << random.random_range(0..LENGTHS);
            let length = length.min(image_bytes);
            let at = random.random_range(0..=(image_bytes - length) / BLOCK_BYTES) * BLOCK_BYTES;
            place.overwrite(&files[image], &images[image], number, at, length)?;
            written_bytes += length;
            number += 1;
        }
        Ok(())
    }
}
