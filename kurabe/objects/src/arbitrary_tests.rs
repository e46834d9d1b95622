//! Programs at random and programs as text, for the property tests of this crate.

use std::fmt;

use proptest::prelude::*;

use super::program::{
    Branch, Choice, EMBEDDED_BYTES_MAX, ObjectSize, Percents, Popularity, Program, ProgramSection,
    ProgramSettings, Rate, SectionLength, Statement, TIME_UNITS,
};

fn sizes(max: u64) -> impl Strategy<Value = ObjectSize> {
    let exponents = (1u32..2000).prop_map(|thousandths| f64::from(thousandths) / 100.0);
    prop_oneof![
        (0..=max).prop_map(ObjectSize::Fixed),
        (0u32..=10).prop_map(|shift| ObjectSize::Fixed(1 << shift)),
        (0..=max, 0..=max)
            .prop_map(|(one, other)| ObjectSize::Uniform(one.min(other), one.max(other))),
        (1..=max, 1..=max, exponents.clone()).prop_map(|(one, other, sigma)| {
            ObjectSize::LogNormal { median: one.min(other), sigma, max: one.max(other) }
        }),
        (1..=max, 1..=max, exponents).prop_map(|(one, other, exponent)| ObjectSize::Zipf {
            unit: one.min(other),
            max: one.max(other),
            exponent,
        }),
    ]
}

fn choices() -> impl Strategy<Value = Choice> {
    prop_oneof![
        Just(Choice::Any),
        (0u32..=100, 0u32..=100)
            .prop_map(|(one, other)| (one.min(other), one.max(other)))
            .prop_filter("this is `Any`", |range| *range != (0, 100))
            .prop_map(|(from, to)| Choice::Range(Percents { from, to })),
        (
            (1u32..2000).prop_map(|hundredths| f64::from(hundredths) / 100.0),
            prop_oneof![
                Just(Popularity::Oldest),
                Just(Popularity::Newest),
                Just(Popularity::Scattered)
            ]
        )
            .prop_map(|(exponent, order)| Choice::Zipf { exponent, order }),
    ]
}

fn statements() -> impl Strategy<Value = Statement> {
    let simple = prop_oneof![
        sizes(1 << 48).prop_map(Statement::New),
        sizes(EMBEDDED_BYTES_MAX).prop_map(Statement::Embed),
        (sizes(1 << 48), choices()).prop_map(|(size, choice)| Statement::OverWrite(size, choice)),
        choices().prop_map(Statement::Get),
        choices().prop_map(Statement::Delete),
        (0u32..=100, 0u32..=100).prop_map(|(one, other)| Statement::DeleteRange(Percents {
            from: one.min(other),
            to: one.max(other)
        })),
        Just(Statement::Sync),
    ];
    simple.prop_recursive(3, 12, 3, |inner| {
        (0u64..8, prop::collection::vec(inner, 0..3))
            .prop_map(|(count, body)| Statement::Times(count, body))
    })
}

fn branches() -> impl Strategy<Value = Vec<Branch>> {
    let body = prop::collection::vec(statements(), 0..3);
    prop::collection::vec(
        (0u32..=255, body).prop_map(|(percent, body)| Branch { percent, body }),
        0..4,
    )
}

/// Programs of every construct, of at most some thousands of statements a section.
pub(crate) fn programs() -> impl Strategy<Value = Program> {
    let rates =
        prop::option::of((1u32..10_000_000, any::<bool>()).prop_map(|(hundredths, poisson)| {
            Rate { per_second: f64::from(hundredths) / 100.0, poisson }
        }));
    let settings = (
        any::<u64>(),
        prop::option::of(1u32..=1024),
        rates,
        prop::option::of(1u64..1_000_000_000_000_000),
    )
        .prop_map(|(seed, threads, rate, duration_ns)| ProgramSettings {
            seed,
            threads,
            rate,
            duration_ns,
        });
    let sections = prop_oneof![
        (0u64..1_000, branches())
            .prop_map(|(count, branches)| ProgramSection::Ordered { count, branches }),
        (0u64..1_000, branches()).prop_map(|(count, branches)| ProgramSection::Unordered {
            extent: SectionLength::Count(count),
            branches
        }),
        (1u64..1_000_000_000_000_000, branches()).prop_map(|(length_ns, branches)| {
            ProgramSection::Unordered { extent: SectionLength::Time(length_ns), branches }
        }),
        prop::collection::vec(statements(), 0..4).prop_map(|body| ProgramSection::Command { body }),
    ];
    (settings, prop::collection::vec(sections, 1..4))
        .prop_map(|(settings, sections)| Program { settings, sections })
}

