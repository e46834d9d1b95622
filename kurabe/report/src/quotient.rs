//! Ratios as they are shown: as speeds, or why there is none.

use lab::analysis::Comparison;
use lab::statistics::{BLOCKS_MIN_FOR_INTERVAL, Verdict};

/// Stands in the place of a ratio that is withheld.
pub const WITHHELD: &str = "no ratio";

/// Why something is not told of fewer blocks.
pub fn too_few_explained() -> String {
    format!("fewer than {BLOCKS_MIN_FOR_INTERVAL} blocks have a completed trial of both")
}

/// A ratio of this comparison as one of speeds: above 1 is faster.
pub fn speed_of(comparison: &Comparison, ratio: f64) -> f64 {
    if comparison.unit.more_is_better() { ratio } else { ratio.recip() }
}

/// The ends of a comparison's interval as those of a ratio of speeds, as wide as its verdict needs: where
/// single trials were slow, what it says is wider than the interval of the ratio.
pub fn speeds(comparison: &Comparison) -> Option<(f64, f64)> {
    let (one, other) = comparison.low.zip(comparison.high)?;
    let (one, other) = (speed_of(comparison, one), speed_of(comparison, other));
    let (low, high) = (one.min(other), one.max(other));
    Some(match comparison.verdict {
        Verdict::AtMost { slower, faster } => (
            slower.map_or(low, |slower| low.min((1.0 + slower).recip())),
            faster.map_or(high, |faster| high.max(1.0 + faster)),
        ),
        _ => (low, high),
    })
}

/// The ends of an interval, with as many digits as it deserves: more where an end would look like 1.
pub fn ends_text(low: f64, high: f64) -> String {
    let looks_like_1 = |end: f64| end != 1.0 && (end - 1.0).abs() < 0.005;
    if high / low < 1.1 || looks_like_1(low) || looks_like_1(high) {
        format!("{low:.3} to {high:.3}")
    } else {
        format!("{low:.2} to {high:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::ends_text;

    #[test]
    fn a_narrow_interval_has_more_digits() {
        let shown = [(1.0, 1.0223), (1.0, 1.444), (1.232, 6.06), (0.87, 0.9965)]
            .map(|(low, high)| ends_text(low, high));
        assert_eq!(shown, ["1.000 to 1.022", "1.00 to 1.44", "1.23 to 6.06", "0.870 to 0.997"]);
    }
}
