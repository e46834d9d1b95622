//! Numbers as people read them: three or four significant digits, units that suit the size.

use std::fmt::Write;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use lab::words::{any_of, counted, distinct, grouped, list, ratio};
use lab::workload::Unit;

/// Text that is safe between tags and inside quoted attributes.
pub fn escape(text: &str) -> String {
    trust::text::html(text).into_owned()
}

/// A time in ns: `1.932 s`, `51.30 ms`, `812.0 µs`.
pub fn time(ns: f64) -> String {
    if ns == 0.0 {
        return "0 ns".into();
    }
    let (value, unit) = scale_time(ns);
    format!("{} {unit}", significant(value))
}

/// A time on an axis, without needless digits: `10 µs`, `2 s`, `1.5 ms`.
pub fn round_time(ns: f64) -> String {
    let (value, unit) = scale_time(ns * (1.0 + 1e-12));
    format!("{} {unit}", plain(value))
}

/// A time and its interval in one unit: `1.932 s (1.880 to 2.012)`.
pub fn time_with_interval(ns: f64, interval: Option<(f64, f64)>) -> String {
    let (value, unit) = scale_time(ns);
    let factor = value / ns;
    match interval {
        Some((low, high)) if ns > 0.0 => format!(
            "{} {unit} ({} to {})",
            significant(value),
            significant(low * factor),
            significant(high * factor)
        ),
        _ => time(ns),
    }
}

fn scale_time(ns: f64) -> (f64, &'static str) {
    match ns {
        ns if ns >= 1e9 => (ns / 1e9, "s"),
        ns if ns >= 1e6 => (ns / 1e6, "ms"),
        ns if ns >= 1e3 => (ns / 1e3, "µs"),
        ns => (ns, "ns"),
    }
}

/// Four significant digits, as far as they stand behind the point.
fn significant(value: f64) -> String {
    let digits_before =
        if value.abs() < 1.0 { 1 } else { value.abs().log10().floor() as usize + 1 };
    format!("{value:.*}", 4_usize.saturating_sub(digits_before))
}

pub fn figure(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Nanoseconds => time(value),
        Unit::BytesPerSecond => format!("{}/s", bytes(value)),
        Unit::OperationsPerSecond => format!("{}/s", count(value)),
        Unit::Bytes => bytes(value),
        Unit::Count => count(value),
    }
}

pub fn figure_with_interval(value: f64, interval: Option<(f64, f64)>, unit: Unit) -> String {
    match (unit, interval) {
        (Unit::Nanoseconds, _) => time_with_interval(value, interval),
        (_, None) => figure(value, unit),
        // Half of the trials or more had nothing of it.
        (Unit::BytesPerSecond, _) if value == 0.0 => figure(value, unit),
        (Unit::BytesPerSecond, Some((low, high))) => {
            // One unit for all three, so that they can be compared at a glance.
            let text = bytes(value);
            let (number, suffix) = text.split_once(' ').unwrap_or((&text, "B"));
            let factor = number.parse::<f64>().unwrap_or(value) / value;
            let digits = number.split_once('.').map_or(0, |(_, digits)| digits.len());
            format!("{number} {suffix}/s ({:.digits$} to {:.digits$})", low * factor, high * factor)
        }
        (_, Some((low, high))) => {
            let number = if unit == Unit::Bytes { bytes } else { count };
            format!("{} ({} to {})", figure(value, unit), number(low), number(high))
        }
    }
}

/// Bytes in binary units: `1.31 GiB`, `640 KiB`.
pub fn bytes(count: f64) -> String {
    let (mut value, mut unit) = (count, "B");
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value.abs() < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    let digits = if unit == "B" || value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}")
}

/// A count: `812`, `12.3k`, `4.56M`.
pub fn count(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.2}M", value / 1e6),
        value if value >= 1e4 => format!("{:.1}k", value / 1e3),
        value => format!("{value:.0}"),
    }
}

/// A number without noughts behind the point: `5`, `7.5`.
pub fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// A number that may be far below 1: `0.0012`, `0.37`, `2.00`.
pub fn small(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        value if value.abs() < 0.001 => format!("{value:.1e}"),
        value if value.abs() < 0.1 => format!("{value:.4}"),
        value => format!("{value:.2}"),
    }
}

