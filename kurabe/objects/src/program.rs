//! A program of the object language, typed: what it says, without how it was written.
//!
//! Must not know: stores, clocks, how the program is run. Its text is another matter: the tests print
//! programs, and reading that gives the same program.

use super::diagnostic::Diagnostic;

/// Greatest size of an object that is embedded in a store's journal, in bytes: what CannyLS takes.
pub const EMBEDDED_BYTES_MAX: u64 = 0xffff;

/// Greatest size of an object that the language can name, in bytes (256 TiB).
pub const OBJECT_BYTES_MAX: u64 = 1 << 48;

/// Greatest number of statements that a program may repeat to; a greater one would never end.
pub const OPERATIONS_MAX: u128 = 1 << 62;

/// Units of time, the least first, in nanoseconds.
pub(crate) const TIME_UNITS: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// What holds for the whole run.
    pub settings: ProgramSettings,
    /// What is done, in this order; never empty.
    pub sections: Vec<ProgramSection>,
}

/// What holds for the whole run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgramSettings {
    /// Seed of every random choice; 0 when the text names none, as in CannylsBencher.
    pub seed: u64,
    /// Operations under way at once; `None` means one.
    pub threads: Option<u32>,
    /// Open loop: operations begin at this rate whether or not earlier ones have ended.
    pub rate: Option<Rate>,
    /// The run ends after this long at the latest, in nanoseconds.
    pub duration_ns: Option<u64>,
}

/// The arrivals of an open loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Operations a second, greater than zero.
    pub per_second: f64,
    /// Exponentially distributed gaps instead of equal ones.
    pub poisson: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ProgramSection {
    /// Every branch in turn, each `count x percent / 100` times (rounded down).
    Ordered {
        /// What the percentages are of.
        count: u64,
        branches: Vec<Branch>,
    },
    /// The same numbers of every branch, in random order.
    Unordered { extent: SectionLength, branches: Vec<Branch> },
    /// Statements one after another.
    Command { body: Vec<Statement> },
}

/// How long an unordered section lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionLength {
    /// This is what the percentages are of; branches are drawn without putting back.
    Count(u64),
    /// As many as can be done in so many nanoseconds; branches are drawn with their percentages
    /// as weights.
    Time(u64),
}

/// A share of a section and what is done in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// Percent of the section's count.
    pub percent: u32,
    /// Statements that stay together.
    pub body: Vec<Statement>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// Put an object under a key never used before.
    New(ObjectSize),
    /// Put an object into the store's journal, where the store has one.
    Embed(ObjectSize),
    /// Put new contents under the key of a live object.
    OverWrite(ObjectSize, Choice),
    /// Read a live object whole.
    Get(Choice),
    /// Delete a live object.
    Delete(Choice),
    /// Delete a range of live objects with one command.
    DeleteRange(Percents),
    /// Make everything durable that was put before.
    Sync,
    /// Repeat statements.
    Times(u64, Vec<Statement>),
}

/// The size of an object, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ObjectSize {
    /// Always this.
    Fixed(u64),
    /// Every size from the first to the second, equally likely.
    Uniform(u64, u64),
    /// The exponential of a normal distribution with this median and standard deviation (of the
    /// logarithm), cut off at a maximum.
    LogNormal {
        /// Half of the objects are smaller.
        median: u64,
        /// Standard deviation of the natural logarithm of the size.
        sigma: f64,
        /// Larger sizes become this one.
        max: u64,
    },
    /// `unit x k` for `k` of 1 to `max / unit`, with probability proportional to `k ^ -exponent`.
    Zipf {
        /// The least size, and the step.
        unit: u64,
        /// No size is greater.
        max: u64,
        /// Greater exponents prefer small objects more.
        exponent: f64,
    },
}

/// Which live object a statement takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// Any of all, equally likely.
    Any,
    /// Any of a range by age, equally likely.
    Range(Percents),
    /// Ranks with probability proportional to `rank ^ -exponent`.
    Zipf {
        /// Greater exponents prefer the popular more.
        exponent: f64,
        /// Which objects have the low ranks.
        order: Popularity,
    },
}

/// Which objects are popular.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Popularity {
    /// The oldest object has rank 1.
    #[default]
    Oldest,
    /// The newest object has rank 1.
    Newest,
    /// Popular objects lie scattered over all ages.
    Scattered,
}

/// A range of live objects by age: 0 is the oldest, 100 the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percents {
    /// From this percentage of the live objects.
    pub from: u32,
    /// To this percentage, not less.
    pub to: u32,
}

/// A program and what its reader should know about it.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub program: Program,
    /// Places where it probably does not say what its author thinks.
    pub warnings: Vec<Diagnostic>,
}

/// Why a text is no program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ProgramError {
    /// At least one error, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

impl Program {
    /// Statements that the program would run if none were skipped, besides those of sections that
    /// last for a time. This counts no statement inside a body without statements.
    pub fn statements(&self) -> u128 {
        self.sections.iter().fold(0, |sum: u128, section| sum.saturating_add(section.statements()))
    }

