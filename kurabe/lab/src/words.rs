//! Ratios, losses and their intervals in words, the same in claims as in every table.
//!
//! Invariant: what is printed of an interval depends on the interval alone, so that one comparison
//! reads alike wherever it stands.

use std::collections::HashMap;
use std::hash::Hash;

pub use vocabulary::words::{any_of, counted, list, share_text, thousands};

/// An interval of a ratio that allows for no difference and spans more than this factor says
/// nothing, neither a direction nor an order of magnitude.
const TELLING_FACTOR_MAX: f64 = 10.0;

/// Whether an interval of a ratio says anything: it excludes 1, or it spans a factor of at most ten.
pub fn is_telling(low: f64, high: f64) -> bool {
    low > 1.0 || high < 1.0 || high / low <= TELLING_FACTOR_MAX
}

/// A ratio: `1.083`, `12.4`.
pub fn ratio(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 2.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

/// A factor between trials: `3.1`, `43`.
pub fn factor(value: f64) -> String {
    if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// An interval of a ratio: `(0.993 to 1.059)`, at its widest `(<0.001 to >1000)`.
pub fn interval((low, high): (f64, f64)) -> String {
    let low = if low < 0.001 { "<0.001".into() } else { ratio(low) };
    let high = if high > 1000.0 { ">1000".into() } else { ratio(high) };
    format!("({low} to {high})")
}

/// A ratio with its interval, where there is one: `1.025 (0.993 to 1.059)`.
pub fn ratio_with_interval(value: f64, ends: Option<(f64, f64)>) -> String {
    match ends {
        Some(ends) => format!("{} {}", ratio(value), interval(ends)),
        None => ratio(value),
    }
}

/// A share: `5 %`, `2.5 %`.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    if (value - value.round()).abs() < 1e-9 {
        format!("{value:.0} %")
    } else {
        format!("{value:.1} %")
    }
}

/// A bound, rounded up so that it stays one: `4 %`, `0.6 %`.
pub fn percent_up(share: f64) -> String {
    let value = share * 100.0;
    let digits = if value < 1.0 { 10.0 } else { 1.0 };
    percent(((value * digits - 1e-9).ceil() / digits).max(0.1) / 100.0)
}

/// Each value once, in the order in which they first occur.
pub fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut known = Vec::new();
    for value in values {
        if !known.contains(&value) {
            known.push(value);
        }
    }
    known
}

/// What is said alike together, in the order in which it is first said, each with all of whom it is
/// said.
pub fn grouped<K: Eq + Hash + Clone, V>(
    pairs: impl IntoIterator<Item = (K, V)>,
) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    let mut places: HashMap<K, usize> = HashMap::new();
    for (said, of) in pairs {
        let place = *places.entry(said.clone()).or_insert(groups.len());
        match groups.get_mut(place) {
            Some((_, all)) => all.push(of),
            None => groups.push((said, vec![of])),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_told_by_its_ends_however_wide() {
        assert_eq!(interval((0.993, 1.059)), "(0.993 to 1.059)");
        assert_eq!(interval((0.05, 21.0)), "(0.050 to 21.0)");
        assert_eq!(interval((1.5, 900.0)), "(1.500 to 900)");
        assert_eq!(interval((1e-9, 1e9)), "(<0.001 to >1000)");
        assert_eq!(ratio_with_interval(2.0, None), "2.00");
    }
}
