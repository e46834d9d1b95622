//! Gates: conditions on a contender's ratio that decide an exit code, such as `xfs <= 1.10`.
//!
//! It knows the notation and intervals, not which contenders exist; the caller looks the label up.
//! A gate speaks of the whole interval: what the interval cannot decide is inconclusive.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::compare::Interval;

/// How the ratio has to stand to the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// At most the bound.
    #[serde(rename = "<=")]
    AtMost,
    /// Below the bound.
    #[serde(rename = "<")]
    Below,
    /// At least the bound.
    #[serde(rename = ">=")]
    AtLeast,
    /// Above the bound.
    #[serde(rename = ">")]
    Above,
}

/// A condition on one contender's ratio to the baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// Label of the contender.
    pub label: String,
    /// The comparison.
    pub condition: Condition,
    /// The bound, positive and finite.
    pub bound: f64,
}

/// What an interval says of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateOutcome {
    /// The whole interval satisfies the condition.
    Holds,
    /// The whole interval violates it.
    Fails,
    /// The interval lies on both sides, or there is none.
    Inconclusive,
}

/// Why a gate could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("gate '{text}', column {column}: {problem}")]
pub struct GateError {
    /// The text that was given, whole.
    pub text: String,
    /// The character (from 1) at which the problem lies.
    pub column: usize,
    /// What is wrong and what would be right.
    pub problem: String,
}

/// Reads `LABEL OP NUMBER` with OP one of `<=`, `<`, `>=`, `>`. The label is everything before the
/// operator, or anything in single or double quotes.
pub fn parse_gate(text: &str) -> Result<Gate, GateError> {
    let fail = |offset: usize, problem: String| GateError {
        text: text.to_string(),
        column: text[..offset].chars().count() + 1,
        problem,
    };
    let (label, operator_at) = read_label(text, &fail)?;
    let rest = &text[operator_at..];
    const OPERATORS: [(&str, Condition); 4] = [
        ("<=", Condition::AtMost),
        (">=", Condition::AtLeast),
        ("<", Condition::Below),
        (">", Condition::Above),
    ];
    let found = OPERATORS.into_iter().find(|(operator, _)| rest.starts_with(operator));
    let Some((operator, condition)) = found else {
        return Err(fail(
            operator_at,
            "expected <=, <, >= or > after the label, as in 'xfs <= 1.10'".into(),
        ));
    };
    let number_at = operator_at + operator.len();
    let number = text[number_at..].trim();
    let number_at = number_at + (text[number_at..].len() - text[number_at..].trim_start().len());
    if number.is_empty() {
        return Err(fail(
            text.len(),
            format!("expected a ratio after {operator}, as in '{label} {operator} 1.10'"),
        ));
    }
    let bound: f64 = number.parse().map_err(|_| {
        fail(number_at, format!("'{number}' is no ratio; write a number such as 1.10"))
    })?;
    if !(bound.is_finite() && bound > 0.0) {
        return Err(fail(
            number_at,
            format!("a ratio is positive and finite, which {number} is not"),
        ));
    }
    Ok(Gate { label: label.to_string(), condition, bound })
}

/// The label and the offset of the operator (or of whatever stands in its place).
fn read_label<'a>(
    text: &'a str,
    fail: &dyn Fn(usize, String) -> GateError,
) -> Result<(&'a str, usize), GateError> {
    let start = text.len() - text.trim_start().len();
    let quote = text[start..].chars().next().filter(|first| matches!(first, '\'' | '"'));
    let (label, after) = match quote {
        Some(quote) => {
            let inside = &text[start + 1..];
            let Some(end) = inside.find(quote) else {
                return Err(fail(start, format!("the quote {quote} is not closed")));
            };
            let after = start + 1 + end + 1;
            let blanks = text[after..].len() - text[after..].trim_start().len();
            (&inside[..end], after + blanks)
        }
        None => {
            let end = text.find(['<', '>']).unwrap_or(text.len());
            (text[..end].trim(), end)
        }
    };
    if label.is_empty() {
        return Err(fail(
            start,
            "expected the label of a contender first, as in 'xfs <= 1.10'".into(),
        ));
    }
    Ok((label, after))
}

impl FromStr for Gate {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Gate, GateError> {
        parse_gate(text)
    }
}