/// A text that begins with a capital letter.
pub fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

/// Width of prose where nothing is known of what shows it.
pub const PROSE_COLUMNS: usize = 100;
/// The least and the greatest width of prose: longer lines are hard to follow.
const PROSE_RANGE: RangeInclusive<usize> = 60..=120;

static PROSE: AtomicUsize = AtomicUsize::new(PROSE_COLUMNS);
static TABLES: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Text is to fit a terminal of so many columns from now on.
pub fn fit(terminal_columns: usize) {
    let columns = terminal_columns.clamp(*PROSE_RANGE.start(), *PROSE_RANGE.end());
    PROSE.store(columns, Ordering::Relaxed);
    TABLES.store(terminal_columns, Ordering::Relaxed);
}

pub(crate) fn table_columns() -> usize {
    TABLES.load(Ordering::Relaxed)
}

/// A paragraph as wide as prose is ([`fit`]), its first line after `lead`, the others below it.
pub fn prose(lead: &str, text: &str) -> String {
    let indent = " ".repeat(lead.chars().count());
    let mut out = String::new();
    let mut line = lead.to_string();
    let mut empty = true;
    let columns = PROSE.load(Ordering::Relaxed);
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > columns {
            let _ = writeln!(out, "{line}");
            line.clone_from(&indent);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    let _ = writeln!(out, "{line}");
    out
}

/// `2026-11-21` of ns since the Unix epoch, in UTC.
pub fn date(unix_ns: u64) -> String {
    utc(unix_ns, "%Y-%m-%d")
}

/// `23:17:54` of ns since the Unix epoch, in UTC.
pub fn clock(unix_ns: u64) -> String {
    utc(unix_ns, "%H:%M:%S")
}

fn utc(unix_ns: u64, form: &str) -> String {
    let moment = jiff::Timestamp::from_nanosecond(unix_ns.into());
    moment.map_or_else(|_| "-".into(), |moment| moment.strftime(form).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(time(1.9324e9), "1.932 s");
        assert_eq!(time(123.4567e9), "123.5 s");
        assert_eq!(time(51.3e6), "51.30 ms");
        assert_eq!(time(812e3), "812.0 µs");
        assert_eq!(time(5.0), "5.000 ns");
        assert_eq!(time(0.0), "0 ns");
        assert_eq!(time_with_interval(0.0, Some((0.0, 1.0))), "0 ns");
        assert_eq!(
            time_with_interval(1.932e9, Some((1.88e9, 2.012e9))),
            "1.932 s (1.880 to 2.012)"
        );
        assert_eq!(time_with_interval(2e6, None), "2.000 ms");
    }

    #[test]
    fn other_quantities() {
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(bytes(1.31 * f64::from(1 << 30)), "1.31 GiB");
        assert_eq!(bytes(655_360.0), "640 KiB");
        assert_eq!(count(812.0), "812");
        assert_eq!(count(12_300.0), "12.3k");
        assert_eq!([1e3, 2e9, 1.5e6, 999.0].map(round_time), ["1 µs", "2 s", "1.5 ms", "999 ns"]);
        assert_eq!(plain(7.5) + &plain(5.0), "7.55");
        assert_eq!([0.0, 0.000_04, 0.0123, 2.0].map(small), ["0", "4.0e-5", "0.0123", "2.00"]);
        assert_eq!([1.0834, 12.44, 2.0, 250.0].map(ratio), ["1.083", "12.4", "2.00", "250"]);
        assert_eq!([1, 2].map(|count| counted(count, "block")), ["1 block", "2 blocks"]);
        assert_eq!(list(&["a".into(), "b".into(), "c".into()]), "a, b and c");
        assert_eq!(any_of(&["a".into(), "b".into(), "c".into()]), "a, b or c");
    }

    #[test]
    fn prose_breaks_between_words() {
        let text = prose("  - ", &"word ".repeat(40));
        assert!(text.lines().all(|line| line.chars().count() <= PROSE_COLUMNS), "{text}");
        assert!(text.lines().nth(1).unwrap().starts_with("    word"), "{text}");
        assert_eq!(text.split_whitespace().count(), 41);
    }

    #[test]
    fn days_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400_000_000_000), "2000-02-29");
        assert_eq!(clock(1_795_216_674_000_000_000), "23:17:54");
    }
}
