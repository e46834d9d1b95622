//! Programs at random, for the property tests of this room.

use proptest::prelude::*;

use super::program::{
    Branch, Choice, EMBEDDED_BYTES_MAX, Extent, Percents, Popularity, Program, Rate, Section,
    Settings, Size, Statement,
};

fn sizes(max: u64) -> impl Strategy<Value = Size> {
    let exponents = (1u32..2000).prop_map(|thousandths| f64::from(thousandths) / 100.0);
    prop_oneof![
        (0..=max).prop_map(Size::Fixed),
        (0u32..=10).prop_map(|shift| Size::Fixed(1 << shift)),
        (0..=max, 0..=max).prop_map(|(one, other)| Size::Uniform(one.min(other), one.max(other))),
        (1..=max, 1..=max, exponents.clone()).prop_map(|(one, other, sigma)| Size::LogNormal {
            median: one.min(other),
            sigma,
            max: one.max(other),
        }),
        (1..=max, 1..=max, exponents).prop_map(|(one, other, exponent)| Size::Zipf {
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
        .prop_map(|(seed, threads, rate, duration_ns)| Settings {
            seed,
            threads,
            rate,
            duration_ns,
        });
    let sections = prop_oneof![
        (0u64..1_000, branches())
            .prop_map(|(count, branches)| Section::Ordered { count, branches }),
        (0u64..1_000, branches()).prop_map(|(count, branches)| Section::Unordered {
            extent: Extent::Count(count),
            branches
        }),
        (1u64..1_000_000_000_000_000, branches()).prop_map(|(length_ns, branches)| {
            Section::Unordered { extent: Extent::Time(length_ns), branches }
        }),
        prop::collection::vec(statements(), 0..4).prop_map(|body| Section::Command { body }),
    ];
    (settings, prop::collection::vec(sections, 1..4))
        .prop_map(|(settings, sections)| Program { settings, sections })
}
