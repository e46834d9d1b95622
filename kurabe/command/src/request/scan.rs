//! The numbers of `--parameter-scan`.

/// Values of a scan at most.
const VALUES_MAX: f64 = 1000.0;

/// The numbers from one to another, in as many decimals as were typed; none where that makes no sense, which the
/// study then refuses.
pub fn numbers(least: &str, most: &str, step: f64) -> Vec<String> {
    let (Ok(first), Ok(last)) = (least.parse::<f64>(), most.parse::<f64>()) else {
        return Vec::new();
    };
    if !(step > 0.0 && first <= last && (last - first) / step < VALUES_MAX) {
        return Vec::new();
    }
    let step_text = step.to_string();
    let decimals = |text: &str| text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let places = [least, most, &step_text].into_iter().map(decimals).max().unwrap_or(0);
    // Steps of a tenth do not add up.
    let count = ((last - first) / step + 1e-9).floor() as usize;
    (0..=count).map(|number| format!("{:.places$}", first + number as f64 * step)).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::request::flags::{Action, Cli};

    #[test]
    fn a_scan_has_the_decimals_that_were_typed() {
        assert_eq!(numbers("1", "4", 1.0), ["1", "2", "3", "4"]);
        assert_eq!(numbers("0.1", "0.3", 0.1), ["0.1", "0.2", "0.3"]);
        assert_eq!(numbers("-2", "3", 2.0), ["-2", "0", "2"]);
        for (least, most, step) in
            [("2", "1", 1.0), ("a", "1", 1.0), ("1", "9", 0.0), ("1", "1e9", 1.0)]
        {
            assert!(numbers(least, most, step).is_empty(), "{least} {most} {step}");
        }
    }

    #[test]
    fn hyperfine_flags_for_a_scan_and_for_the_output_are_taken() {
        let words = "kurabe compare ext4 -P n 1 3 --show-output -- true";
        let mut words: Vec<&str> = words.split(' ').collect();
        words.push("{n}");
        let Action::Compare(args) = Cli::try_parse_from(words).unwrap().action else { panic!() };
        let text = args.study_text();
        assert_eq!(text.parameters["n"], ["1", "2", "3"]);
        assert_eq!(text.output.as_deref(), Some("inherit"));
    }
}
