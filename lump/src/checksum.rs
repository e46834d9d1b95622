//! CRC-32C, the checksum of everything in the format (Castagnoli's polynomial, as in RFC 3720),
//! taken with the widest instructions that the processor has.

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of `parts`, one after the other.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_that_of_another_implementation_in_any_parts() {
        let bytes: Vec<u8> = (0..70_000_u32).map(|index| ((index * 31) >> 3) as u8).collect();
        for cut in [0, 1, 63, 4096, 65_537, bytes.len()] {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(super::crc32c(&[first, second]), crc32c::crc32c(&bytes), "cut at {cut}");
        }
    }
}