impl Gate {
    /// Judges the gate by the interval of the contender's ratio to the baseline.
    pub fn judge(&self, interval: Option<&Interval>) -> GateOutcome {
        let Some(interval) = interval else {
            return GateOutcome::Inconclusive;
        };
        let satisfied = |ratio: f64| match self.condition {
            Condition::AtMost => ratio <= self.bound,
            Condition::Below => ratio < self.bound,
            Condition::AtLeast => ratio >= self.bound,
            Condition::Above => ratio > self.bound,
        };
        // Each condition splits the line in two, so the two ends speak for the whole interval.
        match (satisfied(interval.low), satisfied(interval.high)) {
            (true, true) => GateOutcome::Holds,
            (false, false) => GateOutcome::Fails,
            _ => GateOutcome::Inconclusive,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Condition::AtMost => "<=",
            Condition::Below => "<",
            Condition::AtLeast => ">=",
            Condition::Above => ">",
        })
    }
}

impl fmt::Display for Gate {
    /// Writes the gate so that [`parse_gate`] reads it back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = self.label.trim() == self.label && !self.label.contains(['<', '>', '\'', '"']);
        let quote = match (plain, self.label.contains('\'')) {
            (true, _) => "",
            (false, false) => "'",
            (false, true) => "\"",
        };
        write!(f, "{quote}{}{quote} {} {}", self.label, self.condition, self.bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(label: &str, condition: Condition, bound: f64) -> Gate {
        Gate { label: label.into(), condition, bound }
    }

    #[test]
    fn every_operator_and_label_is_read() {
        for (text, expected) in [
            ("xfs <= 1.10", gate("xfs", Condition::AtMost, 1.10)),
            ("xfs<1", gate("xfs", Condition::Below, 1.0)),
            ("  my label  >=0.5 ", gate("my label", Condition::AtLeast, 0.5)),
            ("'a <= b: x' > 2e0", gate("a <= b: x", Condition::Above, 2.0)),
            ("\"it's\" <= 1.5", gate("it's", Condition::AtMost, 1.5)),
            ("比べ <= 1.5", gate("比べ", Condition::AtMost, 1.5)),
        ] {
            let found = parse_gate(text).unwrap();
            assert_eq!(found, expected);
            assert_eq!(parse_gate(&found.to_string()).unwrap(), expected);
        }
    }

    #[test]
    fn errors_name_the_column() {
        for (text, column) in [
            ("", 1),
            ("xfs", 4),
            ("xfs = 1.1", 10),
            ("<= 1.1", 1),
            ("xfs <= ", 8),
            ("xfs <= ten", 8),
            ("比べ <= ten", 7),
            ("xfs <= 0", 8),
            ("xfs <= -1", 8),
            ("xfs <= inf", 8),
            ("xfs <= NaN", 8),
            ("xfs <= 1.1 1.2", 8),
            ("'xfs <= 1.1", 1),
            ("'xfs' 1.1", 7),
            ("'' <= 1.1", 1),
        ] {
            let error = parse_gate(text).unwrap_err();
            assert_eq!(error.column, column, "{error}");
        }
    }

    #[test]
    fn the_whole_interval_decides() {
        let interval = |low, high| Interval { low, high, confidence: 0.95 };
        use GateOutcome::{Fails, Holds, Inconclusive};
        for (text, low, high, expected) in [
            ("x <= 1.1", 0.9, 1.1, Holds),
            ("x < 1.1", 0.9, 1.1, Inconclusive),
            ("x <= 1.1", 1.1, 1.2, Inconclusive),
            ("x < 1.1", 1.1, 1.2, Fails),
            ("x <= 1.1", 1.11, 1.2, Fails),
            ("x >= 1.1", 1.1, 1.2, Holds),
            ("x > 1.1", 1.1, 1.2, Inconclusive),
            ("x > 1.1", 1.0, 1.1, Fails),
            ("x >= 1.1", 1.0, 1.1, Inconclusive),
        ] {
            let gate = parse_gate(text).unwrap();
            assert_eq!(gate.judge(Some(&interval(low, high))), expected, "{text} {low} {high}");
            assert_eq!(gate.judge(None), Inconclusive);
        }
    }
}
