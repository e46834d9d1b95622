//! What is in an object: bytes derived from its key and version, so that what a store gives back
//! can be checked without remembering what it was given.
//!
//! Word i of the contents (8 bytes, little-endian) is word i of a SplitMix64 sequence that starts
//! at a mixture of salt, key and version: incompressible, different in every object, version and
//! place, and any part can be made without the parts before it. The salt is for telling one run
//! from another on the same device.
//!
//! Must not know: stores, commands.

use block::{fill_words, word_at};
use serde::{Deserialize, Serialize};

use super::random::mix;

/// Bytes around a difference that are shown.
const SHOWN_BYTES: usize = 16;

/// Bytes that are compared at once: whole words that stay in the processor's first cache.
const PART_BYTES: usize = 4096;

/// Which contents an object has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentIdentity {
    /// The same for a whole run.
    pub salt: u64,
    pub key: u64,
    /// How often it was overwritten.
    pub version: u32,
}

impl ContentIdentity {
    fn start(&self) -> u64 {
        mix(mix(mix(self.salt) ^ self.key) ^ u64::from(self.version))
    }

    /// Fills the buffer with the contents from their beginning.
    pub fn fill(&self, buffer: &mut [u8]) {
        fill_words(self.start(), 0, buffer);
    }

    fn byte(&self, offset: usize) -> u8 {
        word_at(self.start(), offset as u64 / 8).to_le_bytes()[offset % 8]
    }

    /// The first offset at which `found` is not the beginning of the contents.
    fn first_difference(&self, found: &[u8]) -> Option<usize> {
        let start = self.start();
        let mut expected = [0; PART_BYTES];
        let mut parts = found.chunks(PART_BYTES).enumerate();
        parts.find_map(|(number, part)| {
            let expected = &mut expected[..part.len()];
            fill_words(start, (number * PART_BYTES / 8) as u64, expected);
            if expected == part {
                return None;
            }
            let differs = expected.iter().zip(part).position(|(expected, found)| expected != found);
            differs.map(|at| number * PART_BYTES + at)
        })
    }

    /// Compares what a store gave back with what it was given.
    ///
    /// Errors: the first difference; a wrong length is one.
    pub fn check(&self, size_bytes: u64, found: &[u8]) -> Result<(), Box<Difference>> {
        let right_length = found.len() as u64 == size_bytes;
        let offset = match self.first_difference(found) {
            None if right_length => return Ok(()),
            None => found.len().min(usize::try_from(size_bytes).unwrap_or(usize::MAX)),
            Some(offset) => offset,
        };
        // Whole words say more than a single byte in the middle of one.
        let begin = offset - offset % 8;
        let end = (begin + SHOWN_BYTES).min(found.len());
        let expected_end = (begin as u64 + SHOWN_BYTES as u64).min(size_bytes) as usize;
        Err(Box::new(Difference {
            key: self.key,
            version: self.version,
            size_bytes,
            found_bytes: found.len() as u64,
            offset: offset as u64,
            expected: hex((begin..expected_end.max(begin)).map(|at| self.byte(at))),
            found: hex(found[begin.min(end)..end].iter().copied()),
            explanation: self.explanation(begin, &found[begin.min(end)..end]),
        }))
    }

    /// What the bytes found at an offset are, when that can be told.
    fn explanation(&self, offset: usize, found: &[u8]) -> Option<String> {
        if found.is_empty() {
            return Some("the contents end here".to_owned());
        }
        if found.iter().all(|byte| *byte == 0) {
            return Some("zeros were found".to_owned());
        }
        let is_of = |identity: &ContentIdentity| {
            found.len() >= 8
                && found.iter().enumerate().all(|(at, byte)| identity.byte(offset + at) == *byte)
        };
        let stale = (0..self.version).rev().take(1000);
        let newer = self.version + 1..self.version.saturating_add(10);
        if let Some(version) =
            stale.chain(newer).find(|&version| is_of(&ContentIdentity { version, ..*self }))
        {
            return Some(format!("the bytes found are those of version {version} of this object"));
        }
        let nearest = (1..=10_000u64)
            .flat_map(|distance| [self.key.checked_sub(distance), self.key.checked_add(distance)])
            .flatten()
            .find(|&key| is_of(&ContentIdentity { key, version: 0, ..*self }));
        nearest.map(|key| format!("the bytes found are those of object {key}, version 0"))
    }
}

