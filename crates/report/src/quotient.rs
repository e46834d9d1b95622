//! A paired ratio beside the medians of the same two contenders: whether the medians divide to it,
//! and what is said where they do not. Knows no table.

use lab::statistics::BLOCKS_MIN_FOR_INTERVAL;
use lab::words::is_telling;

/// Marks a ratio that is not the quotient of the medians beside it.
pub const MARK: &str = " †";

/// Stands in the place of a ratio that is withheld.
pub const WITHHELD: &str = "no ratio";

/// Stands in the place of a number of fewer blocks than it takes, in narrow cells.
pub const UNKNOWN: &str = "?";

/// Why the medians may divide to another number.
pub const PAIRED: &str = "ratios are taken within each block";

/// Numbers that differ by less agree, as far as they are printed.
const ROUNDING: f64 = 0.005;

/// By how much they may differ where no interval is printed that would hold both.
const WITHOUT_INTERVAL: f64 = 0.05;

/// Whether a quotient of medians disagrees with the paired ratio as it is printed: it lies on the
/// other side of 1, or outside of the interval. Where none is printed, because there is none or it
/// is too wide to tell, nothing shows that both are possible, and 5 % is enough.
pub fn is_aside(quotient: f64, ratio: f64, ends: Option<(f64, f64)>) -> bool {
    let difference = (quotient / ratio).ln().abs();
    let contradicts = (quotient - 1.0) * (ratio - 1.0) < 0.0 && difference > ROUNDING;
    let is_beyond = match ends.filter(|(low, high)| is_telling(*low, *high)) {
        Some((low, high)) => !(low..=high).contains(&quotient) && difference > ROUNDING,
        None => difference > WITHOUT_INTERVAL,
    };
    contradicts || is_beyond
}

/// What [`WITHHELD`] means.
pub fn withheld_explained() -> String {
    format!(
        "{WITHHELD}: fewer than {BLOCKS_MIN_FOR_INTERVAL} blocks have a completed trial of both"
    )
}

/// Why something is not told of fewer blocks.
pub fn too_few_explained() -> String {
    format!("fewer than {BLOCKS_MIN_FOR_INTERVAL} blocks have a completed trial of both")
}

/// What [`MARK`] means.
pub fn mark_explained() -> String {
    format!("{} not the quotient of the medians: {PAIRED}", MARK.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quotient_that_points_the_other_way_is_aside_whatever_the_interval() {
        assert!(is_aside(0.922, 1.05, Some((0.5, 2.0))));
        assert!(!is_aside(1.2, 1.05, Some((0.5, 2.0))));
        assert!(is_aside(2.2, 1.05, Some((0.5, 2.0))));
        // Either side of 1, and the same number in print.
        assert!(!is_aside(0.999, 1.001, Some((0.9, 1.1))));
    }

    #[test]
    fn where_no_interval_is_printed_a_twentieth_is_too_far() {
        // As they were reported: the medians divide to 0.79 beside 0.433, to 1.66 beside 3.22.
        let too_wide = Some((0.012, 131.7));
        assert!(is_aside(0.79, 0.433, too_wide) && is_aside(1.66, 3.22, too_wide));
        assert!(!is_aside(1.02, 1.05, too_wide) && !is_aside(1.02, 1.05, None));
        assert!(is_aside(1.0, 1.06, None) && is_aside(1.06, 1.0, None));
        assert!(is_aside(0.98, 1.01, None));
        // An interval that is printed holds both.
        assert!(!is_aside(1.66, 3.22, Some((1.1, 9.4))));
    }
}
