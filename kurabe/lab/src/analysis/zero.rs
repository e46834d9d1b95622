//! Zeros: a count that is 0 is a result, and has no ratio. What can be said of one is said without.

use super::samples::Samples;
use crate::statistics::{CostEstimate, Verdict};
use crate::workload::Unit;

/// Fewest trials of either side from which a count that does not vary is taken for what it is.
const CONSTANT_TRIALS_MIN: usize = 2;

/// The value that all trials of one side have, where there are enough of them.
pub(super) fn constant(values: &[Option<f64>]) -> Option<f64> {
    let mut all = values.iter().flatten();
    let first = *all.next()?;
    let count = 1 + all.clone().count();
    (count >= CONSTANT_TRIALS_MIN && all.all(|value| *value == first)).then_some(first)
}

/// Counts that do not vary are decided at once: there is no error to wait for.
pub(super) fn of_constants(under: f64, over: f64, same_within: f64) -> Verdict {
    let margin = 1.0 + same_within;
    if over <= under * margin && under <= over * margin {
        Verdict::Same { within: same_within }
    } else if over < under {
        Verdict::Faster
    } else {
        Verdict::Slower
    }
}

/// The comparison of a metric of two contenders, the baseline first, of which one was 0 in some
/// trial: decided where neither varies, and open where one does.
pub(super) fn compared(
    samples: &Samples<'_>,
    places: [usize; 2],
    (metric, unit): &(String, Unit),
    same_within: f64,
    mut compared: CostEstimate,
) -> CostEstimate {
    let [under, over] = places.map(|place| samples.values(place, metric));
    let has_zero = under.iter().chain(&over).any(|value| *value == Some(0.0));
    if has_zero && !places.iter().any(|place| samples.is_violated(*place)) {
        compared.pairs = under.iter().zip(&over).filter(|(u, o)| u.and(**o).is_some()).count();
        if let Some((under, over)) = constant(&under).zip(constant(&over)) {
            // Of a cost less is better, of a rate more.
            let (under, over) = if unit.more_is_better() { (over, under) } else { (under, over) };
            compared.verdict = of_constants(under, over, same_within);
        }
    }
    compared
}