/// A difference between what was put and what was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error(
    "object {key}, version {version}: byte {offset} of {size_bytes} differs: expected {expected}, \
     found {found} ({found_bytes} bytes in all){}",
    .explanation.as_ref().map(|explanation| format!("; {explanation}")).unwrap_or_default()
)]
pub struct Difference {
    pub key: u64,
    /// Version that was expected.
    pub version: u32,
    /// Bytes that were put.
    pub size_bytes: u64,
    /// Bytes that were read.
    pub found_bytes: u64,
    /// Offset of the first difference.
    pub offset: u64,
    /// What was expected from the word of the difference on, in hexadecimal.
    pub expected: String,
    pub found: String,
    /// What the bytes found are, when that can be told.
    pub explanation: Option<String>,
}

fn hex(bytes: impl Iterator<Item = u8>) -> String {
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: ContentIdentity = ContentIdentity { salt: 9, key: 1234, version: 3 };

    fn contents(identity: ContentIdentity, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        identity.fill(&mut bytes);
        bytes
    }

    #[test]
    fn what_was_filled_in_is_right_and_every_changed_byte_is_found() {
        for size in [0, 1, 7, 8, 9, 67] {
            let mut bytes = contents(OBJECT, size);
            assert_eq!(OBJECT.check(size as u64, &bytes), Ok(()));
            for offset in 0..size {
                bytes[offset] ^= 0x40;
                let difference = OBJECT.check(size as u64, &bytes).unwrap_err();
                assert_eq!(difference.offset, offset as u64);
                bytes[offset] ^= 0x40;
            }
        }
    }

    #[test]
    fn salt_key_version_and_place_all_matter() {
        let bytes = contents(OBJECT, 4096);
        for other in [
            ContentIdentity { salt: 8, ..OBJECT },
            ContentIdentity { key: 1235, ..OBJECT },
            ContentIdentity { version: 2, ..OBJECT },
        ] {
            let equal = contents(other, 4096).iter().zip(&bytes).filter(|(a, b)| a == b).count();
            // Equal by chance: 16 of 4096, standard deviation 4.
            assert!(equal < 40, "{equal} bytes are equal");
        }
        assert_ne!(bytes[..512], bytes[512..1024]);
    }

    #[test]
    fn a_wrong_length_is_a_difference_at_the_shorter_end() {
        let bytes = contents(OBJECT, 100);
        let short = OBJECT.check(101, &bytes).unwrap_err();
        assert_eq!((short.offset, short.found_bytes), (100, 100));
        let long = OBJECT.check(96, &bytes).unwrap_err();
        assert_eq!((long.offset, long.found_bytes), (96, 100));
        let nothing = OBJECT.check(96, &[]).unwrap_err();
        assert_eq!(nothing.explanation.as_deref(), Some("the contents end here"));
    }

    #[test]
    fn what_was_found_is_recognised() {
        let explanation = |found: &[u8]| {
            OBJECT.check(found.len() as u64, found).unwrap_err().explanation.unwrap_or_default()
        };
        let mut torn = contents(OBJECT, 8192);
        torn[4096..].fill(0);
        assert_eq!(explanation(&torn), "zeros were found");
        torn[4096..]
            .copy_from_slice(&contents(ContentIdentity { version: 2, ..OBJECT }, 8192)[4096..]);
        assert!(explanation(&torn).contains("version 2 of this object"));
        let other = contents(ContentIdentity { key: 1230, version: 0, ..OBJECT }, 64);
        assert!(explanation(&other).contains("object 1230"));
        assert_eq!(explanation(&contents(ContentIdentity { salt: 1, ..OBJECT }, 64)), "");
        let shown = OBJECT.check(64, &other).unwrap_err().to_string();
        assert!(shown.starts_with("object 1234, version 3: byte 0 of 64 differs: expected "));
    }
}