/// A size as the language writes it: with the greatest suffix that divides it.
pub(crate) struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        for (suffix, shift) in [('T', 40), ('G', 30), ('M', 20), ('K', 10)] {
            if bytes != 0 && bytes.trailing_zeros() >= shift {
                return write!(formatter, "{}{suffix}", bytes >> shift);
            }
        }
        write!(formatter, "{bytes}")
    }
}

/// A length of time as the language writes it.
pub(crate) struct Time(pub u64);

impl fmt::Display for Time {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, unit_ns) in TIME_UNITS.iter().rev() {
            if self.0.is_multiple_of(*unit_ns) {
                return write!(formatter, "{}{unit}", self.0 / unit_ns);
            }
        }
        write!(formatter, "{}ns", self.0)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.settings;
        writeln!(formatter, "Seed: {};", settings.seed)?;
        if let Some(threads) = settings.threads {
            writeln!(formatter, "Threads: {threads};")?;
        }
        if let Some(rate) = settings.rate {
            let poisson = if rate.poisson { " poisson" } else { "" };
            writeln!(formatter, "Rate: {}{poisson};", rate.per_second)?;
        }
        if let Some(duration_ns) = settings.duration_ns {
            writeln!(formatter, "Duration: {};", Time(duration_ns))?;
        }
        for section in &self.sections {
            match section {
                ProgramSection::Ordered { count, branches } => {
                    writeln!(formatter, "Ordered[{count}] {{")?;
                    print_branches(formatter, branches)?;
                }
                ProgramSection::Unordered { extent, branches } => {
                    match extent {
                        SectionLength::Count(count) => {
                            writeln!(formatter, "Unordered[{count}] {{")?
                        }
                        SectionLength::Time(length_ns) => {
                            writeln!(formatter, "Unordered[{}] {{", Time(*length_ns))?;
                        }
                    }
                    print_branches(formatter, branches)?;
                }
                ProgramSection::Command { body } => {
                    writeln!(formatter, "Command {{")?;
                    print_body(formatter, body, 1)?;
                }
            }
            writeln!(formatter, "}}")?;
        }
        Ok(())
    }
}

fn print_branches(formatter: &mut fmt::Formatter<'_>, branches: &[Branch]) -> fmt::Result {
    for branch in branches {
        writeln!(formatter, "  <{}%> {{", branch.percent)?;
        print_body(formatter, &branch.body, 2)?;
        writeln!(formatter, "  }};")?;
    }
    Ok(())
}

fn print_body(formatter: &mut fmt::Formatter<'_>, body: &[Statement], depth: usize) -> fmt::Result {
    let indent = "  ".repeat(depth);
    for statement in body {
        match statement {
            Statement::Times(count, body) => {
                writeln!(formatter, "{indent}{count}.times {{")?;
                print_body(formatter, body, depth + 1)?;
                writeln!(formatter, "{indent}}};")?;
            }
            simple => writeln!(formatter, "{indent}{simple};")?,
        }
    }
    Ok(())
}

impl fmt::Display for Statement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with_choice =
            |formatter: &mut fmt::Formatter<'_>, word: &str, choice: &Choice| match choice {
                Choice::Any => write!(formatter, "{word}"),
                chosen => write!(formatter, "{word}({chosen})"),
            };
        match self {
            Statement::New(size) => write!(formatter, "New({size})"),
            Statement::Embed(size) => write!(formatter, "Embed({size})"),
            Statement::OverWrite(size, Choice::Any) => write!(formatter, "OverWrite({size})"),
            Statement::OverWrite(size, choice) => {
                write!(formatter, "OverWrite({size}, {choice})")
            }
            Statement::Get(choice) => with_choice(formatter, "Get", choice),
            Statement::Delete(choice) => with_choice(formatter, "Delete", choice),
            Statement::DeleteRange(percents) => write!(formatter, "DeleteRange({percents})"),
            Statement::Sync => write!(formatter, "Sync"),
            Statement::Times(count, body) => {
                write!(formatter, "{count}.times {{ {} statements }}", body.len())
            }
        }
    }
}

impl fmt::Display for ObjectSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ObjectSize::Fixed(size) => write!(formatter, "{}", Bytes(size)),
            ObjectSize::Uniform(min, max) => {
                write!(formatter, "uniform({}, {})", Bytes(min), Bytes(max))
            }
            ObjectSize::LogNormal { median, sigma, max } => {
                write!(formatter, "lognormal({}, {sigma}, {})", Bytes(median), Bytes(max))
            }
            ObjectSize::Zipf { unit, max, exponent } => {
                write!(formatter, "zipf({}, {}, {exponent})", Bytes(unit), Bytes(max))
            }
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Any => write!(formatter, "0, 100"),
            Choice::Range(percents) => write!(formatter, "{percents}"),
            Choice::Zipf { exponent, order } => {
                write!(formatter, "zipf({exponent}, {})", order.word())
            }
        }
    }
}

impl fmt::Display for Percents {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, {}", self.from, self.to)
    }
}
