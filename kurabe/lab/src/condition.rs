//! Conditions: what a result can be asked, in one notation for `--gate` and for the conclusions of a
//! publication.
//!
//! | condition | it holds when |
//! | --- | --- |
//! | `xfs <= 1.10` (`<`, `>=`, `>`) | the cost of xfs over that of the baseline lies there |
//! | `zstd: space <= 0.5` | likewise by another metric than the workload's first |
//! | `minfs fastest`, `minfs fastest of ext4, xfs`, `nilfs2 fastest of btrfs by 10%` | it is ahead of each |
//! | `ext4 slowest` | likewise, behind each |
//! | `ext4 <= 1.10 in every cell`, `ext4 > 2 in some cell` | its cost over the raw device's lies there, cell by cell of the fio matrix |
//! | `dbench agrees with replay within 25%` | ratios to the baseline are alike under the two workloads |
//! | `btrfs, ext4 slow down by 10%` | throughput at the end of a run is below that of its beginning |
//! | `minfs, xfs load the device alike within 10%` | requests and bytes of the device are alike |
//! | `ext4: sync p99 <= 10ms` | a metric that is a time lies there, by the interval of its median over the runs |
//! | `xfs: durable`, `ext4, xfs: contents held` | the check was tried and never violated |
//!
//! Older studies write `ext4 loses 50% in some cell` for `ext4 > 2 in some cell`, and `ext4 loses in
//! every cell` for `ext4 > 1 in every cell`.
//!
//! A name with a comma, an operator or one of these words in it stands in quotes. This file knows
//! the notation alone: [`crate::judgement`] says what a result answers.

use std::fmt;

use serde::{Deserialize, Serialize};
use vocabulary::suggestion::unknown;

use crate::quantity::{parse_duration, parse_percent};
use crate::record::DURABILITY;

#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// A contender's cost over the baseline's, or in cells of a fio matrix over the raw device's.
    Ratio {
        label: String,
        /// The metric, where it is not the workload's most important one.
        metric: Option<String>,
        operator: Operator,
        /// The bound, positive.
        bound: f64,
        /// Which cells of a fio matrix are meant; none for the workload's figure.
        cells: Option<Cells>,
    },
    /// A metric of a contender that is a time.
    Time { label: String, metric: String, operator: Operator, bound_ns: u64 },
    /// A contender is the best or the worst.
    Extreme {
        label: String,
        /// Whether the best is meant.
        fastest: bool,
        /// Labels of the rivals; all others when there is none.
        rivals: Vec<String>,
        /// By how much at least: 0.1 is 10 %.
        margin: f64,
    },
    /// The ratios to the baseline are the same under two workloads.
    Agreement {
        /// Name of the one workload.
        one: String,
        other: String,
        /// By how much at most they differ.
        margin: f64,
    },
    /// Throughput sinks within a run.
    Drift {
        /// Labels of the contenders; each of them is meant.
        labels: Vec<String>,
        /// Least share by which it sinks.
        share: f64,
    },
    /// The contenders made the device do the same work.
    Access {
        /// Labels of the contenders, two at least.
        labels: Vec<String>,
        /// By how much at most they differ.
        margin: f64,
    },
    Check {
        /// Labels of the contenders; each of them is meant.
        labels: Vec<String>,
        check: String,
    },
}

/// Of how many cells of a fio matrix a condition has to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cells {
    Every,
    /// Of one at least.
    Some,
}

/// What a result says of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateOutcome {
    Holds,
    /// It does not.
    Fails,
    /// The measurements do not decide.
    Inconclusive,
    /// Nothing was measured that could decide.
    NotTested,
}

impl GateOutcome {
    pub fn words(self) -> &'static str {
        match self {
            GateOutcome::Holds => "holds",
            GateOutcome::Fails => "fails",
            GateOutcome::Inconclusive => "inconclusive",
            GateOutcome::NotTested => "not tested",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// The condition as written.
    pub gate: String,
    pub workload: String,
    pub outcome: GateOutcome,
    /// The numbers, where the tables have not got them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
}

/// How a ratio has to stand to its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    AtMost,
    Below,
    AtLeast,
    Above,
}

