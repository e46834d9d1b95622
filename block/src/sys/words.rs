//! Bytes that nothing can compress, join or leave out, by the widest instructions that this processor has.

/// The golden ratio as a 64-bit fraction.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Word `place` of the sequence that begins at `start`, by itself: SplitMix64 counted by position (Steele, Lea and
/// Flood, "Fast splittable pseudorandom number generators", 2014).
#[inline(always)]
pub fn word_at(start: u64, place: u64) -> u64 {
    mix(start.wrapping_add(place.wrapping_add(1).wrapping_mul(GOLDEN)))
}

/// The finaliser of SplitMix64: a bijection in which every bit of the argument moves about half the bits of the
/// result.
#[inline(always)]
pub fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Fills the buffer with words `first`, `first + 1`, ... of the sequence that begins at `start`, little-endian;
/// bytes at its end that are no whole word are the first of the next.
pub fn fill_words(start: u64, first: u64, buffer: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512vl") {
            // SAFETY: the processor has these instructions.
            return unsafe { fill_avx512(start, first, buffer) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has these instructions.
            return unsafe { fill_avx2(start, first, buffer) };
        }
    }
    fill_by(start, first, buffer);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn fill_avx512(start: u64, first: u64, buffer: &mut [u8]) {
    fill_by(start, first, buffer);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fill_avx2(start: u64, first: u64, buffer: &mut [u8]) {
    fill_by(start, first, buffer);
}

/// The same source for all of them: the compiler chooses the instructions.
#[inline(always)]
fn fill_by(start: u64, first: u64, buffer: &mut [u8]) {
    let mut words = buffer.chunks_exact_mut(8);
    let mut place = first;
    for word in &mut words {
        word.copy_from_slice(&word_at(start, place).to_le_bytes());
        place = place.wrapping_add(1);
    }
    let rest = words.into_remainder();
    let last = word_at(start, place).to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_instructions_make_the_same_words() {
        for length in [0, 1, 7, 8, 63, 64, 65, 1000, 4099] {
            let mut expected = vec![0; length];
            fill_by(99, 3, &mut expected);
            let mut found = vec![1; length];
            fill_words(99, 3, &mut found);
            assert_eq!(found, expected, "{length} bytes");
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has these instructions.
                unsafe { fill_avx2(99, 3, &mut found) };
                assert_eq!(found, expected, "{length} bytes by AVX2");
            }
            let one_by_one: Vec<u8> = (0..length)
                .map(|at| word_at(99, 3 + at as u64 / 8).to_le_bytes()[at % 8])
                .collect();
            assert_eq!(found, one_by_one, "{length} bytes");
        }
    }
}