    /// The same program with its counts multiplied by `factor`.
    ///
    /// The count of a section and the outermost `times` of a `Command` section are multiplied and
    /// rounded, but never to less than 1; what rounding up to 1 made too much is taken from the
    /// `times` within. Statements outside of any repetition stay. Lengths in time are multiplied.
    ///
    /// Panics unless the factor is finite and greater than zero.
    pub fn scaled(&self, factor: f64) -> Program {
        assert!(factor.is_finite() && factor > 0.0, "a program was scaled by {factor}");
        let scale_branches = |branches: &[Branch], factor: f64| {
            branches
                .iter()
                .map(|branch| Branch {
                    percent: branch.percent,
                    body: scale_body(&branch.body, factor),
                })
                .collect()
        };
        let sections = self
            .sections
            .iter()
            .map(|section| match section {
                ProgramSection::Ordered { count, branches } => {
                    let (count, rest) = scale_count(*count, factor);
                    ProgramSection::Ordered { count, branches: scale_branches(branches, rest) }
                }
                ProgramSection::Unordered { extent: SectionLength::Count(count), branches } => {
                    let (count, rest) = scale_count(*count, factor);
                    ProgramSection::Unordered {
                        extent: SectionLength::Count(count),
                        branches: scale_branches(branches, rest),
                    }
                }
                ProgramSection::Unordered { extent: SectionLength::Time(length_ns), branches } => {
                    ProgramSection::Unordered {
                        extent: SectionLength::Time(((*length_ns as f64 * factor) as u64).max(1)),
                        branches: branches.clone(),
                    }
                }
                ProgramSection::Command { body } => {
                    ProgramSection::Command { body: scale_body(body, factor) }
                }
            })
            .collect();
        Program {
            settings: ProgramSettings {
                duration_ns: self
                    .settings
                    .duration_ns
                    .map(|length_ns| ((length_ns as f64 * factor) as u64).max(1)),
                ..self.settings.clone()
            },
            sections,
        }
    }
}

/// The scaled count, and what of the factor is left for the repetitions within.
fn scale_count(count: u64, factor: f64) -> (u64, f64) {
    if count == 0 {
        return (0, 1.0);
    }
    let wanted = count as f64 * factor;
    if wanted >= 1.0 { (wanted.round() as u64, 1.0) } else { (1, wanted) }
}

fn scale_body(body: &[Statement], factor: f64) -> Vec<Statement> {
    if factor == 1.0 {
        return body.to_vec();
    }
    body.iter()
        .map(|statement| match statement {
            Statement::Times(count, body) => {
                let (count, rest) = scale_count(*count, factor);
                Statement::Times(count, scale_body(body, rest))
            }
            other => other.clone(),
        })
        .collect()
}

/// Whether a body that runs carries out a statement of this sort.
pub(crate) fn has(body: &[Statement], is_sought: fn(&Statement) -> bool) -> bool {
    body.iter().any(|statement| match statement {
        Statement::Times(count, body) => *count > 0 && has(body, is_sought),
        other => is_sought(other),
    })
}

/// How often a branch of this percentage runs in a section of this count.
pub(crate) fn share(count: u64, percent: u32) -> u64 {
    u64::try_from(u128::from(count) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

impl ProgramSection {
    fn statements(&self) -> u128 {
        match self {
            ProgramSection::Ordered { count, branches }
            | ProgramSection::Unordered { extent: SectionLength::Count(count), branches } => {
                branches.iter().fold(0, |sum: u128, branch| {
                    let turns = u128::from(share(*count, branch.percent));
                    sum.saturating_add(turns.saturating_mul(statements_of(&branch.body)))
                })
            }
            ProgramSection::Unordered { extent: SectionLength::Time(_), .. } => 0,
            ProgramSection::Command { body } => statements_of(body),
        }
    }
}

fn statements_of(body: &[Statement]) -> u128 {
    body.iter().fold(0, |sum: u128, statement| {
        sum.saturating_add(match statement {
            Statement::Times(count, body) => u128::from(*count).saturating_mul(statements_of(body)),
            _ => 1,
        })
    })
}

impl ObjectSize {
    /// The greatest size that can come up.
    pub fn max(&self) -> u64 {
        match *self {
            ObjectSize::Fixed(size) => size,
            ObjectSize::Uniform(_, max) | ObjectSize::LogNormal { max, .. } => max,
            ObjectSize::Zipf { unit, max, .. } => max / unit * unit,
        }
    }

    /// The name that kinds of operations carry: the size in bytes, or the distribution without
    /// spaces and commas.
    pub fn label(&self) -> String {
        match *self {
            ObjectSize::Fixed(size) => size.to_string(),
            ObjectSize::Uniform(min, max) => format!("uniform:{min}-{max}"),
            ObjectSize::LogNormal { median, sigma, max } => {
                format!("lognormal:{median}:{sigma}:{max}")
            }
            ObjectSize::Zipf { unit, max, exponent } => format!("zipf:{unit}-{max}:{exponent}"),
        }
    }
}

impl Popularity {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Popularity::Oldest => "oldest",
            Popularity::Newest => "newest",
            Popularity::Scattered => "scattered",
        }
    }
}