impl Operator {
    /// Whether a ratio stands so to the bound.
    pub fn is_met(self, ratio: f64, bound: f64) -> bool {
        match self {
            Operator::AtMost => ratio <= bound,
            Operator::Below => ratio < bound,
            Operator::AtLeast => ratio >= bound,
            Operator::Above => ratio > bound,
        }
    }
}

/// Why a condition could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}', column {column}: {problem}")]
pub struct ConditionError {
    /// The text that was given, whole.
    pub text: String,
    /// The character (from 1) at which the problem lies.
    pub column: usize,
    /// What is wrong and what would be right.
    pub problem: String,
}

/// What may follow the names.
#[derive(Clone, Copy, PartialEq)]
enum Verb {
    Operator(Operator),
    Extreme { fastest: bool },
    Loses,
    Agrees,
    SlowsDown,
    LoadsAlike,
    Checks,
}

const OPERATORS: [(&str, Verb); 4] = [
    ("<=", Verb::Operator(Operator::AtMost)),
    (">=", Verb::Operator(Operator::AtLeast)),
    ("<", Verb::Operator(Operator::Below)),
    (">", Verb::Operator(Operator::Above)),
];

const VERBS: [(&str, Verb); 7] = [
    ("fastest", Verb::Extreme { fastest: true }),
    ("slowest", Verb::Extreme { fastest: false }),
    ("loses", Verb::Loses),
    ("agrees with", Verb::Agrees),
    ("slows down by", Verb::SlowsDown),
    ("slow down by", Verb::SlowsDown),
    ("load the device alike within", Verb::LoadsAlike),
];

/// What may follow the bound of a ratio.
const CELLS: [(&str, Cells); 2] = [("in every cell", Cells::Every), ("in some cell", Cells::Some)];

/// What follows the names in a condition on a check: the check's name before this word.
const HELD: &str = "held";
/// Stands for the check of [`DURABILITY`], held.
const DURABLE: &str = "durable";

/// The check that `: CHECK held` or `: durable` names, to the end of a text.
fn check_of(text: &str) -> Option<&str> {
    let said = text.strip_prefix(':')?.trim();
    if said == DURABLE {
        return Some(DURABILITY);
    }
    let name = said.strip_suffix(HELD)?;
    let is_parted = name.ends_with(|last: char| last.is_whitespace() || "'\"".contains(last));
    let name = name.trim().trim_matches(['\'', '"']);
    (is_parted && !name.is_empty()).then_some(name)
}

pub fn parse(text: &str) -> Result<Condition, ConditionError> {
    let mut reader = Reader { text, at: 0 };
    reader.skip_blanks();
    let begin = reader.at;
    let names = reader.names(&|reader| {
        let end = reader.verb_at();
        // The label of a ratio is all that stands before the operator, commas too.
        (end, OPERATORS.iter().any(|(sign, _)| text[end..].starts_with(sign)))
    })?;
    if names.iter().any(String::is_empty) {
        reader.at = begin;
        return reader.fail("expected the label of a contender first, as in 'xfs <= 1.10'");
    }
    let known = OPERATORS.iter().chain(&VERBS);
    let verb = match known.into_iter().find(|(word, _)| reader.eat(word)) {
        Some((_, verb)) => *verb,
        None if check_of(reader.rest().trim_start()).is_some() => Verb::Checks,
        None => {
            return reader.fail(
                "expected <=, <, >= or > after the label, as in 'xfs <= 1.10', or 'fastest', 'slowest', 'agrees with', 'slows down by', 'load the device alike within', ': durable', ': CHECK held'",
            );
        }
    };
    let condition = reader.condition(verb, names, begin)?;
    match reader.rest().trim() {
        "" => Ok(condition),
        more => reader.fail(format!("'{more}' is too much; the condition ends before it")),
    }
}

