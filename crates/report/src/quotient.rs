//! A paired ratio beside the medians of the same two contenders: whether the medians divide to it,
//! and what is said where they do not. Knows no table.

use lab::statistics::BLOCKS_MIN_FOR_INTERVAL;

/// Marks a ratio that is not the quotient of the medians beside it.
pub const MARK: &str = " †";

/// Stands in the place of a ratio that is withheld.
pub const WITHHELD: &str = "no ratio";

/// Stands in the place of a number of fewer blocks than it takes, in narrow cells.
pub const UNKNOWN: &str = "?";

/// Why the medians may divide to another number.
pub const PAIRED: &str = "The ratio is paired: each block's trials are divided first, so that a slow block slows both sides";

/// Numbers that differ by less agree, as far as they are printed.
const ROUNDING: f64 = 0.005;

/// Whether a quotient of medians disagrees with the paired ratio as it is printed: it lies outside of
/// its interval, or on the other side of 1; without an interval, whether it is another number.
pub fn is_aside(quotient: f64, ratio: f64, ends: Option<(f64, f64)>) -> bool {
    let differs = (quotient / ratio - 1.0).abs() > ROUNDING;
    let contradicts = (quotient - 1.0) * (ratio - 1.0) < 0.0;
    match ends {
        Some((low, high)) => !(low..=high).contains(&quotient) || (differs && contradicts),
        None => differs,
    }
}

/// What [`WITHHELD`] means.
pub fn withheld_explained() -> String {
    format!(
        "{WITHHELD}: fewer than {BLOCKS_MIN_FOR_INTERVAL} blocks have a completed trial of both, and the medians hold other trials too, so that the two could point in opposite directions; with {BLOCKS_MIN_FOR_INTERVAL} such blocks there is a ratio"
    )
}

/// Why something is not told of fewer blocks.
pub fn too_few_explained() -> String {
    format!(
        "fewer than {BLOCKS_MIN_FOR_INTERVAL} blocks have a completed trial of both, and one busy moment of the disk can make anything of so few"
    )
}

/// What [`MARK`] means.
pub fn mark_explained() -> String {
    format!("{} the medians shown divide to another number. {PAIRED}", MARK.trim())
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
        assert!(is_aside(1.02, 1.05, None) && !is_aside(1.051, 1.05, None));
    }
}
