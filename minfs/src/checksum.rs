//! CRC-32C, the checksum of everything in the format (Castagnoli's polynomial, as in RFC 3720).
//!
//! A growing file pays for it with every byte, so it is taken with the widest instructions that
//! the processor has.

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of `bytes`.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// The checksum of bytes whose checksum is `before`, followed by `bytes`.
pub(crate) fn crc32c_append(before: u32, bytes: &[u8]) -> u32 {
    // The digest starts from the inner state, which is inverted at the end.
    let mut digest =
        Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(before ^ u32::MAX));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::{crc32c, crc32c_append};

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
    }

    #[test]
    fn pieces_give_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..70_000_u32).map(|index| ((index * 31) >> 3) as u8).collect();
        let whole = crc32c(&bytes);
        for cut in [0, 1, 7, 63, 64, 511, 4096, 4097, 65_536, bytes.len()] {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(crc32c_append(crc32c(first), second), whole, "cut at {cut}");
        }
    }
}