/// A place in the text.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn fail<T>(&self, problem: impl Into<String>) -> Result<T, ConditionError> {
        Err(ConditionError {
            text: self.text.to_string(),
            column: self.text[..self.at].chars().count() + 1,
            problem: problem.into(),
        })
    }

    fn skip_blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Goes beyond a sign or a word that stands here, and what is blank before it.
    fn eat(&mut self, word: &str) -> bool {
        let rest = self.rest().trim_start();
        let is_word = word.ends_with(char::is_alphabetic);
        let Some(after) = rest.strip_prefix(word) else { return false };
        if is_word && after.starts_with(|next: char| !next.is_whitespace()) {
            return false;
        }
        self.at = self.text.len() - after.len();
        true
    }

    /// Reads a name that ends at `end`, or before it at a comma: then another one follows.
    fn name(&mut self, end: usize, with_commas: bool, names: &mut Vec<String>) -> bool {
        let here = &self.text[self.at..end];
        let comma = here.find(',').filter(|_| !with_commas);
        names.push(here[..comma.unwrap_or(here.len())].trim().to_string());
        self.at = comma.map_or(end, |comma| self.at + comma + 1);
        comma.is_some()
    }

    /// Reads names with commas between them; `end_of` says where the one that begins here ends at the
    /// latest, and whether commas are part of it.
    fn names(
        &mut self,
        end_of: &dyn Fn(&Reader<'a>) -> (usize, bool),
    ) -> Result<Vec<String>, ConditionError> {
        let mut names = Vec::new();
        loop {
            self.skip_blanks();
            let goes_on = if self.rest().starts_with(['\'', '"']) {
                names.push(self.quoted()?);
                self.eat(",")
            } else {
                let (end, with_commas) = end_of(self);
                self.name(end, with_commas, &mut names)
            };
            if !goes_on {
                return Ok(names);
            }
        }
    }

    fn quoted(&mut self) -> Result<String, ConditionError> {
        let quote = self.rest().chars().next().unwrap_or('\'');
        let inside = &self.rest()[1..];
        let Some(end) = inside.find(quote) else {
            return self.fail(format!("the quote {quote} is not closed"));
        };
        self.at += end + 2;
        self.skip_blanks();
        Ok(inside[..end].to_string())
    }

    /// Where the next operator or verb stands, or the end.
    fn verb_at(&self) -> usize {
        let begins_word =
            |at: usize| at == self.at || self.text[..at].ends_with(char::is_whitespace);
        let is_verb = |at: usize| {
            let mut here = Reader { text: self.text, at };
            self.text[at..].starts_with(['<', '>'])
                || begins_word(at)
                    && !self.text[at..].starts_with(char::is_whitespace)
                    && VERBS.iter().any(|(word, _)| here.eat(word))
                || check_of(&self.text[at..]).is_some()
        };
        let places = self.rest().char_indices().map(|(offset, _)| self.at + offset);
        places.into_iter().find(|at| is_verb(*at)).unwrap_or(self.text.len())
    }

    /// What follows the verb.
    fn condition(
        &mut self,
        verb: Verb,
        names: Vec<String>,
        begin: usize,
    ) -> Result<Condition, ConditionError> {
        let several = matches!(verb, Verb::SlowsDown | Verb::LoadsAlike | Verb::Checks);
        if !several && names.len() > 1 {
            self.at = begin;
            return self.fail("this is about one of them; name one, in quotes if it has a comma");
        }
        let label = names[0].clone();
        match verb {
            Verb::Operator(operator) => {
                let named = label.rsplit_once(": ");
                let named = named.map(|(label, metric)| (label.trim(), metric.trim()));
                if let Some((label, metric)) = named
                    && let Some(bound_ns) = self.time()
                {
                    let (label, metric) = (label.into(), metric.into());
                    return Ok(Condition::Time { label, metric, operator, bound_ns });
                }
                let bound = self.ratio(&label)?;
                let (name, metric) = named
                    .map_or((label.as_str(), None), |(label, metric)| (label, Some(metric.into())));
                let (label, cells) = (name.to_string(), self.cells());
                Ok(Condition::Ratio { label, metric, operator, bound, cells })
            }
            Verb::Extreme { fastest } => {
                let rivals = if self.eat("of") { self.names_up_to("by")? } else { Vec::new() };
                let margin = if self.eat("by") { self.percent()? } else { 0.0 };
                Ok(Condition::Extreme { label, fastest, rivals, margin })
            }
            Verb::Loses => {
                let share = if self.rest().trim_start().starts_with(|c: char| c.is_numeric()) {
                    self.percent()?
                } else {
                    0.0
                };
                let Some(cells) = self.cells() else {
                    return self.fail("expected 'in every cell' or 'in some cell'");
                };
                // Of the performance, a share; of the cost, what is left of that turned round.
                let (operator, bound) = (Operator::Above, (1.0 - share).max(0.0).recip());
                Ok(Condition::Ratio { label, metric: None, operator, bound, cells: Some(cells) })
            }
            Verb::Agrees => {
                let other = self.names_up_to("within")?;
                let [other] = other.as_slice() else {
                    return self.fail("expected the name of one workload after 'agrees with'");
                };
                if !self.eat("within") {
                    return self.fail("expected 'within' and a margin, as in 'within 25%'");
                }
                let margin = self.percent()?;
                Ok(Condition::Agreement { one: label, other: other.clone(), margin })
            }
            Verb::SlowsDown => Ok(Condition::Drift { labels: names, share: self.percent()? }),
            Verb::LoadsAlike if names.len() < 2 => {
                self.at = begin;
                self.fail("expected two contenders at least, with a comma between them")
            }
            Verb::LoadsAlike => Ok(Condition::Access { labels: names, margin: self.percent()? }),
            Verb::Checks => {
                let check = check_of(self.rest().trim_start()).unwrap_or(DURABILITY).to_string();
                self.at = self.text.len();
                Ok(Condition::Check { labels: names, check })
            }
        }
    }

    /// The names of a list that ends before `stop` or with the text.
    fn names_up_to(&mut self, stop: &str) -> Result<Vec<String>, ConditionError> {
        let end = format!(" {stop} ");
        let names = self.names(&|reader| {
            let end = reader.rest().find(&end).map(|offset| reader.at + offset);
            (end.unwrap_or(reader.text.len()), false)
        })?;
        if names.iter().any(String::is_empty) { self.fail("expected a name") } else { Ok(names) }
    }

    fn percent(&mut self) -> Result<f64, ConditionError> {
        self.skip_blanks();
        let rest = self.rest();
        let Some(end) = rest.find('%') else {
            return self.fail("expected a percentage, as in 10%");
        };
        match parse_percent(&rest[..=end]) {
            Ok(share) => {
                self.at = self.text.len() - rest.len() + end + 1;
                Ok(share)
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// Which cells are meant, where it is said.
    fn cells(&mut self) -> Option<Cells> {
        CELLS.iter().find(|(words, _)| self.eat(words)).map(|(_, cells)| *cells)
    }

    /// A bound with a unit of time, which ends the text; None where none is written.
    fn time(&mut self) -> Option<u64> {
        let text = self.rest().trim();
        let bound = parse_duration(text).ok().filter(|_| text.ends_with(char::is_alphabetic))?;
        self.at = self.text.len();
        u64::try_from(bound.as_nanos()).ok()
    }

    /// The bound of a ratio, which ends the text but for the cells that are meant.
    fn ratio(&mut self, label: &str) -> Result<f64, ConditionError> {
        let sign = self.text[..self.at].trim_end();
        let sign = &sign[sign.trim_end_matches(['<', '>', '=']).len()..];
        self.skip_blanks();
        let rest = self.rest().trim_end();
        let ends = CELLS.iter().filter_map(|(words, _)| Some(rest.strip_suffix(words)?.len()));
        let number = rest[..ends.max().unwrap_or(rest.len())].trim_end();
        if number.is_empty() {
            return self
                .fail(format!("expected a ratio after {sign}, as in '{label} {sign} 1.10'"));
        }
        match number.parse::<f64>() {
            Ok(bound) if bound.is_finite() && bound > 0.0 => {
                self.at += number.len();
                Ok(bound)
            }
            Ok(_) => self.fail(format!("a ratio is positive and finite, which {number} is not")),
            Err(_) => self.fail(format!("'{number}' is no ratio; write a number such as 1.10")),
        }
    }
}

impl Condition {
    /// Labels of the contenders that it names.
    pub fn labels(&self) -> Vec<&str> {
        match self {
            Condition::Ratio { label, .. } | Condition::Time { label, .. } => vec![label],
            Condition::Extreme { label, rivals, .. } => {
                std::iter::once(label).chain(rivals).map(String::as_str).collect()
            }
            Condition::Agreement { .. } => Vec::new(),
            Condition::Drift { labels, .. }
            | Condition::Access { labels, .. }
            | Condition::Check { labels, .. } => labels.iter().map(String::as_str).collect(),
        }
    }

    /// Names of the workloads that it is about by itself.
    pub fn workloads(&self) -> Vec<&str> {
        match self {
            Condition::Agreement { one, other, .. } => vec![one, other],
            _ => Vec::new(),
        }
    }

    /// What an interval of a contender's cost over the baseline's says of a bound on that; None for
    /// any other condition.
    pub fn answer(&self, contender: &str, interval: Option<(f64, f64)>) -> Option<GateOutcome> {
        let Condition::Ratio { label, metric: None, operator, bound, cells: None } = self else {
            return None;
        };
        (label == contender).then(|| {
            let ends =
                interval.map(|(low, high)| [low, high].map(|end| operator.is_met(end, *bound)));
            match ends {
                // A bound splits the line in two, so the two ends speak for the whole interval.
                Some([true, true]) => GateOutcome::Holds,
                Some([false, false]) => GateOutcome::Fails,
                _ => GateOutcome::Inconclusive,
            }
        })
    }

    /// Whether it compares with the study's baseline.
    pub fn needs_baseline(&self) -> bool {
        matches!(self, Condition::Ratio { cells: None, .. } | Condition::Agreement { .. })
    }

    /// Refuses names that a study has not, and what is so by definition.
    pub fn check(&self, labels: &[&str], baseline: &str, workloads: &[&str]) -> Result<(), String> {
        if let Some(label) = self.labels().iter().find(|label| !labels.contains(label)) {
            return Err(unknown("contender is labelled", label, labels));
        }
        if let Some(name) = self.workloads().iter().find(|name| !workloads.contains(name)) {
            return Err(unknown("workload is called", name, workloads));
        }
        match self {
            Condition::Ratio { label, cells: None, .. } if label == baseline => {
                Err(format!("'{label}' is the baseline, whose ratio is 1; name another contender"))
            }
            Condition::Extreme { label, rivals, .. } if rivals.contains(label) => {
                Err(format!("'{label}' is no rival of its own; leave it out after 'of'"))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = OPERATORS.iter().find(|(_, verb)| *verb == Verb::Operator(*self));
        f.write_str(found.map_or("", |(sign, _)| sign))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(label: &str, operator: Operator, bound: f64) -> Condition {
        Condition::Ratio { label: label.into(), metric: None, operator, bound, cells: None }
    }

    #[test]
    fn every_condition_is_read() {
        let strings = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let extreme = |label: &str, fastest, rivals: &[&str], margin| Condition::Extreme {
            label: label.into(),
            fastest,
            rivals: strings(rivals),
            margin,
        };
        let check = |labels: &[&str], check: &str| Condition::Check {
            labels: strings(labels),
            check: check.into(),
        };
        let above = |bound, cells| Condition::Ratio {
            label: "ext4".into(),
            metric: None,
            operator: Operator::Above,
            bound,
            cells: Some(cells),
        };
        for (text, expected) in [
            ("xfs <= 1.10", ratio("xfs", Operator::AtMost, 1.10)),
            ("xfs<1", ratio("xfs", Operator::Below, 1.0)),
            (
                "a b: sync p99 <= 10ms",
                Condition::Time {
                    label: "a b".into(),
                    metric: "sync p99".into(),
                    operator: Operator::AtMost,
                    bound_ns: 10_000_000,
                },
            ),
            ("a b: bytes written <= 0.5", {
                let (label, metric) = ("a b".into(), Some("bytes written".into()));
                Condition::Ratio {
                    label,
                    metric,
                    operator: Operator::AtMost,
                    bound: 0.5,
                    cells: None,
                }
            }),
            ("  my label  >=0.5 ", ratio("my label", Operator::AtLeast, 0.5)),
            ("'a <= b, x' > 2e0", ratio("a <= b, x", Operator::Above, 2.0)),
            ("\"it's\" <= 1.5", ratio("it's", Operator::AtMost, 1.5)),
            ("it's <= 1.5", ratio("it's", Operator::AtMost, 1.5)),
            ("比べ <= 1.5", ratio("比べ", Operator::AtMost, 1.5)),
            ("ext4 @ noatime,data=writeback < 2", {
                ratio("ext4 @ noatime,data=writeback", Operator::Below, 2.0)
            }),
            ("minfs fastest", extreme("minfs", true, &[], 0.0)),
            ("ext4 slowest", extreme("ext4", false, &[], 0.0)),
            ("'x, y' fastest of a b, 'c by d, e', f", {
                extreme("x, y", true, &["a b", "c by d, e", "f"], 0.0)
            }),
            ("nilfs2 fastest of btrfs by 10%", extreme("nilfs2", true, &["btrfs"], 0.1)),
            ("nilfs2 fastest by 2.5 %", extreme("nilfs2", true, &[], 0.025)),
            ("ext4 > 1 in every cell", above(1.0, Cells::Every)),
            ("ext4 > 2 in some cell ", above(2.0, Cells::Some)),
            // As older studies have it.
            ("ext4 loses in every cell", above(1.0, Cells::Every)),
            ("ext4 loses 50% in some cell", above(2.0, Cells::Some)),
            ("ext4 loses 100% in some cell", above(f64::INFINITY, Cells::Some)),
            ("dbench agrees with replay within 25%", {
                let (one, other) = ("dbench".into(), "replay".into());
                Condition::Agreement { one, other, margin: 0.25 }
            }),
            ("ext4 slows down by 10%", {
                Condition::Drift { labels: strings(&["ext4"]), share: 0.1 }
            }),
            ("btrfs, 'a b', ext4 slow down by 10%", {
                Condition::Drift { labels: strings(&["btrfs", "a b", "ext4"]), share: 0.1 }
            }),
            ("xfs: durable", check(&["xfs"], "durability")),
            ("ext4 @ noatime,data=writeback: durable", {
                check(&["ext4 @ noatime", "data=writeback"], "durability")
            }),
            ("'a: b', xfs : contents held ", check(&["a: b", "xfs"], "contents")),
            ("xfs: 'fsync of a file' held", check(&["xfs"], "fsync of a file")),
            ("xfs: link and rename held", check(&["xfs"], "link and rename")),
            ("raw, xfs load the device alike within 10%", {
                Condition::Access { labels: strings(&["raw", "xfs"]), margin: 0.1 }
            }),
        ] {
            assert_eq!(parse(text).as_ref(), Ok(&expected), "{text}");
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
            ("fastest", 1),
            ("xfs fastest of", 15),
            ("xfs fastest than ext4", 12),
            ("xfs fastest by 0%", 16),
            ("xfs fastest by ten", 16),
            ("a, b fastest", 1),
            ("xfs loses 50%", 14),
            ("xfs <= in every cell", 8),
            ("xfs <= 1.1 in cells", 8),
            ("a agrees with b", 16),
            ("a load the device alike within 10%", 1),
            ("xfs: fast", 10),
            ("xfs: held", 10),
            ("xfs durable", 12),
            (": durable", 1),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.column, column, "{error}");
        }
    }

    #[test]
    fn names_that_a_study_has_not_are_refused() {
        let checked = |text: &str| {
            parse(text).unwrap().check(&["ext4", "xfs"], "ext4", &["dbench", "replay"])
        };
        for (text, expected) in [
            ("xsf <= 1.1", "did you mean 'xfs'"),
            ("ext4 <= 1.1", "is the baseline"),
            ("xfs fastest of ext5", "did you mean 'ext4'"),
            ("xfs fastest of xfs", "no rival"),
            (
                "ext4, hammer slow down by 10%",
                "no contender is labelled 'hammer'; there are ext4, xfs",
            ),
            ("dbench agrees with reply within 25%", "did you mean 'replay'"),
        ] {
            let error = checked(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(checked("ext4 fastest of xfs"), Ok(()));
        // Cells are compared with the raw device's.
        assert_eq!(checked("ext4 <= 1.1 in every cell"), Ok(()));
    }
}
