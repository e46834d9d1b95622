//! Vector instructions for the search of the live objects (`objects::live`), written out.
//!
//! It knows nothing of what the numbers count.

/// Asks the processor to bring what `target` points at into its cache. Only a hint: it changes no
/// value and no result.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn prefetch<T>(target: &T) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: SSE, which has the instruction, is part of x86-64; it never faults, and the address
    // is that of a live reference anyway.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(target).cast()) }
}

/// Processors for which no hint is written here fetch when the value is read.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn prefetch<T>(_target: &T) {}

/// Sixteen numbers in one cache line, compared and changed together.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Lanes(pub [i32; 16]);

/// The vector instructions are written out because both functions stand in one chain of dependent
/// loads: what compilers made of the loops below cost twice as much, by storing lanes that the next
/// search then had to wait for.
#[cfg(target_arch = "x86_64")]
impl Lanes {
    /// How many lanes from the first on are at most `limit`. The lanes must ascend.
    #[inline(always)]
    pub(crate) fn count_at_most(&self, limit: i32) -> usize {
        use core::arch::x86_64::{
            __m128i, _mm_cmpgt_epi32, _mm_load_si128, _mm_movemask_epi8, _mm_packs_epi16,
            _mm_packs_epi32, _mm_set1_epi32,
        };
        let lanes: *const __m128i = self.0.as_ptr().cast();
        // SAFETY: SSE2 is part of x86-64; the four loads cover exactly the array, which the type
        // aligns to 64 bytes.
        let greater = unsafe {
            let limits = _mm_set1_epi32(limit);
            let greater = |quarter| _mm_cmpgt_epi32(_mm_load_si128(lanes.add(quarter)), limits);
            _mm_movemask_epi8(_mm_packs_epi16(
                _mm_packs_epi32(greater(0), greater(1)),
                _mm_packs_epi32(greater(2), greater(3)),
            ))
        };
        (greater as u32 | 1 << 16).trailing_zeros() as usize
    }

    /// Counts as [`Lanes::count_at_most`] does, and takes 1 from every lane that is not counted.
    #[inline(always)]
    pub(crate) fn count_and_decrement(&mut self, limit: i32) -> usize {
        use core::arch::x86_64::{
            __m128i, _mm_add_epi32, _mm_cmpgt_epi32, _mm_load_si128, _mm_movemask_epi8,
            _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32, _mm_store_si128,
        };
        let lanes: *mut __m128i = self.0.as_mut_ptr().cast();
        // SAFETY: as above; the array is borrowed mutably, and the stores cover exactly it.
        let greater = unsafe {
            let limits = _mm_set1_epi32(limit);
            let step = |quarter| {
                let before = _mm_load_si128(lanes.add(quarter));
                // A lane that is greater compares as -1.
                let greater = _mm_cmpgt_epi32(before, limits);
                _mm_store_si128(lanes.add(quarter), _mm_add_epi32(before, greater));
                greater
            };
            _mm_movemask_epi8(_mm_packs_epi16(
                _mm_packs_epi32(step(0), step(1)),
                _mm_packs_epi32(step(2), step(3)),
            ))
        };
        (greater as u32 | 1 << 16).trailing_zeros() as usize
    }

    /// Takes 1 from every lane after the one at `place`.
    #[inline(always)]
    pub(crate) fn decrement_after(&mut self, place: usize) {
        use core::arch::x86_64::{
            __m128i, _mm_add_epi32, _mm_cmpgt_epi32, _mm_load_si128, _mm_set_epi32, _mm_set1_epi32,
            _mm_store_si128,
        };
        let lanes: *mut __m128i = self.0.as_mut_ptr().cast();
        // SAFETY: as above; the array is borrowed mutably, and the stores cover exactly it.
        unsafe {
            let place = _mm_set1_epi32(place as i32);
            let first = _mm_set_epi32(3, 2, 1, 0);
            for quarter in 0..4 {
                let numbers = _mm_add_epi32(first, _mm_set1_epi32(4 * quarter as i32));
                let after = _mm_cmpgt_epi32(numbers, place);
                let sum = _mm_add_epi32(_mm_load_si128(lanes.add(quarter)), after);
                _mm_store_si128(lanes.add(quarter), sum);
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Lanes {
    pub(crate) fn count_at_most(&self, limit: i32) -> usize {
        self.0.iter().take_while(|lane| **lane <= limit).count()
    }

    pub(crate) fn count_and_decrement(&mut self, limit: i32) -> usize {
        let count = self.count_at_most(limit);
        self.0[count..].iter_mut().for_each(|lane| *lane -= 1);
        count
    }

    pub(crate) fn decrement_after(&mut self, place: usize) {
        for lane in &mut self.0[place + 1..] {
            *lane -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_counted_and_changed_one_by_one() {
        let ascending = std::array::from_fn(|lane| lane as i32 * 10 - 20);
        for limit in -25..=140 {
            let expected = ascending.iter().filter(|lane| **lane <= limit).count();
            assert_eq!(Lanes(ascending).count_at_most(limit), expected);
            let mut lanes = Lanes(ascending);
            assert_eq!(lanes.count_and_decrement(limit), expected);
            for (lane, (now, before)) in lanes.0.iter().zip(ascending).enumerate() {
                assert_eq!(*now, before - i32::from(lane >= expected));
            }
        }
        for place in 0..16 {
            let mut lanes = Lanes(ascending);
            lanes.decrement_after(place);
            for (lane, (now, before)) in lanes.0.iter().zip(ascending).enumerate() {
                assert_eq!(*now, before - i32::from(lane > place));
            }
        }
    }
}
