//! From a failing disk to the fewest lost writes that still make it fail.
//!
//! Delta debugging (Zeller, Hildebrandt: Simplifying and isolating failure-inducing input, 2002)
//! over what was lost: the rest is kept. A smaller set is believed only when it was tried.

/// What became of a reduction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reduction<T> {
    /// The lost parts of which none can be left out, or as far as the tries went.
    pub lost: Vec<T>,
    pub tried: usize,
    /// Whether every part of `lost` was shown to be needed.
    pub is_minimal: bool,
}

/// Reduces `lost`, with which the disk fails. `fails` says whether it still does when only these
/// are lost. At most `tries_max` disks are tried.
pub fn reduce<T: Clone, E>(
    lost: &[T],
    tries_max: usize,
    mut fails: impl FnMut(&[T]) -> Result<bool, E>,
) -> Result<Reduction<T>, E> {
    let mut lost = lost.to_vec();
    let mut tried = 0;
    let mut parts = 2_usize;
    while lost.len() > 1 {
        let size = lost.len().div_ceil(parts);
        let chunks: Vec<&[T]> = lost.chunks(size).collect();
        // A part alone, then everything but a part; with two parts these are the same.
        let alone = chunks.iter().map(|chunk| chunk.to_vec());
        let without = (0..chunks.len()).filter(|_| chunks.len() > 2).map(|left_out| {
            let others = chunks.iter().enumerate().filter(|(index, _)| *index != left_out);
            others.flat_map(|(_, chunk)| chunk.iter().cloned()).collect::<Vec<T>>()
        });
        let candidates: Vec<(bool, Vec<T>)> =
            alone.map(|set| (true, set)).chain(without.map(|set| (false, set))).collect();
        let mut smaller = None;
        for (is_alone, candidate) in candidates {
            if tried == tries_max {
                return Ok(Reduction { lost, tried, is_minimal: false });
            }
            tried += 1;
            if fails(&candidate)? {
                smaller = Some((is_alone, candidate));
                break;
            }
        }
        match smaller {
            Some((true, set)) => (lost, parts) = (set, 2),
            Some((false, set)) => (lost, parts) = (set, (parts - 1).max(2)),
            None if parts >= lost.len() => return Ok(Reduction { lost, tried, is_minimal: true }),
            None => parts = (parts * 2).min(lost.len()),
        }
    }
    Ok(Reduction { lost, tried, is_minimal: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn reduced(count: u32, needed: &[u32], tries_max: usize) -> Reduction<u32> {
        let all: Vec<u32> = (0..count).collect();
        let fails = |set: &[u32]| Ok::<_, Infallible>(needed.iter().all(|one| set.contains(one)));
        let mut reduction = reduce(&all, tries_max, fails).unwrap();
        reduction.lost.sort();
        reduction
    }

    #[test]
    fn what_is_not_needed_goes() {
        assert_eq!(reduced(1000, &[617], 200).lost, [617]);
        assert_eq!(reduced(100, &[3, 57, 99], 400).lost, [3, 57, 99]);
        assert!(reduced(1000, &[617], 200).is_minimal);
        assert_eq!(reduced(1, &[0], 10), Reduction { lost: vec![0], tried: 0, is_minimal: true });
    }

    #[test]
    fn a_bound_ends_it_with_what_still_fails() {
        let reduction = reduced(1000, &[1, 999], 12);
        assert!(
            !reduction.is_minimal && reduction.lost.contains(&1) && reduction.lost.contains(&999)
        );
        assert_eq!(reduction.tried, 12);
    }
}
