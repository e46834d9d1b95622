//! How surely the runs of a block tell its ratio: the lower level of the model with two levels, runs
//! within blocks and blocks.
//!
//! A comparison rests on one ratio a block. Few blocks may agree by chance; the runs within them then
//! say how far that can be trusted. It takes the costs of runs and knows nothing of what was measured.

use super::BLOCKS_MIN_FOR_INTERVAL;

/// The scatter of a block's ratio that comes from its runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Runs {
    /// Variance of the logarithm of one block's ratio.
    pub variance: f64,
    /// Its degrees of freedom: one less than the runs in each block.
    pub freedom: f64,
}

/// The scatter within blocks, from the logarithms of the costs of two contenders in the rounds that both
/// have, by block: the mean square within them (ANOVA). None below three blocks of at least two
/// rounds.
///
/// The figure of a block is the mean of its costs and not of their logarithms, so each cost counts as
/// a share of that mean.
pub fn runs(blocks: &[(Vec<f64>, Vec<f64>)]) -> Option<Runs> {
    let shares = |logs: &[f64]| -> Vec<f64> {
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let costs: Vec<f64> = logs.iter().map(|log| (log - most).exp()).collect();
        let mean = costs.iter().sum::<f64>() / costs.len() as f64;
        costs.iter().map(|cost| cost / mean).collect()
    };
    let (mut squares, mut freedom, mut parts, mut count) = (0.0, 0.0, 0.0, 0);
    for (under, over) in blocks.iter().filter(|(under, _)| under.len() > 1) {
        let apart = shares(under).into_iter().zip(shares(over)).map(|(under, over)| over - under);
        squares += apart.map(|apart| apart * apart).sum::<f64>();
        freedom += (under.len() - 1) as f64;
        parts += 1.0 / under.len() as f64;
        count += 1;
    }
    let variance = squares / freedom * parts / f64::from(count);
    (count >= BLOCKS_MIN_FOR_INTERVAL as u32).then_some(Runs { variance, freedom })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_runs_is_as_sure_as_their_mean() {
        // Ratios of 0.99 and 1.01 in each block: a variance of 0.0002 a run, half of it a block.
        let logs = |costs: [f64; 2]| costs.map(f64::ln).to_vec();
        let blocks = vec![(logs([1.0, 1.0]), logs([0.99, 1.01])); 3];
        let found = runs(&blocks).unwrap();
        assert!((found.variance - 1e-4).abs() < 1e-9, "{found:?}");
        assert_eq!(found.freedom, 3.0);
        assert_eq!(runs(&blocks[..2]), None);
        assert_eq!(runs(&vec![(vec![0.0], vec![0.0]); 5]), None);
    }
}
