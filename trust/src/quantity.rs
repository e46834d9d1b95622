//! Sizes, durations and percentages as people write them (`8G`, `512K`, `10m`, `1.5s`, `20%`), and back
//! again.
//!
//! Every flag, key and condition is read here, of all programs of this repository. Two readers are not:
//! that of fio's sizes, which follows fio's rules, and that of the object language, which has its own.
//! Invariant: what [`size_text`] prints for a parsed size parses to the same size.

use std::time::Duration;

/// Why a size, a duration or a percentage could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {expected}")]
pub struct QuantityError {
    /// The text that was given.
    pub text: String,
    /// What would have been right, with an example.
    pub expected: &'static str,
}

const SIZE_EXPECTED: &str =
    "a size: a whole number with K, M, G or T (powers of 1024), such as 8G or 512M";
const DURATION_EXPECTED: &str = "a duration: a number with us, ms, s, m or h, such as 10m, 30s or 500ms (a bare number is seconds)";

const PERCENT_EXPECTED: &str = "a percentage above 0, such as 10%";

/// Reads a size in bytes: a whole number with an optional binary suffix K, M, G, T (also `KiB`
/// and `KB`, which mean the same here: powers of 1024).
pub fn parse_size(text: &str) -> Result<u64, QuantityError> {
    let error = || QuantityError { text: text.to_string(), expected: SIZE_EXPECTED };
    let trimmed = text.trim();
    let digits_end = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let number: u64 = trimmed[..digits_end].parse().map_err(|_| error())?;
    let suffix = trimmed[digits_end..].trim().to_ascii_lowercase();
    let suffix = suffix.strip_suffix("ib").or(suffix.strip_suffix('b')).unwrap_or(&suffix);
    let shift = match suffix {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(error()),
    };
    number.checked_mul(1 << shift).ok_or_else(error)
}

/// A size for people, to a tenth of the largest binary unit that it reaches: `1.5 GiB`, `4 KiB`.
pub fn about_text(bytes: u64) -> String {
    let units = [(60, "EiB"), (50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let Some((shift, unit)) = units.into_iter().find(|(shift, _)| bytes >= 1 << shift) else {
        return format!("{bytes} bytes");
    };
    let tenths = (u128::from(bytes) * 10) >> shift;
    match tenths % 10 {
        0 => format!("{} {unit}", tenths / 10),
        tenth => format!("{}.{tenth} {unit}", tenths / 10),
    }
}

/// Writes a size exactly, with the largest binary suffix that divides it.
pub fn size_text(bytes: u64) -> String {
    for (shift, suffix) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
        if bytes > 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{suffix}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Reads a duration; a bare number is seconds. Zero is refused, since every duration here bounds
/// something.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    let error = || QuantityError { text: text.to_string(), expected: DURATION_EXPECTED };
    let trimmed = text.trim();
    let number_end =
        trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let number: f64 = trimmed[..number_end].parse().map_err(|_| error())?;
    let seconds = match trimmed[number_end..].trim() {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "" | "s" | "sec" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(error()),
    };
    if !(seconds > 0.0 && seconds < 1e9) {
        return Err(error());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Reads a percentage above 0 as a share: `10%` and `10 %` are 0.1.
pub fn parse_percent(text: &str) -> Result<f64, QuantityError> {
    let number = text.trim().strip_suffix('%').and_then(|number| number.trim().parse().ok());
    let percent = number.filter(|percent: &f64| *percent > 0.0 && percent.is_finite());
    percent
        .map(|percent| percent / 100.0)
        .ok_or_else(|| QuantityError { text: text.to_string(), expected: PERCENT_EXPECTED })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_print_back() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("4K", 4096),
            ("8G", 8 << 30),
            ("3MiB", 3 << 20),
            ("1 tb", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
            assert_eq!(parse_size(&size_text(bytes)), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn wrong_sizes_name_the_text() {
        for text in ["", "G", "8X", "-1", "1.5G", "99999999999T"] {
            let error = parse_size(text).unwrap_err();
            assert!(error.to_string().contains(&format!("'{text}'")), "{error}");
        }
    }

    #[test]
    fn percentages_read() {
        assert_eq!(parse_percent("10%"), Ok(0.1));
        assert_eq!(parse_percent(" 0.5 % "), Ok(0.005));
        for text in ["", "%", "10", "0%", "-1%", "inf%", "NaN%", "1%%"] {
            let error = parse_percent(text).unwrap_err();
            assert!(error.to_string().contains(&format!("'{text}'")), "{error}");
        }
    }

    #[test]
    fn sizes_for_people_have_one_digit_after_the_point() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (10 << 10, "10 KiB"),
            (3 << 19, "1.5 MiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(about_text(bytes), text);
        }
    }

    #[test]
    fn durations_read() {
        assert_eq!(parse_duration("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2"), Ok(Duration::from_secs(2)));
        for text in ["", "0", "0s", "-1s", "5 parsecs", "1.2.3s", "NaN"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
