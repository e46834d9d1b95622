//! Whether fresh file systems differ by more than the turns on them do.
//!
//! It takes logarithms of ratios, by block, and judges no comparison: a block counts once there,
//! however many turns it has, so its interval covers what is found here.

use super::distribution::fisher_tail;

/// Level at which a difference is believed.
const LEVEL: f64 = 0.01;
/// Into at most so many batches the turns of a block are put: turns that follow each other are alike.
const BATCHES_MAX: usize = 5;
/// Fewest blocks that tell.
const BLOCKS_MIN: usize = 3;
/// Differences below this are not worth a word.
const DIFFERENCE_MIN: f64 = 0.01;

/// The standard deviation among blocks that the scatter within them does not explain, as a share;
/// None where it is not significant (F test on the means of batches of turns in their order).
pub fn instances(blocks: &[Vec<f64>]) -> Option<f64> {
    let blocks: Vec<&Vec<f64>> = blocks.iter().filter(|turns| turns.len() > 1).collect();
    if blocks.len() < BLOCKS_MIN {
        return None;
    }
    let shortest = blocks.iter().map(|turns| turns.len()).min();
    let batches = shortest.map_or(BATCHES_MAX, |turns| turns.min(BATCHES_MAX));
    let batched: Vec<Vec<f64>> = blocks
        .iter()
        .map(|turns| {
            let end = |batch: usize| batch * turns.len() / batches;
            (0..batches).map(|batch| mean(&turns[end(batch)..end(batch + 1)])).collect()
        })
        .collect();
    let batches = batches as f64;
    let count = batched.len() as f64;
    let means: Vec<f64> = batched.iter().map(|own| mean(own)).collect();
    let within = batched.iter().map(|own| variance(own)).sum::<f64>() / count;
    let between = batches * variance(&means);
    let freedom = (count - 1.0, count * (batches - 1.0));
    if within <= 0.0 || fisher_tail(between / within, freedom.0, freedom.1) >= LEVEL {
        return None;
    }
    let share = ((between - within).max(0.0) / batches).sqrt().exp_m1();
    (share >= DIFFERENCE_MIN).then_some(share)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn variance(values: &[f64]) -> f64 {
    let middle = mean(values);
    values.iter().map(|value| (value - middle).powi(2)).sum::<f64>() / (values.len() - 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six blocks of twenty turns that scatter by 5 %, each with a level of its own.
    fn blocks(levels: [f64; 6]) -> Vec<Vec<f64>> {
        let noise = |block: usize, turn: usize| {
            let mixed = (block * 31 + turn * 17 + block * turn * 7) % 23;
            0.1 * (mixed as f64 / 22.0 - 0.5)
        };
        let of = |(block, level): (usize, f64)| (0..20).map(|t| level + noise(block, t)).collect();
        levels.into_iter().enumerate().map(of).collect()
    }

    #[test]
    fn fresh_file_systems_that_differ_are_told_from_turns_that_do() {
        assert_eq!(instances(&blocks([0.1; 6])), None);
        let found = instances(&blocks([0.06, -0.06, 0.06, -0.06, 0.06, -0.06])).unwrap();
        assert!((0.05..0.08).contains(&found), "{found}");
        // Two blocks tell nothing, and neither do blocks of one turn.
        assert_eq!(instances(&blocks([0.5, -0.5, 0.5, -0.5, 0.5, -0.5])[..2]), None);
        assert_eq!(instances(&[vec![1.0], vec![2.0], vec![3.0]]), None);
        assert!(instances(&[vec![1.0, 1.1], vec![2.0, 2.1], vec![3.0, 3.1]]).is_some());
    }
}
