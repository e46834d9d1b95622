//! A cost relative to the baseline as it is shown, or why there is none.

use lab::analysis::Comparison;
use lab::statistics::BLOCKS_MIN_FOR_INTERVAL;
use lab::words::{ratio, ratio_with_interval};
use lab::workload::Unit;

/// Stands in the place of a cost that is withheld.
pub const WITHHELD: &str = "too few rounds";

/// Why something is not told of fewer rounds.
pub fn too_few_explained() -> String {
    format!("both completed fewer than {BLOCKS_MIN_FOR_INTERVAL} rounds")
}

/// `1.025 (0.993 to 1.059)`: the cost, with the same digits on every screen.
pub fn cost_text(comparison: &Comparison) -> Option<String> {
    Some(ratio_with_interval(comparison.cost()?, comparison.cost_ends()))
}

/// An interval that reaches farther than this from its cost is told by its ends, as in the table: one half width
/// for both sides would differ from them by more than a few per cent.
const PLUS_MINUS_MAX: f64 = 0.1;

/// `xfs took 0.950 ± 0.030 times as long as ext4`: the half width is the farther end's distance, so that the
/// sentence never claims more than the table.
pub fn sentence(comparison: &Comparison) -> Option<String> {
    let Comparison { contender, baseline, metric, unit, .. } = comparison;
    let cost = comparison.cost()?;
    let figure = match comparison.cost_ends() {
        Some((low, high)) if (high - cost).max(cost - low) <= PLUS_MINUS_MAX * cost => {
            let half = (high - cost).max(cost - low);
            let digits = ratio(cost).split_once('.').map_or(0, |(_, digits)| digits.len());
            format!("{} ± {half:.digits$}", ratio(cost))
        }
        ends => ratio_with_interval(cost, ends),
    };
    Some(match unit {
        Unit::Nanoseconds => format!("{contender} took {figure} times as long as {baseline}"),
        _ => format!("{contender} cost {figure} times as much as {baseline}, by {metric}"),
    })
}
